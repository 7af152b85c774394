"""Axes of charts: domain, ticks, and where a value lies. Ticks use the units that people read: 200 µs, 1 ms, 50 MiB."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iotrial.report.notation import is_bytes, percent, quantity, suited_unit

Floats = npt.NDArray[np.float64]
Tick = tuple[float, str]

#: an axis is logarithmic if most values span more than this factor
LARGE_SPREAD = 5.0
_MOST_TICKS = 6
#: ends of a logarithmic axis in a smaller ratio than this get the ticks of a linear one
_LEAST_LOG_SPAN = 3
_RATIOS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)


@dataclass(frozen=True, slots=True)
class Axis:
    """Values from ``low`` to ``high``, with ticks (value and label); ``low`` may be the larger: the axis is then reversed.

    ``grid``: whether ticks have lines; ``labelled``: whether they have labels.
    """

    low: float
    high: float
    log: bool = False
    ticks: tuple[Tick, ...] = ()
    title: str = ""
    grid: bool = True
    labelled: bool = True

    def shares(self, values: Iterable[float] | Floats) -> Floats:
        """Return where the values lie: 0 at ``low``, 1 at ``high``, outside these if beyond; 0 and less on a log axis: -9."""
        found = np.asarray(values, dtype=np.float64)
        low, high = self.low, self.high
        if self.log:
            low, high = math.log(low), math.log(high)
            found = np.log(np.where(found > 0.0, found, np.nan))
            found = np.where(np.isnan(found), low - 9.0 * (high - low), found)
        return (found - low) / (high - low) if high != low else np.full(found.shape, 0.5)

    def share(self, value: float) -> float:
        """Return where one value lies."""
        return float(self.shares([value])[0])


def value_axis(low: float, high: float, unit: str, title: str = "", *, log: bool = False) -> Axis:
    """Return an axis of measured values, with ticks that are round in the unit of their labels: 50 MiB, not 47.7."""
    size, _ = suited_unit(unit, [abs(low), abs(high)])
    if log and is_bytes(unit) and high / low >= _LEAST_LOG_SPAN:
        values = _powers_of_two(low, high)
    else:
        values = [tick * size for tick in (log_ticks if log else linear_ticks)(low / size, high / size)]
    return Axis(low, high, log, tuple((value, quantity(value, unit)) for value in values), title)


def fitted_axis(values: Floats, unit: str, title: str = "", *, spread: float = LARGE_SPREAD) -> Axis:
    """Return the axis for the central 99.8 % of the values, logarithmic if the central 96 % span more than ``spread``.

    A few values far from all others do not stretch it: it reaches at most twice the range of the central nine tenths beyond
    these.
    """
    least, most = (float(v) for v in np.quantile(values, (0.02, 0.98)))
    if least > 0 and most / least > spread:
        low, high = _without_strays(np.log(values[values > 0]))
        pad = (high - low) * 0.04
        return value_axis(math.exp(low - pad), math.exp(high + pad), unit, title, log=True)
    low, high = _without_strays(values)
    pad = (high - low) * 0.06 or abs(high) * 0.05 or 1.0
    return value_axis(max(0.0, low - pad) if low >= 0 else low - pad, high + pad, unit, title)


def _without_strays(values: Floats) -> tuple[float, float]:
    low, first, last, high = (float(v) for v in np.quantile(values, (0.001, 0.05, 0.95, 0.999)))
    reach = 2.0 * (last - first)
    if values.size < 10 or reach <= 0.0:
        return low, high
    return max(low, first - reach), min(high, last + reach)


def time_axis(last_s: float, since: str = "the trial began", first_s: float = 0.0) -> Axis:
    """Return an axis of seconds up to ``last_s``, with ticks in seconds, minutes or hours."""
    unit, size = ("h", 3600.0) if last_s >= 3 * 3600 else ("min", 60.0) if last_s >= 180 else ("s", 1.0)
    pad = 0.02 * (last_s - first_s) or 0.5
    low, high = min(first_s - pad, 0.0) if first_s < pad else first_s - pad, last_s + pad
    ticks = tuple((tick * size, f"{tick:g}") for tick in linear_ticks(max(low, 0.0) / size, high / size))
    return Axis(low, high, False, ticks, f"{unit} since {since}", grid=False)


def ratio_axis(low: float, high: float, title: str = "") -> Axis:
    """Return a logarithmic axis of ratios."""
    return Axis(low, high, True, tuple((tick, f"{tick:g}") for tick in ratio_ticks(low, high)), title)


def difference_axis(low: float, high: float, unit: str, title: str = "") -> Axis:
    """Return a linear axis of differences; its title names their unit."""
    size, name = suited_unit(unit, (abs(low), abs(high)))
    ticks = tuple((tick * size, f"{tick:g}") for tick in linear_ticks(low / size, high / size))
    return Axis(low, high, False, ticks, f"{title}, {name}" if name not in ("", "1") else title)


def share_axis(high: float = 1.0, title: str = "") -> Axis:
    """Return an axis of shares from 0 to ``high``, in percent."""
    ticks = tuple((tick, percent(tick)) for tick in linear_ticks(0.0, high))
    return Axis(0.0, high * 1.04, False, ticks, title)


def linear_ticks(low: float, high: float) -> list[float]:
    """Return round numbers between the ends: multiples of 1, 2, 2.5 or 5 times a power of ten, at least two if possible."""
    span = high - low
    if not span > 1e-14 * max(abs(low), abs(high)):
        return [round(low, 12)]
    widest = span / (_MOST_TICKS - 1)
    decade = 10.0 ** math.floor(math.log10(widest))
    steps = [step * decade * scale for scale in (0.1, 1.0) for step in (1.0, 2.0, 2.5, 5.0)] + [10.0 * decade]
    first = next(place for place, step in enumerate(steps) if step >= widest)
    ticks: list[float] = []
    for step in reversed(steps[: first + 1]):
        least = low // step * step
        ticks = [tick for n in range(int(span / step) + 2) if low <= (tick := n * step + least) <= high]
        if len(ticks) >= 2:
            break
    return [round(tick, 12) for tick in ticks]


def log_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2, 5 or powers of ten between the ends; round numbers if they span less than ``_LEAST_LOG_SPAN``."""
    if high / low < _LEAST_LOG_SPAN:
        return linear_ticks(low, high)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ticks = [step * 10.0**decade for decade in decades for step in steps]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= _MOST_TICKS:
            return ticks
    return ticks[:: math.ceil(len(ticks) / _MOST_TICKS)]


