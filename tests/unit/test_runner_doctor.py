"""The doctor's grades and advice on a machine, and that it changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from canned_machine import LAPTOP, READING, CannedMachine

from iotrial.cli.verbs.doctor import doctor_lines
from iotrial.lab.journal import Journal
from iotrial.lab.machine.neighbours import Neighbours
from iotrial.lab.machine.processor import Clock, Frequency
from iotrial.lab.target import Target
from iotrial.runner.doctor import Examination, Grade, examine
from iotrial.runner.doctor.checks import clock_finding, frequency_finding, neighbour_findings, space_finding
from iotrial.runner.doctor.noise import twin_study
from iotrial.runner.resolve import resolve
from iotrial.study.catalogue import names

STAT = "cpu  1 1 1 1 1 1 1 1 0 0\n"
TOOLS = ("/usr/sbin/mkfs.ext4", "/usr/sbin/blkid", "/usr/sbin/wipefs", "/dev/loop-control")
GUESTS = ("/usr/bin/qemu-system-x86_64", "/usr/bin/setpriv", "/usr/bin/apt-get", "/usr/bin/dpkg-deb")


def examined(machine: CannedMachine) -> Examination:
    machine.files.setdefault("/proc/stat", STAT)
    return examine(Target(machine), watch_s=0.0, sleep=lambda _: None)


def graded(found: Examination, area: str) -> list[Grade]:
    return [finding.grade for finding in found.findings if finding.area == area]


def test_looking_changes_nothing(state: Path) -> None:
    machine = CannedMachine(LAPTOP, there=TOOLS)
    examined(machine)
    others = {verb for verb, _ in machine.calls} - READING
    assert others <= {"run"}  # `test -w`, as the canned machine makes sure
    assert not state.exists()


def test_not_root_has_the_directory_lab_alone(state: Path) -> None:
    found = examined(CannedMachine(LAPTOP, there=TOOLS))
    assert [lab.kind for lab in found.labs if not lab.lacks] == ["directory"]
    assert graded(found, "privileges") == [Grade.NOTE]
    assert not found.fatal


def test_root_with_the_tools_has_all_labs(state: Path) -> None:
    found = examined(CannedMachine(LAPTOP, uid=0, privileged=True, there=TOOLS))
    assert [lab.kind for lab in found.labs if not lab.lacks] == ["directory", "image", "device"]


def test_a_guest_needs_no_root(state: Path) -> None:
    found = examined(CannedMachine(LAPTOP, there=(*TOOLS, *GUESTS)))
    assert [lab.kind for lab in found.labs if not lab.lacks] == ["directory", "guest"]


@pytest.mark.parametrize(
    ("gone", "kind", "word"),
    [
        ("/usr/sbin/mkfs.ext4", "image", "e2fsprogs"),
        ("/usr/sbin/wipefs", "device", "util-linux"),
        ("/dev/loop-control", "image", "loop"),
        ("/usr/bin/qemu-system-x86_64", "guest", "qemu-system-x86"),
    ],
)
def test_what_is_missing_is_named_with_its_package(state: Path, gone: str, kind: str, word: str) -> None:
    there = tuple(path for path in (*TOOLS, *GUESTS) if path != gone)
    found = examined(CannedMachine(LAPTOP, uid=0, privileged=True, there=there))
    (lab,) = [lab for lab in found.labs if lab.kind == kind]
    assert any(word in lack for lack in lab.lacks)


def test_root_in_a_container_cannot_mount(state: Path) -> None:
    found = examined(CannedMachine(LAPTOP, uid=0, privileged=False, there=TOOLS))
    assert [lab.kind for lab in found.labs if not lab.lacks] == ["directory"]


def test_a_module_on_disk_counts_as_a_file_system_that_is_known(state: Path) -> None:
    found = examined(CannedMachine(LAPTOP, there=TOOLS))
    (kernel,) = [finding for finding in found.findings if finding.area == "kernel"]
    assert kernel.facts["filesystems"] == ["ext4", "xfs"]
    assert kernel.do is not None
    assert "btrfs" in kernel.do


def test_every_program_of_a_knob_or_lab_is_looked_for(state: Path) -> None:
    found = examined(CannedMachine(LAPTOP, there=TOOLS))
    known = {program.name: program for program in found.programs}
    assert known["mkfs.ext4"].path == "/usr/sbin/mkfs.ext4"
    assert known["mkfs.xfs"].path is None
    assert known["mkfs.xfs"].package == "xfsprogs"
    assert "knob filesystem.type" in known["mkfs.ext4"].wanted_by
    assert known["fio"].beside


def test_leftovers_make_every_lab_impossible(state: Path) -> None:
    Journal(state / "journal").record("sysctl", {"path": "/proc/sys/vm/x"}, "1", ["2"])
    found = examined(CannedMachine(LAPTOP, there=TOOLS))
    assert found.fatal
    (journal,) = [finding for finding in found.findings if finding.area == "undo journal"]
    assert journal.grade is Grade.PROBLEM
    assert "iotrial restore" in str(journal.do)


def test_a_state_folder_that_cannot_be_written_to_is_fatal(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = CannedMachine(LAPTOP, there=TOOLS)

    def no(**_: Any) -> dict[str, Any]:
        return {"exit": 1, "signal": None, "timed_out": False, "stdout": "", "stderr": "", "wall_ns": 0}

    monkeypatch.setattr(machine, "_run", no)
    assert examined(machine).fatal


def test_a_laptop_on_battery_is_a_problem_and_its_governor_a_note(state: Path) -> None:
    found = examined(CannedMachine(LAPTOP, there=TOOLS))
    assert graded(found, "power") == [Grade.PROBLEM]
    assert graded(found, "frequency") == [Grade.NOTE]


@pytest.mark.parametrize(
    ("frequency", "grade"),
    [
        (Frequency(("performance",), "acpi-cpufreq", False, False), Grade.OK),
        (Frequency(("performance",), "acpi-cpufreq", True, False), Grade.NOTE),
        (Frequency(("performance", "schedutil"), None, False, False), Grade.NOTE),
        (Frequency((), None, None, True), Grade.NOTE),
    ],
)
def test_frequencies_are_graded(frequency: Frequency, grade: Grade) -> None:
    assert frequency_finding(frequency).grade is grade


def test_a_hidden_frequency_is_said_to_be_hidden() -> None:
    assert "not visible here" in frequency_finding(Frequency((), None, None, True)).found


@pytest.mark.parametrize(
    ("clock", "grade"),
    [
        (Clock("tsc", ("tsc",), ("tsc", "constant_tsc", "nonstop_tsc"), "tsc"), Grade.OK),
        (Clock("tsc", ("tsc",), ("tsc", "constant_tsc"), "tsc"), Grade.NOTE),
        (Clock("kvm-clock", ("kvm-clock",), ("tsc",), "monotonic"), Grade.OK),
        (Clock("hpet", ("hpet", "acpi_pm"), ("tsc",), "monotonic"), Grade.PROBLEM),
        (Clock("new", ("new",), (), "monotonic"), Grade.NOTE),
        (Clock(None, (), (), "monotonic"), Grade.NOTE),
    ],
)
def test_clocks_are_graded(clock: Clock, grade: Grade) -> None:
    assert clock_finding(clock).grade is grade


@pytest.mark.parametrize(
    ("seen", "grades"),
    [
        (Neighbours(1.0, 0.01, 0.0, {"cpu": 0.0}, (), 0.1), ["ok", "ok", "ok"]),
        (Neighbours(1.0, 0.1, 0.02, {"cpu": 0.0, "io": 0.1}, (), 0.1), ["note", "note", "note"]),
        (
            Neighbours(1.0, 0.9, 0.2, {"memory": 0.5}, (("x (1)", 0.9),), 2.0),
            ["problem", "problem", "problem"],
        ),
    ],
)
def test_neighbours_are_graded_by_what_they_take(seen: Neighbours, grades: list[str]) -> None:
    assert [finding.grade.value for finding in neighbour_findings(seen)] == grades


@pytest.mark.parametrize(
    ("kind", "free", "grade"),
    [
        ("0xef53", 10 << 30, Grade.OK),
        ("0xef53", 1 << 20, Grade.PROBLEM),
        ("0x1021994", 10 << 30, Grade.PROBLEM),
    ],
)
def test_space_is_graded_and_memory_is_no_disk(kind: str, free: int, grade: Grade) -> None:
    facts: dict[str, object] = {"type": kind, "available_bytes": free}
    assert space_finding("the state folder", "/x", facts, wanted=1 << 30).grade is grade


def test_the_words_fit_into_80_columns_and_steer_nothing(state: Path) -> None:
    machine = CannedMachine(LAPTOP, there=TOOLS)
    machine.files["/proc/9/stat"] = "9 (\x1b[2J) R 1 9 9 0 -1 0 0 0 0 0 1 1 0\n"
    lines = list(doctor_lines(examined(machine)))
    assert all(len(line) <= 80 for line in lines)
    assert all(line.isprintable() for line in lines)


def test_the_twins_differ_in_nothing_and_are_in_no_list() -> None:
    study = twin_study()
    first, second = study.factors[0].levels
    assert first.settings == second.settings
    assert resolve(study, root=False, lab="directory").changes == ()
    assert {workload.cache for workload in study.workloads} == {"warm", "cold-data"}
    assert not any("doctor" in name for name in names())
