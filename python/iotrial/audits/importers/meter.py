"""A power meter's readings: CSV of time and watts.

Times are Unix seconds, or ISO 8601 with a UTC offset (``2026-03-01T10:00:00+01:00``, ``...Z``). A local time
without an offset is ambiguous and is rejected unless the user gives the offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timezone

import numpy as np

from iotrial.audits.importers.contract import Source
from iotrial.audits.importers.table import Table, read_table
from iotrial.errors import RequestError
from iotrial.stats.scatter import Readings
from iotrial.units import measured

_TIMES = ("time", "timestamp", "date", "datetime", "unix", "at")
_WATTS = ("watts", "watt", "w", "power", "power_w", "power [w]", "power (w)")
_FEWEST = 2
_LARGEST_WATTS = 1e6
_FIRST_S, _LAST_S = 946_684_800.0, 32_503_680_000.0  # the years 2000 and 3000


def read_meter(
    source: Source, *, time: str | None = None, watts: str | None = None, zone: timezone | None = None
) -> Readings:
    """Return the readings in time order. ``time`` and ``watts`` name columns; ``zone`` applies to times without an offset.

    Raises RequestError if it is not such a table, for a time that cannot be resolved, and for implausible
    power.
    """
    table = read_table(source.text, source.name)
    times = table.cells(_column(table, time, _TIMES, "time", "--time-column"))
    powers = table.cells(_column(table, watts, _WATTS, "watts", "--watts-column"))
    moments, found = [], []
    for row, (moment, power) in enumerate(zip(times, powers, strict=True), start=1):
        if not moment and not power:
            continue
        where = f"{source.name}: row {row}"
        moments.append(_moment(moment, zone, where))
        found.append(_watts(power, where))
    if len(moments) < _FEWEST:
        raise RequestError(f"{source.name}: expected at least {_FEWEST} readings, found {len(moments)}")
    at_s = np.array(moments)
    if not (np.diff(at_s) > 0).all():
        row = int(np.argmin(np.diff(at_s) > 0)) + 2
        raise RequestError(
            f"{source.name}: reading {row} is not later than the previous one",
            hint="sort the readings by time; where clocks went back in autumn, add the UTC offset to each time",
        )
    return Readings(at_s, np.array(found))


def _column(table: Table, name: str | None, known: Sequence[str], what: str, option: str) -> str:
    if name is not None:
        table.column(name)
        return name
    found = [name for name in table.columns if name.strip().casefold() in known]
    if len(found) != 1:
        raise RequestError(
            f"{table.name}: expected one column of {what}, found {len(found)} among {', '.join(table.columns)[:200]}",
            hint=f"name it with {option}",
        )
    return found[0]


def _moment(text: str, zone: timezone | None, where: str) -> float:
    """Return Unix seconds."""
    seconds = measured(text)
    if seconds is None:
        try:
            when = datetime.fromisoformat(text[:40])
        except ValueError:
            raise RequestError(
                f"{where}: expected a time as Unix seconds or ISO 8601, found {text[:40]!r}"
            ) from None
        if when.tzinfo is None:
            if zone is None:
                raise RequestError(
                    f"{where}: {text[:40]!r} has no UTC offset",
                    hint="give one for the whole file, such as --utc-offset +01:00",
                )
            when = when.replace(tzinfo=zone)
        seconds = when.astimezone(UTC).timestamp() if 1 < when.year < 9999 else 0.0
    if not _FIRST_S <= seconds <= _LAST_S:
        raise RequestError(
            f"{where}: not a plausible time of a reading: {text[:40]!r}",
            hint="use Unix time in seconds, not milliseconds",
        )
    return seconds


def _watts(text: str, where: str) -> float:
    power = measured(text.removesuffix("W").strip())
    if power is None or not 0.0 <= power <= _LARGEST_WATTS:
        raise RequestError(f"{where}: expected watts, found {text[:40]!r}")
    return power
