"""The check that tests leave nothing: it fails for whatever is left, with workers and without; and workers do not meet."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PRESSURE = Path("/proc/sys/vm/vfs_cache_pressure")
pytestmark = [pytest.mark.root, pytest.mark.alone]
with_and_without_workers = pytest.mark.parametrize("workers", [0, 2])


def run_tests(folder: Path, workers: int, **modules: str) -> subprocess.CompletedProcess[str]:
    """pytest on modules made of these statements, each the body of one test, with nothing of this suite but the check."""
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


def assert_told(done: subprocess.CompletedProcess[str], what: str) -> None:
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert what in done.stdout.partition("the tests changed this machine")[2]


@pytest.fixture
def mounts() -> Iterator[None]:
    before = Path("/proc/self/mounts").read_text()
    yield
    assert Path("/proc/self/mounts").read_text() == before


@with_and_without_workers
def test_tests_that_leave_nothing_pass(tmp_path: Path, workers: int) -> None:
    done = run_tests(tmp_path, workers, clean="assert FOLDER.is_dir()")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "changed this machine" not in done.stdout


@with_and_without_workers
def test_an_image_that_stays_attached_fails_the_session(tmp_path: Path, workers: int) -> None:
    image = tmp_path / "image"
    image.write_bytes(bytes(1 << 20))
    done = run_tests(
        tmp_path, workers, leaves=f"subprocess.run(['losetup', '--find', {str(image)!r}], check=True)"
    )
    found = subprocess.run(
        ["losetup", "--noheadings", "--output=NAME", "--associated", str(image)],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    subprocess.run(["losetup", "--detach", *found], check=True)
    assert_told(done, f"{Path(found[0]).name} backing: None before, '{image}' now")


@with_and_without_workers
def test_a_mount_that_stays_fails_the_session(tmp_path: Path, workers: int, mounts: None) -> None:
    on = tmp_path / "on"
    on.mkdir()
    done = run_tests(
        tmp_path, workers, leaves=f"subprocess.run(['mount', '-t', 'tmpfs', 'x', {str(on)!r}], check=True)"
    )
    assert on.is_mount() == (not workers), "a worker's mounts are its own"
    if not workers:
        subprocess.run(["umount", str(on)], check=True)
    assert_told(done, f"x {on} tmpfs")


@with_and_without_workers
def test_the_folder_of_a_lab_that_stays_fails_the_session(tmp_path: Path, workers: int) -> None:
    folder = Path("/run/iotrial")
    done = run_tests(tmp_path, workers, leaves="Path('/run/iotrial').mkdir()")
    assert folder.exists() == (not workers), "a worker's /run is its own"
    if not workers:
        folder.rmdir()
    assert_told(done, "run folder: 'False' before, 'True' now")


@with_and_without_workers
def test_a_setting_that_stays_fails_the_session(tmp_path: Path, workers: int) -> None:
    before = PRESSURE.read_text()
    done = run_tests(tmp_path, workers, leaves=f"Path({str(PRESSURE)!r}).write_text('{int(before) + 1}')")
    PRESSURE.write_text(before)
    assert_told(done, f"vm.vfs_cache_pressure: '{int(before)}' before, '{int(before) + 1}' now")


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
