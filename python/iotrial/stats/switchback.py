"""Switchback trials: what one window leaves for the next, and how long a washout should be.

A service runs without a break, and the level changes from window to window, in random order within each pair (with more
levels: block) of windows. The beginning of a window, the washout, is left out.

**What is exact.** Suppose that the level changes nothing, the act of setting it included: every window would have the same
value whatever the order. Then the values are given and only the order is random, so the difference of a pair, level less
reference, has either sign with probability 1/2 given its size and everything before. This is all that the e-process
(``eprocess.py``) needs. Drift and dependence between windows do not matter, and no washout is needed. The level must be set
in the same way before every window.

**What switching costs.** Suppose that the level changes nothing, but that a change of level costs something, which
decays. Exchange the two levels everywhere: the changes stay where they are, and so do the values, while the sign of each
difference turns. So the test stays exact if a trial and its mirror image are equally likely. They are where pair follows
pair without a break. After a rest at the reference they are not: a first window at the reference begins without a change,
and any other with one. Hence the lead-in: a drawn level is set for the time of a washout, by a change in any case, so
that whether the first window begins with a change is a fair draw that does not depend on its level. If the cost is the
same after every change, whatever came before, the lead-ins at both levels are alike and the test is exact; if costs add
up, the mean difference is still 0. A third diagnosis:

- **Switching.** First windows that begin with a change, less those that do not. Given the orders, that is a fair coin: of the
  lead-in, or of the order of the pair before. A coin is used once, so without lead-ins every second pair gives a bet.

**What assumes more.** The interval also takes candidates other than 0. It assumes that a window's value is a noise that the
order does not change, plus the effect of the level in that window alone: the washout is long enough. Effects that build up
slowly bias the estimate, mostly towards 0; what lingers after a level biases it in either direction. Two diagnoses:

- **After.** Do windows after one level differ from those after another? These are the bets of ``carryover.py``, which are
  exact too. Pairs allow them only between one pair and the next, so at most every second pair gives a bet.
- **Trend.** Do the halves of a window differ in another way at one level than at another? An effect that is complete when
  counting begins, and constant, does not change the trend of a window. Then the difference of the trends in a pair has a
  random sign, and the same e-process tests it. Every pair counts, so this finds slow effects sooner. While an effect may
  still be heading for the margin, nothing is called equivalent (``settled``).

Neither sees a carry-over that is equal after all levels. That does no harm.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from iotrial.stats.betting import SMALLEST, Side, log_paths, log_sum
from iotrial.stats.carryover import Unit, paths, shift_after
from iotrial.stats.eprocess import Wanted, intervals
from iotrial.stats.model import Interval, ObservedBlock
from iotrial.stats.student import quantile

Floats = npt.NDArray[np.float64]

#: error level of all diagnoses of a trial together
DIAGNOSIS_LEVEL = 0.01
_FACTOR = "level"
#: switches of each direction that a pilot needs, and moments after each that have samples
FEWEST_SWITCHES = 4
_FEWEST_BINS = 6
_BINS = 48
#: the last part of a window of the pilot, taken as settled
_SETTLED = 1.0 / 3.0
#: level of the test by which a transient counts as seen, over all directions
_SEEN = 0.01
#: mean square of the misfit, in standard errors, beyond which a transient is no exponential; of one it is 1
_MISFIT = 3.0


@dataclass(frozen=True, slots=True)
class Trend:
    """Change within the counted part of a window, at a level less at the reference (later half less earlier half).

    ``interval`` is on the scale of comparison, at the diagnosis' own error level. ``found``: it excludes 0."""

    level: str
    reference: str
    interval: Interval
    found: bool


