"""The program that does the work: a program, or a folder of programs, named by the user on the command line.

A study cannot name one (``study.select`` creates the levels from the user's options). Before anything runs,
``runner.programs`` checks who could have written to it.
"""

from __future__ import annotations

import posixpath

from iotrial.errors import KnobError, TargetError, UnsupportedLevel
from iotrial.knobs import work as declared
from iotrial.lab.knob import Knob, RunContext
from iotrial.study.model import Setting
from iotrial.study.programs import PROGRAM


class ProgramPath(Knob, declared.ProgramPath):
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

    def levels(self, subject: RunContext, setting: Setting) -> tuple[str, ...]:
        return ()

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
