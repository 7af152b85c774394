"""Likely reasons for an invalid trial: the one simulated in the runs ranks first, and is absent without it."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from factorials import factor, reading, study

from iotrial.design.model import ArmKind
from iotrial.design.plan import Plan
from iotrial.stats.analyse import Spec, analyse
from iotrial.stats.model import Observation, ObservedBlock
from iotrial.stats.reasons import Reason, RunFacts, likely_reasons

INJECTED = 1.1
CONDITION = "workload=w"
STUDY = study(factor("mode", "a b"), workloads=(reading(files=5),))


@dataclasses.dataclass
class Run:
    """The parts of a run that a scenario may change before it is observed."""

    kind: ArmKind
    arm: str
    slot: int
    block: int
    log: float  # log of its time, unstretched
    stretch: float = 0.0  # log of the ratio that the response shows
    injected: float | None = None
    evidence: dict[str, float] = dataclasses.field(default_factory=dict)
    files: tuple[int, ...] | None = None
    failure: str | None = None
    level: float = 0.0

    @property
    def copy(self) -> bool:
        return self.kind is ArmKind.NEGATIVE

    @property
    def slowed(self) -> bool:
        return self.kind is ArmKind.POSITIVE


Scenario = Callable[[list[Run], np.random.Generator], None]


def reasons_of(
    scenario: Scenario,
    *,
    blocks: int = 160,
    sd: float = 0.02,
    level_sd: float = 0.3,
    seed: int = 5,
    measured: Callable[[float], float] = lambda seconds: seconds,
    same_files: bool = False,
) -> tuple[Reason, ...]:
    """Return the reasons after a trial of log-normal times in which the scenario changed runs, block by block."""
    plan = Plan(STUDY, "cd" * 16)
    rng = np.random.default_rng(seed)
    observed, facts = [], {}
    for index in range(blocks):
        level = rng.normal(0.0, level_sd)
        runs = [
            Run(
                kind=run.arm.kind,
                arm=run.arm.name,
                slot=run.slot,
                block=index,
                log=level + rng.normal(0.0, sd),
                files=run.files,
                level=level,
            )
            for run in plan.block(plan.conditions[0], index).runs
        ]
        for run in runs:
            if run.slowed:
                run.stretch, run.injected = math.log(INJECTED), INJECTED
        scenario(runs, rng)
        observations = []
        for run in sorted(runs, key=lambda run: run.slot):
            facts[CONDITION, index, run.slot] = RunFacts(run.evidence, run.injected, run.files)
            treatment = {"mode": "b" if run.arm == "b" else "a"}
            responses = {} if run.failure else {"wall": measured(0.01 * math.exp(run.log + run.stretch))}
            observations.append(
                Observation(
                    run.arm, run.kind, treatment, run.slot, 4.0 * index + run.slot, responses, run.failure
                )
            )
        observed.append(ObservedBlock(CONDITION, index, tuple(observations)))
    analysis = analyse(Spec.from_plan(plan), observed)
    assert not analysis.valid, "the scenario has not made the trial invalid"
    return likely_reasons(
        analysis,
        observed,
        STUDY.responses,
        facts,
        weights=plan.control_weights,
        margin=STUDY.margin,
        same_files=frozenset({"w"} if same_files else ()),
    )


def as_they_are(runs: list[Run], _: np.random.Generator) -> None:
    assert runs


def plain_difference(runs: list[Run], _: np.random.Generator) -> None:
    """A copy that is slower for no recorded reason."""
    for run in runs:
        run.log += 0.1 * run.copy
        run.evidence = dict.fromkeys(("switches_involuntary", "device_read_bytes", "faults_major"), 5.0)


def later_is_slower(runs: list[Run], _: np.random.Generator) -> None:
    """The copy runs last in nine blocks of ten, and every slot costs 4 %."""
    copy = next((run for run in runs if run.copy), None)
    if copy is not None and runs[0].block % 20:
        last = max(runs, key=lambda run: run.slot)
        copy.slot, last.slot = last.slot, copy.slot
    for run in runs:
        run.log += 0.04 * run.slot


def left_by_the_slowed_copy(runs: list[Run], rng: np.random.Generator) -> None:
    """A run right after the slowed copy is 12 % slower, and the copy of the reference is usually in that slot."""
    slowed = next((run for run in runs if run.slowed), None)
    copy = next((run for run in runs if run.copy), None)
    if slowed is not None and copy is not None and rng.random() < 0.8:
        after = next((run for run in runs if run.slot == slowed.slot + 1), None)
        if after is not None:
            copy.slot, after.slot = after.slot, copy.slot
    if slowed is not None:
        for run in runs:
            run.log += 0.12 * (run.slot == slowed.slot + 1)


def counted(name: str) -> Scenario:
    def scenario(runs: list[Run], rng: np.random.Generator) -> None:
        for run in runs:
            more = rng.poisson(10.0 if run.copy else 2.0)
            run.log += 0.02 * more
            run.evidence = {name: float(more), "faults_minor": float(rng.poisson(50.0))}

    return scenario


def slow_kind(runs: list[Run], rng: np.random.Generator) -> None:
    for run in runs:
        run.log += 0.5 * (rng.random() < (0.5 if run.copy else 0.1))


def halfway(runs: list[Run], _: np.random.Generator) -> None:
    for run in runs:
        run.log += 0.15 * (run.copy and run.block >= 60)


def files_of_its_own(runs: list[Run], _: np.random.Generator) -> None:
    for number, run in enumerate(sorted(runs, key=lambda run: run.arm)):
        run.files = (10 * number, 10 * number + 1)
        run.log += 0.1 * run.copy


def fails_when_slow(runs: list[Run], _: np.random.Generator) -> None:
    """The original has a timeout that its slow runs exceed."""
    for run in runs:
        if run.arm == "a" and run.log > run.level:
            run.failure = "did not end in time"


def unstretched(runs: list[Run], _: np.random.Generator) -> None:
    for run in runs:
        run.stretch = 0.0


def half_stretched(runs: list[Run], _: np.random.Generator) -> None:
    for run in runs:
        run.stretch *= 0.5


def spun_wrong(runs: list[Run], rng: np.random.Generator) -> None:
    for run in runs:
        if run.slowed:
            run.stretch = math.log(1.2) + rng.normal(0.0, 0.002)
            run.injected = math.exp(run.stretch)


def fixed_delay(runs: list[Run], _: np.random.Generator) -> None:
    """The time has a fixed part that nothing slows down: the shorter the work, the less of it is stretched."""
    for run in runs:
        work = math.exp(run.log)
        run.stretch = math.log((work * math.exp(run.stretch) + 1.0) / (work + 1.0))
        run.log = math.log(work + 1.0)


def left_running(runs: list[Run], rng: np.random.Generator) -> None:
    for run in runs:
        run.evidence = {"stragglers": float(rng.random() < 0.6)}
        run.log += 0.08 * run.slowed


SCENARIOS: dict[str, tuple[Scenario, str]] = {
    "later is slower": (later_is_slower, "order"),
    "left by the slowed copy": (left_by_the_slowed_copy, "carry_over"),
    "involuntary switches": (counted("switches_involuntary"), "neighbour"),
    "voluntary switches": (counted("switches_voluntary"), "waiting"),
    "major faults": (counted("faults_major"), "memory"),
    "bytes read": (counted("device_read_bytes"), "cache"),
    "bytes written": (counted("device_write_bytes"), "write_back"),
    "a slow kind": (slow_kind, "two_modes"),
    "halfway": (halfway, "regime_change"),
    "files of its own": (files_of_its_own, "assignment"),
    "fails when slow": (fails_when_slow, "left_out"),
    "unstretched": (unstretched, "not_in_response"),
    "half stretched": (half_stretched, "part_of_response"),
    "spun wrong": (spun_wrong, "spin"),
    "fixed delay": (fixed_delay, "not_proportional"),
    "left running": (left_running, "left_running"),
}


# settings under which the reason shows, in the noise or in the variation of the block levels
NOISE = {"fails when slow": {"sd": 0.1, "blocks": 400}, "fixed delay": {"level_sd": 0.8}}


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_reason_that_was_put_in_comes_first(name: str, seed: int) -> None:
    scenario, code = SCENARIOS[name]
    found = reasons_of(scenario, seed=seed, **NOISE.get(name, {}))
    assert found, "no reason"
    assert found[0].code == code, [(reason.code, round(reason.weight, 2), reason.text) for reason in found]
    assert found[0].weight <= 1.0
    assert all(a.weight >= b.weight for a, b in itertools.pairwise(found))


@pytest.mark.parametrize("seed", range(8))
def test_a_difference_that_nothing_recorded_explains_has_no_reason(seed: int) -> None:
    assert reasons_of(plain_difference, seed=seed) == ()


def test_coarse_steps_are_named_beside_what_they_hide() -> None:
    """A clock of 10 ms, for work of 10 to 20 ms: the slowed copy mostly takes as many ticks as its original."""
    found = reasons_of(
        as_they_are,
        blocks=400,
        level_sd=0.1,
        measured=lambda seconds: 0.01 * math.ceil(1.4 * seconds / 0.01),
    )
    assert found[0].code == "coarse", [(reason.code, reason.text) for reason in found]
    assert "different values" in found[0].text


def test_an_order_that_was_never_drawn_is_named_though_nothing_can_be_fitted() -> None:
    def fixed(runs: list[Run], _: np.random.Generator) -> None:
        for slot, run in enumerate(sorted(runs, key=lambda run: run.arm)):
            run.slot = slot
            run.log += 0.04 * slot

    codes = [reason.code for reason in reasons_of(fixed)]
    assert codes[0] == "order"
    # order a, b, negative, positive: the copy is two slots after its original, the slowed copy three
    assert codes.count("order") == 1
    assert reasons_of(fixed)[0].controls == 2


def test_arms_that_share_their_files_are_told_so_where_a_run_leaves_something_behind() -> None:
    (told,) = [r for r in reasons_of(left_by_the_slowed_copy, same_files=True) if r.code == "carry_over"]
    assert "on the same files" in told.text
    assert "pool" in told.remedy
    (told,) = [r for r in reasons_of(left_by_the_slowed_copy) if r.code == "carry_over"]
    assert "on the same files" not in told.text


def test_a_void_rule_that_prefers_a_level_is_a_reason_by_itself() -> None:
    plan = Plan(STUDY, "cd" * 16)
    blocks = []
    for index in range(60):
        observations = tuple(
            Observation(run.arm.name, run.arm.kind, run.arm.treatment, run.slot, index, {"wall": 1.0})
            for run in plan.block(plan.conditions[0], index).runs
        )
        blocks.append(ObservedBlock(CONDITION, index, observations, void="cache", void_level="b"))
    analysis = analyse(Spec.from_plan(plan), blocks)
    (reason,) = likely_reasons(
        analysis, blocks, STUDY.responses, {}, weights=plan.control_weights, margin=0.05
    )
    assert reason.code == "void_rule"
    assert "60 of 60 void blocks are due to b" in reason.text


def test_a_valid_trial_has_no_reasons_and_too_few_blocks_none_but_failures() -> None:
    plan = Plan(STUDY, "cd" * 16)
    analysis = analyse(Spec.from_plan(plan), [])
    assert analysis.valid
    assert likely_reasons(analysis, [], STUDY.responses, {}, weights=plan.control_weights, margin=0.05) == ()
