"""Trials in a guest: this machine is not changed, a guest that dies fails only its run, and nothing is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from running import failures_of, iotrial, run_json, stored_runs, write_study

from as_nobody import NOBODY
from iotrial.guest.qemu import MAC_ADDRESSES
from iotrial.runner.guest import DEFAULT_KERNEL
from left_behind import host_state, left_by_tests
from study_texts import reading

STUDY = """
[study]
name = "in-a-guest"
question = "Do modes or schedulers matter to reading?"
[lab]
kind = "guest"
size = "64 MiB"
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0777", "0444"]
[[factor]]
name = "scheduler"
knob = "block.scheduler"
levels = ["none", "mq-deadline"]
role = "condition"
[[factor]]
name = "swappiness"
knob = "sysctl"
key = "vm.vfs_cache_pressure"
levels = ["100"]
role = "condition"
""" + reading()


@pytest.fixture
def study(guests: Path, disk_folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("IOTRIAL_GUESTS", str(guests))
    return write_study(disk_folder, STUDY)


def test_a_trial_in_a_guest_measures_there_and_leaves_this_machine_alone(state: Path, study: str) -> None:
    before = host_state()
    report = run_json(study, "--blocks", "3")
    changed = left_by_tests(before, host_state())
    # other tests attach images at the same time; a trial in a guest attaches none here
    assert not [key for key in changed if not key.startswith("loop")]
    assert failures_of(state) == []
    assert not list(state.rglob("*.entry"))
    runs = stored_runs(state)
    assert len(runs) == 2 * (4 + 4 + 4)  # controls take part in each of the first 24 blocks
    # cold: every run read its five files from the guest's own disk
    assert all(run["checks"]["bytes_read"] >= 5 * 4096 for run in runs)
    assert report["trial"]["host"]["kernel"].startswith(f"{DEFAULT_KERNEL}.")
    assert report["trial"]["host"]["kernel"] != os.uname().release
    started = [run["started_s"] for run in sorted(runs, key=lambda r: r["sequence"])]
    assert started == sorted(started)
    assert 0 <= started[0] < 60
    # a run's wall-clock time is this machine's, although the guest's monotonic clock started at its boot
    times = [run["checks"]["clock"]["unix_s"] for run in runs]
    assert time.time() - 600 < min(times) <= max(times) < time.time()


def qemu_of(conductor: int, mark: bytes = b"virtserialport") -> int | None:
    """Return the conductor's first guest with this mark in its command line."""
    children = Path(f"/proc/{conductor}/task/{conductor}/children").read_text().split()
    return next((int(pid) for pid in children if mark in Path(f"/proc/{pid}/cmdline").read_bytes()), None)


def begun(study: str, state: Path, *words: str) -> tuple[subprocess.Popen[str], int]:
    """Start the program as a separate process; return it and its guest once a few runs are stored."""
    argv = [sys.executable, "-m", "iotrial", "run", study, *words]
    conductor = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and conductor.poll() is None:
        if (state / "trials.db").exists() and len(stored_runs(state)) >= 3:
            guest = qemu_of(conductor.pid)
            assert guest is not None
            return conductor, guest
        time.sleep(0.05)
    conductor.kill()
    raise AssertionError(conductor.communicate())


@pytest.mark.long
def test_a_guest_that_dies_is_a_failure_of_its_run_and_the_trial_goes_on(state: Path, study: str) -> None:
    conductor, guest = begun(study, state, "--blocks", "4", "--no-stop", "--json")
    os.kill(guest, signal.SIGKILL)
    said, log = conductor.communicate(timeout=240)
    assert conductor.returncode in (0, 6), log
    failures = failures_of(state)
    assert len(failures) == 1
    assert "died" in failures[0]
    runs = stored_runs(state)
    assert len({(run["condition"], run["block"]) for run in runs}) == 2 * 4
    verdicts = {effect["verdict"] for effect in json.loads(said)["effects"] if effect["failures"]}
    assert verdicts <= {"inconclusive"}
    assert not list(state.rglob("*.entry"))


