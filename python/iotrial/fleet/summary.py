"""Summary of each host's trial for the fleet's verdict: primary effects, validity, properties.

Smaller than the host's own report: only what a fleet's report uses is computed, so that 1,000 hosts with
1,000 blocks each can be summarised. Effects and controls are computed by the same functions as in the host's
own report.

Many hosts are summarised on all processors, by processes of this module that read the store. Summaries of
ended trials are cached in the analyses file (``iotrial.report.analyses``), in a table of their own.
"""

from __future__ import annotations

import os
import pickle
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from iotrial.errors import IotrialError
from iotrial.report.analyses import VERSION, opened, sealed, unsealed
from iotrial.report.durability import measured_risks, risks_found
from iotrial.report.opening import spec_of
from iotrial.report.safety import Risks
from iotrial.stats.analyse import analyse_condition
from iotrial.stats.carryover import in_words
from iotrial.stats.model import Effect
from iotrial.stats.voids import compare_void_rates
from iotrial.store import Store
from iotrial.store.model import TrialHeader, objects_in
from iotrial.store.not_tried import why_not_tried
from iotrial.store.outline import Outline
from iotrial.store.packed.consistency import check_stored
from iotrial.store.states import TrialState
from iotrial.terminal import escape
from iotrial.workers import end_worker, start_worker

#: trials; with fewer, starting a process costs more than it saves
FEWEST = 16
MOST_PROCESSES = 16
_LONGEST_VALUE = 120
_TABLE = """
CREATE TABLE IF NOT EXISTS host (
    trial TEXT PRIMARY KEY, mark TEXT NOT NULL, method TEXT NOT NULL, content BLOB NOT NULL
) STRICT
"""

Numbered = tuple[int, str]  # number and host


