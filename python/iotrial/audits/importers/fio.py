"""fio's ``--output-format=json`` or ``json+``: jobs, each with read, write and trim.

A file is one run of its jobs; several files are repeats, in the order of their timestamps. The group is the
job's name, or the file's own label (``LABEL=FILE``), in which case the job is a condition. bw is in KiB/s;
latencies are in nanoseconds (fio 3) or microseconds (fio 2). Lines before the JSON (warnings, the normal
output of ``normal,json``) are skipped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from iotrial.audits.importers.contract import Format, Imported, ReadOptions, Source, label
from iotrial.audits.model import Condition, Observation
from iotrial.errors import RequestError
from iotrial.units import measured

_PERCENTILES = ("50.000000", "99.000000", "99.900000")
_LATENCIES = (("clat", "clat"), ("lat", "lat"))


def recognises(text: str) -> bool:
    return '"fio version"' in text[: 1 << 20] and '"jobs"' in text


def read(source: Source, _: ReadOptions) -> Imported:
    document = _document(source)
    jobs = document.get("jobs")
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        raise RequestError(f"{source.name}: not a fio result: it has no list of jobs")
    stamp = measured(document.get("timestamp_ms")) or measured(document.get("timestamp"))
    unread = []
    clones: dict[str, list[dict[str, Any]]] = {}
    for job in jobs[:10_000]:
        name = label(job.get("jobname", "?"))
        if job.get("error"):
            unread.append(f"{source.name}: job {name} (ended with error {label(job['error'])})")
        else:
            clones.setdefault(name, []).append(job)
    observations: list[Observation] = []
    for name, own in clones.items():
        group, condition = (source.label, (("job", name),)) if source.label else (name, ())
        observations += _one_run([list(_of_job(job, group, condition, stamp)) for job in own])
    return Imported(tuple(observations), unread=tuple(unread))


def _one_run(clones: list[list[Observation]]) -> list[Observation]:
    """Merge the clones of a job (``numjobs``), which ran at the same time: rates are summed, the rest averaged."""
    found: dict[str, list[Observation]] = {}
    for one in clones:
        for observation in one:
            found.setdefault(observation.response, []).append(observation)
    return [
        replace(
            own[0], value=math.fsum(o.value for o in own) / (1 if own[0].unit.endswith("/s") else len(own))
        )
        for own in found.values()
    ]


def _document(source: Source) -> dict[str, Any]:
    """Parse the JSON object, which may begin at any line that starts with a brace."""
    start = 0 if source.text.startswith("{") else source.text.find("\n{") + 1
    try:
        document, _ = json.JSONDecoder().raw_decode(source.text, start)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{source.name}: not JSON ({str(error)[:100]})") from None
    if not isinstance(document, dict):
        raise RequestError(f"{source.name}: not a JSON object")
    return document


def _of_job(
    job: dict[str, Any], group: str, condition: Condition, stamp: float | None
) -> Iterator[Observation]:
    for direction in ("read", "write", "trim"):
        part = job.get(direction)
        if not isinstance(part, dict) or not measured(part.get("total_ios")):
            continue
        for response, unit, raw in _responses(part):
            value = measured(raw)
            if value is not None:
                yield Observation(group, f"{direction}_{response}", unit, value, condition, place=stamp)
    for response in ("usr_cpu", "sys_cpu"):
        value = measured(job.get(response))
        if value is not None:
            yield Observation(group, response, "%", value, condition, place=stamp)


def _responses(part: dict[str, Any]) -> Iterator[tuple[str, str, object]]:
    yield "bw", "KiB/s", part.get("bw")
    yield "iops", "1/s", part.get("iops")
    for key, name in _LATENCIES:
        for unit in ("ns", "us"):
            latency = part.get(f"{key}_{unit}" if unit == "ns" else key)
            if not isinstance(latency, dict):
                continue
            yield f"{name}_mean", unit, latency.get("mean")
            percentiles = latency.get("percentile")
            if isinstance(percentiles, dict):
                for percentile in _PERCENTILES:
                    short = percentile.rstrip("0").rstrip(".")
                    yield f"{name}_p{short}", unit, percentiles.get(percentile)
            break


FORMAT = Format("fio", "fio JSON", recognises, read)
