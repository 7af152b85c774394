"""Ticks of axes are round numbers in their own unit."""

from __future__ import annotations

import pytest

from iotrial.report.axes import linear_ticks, value_axis


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


@pytest.mark.parametrize(
    ("scale", "labels"),
    [
        ((0.0, 160e6, False, "bytes/s"), ["0 B/s", "50 MiB/s", "100 MiB/s", "150 MiB/s"]),
        ((300.0, 2500.0, False, "bytes"), ["512 B", "1 KiB", "1.5 KiB", "2 KiB"]),
        ((40e3, 3e6, True, "bytes"), ["64 KiB", "128 KiB", "256 KiB", "512 KiB", "1 MiB", "2 MiB"]),
        ((3e3, 9e7, True, "bytes/s"), ["4 KiB/s", "32 KiB/s", "256 KiB/s", "2 MiB/s", "16 MiB/s"]),
        ((0.0, 0.21, False, "s"), ["0 s", "50 ms", "100 ms", "150 ms", "200 ms"]),
        ((-30.0, 70.0, False, "1"), ["-20", "0", "20", "40", "60"]),
    ],
)
def test_labels_are_round_in_their_own_unit(scale: tuple[float, float, bool, str], labels: list[str]) -> None:
    low, high, log, unit = scale
    axis = value_axis(low, high, unit, log=log)
    assert [label for _, label in axis.ticks] == labels
    assert all(low <= value <= high for value, _ in axis.ticks)
