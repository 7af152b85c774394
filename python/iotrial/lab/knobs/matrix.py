"""Knobs of the matrix workload: the size of its file and that of a record. They are part of the job."""

from __future__ import annotations

from typing import ClassVar

from iotrial.errors import UnsupportedLevel
from iotrial.lab.knob import Knob, Stage, Subject
from iotrial.study.kinds.matrix import FILE_SIZE, LARGEST_FILE, LARGEST_RECORD, RECORD_SIZE, SMALLEST_RECORD
from iotrial.study.model import Setting
from iotrial.units import UnitError, parse_size


class _Size(Knob):
    """A size of the job's own file."""

    stage = Stage.WORK
    of: ClassVar[str]
    largest: ClassVar[int]

    def parse(self, setting: Setting) -> str:
        try:
            size = parse_size(setting.value)
        except UnitError as error:
            raise UnsupportedLevel(f"knob {self.name}: {error}", hint=error.hint) from error
        if not SMALLEST_RECORD <= size <= self.largest:
            raise UnsupportedLevel(
                f'knob {self.name}: "{setting.value}" is out of range', hint=self.open_levels
            )
        return str(size)

    def levels(self, subject: Subject, setting: Setting) -> tuple[str, ...]:  # noqa: ARG002
        return ()

    def read(self, subject: Subject, setting: Setting) -> str:  # noqa: ARG002
        return str(subject.work.sizes.get(self.of, 0))

    def write(self, subject: Subject, setting: Setting, value: str) -> None:  # noqa: ARG002
        subject.work.sizes[self.of] = int(value)


class MatrixFileSize(_Size):
    """Size of the file that the tests work on."""

    name = FILE_SIZE
    title = "size of the file of a matrix workload, a multiple of its record size"
    open_levels = "8 B to 1 TiB"
    of = "file_size"
    largest = LARGEST_FILE


class MatrixRecordSize(_Size):
    """How much each call of a test reads or writes."""

    name = RECORD_SIZE
    title = "record size of a matrix workload: what each call reads or writes"
    open_levels = "8 B to 1 GiB"
    of = "record_size"
    largest = LARGEST_RECORD
