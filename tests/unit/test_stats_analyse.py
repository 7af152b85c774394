"""The analysis of a whole trial: from a plan and simulated runs to effects, controls, voids and notes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from factorials import factor, reading, response, study

from iotrial.design.model import ArmKind, Block, PlannedRun
from iotrial.design.plan import Plan
from iotrial.stats.analyse import Spec, analyse, analyse_condition, look_due
from iotrial.stats.controls import positive_seen
from iotrial.stats.eprocess import interval
from iotrial.stats.model import Control, Observation, ObservedBlock, Verdict
from iotrial.stats.spec import stretched_response
from iotrial.study.model import Better, Response, Role, Scale
from values import replace

Change = Callable[[Block, PlannedRun, Observation], Observation]


STUDY = study(
    factor("mode", "444 555 777"),
    factor("cache", "cold warm", Role.CONDITION),
    name="modes",
    workloads=(reading(files=5, pool=5),),
    responses=(
        response("wall"),
        response("cpu", primary=False),
        Response("w", "faults", "1", Scale.DIFFERENCE, Better.LOWER, primary=False),
        response("never_measured", primary=False),
    ),
)
EFFECTS = {"444": 0.0, "555": 0.0, "777": math.log(1.3)}


def conducted(
    plan: Plan, blocks: int, *, sd: float = 0.03, seed: int = 1, change: Change | None = None
) -> list[ObservedBlock]:
    """Return the plan's blocks with log-normal times. 777 takes 1.3 times as long and one more fault; 555 equals 444."""
    rng = np.random.default_rng(seed)
    out = []
    time = 0.0
    for index in range(blocks):
        for condition in plan.conditions:
            block = plan.block(condition, index)
            level = rng.normal(0, 0.5)
            observations = []
            for run in block.runs:
                label = run.arm.treatment["mode"]
                log = level + EFFECTS[label] + rng.normal(0, sd)
                if run.arm.kind is ArmKind.POSITIVE:
                    log += math.log(1.1)
                time += 1.0
                observation = Observation(
                    arm=run.arm.name,
                    kind=run.arm.kind,
                    treatment=run.arm.treatment,
                    slot=run.slot,
                    started_s=time,
                    responses={
                        "wall": math.exp(log),
                        "cpu": math.exp(rng.normal()),
                        "faults": 3.0 + (label == "777"),
                    },
                )
                observations.append(change(block, run, observation) if change else observation)
            out.append(ObservedBlock(condition.key, index, tuple(observations)))
    return out


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan(STUDY, "ab" * 16)


@pytest.fixture(scope="module")
def spec(plan: Plan) -> Spec:
    return Spec.from_plan(plan)


def test_a_trial_finds_the_effect_and_the_equivalence_that_were_put_in(plan: Plan, spec: Spec) -> None:
    found = analyse(spec, conducted(plan, 60))
    assert found.valid
    primary = [effect for effect in found.effects if effect.primary]
    assert [(e.level, e.condition["cache"], e.verdict) for e in primary] == [
        ("555", "cold", Verdict.EQUIVALENT),
        ("777", "cold", Verdict.SLOWER),
        ("555", "warm", Verdict.EQUIVALENT),
        ("777", "warm", Verdict.SLOWER),
    ]
    slower = primary[1]
    assert slower.value == pytest.approx(1.3, rel=0.02)
    assert slower.low is not None
    assert slower.high is not None
    assert slower.low < 1.3 < slower.high
    assert slower.family_alpha == pytest.approx(0.05 / 4)
    assert slower.reference == "444"
    assert slower.decided
    assert slower.cross_check is not None
    assert slower.cross_check[0] < 1.3 < slower.cross_check[1]
    assert slower.block_sd == pytest.approx(0.03 * math.sqrt(2), rel=0.35)


def test_the_interval_of_an_effect_is_that_of_its_contrasts_by_hand(plan: Plan, spec: Spec) -> None:
    blocks = conducted(plan, 30)
    effect = next(e for e in analyse(spec, blocks).effects if e.level == "777" and e.primary)
    logs, copies = [], []
    for block in blocks:
        if block.condition == plan.conditions[0].key:
            wall = {o.arm: o.responses["wall"] for o in block.observations}
            logs.append(math.log(wall["777"] / wall["444"]))
            copy = wall.get("control:negative")  # in every second block
            copies.append(math.nan if copy is None else math.log(copy / wall["444"]))
    assert sum(map(math.isnan, copies)) == 15
    by_hand = interval(logs, 0.05 / 4, margin=math.log1p(spec.margin), copies=copies)
    assert by_hand.low is not None
    assert effect.low == pytest.approx(math.exp(by_hand.low))
    assert effect.p_anytime == pytest.approx(by_hand.p_anytime)
    assert effect.blocks == 30


