"""Switchback trials of a running service: windows of a metric that never stops, with drift, dependence and carry-over.

Time has steps of one second. A window has a washout of w seconds and a counted part of 30; its value is the mean over the
counted part (a logarithm). The level is in force from the start of the washout on, and its effect approaches its final size
with a time constant: what the level before has left decays while the new one builds up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from exact import rate
from iotrial.stats.betting import log_paths
from iotrial.stats.carryover import paths
from iotrial.stats.eprocess import Wanted, intervals
from iotrial.stats.switchback import _units, possible_error, proposed_washout
from simulated.noise import Floats, Rng
from simulated.process import largest

ALPHA = 0.05
#: error level of the diagnosis of a trial with two levels: of each of its two tests
DIAGNOSIS = 0.01 / 2
COUNTED_S = 30
PAIRS = 100
TRIALS = 1000
EFFECT = math.log(1.05)
#: standard deviation of one second about the slow movements, as a logarithm
SECOND_SD = 0.2
_ROWS = 50

Signs = npt.NDArray[np.bool_]


def independent(rng: Rng, trials: int, seconds: int) -> Floats:
    """Every second for itself."""
    return SECOND_SD * rng.normal(size=(trials, seconds))


def dependent(rng: Rng, trials: int, seconds: int) -> Floats:
    """Neighbouring minutes are alike: AR(1) with a time constant of 100 s, and seconds of their own."""
    slow = _correlated(rng, trials, seconds, math.exp(-1 / 100))
    return 0.1 * slow + SECOND_SD * rng.normal(size=(trials, seconds))


def daily(rng: Rng, trials: int, seconds: int) -> Floats:
    """Load that rises and falls over hours, a step (a deployment), and dependence."""
    at = np.arange(seconds)
    wave = 0.3 * np.sin(2 * math.pi * (at / 10_000 + rng.random((trials, 1))))
    step = rng.normal(0, 0.3, size=(trials, 1)) * (at > rng.integers(0, seconds, size=(trials, 1)))
    return wave + step + dependent(rng, trials, seconds)


def bursts(rng: Rng, trials: int, seconds: int) -> Floats:
    """A job every five minutes that takes one, with heavy-tailed seconds."""
    phase = rng.integers(0, 300, size=(trials, 1))
    job = 0.4 * ((np.arange(seconds) + phase) % 300 < 60)
    return job + SECOND_SD / math.sqrt(3) * rng.standard_t(3, size=(trials, seconds))


NOISES: Mapping[str, Callable[[Rng, int, int], Floats]] = {
    "independent seconds": independent,
    "dependent (100 s)": dependent,
    "daily load, a step": daily,
    "bursts every 5 min": bursts,
}


def _correlated(rng: Rng, trials: int, seconds: int, correlation: float) -> Floats:
    out: Floats = rng.normal(size=(trials, seconds))
    scale = math.sqrt(1 - correlation**2)
    for second in range(1, seconds):
        out[:, second] = correlation * out[:, second - 1] + scale * out[:, second]
    return out


@dataclass(frozen=True, slots=True)
class Trials:
    """Windows of many trials, in time order: values, trends (later half less earlier half), and whether B was in force."""

    values: Floats
    trends: Floats
    at_b: Signs

    def contrasts(self, values: Floats) -> Floats:
        """Return B less A of each pair."""
        first, second = values[:, 0::2], values[:, 1::2]
        return np.where(self.at_b[:, 0::2], first - second, second - first)


def simulate(
    rng: Rng,
    noise: Callable[[Rng, int, int], Floats],
    *,
    trials: int,
    washout_s: int,
    effect: float = 0.0,
    lag_s: float = 0.0,
    residue: float = 0.0,
    pairs: int = PAIRS,
) -> Trials:
    """Run trials with orders drawn for each pair.

    ``effect`` of B builds up and decays with the time constant ``lag_s``. ``residue``: what B leaves behind when A follows,
    such as dirty pages that must still be written; it decays likewise.
    """
    length = washout_s + COUNTED_S
    b_first = rng.random((trials, pairs)) < 0.5
    at_b: Signs = np.empty((trials, 2 * pairs), dtype=np.bool_)
    at_b[:, 0::2], at_b[:, 1::2] = b_first, ~b_first
    found = [
        _windows(noise(rng, len(rows), 2 * pairs * length), at_b[rows], washout_s, effect, lag_s, residue)
        for rows in np.array_split(np.arange(trials), -(-trials // _ROWS))
    ]
    values, trends = (np.concatenate(part) for part in zip(*found, strict=True))
    return Trials(values, trends, at_b)


def _windows(
    seconds: Floats, at_b: Signs, washout_s: int, effect: float, lag_s: float, residue: float
) -> tuple[Floats, Floats]:
    trials, windows = at_b.shape
    length = washout_s + COUNTED_S
    parts = seconds.reshape(trials, windows, length)
    decay = np.exp(-(np.arange(length) + 0.5) / lag_s) if lag_s else np.zeros(length)
    over_window = math.exp(-length / lag_s) if lag_s else 0.0
    state = np.zeros(trials)  # what is in force of the effect at the start of a window
    left = np.zeros(trials)  # what is left of the residue
    for window in range(windows):
        here = at_b[:, window]
        if window:
            left = np.where(at_b[:, window - 1] & ~here, residue, left)
        target = effect * here
        parts[:, window] += target[:, None] + (state - target)[:, None] * decay + left[:, None] * decay
        state = target + (state - target) * over_window
        left = left * over_window
    counted = parts[:, :, washout_s:]
    half = COUNTED_S // 2
    return counted.mean(axis=2), counted[:, :, half:].mean(axis=2) - counted[:, :, :half].mean(axis=2)


def false_alarms(rng: Rng, scale: float) -> str:
    """Return the table of trials in which the level changes nothing at all."""
    trials = max(50, int(TRIALS * scale))
    out = [
        f"**Both levels the same, no washout: {trials} trials of {PAIRS} pairs of windows of {COUNTED_S} s, at .05** "
        "[95 % bounds]",
        "",
        "A look after every pair. Welch's test looks once, at all windows of A and all of B: with the order drawn, and with "
        "one change in the middle. The last column is the diagnosis of carry-over, at .01.",
        "",
        "| the metric | iotrial | Welch, order drawn | Welch, A then B | carry-over shown |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, noise in NOISES.items():
        found = simulate(rng, noise, trials=trials, washout_s=0)
        alarms = int((largest(found.contrasts(found.values)) >= math.log(1 / ALPHA)).sum())
        drawn = _welch(found.values, found.at_b)
        blocked = _welch(found.values, np.arange(2 * PAIRS)[None, :] >= PAIRS + np.zeros((trials, 1)))
        shown = int(_diagnosed(found).sum())
        cells = [rate(count, trials) for count in (alarms, drawn, blocked, shown)]
        out.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(out)


def _welch(values: Floats, at_b: Signs) -> int:
    """Count the trials in which Welch's test finds a difference at ``ALPHA`` (normal quantile: 100 windows each)."""
    found = 0
    for row, here in zip(values, np.broadcast_to(at_b, values.shape), strict=True):
        one, other = row[here], row[~here]
        error = math.sqrt(one.var(ddof=1) / one.size + other.var(ddof=1) / other.size)
        found += abs(one.mean() - other.mean()) > 1.972 * error
    return found


