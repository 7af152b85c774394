"""How often an audit finds modes, where there are none and where there are, by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from iotrial.audits.audit import audit
from iotrial.audits.model import Dataset, ModeCounts, Observation, TwoModes
from iotrial.audits.modes import beyond_treatment

RNG = np.random.default_rng()


def times(groups: int, runs: int, *, effect: float = 0.0, gap: float = 0.0) -> list[list[float]]:
    """Return run times with an SD of 1 %: the first group shifted by an effect, each run in one of two modes; in SDs."""
    noise = RNG.standard_normal((groups, runs)) + gap * (RNG.random((groups, runs)) < 0.5)
    noise[0] += effect
    return np.exp(0.01 * noise).tolist()


def share_with_modes(rows: int, groups: int, runs: int, **shape: float) -> float:
    """Return how often an audit finds modes in such a table."""
    found = 0
    for _ in range(rows):
        observations = [
            Observation(str(group), "time", "s", value, run=run)
            for group, row in enumerate(times(groups, runs, **shape))
            for run, value in enumerate(row)
        ]
        found += bool(audit(Dataset("x", "x", tuple(observations))).modes)
    return found / rows


@pytest.mark.parametrize(
    ("groups", "runs", "effect", "stated"),
    [(3, 3, 0.0, 0.01), (3, 3, 3.0, 0.01), (4, 3, 0.0, 0.01), (3, 10, 0.0, 0.03), (3, 10, 4.0, 0.03)],
)
def test_modes_are_found_in_normal_values_as_seldom_as_the_page_says(
    groups: int, runs: int, effect: float, stated: float
) -> None:
    # four standard errors of 500 tables
    assert share_with_modes(500, groups, runs, effect=effect) <= stated + 4 * math.sqrt(stated / 500)


@pytest.mark.parametrize(("gap", "stated"), [(6.0, 1 / 3), (10.0, 4 / 5)])
def test_modes_are_found_in_three_groups_of_three_as_often_as_the_page_says(
    gap: float, stated: float
) -> None:
    assert share_with_modes(1000, 3, 3, gap=gap) == pytest.approx(
        stated, abs=0.1
    )  # over four standard errors


def test_an_effect_is_no_mode_and_a_small_group_may_miss_one() -> None:
    def modes(*by_group: tuple[int, int]) -> TwoModes:
        low, high = (sum(one[i] for one in by_group) for i in (0, 1))
        counts = {str(i): ModeCounts(*one) for i, one in enumerate(by_group)}
        return TwoModes("time", {}, "", (), 1.0, 2.0, low, high, 0.001, "s", counts, None, None)

    assert beyond_treatment(modes((1, 2), (2, 1), (0, 3)))  # (1/3)^3 + (2/3)^3 = 33 %
    assert not beyond_treatment(modes((0, 3), (3, 0), (3, 0)))
    assert not beyond_treatment(modes((1, 2), (0, 3), (3, 0)))
    assert not beyond_treatment(modes((4, 6), (5, 5), (0, 10)))  # .3^10 + .7^10 = 2.8 %