def test_controls_pass_and_are_judged_at_a_level_shared_over_all(plan: Plan, spec: Spec) -> None:
    found = analyse(spec, conducted(plan, 60))
    assert spec.control_alpha == pytest.approx(0.001 / 4)
    assert [(c.kind, c.condition["cache"]) for c in found.controls] == [
        ("negative", "cold"),
        ("positive", "cold"),
        ("negative", "warm"),
        ("positive", "warm"),
    ]
    for control in found.controls:
        assert control.passed
        assert control.blocks == 30
        assert control.told_from_zero is (control.kind == "positive")
        assert control.injected == pytest.approx(1.1 if control.kind == "positive" else 1.0)


def test_a_copy_that_differs_from_its_original_makes_the_trial_invalid(plan: Plan, spec: Spec) -> None:
    def slow_copy(_block: Block, run: PlannedRun, seen: Observation) -> Observation:
        if run.arm.kind is not ArmKind.NEGATIVE:
            return seen
        return replace(seen, responses={**seen.responses, "wall": 1.4 * seen.responses["wall"]})

    blocks = conducted(plan, 60, change=slow_copy)
    found = analyse(spec, blocks)
    assert not found.valid
    assert any("identical arms" in reason for reason in found.invalid_reasons)
    cold = plan.conditions[0].key
    assert analyse_condition(spec, cold, [b for b in blocks if b.condition == cold]).control_failed


def test_a_positive_control_that_misses_what_was_injected_makes_the_trial_invalid(
    plan: Plan, spec: Spec
) -> None:
    def unstretched(_block: Block, run: PlannedRun, seen: Observation) -> Observation:
        if run.arm.kind is not ArmKind.POSITIVE:
            return seen
        return replace(seen, responses={**seen.responses, "wall": seen.responses["wall"] / 1.1})

    found = analyse(spec, conducted(plan, 120, change=unstretched))
    assert not found.valid
    assert any("does not show the injected ratio 1.1" in reason for reason in found.invalid_reasons)
    # and where the slowdown was not seen, nothing may be called equivalent
    primary = {(e.level, e.condition["cache"]): e for e in found.effects if e.primary}
    assert primary["555", "cold"].reason == "control_not_seen"
    assert primary["777", "cold"].verdict is Verdict.SLOWER


def test_a_start_that_the_rest_does_not_bear_out_makes_its_comparison_lean(plan: Plan, spec: Spec) -> None:
    def leaning(slowed: int) -> list[str]:
        def change(block: Block, run: PlannedRun, seen: Observation) -> Observation:
            if run.arm.name != "555" or block.index >= slowed:
                return seen
            return replace(seen, responses={**seen.responses, "wall": 1.15 * seen.responses["wall"]})

        # no run is as long as a stall
        found = analyse(spec, conducted(plan, 80, sd=0.05, change=change))
        return [effect.level for effect in found.effects if effect.primary and effect.leaning]

    assert set(leaning(12)) == {"555"}
    assert leaning(80) == leaning(0) == []


def test_without_controls_equivalence_is_given_and_the_notes_say_what_is_missing() -> None:
    plan = Plan(STUDY, "ab" * 16, controls=False)
    found = analyse(Spec.from_plan(plan), conducted(plan, 60))
    assert found.controls == ()
    assert any("controls were off" in note for note in found.notes)
    assert next(e for e in found.effects if e.level == "555").verdict is Verdict.EQUIVALENT


def test_exploratory_responses_are_those_measured_and_get_discoveries(plan: Plan, spec: Spec) -> None:
    found = analyse(spec, conducted(plan, 60))
    exploratory = [e for e in found.effects if not e.primary and e.kind == "main"]
    assert {e.response for e in exploratory} == {"cpu", "faults"}
    assert all(e.family_alpha == 0.05 for e in exploratory)
    faults = {e.level: e for e in exploratory if e.response == "faults" and e.condition["cache"] == "cold"}
    assert (faults["777"].value, faults["777"].verdict, faults["777"].discovery) == (1.0, Verdict.WORSE, True)
    assert (faults["555"].value, faults["555"].verdict, faults["555"].discovery) == (
        0.0,
        Verdict.EQUIVALENT,
        False,
    )
    assert all(e.discovery is None for e in found.effects if e.primary)


