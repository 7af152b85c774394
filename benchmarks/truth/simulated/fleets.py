"""The verdict over hosts: evidence with a look at any moment, mean and spread of unequal hosts, hosts that stop early.

Hosts are unequal on purpose: their noise differs by a factor of up to five, their blocks from 20 to 400.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iotrial.stats.betting import log_paths
from iotrial.stats.fleet.combine import evidence
from iotrial.stats.fleet.moderators import moderators
from iotrial.stats.fleet.outliers import outliers
from iotrial.stats.fleet.spread import mean_of
from simulated.noise import Floats, Rng, normal, spiky
from simulated.stopping import MARGIN, PRECISE, PRODUCT, RULES, Ends, ends, outcomes

ALPHA = 0.05
HOSTS = (2, 3, 5, 10, 30)
SPREAD = 0.1
MARGIN_SD, LONGEST = 0.08, 400
Draw = Callable[[Rng, int], Floats]


def evidence_table(rng: Rng, scale: float) -> str:
    """Tabulate how often "no effect on any host" is wrongly excluded, with a look after any block of any host."""
    trials = max(100, int(1200 * scale))
    hosts, blocks = 10, 60
    out = [
        f'**"No effect on any host" excluded at some moment: {trials:,} fleets of {hosts} hosts, up to {blocks} blocks '
        f"each, nominal {ALPHA}**",
        "",
        "A look after every round; a host stops as soon as its own e-value reaches 20, or after a number of blocks that is "
        "drawn.",
        "",
        "| hosts | judged by half the sum of product and mean | product alone | mean alone |",
        "| --- | --- | --- | --- |",
    ]
    kinds: tuple[tuple[str, Callable[[], Floats]], ...] = (
        ("normal noise", lambda: _contrasts(rng, hosts, blocks, normal)),
        ("spiky noise", lambda: _contrasts(rng, hosts, blocks, spiky)),
        ("all share the noise of one server, draws of their own", lambda: _shared(rng, hosts, blocks)),
    )
    for name, draw in kinds:
        found = np.array([_alarms(rng, draw()) for _ in range(trials)])
        cells = " | ".join(f"{share:.3f}" for share in found.mean(axis=0))
        out.append(f"| {name} | {cells} |")
    claimed = np.array([_claimed(rng, hosts, blocks, 3) for _ in range(trials)])
    out += [
        "",
        f"Where 3 of {hosts} hosts have an effect of one block SD, more than 3 were claimed to have one in "
        f"{(claimed > 3).mean():.3f} of the fleets, and {claimed.mean():.1f} on average.",
    ]
    return "\n".join(out)


def mean_table(rng: Rng, scale: float) -> str:
    """Tabulate coverage of the mean, the spread and a new host, and false alarms of outliers and properties."""
    trials = max(60, int(600 * scale))
    out = [
        f"**Mean and spread over hosts: {trials:,} fleets a row, nominal {1 - ALPHA:.2f} covered, at most {ALPHA} "
        "falsely named**",
        "",
        f"The hosts' true effects (natural logarithms) have an SD of {SPREAD:g}; a host's standard error is .008 in the "
        "middle, .002 to .04.",
        "",
        "| hosts | effects between hosts | mean covered | half-width, median | spread covered "
        "| a further host covered | falsely outlying | property falsely shown |",
        "| --- " * 8 + "|",
    ]
    shapes: tuple[tuple[str, Draw], ...] = (
        ("normal", lambda r, n: r.normal(size=n)),
        ("heavy-tailed (t, 3 df)", lambda r, n: r.standard_t(3, size=n) / math.sqrt(3)),
        ("two kinds of hosts, 1 : 4", lambda r, n: np.where(r.random(n) < 0.2, 2.0, -0.5)),
    )
    for name, draw in shapes:
        for hosts in HOSTS if name == "normal" else HOSTS[2:]:
            rows = [_fleet(rng, hosts, SPREAD, draw) for _ in range(trials)]
            out.append(f"| {hosts} | {name} | {_cells(rows)} |")
    return "\n".join(out)


def stopped_table(rng: Rng, scale: float) -> str:
    """Tabulate the bias of the mean from hosts that stop at their verdict."""
    series, fleets = max(40, int(120 * scale)), max(60, int(360 * scale))
    pool = [_series(rng) for _ in range(series)]
    out = [
        f"**Hosts that stop at their verdict (margin 3 %): {fleets} fleets a row of {series} series and their mirror images, "
        f"block SD {MARGIN_SD:.0%}, at most {LONGEST} blocks, nominal {1 - ALPHA:.2f}**",
        "",
        "Shift: the average of what is found minus the truth, in per cent of the reference, ± twice its simulation error.",
        "",
        "| hosts | true mean | spread | blocks, median | shift of one host's estimate | shift of the mean | mean covered | "
        "with `--precise`: blocks | one host's shift | the mean's | covered | with `--no-stop`: the mean's | covered |",
        "| --- " * 13 + "|",
    ]
    for hosts, effect, spread in (
        (10, 0.0, 0.0),
        (10, 0.02, 0.0),
        (10, 0.05, 0.0),
        (10, 0.1, 0.0),
        (10, 0.02, 0.02),
        (10, 0.05, 0.02),
        (10, 0.05, 0.05),
        (10, 0.1, 0.1),
        (30, 0.05, 0.0),
        (30, 0.05, 0.05),
        (3, 0.05, 0.05),
    ):
        rows = [_stopped(rng, pool, hosts, math.log1p(effect), spread) for _ in range(fleets)]
        out.append(f"| {hosts} | {effect:.0%} | {spread:g} | {_shifts(rows)} |")
    return "\n".join(out)


def _contrasts(rng: Rng, hosts: int, blocks: int, noise: Callable[[Rng, int, int], Floats]) -> Floats:
    """Return differences of two runs in random order."""
    runs = noise(rng, hosts, 2 * blocks)
    return (runs[:, ::2] - runs[:, 1::2]) * rng.choice([-1.0, 1.0], size=(hosts, blocks))


def _shared(rng: Rng, hosts: int, blocks: int) -> Floats:
    """Return contrasts in which all hosts share nine tenths of a run's noise."""
    common = spiky(rng, 1, 2 * blocks)
    runs = common + 0.3 * rng.normal(size=(hosts, 2 * blocks))
    return (runs[:, ::2] - runs[:, 1::2]) * rng.choice([-1.0, 1.0], size=(hosts, blocks))


