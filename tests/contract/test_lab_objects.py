"""Contract test of every kind of lab object: recorded before it is created, undone from its entry alone,
twice."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from iotrial.errors import LabError
from iotrial.knobs.knob import Undone
from iotrial.lab import host, registry
from iotrial.lab.journal import Journal
from iotrial.lab.lock import MachineLock
from iotrial.lab.objects.loop import LabLoop
from iotrial.lab.objects.path import LabPath
from iotrial.lab.restore import restore
from iotrial.lab.target import Target
from iotrial.probe.client import Probe
from own_loop import own_loop

LONG_AGO = 10**18 + 7


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


@pytest.fixture
def target() -> Iterator[Target]:
    with Probe(isolate=False) as probe:
        yield Target(probe)


@pytest.fixture
def home(disk_folder: Path) -> Iterator[Path]:
    """Yield a user's folder that was last changed long ago."""
    folder = disk_folder / "home-of-a-user"
    folder.mkdir()
    (folder / "letter").write_text("x")
    os.utime(folder, ns=(LONG_AGO, LONG_AGO))
    yield folder
    subprocess.run(["rm", "-r", folder], check=True)


def test_the_kinds_there_are() -> None:
    assert {"lab.path", "lab.loop", "lab.process"} <= set(registry.objects())


def test_a_folder_goes_with_all_it_holds_and_leaves_no_trace_in_the_time_of_its_folder(
    target: Target, journal: Journal, home: Path
) -> None:
    path = home / "iotrial-lab-0f"
    LabPath().make_folder(target, journal, str(path))
    (path / "deep" / "deeper").mkdir(parents=True)
    (path / "link").symlink_to(home / "letter")
    assert home.stat().st_mtime_ns != LONG_AGO
    assert [r.outcome for r in restore(journal, target)] == [Undone.RESTORED]
    assert [p.name for p in home.iterdir()] == ["letter"]
    assert home.stat().st_mtime_ns == LONG_AGO
    assert restore(journal, target) == ()


def test_what_somebody_else_has_changed_since_keeps_its_time(
    target: Target, journal: Journal, home: Path
) -> None:
    LabPath().make_folder(target, journal, str(home / "iotrial-lab-0f"))
    time.sleep(0.05)  # more than the two clock ticks within which both changes would have the same time
    (home / "reply").write_text("y")
    theirs = home.stat().st_mtime_ns
    restore(journal, target)
    assert home.stat().st_mtime_ns == theirs
    assert sorted(p.name for p in home.iterdir()) == ["letter", "reply"]


def test_a_folder_that_was_never_made_is_nothing_to_undo(
    target: Target, journal: Journal, home: Path
) -> None:
    LabPath().announce(target, journal, str(home / "iotrial-lab-0f"))
    assert [r.outcome for r in restore(journal, target)] == [Undone.ALREADY]
    assert home.stat().st_mtime_ns == LONG_AGO


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_what_is_there_already_is_refused_and_never_removed(
    target: Target, journal: Journal, home: Path, kind: str
) -> None:
    path = home / "iotrial-lab-0f"
    if kind == "folder":
        path.mkdir()
    elif kind == "file":
        path.write_text("theirs")
    else:
        path.symlink_to("letter")
    with pytest.raises(LabError, match="exists already"):
        LabPath().make_folder(target, journal, str(path))
    assert journal.pending() == ()
    assert os.path.lexists(path)


def test_who_makes_the_folder_between_the_look_and_the_making_keeps_it(
    target: Target, journal: Journal, home: Path
) -> None:
    class Race:
        """Somebody else makes the folder just before our request arrives."""

        name = "a race"

        def call(self, verb: str, **fields: object) -> dict[str, object]:
            if verb == "mkdir":
                Path(str(fields["path"])).mkdir()
                (Path(str(fields["path"])) / "theirs").write_text("x")
            return target.call(verb, **fields)

    with pytest.raises(LabError, match="another program created it"):
        LabPath().make_folder(Target(Race()), journal, str(home / "iotrial-lab-0f"))
    assert journal.pending() == ()
    assert restore(journal, target) == ()
    assert (home / "iotrial-lab-0f" / "theirs").read_text() == "x"


@pytest.mark.root
@pytest.mark.alone  # the device must be free at restore
def test_a_loop_device_that_is_still_mounted_somewhere_keeps_its_entry_and_names_who(
    target: Target, journal: Journal, disk_folder: Path
) -> None:
    with MachineLock(), Probe(isolate=True) as probe:
        isolated = Target(probe)
        image = isolated.call("image", folder=str(disk_folder), size=32 << 20, fill="write")
        boot = host.boot_id(target)
        loop = LabLoop().attach(isolated, journal, image["image"], image["inode"], boot_id=boot)
        assert Path(f"/sys/block/{loop.device}/loop/backing_file").exists()
        isolated.run(["mkfs.ext4", "-q", f"/dev/{loop.device}"])
        isolated.mount(f"/dev/{loop.device}", "/mnt", "ext4", [])
        undo = LabLoop()
        undo.cleared_within_s = 0.2
        (entry,) = journal.pending()
        with pytest.raises(LabError, match=rf"{loop.device} still holds.*process \d+ \(ioprobe\)"):
            undo.undo(target, entry, journal)
        assert len(journal.pending()) == 1
    # mount and device go away with the probe
    assert [r.outcome for r in restore(journal, target)] in ([Undone.ALREADY], [Undone.RESTORED])
    assert not Path(f"/sys/block/{loop.device}/loop/backing_file").exists()


