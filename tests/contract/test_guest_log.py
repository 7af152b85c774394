"""A guest's disk that logs: what the guest's kernel flushes is in the log before what it acknowledges."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from iotrial.guest.initramfs import Needs
from iotrial.guest.machine import DiskImage
from iotrial.guest.place import disk_with_serial
from iotrial.lab.target import Target
from iotrial.powercut.disk import CutDisk, logged, over_image
from iotrial.powercut.log import WriteLog
from iotrial.powercut.rebuild import Rebuilder
from iotrial.powercut.recover import Findings, Recovery
from iotrial.powercut.states import cut_points
from iotrial.probe.client import Probe
from iotrial.runner.guest import Guest, GuestSpec

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.alone]  # as test_powercut.py
SIZE = 64 << 20
NEEDS = Needs(
    modules=frozenset({"ext4"}),
    packages=frozenset({"e2fsprogs", "coreutils", "dash"}),
    programs=frozenset({"mkfs.ext4", "dd"}),
)


@pytest.fixture
def memory() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="iotrial-cut-", dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder)


def work(disk: CutDisk, guest: Target) -> None:
    """Make a file system in the guest, write files with fsync, and mark each here, outside."""
    device = f"/dev/{disk_with_serial(guest, 'logged')}"
    made = guest.run(["mkfs.ext4", "-q", "-F", "-E", "nodiscard", device])
    assert made.exit_status == 0, made
    guest.call("mkdir", path="/run/cut", mode="0755")
    guest.mount(device, "/run/cut", "ext4", [])
    guest.call("sync")
    disk.mark("begun")
    for number in range(12):
        done = guest.run(
            ["dd", "if=/dev/urandom", f"of=/run/cut/f{number}", "bs=20000", "count=1", "conv=fsync"]
        )
        assert done.exit_status == 0, done
        disk.mark(f"f{number}")
    # the guest ends here: QEMU is killed, nothing is unmounted


def test_a_guests_disk_can_be_cut_at_every_flush(memory: Path, guests: Path, disk_folder: Path) -> None:
    log = memory / "log"
    with Probe(isolate=True) as probe, logged(Target(probe), SIZE, log) as disk:
        spec = GuestSpec(disk_folder, [DiskImage("logged", SIZE, disk.path)], NEEDS)
        with Guest(spec, store=guests) as guest, guest.start() as inner:
            work(disk, Target(inner))
        with open(disk.path, "rb") as device:  # noqa: PTH123
            left = device.read()
    image = memory / "image"
    with WriteLog(log) as read, Rebuilder(read, image, SIZE) as rebuilder, Probe(isolate=True) as probe:
        rebuilder.advance(len(read))
        assert image.read_bytes() == left
        points = list(cut_points(read, "0" * 32, 60, after=read.marked("begun") + 1))
        assert sum(point.kind == "flush" for point in points) >= 12
        assert max(len(point.acknowledged_before) for point in points) == 12
        with (
            over_image(Target(probe), image) as shown,
            Recovery(shown.path, "ext4", missing, fsck_every=10) as recovery,
        ):
            for point in points:
                shown.forget()
                rebuilder.build(point)
                outcome = recovery.recover(point.acknowledged_before)
                assert outcome.verdict == "clean", (point, outcome)


def missing(root: Path, acknowledged: Sequence[str]) -> Findings:
    return Findings(lost=tuple(name for name in acknowledged if not _whole(root / name)))


def _whole(path: Path) -> bool:
    return path.exists() and path.stat().st_size == 20_000
