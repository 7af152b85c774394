"""The bet that knows the budget: fair whatever is known before a block, and it decides more comparisons in time."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from iotrial.stats.betting import Floats, Side
from iotrial.stats.budget_bet import MOST, SHARE, Budget, capital, contrasts_left, mixed_paths
from iotrial.stats.eprocess import interval

SIZES = (1.0, 0.2, 3.0, 0.0, 1.4, 0.7, 0.7, 40.0, 0.1, 1.1)


def all_signs(blocks: int) -> Floats:
    return np.array(list(itertools.product((-1.0, 1.0), repeat=blocks)))


def counting_down(blocks: int) -> Floats:
    return np.arange(blocks, 0, -1.0)


@pytest.mark.parametrize("blocks", [3, 10, 25])
@pytest.mark.parametrize("level", [0.5, 0.05, 0.001])
def test_over_all_sign_patterns_the_mean_capital_is_exactly_what_it_began_with(
    blocks: int, level: float
) -> None:
    left = np.maximum(counting_down(len(SIZES)) + blocks - len(SIZES), 0.0)
    held = capital(all_signs(len(SIZES)) * np.array(SIZES), left, level)
    np.testing.assert_allclose(held.mean(axis=0), level, rtol=1e-9)


def test_it_is_fair_too_where_the_blocks_left_depend_on_earlier_signs() -> None:
    """They do where the slower level's runs leave time for fewer blocks."""

    def after(signs: Floats) -> Floats:
        lost = np.concatenate([[0.0], np.cumsum(signs > 0.0)[:-1]])
        return np.maximum(14.0 - 1.5 * lost - np.arange(signs.size), 0.0)

    held = [
        capital((signs * np.array(SIZES))[None, :], after(signs), 0.05)[0] for signs in all_signs(len(SIZES))
    ]
    np.testing.assert_allclose(np.mean(held, axis=0), 0.05, rtol=1e-9)


@pytest.mark.parametrize("side", list(Side))
@pytest.mark.parametrize("left", [counting_down(12), counting_down(12) + 20.0, np.full(12, 3.0)])
def test_over_all_sign_patterns_a_true_candidate_is_excluded_at_most_as_often_as_alpha_says(
    side: Side, left: Floats
) -> None:
    sizes = np.random.default_rng(5).exponential(size=12)
    paths = mixed_paths(all_signs(12) * sizes, Budget(0.35, left), 0.05, aim=0.4, side=side)
    np.testing.assert_allclose(paths.mean(axis=0), 0.05, rtol=1e-9)
    assert 0.0 < (paths.max(axis=1) >= 1.0).mean() <= 0.05


def test_what_the_bets_without_a_budget_exclude_with_their_share_of_alpha_stays_excluded() -> None:
    for values, budget in series():
        alone = interval(values, 0.05 * (1.0 - SHARE), margin=0.3)
        found = interval(values, 0.05, margin=0.3, budget=budget)
        assert (alone.low is None) is (found.low is None)
        assert found.empty is alone.empty
        if alone.low is not None and alone.high is not None:
            assert found.low is not None
            assert found.high is not None
            assert alone.low <= found.low <= found.high <= alone.high


@pytest.mark.slow
def test_the_ends_are_those_of_the_candidates_that_are_left_one_by_one() -> None:
    narrower = 0
    for values, budget in series():
        found = interval(values, 0.05, margin=0.3, budget=budget)
        alone = interval(values, 0.05 * (1.0 - SHARE), margin=0.3)
        if (
            found.low is None
            or found.high is None
            or found.leaning
            or (found.low, found.high) == (alone.low, alone.high)
        ):
            continue
        narrower += 1
        candidates = np.linspace(values.min() - 1.0, values.max() + 1.0, 4001)
        paths = mixed_paths(values[None, :] - candidates[:, None], budget, 0.05, aim=0.3)
        left = candidates[paths.max(axis=1) < 1.0]
        step = candidates[1] - candidates[0]
        assert found.low == pytest.approx(left.min(), abs=1.01 * step)
        assert found.high == pytest.approx(left.max(), abs=1.01 * step)
    assert narrower >= 10


