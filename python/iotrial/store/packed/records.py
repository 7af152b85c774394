"""The records of a packed trial: from frozen values to JSON and back. The values declare the fields and their limits."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import accumulate, pairwise
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from iotrial.decoding import convert
from iotrial.store.limits import MAX_BLOCK, MAX_SPAN_S, Reason
from iotrial.store.model import BlockEnd, Event, RunRecord, TrialHeader, TrialState
from iotrial.store.packed.stream import MAX_WHOLE, VERSION
from iotrial.store.schema import IMPORTED
from iotrial.study.codec import study_from_json, study_to_json
from iotrial.study.model import Study
from iotrial.study.schema import Problem, ReadFrom, converted, form_of, metas_of, shown

MAX_ATTEMPTS = 10_000
MAX_UNIX_S = 1e11

_Words = Annotated[Sequence[Annotated[str, Meta(max_length=4096)]], Meta(max_length=1024)]
_Blocks = Annotated[int, Meta(ge=0, le=2 * MAX_BLOCK)]
_UnixTime = Annotated[float, Meta(ge=0, le=MAX_UNIX_S)]

OPTIONS: Mapping[str, Any] = {
    "argv": _Words,
    "time_s": Annotated[float, Meta(ge=0, le=MAX_SPAN_S)],
    "blocks": _Blocks,
    "no_stop": bool,
    "precise": bool,
    "controls": bool,
    "controls_first": _Blocks,
    "after_itself": bool,
    "design_rows": _Words,
    "budget_share": Annotated[float, Meta(ge=0, le=1)],
    "asked": _Words,
    "lab": Annotated[str, Meta(max_length=64)],
}
"""The options of the run that a packed trial keeps, with types. The rest are folders and processes of another machine."""


@dataclass(frozen=True, slots=True)
class PackedState:
    """A change of state, without the conductor's process, which means nothing elsewhere. ``at_s`` is Unix time."""

    at_s: _UnixTime
    state: TrialState
    reason: Reason | None


@dataclass(frozen=True, slots=True)
class PackedRun:
    """A run, its attempt, and when it was stored (Unix time). In the file, the fields of the run stand among its own."""

    run: RunRecord
    attempt: Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)]
    at_s: _UnixTime


PackedRecord = TrialHeader | PackedState | PackedRun | BlockEnd | Event
R = TypeVar("R")


def to_value(record: PackedRecord) -> tuple[str, dict[str, Any]]:
    """Return the kind of a record and its fields, ready for JSON."""
    match record:
        case TrialHeader():
            return "trial", {**_plain(record), "study": study_to_json(record.study)}
        case PackedState():
            return "state", _plain(record)
        case PackedRun():
            value = {"attempt": record.attempt, "at": record.at_s, **_plain(record.run)}
            return "run", {**value, "histograms": _columns(record.run.histograms)}
        case BlockEnd():
            return "block_end", _plain(record)
        case Event():
            return "event", _plain(record)


def from_value(kind: str, value: object, where: str, *, version: int = VERSION) -> PackedRecord:
    """Return the record of this kind. ValueError or StudyError if a field is missing, unknown or out of bounds.

    ``version`` is that of the file's format.
    """
    if not isinstance(value, dict):
        raise ValueError("expected an object")
    match kind:
        case "trial":
            study = study_from_json(value.get("study"), origin=where, foreign=True)
            return _trial(_read(TrialHeader, {**value, "study": study}))
        case "state":
            return _read(PackedState, value)
        case "run":
            own = {name: value[name] for name in _OF_PACKED_RUN if name in value}
            fields_of_run = {name: value[name] for name in value if name not in own}
            if version > 1 and "histograms" in value:
                fields_of_run["histograms"] = _bins(value["histograms"])
            run = _read(RunRecord, fields_of_run)
            return _read(PackedRun, {**own, "run": run})
        case "block_end":
            return _read(BlockEnd, value)
        case "event":
            event = _read(Event, value)
            if event.kind == IMPORTED:
                raise ValueError(f'an event of kind "{IMPORTED}" belongs to a store, not to a packed trial')
            return event
        case _:
            raise ValueError(f"unknown record {shown(kind)}")


