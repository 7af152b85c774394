"""What recovery says of a disk: mounted, repaired, in need of repair, or with things missing."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from iotrial.errors import LabError
from iotrial.lab.target import Target
from iotrial.powercut.disk import over_image
from iotrial.powercut.recover import Check, Findings, Outcome, Recovery
from iotrial.probe.client import Probe

pytestmark = [
    pytest.mark.root,
    pytest.mark.alone,
]  # attaching changes a loop device's read-ahead for a moment


@pytest.fixture
def target() -> Iterator[Target]:
    with Probe(isolate=True) as probe:
        yield Target(probe)


@pytest.fixture
def image() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="iotrial-cut-", dir="/dev/shm") as folder:
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
