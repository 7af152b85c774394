"""The bet that knows the budget: gain and cost of its share of the stake; false alarms and coverage are kept."""

from __future__ import annotations

import math

import numpy as np

from exact import rate
from iotrial.stats.betting import Side, log_paths
from iotrial.stats.budget_bet import SHARE, Budget, capital, contrasts_left, mixed_paths
from iotrial.stats.chunked import Flags
from iotrial.stats.eprocess import interval
from simulated.alarms import Design
from simulated.noise import NOISES, Floats, Rng
from simulated.stopping import hulls

SHARES = (0.0, 0.35, 0.5)
#: block SD in margins, blocks of the budget
CASES = ((1.0, 200), (2.0, 60), (2.0, 200), (4.0, 60), (4.0, 200))
SDS = sorted({sd for sd, _ in CASES})
BUDGETS = sorted({blocks for _, blocks in CASES})
EFFECTS = (0.0, 1.5, 3.0)  # in margins
ALPHA = 0.05 / 8
_GRID = np.linspace(-4.0, 4.0, 321)  # in block SDs
_BEYOND = np.array([0.0, 0.05, 0.1, 0.2, 0.4, 0.8])  # also in block SDs, from the margin outwards


def budget(rng: Rng, scale: float) -> str:
    """Tabulate trials decided within the budget, and their median blocks, by share of the stake."""
    trials = max(20, int(300 * scale))
    found: dict[tuple[float, int, float, float], list[int | None]] = {}
    for _ in range(trials):
        noise = rng.normal(size=max(BUDGETS))
        x = noise[None, :] - _GRID[:, None]
        goals = {
            (blocks, share): sum(
                capital(one[:, :blocks], np.arange(blocks, 0, -1.0), share * ALPHA / 2) for one in (x, -x)
            )
            for blocks in BUDGETS
            for share in SHARES[1:]
        }
        for sd in SDS:
            others = np.exp(np.minimum(log_paths(x, aim=1.0 / sd), 600.0))
            for blocks in BUDGETS:
                for share in SHARES:
                    mixed = (1.0 - share) * ALPHA * others[:, :blocks] + goals.get((blocks, share), 0.0)
                    stops = _stops(noise[:blocks], mixed, 1.0 / sd, share)
                    for effect, stop in stops.items():
                        found.setdefault((sd, blocks, effect, share), []).append(stop)
    out = [
        f"**Decided within the budget, and median blocks of all trials, by share of the stake: {trials} trials, alpha .05/8, "
        "normal noise**",
        "",
        "Block SD and effects in margins; a look after every block. An undecided trial counts with all its blocks.",
        "",
        f"| SD | budget, blocks | effect | {' | '.join('share ' + format(share, 'g') for share in SHARES)} |",
        "| --- | --- | --- |" + " --- |" * len(SHARES),
    ]
    for sd, blocks in CASES:
        for effect in EFFECTS:
            cells = []
            for share in SHARES:
                stops = found[sd, blocks, effect, share]
                decided = sum(stop is not None for stop in stops) / trials
                cells.append(f"{decided:.2f}, {np.median([stop or blocks for stop in stops]):.0f}")
            out.append(f"| {sd:g} | {blocks} | {effect:g} | {' | '.join(cells)} |")
    return "\n".join(out)


def _stops(noise: Floats, mixed: Floats, margin: float, share: float) -> dict[float, int | None]:
    """Return, by effect, the block after which the verdict is final (None: never), for contrasts of SD 1.

    ``mixed``: alpha times M of all bets by candidate (less the effect) and block.
    """
    given = Budget(share, np.arange(noise.size, 0, -1.0))

    def excluded(candidates: Floats, side: Side) -> Flags:
        """Return, for each block, whether one side's bets exclude all candidates (less the effect)."""
        paths = mixed_paths(noise[None, :] - candidates[:, None], given, ALPHA, aim=margin, side=side)
        return (np.maximum.accumulate(paths, axis=1) >= 1.0).all(axis=0)

    with np.errstate(divide="ignore"):
        low, high = hulls(_GRID, np.log(mixed), 1.0)
    found: dict[float, int | None] = {}
    for effect in EFFECTS:
        lower, upper = low + effect * margin, high + effect * margin
        inside = (lower >= -margin) & (upper <= margin)
        if effect <= 1.0:
            too_large = margin - effect * margin + _BEYOND
            too_small = -margin - effect * margin - _BEYOND
            inside |= excluded(too_large, Side.SMALLER) & excluded(too_small, Side.LARGER)
        beyond = (lower > margin) | (upper < -margin)
        with np.errstate(invalid="ignore"):
            narrow = (upper - lower) / 2 <= np.maximum(margin, np.abs(lower + upper) / 8)
        stop = inside | beyond | (((lower > 0.0) | (upper < 0.0)) & narrow)
        found[effect] = int(np.argmax(stop)) + 1 if stop.any() else None
    return found


def budget_errors(rng: Rng, scale: float) -> str:
    """Tabulate false alarms and coverage with the product's share, in trials whose length depends on the runs' signs."""
    trials, blocks, margin = max(50, int(1000 * scale)), 200, 0.5
    covered = trials * 2 // 5
    design = Design(trials, blocks)
    out = [
        f"**With the bet on the budget at {SHARE:g} of the stake, alpha .05: {trials} trials of {blocks} blocks** "
        "[95 % bounds]",
        "",
        "The budget is the time that 160 blocks take on average, then the trial is continued; a look after every block. A "
        "block takes the longer the larger its contrast, so how many fit depends on the signs. Margin half a block SD. "
        f"Coverage is that of the reported interval in {covered} trials.",
        "",
        "| noise | told apart, though the level does nothing | interval misses a true effect of the margin | such an effect "
        "is called equivalent |",
        "| --- | --- | --- | --- |",
    ]
    for name, make in NOISES.items():
        d = design.arms(make(rng, trials, design.slots)).contrasts
        d = d / d.std()
        took = np.exp(np.clip(0.4 * (d + margin), -2.0, 2.0))
        starts = np.cumsum(took, axis=1) - took
        alarms = missed = equivalent = 0
        for i, row in enumerate(d):
            left = contrasts_left(
                range(blocks), starts[i].tolist(), blocks=blocks, time_s=160.0 * float(took.mean())
            )
            given = Budget(SHARE, left)
            alarms += mixed_paths(row[None, :], given, 0.05, aim=margin).max() >= 1.0
            down = mixed_paths(row[None, :], given, 0.05, aim=margin, side=Side.SMALLER)
            equivalent += down.max() >= 1.0
            if i < covered:
                found = interval(row + margin, 0.05, margin=margin, budget=given)
                low = -math.inf if found.low is None else found.low
                high = math.inf if found.high is None else found.high
                missed += found.empty or not low <= margin <= high
        cells = [rate(alarms, trials), rate(missed, covered), rate(equivalent, trials)]
        out.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(out)
