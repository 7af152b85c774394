"""The power-cut laboratory finds planted losses and nothing else, and says what it found.

The long runs, with 10,000 states of each file system, are benchmarks/powercut.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from iotrial.errors import LabError
from iotrial.lab.target import Target
from iotrial.powercut.disk import over_image
from iotrial.powercut.log import ENTRY, FLUSH, MARK, SUPERBLOCK, WriteLog
from iotrial.powercut.record import record
from iotrial.powercut.recover import Check, Findings, Outcome, Recovery

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "powercut"))

import laboratory
from acknowledging import Checking, Mistakes, Working

pytestmark = pytest.mark.root
WORKERS, OPERATIONS = 2, 25
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
    assert tally.bad == 0, tally.examples


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
    assert set(tally.verdicts) <= {"clean", "lost acknowledged"}


def without_flushes(log: Path) -> None:
    """Turn the flushes of a log into marks without text: a disk that takes no notice of them."""
    content = bytearray(log.read_bytes())
    count, sector = SUPERBLOCK.unpack_from(content)[2:]
    at = sector
    for _ in range(count):
        _first, sectors, flags, _inline = ENTRY.unpack_from(content, at)
        if flags == FLUSH:
            ENTRY.pack_into(content, at, 0, 0, MARK, 0)
        at += sector * (1 + sectors)
    log.write_bytes(content)


@pytest.mark.slow
def test_a_disk_that_ignores_flushes_loses_what_correct_work_acknowledged(
    target: Target, tmp_path: Path
) -> None:
    """ext4 without discards: each entry of the log has its data."""
    log = tmp_path / "log"
    record(target, log, "ext4", laboratory.SIZES["ext4"], Working(WORKERS, OPERATIONS))
    without_flushes(log)
    with WriteLog(log) as read:
        tally = laboratory.counted(target, read, "ext4", Checking(WORKERS, OPERATIONS), drawn=60)
    assert tally.bad > 30
    assert tally.verdicts["lost acknowledged"] > 10


# -- what recovery says of a disk


@pytest.fixture
def image() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="iotrial-cut-", dir=laboratory.MEMORY) as folder:
        path = Path(folder) / "image"
        with path.open("wb") as file:
            file.truncate(256 << 20)  # with copies of the superblock
        subprocess.run(["mkfs.ext4", "-q", "-F", "-b", "4096", path], check=True)
        yield path


def nothing_missing(root: Path, acknowledged: Sequence[str]) -> Findings:
    return Findings(lost=tuple(name for name in acknowledged if not (root / name).exists()))


def recovered(
    target: Target,
    image: Path,
    check: Check = nothing_missing,
    *,
    acknowledged: Sequence[str] = (),
    limit_s: float = 20,
) -> Outcome:
    with (
        over_image(target, image) as disk,
        Recovery(disk.path, "ext4", check, fsck_every=1, limit_s=limit_s) as recovery,
    ):
        return recovery.recover(acknowledged)


def test_a_sound_file_system_is_clean_and_what_is_missing_is_named(target: Target, image: Path) -> None:
    outcome = recovered(target, image, acknowledged=["lost+found", "mail", "more"])
    assert (outcome.mounted, outcome.needs_fsck, outcome.lost) == (True, False, ("mail", "more"))
    assert outcome.verdict == "lost acknowledged"
    assert recovered(target, image).verdict == "clean"


def test_the_check_may_write_and_the_image_stays_as_it_is(target: Target, image: Path) -> None:
    before = image.read_bytes()

    def writing(root: Path, acknowledged: Sequence[str]) -> Findings:
        found = (root / "new").exists()
        (root / "new").write_bytes(b"x" * 100_000)
        return Findings(corrupt=("it was there",) if found else ())

    with over_image(target, image) as disk, Recovery(disk.path, "ext4", writing) as recovery:
        verdicts = []
        for _ in range(3):
            verdicts.append(recovery.recover(()).verdict)
            disk.forget()
        assert verdicts == ["clean"] * 3
        assert recovery.recover(()).verdict == "clean"
        assert recovery.recover(()).verdict == "corrupt"  # nothing was forgotten in between
    assert image.read_bytes() == before


def test_a_damaged_superblock_does_not_mount_and_is_repaired_for_the_check(
    target: Target, image: Path
) -> None:
    with image.open("r+b") as file:
        file.seek(1024)
        file.write(bytes(1024))
    outcome = recovered(target, image, acknowledged=["lost+found", "mail"])
    assert (outcome.mounted, outcome.needs_fsck, outcome.lost) == (False, True, ("mail",))
    assert outcome.verdict == "does not mount"
    assert "Invalid argument" in outcome.says
    assert "e2fsck" in outcome.says


def test_where_nothing_can_be_repaired_all_is_lost(target: Target, image: Path) -> None:
    with image.open("r+b") as file:
        for _ in range(256):
            file.write(bytes(1 << 20))
    outcome = recovered(target, image, acknowledged=["a", "b"])
    assert (outcome.mounted, outcome.lost) == (False, ("a", "b"))


def test_a_block_in_use_that_is_marked_free_needs_fsck(target: Target, image: Path) -> None:
    """The kernel does not look for it at mount, fsck does."""
    shown = subprocess.run(["dumpe2fs", image], capture_output=True, text=True, check=True).stdout
    used = shown.partition("Inode table at ")[2].partition("-")[0]
    subprocess.run(["debugfs", "-w", "-R", f"freeb {used}", image], check=True, capture_output=True)
    outcome = recovered(target, image)
    assert (outcome.mounted, outcome.needs_fsck, outcome.verdict) == (True, True, "needs fsck")
    assert "ended with 4" in outcome.says


def unreadable(root: Path, acknowledged: Sequence[str]) -> Findings:
    raise OSError(5, "Input/output error")


def hanging(root: Path, acknowledged: Sequence[str]) -> Findings:
    time.sleep(60)
    return Findings()


@pytest.mark.parametrize(("check", "says"), [(unreadable, "Input/output error"), (hanging, "did not end")])
def test_a_check_that_cannot_read_or_hangs_has_found_damage(
    target: Target, image: Path, check: Callable[..., Findings], says: str
) -> None:
    outcome = recovered(target, image, check, limit_s=1)
    assert outcome.verdict == "corrupt"
    assert says in outcome.corrupt[0]
    assert recovered(target, image).verdict == "clean"


def test_a_check_with_a_bug_is_an_error_and_no_finding(target: Target, image: Path) -> None:
    def wrong(root: Path, acknowledged: Sequence[str]) -> Findings:
        raise KeyError("bug")

    with pytest.raises(LabError, match="KeyError: 'bug'"):
        recovered(target, image, wrong)


def test_work_that_fails_is_an_error_of_the_recording(target: Target, tmp_path: Path) -> None:
    def failing(root: Path, marker: object) -> None:
        raise RuntimeError("no such workload")

    with pytest.raises(LabError, match="no such workload"):
        record(target, tmp_path / "log", "ext4", 64 << 20, failing)
