"""The check that tests leave nothing behind: it fails for any leftover, with and without workers; and workers
are isolated from each other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PRESSURE = Path("/proc/sys/vm/vfs_cache_pressure")
#: the session under test compares everything that tests may leave
pytestmark = [pytest.mark.root, pytest.mark.alone]
with_and_without_workers = pytest.mark.parametrize("workers", [0, 2])


def run_tests(folder: Path, workers: int, /, **modules: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on modules made of these statements, each the body of one test, with only the session check
    of this suite."""
    for name, body in modules.items():
        lines = [f"import os, subprocess, time\nfrom pathlib import Path\nFOLDER = Path({str(folder)!r})\n"]
        lines += ["def test() -> None:", *(f"    {line}" for line in body.splitlines())]
        (folder / f"test_{name}.py").write_text("\n".join(lines))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | {
        "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])
    }
    words = ["-c", os.devnull, "--rootdir", str(folder), "-p", "no:cacheprovider", "-p", "session_check"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *words, "-n", str(workers), "--dist", "loadfile", str(folder)],
        capture_output=True, text=True, env=environment, check=False, timeout=120,
    )  # fmt: skip


def command(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


@with_and_without_workers
def test_tests_that_leave_nothing_pass(tmp_path: Path, workers: int) -> None:
    done = run_tests(tmp_path, workers, clean="assert FOLDER.is_dir()")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "changed this machine" not in done.stdout


@with_and_without_workers
def test_an_image_a_mount_a_folder_and_a_setting_that_stay_fail_the_session(
    tmp_path: Path, workers: int
) -> None:
    image, on, folder = tmp_path / "image", tmp_path / "on", Path("/run/iotrial")
    image.write_bytes(bytes(1 << 20))
    on.mkdir()
    before = int(PRESSURE.read_text())
    done = run_tests(
        tmp_path,
        workers,
        image=f"subprocess.run(['losetup', '--find', {str(image)!r}], check=True)",
        mount=f"subprocess.run(['mount', '-t', 'tmpfs', 'left', {str(on)!r}], check=True)",
        folder=f"Path({str(folder)!r}).mkdir()",
        setting=f"Path({str(PRESSURE)!r}).write_text('{before + 1}')",
    )
    attached = command("losetup", "--noheadings", "--output=NAME", "--associated", str(image)).split()
    outside = on.is_mount(), folder.exists()
    command("losetup", "--detach", *attached)
    PRESSURE.write_text(str(before))
    if not workers:
        command("umount", str(on))
        folder.rmdir()
    assert outside == (not workers, not workers), "mounts and /run of a worker are its own"
    assert done.returncode == 1, done.stdout + done.stderr
    assert "4 passed" in done.stdout
    output = done.stdout.partition("the tests changed this machine")[2]
    assert f"{Path(attached[0]).name} backing: None before, '{image}' now" in output
    assert f"left {on} tmpfs" in output
    assert "run folder: 'False' before, 'True' now" in output
    assert f"vm.vfs_cache_pressure: '{before}' before, '{before + 1}' now" in output


def test_each_worker_has_a_machine_s_lock_of_its_own(tmp_path: Path) -> None:
    holds = """
from iotrial.lab.lock import MachineLock
with MachineLock():
    (FOLDER / f"holds-{os.environ['PYTEST_XDIST_WORKER']}").touch()
    until = time.monotonic() + 60
    while len(list(FOLDER.glob("holds-*"))) < 2:
        assert time.monotonic() < until
        time.sleep(0.05)
"""
    done = run_tests(tmp_path, 2, one=holds, two=holds)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
