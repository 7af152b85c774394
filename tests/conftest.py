"""Shared fixtures: a state folder on a real disk, a probe, a small image lab; and the check that nothing is left behind."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = os.geteuid() == 0
#: files of a device that change with the memory in use; and what Linux 6.1 keeps from attaching an image
MOVING = ("max_bytes", "min_bytes", "discard_max_bytes")

# A job in the background of a shell is started with SIGINT ignored, and so would be every program that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "root" in item.keywords and not ROOT:
            item.add_marker(pytest.mark.skip(reason="needs root"))


def host_state() -> dict[str, str]:
    """What must be as before when the tests are over, read from the kernel's own files."""
    state = {"mounts": Path("/proc/self/mounts").read_text()}
    for device in sorted(Path("/sys/block").glob("loop*")):
        backing = device / "loop" / "backing_file"
        if backing.exists():
            try:
                state[f"{device.name} backing"] = backing.read_text().strip()
            except OSError:
                continue
        for file in (*sorted((device / "queue").iterdir()), *sorted((device / "bdi").glob("*"))):
            if file.is_file() and file.stat().st_mode & 0o200 and file.name not in MOVING:
                try:
                    state[f"{device.name} {file.name}"] = file.read_text().strip()
                except OSError:  # this device has none
                    continue
    for key in Path("/proc/sys/vm").iterdir():
        if key.stat().st_mode & 0o400 and key.name not in ("stat_refresh", "compact_memory", "drop_caches"):
            state[f"vm.{key.name}"] = key.read_text().strip()
    huge = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    state["huge pages"] = huge.read_text().strip() if huge.exists() else ""
    state["run folder"] = str(Path("/run/iotrial").exists())
    return state


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    before = host_state()
    yield
    after = host_state()
    # a loop device that the kernel has made on demand stays, unused, until the next boot
    made = {key.split()[0] for key in after if key.startswith("loop")} - {key.split()[0] for key in before}
    after = {
        key: value for key, value in after.items() if key.split()[0] not in made or key.endswith("backing")
    }
    changed = {
        key: (before.get(key), after.get(key)) for key in before | after if before.get(key) != after.get(key)
    }
    assert not changed, f"the tests changed this machine: {changed}"


@pytest.fixture(scope="session")
def disk_folder() -> Iterator[Path]:
    """A folder on a real disk (/tmp may be memory)."""
    folder = Path(tempfile.mkdtemp(prefix="iotrial-test-", dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch, disk_folder: Path) -> Iterator[Path]:
    """A state folder of the test's own, so that no test touches the user's trials or journal."""
    folder = Path(tempfile.mkdtemp(dir=disk_folder))
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    monkeypatch.delenv("IOTRIAL_STORE", raising=False)
    yield folder / "iotrial"
    shutil.rmtree(folder, ignore_errors=True)
