"""Export of the valid runs in Go's benchmark format, for ``benchstat``.

The format: https://go.dev/design/14313-benchmark-format, with ``Unit`` lines as in golang.org/x/perf/benchfmt. Each run
of a treatment is one line; its condition and levels are parts of the name (``/cache=cold/mode=0444``), so that
``benchstat -col /mode`` compares the levels in columns. Controls are omitted: a slowed copy of the reference is not a
benchmark of it. benchstat does not take blocks into account.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import BinaryIO

from iotrial.design.model import ArmKind
from iotrial.report.document import Document
from iotrial.report.evidence import arm_order, sound_runs
from iotrial.report.notation import capitalised, utc
from iotrial.store.model import RunRecord
from iotrial.study.model import Better, Response, Study
from iotrial.terminal import escape

SUFFIX = ".bench"

_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}
_UNITS = {"bytes": "B", "bytes/s": "B/s", "byte": "B"}
#: names that benchstat would treat as a scaled unit, or as the end of a part of a unit
_SCALED = frozenset({"ns", "MB", "B", "bytes", "sec"})
#: characters that end a part of a name, or are invisible
_UNFIT = re.compile(r"[^\w.,:;+~@()\[\]{}<>|!?$&*'^-]|%")
_UNFIT_IN_UNITS = re.compile(r"[^\w.]")
_PROCESSORS = re.compile(r"-(?=\d+$)")


def write(document: Document, file: BinaryIO) -> None:
    """Write configuration, units, and one line per valid run, in order of time."""
    for line in _lines(document):
        file.write(line.encode("utf-8", "backslashreplace") + b"\n")


def _lines(document: Document) -> Iterator[str]:
    header = document.trial.header
    study = header.study
    for key, value in _configuration(document):
        yield f"{key}: {value}"
    yield ""
    units = _units(study)
    for unit, better in dict.fromkeys((unit, response.better) for response, unit in units.values()):
        if better is not Better.NONE:
            yield f"Unit {unit} better={better.value}"
    yield ""
    names = _Names(study)
    for run in _in_order(document):
        condition = document.conditions.of_key(run.condition)
        values = list(_values(run, condition.workload, units))
        if values:
            name = names.of(condition.workload, {**condition.levels, **run.treatment})
            yield " ".join((name, "1", *values))


def _in_order(document: Document) -> Iterator[RunRecord]:
    """Yield runs block by block in run order, each block with the reference first: benchstat's base is the first it sees."""
    found = [run for run in sound_runs(document.data) if run.kind == ArmKind.TREATMENT.value]
    arms = arm_order(document.trial.header.study, {run.arm: run.treatment for run in found})
    places = {arm: place for place, arm in enumerate(arms)}
    blocks: dict[tuple[str, int], list[RunRecord]] = {}
    for run in found:
        blocks.setdefault((run.condition, run.block), []).append(run)
    for runs in blocks.values():
        yield from sorted(runs, key=lambda run: places[run.arm])


def _configuration(document: Document) -> Iterator[tuple[str, str]]:
    """Yield benchstat's grouping keys. They describe the whole trial, so that two trials can be separated or compared."""
    header = document.trial.header
    host = {str(name): value for name, value in header.host.items()}
    facts = {
        "study": header.study.name,
        "trial": header.id,
        "started": utc(header.started),
        "lab": str(header.lab.get("kind", header.study.lab.kind or "unknown")),
        "cpu": host.get("processor"),
        "kernel": host.get("kernel"),
        "system": host.get("system"),
        "iotrial": header.version,
    }
    for key, value in facts.items():
        text = escape(value).strip() if value is not None else ""
        if text:
            yield key, text


def _units(study: Study) -> Mapping[tuple[str, str], tuple[Response, str]]:
    """Return response and unit by workload and name, primary responses first: "wall-sec/op", "rate-B/s"."""
    ordered = sorted(study.responses, key=lambda one: not one.primary)
    return {(one.workload, one.name): (one, unit_of(one)) for one in ordered}


def unit_of(response: Response) -> str:
    """Return the response's name with its unit, as benchstat scales and titles it: "wall-sec/op", "read-B/s", "calls/op"."""
    name = _part(response.name, _UNFIT_IN_UNITS)
    if name in _SCALED:
        name += "_"
    if response.unit in _SECONDS:
        return f"{name}-sec/op"
    if response.unit in ("", "1"):
        return f"{name}/op"
    unit = _UNITS.get(response.unit) or "/".join(
        _part(part, _UNFIT_IN_UNITS) for part in response.unit.split("/")
    )
    return f"{name}-{unit}" if unit.endswith("/s") else f"{name}-{unit}/op"


def _values(
    run: RunRecord, workload: str, units: Mapping[tuple[str, str], tuple[Response, str]]
) -> Iterator[str]:
    for (of, name), (response, unit) in units.items():
        value = run.responses.get(name)
        if of == workload and value is not None and math.isfinite(value):
            yield f"{value * _SECONDS.get(response.unit, 1.0)!r}"
            yield unit


class _Names:
    """Names of benchmarks. Labels that would break a name are escaped, and different labels stay different."""

    def __init__(self, study: Study) -> None:
        self._workloads = _distinct(workload.name for workload in study.workloads)
        ordered = (*study.condition_factors, *study.treatment_factors)
        self._factors = _distinct(factor.name for factor in ordered)
        self._levels = {f.name: _distinct(level.label for level in f.levels) for f in study.factors}

    def of(self, workload: str, labels: Mapping[str, str]) -> str:
        """Return e.g. "BenchmarkProbe/cache=cold/mode=0444", with conditions first, in the order of the study."""
        base = self._workloads.get(workload) or _part(workload)
        name = f"Benchmark{capitalised(base)}"
        known = [factor for factor in self._factors if factor in labels]
        for factor in (*known, *(factor for factor in labels if factor not in self._factors)):
            key, label = self._factors.get(factor) or _part(factor), labels[factor]
            name += f"/{key}={self._levels.get(factor, {}).get(label) or _part(label)}"
        return name


def _distinct(labels: Iterable[str]) -> dict[str, str]:
    """Map each label to a part of a name; labels that would become equal are numbered, as Go does it."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for label in labels:
        part, number = _part(label), 0
        one = part
        while one.casefold() in taken:
            number += 1
            one = f"{part}#{number:02}"
        taken.add(one.casefold())
        found[label] = one
    return found


def _part(text: str, unfit: re.Pattern[str] = _UNFIT) -> str:
    """Escape blanks, slashes, equal signs and invisible characters; a trailing "-8" would mean a number of processors."""
    plain = re.sub(r"\s", "_", text.replace(" ", "_"))
    plain = unfit.sub(
        lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "replace")), plain
    )
    plain = "".join(c if escape(c) == c else "%" + c.encode("utf-8", "replace").hex().upper() for c in plain)
    return _PROCESSORS.sub("%2D", plain) or "%00"
