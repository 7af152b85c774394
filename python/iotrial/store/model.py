"""Stored records as frozen values: a trial, its runs, and what happened in it.

The limits of the fields (``store.limits``) hold for records from elsewhere: in a packed trial or from another host. What is
read from the user's own store was written by a conductor on this machine, and is only checked for its shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from iotrial.design.model import ArmKind
from iotrial.stats.model import ObservedBlock
from iotrial.store import limits
from iotrial.store.states import TrialState
from iotrial.study.model import Study
from iotrial.study.schema import one_of

__all__ = [
    "AccountedCall", "AccountedRequests", "BlockEnd", "Continuation", "DamagedTrial", "Event", "PowerCuts", "RunRecord",
    "StoredTrial", "TrialData", "TrialHeader", "TrialState",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class TrialHeader:
    """Everything known of a trial before its first run.

    ``study`` is the study as run (after ``--set``, ``--condition`` ...), ``seed`` 32 hexadecimal digits.
    ``lab``, ``host`` and ``options`` are JSON objects: the places made and their settings, facts of the
    machine, and the user's options (``time_s``, ``blocks``, ``no_stop``, ``controls``, the command line).
    """

    id: limits.Id
    study: Study
    seed: limits.Seed
    seed_chosen: bool
    alpha: Annotated[float, Meta(ge=1e-12, le=0.5)]
    margin: Annotated[float, Meta(ge=1e-12, le=1)]
    started: limits.Moment
    lab: limits.Facts
    host: limits.Facts
    options: Mapping[str, object]
    version: Annotated[str, Meta(max_length=64)]


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run as measured. Times in seconds since the trial began; responses in their declared units.

    ``evidence`` holds further numbers (device counters, faults, residency), ``histograms`` latency histograms
    by operation as ``[[nanoseconds, count], ...]``, ``checks`` what was verified and found.
    """

    condition: limits.Text
    block: limits.Block
    slot: Annotated[int, Meta(ge=0, le=limits.MAX_SLOT)]
    arm: limits.Text
    kind: Annotated[str, one_of(*ArmKind)]
    treatment: Annotated[Mapping[limits.Line, limits.Line], Meta(max_length=64)]
    started_s: Annotated[float, Meta(ge=-limits.MAX_SPAN_S, le=limits.MAX_SPAN_S)]
    failure: limits.Reason | None = None
    responses: limits.Responses = field(default_factory=dict)
    evidence: limits.Evidence = field(default_factory=dict)
    histograms: limits.Histograms = field(default_factory=dict)
    checks: limits.Facts = field(default_factory=dict)
    files: Annotated[tuple[int, ...], Meta(max_length=limits.MAX_FILES)] | None = None


#: Key among the checks of a run that followed a neutral, unmeasured one.
WASH_IN = "wash_in"
#: values of it, where the level of the unmeasured run was drawn
DRAWN_OWN, DRAWN_OTHER = "drawn own", "drawn other"
#: value of it in a run after an unmeasured run of the same arm, without a wash-in
AFTER_ITSELF = "after itself"


@dataclass(frozen=True, slots=True)
class BlockEnd:
    """The end of a block: complete, or dropped by the void rule ``void``."""

    condition: limits.Text
    block: limits.Block
    round: Annotated[int, Meta(ge=0, le=2 * limits.MAX_BLOCK)]
    controls: bool
    void: limits.Line | None = None
    void_level: limits.Text | None = None
    gap: bool = False


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened during a trial and is not an observation. ``at`` is ISO 8601 in UTC."""

    at: limits.Moment
    kind: limits.EventKind
    text: limits.Reason


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


WITH_CHECKS = "accounted requests include the checks after the work: this trial is from an older version"


def with_checks(requests: Sequence[AccountedRequests]) -> bool:
    """Return whether some counts include the requests of the probe's checks of the work."""
    return not all(one.alone for one in requests)


@dataclass(frozen=True, slots=True)
class PowerCuts:
    """What was left of one untimed run of an arm after its power was cut: at each of ``points`` drawn points of the run, the
    disk was rebuilt as it may have been left, recovered, and checked for what had been acknowledged to the run by then.

    Points at which something was wrong, a point may count several times: ``lossy``, ``corrupt``, ``needs_fsck``,
    ``unmountable``. ``requests`` and ``flushes``: of the run, in the log of the disk. ``examples``: what was found, a few
    lines.
    """

    condition: limits.Text
    arm: limits.Text
    treatment: Annotated[Mapping[limits.Line, limits.Line], Meta(max_length=64)]
    repetition: limits.Cases
    points: Annotated[int, Meta(ge=1, le=limits.MAX_CASES)]
    lossy: Annotated[limits.Cases, Meta(description="Acknowledged items were missing.")]
    corrupt: Annotated[
        limits.Cases, Meta(description="A file or row held something else than what had been written.")
    ]
    needs_fsck: Annotated[limits.Cases, Meta(description="The file system had to be repaired.")]
    unmountable: Annotated[limits.Cases, Meta(description="It could not be mounted before that.")]
    acknowledged: Annotated[limits.Cases, Meta(description="Items acknowledged by the end of a run.")]
    most_lost: Annotated[limits.Cases, Meta(description="The most acknowledged items missing at one point.")]
    requests: limits.Cases
    flushes: limits.Cases
    examples: Annotated[tuple[limits.Line, ...], Meta(max_length=8)] = ()

    @property
    def bad(self) -> tuple[int, ...]:
        """The counts of points at which something was wrong."""
        return (self.lossy, self.corrupt, self.needs_fsck, self.unmountable)


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
    - ``guarded``: why a guard has ended a live trial. ``taken_back``: what the watchdog of a live trial has done.
    - ``cuts``: what power cuts left of untimed runs; ``not_cut``: why some were not done.
    - ``time_spent``: seconds of all attempts by what they were spent on, the longest first; empty for a trial that did not
      record it.
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
    guarded: tuple[str, ...] = ()
    taken_back: tuple[str, ...] = ()
    cuts: tuple[PowerCuts, ...] = ()
    not_cut: tuple[str, ...] = ()
    time_spent: Mapping[str, float] = field(default_factory=dict)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Caveats of the trial that hold whatever its blocks show."""
        return (*self.outside, *((WITH_CHECKS,) if with_checks(self.requests) else ()))


def objects_in(facts: Mapping[str, object], name: str) -> list[Mapping[str, object]]:
    """Return the objects in the list of this name among stored facts; an imported trial may hold anything there."""
    found = facts.get(name)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list | tuple) else []
