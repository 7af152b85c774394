"""Within a run: the kernel's counters become shares, rates and levels, are stored, and are plotted by treatment."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from report_fixtures import CONDITIONS, all_equivalent, document, measured, study, trial
from store_examples import header, planned_runs

from generators.finding_page import few_of, page, page_curves
from iotrial.report.conditions import Conditions
from iotrial.report.document import Document, build_document
from iotrial.report.figure import svg_of
from iotrial.report.render import html_report
from iotrial.report.series import arms_of
from iotrial.report.within import WithinPanel, within_of
from iotrial.runner.sampling import series_of
from iotrial.store import Store
from iotrial.store.model import RunRecord, TrialData, TrialState
from iotrial.store.packed import read_packed
from values import replace

TICK = 100_000_000


def samples(count: int) -> dict[str, object]:
    """Return samples of two processors, one in user mode, and a device that writes 10 MB/s and is busy half of the time."""
    steps = range(count)
    return {
        "at_ns": [TICK * i for i in steps],
        "cpu_user_ns": [TICK * i for i in steps],
        "cpu_sys_ns": [0] * count,
        "cpu_idle_ns": [TICK * i // 2 for i in steps],
        "cpu_iowait_ns": [TICK * i // 2 for i in steps],
        "cpu_steal_ns": [0] * count,
        "available_kib": [1] * count,
        "cached_kib": [100 + 2 * i for i in steps],
        "dirty_kib": [2 * i for i in steps],
        "write_back_kib": [0] * count,
        "devices": {
            "loop3": {
                "read_bytes": [0] * count,
                "write_bytes": [1_000_000 * i for i in steps],
                "busy_ns": [TICK * i // 2 for i in steps],
            }
        },
    }


def test_counters_become_shares_rates_and_levels_of_the_timed_part_alone() -> None:
    found = series_of(samples(12), "loop3", started_ns=2 * TICK, wall_ns=5 * TICK)
    assert found is not None
    assert found["at_s"] == pytest.approx([0.05, 0.15, 0.25, 0.35, 0.45])
    assert found["cpu_user"] == [0.5] * 5
    assert found["cpu_idle"] == found["cpu_iowait"] == [0.25] * 5
    assert found["device_write_rate"] == pytest.approx([10e6] * 5)
    assert found["device_read_rate"] == [0.0] * 5
    assert found["device_busy"] == pytest.approx([0.5] * 5)
    assert found["dirty_bytes"] == [1024 * (4 + 2 * i + 1) for i in range(5)]


def test_a_run_that_is_over_before_anything_can_be_seen_has_no_series() -> None:
    assert series_of(samples(4), "loop3", started_ns=0, wall_ns=3 * TICK) is None
    assert series_of(samples(50), "loop3", started_ns=0, wall_ns=2 * TICK) is None


def test_a_lab_without_a_device_has_the_rest() -> None:
    found = series_of({**samples(12), "devices": {}}, None, started_ns=0, wall_ns=11 * TICK)
    assert found is not None
    assert "cpu_sys" in found
    assert "device_busy" not in found


def sampled(series: dict[str, dict[str, object]]) -> TrialData:
    """Return a trial in which every run of an arm has this series."""
    blocks, runs, ends = measured(study(), conditions=CONDITIONS[:1], blocks=6)
    told = tuple(
        replace(run, checks={"series": series[run.arm]}) if run.arm in series else run for run in runs
    )
    return TrialData(trial(study()), blocks, told, ends)


def test_curves_are_medians_of_the_runs_of_a_treatment() -> None:
    at_s = [0.1 * i for i in range(10)]
    data = sampled(
        {
            "0777": {"at_s": at_s, "cpu_user": [0.25] * 10, "dirty_bytes": [0.0] * 10},
            "0444": {"at_s": at_s[:6], "cpu_user": [0.5] * 6, "dirty_bytes": [0.0] * 6},
        }
    )
    panels = within_of(data, Conditions(study()), arms_of(data))
    assert [(panel.what, panel.unit) for panel in panels] == [
        ("processors working for programs, system-wide", "%")
    ]
    curves = {curve.arm.name: curve for curve in panels[0].curves}
    assert np.allclose(curves["0777"].middle, 25)
    assert np.allclose(curves["0444"].middle, 50)
    assert curves["0444"].at_s[-1] == pytest.approx(0.5)
    assert curves["0777"].at_s[-1] == pytest.approx(0.9)
    assert curves["0777"].runs == 6


@pytest.mark.parametrize(
    "series",
    [
        "text",
        {},
        {"at_s": [0.0, 1.0]},
        {"at_s": [1.0, 0.0], "cpu_user": [1.0, 1.0]},
        {"at_s": [0.0, 1.0], "cpu_user": [1.0]},
        {"at_s": [0.0, 1.0], "cpu_user": [1.0, float("nan")]},
        {"at_s": [0.0, 1.0], "cpu_user": ["<script>", 1.0]},
        {"at_s": [0.0, 1.0], "cpu_user": [1e300, 1.0]},
        {"at_s": [True, 2.0], "cpu_user": [0.5, 0.5]},
    ],
)
def test_a_series_of_another_shape_is_passed_over(series: dict[str, object]) -> None:
    def panels(of: dict[str, object]) -> tuple[WithinPanel, ...]:
        data = sampled({"0777": of})
        return within_of(data, Conditions(study()), arms_of(data))

    assert len(panels({"at_s": [0.0, 1.0], "cpu_user": [1.0, 0.5]})) == 1
    assert panels(series) == ()


def test_what_a_work_did_in_each_second_is_drawn_beside_what_was_sampled() -> None:
    blocks, runs, ends = measured(study(), conditions=CONDITIONS[:1], blocks=6)
    seconds = {
        "at_s": [0.5, 1.5, 2.5],
        "operations_rate": [100.0, 0.0, 50.0],
        "latency_p99": [0.002, None, 0.004],
        "latency_p50": [None, None, None],
        "latency_max": [0.5],
    }
    sampled = {"at_s": [0.1, 0.2], "device_busy": [0.5, 1.0]}
    told = tuple(replace(run, checks={"seconds": seconds, "series": sampled}) for run in runs)
    data = TrialData(trial(study()), blocks, told, ends)
    panels = {panel.what: panel for panel in within_of(data, Conditions(study()), arms_of(data))}
    assert {what: panel.unit for what, panel in panels.items()} == {
        "operations completed in each second": "1/s",
        "99th percentile of latency in each second": "s",
        "device busy": "%",
    }
    rate = panels["operations completed in each second"].curves[0]
    assert np.interp([0.5, 1.5, 2.5], rate.at_s, rate.middle) == pytest.approx([100, 0, 50], abs=2)
    tail = panels["99th percentile of latency in each second"].curves[0]
    assert set(np.round(tail.middle, 6)) <= {0.002, 0.004}, "a second without an operation has no latency"


def with_series(*arms: str) -> Document:
    at_s = [0.1 * i for i in range(10)]
    data = sampled(
        {
            arm: {"at_s": at_s, "device_write_rate": [1e6 * i for i in range(10)]}
            for arm in arms or ("0777", "0444")
        }
    )
    return replace(document(all_equivalent()[:1]), data=data)


@pytest.mark.slow
def test_the_page_draws_what_was_sampled_and_has_no_such_part_without() -> None:
    page = html_report(with_series())
    assert "Within a run" in page
    assert "written to the device? (cache cold, size 4 KiB)" in page
    assert page.count('aria-label="Within a run: ') == 1
    assert "Within a run" not in html_report(document(all_equivalent()[:1]))


def test_few_curves_are_those_of_the_first_condition_that_rise_higher() -> None:
    blocks, runs, ends = measured(study(), conditions=CONDITIONS[:2], blocks=6)
    at_s = [0.1, 0.2, 0.3]
    first = {
        "at_s": at_s,
        "cpu_user": [0.5] * 3,
        "cpu_sys": [0.9] * 3,
        "cpu_iowait": [0.0, 0.25, 0.0],
        "device_read_rate": [1e6, 9e6, 1e6],
        "device_write_rate": [8e6] * 3,
        "cached_bytes": [1e9] * 3,
    }
    second = {"at_s": at_s, "cpu_user": [1.0] * 3, "device_write_rate": [99e6] * 3}
    seconds = {"at_s": at_s, "operations_rate": [1e9] * 3}
    keys = list(dict.fromkeys(run.condition for run in runs))
    told = [
        replace(r, checks={"series": dict(zip(keys, (first, second), strict=True))[r.condition]})
        for r in runs
    ]

    def few(*of: RunRecord) -> list[tuple[str, float]]:
        data = TrialData(trial(study()), blocks, of, ends)
        panels = few_of(within_of(data, Conditions(study()), arms_of(data), points=3))
        assert all(curve.at_s.size <= 3 for panel in panels for curve in panel.curves)
        return [(panel.what, float(panel.curves[0].middle[1])) for panel in panels]

    assert few(*told) == [
        ("processors working for the kernel, system-wide", pytest.approx(90)),
        ("processors waiting for I/O, system-wide", pytest.approx(25)),
        ("read from the device", pytest.approx(9e6)),
    ]
    assert few(*(run for run in told if run.condition == keys[1])) == [
        ("processors working for programs, system-wide", pytest.approx(100)),
        ("written to the device", pytest.approx(99e6)),
    ]
    assert few(*runs) == few(*(replace(run, checks={"seconds": seconds}) for run in runs)) == []


def finding(made: Document) -> str:
    return page(
        made, packed="a.iotrial", figure="a.svg", curves="a-curves.svg", mechanism=None, changed=False
    )


def test_a_finding_shows_curves_if_its_trial_has_samples_and_says_which() -> None:
    shown = finding(with_series())
    assert (
        "\n![Activity during a run](a-curves.svg)\n\nDuring a run (cache cold, size 4 KiB, the first condition "
        in shown
    )
    assert " by mode: medians, and the middle half of the runs as a band." in shown
    assert "too short" not in shown
    without = document(all_equivalent()[:1])
    assert "a-curves.svg" not in finding(without)
    assert page_curves(without) is None


def test_a_treatment_whose_runs_are_too_short_for_a_curve_is_named() -> None:
    assert "whole machine. Without a curve, as its runs are too short: mode 0777.\n" in finding(
        with_series("0444")
    )
    figure = page_curves(with_series("0444"))
    assert figure is not None
    assert [arm.label for arm in figure.key] == ["mode 0444"]


@pytest.mark.slow
def test_the_curves_of_a_finding_are_one_small_picture() -> None:
    figure = page_curves(with_series())
    assert figure is not None
    picture = svg_of(figure)
    assert picture.startswith(b"<?xml")
    for words in (b">written to the device<", b">mode 0777 (reference)<", b">mode 0444<"):
        assert words in picture
    assert len(picture) < 40_000
    assert [row[:3] for row in figure.rows[:1]] == [("written to the device", "bytes/s", "mode 0777")]


def test_samples_that_were_too_seldom_for_a_curve_are_noted() -> None:
    def limits(made: Document, **options: object) -> str:
        header = replace(made.trial.header, options=options)
        data = replace(made.data, trial=replace(made.trial, header=header))
        return " ".join(note.text for note in build_document(data, made.analysis).summary.limits)

    noted = "No run lasted long enough for curves: each was sampled every 200 ms."
    assert noted in limits(document(all_equivalent()[:1]), sample_s=0.2)
    assert noted not in limits(document(all_equivalent()[:1]))
    assert noted not in limits(with_series(), sample_s=0.2)


def test_a_series_is_stored_packed_and_read_again(tmp_path: Path) -> None:
    series = {"at_s": [0.1, 0.2], "cpu_user": [0.5, 0.25]}
    with Store.open(tmp_path / "store") as store:
        store.create_trial(header())
        for runs, end in planned_runs(header(), blocks=1):
            for run in runs:
                store.append_run(header().id, replace(run, checks={"series": series}))
            store.end_block(header().id, end)
        assert store.data("last").runs[0].checks["series"] == series
        store.set_state(header().id, TrialState.DONE)
        packed = io.BytesIO()
        store.pack("last", packed)
    packed.seek(0)
    with Store.open(tmp_path / "other") as other:
        other.unpack(read_packed(packed, "packed"), source="packed")
        assert other.data("last").runs[0].checks["series"] == series