def test_failures_are_counted_by_level_and_cap_the_verdict(plan: Plan, spec: Spec) -> None:
    def crash(block: Block, run: PlannedRun, seen: Observation) -> Observation:
        if run.arm.name != "777" or block.index % 20 or block.condition.index:
            return seen
        return replace(seen, responses={}, failure="exit status 139")

    found = analyse(spec, conducted(plan, 60, change=crash))
    primary = {(e.level, e.condition["cache"]): e for e in found.effects if e.primary}
    hit = primary["777", "cold"]
    assert (hit.failures, hit.blocks, hit.verdict, hit.reason) == (3, 57, Verdict.INCONCLUSIVE, "failures")
    assert primary["777", "warm"].verdict is Verdict.SLOWER
    assert primary["555", "cold"].failures == 0
    assert "3 failed runs of 777" in found.notes


def test_the_conductor_is_told_when_a_condition_is_decided(plan: Plan, spec: Spec) -> None:
    cold = plan.conditions[0].key
    blocks = [b for b in conducted(plan, 80) if b.condition == cold]
    states = [analyse_condition(spec, cold, blocks[:n]) for n in (0, 5, 80)]
    assert [state.decided for state in states] == [False, False, True]
    assert [state.blocks for state in states] == [0, 5, 80]
    assert not any(state.control_failed for state in states)
    assert all(e.reason == "no_blocks" for e in states[0].effects)
    assert states[2].effects == tuple(
        e for e in analyse(spec, blocks).effects if e.primary and e.condition["cache"] == "cold"
    )


def test_void_blocks_are_counted_by_rule_and_level_and_left_out(plan: Plan, spec: Spec) -> None:
    blocks = conducted(plan, 40)
    for at in (3, 8, 20):
        blocks[at] = replace(blocks[at], void="cache_state", void_level="555")
    blocks[5] = replace(blocks[5], void="foreign_io")
    found = analyse(spec, blocks)
    assert [(v.rule, v.level, v.count) for v in found.void] == [
        ("cache_state", "555", 3),
        ("foreign_io", "", 1),
    ]
    assert sum(e.blocks for e in found.effects if e.primary and e.level == "777") == 80 - 4
    assert found.valid


def test_a_rate_is_stretched_by_the_inverse_and_a_count_has_no_positive_control() -> None:
    rate = Response("w", "rate", "bytes/s", Scale.LOG, Better.HIGHER, primary=True)
    count = Response("w", "faults", "1", Scale.DIFFERENCE, Better.LOWER, primary=True)
    spec = Spec.from_plan(Plan(replace(STUDY, responses=(rate,)), "ab" * 16))
    assert spec.injected_ratio(rate) == pytest.approx(1 / 1.1)
    spec = Spec.from_plan(Plan(replace(STUDY, responses=(count,)), "ab" * 16))
    assert spec.positive_response(spec.conditions[0]) is None
    assert spec.control_alpha == pytest.approx(0.001 / 2)


def scaled(kind: ArmKind, ratio: float) -> Change:
    """Return a change that makes arms of this kind take ``ratio`` times as long."""

    def change(_block: Block, run: PlannedRun, seen: Observation) -> Observation:
        if run.arm.kind is not kind:
            return seen
        return replace(seen, responses={**seen.responses, "wall": ratio * seen.responses["wall"]})

    return change


def test_a_copy_that_is_told_from_its_original_at_the_studys_alpha_alone_passes(
    plan: Plan, spec: Spec
) -> None:
    found = analyse(spec, conducted(plan, 60, change=scaled(ArmKind.NEGATIVE, 1.03)))
    told = [one for one in found.controls if one.kind == "negative" and one.told_from_zero]
    assert told
    assert all(one.passed for one in told)


def test_a_slowed_copy_that_is_faster_has_not_been_seen(plan: Plan, spec: Spec) -> None:
    found = analyse(spec, conducted(plan, 60, change=scaled(ArmKind.POSITIVE, 0.5)))
    positive = [one for one in found.controls if one.kind == "positive"]
    assert all(one.ratio is not None and one.ratio < 0.7 for one in positive)
    assert not any(one.passed or one.told_from_zero for one in positive)


def test_the_slowdown_is_seen_in_six_blocks_where_the_copy_runs_too(plan: Plan, spec: Spec) -> None:
    """Two runs would need eight: their capital at most doubles with each block. With three runs it triples."""
    found = analyse(spec, conducted(plan, 12, sd=1e-4))
    positive = [one for one in found.controls if one.kind == "positive"]
    assert [(one.blocks, one.told_from_zero) for one in positive] == [(6, True), (6, True)]


