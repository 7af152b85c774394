"""Parse and format sizes, durations, rates and fractions.

Every number with a unit in a study file or an option is parsed here, so that "4 KiB" means the same everywhere.
A number without a unit is rejected: iotrial does not guess whether 64 means bytes or sectors, seconds or minutes.
The format functions round for human readers, except ``format_size``: its text parses back to the same number.

Patterns are compiled on first use, so callers that only format do not pay for the parser.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Mapping
from fractions import Fraction
from typing import TypeGuard

MAX_BYTES = 2**63 - 1
#: measured values outside are not plausible, and their squares, sums or ratios could leave the range of floating point
LARGEST, SMALLEST = 1e100, 1e-100
#: what is computed from them may be larger, by units and sums; its square is still a number
_LARGEST_COMPUTED = 1e150

_SIZES: Mapping[str, int] = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
#: in nanoseconds, so that all are integers
_DURATIONS: Mapping[str, int] = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "min": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86400 * 10**9,
}
_BIT_RATES: Mapping[str, int] = {
    "bit": 1,
    "kbit": 10**3,
    "Mbit": 10**6,
    "Gbit": 10**9,
}
_SIZE_ALIASES: Mapping[str, str] = {"byte": "B", "bytes": "B"}
_DURATION_ALIASES: Mapping[str, str] = {
    "µs": "us",
    "μs": "us",
    "sec": "s",
    "second": "s",
    "seconds": "s",
    "m": "min",
    "minute": "min",
    "minutes": "min",
    "hour": "h",
    "hours": "h",
    "day": "d",
    "days": "d",
}
#: further spellings found in results of other programs; not accepted in study files
_FOREIGN_ALIASES: Mapping[str, str] = {"secs": "s", "msec": "ms", "usec": "us", "nsec": "ns", "hrs": "h"}
_NUMBER = r"[0-9]{1,19}(?:\.[0-9]{1,19})?|\.[0-9]{1,19}"
_QUANTITY = rf"\s*({_NUMBER})\s*([^\W\d_]+)\s*"
_PERCENT = rf"\s*({_NUMBER})\s*%\s*"
_PLAIN = rf"\s*({_NUMBER})\s*"
#: as programs print numbers: no underscores, no digits of other scripts, no nan and inf
_PRINTED = r"[+-]?(?:[0-9]{1,60}(?:\.[0-9]{0,60})?|\.[0-9]{1,60})(?:[eE][+-]?[0-9]{1,4})?"


class UnitError(ValueError):
    """Text that is not a valid size, duration or fraction; ``hint`` gives the closest unit or the right form."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def is_number(value: object, most: float = _LARGEST_COMPUTED) -> TypeGuard[float]:
    """Return whether a value from JSON is a finite number of at most this magnitude; a boolean is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= most


def measured(value: object) -> float | None:
    """Return a number that another program printed, as text or as a value in JSON; None if there is none that can be used.

    All numbers from outside go through here before anything is computed with them. A usable one is 0 (also for -0.0), or its
    magnitude is between ``SMALLEST`` and ``LARGEST``, so it is finite and no subnormal.
    """
    if isinstance(value, str | bytes):
        text = value.decode("latin-1") if isinstance(value, bytes) else value
        text = text.strip(" \t\r\n")
        if re.fullmatch(_PRINTED, text) is None:
            return None
        value = float(text)
        if value == 0 and re.match("[^1-9eE]*[1-9]", text):  # too small for a float
            return None
    if not is_number(value, LARGEST):
        return None
    if value == 0:
        return 0.0
    return float(value) if abs(value) >= SMALLEST else None


def with_json_numbers(text: str) -> str:
    """Return JSON in which numbers that C printed as ``nan``, ``-nan`` or ``inf``, as fio does, are what Python reads."""
    return (
        re.sub(
            r'"(?:[^"\\]|\\.)*"|[+-]?\b(?:nan|inf)\b',
            lambda found: found[0] if found[0][0] == '"' else "NaN",
            text,
        )
        if re.search(r"[\s:,\[][+-]?(?:nan|inf)\b", text)
        else text
    )


def parse_size(text: str) -> int:
    """Parse "4 KiB", "64 B", "1.5 GiB" (binary) or "100 kB", "100KB" (decimal) to bytes; UnitError otherwise."""
    pairs = _quantities(text, "size", _SIZES, _SIZE_ALIASES, example="4 KiB")
    if len(pairs) > 1:
        raise UnitError(f"a size needs one number and one unit, found {_shown(text)}", hint='e.g. "1.5 GiB"')
    number, unit = pairs[0]
    size = number * _SIZES[unit]
    if size.denominator != 1:
        raise UnitError(f"{_shown(text)} is not a whole number of bytes")
    if size > MAX_BYTES:
        raise UnitError(f"{_shown(text)} is too large for a file offset")
    return int(size)


def parse_bit_rate(text: str) -> float:
    """Parse "100 Mbit/s" or "2.5 Gbit/s" to bits per second; UnitError otherwise."""
    if not isinstance(text, str) or not text.strip().endswith("/s"):
        raise UnitError(f'expected a rate such as "100 Mbit/s", found {_shown(text)}')
    plain = text.strip()[: -len("/s")]
    ((number, unit), *more) = _quantities(plain, "rate", _BIT_RATES, {}, example="100 Mbit")
    if more:
        raise UnitError(f"a rate needs one number and one unit, found {_shown(text)}", hint='e.g. "1 Gbit/s"')
    return float(number * _BIT_RATES[unit])


def parse_duration(text: str) -> float:
    """Parse "90 s", "250 ms", "5 min", "5m", "1 h 30 min" to seconds; UnitError otherwise."""
    pairs = _quantities(text, "duration", _DURATIONS, _DURATION_ALIASES, example="90 s")
    return float(sum(number * _DURATIONS[unit] for number, unit in pairs) / 10**9)


def scale_of(unit: str) -> tuple[str, int] | None:
    """Return the quantity and the scale of a unit: "ms" is ("time", 10**6), in ns; "MiB/s" is ("rate", 2**23), in bit/s.

    None for a unit that is not a time, size or rate. Case matters where it changes the meaning: "MB" is bytes, "Mb" is not.
    """
    if unit.endswith("/s"):
        amount = unit.removesuffix("/s").strip()
        if amount in _BIT_RATES:
            return "rate", _BIT_RATES[amount]
        size = _SIZES.get(_size_name(amount))
        return None if size is None else ("rate", 8 * size)
    if match := re.fullmatch(r"([kKMG])bps", unit):
        return "rate", _BIT_RATES[f"{match[1].replace('K', 'k')}bit"]
    if match := re.fullmatch(r"([kKMG]i?B)ps", unit):
        return "rate", 8 * _SIZES[_size_name(match[1])]
    if _size_name(unit) in _SIZES:
        return "size", _SIZES[_size_name(unit)]
    name = unit if unit in _DURATIONS else {**_DURATION_ALIASES, **_FOREIGN_ALIASES}.get(unit.casefold(), "")
    return ("time", _DURATIONS[name]) if name in _DURATIONS and unit != "m" else None


def _size_name(unit: str) -> str:
    return "kB" if unit == "KB" else _SIZE_ALIASES.get(unit.casefold(), unit)


def converted(value: float, unit: str, to: str) -> float | None:
    """Convert a value to another unit of the same quantity, correctly rounded; None if the quantities differ."""
    if unit == to:
        return value
    own, other = scale_of(unit), scale_of(to)
    if own is None or other is None or own[0] != other[0]:
        return None
    return value * own[1] / other[1]


def parse_margin(value: str | float) -> float:
    """Parse "3 %", "3%", "0.03" or 0.03 to a fraction above 0 and at most 1; UnitError otherwise."""
    fraction = parse_fraction(value, what="margin")
    if not 0 < fraction <= 1:
        raise UnitError(f"a margin must be above 0 % and at most 100 %, found {_shown(value)}")
    return fraction


def parse_alpha(value: str | float) -> float:
    """Parse 0.05, "0.05" or "5 %" to an error level above 0 and at most 0.5; UnitError otherwise."""
    fraction = parse_fraction(value, what="alpha")
    if not 0 < fraction <= 0.5:
        raise UnitError(f"alpha must be above 0 and at most 0.5, found {_shown(value)}")
    return fraction


def parse_fraction(value: str | float, *, what: str = "fraction") -> float:
    """Parse "3 %" (0.03) or 0.03 to a fraction; a plain number above 1 is rejected, since it was meant as percent."""
    if isinstance(value, bool) or not isinstance(value, str | float | int):
        raise UnitError(f'expected a {what} such as 0.03 or "3 %", found {_shown(value)}')
    if isinstance(value, str):
        if match := re.fullmatch(_PERCENT, value):
            return float(Fraction(match[1]) / 100)
        match = re.fullmatch(_PLAIN, value)
        if match is None:
            raise UnitError(f'expected a {what} such as "3 %", found {_shown(value)}')
        value = float(Fraction(match[1]))
    if not (isinstance(value, int) and abs(value) > 2**53) and not math.isfinite(value):
        raise UnitError(f'expected a {what} such as 0.03 or "3 %", found {value}')
    if value > 1:
        hint = f'for {value:g} percent write "{value:g} %"' if value <= 100 else None
        raise UnitError(f"a {what} without % is at most 1, found {_shown(value)}", hint=hint)
    return float(value)


def format_size(size_bytes: int) -> str:
    """Return the shortest exact text: "4 KiB" for 4096, "1500 B" for 1500; ``parse_size`` reverses it."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size_bytes and size_bytes % _SIZES[unit] == 0:
            return f"{size_bytes // _SIZES[unit]} {unit}"
    return f"{size_bytes} B"