@pytest.mark.long
@pytest.mark.long
def test_a_guest_that_dies_while_the_lab_is_made_is_booted_anew_and_costs_nothing(
    state: Path, study: str
) -> None:
    argv = [
        sys.executable,
        "-m",
        "iotrial",
        "run",
        study,
        "--blocks",
        "2",
        "--no-stop",
        "--no-controls",
        "--json",
    ]
    conductor = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list(state.rglob("*.entry")) and time.monotonic() < deadline and conductor.poll() is None:
        time.sleep(0.005)  # the first entry is the guest's process, recorded once its probe has answered
    guest = qemu_of(conductor.pid)
    assert guest is not None, conductor.communicate()
    os.kill(guest, signal.SIGKILL)
    said, log = conductor.communicate(timeout=240)
    assert conductor.returncode in (0, 6), log
    assert json.loads(said)["trial"]["state"] == "done"
    assert failures_of(state) == []
    assert len({(run["condition"], run["block"]) for run in stored_runs(state)}) == 2 * 2
    assert not list(state.rglob("*.entry"))


@pytest.mark.long
def test_after_sigkill_of_the_conductor_the_guest_is_gone_and_the_trial_can_be_resumed(
    state: Path, study: str
) -> None:
    conductor, guest = begun(study, state, "--blocks", "4", "--no-stop")
    conductor.kill()
    conductor.communicate()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{guest}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(f"/proc/{guest}").exists()
    iotrial("restore")
    assert not list(state.rglob("*.entry"))
    iotrial("resume")
    assert len({(run["condition"], run["block"]) for run in stored_runs(state)}) == 2 * 4


