"""The disk under the lab fails: reads past the end of a truncated image, a file system that is shut down or
made read-only during the trial, and a failure of the user's own disk."""

from __future__ import annotations

import fcntl
import json
import os
import struct
import subprocess
from pathlib import Path

import pytest
from breaking import (
    MIB,
    Trial,
    command_study,
    entries,
    image_study,
    iotrial,
    last_trial,
    nothing_left,
    own_disk,
    resumes_to_the_end,
)
from running import stored_runs
from test_in_place import mounted, queue_of

pytestmark = pytest.mark.root

__all__ = ["mounted"]  # a fixture

#: FS_IOC_SHUTDOWN of linux/fs.h, in older kernels EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN: _IOR('X', 125, __u32)
SHUTDOWN = 0x8004587D
NOLOGFLUSH = 2
WRITES = ["dd", "if={file}", "of={dir}/copy-{word}", "bs=4k", "conv=fsync"]


def shut_down(folder: Path) -> None:
    """Shut down a file system, as the kernel does if it can no longer write the log."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", NOLOGFLUSH))
    finally:
        os.close(descriptor)


def image_of(worker: int) -> Path:
    """Return the path of the anonymous image, through the process that holds it."""
    held = [fd for fd in Path(f"/proc/{worker}/fd").iterdir() if "/lab/#" in str(fd.readlink())]
    assert len(held) == 1, held
    return held[0]


def failed_well(trial: Trial, state: Path, kept: int, *, status: int = 1) -> str:
    """Check that the trial ended with a failure of the lab, not with failures of the treatment. Return its
    message."""
    ended, out, err = trial.end()
    assert ended == status, err
    assert out == ""
    error = json.loads(err.splitlines()[-1])["error"]
    assert "the lab has failed" in error["message"]
    stored = stored_runs(state)
    assert len(stored) >= kept
    assert [run["failure"] for run in stored if run["failure"] is not None] == []
    assert [run for run in stored if "void" in run["checks"]] == []
    assert last_trial()["state"] == "failed"
    return str(error["message"])


@pytest.mark.long
@pytest.mark.parametrize(
    "filesystem",
    ["ext4", pytest.param("xfs", marks=pytest.mark.long), pytest.param("btrfs", marks=pytest.mark.long)],
)
def test_an_image_that_is_cut_off_ends_the_trial_as_a_failure_of_the_lab(
    state: Path, tmp_path: Path, filesystem: str
) -> None:
    trial = Trial(state, image_study(tmp_path, filesystem=filesystem, blocks=40), "--no-stop", "--json")
    trial.until_runs(10)
    os.truncate(image_of(trial.worker()), 1 * MIB)
    failed_well(trial, state, 10)
    nothing_left(state)
    finished = stored_runs(state)
    resumes_to_the_end(state, finished)
    nothing_left(state)


@pytest.mark.parametrize("way", ["shutdown", pytest.param("read-only", marks=pytest.mark.long)])
@pytest.mark.parametrize("filesystem", ["ext4", pytest.param("xfs", marks=pytest.mark.long)])
def test_a_file_system_that_the_kernel_gives_up_is_noticed_after_the_first_failed_run(
    state: Path, tmp_path: Path, filesystem: str, way: str
) -> None:
    study = Path(command_study(tmp_path, WRITES, lab="image", blocks=2000))
    study.write_text(
        study.read_text().replace('kind = "image"', f'kind = "image"\nfilesystem = "{filesystem}"')
    )
    trial = Trial(state, str(study), "--no-stop", "--json")
    trial.until_runs(6)
    worker, mounted = trial.worker(), f"/run/iotrial/{filesystem}"
    if way == "shutdown":
        shut_down(Path(f"/proc/{worker}/root{mounted}"))
    else:
        words = ["mount", "-o", "remount,ro", f"/dev/{device_at(worker, mounted)}", mounted]
        while subprocess.run(["nsenter", "-t", str(worker), "-m", *words], check=False).returncode:
            assert trial.process.poll() is None  # busy while a run writes
    message = failed_well(trial, state, 6)
    if way == "read-only":
        assert "read-only" in message.lower()
    nothing_left(state)


def device_at(worker: int, mounted: str) -> str:
    lines = Path(f"/proc/{worker}/mounts").read_text().splitlines()
    return next(line.split()[0] for line in lines if line.split()[1] == mounted).removeprefix("/dev/")


def test_the_users_own_disk_failing_under_a_folder_keeps_the_entry_until_it_works_again(
    state: Path, tmp_path: Path
) -> None:
    with own_disk(state.parent, 600 * MIB) as (image, disk):
        study = command_study(tmp_path, WRITES, blocks=40)
        trial = Trial(state, study, "--on", str(disk), "--no-stop", "--json")
        trial.until_runs(6)
        shut_down(disk)
        message = failed_well(trial, state, 6, status=5)
        assert "lab.path" in message  # the folder on the dead disk could not be removed
        assert len(entries(state)) == 1
        subprocess.run(["umount", str(disk)], check=True)
        subprocess.run(["mount", "-o", "loop", str(image), str(disk)], check=True)
        done = iotrial("restore")
        assert done.returncode == 0, done.stderr
        nothing_left(state, disk)
        resumes_to_the_end(state, stored_runs(state))
        nothing_left(state, disk)


@pytest.mark.long
def test_the_users_own_disk_failing_under_an_image_is_a_failure_of_the_lab(
    state: Path, tmp_path: Path
) -> None:
    with own_disk(state.parent, 1300 * MIB) as (image, disk):
        trial = Trial(state, image_study(tmp_path, blocks=2000), "--on", str(disk), "--no-stop", "--json")
        trial.until_runs(6)
        shut_down(disk)
        failed_well(trial, state, 6)
        nothing_left(state)
        subprocess.run(["umount", str(disk)], check=True)
        subprocess.run(["mount", "-o", "loop", str(image), str(disk)], check=True)
        nothing_left(state, disk)


@pytest.mark.slow
def test_a_loop_device_that_others_detach_stays_until_the_trial_is_over(state: Path, tmp_path: Path) -> None:
    """A device in use is detached when its last user is gone: here the probe."""
    trial = Trial(state, image_study(tmp_path, blocks=60), "--no-stop", "--json")
    trial.until_runs(10)
    lab = f"{state}/lab/"
    (device,) = [
        path.parts[3]
        for path in Path("/sys/block").glob("loop*/loop/backing_file")
        if lab in path.read_text() or f"#{image_of(trial.worker()).stat().st_ino} " in path.read_text()
    ]
    subprocess.run(["losetup", "--detach", f"/dev/{device}"], check=True)
    status, _, err = trial.end()
    assert status in (0, 3, 6), err
    assert [run["failure"] for run in stored_runs(state) if run["failure"] is not None] == []
    nothing_left(state)


@pytest.mark.slow
def test_a_mount_that_is_detached_under_a_trial_in_place_is_used_to_the_end_and_leaves_nothing(
    state: Path, mounted: Path
) -> None:
    """The user unmounts lazily and detaches the loop device while settings of its queue are on trial."""
    queue = queue_of(mounted).resolve()
    words = [
        "block.read_ahead_kb=16,1024",
        "--in",
        str(mounted),
        "--yes",
        "--blocks",
        "30",
        "--no-stop",
        "--json",
    ]
    trial = Trial(state, *words, "--", "sh", "-c", "cat f* > /dev/null; sleep 0.02", verb="try")
    trial.until_runs(6)
    subprocess.run(["umount", "--lazy", str(mounted)], check=True)
    try:
        status, _, err = trial.end()
        assert status in (0, 1, 3), err
        assert [run for run in stored_runs(state) if run["failure"] is not None] == []
        # put back, then set anew by the kernel when the last user is gone and the device is detached
        assert (queue / "read_ahead_kb").read_text().strip() not in ("16", "1024")
        nothing_left(state)
    finally:
        subprocess.run(["mount", "-o", "loop", f"{mounted.parent}/in-place.img", str(mounted)], check=True)
