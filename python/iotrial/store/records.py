"""Converts rows of the store to frozen values and back.

A row may be damaged on disk or written by another program: its contents are checked for the shape that other
code relies on, and anything else raises StoreError.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

from iotrial.design.model import ArmKind, Before, WashIn
from iotrial.errors import StoreError, StudyError
from iotrial.stats.model import Observation, ObservedBlock
from iotrial.store.checks import WINDOW, parts_of
from iotrial.store.model import (
    AFTER_ITSELF,
    DRAWN_OTHER,
    DRAWN_OWN,
    WASH_IN,
    BlockEnd,
    Event,
    RunRecord,
    TrialHeader,
    TrialState,
)
from iotrial.study.codec import study_from_json, study_to_json
from iotrial.units import is_number


def _columns(record: type[TrialHeader | RunRecord | BlockEnd | Event]) -> str:
    """Return the columns of a record's table: they are named like its fields."""
    return ", ".join(field.name for field in fields(record))


HEADER_COLUMNS = _columns(TrialHeader)
RUN_COLUMNS = _columns(RunRecord)
STORED_RUN_COLUMNS = f"attempt, at, {RUN_COLUMNS}"
STATE_COLUMNS = "at, state, reason, pid, pid_started"
EVENT_COLUMNS = _columns(Event)
END_COLUMNS = _columns(BlockEnd)

SEED_DIGITS = 32
_ARM_KINDS = {kind.value: kind for kind in ArmKind}

Row = tuple[Any, ...]


def header_row(header: TrialHeader) -> Row:
    """Return the columns of ``HEADER_COLUMNS``."""
    return (
        header.id,
        to_json(study_to_json(header.study)),
        header.seed,
        int(header.seed_chosen),
        float(header.alpha),
        float(header.margin),
        header.started,
        to_json(header.lab),
        to_json(header.host),
        to_json(header.options),
        header.version,
    )


def header_of(row: Row) -> TrialHeader:
    """Return the header in the columns of ``HEADER_COLUMNS``."""
    trial_id, study, seed, seed_chosen, alpha, margin, started, lab, host, options, version = row
    _wanted("trial", all(isinstance(text, str) for text in (trial_id, seed, started, version)))
    _wanted("trial", len(seed) == SEED_DIGITS and set(seed) <= set("0123456789abcdef"))
    _wanted("trial", all(is_number(value) and value > 0 for value in (alpha, margin)))
    try:
        declared = study_from_json(_from_json(study), origin=f"trial {trial_id}")
        datetime.fromisoformat(started)
    except StudyError as error:
        raise StoreError(error.message, hint=error.hint) from error
    except ValueError as error:
        raise StoreError(f"holds a damaged record: {error}") from error
    return TrialHeader(
        id=trial_id,
        study=declared,
        seed=seed,
        seed_chosen=bool(seed_chosen),
        alpha=alpha,
        margin=margin,
        started=started,
        lab=object_of(lab),
        host=object_of(host),
        options=object_of(options),
        version=version,
    )


def run_row(run: RunRecord, text: Callable[[object], str] | None = None) -> Row:
    """Return the columns of ``RUN_COLUMNS``, with values encoded by ``text``.

    ``text`` defaults to ``to_json``, which raises StoreError for a number that is not finite.
    """
    text = text or to_json
    return (
        run.condition,
        run.block,
        run.slot,
        run.arm,
        run.kind,
        text(run.treatment),
        run.started_s + 0.0,  # as SQLite returns it: a float, and never -0.0
        run.failure,
        text(run.responses),
        text(run.evidence),
        text(run.histograms),
        text(run.checks),
        None if run.files is None else text(run.files),
    )


def run_of(row: Row) -> RunRecord:
    """Return the run in the columns of ``RUN_COLUMNS``."""
    condition, block, slot, arm, kind, treatment, started_s, failure, *texts, files = row
    responses, evidence, histograms, checks = (object_of(text) for text in texts)
    levels = object_of(treatment)
    indices = None if files is None else _from_json(files)
    _wanted("run", all(isinstance(text, str) for text in (condition, arm, kind, *levels.values())))
    _wanted("run", all(isinstance(number, int) for number in (block, slot)) and is_number(started_s))
    _wanted("run", failure is None or isinstance(failure, str))
    _wanted("run", all(map(is_number, (*responses.values(), *evidence.values()))))
    _wanted("run", all(_is_histogram(bins) for bins in histograms.values()))
    _wanted(
        "run", indices is None or (isinstance(indices, list) and all(isinstance(n, int) for n in indices))
    )
    return RunRecord(
        condition=condition,
        block=block,
        slot=slot,
        arm=arm,
        kind=kind,
        treatment=levels,
        started_s=started_s,
        failure=failure,
        responses=responses,
        evidence=evidence,
        histograms=histograms,
        checks=checks,
        files=None if indices is None else tuple(indices),
    )


def end_row(end: BlockEnd) -> Row:
    """Return the columns of ``END_COLUMNS``."""
    return (end.condition, end.block, end.round, int(end.controls), end.void, end.void_level, int(end.gap))


