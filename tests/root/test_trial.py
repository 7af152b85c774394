"""Whole trials on this machine: real images, real mounts, real commands; the truth is the kernel's own."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from running import SCHEDULERS, failures_of, iotrial, run_json, stored_runs, were_warm, write_study

from study_texts import reading

pytestmark = pytest.mark.root


def test_permissions_end_to_end_on_an_image(state: Path) -> None:
    report = run_json("files/permissions", "--blocks", "4", "--time", "60s", "--no-stop")
    assert report["trial"]["state"] == "done"
    assert report["trial"]["lab"] == "image"
    assert len([e for e in report["effects"] if e["primary"]]) == 12
    assert all(control["passed"] for control in report["controls"])
    runs = stored_runs(state)
    # 4 conditions; 4 blocks of 4 arms, and 2 control arms in every other block
    assert len(runs) == 4 * (4 * 4 + 4 * 2)  # controls take part in each of the first 24 blocks
    for run in runs:
        if "cache=cold" in run["condition"]:
            assert run["checks"]["bytes_read"] >= run["checks"]["bytes_expected"] > 0
            written = {**run["evidence"], **run["responses"]}["device_write_bytes"]
            assert written == 0, "the new mode was written before the work began"
    assert were_warm([run for run in runs if "cache=cold" not in run["condition"]])
    first = [r for r in runs if r["block"] == 0 and r["condition"] == runs[0]["condition"]]
    drawn = [file for run in first for file in run["files"]]
    assert len(drawn) == len(set(drawn)), "two arms of a block shared a file"
    again = [r for r in runs if r["block"] == 1 and r["condition"] == runs[0]["condition"]]
    by_mode = {r["arm"]: r["files"] for r in first}
    assert any(r["files"] != by_mode[r["arm"]] for r in again), "the assignment was not drawn anew"
    assert list((state / "reports").glob("1-*.html"))
    (state / "trials.analysed").unlink()  # so that the report analyses what is stored
    assert json.loads(iotrial("report", "1", "--json").stdout) == report


@pytest.mark.long
def test_the_other_levels_are_one_option_away(state: Path) -> None:
    report = run_json(
        "files/permissions",
        *("--condition", "filesystem=all", "--condition", "mount=all", "--condition", "reader=all"),
        *(
            "--condition",
            "workload=dd",
            "--condition",
            "cache=cold",
            "--set",
            "mode=0444",
            "--blocks",
            "1",
            "--no-account",
        ),
    )
    conditions = {
        json.dumps(e["condition"], sort_keys=True) + e["workload"] for e in report["effects"] if e["primary"]
    }
    assert len(conditions) == 3 * 2 * 2
    assert failures_of(state) == []
    assert report["void"] == []


@pytest.mark.parametrize("filesystem", ["ext4", pytest.param("xfs", marks=pytest.mark.long)])
def test_noatime_writes_nothing_and_strictatime_writes_inodes(state: Path, filesystem: str) -> None:
    narrowed = ("--condition", "workload=probe", "--condition", f"filesystem={filesystem}")
    options = ("--set", "atime=relatime,noatime", "--no-controls", "--no-account")
    run_json("mount/atime", *narrowed, *options, "--blocks", "1")
    written: dict[tuple[str, str], list[float]] = {}
    for run in stored_runs(state):
        where = "stale" if "atime_state=stale" in run["condition"] else "fresh"
        numbers = {**run["evidence"], **run["responses"]}
        written.setdefault((where, run["treatment"]["atime"]), []).append(
            numbers["device_write_bytes_synced"]
        )
    # 2,000 inodes of at least 256 bytes
    assert min(written["stale", "strictatime"]) > 2_000 * 256
    assert min(written["stale", "relatime"]) > 2_000 * 256
    assert min(written["fresh", "strictatime"]) > 2_000 * 256
    assert max(written["fresh", "relatime"]) < 100_000
    for atime_state in ("stale", "fresh"):
        assert max(written[atime_state, "noatime"]) < 100_000


@pytest.mark.long  # tests/contract/test_catalogue.py runs the same study on fewer files
def test_links_of_every_kind_are_listed_read_and_written(state: Path) -> None:
    report = run_json(
        "files/links", "--blocks", "1", "--condition", "cache=warm", "--no-controls", "--no-account"
    )
    assert failures_of(state) == []
    assert {one["rule"] for one in report["void"]} <= {
        "warm_was_not_warm"
    }  # the kernel may reclaim at any time
    assert {r["treatment"]["link"] for r in stored_runs(state)} == {
        *("regular", "symlink-absolute", "symlink-relative", "symlink-chain", "hardlink")
    }


COMMANDS = """
[study]
name = "naps"
question = "Is a longer nap slower?"
margin = "5 %"
[lab]
kind = "directory"
[budget]
time = "60 s"
blocks = 60
[[factor]]
name = "nap"
knob = "command.argument"
placeholder = "{nap}"
levels = ["0.01", "0.03"]
[[factor]]
name = "arm"
knob = "environment.variable"
variable = "ARM"
levels = ["one"]
role = "condition"
[[workload]]
name = "nap"
kind = "command"
cache = "as-is"
[[workload.step]]
name = "sleep"
argv = ["sleep", "{nap}"]
[[workload.step]]
name = "check"
argv = ["test", "-f", "{file}"]
"""


def test_a_study_of_the_users_own_with_timed_steps_finds_what_is_there(
    state: Path, disk_folder: Path
) -> None:
    report = run_json(write_study(disk_folder, COMMANDS), "--on", str(disk_folder))
    wall = next(e for e in report["effects"] if e["response"] == "wall")
    assert wall["verdict"] == "slower"
    # 20 ms more than 10, known from the arguments, plus the unknown cost of starting two processes
    assert 1.1 < wall["low"] < wall["ratio"] < 3.0
    step = next(e for e in report["effects"] if e["response"] == "wall.sleep")
    assert step["ratio"] > wall["ratio"]
    assert not list(disk_folder.glob("iotrial-lab-*"))


def test_a_command_that_fails_is_said_and_caps_the_verdict(state: Path, disk_folder: Path) -> None:
    text = COMMANDS.replace('argv = ["sleep", "{nap}"]', 'argv = ["ls", "/nonexistent-{nap}"]')
    report = run_json(write_study(disk_folder, text), "--on", str(disk_folder))
    primary = [e for e in report["effects"] if e["primary"]]
    assert {e["verdict"] for e in primary} == {"inconclusive"}
    assert {e["reason"] for e in primary} == {"failures"}
    assert all(e["failures"] > 0 for e in primary)
    text_report = iotrial("report").stdout
    assert "fail" in text_report.lower()


KINDS = """
[study]
name = "kinds"
question = "Does the file system matter?"
[lab]
kind = "image"
size = "24 MiB"
mkfs_options = ["-O ^has_journal"]
mount_options = ["noauto_da_alloc"]
[[factor]]
name = "filesystem"
knob = "filesystem.type"
levels = ["ext4", "btrfs"]
""" + reading(files=10, cache="warm")


def test_options_of_a_lab_go_to_the_file_system_that_knows_them(state: Path, disk_folder: Path) -> None:
    report = run_json(write_study(disk_folder, KINDS), "--blocks", "1", "--no-controls")
    assert report["trial"]["state"] == "done"
    assert failures_of(state) == []
    assert {run["treatment"]["filesystem"] for run in stored_runs(state)} == {"ext4", "btrfs"}


@pytest.mark.alone  # compares the queues of all loop devices
def test_schedulers_and_sysctls_are_put_back(state: Path, disk_folder: Path) -> None:
    before = Path("/proc/sys/vm/vfs_cache_pressure").read_text()
    queues = {
        p: p.read_text() for p in Path("/sys/block").glob("loop*/queue/[snrw]*") if p.name in PINNED_FILES
    }
    report = run_json(write_study(disk_folder, SCHEDULERS))
    assert report["trial"]["state"] == "done"
    assert failures_of(state) == []
    assert Path("/proc/sys/vm/vfs_cache_pressure").read_text() == before
    assert {p: p.read_text() for p in queues} == queues
    assert list((state / "journal").glob("*.entry")) == []


PINNED_FILES = {"scheduler", "nr_requests", "read_ahead_kb", "wbt_lat_usec"}


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "iotrial", "run", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_runs(state: Path, wanted: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if len(stored_runs(state)) >= wanted:
                return
        except sqlite3.Error:
            pass
        time.sleep(0.02)
    raise AssertionError("the trial did not get going")


@pytest.mark.long
def test_an_interrupt_ends_with_a_partial_report_and_nothing_left(state: Path) -> None:
    process = start("files/permissions", "--json")
    wait_for_runs(state, 40)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT, err
    report = json.loads(out)
    assert report["trial"]["state"] == "interrupted"
    assert list((state / "journal").glob("*.entry")) == []
    assert not Path("/run/iotrial").exists()


@pytest.mark.long
def test_after_sigkill_restore_puts_back_and_resume_goes_on(state: Path, disk_folder: Path) -> None:
    study = write_study(disk_folder, SCHEDULERS.replace("blocks = 3", "blocks = 4"))
    pressure = Path("/proc/sys/vm/vfs_cache_pressure").read_text()
    process = start(study, "--no-stop")
    wait_for_runs(state, 15)
    process.kill()
    process.communicate()
    finished = stored_runs(state)
    assert list((state / "journal").glob("*.entry"))
    refused = iotrial("run", "files/permissions", check=1)
    assert "iotrial restore" in refused.stderr
    restored = json.loads(iotrial("restore", "--json").stdout)["restored"]
    assert restored
    assert not any(row["kept"] for row in restored)
    assert Path("/proc/sys/vm/vfs_cache_pressure").read_text() == pressure
    assert iotrial("restore").stdout.strip() == "Nothing to restore."
    trials = json.loads(iotrial("trials", "--json").stdout)["trials"]
    assert trials[-1]["state"] == "interrupted"
    report = json.loads(iotrial("resume", "--json").stdout)
    assert report["trial"]["state"] == "done"
    runs = stored_runs(state)
    assert runs[: len(finished)] == finished
    # as in an uninterrupted trial: 2 conditions, 4 blocks of 3 arms, two controls in each of the first 24 blocks
    assert len(runs) == 2 * 4 * (3 + 2)
    assert len({(r["condition"], r["block"], r["slot"]) for r in runs}) == len(runs)


def test_two_conductors_at_once_are_refused(state: Path, disk_folder: Path) -> None:
    process = start("files/permissions", "--json")
    wait_for_runs(state, 4)
    second = iotrial("run", "files/permissions", check=1)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert f"process {process.pid}" in second.stderr


@pytest.mark.long
def test_without_root_it_runs_in_a_folder_and_says_what_that_cannot_vary(everybody: Path) -> None:
    home, probe = everybody / "home", everybody / "ioprobe"
    done = subprocess.run(
        [
            sys.executable,
            str(Path(__file__).parents[1] / "as_nobody.py"),
            "run",
            "files/permissions",
            "--blocks",
            "10",
        ],
        env={**os.environ, "XDG_STATE_HOME": str(home), "HOME": str(home), "IOTRIAL_PROBE": str(probe)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "cannot vary filesystem, mount" in done.stderr
    runs = stored_runs(home / "iotrial")
    assert len(runs) == 4 * (10 * 4 + 10 * 2)
    cold = [r for r in runs if "cache=cold" in r["condition"]]
    assert all(r["checks"]["cache"] == "cold-data" for r in cold)
    assert all(r["checks"]["bytes_read"] >= r["checks"]["bytes_expected"] for r in cold)
    assert not list((home / "iotrial").rglob("iotrial-lab-*"))
