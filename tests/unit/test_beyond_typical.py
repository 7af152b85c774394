"""Slow runs and ratios of means.

Bounds are checked against closed forms and exact enumeration, the wording against hand-made trials.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from report_fixtures import CONDITIONS, document, effect, study

from iotrial.design.model import ArmKind, Term, TermKind
from iotrial.report.blocks import View
from iotrial.report.conditions import Conditions
from iotrial.report.document import Document
from iotrial.report.jsonreport import report_json
from iotrial.report.render import markdown_report
from iotrial.report.slow_runs import bounds, on_means
from iotrial.stats.beyond_typical import FEWEST, mean_bounds, mean_ratio, slow_runs, which_slow
from iotrial.stats.contrast import Contrasts, PairedRuns, Responses
from iotrial.stats.model import (
    Conclusion,
    Interval,
    MeanRatio,
    Means,
    Observation,
    ObservedBlock,
    Share,
    SlowRuns,
    Verdict,
)
from iotrial.study.model import Better, Response, Scale
from values import replace

TIME = Response("w", "wall", "s", Scale.LOG, Better.LOWER, primary=True)
RATE = Response("w", "rate", "bytes/s", Scale.LOG, Better.HIGHER, primary=True)
COUNT = Response("w", "faults", "1", Scale.DIFFERENCE, Better.LOWER, primary=True)
ALPHA = 0.05


def pairs(level: Sequence[float], reference: Sequence[float]) -> PairedRuns:
    """Return paired runs from times or rates."""
    return PairedRuns(np.log(np.array(level))[:, None], np.log(np.array(reference))[:, None])


# bounds


@pytest.mark.parametrize("blocks", [10, 60, 400])
def test_where_nothing_was_slow_the_bound_is_the_closed_form_of_a_bet_of_everything(blocks: int) -> None:
    """Half of the capital is bet whole on every block: (1 + m)^n / 2 = 2 / alpha. The other half wins less."""
    low, high = mean_bounds(np.zeros(blocks), ALPHA, least=0.0)
    assert low == 0.0
    assert (2 / ALPHA) ** (1 / blocks) - 1 < high <= (4 / ALPHA) ** (1 / blocks) - 1
    assert mean_bounds(np.zeros(blocks), ALPHA) == pytest.approx((-high, high))


def test_none_slow_in_sixty_leaves_room_for_seven_in_a_hundred() -> None:
    """The exact bound for one look is 1 - .05^(1/60) = 4.9 %. A two-sided bound for every look is wider."""
    high = mean_bounds(np.zeros(60), ALPHA, least=0.0)[1]
    assert 1 - ALPHA ** (1 / 60) < high < 0.075


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.01, 0.05, 0.3, 0.8])
def test_the_bounds_of_a_share_miss_it_at_any_look_in_less_than_alpha_by_exact_enumeration(
    share: float,
) -> None:
    """The bounds depend only on the number of slow runs, so the chance of ever missing is a sum over counts."""
    blocks, missed = 80, 0.0
    alive = {0: 1.0}
    for n in range(1, blocks + 1):
        after: dict[int, float] = {}
        for slow, chance in alive.items():
            after[slow] = after.get(slow, 0.0) + chance * (1 - share)
            after[slow + 1] = after.get(slow + 1, 0.0) + chance * share
        alive = {}
        for slow, chance in after.items():
            low, high = mean_bounds(np.repeat([1.0, 0.0], [slow, n - slow]), ALPHA, least=0.0)
            if low <= share <= high:
                alive[slow] = chance
            else:
                missed += chance
    assert missed <= ALPHA
    assert missed + sum(alive.values()) == pytest.approx(1.0)


def test_over_all_sign_patterns_a_difference_is_found_at_some_look_in_less_than_alpha() -> None:
    """In each of twelve blocks one side was slow, by a fair coin: 4,096 patterns, with a look after every block."""
    blocks = 12
    excluded = {
        (n, ups): not (bounds := mean_bounds(np.repeat([1.0, -1.0], [ups, n - ups]), ALPHA))[0]
        <= 0.0
        <= bounds[1]
        for n in range(1, blocks + 1)
        for ups in range(n + 1)
    }
    found = 0
    for signs in itertools.product([0, 1], repeat=blocks):
        ups = list(itertools.accumulate(signs))
        found += any(excluded[n, ups[n - 1]] for n in range(1, blocks + 1))
    assert 0 < found / 2**blocks <= ALPHA


def test_seven_slow_blocks_of_one_side_show_a_difference_and_six_do_not() -> None:
    """2 * 2^-6 = .031 would suffice for one look; a bet for every look needs one more."""
    quiet = np.zeros(93)
    assert mean_bounds(np.concatenate([np.ones(7), quiet]), ALPHA)[0] > 0.0
    assert mean_bounds(np.concatenate([np.ones(6), quiet]), ALPHA)[0] < 0.0


def test_the_order_of_blocks_and_the_names_of_the_sides_change_nothing_but_signs() -> None:
    rng = np.random.default_rng()
    z = rng.choice([-1.0, 0.0, 1.0], size=50, p=[0.1, 0.6, 0.3])
    low, high = mean_bounds(z, ALPHA)
    assert mean_bounds(rng.permutation(z), ALPHA) == pytest.approx((low, high))
    assert mean_bounds(-z, ALPHA) == pytest.approx((-high, -low))


# which runs are slow


def test_a_run_is_slow_from_one_and_a_half_times_the_typical_time_on() -> None:
    level = [1.0] * 20
    level[10], level[12], level[14] = 1.49, 1.51, 10.0
    found = slow_runs(pairs(level, [1.0] * 20), TIME, ALPHA)
    assert found is not None
    assert (found.level.slow, found.level.runs, found.reference.slow) == (2, 20 - FEWEST, 0)
    assert found.difference == pytest.approx(2 / 15)


def test_a_slow_run_of_a_rate_is_a_low_rate() -> None:
    reference = [100.0] * 20
    reference[9], reference[15] = 60.0, 300.0
    found = slow_runs(pairs([100.0] * 20, reference), RATE, ALPHA)
    assert found is not None
    assert (found.level.slow, found.reference.slow) == (0, 1)


def test_a_level_that_is_always_slower_has_no_slow_runs() -> None:
    found = slow_runs(pairs([3.0] * 20, [1.0] * 20), TIME, ALPHA)
    assert found is not None
    assert (found.level.slow, found.reference.slow, found.difference) == (0, 0, 0.0)


def test_thresholds_are_relative_to_the_arm_and_no_later_block_changes_them() -> None:
    """A factor on all runs of the level changes nothing; neither does a run for the blocks before it."""
    rng = np.random.default_rng()
    y, x = np.exp(0.3 * rng.standard_t(2, size=(2, 150)))
    flags = which_slow(pairs(y, x), TIME)
    scaled = which_slow(pairs(4.0 * y, x), TIME)
    assert flags is not None
    assert scaled is not None
    for side in (0, 1):
        np.testing.assert_array_equal(scaled[side], flags[side])
    for block in (FEWEST, 40, 120, 149):
        y2, x2 = y.copy(), x.copy()
        y2[block], x2[block] = 100.0, 0.01
        other = which_slow(pairs(y2[: block + 1], x2[: block + 1]), TIME)
        assert other is not None
        for side in (0, 1):
            np.testing.assert_array_equal(other[side][:-1], flags[side][: block - FEWEST])
        assert other[0][-1]
        assert not other[1][-1]


@pytest.mark.parametrize("times", [1.0, 1.4])
def test_equal_stalls_are_no_difference_however_much_slower_the_level_is(times: float) -> None:
    """One threshold for both would find more slow runs in nearly every trial of a level that takes 1.4 times as long."""
    rng = np.random.default_rng()
    found = 0
    for _ in range(40):
        y, x = np.exp(rng.normal(0.0, 0.3, (2, 120)) + math.log(3.0) * (rng.random((2, 120)) < 0.05))
        one = slow_runs(pairs(times * y, x), TIME, ALPHA)
        assert one is not None
        found += one.differ
    assert found <= 8  # of 40 at 5 %: exceeded in less than one of 2,000 runs


def test_a_machine_that_becomes_slow_for_both_is_no_difference() -> None:
    times = [1.0] * 20 + [4.0] * 10
    found = slow_runs(pairs(times, times), TIME, ALPHA)
    assert found is not None
    assert found.level.slow == found.reference.slow == 10
    assert found.difference == 0.0


def test_counts_have_no_slow_runs_and_a_few_blocks_say_only_what_is_typical() -> None:
    assert slow_runs(pairs([1.0] * 20, [1.0] * 20), COUNT, ALPHA) is None
    assert slow_runs(pairs([1.0] * FEWEST, [9.0] * FEWEST), TIME, ALPHA) is None
    assert slow_runs(None, TIME, ALPHA) is None


# pairs of runs


def block(index: int, times: dict[str, float], *, void: str | None = None) -> ObservedBlock:
    runs = tuple(
        Observation(
            arm, ArmKind.TREATMENT, dict(zip("fg", arm.split("+"), strict=False)), slot, 0.0, {"wall": time}
        )
        for slot, (arm, time) in enumerate(times.items())
    )
    return ObservedBlock("c", index, runs, void=void)


def test_pairs_are_the_runs_of_blocks_that_give_a_contrast() -> None:
    blocks = [
        block(0, {"a": 2.0, "b": 1.0}),
        block(1, {"a": 3.0}),
        block(2, {"a": 5.0, "b": 4.0}, void="rule"),
        block(3, {"a": 7.0, "b": 6.0}),
    ]
    term = Term(TermKind.MAIN, "f", "a", "b", {"a": 1.0, "b": -1.0})
    found = Responses(blocks, TIME).pairs(term)
    assert found is not None
    assert np.exp(found.level).ravel() == pytest.approx([2.0, 7.0])
    assert np.exp(found.reference).ravel() == pytest.approx([1.0, 6.0])


def test_in_a_crossed_design_each_combination_has_its_counterpart() -> None:
    times = {"a+x": 1.0, "b+x": 2.0, "a+y": 3.0, "b+y": 4.0}
    weights = {"a+x": -0.5, "a+y": -0.5, "b+x": 0.5, "b+y": 0.5}
    found = Responses([block(0, times)], TIME).pairs(Term(TermKind.MAIN, "f", "b", "a", weights))
    assert found is not None
    assert sorted(zip(np.exp(found.level)[0].round(9), np.exp(found.reference)[0].round(9), strict=True)) == [
        (2, 1),
        (4, 3),
    ]


def test_a_fraction_of_a_factorial_and_an_interaction_have_no_pairs() -> None:
    half = {"a+x": -1.0, "b+y": 1.0}
    table = Responses([block(0, {"a+x": 1.0, "b+y": 2.0})], TIME)
    assert table.pairs(Term(TermKind.MAIN, "f", "b", "a", half)) is None
    assert table.pairs(Term(TermKind.INTERACTION, "f:g", "b:y", "a:x", half)) is None


# means


def test_a_constant_factor_changes_the_mean_as_it_changes_typical_runs() -> None:
    rng = np.random.default_rng()
    x = rng.exponential(size=400) + 0.05
    found = _ratio(1.3 * x[rng.permutation(400)], x)
    assert found.ratio == pytest.approx(1.3)
    assert found.p > 1e-3
    assert not _ratio(1.3 * x, x).differs


def test_a_constant_amount_changes_the_mean_of_skewed_times_by_less_than_typical_runs() -> None:
    rng = np.random.default_rng()
    x = np.exp(rng.normal(0, 0.6, 400))
    found = _ratio(x + 0.3 * x.mean(), x)
    assert found.ratio == pytest.approx(1.3)
    assert found.typical > 1.31
    assert found.differs


OPEN = Interval(0.0, None, None, 1.0, 1.0, 400)


def test_a_difference_of_the_two_ratios_that_does_not_matter_is_not_pointed_to() -> None:
    rng = np.random.default_rng()
    x = np.exp(rng.normal(0, 0.6, 400))
    both = pairs((x + 0.3 * x.mean()).tolist(), x.tolist())
    contrasts = Contrasts(tuple((both.level - both.reference)[:, 0].tolist()), 0)
    mean = math.log(1.3)
    for found, margin, differs in (
        (OPEN, 0.5, False),
        (replace(OPEN, low=mean - 0.1, high=mean + 0.1), 0.5, False),
        (replace(OPEN, low=mean + 0.01, high=mean + 0.1), 0.5, True),
        (OPEN, 0.001, True),
    ):
        one = mean_ratio(both, contrasts, TIME, found, margin)
        assert one is not None
        assert one.differs is differs


def _ratio(level: np.ndarray, reference: np.ndarray) -> MeanRatio:
    both = pairs(level.tolist(), reference.tolist())
    contrasts = Contrasts(tuple((both.level - both.reference)[:, 0].tolist()), 0)
    found = mean_ratio(both, contrasts, TIME, OPEN, margin=0.01)
    assert found is not None
    return found


# wording


def slow(level: int, reference: int, low: float, high: float) -> SlowRuns:
    sides = (Share(level, 100, 0.0, 0.2), Share(reference, 100, 0.0, 0.07))
    return SlowRuns(1.5, *sides, (level - reference) / 100, low, high, ALPHA)


EQUIVALENT = effect(Verdict.EQUIVALENT, 1.001, 0.992, 1.010, condition=CONDITIONS[0])
MORE = replace(EQUIVALENT, slow_runs=slow(12, 0, 0.042, 0.25))
NONE = replace(EQUIVALENT, slow_runs=slow(0, 0, -0.07, 0.07))


def test_equivalent_with_more_slow_runs_is_not_called_equivalent() -> None:
    assert MORE.conclusion is Conclusion.EQUIVALENT_MORE_SLOW_RUNS
    assert MORE.conclusion.words == "typical runs equivalent, but more slow runs"
    assert not MORE.conclusion.equivalent
    fewer = replace(EQUIVALENT, slow_runs=slow(0, 12, -0.25, -0.042))
    assert fewer.conclusion is Conclusion.EQUIVALENT_FEWER_SLOW_RUNS
    assert NONE.conclusion is Conclusion.EQUIVALENT


def on_the_first_screen(made: Document) -> str:
    return " ".join(note.text for note in made.summary.notes if note.view & View.SHORT)


def test_the_headline_says_what_the_verdict_covers_and_a_note_what_could_be_unseen() -> None:
    made = document([NONE])
    assert made.summary.headline.endswith("within 3 %.")
    assert "as fast as 0777 in typical runs" in made.summary.headline
    assert (
        "none in 100 of either from block 6 on; stalls rarer than 1 in 5 runs would not be seen"
        in on_the_first_screen(made)
    )


def test_of_eight_blocks_three_are_counted_and_the_words_say_from_which_on() -> None:
    """The first five establish what is typical."""
    found = slow_runs(pairs([1.0] * 8, [1.0] * 8), TIME, ALPHA)
    assert found is not None
    assert (found.level.runs, found.reference.runs) == (3, 3)
    said = bounds([replace(EQUIVALENT, slow_runs=found)])
    assert said.endswith("none in 3 of either from block 6 on; too few blocks for an interval")


def test_equivalent_mean_runs_too_are_qualified_by_the_rarest_stall_that_would_have_been_seen() -> None:
    """4 % of runs at most: 1 in 25."""
    share = Share(0, 100, 0.0, 0.04)
    quiet = replace(NONE, slow_runs=SlowRuns(1.5, share, share, 0.0, -0.04, 0.04, ALPHA))
    made = document([replace(quiet, means=Means(2.0, 1.0, 0.99, 1.01, equivalent=True))])
    assert "in typical runs" not in made.summary.headline
    assert "stalls rarer than 1 in 25 runs would not be seen" in on_the_first_screen(made)


def test_a_note_on_the_first_screen_says_of_any_verdict_that_one_side_has_more_slow_runs() -> None:
    faster = effect(Verdict.FASTER, 0.8, 0.75, 0.85, condition=CONDITIONS[0])
    for one in (MORE, replace(faster, slow_runs=slow(12, 0, 0.042, 0.25))):
        made = document([one])
        assert (
            "has more slow runs: 12 of 100 against none of 100 with 0777, 4 % to 25 % more of all runs"
            in on_the_first_screen(made)
        )
        assert "slow runs" not in made.summary.headline
        assert "more slow runs" in made.effects[0].verdict
        assert "12 of 100" in made.effects[0].sentence
        assert "more slow runs" in markdown_report(made)


def test_json_has_the_counts_and_the_bounds() -> None:
    found = report_json(document([replace(MORE, mean_ratio=MeanRatio(1.09, 1.0, 0.01, differs=True))]))[
        "effects"
    ]
    assert isinstance(found, list)
    assert found[0]["conclusion"] == "equivalent_more_slow_runs"
    assert found[0]["slow_runs"]["level"] == {"slow": 12, "runs": 100, "low": 0.0, "high": 0.2}
    assert (found[0]["slow_runs"]["low"], found[0]["slow_runs"]["differ"]) == (0.042, True)
    assert found[0]["mean_ratio"]["differs"] is True


def test_a_report_points_to_the_mean_where_its_ratio_is_another() -> None:
    one = replace(EQUIVALENT, mean_ratio=MeanRatio(1.09, 1.0, 0.01, differs=True))
    assert any('statistic = "mean"' in line for line in document([one]).summary.details)
    same = replace(EQUIVALENT, mean_ratio=MeanRatio(1.01, 1.0, 0.4, differs=False))
    assert not any("statistic" in line for line in document([same]).summary.details)


def test_a_mean_whose_printed_ratio_is_that_of_typical_runs_is_not_called_another() -> None:
    wide = replace(EQUIVALENT, value=0.4041, low=0.2, high=0.6)
    for mean, named in ((0.3962, False), (0.91, True)):
        found = on_means(
            [replace(wide, mean_ratio=MeanRatio(mean, 0.4041, 0.01, differs=True))], Conditions(study())
        )
        assert (found is not None) is named
