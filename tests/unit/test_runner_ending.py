"""The end of a trial whose store fails too, and elapsed time if the clock was set meanwhile."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from store_examples import header, planned_runs

from iotrial.design.plan import Plan
from iotrial.errors import LabError, RestoreError, StoreError
from iotrial.runner import start
from iotrial.runner.progress import Silent
from iotrial.runner.signals import StopSignals
from iotrial.runner.time_account import TimeAccount
from iotrial.runner.trial import Conductor, Limits
from iotrial.stats.analyse import Spec
from iotrial.store import Store
from iotrial.store.model import StoredTrial, TrialState


class _Session:
    """Fake session with nothing open."""

    def __init__(self, *, restored: bool = True) -> None:
        self.closed = False
        self._restored = restored
        self.time = TimeAccount()
        self.changed_at_end: list[str] = []
        self.resolved = SimpleNamespace(treatment_stages=lambda **_: frozenset(), root=False)

    def close(self) -> None:
        self.closed = True

    def check_restored(self, error: BaseException | None = None) -> None:
        if not self._restored:
            raise RestoreError("the scheduler was not put back", hint="see `iotrial restore`")


class _FullStore:
    """Fake store on a full disk."""

    def set_state(self, *_: object) -> None:
        raise StoreError("the disk is full", hint="free some space")

    append_time_spent = set_state


def _conduct(monkeypatch: pytest.MonkeyPatch, outcome: Exception | TrialState, session: Any) -> Any:
    class Conducted:
        final = fewer = None

        def __init__(self, *_: object) -> None:
            pass

        def run(self) -> TrialState:
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

    monkeypatch.setattr(start, "Conductor", Conducted)
    of = header()
    trial = StoredTrial(1, of, TrialState.RUNNING, 0.0)
    store: Any = _FullStore()
    plan = Plan(of.study, of.seed)
    return start._conduct(session, plan, store, trial, Limits(1, 1), Silent(), StopSignals(), None)


def test_a_store_that_fails_beside_an_error_does_not_hide_it(monkeypatch: pytest.MonkeyPatch) -> None:
    first = LabError("the mount was lost", hint="look at the kernel's log")
    session = _Session()
    with pytest.raises(LabError) as caught:
        _conduct(monkeypatch, first, session)
    assert caught.value is first
    assert caught.value.message.startswith("the mount was lost; ")
    assert "the disk is full" in caught.value.message
    assert caught.value.hint == "look at the kernel's log; free some space"
    assert session.closed


def test_an_error_that_is_nobody_s_keeps_its_trace_and_tells_of_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        _conduct(monkeypatch, ZeroDivisionError("a bug"), _Session())
    assert "the disk is full" in caught.value.__notes__[0]


def test_what_was_not_put_back_is_told_even_where_the_end_cannot_be_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(StoreError, match="the disk is full"):
        _conduct(monkeypatch, TrialState.DONE, _Session())
    with pytest.raises(RestoreError) as caught:
        _conduct(monkeypatch, TrialState.DONE, _Session(restored=False))
    assert caught.value.exit_status == 5
    assert "not put back" in caught.value.message
    assert "the disk is full" in caught.value.message


@pytest.mark.parametrize("jump_s", [-3600.0, 0.0, 86400.0])
def test_time_already_spent_is_what_was_measured_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    of = header()
    now = [1.7e9]
    monkeypatch.setattr(time, "time", lambda: now[0])
    with Store.open(tmp_path / "trials.db") as store:
        store.create_trial(of)
        for index, (runs, end) in enumerate(planned_runs(of, 100)):
            for record in runs:
                now[0] += 0.5
                store.append_run(of.id, record)
            store.end_block(of.id, end)
            if index == 50:
                now[0] += jump_s
        store.set_state(of.id, TrialState.INTERRUPTED)
        data = store.data(of.id)
        plan = Plan(of.study, of.seed)
        session: Any = _Session()
        conductor = Conductor(
            session,
            plan,
            Spec.from_plan(plan),
            store,
            data.trial,
            Limits(300, 200),
            Silent(),
            StopSignals(),
            data,
        )
    # Block 99 has two arms: by the example's own clock its second run began at 99.1 s.
    assert conductor._elapsed_before == 99.1
    # 0.5 s until the first run was stored, then from its start to the last one's
    assert data.trial.duration_s == pytest.approx(0.5 + 99.1 - min(run.started_s for run in data.runs))


@pytest.mark.parametrize(
    ("limits", "prepared_s", "counts", "measuring_s"),
    [
        (Limits(45.0, 9), 30.0, True, 45.0),
        (Limits(45.0, 9, report_s=1.5), 10.0, False, 33.5),
        (Limits(45.0, 9, report_s=1.5), 10.0, True, 29.0),
        (Limits(45.0, 9, report_s=1.5), 60.0, True, 22.5),  # an answer needs some blocks
    ],
)
def test_the_time_of_a_trial_is_the_time_until_its_answer(
    limits: Limits, prepared_s: float, counts: bool, measuring_s: float
) -> None:
    assert limits.measuring_s(prepared_s, counts=counts) == pytest.approx(measuring_s)
