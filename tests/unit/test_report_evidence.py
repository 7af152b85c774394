"""Evidence: medians over the runs that count, and the rule for what moved."""

from __future__ import annotations

import pytest
from report_fixtures import CONDITIONS, measured, study, trial

from iotrial.report.conditions import Conditions
from iotrial.report.evidence import gather, unit_of
from iotrial.store.model import RunRecord, TrialData


def of(numbers: dict[str, list[float]], metric: str = "read_ios") -> dict[str, tuple[float, str | None]]:
    """Median and mark by arm, of one metric with these numbers."""
    blocks, _, ends = measured(study(), conditions=CONDITIONS[:1], blocks=max(map(len, numbers.values())))
    runs = tuple(
        RunRecord(
            blocks[0].condition, i, 0, arm, "treatment", {"mode": arm}, float(i), evidence={metric: value}
        )
        for arm, values in numbers.items()
        for i, value in enumerate(values)
    )
    data = TrialData(trial(study()), blocks, runs, ends)
    return {row.treatment: (row.value, row.moved) for row in gather(data, Conditions(study()), margin=0.03)}


def test_a_metric_moves_when_middle_halves_part_and_medians_differ_by_more_than_the_margin() -> None:
    assert of({"0777": [10, 10, 11, 11], "0444": [20, 20, 21, 21]}) == {
        "0777": (10.5, None),
        "0444": (20.5, "up"),
    }
    assert of({"0777": [5.0] * 4, "0444": [0.0] * 4})["0444"] == (0.0, "down")


def test_a_small_or_overlapping_change_does_not_count_as_moved() -> None:
    assert of({"0777": [100.0] * 4, "0444": [101.0] * 4})["0444"] == (101.0, None)
    assert of({"0777": [1, 5, 9, 20], "0444": [4, 8, 12, 30]})["0444"][1] is None


def test_from_nothing_to_something_is_a_move() -> None:
    assert of({"0777": [0.0] * 4, "0444": [1.0] * 4})["0444"] == (1.0, "up")


def test_runs_of_void_blocks_and_failed_runs_and_controls_do_not_count() -> None:
    declared = study()
    blocks, runs, ends = measured(declared, blocks=8, void={(0, 1): "cache_not_cold"}, failing="0444")
    rows = gather(TrialData(trial(declared), blocks, runs, ends), Conditions(declared), margin=0.03)
    walls = {(row.condition.text, row.treatment): row.runs for row in rows if row.metric == "wall"}
    assert walls["cache cold, size 4 KiB", "0777"] == 7
    assert walls["cache cold, size 4 KiB", "0444"] == 6
    assert {arm for _, arm in walls} == {"0777", "0444"}


@pytest.mark.parametrize(
    ("metric", "unit"),
    [
        ("device_read_bytes", "bytes"),
        ("max_rss", "bytes"),
        ("device_write_bytes_synced", "bytes"),
        ("open_time", "s"),
        ("wall.build", "s"),
        ("cpu.build", "s"),
        ("wait_ns", "ns"),
        ("faults_minor", "1"),
        ("read_ios", "1"),
    ],
)
def test_a_counter_has_the_unit_that_its_name_tells(metric: str, unit: str) -> None:
    assert unit_of(metric) == unit
