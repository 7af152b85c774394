"""The guarantees of design and analysis, against simulated trials with known truth.

Seeds are drawn fresh from the system and printed, never chosen. A bound is the number that a valid method exceeds
with probability 1e-6 (exact binomial), so a failure is a finding and not bad luck. Invalid methods are tested too:
the same bound must catch them. The longer version with tables is benchmarks/truth/simulate.py.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from chance import at_most
from iotrial.design.model import ArmKind
from iotrial.stats.betting import Side
from iotrial.stats.budget_bet import SHARE, Budget, mixed_paths
from iotrial.stats.eprocess import interval
from iotrial.stats.model import Observation, ObservedBlock
from iotrial.stats.verdict import judge
from iotrial.stats.voids import compare_void_rates
from iotrial.study.model import Better, Response, Scale
from simulated import designs, order, others
from simulated.alarms import Design
from simulated.noise import NOISES, Floats, Rng, autocorrelated, drifting, heavy_tailed, normal, periodic
from simulated.process import ALPHA, alarms, largest, misses

TIME = Response("w", "wall", "s", Scale.LOG, Better.LOWER, primary=True)
TRIALS, BLOCKS = 600, 150


@pytest.fixture(scope="module")
def design() -> Design:
    return Design(TRIALS, BLOCKS)


every_noise = pytest.mark.parametrize("noise", list(NOISES))


@every_noise
def test_identical_arms_are_told_apart_no_more_often_where_a_bet_knows_the_budget(
    rng: Rng, design: Design, noise: str
) -> None:
    """At every look, even 30 blocks beyond the budget. The same holds for calling an effect at the margin equivalent."""
    arms = design.arms(NOISES[noise](rng, TRIALS, design.slots))
    contrasts = arms.contrasts
    margin = 0.5 * float(contrasts.std())
    budget = Budget(SHARE, np.maximum(BLOCKS - 30.0 - np.arange(BLOCKS), 0.0))
    for side in (Side.BOTH, Side.SMALLER):
        paths = mixed_paths(contrasts, budget, ALPHA, copies=arms.copies, aim=margin, side=side)
        assert int((paths.max(axis=1) >= 1.0).sum()) <= at_most(TRIALS, ALPHA)


@every_noise
def test_identical_arms_are_told_apart_no_more_often_than_promised_with_a_look_after_every_block(
    rng: Rng, design: Design, noise: str
) -> None:
    arms = design.arms(NOISES[noise](rng, TRIALS, design.slots))
    assert alarms(arms.contrasts, copies=arms.copies) <= at_most(TRIALS, ALPHA)
    for control in arms.control_contrasts():
        assert alarms(control, 0.001) <= at_most(TRIALS, 0.001)


@every_noise
def test_the_reported_interval_holds_the_true_effect_at_every_look(
    rng: Rng, design: Design, noise: str
) -> None:
    trials = 100
    arms = design.arms(NOISES[noise](rng, TRIALS, design.slots))
    d, copies = arms.contrasts[:trials, :80], arms.copies[:trials, :80]
    effect = 0.7 * float(d.std())
    # the interval only narrows: what it contains after the last block, it contained after every one
    assert misses(d + effect, effect, copies=copies) <= at_most(trials, ALPHA)


@pytest.mark.parametrize("ratio", [0.5, 2.0, 4.0])
def test_a_level_that_scatters_otherwise_about_the_same_centre_is_told_apart_no_more_often(
    rng: Rng, design: Design, ratio: float
) -> None:
    """The bold bet alone assumes equal scatter; its weight is small enough for the promise."""
    arms = design.arms(NOISES["normal"](rng, TRIALS, design.slots))
    d = ratio * arms.treated - arms.plain
    assert alarms(d, copies=arms.copies) <= at_most(TRIALS, ALPHA)


def test_an_interval_only_narrows(rng: Rng) -> None:
    d = heavy_tailed(rng, 1, 60)[0]
    ends = [interval(d[:n], ALPHA) for n in range(8, 61, 4)]
    # where late blocks contradict early ones the interval is that of the last block, which is wider
    sound = [one for one in ends if not one.leaning]
    for earlier, later in itertools.pairwise(sound):
        if earlier.low is None or earlier.high is None:
            continue
        assert later.low is not None
        assert later.high is not None
        tolerance = 3e-5 * (
            earlier.high - earlier.low
        )  # each end is found to a hundred-thousandth of the width
        assert later.low >= earlier.low - tolerance
        assert later.high <= earlier.high + tolerance


@every_noise
def test_a_factor_without_effect_is_not_found_among_others_that_act(rng: Rng, noise: str) -> None:
    trials = 300
    for table, active in (
        (designs.full_factorial(3), [0.0, 0.8, 0.5]),
        (designs.screening(16), [0.0, *rng.normal(size=14)]),
    ):
        y = designs.in_blocks(rng, NOISES[noise], trials, 60, table @ np.array(active), drawn=True)
        assert alarms(designs.contrasts_of(table[:, 0], y)) <= at_most(trials, ALPHA)
        assert alarms(designs.contrasts_of(table[:, 1], y) - 2 * active[1]) <= at_most(trials, ALPHA)


@every_noise
def test_a_whole_plot_factor_with_one_contrast_a_block_and_a_factor_inside_keep_the_promise(
    rng: Rng, noise: str
) -> None:
    trials, blocks, inner = 300, 30, 4
    y = designs.in_plots(rng, NOISES[noise], trials, blocks, inner, luck=0.5)
    plots = y.mean(axis=(3, 4))
    assert alarms(plots[:, :, 1] - plots[:, :, 0]) <= at_most(trials, ALPHA)
    inside = (y[..., 1] - y[..., 0]).mean(axis=2)
    assert alarms(inside.reshape(trials, -1)) <= at_most(trials, ALPHA)


def test_an_effect_is_found(rng: Rng, design: Design) -> None:
    for noise in NOISES.values():
        arms = design.arms(noise(rng, TRIALS, design.slots))
        d = arms.contrasts
        assert alarms(d + d.std(), copies=arms.copies) > 0.9 * TRIALS


# methods that are not valid go through the same bound, which must catch them


def alternated(rng: Rng) -> int:
    return alarms(order.alternating(periodic(rng, TRIALS, 2 * BLOCKS)))


def one_after_the_other(rng: Rng) -> int:
    return alarms(order.one_then_the_other(drifting(rng, TRIALS, 2 * BLOCKS)))


def drawn_once_for_all_blocks(rng: Rng) -> int:
    first = np.where(rng.random((TRIALS, 1)) < 0.5, 1.0, -1.0)
    return alarms(first * order.alternating(periodic(rng, TRIALS, 2 * BLOCKS)))


def rows_in_the_order_of_the_table(rng: Rng) -> int:
    table = designs.screening(16)
    y = designs.in_blocks(rng, periodic, TRIALS, 60, np.zeros(16), drawn=False)
    return alarms(designs.contrasts_of(table[:, 0], y))


def rows_of_squares_taken_for_blocks(rng: Rng) -> int:
    """Alternate AB and BA, the first of each two rows drawn at random.

    In every other row the later run is slower, in the rows between it is faster.
    """
    drawn = np.where(rng.random((TRIALS, BLOCKS // 2, 1)) < 0.5, 1.0, -1.0) * np.array([1.0, -1.0])
    later = np.array([1.0, -1.0]) + 0.1 * normal(rng, TRIALS, 2 * (BLOCKS // 2)).reshape(drawn.shape)
    return alarms((drawn * later).reshape(TRIALS, -1))


def sub_blocks_taken_for_blocks(rng: Rng) -> int:
    y = designs.in_plots(rng, autocorrelated, TRIALS, 30, 6, luck=0.5).mean(axis=4)
    return alarms((y[:, :, 1] - y[:, :, 0]).reshape(TRIALS, -1))


def a_t_test_after_every_block(rng: Rng) -> int:
    arms = normal(rng, TRIALS, 2 * BLOCKS)
    return int(np.isfinite(others.welch_every_look(arms[:, :BLOCKS], arms[:, BLOCKS:])).sum())


def the_larger_run_tends_to_be_called_treated(rng: Rng) -> int:
    """The order depends on the response: the larger run is called treated in 65 % of blocks."""
    d = np.abs(normal(rng, TRIALS, BLOCKS)) * np.where(rng.random((TRIALS, BLOCKS)) < 0.65, 1.0, -1.0)
    return alarms(d)


def a_looser_threshold(rng: Rng) -> int:
    return alarms(normal(rng, TRIALS, BLOCKS), 4 * ALPHA)


@pytest.mark.parametrize(
    "broken",
    [
        alternated,
        one_after_the_other,
        drawn_once_for_all_blocks,
        rows_in_the_order_of_the_table,
        rows_of_squares_taken_for_blocks,
        sub_blocks_taken_for_blocks,
        a_t_test_after_every_block,
        the_larger_run_tends_to_be_called_treated,
        a_looser_threshold,
    ],
)
def test_a_broken_design_or_test_does_not_pass_the_same_bound(rng: Rng, broken) -> None:  # type: ignore[no-untyped-def]
    assert broken(rng) > at_most(TRIALS, ALPHA)


def test_a_sound_trial_of_many_conditions_is_hardly_ever_called_invalid(rng: Rng) -> None:
    trials, effects = 50, 96
    limit = math.log(effects / 0.001)
    invalid = sum(bool((largest(heavy_tailed(rng, effects, 100)) >= limit).any()) for _ in range(trials))
    assert invalid <= at_most(trials, 0.001)


def stalled_pairs(rng: Rng, trials: int, blocks: int) -> tuple[Floats, np.ndarray]:
    """Return contrasts of two identical arms, and which of their runs stalled (one in ten)."""
    stalled = rng.random((trials, blocks, 2)) < 0.1
    y = 0.1 * rng.normal(size=stalled.shape) + stalled * rng.uniform(0.5, 2.0, size=stalled.shape)
    return y[:, :, 1] - y[:, :, 0], stalled


def alarms_of_kept(contrasts: Floats, void: np.ndarray) -> int:
    return sum(alarms(row[~gone][None, :]) for row, gone in zip(contrasts, void, strict=True))


def test_throwing_out_blocks_by_a_rule_blind_to_labels_keeps_the_promise(rng: Rng) -> None:
    trials = 600
    contrasts, stalled = stalled_pairs(rng, trials, 200)
    failed_check = stalled & (rng.random(stalled.shape) < 0.5)
    assert alarms_of_kept(contrasts, failed_check.any(axis=2)) <= at_most(trials, ALPHA)


def test_a_rule_that_hits_one_arm_makes_effects_and_the_comparison_of_void_rates_sees_it(rng: Rng) -> None:
    trials = 100
    contrasts, stalled = stalled_pairs(rng, trials, 200)
    one_arm = stalled[:, :, 1]
    assert alarms_of_kept(contrasts, one_arm) > trials // 2
    runs = tuple(Observation(name, ArmKind.TREATMENT, {"f": name}, 0, 0.0, {}) for name in "AB")
    for gone in one_arm[:20]:
        if gone.sum() >= 15:
            void = [ObservedBlock("c", b, runs, void="stall", void_level="B") for b in np.flatnonzero(gone)]
            assert compare_void_rates(void)[1]


@pytest.mark.long
def test_going_on_to_a_width_leaves_a_useful_interval_where_the_first_chance_to_stop_leaves_a_wide_one(
    rng: Rng,
) -> None:
    """True effect 6 %, margin 3 %: when 0 is first excluded, the size of the effect is still open."""
    trials, effect, margin = 40, math.log(1.06), 0.03
    first, last, covered = [], [], 0
    for _ in range(trials):
        contrasts = rng.normal(effect, 0.08, 400)
        blocks, excluded = 8, None
        while True:
            found = interval(contrasts[:blocks], ALPHA)
            assert found.low is not None
            assert found.high is not None
            if excluded is None and found.low > 0:
                excluded = found
            judged = judge(found, TIME, margin=margin)
            if judged.decided or blocks == 400:
                break
            blocks += max(1, blocks // 10)
            blocks = min(blocks, 400)
        assert judged.decided
        beyond = found.low > math.log1p(margin)
        assert beyond or (found.high - found.low) / 2 <= max(
            math.log1p(margin), abs(found.estimate or 0.0) / 4
        )
        covered += found.low <= effect <= found.high
        first.append(excluded or found)
        last.append(found)
    assert trials - covered <= at_most(trials, ALPHA)
    widths = [
        np.median([(one.high or math.inf) - (one.low or 0.0) for one in rows]) for rows in (first, last)
    ]
    assert widths[0] > 1.3 * widths[1]
