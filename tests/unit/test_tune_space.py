"""The space that `best` chooses from, the stages that it goes through, and the proposals for large spaces."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from report_fixtures import effect

from iotrial.design.model import ArmKind
from iotrial.design.plan import Plan
from iotrial.errors import RequestError
from iotrial.report.best import Advice, advised, confirmation_finding
from iotrial.runner.quick_study import Wish, study_text
from iotrial.stats.model import Effect, Observation, ObservedBlock, Race, Verdict
from iotrial.stats.spec import Spec
from iotrial.study.model import TODAY, DesignKind, Factor, Level, Role, Setting, Study
from iotrial.study.reader import read_study
from iotrial.study.scales import Better
from iotrial.tune.search import Proposals
from iotrial.tune.space import Choice, Dimension, Space, space_of_factors, space_of_settings
from iotrial.tune.stages import Stage, confirmation, race_stage, with_margin_left
from values import replace

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


# -- leaving out a setting that is not needed

NEEDED = effect(Verdict.SLOWER, 1.3, 1.2, 1.4)
SAME = effect(Verdict.EQUIVALENT, 1.0, 0.98, 1.03)
OPEN = effect(Verdict.INCONCLUSIVE, 1.2, 0.9, 1.5)


def a_confirmation(
    whole: tuple[float, float],
    without: Sequence[Effect],
    *,
    rate: bool = False,
    space: Space = SPACE,
    winner: Choice = (1, 1, 0),
) -> tuple[Study, list[Effect]]:
    """Return a confirmation. ``whole``: the interval of the winner against today's; ``without``: without each setting."""
    stage = confirmation(space, winner)
    _, label, *lacking = stage.choices
    gain = effect(Verdict.FASTER, sum(whole) / 2, *whole, level=label, reference=TODAY, margin=0.05)
    effects = [gain] + [
        replace(one, level=level, reference=label, margin=0.05)
        for one, level in zip(without, lacking, strict=True)
    ]
    if rate:
        effects = [
            replace(
                one, better=Better.HIGHER, value=1.0 / one.value, low=1.0 / one.high, high=1.0 / one.low,
                verdict={Verdict.FASTER: Verdict.BETTER, Verdict.SLOWER: Verdict.WORSE}.get(one.verdict, one.verdict),
            )
            for one in effects
        ]  # fmt: skip
    return study_of(stage), effects


def names(settings: Sequence[Setting]) -> list[str]:
    return [dict(one.options)["variable"] for one in settings]


def advice(whole: tuple[float, float], without: Sequence[Effect], *, rate: bool = False) -> Advice:
    return advised(*a_confirmation(whole, without, rate=rate))


@pytest.mark.parametrize("rate", [False, True])
def test_a_setting_that_makes_no_difference_is_left_out(rate: bool) -> None:
    found = advice((0.75, 0.85), (SAME, NEEDED), rate=rate)
    assert names(found.kept) == ["b"]
    ends = sorted([found.against.low or 0.0, found.against.high or 0.0])
    expected = [0.75 * 0.98, 0.85 * 1.03]
    assert ends == pytest.approx(sorted(1.0 / end for end in expected) if rate else expected)


@pytest.mark.parametrize("rate", [False, True])
def test_a_setting_that_is_not_shown_to_contribute_is_not_recommended(rate: bool) -> None:
    """Without a perhaps .9, perhaps 1.5 of the time: b alone takes at most .6 x 1.5 = .9 of today's."""
    found = advice((0.4, 0.6), (OPEN, NEEDED), rate=rate)
    assert names(found.kept) == ["b"]
    assert names([one for one, _ in found.left_out]) == ["a"]
    words = confirmation_finding(*reversed(a_confirmation((0.4, 0.6), (OPEN, NEEDED))))
    assert words.startswith("use b y: it takes 40 % less time than today")
    assert "a 2 is not shown to contribute" in words