@pytest.mark.root
@pytest.mark.alone  # the device must be free at restore
def test_an_image_on_a_file_system_that_is_being_taken_away_is_still_ours(
    target: Target, journal: Journal, disk_folder: Path
) -> None:
    # after a kill: the probe's mount namespace ends, and the kernel shows the image's path without the mount point
    disk, mounted = disk_folder / "taken-away.disk", disk_folder / "taken-away"
    with disk.open("wb") as file:
        file.truncate(64 << 20)
    mounted.mkdir()
    with MachineLock(), own_loop(disk) as below:
        subprocess.run(["mkfs.ext4", "-q", f"/dev/{below}"], check=True)
        subprocess.run(["mount", f"/dev/{below}", mounted], check=True)
        image = target.call("image", folder=str(mounted), size=8 << 20, fill="write")
        boot = host.boot_id(target)
        loop = LabLoop().attach(target, journal, image["image"], image["inode"], boot_id=boot)
        queue = Path(f"/sys/block/{loop.device}/queue/nr_requests")
        shown = Path(f"/sys/block/{loop.device}/loop/backing_file")
        before, at_first = queue.read_text().strip(), shown.read_text().strip()
        wanted = "64" if before != "64" else "32"
        path, identity = {"path": str(queue)}, {"backing": at_first}
        journal.record("block.nr_requests", path, before, (wanted,), identity=identity, boot_id=boot)
        queue.write_text(wanted)
        subprocess.run(["umount", "--lazy", mounted], check=True)
        assert shown.read_text().strip() == at_first.removeprefix(str(mounted)) != at_first
        (result,) = restore(journal, target, spare={LabLoop.name})
        assert (result.outcome, queue.read_text().strip()) == (Undone.RESTORED, before)
        target.call("loop_detach", device=f"/dev/{loop.device}")
        assert not any(r.kept for r in restore(journal, target))


@pytest.mark.root
def test_a_device_that_holds_somebody_elses_file_by_now_is_left_alone(
    target: Target, journal: Journal, disk_folder: Path
) -> None:
    theirs = disk_folder / "theirs.img"
    theirs.write_bytes(bytes(1 << 20))
    with MachineLock():
        device = subprocess.run(
            ["losetup", "-f", "--show", theirs], capture_output=True, text=True, check=True
        ).stdout.strip()
        try:
            journal.record(
                "lab.loop",
                {"device": device.removeprefix("/dev/")},
                "absent",
                ("attached",),
                identity={"inode": "1", "node": "absent", "read_ahead_kb": "77"},
                boot_id=host.boot_id(target),
            )
            (result,) = restore(journal, target)
            assert result.outcome is Undone.FOREIGN
            assert str(theirs) in str(result.problem)
            assert result.kept, "the device that was added for the trial is still there"
            assert Path(f"/sys/block/{device[5:]}/loop/backing_file").read_text().strip() == str(theirs)
            assert Path(f"/sys/block/{device[5:]}/queue/read_ahead_kb").read_text() != "77\n"
        finally:
            subprocess.run(["losetup", "-d", device], check=True)


@pytest.mark.root
@pytest.mark.alone  # the same device must be free twice
def test_a_device_that_was_left_without_its_write_cache_has_it_for_the_lab(
    target: Target, journal: Journal, disk_folder: Path
) -> None:
    """Linux 6.18 keeps it from one image to the next, and then no sync of a file reaches the image."""
    theirs = disk_folder / "theirs.img"
    theirs.write_bytes(bytes(1 << 20))
    with MachineLock():
        words = ["losetup", "-f", "--show", theirs]
        device = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
        cache = Path(f"/sys/block/{device.removeprefix('/dev/')}/queue/write_cache")
        try:
            cache.write_text("write through")
            subprocess.run(["losetup", "-d", device], check=True)
            time.sleep(0.3)  # until the kernel has detached it
            image = target.call("image", folder=str(disk_folder), size=8 << 20, fill="write")
            boot = host.boot_id(target)
            loop = LabLoop().attach(target, journal, image["image"], image["inode"], boot_id=boot)
            assert f"/dev/{loop.device}" == device
            assert cache.read_text() == "write back\n"
            target.call("loop_detach", device=device)
            assert not any(result.kept for result in restore(journal, target))
            assert cache.read_text() == "write back\n"
        finally:
            cache.write_text("write back")
