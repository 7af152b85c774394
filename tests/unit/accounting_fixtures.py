"""A trial with accounted repetitions, and fake runner and watcher that record their calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from iotrial.design.model import Condition, PlannedRun
from iotrial.design.plan import Plan
from iotrial.runner.signals import StopSignals
from iotrial.runner.syscall_pass import Accounting
from iotrial.runner.trace_job import Counted, TraceCounts
from iotrial.store import Store
from iotrial.store.model import TrialHeader
from iotrial.study.model import Study
from iotrial.study.reader import read_study

STUDY = """
[study]
name = "modes"
question = "?"
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0444", "0777"]
[[factor]]
name = "pressure"
knob = "sysctl"
key = "vm.vfs_cache_pressure"
levels = ["50", "200"]
role = "condition"
[[workload]]
name = "read"
kind = "files"
operations = ["open", "read", "close"]
"""
COMMAND = '[[workload]]\nname = "cat"\nkind = "command"\nargv = ["cat", "{file}"]\n'


def study(text: str = STUDY) -> Study:
    return read_study(text, "modes.toml", trusted=True)


class Runs:
    """Fake runner. Records each call in ``calls``; ``does`` may raise to simulate a failure."""

    def __init__(self, does: Callable[[str, frozenset[Counted]], None] | None = None) -> None:
        self.calls: list[tuple[str, str, int, frozenset[Counted]]] = []
        self.alive = True
        self._does = does or (lambda *_: None)

    def account(
        self, condition: Condition, run: PlannedRun, *, block: int, what: frozenset[Counted]
    ) -> TraceCounts:
        self.calls.append((condition.key, run.arm.name, block, what))
        self._does(condition.key, what)
        call = {"count": 3, "errors": {}, "total_ns": 30, "untimed": 0, "histogram": [[11, 3]]}
        request = {"count": 2, "total_ns": 20, "histogram": [[11, 2]]}
        return TraceCounts(
            {"read": call} if Counted.CALLS in what else None,
            {"read": request} if Counted.REQUESTS in what else None,
        )


class Heard:
    """Watcher that records its messages."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def update(self, snapshot: object) -> None: ...


class Site:
    """A store with one trial, and the accounting of that trial."""

    def __init__(self, folder: Path, text: str = STUDY) -> None:
        self.plan = Plan(study(text), "00" * 16)
        self.store = Store.open(folder / "s.db")
        self.trial = "0123456789abcdef"
        self.heard = Heard()
        facts: dict[str, Any] = {"lab": {"kind": "image"}, "host": {}, "options": {}}
        self.store.create_trial(
            TrialHeader(
                id=self.trial,
                study=self.plan.study,
                seed="00" * 16,
                seed_chosen=False,
                alpha=0.05,
                margin=0.03,
                started="2024-05-01T12:00:00Z",
                version="0",
                **facts,
            )
        )

    def account(self, runs: Runs, *, lab: str = "image", measured_s: float = 60.0) -> None:
        made = Accounting(
            self.plan,
            lab,
            runs,  # type: ignore[arg-type]
            self.store,
            self.trial,
            self.heard,
            StopSignals(),
        )
        made.run([(condition, 5) for condition in self.plan.conditions], measured_s=measured_s)

    @property
    def notes(self) -> list[str]:
        return [e.text for e in self.store.events(self.trial) if e.kind == "not-accounted"]


def sites(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Yield a factory of sites in a folder; close their stores at teardown. For use in a fixture."""
    made: list[Site] = []

    def make(text: str = STUDY) -> Site:
        made.append(Site(tmp_path, text))
        return made[-1]

    yield make
    for one in made:
        one.store.close()
