"""Parsing of procfs and sysfs, with canned texts of other machines."""

from __future__ import annotations

import pytest
from canned_machine import LAPTOP, CannedMachine

from iotrial.lab.machine import neighbours, processor
from iotrial.lab.target import Target

STAT = (
    "cpu  100 10 40 1000 50 2 8 0 0 0\ncpu0 50 5 20 500 25 1 4 0 0 0\ncpu1 50 5 20 500 25 1 4 0 0 0\nintr 1\n"
)
# 200 ticks later: 40 user, 10 system, 100 idle, 20 iowait, 30 steal
LATER = "cpu  140 10 50 1100 70 2 8 30 0 0\ncpu0 70 5 25 550 35 1 4 15 0 0\ncpu1 70 5 25 550 35 1 4 15 0 0\nintr 1\n"
PID = "41 (a (b) c) S 1 41 41 0 -1 4194560 100 0 0 0 {user} {system} 0 0 20 0 1 0 100 1 1 18446744073709551615\n"


def test_the_first_line_of_proc_stat_is_all_processors() -> None:
    found = neighbours.ticks(STAT)
    assert found is not None
    assert (found["user"], found["idle"], found["iowait"], found["steal"]) == (100, 1000, 50, 0)


@pytest.mark.parametrize("text", ["", "cpu0 1 2 3 4\n", "cpu a b c d\n", "cpu 1 2\n", "\n"])
def test_another_text_is_no_proc_stat(text: str) -> None:
    assert neighbours.ticks(text) is None


def test_an_old_kernel_without_steal_has_none_stolen() -> None:
    old = neighbours.ticks("cpu 1 2 3 4\n")
    assert old is not None
    assert neighbours.shares(old, {**old, "user": 3, "idle": 6}) == (0.5, 0.0)


def test_busy_leaves_out_waiting_for_a_disk_and_what_the_host_took() -> None:
    before, after = neighbours.ticks(STAT), neighbours.ticks(LATER)
    assert before is not None
    assert after is not None
    assert neighbours.shares(before, after) == (pytest.approx(50 / 200), pytest.approx(30 / 200))


def test_counters_that_stand_still_are_no_load() -> None:
    found = neighbours.ticks(STAT)
    assert found is not None
    assert neighbours.shares(found, found) == (0.0, 0.0)


def test_pressure_is_the_total_of_some() -> None:
    assert neighbours.stalled_us("some avg10=1.00 avg60=0.00 avg300=0.00 total=123\nfull total=7\n") == 123
    assert neighbours.stalled_us("full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n") is None
    assert neighbours.stalled_us("some total=x\n") is None
    assert neighbours.stalled_us("") is None


def test_a_process_may_have_brackets_and_blanks_in_its_name() -> None:
    assert neighbours.process_ticks(PID.format(user=30, system=12)) == ("a (b) c", 42)
    assert neighbours.process_ticks("41 (short) S 1\n") is None
    assert neighbours.process_ticks("") is None


def test_a_look_names_who_was_busy_and_what_was_waited_for() -> None:
    machine = CannedMachine({**LAPTOP, "/proc/stat": STAT, "/proc/41/stat": PID.format(user=30, system=12)})
    machine.files["/proc/7/stat"] = PID.format(user=0, system=0)  # the probe's own process
    clock = iter([10.0, 12.0])

    def sleep(seconds: float) -> None:
        assert seconds == 2.0
        machine.files["/proc/stat"] = LATER
        machine.files["/proc/41/stat"] = PID.format(user=60, system=32)  # 50 of the 100 ticks of a processor
        machine.files["/proc/7/stat"] = PID.format(user=90, system=0)
        machine.files["/proc/pressure/cpu"] = "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\n"

    seen = neighbours.look(Target(machine), 2.0, sleep=sleep, now=lambda: next(clock))
    assert seen.busiest == (("a (b) c (41)", pytest.approx(0.5)),)
    assert seen.pressure == {"cpu": pytest.approx(0.25), "io": 0.0}  # half a second of two; no memory file
    assert (seen.busy, seen.stolen, seen.load) == (pytest.approx(0.25), pytest.approx(0.15), 0.52)


def test_a_laptop_tells_its_frequency_power_and_clock() -> None:
    target = Target(CannedMachine(LAPTOP))
    frequency = processor.frequency(target)
    assert (frequency.governors, frequency.driver, frequency.turbo) == (("powersave",), "intel_pstate", True)
    assert not frequency.hypervisor
    power = processor.power(target)
    assert (power.mains, power.batteries) == (
        False,
        (("BAT0", "Discharging"),),
    )  # the mouse's battery is ignored
    clock = processor.clock(target)
    assert (clock.source, clock.available) == ("tsc", ("tsc", "hpet", "acpi_pm"))
    assert {"constant_tsc", "nonstop_tsc"} <= set(clock.flags)


def test_a_virtual_machine_hides_it_and_that_is_none_not_fine() -> None:
    target = Target(CannedMachine({"/proc/cpuinfo": "processor: 0\nflags : tsc hypervisor\n"}))
    frequency = processor.frequency(target)
    assert (frequency.governors, frequency.turbo, frequency.hypervisor) == ((), None, True)
    assert processor.power(target) == processor.Power(None, ())
    assert processor.clock(target).source is None


@pytest.mark.parametrize(
    ("no_turbo", "boost", "turbo"),
    [
        ("0", None, True),
        ("1", None, False),
        (None, "1", True),
        (None, "0", False),
        (None, None, None),
        ("x", "", None),
    ],
)
def test_two_kernels_say_turbo_in_opposite_words(
    no_turbo: str | None, boost: str | None, turbo: bool | None
) -> None:
    assert processor.turbo_of(no_turbo, boost) is turbo
