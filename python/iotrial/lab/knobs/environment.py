"""Knobs of the work itself: its own keys, a command's argument, an environment variable, who reads, the state of the caches.

They change nothing on the target; they are part of the job, which the probe echoes by what it does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from iotrial.errors import RequestError, UnsupportedLevel
from iotrial.lab import cache
from iotrial.lab.knob import (
    Consequence,
    Knob,
    Requirement,
    Scope,
    Stage,
    Subject,
    at_risk,
    harmless,
    not_judged,
    one_of,
)
from iotrial.study.model import Setting

MAXIMUM_TEXT = 4096
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
PLACEHOLDER = re.compile(r"\{[A-Za-z0-9_-]{1,64}\}")
_PLAIN = re.compile(r"(?!.*\.\.)[A-Za-z0-9 .%_-]{1,64}", re.ASCII)


def _text(knob: str, value: str) -> str:
    if "\0" in value or len(value) > MAXIMUM_TEXT:
        raise UnsupportedLevel(f"knob {knob}: a value has at most {MAXIMUM_TEXT} characters and no NUL")
    return value


class CommandArgument(Knob):
    """A text put in place of a placeholder in a command's argument list."""

    name = "command.argument"
    title = "text in place of a placeholder in the command's arguments"
    consequence = not_judged(
        "iotrial does not know what this argument means to the program, nor what it does to data after a power cut"
    )
    stage = Stage.WORK
    option = "placeholder"
    open_levels = "any text"

    def parse(self, setting: Setting) -> str:
        placeholder = self.value_option(setting)
        if not PLACEHOLDER.fullmatch(placeholder):
            raise RequestError(
                f'knob command.argument: "{placeholder}" is no placeholder', hint='for example "{threads}"'
            )
        if placeholder in ("{file}", "{files}", "{dir}", "{out}"):
            raise RequestError(f"knob command.argument: {placeholder} is filled in by iotrial itself")
        return _text(self.name, setting.value)

    def levels(self, subject: Subject, setting: Setting) -> tuple[str, ...]:
        return ()

    def read(self, subject: Subject, setting: Setting) -> str:
        return subject.work.arguments.get(self.value_option(setting), "")

    def write(self, subject: Subject, setting: Setting, value: str) -> None:
        subject.work.arguments[self.value_option(setting)] = value


class EnvironmentVariable(Knob):
    """A variable in the environment of the command."""

    name = "environment.variable"
    title = "an environment variable of the command"
    consequence = not_judged(
        "iotrial does not know what this variable means to the program, nor what it does to data after a power cut"
    )
    stage = Stage.WORK
    option = "variable"
    open_levels = "any text"

    def parse(self, setting: Setting) -> str:
        variable = self.value_option(setting)
        if not VARIABLE.fullmatch(variable):
            raise RequestError(f'knob environment.variable: "{variable}" is no name of a variable')
        if variable.startswith("LD_"):
            raise RequestError(
                f"knob environment.variable: {variable} changes what program runs, and is refused"
            )
        return _text(self.name, setting.value)

    def levels(self, subject: Subject, setting: Setting) -> tuple[str, ...]:
        return ()

    def read(self, subject: Subject, setting: Setting) -> str:
        return subject.work.environment.get(self.value_option(setting), "")

    def write(self, subject: Subject, setting: Setting, value: str) -> None:
        subject.work.environment[self.value_option(setting)] = value


class WorkOption(Knob):
    """A key of the workload itself, such as the block size of a stream. Which keys a kind lets be varied, and which values
    can work, is the kind's to say."""

    name = "work.option"
    title = "a key of the workload at another value (block_size, direct, data ... of a stream)"
    consequence = not_judged("iotrial does not know what this key of the work does to data after a power cut")
    stage = Stage.WORK
    option = "option"
    open_levels = "what a study file may write for that key"

    consequences: Mapping[str, Consequence] = {
        **dict.fromkeys(
            (
                "block", "block_size", "buffer_dump", "clients", "count", "data", "delay", "direct", "load", "operations",
                "order", "position", "rows", "truncate", "volume",
            ),
            harmless("how much the work does and how, no setting that somebody keeps"),
        ),
        "durable=true": harmless("a transaction that was committed is on the disk"),
        # SQLite: synchronous = OFF; MariaDB: innodb_flush_log_at_trx_commit = 2; PostgreSQL: synchronous_commit = off
        "durable=false": at_risk(
            "transactions that were committed may be lost in a power cut, and SQLite (synchronous = OFF) may lose the "
            "whole database"
        ),
    }  # fmt: skip

    def consequence_of(self, setting: Setting) -> Consequence:
        key = dict(setting.options).get("option", "")
        by_value = self.consequences.get(f"{key}={setting.value.strip()}")
        return by_value or self.consequences.get(key, self.consequence)

    def parse(self, setting: Setting) -> str:
        self.value_option(setting)
        if not _PLAIN.fullmatch(setting.value):
            raise UnsupportedLevel(
                f"knob {self.name}: {self.value_option(setting)}: {setting.value!r} is no value of a key",
                hint="letters, digits, spaces and . % _ - are, as in 64 KiB or 50 % random",
            )
        return setting.value

    def levels(self, subject: Subject, setting: Setting) -> tuple[str, ...]:
        return ()

    def read(self, subject: Subject, setting: Setting) -> str:
        return subject.work.options.get(self.value_option(setting), "")

    def write(self, subject: Subject, setting: Setting, value: str) -> None:
        subject.work.options[self.value_option(setting)] = value


class ProcessUser(Knob):
    """Who does the work: root, or a user without privilege (``nobody``)."""

    name = "process.user"
    title = "who does the work: self, root, or unprivileged (the user nobody)"
    consequence = harmless("the same work by another user")
    stage = Stage.WORK

    LEVELS = ("self", "root", "unprivileged")

    def parse(self, setting: Setting) -> str:
        return one_of(self.name, setting.value, self.LEVELS)

    def levels(self, subject: Subject, setting: Setting) -> tuple[str, ...]:
        return self.LEVELS

    def requires(self, setting: Setting) -> Requirement:
        return Requirement(root=setting.value != "self")

    def read(self, subject: Subject, setting: Setting) -> str:
        return subject.work.reader

    def write(self, subject: Subject, setting: Setting, value: str) -> None:
        subject.work.reader = value


class CacheState(Knob):
    """What is cached when the timed part begins."""

    name = "cache.state"
    title = "what is cached before the timed part"
    consequence = harmless("only how warm a run begins")
    stage = Stage.CACHE
    scope = Scope.FILES

    def parse(self, setting: Setting) -> str:
        return one_of(self.name, setting.value, cache.ALL)

    def levels(self, subject: Subject, setting: Setting) -> tuple[str, ...]:
        return ("cold", *cache.STATES[subject.place.kind])

    def requires(self, setting: Setting) -> Requirement:
        labs = {kind for kind, states in cache.STATES.items() if setting.value in (*states, "cold")}
        return Requirement(root=setting.value in cache.NEEDS_ROOT, labs=frozenset(labs))

    def read(self, subject: Subject, setting: Setting) -> str:
        return subject.work.cache

    def write(self, subject: Subject, setting: Setting, value: str) -> None:
        subject.work.cache = value

    def changes(self, setting: Setting, values: tuple[str, ...]) -> tuple[str, ...]:
        return ("drops the page cache of the whole machine before runs",) if "cold-system" in values else ()
