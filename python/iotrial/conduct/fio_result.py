"""fio's JSON: found in what it printed, and one number of it by its path.

Names in it hold dots themselves (job names, "99.000000"), so at every step the longest name that fits is taken. Entries of a
list go by their "jobname" or "name".
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterator
from typing import Any

from iotrial.errors import RequestError
from iotrial.study.model import Pick

MOST_SHOWN = 5


def result_of(output: str) -> dict[str, Any]:
    """The JSON in fio's output; messages may stand before it. Raises RequestError where there is none."""
    start = output.find("{")
    try:
        found, _ = json.JSONDecoder().raw_decode(output, max(start, 0))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise RequestError(f"fio: wanted its result as JSON, found {output[:80]!r}")
    return found


def picked(result: dict[str, Any], pick: Pick) -> float:
    """The number of this pick in its unit. Raises RequestError that names near ones where there is none."""
    for root in _roots(result):
        for value in _values(root, pick.path):
            if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
                return float(value) * pick.factor
    known = list(dict.fromkeys(path for root in _roots(result) for path in _paths(root)))
    near = difflib.get_close_matches(pick.path, known, n=MOST_SHOWN, cutoff=0.0)
    raise RequestError(
        f'fio\'s result has no number "{pick.path}"', hint=f"near it: {', '.join(near)}" if near else None
    )


def _roots(result: dict[str, Any]) -> Iterator[Any]:
    """The whole; and where there is one job, that job, so that its name may be left out."""
    yield result
    jobs = result.get("jobs")
    if isinstance(jobs, list) and len(jobs) == 1:
        yield jobs[0]


def _values(node: Any, path: str) -> Iterator[Any]:
    """What stands at a path; several where names can be read in two ways, longest first names first."""
    if not path:
        yield node
        return
    entries = _entries(node)
    for name in sorted({name for name, _ in entries}, key=len, reverse=True):
        if path != name and not path.startswith(f"{name}."):
            continue
        same = [value for other, value in entries if other == name]
        if len(same) > 1:
            raise RequestError(
                f'fio\'s result has {len(same)} entries called "{name}"',
                hint="add group_reporting to the job file",
            )
        yield from _values(same[0], path[len(name) + 1 :])


def _paths(node: Any, before: str = "") -> Iterator[str]:
    for name, value in _entries(node):
        path = f"{before}.{name}" if before else name
        if isinstance(value, dict | list):
            yield from _paths(value, path)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield path


def _entries(node: Any) -> list[tuple[str, Any]]:
    if isinstance(node, dict):
        return list(node.items())
    if isinstance(node, list):
        named = [entry for entry in node if isinstance(entry, dict)]
        return [(str(entry.get("jobname", entry.get("name", ""))), entry) for entry in named]
    return []
