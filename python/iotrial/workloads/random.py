"""Workload kind ``random``: read and write blocks of files in random or sequential order, inside the probe."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from msgspec import Meta, structs

from iotrial.study.scales import Better, Scale
from iotrial.study.schema import Duration, Problem, Size
from iotrial.study.work import (
    CPU_RESPONSES,
    DEVICE_RESPONSES,
    SYNCED_RESPONSE,
    FileSet,
    JobContext,
    Measured,
    ResponseSpec,
    only_for,
    rate_response,
    time_response,
    to_take_off,
)
from iotrial.units import format_duration

MIB = 1 << 20
LARGEST_BUFFERS = 1 << 30
LONGEST_S = 86_400.0
#: limits of open-loop arrivals, in operations per second; the same as the probe's
SLOWEST, FASTEST = 1.0 / LONGEST_S, 1e9
PERCENTILES = {"p50": "median", "p99": "99th percentile", "p999": "99.9th percentile"}
PAGE = 4096
#: a random order may reach this many standard deviations fewer distinct blocks than expected
DEVIATIONS = 4.0
#: maximum number of seconds that the probe records separately; later ones count towards the last
MOST_SECONDS = 600
#: maximum seconds stored for a run, so that they fit into a packed trial with its samples
MOST_STORED = 300


def _latencies(way: str) -> tuple[ResponseSpec, ...]:
    # The injected slowdown comes after all operations, so a percentile does not include it.
    return tuple(
        time_response(f"{way}_{name}", f"{text} of the time of one {way}", stretchable=False)
        for name, text in PERCENTILES.items()
    )


def _stalls(way: str, longer_s: float) -> ResponseSpec:
    text = f"share of {way}s that took longer than `stall`"
    if longer_s:
        text = f"share of {way}s that took longer than {format_duration(longer_s)}"
    return ResponseSpec(f"{way}_stalls", "%", Scale.DIFFERENCE, Better.LOWER, text, stretchable=False)


_WALL = time_response("wall", "time of all operations")
_RATE = rate_response("rate", "1/s", "operations per second")
_DEVICE = (*DEVICE_RESPONSES, SYNCED_RESPONSE)


class RandomWork(FileSet, frozen=True, kw_only=True):
    """Blocks of files read and written inside the probe.

    ``depth`` operations are in flight at once. A write writes what the file already holds at that place.
    """

    kind = "random"
    about = "Reads and writes of file blocks in random or sequential order, done and timed inside the probe."
    documented = (
        *(_WALL, _RATE, *_latencies("read"), *_latencies("write")),
        *(_stalls("read", 0.0), _stalls("write", 0.0), *CPU_RESPONSES, *_DEVICE),
    )
    options = ("operations", "block", "order", "direct", "depth")
    unstretchable = "percentiles of single operations"
    verb = "random"

    operations: Annotated[int, Meta(ge=1, le=1 << 40, description="blocks read and written per run")] = 1000
    files: Annotated[
        int, Meta(ge=1, le=4096, description="how many files one run works on; all are open at once")
    ] = 1
    size_bytes: Annotated[Size, Meta(ge=8, le=1 << 40, description="size of each file")] = 16 * MIB
    content: Annotated[
        Literal["text", "random", "zeros"],
        Meta(description="lines of hexadecimal digits, incompressible bytes, or zeros"),
    ] = "random"
    engine: Annotated[
        Literal["psync", "mmap", "io_uring"],
        Meta(description="pread and pwrite, a mapping of the file, or io_uring"),
    ] = "psync"
    block_bytes: Annotated[Size, Meta(ge=8, le=LARGEST_BUFFERS, description="size of one operation")] = 4096
    order: Annotated[
        Literal["random", "sequential"],
        Meta(description=("random: each block drawn from all, the same sequence in every treatment")),
    ] = "random"
    write_share: Annotated[
        float,
        Meta(ge=0, le=1, description="share of operations that overwrite blocks"),
    ] = 0.0
    direct: Annotated[bool, Meta(description="bypass the page cache (O_DIRECT); not with mmap")] = False
    depth: Annotated[int, Meta(ge=1, le=4096, description="operations in flight; io_uring only")] = 1
    ramp: Annotated[
        int,
        Meta(
            ge=0,
            le=1 << 40,
            description="untimed operations first, to reach a steady state; only with O_DIRECT",
        ),
    ] = 0
    rate: Annotated[
        float,
        Meta(
            ge=0,
            le=FASTEST,
            description=(
                "operations per second, started at even intervals even if earlier ones are unfinished "
                "(open loop); 0: each starts when the last ends (closed loop)"
            ),
        ),
    ] = 0.0
    stall_s: Annotated[
        Duration,
        Meta(
            ge=0,
            le=60,
            description="report the share of operations that took longer; 0: not reported",
        ),
    ] = 0.0
    series: Annotated[
        bool,
        Meta(
            description=(
                "record every second of a run for the HTML report ([within a run](evidence.md#within-a-run))"
            )
        ),
    ] = False

    def check(self) -> None:
        super().check()
        if self.block_bytes > self.size_bytes:
            raise Problem(
                f"a block of {self.block_bytes} bytes is larger than a file of {self.size_bytes}", "block"
            )
        if self.block_bytes * self.depth > LARGEST_BUFFERS:
            raise Problem("block times depth is more memory than 1 GiB", "depth")
        if self.depth > 1 and self.engine != "io_uring":
            raise only_for("depth", 'engine = "io_uring"')
        if self.direct and self.engine == "mmap":
            raise only_for("direct", "another engine than mmap")
        if self.ramp and not self.direct:
            raise only_for("ramp", "direct = true")
        if self.rate:
            self._check_rate()

    def repeats_from(self, cache: str) -> int:
        return self.replicates  # each reads or writes at other positions

    def _check_rate(self) -> None:
        if self.rate < SLOWEST:
            raise Problem(
                f"expected 0, or {SLOWEST:.3g} to {FASTEST:.0e} operations per second, found {self.rate:g}",
                "rate",
            )
        operations = self.operations * self.replicates
        if operations / self.rate > LONGEST_S:
            raise Problem(
                f"{operations:,} operations at {self.rate:g} per second take {format_duration(operations / self.rate)}",
                "rate",
            )

    def responses(self) -> tuple[ResponseSpec, ...]:
        """With open-loop arrivals the study sets the duration, so the latency tail (p99) comes first."""
        ways = [
            way for way, share in (("read", 1 - self.write_share), ("write", self.write_share)) if share > 0
        ]
        latencies = [spec for way in ways for spec in _latencies(way)]
        stalls = [_stalls(way, self.stall_s) for way in ways if self.stall_s]
        if self.rate:
            latencies.sort(key=lambda spec: not spec.name.endswith("_p99"))
            return (*latencies, *stalls, _WALL, _RATE, *CPU_RESPONSES, *_DEVICE)
        return (_WALL, _RATE, *latencies, *stalls, *CPU_RESPONSES, *_DEVICE)

    def remark(self) -> str:
        if not self.rate:
            return ""
        return (
            f"Open arrivals, {self.rate:,.9g} per second: latency counts from the intended start of each "
            f"operation, which stalls do not move"
        )

    def expected_load(self) -> tuple[str, float] | None:
        return ("rate", self.rate) if self.rate else None  # reached unless operations queue up

    def described(self) -> str:
        ways = {0.0: "reads", 1.0: "writes"}.get(self.write_share, "reads and writes")
        how = f"{self.engine}{', direct' if self.direct else ''}"
        depth = f", {self.depth} in flight" if self.depth > 1 else ""
        rate = f", {self.rate:,.9g} a second" if self.rate else ""
        return f"{self.operations} {self.order} {ways} of {self.block_bytes} bytes by {how}{depth}{rate}"

    def probe_job(self, context: JobContext) -> dict[str, object]:
        return {
            "engine": self.engine,
            "block": self.block_bytes,
            "order": self.order,
            "write_share": self.write_share,
            "direct": self.direct,
            "depth": self.depth,
            "ramp": self.ramp,
            "rate": self.rate or None,
            "series": self.series,
            "operations": self.operations,
            "histograms": True,
        }

    def measured(self, answer: Mapping[str, Any], context: JobContext) -> Measured:
        operations = answer["operations"]
        spun_wall, _ = to_take_off(answer, context.stretched)
        wall = answer["wall_ns"] / 1e9 - (0.0 if context.stretched == "rate" else spun_wall)
        numbers = {"rate": self.operations * self.replicates / wall}
        for way, found in operations.items():
            numbers |= {f"{way}_{name}": found[f"{name}_ns"] / 1e9 for name in PERCENTILES}
            if self.stall_s:
                numbers[f"{way}_stalls"] = _share_longer(found["histogram"], self.stall_s)
        if self.rate:
            numbers |= {f"late_{name}": answer["late"][f"{name}_ns"] / 1e9 for name in PERCENTILES}
        lasted_s = (answer["wall_ns"] - answer["spun"]["wall_ns"]) / 1e9
        return Measured(
            numbers,
            {way: found["histogram"] for way, found in operations.items()},
            by_second(answer["series"], lasted_s) if self.series else {},
        )

    def buffered(self) -> Self:
        return structs.replace(self, direct=False)

    def reads_bytes(self, size: int, files: int) -> int:
        reads = self.operations * self.replicates * (1.0 - self.write_share)
        unit = self.block_bytes if self.direct else max(self.block_bytes, PAGE)
        units = max(1, files * size // unit)
        if self.order == "sequential" and self.write_share == 0.0:
            return min(math.floor(reads) * self.block_bytes, units * unit)
        # expected number of distinct units after this many draws with replacement; direct reads reach the
        # device every time
        reached = reads if self.direct else units * -math.expm1(reads * math.log1p(-1.0 / (units + 1)))
        surely = (
            math.floor(reached - DEVIATIONS * math.sqrt(reached))
            if self.write_share or not self.direct
            else reads
        )
        return max(1, math.floor(surely)) * unit if reads >= 1.0 else 0

    def writes(self) -> bool:
        return self.write_share > 0.0


def _share_longer(histogram: Sequence[Sequence[int]], longer_s: float) -> float:
    """Return the share of operations that took longer, in percent."""
    every = sum(count for _, count in histogram)
    return 100.0 * sum(count for ns, count in histogram if ns > longer_s * 1e9) / every if every else 0.0


def by_second(seconds: Sequence[Mapping[str, int]], lasted_s: float) -> dict[str, list[float | None]]:
    """Return operations per second and their latencies in seconds, at the middle of each whole second of a run.

    Empty for a run of fewer than two seconds. A long run is thinned by repeatedly dropping every second
    value.
    """
    whole = seconds[: min(int(lasted_s), MOST_SECONDS - 1)]
    if len(whole) < 2:
        return {}
    step = 1
    while len(whole) > step * MOST_STORED:
        step *= 2
    kept = whole[::step]
    return {
        "at_s": [0.5 + step * place for place in range(len(kept))],
        "operations_rate": [float(second["count"]) for second in kept],
        **{
            f"latency_{name}": [second[f"{name}_ns"] / 1e9 if second["count"] else None for second in kept]
            for name in ("p50", "p99", "max")
        },
    }


WORK = RandomWork
