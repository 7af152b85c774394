"""Workload kind ``random``: blocks of files read and written in random or sequential order, inside the probe."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field

from iotrial.study.kinds.contract import (
    CPU_RESPONSES,
    DEVICE_RESPONSES,
    SYNCED_RESPONSE,
    FileSetKeys,
    KeyProblem,
    ResponseSpec,
    WorkloadKind,
    file_set,
    rate_response,
    time_response,
)
from iotrial.study.model import RandomWork, Work
from iotrial.study.wire import Size
from iotrial.units import format_duration

MIB = 1 << 20
LARGEST_BUFFERS = 1 << 30
LONGEST_S = 86_400.0
#: of open arrivals, in operations a second; the probe's own
SLOWEST, FASTEST = 1.0 / LONGEST_S, 1e9
PERCENTILES = {"p50": "median", "p99": "99th percentile", "p999": "99.9th percentile"}


class RandomKeys(FileSetKeys):
    """Keys of ``kind = "random"``."""

    files: int = Field(1, ge=1, le=4096, description="how many files one run works on; all are open at once")
    size: Size = Field(16 * MIB, ge=8, le=1 << 40, description="size of each file")
    content: Literal["text", "random", "zeros"] = Field(
        "random", description="lines of hexadecimal digits, incompressible bytes, or zeros"
    )
    operations: int = Field(1000, ge=1, le=1 << 40, description="blocks that one run reads and writes")
    engine: Literal["psync", "mmap", "io_uring"] = Field(
        "psync", description="pread and pwrite, a mapping of the file, or io_uring"
    )
    block: Size = Field(4096, ge=8, le=LARGEST_BUFFERS, description="bytes of one operation")
    order: Literal["random", "sequential"] = Field(
        "random",
        description="each block drawn anew from all, the same ones in every arm; or one after the other",
    )
    write_share: float = Field(
        0.0, ge=0, le=1, description="share of the operations that write; what they write is there already"
    )
    direct: bool = Field(False, description="past the page cache (O_DIRECT); not with mmap")
    depth: int = Field(1, ge=1, le=4096, description="operations under way at once; io_uring only")
    ramp: int = Field(
        0,
        ge=0,
        le=1 << 40,
        description="operations before the clock starts, for the steady state of a device that is slower after a pause; "
        "only past the page cache",
    )
    rate: float = Field(
        0.0,
        ge=0,
        le=FASTEST,
        allow_inf_nan=False,
        description="open arrivals: so many operations a second, evenly, whatever becomes of those before; 0: "
        "closed, the next starts when one has ended",
    )
    series: bool = Field(False, description="keep what each second of a run did, for the HTML report")


def build(keys: RandomKeys) -> RandomWork:
    """The work of these keys; KeyProblem where they cannot work together."""
    files = file_set(keys)
    if keys.block > keys.size:
        raise KeyProblem(f"a block of {keys.block} bytes is larger than a file of {keys.size}", "block")
    if keys.block * keys.depth > LARGEST_BUFFERS:
        raise KeyProblem("block times depth is more memory than 1 GiB", "depth")
    if keys.depth > 1 and keys.engine != "io_uring":
        raise KeyProblem(
            f"{keys.engine} has one operation under way at a time", "depth", hint='engine = "io_uring"'
        )
    if keys.direct and keys.engine == "mmap":
        raise KeyProblem("a mapping goes through the page cache", "direct")
    if keys.ramp and not keys.direct:
        raise KeyProblem(
            "a ramp through the page cache would fill it before the clock starts",
            "ramp",
            hint='direct = true, or no ramp and cache = "warm"',
        )
    _check_rate(keys)
    return RandomWork(
        operations=keys.operations,
        engine=keys.engine,
        block_bytes=keys.block,
        order=keys.order,
        write_share=keys.write_share,
        direct=keys.direct,
        depth=keys.depth,
        ramp=keys.ramp,
        rate=keys.rate,
        series=keys.series,
        **files,
    )


def _check_rate(keys: RandomKeys) -> None:
    if keys.rate == 0.0:
        return
    if keys.rate < SLOWEST:
        raise KeyProblem(
            f"wanted 0, or {SLOWEST:.3g} to {FASTEST:.0e} operations a second, found {keys.rate:g}", "rate"
        )
    operations = keys.operations * keys.replicates
    if operations / keys.rate > LONGEST_S:
        raise KeyProblem(
            f"{operations:,} operations at {keys.rate:g} a second take {format_duration(operations / keys.rate)}",
            "rate",
            hint="a run takes a day at most: fewer operations, or a higher rate",
        )


def responses(work: Work) -> tuple[ResponseSpec, ...]:
    """What one run of this work measures. How long open arrivals take is in the study: there the tail of latency counts."""
    assert isinstance(work, RandomWork)
    ways = [way for way, share in (("read", 1 - work.write_share), ("write", work.write_share)) if share > 0]
    latencies = [spec for way in ways for spec in _latencies(way)]
    if work.rate:
        latencies.sort(key=lambda spec: not spec.name.endswith("_p99"))
        return (*latencies, _WALL, _RATE, *CPU_RESPONSES, *_DEVICE)
    return (_WALL, _RATE, *latencies, *CPU_RESPONSES, *_DEVICE)


def remark(work: Work) -> str:
    """That arrivals are open, where they are."""
    assert isinstance(work, RandomWork)
    if not work.rate:
        return ""
    return (
        f"Operations arrive open, {work.rate:,.9g} a second: each has an intended start, which no stall moves, and its "
        "latency counts from there"
    )


def load(work: Work) -> tuple[str, float] | None:
    """The rate of open arrivals, which is reached unless operations queue."""
    assert isinstance(work, RandomWork)
    return ("rate", work.rate) if work.rate else None


def _latencies(way: str) -> tuple[ResponseSpec, ...]:
    return tuple(
        # The slow-down put in on purpose comes after all operations: a percentile does not hold it.
        replace(time_response(f"{way}_{name}", f"{text} of the time of one {way}"), stretchable=False)
        for name, text in PERCENTILES.items()
    )


_WALL = time_response("wall", "time of all operations")
_RATE = rate_response("rate", "1/s", "operations a second")
_DEVICE = (*DEVICE_RESPONSES, SYNCED_RESPONSE)

KIND = WorkloadKind(
    name="random",
    work=RandomWork,
    summary="Blocks of files read and written in random or sequential order, done and timed inside the probe.",
    keys=RandomKeys,
    build=build,
    responses=responses,
    options=("operations", "block", "order", "direct", "depth"),
    unstretchable="percentiles of single operations",
    remark=remark,
    load=load,
    documented=(_WALL, _RATE, *_latencies("read"), *_latencies("write"), *CPU_RESPONSES, *_DEVICE),
    notes="Files are opened before the clock starts, with O_NOATIME where that is allowed. The times of reads are "
    "there where a workload reads, those of writes where it writes. With io_uring a time goes from the call that "
    "hands an operation over to the call that brings it back. With a rate, read_p99 is primary (write_p99 where "
    "nothing is read) and percentiles count from the intended start; cpu and user then hold the waiting for it. "
    "Direct reads always come from the device: no cache state but as-is and cold fits them.",
)
