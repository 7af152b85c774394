"""Switchback trials of a running service: windows of a metric that never stops, with drift, dependence and carry-over.

Time has steps of one second. A window has a washout of w seconds and a counted part of 30; its value is the mean over the
counted part (a logarithm). The level is in force from the start of the washout on, and its effect approaches its final size
with a time constant: what the level before has left decays while the new one builds up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from exact import rate
from iotrial.stats.betting import log_paths
from iotrial.stats.carryover import paths
from iotrial.stats.eprocess import Wanted, intervals
from iotrial.stats.model import Verdict
from iotrial.stats.switchback import (
    Course,
    _units,
    possible_error,
    proposed_washout,
    settled,
    switching,
)
from iotrial.stats.verdict import judge
from iotrial.study.model import Better, Response, Scale
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
_METRIC = Response("service", "p99", "s", Scale.LOG, Better.LOWER, primary=True)

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
    """Windows of many trials, in time order: values, trends (later half less earlier half), rises (later half less washout;
    0 without one), and whether B was in force."""

    values: Floats
    trends: Floats
    rises: Floats
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
    values, trends, rises = (np.concatenate(part) for part in zip(*found, strict=True))
    return Trials(values, trends, rises, at_b)


def _windows(
    seconds: Floats, at_b: Signs, washout_s: int, effect: float, lag_s: float, residue: float
) -> tuple[Floats, Floats, Floats]:
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
    first, second = counted[:, :, :half].mean(axis=2), counted[:, :, half:].mean(axis=2)
    rises = second - parts[:, :, :washout_s].mean(axis=2) if washout_s else np.zeros_like(second)
    return counted.mean(axis=2), second - first, rises


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


@dataclass(frozen=True, slots=True)
class Switching:
    """What a change of level costs at its beginning (a logarithm), and the time constant of its decay.

    ``adds``: a change adds to what is left of earlier ones; else it begins the same transient again.
    """

    cost: float
    lag_s: float
    adds: bool = False


@dataclass(frozen=True, slots=True)
class Switched:
    """Trials with a cost of switching: contrasts and the diagnosis' numbers, by trial."""

    contrasts: Floats
    diagnosed: list[Floats]


