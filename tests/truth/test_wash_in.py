"""Carry-over through the real conductor, on a fake probe with random times: the design adapts by itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from stand_in_probe import StandInProbe

from iotrial.design.model import ArmKind, PlannedRun
from iotrial.design.plan import Plan
from iotrial.lab.lock import MachineLock
from iotrial.runner import planning, session, start, trial
from iotrial.runner.progress import Silent
from iotrial.runner.resolve import Resolved, resolve
from iotrial.runner.run import Runner
from iotrial.runner.trial import Limits
from iotrial.stats.analyse import Spec, analyse
from iotrial.store import Store
from iotrial.store.model import TrialData, TrialState
from iotrial.study.reader import load
from trials.conducting import STUDIES
from values import replace

SEED = "5" * 32
CARRIED = 0.10


class Carrying(Runner):
    """Runner in which a run after one of the treated arm takes longer.

    ``washes``: a neutral run in between prevents that.
    """

    washes = True
    past: tuple[tuple[object, str], ...] = ()
    order: tuple[tuple[str, ArmKind], ...] = ()

    def run(self, condition: Any, run: PlannedRun, **named: Any) -> Any:
        outcome = super().run(condition, run, **named)
        place = named["block"], run.slot  # a neutral run has those of the run that follows
        before = (
            Carrying.past[:-1]
            if not self.washes and Carrying.past[-1:] == ((place, "plain"),)
            else Carrying.past
        )
        slower = 1.0 + CARRIED * (bool(before) and before[-1][1] == "treated")
        Carrying.past = (*before, (place, run.arm.treatment["label"]))
        Carrying.order = (*Carrying.order, (run.arm.name, run.arm.kind))
        responses = {name: value * slower for name, value in outcome.responses.items()}
        return replace(outcome, responses=responses)


@pytest.fixture(autouse=True)
def stood_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Replace the probe and the machine lock, and use a private state folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for module in (session, planning):
        monkeypatch.setattr(module, "Probe", StandInProbe)
        monkeypatch.setattr(module, "MachineLock", lambda: MachineLock(tmp_path / "lock"))
    monkeypatch.setattr(StandInProbe, "on_job", staticmethod(lambda: None))
    monkeypatch.setattr(trial, "Runner", Carrying)
    monkeypatch.setattr(Carrying, "washes", True)
    Carrying.past = ()
    Carrying.order = ()
    (tmp_path / "state").mkdir()
    return tmp_path


def resolved(*, wash_in: bool = False) -> Resolved:
    study = replace(load(STUDIES / "probe.toml"), wash_in=wash_in)
    return resolve(study, root=os.geteuid() == 0)


def begin(database: Path, *, blocks: int, wash_in: bool = False) -> tuple[TrialData, TrialState, Plan]:
    asked = resolved(wash_in=wash_in)
    plan = Plan(asked.study, SEED, controls_first=24)
    limits = Limits(60.0, blocks, stop_when_decided=False)
    with Store.open(database) as store:
        ended = start.begin(
            asked, plan, store, limits, Silent(),
            folder=planning.default_folder(asked, None), seed_chosen=True,
            options={"time_s": limits.time_s, "blocks": blocks, "no_stop": True, "controls_first": 24},
        )  # fmt: skip
        return store.data(ended.trial.header.id), ended.state, plan


def test_when_the_control_fires_each_measured_run_comes_after_a_neutral_one_and_only_these_blocks_count(
    stood_in: Path,
) -> None:
    data, state, plan = begin(stood_in / "trial.db", blocks=120)
    washed = [block.wash_in for block in data.blocks]
    first = washed.index(True)
    assert 5 <= first < 60
    assert all(washed[first:])
    found = analyse(Spec.from_plan(plan), data.blocks)
    assert state is TrialState.DONE
    assert found.valid
    (carry_over,) = found.carry_over
    assert carry_over.wash_in
    assert carry_over.passed
    (effect,) = [one for one in found.effects if one.primary]
    assert effect.blocks == sum(washed)
    assert effect.value == pytest.approx(1.0, abs=0.01)
    # the last block: the reference before each arm, in the order of its slots
    runs = plan.block(plan.conditions[0], 119).runs
    expected = [pair for run in runs for pair in (("plain", ArmKind.TREATMENT), (run.arm.name, run.arm.kind))]
    assert list(Carrying.order[-len(expected) :]) == expected


def test_carry_over_that_the_neutral_run_does_not_stop_makes_the_trial_invalid(
    stood_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Carrying, "washes", False)
    data, state, plan = begin(stood_in / "trial.db", blocks=120)
    assert any(block.wash_in for block in data.blocks)
    assert state is TrialState.INVALID
    (reason,) = analyse(Spec.from_plan(plan), data.blocks).invalid_reasons
    assert "despite a neutral run before each" in reason


def test_a_study_may_ask_for_the_neutral_runs_from_the_first_block_on(stood_in: Path) -> None:
    data, state, _ = begin(stood_in / "trial.db", blocks=30, wash_in=True)
    assert all(block.wash_in for block in data.blocks)
    assert state is TrialState.DONE


def test_a_continued_trial_keeps_its_neutral_runs(stood_in: Path) -> None:
    data, _, plan = begin(stood_in / "trial.db", blocks=70)
    assert data.blocks[-1].wash_in
    with Store.open(stood_in / "trial.db") as store:
        start.resume(resolved(), plan, store, data, Limits(60.0, 80, stop_when_decided=False), Silent())
        after = store.data(data.trial.header.id)
    assert len(after.blocks) == 80
    assert after.blocks[:70] == data.blocks
    assert all(block.wash_in for block in after.blocks[70:])
