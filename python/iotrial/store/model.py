"""Stored records as frozen values: a trial, its runs, and what happened in it.

The limits of the fields hold for records from elsewhere, in a packed trial or from another host (``packed.records``). A
store on this machine has been written by a conductor, and is read without them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta

from iotrial.design.model import ArmKind
from iotrial.stats.model import ObservedBlock
from iotrial.store.states import TrialState
from iotrial.study.model import Study
from iotrial.study.schema import Form, fitting, formed, one_of, shown

__all__ = [
    "AccountedCall", "AccountedRequests", "BlockEnd", "Continuation", "DamagedTrial", "Event", "RunRecord", "StoredTrial",
    "TrialData", "TrialHeader", "TrialState", "shared_disks_in_words",
]  # fmt: skip

MAX_BLOCK = 1_000_000
MAX_SLOT = 100_000
MAX_REASON = 8192
MAX_LINE_TEXT = 512
MAX_CONDITION = 16384
MAX_NUMBERS = 512
MAX_HISTOGRAMS = 64
MAX_BINS = 8192
MAX_FACTS = 4096
MAX_FILES = 256
MAX_VALUE = 1e18
MAX_SPAN_S = 1e10


def check_facts(facts: Mapping[str, Any]) -> None:
    """Raise ValueError if facts, of any shape, are too many or too long for a report."""
    count = 1
    waiting: list[Mapping[str, Any] | list[Any]] = [facts]
    while waiting:
        holder = waiting.pop()
        count += len(holder)
        if count > MAX_FACTS:
            raise ValueError(f"more than {MAX_FACTS} facts")
        for key in holder if isinstance(holder, Mapping) else ():
            if len(key) > MAX_LINE_TEXT:
                raise ValueError(
                    f"the name of a fact has at most {MAX_LINE_TEXT} characters, found {shown(key)}"
                )
        for value in holder.values() if isinstance(holder, Mapping) else holder:
            if isinstance(value, str):
                if len(value) > MAX_REASON:
                    raise ValueError(f"a fact has at most {MAX_REASON} characters, found {shown(value)}")
            elif isinstance(value, dict | list):
                waiting.append(value)


def check_moment(text: str) -> None:
    """Raise ValueError unless the text is a time as ISO 8601 writes it, in a year in which trials may run."""
    try:
        year = datetime.fromisoformat(text).year
    except ValueError:
        raise ValueError(f"wanted a time as ISO 8601 writes it, found {shown(text)}") from None
    if not 1970 <= year <= 9000:
        raise ValueError(f"no trial ran in the year {year}")


_ID = Annotated[str, formed(Form("id", check=fitting(re.compile("[0-9a-f]{8,64}"), "trial's id")))]
_Seed = Annotated[str, formed(Form("seed", check=fitting(re.compile("[0-9a-f]{32}"), "seed")))]
_EventKind = Annotated[
    str, formed(Form("kind", check=fitting(re.compile("[a-z][a-z0-9_-]{0,63}"), "kind of event")))
]
_Line = Annotated[str, Meta(max_length=MAX_LINE_TEXT)]
_Long = Annotated[str, Meta(max_length=MAX_CONDITION)]
_Reason = Annotated[str, Meta(max_length=MAX_REASON)]
_Moment = Annotated[str, Meta(max_length=40), formed(Form("time", check=check_moment))]
_Facts = Annotated[
    Mapping[str, object], Meta(max_length=MAX_NUMBERS), formed(Form("facts", check=check_facts))
]
_Block = Annotated[int, Meta(ge=0, le=MAX_BLOCK)]
_Measured = Annotated[float, Meta(ge=0, le=MAX_VALUE)]
_Number = Annotated[float, Meta(ge=-MAX_VALUE, le=MAX_VALUE)]
_Whole = Annotated[int, Meta(ge=0)]
_Pair = Annotated[Sequence[_Whole], Meta(min_length=2, max_length=2)]
_Bins = Annotated[Sequence[_Pair], Meta(max_length=MAX_BINS)]
_Histograms = Annotated[
    Mapping[_Line, _Bins],
    Meta(max_length=MAX_HISTOGRAMS, description="by operation, as pairs of nanoseconds and count"),
]


@dataclass(frozen=True, slots=True)
class TrialHeader:
    """Everything known of a trial before its first run.

    ``study`` is the study as run (after ``--set``, ``--condition`` ...), ``seed`` 32 hexadecimal digits.
    ``lab``, ``host`` and ``options`` are JSON objects: the places made and their settings, facts of the
    machine, and the user's options (``time_s``, ``blocks``, ``no_stop``, ``controls``, the command line).
    """

    id: _ID
    study: Study
    seed: _Seed
    seed_chosen: bool
    alpha: Annotated[float, Meta(ge=1e-12, le=0.5)]
    margin: Annotated[float, Meta(ge=1e-12, le=1)]
    started: _Moment
    lab: _Facts
    host: _Facts
    options: Mapping[str, object]
    version: Annotated[str, Meta(max_length=64)]


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run as measured. Times in seconds since the trial began; responses in their declared units.

    ``evidence`` holds further numbers (device counters, faults, residency), ``histograms`` latency histograms
    by operation as ``[[nanoseconds, count], ...]``, ``checks`` what was verified and found.
    """

    condition: _Long
    block: _Block
    slot: Annotated[int, Meta(ge=0, le=MAX_SLOT)]
    arm: _Long
    kind: Annotated[str, one_of(*ArmKind)]
    treatment: Annotated[Mapping[_Line, _Line], Meta(max_length=64)]
    started_s: Annotated[float, Meta(ge=-MAX_SPAN_S, le=MAX_SPAN_S)]
    failure: _Reason | None = None
    responses: Annotated[Mapping[_Line, _Measured], Meta(max_length=MAX_NUMBERS)] = field(
        default_factory=dict
    )
    evidence: Annotated[Mapping[_Line, _Number], Meta(max_length=MAX_NUMBERS)] = field(default_factory=dict)
    histograms: _Histograms = field(default_factory=dict)
    checks: _Facts = field(default_factory=dict)
    files: Annotated[tuple[int, ...], Meta(max_length=MAX_FILES)] | None = None