@dataclass(frozen=True, slots=True)
class CarryOver:
    """What the windows show about carry-over.

    ``level`` is the one with the most evidence. ``shift``: by how much windows after it are larger than those after
    ``others``, on the scale of comparison (None with too few windows). ``e_value``: the largest so far, which counts from
    1 / ``alpha`` on. ``bets``: number of pairs that gave a bet. ``after`` and ``trending``: what was found.
    ``switching``: first windows that begin with a change less those that do not, on the scale of comparison, at the level
    ``alpha``; None with more than two levels.
    """

    level: str
    others: tuple[str, ...]
    shift: float | None
    e_value: float
    alpha: float
    bets: int
    after: bool
    trends: tuple[Trend, ...] = ()
    switching: Interval | None = None

    @property
    def costly(self) -> bool:
        """Whether windows that begin with a change of level are shown to differ from others."""
        return self.switching is not None and self.switching.p_anytime <= self.alpha

    @property
    def trending(self) -> bool:
        """Whether the trend within a window depends on the level."""
        return any(trend.found for trend in self.trends)

    @property
    def found(self) -> bool:
        """Whether the interval of the effect rests on an assumption that does not hold."""
        return self.after or self.trending


def carry_over(
    values: Sequence[float] | Floats,
    levels: Sequence[str],
    pairs: Sequence[int],
    *,
    reference: str | None = None,
    trends: Sequence[float] | Floats | None = None,
    lead_ins: Sequence[str | None] | None = None,
    alpha: float = DIAGNOSIS_LEVEL,
) -> CarryOver | None:
    """Judge carry-over from all windows of a trial in time order, void ones included as NaN.

    ``values`` are on the scale of comparison (logarithms for ratios), ``levels`` their labels, ``pairs`` the number of the
    pair or block of each window. ``reference`` is the level that others are compared with (default: that of the first
    window). ``trends``: later half less earlier half of each window's counted part, on the same scale, if it is known.
    ``lead_ins``: the level of the lead-in before each window, None where another window was before it; not given for a
    trial with unknown rests. All diagnoses together are wrong with probability at most ``alpha`` in a trial without
    carry-over, at every look.

    None with fewer than two levels or no complete pair. Raises ValueError if the lengths differ.
    """
    y = np.asarray(values, dtype=np.float64)
    within = None if trends is None else np.asarray(trends, dtype=np.float64)
    if not y.size == len(levels) == len(pairs) or (within is not None and within.size != y.size):
        raise ValueError("expected one value, one level, one pair and one trend for each window")
    names = sorted(set(levels))
    units = _units(y, levels, pairs, len(names))
    if len(names) < 2 or not units:
        return None
    own = reference if reference is not None else levels[0]
    tried = names if len(names) > 2 else [name for name in names if name != own][:1]
    compared = [name for name in names if name != own] if within is not None else []
    found = [
        path for path in paths(units, [(_FACTOR, name) for name in tried]) if path.across or len(names) > 2
    ]
    switched = None if lead_ins is None or len(names) > 2 else switching(y, levels, pairs, lead_ins)
    each = alpha / (len(found) + len(compared) + (switched is not None))
    most = max(found, key=lambda path: round(path.largest, 9))
    return CarryOver(
        level=most.level,
        others=tuple(name for name in names if name != most.level),
        shift=_shift(y, levels, pairs, most.level),
        e_value=math.exp(min(most.largest, 690.0)),
        alpha=each,
        bets=len(set(most.keys)),
        after=most.largest >= -math.log(each),
        trends=() if within is None else _trends(within, levels, pairs, compared, own, each),
        switching=None if switched is None else intervals([Wanted(switched, each)])[0],
    )


def switching(
    values: Floats, levels: Sequence[str], pairs: Sequence[int], lead_ins: Sequence[str | None]
) -> Floats:
    """Return what a change of level before the first window of a pair costs: a number for each pair used, centred at the
    cost.

    Twice the first window less the second, less its mean in the earlier pairs used, with the sign of whether the first
    window begins with a change. Without a cost each has a random sign. Windows in time order, of two levels; ``lead_ins``
    as in ``carry_over``.
    """
    found: list[float] = []
    differences: list[float] = []
    last: str | None = None
    taken = False  # whether the order of the pair before was used, and is no coin any more
    for _, places in groupby(range(values.size), key=lambda place: pairs[place]):
        first, *others = places
        drawn = lead_ins[first]
        previous = drawn if drawn is not None else None if taken else last
        last, taken = levels[others[-1]] if others else None, False
        if previous is None or len(others) != 1:
            continue
        difference = float(values[first] - values[others[0]])
        if not math.isfinite(difference):
            continue
        taken = True
        if differences:
            apart = difference - math.fsum(differences) / len(differences)
            found.append(2.0 * (apart if previous != levels[first] else -apart))
        differences.append(difference)
    return np.array(found)


