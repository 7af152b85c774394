"""Least squares on the runs before: coefficients by a second implementation, scores by scipy, planted dependence."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from iotrial.stats.dependence import (
    AFTER_ITSELF,
    PATTERNS,
    SCORE,
    RunColumns,
    arranged,
    dependences,
    normal_score,
    score_needed,
)

ARMS = ("A", "B", "copy", "slowed")


def shuffled(rng: np.random.Generator, blocks: int) -> list[list[str]]:
    return [[str(arm) for arm in rng.permutation(ARMS)] for _ in range(blocks)]


def table_of(orders: list[list[str]], values: np.ndarray) -> RunColumns:
    split = np.split(values, np.cumsum([len(order) for order in orders])[:-1])
    return arranged(
        [list(map(float, part)) for part in split], orders, range(len(orders)), [True] * len(orders)
    )[0]


def held(orders: list[list[str]]) -> np.ndarray:
    return np.array([arm == "B" for order in orders for arm in order])


def number_before(orders: list[list[str]], last: int) -> np.ndarray:
    """Return for each run how many of the ``last`` runs before it had the level, counted one by one."""
    arms = [arm for order in orders for arm in order]
    return np.array(
        [sum(arm == "B" for arm in arms[max(0, at - last) : at]) for at in range(len(arms))], dtype=float
    )


@pytest.mark.parametrize("last", [1, 3, 6])
def test_the_coefficient_is_that_of_a_regression_with_a_column_for_every_block_arm_and_slot(
    last: int,
) -> None:
    rng = np.random.default_rng(last)
    orders = shuffled(rng, 15)
    arms = [arm for order in orders for arm in order]
    values = rng.normal(size=len(arms)) + 0.5 * number_before(orders, last)
    columns = [[float(arm == name) for arm in arms] for name in ARMS]
    columns += [[float(at // 4 == block) for at in range(len(arms))] for block in range(15)]
    columns += [[float(at % 4 == slot) for at in range(len(arms))] for slot in range(4)]
    columns += [list(number_before(orders, last))]
    expected = np.linalg.lstsq(np.array(columns).T, values, rcond=None)[0][-1]
    found = dependences(table_of(orders, values), {("arm", "B"): held(orders)})
    (one,) = [each for each in found if each.pattern.name == f"last {last}"]
    assert one.size == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("t", "freedom"), [(2.0, 5.0), (-4.0, 8.0), (5.0, 12.0), (7.5, 30.0)])
def test_the_score_has_the_p_value_of_students_t(t: float, freedom: float) -> None:
    expected = math.copysign(stats.norm.isf(stats.t.sf(abs(t), freedom)), t)
    assert float(normal_score(np.array(t), np.array(freedom))) == pytest.approx(expected, rel=0.01)


def test_more_questions_need_a_higher_score_by_the_same_factor_on_the_p_value() -> None:
    assert score_needed(1) == pytest.approx(SCORE)
    assert stats.norm.sf(score_needed(16)) == pytest.approx(stats.norm.sf(SCORE) / 16, rel=1e-6)


@pytest.mark.parametrize("last", [1, 2, 3, 6])
def test_planted_carry_over_is_found_with_its_size(last: int) -> None:
    rng = np.random.default_rng(100 + last)
    orders = shuffled(rng, 40)
    values = 0.03 * rng.normal(size=160) + 0.1 * number_before(orders, last)
    found = dependences(table_of(orders, values), {("arm", "B"): held(orders)})
    most = max(found, key=lambda one: abs(one.score))
    assert abs(most.score) > SCORE
    (one,) = [each for each in found if each.pattern.name == f"last {last}"]
    assert one.size == pytest.approx(0.1, abs=0.03)


def test_a_single_block_cannot_make_a_score() -> None:
    rng = np.random.default_rng(6)
    orders = shuffled(rng, 12)
    values = 0.01 * rng.normal(size=48)
    values[20:24] += [0.0, 5.0, 0.0, -5.0]
    found = dependences(table_of(orders, values), {("arm", "B"): held(orders)})
    assert all(abs(one.score) < 2.5 for one in found)


def test_units_without_a_value_in_every_run_and_blocks_of_other_conditions_only_precede() -> None:
    rng = np.random.default_rng(7)
    orders = shuffled(rng, 20)
    values = rng.normal(size=80).reshape(20, 4)
    own = [block % 2 == 0 for block in range(20)]
    some = values.copy()
    some[4, 1] = math.nan
    table, _ = arranged(some.tolist(), orders, range(20), own)
    assert sorted(set(table.block[table.counted].tolist())) == [
        block for block in range(0, 20, 2) if block != 4
    ]
    level = held(orders)
    changed = some.copy()
    changed[1::2] += 100.0
    changed[4, 0] = 50.0
    again, _ = arranged(changed.tolist(), orders, range(20), own)
    one, other = (dependences(each, {("arm", "B"): level}) for each in (table, again))
    assert [each.score for each in one] == [each.score for each in other]
    assert len(one) <= len(PATTERNS)


def test_a_run_that_an_unmeasured_one_of_its_arm_precedes_follows_its_own_level() -> None:
    """Each run of B takes 1 longer after another arm. Only the unmeasured runs show it: B is never next to itself."""
    rng = np.random.default_rng(11)
    orders = [
        ["A", "B", "copy", "slowed"] if block % 2 else ["copy", "slowed", "B", "A"] for block in range(24)
    ]
    after_itself = [{order.index("B")} if rng.random() < 0.5 else set() for order in orders]
    values = [
        [
            float(rng.normal(0.0, 0.05)) + (arm == "B" and place not in places)
            for place, arm in enumerate(order)
        ]
        for order, places in zip(orders, after_itself, strict=True)
    ]
    table, runs = arranged(values, orders, range(24), [True] * 24, after_itself)
    assert table.value.size == 96 + sum(map(len, after_itself))
    assert table.counted.sum() == 96
    assert table.value[table.counted].tolist() == [one for block in values for one in block]
    level = held(orders)[runs]
    (found,) = [one for one in dependences(table, {("arm", "B"): level}) if one.pattern == AFTER_ITSELF]
    assert found.size == pytest.approx(-1.0, abs=0.1)
    assert found.score < -SCORE
    plain, _ = arranged(values, orders, range(24), [True] * 24)
    unseen = dependences(plain, {("arm", "B"): held(orders)})
    assert AFTER_ITSELF not in [one.pattern for one in unseen]


def test_runs_that_are_blocks_of_their_own_show_no_dependence_and_are_no_error() -> None:
    """With one run a block nothing is left once each block has its own level."""
    orders = [["A"], ["B"]] * 4
    assert dependences(table_of(orders, np.arange(8.0)), {("f", "B"): held(orders)}) == []
