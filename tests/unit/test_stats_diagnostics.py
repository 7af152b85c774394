"""Diagnostics, against constructed data of known structure and scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from iotrial.stats.diagnostics import _changes, block_share, lag_one, order_of, sarle, slope
from iotrial.study.model import Better, Response, Scale


def slots(rng: np.random.Generator, blocks: int, arms: int) -> np.ndarray:
    return rng.permuted(np.tile(np.arange(arms, dtype=float), (blocks, 1)), axis=1)


def test_a_response_that_grows_with_the_slot_shows_an_order_effect() -> None:
    rng = np.random.default_rng(1)
    at = slots(rng, 100, 3)
    effect, p = order_of(0.05 * at + rng.normal(0, 0.1, (100, 3)), at)
    # from slot 0 to slot 2
    assert effect == pytest.approx(0.1, abs=0.04)
    assert p is not None
    assert p < 0.001


def test_without_order_effect_its_p_is_uniform() -> None:
    rng = np.random.default_rng(2)
    found = []
    for _ in range(400):
        at = slots(rng, 60, 3)
        found.append(order_of(rng.normal(size=(60, 3)), at)[1])
    assert stats.kstest(np.array(found, dtype=float), "uniform").pvalue > 1e-4


def test_equal_values_have_no_order_effect() -> None:
    rng = np.random.default_rng(3)
    assert order_of(np.ones((20, 2)), slots(rng, 20, 2)) == (0.0, 1.0)


def test_autocorrelation_is_that_of_a_known_process() -> None:
    rng = np.random.default_rng(4)
    values = [0.0]
    for _ in range(20_000):
        values.append(0.6 * values[-1] + rng.normal())
    assert lag_one(np.array(values)) == pytest.approx(0.6, abs=0.03)
    assert lag_one(np.ones(10)) is None


def test_the_slope_is_that_of_least_squares() -> None:
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=30), rng.normal(size=30)
    assert slope(x, y) == pytest.approx(stats.linregress(x, y).slope)
    assert slope(np.ones(5), np.arange(5.0)) is None


def test_the_coefficient_of_two_modes_is_that_of_unbiased_skewness_and_kurtosis() -> None:
    values = np.random.default_rng(6).gamma(3.0, size=200)
    n = values.size
    skew = stats.skew(values, bias=False)
    kurtosis = stats.kurtosis(values, bias=False)
    assert sarle(values) == pytest.approx((skew**2 + 1) / (kurtosis + 3 * (n - 1) ** 2 / ((n - 2) * (n - 3))))


def test_two_modes_score_high_and_one_scores_low() -> None:
    rng = np.random.default_rng(7)
    two = sarle(np.concatenate([rng.normal(-5, 1, 500), rng.normal(5, 1, 500)]))
    one = sarle(rng.normal(size=1000))
    assert two is not None
    assert one is not None
    assert one == pytest.approx(1 / 3, abs=0.05)
    assert two > 0.8
    assert sarle(np.ones(10)) is None


def test_the_share_of_the_block_is_the_share_that_was_put_in() -> None:
    rng = np.random.default_rng(8)
    values = rng.normal(0, 2, (3000, 1)) + rng.normal(0, 1, (3000, 3)) + np.array([0.0, 5.0, 9.0])
    assert block_share(values) == pytest.approx(0.8, abs=0.03)
    assert block_share(np.ones((10, 2))) is None
    unrelated = block_share(rng.normal(size=(3000, 3)))
    assert unrelated is not None
    assert math.isclose(unrelated, 0.0, abs_tol=0.05)


def test_a_change_of_level_is_a_ratio_or_a_difference() -> None:
    rng = np.random.default_rng(8)
    times = np.arange(120.0)
    logs = np.where(times < 70, 0.0, math.log(2.0)) + rng.normal(0.0, 0.01, 120)
    (doubled,) = _changes(logs, times, Response("w", "wall", "s", Scale.LOG, Better.LOWER, True))
    assert (doubled.at_s, doubled.difference) == (70.0, None)
    assert doubled.ratio == pytest.approx(2.0, rel=0.01)
    counts = np.where(times < 70, 0.0, 7.0) + rng.normal(0.0, 0.01, 120)
    (more,) = _changes(counts, times, Response("w", "ios", "1", Scale.DIFFERENCE, Better.LOWER, True))
    assert (more.at_s, more.ratio) == (70.0, None)
    assert more.difference == pytest.approx(7.0, rel=0.01)
    far = np.where(times < 70, -690.0, 690.0) + rng.normal(0.0, 0.01, 120)
    (beyond,) = _changes(far, times, Response("w", "wall", "s", Scale.LOG, Better.LOWER, True))
    assert beyond.ratio is None or beyond.ratio > 1e290