def in_words(one: CarryOver, *, by_ratio: bool, unit: str = "") -> str:
    """Describe the finding in a sentence."""
    others = one.others[0] if len(one.others) == 1 else "the other levels"
    parts = []
    if one.after:
        size = "" if one.shift is None else f" {_size(one.shift, by_ratio=by_ratio, unit=unit)}"
        parts.append(f"windows after {one.level} differ from those after {others}{size}")
    for trend in one.trends:
        if trend.found and trend.interval.estimate is not None:
            size = _size(trend.interval.estimate, by_ratio=by_ratio, unit=unit)
            parts.append(
                f"windows at {trend.level} change otherwise than at {trend.reference} from their first half to the second "
                f"({size})"
            )
    if one.costly and one.switching is not None and one.switching.estimate is not None:
        size = _size(one.switching.estimate, by_ratio=by_ratio, unit=unit)
        cost = f"windows that begin with a change of setting differ {size} from those that do not: switching has a cost"
        if not parts:
            return f"{cost}, which falls on all settings alike; a longer washout leaves it out"
        parts.append(cost)
    if parts:
        return f"{'; '.join(parts)}: the washout is too short, and the interval of the effect cannot be relied on"
    return f"no carry-over shown (largest e-value {one.e_value:.2g}, counts from {1.0 / one.alpha:,.0f} on)"


def _size(value: float, *, by_ratio: bool, unit: str) -> str:
    if by_ratio:
        return f"by {100.0 * math.expm1(value):+.1f} %"
    return f"by {value:+.4g} {unit}".rstrip()


def contrasts(
    values: Floats, levels: Sequence[str], pairs: Sequence[int], level: str, reference: str
) -> Floats:
    """Return level less reference of every pair that has a finite value of both, in time order."""
    found: dict[int, dict[str, float]] = {}
    for value, name, pair in zip(values.tolist(), levels, pairs, strict=True):
        found.setdefault(pair, {})[name] = value
    both = [(of[level], of[reference]) for of in found.values() if level in of and reference in of]
    return np.array([one - other for one, other in both if math.isfinite(one) and math.isfinite(other)])


@dataclass(frozen=True, slots=True)
class Course:
    """How the effect of a level runs within the windows of complete blocks, on the scale of comparison, by block.

    ``drift``: the later half less the earlier one, level less reference. ``later``: where the effect may be heading: its
    mean in the later half, and half of what that is more than in the washout; without a washout the mean and the drift.
    """

    drift: Floats
    later: Floats


def course(
    blocks: Sequence[ObservedBlock], weights: Mapping[str, float], name: str, *, by_ratio: bool
) -> Course:
    """Return the course of a contrast (weights by arm) in the blocks in which it is known for every arm."""
    drifts, later = [], []
    for block in blocks:
        seen = {
            one.arm: (one.responses[name], *one.parts[name])
            for one in block.observations
            if one.parts and name in one.parts and name in one.responses
        }
        if block.void is not None or not all(arm in seen for arm in weights):
            continue
        value, before, first, second = (
            _weighted(weights, [seen[arm][part] for arm in weights], by_ratio=by_ratio) for part in range(4)
        )
        if value is None or first is None or second is None:
            continue
        drift = second - first
        drifts.append(drift)
        later.append(value + (drift if before is None else (drift + second - before) / 2.0))
    return Course(np.array(drifts), np.array(later))


def _weighted(
    weights: Mapping[str, float], values: Sequence[float | None], *, by_ratio: bool
) -> float | None:
    """Return the weighted sum of values, or of their logarithms; None if one is not known or has no logarithm."""
    known = [value for value in values if value is not None and (value > 0.0 or not by_ratio)]
    if len(known) < len(values):
        return None
    return math.fsum(
        weight * (math.log(value) if by_ratio else value)
        for weight, value in zip(weights.values(), known, strict=True)
    )


