"""Shared fixtures: a state folder on a real disk, for each test its own."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = os.geteuid() == 0

pytest_plugins = ("session_check",)

# A job in the background of a shell is started with SIGINT ignored, and so would be every program that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


#: what is in these folders meets kernel, disks and clocks of a machine that others use too: a test that fails there is run
#: once more. The summary counts and names what was, as RERUN, so that it can be looked into; what is wrong fails twice.
MEETS_THE_MACHINE = ("contract", "crash", "root")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.relative_to(here).parts[0] in MEETS_THE_MACHINE:
            item.add_marker(pytest.mark.flaky(reruns=1))
        if "root" in item.keywords and not ROOT:
            item.add_marker(pytest.mark.skip(reason="needs root"))


@pytest.fixture(scope="session")
def disk_folder() -> Iterator[Path]:
    """A folder on a real disk (/tmp may be memory)."""
    folder = Path(tempfile.mkdtemp(prefix="iotrial-test-", dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session", autouse=True)
def own_trials(disk_folder: Path) -> Iterator[None]:
    """No test sees the user's trials, or a journal that one of them has left; most want a folder of their own (``state``)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(disk_folder / "state"))
        patch.delenv("IOTRIAL_STORE", raising=False)
        yield


@pytest.fixture(scope="session")
def guests(disk_folder: Path) -> Path:
    """Kernels and tools of guests, fetched once a session; tests of whole trials name it in IOTRIAL_GUESTS."""
    folder = disk_folder / "guests"
    folder.mkdir(mode=0o755)
    return folder


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch, disk_folder: Path) -> Iterator[Path]:
    """A state folder of the test's own, so that no test touches the user's trials or journal."""
    folder = Path(tempfile.mkdtemp(dir=disk_folder))
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    monkeypatch.delenv("IOTRIAL_STORE", raising=False)
    yield folder / "iotrial"
    shutil.rmtree(folder, ignore_errors=True)