@dataclass(frozen=True, slots=True)
class HostTrial:
    """One host's trial.

    ``effects``: the primary ones. ``blocks``: complete ones, including void ones. If there is
    a ``problem``, only names are known. ``invalid``: why its controls fail. ``controlled``: whether it
    had any.
    """

    number: int
    id: str
    host: str
    study: str
    question: str
    state: TrialState
    started: str
    duration_s: float
    alpha: float
    margin: float
    blocks: int = 0
    void: int = 0
    reason: str | None = None
    problem: Annotated[str | None, Meta(description="Why the trial cannot be read.")] = None
    invalid: tuple[str, ...] = ()
    controlled: bool = True
    effects: tuple[Effect, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    risks: Risks = field(default_factory=dict)


def summary_of(store: Store, number: int, host: str) -> HostTrial:
    """Read and analyse one trial. Raises what ``Store.data`` raises."""
    data = store.data(number)
    check_stored(data)
    trial = data.trial
    header = trial.header
    spec = spec_of(header)
    effects: list[Effect] = []
    reasons: list[str] = []
    for condition in spec.conditions:
        found = analyse_condition(
            spec,
            condition.key,
            [block for block in data.blocks if block.condition == condition.key],
            data.blocks,
            why_not_tried=partial(why_not_tried, header.study, data.runs, header.host),
        )
        effects += found.effects
        reasons += [f"{one.response} {_missed(one.kind)}" for one in found.controls if not one.passed]
        if found.carry_over is not None and not found.carry_over.passed:
            reasons.append(in_words(found.carry_over))
    reasons += compare_void_rates(data.blocks)[1]
    return HostTrial(
        number=trial.number,
        id=header.id,
        host=host,
        study=header.study.name,
        question=header.study.question,
        state=trial.state,
        started=header.started,
        duration_s=trial.duration_s,
        alpha=header.alpha,
        margin=header.margin,
        blocks=len(data.blocks),
        void=sum(block.void is not None for block in data.blocks),
        reason=trial.reason,
        invalid=tuple(reasons),
        controlled=spec.controls,
        effects=tuple(effects),
        properties=properties_of(header),
        risks=risks_found(header.study, measured_risks(data.cuts, header.study)),
    )


def properties_of(header: TrialHeader) -> dict[str, str]:
    """Return the properties that hosts are grouped by, as text: kernel, system, processor, lab, file system, disk model."""
    host, lab = header.host, header.lab
    listed = objects_in(lab, "places")
    found: dict[str, object] = {
        "kernel": host.get("kernel"),
        "system": host.get("system"),
        "processor": host.get("processor"),
        "processors": host.get("processors"),
        "virtual": "yes" if host.get("virtual") else "no",
        "lab": lab.get("kind"),
        "file system": _all(place.get("filesystem") for place in listed),
        "disk": _all(place.get("model") for place in listed),
        "iotrial": header.version,
    }
    return {
        name: escape(str(value))[:_LONGEST_VALUE] for name, value in found.items() if value not in (None, "")
    }


def _missed(kind: str) -> str:
    return (
        "finds a difference between identical arms"
        if kind == "negative"
        else "does not find the injected slowdown"
    )


def _all(values: Iterator[object]) -> str | None:
    found = dict.fromkeys(str(value) for value in values if value)
    return ", ".join(found) or None


def summed_up(
    store: Store, trials: Sequence[Outline], on_progress: Callable[[int], None] | None = None
) -> Iterator[HostTrial]:
    """Yield the summary of each trial, in order; a trial that cannot be read has a ``problem``.

    ``on_progress`` is called with the number of trials done.
    """
    stored = opened(store.path, (_TABLE,))
    known = {one.number: _stored(stored, one) for one in trials}
    missing = [(one.number, one.member or "") for one in trials if known[one.number] is None]
    computed = summaries(store, missing)
    try:
        for done, one in enumerate(trials, start=1):
            found = known[one.number]
            if found is None:
                answer = next(computed)
                found = _unread(one, answer.message) if isinstance(answer, IotrialError) else answer
                if found.problem is None and one.state is not TrialState.RUNNING:
                    _store(stored, one, found)
            yield found
            if on_progress is not None:
                on_progress(done)
    finally:
        computed.close()
        if stored is not None:
            stored.close()


def _unread(one: Outline, problem: str) -> HostTrial:
    return HostTrial(
        number=one.number,
        id=one.id,
        host=one.member or "",
        study=one.study,
        question="",
        state=one.state or TrialState.FAILED,
        started=one.started,
        duration_s=one.duration_s,
        alpha=0.05,
        margin=0.0,
        problem=problem,
    )


def _place(one: Outline) -> tuple[str, str, str]:
    """Return the cache key of a trial's summary; state and duration change when the trial is resumed."""
    return one.id, f"{'' if one.state is None else one.state.value} {one.duration_s}", VERSION


def _stored(stored: sqlite3.Connection | None, one: Outline) -> HostTrial | None:
    if stored is None or one.state is TrialState.RUNNING:
        return None
    with suppress(sqlite3.Error, ValueError, TypeError, zlib.error, RecursionError):
        place = _place(one)
        query = "SELECT content FROM host WHERE trial = ? AND mark = ? AND method = ?"
        row = stored.execute(query, place).fetchone()
        return None if row is None else unsealed(_DECODER, place, "host", row[0])
    return None


def _store(stored: sqlite3.Connection | None, one: Outline, found: HostTrial) -> None:
    if stored is not None:
        with suppress(sqlite3.Error):
            place = _place(one)
            row = (*place, sealed(place, "host", found))
            stored.execute("INSERT OR REPLACE INTO host VALUES (?, ?, ?, ?)", row)


_DECODER = msgspec.msgpack.Decoder(HostTrial)


def summaries(store: Store, trials_wanted: Sequence[Numbered]) -> Generator[HostTrial | IotrialError]:
    """Yield the summary of each trial in order, or the error if it cannot be read."""
    count = min(MOST_PROCESSES, len(os.sched_getaffinity(0)))
    if len(trials_wanted) < FEWEST or count < 2 or not store.path.is_file():
        yield from (_one(store, number, host) for number, host in trials_wanted)
        return
    workers = [_worker(store.path, trials_wanted[first::count]) for first in range(count)]
    try:
        for place, (number, host) in enumerate(trials_wanted):
            answers = workers[place % count].stdout
            assert answers is not None
            try:
                yield pickle.load(answers)
            except (EOFError, pickle.UnpicklingError):  # if a worker died, compute its share here
                yield _one(store, number, host)
    finally:
        for worker in workers:
            end_worker(worker)


def _one(store: Store, number: int, host: str) -> HostTrial | IotrialError:
    try:
        return summary_of(store, number, host)
    except IotrialError as error:
        return IotrialError(error.message)


def _worker(path: Path, trials_wanted: Sequence[Numbered]) -> subprocess.Popen[bytes]:
    worker = start_worker("iotrial.fleet.summary", quiet=True)
    assert worker.stdin is not None
    try:
        # the worker reads all of it before its first answer, so there is no deadlock
        pickle.dump((path.absolute(), list(trials_wanted)), worker.stdin)
        worker.stdin.close()
    except BrokenPipeError:
        pass
    return worker


def main() -> None:
    """Write a pickled summary for each trial listed on standard input. Pickle is safe here: both ends are this program."""
    path, trials_wanted = pickle.load(sys.stdin.buffer)
    with Store.open(path, read_only=True, checked=False) as store:
        for number, host in trials_wanted:
            pickle.dump(_one(store, number, host), sys.stdout.buffer)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    # import under the module's own name, so that its classes can be unpickled
    from iotrial.fleet import summary

    summary.main()
