"""Share of a trial that its controls take: of the runs by plan, of the time as stored.

    python benchmarks/controls.py            every shipped study, by its plan
    python benchmarks/controls.py TRIAL ...  and stored trials, by the time they took

A run's time is from the start of its timed part to the start of the next run's timed part. It includes the
preparation of the next run, because every arm is prepared alike. The last run of a block has no next one and counts
as the mean of its arm.
"""

from __future__ import annotations

import itertools
import statistics
import sys
from collections.abc import Iterator, Sequence

from iotrial.design.model import ArmKind
from iotrial.design.plan import Plan
from iotrial.store import Store
from iotrial.store.model import RunRecord
from iotrial.study.catalogue import find, names
from iotrial.study.select import select

BLOCKS = 100


def main(trials: Sequence[str]) -> None:
    """Print one or two Markdown tables."""
    print("| study | levels | conditions | runs of controls |\n| --- | --- | --- | --- |")
    for name in names():
        study = select(find(name))
        plan = Plan(study, "00" * 16)
        counts = [len(factor.levels) for factor in study.treatment_factors]
        levels = f"{len(counts)} factors" if len(counts) > 3 else " x ".join(map(str, counts))
        print(f"| {name} | {levels} | {len(plan.conditions)} | {100 * planned_share(plan):.1f} % |")
    if not trials:
        return
    print(
        "\n| trial | study | blocks | runs of controls | time of controls |\n| --- | --- | --- | --- | --- |"
    )
    with Store.open(read_only=True) as store:
        for trial in trials:
            data = store.data(trial)
            share, time = stored_shares(data.runs)
            name = data.trial.header.study.name
            print(f"| {trial} | {name} | {len(data.ends)} | {100 * share:.1f} % | {100 * time:.1f} % |")


def planned_share(plan: Plan) -> float:
    """Return the share of controls among the runs of the plan's first blocks."""
    kinds = [
        run.arm.kind
        for condition in plan.conditions
        for index in range(BLOCKS)
        for run in plan.block(condition, index).runs
    ]
    return sum(kind is not ArmKind.TREATMENT for kind in kinds) / len(kinds)


def stored_shares(runs: Sequence[RunRecord]) -> tuple[float, float]:
    """Return the controls' share of the runs, and of the time."""
    took: dict[tuple[str, str], list[float]] = {}
    for arm, seconds in _times(runs):
        took.setdefault(arm, []).append(seconds)
    counts: dict[tuple[str, str], int] = {}
    for run in runs:
        arm = (run.condition, run.arm)
        counts[arm] = counts.get(arm, 0) + 1
    spent = {arm: count * statistics.fmean(took[arm]) for arm, count in counts.items() if arm in took}
    controls = {arm for arm in counts if arm[1].startswith("control:")}
    by_count = sum(counts[arm] for arm in controls) / sum(counts.values())
    return by_count, sum(spent.get(arm, 0.0) for arm in controls) / sum(spent.values())


def _times(runs: Sequence[RunRecord]) -> Iterator[tuple[tuple[str, str], float]]:
    ordered = sorted(runs, key=lambda run: run.started_s)
    for run, following in itertools.pairwise(ordered):
        if (run.condition, run.block) == (following.condition, following.block):
            yield (run.condition, run.arm), following.started_s - run.started_s


if __name__ == "__main__":
    main(sys.argv[1:])
