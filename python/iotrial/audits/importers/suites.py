"""Benchmark suites that save each repeat: google-benchmark and pytest-benchmark (JSON), Phoronix (composite.xml).

Their summaries (mean, median, stddev, complexity) are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

from iotrial.audits.importers.contract import (
    Format,
    Imported,
    ReadOptions,
    Source,
    damaged,
    json_of,
    label,
    no_result,
)
from iotrial.audits.model import Observation
from iotrial.errors import RequestError
from iotrial.units import measured

_MOST = 10_000


def recognises(text: str) -> bool:
    head = text.lstrip()[: 1 << 16]
    if head.startswith("{"):
        return '"benchmarks"' in text and ('"run_name"' in text or '"machine_info"' in head)
    return "<PhoronixTestSuite" in head


def read(source: Source, _: ReadOptions) -> Imported:
    """The repeats of each benchmark. Raises RequestError if the file is damaged or has summaries only."""
    if source.text.lstrip().startswith("<"):
        return _phoronix(source)
    document = json_of(source)
    rows = document.get("benchmarks") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise no_result(source, "a benchmark suite")
    unread: list[str] = []
    found = [one for row in rows[:_MOST] if isinstance(row, dict) for one in _of_json(source, row, unread)]
    if not found:
        raise RequestError(
            f"{source.name}: holds summaries, but no single times",
            hint="pytest: --benchmark-save-data; google-benchmark: leave out --benchmark_report_aggregates_only",
        )
    return Imported(tuple(found), unread=tuple(unread))


def _of_json(source: Source, row: dict[str, Any], unread: list[str]) -> Iterator[Observation]:
    condition = (("benchmark", label(row.get("run_name", row.get("name", "?")))),)
    stats = row.get("stats")
    if isinstance(stats, dict):  # pytest-benchmark, in seconds
        for run, raw in enumerate(stats["data"] if isinstance(stats.get("data"), list) else ()):
            if (value := measured(raw)) is None:
                unread.append(
                    f"{source.name}: {label(row.get('name', '?'))}, run {run + 1} ({label(raw)[:20]})"
                )
            else:
                yield Observation(source.stem, "time", "s", value, condition, run=run)
    elif row.get("run_type") == "aggregate":
        return
    elif row.get("run_type") != "iteration" or row.get("error_occurred"):
        unread.append(
            f"{source.name}: {label(row.get('name', '?'))} ({label(row.get('error_message', 'no run'))})"
        )
    else:
        value, unit = measured(row.get("real_time")), label(row.get("time_unit", "ns"))
        if value is None:
            unread.append(f"{source.name}: {label(row.get('name', '?'))} (no real_time)")
        else:
            at = measured(row.get("repetition_index"))
            yield Observation(
                source.stem, "real_time", unit, value, condition, run=None if at is None else int(at)
            )


def _phoronix(source: Source) -> Imported:
    if re.search(r"<!(?:DOCTYPE|ENTITY)", source.text):
        raise RequestError(f"{source.name}: XML with entities is not read")
    try:
        root = ElementTree.fromstring(source.text)
    except ElementTree.ParseError as error:
        raise RequestError(f"{source.name}: not XML ({error})") from None
    observations, unread = [], []
    for result in list(root.iter("Result"))[:_MOST]:
        condition = tuple(
            (key.casefold(), label(text))
            for key in ("Title", "Description")
            if (text := result.findtext(key))
        )
        for entry in result.iter("Entry"):
            group, raw = label(entry.findtext("Identifier") or "?"), entry.findtext("RawString") or ""
            values = [measured(word) for word in raw.split(":")] if raw else []
            if None in values:
                unread.append(damaged(f"{label(result.findtext('Title') or '?')}, {group}", raw))
            if not values:
                unread.append(f"{label(result.findtext('Title') or '?')}, {group} (no RawString)")
            observations += [
                Observation(
                    group, "rate" if result.findtext("Proportion") == "HIB" else "time",
                    label(result.findtext("Scale") or ""), value, condition, run=run,
                )
                for run, value in enumerate(values)
                if value is not None
            ]  # fmt: skip
    lost = len(list(root.iter("Entry"))) - sum(
        len(list(result.iter("Entry"))) for result in root.iter("Result")
    )
    unread += [f"{source.name}: {lost} entries outside a Result"] if lost else []
    return Imported(tuple(observations), unread=tuple(dict.fromkeys(unread)))


FORMAT = Format("suites", "benchmark suite", recognises, read, rank=25)