def format_bit_rate(bits_per_s: float) -> str:
    """Format a rate in bits per second: 1e9 is "1 Gbit/s". Values of at most three digits parse back exactly."""
    for unit in ("Gbit", "Mbit", "kbit"):
        if bits_per_s >= _BIT_RATES[unit]:
            return f"{_digits(bits_per_s / _BIT_RATES[unit])} {unit}/s"
    return f"{_digits(bits_per_s)} bit/s"


def format_bytes(count: float) -> str:
    """Format a measured number of bytes, rounded to three digits: 1500 is "1.46 KiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        scaled = _digits(count / _SIZES[unit])
        if abs(float(scaled)) < 1024:
            return f"{scaled} {unit}"
    return f"{_digits(count / _SIZES['TiB'])} TiB"


def format_duration(seconds: float) -> str:
    """Format a duration, rounded to three digits ("1.23 ms"); from two minutes on in two units ("5 min 3 s")."""
    if not math.isfinite(seconds):
        return f"{seconds} s"
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    for unit, length in (("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3)):
        if seconds / length < 1000 and seconds and float(scaled := _digits(seconds / length)) < 1000:
            return f"{sign}{scaled} {unit}"
    if float(_digits(seconds)) < 120 or seconds >= 1e12:
        return f"{sign}{_digits(seconds)} s"
    parts = []
    step = 1 if seconds < 3600 else 60 if seconds < 86400 else 3600
    left = round(seconds / step) * step
    for unit, whole in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, whole)
        if count:
            parts.append(f"{count} {unit}")
    return sign + " ".join(parts[:2])


def format_ratio(ratio: float) -> str:
    """Format a ratio, with three decimals near 1: "0.984", "1.034", "12.3", "0.0123"."""
    if 0.1 <= ratio < 9.9995:
        return f"{ratio:.3f}"
    return _digits(ratio)


def format_percent(fraction: float, *, signed: bool = False) -> str:
    """Format a fraction as percent: 0.0345 is "3.45 %", "+3.45 %" if signed; at most two decimals."""
    percent = fraction * 100
    text = _digits(percent) if abs(percent) >= 1 else f"{percent:.2f}".rstrip("0").rstrip(".")
    if float(text) == 0:
        return "0 %"
    return f"+{text} %" if signed and percent > 0 else f"{text} %"


def _digits(value: float) -> str:
    """Format three significant digits without trailing zeros; an exponent only from 1e9 on and below 1e-9."""
    if value == 0 or not math.isfinite(value):
        return f"{abs(value):g}" if value == 0 else f"{value}"
    if not 1e-9 <= abs(value) < 1e9:
        return f"{value:.3g}"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _quantities(
    text: str, what: str, units: Collection[str], aliases: Mapping[str, str], *, example: str
) -> list[tuple[Fraction, str]]:
    """Return all (number, unit) pairs of the text; units in any case, aliases resolved."""
    if not isinstance(text, str):
        hint = f'write it with its unit, e.g. "{example}"'
        raise UnitError(f"expected a {what} in quotes, found {_shown(text)}", hint=hint)
    known = {name.casefold(): name for name in units} | dict(aliases)
    quantity = re.compile(_QUANTITY)
    pairs = []
    position = 0
    while position < len(text):
        match = quantity.match(text, position)
        if match is None:
            break
        unit = known.get(match[2].casefold())
        if unit is None:
            message = f'{_shown(text)}: unknown unit of a {what}: "{match[2][:20]}"'
            raise UnitError(message, hint=_nearest(match[2], what, units))
        pairs.append((Fraction(match[1]), unit))
        position = match.end()
    if not pairs or position < len(text):
        hint = None
        if re.fullmatch(_PLAIN, text):
            hint = f"add a unit: {', '.join(units)}"
        raise UnitError(f'expected a {what} such as "{example}", found {_shown(text)}', hint=hint)
    return pairs


def _nearest(unit: str, what: str, units: Collection[str]) -> str:
    if what == "size" and len(unit) == 1 and unit.upper() in "KMGT":
        binary, decimal = f"{unit.upper()}iB", ("k" if unit.upper() == "K" else unit.upper()) + "B"
        return f'did you mean "{binary}" ({_SIZES[binary]} bytes) or "{decimal}" ({_SIZES[decimal]})?'
    folded = {name.casefold(): name for name in units}
    near = difflib.get_close_matches(unit.casefold(), folded, n=1, cutoff=0.4)
    listing = f"known: {', '.join(units)}"
    return f'did you mean "{folded[near[0]]}"? ({listing})' if near else listing


def _shown(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**63:
        return "a huge number"  # the interpreter limits int to str conversion
    text = repr(value)
    return text.replace("'", '"') if len(text) <= 60 else f"{text[:57]}..."
