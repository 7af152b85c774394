"""Sequential reading and writing as dd and hdparm do it, done and timed inside the probe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from iotrial.conduct.works.contract import Asked, Measured, WorkDriver
from iotrial.lab.knob import DISK_LABS
from iotrial.study.model import StreamWork
from iotrial.units import format_duration, format_percent, format_size


class Stream(WorkDriver[StreamWork]):
    """Workload kind ``stream``."""

    verb = "stream"
    work = StreamWork

    def fields(self, work: StreamWork, asked: Asked) -> dict[str, object]:
        common: dict[str, object] = {
            "operation": work.operation,
            "device": None if self.on_files(work) else asked.device,
            "block_size": work.block_size_bytes,
            "volume": work.volume_bytes or None,
            "streams": work.streams,
            "shared": work.shared,
            "seconds": work.time_s or None,
            "direct": work.direct,
            "pause_s": work.pause_s,
            "evict": not work.as_published,
            "beside": work.as_published,
            "histograms": True,
        }
        if work.on == "device":
            common |= {
                "position": work.position,
                "within": work.within or None,
                "lead_in": work.lead_in_bytes,
            }
        if work.operation == "read":
            return common
        common |= {"sync": work.sync, "flush": work.flush, "truncate": work.truncate}
        if work.operation == "copy":
            return common | {"copy_with": work.copy_with}
        return common | {"data": work.data}

    def measured(self, work: StreamWork, answer: Mapping[str, Any], asked: Asked) -> Measured:
        # What was spun for another response is taken off, as it is from the wall time.
        spun = 0 if asked.stretched == "rate" else answer["spun"]["wall_ns"]
        numbers = {
            "rate": answer["bytes"] * 1e9 / max(1, answer["wall_ns"] - spun),
            "stream_bytes": float(answer["bytes"]),
            "start_pages_resident": float(answer["start_resident"]),
        }
        if answer["short_block"]:
            numbers["short_block_bytes"] = float(answer["short_block"])
        if work.streams > 1:
            numbers |= among([stream["bytes_per_s"] for stream in answer["streams"]])
        return Measured(numbers, {name: found["histogram"] for name, found in answer["operations"].items()})

    def reads_bytes(self, work: StreamWork, size: int, files: int) -> int:
        if work.operation in ("write", "rewrite") or work.copy_with != "read-write":
            return 0  # copy_file_range may share blocks
        if work.time_s:
            return 1
        if work.on == "device":
            # the mounted file system keeps some of its own blocks cached
            return max(1, work.volume_bytes // 2)
        # Who shares a file past the cache reads it anew; through it, it is read once.
        apart = work.streams if work.direct or not work.shared else 1
        return (work.volume_bytes or size) * apart

    def summary(self, work: StreamWork) -> str:
        words = [f"{work.operation} the {work.on} in blocks of {format_size(work.block_size_bytes)}"]
        if work.streams > 1:
            words = [f"{work.streams} streams, on {'one file' if work.shared else 'a file each'}, {words[0]}"]
        words += [f"at {format_percent(work.position)} of it"] if work.position else []
        words += [f"drawn from {format_percent(work.within)} of it"] if work.within else []
        words += [f"after {format_size(work.lead_in_bytes)} untimed"] if work.lead_in_bytes else []
        words += ["by copy_file_range"] if work.copy_with != "read-write" else []
        words += [format_size(work.volume_bytes)] if work.volume_bytes else []
        words += [f"for {format_duration(work.time_s)}"] if work.time_s else []
        words += ["past the cache"] if work.direct else []
        if work.operation in ("write", "rewrite"):
            words += [work.data]
        words += [word for word in (work.sync, work.flush) if word != "none"]
        words += ["as published"] if work.as_published else []
        return ", ".join(words)

    def writes(self, work: StreamWork) -> bool:
        return work.operation != "read"

    def leaves_other_files(self, work: StreamWork) -> bool:
        return self.writes(work)

    def on_files(self, work: StreamWork) -> bool:
        return work.on == "file"

    def labs(self, work: StreamWork) -> frozenset[str]:
        return super().labs(work) if self.on_files(work) else DISK_LABS


def among(rates: Sequence[float]) -> dict[str, float]:
    """How streams that ran at once got on beside each other: Jain's index of their rates in percent (100: all the same;
    100/N: one had everything), the ends, and the sum, which is what published totals are and no rate that there ever was."""
    squares = sum(rate * rate for rate in rates)
    return {
        "stream_fairness": 100.0 * sum(rates) ** 2 / (len(rates) * squares) if squares else 100.0,
        "stream_slowest_rate": min(rates),
        "stream_fastest_rate": max(rates),
        "stream_sum_of_own_rate": sum(rates),
    }


DRIVER = Stream()
