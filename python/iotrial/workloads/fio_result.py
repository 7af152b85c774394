"""fio's JSON result: find it in the output, pick a number by path, and evaluate several clients.

With several clients, ``client_stats`` has an entry for each and one called "All clients".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from iotrial.errors import RequestError
from iotrial.terminal import escape
from iotrial.units import measured, with_json_numbers
from iotrial.workloads.output import near, values_at


def result_of(output: str) -> dict[str, Any]:
    """Parse the JSON in fio's output, which may follow messages. Raises RequestError if there is none."""
    start = output.find("{")
    try:
        found, _ = json.JSONDecoder().raw_decode(with_json_numbers(output), max(start, 0))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise RequestError(f"fio: expected its result as JSON, found {output[:80]!r}")
    return found


def picked(result: dict[str, Any], path: str) -> float:
    """Return the number at a path, in fio's unit. Raises RequestError with similar paths if there is none."""
    roots = list(_roots(result))
    for root in roots:
        for value in values_at(root, path):
            if not isinstance(value, str) and (number := measured(value)) is not None:
                return number
    raise RequestError(f'fio\'s result has no number "{path}"', hint=near(roots, path))


def reads_of(result: Mapping[str, Any]) -> list[int]:
    """Return the bytes that each entry of the jobs has read; none if an entry does not say."""
    found = []
    for job in result.get("jobs") or ():
        number = measured(job.get("read", {}).get("io_bytes")) if isinstance(job, dict) else None
        if number is None:
            return []
        found.append(int(number))
    return found


def _roots(result: dict[str, Any]) -> Iterator[Any]:
    """Yield the whole result; and if there is a single job, that job, so that its name can be omitted."""
    yield result
    jobs = result.get("jobs")
    if isinstance(jobs, list) and len(jobs) == 1:
        yield jobs[0]


# several clients

ALL = "All clients"
_WAYS = ("read", "write", "trim")


def of_clients(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result with ``all`` added: the entry for all clients, or the only client's own."""
    each, whole = _clients(result)
    return {**result, "all": whole or (each[0] if len(each) == 1 else {})}


def evenness(result: Mapping[str, Any]) -> float | None:
    """Return Jain's fairness index of the clients' rates over all bytes; None if no client moved any."""
    rates = [sum(_rate(entry.get(way)) for way in _WAYS) for entry in _clients(result)[0]]
    return fairness(rates) if any(rate > 0 for rate in rates) else None


def missing_of(result: Mapping[str, Any], wanted: int) -> str | None:
    """Describe a client that failed, or that results are missing; None if nothing is wrong."""
    each, _ = _clients(result)
    for entry in each:
        if entry.get("error") != 0:
            who = escape(f"{entry.get('hostname')} port {entry.get('port')}"[:100])
            return f"fio's client {who} ended with error {escape(str(entry.get('error'))[:20])}"
    # numjobs gives an entry for each process, but with the same client's address
    came = {(entry.get("hostname"), entry.get("port")) for entry in each}
    return None if len(came) >= wanted else f"fio returned results of {len(came)} of {wanted} clients"


def _clients(result: Mapping[str, Any]) -> tuple[list[Mapping[str, Any]], Mapping[str, Any] | None]:
    found = result.get("client_stats")
    entries = [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
    whole = next((entry for entry in entries if entry.get("jobname") == ALL), None)
    return [entry for entry in entries if entry is not whole], whole


def _rate(way: object) -> float:
    rate = measured(way.get("bw_bytes")) if isinstance(way, dict) else None
    return max(0.0, rate or 0.0)


def fairness(rates: Sequence[float]) -> float:
    """Return Jain's fairness index (R. Jain, D. Chiu, W. Hawe, DEC-TR-301, 1984): (sum x)^2 / (n sum x^2).

    1 if all rates are equal, 1 / n if one has everything. Raises ValueError if there are no rates or none is
    above 0.
    """
    squares = sum(rate * rate for rate in rates)
    if not squares > 0:
        raise ValueError("fairness: expected at least one rate above 0")
    return sum(rates) ** 2 / (len(rates) * squares)