def switched(
    rng: Rng,
    noise: Callable[[Rng, int, int], Floats],
    costs: Switching,
    *,
    trials: int,
    rest_s: float,
    lead_in_s: float | None,
    washout_s: int = 10,
    pairs: int = PAIRS,
) -> Switched:
    """Run trials whose levels differ in nothing but the changes that they need.

    ``rest_s``: with A, before each pair; 0 for pairs without a break. ``lead_in_s``: of a drawn level after a rest, as
    ``iotrial live`` has it; None for its first version, which set A before every pair, with or without a rest.
    """
    length = washout_s + COUNTED_S
    decay = np.exp(-(np.arange(length) + 0.5) / costs.lag_s)
    contrasts, diagnosed = [], []
    for rows in np.array_split(np.arange(trials), -(-trials // _ROWS)):
        count = len(rows)
        seconds = noise(rng, count, pairs * 2 * length).reshape(count, pairs, 2, length)
        b_first, b_led = rng.random((2, count, pairs)) < 0.5
        left, last = np.zeros(count), np.zeros(count, dtype=np.bool_)
        led = np.zeros((count, pairs), dtype=np.bool_)
        for pair in range(pairs):
            if rest_s or lead_in_s is None:
                left, last = _changed(left, last, costs, times=1), np.zeros(count, dtype=np.bool_)
                left = left * math.exp(-rest_s / costs.lag_s)
            if lead_in_s is not None and (rest_s or pair == 0):
                led[:, pair] = True
                last = b_led[:, pair]
                left = _changed(left, last, costs, times=1)
                left = _changed(left, ~last, costs, times=2) * math.exp(-lead_in_s / costs.lag_s)
            for window in range(2):
                here = b_first[:, pair] ^ bool(window)
                left, last = _changed(left, here != last, costs, times=1), here
                seconds[:, pair, window] += left[:, None] * decay
                left = left * math.exp(-length / costs.lag_s)
        values = seconds[..., washout_s:].mean(axis=-1)
        contrasts.append(np.where(b_first, 1, -1) * (values[..., 0] - values[..., 1]))
        places = [window // 2 for window in range(2 * pairs)]
        for row in range(count):
            levels, lead_ins = [], []
            for pair in range(pairs):
                first = "B" if b_first[row, pair] else "A"
                levels += [first, "A" if first == "B" else "B"]
                lead_ins += [("B" if b_led[row, pair] else "A") if led[row, pair] else None, None]
            diagnosed.append(switching(values[row].ravel(), levels, places, lead_ins))
    return Switched(np.concatenate(contrasts), diagnosed)


def _changed(left: Floats, changes: Signs, costs: Switching, *, times: int) -> Floats:
    """Return what is left of the transient after ``times`` changes in the trials that have them."""
    return np.where(changes, left + times * costs.cost if costs.adds else costs.cost, left)


def switching_costs(rng: Rng, scale: float) -> str:
    """Return the table of a cost of switching without any effect of the level: before lead-ins, and with them."""
    trials = max(40, int(TRIALS * scale / 4))
    out = [
        f"**No effect, but a change of level makes what follows 20 % slower, decaying: {trials} trials of {PAIRS} pairs, "
        f"counted for {COUNTED_S} s after a washout of 10 s, dependent noise, at .05** [95 % bounds]",
        "",
        "*Rest*: with today's settings before each pair. *Adds*: changes add up; else each begins the same transient again. "
        "*Before*: today's settings at every look, no lead-in. *Shown*: the diagnosis of switching, with its share of .01.",
        "",
        "| rest | time constant | changes | effect found, before | with a lead-in | shown |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for rest_s in (0, 120, 600):
        for lag_s in (10, 30, 60, 300):
            for adds in (False, True):
                costs = Switching(math.log(1.2), lag_s, adds)
                cells = []
                for lead_in_s in (None, 10.0):
                    found = switched(rng, dependent, costs, trials=trials, rest_s=rest_s, lead_in_s=lead_in_s)
                    alarms = largest(found.contrasts) >= math.log(1 / ALPHA)
                    cells.append(rate(int(alarms.sum()), trials))
                shown = sum(
                    largest_unaimed(one[None, :])[0] >= -math.log(0.01 / 3) for one in found.diagnosed
                )
                cells.append(f"{shown / trials:.2f}")
                kind = "add" if adds else "begin again"
                out.append(f"| {rest_s or 'none'} | {lag_s} s | {kind} | {' | '.join(cells)} |")
    return "\n".join(out)


def building_up(rng: Rng, scale: float) -> str:
    """Return the table of *equivalent* for effects that build up while a window is counted, and what it costs without one."""
    trials, pairs = max(30, int(TRIALS * scale / 5)), 400
    margin, looks = math.log(1.05), (*range(10, 100, 10), *range(100, pairs + 1, 50))
    out = [
        f"**Equivalent within 5 % although the effect builds up: {trials} trials of up to {pairs} pairs, counted for "
        f"{COUNTED_S} s after a washout of 10 s, at .05** [95 % bounds]",
        "",
        "*By the mean*: the mean over the window alone decides. *Settled*: so does where the effect may be "
        "heading, and no drift may be shown. *Pairs*: median to *equivalent*, of all trials.",
        "",
        "| effect | time constant | the metric | by the mean | settled | pairs, by the mean | settled |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    cases = [(0.1, 60), (0.1, 30), (0.07, 60), (0.06, 15), (0.1, 300), (0.0, 0)]
    for effect, lag_s in cases:
        for name in ("independent seconds", "dependent (100 s)", "bursts every 5 min"):
            found = simulate(
                rng,
                NOISES[name],
                trials=trials,
                washout_s=10,
                effect=math.log1p(effect),
                lag_s=lag_s,
                pairs=pairs,
            )
            values, drifts = found.contrasts(found.values), found.contrasts(found.trends)
            later = values + (drifts + found.contrasts(found.rises)) / 2.0
            ends: tuple[list[float], list[float]] = ([], [])
            for value, drift, end in zip(values, drifts, later, strict=True):
                mean, both = _equivalent_at(value, Course(drift, end), looks, margin)
                ends[0].append(mean)
                ends[1].append(both)
            cells = [rate(sum(map(math.isfinite, one)), trials) for one in ends]
            medians = [float(np.median(one)) for one in ends]
            cells += [f"{middle:.0f}" if math.isfinite(middle) else f"> {pairs}" for middle in medians]
            out.append(f"| {effect:.0%} | {lag_s} s | {name} | {' | '.join(cells)} |")
    return "\n".join(out)


def _equivalent_at(values: Floats, run: Course, looks: Sequence[int], margin: float) -> tuple[float, float]:
    """Return the pairs after which a trial ends as equivalent, by the mean alone and with a settled effect; else infinite."""
    by_mean = math.inf
    for pairs in looks:
        (one,) = intervals([Wanted(values[:pairs], ALPHA, margin)])
        verdict = judge(one, _METRIC, margin=math.expm1(margin))
        if verdict.verdict is Verdict.EQUIVALENT:
            by_mean = min(by_mean, pairs)
            if settled(Course(run.drift[:pairs], run.later[:pairs]), alpha=ALPHA, margin=margin):
                return by_mean, pairs
        elif verdict.decided:
            break
    return by_mean, math.inf


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