@pytest.mark.parametrize("every", [0, 7])
@pytest.mark.parametrize("time_s", [0.013, 0.0017, 2.3e-05, 41.0])
def test_the_slowdown_of_a_time_that_is_the_same_in_every_run_is_seen_whatever_the_last_digit(
    plan: Plan, spec: Spec, time_s: float, every: int
) -> None:
    """As a benchmark prints it, multiplied by 1.1 in the slowed copy. Of ``every`` runs one takes longer (0: none)."""
    assert math.log(1.1 * time_s) - math.log(time_s) != math.log(1.1)

    def printed(block: Block, run: PlannedRun, seen: Observation) -> Observation:
        stalls = every and (3 * block.index + 5 * run.slot) % every == 0
        wall = time_s * (1.5 if stalls else 1.0) * (1.1 if run.arm.kind is ArmKind.POSITIVE else 1.0)
        return replace(seen, responses={**seen.responses, "wall": wall})

    found = analyse(spec, conducted(plan, 120, change=printed))
    positive = [one for one in found.controls if one.kind == "positive"]
    assert len(positive) == 2
    for one in positive:
        assert one.passed, one
        assert one.told_from_zero
    # a slowdown that is a millionth off is not the one that was injected
    off = analyse(
        spec, conducted(plan, 120, change=lambda *of: replace(seen := printed(*of), responses={
            **seen.responses, "wall": seen.responses["wall"] * (1.000001 if of[1].arm.kind is ArmKind.POSITIVE else 1.0)
        }))
    )  # fmt: skip
    if not every:
        assert not any(one.passed for one in off.controls if one.kind == "positive")


def test_every_slowed_copy_that_vouches_for_a_response_must_have_been_seen() -> None:
    def control(response: str, *, seen: bool) -> Control:
        return Control(ArmKind.POSITIVE.value, {}, response, 1.1, 1.1, None, None, True, seen, 30)

    both = [control("wall", seen=True), control("wall", seen=False)]
    assert not positive_seen(both, "wall")
    assert not positive_seen(both, "cpu")
    assert positive_seen(both[:1], "wall")
    assert positive_seen(both[:1], "cpu")
    assert positive_seen([*both, control("cpu", seen=True)], "cpu")


def test_the_response_that_is_stretched_is_the_first_that_a_stretch_is_a_constant_ratio_of() -> None:
    def named(name: str, unit: str = "s", *, scale: Scale = Scale.LOG, primary: bool = False) -> Response:
        return Response("w", name, unit, scale, Better.LOWER, primary=primary)

    wall, read, cpu = named("wall"), named("read_time"), named("cpu")
    user = named("user", primary=True)
    written = named("device_write_bytes", "bytes", scale=Scale.DIFFERENCE, primary=True)
    assert stretched_response([wall, read, cpu]) == wall
    assert stretched_response([wall, replace(read, primary=True)]).name == "read_time"
    assert stretched_response([written, wall, read]) == wall
    assert stretched_response([user, cpu]) == cpu, "shares of the CPU time are guessed from ticks"
    assert stretched_response([named("wall", scale=Scale.DIFFERENCE, primary=True), read]) == read
    assert stretched_response([written, user]) is None


def test_the_copy_is_judged_in_every_response_that_gets_a_verdict() -> None:
    both = (STUDY.responses[0], replace(STUDY.responses[2], primary=True))
    plan = Plan(replace(STUDY, responses=both), "ab" * 16)
    spec = Spec.from_plan(plan)

    def another_fault(_block: Block, run: PlannedRun, seen: Observation) -> Observation:
        more = run.arm.kind is ArmKind.NEGATIVE
        return replace(seen, responses={**seen.responses, "faults": seen.responses["faults"] + more})

    sound = analyse(spec, conducted(plan, 60))
    kinds = [(c.kind, c.response) for c in sound.controls if c.condition["cache"] == "cold"]
    assert kinds == [("negative", "wall"), ("negative", "faults"), ("positive", "wall")]
    assert spec.control_alpha == pytest.approx(0.001 / 6)
    assert sound.valid
    found = analyse(spec, conducted(plan, 60, change=another_fault))
    failed = [control for control in found.controls if not control.passed]
    assert {(control.kind, control.response) for control in failed} == {("negative", "faults")}
    assert (failed[0].ratio, failed[0].injected) == (1.0, 0.0)