def end_of(row: Row) -> BlockEnd:
    """Return the end of a block in the columns of ``END_COLUMNS``."""
    condition, block, number, controls, void, void_level, gap = row
    _wanted("end of a block", isinstance(condition, str) and all(isinstance(n, int) for n in (block, number)))
    _wanted("end of a block", all(text is None or isinstance(text, str) for text in (void, void_level)))
    return BlockEnd(condition, block, number, bool(controls), void, void_level, bool(gap))


def event_of(row: Row) -> Event:
    """Return the event in the columns at, kind, text."""
    _wanted("event", all(isinstance(text, str) for text in row))
    return Event(*row)


def state_of(name: object) -> TrialState:
    """Return the state of this name; StoreError if it is unknown."""
    if name not in list(TrialState):
        raise StoreError(f"holds an unknown state: {str(name)[:40]!r}")
    return TrialState(str(name))


def number_of(value: object) -> float:
    """Return a row's value as a finite number."""
    _wanted("time", is_number(value))
    return float(value)  # type: ignore[arg-type]


def text_of(value: object) -> str | None:
    """Return a row's value as text or None."""
    _wanted("text", value is None or isinstance(value, str))
    return None if value is None else str(value)


def observed(end: BlockEnd, runs: Iterable[RunRecord]) -> ObservedBlock:
    """Return a complete block for the analysis: its runs in the order they were made."""
    made = tuple(runs)
    return ObservedBlock(
        condition=end.condition,
        index=end.block,
        observations=tuple(map(observation_of, made)),
        void=end.void,
        void_level=end.void_level,
        gap=end.gap,
        wash_in=washed_in(made),
    )


def observation_of(run: RunRecord) -> Observation:
    """Return a run for the analysis. Raises StoreError for an unknown kind of arm."""
    return Observation(
        arm=run.arm,
        kind=_arm_kind(run.kind),
        treatment=run.treatment,
        slot=run.slot,
        started_s=run.started_s,
        responses=run.responses,
        failure=run.failure,
        after_other=run.checks.get(WASH_IN) == DRAWN_OTHER,
        after_itself=run.checks.get(WASH_IN) == AFTER_ITSELF,
        parts=parts_of(run.checks) if WINDOW in run.checks else None,
    )


def washed_in(runs: Iterable[RunRecord]) -> WashIn | None:
    """Return the unmeasured runs that went before each run of a block; StoreError if they are of an unknown kind."""
    for run in runs:
        if run.checks.get(WASH_IN, AFTER_ITSELF) != AFTER_ITSELF:
            return _wash_in_of(run.checks[WASH_IN])
    return None


def wash_in_check(wash_in: WashIn, *, other: bool) -> object:
    """Return a wash-in as the runs of its block store it. ``other``: of a drawn one, the level was not the run's own."""
    if wash_in == WashIn():
        return True  # as stored by versions that had one kind only
    if wash_in.before is Before.DRAWN:
        return DRAWN_OTHER if other else DRAWN_OWN
    return f"{wash_in.before} {wash_in.runs}"


def _wash_in_of(stored: object) -> WashIn | None:
    if isinstance(stored, bool):
        return WashIn() if stored else None
    if stored in (DRAWN_OTHER, DRAWN_OWN):
        return WashIn(Before.DRAWN)
    before, _, runs = str(stored).partition(" ")
    _wanted("wash-in", before in (Before.REFERENCE, Before.SAME) and runs.isdecimal() and len(runs) < 3)
    return WashIn(Before(before), int(runs))


def to_json(value: object) -> str:
    """Return compact JSON; StoreError for what JSON cannot hold, such as a response that is not a number."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
    except (TypeError, ValueError) as error:
        raise StoreError(f"cannot be stored: {error}") from error


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def _from_json(text: object) -> Any:
    if not isinstance(text, str):
        raise StoreError("holds a damaged record: expected JSON text")
    try:
        value = json.loads(text)
        if "\\ud" in text.lower():  # a lone surrogate, which cannot be printed
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise StoreError(f"holds a damaged record: {str(error)[:200]}") from error
    return value


def object_of(text: object) -> dict[str, Any]:
    """Return the object in a JSON text; StoreError for anything else."""
    value = _from_json(text)
    _wanted("record", isinstance(value, dict))
    found: dict[str, Any] = value
    return found


def _wanted(what: str, holds: object) -> None:
    if not holds:
        raise StoreError(f"holds a damaged record: a {what} of another shape")


def _is_histogram(bins: object) -> bool:
    return isinstance(bins, list) and all(
        isinstance(pair, list) and len(pair) == 2 and all(isinstance(n, int) for n in pair) for pair in bins
    )


def _arm_kind(name: str) -> ArmKind:
    kind = _ARM_KINDS.get(name)
    if kind is None:
        raise StoreError(f"holds a damaged record: unknown kind of arm {name[:40]!r}")
    return kind
