"""Journal, records and a followed log on a disk that is full at each of their writes: nothing is changed unrecorded, and
all comes back."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from machine_trees import FakeMachine, image, tree
from test_applied import arm, disarm, record_of

from iotrial.errors import LabError
from iotrial.lab.journal import Journal
from iotrial.live.sources import MetricLost
from iotrial.live.sources.followed_log import Follower
from iotrial.tune.applied import Records, apply, keep, revert

pytestmark = pytest.mark.root

PAGE = 4096


@contextmanager
def small(folder: Path, pages: int) -> Iterator[None]:
    """Mount a file system of some pages of memory over a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    options = f"size={pages * PAGE},mode=0755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "iotrial-test", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def fill(folder: Path, *, free_pages: int) -> Path:
    """Fill a file system but for some pages; return the file that fills it."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(PAGE)):
                pass
        except OSError:
            pass
        file.truncate(max(0, file.tell() - free_pages * PAGE))
    return ballast


@pytest.mark.parametrize("full", ["etc", "var"])
def test_apply_keep_and_revert_on_a_full_disk_end_as_before(disk_folder: Path, full: str) -> None:
    """The disk of the files, or that of the records, is full after 0 to 15 pages; later there is space again."""
    failed, reasons = set(), list[str]()
    for free_pages in range(16):
        root = disk_folder / f"{full}{free_pages}"
        with small(root / full, 96):
            tree(root)
            before = image(root)
            ballast = fill(root / full, free_pages=free_pages)
            machine = FakeMachine(root)
            records = Records(machine)
            try:
                pending = apply(records, record_of(machine), functools.partial(arm, machine))
                keep(records, pending, functools.partial(disarm, machine))
            except LabError as error:
                failed.add(free_pages)
                reasons.append(error.message)
            for one in records.all():  # tried while there is none
                revert(records, one, why="test")
            ballast.unlink()
            for one in records.all():
                if one.in_force:
                    assert not revert(records, one, why="test").problems
            assert image(root) == before, free_pages
    assert failed
    assert 15 not in failed
    assert all("No space left" in reason for reason in reasons)


def test_a_journal_on_a_full_disk_refuses_the_change_and_keeps_what_it_has(disk_folder: Path) -> None:
    refused, reasons = set(), list[str]()
    for free_pages in range(8):
        folder = disk_folder / f"journal{free_pages}"
        with small(folder, 16):
            first = Journal(folder / "journal").record("k", {"path": "/a"}, "1", ["2"])
            ballast = fill(folder, free_pages=free_pages)
            journal, kept = Journal(folder / "journal"), [first]
            for number in range(4):
                try:
                    kept.append(journal.record("k", {"path": f"/{number}"}, "1", ["2"]))
                except LabError as error:
                    refused.add(free_pages)
                    reasons.append(error.message)
            assert Journal(folder / "journal").read() == (tuple(kept), ())
            for entry in kept:
                Journal(folder / "journal").drop(entry)
            assert not any(Journal(folder / "journal").read())
            ballast.unlink()
    assert refused == {0, 1, 2, 3}
    assert all("No space left" in reason for reason in reasons)


def test_a_followed_log_on_a_full_disk_is_lost_and_no_cut_line_is_a_value(disk_folder: Path) -> None:
    """The service's last line is cut off in its number, and its next one is joined to it."""
    root = disk_folder / "log"
    with small(root, 16):
        path = root / "log"
        line = b"took 12345 ms\n"
        path.write_bytes(b"x" * (PAGE - len(b"took 12")))
        with closing(Follower(str(path))) as follower, path.open("ab", buffering=0) as log:
            assert follower.lines() == []
            ballast = fill(root, free_pages=0)
            assert log.write(line) == len(b"took 12")
            for _ in range(2):
                with pytest.raises(MetricLost, match="its file system is full"):
                    follower.lines()
            with (
                pytest.raises(MetricLost, match="its file system is full"),
                closing(Follower(str(path))) as again,
            ):
                again.lines()  # a trial that lost its metric does not begin again
            ballast.unlink()
            assert follower.lines() == []
            log.write(line)
            assert follower.lines() == []
            log.write(line)
            assert follower.lines() == [line.rstrip()]
