"""The space that `best` chooses from, the stages that it goes through, and the proposals for large spaces."""

from __future__ import annotations

import pytest

from iotrial.design.plan import Plan
from iotrial.errors import RequestError
from iotrial.runner.quick_study import Wish, study_text
from iotrial.study.model import DesignKind, Factor, Level, Role, Setting, Study
from iotrial.study.reader import read_study
from iotrial.tune.search import Proposals
from iotrial.tune.space import TODAY, Dimension, Space, space_of_factors, space_of_settings
from iotrial.tune.stages import Stage, confirmation, race_stage

SEED = "5" * 32


def dimension(
    name: str, *values: str, knob: str = "environment.variable", only: tuple[int, int] | None = None
) -> Dimension:
    options = (("variable", name),) if knob == "environment.variable" else ()
    return Dimension(name, tuple(Level(value, (Setting(knob, value, options),)) for value in values), only)


SPACE = Space(
    (dimension("a", "1", "2", "3"), dimension("b", "x", "y"), dimension("c", "0", "7", only=(1, 1)))
)


def study_of(stage: Stage) -> Study:
    wish = Wish(settings=(), parameters=(), commands=(("true",),), bundles=stage.levels, design=stage.design)
    return read_study(study_text(wish), "the command line", trusted=True)


def test_a_dependent_setting_is_combined_only_with_the_level_that_it_needs() -> None:
    assert SPACE.size == 12
    assert list(SPACE.choices()) == [
        (0, 0, 0), (0, 1, 0), (0, 1, 1), (1, 0, 0), (1, 1, 0), (1, 1, 1), (2, 0, 0), (2, 1, 0), (2, 1, 1),
    ]  # fmt: skip
    assert list(SPACE.single_changes()) == [(1, 0, 0), (2, 0, 0), (0, 1, 0), (0, 1, 1)]


def test_labels_name_what_changes() -> None:
    assert SPACE.label((0, 0, 0)) == TODAY
    assert SPACE.label((2, 1, 0)) == "a 3 and b y"


def test_labels_that_would_be_too_long_stay_different() -> None:
    long = Space(tuple(dimension(f"setting-number-{i}", "off", "on and on and on") for i in range(8)))
    labels = {long.label(choice) for choice in long.choices()}
    assert len(labels) == 2**8
    assert all(len(one) <= 100 for one in labels)


def test_settings_that_exclude_each_other_are_never_combined() -> None:
    space = Space(
        (
            dimension("scheduler", "none", "bfq", knob="block.scheduler"),
            dimension("wbt", "2000", "0", knob="block.wbt_lat_usec"),
        )
    )
    assert list(space.choices()) == [(0, 0), (0, 1), (1, 1)]
    assert list(space.single_changes()) == [(1, 1), (0, 1)]


def test_a_race_has_today_first_and_every_level_sets_every_knob() -> None:
    study = study_of(race_stage(SPACE, list(SPACE.choices())))
    (factor,) = study.factors
    assert study.design.kind is DesignKind.RACE
    assert factor.reference == TODAY
    assert {len(level.settings) for level in factor.levels} == {3}


def test_a_block_of_a_race_runs_the_arms_inside_and_the_controls() -> None:
    plan = Plan(study_of(race_stage(SPACE, list(SPACE.choices()))), SEED, controls_first=24)
    condition = plan.conditions[0]
    names = {run.arm.name for run in plan.block(condition, 3, {TODAY, "a 2"}).runs}
    assert names == {TODAY, "a 2", "control:negative", "control:positive"}
    assert len(plan.block(condition, 3).runs) == 9 + 2
    order = [arm.name for arm in plan.order(condition, 3, {TODAY, "a 2"})]
    assert order == [run.arm.name for run in plan.block(condition, 3, {TODAY, "a 2"}).runs]


