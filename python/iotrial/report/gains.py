"""An effect as a gain in per cent: "38 % [35, 41] less time", for rates "12 % [10, 14] more"; where no direction is excluded
"3 % less to 2 % more time".

The ends are turned with the direction of the estimate: a low end below 0 is one in the other direction. Interactions have
no such number: their ratio is half of what a setting does to another's effect.
"""

from __future__ import annotations

from dataclasses import dataclass

from iotrial.analysis.model import Conclusion, Effect
from iotrial.report.notation import interval_numbers
from iotrial.report.phrases import Kind, kind_of
from iotrial.study.model import Scale

#: per cent do not help beyond twice as much
_MOST_PERCENT = 100.0
NO_INTERVAL = " [no interval yet]"


@dataclass(frozen=True, slots=True)
class Gain:
    """``percent`` in the direction of ``word`` ("less time", "more"), with its interval: None where unbounded."""

    percent: float
    low: float | None
    high: float | None
    word: str
    said: str


def gain_of(effect: Effect) -> Gain | None:
    """The gain of a ratio; None for differences, interactions, means of conditions that do not agree, and where there is
    no estimate."""
    value = effect.value
    if effect.scale is not Scale.LOG or value is None or effect.kind == "interaction":
        return None
    if effect.conclusion is Conclusion.VARIES:
        return None
    less = value < 1.0
    word = ("less" if less else "more") + (" time" if kind_of(effect) is Kind.TIME else "")
    low, high = (effect.high, effect.low) if less else (effect.low, effect.high)
    ends = [None if end is None else _percent(end, less=less) for end in (low, high)]
    percent = _percent(value, less=less)
    return Gain(percent, ends[0], ends[1], word, _said(effect, percent, ends[0], ends[1], word))


def _percent(ratio: float, *, less: bool) -> float:
    return 100.0 * (1.0 - ratio if less else ratio - 1.0)


def _said(effect: Effect, percent: float, low: float | None, high: float | None, word: str) -> str:
    if percent > _MOST_PERCENT:
        estimate, lower, upper = interval_numbers(effect.value, effect.low, effect.high, null=1.0)
        what = " the time" if word.endswith("time") else ""
        ends = f" [{lower}, {upper}]{what}" if low is not None or high is not None else f"{what}{NO_INTERVAL}"
        return f"{estimate} times{ends}"
    if low is None and high is None:
        return f"{percent:.0f} % {word}{NO_INTERVAL}"
    decimals = _decimals(low, high)
    if low is not None and high is not None and low < 0 < high:
        less, more = (high, -low) if word.startswith("less") else (-low, high)
        behind = " time" if word.endswith("time") else ""
        return f"{_plain(less, decimals)} % less to {_plain(more, decimals)} % more{behind}"
    lower = "…" if low is None else _plain(low, decimals)
    upper = "…" if high is None else _plain(high, decimals)
    return f"{percent:.{decimals}f} % [{lower}, {upper}] {word}"


def _plain(number: float, decimals: int) -> str:
    """With a true minus sign; an end beside 0 is not written as 0."""
    while decimals < 4 and number != 0.0 and float(f"{number:.{decimals}f}") == 0.0:
        decimals += 1
    return f"{number + 0.0:.{decimals}f}".replace("-", "−")


def _decimals(low: float | None, high: float | None) -> int:
    """Of per cent: none where the interval is wider than 3.5 points, one where wider than .35."""
    if low is None or high is None:
        return 0
    width = high - low
    return 0 if width >= 3.5 else 1 if width >= 0.35 else 2
