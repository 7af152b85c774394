"""The records of a packed trial: from frozen values to JSON and back, each field with its type and its limit."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from iotrial.design.model import ArmKind
from iotrial.store.model import BlockEnd, Event, RunRecord, TrialHeader, TrialState
from iotrial.store.schema import IMPORTED
from iotrial.study.codec import study_from_json, study_to_json
from iotrial.study.schema import shown

MAX_BLOCK = 1_000_000
MAX_SLOT = 100_000
MAX_ATTEMPTS = 10_000
MAX_REASON = 8192
MAX_LINE_TEXT = 512
MAX_CONDITION = 16384
MAX_NUMBERS = 512
MAX_HISTOGRAMS = 64
MAX_BINS = 8192
MAX_FACTS = 4096
MAX_FILES = 256
MAX_VALUE = 1e18
MAX_UNIX_S = 1e11
MAX_SPAN_S = 1e10

_Whole = Annotated[int, Meta(ge=0)]
_Histograms = dict[str, list[Annotated[list[_Whole], Meta(min_length=2, max_length=2)]]]

OPTIONS = (
    "argv",
    "time_s",
    "blocks",
    "no_stop",
    "precise",
    "controls",
    "controls_first",
    "design_rows",
    "budget_share",
    "asked",
    "lab",
)
"""What a packed trial keeps of how its user asked. The rest are folders and processes of another machine."""

_ID = re.compile(r"[0-9a-f]{8,64}")
_SEED = re.compile(r"[0-9a-f]{32}")
_KIND = re.compile(r"[a-z][a-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class PackedState:
    """A change of state, without the conductor's process, which means nothing elsewhere. ``at_s`` is Unix time."""

    at_s: float
    state: TrialState
    reason: str | None


@dataclass(frozen=True, slots=True)
class PackedRun:
    """A run, its attempt, and when it was stored (Unix time)."""

    run: RunRecord
    attempt: int
    at_s: float


PackedRecord = TrialHeader | PackedState | PackedRun | BlockEnd | Event


def to_value(record: PackedRecord) -> tuple[str, dict[str, Any]]:
    """Return the kind of a record and its fields, ready for JSON."""
    match record:
        case TrialHeader():
            return "trial", {**_plain(record), "study": study_to_json(record.study)}
        case PackedState():
            return "state", {"at": record.at_s, "state": record.state.value, "reason": record.reason}
        case PackedRun():
            return "run", {"attempt": record.attempt, "at": record.at_s, **_plain(record.run)}
        case BlockEnd():
            return "block_end", _plain(record)
        case Event():
            return "event", _plain(record)


def from_value(kind: str, value: object, where: str) -> PackedRecord:
    """Return the record of this kind. ValueError or StudyError if a field is missing, unknown or out of bounds."""
    table = _Fields(value)
    makers: dict[str, Callable[[_Fields, str], PackedRecord]] = {
        "trial": _trial,
        "state": _state,
        "run": _run,
        "block_end": _end,
        "event": _event,
    }
    if kind not in makers:
        raise ValueError(f"no record is called {shown(kind)}")
    record = makers[kind](table, where)
    table.check_all_read()
    return record


def _plain(record: Any) -> dict[str, Any]:
    found = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if isinstance(value, Mapping):
            value = dict(value)
        found[field.name] = list(value) if isinstance(value, tuple) else value
    return found


