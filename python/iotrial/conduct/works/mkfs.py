"""mkfs on the lab's own device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iotrial.conduct.works.contract import Asked, Measured, WorkDriver, minimal_environment
from iotrial.study.model import MkfsWork
from iotrial.units import format_size


class Mkfs(WorkDriver[MkfsWork]):
    """Workload kind ``mkfs``."""

    verb = "command"
    work = MkfsWork
    starts_programs = True
    makes_filesystem = True

    def fields(self, work: MkfsWork, asked: Asked) -> dict[str, object]:
        return {
            "steps": [{"name": "mkfs", "argv": list(asked.mkfs)}],
            "environment": minimal_environment(),
            "timeout_s": work.timeout_s,
        }

    def measured(self, work: MkfsWork, answer: Mapping[str, Any], asked: Asked) -> Measured:
        numbers = {"max_rss": float(answer["max_rss_bytes"])}
        made = answer.get("made")
        if made is not None:
            numbers["used_bytes"] = float(made["total_bytes"] - made["free_bytes"])
            numbers["taken_bytes"] = float(made["volume_bytes"] - made["free_bytes"])
        return Measured(numbers)

    def reads_bytes(self, work: MkfsWork, size: int, files: int) -> int:
        return 0

    def summary(self, work: MkfsWork) -> str:
        return f"mkfs of {format_size(work.volume_bytes) if work.volume_bytes else 'the whole lab'}"

    def on_files(self, work: MkfsWork) -> bool:
        return False

    def labs(self, work: MkfsWork) -> frozenset[str]:
        return frozenset({"image"})


DRIVER = Mkfs()
