"""Changes of level: detected when present, and rarely reported for mere autocorrelation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from iotrial.stats.change_points import FEWEST, SHORTEST, changes, statistic

Floats = npt.NDArray[np.float64]


def noise(rng: np.random.Generator, n: int, correlation: float) -> Floats:
    """Return an AR(1) series with variance 1."""
    steps = rng.standard_normal(n + 50) * np.sqrt(1.0 - correlation**2)
    series = np.zeros(n + 50)
    for i in range(1, n + 50):
        series[i] = correlation * series[i - 1] + steps[i]
    return series[50:]


def slow_statistic(x: Floats, step: int) -> Floats:
    """Compute the statistic as in the paper (Zhao, Jiang and Shao, section 2.2, means), with positions counted from 1."""
    n = x.size

    def mean(i: int, j: int) -> float:
        return float(x[i - 1 : j].mean())

    largest = np.zeros(n - 1)
    for k in range(1, n):
        for first in range(k - step + 1, 0, -step):
            for last in range(k + step, n + 1, step):
                size, left, right = last - first + 1, k - first + 1, last - k
                contrast = left * right / size**1.5 * (mean(first, k) - mean(k + 1, last))
                normal = 0.0
                for i in range(first, k):
                    weight = ((i - first + 1) * (k - i) / (size * left)) ** 2
                    normal += weight * (mean(first, i) - mean(i + 1, k)) ** 2
                for i in range(k + 2, last + 1):
                    weight = ((last - i + 1) * (i - 1 - k) / (size * right)) ** 2
                    normal += weight * (mean(i, last) - mean(k + 1, i - 1)) ** 2
                largest[k - 1] = max(largest[k - 1], contrast**2 / normal)
    return largest


def test_the_statistic_is_that_of_the_paper() -> None:
    rng = np.random.default_rng(1)
    for n, step in ((20, 5), (31, 6), (40, 13)):
        x = rng.standard_normal(n) + 3.0
        assert statistic(x, step) == pytest.approx(slow_statistic(x, step), rel=1e-6)


@pytest.mark.parametrize(("correlation", "most"), [(0.0, 0.01), (0.4, 0.015), (0.6, 0.025)])
def test_neighbours_that_resemble_each_other_are_seldom_taken_for_a_change(
    correlation: float, most: float
) -> None:
    """With 1,000 series of 100 values, a share of .01 is known to .003."""
    rng = np.random.default_rng(3)
    marked = sum(bool(changes(noise(rng, 100, correlation))) for _ in range(1000))
    assert marked / 1000 <= most


def test_a_step_is_found_where_it_is() -> None:
    rng = np.random.default_rng(4)
    places = []
    for _ in range(200):
        series = noise(rng, 120, 0.4)
        series[70:] += 3.0
        places += [change.place for change in changes(series)[:1]]
    assert len(places) >= 180
    assert abs(np.median(places) - 70) <= 1


def test_two_steps_are_two_changes_with_the_means_between() -> None:
    rng = np.random.default_rng(5)
    series = np.concatenate([np.full(60, 1.0), np.full(60, 2.0), np.full(60, 4.0)])
    found = changes(series + 0.05 * rng.standard_normal(180))
    assert [change.place for change in found] == [60, 120]
    assert [change.before for change in found] == pytest.approx([1.0, 2.0], abs=0.05)
    assert [change.after for change in found] == pytest.approx([2.0, 4.0], abs=0.05)


def test_scale_and_level_make_no_difference() -> None:
    rng = np.random.default_rng(6)
    series = noise(rng, 100, 0.3)
    series[40:] += 4.0
    wanted = [change.place for change in changes(series)]
    assert wanted
    for scale, shift in ((1e-12, 0.0), (1e12, 0.0), (1.0, 1e6)):
        assert [change.place for change in changes(series * scale + shift)] == wanted


@pytest.mark.parametrize(
    "values",
    [
        np.zeros(FEWEST - 1),
        np.zeros(100),
        np.full(100, 1e300),
        np.full(100, 0.1) * 3.0,
        np.array([np.nan] * 100),
        np.array([np.inf] * 100),
    ],
)
def test_what_cannot_change_has_no_change(values: Floats) -> None:
    assert changes(values) == ()


def test_no_stretch_is_shorter_than_the_shortest() -> None:
    rng = np.random.default_rng(7)
    for _ in range(50):
        series = np.repeat(rng.standard_normal(20) * 10.0, rng.integers(3, 20, 20))
        edges = [0, *(change.place for change in changes(series)), series.size]
        assert np.diff(edges).min() >= SHORTEST
