"""A mount that stays busy: because of a command of the study (which is killed), or a process that entered the
lab from outside."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from breaking import (
    Trial,
    command_study,
    entries,
    eventually,
    iotrial,
    last_trial,
    nothing_left,
    processes_with,
)
from running import failures_of, stored_runs

pytestmark = pytest.mark.root

LAB = "/run/iotrial/ext4"
RING = Path(__file__).parents[1] / "contract" / "probe" / "ring.c"


def test_a_command_that_stays_in_the_lab_with_an_open_file_is_ended_and_the_trial_goes_on(
    state: Path, tmp_path: Path
) -> None:
    stays = "cat {file} > /dev/null; cd {dir}; sleep 83171 > held-{word} & true"
    study = Path(command_study(tmp_path, ["sh", "-c", stays], lab="image"))
    # cold: each run unmounts the file system that the previous run was in
    study.write_text(study.read_text().replace('"as-is"', '"cold"'))
    done = iotrial("run", str(study), "--trust", "--json")
    assert done.returncode in (0, 3, 6), done.stderr
    assert len(stored_runs(state)) >= 6
    assert failures_of(state) == []
    assert processes_with("83171") == []
    nothing_left(state)


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_a_ring_that_the_kernel_closes_after_its_process_has_ended_does_not_end_the_trial(
    state: Path, tmp_path: Path
) -> None:
    ring = tmp_path / "ring"
    subprocess.run(["cc", "-O1", "-o", str(ring), str(RING)], check=True)
    # the file is registered with the ring, which holds it; cold: each run unmounts the file system
    study = Path(command_study(tmp_path, [str(ring), "{file}", "direct", "{word}"], lab="image", blocks=10))
    study.write_text(study.read_text().replace('"as-is"', '"cold"'))
    done = iotrial("run", str(study), "--trust", "--no-stop", "--json")
    assert done.returncode in (0, 3, 6), done.stderr
    assert len(stored_runs(state)) >= 20
    assert failures_of(state) == []
    nothing_left(state)


@pytest.mark.long
def test_somebody_who_has_entered_the_lab_is_named_and_the_entry_kept_until_he_leaves(
    state: Path, tmp_path: Path
) -> None:
    trial = Trial(
        state,
        command_study(tmp_path, ["test", "-n", "{word}"], lab="image", blocks=2000),
        "--no-stop",
        "--json",
        "--time",
        "3s",
    )
    trial.until_runs(4)
    enter = ["nsenter", "-t", str(trial.worker()), "-m", "sh", "-c", f"cd {LAB} && exec sleep 83172"]
    holder = subprocess.Popen(enter)
    try:
        assert eventually(lambda: processes_with("83172") == [holder.pid])
        status, _, err = trial.end()
        assert status == 5, err
        error = json.loads(err.splitlines()[-1])["error"]
        assert error["code"] == "restore_incomplete"
        assert f"process {holder.pid} (sleep)" in error["message"]
        assert "iotrial restore" in error["hint"]
        assert entries(state)
        assert last_trial()["state"] == "failed"
        # Nothing was removed from under the process: the lab is still mounted in its namespace.
        assert LAB in Path(f"/proc/{holder.pid}/mounts").read_text()
    finally:
        holder.kill()
        holder.wait()
    done = iotrial("restore", "--json")
    assert done.returncode == 0, done.stderr
    assert not any(row["kept"] for row in json.loads(done.stdout)["restored"])
    nothing_left(state)


#: stays in the lab in one of several ways, as soon as it is mounted
STAYS = """
import mmap, os, sys, time
how, path = sys.argv[1:]
while True:
    try:
        file = os.open(path, os.O_RDONLY)
        break
    except FileNotFoundError:
        time.sleep(0.001)
if how == "mapped file":
    kept = mmap.mmap(file, 4096, prot=mmap.PROT_READ)
if how == "folder":
    os.chdir(os.path.dirname(path))
if how != "open file":
    os.close(file)
time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["folder", "open file", "mapped file"])
def test_who_keeps_the_lab_from_being_unmounted_is_named(state: Path, tmp_path: Path, how: str) -> None:
    study = Path(command_study(tmp_path, ["sh", "-c", "cat {file} # {word}"], lab="image", blocks=2000))
    study.write_text(study.read_text().replace('"as-is"', '"cold"'))  # each run unmounts the file system
    trial = Trial(state, str(study), "--no-stop", "--json", "--time", "60s")
    trial.until_runs(4)
    (file,) = set(_first_file(trial.worker()))
    words = ["nsenter", "-t", str(trial.worker()), "-m", sys.executable, "-c", STAYS, how, file]
    holder = subprocess.Popen(words)
    try:
        status, _, err = trial.end()
        assert status in (1, 5), err
        message = json.loads(err.splitlines()[-1])["error"]["message"]
        assert f"still in use by {holder.pid} (python" in message
    finally:
        holder.kill()
        holder.wait()
    assert eventually(
        lambda: iotrial("restore").returncode == 0
    )  # the kernel may go on detaching for a moment
    nothing_left(state)


def _first_file(worker: int) -> list[str]:
    """Return a file of the lab, as it is called in the namespace of its probe."""
    root = f"/proc/{worker}/root"
    found: list[str] = []
    assert eventually(lambda: bool(found.extend(map(str, Path(f"{root}{LAB}").rglob("f000000"))) or found))
    return [path.removeprefix(root) for path in found[:1]]