def _columns(histograms: Mapping[str, Sequence[Sequence[int]]]) -> dict[str, list[list[int]]]:
    """Return histograms with the latencies as differences, and the counts apart: half the size of pairs once compressed."""
    found = {}
    for operation, bins in histograms.items():
        latencies_ns = [latency_ns for latency_ns, _ in bins]
        steps_ns = [after - before for before, after in pairwise([0, *latencies_ns])]
        found[operation] = [steps_ns, [count for _, count in bins]]
    return found


_HISTOGRAMS = "histograms: expected differences of latencies (64 bits), and as many counts, by operation"


def _bins(columns: object) -> dict[str, list[list[int]]]:
    """Return the histograms that ``_columns`` was given. ValueError if there are none that give these columns."""
    try:
        found = convert(columns, dict[str, tuple[list[int], list[int]]])
    except msgspec.ValidationError:
        raise ValueError(_HISTOGRAMS) from None
    if any(len(steps) != len(counts) for steps, counts in found.values()):
        raise ValueError(_HISTOGRAMS)
    bins = {
        operation: [[latency_ns, count] for latency_ns, count in zip(accumulate(steps), counts, strict=True)]
        for operation, (steps, counts) in found.items()
    }
    if any(latency_ns > MAX_WHOLE for bars in bins.values() for latency_ns, _ in bars):
        raise ValueError(_HISTOGRAMS)
    return bins


def _trial(header: TrialHeader) -> TrialHeader:
    for name in header.options:
        if name not in OPTIONS:
            raise ValueError(f"options: unknown key {shown(name)}")
    options = {
        name: converted(OPTIONS[name], value, "options", name, read_from=ReadFrom.PACKED)
        for name, value in header.options.items()
    }
    return replace(header, options=options)


_OF_PACKED_RUN = ("attempt", "at")
#: fields without the unit in their name in the file
_IN_FILE = {"at_s": "at"}


def _plain(record: PackedRecord | RunRecord) -> dict[str, Any]:
    found = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if isinstance(value, Mapping):
            value = dict(value)
        found[_IN_FILE.get(field.name, field.name)] = list(value) if isinstance(value, tuple) else value
    return found


@dataclass(frozen=True, slots=True)
class _Fields:
    """The fields of a record: by their name in the file their own name and type; and the checks that a type cannot hold."""

    names: Mapping[str, str]
    types: Mapping[str, Any]
    checks: Sequence[tuple[str, Callable[[Any], object]]]


@cache
def _fields_of(record: type[Any]) -> _Fields:
    hints = typing.get_type_hints(record, include_extras=True)
    names = {_IN_FILE.get(field.name, field.name): field.name for field in fields(record)}
    types = {name: hints[names[name]] for name in names}
    forms = {name: form_of(types[name]) for name in names}
    checks = [
        (name, form.check) for name, form in forms.items() if form is not None and form.check is not None
    ]
    return _Fields(names, types, checks)


def _read(record: type[R], table: dict[str, Any]) -> R:
    """Convert fields as the file has them to a record. ValueError if they are not what the record declares."""
    known = _fields_of(record)  # type: ignore[arg-type]  # mypy takes the hash of the instances for that of the class
    if table.keys() != known.names.keys():
        for name in table:
            if name not in known.names:
                raise ValueError(f"unknown key {shown(name)}")
        raise ValueError(f'"{next(name for name in known.names if name not in table)}" is missing')
    try:
        # one call for a whole record: most of a file is numbers, and a call for each would dominate the time
        made = convert({known.names[name]: table[name] for name in table}, record)
    except msgspec.ValidationError as error:
        raise ValueError(_reason(known, table) or str(error)) from None
    for name, check in known.checks:
        try:
            check(table[name])
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return made


def _reason(known: _Fields, table: dict[str, Any]) -> str:
    """Return which field is not as declared, and why."""
    for name, wanted in known.types.items():
        if isinstance(table[name], Study | RunRecord):
            continue  # converted before
        try:
            converted(wanted, table[name], name, read_from=ReadFrom.PACKED)
        except Problem as problem:
            what = next((f" ({meta.description})" for meta in metas_of(wanted) if meta.description), "")
            return f"{problem.message}{what}"
    return ""
