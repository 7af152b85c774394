"""Outlook of a trial: the next block in words, the time until everything may be decided, and until a first interval."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from report_fixtures import effect, factor, study, trial

from iotrial.design.model import ArmKind
from iotrial.design.plan import Plan
from iotrial.report.conditions import Conditions
from iotrial.report.outlook import FirstInterval, first_interval, further_s, outlook_s, upcoming_in_words
from iotrial.stats.model import Effect, Verdict
from iotrial.study.catalogue import find
from iotrial.study.model import DesignKind, Role, Scale
from iotrial.study.select import select
from values import replace

SEED = "00112233445566778899aabbccddeeff"
ONE = study(conditions=[factor("cache", ["cold", "warm"], role=Role.CONDITION)])
PLAN = Plan(ONE, SEED, controls=False)
COLD, WARM = (condition.key for condition in PLAN.conditions)
# Half of the comparisons without an effect are equivalent within .8 block SDs after 20 blocks, at a level of
# .05 (the table of analysis/power.py, by simulation). So a margin of .8 SDs takes 20 blocks.
SD = math.log(1.03) / 0.8


def open_effect(cache: str, **more: object) -> Effect:
    made = effect(Verdict.INCONCLUSIVE, 1.0, 0.95, 1.05, condition={"cache": cache}, decided=False)
    made = replace(made, block_sd=SD, family_alpha=0.05, blocks=12)
    return replace(made, **more)  # type: ignore[arg-type]


def ahead(
    *effects: Effect, had: Mapping[str, int] | None = None, decided: frozenset[str] = frozenset()
) -> float | None:
    had = {COLD: 12, WARM: 12} if had is None else had
    return outlook_s(PLAN, effects, had=had, decided=decided, block_s={COLD: 2.0, WARM: 0.5})


def test_it_is_the_blocks_that_are_missing_times_what_a_block_takes() -> None:
    assert ahead(open_effect("cold"), open_effect("warm")) == (20 - 12) * 2.0 + (20 - 12) * 0.5


def test_a_decided_condition_takes_no_more_time() -> None:
    assert ahead(open_effect("warm"), decided=frozenset([COLD])) == (20 - 12) * 0.5


@pytest.mark.parametrize(
    "one",
    [
        open_effect("cold", block_sd=None),
        open_effect("cold", blocks=9),
        open_effect("cold", low=1.01),
        open_effect("cold", high=0.99),
        open_effect("cold", block_sd=1e3),
        open_effect("cold", primary=False),
    ],
)
def test_nothing_is_said_where_one_condition_cannot_be_foreseen(one: Effect) -> None:
    assert ahead(one, open_effect("warm")) is None
    assert ahead(open_effect("warm")) is None


def test_nothing_is_said_any_more_when_the_blocks_are_spent() -> None:
    assert ahead(open_effect("cold"), open_effect("warm"), had={COLD: 20, WARM: 12}) is None


def test_with_controls_the_copy_saves_blocks_but_the_slowdown_must_be_seen() -> None:
    with_controls = Plan(ONE, SEED)
    found = outlook_s(
        with_controls,
        [open_effect("cold"), open_effect("warm")],
        had={COLD: 12, WARM: 12},
        decided=frozenset(),
        block_s={COLD: 2.0, WARM: 0.5},
    )
    assert found is not None
    assert 0.0 < found <= 20.0  # what it takes without a copy, by the first test


def test_a_finished_trial_needs_as_many_more_blocks_as_shrink_the_interval_into_the_margin() -> None:
    """Twice as wide as the margin, so four times the blocks: 27 more of 2 s, in each condition that goes on."""
    wide = open_effect("cold", blocks=9, low=1.03**-2, high=1.03**2)
    warm = open_effect("warm", verdict=Verdict.FASTER, blocks=15, decided=True)
    assert further_s(PLAN, [wide], [wide, warm], duration_s=48.0) == pytest.approx(27 * 2.0)
    going_on = replace(warm, decided=False)
    assert further_s(PLAN, [wide], [wide, going_on], duration_s=48.0) == pytest.approx(2 * 27 * 2.0)


def test_a_finished_trial_is_foreseen_like_a_running_one() -> None:
    cold, warm = open_effect("cold"), open_effect("warm", verdict=Verdict.FASTER, blocks=8, decided=True)
    assert further_s(PLAN, [cold], [cold, warm], duration_s=40.0) == pytest.approx((20 - 12) * 2.0)


def unbounded(cache: str, blocks: int, **more: object) -> Effect:
    return open_effect(cache, low=None, high=None, blocks=blocks, **more)


def first(
    *undecided: Effect, decided: tuple[Effect, ...] = (), duration_s: float, share: float | None = None
) -> FirstInterval | None:
    options = {"time_s": 300.0, "blocks": 400, **({} if share is None else {"budget_share": share})}
    stored = replace(trial(ONE), duration_s=duration_s)
    stored = replace(stored, header=replace(stored.header, options=options))
    return first_interval(PLAN, undecided, (*undecided, *decided), stored)


def test_the_first_intervals_need_the_blocks_that_are_missing_in_every_condition_that_goes_on() -> None:
    """At alpha .05 and with a margin, 8 blocks (test_stats_eprocess.py): 3 more rounds of two conditions at 24 s / 12."""
    found = first(unbounded("cold", 5), unbounded("warm", 7), duration_s=24.0)
    assert found == FirstInterval(2, 8, 8, 3 * 2 * 2.0)


def test_a_decided_condition_takes_none_of_the_time_to_the_first_interval() -> None:
    warm = open_effect("warm", verdict=Verdict.FASTER, blocks=15, decided=True)
    assert first(unbounded("cold", 5), decided=(warm,), duration_s=40.0) == FirstInterval(1, 8, 8, 3 * 2.0)
    still_going = replace(warm, decided=False)
    assert first(unbounded("cold", 5), decided=(still_going,), duration_s=40.0) == FirstInterval(
        1, 8, 8, 3 * 2 * 2.0
    )


@pytest.mark.parametrize(
    ("share", "family_alpha", "blocks"),
    [(None, 0.05, 8), (0.35, 0.05, 8), (None, 0.0125, 10), (0.35, 0.0125, 11)],
)
def test_more_comparisons_and_a_bet_on_the_budget_take_more_blocks(
    share: float | None, family_alpha: float, blocks: int
) -> None:
    found = first(unbounded("cold", 5, family_alpha=family_alpha), duration_s=10.0, share=share)
    assert found == FirstInterval(1, blocks, blocks, (blocks - 5) * 2.0)


def test_a_difference_has_neither_margin_nor_a_bet_on_the_budget() -> None:
    share = {"family_alpha": 0.0125}
    found = first(
        unbounded("cold", 5, scale=Scale.DIFFERENCE, unit="calls", **share),
        unbounded("cold", 5, **share),
        duration_s=10.0,
        share=0.35,
    )
    assert found == FirstInterval(2, 10, 11, (11 - 5) * 2.0)


@pytest.mark.parametrize(
    "one",
    [open_effect("cold"), unbounded("cold", 5, statistic="p99"), unbounded("cold", 8), unbounded("cold", 0)],
    ids=["has one", "a quantile", "enough blocks", "no block"],
)
def test_what_a_first_interval_needs_is_not_said_where_it_is_not_known(one: Effect) -> None:
    assert first(one, duration_s=10.0) is None


def test_a_race_drops_arms_so_nothing_is_said_of_first_intervals() -> None:
    race = replace(PLAN.study, design=replace(PLAN.study.design, kind=DesignKind.RACE))
    plan = Plan(race, SEED, controls=False)
    assert first_interval(plan, [unbounded("cold", 5)], [unbounded("cold", 5)], trial(race)) is None


def test_the_next_block_is_told_by_its_condition_and_its_first_run() -> None:
    first = PLAN.block(PLAN.condition(WARM), 34).runs[0].arm
    said = upcoming_in_words(PLAN, Conditions(ONE), (WARM, 34))
    assert said == f"cache warm: block 35, mode {first.treatment['mode']} first"


def test_a_run_of_a_control_is_told_as_one() -> None:
    plan = Plan(ONE, SEED)
    found = {}
    for index in range(0, 40, 2):
        arm = plan.block(plan.condition(COLD), index).runs[0].arm
        found[arm.kind] = upcoming_in_words(plan, Conditions(ONE), (COLD, index)).partition(", ")[2]
    assert found[ArmKind.NEGATIVE] == "mode 0777 (copy) first"
    assert found[ArmKind.POSITIVE] == "mode 0777 (slowed) first"


def test_of_a_screen_the_row_is_told_and_not_thirty_levels() -> None:
    screen = select(find("system/screen"))
    plan = Plan(screen, SEED)
    said = upcoming_in_words(plan, Conditions(screen), (plan.conditions[0].key, 0))
    assert len(said) < 100
    assert f"of {len(screen.treatment_factors)} settings changed first" in said


def test_nothing_follows_what_is_not_in_the_plan() -> None:
    assert upcoming_in_words(PLAN, Conditions(ONE), None) == ""
    assert upcoming_in_words(PLAN, Conditions(ONE), ("cache=hot", 1)) == ""
