"""Three ways to need fewer blocks: bets capped at what is needed to end and large effects first (measured, not taken), and in
races the average capital over arms (taken).

**Capped bets** (Fischer and Ramdas, arXiv 2410.16076). Capital beyond 1/alpha is of no use. So where one outcome of a block
would bring more than that, it brings 1/alpha, and the other outcome gets the rest. Contrasts without a copy, whose block has
two outcomes.

**Large effects first.** The bold bet has a larger weight, fixed beforehand: more of alpha is spent on effects so large that
they show in the first blocks. Of interchangeable runs the error is at most alpha with any weight; the bold bet has no second
product, so not where the level scatters more.

**Average capital** (Cho, Gan and Kallus, arXiv 2402.06122). An arm leaves a race when the capital of one other against it
reaches 2 (K - 1) / alpha, with K arms, or when the sum of all does (``iotrial.stats.race``).
"""

from __future__ import annotations

import math
from unittest.mock import patch

import numpy as np

from exact import rate
from iotrial.stats import betting
from iotrial.stats.betting import BOLD_WEIGHT, MOST_AIMED, Side, log_paths, mixture
from iotrial.stats.race import _Pairs
from simulated.noise import NOISES, Floats, Rng
from simulated.process import alarms, first_beyond
from simulated.races import NOISES as RACE_NOISES
from simulated.races import _raced, _wrong, sets

BLOCKS = 400


