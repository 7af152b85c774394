"""Notation of numbers, units, labels and times in a report, the same in every format.

An interval is rounded to its significant digits, but never so far that it contradicts its verdict: an end close to 1
(or 0) is not printed as 1 (or 0), nor a small ratio as 0. Labels come from study files of any origin, and go through
``escape``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from iotrial.terminal import escape
from iotrial.units import format_bytes, format_duration

_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_BYTES = {"bytes", "byte", "B"}
_TIME_STEPS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
_BYTE_STEPS = (("TiB", 2.0**40), ("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10), ("bytes", 1.0))
_MOST_DECIMALS = 7
_NEAR_ONE = (0.9, 1.1)


def elided(text: str, width: int) -> str:
    """Return the text, with its middle elided if it is longer than ``width`` characters."""
    if len(text) <= width:
        return text
    head = (width - 1 + 1) // 2
    return text[:head] + "…" + text[len(text) - (width - 1 - head) :]


def capitalised(text: str) -> str:
    """Return the text with its first letter capitalised, unless it begins with a name such as read_ahead_kb."""
    first = text.partition(" ")[0]
    if "_" in first.strip("_"):
        return text
    return f"{text[:1].upper()}{text[1:]}"


def named_level(factor: str, level: str) -> str:
    """Return e.g. "mode 0444"; only the level if it contains the factor's name ("nobarrier", "data=journal")."""
    name = factor.casefold()
    contains = level.casefold().startswith(f"{name}=") or (len(name) >= 4 and name in level.casefold())
    return level if contains else f"{factor} {level}"


def joined(parts: Iterable[str], *, last: str = "and") -> str:
    """Return e.g. "a", "a and b", "a, b and c"."""
    items = list(parts)
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"


def some(parts: Sequence[str], most: int) -> list[str]:
    """Return the first ``most`` parts, and how many more available: "a", "b", "3 more"."""
    return [*parts[:most], *([f"{len(parts) - most} more"] if len(parts) > most else [])]


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return e.g. "1 block", "12 blocks", "100,000 runs"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def quantity(value: float | None, unit: str) -> str:
    """Format a measured value with its unit; times and bytes in a unit that suits their size."""
    if value is None or not math.isfinite(value):
        return "–"
    if unit in _TIMES:
        return format_duration(value * _TIMES[unit])
    if unit in _BYTES:
        return format_bytes(value)
    if unit in ("1", ""):
        return plain(value)
    if is_bytes(unit):
        return format_bytes(value) + "/s"
    return f"{plain(value)} {escape(unit)}"


def plain(value: float) -> str:
    """Format with three significant digits; whole numbers below a million in full."""
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e6:
        return f"{int(value):,}"
    if abs(value) >= 1e6 or 0 < abs(value) < 1e-3:
        return f"{value:.3g}"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def interval_numbers(
    value: float | None, low: float | None, high: float | None, *, null: float
) -> tuple[str, str, str]:
    """Format estimate and ends with the same number of decimals; "?" for no estimate, "…" for an unbounded end.

    ``null`` is the value of no effect: 1 for ratios, 0 for differences. A ratio has at most two significant digits of its
    distance from 1. An end that rounding would turn into "no effect" has more decimals.
    """
    known = [number for number in (value, low, high) if number is not None]
    decimals = _decimals(low, high, value)
    if null == 1.0 and value and value > 0.0:
        far = value if not 0.5 < value < 2.0 else abs(value - 1.0)
        decimals = min(decimals, max(0, 1 - math.floor(math.log10(far)))) if far else decimals
    if null == 1.0 and any(_NEAR_ONE[0] < number < _NEAR_ONE[1] for number in known):
        # Near 1 the third decimal decides on which side of the margin an end lies.
        decimals = max(decimals, 3)
    if known and min(abs(number) for number in known) >= 10_000 and decimals == 0:
        return tuple("?" if n is None else f"{n:,.0f}" for n in (value, low, high))  # type: ignore[return-value]
    estimate = "?" if value is None else f"{value:.{decimals}f}"
    return estimate, _end(low, decimals, null), _end(high, decimals, null)


def _end(end: float | None, decimals: int, null: float) -> str:
    if end is None:
        return "…"
    while decimals < _MOST_DECIMALS and _tells_another_story(end, decimals, null):
        decimals += 1
    return f"{end:.{decimals}f}"


