"""iotrial under its own power cuts, in short; the long runs are benchmarks/powercut/itself.py."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from iotrial.lab.target import Target
from iotrial.powercut.states import Cache

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "powercut"))

import itself
import laboratory

pytestmark = [
    pytest.mark.root,
    pytest.mark.alone,
]  # attaching changes a loop device's read-ahead for a moment
#: btrfs keeps its superblock in 4 KiB, and does not mount if a disk of smaller sectors tears it
WHOLE_PAGES = Cache(sector_bytes=4096)


@pytest.fixture
def target() -> Iterator[Target]:
    with laboratory.lab() as target:
        yield target


@pytest.fixture
def at() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="iotrial-cut-"))
    yield folder
    folder.rmdir()


@pytest.mark.slow
@pytest.mark.parametrize("filesystem", ["ext4", "btrfs"])
def test_no_run_is_lost_and_all_is_undone(target: Target, at: Path, filesystem: str) -> None:
    tally = laboratory.tried(
        target, filesystem, itself.Trials(3), itself.check_trials, drawn=30, cache=WHOLE_PAGES, size_bytes=itself.SIZE, at=at
    )  # fmt: skip
    assert tally.acknowledged > 40
    assert tally.flushes > 80
    assert tally.bad == 0, tally.examples


@pytest.mark.slow
def test_a_live_trial_is_whole_and_restore_knows_what_the_boot_has_reset(target: Target, at: Path) -> None:
    tally = laboratory.tried(
        target, "ext4", itself.Live(3), itself.check_live, drawn=30, cache=WHOLE_PAGES, size_bytes=itself.SIZE, at=at
    )  # fmt: skip
    assert tally.acknowledged > 20
    assert tally.flushes > 30
    assert tally.bad == 0, tally.examples


@pytest.mark.slow
def test_settings_are_kept_or_taken_back(target: Target, at: Path) -> None:
    tally = laboratory.tried(
        target, "btrfs", itself.Settings(2), itself.check_settings, drawn=30, cache=WHOLE_PAGES, size_bytes=itself.SIZE, at=at
    )  # fmt: skip
    assert tally.acknowledged > 8
    assert tally.bad == 0, tally.examples
