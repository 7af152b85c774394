"""Plans: conditions, arms, and the randomisation of order and assignment."""

from __future__ import annotations

from collections import Counter

import pytest
from factorials import SEED, factor, reading, response
from factorials import study as factorial

from iotrial.design.model import ArmKind, Before, WashIn
from iotrial.design.plan import Plan, condition_key
from iotrial.errors import RequestError
from iotrial.study.model import Role, Study, Workload
from iotrial.workloads.files import FilesWork
from values import replace


def study(**changes: object) -> Study:
    base = factorial(
        factor("mode", "444 555 777"),
        factor("size", "1KiB 10KiB", Role.CONDITION),
        factor("cache", "cold warm", Role.CONDITION),
        name="modes",
        margin=0.03,
        workloads=(
            reading("probe", files=10),
            reading("md5sum", only={"cache": ("cold",)}, files=4, pool=4),
        ),
        responses=(
            response("read_time", workload="probe"),
            response("open_time", workload="probe", primary=False),
            response("wall", workload="md5sum"),
            response("cpu", workload="md5sum"),
        ),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def test_a_workload_runs_only_under_the_levels_it_names() -> None:
    keys = [condition.key for condition in Plan(study(), SEED).conditions]
    assert keys == [
        "cache=cold,size=1KiB,workload=probe",
        "cache=warm,size=1KiB,workload=probe",
        "cache=cold,size=10KiB,workload=probe",
        "cache=warm,size=10KiB,workload=probe",
        "cache=cold,size=1KiB,workload=md5sum",
        "cache=cold,size=10KiB,workload=md5sum",
    ]
    assert [condition.index for condition in Plan(study(), SEED).conditions] == list(range(6))


def test_characters_that_join_a_key_are_escaped_in_its_parts() -> None:
    assert condition_key("w", {"a": "x,b=y"}) == r"a=x\,b\=y,workload=w"
    assert condition_key("w", {"a": "x", "b": "y"}) != condition_key("w", {"a": "x,b=y"})


def test_primary_effects_are_counted_over_conditions_levels_and_primary_responses() -> None:
    # 4 conditions x 2 levels x 1 response, and 2 conditions x 2 levels x 2 responses
    assert Plan(study(), SEED).primary_effects == 4 * 2 * 1 + 2 * 2 * 2


def test_arms_are_the_product_of_the_treatment_factors_and_two_controls() -> None:
    factors = (factor("mode", "444 777"), factor("link", "none hard"))
    plan = Plan(study(factors=factors, workloads=(study().workloads[0],)), SEED)
    assert [arm.name for arm in plan.arms(controls=True)] == [
        "444+none",
        "444+hard",
        "777+none",
        "777+hard",
        "control:negative",
        "control:positive",
    ]
    assert plan.reference.treatment == {"mode": "444", "link": "none"}
    negative = plan.arms(controls=True)[4]
    assert (negative.kind, negative.treatment) == (ArmKind.NEGATIVE, plan.reference.treatment)


def test_every_block_holds_each_arm_once_and_controls_in_every_second() -> None:
    plan = Plan(study(), SEED)
    for index in range(10):
        block = plan.block(plan.conditions[0], index)
        assert block.controls is (index % 2 == 0)
        assert [run.slot for run in block.runs] == list(range(len(block.runs)))
        assert sorted(run.arm.name for run in block.runs) == sorted(
            arm.name for arm in plan.arms(controls=block.controls)
        )


def test_a_plan_without_controls_has_no_control_arm() -> None:
    plan = Plan(study(), SEED, controls=False)
    arms = {run.arm.kind for index in range(4) for run in plan.block(plan.conditions[0], index).runs}
    assert arms == {ArmKind.TREATMENT}
    assert plan.arms(controls=True) == plan.treatments


def test_the_same_study_and_seed_give_the_same_plan_and_another_seed_another() -> None:
    one, same, other = Plan(study(), SEED), Plan(study(), SEED.upper()), Plan(study(), "0" * 32)
    blocks = [(condition, index) for condition in one.conditions for index in range(5)]
    assert [one.block(*at) for at in blocks] == [same.block(*at) for at in blocks]
    assert [one.block(*at) for at in blocks] != [other.block(*at) for at in blocks]


def test_every_order_of_the_arms_is_equally_frequent_in_each_condition() -> None:
    plan = Plan(study(), SEED, controls=False)
    for condition in plan.conditions[-2:]:
        orders = Counter(
            tuple(run.arm.name for run in plan.block(condition, index).runs) for index in range(3000)
        )
        assert len(orders) == 6
        assert sum((count - 500) ** 2 / 500 for count in orders.values()) < 25.7  # 99.99 % at 5 d.f.


def test_arms_of_a_block_never_share_a_file_where_the_pool_suffices() -> None:
    plan = Plan(study(), SEED)
    probe = plan.study.workload("probe")
    assert plan.pool_size(probe) == 2 * 5 * 10
    seen: Counter[int] = Counter()
    for index in range(20):
        files = [run.files for run in plan.block(plan.conditions[0], index).runs]
        drawn = [file for group in files if group is not None for file in group]
        assert all(group is not None and len(group) == 10 for group in files)
        assert len(set(drawn)) == len(drawn)
        seen.update(drawn)
    assert set(seen) == set(range(100))


def test_all_arms_work_on_the_whole_pool_where_it_is_no_larger_than_a_run() -> None:
    plan = Plan(study(), SEED)
    md5sum = next(condition for condition in plan.conditions if condition.workload == "md5sum")
    assert {run.files for run in plan.block(md5sum, 0).runs} == {None}


def test_arms_draw_independently_from_a_pool_too_small_for_all() -> None:
    small = reading("probe", files=10, pool=15)
    plan = Plan(study(workloads=(small,)), SEED)
    files = [run.files for run in plan.block(plan.conditions[0], 0).runs]
    assert len(set(files)) == len(files)
    for group in files:
        assert group is not None
        assert len(set(group)) == 10
        assert set(group) <= set(range(15))


def test_neighbours_are_drawn_as_whole_runs_that_no_two_arms_share() -> None:
    near = reading("probe", files=10, pool=59, contiguous=True)
    plan = Plan(study(workloads=(near,)), SEED)
    first: set[int] = set()
    for index in range(20):
        groups = [run.files for run in plan.block(plan.conditions[0], index).runs]
        starts = [group[0] for group in groups if group is not None]
        assert all(
            group == tuple(range(start, start + 10)) for group, start in zip(groups, starts, strict=True)
        )
        assert len(set(starts)) == len(groups)
        assert set(starts) <= {0, 10, 20, 30, 40}
        first.update(starts[:1])
    assert len(first) > 2, "the same arm always got the same place"


def test_a_pool_with_too_few_runs_of_neighbours_is_refused() -> None:
    near = reading("probe", files=10, pool=49, contiguous=True)
    with pytest.raises(RequestError, match="5 times 10 neighbours"):
        Plan(study(workloads=(near,)), SEED)


@pytest.mark.parametrize("before", Before)
def test_a_wash_in_is_never_slowed_and_works_on_the_files_of_the_run_that_follows(before: Before) -> None:
    plan = Plan(study(), SEED)
    condition = plan.conditions[0]
    runs = plan.block(condition, 0).runs
    assert any(run.arm.stretched for run in runs)
    for run in runs:
        lead, _ = plan.wash_in(WashIn(before), condition, 0, run)
        assert not lead.arm.stretched
        assert (lead.slot, lead.files) == (run.slot, run.files)
        if before is Before.REFERENCE:
            assert lead.arm == plan.reference
        if before is Before.SAME:
            assert lead.arm.treatment == run.arm.treatment


def test_a_drawn_wash_in_has_the_runs_own_level_in_half_of_the_runs_and_another_in_the_rest() -> None:
    plan = Plan(study(), SEED)
    condition = plan.conditions[0]
    drawn: dict[str, list[bool]] = {}
    for index in range(200):
        for run in plan.block(condition, index).runs:
            lead, other = plan.wash_in(WashIn(Before.DRAWN), condition, index, run)
            assert other is (lead.arm.treatment != run.arm.treatment)
            if other and run.arm.treatment != plan.reference.treatment:
                assert lead.arm == plan.reference
            drawn.setdefault(run.arm.name, []).append(other)
    for coins in drawn.values():  # 4.5 standard deviations of a fair coin
        assert abs(sum(coins) - len(coins) / 2) < 4.5 * len(coins) ** 0.5 / 2


def test_of_two_arms_the_slowed_run_is_of_the_one_that_has_no_copy() -> None:
    two = study(factors=(factor("mode", "444 555"),))
    for after_itself, slowed in ((True, "555"), (False, "444")):
        plan = Plan(two, SEED, controls_first=24, after_itself=after_itself)
        runs = plan.block(plan.conditions[0], 0).runs
        by_kind = {run.arm.kind: run.arm.treatment["mode"] for run in runs if run.arm.of_control}
        assert by_kind == {ArmKind.NEGATIVE: "444", ArmKind.POSITIVE: slowed}
        assert plan.control_weights[ArmKind.POSITIVE] == {"control:positive": 1.0, slowed: -1.0}
        assert not plan.block(plan.conditions[0], 0).after_itself
        again = Plan.stored(two, SEED, plan.options)
        assert again.block(plan.conditions[0], 7) == plan.block(plan.conditions[0], 7)
    # as trials were stored by versions that did not know of it
    assert Plan.stored(two, SEED, {"controls_first": 24}).after_itself is False


def test_of_more_arms_each_but_the_reference_sometimes_runs_just_after_itself() -> None:
    plan = Plan(
        study(factors=(factor("mode", "444 555 666 777"),)), SEED, controls_first=24, after_itself=True
    )
    condition = plan.conditions[0]
    blocks = [plan.block(condition, index) for index in range(32)]
    seen = [[run.arm.name for run in block.runs if run.slot in block.after_itself] for block in blocks]
    soon = Counter(name for names in seen[:10] for name in names)
    # each has its turn in five of the first ten blocks, and is in slot 0, which has no run before it, in a sixth
    assert soon.keys() == {"555", "666", "777"}
    assert all(2 <= count <= 5 for count in soon.values())
    assert [len(names) for names in seen[10:] if len(names) > 1] == []
    assert not any(seen[index] for index in range(25, 32, 2))
    assert not any(0 in block.after_itself for block in blocks)
    assert len({tuple(names) for names in seen[:10]}) > 2  # drawn, not in turn
    for index in (0, 5, 20):
        block = plan.block(condition, index, {"444", "777"})
        assert {run.arm.name for run in block.runs if run.slot in block.after_itself} <= {"777"}
    assert not Plan(study(), SEED, controls_first=24).block(condition, 0).after_itself


def test_levels_that_several_arms_have_need_no_run_just_after_itself() -> None:
    crossed = study(factors=(factor("mode", "444 555"), factor("size", "1 2")))
    plan = Plan(crossed, SEED, controls_first=24, after_itself=True)
    assert not any(plan.block(plan.conditions[0], index).after_itself for index in range(10))


def test_a_round_holds_each_undecided_condition_once_in_an_order_of_its_own() -> None:
    plan = Plan(study(), SEED)
    undecided = plan.conditions[1:5]
    rounds = [plan.round(number, undecided) for number in range(200)]
    assert all(sorted(c.index for c in order) == [1, 2, 3, 4] for order in rounds)
    assert len({order[0].index for order in rounds}) == 4
    assert plan.round(3, undecided) == plan.round(3, tuple(reversed(undecided)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"factors": (factor("size", "1 2", Role.CONDITION),)}, "nothing to compare"),
        ({"factors": (factor("mode", "444"),)}, "nothing to compare"),
        (
            {"factors": (replace(factor("mode", "444 777"), reference="555"),)},
            "not among its levels",
        ),
        ({"factors": (factor("workload", "a b"),)}, "cannot be the name of a factor"),
        ({"factors": (factor("mode", "444 444"),)}, "different labels"),
        ({"factors": (factor("mode", "444 control:negative"),)}, "reserved for a control"),
        (
            {"workloads": (Workload("w", "files", FilesWork(operations=(), files=5, pool=4)),)},
            "needs 5 files",
        ),
        (
            {"workloads": (Workload("w", "files", FilesWork(operations=()), only={"cache": ("hot",)}),)},
            "no workload runs",
        ),
    ],
)
def test_a_study_that_compares_nothing_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        Plan(study(**changes), SEED)
