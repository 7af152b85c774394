"""Knobs of the work itself: workload keys, a command's argument, an environment variable, the reading user, cache state,
sizes of the matrix, and the program that does the work.

They change nothing on the target. They are part of the job, and the probe's behaviour reflects them.
"""

from __future__ import annotations

import posixpath
import re
from typing import ClassVar

from iotrial.errors import KnobError, RequestError, TargetError, UnsupportedLevel
from iotrial.knobs import work as declared
from iotrial.knobs.knob import Knob, Requirement, RunContext, WorkDraft, one_of, size_within
from iotrial.knobs.work import LARGEST_FILE, LARGEST_RECORD, SMALLEST_RECORD
from iotrial.lab import cache
from iotrial.study.model import Setting
from iotrial.study.places import EVERYWHERE
from iotrial.study.programs import PROGRAM

MAXIMUM_TEXT = 4096
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
PLACEHOLDER = re.compile(r"\{[A-Za-z0-9_-]{1,64}\}")
_PLAIN = re.compile(r"(?!.*\.\.)[A-Za-z0-9 .%_-]{1,64}", re.ASCII)


def _text(knob: str, value: str) -> str:
    if "\0" in value or len(value) > MAXIMUM_TEXT:
        raise UnsupportedLevel(f"knob {knob}: a value has at most {MAXIMUM_TEXT} characters and no NUL")
    return value


class NamedValue(Knob):
    """A text in the job, under the name that the knob's option gives."""

    requirement = Requirement(labs=EVERYWHERE)

    def values(self, work: WorkDraft) -> dict[str, str]:
        """Return the texts of the draft, by name."""
        raise NotImplementedError

    def read(self, subject: RunContext, setting: Setting) -> str:
        return self.values(subject.work).get(self.value_option(setting), "")

    def write(self, subject: RunContext, setting: Setting, value: str) -> None:
        self.values(subject.work)[self.value_option(setting)] = value


class CommandArgument(NamedValue, declared.CommandArgument):
    def values(self, work: WorkDraft) -> dict[str, str]:
        return work.arguments

    def parse(self, setting: Setting) -> str:
        placeholder = self.value_option(setting)
        if not PLACEHOLDER.fullmatch(placeholder):
            raise RequestError(
                f'knob command.argument: "{placeholder}" is not a placeholder', hint='for example "{threads}"'
            )
        if placeholder in ("{file}", "{files}", "{dir}", "{out}"):
            raise RequestError(f"knob command.argument: {placeholder} is set by iotrial itself")
        return _text(self.name, setting.value)


class EnvironmentVariable(NamedValue, declared.EnvironmentVariable):
    def values(self, work: WorkDraft) -> dict[str, str]:
        return work.environment

    def parse(self, setting: Setting) -> str:
        variable = self.value_option(setting)
        if not VARIABLE.fullmatch(variable):
            raise RequestError(f'knob environment.variable: "{variable}" is not the name of a variable')
        if variable.startswith("LD_"):
            raise RequestError(
                f"knob environment.variable: {variable} changes which program runs, and is not allowed"
            )
        return _text(self.name, setting.value)


class WorkOption(NamedValue, declared.WorkOption):
    def values(self, work: WorkDraft) -> dict[str, str]:
        return work.options

    def parse(self, setting: Setting) -> str:
        self.value_option(setting)
        if not _PLAIN.fullmatch(setting.value):
            raise UnsupportedLevel(
                f"knob {self.name}: {self.value_option(setting)}: {setting.value!r} is not a value of a key",
                hint="allowed: letters, digits, spaces and . % _ -, as in 64 KiB or 50 % random",
            )
        return setting.value


class ProcessUser(Knob, declared.ProcessUser):
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


class MatrixSize(Knob):
    """A size in the job of the matrix workload: of its file, or of a record."""

    of: ClassVar[str]
    largest: ClassVar[int]

    def parse(self, setting: Setting) -> str:
        return str(size_within(self.name, setting.value, SMALLEST_RECORD, self.largest, self.open_levels))

    def read(self, subject: RunContext, setting: Setting) -> str:
        return str(subject.work.sizes.get(self.of, 0))

    def write(self, subject: RunContext, setting: Setting, value: str) -> None:
        subject.work.sizes[self.of] = int(value)


class MatrixFileSize(MatrixSize, declared.MatrixFileSize):
    of = "file_size"
    largest = LARGEST_FILE


class MatrixRecordSize(MatrixSize, declared.MatrixRecordSize):
    of = "record_size"
    largest = LARGEST_RECORD


class ProgramPath(Knob, declared.ProgramPath):
    """A program, or a folder of programs, that does the work; named by the user on the command line.

    A study cannot name one (``study.select`` creates the levels from the user's options). Before anything runs,
    ``runner.programs`` checks who could have written to it.
    """

    def parse(self, setting: Setting) -> str:
        path = setting.value
        if (
            not path.startswith("/")
            or path.startswith("//")
            or posixpath.normpath(path) != path
            or not path.isprintable()
            or ":" in path
        ):
            raise UnsupportedLevel(
                f'knob {self.name}: "{path}" is not a plain absolute path',
                hint="as in /usr/lib/postgresql/15/bin",
            )
        return path

    def read(self, subject: RunContext, setting: Setting) -> str:
        return subject.work.programs.get(PROGRAM, "")

    def write(self, subject: RunContext, setting: Setting, value: str) -> None:
        subject.work.programs[PROGRAM] = value

    def verify(self, subject: RunContext, setting: Setting, value: str) -> None:
        super().verify(subject, setting, value)
        if not value:
            return  # Debian's default location
        try:
            subject.target.stat(value)
        except TargetError as error:
            raise KnobError(self.name, value, wrote=value, found=error.message) from error

    def changes(self, setting: Setting, values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(f"nothing; programs of {path} run as the user who typed the command" for path in values)
