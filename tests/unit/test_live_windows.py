"""What a live trial declares: windows, guards, quiet hours, and the share of the time with other settings than today's."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

import pytest

from iotrial.errors import RequestError, StudyError
from iotrial.live.conductor import _Clocks
from iotrial.live.metrics import Metrics
from iotrial.live.sources import MetricLost
from iotrial.runner.resolve import resolve
from iotrial.stats.voids import Void
from iotrial.store.checks import WINDOW, parts_of
from iotrial.study.model import Study
from iotrial.study.reader import read_study
from iotrial.study.scales import Better, Scale
from iotrial.study.schema import Problem
from iotrial.workloads.live import Guard, LiveWork, Metric, guard_of, hours_of

METRICS = (
    Metric(name="p99", source="command:true", unit="s"),
    Metric(name="tps", source="command:true", unit="1/s", better=Better.HIGHER),
    Metric(name="stalls", source="psi:io", unit="%", scale=Scale.DIFFERENCE),
)

STUDY = """
[study]
name = "live/p99"
question = "Does read-ahead change p99?"
[lab]
kind = "in-place"
[[factor]]
name = "{factor}"
knob = "{knob}"
levels = [{levels}]
[[workload]]
name = "service"
kind = "live"
window = "30 s"
washout = "10 s"
{more}
[[workload.metric]]
name = "p99"
source = "command:true"
unit = "s"
"""


def study(
    knob: str = "block.read_ahead_kb",
    levels: str = '"128", "1024"',
    *,
    more: str = "",
    factor: str = "varied",
) -> Study:
    text = STUDY.format(factor=factor, knob=knob, levels=levels, more=more)
    return read_study(text, "live.toml", trusted=True)


def work_of(**values: object) -> LiveWork:
    return LiveWork(metrics=METRICS, **values)  # type: ignore[arg-type]


def test_a_guard_says_by_how_much_a_metric_may_be_worse() -> None:
    assert guard_of("p99 worse by 20 %", METRICS) == Guard("p99 worse by 20 %", "p99", worse_by=0.2)
    assert guard_of("worse by 5%", METRICS).metric == "p99"  # the first metric is judged


def test_a_hard_limit_is_converted_to_the_unit_of_its_metric() -> None:
    guard = guard_of("p99 > 50 ms for 5 s", METRICS)
    assert (guard.above, guard.below, guard.lasting_s) == (0.05, None, 5.0)
    assert guard.exceeded(0.051)
    assert not guard.exceeded(0.05)
    assert guard_of("tps < 100", METRICS).exceeded(99.0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("p99 is bad", "expected METRIC worse by PERCENT"),
        ("p98 > 50 ms", 'no metric is called "p98"'),
        ("p99 > 50 MiB", 'p99 is measured in "s"'),
        ("tps worse by 100 %", "cannot be worse by that much"),
        ("stalls worse by 10 %", "can be 0"),
        ("p99 > 50 ms for ever", "duration"),
    ],
)
def test_a_guard_that_cannot_be_kept_is_refused(text: str, why: str) -> None:
    with pytest.raises(Problem, match=why):
        guard_of(text, METRICS)


def at(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%d %H:%M")


def test_quiet_hours_may_span_midnight() -> None:
    hours = hours_of("22:00-06:00")
    assert hours is not None
    assert hours.left(at("2026-03-01 23:30")) == timedelta(hours=6, minutes=30)
    assert hours.left(at("2026-03-01 05:59")) == timedelta(minutes=1)
    assert hours.left(at("2026-03-01 06:00")) == timedelta()
    assert hours.left(at("2026-03-01 21:59")) == timedelta()


def test_a_block_that_would_reach_into_quiet_hours_is_not_begun() -> None:
    hours = hours_of("12:00-13:00")
    assert hours is not None
    assert not hours.within(at("2026-03-01 11:58"), timedelta(minutes=2))
    assert hours.within(at("2026-03-01 11:58"), timedelta(minutes=3))
    assert hours.within(at("2026-03-01 12:59"), timedelta(seconds=1))
    assert not hours.within(at("2026-03-01 13:00"), timedelta(hours=22))


@pytest.mark.parametrize("text", ["22:00", "24:00-06:00", "8-9", "06:00-06:00"])
def test_quiet_hours_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(Problem, match="quiet hours"):
        hours_of(text)


@pytest.mark.parametrize(("share", "windows"), [(0.5, 2), (0.2, 2), (0.1, 3), (0.7, 4), (1.0, 4)])
def test_settings_never_differ_from_todays_for_more_than_their_share(share: float, windows: int) -> None:
    """A simulation of a hundred blocks: the share holds at the end of every block."""
    work = work_of(window_s=30.0, washout_s=10.0, most_share=share)
    spent_s = changed_s = 0.0
    for _ in range(100):
        spent_s += max(0.0, work.owed_s(windows, spent_s, changed_s))
        spent_s += windows * 40.0
        changed_s += (windows - 1) * 40.0
        assert changed_s <= share * spent_s + 1e-6
    # nor is it idle for longer than it must be
    assert spent_s <= max(100 * windows * 40.0, changed_s / share) + 1e-6


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_the_share_holds_too_if_every_lead_in_has_other_settings_than_todays(share: float) -> None:
    work = work_of(window_s=30.0, washout_s=10.0, most_share=share)
    spent_s = changed_s = 0.0
    for _ in range(100):
        spent_s += max(0.0, work.owed_s(2, spent_s, changed_s, 10.0)) + 10.0 + 80.0
        changed_s += 10.0 + 40.0
        assert changed_s <= share * spent_s + 1e-6
    assert spent_s <= max(100 * 90.0, changed_s / share) + 1e-6


def test_half_of_the_time_needs_no_rest_where_pairs_alternate() -> None:
    assert work_of(window_s=30.0, washout_s=10.0, most_share=0.5).owed_s(2, 0.0, 0.0) <= 0.0


def test_a_study_of_a_service_has_the_metric_as_its_response() -> None:
    (response,) = study().responses
    assert (response.name, response.unit, response.primary) == ("p99", "s", True)


def test_errors_in_a_study_file_name_the_line_and_the_guard() -> None:
    with pytest.raises(StudyError, match=r'live\.toml:16: guard "p98 > 1 s": no metric is called "p98"'):
        study(more='guard = ["p98 > 1 s"]')


def test_what_puts_data_at_risk_is_not_tried_on_a_service() -> None:
    risky = study("mount.option", '"default", "nobarrier"')
    with pytest.raises(RequestError, match=r"in-place lab cannot set it|puts data at risk"):
        resolve(risky, root=True)
    write_cache = study("block.write_cache", '"write back", "write through"')
    with pytest.raises(RequestError, match="puts data at risk"):
        resolve(write_cache, root=True)


@pytest.mark.parametrize(
    ("knob", "levels"), [("cache.state", '"as-is", "cold-system"'), ("process.nice", '"0", "10"')]
)
def test_only_settings_that_can_be_switched_under_a_service_are_taken(knob: str, levels: str) -> None:
    with pytest.raises(RequestError, match="cannot be switched under a service in use"):
        resolve(study(knob, levels), root=True)


def test_a_live_trial_lists_what_it_changes_on_the_mount_in_use() -> None:
    """In `iotrial try` only the command sees another access time mode; here all programs do."""
    resolved = resolve(study("mount.atime", '"relatime", "noatime"'), root=True)
    assert any("access time mode of the mount in use" in change for change in resolved.changes)


@pytest.mark.parametrize(
    ("set_by_s", "slept_s", "rule"),
    [
        (0.0, 0.0, None),
        (0.3, 0.05, None),
        (5.0, 0.0, Void.CLOCK_SET),
        (-5.0, 0.0, Void.CLOCK_SET),
        (0.0, 2.0, Void.SLEPT),
    ],
)
def test_a_clock_set_either_way_and_a_sleep_of_the_machine_disturb_a_window(
    set_by_s: float, slept_s: float, rule: Void | None
) -> None:
    now = _Clocks.now()
    found = _Clocks(now.of_day_s - set_by_s - slept_s, now.since_boot_s - slept_s).disturbed()
    assert (None if found is None else found[0]) == rule


def test_a_lost_metric_stops_a_window_only_if_it_is_judged_or_guarded() -> None:
    metrics = tuple(Metric(name=name, source="cpu", unit="%") for name in ("p99", "tps"))
    for guards in ((), ("tps worse by 5 %",)):
        found = Metrics(LiveWork(metrics=metrics, guards=guards), None)
        found._sources["p99"].start()  # and the other is lost
        if guards:
            with pytest.raises(MetricLost):
                found.begin()
        else:
            found.begin()
            time.sleep(0.1)
            assert found.end().keys() == {"p99"}
        found._stop()


def test_a_window_has_a_mean_before_it_and_one_of_each_of_its_halves() -> None:
    samples = {"at_s": [-1.0, 0.0, 1.0, 2.0, 4.0, 5.0], "p99": [9.0, 1.0, 3.0, 5.0, 7.0, 100.0]}
    assert parts_of({"clock": {"lasted_s": 4.0}, WINDOW: samples}) == {"p99": (9.0, 2.0, 6.0)}