def series() -> list[tuple[Floats, Budget]]:
    rng = np.random.default_rng(11)
    shapes: tuple[Callable[..., Floats], ...] = (rng.normal, rng.laplace)
    found = []
    for blocks, ended in ((16, 16), (40, 40), (40, 200), (120, 100)):
        for shape in shapes:
            for effect in (0.0, 0.5):
                left = np.maximum(ended - np.arange(blocks), 0.0)
                found.append((shape(size=blocks) + effect, Budget(SHARE, left)))
    return found


def test_p_is_below_alpha_exactly_where_the_game_against_no_effect_was_won() -> None:
    for values, budget in series():
        won = mixed_paths(values[None, :], budget, 0.05, aim=0.3).max() >= 1.0
        assert (interval(values, 0.05, margin=0.3, budget=budget).p_anytime <= 0.05) == won


@pytest.mark.slow
def test_more_comparisons_without_an_effect_are_equivalent_by_the_end_of_their_budget() -> None:
    rng = np.random.default_rng(2)
    alone = known = 0
    for _ in range(40):
        values = rng.normal(size=60)
        alone += interval(values, 0.05 / 8, margin=0.5).bounds is not None
        budget = Budget(SHARE, counting_down(60))
        known += interval(values, 0.05 / 8, margin=0.5, budget=budget).bounds is not None
    assert known >= alone + 4


def test_an_effect_at_the_margin_is_equivalent_no_more_often_than_alpha_says() -> None:
    rng = np.random.default_rng(3)
    paths = [
        mixed_paths(
            rng.normal(size=(1, 80)), Budget(SHARE, counting_down(80)), 0.1, aim=0.4, side=Side.SMALLER
        )
        for _ in range(300)
    ]
    assert sum(path.max() >= 1.0 for path in paths) <= 45  # at most 30 expected; > 45 once in 500 times


def test_once_the_budget_is_spent_the_capital_stays_as_it_is() -> None:
    x = np.random.default_rng(4).normal(0.4, 1.0, size=(5, 60))
    held = capital(x, np.maximum(40.0 - np.arange(60), 0.0), 0.05)
    assert (held[:, 39:] == held[:, 39:40]).all()


def test_contrasts_that_are_all_zero_win_and_lose_nothing() -> None:
    np.testing.assert_allclose(capital(np.zeros((1, 9)), counting_down(9), 0.05), 0.05)


def test_the_blocks_left_are_those_of_whichever_limit_comes_first() -> None:
    starts = [10.0 * block for block in range(6)]
    assert contrasts_left(range(6), starts, blocks=20, time_s=1e9).tolist() == [20, 19, 18, 17, 16, 15]
    assert contrasts_left(range(6), starts, blocks=1000, time_s=45.0).tolist()[1:] == [3, 2, 1, 1, 0]


def test_void_blocks_and_a_faster_pace_are_reckoned_with() -> None:
    half_void = contrasts_left([0, 2, 4, 6, 8], [0.0] * 5, blocks=20, time_s=1e9)
    assert half_void.tolist() == [20, 9, 8, 7, 6]
    others_decided = contrasts_left(range(5), [0.0, 40.0, 80.0, 90.0, 100.0], blocks=10**6, time_s=200.0)
    assert others_decided[2] == 3
    assert others_decided[4] == 10


def test_it_takes_part_in_no_more_contrasts_than_it_can_be_reckoned_for() -> None:
    left = contrasts_left(range(MOST + 5), [0.0] * (MOST + 5), blocks=10**6, time_s=1e9)
    assert left[0] == MOST
    assert left[MOST - 1] == 1
    assert not left[MOST:].any()
    values = np.random.default_rng(1).normal(size=MOST + 5)
    assert math.isfinite(interval(values, 0.05, margin=0.1, budget=Budget(SHARE, left)).p_anytime)
