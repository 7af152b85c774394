"""Shared fixtures: among others, a state folder on a real disk for each test."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest

ROOT = os.geteuid() == 0

pytest_plugins = ("session_check",)

# A shell starts background jobs with SIGINT ignored, and every program that a test starts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


#: tests in these folders depend on kernel, disks and clocks of a shared machine: a failed test is run once
#: more. The summary counts and names the reruns as RERUN, so that they can be investigated; a real error
#: fails twice.
MEETS_THE_MACHINE = ("contract", "crash", "root")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--turn",
        type=int,
        choices=range(1, 8),
        help="run only this seventh of the tests marked `long`; `make test-all` takes the day of the week",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    turn = config.getoption("turn")
    if turn is not None:
        others = [
            item for item in items if "long" in item.keywords and crc32(item.nodeid.encode()) % 7 + 1 != turn
        ]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in set(others)]
    for item in items:
        if item.path.relative_to(here).parts[0] in MEETS_THE_MACHINE:
            item.add_marker(pytest.mark.flaky(reruns=1))
        if "root" in item.keywords and not ROOT:
            item.add_marker(pytest.mark.skip(reason="needs root"))


@pytest.fixture(scope="session")
def disk_folder() -> Iterator[Path]:
    """Yield a folder on a real disk (/tmp may be in memory)."""
    folder = Path(tempfile.mkdtemp(prefix="iotrial-test-", dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session", autouse=True)
def own_trials(disk_folder: Path) -> Iterator[None]:
    """Keep tests away from the user's trials and from the journal of an interrupted one. Most tests want a
    folder of their own (``state``)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(disk_folder / "state"))
        patch.delenv("IOTRIAL_STORE", raising=False)
        yield


@pytest.fixture(scope="session")
def guests(disk_folder: Path) -> Path:
    """Return the folder for kernels and tools of guests, fetched once per session. Tests of whole trials pass
    it in IOTRIAL_GUESTS."""
    folder = disk_folder / "guests"
    folder.mkdir(mode=0o755)
    return folder


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch, disk_folder: Path) -> Iterator[Path]:
    """Yield a state folder for this test, so that it does not touch the user's trials or journal."""
    folder = Path(tempfile.mkdtemp(dir=disk_folder))
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    monkeypatch.delenv("IOTRIAL_STORE", raising=False)
    yield folder / "iotrial"
    shutil.rmtree(folder, ignore_errors=True)
