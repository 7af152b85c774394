"""Power cuts of arms whose runs have luck of their own: how often one is called worse, and what the interval covers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from exact import rate
from iotrial.stats.proportion import Proportion, over_runs, p_of_more
from iotrial.study.model import CUT_RUNS
from simulated.noise import Rng

ALPHA = 0.05
POINTS = 200
PAIRS = 2000

Counts = npt.NDArray[np.int64]


def _lossy(rng: Rng, pairs: int, runs: int, share: float, luck: float) -> Counts:
    """Draw the lossy points of each run. ``luck``: correlation of the points of one run."""
    if luck == 0.0 or share == 0.0:
        own = np.full((pairs, runs), share)
    else:
        weight = 1.0 / luck - 1.0
        own = rng.beta(share * weight, (1.0 - share) * weight, (pairs, runs))
    return rng.binomial(POINTS // runs, own)


def _shares(counts: Counts) -> list[Proportion]:
    return [Proportion(int(one), POINTS // counts.size) for one in counts]


def _by_points(one: Proportion, other: Proportion) -> bool:
    """Return whether an arm is called worse by the points of its one run, as in the first version."""
    return one.count > 0 and (other.count == 0 or one.interval[0] > other.interval[1])


def durability_runs(rng: Rng, scale: float) -> str:
    """Tabulate identical arms, with one run each and with several, and unlike arms."""
    pairs = max(100, int(PAIRS * scale))
    out = [
        f"**Power cuts at {POINTS} points: {pairs} pairs of identical arms, either called worse; interval of one of them** "
        "[95 % bounds]",
        "",
        f"*Luck*: correlation of the points of one run. *One run*: by its points. *{CUT_RUNS} runs*: as many points in all.",
        "",
        f"| lossy points | luck | called worse: one run | {CUT_RUNS} runs | interval holds: one run | {CUT_RUNS} runs |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for share, luck in ((0.002, 0.3), (0.02, 0.0), (0.02, 0.3), (0.1, 0.1), (0.3, 0.1), (0.3, 0.5)):
        single = [_lossy(rng, pairs, 1, share, luck) for _ in range(2)]
        several = [_lossy(rng, pairs, CUT_RUNS, share, luck) for _ in range(2)]
        before = after = held = held_over = 0
        for row in range(pairs):
            one, other = (_shares(arm[row])[0] for arm in single)
            before += _by_points(one, other) or _by_points(other, one)
            held += one.interval[0] <= share <= one.interval[1]
            runs, others = (_shares(arm[row]) for arm in several)
            after += min(p_of_more(runs, others), p_of_more(others, runs)) <= ALPHA / 2
            low, high = over_runs(runs)
            held_over += low <= share <= high
        cells = [rate(count, pairs) for count in (before, after, held, held_over)]
        out.append(f"| {share:.1%} | {luck:g} | {' | '.join(cells)} |")
    out += [
        "",
        "| lossy points | of the other arm | luck | shown, 1 comparison | shown, 8 comparisons |",
        "| --- | --- | --- | --- | --- |",
    ]
    for share, reference, luck in (
        (0.3, 0.0, 0.1),
        (0.1, 0.0, 0.1),
        (0.1, 0.0, 0.0),
        (0.02, 0.0, 0.0),
        (0.3, 0.1, 0.1),
    ):
        level = _lossy(rng, pairs, CUT_RUNS, share, luck)
        base = _lossy(rng, pairs, CUT_RUNS, reference, luck)
        p = np.array([p_of_more(_shares(one), _shares(two)) for one, two in zip(level, base, strict=True)])
        shown = [rate(int((p <= ALPHA / (2 * number)).sum()), pairs) for number in (1, 8)]
        out.append(f"| {share:.0%} | {reference:.0%} | {luck:g} | {' | '.join(shown)} |")
    return "\n".join(out)