def settled(found: Course, *, alpha: float, margin: float) -> bool:
    """Return whether an effect within the margin is also within it where it may be heading, and no drift is shown.

    ``alpha``: of the effect; ``margin``: on the scale of comparison. True if the course is not known in any block.
    """
    if not found.drift.size:
        return True
    drift, later = intervals([Wanted(found.drift, DIAGNOSIS_LEVEL / 2.0), Wanted(found.later, alpha, margin)])
    if drift.p_anytime <= DIAGNOSIS_LEVEL / 2.0 or later.empty:
        return False
    if later.bounds is not None:
        return True
    return later.low is not None and later.high is not None and -margin <= later.low <= later.high <= margin


def _trends(
    within: Floats,
    levels: Sequence[str],
    pairs: Sequence[int],
    compared: Sequence[str],
    own: str,
    alpha: float,
) -> tuple[Trend, ...]:
    wanted = [Wanted(contrasts(within, levels, pairs, name, own), alpha) for name in compared]
    return tuple(
        Trend(name, own, one, found=one.p_anytime <= alpha)
        for name, one in zip(compared, intervals(wanted), strict=True)
    )


def _units(values: Floats, levels: Sequence[str], pairs: Sequence[int], most: int) -> list[Unit]:
    """Return the complete pairs in time order; an unfinished one at the end is left out."""
    found = []
    for pair, places in groupby(range(values.size), key=lambda place: pairs[place]):
        inside = list(places)
        names = [levels[place] for place in inside]
        if len(inside) != most or len(set(names)) != most:
            continue
        found.append(
            Unit(
                key=pair,
                arms=tuple(names),
                levels=tuple({_FACTOR: name} for name in names),
                values=tuple(values[inside].tolist()),
                control=(False,) * len(inside),
            )
        )
    return found


def _shift(values: Floats, levels: Sequence[str], pairs: Sequence[int], level: str) -> float | None:
    """Estimate by how much windows after the level are larger, by least squares over complete pairs."""
    blocks = []
    for _, places in groupby(range(1, values.size), key=lambda place: pairs[place]):
        inside = list(places)
        if len(inside) > 1 and np.isfinite(values[inside]).all():
            follows = [levels[place - 1] == level for place in inside]
            blocks.append((values[inside].tolist(), [levels[place] for place in inside], follows))
    return shift_after(blocks)


def proposed_washout(
    series_by_switch: Sequence[Sequence[tuple[float, float]]],
    directions: Sequence[Hashable] | None = None,
    *,
    counted_s: float,
    tolerance: float,
) -> float:
    """Propose a washout from a blind pilot, in seconds; infinite if the pilot's windows are too short to tell.

    Each series has the metric after one switch, until the next: pairs of seconds since the switch and value, on the scale
    of comparison. ``directions`` tells which switches are alike (from and to the same levels), by any marks: which level
    is the better one cannot be seen from the answer, and does not matter for it. Default: all are alike.

    The proposed washout leaves a mean error of at most ``tolerance`` in a window with ``counted_s`` counted seconds, as far
    as the pilot shows it: by the transient that is seen, and by an exponential, if one fits it, which goes on where noise
    hides it. A transient that is lost in the noise of the pilot is not found; more switches find smaller ones.

    Raises ValueError with fewer than four switches of each direction.
    """
    try:
        pilot = _Pilot(series_by_switch, directions)
    except _TooShort:
        return math.inf
    seen = _seen_until(pilot, counted_s, tolerance)
    fitted = _fitted_until(pilot, counted_s, tolerance)
    found = max(seen, fitted)
    return math.inf if found > pilot.length_s * (1.0 - _SETTLED) else found


