"""Audit statistics, against scipy, closed forms, enumeration and simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from iotrial.audits.intervals import mann_whitney_counts, rank, welch
from iotrial.audits.modes import best_split, split_p, switches_at_least
from iotrial.audits.oddities import spearman
from iotrial.audits.order import false_alarm, lag_one
from iotrial.stats.student import quantile, two_sided


@pytest.mark.parametrize("df", [1, 1.7, 2, 4.4, 10, 100, 1e6])
@pytest.mark.parametrize("t", [0.0, 0.3, 1.0, 2.5, 12.7, 300.0])
def test_students_t_is_that_of_scipy(t: float, df: float) -> None:
    assert two_sided(t, df) == pytest.approx(2 * stats.t.sf(t, df), rel=1e-8, abs=1e-14)


@pytest.mark.parametrize("df", [1, 2.3, 9, 1000])
@pytest.mark.parametrize("alpha", [0.5, 0.05, 0.001, 1e-6])
def test_the_quantile_is_that_of_scipy(alpha: float, df: float) -> None:
    assert quantile(alpha, df) == pytest.approx(stats.t.isf(alpha / 2, df), rel=1e-7)


def test_welchs_interval_is_that_of_scipy() -> None:
    a, b = [1.1, 1.3, 0.9, 1.6], [2.0, 2.1, 2.6, 1.9, 2.2]
    found = welch(a, b, 0.05)
    low, high = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((low, high))


def test_a_group_of_one_has_no_interval() -> None:
    found = welch([1.0], [2.0, 2.1, 2.2], 0.05)
    assert not found.bounded
    assert "group of one" in found.why_not


@pytest.mark.parametrize(("m", "n"), [(1, 1), (2, 3), (4, 4), (3, 6)])
def test_the_null_distribution_of_ranks_is_that_of_all_arrangements(m: int, n: int) -> None:
    counts = [0] * (m * n + 1)
    for chosen in itertools.combinations(range(m + n), m):
        rest = [i for i in range(m + n) if i not in chosen]
        counts[sum(a > b for a in chosen for b in rest)] += 1
    assert mann_whitney_counts(m, n) == tuple(counts)


def test_three_and_three_values_cannot_reach_95_per_cent() -> None:
    # the smallest two-sided p-value of a rank test is 2 / (6 choose 3)
    assert not rank([1.0, 2.0, 3.0], [7.0, 8.0, 9.0], 0.05).bounded
    assert rank([1.0, 2.0, 3.0], [7.0, 8.0, 9.0], 0.1).bounded


def test_the_rank_interval_holds_the_shifts_that_the_exact_test_leaves() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.normal(0.3, 1, 6), rng.normal(0, 1, 7)
    found = rank(list(a), list(b), 0.05)
    low, high = math.log(found.low), math.log(found.high)
    for shift, inside in ((low - 1e-6, False), (low + 1e-6, True), (high - 1e-6, True), (high + 1e-6, False)):
        p = stats.mannwhitneyu(a - shift, b, method="exact").pvalue
        assert bool(p > 0.05) is inside


@pytest.mark.parametrize(("a", "b"), [(1, 1), (4, 5), (3, 3), (2, 6)])
def test_switches_are_counted_as_enumeration_counts_them(a: int, b: int) -> None:
    rows = set(itertools.permutations([True] * a + [False] * b)) if a + b < 7 else None
    if rows is None:
        rows = {
            tuple(i in chosen for i in range(a + b)) for chosen in itertools.combinations(range(a + b), a)
        }
    for least in range(a + b):
        hits = sum(sum(x != y for x, y in itertools.pairwise(row)) >= least for row in rows)
        assert switches_at_least(a, b, least) == pytest.approx(hits / len(rows))


def test_nine_values_that_alternate_do_so_in_one_arrangement_of_126() -> None:
    assert switches_at_least(4, 5, 8) == pytest.approx(1 / 126)


def test_normal_values_are_seldom_two_heaps_and_two_heaps_always_are() -> None:
    rng = np.random.default_rng()
    alarms = 0
    for _ in range(300):
        ratio, _ = best_split(sorted(rng.standard_normal(12)))
        alarms += split_p(12, ratio) <= 0.05
    assert alarms <= 36  # P(more | .05) < 1e-6
    ratio, cut = best_split([0.0, 0.01, 0.02, 0.03, 1.0, 1.01, 1.02, 1.03])
    assert cut == 4
    assert split_p(8, ratio) < 0.01


@pytest.mark.parametrize("n", [5, 7, 12])
def test_rank_correlation_is_that_of_scipy(n: int) -> None:
    rng = np.random.default_rng(n)
    x, y = rng.normal(size=n), rng.normal(size=n)
    found, p = spearman(x, y)
    assert found == pytest.approx(stats.spearmanr(x, y).statistic)
    if n > 7:
        assert p == pytest.approx(stats.spearmanr(x, y).pvalue, rel=1e-6)


@pytest.mark.parametrize("n", [5, 7, 8])
@pytest.mark.parametrize("step", [1, -1])
def test_values_in_order_have_the_p_of_one_arrangement_and_its_mirror_image(n: int, step: int) -> None:
    found, p = spearman(range(n), range(n)[::step])
    assert (found, p) == (pytest.approx(step), pytest.approx(2 / math.factorial(n)))


@pytest.mark.parametrize(("correlation", "apart"), [(0.0, True), (0.5, True), (0.8, True), (0.5, False)])
def test_the_rate_of_false_alarms_is_that_of_a_simulation(correlation: float, apart: bool) -> None:
    n, trials = 20, 4000
    rng = np.random.default_rng()
    noise = rng.standard_normal((trials, 2 * n))
    for i in range(1, 2 * n):
        noise[:, i] = correlation * noise[:, i - 1] + math.sqrt(1 - correlation**2) * noise[:, i]
    first = np.arange(n) if apart else np.arange(0, 2 * n, 2)
    second = np.setdiff1d(np.arange(2 * n), first)
    p = stats.ttest_ind(noise[:, first], noise[:, second], axis=1, equal_var=False).pvalue
    rate = float((p < 0.05).mean())
    assert false_alarm(list(first), list(second), correlation) == pytest.approx(rate, abs=0.04)


def test_lag_one_is_near_nought_for_independent_values() -> None:
    rng = np.random.default_rng()
    # centred at the mean of four, it would be -1/4
    series = [row - row.mean() for row in rng.standard_normal((800, 4))]
    assert lag_one(series) == pytest.approx(0.0, abs=0.1)  # five standard errors