class _Fields:
    """The fields of one record, each read once."""

    def __init__(self, value: object) -> None:
        if not isinstance(value, dict):
            raise ValueError("wanted an object")
        self._left = dict(value)

    def check_all_read(self) -> None:
        for name in self._left:
            raise ValueError(f"unknown key {shown(name)}")

    def take(self, name: str) -> Any:
        if name not in self._left:
            raise ValueError(f'lacks "{name}"')
        return self._left.pop(name)

    def text(self, name: str, longest: int = MAX_LINE_TEXT) -> str:
        return _text(self.take(name), name, longest)

    def matching(self, name: str, pattern: re.Pattern[str]) -> str:
        text = self.text(name)
        if not pattern.fullmatch(text):
            raise ValueError(f'"{name}" is not of the form {pattern.pattern}')
        return text

    def text_or_none(self, name: str, longest: int = MAX_LINE_TEXT) -> str | None:
        value = self.take(name)
        return None if value is None else _text(value, name, longest)

    def whole(self, name: str, least: int, most: int) -> int:
        value = self.take(name)
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f'"{name}": wanted a whole number from {least} to {most}, found {shown(value)}')
        return value

    def number(self, name: str, least: float, most: float) -> float:
        return _number(self.take(name), name, least, most)

    def flag(self, name: str) -> bool:
        value = self.take(name)
        if not isinstance(value, bool):
            raise ValueError(f'"{name}": wanted true or false, found {shown(value)}')
        return value

    def table(self, name: str, most: int) -> dict[str, Any]:
        value = self.take(name)
        if not isinstance(value, dict):
            raise ValueError(f'"{name}": wanted an object')
        if len(value) > most or (value and max(map(len, value)) > MAX_LINE_TEXT):
            raise ValueError(f'"{name}": wanted at most {most} short keys')
        return value

    def numbers(self, name: str, least: float) -> dict[str, float]:
        found = self.table(name, MAX_NUMBERS)
        # most of a file is numbers: one call per number would dominate the time
        return {
            key: float(value)
            if type(value) in (float, int) and least <= value <= MAX_VALUE
            else _number(value, f"{name}.{key}", least, MAX_VALUE)
            for key, value in found.items()
        }

    def moment(self, name: str) -> str:
        text = self.text(name, 40)
        try:
            year = datetime.fromisoformat(text).year
        except ValueError:
            raise ValueError(f'"{name}": wanted a time as ISO 8601 writes it, found {shown(text)}') from None
        if not 1970 <= year <= 9000:
            raise ValueError(f'"{name}": no trial ran in the year {year}')
        return text


def _text(value: object, name: str, longest: int) -> str:
    if not isinstance(value, str) or len(value) > longest:
        raise ValueError(f'"{name}": wanted text of at most {longest} characters, found {shown(value)}')
    return value


def _number(value: object, name: str, least: float, most: float) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or not least <= value <= most:  # type: ignore[arg-type,operator]
        raise ValueError(f'"{name}": wanted a number from {least:g} to {most:g}, found {shown(value)}')
    return float(value)  # type: ignore[arg-type]


def _trial(table: _Fields, where: str) -> TrialHeader:
    study = study_from_json(table.take("study"), origin=where, foreign=True)
    options = _options(table.table("options", len(OPTIONS)))
    return TrialHeader(
        id=table.matching("id", _ID),
        study=study,
        seed=table.matching("seed", _SEED),
        seed_chosen=table.flag("seed_chosen"),
        alpha=table.number("alpha", 1e-12, 0.5),
        margin=table.number("margin", 1e-12, 1.0),
        started=table.moment("started"),
        lab=check_facts(table.table("lab", MAX_NUMBERS), "lab"),
        host=check_facts(table.table("host", MAX_NUMBERS), "host"),
        options=options,
        version=table.text("version", 64),
    )


def _options(given: dict[str, Any]) -> dict[str, Any]:
    table = _Fields(given)
    checks: dict[str, Any] = {
        "argv": lambda: _words(table.take("argv"), "argv"),
        "asked": lambda: _words(table.take("asked"), "asked"),
        "time_s": lambda: table.number("time_s", 0, MAX_SPAN_S),
        "blocks": lambda: table.whole("blocks", 0, 2 * MAX_BLOCK),
        "no_stop": lambda: table.flag("no_stop"),
        "precise": lambda: table.flag("precise"),
        "controls": lambda: table.flag("controls"),
        "controls_first": lambda: table.whole("controls_first", 0, 2 * MAX_BLOCK),
        "design_rows": lambda: _words(table.take("design_rows"), "design_rows"),
        "budget_share": lambda: table.number("budget_share", 0, 1),
        "lab": lambda: table.text("lab", 64),
    }
    found = {name: checks[name]() for name in given if name in checks}
    table.check_all_read()
    return found


