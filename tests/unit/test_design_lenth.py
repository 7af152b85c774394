"""Lenth's pseudo standard error and half-normal quantiles, against hand-computed numbers."""

from __future__ import annotations

import pytest

from iotrial.design.lenth import half_normal_quantiles, lenth_pse


def test_the_pseudo_standard_error_leaves_large_effects_out() -> None:
    # sizes 1 2 3 4 5 6 40: median 4, s0 = 6; those below 15 are 1 2 3 4 5 6, with median 3.5, times 1.5
    assert lenth_pse([1, -2, 3, -4, 5, -6, 40]) == pytest.approx(5.25)


def test_without_large_effects_it_is_one_and_a_half_medians() -> None:
    assert lenth_pse([0.2, -0.1, 0.3]) == pytest.approx(0.3)


def test_no_effects_and_only_zeros_scatter_by_nothing() -> None:
    assert lenth_pse([]) == 0.0
    assert lenth_pse([0.0, 0.0, 0.0]) == 0.0


def test_half_normal_quantiles_are_those_of_the_tables() -> None:
    # P(|Z| < 0.6745) = 1/2 and P(|Z| < 1.1503) = 3/4, P(|Z| < 0.3186) = 1/4
    assert half_normal_quantiles(1) == pytest.approx((0.6745,), abs=1e-4)
    assert half_normal_quantiles(2) == pytest.approx((0.3186, 1.1503), abs=1e-4)
