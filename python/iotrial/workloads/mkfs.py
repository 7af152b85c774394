"""Workload kind ``mkfs``: time making a file system on the lab's own device, and measure the space it leaves free."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from iotrial.study.scales import Better, Scale
from iotrial.study.schema import Duration, Problem, Size
from iotrial.study.work import (
    CPU_RESPONSES,
    DEVICE_RESPONSES,
    JobContext,
    Measured,
    ResponseSpec,
    Work,
    count_response,
    minimal_environment,
    time_response,
)
from iotrial.units import format_size

#: the key with the size of the file system
VOLUME = "volume"
_BLOCK = 4096
_RESPONSES = (
    time_response("wall", "time from just before mkfs is started to its end"),
    *CPU_RESPONSES,
    count_response("used_bytes", "bytes", "used in the empty file system, as shown by df(1)"),
    count_response(
        "taken_bytes",
        "bytes",
        "part of its size that is not free in the empty file system; df(1) omits most of it",
    ),
    ResponseSpec("max_rss", "bytes", Scale.LOG, Better.LOWER, "largest resident memory of mkfs"),
    *DEVICE_RESPONSES,
)


class MkfsWork(Work, frozen=True, kw_only=True):
    """mkfs on the lab's own device, with the type and options of the study's knobs.

    ``content`` is that of the lab's file, which is lost with each mkfs.
    """

    kind = "mkfs"
    about = "Create a file system on the lab's own device (image lab) with mkfs, as root, and mount it."
    documented = _RESPONSES
    options = (VOLUME,)
    verb = "command"
    starts_programs = True
    makes_filesystem = True
    content = "zeros"

    volume_bytes: Annotated[
        Size,
        Meta(
            ge=0,
            le=1 << 44,
            description="size of the file system; 0: the whole lab",
        ),
    ] = 0
    timeout_s: Annotated[Duration, Meta(gt=0, le=86400, description="then the run fails")] = 300.0

    def check(self) -> None:
        if self.volume_bytes % _BLOCK:
            message = f"a file system of {self.volume_bytes} bytes, expected a multiple of {_BLOCK}"
            raise Problem(message, VOLUME)

    def responses(self) -> tuple[ResponseSpec, ...]:
        return _RESPONSES

    def described(self) -> str:
        return f"mkfs of {format_size(self.volume_bytes) if self.volume_bytes else 'the whole lab'}"

    def probe_job(self, context: JobContext) -> dict[str, object]:
        return {
            "steps": [{"name": "mkfs", "argv": list(context.mkfs)}],
            "environment": minimal_environment(),
            "timeout_s": self.timeout_s,
        }

    def measured(self, answer: Mapping[str, Any], context: JobContext) -> Measured:
        numbers = {"max_rss": float(answer["max_rss_bytes"])}
        made = answer.get("made")
        if made is not None:
            numbers["used_bytes"] = float(made["total_bytes"] - made["free_bytes"])
            numbers["taken_bytes"] = float(made["volume_bytes"] - made["free_bytes"])
        return Measured(numbers)

    def on_files(self) -> bool:
        return False

    def labs(self) -> frozenset[str]:
        return frozenset({"image"})


WORK = MkfsWork