#: Key among the checks of a run that followed a neutral, unmeasured one.
WASH_IN = "wash_in"


@dataclass(frozen=True, slots=True)
class BlockEnd:
    """The end of a block: complete, or dropped by the void rule ``void``."""

    condition: _Long
    block: _Block
    round: Annotated[int, Meta(ge=0, le=2 * MAX_BLOCK)]
    controls: bool
    void: _Line | None = None
    void_level: _Long | None = None
    gap: bool = False


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened during a trial and is not an observation. ``at`` is ISO 8601 in UTC."""

    at: _Moment
    kind: _EventKind
    text: _Reason


@dataclass(frozen=True, slots=True)
class Continuation:
    """The continuation of a trial that had ended.

    ``at`` is ISO 8601 in UTC. ``time_s`` (seconds of measuring) and ``blocks`` (per condition) are the new
    limits of the whole trial. ``no_stop``: do not stop when everything is decided.
    """

    at: str
    time_s: Annotated[float, Meta(ge=0, description="Seconds of measuring in all.")]
    blocks: Annotated[int, Meta(ge=0, description="Blocks of each condition in all.")]
    no_stop: Annotated[bool, Meta(description="Whether it went on where all was decided.")]


@dataclass(frozen=True, slots=True)
class AccountedCall:
    """One system call in one accounted repetition of an arm, over its whole process tree; never part of a timed run.

    ``errors`` by errno as text, ``histogram`` of times as ``[[longest nanoseconds, count], ...]``.
    """

    condition: str
    arm: str
    treatment: Mapping[str, str]
    repetition: int
    name: str
    count: int
    errors: Mapping[str, int]
    total_ns: int
    histogram: Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class AccountedRequests:
    """Requests of one kind to the lab's device in one accounted repetition of an arm; never part of a timed run.

    Kinds are ``read``, ``write``, ``flush``, ``discard`` and ``other``. Times go from when the kernel made a
    request to its completion; ``histogram`` has them as ``[[longest nanoseconds of the bar, count], ...]``,
    four bars an octave. Reads and writes are recorded even if there were none. ``alone``: only requests of
    the work and of the sync after it; earlier trials also counted those of the probe's checks of the work.
    """

    condition: str
    arm: str
    treatment: Mapping[str, str]
    repetition: int
    kind: str
    count: int
    total_ns: int
    histogram: Sequence[Sequence[int]]
    alone: bool = False


WITH_CHECKS = "accounted requests are counted with the checks after the work: this trial is from before they were left out"


def with_checks(requests: Sequence[AccountedRequests]) -> bool:
    """Return whether some counts include the requests of the probe's checks of the work."""
    return not all(one.alone for one in requests)


@dataclass(frozen=True, slots=True)
class StoredTrial:
    """One trial as the store lists it. ``imported``: the origin of a trial that was measured elsewhere."""

    number: int
    header: TrialHeader
    state: TrialState
    duration_s: float
    reason: str | None = None
    imported: str | None = None


@dataclass(frozen=True, slots=True)
class DamagedTrial:
    """A trial that the store lists but cannot read, and the problem."""

    number: int
    problem: str


@dataclass(frozen=True, slots=True)
class TrialData:
    """One trial with everything measured, in time order.

    - ``blocks``: complete ones only, void ones marked.
    - ``calls`` and ``requests``: counts of repetitions that were accounted instead of timed.
      ``not_accounted``: what could not be counted, and why.
    - ``continued``: each continuation after its end, with its limits.
    - ``outside``: what the work used outside the lab. ``unused``: conditions in which no run used the device
      under test.
    """

    trial: StoredTrial
    blocks: tuple[ObservedBlock, ...]
    runs: tuple[RunRecord, ...]
    ends: tuple[BlockEnd, ...]
    calls: tuple[AccountedCall, ...] = ()
    requests: tuple[AccountedRequests, ...] = ()
    not_accounted: tuple[str, ...] = ()
    continued: tuple[Continuation, ...] = ()
    outside: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()

    @property
    def remarks(self) -> tuple[str, ...]:
        """Caveats of the trial that hold whatever its blocks show."""
        return (*self.outside, *((WITH_CHECKS,) if with_checks(self.requests) else ()))


def shared_disks_in_words(stored: Sequence[Mapping[str, object]]) -> tuple[str, ...]:
    """Return the caveats on places that share disks, one sentence each, from what ``Together.facts`` stored."""
    found = []
    for one in stored:
        places, disks = _joined(one.get("places")), _joined(one.get("disks"))
        if one.get("compared"):
            found.append(
                f"places {places} lie on one disk ({disks}): this compares that disk with itself (an A/A test), and says "
                "nothing of two devices; name a folder on another disk with --place NAME=FOLDER"
            )
        elif one.get("log"):
            found.append(
                f"the log ({one['log']}) lies on the same disk as the file system ({disks}): what is seen is the cost of a "
                f"second device over one disk; name a folder on another disk with --place {one['log']}=FOLDER"
            )
        else:
            found.append(f"places {places} lie on one disk ({disks})")
    return tuple(found)


def _joined(names: object) -> str:
    words = [str(name) for name in names] if isinstance(names, list | tuple) else []
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