def difference_numbers(
    value: float | None, low: float | None, high: float | None, unit: str
) -> tuple[str, str, str, str]:
    """Format estimate and ends of a difference, and their unit.

    Times and bytes get a unit that suits the largest of the three. The unit is "" for plain counts, and otherwise
    begins with a blank: "530", "498", "586", " KiB".
    """
    size, name = suited_unit(unit, [abs(number) for number in (value, low, high) if number is not None])
    estimate, lower, upper = interval_numbers(
        *(n if n is None else n / size for n in (value, low, high)), null=0.0
    )
    return estimate, lower, upper, "" if name in ("", "1") else f" {escape(name)}"


def is_bytes(unit: str) -> bool:
    """Return whether the unit is bytes or bytes per second."""
    return unit.removesuffix("/s") in _BYTES


def suited_unit(unit: str, sizes: Sequence[float]) -> tuple[float, str]:
    """Return the most readable unit for numbers of these sizes: its size in ``unit``, and its name."""
    per_second = unit.endswith("/s")
    largest = max((size for size in sizes if math.isfinite(size)), default=0.0)
    steps: tuple[tuple[str, float], ...]
    if is_bytes(unit):
        steps, own = _BYTE_STEPS, 1.0
    elif unit in _TIMES:
        steps, own = _TIME_STEPS, _TIMES[unit]
    else:
        return 1.0, unit
    if not largest:
        return 1.0, unit
    name, size = next((step for step in steps if largest * own >= step[1]), steps[-1])
    return size / own, f"{name}/s" if per_second else name


def _tells_another_story(end: float, decimals: int, null: float) -> bool:
    """Return whether rounding to these decimals turns an end into "no effect" or 0 although it is neither."""
    rounded = float(f"{end:.{decimals}f}")
    return rounded != end and rounded in (null, 0.0)


def bracketed(
    value: float | None, low: float | None, high: float | None, *, null: float = 1.0, unit: str = ""
) -> str:
    """Return e.g. "1.012 [1.004, 1.020]", for a difference "530 [498, 586] KiB".

    ``unit`` is that of a difference; a ratio has none. "0.9 [no interval yet]" if neither end is bounded.
    """
    if null == 0.0:
        estimate, lower, upper, behind = difference_numbers(value, low, high, unit)
    else:
        (estimate, lower, upper), behind = interval_numbers(value, low, high, null=null), ""
    ends = "no interval yet" if low is None and high is None else f"{lower}, {upper}"
    return f"{estimate} [{ends}]{behind}"


def about(low_s: float, high_s: float) -> str:
    """Format a range of durations with the precision of a forecast: "7 to 14 min", "4.5 to 9 h"."""
    size, unit = next(
        (one for one in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")) if high_s >= 2 * one[0]), (1.0, "s")
    )
    decimals = 0 if low_s / size >= 5 else 1
    low, high = (f"{x:.{decimals}f}".removesuffix(".0") for x in (low_s / size, high_s / size))
    return f"{high} {unit}" if low == high else f"{low} to {high} {unit}"


def percent(fraction: float) -> str:
    """Format a fraction: 0.03 is "3 %", 0.0251 "2.5 %", 0.0007 "0.07 %"."""
    number = abs(fraction) * 100
    decimals = 0 if number >= 10 else 1 if number >= 1 else 2
    text = f"{number:.{decimals}f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) + " %"


def p_value(p: float) -> str:
    """Format a p-value to two significant digits."""
    return "< 0.0001" if p < 0.0001 else f"{p:.2g}"


def _decimals(low: float | None, high: float | None, value: float | None) -> int:
    """Return enough decimals to see the width of the interval: about two digits of its half-width."""
    if low is not None and high is not None and high > low:
        half = (high - low) / 2
    else:
        sizes = [abs(number) for number in (value, low, high) if number]
        half = 0.03 * min(sizes) if sizes else 1.0
    if half >= 15:
        return 0
    for decimals, least in ((1, 0.15), (2, 0.025), (3, 0.001)):
        if half >= least:
            return decimals
    return 4


def utc(started: str) -> str:
    """Format a time as ISO 8601 in UTC with a Z; one without a zone is taken as UTC. ValueError for other text."""
    moment = datetime.fromisoformat(started)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return moment.isoformat().replace("+00:00", "Z")


def day_and_time(started: str) -> str:
    """Return e.g. "2026-03-01 09:00" in UTC; text that is not a time is returned escaped, cut to 32 characters."""
    try:
        return datetime.fromisoformat(utc(started)).strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return escape(started)[:32]