@pytest.mark.long
def test_it_needs_no_root(everybody: Path, guests: Path, study: str) -> None:
    home = everybody / "home"
    copy = home / "mine.toml"
    copy.write_text(Path(study).read_text())
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / "state"),
        "IOTRIAL_PROBE": str(everybody / "ioprobe"),
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }
    script = Path(__file__).parents[1] / "as_nobody.py"
    argv = [sys.executable, str(script), "run", str(copy), "--blocks", "1", "--json"]
    done = subprocess.run(
        argv, env=environment, cwd=home, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode in (0, 6), done.stderr
    assert json.loads(done.stdout)["trial"]["host"]["kernel"] != os.uname().release
    assert (home / "state").stat().st_uid == NOBODY


ARRAY = """
[study]
name = "levels"
question = "Which level of an array writes fastest?"
[lab]
kind = "guest"
size = "64 MiB"
disks = 3
disk = "disk-7200"
[[factor]]
name = "level"
knob = "raid.level"
levels = ["raid0", "raid1", "raid5"]
plot = "whole"
[[workload]]
name = "write"
kind = "stream"
operation = "write"
size = "8 MiB"
volume = "8 MiB"
block_size = "1 MiB"
direct = true
"""


@pytest.mark.long
def test_levels_of_an_array_of_modelled_disks_are_a_factor(
    guests: Path, disk_folder: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IOTRIAL_GUESTS", str(guests))
    report = run_json(write_study(disk_folder, ARRAY), "--blocks", "1", "--no-controls")
    assert failures_of(state) == []
    runs = {run["treatment"]["level"]: run for run in stored_runs(state)}
    assert set(runs) == {"raid0", "raid1", "raid5"}
    # all levels write the same amount to the array device
    assert all(run["evidence"]["device_write_ios"] >= 8 for run in runs.values())
    assert "were not counted" not in str(report)


MACHINES = """
[study]
name = "machines"
question = "Does a machine of two processors read faster?"
[lab]
kind = "guest"
size = "64 MiB"
[[factor]]
name = "machine"
levels = [
  { label = "small", set = [{ knob = "guest.processors", level = "1" }, { knob = "guest.memory", level = "512 MiB" }] },
  { label = "large", set = [{ knob = "guest.processors", level = "2" }, { knob = "guest.memory", level = "768 MiB" }] },
]
plot = "whole"
""" + reading()


@pytest.mark.long
def test_processors_and_memory_are_factors_and_each_stretch_begins_with_a_boot(
    guests: Path, disk_folder: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IOTRIAL_GUESTS", str(guests))
    run_json(write_study(disk_folder, MACHINES), "--blocks", "2", "--no-stop")
    assert failures_of(state) == []
    assert {run["treatment"]["machine"] for run in stored_runs(state)} == {"small", "large"}
    assert not list(state.rglob("*.entry"))
    (page,) = (state / "reports").glob("*.html")
    assert "described as first booted" in page.read_text()


@pytest.mark.long
def test_the_same_study_under_two_kernels(guests: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOTRIAL_GUESTS", str(guests))
    run_json("system/kernel", "--blocks", "1", "--no-stop", "--condition", "workload=small-files-cold")
    assert failures_of(state) == []
    assert {run["treatment"]["kernel"] for run in stored_runs(state)} == {"6.1", "6.12"}


IDENTICAL = """
[study]
name = "aa"
question = "Do two settings differ that do not?"
margin = "20 %"
alpha = 0.001
[lab]
kind = "guest"
size = "64 MiB"
[[factor]]
name = "pressure"
knob = "sysctl"
key = "vm.vfs_cache_pressure"
levels = ["100", "101"]
""" + reading(files=20)


def test_two_settings_that_do_not_differ_are_not_found_to_differ_in_a_guest(
    guests: Path, disk_folder: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IOTRIAL_GUESTS", str(guests))
    report = run_json(write_study(disk_folder, IDENTICAL), "--blocks", "25", "--no-stop")
    assert failures_of(state) == []
    primary = [effect for effect in report["effects"] if effect["primary"]]
    assert len(primary) == 1
    # a false verdict is possible in one trial of a thousand
    assert primary[0]["verdict"] in ("inconclusive", "equivalent"), primary
    assert primary[0]["blocks"] == 25
    assert primary[0]["low"] < 1 < primary[0]["high"]


SERVED = """
[study]
name = "served"
question = "Do modes matter to reading from a server?"
[lab]
kind = "guest"
filesystem = "xfs"
size = "320 MiB"
[lab.link]
rate = "100 Mbit/s"
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0777", "0444"]
[[factor]]
name = "protocol"
knob = "nas.protocol"
levels = ["nfs3"]
role = "condition"
[[response]]
name = "wall"
primary = true
[[response]]
name = "nas_cpu"
""" + reading()


@pytest.mark.long
@pytest.mark.parametrize(
    ("mac", "says"), [(MAC_ADDRESSES[0], "the client"), (MAC_ADDRESSES[1], "the server")]
)
def test_a_machine_that_dies_is_a_failure_of_its_run_and_both_are_booted_anew(
    guests: Path, disk_folder: Path, state: Path, monkeypatch: pytest.MonkeyPatch, mac: str, says: str
) -> None:
    monkeypatch.setenv("IOTRIAL_GUESTS", str(guests))
    study = write_study(disk_folder, SERVED)
    conductor, _ = begun(study, state, "--blocks", "4", "--no-stop", "--json")
    machine = qemu_of(conductor.pid, mac.encode())
    assert machine is not None
    os.kill(machine, signal.SIGKILL)
    said, log = conductor.communicate(timeout=300)
    assert conductor.returncode in (0, 6), log
    failures = failures_of(state)
    assert len(failures) == 1
    assert says in failures[0]
    report = json.loads(said)
    assert report["trial"]["lab_settings"]["guest"]["link"].startswith("100 Mbit/s each way")
    runs = stored_runs(state)
    assert len({run["block"] for run in runs if run["condition"]}) == 4
    finished = [run for run in runs if run["failure"] is None]
    assert len(finished) == len(runs) - 1
    assert all(0 <= run["responses"]["nas_cpu"] < 60 for run in finished)
    assert all(run["evidence"]["link_from_server_bytes"] > 5 * 4096 for run in finished)
    assert not list(state.rglob("*.entry"))


SAMPLED = """
[study]
name = "sampled"
question = "Do modes matter to reading?"
sample = "10 ms"
[lab]
kind = "guest"
filesystem = "xfs"
size = "320 MiB"
{link}
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0777", "0444"]
{protocol}
[[workload]]
name = "read"
kind = "command"
argv = ["cat", "{{file}}"]
size = "{size}"
cache = "cold"
"""
#: 4 MiB take a third of a second
LINK = '[lab.link]\nrate = "100 Mbit/s"'
PROTOCOL = '[[factor]]\nname = "protocol"\nknob = "nas.protocol"\nlevels = ["nfs3"]\nrole = "condition"'


@pytest.mark.long
@pytest.mark.parametrize("served", [False, True])
def test_samples_are_taken_on_the_guest_that_has_the_disk_and_fall_into_the_run(
    guests: Path, disk_folder: Path, state: Path, monkeypatch: pytest.MonkeyPatch, served: bool
) -> None:
    monkeypatch.setenv("IOTRIAL_GUESTS", str(guests))
    size_bytes = 4 << 20 if served else 48 << 20
    text = SAMPLED.format(
        link=LINK if served else "",
        protocol=PROTOCOL if served else "",
        size=f"{size_bytes >> 20} MiB",
    )
    run_json(write_study(disk_folder, text), "--trust", "--blocks", "2", "--no-controls", "--no-stop")
    assert failures_of(state) == []
    runs = stored_runs(state)
    assert len(runs) == 4
    for run in runs:
        series, lasted_s = run["checks"]["series"], run["checks"]["clock"]["lasted_s"]
        assert all(0 <= at <= lasted_s for at in series["at_s"])
        assert 5 <= len(series["at_s"]) <= lasted_s / 0.01 + 1
        between_s = (series["at_s"][-1] - series["at_s"][0]) / (len(series["at_s"]) - 1)
        read_bytes = between_s * sum(series["device_read_rate"])
        # the server reads ahead of the link, and what was read between the outermost samples and the ends is missing
        assert 0.5 * size_bytes < read_bytes < 1.5 * size_bytes


PUT_BYTES = 1 << 20
BY_URL = """
[study]
name = "by-url"
question = "Is a file put faster by FTP?"
[lab]
kind = "guest"
filesystem = "xfs"
size = "320 MiB"
[lab.link]
rate = "100 Mbit/s"
[[factor]]
name = "protocol"
knob = "nas.protocol"
levels = ["nfs4", "ftp"]
[[workload]]
name = "get"
kind = "command"
argv = ["curl", "-sS", "--ftp-port", "-", "--ftp-method", "nocwd", "--output", "/dev/null", "{share}{file}"]
size = "1 MiB"
cache = "cold"
[[workload]]
name = "put"
kind = "command"
prepare = ["cp", "{file}", "/tmp/image"]
argv = ["curl", "-sS", "--ftp-port", "-", "--ftp-method", "nocwd", "--upload-file", "/tmp/image", "{share}{out}/image"]
size = "1 MiB"
pool = 1
cache = "as-is"
[[response]]
name = "wall"
primary = true
[[response]]
workload = "put"
name = "wall_to_disk"
[[response]]
name = "nas_sync"
"""


@pytest.mark.long
def test_files_are_got_and_put_by_ftp_and_what_was_only_in_the_servers_memory_is_timed(
    guests: Path, disk_folder: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IOTRIAL_GUESTS", str(guests))
    run_json(write_study(disk_folder, BY_URL), "--blocks", "2", "--no-controls", "--no-stop")
    assert failures_of(state) == []
    runs = stored_runs(state)
    assert len(runs) == 2 * 2 * 2
    got = [run for run in runs if "wall_to_disk" not in run["responses"]]
    put = [run for run in runs if "wall_to_disk" in run["responses"]]
    assert {run["treatment"]["protocol"] for run in got} == {"nfs4", "ftp"}
    for run in got:  # cold: from the server's disk, and through the link
        assert run["checks"]["bytes_read"] >= PUT_BYTES
        assert run["evidence"]["link_from_server_bytes"] > PUT_BYTES
    for run in put:  # counted on the client, through its mount
        assert (run["responses"]["out_files"], run["responses"]["out_bytes"]) == (1, PUT_BYTES)
        assert run["evidence"]["link_to_server_bytes"] > PUT_BYTES
        times = run["responses"]
        assert times["wall_to_disk"] == pytest.approx(times["wall"] + times["nas_sync"])
    written = {
        name: [run["responses"]["device_write_bytes"] for run in put if run["treatment"]["protocol"] == name]
        for name in ("nfs4", "ftp")
    }
    # an NFS client has the server write when it closes the file; nobody asks an FTP server to
    assert min(written["nfs4"]) >= PUT_BYTES > max(written["ftp"])
