"""Ticks of linear axes are round numbers, and those that matplotlib chooses."""

from __future__ import annotations

import random

import pytest
from matplotlib.ticker import MaxNLocator

from iotrial.report.plots.canvas import Scale, linear_ticks

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


@pytest.mark.parametrize(
    ("scale", "labels"),
    [
        (Scale(0.0, 160e6, False, "bytes/s"), ["0 B/s", "50 MiB/s", "100 MiB/s", "150 MiB/s"]),
        (Scale(300.0, 2500.0, False, "bytes"), ["512 B", "1 KiB", "1.5 KiB", "2 KiB"]),
        (Scale(40e3, 3e6, True, "bytes"), ["64 KiB", "128 KiB", "256 KiB", "512 KiB", "1 MiB", "2 MiB"]),
        (Scale(3e3, 9e7, True, "bytes/s"), ["4 KiB/s", "32 KiB/s", "256 KiB/s", "2 MiB/s", "16 MiB/s"]),
        (Scale(0.0, 0.21, False, "s"), ["0 s", "50 ms", "100 ms", "150 ms", "200 ms"]),
        (Scale(-30.0, 70.0, False, "1"), ["-20", "0", "20", "40", "60"]),
    ],
)
def test_labels_are_round_in_their_own_unit(scale: Scale, labels: list[str]) -> None:
    places, found = scale.ticks()
    assert found == labels
    ends = scale.limits
    assert all(ends[0] <= place <= ends[1] for place in places)