def capped_bets(rng: Rng, scale: float) -> str:
    """Tabulate the block of the first exclusion of 0, and of the margin by the bets of one side, with and without a cap."""
    trials = max(50, int(1000 * scale))
    out = [
        f"**Bets capped at what is needed: {trials} trials of {BLOCKS} blocks; plain / capped** [95 % bounds]",
        "",
        "Contrasts in block SDs. The margin is .3 where 0 is tested; in the last rows the effect is 0.",
        "",
        "| noise | effect or margin | alpha | blocks: mean | median | excluded |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    cases = [(name, 0.0, Side.BOTH, 0.05) for name in NOISES]
    cases += [
        ("normal", size, Side.BOTH, alpha) for alpha in (0.05, 0.05 / 16) for size in (0.3, 0.6, 1.0, 2.0)
    ]
    cases += [
        ("normal", size, Side.SMALLER, alpha) for alpha in (0.05, 0.05 / 16) for size in (0.2, 0.3, 0.6, 1.0)
    ]
    for name, size, side, alpha in cases:
        noise = NOISES[name](rng, trials, 2 * BLOCKS).reshape(trials, BLOCKS, 2)
        swap = rng.random((trials, BLOCKS)) < 0.5
        apart = (noise[:, :, 0] - noise[:, :, 1]) * np.where(swap, 1.0, -1.0) / math.sqrt(2.0)
        x, aim = (apart - size, size) if side is Side.SMALLER else (apart + size, 0.3)
        when = [_first(x, aim, math.log(1.0 / alpha), side, capped=capped) for capped in (False, True)]
        ended = [np.minimum(one, BLOCKS) for one in when]
        cells = [
            " / ".join(f"{one.mean():.1f}" for one in ended),
            " / ".join(f"{np.median(one):.0f}" for one in ended),
        ]
        cells.append(" / ".join(rate(int(np.isfinite(one).sum()), trials) for one in when))
        what = f"margin {size:g}" if side is Side.SMALLER else f"effect {size:g}"
        out.append(f"| {name} | {what} | {alpha:.3g} | {' | '.join(cells)} |")
    return "\n".join(out)


def _first(x: Floats, aim: float, threshold: float, side: Side, *, capped: bool) -> Floats:
    """Return the block at which ln M reaches the threshold in each row; infinite if it does not."""
    if not capped:
        beyond = log_paths(x, aim=aim, side=side) >= threshold
        return np.where(beyond.any(axis=1), beyond.argmax(axis=1) + 1.0, np.inf)
    bets, signs = mixture(side, aimed=True), np.array(side.signs)
    rms = np.sqrt(np.cumsum(x * x, axis=1) / np.arange(1, x.shape[1] + 1))
    logs = np.tile(np.log(np.repeat(bets.weights, signs.size) / signs.size), (len(x), 1))
    found = np.full(len(x), np.inf)
    for block in range(x.shape[1]):
        thetas = np.tile(np.append(bets.thetas, 0.0), (len(x), 1))
        thetas[:, -1] = np.minimum(aim / rms[:, block], MOST_AIMED)
        stakes = np.repeat(thetas, signs.size, axis=1) * np.tile(signs, thetas.shape[1])
        won = np.tanh(stakes * np.abs(x[:, block] / rms[:, block])[:, None])
        with np.errstate(divide="ignore"):
            sides = [logs + np.log1p(won * way) for way in (1.0, -1.0)]  # D above, or below the candidate
        totals = np.logaddexp.reduce(sides, axis=2)
        came = (x[:, block] < 0.0).astype(int)
        rows = np.arange(len(x))
        mine, other = totals[came, rows], totals[1 - came, rows]
        found = np.where(np.isinf(found) & (mine >= threshold), block + 1.0, found)
        # the other outcome would have brought too much: what is beyond 1/alpha goes to this one
        rest = np.where(other > threshold, np.exp(np.minimum(other, 50.0)) - math.exp(threshold), 0.0)
        gain = np.log1p(np.maximum(rest, 0.0) / np.exp(mine))
        logs = np.array(sides)[came, rows] + gain[:, None]
        found = np.where(np.isinf(found) & (mine + gain >= threshold), block + 1.0, found)
    return found


def large_effects_first(rng: Rng, scale: float) -> str:
    """Tabulate blocks until the interval lies beyond 3 %, and errors, with other weights of the bold bet."""
    trials, errors = max(50, int(400 * scale)), max(200, int(20_000 * scale))
    limit = math.log1p(0.03)
    cases = ((1.0, 0.1), (1.0, 0.2), (0.5, 0.1), (0.2, 0.1), (0.1, 0.1), (0.06, 0.05))
    out = [
        f"**Large effects first, at .05/16: mean blocks of {trials} trials until the interval lies beyond 3 %; 0 excluded in "
        f"{errors} trials of 60 blocks** [95 % bounds]",
        "",
        "| noise | weight | "
        + " | ".join(f"{effect:+.0%} at SD {sd:g}" for effect, sd in cases)
        + " | "
        + " | ".join(f"0 excluded, SD of the level x {ratio}" for ratio in (1, 4, 1000))
        + " |",
        "| --- " * (len(cases) + 5) + "|",
    ]
    for name in ("normal", "heavy-tailed (t, 3 df)", "spiky (1 run in 20 stalls)"):
        seed = int(rng.integers(2**32))
        for weight in (BOLD_WEIGHT, 0.1, 0.15, 0.3):
            same = np.random.default_rng(seed)
            cells = [f"{weight:g}"]
            with patch.object(betting, "BOLD_WEIGHT", weight):
                mixture.cache_clear()
                for effect, sd in cases:
                    d, copies = _with_copies(same, name, trials, 400, sd)
                    paths = first_beyond(d + math.log1p(effect), limit, limit, 0.05 / 16, copies=copies)
                    cells.append(f"{np.minimum(paths, 400.0).mean():.1f}")
                for ratio in (1.0, 4.0, 1000.0):
                    d, copies = _with_copies(same, name, errors, 60, 0.1, ratio)
                    cells.append(rate(alarms(d, 0.05 / 16, copies=copies), errors, 4))
            mixture.cache_clear()
            out.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(out)


def _with_copies(
    rng: Rng, name: str, trials: int, blocks: int, sd: float, ratio: float = 1.0
) -> tuple[Floats, Floats]:
    """Return contrasts and copies; a contrast has this standard deviation where the level scatters as the reference."""
    noise = NOISES[name](rng, trials, 3 * blocks).reshape(trials, blocks, 3) * sd / math.sqrt(2.0)
    runs: Floats = rng.permuted(noise, axis=2)
    there = (np.arange(blocks) < 24) | (np.arange(blocks) % 2 == 0)
    return ratio * runs[:, :, 0] - runs[:, :, 1], np.where(there, runs[:, :, 2] - runs[:, :, 1], math.nan)


def averaged_races(rng: Rng, scale: float) -> str:
    """Tabulate races in which an arm also leaves by the sum of all capitals against it, and races without that."""
    trials = max(4, round(50 * scale))
    out = [
        f"**Races by the average capital over arms: {trials} for each of {len(RACE_NOISES)} noises; margin 5 %, alpha 5 %; "
        "without / with it**",
        "",
        "| settings | set | wrong | runs: mean | saved |",
        "| --- | --- | --- | --- | --- |",
    ]
    for arms in (8, 16):
        for name, effects in sets(arms).items():
            wrong, runs = np.zeros(2, dtype=int), np.zeros(2)
            for noise in RACE_NOISES.values():
                for _ in range(trials):
                    seed = int(rng.integers(1 << 62))
                    for place, beaten_by in enumerate((lambda *_: None, _Pairs.beaten_by)):
                        with patch.object(_Pairs, "beaten_by", beaten_by):
                            one = _raced(np.random.default_rng(seed), noise, effects)
                        wrong[place] += _wrong(effects, one.pick)
                        runs[place] += one.runs
            number = trials * len(RACE_NOISES)
            out.append(
                f"| {arms} | {name} | {' / '.join(rate(int(one), number) for one in wrong)} | "
                f"{' / '.join(f'{one / number:.0f}' for one in runs)} | {1.0 - runs[1] / runs[0]:.3f} |"
            )
    return "\n".join(out)
