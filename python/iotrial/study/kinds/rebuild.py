"""Workload kind ``rebuild``: an array of md's takes a disk back, and brings it into step."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from iotrial.study.kinds.contract import (
    DEVICE_RESPONSES,
    KeyProblem,
    ResponseSpec,
    WorkloadKind,
    rate_response,
    time_response,
)
from iotrial.study.model import Better, RebuildWork, Scale, Work
from iotrial.study.wire import Duration, Share, Size, Table

RETURNS, LOAD = "returns", "load"


class RebuildKeys(Table):
    """Keys of ``kind = "rebuild"``."""

    returns: Literal["new", "same"] = Field(
        "new", description="a disk that the array has never seen, or the same one, that was away for a while"
    )
    away: Size = Field(
        4 << 20,
        ge=0,
        le=1 << 40,
        description="bytes that are written to the file system while the same disk is away",
    )
    load: Literal["none", "read", "write"] = Field(
        "none",
        description="what goes on meanwhile: one random block of 4 KiB after the other is read, or read and written again",
    )
    parts: int = Field(
        8,
        ge=2,
        le=16,
        description="equal parts of the disk, of which the first and the last are responses; md tells its progress in "
        "sixteenths",
    )
    announced_at: Share = Field(
        0.25, ge=0, le=1, description="the share that is done when md is asked how long it will take"
    )
    timeout: Duration = Field(600.0, gt=0, le=86400, description="longest time; after it the run failed")
    size: Size = Field(8 << 20, ge=4096, le=1 << 40, description="size of the file that the load works on")


def build(keys: RebuildKeys) -> RebuildWork:
    """The work of these keys; KeyProblem where a file would not be whole blocks."""
    if keys.size % 4096:
        raise KeyProblem(f"a file of {keys.size} bytes, wanted a multiple of 4096", "size")
    return RebuildWork(
        returns=keys.returns,
        load=keys.load,
        away_bytes=keys.away,
        parts=keys.parts,
        announced_at=keys.announced_at,
        timeout_s=keys.timeout,
        size_bytes=keys.size,
    )


def responses(work: Work) -> tuple[ResponseSpec, ...]:
    """What one run of this work measures."""
    assert isinstance(work, RebuildWork)
    return _RESPONSES


_RESPONSES = (
    time_response("wall", "from the moment that md may begin to the moment that the array is whole"),
    rate_response("rebuild_rate", "bytes/s", "bytes of one disk over that time"),
    rate_response("rate_first", "bytes/s", "over the first of the parts"),
    rate_response("rate_last", "bytes/s", "over the last of them"),
    ResponseSpec(
        "announced_share",
        "1",
        Scale.LOG,
        Better.NONE,
        "the time that md had announced, as a share of the time that it took",
    ),
    rate_response("load_rate", "1/s", "blocks that the load got through meanwhile; none without one"),
    *DEVICE_RESPONSES,
)

KIND = WorkloadKind(
    name="rebuild",
    work=RebuildWork,
    summary="An array brings a disk into step again: how long it takes, how fast it is where, what it had announced.",
    keys=RebuildKeys,
    build=build,
    responses=responses,
    documented=_RESPONSES,
    options=(RETURNS, LOAD),
    notes="It needs an array of md's with redundancy ([lab] disks, knob raid.level). Before each run the last disk of the "
    "array is taken out of it; a new one is that disk with nothing of md's left on it. With a write-intent bitmap "
    "(raid.bitmap) the same one is brought up to date where something was written meanwhile, and nowhere else. Rates of all "
    "parts are evidence (rate_part_N).",
)
