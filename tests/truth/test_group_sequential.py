"""The competing group sequential method is implemented correctly: its boundaries are the published ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from simulated import group_sequential
from simulated.others import anytime_t, welch_every_look


@pytest.mark.parametrize(("looks", "constant"), [(2, 2.178), (5, 2.413), (10, 2.555)])
def test_pococks_constants_are_those_of_jennison_and_turnbull_table_2_1(looks: int, constant: float) -> None:
    assert group_sequential.pocock(looks)[0] == pytest.approx(constant, abs=6e-4)


@pytest.mark.parametrize(("looks", "constant"), [(2, 1.977), (5, 2.040), (10, 2.087)])
def test_obrien_and_flemings_constants_are_those_of_jennison_and_turnbull_table_2_3(
    looks: int, constant: float
) -> None:
    assert group_sequential.obrien_fleming(looks)[0] == pytest.approx(constant, abs=6e-4)


def test_the_spending_boundary_is_that_of_reboussin_and_others_for_five_looks() -> None:
    published = [4.8769, 3.3569, 2.6803, 2.2898, 2.0310]
    assert group_sequential.spending(5) == pytest.approx(published, abs=2e-3)


def test_its_false_alarms_on_normal_noise_are_those_that_it_promises() -> None:
    trials = 4000
    d = np.random.default_rng().normal(size=(trials, 100))
    for boundary in (group_sequential.spending(10), group_sequential.pocock(5)[1]):
        hits = int(np.isfinite(group_sequential.first_rejection(d, boundary)).sum())
        # nominal p-values of t are an approximation: .05 to within .01, with a tail of 1e-6
        assert stats.binom.ppf(1e-6, trials, 0.04) <= hits <= stats.binom.isf(1e-6, trials, 0.06)


def test_the_vectorised_welch_agrees_with_scipy_block_by_block() -> None:
    rng = np.random.default_rng(7)
    a, b = rng.normal(size=(20, 60)), rng.normal(0.6, 2.0, size=(20, 60))
    stopped = welch_every_look(a, b)
    for row in range(20):
        looks = (
            n for n in range(8, 61) if stats.ttest_ind(a[row, :n], b[row, :n], equal_var=False).pvalue <= 0.05
        )
        assert stopped[row] == next(looks, np.inf)


def test_the_vectorised_anytime_t_excludes_zero_where_the_products_interval_does() -> None:
    from iotrial.stats.anytime_t import t_interval

    d = np.random.default_rng(11).normal(0.25, 1.0, size=(30, 60))
    for row, ever in zip(d, anytime_t(d), strict=True):
        ends = [t_interval(row[:n], 0.05) for n in range(2, 61)]
        assert ever == any(end is not None and not end[0] <= 0.0 <= end[1] for end in ends)
