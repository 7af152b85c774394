"""iozone's tests on one file, done and timed inside the probe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iotrial.conduct.works.contract import Asked, Measured, WorkDriver
from iotrial.study.kinds.matrix import cell_size, response_of
from iotrial.study.model import MatrixWork
from iotrial.units import format_bytes

OPTIONS = ("direct", "sync", "fsync", "close", "cold")


class Matrix(WorkDriver[MatrixWork]):
    """Workload kind ``matrix``. The slow-down goes into every test alike: each has a control of its own."""

    verb = "matrix"
    work = MatrixWork
    own_file = True

    def fields(self, work: MatrixWork, asked: Asked) -> dict[str, object]:
        return {
            "tests": list(work.tests),
            "file_size": asked.sizes.get("file_size", work.file_size_bytes),
            "record_size": asked.sizes.get("record_size", work.record_size_bytes),
            **{option: getattr(work, option) for option in OPTIONS},
            "content": work.content,
            "stride": work.stride,
        }

    def measured(self, work: MatrixWork, answer: Mapping[str, Any], asked: Asked) -> Measured:
        return Measured(
            {response_of(name): found["wall_ns"] / 1e9 for name, found in answer["tests"].items()}
        )

    def reads_bytes(self, work: MatrixWork, size: int, files: int) -> int:
        return 0  # what it reads it has written itself; cold reads are made, and proved, by the job

    def summary(self, work: MatrixWork) -> str:
        sizes = f"{format_bytes(work.file_size_bytes)} by {format_bytes(work.record_size_bytes)}"
        options = "".join(f", {option}" for option in OPTIONS if getattr(work, option))
        return f"matrix {', '.join(work.tests)}{options} ({sizes} where no condition says otherwise)"

    def own_bytes(self, work: MatrixWork, settings: Mapping[str, str]) -> int:
        return cell_size(work, settings)[0]

    def writes(self, work: MatrixWork) -> bool:
        return False  # not to the files of its set


DRIVER = Matrix()
