"""Blocks of files in random or sequential order, done and timed inside the probe."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from iotrial.conduct.works.contract import Asked, Measured, WorkDriver, to_take_off
from iotrial.study.kinds.random import PERCENTILES
from iotrial.study.model import RandomWork

PAGE = 4096
#: so many standard deviations fewer blocks than expected may a random order reach
DEVIATIONS = 4.0
#: seconds that the probe tells apart; what comes later counts to the last of them
MOST_SECONDS = 600
#: that are stored of a run, so that a packed trial holds them beside its samples
MOST_STORED = 300


class Random(WorkDriver[RandomWork]):
    """Workload kind ``random``."""

    verb = "random"
    work = RandomWork

    def fields(self, work: RandomWork, asked: Asked) -> dict[str, object]:
        return {
            "engine": work.engine,
            "block": work.block_bytes,
            "order": work.order,
            "write_share": work.write_share,
            "direct": work.direct,
            "depth": work.depth,
            "ramp": work.ramp,
            "rate": work.rate or None,
            "series": work.series,
            "operations": work.operations,
            "histograms": True,
        }

    def measured(self, work: RandomWork, answer: Mapping[str, Any], asked: Asked) -> Measured:
        operations = answer["operations"]
        spun_wall, _ = to_take_off(answer, asked.stretched)
        wall = answer["wall_ns"] / 1e9 - (0.0 if asked.stretched == "rate" else spun_wall)
        numbers = {"rate": work.operations * work.replicates / wall}
        for way, found in operations.items():
            numbers |= {f"{way}_{name}": found[f"{name}_ns"] / 1e9 for name in PERCENTILES}
        if work.rate:
            numbers |= {f"late_{name}": answer["late"][f"{name}_ns"] / 1e9 for name in PERCENTILES}
        lasted_s = (answer["wall_ns"] - answer["spun"]["wall_ns"]) / 1e9
        return Measured(
            numbers,
            {way: found["histogram"] for way, found in operations.items()},
            by_second(answer["series"], lasted_s) if work.series else {},
        )

    def reads_bytes(self, work: RandomWork, size: int, files: int) -> int:
        reads = work.operations * work.replicates * (1.0 - work.write_share)
        unit = work.block_bytes if work.direct else max(work.block_bytes, PAGE)
        units = max(1, files * size // unit)
        if work.order == "sequential" and work.write_share == 0.0:
            return min(math.floor(reads) * work.block_bytes, units * unit)
        # so many of `units` are reached by so many draws with replacement; direct reads get each block every time
        reached = reads if work.direct else units * -math.expm1(reads * math.log1p(-1.0 / (units + 1)))
        surely = (
            math.floor(reached - DEVIATIONS * math.sqrt(reached))
            if work.write_share or not work.direct
            else reads
        )
        return max(1, math.floor(surely)) * unit if reads >= 1.0 else 0

    def summary(self, work: RandomWork) -> str:
        ways = {0.0: "reads", 1.0: "writes"}.get(work.write_share, "reads and writes")
        how = f"{work.engine}{', direct' if work.direct else ''}"
        depth = f", {work.depth} under way" if work.depth > 1 else ""
        rate = f", {work.rate:,.9g} a second" if work.rate else ""
        return f"{work.operations} {work.order} {ways} of {work.block_bytes} bytes by {how}{depth}{rate}"

    def writes(self, work: RandomWork) -> bool:
        return work.write_share > 0.0


def by_second(seconds: Sequence[Mapping[str, int]], lasted_s: float) -> dict[str, list[float | None]]:
    """Operations a second and their latencies in seconds, at the middle of each whole second of a run that lasted so long;
    nothing of a run with fewer than two. Of a long run every second one is left out, and again."""
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


DRIVER = Random()
