"""Workload kind ``mkfs``: a file system is made on the lab's own device, timed, and what it leaves free is counted."""

from __future__ import annotations

from pydantic import Field

from iotrial.study.kinds.contract import (
    CPU_RESPONSES,
    DEVICE_RESPONSES,
    KeyProblem,
    ResponseSpec,
    WorkloadKind,
    count_response,
    time_response,
)
from iotrial.study.model import Better, MkfsWork, Scale, Work
from iotrial.study.wire import Duration, Size, Table

#: the key that says how large it gets
VOLUME = "volume"
_BLOCK = 4096


class MkfsKeys(Table):
    """Keys of ``kind = "mkfs"``."""

    volume: Size = Field(
        0,
        ge=0,
        le=1 << 44,
        description="size of the file system, at the start of the device; 0: all of the lab",
    )
    timeout: Duration = Field(300.0, gt=0, le=86400, description="longest time; after it the run failed")


def build(keys: MkfsKeys) -> MkfsWork:
    """The work of these keys; KeyProblem for a size that is not whole blocks."""
    if keys.volume % _BLOCK:
        raise KeyProblem(f"a file system of {keys.volume} bytes, wanted a multiple of {_BLOCK}", VOLUME)
    return MkfsWork(volume_bytes=keys.volume, timeout_s=keys.timeout)


def responses(work: Work) -> tuple[ResponseSpec, ...]:
    """What one run of this work measures."""
    assert isinstance(work, MkfsWork)
    return _RESPONSES


_RESPONSES = (
    time_response("wall", "time from just before mkfs is started to its end"),
    *CPU_RESPONSES,
    count_response("used_bytes", "bytes", "used in the empty file system, as df(1) shows it"),
    count_response(
        "taken_bytes",
        "bytes",
        "of its size that the empty file system has not free; df(1) leaves most of it out",
    ),
    ResponseSpec("max_rss", "bytes", Scale.LOG, Better.LOWER, "largest resident memory of mkfs"),
    *DEVICE_RESPONSES,
)

KIND = WorkloadKind(
    name="mkfs",
    work=MkfsWork,
    summary="A file system is made on the lab's own device (image lab) by its mkfs, as root, and then mounted.",
    keys=MkfsKeys,
    build=build,
    responses=responses,
    documented=_RESPONSES,
    options=(VOLUME,),
    notes="Type and options are those of [lab] and of factors on filesystem.type and mkfs.option. mkfs has written what it "
    "makes when it ends. No other workload can stand beside it, and no knob of files, mounts or caches.",
)
