"""Fixtures: a folder on a disk, a probe, an isolated probe and a lab in it; each is checked and removed at
the end."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from probe_client import BINARY, Lab, Probe, attached_over


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if BINARY.exists():
        return
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=f"no probe at {BINARY}: cargo build --release"))


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder on a disk that other users can traverse (pytest's own they cannot)."""
    path = Path(
        tempfile.mkdtemp(prefix="ioprobe-test-", dir=os.environ.get("IOTRIAL_TEST_FOLDER", "/var/tmp"))
    )
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)
    assert not [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if path.name in line]
    assert not attached_over(path.name)


@pytest.fixture
def probe() -> Iterator[Probe]:
    probe = Probe()
    yield probe
    assert probe.close() == 0


@pytest.fixture
def isolated() -> Iterator[Probe]:
    probe = Probe("--isolate")
    yield probe
    assert probe.close() == 0


@pytest.fixture
def lab(isolated: Probe, folder: Path) -> Iterator[Lab]:
    lab = Lab(isolated, folder)
    lab.mount("noatime")
    yield lab
    lab.take_down()
