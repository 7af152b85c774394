"""Fixtures that any user may enter and run: root's own folders are closed to others."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import systemd_guest
from systemd_guest import Guest

from as_nobody import NOBODY
from iotrial.probe.binary import find_binary


@pytest.fixture
def everybody() -> Iterator[Path]:
    """Yield a folder with a probe that any user may run, ``ioprobe``, and a folder owned by nobody, ``home``."""
    folder = Path("/var/tmp") / f"iotrial-everybody-{os.getpid()}"
    folder.mkdir()
    folder.chmod(0o755)
    shutil.copy(find_binary(), folder / "ioprobe")
    (folder / "ioprobe").chmod(0o755)
    (folder / "home").mkdir()
    shutil.chown(folder / "home", NOBODY, NOBODY)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def debian(disk_folder: Path) -> Iterator[Path]:
    """Make the root file system of a Debian with systemd once, for ``guest``."""
    lacking = systemd_guest.missing()
    if lacking is not None:
        pytest.skip(lacking)
    folder = disk_folder / "systemd-guest"
    folder.mkdir()
    systemd_guest.build(folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def guest(debian: Path, disk_folder: Path) -> Iterator[Guest]:
    """Boot a Debian with systemd of its own for a test."""
    folder = disk_folder / "booted"
    folder.mkdir()
    machine = Guest(debian, folder)
    try:
        machine.boot()
        machine.settle()
        yield machine
    finally:
        machine.close()
        shutil.rmtree(folder)