def _powers_of_two(low: float, high: float) -> list[float]:
    """Return powers of two between the ends, such as 64 KiB and 128 KiB. If these are too many, skip evenly."""
    first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
    step = math.ceil((last - first + 1) / _MOST_TICKS)
    return [2.0**power for power in range(first, last + 1) if power % step == 0]


def ratio_ticks(low: float, high: float) -> list[float]:
    """Return ratios around 1 between the ends, always including 1 if it fits."""
    if high / low < 2.2:
        return linear_ticks(low, high)
    if high / low > 1e6:
        return log_ticks(low, high)
    every = sorted({*_RATIOS, *(1 / ratio for ratio in _RATIOS if ratio not in (0.3, 0.7)), 1.5, 3.0, 7.0})
    ticks = [tick for tick in every if low <= tick <= high]
    if len(ticks) > _MOST_TICKS + 1:
        ticks = [tick for tick in ticks if tick not in (0.3, 0.7, 1.5, 3.0, 7.0)]
    while len(ticks) > _MOST_TICKS + 1:
        middle = min(range(len(ticks)), key=lambda i: abs(math.log(ticks[i])))
        ticks = [tick for i, tick in enumerate(ticks) if (i - middle) % 2 == 0]
    return ticks


def ends_of(values: Sequence[float], room: float = 0.06, *, log: bool = False) -> tuple[float, float]:
    """Return the smallest and the largest value with some room on both sides, never equal."""
    low, high = min(values), max(values)
    if log:
        pad = (high / low) ** room if high > low else 1.05
        return low / pad, high * pad
    pad = (high - low) * room or abs(high) * 0.05 or 1.0
    return low - pad, high + pad
