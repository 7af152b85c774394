"""Durability verdicts of whole trials: the power of real file systems on loop devices is cut.

What is lost follows from what the works do, not from the code under test: one acknowledges before it syncs, one after; one
file system is told not to flush the disk.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from breaking import nothing_left, processes_with
from running import failures_of, iotrial, run_json, write_study

from iotrial.study import catalogue

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.alone]  # as test_powercut.py

#: writes numbered files; WHEN says whether each is acknowledged before or after it is synced, or never synced
WRITER = """
import os, sys, time
folder, when = sys.argv[1:3]
for number in range(20):
    with open(f"{folder}/{number}", "wb", buffering=0) as file:
        file.write(b"%06d" % number * 1000)
        if when == "before":
            print("acknowledged", number, flush=True)
            time.sleep(0.02)
        if when != "never":
            os.fsync(file.fileno())
    if when != "before":
        print("acknowledged", number, flush=True)
"""
CHECKER = """
import sys
folder, acknowledged = sys.argv[1:3]
for number in map(int, open(acknowledged)):
    try:
        found = open(f"{folder}/{number}", "rb").read()
    except FileNotFoundError:
        found = b""
    if found != b"%06d" % number * 1000:
        print("lost", number, len(found))
"""
PLANTED = """
[study]
name = "planted"
question = "Does it lose what it acknowledges?"
account = false
check = true
cut_points = 60
[lab]
kind = "image"
filesystem = "ext4"
size = "32 MiB"
[budget]
blocks = 1
[[factor]]
name = "acknowledges"
knob = "command.argument"
placeholder = "{when}"
levels = ["after", "before"]
[[workload]]
name = "writer"
kind = "command"
argv = ["python3", "WRITER", "{out}", "{when}"]
checker = ["python3", "CHECKER", "{out}", "{acknowledged}"]
reads = "names"
cache = "as-is"
"""
BARRIER = """
[study]
name = "barrier"
question = "Do barriers matter?"
account = false
check = true
cut_points = 60
[lab]
kind = "image"
filesystem = "FILESYSTEM"
size = "SIZE"
[budget]
blocks = 1
[[factor]]
name = "cache"
knob = "block.write_cache"
levels = ["write back", "write through"]
[[workload]]
name = "synced"
kind = "files"
files = 20
size = "16 KiB"
operations = ["create", "write-all", "fsync", "close", "unlink"]
order = "by-phase"
"""
EXPORTS = """
[study]
name = "exports"
question = "Does a server answer before the disk does?"
account = false
check = true
cut_points = 30
[lab]
kind = "guest"
filesystem = "ext4"
size = "64 MiB"
[lab.link]
rate = "1 Gbit/s"
[budget]
blocks = 1
[[factor]]
name = "export"
knob = "nas.export"
levels = ["sync", "async"]
[[workload]]
name = "synced"
kind = "files"
files = 10
operations = ["create", "write-all", "fsync", "close", "unlink"]
order = "by-phase"
cache = "as-is"
"""
GUEST_DISKS = """
[study]
name = "guest-disks"
question = "Does the host keep what a guest has synced?"
account = false
check = true
cut_points = 60
[lab]
kind = "guest"
filesystem = "ext4"
size = "64 MiB"
[budget]
blocks = 1
[[factor]]
name = "disk"
plot = "whole"
levels = [
  { label = "none", set = { "guest.disk_interface" = "virtio-blk", "guest.disk_cache" = "none" } },
  { label = "writeback", set = { "guest.disk_interface" = "sata", "guest.disk_cache" = "writeback" } },
  { label = "unsafe", set = { "guest.disk_interface" = "virtio-blk", "guest.disk_cache" = "unsafe" } },
]
[[workload]]
name = "synced"
kind = "files"
files = 80
operations = ["create", "write-all", "fsync", "close", "unlink"]
order = "by-phase"
cache = "as-is"
"""
DATABASE = """
[study]
name = "database"
question = "Does a commit last?"
account = false
check = true
cut_points = POINTS
[lab]
kind = "image"
filesystem = "ext4"
size = "SIZE"
[budget]
blocks = 1
[[factor]]
name = "commit"
knob = "work.option"
option = "commit"
levels = LEVELS
[[workload]]
name = "small"
kind = "database"
engine = "ENGINE"
test = "insert-small"
rows = 1000
changed = 30
buffer = "16 MiB"
cache = "warm"
"""


def verdicts(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    assert report["diagnostics"].get("not_cut") is None
    return {one["treatment"]: one for one in report["durability"]}


def lost_nothing(one: dict[str, Any]) -> bool:
    """Return whether nothing was lost where the file system could be mounted.

    Its superblock may be torn, which happens at about one point in two thousand.
    """
    return bool(one["lossy"] <= one["unmountable"] <= 1 and one["corrupt"] == 0)


def test_a_work_that_acknowledges_too_early_is_found_and_a_correct_one_loses_nothing(
    state: Path, tmp_path: Path
) -> None:
    for name, text in (("WRITER", WRITER), ("CHECKER", CHECKER)):
        (tmp_path / name).write_text(text)
    tmp_path.chmod(0o755)
    text = PLANTED.replace("WRITER", str(tmp_path / "WRITER")).replace("CHECKER", str(tmp_path / "CHECKER"))
    found = verdicts(run_json(write_study(tmp_path, text), "--no-controls"))
    for one in found.values():
        assert (one["points"], one["acknowledged"], one["corrupt"]) == (60, 20, 0)
    assert lost_nothing(found["after"])
    assert found["before"]["lossy"] > 10
    connection = sqlite3.connect(state / "trials.db")
    kinds = [kind for (kind,) in connection.execute("SELECT kind FROM event")]
    connection.close()
    assert kinds.count("power-cuts") == 12  # six runs of each arm
    shown = iotrial("report", "last").stdout
    assert "before loses acknowledged writes at" in shown
    assert "Power cut" in shown


@pytest.mark.parametrize("each_s", [2, 600])
def test_checkers_that_are_slow_or_hang_cannot_hold_a_trial_longer_than_its_limit(
    state: Path, tmp_path: Path, each_s: int
) -> None:
    """With a limit of 8 s; the same points would take two minutes, or be cut off after 50 s for each level."""
    (tmp_path / "WRITER").write_text(WRITER)
    (tmp_path / "CHECKER").write_text(f"import time\ntime.sleep({each_s})\n")
    tmp_path.chmod(0o755)
    text = PLANTED.replace("WRITER", str(tmp_path / "WRITER")).replace("CHECKER", str(tmp_path / "CHECKER"))
    program = "from iotrial import cli; from iotrial.runner import durability_pass as one; one.STAGE_LIMIT_S = 8; cli.main()"
    words = ("run", write_study(tmp_path, text), "--no-controls", "--json")
    argv = [sys.executable, "-c", program, *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=45, check=False)
    assert done.returncode == 6, done.stderr  # one block has no interval
    report = json.loads(done.stdout)
    (said,) = report["diagnostics"]["not_cut"]
    assert "all power cuts of a trial may take" in said
    assert not report.get("durability")
    nothing_left(state)


@pytest.mark.parametrize("mib", [12, 20, 40])
def test_a_disk_log_that_fills_its_file_system_is_no_verdict(state: Path, tmp_path: Path, mib: int) -> None:
    """/dev/shm, which holds log and disk, has so many MiB; the lab's file system has 32, its log grows by 8."""
    for name, text in (
        ("WRITER", WRITER.replace('b"%06d" % number * 1000', "os.urandom(400_000)")),
        ("CHECKER", CHECKER),
    ):
        (tmp_path / name).write_text(text)
    tmp_path.chmod(0o755)
    (tmp_path / "CHECKER").write_text(CHECKER.replace('!= b"%06d" % number * 1000', '== b""'))
    text = PLANTED.replace("WRITER", str(tmp_path / "WRITER")).replace("CHECKER", str(tmp_path / "CHECKER"))
    study = write_study(tmp_path, text.replace('"before"]', '"never"]'))
    run = f"exec {sys.executable} -m iotrial run {study} --no-controls --json"
    script = f"mount -t tmpfs -o size={mib}m none /dev/shm && {run}"
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 6, done.stderr  # one block has no interval
    report = json.loads(done.stdout)
    print(mib, report["diagnostics"].get("not_cut"), report.get("durability"))
    assert [
        one for one in report.get("durability") or () if one["treatment"] == "after" and one["lossy"]
    ] == []
    if mib < 20:
        said = report["diagnostics"]["not_cut"]
        assert len(said) == 2
        assert all("/dev/shm, which holds the simulated disk and its log, is full" in one for one in said)
    nothing_left(state)


