"""``strace -c``: seconds, calls and errors by system call, default columns or those of ``-U``.

A file is one run under its label (``LABEL=FILE``, or the file's name without its number). The row of dashes
under the header shows where each column ends; the columns are strace(1)'s, options ``-c`` and ``-U``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from iotrial.audits.importers.contract import (
    MAX_ROWS,
    Format,
    Imported,
    ReadOptions,
    Source,
    damaged,
    label,
    no_result,
)
from iotrial.audits.model import Observation
from iotrial.units import measured

_DASHES = re.compile(r"-{3,}(?: +-{3,})+ *")
_COLUMNS = {
    "seconds": ("seconds", "s"),
    "total time": ("seconds", "s"),
    "total-time": ("seconds", "s"),
    "calls": ("calls", "1"),
    "errors": ("errors", "1"),
}


_OTHERS = ("% time", "usecs/call", "shortest", "longest", "syscall")


def recognises(text: str) -> bool:
    return any(True for _ in _tables(text.split("\n")[:MAX_ROWS]))


def read(source: Source, _: ReadOptions) -> Imported:
    observations: list[Observation] = []
    unread: list[str] = []
    lines = source.text.split("\n")[:MAX_ROWS]
    for number_of, (header, start, spans) in enumerate(_tables(lines)):
        series = "" if number_of == 0 else f"table {number_of + 1}"
        unread += [
            f"{source.name}: column {label(name)}" for name in header if name not in (*_COLUMNS, *_OTHERS)
        ]
        rows = list(_rows(source, lines, header, start, spans, series, unread))
        unread += _gaps(f"{source.name}{series and ', '}{series}", rows)
        observations += rows
    if not observations:
        raise no_result(source, "strace -c")
    return Imported(tuple(observations), traced="strace -c", unread=tuple(unread))


def _gaps(name: str, rows: Sequence[Observation]) -> Iterator[str]:
    """Compare the rows with the table's own total: name what is missing."""
    for response in ("calls", "errors"):
        counts = {dict(one.condition)["syscall"]: one.value for one in rows if one.response == response}
        total = counts.pop("total", None)
        if total is None and response == "calls":
            yield damaged(name, "no row of totals")
            return
        if (found := math.fsum(counts.values())) != (total or 0):
            yield damaged(name, f"the rows have {found:.0f} {response}, the total says {total or 0:.0f}")


def _tables(lines: Sequence[str]) -> Iterator[tuple[list[str], int, list[tuple[int, int]]]]:
    """Yield the column names, the first line of data and the spans of the columns, of each table."""
    for at, line in enumerate(lines[1:], start=1):
        if len(line) > 300 or not _DASHES.fullmatch(line):
            continue
        spans = [match.span() for match in re.finditer(r"-+", line)]
        header = lines[at - 1]
        names = [name.strip() for name in _cut(header, spans)]
        if names and "syscall" in (names[0], names[-1], *names) and "calls" in header:
            yield names, at + 1, spans


def _rows(
    source: Source,
    lines: Sequence[str],
    header: Sequence[str],
    start: int,
    spans: Sequence[tuple[int, int]],
    series: str,
    unread: list[str],
) -> Iterator[Observation]:
    for at, line in enumerate(lines[start:], start=start + 1):
        if _DASHES.fullmatch(line):
            continue
        fields = dict(zip(header, _fields(line, header, spans), strict=False))
        name = fields.get("syscall", "").strip()
        values = {column: measured(fields.get(column, "")) for column in _COLUMNS}
        if not line.strip():
            return
        calls = values["calls"]
        if not name or calls is None or calls < 0 or calls != int(calls):
            unread.append(f"{source.name}: line {at} ({label(line)[:60]})")
            continue
        bad = [column for column in header if column in _COLUMNS and values[column] is None]
        if any(column != "errors" or fields.get(column, "").strip() for column in bad):
            unread.append(f"{source.name}: {bad[0]} of {label(name)} (line {at})")
        for column, (response, unit) in _COLUMNS.items():
            value = values[column]
            if value is not None:
                step = 1e-6 if unit == "s" else None
                condition = (("syscall", label(name)),)
                yield Observation(source.stem, response, unit, value, condition, series=series, step=step)
        if name == "total":
            return


def _fields(line: str, header: Sequence[str], spans: Sequence[tuple[int, int]]) -> list[str]:
    """Split by words if no column is empty (wide numbers shift the columns), else by the spans: none if they cut a word."""
    words = line.split()
    if len(words) != len(header) and any(
        line[end - 1 : end + 1].split() == [line[end - 1 : end + 1]]
        for _, end in spans[:-1]
        if end < len(line)
    ):
        return []
    return words if len(words) == len(header) else _cut(line, spans)


def _cut(line: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    """Cut the line into columns: each from the end of the previous one to its own end, the last to the end of the line."""
    ends = [end for _, end in spans]
    starts = [0, *ends[:-1]]
    return [line[a:b] for a, b in zip(starts, [*ends[:-1], len(line)], strict=True)]


FORMAT = Format("strace", "strace -c", recognises, read, rank=20)
