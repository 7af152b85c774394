"""Scales and ticks in the units people read: 200 µs, 1 ms; 0.95, 1, 1.05.

Axes are drawn linear; a logarithmic one is fed with logarithms and given its ticks here, which keeps tick labels
under control ("2 ms" instead of "2 × 10⁻³").
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iotrial.report.notation import quantity

Floats = npt.NDArray[np.float64]

# Where the central 99 % of the values span more than this factor, the scale is logarithmic.
LARGE_SPREAD = 5.0
_MOST_TICKS = 6
_RATIOS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)


@dataclass(frozen=True, slots=True)
class Scale:
    """A value axis: ``low`` to ``high`` in the values' unit; ``log`` says how they are placed."""

    low: float
    high: float
    log: bool
    unit: str

    def place(self, values: Floats) -> Floats:
        """Positions on the drawn (linear) axis."""
        return (
            np.log(np.clip(values, self.low, self.high)) if self.log else np.clip(values, self.low, self.high)
        )

    @property
    def limits(self) -> tuple[float, float]:
        """The drawn axis's ends."""
        return (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)

    def ticks(self) -> tuple[list[float], list[str]]:
        """Positions and labels."""
        values = log_ticks(self.low, self.high) if self.log else linear_ticks(self.low, self.high)
        places = [math.log(value) if self.log else value for value in values]
        return places, [quantity(value, self.unit) for value in values]


def scale_of(values: Floats, unit: str) -> Scale:
    """The axis that holds the central 99.8 % of the values, logarithmic where their spread is large."""
    low, least, most, high = (float(v) for v in np.quantile(values, (0.001, 0.005, 0.995, 0.999)))
    log = least > 0 and most / least > LARGE_SPREAD
    if log:
        low = max(low, least / 10)
        pad = (high / low) ** 0.04
        return Scale(low / pad, high * pad, log, unit)
    pad = (high - low) * 0.06 or abs(high) * 0.05 or 1.0
    return Scale(max(0.0, low - pad) if low >= 0 else low - pad, high + pad, log, unit)


def linear_ticks(low: float, high: float) -> list[float]:
    """Round numbers within the ends."""
    from matplotlib.ticker import MaxNLocator

    ticks = MaxNLocator(_MOST_TICKS - 1, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    return [round(float(tick), 12) for tick in ticks if low <= tick <= high]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2, 5 or powers of ten within the ends; round numbers where they span less than a factor of three."""
    if high / low < 3:
        return linear_ticks(low, high)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ticks = [step * 10.0**decade for decade in decades for step in steps]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= _MOST_TICKS:
            return ticks
    return ticks[:: math.ceil(len(ticks) / _MOST_TICKS)]


def ratio_ticks(low: float, high: float) -> list[float]:
    """Ratios around 1 within the ends, 1 always among them where it fits."""
    if high / low < 2.2:
        return linear_ticks(low, high)
    every = sorted({*_RATIOS, *(1 / ratio for ratio in _RATIOS if ratio not in (0.3, 0.7)), 1.5, 3.0, 7.0})
    ticks = [tick for tick in every if low <= tick <= high]
    if len(ticks) > _MOST_TICKS + 1:
        ticks = [tick for tick in ticks if tick not in (0.3, 0.7, 1.5, 3.0, 7.0)]
    while len(ticks) > _MOST_TICKS + 1:
        ticks = _thinned(ticks)
    return ticks


def _thinned(ticks: Sequence[float]) -> list[float]:
    """Every second tick, counted from 1 where it is there."""
    middle = min(range(len(ticks)), key=lambda i: abs(math.log(ticks[i])))
    return [tick for i, tick in enumerate(ticks) if (i - middle) % 2 == 0]
