"""Knobs of the matrix workload: file size and record size. They are part of the job."""

from __future__ import annotations

from typing import ClassVar

from iotrial.knobs import work as declared
from iotrial.knobs.work import LARGEST_FILE, LARGEST_RECORD, SMALLEST_RECORD
from iotrial.lab.knob import Knob, RunContext, size_within
from iotrial.study.model import Setting


class _Size(Knob):
    """A size in the job: of the work's file, or of a record."""

    of: ClassVar[str]
    largest: ClassVar[int]

    def parse(self, setting: Setting) -> str:
        return str(size_within(self.name, setting.value, SMALLEST_RECORD, self.largest, self.open_levels))

    def levels(self, subject: RunContext, setting: Setting) -> tuple[str, ...]:
        return ()

    def read(self, subject: RunContext, setting: Setting) -> str:
        return str(subject.work.sizes.get(self.of, 0))

    def write(self, subject: RunContext, setting: Setting, value: str) -> None:
        subject.work.sizes[self.of] = int(value)


class MatrixFileSize(_Size, declared.MatrixFileSize):
    of = "file_size"
    largest = LARGEST_FILE


class MatrixRecordSize(_Size, declared.MatrixRecordSize):
    of = "record_size"
    largest = LARGEST_RECORD
