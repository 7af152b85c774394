"""The anytime-valid t interval, against numerical integration and simulation."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from scipy import integrate, stats

from iotrial.stats.anytime_t import PRIOR_PRECISION, t_interval


def integrated(values: np.ndarray, mean: float, precision: float) -> float:
    """Compute the Bayes factor by numerical integration: sigma over d sigma / sigma, theta = mu / sigma over its prior."""
    x = values - mean
    n, total, squares = len(x), float(x.sum()), float((x**2).sum())

    def given(theta: float) -> float:
        def integrand(log_sigma: float) -> float:
            sigma = math.exp(log_sigma)
            exponent = -(squares / sigma**2 - 2 * theta * total / sigma + n * theta**2) / 2
            return math.exp(exponent - n * log_sigma)

        return integrate.quad(integrand, -6, 8, limit=200)[0]

    prior = stats.norm(scale=1 / math.sqrt(precision))
    above = integrate.quad(lambda t: given(t) * prior.pdf(t), -6, 6, limit=200)[0]
    return above / given(0.0)


@pytest.mark.parametrize("precision", [1.0, PRIOR_PRECISION])
def test_the_ends_are_where_the_integrated_bayes_factor_reaches_one_over_alpha(precision: float) -> None:
    values = np.random.default_rng(11).normal(0.4, 1.0, 12)
    found = t_interval(values.tolist(), 0.05, prior_precision=precision)
    assert found is not None
    for end in found:
        assert integrated(values, end, precision) == pytest.approx(20.0, rel=1e-3)


def test_few_blocks_bound_nothing() -> None:
    assert t_interval([], 0.05) is None
    assert t_interval([1.0], 0.05) is None
    assert t_interval([1.0, 2.0], 0.05) is None


def test_the_interval_moves_and_scales_with_the_contrasts() -> None:
    values = np.random.default_rng(12).normal(size=30)
    one = t_interval(values.tolist(), 0.05)
    other = t_interval((1e-3 * values + 7.0).tolist(), 0.05)
    assert one is not None
    assert other is not None
    assert other == pytest.approx((1e-3 * one[0] + 7.0, 1e-3 * one[1] + 7.0))


def test_contrasts_that_are_all_equal_leave_one_point() -> None:
    assert t_interval([0.5] * 10, 0.05) == (0.5, 0.5)


def test_under_normal_noise_it_hardly_ever_misses_however_often_one_looks() -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    print("seed", seed)
    values = np.random.default_rng(seed).normal(size=(400, 120))
    misses = 0
    for row in values:
        for n in range(5, 121):
            found = t_interval(row[:n].tolist(), 0.05)
            if found is not None and not found[0] <= 0.0 <= found[1]:
                misses += 1
                break
    # a valid interval misses more often than this in 400 trials at .05 with probability 1e-6
    assert misses <= stats.binom.isf(1e-6, 400, 0.05)
