"""Operations by file, done and timed inside the probe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iotrial.conduct.works.contract import Asked, Measured, WorkDriver
from iotrial.study.kinds.files import begins_without
from iotrial.study.model import FilesWork

WRITING = frozenset({"open-write", "open-truncate", "create", "write-byte", "write-all", "fsync", "unlink"})


class Files(WorkDriver[FilesWork]):
    """Workload kind ``files``."""

    verb = "files"
    work = FilesWork

    def fields(self, work: FilesWork, asked: Asked) -> dict[str, object]:
        return {
            "operations": list(work.operations),
            "buffer": work.buffer_bytes,
            "order": work.order,
            "histograms": True,
            "stretch_of": next((o for o in work.operations if _time_of(o) == asked.stretched), None),
        }

    def measured(self, work: FilesWork, answer: Mapping[str, Any], asked: Asked) -> Measured:
        operations = answer["operations"]
        return Measured(
            numbers={_time_of(name): found["total_ns"] / 1e9 for name, found in operations.items()},
            histograms={name: found["histogram"] for name, found in operations.items()},
        )

    def reads_bytes(self, work: FilesWork, size: int, files: int) -> int:
        if self.starts_empty(work):
            return 0
        if {"read-to-end", "sendfile"} & set(work.operations):
            return size * files
        reads = work.operations.count("read")
        return min(size, reads * work.buffer_bytes) * files if reads else 1

    def summary(self, work: FilesWork) -> str:
        return f"{', '.join(work.operations)} {work.order.replace('-', ' ')}"

    def starts_empty(self, work: FilesWork) -> bool:
        return begins_without(work.operations)

    def writes(self, work: FilesWork) -> bool:
        return bool(WRITING & set(work.operations))


def _time_of(operation: str) -> str:
    return f"{operation.replace('-', '_')}_time"


DRIVER = Files()