def test_a_confirmation_leaves_out_each_setting_once_and_what_depends_on_it() -> None:
    stage = confirmation(SPACE, (2, 1, 1))
    assert dict(stage.choices) == {
        TODAY: (0, 0, 0),
        "all together": (2, 1, 1),
        "without a": (0, 1, 1),
        "without b": (2, 0, 0),
        "without c": (2, 1, 0),
    }
    plan = Plan(study_of(stage), SEED)
    assert [(term.level, term.reference) for term in plan.terms] == [
        ("all together", TODAY), ("without a", "all together"), ("without b", "all together"),
        ("without c", "all together"),
    ]  # fmt: skip
    assert plan.terms[0].weights == {"all together": 1.0, TODAY: -1.0}


def test_a_winner_of_one_change_is_compared_with_today_alone() -> None:
    assert list(confirmation(SPACE, (2, 0, 0)).choices) == [TODAY, "a 3"]


def factor(name: str, knob: str, *values: str, reference: str) -> Factor:
    levels = tuple(Level(value, (Setting(knob, value),)) for value in values)
    return Factor(name, Role.TREATMENT, levels, reference, values)


def test_of_a_study_the_reference_is_today_and_levels_at_risk_are_left_out() -> None:
    scheduler = factor("scheduler", "block.scheduler", "bfq", "none", reference="none")
    cache = factor("cache", "block.write_cache", "write back", "write through", reference="write back")
    space = space_of_factors([scheduler, cache])
    assert [[level.label for level in one.levels] for one in space.dimensions] == [["none", "bfq"]]
    assert space.refused[0].startswith("cache write through: the kernel no longer flushes")
    assert len(space_of_factors([scheduler, cache], allowed=frozenset({"cache"})).dimensions) == 2
    with pytest.raises(RequestError, match="nothing to choose from"):
        space_of_factors([cache])


def test_words_of_a_command_need_no_machine() -> None:
    space = space_of_settings((), [("level", "1,9")], ".", lab="image")
    assert [level.label for level in space.dimensions[0].levels] == ["1", "9"]


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ((), "nothing to choose from"),
        (("all",), "only in place"),
        (("env.A=1,2", "env.A=3,4"), "given twice"),
        (("env.A=1,2 if B=3",), "B has no level 3"),
        (("env.A=1,2 if A=2",), "A has no level 2"),
        (("env.A",), "expected KNOB=LEVEL"),
    ],
)
def test_an_empty_or_contradictory_space_is_refused(over: tuple[str, ...], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        space_of_settings(over, [], ".", lab="image")


def test_a_search_tries_each_change_alone_first_and_proposes_only_what_is_possible() -> None:
    pytest.importorskip("optuna")
    proposals = Proposals(SPACE, 1)
    first = proposals.ask(10)
    assert first[:4] == list(SPACE.single_changes())
    known = set(first)
    proposals.tell({choice: -0.1 * choice[0] for choice in first})
    while new := proposals.ask(5):
        assert not known & set(new)
        assert all(SPACE.possible(choice) for choice in new)
        known |= set(new)
        proposals.tell({choice: -0.1 * choice[0] for choice in new})
    assert known == set(SPACE.choices()) - {SPACE.today}
    assert all(choice[0] == 2 for choice in proposals.best(3))


def test_a_search_finds_a_combination_that_no_single_change_shows() -> None:
    """Two settings that are worse alone and better together, among 2^8 combinations; most seeds must find it."""
    pytest.importorskip("optuna")
    space = Space(tuple(dimension(f"s{i}", "0", "1") for i in range(8)))

    def effect(choice: tuple[int, ...]) -> float:
        return 0.02 * (choice[0] + choice[1]) - 0.4 * (choice[0] and choice[1]) + 0.01 * sum(choice[2:])

    found = 0
    for seed in range(8):
        proposals = Proposals(space, seed)
        for _ in range(12):
            proposals.tell({choice: effect(choice) for choice in proposals.ask(5)})
        found += any(choice[0] and choice[1] for choice in proposals.best(3))
    assert found >= 5
