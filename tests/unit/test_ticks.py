"""Ticks of linear axes are round numbers, and those that matplotlib chooses."""

from __future__ import annotations

import random

import pytest
from matplotlib.ticker import MaxNLocator

from iotrial.report.plots.canvas import linear_ticks

STEPS = [1, 2, 2.5, 5, 10]
MOST = 6


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [
        (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.93, 1.08, [0.95, 1.0, 1.05]),
        (-3.0, 9.5, [-2.5, 0.0, 2.5, 5.0, 7.5]),
        (1100.0, 1900.0, [1200.0, 1400.0, 1600.0, 1800.0]),
        (5.0, 5.0, [5.0]),
    ],
)
def test_ticks_are_round_numbers_between_the_ends(low: float, high: float, wanted: list[float]) -> None:
    assert linear_ticks(low, high) == wanted


def test_ticks_are_those_of_matplotlib() -> None:
    draw = random.Random(1)
    for _ in range(500):
        low = draw.uniform(-1, 1) * 10 ** draw.uniform(-3, 4)
        high = low + 10 ** draw.uniform(-2, 4)
        theirs = [
            float(tick)
            for tick in MaxNLocator(MOST - 1, steps=STEPS).tick_values(low, high)
            if low <= tick <= high
        ]
        assert linear_ticks(low, high) == pytest.approx(theirs, rel=1e-9, abs=1e-9)
