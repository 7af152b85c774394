"""Trials with many factors and known truth: main effects, interactions, pooled effects, whole plots and their controls."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
from factorials import factor, many, simulated, stored_definitive, study

from iotrial.design.interactions import mixed_into
from iotrial.design.model import ArmKind
from iotrial.design.plan import Plan
from iotrial.stats.analyse import Spec, analyse, analyse_condition
from iotrial.stats.model import Analysis, Effect, Observation, ObservedBlock, Verdict
from iotrial.stats.reasons import Reason, RunFacts, likely_reasons
from iotrial.stats.reasons.pairs import RunKey
from iotrial.study.model import Better, Design, DesignKind, Response, Role, Scale, Study
from values import replace

SEED = "ab" * 16


def effect(found: Analysis, factor_name: str, level: str | None = None, *, kind: str = "main") -> Effect:
    (one,) = [
        e for e in found.effects if e.kind == kind and e.factor == factor_name and level in (None, e.level)
    ]
    return one


@pytest.mark.slow
def test_a_screen_finds_the_three_settings_of_26_that_matter() -> None:
    plan = Plan(many(26, Design(DesignKind.PLACKETT_BURMAN, fold_over=True)), SEED)
    assert len(plan.treatments) == 64
    true = {"f03": math.log(1.2), "f11": math.log(0.8), "f25": math.log(1.1)}

    def log_time(treatment: Mapping[str, str]) -> float:
        return sum(value for name, value in true.items() if treatment[name] == "on")

    found = analyse(Spec.from_plan(plan), simulated(plan, 24, log_time, sd=0.1))
    assert found.valid, found.invalid_reasons
    said = {e.factor: e.verdict for e in found.effects if e.primary}
    assert len(said) == 26
    assert (said.pop("f03"), said.pop("f11"), said.pop("f25")) == (
        Verdict.SLOWER,
        Verdict.FASTER,
        Verdict.SLOWER,
    )
    assert sum(verdict is Verdict.EQUIVALENT for verdict in said.values()) >= 20
    for name, value in true.items():
        one = effect(found, name)
        assert one.low is not None
        assert one.high is not None
        assert one.low < math.exp(value) < one.high
    assert [control.told_from_zero for control in found.controls if control.kind == "positive"] == [True]
    assert effect(found, "f03").family_alpha == pytest.approx(0.05 / 26)


def test_a_screen_whose_stretch_does_nothing_is_invalid() -> None:
    plan = Plan(many(12, Design(DesignKind.PLACKETT_BURMAN)), SEED)
    found = analyse(Spec.from_plan(plan), simulated(plan, 40, lambda _: 0.0, injected=1.0))
    assert [control.kind for control in found.controls if not control.passed] == ["positive"]
    assert not found.valid


def reasons_of(plan: Plan, blocks: list[ObservedBlock], facts: Mapping[RunKey, RunFacts]) -> list[Reason]:
    found = analyse(Spec.from_plan(plan), blocks)
    assert not found.valid
    weights = plan.control_weights
    return list(
        likely_reasons(found, blocks, plan.study.responses, facts, weights=weights, margin=plan.study.margin)
    )


def test_failed_runs_of_a_screen_are_counted_by_what_they_share() -> None:
    plan = Plan(many(6, Design(DesignKind.PLACKETT_BURMAN)), SEED)
    blocks = []
    for block in simulated(plan, 20, lambda _: 0.0):
        runs = [
            replace(run, failure="exit", responses={})
            if run.treatment["f02"] == "on" and block.index % 4 == run.slot % 4
            else run
            for run in block.observations
        ]
        blocks.append(replace(block, observations=tuple(runs)))
    found = analyse(Spec.from_plan(plan), blocks)
    failed = [run for block in blocks for run in block.observations if run.failure]
    assert found.failures.count == len(failed) > 2
    assert found.failures.shared == (("f02", "on"),)
    combinations = len({run.arm for run in failed})
    assert f"{len(failed)} failed runs in {combinations} combinations, all of them at f02 on" in found.notes


PLANS = [
    pytest.param(many(12, Design(DesignKind.PLACKETT_BURMAN, fold_over=True)), id="columns"),
    pytest.param(study(factor("mkfs", "x y", whole=True), factor("mode")), id="whole plots"),
]


@pytest.mark.parametrize("made", PLANS)
def test_a_stretch_that_does_nothing_is_named_as_the_reason(made: Study) -> None:
    plan = Plan(made, SEED)
    (first, *_) = reasons_of(plan, simulated(plan, 60, lambda _: 0.0, injected=1.0), {})
    assert first.code == "not_in_response"
    assert "wall does not include the slowdown" in first.text


@pytest.mark.parametrize("made", PLANS)
def test_a_counter_that_goes_with_a_control_that_fails_is_named_as_the_reason(made: Study) -> None:
    plan = Plan(made, SEED)
    weights = plan.control_weights[ArmKind.NEGATIVE]
    rng = np.random.default_rng(3)
    blocks, facts = [], {}
    for block in simulated(plan, 60, lambda _: 0.0):
        runs = []
        for run in block.observations:
            times = float(rng.poisson(5 if weights.get(run.arm, 0.0) > 0.0 else 1))
            wall = run.responses["wall"] * math.exp(0.03 * times)
            runs.append(replace(run, responses={"wall": wall}))
            facts[block.condition, block.index, run.slot] = RunFacts({"device_read_bytes": 4096.0 * times})
        blocks.append(replace(block, observations=tuple(runs)))
    (first, *_) = reasons_of(plan, blocks, facts)
    assert first.code == "cache", first
    assert "bytes read from the device" in first.text


@pytest.mark.slow
def test_an_interaction_that_a_design_mixes_into_its_control_is_named_as_the_reason() -> None:
    made = many(12, Design(DesignKind.PLACKETT_BURMAN))
    plan = Plan(made, SEED)
    mixed = {
        kind: mixed_into(made, plan.treatments, weights) for kind, weights in plan.control_weights.items()
    }
    share, pair = mixed[ArmKind.NEGATIVE][0].split()
    one, other = pair.split(":")

    def log_time(treatment: Mapping[str, str]) -> float:
        return 2.0 * (treatment[one] == treatment[other])

    blocks = simulated(plan, 40, log_time)
    found = analyse(Spec.from_plan(plan), blocks)
    assert "negative" in {control.kind for control in found.controls if not control.passed}
    reasons = likely_reasons(
        found, blocks, made.responses, {}, weights=plan.control_weights, margin=made.margin, mixed=mixed
    )
    assert reasons[0].code == "mixed_design"
    assert pair in reasons[0].text
    assert abs(float(share)) <= 1.0
    folded = many(12, Design(DesignKind.PLACKETT_BURMAN, fold_over=True))
    clear = Plan(folded, SEED)
    assert not any(
        mixed_into(folded, clear.treatments, weights) for weights in clear.control_weights.values()
    )
    found = analyse(Spec.from_plan(clear), simulated(clear, 40, log_time))
    assert found.valid


def test_an_interaction_is_half_the_difference_of_one_effect_at_the_two_levels_of_the_other() -> None:
    plan = Plan(study(factor("a"), factor("b"), design=Design(interactions=(("a", "b"),))), SEED)

    def log_time(treatment: Mapping[str, str]) -> float:
        both = treatment["a"] == treatment["b"] == "on"
        return 0.1 * (treatment["a"] == "on") + 0.4 * both

    found = analyse(Spec.from_plan(plan), simulated(plan, 60, log_time))
    one = effect(found, "a:b", kind="interaction")
    assert one.primary
    assert one.family_alpha == pytest.approx(0.05 / 3)
    # a: +0.1 while b is off, +0.5 while it is on
    assert one.low is not None
    assert one.high is not None
    assert math.log(one.low) < (0.5 - 0.1) / 2 < math.log(one.high)
    assert math.log(one.high) - math.log(one.low) < 0.1
    mean = effect(found, "a")
    assert mean.value == pytest.approx(math.exp((0.1 + 0.5) / 2), rel=0.03)


def test_interactions_that_nobody_named_are_a_family_of_their_own() -> None:
    plan = Plan(study(factor("a"), factor("b", "x y z")), SEED)
    found = analyse(Spec.from_plan(plan), simulated(plan, 20, lambda _: 0.0))
    interactions = [e for e in found.effects if e.kind == "interaction"]
    assert [e.level for e in interactions] == ["on:y", "on:z"]
    assert all(not e.primary and e.family_alpha == pytest.approx(0.05 / 2) for e in interactions)
    assert all(e.discovery is False for e in interactions)
    assert all(e.family_alpha == pytest.approx(0.05 / 3) for e in found.effects if e.primary)


def test_pooled_effects_average_the_conditions() -> None:
    plan = Plan(study(factor("a"), factor("size", "small large", Role.CONDITION)), SEED)

    def log_time(treatment: Mapping[str, str]) -> float:
        return (0.1 if treatment["size"] == "small" else 0.3) * (treatment["a"] == "on")

    found = analyse(Spec.from_plan(plan), simulated(plan, 60, log_time))
    one = effect(found, "a", kind="pooled")
    assert (dict(one.condition), one.workload, one.primary) == ({}, "w", False)
    assert one.value == pytest.approx(math.exp(0.2), rel=0.02)
    assert one.verdict is Verdict.SLOWER
    assert [math.log(e.value or 0) for e in found.effects if e.primary] == pytest.approx([0.1, 0.3], abs=0.03)


def test_a_condition_alone_is_not_pooled() -> None:
    plan = Plan(study(factor("a")), SEED)
    found = analyse(Spec.from_plan(plan), simulated(plan, 10, lambda _: 0.0))
    assert not [e for e in found.effects if e.kind == "pooled"]


WHOLE = study(factor("mkfs", "x y", whole=True), factor("mode"), design=Design(repeats=5))


def test_repeats_in_a_stretch_are_no_blocks_of_the_whole_plot_factor() -> None:
    plan = Plan(WHOLE, SEED)
    blocks = simulated(plan, 12, lambda t: 0.2 * (t["mode"] == "on"), sd=0.02, stretch_sd=0.3)
    found = analyse(Spec.from_plan(plan), blocks)
    assert found.valid, found.invalid_reasons
    mkfs, mode = effect(found, "mkfs"), effect(found, "mode")
    assert (mkfs.blocks, mode.blocks) == (12, 60)
    assert mkfs.block_sd is not None
    assert mode.block_sd is not None
    # differences between stretches are in the first, and cancel in the second
    assert mkfs.block_sd > 5 * mode.block_sd
    assert mode.verdict is Verdict.SLOWER
    controls = {control.kind: control.blocks for control in found.controls}
    assert controls == {"negative": 6, "positive": 30}


@pytest.mark.parametrize("honest", [True, False])
@pytest.mark.long
def test_pretending_that_repeats_are_blocks_makes_false_alarms(honest: bool) -> None:
    """Stretches differ at random and repeats agree; the whole-plot factor has no effect at all."""
    plan = Plan(WHOLE, SEED, controls=False)
    spec = Spec.from_plan(plan)
    alarms = 0
    for _ in range(60):
        blocks = simulated(plan, 12, lambda _: 0.0, sd=0.02, stretch_sd=0.3, seed=None)
        if honest:
            state = analyse_condition(spec, plan.conditions[0].key, blocks)
            alarms += next(e for e in state.effects if e.factor == "mkfs").p_anytime <= 0.05
        else:
            from iotrial.stats.contrast import Responses
            from iotrial.stats.eprocess import excluded

            term = next(term for term in spec.terms if term.factor == "mkfs")
            numbers = Responses(blocks, plan.study.responses[0]).contrasts(term.weights, whole=False).values
            alarms += excluded(numbers, 0.0, 0.05)
    # at .05 more than 16 of 60 occur once in a million; counting repeats as blocks errs in most trials
    assert alarms <= 16 if honest else alarms > 16


def test_a_copy_that_differs_from_its_original_makes_a_trial_of_whole_plots_invalid() -> None:
    plan = Plan(study(factor("mkfs", "x y", whole=True), factor("mode")), SEED)
    blocks = simulated(plan, 80, lambda _: 0.0)
    broken = [
        type(block)(
            block.condition,
            block.index,
            tuple(
                type(run)(
                    run.arm,
                    run.kind,
                    run.treatment,
                    run.slot,
                    run.started_s,
                    {
                        "wall": run.responses["wall"]
                        * (1.2 if run.arm.startswith("control:negative") else 1.0)
                    },
                )
                for run in block.observations
            ),
        )
        for block in blocks
    ]
    found = analyse(Spec.from_plan(plan), broken)
    assert [control.kind for control in found.controls if not control.passed] == ["negative"]


@pytest.mark.parametrize("definitive", [False, True])
def test_a_count_that_one_setting_changes_differs_by_nothing_at_all_for_the_others(definitive: bool) -> None:
    counts = Response("w", "bytes", "bytes", Scale.DIFFERENCE, Better.LOWER, primary=True)
    made = replace(many(7, Design(DesignKind.PLACKETT_BURMAN)), responses=(counts,))
    plan = stored_definitive(made) if definitive else Plan(made, SEED)
    blocks = [
        ObservedBlock(
            plan.conditions[0].key,
            index,
            tuple(
                Observation(
                    run.arm.name,
                    run.arm.kind,
                    run.arm.treatment,
                    run.slot,
                    0.0,
                    {"bytes": 3_387_392.0 + 4096.0 * (run.arm.treatment["f03"] == "on")},
                )
                for run in plan.block(plan.conditions[0], index).runs
            ),
        )
        for index in range(20)
    ]
    found = analyse(Spec.from_plan(plan), blocks)
    for e in found.effects:
        assert (e.value, e.low, e.high) == (
            pytest.approx((4096.0,) * 3) if e.factor == "f03" else (0.0, 0.0, 0.0)
        )
        assert (e.p_anytime < 0.001) is (e.factor == "f03")