def possible_error(
    series_by_switch: Sequence[Sequence[tuple[float, float]]],
    directions: Sequence[Hashable] | None = None,
    *,
    washout_s: float,
    counted_s: float,
) -> float:
    """Return the largest error of a window after this washout that the pilot does not exclude, on the scale of comparison.

    At the level at which a transient counts as seen. It says how much a proposed washout, of 0 above all, may overlook.
    Infinite with too few samples.
    """
    try:
        pilot = _Pilot(series_by_switch, directions)
    except _TooShort:
        return math.inf
    return max(abs(mean) + pilot.limit * error for mean, error in pilot.errors(washout_s, counted_s))


class _TooShort(Exception):
    """There are fewer than ``_FEWEST_BINS`` samples after the switches."""


class _Pilot:
    """The course of the metric after each switch, less its settled value, by direction and equal bins of time."""

    def __init__(
        self, series: Sequence[Sequence[tuple[float, float]]], directions: Sequence[Hashable] | None
    ) -> None:
        marks: list[Hashable] = [0] * len(series) if directions is None else list(directions)
        if len(marks) != len(series):
            raise ValueError("expected one direction for each switch")
        kinds = list(dict.fromkeys(marks))
        if not marks or min(marks.count(kind) for kind in kinds) < FEWEST_SWITCHES:
            raise ValueError(
                f"a washout is proposed from {FEWEST_SWITCHES} switches of each direction at least"
            )
        self.at, table, self.step_s = _binned(series)
        self.settled = self.at >= self.at[-1] * (1.0 - _SETTLED)
        apart = np.nan_to_num(table - np.nanmean(table[:, self.settled], axis=1, keepdims=True))
        self.groups = [apart[[mark == kind for mark in marks]] for kind in kinds]
        #: standard errors beyond which a number counts as seen
        self.limit = quantile(_SEEN / len(kinds), len(marks) - len(kinds))
        self.length_s = float(self.at[-1]) + self.step_s / 2.0

    def errors(self, washout_s: float, counted_s: float) -> list[tuple[float, float]]:
        """Return by how much a window after this washout is off, with the standard error, by direction.

        What is after the pilot's windows counts as 0.
        """
        counted = (self.at > washout_s) & (self.at < washout_s + counted_s)
        share = self.step_s / counted_s
        return _means([group[:, counted].sum(axis=1) * share for group in self.groups])


def _means(numbers: Sequence[Floats]) -> list[tuple[float, float]]:
    """Return mean and standard error of a number of each switch, by direction; all directions have the same scatter."""
    freedom = sum(one.size for one in numbers) - len(numbers)
    scatter = math.sqrt(sum(float(((one - one.mean()) ** 2).sum()) for one in numbers) / freedom)
    return [(float(one.mean()), scatter / math.sqrt(one.size)) for one in numbers]


def _binned(series: Sequence[Sequence[tuple[float, float]]]) -> tuple[Floats, Floats, float]:
    """Return the mean time of the samples in equal bins of time, the mean of each switch in each, and the bins' width.

    Bins without a sample are NaN, and left out if fewer than two switches have one.
    """
    if min(len(one) for one in series) < 2:
        raise _TooShort
    length = min(max(at for at, _ in one) for one in series)
    spacing = float(np.median(np.concatenate([np.diff([at for at, _ in one]) for one in series])))
    each = max(1, math.ceil(length / (max(spacing, length * 1e-6) * _BINS)))
    width = max(spacing * each, length / _BINS / 2.0)
    bins = max(1, int(length / width + 0.5))
    table, times = np.full((2, len(series), bins), np.nan)
    for row, one in enumerate(series):
        at, values = (np.array(part) for part in zip(*one, strict=True))
        place = (at / width).astype(int)
        for column in range(bins):
            inside = (place == column) & np.isfinite(values)
            if inside.any():
                table[row, column], times[row, column] = values[inside].mean(), at[inside].mean()
    kept = np.isfinite(table).sum(axis=0) >= 2
    if kept.sum() < _FEWEST_BINS:
        raise _TooShort
    return np.nanmean(times[:, kept], axis=0), table[:, kept], width


