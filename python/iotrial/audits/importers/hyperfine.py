"""hyperfine's ``--export-json``: all times of each command, in the order in which they were run.

hyperfine runs all of the first command, then all of the second, so the position of every run is known. A
command that occurs twice was measured in two series. Format: the tool's own documentation of its JSON export.
"""

from __future__ import annotations

from typing import Any

from iotrial.audits.importers.contract import (
    MAX_OBSERVATIONS,
    Format,
    Imported,
    ReadOptions,
    Source,
    json_of,
    label,
    no_result,
    too_many,
)
from iotrial.audits.model import Observation
from iotrial.errors import RequestError
from iotrial.units import measured

_WITHOUT_TIMES = "no individual times; export with --export-json, which includes them"


def recognises(text: str) -> bool:
    head = text.lstrip()[:4000]
    return head.startswith("{") and '"results"' in head and '"command"' in head


def read(source: Source, _: ReadOptions) -> Imported:
    document = json_of(source)
    results = document.get("results") if isinstance(document, dict) else None
    if not isinstance(results, list):
        raise no_result(source, "hyperfine")
    observations: list[Observation] = []
    unread = []
    seen: dict[str, int] = {}
    place = -1
    for result in results[:10_000]:
        if not isinstance(result, dict):
            raise no_result(source, "hyperfine")
        group = label(_group(source, result))
        key = f"{group} {result.get('command') if source.label is not None else ''}"
        seen[key] = seen.get(key, 0) + 1
        series = "" if source.alone or source.label is not None else source.name
        several = source.label is not None and len(results) > 1
        condition = (("command", label(result.get("command", "?"))),) if several else ()
        if seen[key] > 1:
            series = f"{series} again {seen[key]}".strip()
        times = result.get("times")
        if not isinstance(times, list) or not times:
            unread.append(f"{group}: {_WITHOUT_TIMES}")
            times = [result.get("mean")]
        codes = result.get("exit_codes")
        failed = {run for run, code in enumerate(codes) if code != 0} if isinstance(codes, list) else set()
        if failed:
            unread.append(f"{group}: {len(failed)} of {len(times)} runs (exit status other than 0)")
        for run, raw in enumerate(times):
            place += 1
            if run in failed:
                continue
            seconds = measured(raw)
            if seconds is None:
                raise RequestError(f"{source.name}: {group}: a time is not a number")
            observations.append(
                Observation(
                    group,
                    "time",
                    "s",
                    seconds,
                    condition,
                    series=series,
                    run=run,
                    # the order within a file is known; files of one label are one series
                    place=float(place) if source.alone or series else None,
                )
            )
        if len(observations) > MAX_OBSERVATIONS:
            raise too_many(source.name, MAX_OBSERVATIONS, "times")
    return Imported(tuple(observations), unread=tuple(unread))


def _group(source: Source, result: dict[str, Any]) -> object:
    if source.label is not None:
        return source.label
    return result.get("command", "?")


FORMAT = Format("hyperfine", "hyperfine JSON", recognises, read)
