"""Carry-over through the real conductor, on a fake probe with random times: the design adapts by itself."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pytest
from stand_in_probe import StandInProbe

from iotrial.design.model import ArmKind, Before, PlannedRun, WashIn
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
    """Runner in which runs depend on those before them.

    ``lasts``: a run is slower by ``CARRIED`` for each of this many before it that was treated. ``switch``: slower by this
    share after a run with the other level. ``treated``: factor on the time of treated runs.
    """

    lasts = 1
    switch = 0.0
    treated = 1.0
    #: label, name and kind of every run, in order
    past: tuple[tuple[str, str, ArmKind], ...] = ()

    def run(self, condition: Any, run: PlannedRun, **named: Any) -> Any:
        outcome = super().run(condition, run, **named)
        label = run.arm.treatment["label"]
        before = [one for one, _, _ in Carrying.past]
        slower = 1.0 + CARRIED * before[max(0, len(before) - self.lasts) :].count("treated")
        slower *= 1.0 + self.switch * (bool(before) and before[-1] != label)
        slower *= self.treated if label == "treated" else 1.0
        Carrying.past = (*Carrying.past, (label, run.arm.name, run.arm.kind))
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
    Carrying.past = ()
    (tmp_path / "state").mkdir()
    return tmp_path


def resolved(*, wash_in: bool = False) -> Resolved:
    study = replace(load(STUDIES / "probe.toml"), wash_in=wash_in)
    return resolve(study, root=os.geteuid() == 0)


def begin(
    database: Path, *, blocks: int, wash_in: bool = False, asked: Resolved | None = None
) -> tuple[TrialData, TrialState, Plan]:
    """Conduct a trial; with ``asked``, each level of that study also runs just after itself."""
    after_itself, asked = asked is not None, asked or resolved(wash_in=wash_in)
    plan = Plan(asked.study, SEED, controls_first=24, after_itself=after_itself)
    limits = Limits(60.0, blocks, stop_when_decided=False)
    with Store.open(database) as store:
        ended = start.begin(
            asked, plan, store, limits, Silent(),
            folder=planning.default_folder(asked, None), seed_chosen=True,
            options={"time_s": limits.time_s, "blocks": blocks, "no_stop": True, **plan.options},
        )  # fmt: skip
        return store.data(ended.trial.header.id), ended.state, plan


def stages_of(data: TrialData) -> list[WashIn | None]:
    """Return the wash-in of the blocks, each stage once."""
    return [wash_in for wash_in, _ in itertools.groupby(block.wash_in for block in data.blocks)]


def test_when_runs_depend_on_the_one_before_neutral_runs_go_before_each_and_only_these_blocks_count(
    stood_in: Path,
) -> None:
    data, state, plan = begin(stood_in / "trial.db", blocks=120)
    stages = stages_of(data)
    assert stages[0] is None
    assert stages[1] == WashIn(Before.DRAWN)
    assert stages[-1] is not None
    assert stages[-1].before is Before.REFERENCE
    found = analyse(Spec.from_plan(plan), data.blocks)
    assert state is TrialState.DONE
    assert found.valid
    (carry_over,) = found.carry_over
    assert carry_over.wash_in == stages[-1]
    assert carry_over.passed
    assert not carry_over.suspected
    assert carry_over.switching is None
    (effect,) = [one for one in found.effects if one.primary]
    assert effect.blocks == sum(block.wash_in == stages[-1] for block in data.blocks)
    assert effect.value == pytest.approx(1.0, abs=0.01)
    # the last block: neutral runs before each arm, in the order of its slots
    runs = plan.block(plan.conditions[0], 119).runs
    neutral = ("plain", "plain", ArmKind.TREATMENT)
    expected = []
    for run in runs:
        expected += stages[-1].runs * [neutral] + [(run.arm.treatment["label"], run.arm.name, run.arm.kind)]
    assert list(Carrying.past[-len(expected) :]) == expected


def test_carry_over_that_outlasts_one_neutral_run_gets_more_of_them(
    stood_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Carrying, "lasts", 3)
    data, state, plan = begin(stood_in / "trial.db", blocks=150)
    last = stages_of(data)[-1]
    assert last is not None
    assert last.runs >= 3
    assert state is TrialState.DONE
    (effect,) = [one for one in analyse(Spec.from_plan(plan), data.blocks).effects if one.primary]
    assert effect.value == pytest.approx(1.0, abs=0.01)


def test_carry_over_that_the_longest_wash_in_does_not_stop_makes_the_trial_invalid(
    stood_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Carrying, "lasts", 8)
    data, state, plan = begin(stood_in / "trial.db", blocks=250)
    last = stages_of(data)[-1]
    assert last is not None
    assert last.runs == 6
    assert state is TrialState.INVALID
    (reason,) = analyse(Spec.from_plan(plan), data.blocks).invalid_reasons
    assert "despite 6 neutral runs before each" in reason


def test_where_the_switch_costs_runs_of_the_same_level_go_before_each_and_the_cost_is_reported(
    stood_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Carrying, "lasts", 0)
    monkeypatch.setattr(Carrying, "switch", 0.2)
    monkeypatch.setattr(Carrying, "treated", 0.85)
    data, state, plan = begin(stood_in / "trial.db", blocks=120)
    last = stages_of(data)[-1]
    assert last is not None
    assert last.before is Before.SAME
    assert state is TrialState.DONE
    found = analyse(Spec.from_plan(plan), data.blocks)
    (effect,) = [one for one in found.effects if one.primary]
    assert effect.value == pytest.approx(0.85, abs=0.01)
    (carry_over,) = found.carry_over
    assert carry_over.switching is not None
    assert carry_over.switching.size == pytest.approx(1.2, abs=0.05)


def test_with_three_levels_an_unmeasured_run_of_the_same_arm_comes_just_before_some_runs(
    stood_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Carrying, "lasts", 0)
    study = load(STUDIES / "probe.toml")
    (factor,) = study.factors
    third = replace(factor.level("treated"), label="third")
    factor = replace(factor, levels=(*factor.levels, third), default=(*factor.default, "third"))
    asked = resolve(replace(study, factors=(factor,)), root=os.geteuid() == 0)
    data, state, plan = begin(stood_in / "trial.db", blocks=30, asked=asked)
    assert state is TrialState.DONE
    expected, marked = [], []
    for index in range(30):
        block = plan.block(plan.conditions[0], index)
        for run in block.runs:
            one = (run.arm.treatment["label"], run.arm.name, run.arm.kind)
            expected += [one, one] if run.slot in block.after_itself else [one]
            marked.append(run.slot in block.after_itself)
    assert list(Carrying.past[-len(expected) :]) == expected
    assert 10 < sum(marked) < 30
    assert [run.after_itself for block in data.blocks for run in block.observations] == marked
    assert all(block.wash_in is None for block in data.blocks)
    (carry_over,) = analyse(Spec.from_plan(plan), data.blocks).carry_over
    assert carry_over.passed


def test_a_study_may_ask_for_the_neutral_runs_from_the_first_block_on(stood_in: Path) -> None:
    data, state, _ = begin(stood_in / "trial.db", blocks=30, wash_in=True)
    assert all(block.wash_in == WashIn() for block in data.blocks)
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
