"""Knobs of the work itself: workload keys, a command's argument, an environment variable, the reading user, cache state.

They change nothing on the target. They are part of the job, and the probe's behaviour reflects them.
"""

from __future__ import annotations

import re

from iotrial.errors import RequestError, UnsupportedLevel
from iotrial.knobs import work as declared
from iotrial.lab import cache
from iotrial.lab.knob import Knob, Requirement, RunContext, one_of
from iotrial.study.model import Setting
from iotrial.study.places import EVERYWHERE

MAXIMUM_TEXT = 4096
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
PLACEHOLDER = re.compile(r"\{[A-Za-z0-9_-]{1,64}\}")
_PLAIN = re.compile(r"(?!.*\.\.)[A-Za-z0-9 .%_-]{1,64}", re.ASCII)


def _text(knob: str, value: str) -> str:
    if "\0" in value or len(value) > MAXIMUM_TEXT:
        raise UnsupportedLevel(f"knob {knob}: a value has at most {MAXIMUM_TEXT} characters and no NUL")
    return value


class CommandArgument(Knob, declared.CommandArgument):
    def requires(self, setting: Setting) -> Requirement:
        return Requirement(labs=EVERYWHERE)

    def parse(self, setting: Setting) -> str:
        placeholder = self.value_option(setting)
        if not PLACEHOLDER.fullmatch(placeholder):
            raise RequestError(
                f'knob command.argument: "{placeholder}" is not a placeholder', hint='for example "{threads}"'
            )
        if placeholder in ("{file}", "{files}", "{dir}", "{out}"):
            raise RequestError(f"knob command.argument: {placeholder} is set by iotrial itself")
        return _text(self.name, setting.value)

    def levels(self, subject: RunContext, setting: Setting) -> tuple[str, ...]:
        return ()

    def read(self, subject: RunContext, setting: Setting) -> str:
        return subject.work.arguments.get(self.value_option(setting), "")

    def write(self, subject: RunContext, setting: Setting, value: str) -> None:
        subject.work.arguments[self.value_option(setting)] = value


class EnvironmentVariable(Knob, declared.EnvironmentVariable):
    def requires(self, setting: Setting) -> Requirement:
        return Requirement(labs=EVERYWHERE)

    def parse(self, setting: Setting) -> str:
        variable = self.value_option(setting)
        if not VARIABLE.fullmatch(variable):
            raise RequestError(f'knob environment.variable: "{variable}" is not the name of a variable')
        if variable.startswith("LD_"):
            raise RequestError(
                f"knob environment.variable: {variable} changes which program runs, and is not allowed"
            )
        return _text(self.name, setting.value)

    def levels(self, subject: RunContext, setting: Setting) -> tuple[str, ...]:
        return ()

    def read(self, subject: RunContext, setting: Setting) -> str:
        return subject.work.environment.get(self.value_option(setting), "")

    def write(self, subject: RunContext, setting: Setting, value: str) -> None:
        subject.work.environment[self.value_option(setting)] = value


class WorkOption(Knob, declared.WorkOption):
    def requires(self, setting: Setting) -> Requirement:
        return Requirement(labs=EVERYWHERE)

    def parse(self, setting: Setting) -> str:
        self.value_option(setting)
        if not _PLAIN.fullmatch(setting.value):
            raise UnsupportedLevel(
                f"knob {self.name}: {self.value_option(setting)}: {setting.value!r} is not a value of a key",
                hint="allowed: letters, digits, spaces and . % _ -, as in 64 KiB or 50 % random",
            )
        return setting.value

    def levels(self, subject: RunContext, setting: Setting) -> tuple[str, ...]:
        return ()

    def read(self, subject: RunContext, setting: Setting) -> str:
        return subject.work.options.get(self.value_option(setting), "")

    def write(self, subject: RunContext, setting: Setting, value: str) -> None:
        subject.work.options[self.value_option(setting)] = value


class ProcessUser(Knob, declared.ProcessUser):
    def parse(self, setting: Setting) -> str:
        return one_of(self.name, setting.value, self.LEVELS)

    def levels(self, subject: RunContext, setting: Setting) -> tuple[str, ...]:
        return self.LEVELS

    def requires(self, setting: Setting) -> Requirement:
        return Requirement(root=setting.value != "self", labs=EVERYWHERE)

    def read(self, subject: RunContext, setting: Setting) -> str:
        return subject.work.reader

    def write(self, subject: RunContext, setting: Setting, value: str) -> None:
        subject.work.reader = value


class CacheState(Knob, declared.CacheState):
    def parse(self, setting: Setting) -> str:
        return one_of(self.name, setting.value, cache.ALL)

    def levels(self, subject: RunContext, setting: Setting) -> tuple[str, ...]:
        return ("cold", *cache.STATES[subject.place.kind])

    def requires(self, setting: Setting) -> Requirement:
        labs = {kind for kind, states in cache.STATES.items() if setting.value in (*states, "cold")}
        return Requirement(root=setting.value in cache.NEEDS_ROOT, labs=frozenset(labs))

    def read(self, subject: RunContext, setting: Setting) -> str:
        return subject.work.cache

    def write(self, subject: RunContext, setting: Setting, value: str) -> None:
        subject.work.cache = value

    def changes(self, setting: Setting, values: tuple[str, ...]) -> tuple[str, ...]:
        return ("drops the page cache of the whole machine before runs",) if "cold-system" in values else ()
