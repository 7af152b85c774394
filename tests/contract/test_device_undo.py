"""After SIGKILL at any step, `restore` finds the disk by its serial number, inspects it, and clears only what
belongs to the lab."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from stand_in import LAB, MIB, SERIAL, StandIn, place_on, replace_look_up, run

from iotrial.errors import TargetError
from iotrial.knobs.knob import Undone
from iotrial.lab import disk_identity
from iotrial.lab.journal import Journal
from iotrial.lab.restore import Restored, restore
from iotrial.lab.target import Target
from iotrial.probe.client import Probe

pytestmark = pytest.mark.root

CHILD = Path(__file__).parent / "device_child.py"


@pytest.fixture
def disk(disk_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    monkeypatch.setattr(disk_identity, "names_of", disk_identity.names_of)
    replace_look_up({disk_folder / "disk.img": SERIAL})
    disk = StandIn(disk_folder, "disk.img")
    yield disk
    disk.detach()
    disk.file.unlink()


def killed(
    journal: Journal, disk: StandIn, verb: str, number: int, when: str, *, path: str | None = None
) -> None:
    """Run a conductor that is killed at this step; with ``path`` "restore", a restore."""
    words = [str(journal.folder), path or disk.path, disk.named, verb, str(number), when]
    done = subprocess.run(
        [sys.executable, str(CHILD), *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def put_back(journal: Journal) -> dict[str, Restored]:
    with Probe(isolate=False) as probe:
        return {done.entry.knob: done for done in restore(journal, Target(probe))}


#: verb, number of its call, when, and the outcome that `restore` then reports for the disk; steps between two
#: others are long
STEPS = [
    ("device_mark", 1, "before", Undone.ALREADY),
    ("device_mark", 1, "after", Undone.RESTORED),
    pytest.param("loop_attach", 1, "after", Undone.RESTORED, marks=pytest.mark.long),
    ("run", 2, "after", Undone.RESTORED),  # mkfs; call 1 was blkid
    pytest.param("device_release", 1, "after", Undone.RESTORED, marks=pytest.mark.long),
    pytest.param("mount", 1, "after", Undone.RESTORED, marks=pytest.mark.long),
    ("syncfs", 1, "after", Undone.RESTORED),
    pytest.param("device_reclaim", 1, "before", Undone.RESTORED, marks=pytest.mark.long),
    pytest.param("device_zero", 1, "before", Undone.RESTORED, marks=pytest.mark.long),
    ("device_zero", 1, "after", Undone.RESTORED),
    ("device_zero", 2, "after", Undone.ALREADY),
]


@pytest.mark.parametrize(("verb", "number", "when", "outcome"), STEPS)
def test_a_conductor_that_is_killed_at_any_step_leaves_a_disk_that_restore_empties(
    verb: str, number: int, when: str, outcome: Undone, disk: StandIn, tmp_path: Path
) -> None:
    journal = Journal(tmp_path / "journal")
    killed(journal, disk, verb, number, when)
    assert "lab.device" in {entry.knob for entry in journal.pending()}
    assert put_back(journal)["lab.device"].outcome is outcome
    assert disk.empty
    assert journal.pending() == ()
    assert put_back(journal) == {}
    os.close(os.open(disk.path, os.O_RDONLY | os.O_EXCL))


def test_a_restore_that_is_killed_at_any_step_can_be_repeated(disk: StandIn, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    killed(journal, disk, "syncfs", 1, "after")
    for verb, number, when in (
        ("device_claim", 1, "after"),
        ("run", 1, "after"),
        ("device_zero", 1, "before"),
        ("device_zero", 1, "after"),
        ("device_zero", 2, "after"),
    ):
        killed(journal, disk, verb, number, when, path="restore")
        assert journal.pending() != ()
    assert put_back(journal)["lab.device"].outcome is Undone.ALREADY
    assert disk.empty


@pytest.mark.long
def test_a_conductor_that_is_killed_at_any_moment_leaves_a_disk_that_restore_empties(
    disk: StandIn, tmp_path: Path
) -> None:
    journal = Journal(tmp_path / "journal")
    words = [str(journal.folder), disk.path, disk.named, "none", "1", "before"]
    drawn = random.Random(11)
    met: Counter[str] = Counter()
    for _ in range(100):
        child = subprocess.Popen([sys.executable, str(CHILD), *words])
        while not list(journal.folder.glob("*.entry")) and child.poll() is None:
            time.sleep(0.001)
        time.sleep(drawn.uniform(0, 0.07))
        child.kill()
        child.wait()
        done = put_back(journal)
        met[done["lab.device"].outcome.name if "lab.device" in done else "nothing to do"] += 1  # type: ignore[union-attr]
        assert disk.empty
        assert journal.pending() == ()
    print(dict(met))  # visible with pytest -s
    assert met["RESTORED"] > 20


@pytest.fixture
def cut_off(disk: StandIn, tmp_path: Path) -> Journal:
    """Return the journal of a conductor that was killed while its file system was in use."""
    journal = Journal(tmp_path / "journal")
    killed(journal, disk, "syncfs", 1, "after")
    return journal


@pytest.mark.parametrize(
    "argv",
    [("mkfs.ext4", "-q", "-F"), ("mkswap", "-f"), ("mkfs.btrfs", "-q", "-f", "-M")],
    ids=["ext4", "swap", "btrfs"],
)
def test_what_somebody_has_made_over_it_since_is_not_touched(
    argv: tuple[str, ...], disk: StandIn, cut_off: Journal
) -> None:
    _wait_until_free(disk)
    run(*argv, disk.path)
    run("blockdev", "--flushbufs", disk.path)
    before = disk.digest()
    done = put_back(cut_off)["lab.device"]
    assert done.outcome is Undone.FOREIGN
    assert done.kept
    assert disk.digest() == before
    assert [entry.knob for entry in cut_off.pending()] == ["lab.device"]


def test_a_file_system_made_anew_is_not_touched_even_where_the_mark_still_stands(
    disk: StandIn, cut_off: Journal
) -> None:
    _wait_until_free(disk)
    run("mkfs.ext4", "-q", "-F", "-E", "nodiscard", disk.path, f"{LAB >> 10}k")
    assert disk.bytes_at(LAB, 11) == b"iotrial lab"
    before = disk.digest()
    assert put_back(cut_off)["lab.device"].outcome is Undone.FOREIGN
    assert disk.digest() == before


def test_data_without_signature_over_a_finished_lab_is_not_touched(disk: StandIn, cut_off: Journal) -> None:
    _wait_until_free(disk)
    disk.put(0, b"somebody's raw data" * 10_000)
    before = disk.digest()
    assert put_back(cut_off)["lab.device"].outcome is Undone.FOREIGN
    assert disk.digest() == before


def test_data_over_the_mark_alone_is_not_touched(disk: StandIn, cut_off: Journal) -> None:
    _wait_until_free(disk)
    disk.put(LAB, b"somebody's raw data")
    before = disk.digest()
    assert put_back(cut_off)["lab.device"].outcome is Undone.FOREIGN
    assert disk.digest() == before


def test_a_disk_that_its_user_has_emptied_already_is_done(disk: StandIn, cut_off: Journal) -> None:
    _wait_until_free(disk)
    run("blkdiscard", "--zeroout", disk.path)
    assert put_back(cut_off)["lab.device"].outcome is Undone.ALREADY
    assert cut_off.pending() == ()


def test_a_disk_that_is_not_there_is_kept_and_found_again_under_another_name(
    disk: StandIn, cut_off: Journal, disk_folder: Path
) -> None:
    _wait_until_free(disk)
    first = disk.name
    disk.detach()
    missing = put_back(cut_off)["lab.device"]
    assert missing.kept
    assert "expected one, found none" in str(missing.problem)
    other = StandIn(disk_folder, "other.img", MIB)  # takes the loop device's number
    try:
        disk.attach()
        assert disk.name != first
        assert put_back(cut_off)["lab.device"].outcome is Undone.RESTORED
        assert disk.empty
    finally:
        other.detach()
        other.file.unlink()


def test_a_disk_that_is_in_use_is_kept_and_its_user_named(
    disk: StandIn, cut_off: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iotrial.lab.objects.device.GIVEN_UP_WITHIN_S", 0.1)
    _wait_until_free(disk)
    (tmp_path / "m").mkdir()
    run("mount", disk.path, str(tmp_path / "m"))
    done = put_back(cut_off)["lab.device"]
    run("umount", str(tmp_path / "m"))
    assert f"mounted on {tmp_path}/m" in str(done.problem)
    assert put_back(cut_off)["lab.device"].outcome is Undone.RESTORED
    assert disk.empty


def test_a_lab_that_root_has_mounted_too_is_emptied_only_when_that_mount_is_gone(
    disk: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the kernel lets root mount a mounted file system once more
    monkeypatch.setattr("iotrial.lab.objects.device.GIVEN_UP_WITHIN_S", 0.1)
    journal, folder = Journal(tmp_path / "journal"), tmp_path / "m"
    folder.mkdir()

    def trial() -> None:
        with place_on(disk.path, journal) as place:
            place.open()
            run("mount", disk.path, str(folder))

    with pytest.raises(TargetError, match=f"in use: mounted on {folder}"):
        trial()
    (folder / "theirs").write_text("something")
    assert f"mounted on {folder}" in str(put_back(journal)["lab.device"].problem)
    assert (folder / "theirs").read_text() == "something"
    run("umount", str(folder))
    assert put_back(journal)["lab.device"].outcome is Undone.RESTORED
    assert disk.empty


def _wait_until_free(disk: StandIn) -> None:
    for _ in range(500):
        try:
            os.close(os.open(disk.path, os.O_RDONLY | os.O_EXCL))
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise AssertionError(f"{disk.path} is still held")