def _diagnosed(found: Trials) -> Signs:
    """Return in which trials the diagnosis of ``stats.switchback`` finds carry-over."""
    return _after(found) | _trending(found)


def _trending(found: Trials) -> Signs:
    # the diagnosis has no margin to aim at
    logs = largest_unaimed(found.contrasts(found.trends))
    return np.asarray(logs >= -math.log(DIAGNOSIS))


def largest_unaimed(contrasts: Floats) -> Floats:
    """Return ln f(0) of each trial, by the bets without a margin."""
    return np.concatenate(
        [log_paths(part).max(axis=1) for part in np.array_split(contrasts, -(-len(contrasts) // 100))]
    )


def _after(found: Trials) -> Signs:
    pairs = [window // 2 for window in range(found.values.shape[1])]
    shown = []
    for values, at_b in zip(found.values, found.at_b, strict=True):
        levels = ["B" if here else "A" for here in at_b.tolist()]
        (path,) = (one for one in paths(_units(values, levels, pairs, 2), [("level", "B")]) if one.across)
        shown.append(path.largest >= -math.log(DIAGNOSIS))
    return np.array(shown)


def carried_over(rng: Rng, scale: float) -> str:
    """Return the table of an effect that builds up slowly: coverage, bias and diagnosis, by time constant and washout."""
    trials = max(40, int(TRIALS * scale / 2))
    out = [
        f"**An effect of 5 % that builds up and decays slowly: {trials} trials of {PAIRS} pairs, counted for {COUNTED_S} s, "
        "dependent noise, at .05** [95 % bounds]",
        "",
        "*Covered*: the interval holds the final 5 %. *Estimate*: its median. *After*, *trend*: the two diagnoses, together "
        "at .01.",
        "",
        "| time constant | washout | covered | estimate | effect found | after | trend |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for lag_s in (0, 5, 15, 60):
        for washout_s in (0, 10, 30, 60):
            if lag_s == 0 and washout_s > 10:
                continue
            found = simulate(rng, dependent, trials=trials, washout_s=washout_s, effect=EFFECT, lag_s=lag_s)
            out.append(f"| {lag_s} s | {washout_s} s | {' | '.join(_cells(found, EFFECT, trials))} |")
    return "\n".join(out)


def residues(rng: Rng, scale: float) -> str:
    """Return the table of a level that differs only in what it leaves for the next window."""
    trials = max(40, int(TRIALS * scale / 2))
    out = [
        f"**No effect at rest, but a window of A after B begins 20 % slower, decaying: {trials} trials of {PAIRS} pairs, "
        f"counted for {COUNTED_S} s, dependent noise, at .05** [95 % bounds]",
        "",
        "*Covered*: the interval holds 0 %, the effect at rest. B is not without effect here, so *effect found* is no false "
        "alarm of the test; it is one if it is read as an effect at rest.",
        "",
        "| time constant | washout | covered | estimate | effect found | after | trend |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for lag_s in (5, 15, 60):
        for washout_s in (0, 10, 30, 60):
            found = simulate(
                rng, dependent, trials=trials, washout_s=washout_s, residue=math.log(1.2), lag_s=lag_s
            )
            out.append(f"| {lag_s} s | {washout_s} s | {' | '.join(_cells(found, 0.0, trials))} |")
    return "\n".join(out)


def _cells(found: Trials, truth: float, trials: int) -> list[str]:
    contrasts = found.contrasts(found.values)
    ends = intervals([Wanted(row, ALPHA, math.log(1.03)) for row in contrasts])
    covered = sum(
        not one.empty
        and (-math.inf if one.low is None else one.low)
        <= truth
        <= (math.inf if one.high is None else one.high)
        for one in ends
    )
    middle = float(np.median([one.estimate for one in ends if one.estimate is not None]))
    seen = sum(one.p_anytime <= ALPHA for one in ends)
    after, trend = int(_after(found).sum()), int(_trending(found).sum())
    return [
        rate(covered, trials),
        f"{100 * math.expm1(middle):+.1f} %",
        *(f"{n / trials:.2f}" for n in (seen, after, trend)),
    ]


def washouts(rng: Rng, scale: float) -> str:
    """Return the table of washouts proposed by blind pilots."""
    pilots = max(20, int(200 * scale))
    tolerance, lengths_s, switches = 0.01, 180, 24
    out = [
        f"**Washouts proposed by {pilots} blind pilots a row: {switches} switches, {lengths_s} s apart; accepted is an error "
        f"of 1 % in a window of {COUNTED_S} s**",
        "",
        "*Needed*: the washout after which the planted transient changes a window by 1 %. *Error*: what is left with the one "
        "proposed. *Short*: pilots that say that their windows are. *Possible*: the largest error without a washout that "
        "the pilot does not exclude (median).",
        "",
        "| the metric | transient | constant | needed | proposed: median, 10-90 % | error: median, 90 % | short | possible |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in ("independent seconds", "dependent (100 s)", "bursts every 5 min"):
        for size in (0.0, 0.05, 0.2, 0.5):
            for lag_s in (5.0, 20.0) if size else (5.0,):
                out.append(_pilot_row(rng, name, size, lag_s, pilots, lengths_s, switches, tolerance))
    return "\n".join(out)


def _pilot_row(
    rng: Rng,
    name: str,
    size: float,
    lag_s: float,
    pilots: int,
    length_s: int,
    switches: int,
    tolerance: float,
) -> str:
    amplitude = math.log1p(size)
    of_window = amplitude * lag_s / COUNTED_S * -math.expm1(-COUNTED_S / lag_s)
    needed = max(0.0, lag_s * math.log(of_window / tolerance)) if of_window > 0.0 else 0.0
    at = np.arange(length_s) + 0.5
    transient = amplitude * np.exp(-at / lag_s)
    directions = [number % 2 for number in range(switches)]
    signs = np.where(np.array(directions) == 1, 1.0, -1.0)
    found, hidden = [], []
    for noise in NOISES[name](rng, pilots, switches * length_s):
        course = noise.reshape(switches, length_s) + signs[:, None] * transient
        series = [list(zip(at.tolist(), row.tolist(), strict=True)) for row in course]
        found.append(proposed_washout(series, directions, counted_s=COUNTED_S, tolerance=tolerance))
        hidden.append(possible_error(series, directions, washout_s=0.0, counted_s=COUNTED_S))
    proposed = np.array(found)
    short = int(np.isinf(proposed).sum())
    good = proposed[np.isfinite(proposed)]
    shown = f"{100 * float(np.median(hidden)):.0f} %"
    if not good.size:
        return f"| {name} | {100 * size:.0f} % | {lag_s:.0f} s | {needed:.0f} s | – | – | {short / pilots:.2f} | {shown} |"
    error = 100 * of_window * np.exp(-good / lag_s)
    low, middle, high = np.quantile(good, (0.1, 0.5, 0.9))
    return (
        f"| {name} | {100 * size:.0f} % | {lag_s:.0f} s | {needed:.0f} s | {middle:.0f} s, {low:.0f} to {high:.0f} s | "
        f"{np.median(error):.1f} %, {np.quantile(error, 0.9):.1f} % | {short / pilots:.2f} | {shown} |"
    )