@pytest.mark.parametrize("rate", [False, True])
@pytest.mark.parametrize("without", [(OPEN, NEEDED), (OPEN, OPEN), (SAME, NEEDED)])
def test_nothing_is_recommended_if_what_is_left_may_be_worse_than_today(
    without: tuple[Effect, Effect], rate: bool
) -> None:
    """The winner takes at most .99 of today's time and the rest at most 1.03 of the winner's: 1.02 of today's in all."""
    found = advice((0.94, 0.99), without, rate=rate)
    assert found.kept == ()
    assert names(found.contributing) == (["b"] if NEEDED in without else [])
    words = confirmation_finding(*reversed(a_confirmation((0.94, 0.99), without)))
    assert words.startswith("partial answer: with a 2 and b y, probably it takes")


def test_of_three_settings_two_that_are_not_shown_leave_one_that_was_not_measured_alone() -> None:
    free = Space((*SPACE.dimensions[:2], dimension("c", "0", "7")))
    found = advised(*a_confirmation((0.4, 0.5), (NEEDED, OPEN, SAME), space=free, winner=(1, 1, 1)))
    assert found.kept == ()
    assert names(found.contributing) == ["a"]


def test_what_needs_another_setting_is_left_out_with_it_so_that_the_rest_was_measured() -> None:
    found = advised(*a_confirmation((0.4, 0.5), (NEEDED, OPEN, SAME), winner=(1, 1, 1)))
    assert names(found.kept) == ["a"]
    assert names([one for one, _ in found.left_out]) == ["b", "c"]


@pytest.mark.parametrize("rate", [False, True])
def test_of_two_settings_that_do_the_same_one_is_kept(rate: bool) -> None:
    """Without a at most 1.03 of the winner, without b perhaps .97: 1.03 / .97 = 1.062. The other way 1.02 / .98 = 1.041."""
    found = advice((0.75, 0.85), (SAME, effect(Verdict.EQUIVALENT, 1.0, 0.97, 1.02)), rate=rate)
    assert names(found.kept) == ["a"]


def raced(over: bool, rng: np.random.Generator) -> tuple[Stage, Race, Spec, list[ObservedBlock]]:
    """Return a race of today's settings, a 2 (true effect -.28) and a 3 and b y (-.30), and its blocks."""
    stage = race_stage(SPACE, [(1, 0, 0), (1, 1, 0), (2, 1, 0)])
    plan = Plan(study_of(stage), SEED)
    spec = Spec.from_plan(plan)
    (condition,) = plan.conditions
    response = spec.main_response(condition)
    assert response is not None
    truth = dict(zip(stage.choices, (0.0, 0.2, -0.28, -0.30), strict=True))
    blocks = []
    for index in range(60):
        block = math.exp(rng.normal(0.0, 0.3))
        blocks.append(
            ObservedBlock(
                condition.key,
                index,
                tuple(
                    Observation(
                        run.arm.name, run.arm.kind, run.arm.treatment, run.slot, float(run.slot),
                        {response.name: block * math.exp(truth[run.arm.name] + rng.normal(0.0, 0.01))},
                    )
                    for run in plan.block(condition, index).runs
                    if run.arm.kind is ArmKind.TREATMENT
                ),
            )
        )  # fmt: skip
    return stage, Race(condition.key, response.name, TODAY, (), 60, over=over), spec, blocks


def test_a_confirmation_has_the_part_of_the_margin_that_the_race_has_not_used() -> None:
    """The winner is 2 % worse than another arm, so at most 1.05 / e^.02 - 1 is left."""
    rng, trials, more = np.random.default_rng(), 20, 0
    for _ in range(trials):
        stage, race, spec, blocks = raced(True, rng)
        found = with_margin_left(confirmation(SPACE, (1, 1, 0)), stage, race, spec, blocks)
        assert found.margin is not None
        assert 0.0 < found.margin < 0.05
        more += found.margin > spec.margin - 0.02 * 1.05
    assert more <= 6  # P(more | .05) < 1e-4


def test_a_race_that_ended_early_leaves_all_of_the_margin() -> None:
    stage, race, spec, blocks = raced(False, np.random.default_rng())
    assert with_margin_left(confirmation(SPACE, (1, 1, 0)), stage, race, spec, blocks).margin is None
