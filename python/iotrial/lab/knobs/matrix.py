"""Knobs of the matrix workload: the size of its file and that of a record. They are part of the job."""

from __future__ import annotations

from typing import ClassVar

from iotrial.lab.knob import Knob, Stage, Subject, harmless, size_within
from iotrial.study.model import Setting

FILE_SIZE, RECORD_SIZE = "matrix.file_size", "matrix.record_size"
SMALLEST_RECORD, LARGEST_RECORD = 8, 1 << 30
LARGEST_FILE = 1 << 40


class _Size(Knob):
    """A size of the job's own file."""

    stage = Stage.WORK
    of: ClassVar[str]
    largest: ClassVar[int]

    def parse(self, setting: Setting) -> str:
        return str(size_within(self.name, setting.value, SMALLEST_RECORD, self.largest, self.open_levels))

    def levels(self, subject: Subject, setting: Setting) -> tuple[str, ...]:
        return ()

    def read(self, subject: Subject, setting: Setting) -> str:
        return str(subject.work.sizes.get(self.of, 0))

    def write(self, subject: Subject, setting: Setting, value: str) -> None:
        subject.work.sizes[self.of] = int(value)


class MatrixFileSize(_Size):
    """Size of the file that the tests work on."""

    name = FILE_SIZE
    title = "size of the file of a matrix workload, a multiple of its record size"
    consequence = harmless("a size of the work")
    open_levels = "8 B to 1 TiB"
    of = "file_size"
    largest = LARGEST_FILE


class MatrixRecordSize(_Size):
    """How much each call of a test reads or writes."""

    name = RECORD_SIZE
    title = "record size of a matrix workload: what each call reads or writes"
    consequence = harmless("a size of the work")
    open_levels = "8 B to 1 GiB"
    of = "record_size"
    largest = LARGEST_RECORD