def test_best_does_not_recommend_what_is_fast_because_it_never_syncs(state: Path, tmp_path: Path) -> None:
    for name, text in (("WRITER", WRITER), ("CHECKER", CHECKER)):
        (tmp_path / name).write_text(text)
    tmp_path.chmod(0o755)
    text = PLANTED.replace("WRITER", str(tmp_path / "WRITER")).replace("CHECKER", str(tmp_path / "CHECKER"))
    text = text.replace('["after", "before"]', '["after", "never"]').replace("blocks = 1", "blocks = 60")
    text = text.replace("cut_points = 60", "cut_points = 20")
    study = write_study(tmp_path, text)
    done = json.loads(iotrial("best", study, "--time", "40s", "--json", "--yes", "--no-controls").stdout)
    assert done["verdict"] == "keep"
    assert done["settings"] == []
    assert done["ratio"] < 0.9
    assert "loses acknowledged writes" in done["sentence"]


@pytest.mark.parametrize(
    ("filesystem", "size"), [("ext4", "32 MiB"), ("xfs", "300 MiB"), ("btrfs", "128 MiB")]
)
def test_synced_files_survive_where_the_disk_is_flushed_and_not_where_it_is_not(
    state: Path, tmp_path: Path, filesystem: str, size: str
) -> None:
    study = write_study(tmp_path, BARRIER.replace("FILESYSTEM", filesystem).replace("SIZE", size))
    found = verdicts(run_json(study, "--no-controls"))
    good, bad = found["write back"], found["write through"]
    assert lost_nothing(good)
    assert good["acknowledged"] == 20
    assert good["flushes"] > 0
    assert bad["flushes"] == 0
    assert bad["lossy"] > 0


