"""Criterion.rs: what its benchmarks print, and the messages of ``cargo criterion --message-format=json``.

The printed text has one estimate for each benchmark, the middle of three numbers: one number for each run of the program. A
message has the samples, each measured over a number of iterations. Format: the External Tools page of Criterion's own book.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

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

_COMPLETE = "benchmark-complete"
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_ESTIMATE = re.compile(
    rf"(?P<name>\S.{{0,300}}?)?\s*\btime:\s+\[{_NUMBER} \S+ (?P<value>{_NUMBER}) (?P<unit>ps|ns|µs|us|ms|s) "
    rf"{_NUMBER} \S+\]\s*"
)
#: a line that holds a time, whole or not
_LIKE = re.compile(r"\btime:\s+\[|\[[0-9.]+ [nµum]?s [0-9.]+ [nµum]?s")
_PICOSECOND_NS = 1e-3


def recognises(text: str) -> bool:
    head = [line for line in text.split("\n", MAX_ROWS)[:MAX_ROWS] if len(line) < 1 << 20]
    return any(_ESTIMATE.fullmatch(line) or f'"{_COMPLETE}"' in line[:200] for line in head)


def read(source: Source, _: ReadOptions) -> Imported:
    """Read every benchmark, from messages if there are any. Raises RequestError if there is none."""
    unread: list[str] = []
    messages = f'"{_COMPLETE}"' in source.text
    found = tuple((_samples if messages else _estimates)(source, unread))
    if not found:
        raise no_result(source, "Criterion", unread)
    notes = () if messages else ("Criterion prints estimates: each is one number of one run of the program",)
    return Imported(found, notes=notes, unread=tuple(unread))


def _estimates(source: Source, unread: list[str]) -> Iterator[Observation]:
    runs: Counter[str] = Counter()
    before = ""
    for at, line in enumerate(source.text.split("\n", MAX_ROWS)[:MAX_ROWS], start=1):
        found = _ESTIMATE.fullmatch(line) if len(line) < 1000 else None
        if found is None:
            if _LIKE.search(line):
                unread.append(damaged(source.name, f"line {at}: {label(line)[:60]}"))
            before = line if line.strip() else before
            continue
        # a long name has a line of its own
        name = found["name"] or before
        value = measured(found["value"])
        if value is None or not name.strip():
            unread.append(damaged(source.name, f"line {at}: {label(line)[:60]}"))
            continue
        picoseconds = found["unit"] == "ps"
        runs[name] += 1
        yield Observation(
            source.stem,
            "time",
            "ns" if picoseconds else found["unit"],
            value * _PICOSECOND_NS if picoseconds else value,
            (("benchmark", label(name)),),
            run=runs[name],
        )
        before = ""


def _samples(source: Source, unread: list[str]) -> Iterator[Observation]:
    for at, line in enumerate(source.text.split("\n", MAX_ROWS)[:MAX_ROWS], start=1):
        if not line.strip():
            continue
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            unread.append(damaged(source.name, f"line {at}: not JSON"))
            continue
        if isinstance(message, dict) and message.get("reason") == _COMPLETE:
            yield from _of_message(source, message, at, unread)


def _of_message(source: Source, message: dict[str, Any], at: int, unread: list[str]) -> Iterator[Observation]:
    counts, values = message.get("iteration_count"), message.get("measured_values")
    if not isinstance(counts, list) or not isinstance(values, list) or len(counts) != len(values):
        unread.append(damaged(source.name, f"line {at}: iterations and values do not match"))
        return
    condition = (("benchmark", label(message.get("id", "?"))),)
    unit = label(message.get("unit", "ns"))
    for run, (count, raw) in enumerate(zip(counts, values, strict=True)):
        iterations, value = measured(count), measured(raw)
        if value is None or iterations is None or iterations <= 0.0:
            unread.append(damaged(source.name, f"line {at}: sample {run + 1}"))
            continue
        yield Observation(source.stem, "time", unit, value / iterations, condition, run=run)


FORMAT = Format("criterion", "Criterion", recognises, read, rank=27)
