"""What each host's trial says, as the fleet's verdict needs it: primary effects, validity, properties.

Leaner than the host's own report: nothing that a fleet's report does not name is computed, so that a thousand hosts of a
thousand blocks each can be summed up. Effects and controls are those of the host's own report, by the same functions.

Many hosts are summed up on all processors, by processes of this module that read the store and answer a line a trial:

    python -m iotrial.fleet.summary < {"store": PATH, "trials": [[NUMBER, HOST], ...]}

What ended trials said is kept in the cache beside the store (``trials.analysed`` for ``trials.db``), which may be deleted at
any time, and is not used by another version of the analysis.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import iotrial
from iotrial.analysis.analyse import analyse_condition
from iotrial.analysis.carryover import in_words
from iotrial.analysis.model import Effect, MeanRatio, SlowRuns, Span, Verdict
from iotrial.analysis.voids import compare_void_rates
from iotrial.errors import IotrialError
from iotrial.legible import shown
from iotrial.report.analyses import opened
from iotrial.report.opening import spec_of
from iotrial.report.safety import Risks, risks_of
from iotrial.store import Store
from iotrial.store.model import TrialHeader
from iotrial.store.outline import Outline
from iotrial.store.packed.consistency import check_stored
from iotrial.store.states import TrialState
from iotrial.study.model import Better, Scale
from iotrial.workers import end_worker, start_worker

#: trials; below, starting a process costs more than it gains
FEWEST = 16
MOST_PROCESSES = 16
_LONGEST_VALUE = 120
_DECIDES = ("analysis", "design", "study", "fleet", "store")
_TABLE = """
CREATE TABLE IF NOT EXISTS summed_up (
    trial TEXT PRIMARY KEY, state TEXT NOT NULL, by TEXT NOT NULL, text TEXT NOT NULL
) STRICT
"""

Asked = tuple[int, str]  # number and host


@dataclass(frozen=True, slots=True)
class HostTrial:
    """One host's trial. ``effects``: the primary ones; ``blocks``: complete ones, void ones too; ``problem``: why the
    trial cannot be read (only names are known then); ``invalid``: why its controls fail. ``controlled``: if it had any."""

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
    problem: str | None = None
    invalid: tuple[str, ...] = ()
    controlled: bool = True
    effects: tuple[Effect, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    risks: Risks = field(default_factory=dict)


def summary_of(store: Store, number: int, host: str) -> HostTrial:
    """Reads and analyses one trial. Raises what ``Store.data`` raises."""
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
        risks=risks_of(header.study),
    )


def properties_of(header: TrialHeader) -> dict[str, str]:
    """What hosts are told apart by, as words: kernel, system, processor, lab, file system, disk model."""
    host, lab = header.host, header.lab
    places = lab.get("places")
    listed = [place for place in places if isinstance(place, dict)] if isinstance(places, list) else []
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
        name: shown(str(value))[:_LONGEST_VALUE] for name, value in found.items() if value not in (None, "")
    }


def to_json(one: HostTrial) -> dict[str, object]:
    """What ``from_json`` takes."""
    found = {name: _plain(value) for name, value in asdict(one).items()}
    return {**found, "effects": [{n: _plain(v) for n, v in asdict(effect).items()} for effect in one.effects]}


def from_json(found: Mapping[str, Any]) -> HostTrial:
    """The inverse of ``to_json``. KeyError, TypeError or ValueError for anything else."""
    effects = tuple(_effect(one) for one in found["effects"])
    state = TrialState(found["state"])
    return HostTrial(**{**found, "state": state, "effects": effects, "invalid": tuple(found["invalid"])})


def _missed(kind: str) -> str:
    return "tells two identical arms apart" if kind == "negative" else "misses the injected slow-down"


def _all(values: Iterator[object]) -> str | None:
    found = dict.fromkeys(str(value) for value in values if value)
    return ", ".join(found) or None


def _effect(found: Mapping[str, Any]) -> Effect:
    cross = found["cross_check"]
    return Effect(
        **{
            **found,
            "scale": Scale(found["scale"]),
            "better": Better(found["better"]),
            "verdict": Verdict(found["verdict"]),
            "aliases": tuple(found["aliases"]),
            "cross_check": None if cross is None else (cross[0], cross[1]),
            "span": None if found["span"] is None else Span(**found["span"]),
            "slow_runs": SlowRuns.of(found.get("slow_runs")),
            "mean_ratio": MeanRatio.of(found.get("mean_ratio")),
        }
    )


def _plain(value: object) -> object:
    return value.value if isinstance(value, Enum) else value


def summed_up(
    store: Store, trials: Sequence[Outline], told: Callable[[int], None] | None = None
) -> Iterator[HostTrial]:
    """What each trial says, in their order; one that cannot be read says why. ``told`` hears how many are done."""
    kept = opened(store.path, (_TABLE,))
    known = {one.number: _known(kept, one) for one in trials}
    anew = summaries(store, [(one.number, one.member or "") for one in trials if known[one.number] is None])
    try:
        for done, one in enumerate(trials, start=1):
            found = known[one.number]
            if found is None:
                said = next(anew)
                found = _unread(one, said.message) if isinstance(said, IotrialError) else said
                if found.problem is None and one.state is not TrialState.RUNNING:
                    _keep(kept, found, state_mark(one.state, one.duration_s))
            yield found
            if told is not None:
                told(done)
    finally:
        anew.close()
        if kept is not None:
            kept.close()


def state_mark(state: TrialState | None, duration_s: float) -> str:
    """What changes with a trial: it is analysed anew when it has gone on."""
    return f"{'' if state is None else state.value} {duration_s}"


def _known(kept: sqlite3.Connection | None, one: Outline) -> HostTrial | None:
    if one.state is TrialState.RUNNING:
        return None
    return _found(kept, one.id, state_mark(one.state, one.duration_s))


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


def _found(kept: sqlite3.Connection | None, trial: str, state: str) -> HostTrial | None:
    if kept is None:
        return None
    with suppress(sqlite3.Error, ValueError, KeyError, TypeError, AttributeError):
        row = kept.execute(
            "SELECT text FROM summed_up WHERE trial = ? AND state = ? AND by = ?", (trial, state, _by())
        ).fetchone()
        return None if row is None else from_json(json.loads(row[0]))
    return None


def _keep(kept: sqlite3.Connection | None, one: HostTrial, state: str) -> None:
    if kept is not None:
        with suppress(sqlite3.Error):
            row = (one.id, state, _by(), json.dumps(to_json(one)))
            kept.execute("INSERT OR REPLACE INTO summed_up VALUES (?, ?, ?, ?)", row)


@cache
def _by() -> str:
    """What says so: this version, and the code that decides."""
    digest = hashlib.sha256(iotrial.__version__.encode())
    root = Path(iotrial.__file__).parent
    for folder in _DECIDES:
        for file in sorted((root / folder).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def summaries(store: Store, asked: Sequence[Asked]) -> Generator[HostTrial | IotrialError]:
    """What each trial says, in order, or why it cannot be read."""
    count = min(MOST_PROCESSES, len(os.sched_getaffinity(0)))
    if len(asked) < FEWEST or count < 2 or not store.path.is_file():
        yield from (_one(store, number, host) for number, host in asked)
        return
    workers = [_worker(store.path, asked[first::count]) for first in range(count)]
    try:
        for place, (number, host) in enumerate(asked):
            line = _line(workers[place % count])
            # a process that died leaves its share to this one
            yield _read(line) if line else _one(store, number, host)
    finally:
        for worker in workers:
            end_worker(worker)


def _one(store: Store, number: int, host: str) -> HostTrial | IotrialError:
    try:
        return summary_of(store, number, host)
    except IotrialError as error:
        return error


def _worker(path: Path, asked: Sequence[Asked]) -> subprocess.Popen[bytes]:
    worker = start_worker("iotrial.fleet.summary", quiet=True)
    assert worker.stdin is not None
    try:
        # all of it is read before the first answer, so neither end waits for the other
        worker.stdin.write(json.dumps({"store": str(path.absolute()), "trials": list(asked)}).encode())
        worker.stdin.close()
    except BrokenPipeError:
        pass
    return worker


def _line(worker: subprocess.Popen[bytes]) -> bytes:
    assert worker.stdout is not None
    return worker.stdout.readline()


def _read(line: bytes) -> HostTrial | IotrialError:
    found = json.loads(line)
    return IotrialError(found["problem"]) if "id" not in found else from_json(found)


def main() -> None:
    """Answers what standard input asks."""
    asked = json.load(sys.stdin)
    with Store.open(asked["store"], read_only=True, checked=False) as store:
        for number, host in asked["trials"]:
            found = _one(store, number, host)
            text = {"problem": found.message} if isinstance(found, IotrialError) else to_json(found)
            print(json.dumps(text), flush=True)


if __name__ == "__main__":
    main()
