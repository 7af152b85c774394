"""The power-cut laboratory finds planted losses and nothing else, and says what it found.

The long runs, with 10,000 states of each file system, are benchmarks/powercut.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from iotrial.errors import LabError
from iotrial.lab.target import Target
from iotrial.powercut.log import DISCARD, ENTRY, FLUSH, MARK, SUPERBLOCK, WriteLog
from iotrial.powercut.record import record

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "powercut"))

import laboratory
from acknowledging import Checking, Mistakes, Working

pytestmark = [
    pytest.mark.root,
    pytest.mark.alone,
]  # attaching changes a loop device's read-ahead for a moment
WORKERS, OPERATIONS = 2, 25
#: the largest share of states with a torn superblock: 1 in 10,000 on ext4, 1 in 44 for some works on btrfs
TORN = 1 / 20
FILESYSTEMS = sorted(laboratory.SIZES)


@pytest.fixture
def target() -> Iterator[Target]:
    with laboratory.lab() as target:
        yield target


def cut(target: Target, filesystem: str, mistakes: Mistakes, drawn: int) -> laboratory.Tally:
    return laboratory.tried(
        target, filesystem, Working(WORKERS, OPERATIONS, mistakes), Checking(WORKERS, OPERATIONS), drawn=drawn, fsck_every=25
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("filesystem", FILESYSTEMS)
def test_correct_work_loses_nothing(target: Target, filesystem: str) -> None:
    tally = cut(target, filesystem, Mistakes(), 150)
    assert tally.acknowledged == WORKERS * OPERATIONS
    assert tally.drawn == 150
    assert tally.flushes > OPERATIONS
    # a superblock that is torn between its sectors keeps ext4 and btrfs from mounting until their checker has repaired it
    assert set(tally.verdicts) <= {"clean", "does not mount"}, tally.examples
    assert tally.verdicts["does not mount"] <= TORN * tally.points, tally.examples


@pytest.mark.slow
@pytest.mark.parametrize("filesystem", FILESYSTEMS)
@pytest.mark.parametrize(
    "mistakes",
    [Mistakes(acknowledges_before_fsync=True), Mistakes(no_fsync_of_folder=True)],
    ids=["acknowledges before fsync", "no fsync of the folder"],
)
def test_a_planted_mistake_is_found(target: Target, filesystem: str, mistakes: Mistakes) -> None:
    tally = cut(target, filesystem, mistakes, 60)
    assert tally.verdicts["lost acknowledged"] > 0
    assert set(tally.verdicts) <= {"clean", "lost acknowledged", "does not mount"}


def without_flushes(log: Path) -> None:
    """Turn the flushes of a log into marks without text: a disk that takes no notice of them."""
    content = bytearray(log.read_bytes())
    count, sector = SUPERBLOCK.unpack_from(content)[2:]
    at = sector
    for _ in range(count):
        _first, sectors, flags, _inline = ENTRY.unpack_from(content, at)
        if flags == FLUSH:
            ENTRY.pack_into(content, at, 0, 0, MARK, 0)
        at += sector * (1 if flags & DISCARD else 1 + sectors)
    log.write_bytes(content)


@pytest.mark.slow
def test_a_disk_that_ignores_flushes_loses_what_correct_work_acknowledged(
    target: Target, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    record(target, log, "ext4", laboratory.SIZES["ext4"], Working(WORKERS, OPERATIONS))
    without_flushes(log)
    with WriteLog(log) as read:
        tally = laboratory.counted(target, read, "ext4", Checking(WORKERS, OPERATIONS), drawn=60)
    assert tally.bad > 30
    assert tally.verdicts["lost acknowledged"] > 0


def test_work_that_fails_is_an_error_of_the_recording(target: Target, tmp_path: Path) -> None:
    def failing(root: Path, marker: object) -> None:
        raise RuntimeError("no such workload")

    with pytest.raises(LabError, match="no such workload"):
        record(target, tmp_path / "log", "ext4", 64 << 20, failing)