def test_a_trial_whose_responses_hold_no_slow_down_claims_no_equivalence_of_ratios() -> None:
    size = Response("w", "faults", "1", Scale.LOG, Better.LOWER, primary=True)
    plan = Plan(replace(STUDY, responses=(size,)), "ab" * 16)
    found = analyse(Spec.from_plan(plan), conducted(plan, 60))
    same = next(effect for effect in found.effects if effect.level == "555")
    assert (same.verdict, same.reason) == (Verdict.INCONCLUSIVE, "control_not_seen")


def test_looks_follow_every_block_at_first_and_then_growth() -> None:
    looks = []
    last = 0
    for blocks in range(1, 400):
        if look_due(blocks, last):
            looks.append(blocks)
            last = blocks
    assert looks[:21] == list(range(1, 22))
    assert all(1.04 <= b / a <= 1.11 for a, b in itertools.pairwise(looks[40:]))
    assert not look_due(20, 20)


BUDGET = {"time_s": 1e6, "blocks": 40, "budget_share": 0.35}


def test_a_trial_that_was_begun_without_the_bet_on_its_budget_keeps_its_numbers() -> None:
    plan = Plan(STUDY, "ab" * 16)
    blocks = conducted(plan, 20)
    for options in (
        {},
        {"time_s": 1e6, "blocks": 40},
        {"budget_share": 0.35},
        {**BUDGET, "budget_share": 0.0},
    ):
        assert analyse(Spec.from_plan(plan, options), blocks) == analyse(Spec.from_plan(plan), blocks)


def test_only_primary_ratios_take_part_in_the_bet_on_the_budget() -> None:
    plan = Plan(STUDY, "ab" * 16)
    blocks = conducted(plan, 40, sd=0.2)
    plain, known = (analyse(Spec.from_plan(plan, options), blocks) for options in ({}, BUDGET))
    assert known.controls == plain.controls
    differing = [
        one
        for one, other in zip(known.effects, plain.effects, strict=True)
        if one != other and one.kind != "pooled"
    ]
    assert differing
    assert all(one.primary and one.scale is Scale.LOG for one in differing)
    assert all(one.family_alpha == Spec.from_plan(plan).primary_alpha for one in differing)


def test_between_blocks_and_at_the_end_a_budget_says_the_same() -> None:
    plan = Plan(STUDY, "ab" * 16)
    spec = Spec.from_plan(plan, BUDGET)
    blocks = conducted(plan, 25, sd=0.1)
    whole = analyse(spec, blocks)
    for condition in plan.conditions:
        own = [block for block in blocks if block.condition == condition.key]
        state = analyse_condition(spec, condition.key, own)
        assert list(state.effects) == [
            effect for effect in whole.effects if effect.primary and effect.condition == condition.levels
        ]


def test_blocks_beyond_the_declared_budget_are_left_to_the_other_bets() -> None:
    """In a continued trial, what the bet on the budget had excluded when the budget was spent stays excluded."""
    plan = Plan(STUDY, "ab" * 16)
    blocks = conducted(plan, 60, sd=0.2)
    early = [block for block in blocks if block.index < 40]
    spec = Spec.from_plan(plan, BUDGET)
    checked = 0
    for after, before in zip(analyse(spec, blocks).effects, analyse(spec, early).effects, strict=True):
        if after.primary and not after.leaning and before.low is not None and before.high is not None:
            assert after.low is not None
            assert after.high is not None
            checked += 1
            rounding = 1e-5 * (before.high - before.low)
            assert before.low - rounding <= after.low <= after.high <= before.high + rounding
    assert checked


def test_only_a_comparison_with_the_original_itself_uses_its_copy() -> None:
    spec = Spec.from_plan(Plan(STUDY, "ab" * 16))
    wall, _, count, _ = spec.responses
    uses = {term.level: spec.copy_of_reference(term, wall) for term in spec.terms if term.primary}
    assert uses == {level: {"control:negative": 1.0, "444": -1.0} for level in ("555", "777")}
    assert all(spec.copy_of_reference(term, count) is None for term in spec.terms)
    off = Spec.from_plan(Plan(STUDY, "ab" * 16, controls=False))
    assert all(off.copy_of_reference(term, wall) is None for term in off.terms)
    crossed = replace(STUDY, factors=(factor("mode", "444 777"), factor("owner", "me you")))
    several = Spec.from_plan(Plan(crossed, "ab" * 16))
    assert all(several.copy_of_reference(term, wall) is None for term in several.terms)