def _alarms(rng: Rng, contrasts: Floats) -> list[bool]:
    log_e = _until_stopped(rng, contrasts)
    product = log_e.sum(axis=0)
    mean = np.logaddexp.reduce(log_e, axis=0) - math.log(len(log_e))
    both = np.logaddexp(product, mean) - math.log(2)
    threshold = math.log(1 / ALPHA)
    return [bool((path >= threshold).any()) for path in (both, product, mean)]


def _until_stopped(rng: Rng, contrasts: Floats) -> Floats:
    """Return ln of each host's e-value after every round; it stays constant once the host has stopped."""
    log_e = log_paths(contrasts)
    last = contrasts.shape[1] - 1
    for host, path in enumerate(log_e):
        reached = np.flatnonzero(path >= math.log(1 / ALPHA))
        at = min(int(reached[0]) if reached.size else last, int(rng.integers(8, 2 * last)))
        log_e[host, at:] = path[min(at, last)]
    return log_e


def _claimed(rng: Rng, hosts: int, blocks: int, affected: int) -> int:
    d = _contrasts(rng, hosts, blocks, normal) / math.sqrt(2)
    d[:affected] += 1.0
    return evidence(log_paths(d)[:, -1].tolist(), ALPHA).least_hosts_with_an_effect


@dataclass(frozen=True, slots=True)
class _Row:
    covered: bool
    half: float
    spread: bool
    new: bool | None
    outlying: bool
    property_shown: bool | None


def _fleet(rng: Rng, hosts: int, spread: float, draw: Draw) -> _Row:
    theta = 0.05 + spread * draw(rng, hosts)
    blocks = np.exp(rng.uniform(math.log(20), math.log(400), size=hosts)).astype(int)
    noise = 0.08 * np.exp(rng.uniform(-0.8, 0.8, size=hosts))
    # mean and standard deviation of that many normal contrasts
    estimates = theta + noise / np.sqrt(blocks) * rng.normal(size=hosts)
    errors = noise / np.sqrt(blocks) * np.sqrt(rng.chisquare(blocks - 1) / (blocks - 1))
    mean = mean_of(estimates, errors, ALPHA)
    further = 0.05 + spread * float(draw(rng, 1)[0])
    named = outliers([str(i) for i in range(hosts)], estimates, errors, ALPHA)
    properties = [{"kernel": str(rng.integers(2)), "system": str(rng.integers(3))} for _ in range(hosts)]
    table, comparisons = moderators(properties, estimates, errors, ALPHA)
    return _Row(
        mean.low <= 0.05 <= mean.high,
        (mean.high - mean.low) / 2,
        mean.spread_low <= spread <= mean.spread_high,
        None if mean.new_low is None or mean.new_high is None else mean.new_low <= further <= mean.new_high,
        bool(named),
        any(one.shown for found in table for one in found.differences) if comparisons else None,
    )