def _seen_until(pilot: _Pilot, counted_s: float, tolerance: float) -> float:
    """Return the washout from which on no error is seen that is larger than the tolerance.

    Windows that begin later and later are looked at in turn, until two in a row show nothing. So a pilot without a
    transient is wrong at the first of them or not at all, however many follow.
    """
    until, quiet = 0.0, 0
    for place in range(pilot.at.size):
        begins = place * pilot.step_s
        errors = pilot.errors(begins, counted_s)
        if any(abs(mean) > max(tolerance, pilot.limit * error) for mean, error in errors):
            until, quiet = begins + pilot.step_s, 0
        elif (quiet := quiet + 1) > 1:
            break
    return until


def _fitted_until(pilot: _Pilot, counted_s: float, tolerance: float) -> float:
    """Return the washout by an exponential with one time constant and an amplitude for each direction; 0 if none is seen."""
    low, high = float(pilot.at[0]) / 2.0, 10.0 * float(pilot.at[-1])
    for _ in range(4):  # a finer grid each time, around the best of the one before
        grid = np.geomspace(low, high, 30)
        best = int(np.argmin([_missed(one, pilot) for one in grid.tolist()]))
        low, high = float(grid[max(0, best - 1)]), float(grid[min(grid.size - 1, best + 1)])
    tau = float(grid[best])
    shape = _shape(tau, pilot)
    until = 0.0
    amplitudes = _means([group @ shape / float(shape @ shape) for group in pilot.groups])
    for group, (amplitude, error) in zip(pilot.groups, amplitudes, strict=True):
        if abs(amplitude) <= pilot.limit * error or _misfit(group, amplitude * shape) > _MISFIT:
            continue  # not seen, or no exponential: then only what is seen counts
        left = abs(amplitude) * tau * -math.expm1(-counted_s / tau) / counted_s
        if left > tolerance:
            until = max(until, tau * math.log(left / tolerance))
    return until


def _missed(tau: float, pilot: _Pilot) -> float:
    """Return the sum of squares that an exponential with this time constant misses of the mean courses."""
    shape = _shape(tau, pilot)
    means = [group.mean(axis=0) for group in pilot.groups]
    return sum(float(((mean - mean @ shape / (shape @ shape) * shape) ** 2).sum()) for mean in means)


def _misfit(group: Floats, fit: Floats) -> float:
    """Return the mean square of what a fit misses of the mean course, in squared standard errors between switches."""
    error = group.std(axis=0, ddof=1) / math.sqrt(len(group))
    known = error > 0.0
    missed = (group.mean(axis=0) - fit)[known] / error[known]
    return float((missed**2).mean()) if known.any() else 0.0


def _shape(tau: float, pilot: _Pilot) -> Floats:
    """Return an exponential decay, less its mean over the part that is taken as settled."""
    decay = np.exp(-pilot.at / tau)
    shape: Floats = decay - decay[pilot.settled].mean()
    return shape


# The guard of a live trial: has a setting been shown to be worse than today's by more than a limit?


_BOLD = 3.0


def log_harm(contrasts: Sequence[float] | Floats, limit: float) -> float:
    """Return ln of the largest capital so far (at least 0) against "the effect is at most ``limit``".

    ``contrasts``: of each block, the setting against today's, in time order, larger is worse (log ratios, as ``limit``).
    """
    return max(0.0, float(log_capital(contrasts, limit).max(initial=0.0)))


def log_capital(contrasts: Sequence[float] | Floats, limit: float) -> Floats:
    """Return ln of the capital after every block."""
    x: Floats = np.asarray(contrasts, dtype=np.float64) - limit
    if x.size == 0:
        return x
    rms = np.sqrt(np.cumsum(x * x) / np.arange(1, x.size + 1))
    share = np.divide(x, rms, out=np.zeros_like(x), where=rms > SMALLEST)
    # ln(1 + tanh z) = ln 2 - ln(1 + exp(-2z)), which does not lose its digits where tanh is close to -1
    bold = np.cumsum(math.log(2.0) - np.log1p(np.exp(-2.0 * _BOLD * share)))
    both: Floats = np.stack([log_paths(x, side=Side.LARGER)[0], bold]) - math.log(2.0)
    return log_sum(both)