def _words(value: object, name: str) -> list[str]:
    if not isinstance(value, list) or len(value) > 1024:
        raise ValueError(f'"{name}": wanted a list of words')
    return [_text(word, name, 4096) for word in value]


def check_facts(facts: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the facts, of any shape; ValueError if they are too many or too long for a report."""
    count = 1
    waiting: list[dict[str, Any] | list[Any]] = [facts]
    while waiting:
        holder = waiting.pop()
        count += len(holder)
        if count > MAX_FACTS:
            raise ValueError(f'"{name}": more than {MAX_FACTS} facts')
        for key in holder if isinstance(holder, dict) else ():
            if len(key) > MAX_LINE_TEXT:
                _text(key, name, MAX_LINE_TEXT)
        for value in holder.values() if isinstance(holder, dict) else holder:
            if isinstance(value, str):
                if len(value) > MAX_REASON:
                    _text(value, name, MAX_REASON)
            elif isinstance(value, dict | list):
                waiting.append(value)
    return facts


def _state(table: _Fields, _where: str) -> PackedState:
    name = table.text("state")
    if name not in list(TrialState):
        raise ValueError(f"no state is called {shown(name)}")
    at_s = table.number("at", 0, MAX_UNIX_S)
    return PackedState(at_s, TrialState(name), table.text_or_none("reason", MAX_REASON))


def _run(table: _Fields, _where: str) -> PackedRun:
    kind = table.text("kind")
    if kind not in list(ArmKind):
        raise ValueError(f"no kind of arm is called {shown(kind)}")
    run = RunRecord(
        condition=table.text("condition", MAX_CONDITION),
        block=table.whole("block", 0, MAX_BLOCK),
        slot=table.whole("slot", 0, MAX_SLOT),
        arm=table.text("arm", MAX_CONDITION),
        kind=kind,
        treatment={
            key: _text(value, "treatment", MAX_LINE_TEXT)
            for key, value in table.table("treatment", 64).items()
        },
        started_s=table.number("started_s", -MAX_SPAN_S, MAX_SPAN_S),
        failure=table.text_or_none("failure", MAX_REASON),
        responses=table.numbers("responses", 0.0),
        evidence=table.numbers("evidence", -MAX_VALUE),
        histograms=_histograms(table.table("histograms", MAX_HISTOGRAMS)),
        checks=check_facts(table.table("checks", MAX_NUMBERS), "checks"),
        files=_files(table.take("files")),
    )
    return PackedRun(run, table.whole("attempt", 1, MAX_ATTEMPTS), table.number("at", 0, MAX_UNIX_S))


def _histograms(given: dict[str, Any]) -> dict[str, Any]:
    for bins in given.values():
        if not isinstance(bins, list) or len(bins) > MAX_BINS:
            raise ValueError(f"a histogram is a list of at most {MAX_BINS} pairs")
    try:  # histograms are most of a trial's records: checking each value in Python would dominate the time
        return msgspec.convert(given, _Histograms)
    except msgspec.ValidationError:
        raise ValueError("a histogram is a list of pairs, nanoseconds and count") from None


def _files(value: object) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) > MAX_FILES or any(type(n) is not int for n in value):
        raise ValueError(f'"files": wanted null or a list of at most {MAX_FILES} whole numbers')
    return tuple(value)


def _end(table: _Fields, _where: str) -> BlockEnd:
    return BlockEnd(
        condition=table.text("condition", MAX_CONDITION),
        block=table.whole("block", 0, MAX_BLOCK),
        round=table.whole("round", 0, 2 * MAX_BLOCK),
        controls=table.flag("controls"),
        void=table.text_or_none("void"),
        void_level=table.text_or_none("void_level", MAX_CONDITION),
        gap=table.flag("gap"),
    )


def _event(table: _Fields, _where: str) -> Event:
    kind = table.matching("kind", _KIND)
    if kind == IMPORTED:
        raise ValueError(f'an event of kind "{IMPORTED}" belongs to a store, not to a packed trial')
    return Event(at=table.moment("at"), kind=kind, text=table.text("text", MAX_REASON))