def _cells(rows: list[_Row]) -> str:
    hosts = [row.new for row in rows if row.new is not None]
    shown = [row.property_shown for row in rows if row.property_shown is not None]
    cells = [
        f"{np.mean([row.covered for row in rows]):.3f}",
        f"{np.median([row.half for row in rows]):.3f}",
        f"{np.mean([row.spread for row in rows]):.3f}",
        f"{np.mean(hosts):.3f}" if hosts else "–",
        f"{np.mean([row.outlying for row in rows]):.3f}",
        f"{np.mean(shown):.3f}" if len(shown) > len(rows) / 4 else "–",
    ]
    return " | ".join(cells)


@dataclass(frozen=True, slots=True)
class _Series:
    """One series of contrasts of SD 1 and mean 0: ends after every block, running mean, and its standard error."""

    ends: Ends
    mean: Floats
    error: Floats


def _series(rng: Rng) -> _Series:
    """Draw a series, and its ends from the same generator state, so that contrasts and ends belong together."""
    state = rng.bit_generator.state
    d = rng.normal(size=LONGEST)
    rng.bit_generator.state = state
    found = ends(rng, LONGEST, aim=math.log1p(MARGIN) / MARGIN_SD, alpha=ALPHA, points=301)
    n = np.arange(1, LONGEST + 1)
    mean = np.cumsum(d) / n
    variance = (np.cumsum(d * d) - n * mean**2) / np.maximum(n - 1, 1)
    return _Series(found, mean, np.sqrt(np.maximum(variance, 0) / n))


@dataclass(frozen=True, slots=True)
class _Stop:
    """A fleet whose hosts stop by one rule: shift of a host's estimate and of the mean, and the blocks needed."""

    host: float
    mean: float
    covered: bool
    blocks: float


def _stopped(
    rng: Rng, pool: list[_Series], hosts: int, effect: float, spread: float
) -> tuple[_Stop, _Stop, _Stop]:
    """Stop the same hosts by the product's rule, with ``--precise``, and with ``--no-stop``."""
    theta = effect + spread * rng.normal(size=hosts)
    chosen = [(pool[int(rng.integers(len(pool)))], 1.0 if rng.random() < 0.5 else -1.0) for _ in range(hosts)]
    blocks = np.empty((3, hosts), dtype=int)
    for host, ((one, sign), true) in enumerate(zip(chosen, theta.tolist(), strict=True)):
        found = outcomes((one.ends if sign > 0 else one.ends.mirrored()).of(MARGIN_SD, true))
        blocks[:, host] = found[RULES.index(PRODUCT)][1], found[RULES.index(PRECISE)][1], LONGEST

    def fleet(stops: npt.NDArray[np.int_]) -> _Stop:
        at = [(one, sign, n - 1) for (one, sign), n in zip(chosen, stops.tolist(), strict=True)]
        estimates = theta + MARGIN_SD * np.array([sign * one.mean[n] for one, sign, n in at])
        errors = MARGIN_SD * np.array([one.error[n] for one, _, n in at])
        mean = mean_of(estimates, errors, ALPHA)
        return _Stop(
            float((estimates - theta).mean()),
            # relative to the hosts' own effects: the sampling of hosts is no shift
            mean.value - float(theta.mean()),
            mean.low <= effect <= mean.high,
            float(np.median(stops)),
        )

    return fleet(blocks[0]), fleet(blocks[1]), fleet(blocks[2])


def _shifts(rows: list[tuple[_Stop, _Stop, _Stop]]) -> str:
    def shift(values: list[float]) -> str:
        return f"{100 * np.mean(values):+.2f} ± {200 * np.std(values) / math.sqrt(len(values)):.2f}"

    cells = []
    for rule in range(3):
        fleets = [row[rule] for row in rows]
        if rule < 2:
            cells.append(f"{np.median([one.blocks for one in fleets]):.0f}")
            cells.append(shift([one.host for one in fleets]))
        cells.append(shift([one.mean for one in fleets]))
        cells.append(f"{np.mean([one.covered for one in fleets]):.3f}")
    return " | ".join(cells)
