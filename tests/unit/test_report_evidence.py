"""Evidence: medians over the valid runs, and the rule that marks a metric as moved."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
import pytest
from report_fixtures import CONDITIONS, effect, measured, study, trial

from iotrial.report.conditions import Conditions
from iotrial.report.evidence import EvidenceRow, TypicalValues, gather, quartiles
from iotrial.report.metrics import is_system_wide, unit_of, words_of
from iotrial.stats.ebh import movements
from iotrial.stats.model import Verdict
from iotrial.store.model import RunRecord, TrialData
from values import replace


def of(numbers: dict[str, list[float]], metric: str = "read_ios") -> dict[str, tuple[float, str | None]]:
    """Return median and mark by arm, for one metric with these numbers."""
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


def test_a_metric_moves_when_the_blocks_tell_it_and_medians_differ_by_more_than_the_margin() -> None:
    assert of({"0777": [10, 11] * 8, "0444": [20, 21] * 8}) == {
        "0777": (10.5, None),
        "0444": (20.5, "up"),
    }
    assert of({"0777": [5.0] * 16, "0444": [0.0] * 16})["0444"] == (0.0, "down")
    assert of({"0777": [0.0] * 16, "0444": [1.0] * 16})["0444"] == (1.0, "up")


def test_a_small_or_uncertain_change_does_not_count_as_moved() -> None:
    assert of({"0777": [100.0] * 16, "0444": [101.0] * 16})["0444"] == (101.0, None)
    assert of({"0777": [1, 9] * 8, "0444": [9, 2] * 8})["0444"][1] is None


def test_too_few_blocks_tell_nothing() -> None:
    assert of({"0777": [10.0] * 4, "0444": [20.0] * 4})["0444"] == (20.0, None)


def test_arms_are_compared_within_blocks_whatever_drifts() -> None:
    drift = [float(1 + i * i) for i in range(20)]
    assert of({"0777": drift, "0444": [value * 1.2 for value in drift]})["0444"][1] == "up"


def rows_of(evidence: Callable[[str, int], dict[str, float]], *, blocks: int = 20) -> list[EvidenceRow]:
    """Return the evidence rows for evidence that is a function of arm and block."""
    found, _, ends = measured(study(), conditions=CONDITIONS[:1], blocks=blocks)
    runs = tuple(
        RunRecord(
            found[0].condition, i, 0, arm, "treatment", {"mode": arm}, float(i), evidence=evidence(arm, i)
        )
        for arm in ("0777", "0444")
        for i in range(blocks)
    )
    data = TrialData(trial(study()), found, runs, ends)
    return list(gather(data, Conditions(study()), margin=0.03))


def test_what_moved_most_clearly_stands_first_and_what_stood_still_at_nothing_is_left_out() -> None:
    noise = random.Random(3)

    def evidence(arm: str, _block: int) -> dict[str, float]:
        other = arm == "0444"
        return {
            "device_flush_ios": 0.0,
            "still": 7.0,
            "noisy": noise.gauss(10.0 + 4.0 * other, 4.0),
            "device_inodes_dirtied": 50.0 * other,
            "steady": noise.gauss(10.0 + 10.0 * other, 1.0),
        }

    rows = rows_of(evidence)
    names = list(dict.fromkeys(row.metric for row in rows))
    assert names[0] == "device_inodes_dirtied"
    assert names[1] == "steady"
    assert "device_flush_ios" not in names
    assert {row.metric for row in rows if row.moved} >= {"device_inodes_dirtied", "steady"}
    assert not [row for row in rows if row.metric == "still" and row.moved]


def test_of_a_hundred_counters_that_are_noise_none_or_hardly_one_is_marked() -> None:
    noise = random.Random(8)
    rows = rows_of(lambda _arm, _block: {f"n{i}": noise.gauss(100, 30) for i in range(100)}, blocks=40)
    assert sum(row.moved is not None for row in rows) <= 1


def test_the_e_value_of_a_change_that_is_always_the_same_is_a_closed_form() -> None:
    n = 12
    shares = {0.15: 0.19, 0.3: 0.19, 0.6: 0.19, 1.0: 0.19, 1.6: 0.19, 2.5: 0.05}
    bets = {math.tanh(theta): share for theta, share in shares.items()}
    truth = sum(share / 2 * ((1 + bet) ** n + (1 - bet) ** n) for bet, share in bets.items())
    found = movements({"up": np.full(n, 3.0), "never": np.zeros(n), "none": np.zeros(0)}, 0.05)
    assert found["up"] == (pytest.approx(truth), True)
    assert found["never"] == found["none"] == (pytest.approx(1.0), False)
    # found among a thousand metrics that never differ (not counted as hypotheses), but not among a thousand
    # that sway
    silent = {str(i): np.zeros(n) for i in range(1000)}
    assert movements({"up": np.full(n, 3.0), **silent}, 0.05)["up"][1]
    swaying = {str(i): np.array([1.0, -1.0] * (n // 2)) for i in range(1000)}
    assert not movements({"up": np.full(n, 3.0), **swaying}, 0.05)["up"][1]


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
        ("device_queue_time", "s"),
        ("device_busy_time_synced", "s"),
        ("device_inodes_dirtied_by_time", "1"),
        ("work_cache_hit_bytes", "bytes"),
        ("system_io_pressure_some_time", "s"),
        ("energy", "J"),
    ],
)
def test_a_counter_has_the_unit_that_its_name_tells(metric: str, unit: str) -> None:
    assert unit_of(metric) == unit


def test_what_others_on_the_machine_are_in_is_called_so() -> None:
    for metric in ("system_pages_dirtied", "system_io_pressure_full_time", "energy", "system_new_one"):
        assert words_of(metric).startswith("system-wide: ")
        assert is_system_wide(metric)
    assert words_of("device_write_ios_synced") == "write requests of the device, until synced"
    assert words_of("read_time") == "read time"
    assert not is_system_wide("device_write_ios")


@pytest.mark.parametrize("scale", [0.01, 1.0, 1e6])
def test_quartiles_are_those_of_numpy_to_the_last_digit(scale: float) -> None:
    draw = np.random.default_rng(5)
    for count in range(1, 60):
        for values in (draw.lognormal(size=count) * scale, np.round(draw.normal(size=count) * 3)):
            assert quartiles(values) == tuple(np.quantile(values, (0.25, 0.75)))


@pytest.mark.parametrize(
    ("read", "written", "mib_per_s"),
    [
        (16 << 20, 16 << 20, 1600.0),  # cp, or dd from /dev/zero
        (100 << 20, 0, 10_000.0),
        (4096, 100 << 20, 10_000.0),
        (1000, 1000, None),
    ],
)
def test_bytes_that_are_read_and_written_count_once_in_a_rate(
    read: float, written: float, mib_per_s: float | None
) -> None:
    row = next(row for row in rows_of(lambda _arm, _block: {"still": 1.0}) if row.treatment == "0444")
    numbers = {"wall": 0.01, "work_read_bytes": read, "work_written_bytes": written}
    rows = {("", metric): [replace(row, metric=metric, value=value)] for metric, value in numbers.items()}
    values = TypicalValues(rows, {"0444": {"mode": "0444"}})
    found = values.at("", effect(Verdict.SLOWER, 1.2, 1.1, 1.3), "0444")
    assert found is not None
    assert found.value == 0.01
    assert found.rate == (None if mib_per_s is None else (pytest.approx(mib_per_s * 2**20), "bytes/s"))