@pytest.mark.parametrize(
    ("engine", "levels", "size", "points", "programs"),
    [
        ("sqlite", '["extra", "off"]', "64 MiB", 40, ("sqlite3",)),
        ("mariadb", '["1", "0"]', "512 MiB", 12, ("mariadbd", "mariadb-install-db")),
        ("postgresql", '["on", "no-fsync"]', "512 MiB", 12, ("postgres",)),
    ],
)
def test_committed_rows_survive_unless_commits_do_not_wait(
    state: Path, tmp_path: Path, engine: str, levels: str, size: str, points: int, programs: tuple[str, ...]
) -> None:
    if not all(map(shutil.which, programs)):
        pytest.skip(f"needs {', '.join(programs)}")
    text = DATABASE
    for name, value in {"POINTS": points, "SIZE": size, "LEVELS": levels, "ENGINE": engine}.items():
        text = text.replace(name, str(value))
    found = list(verdicts(run_json(write_study(tmp_path, text), "--no-controls")).values())
    waits, does_not = found
    assert lost_nothing(waits)
    assert waits["acknowledged"] == 30
    assert does_not["lossy"] + does_not["corrupt"] > 0


@pytest.mark.long
def test_synced_files_survive_the_server_of_a_synchronous_export_and_not_that_of_an_asynchronous_one(
    state: Path, guests: Path, disk_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IOTRIAL_GUESTS", str(guests))
    found = verdicts(run_json(write_study(disk_folder, EXPORTS), "--no-controls"))
    assert lost_nothing(found["sync"])
    assert found["sync"]["acknowledged"] == 10
    assert found["async"]["lossy"] > 0


@pytest.mark.long
def test_files_synced_in_a_guest_survive_the_hosts_power_cut_unless_the_host_ignores_flushes(
    state: Path, guests: Path, disk_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IOTRIAL_GUESTS", str(guests))
    found = verdicts(run_json(write_study(disk_folder, GUEST_DISKS), "--no-controls"))
    assert failures_of(state) == []
    assert set(found) == {"none", "writeback", "unsafe"}
    for one in (found["none"], found["writeback"]):
        assert lost_nothing(one)
        assert one["acknowledged"] == 80
        assert one["flushes"] > 0
    assert found["unsafe"]["lossy"] > 0
    assert not list(state.rglob("*.entry"))


def test_a_trial_says_what_it_did_not_cut_and_keeps_its_verdict(state: Path, tmp_path: Path) -> None:
    text = BARRIER.replace("FILESYSTEM", "ext4").replace("SIZE", "32 MiB")
    plain = run_json(write_study(tmp_path, text), "--no-controls", "--no-check")
    assert "durability" not in plain
    shown = iotrial("plan", write_study(tmp_path, text)).stdout
    assert "power cuts at 60 points" in shown


def test_a_checker_that_fails_is_noted_and_the_trial_stands(state: Path, tmp_path: Path) -> None:
    text = PLANTED.replace("WRITER", str(tmp_path / "WRITER")).replace('"python3", "CHECKER"', '"false"')
    text = text.replace('["false", "{out}", "{acknowledged}"]', '["sh", "-c", "exit 7"]')
    (tmp_path / "WRITER").write_text(WRITER)
    tmp_path.chmod(0o755)
    report = run_json(write_study(tmp_path, text), "--no-controls")
    assert "durability" not in report
    assert report["trial"]["state"] == "done"
    assert all("status 7" in text for text in report["diagnostics"]["not_cut"])


def test_a_checker_that_leaves_a_daemon_keeps_no_arm_from_being_cut(state: Path, tmp_path: Path) -> None:
    """It leaves the session, ignores signals, holds the output open and stands in the recovered file system."""
    for name, text in (("WRITER", WRITER), ("CHECKER", CHECKER)):
        (tmp_path / name).write_text(text)
    tmp_path.chmod(0o755)
    daemon = "(cd $0; trap '' TERM HUP; setsid sleep 83294 &); exec python3 CHECKER $0 $1"
    checker = f'["sh", "-c", "{daemon}", "{{out}}", "{{acknowledged}}"]'
    text = PLANTED.replace('["python3", "CHECKER", "{out}", "{acknowledged}"]', checker)
    text = text.replace("WRITER", str(tmp_path / "WRITER")).replace("CHECKER", str(tmp_path / "CHECKER"))
    found = verdicts(
        run_json(write_study(tmp_path, text.replace("points = 60", "points = 12")), "--no-controls")
    )
    assert {name: one["points"] for name, one in found.items()} == {"after": 12, "before": 12}
    assert lost_nothing(found["after"])
    assert processes_with("83294") == []
    nothing_left(state)


def test_what_was_synced_survives_in_an_overlay_but_not_in_a_volatile_one(
    state: Path, tmp_path: Path
) -> None:
    text = catalogue.text("filesystem/overlay").replace("512 MiB", "64 MiB")
    study = write_study(tmp_path, text.replace("check = true", "check = true\ncut_points = 30"))
    words = ("--condition", "workload=packages", "--blocks", "1", "--no-controls")
    found = verdicts(run_json(study, *words))
    assert failures_of(state) == []
    volatile = found.pop("volatile (data at risk)")
    assert volatile["acknowledged"] == 100
    assert volatile["lossy"] > 0
    assert len(found) == 3
    for one in found.values():
        assert one["acknowledged"] == 100
        assert lost_nothing(one)
