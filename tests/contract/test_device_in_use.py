"""A disk in use does not become a lab, and nobody can take a disk that is a lab."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from refusing import mapped_linearly, mounted, partition, refused
from stand_in import MIB, StandIn, place_on, run

from iotrial.errors import RequestError
from iotrial.lab.journal import Journal
from iotrial.probe.client import Probe

pytestmark = pytest.mark.root
#: without parts that the kernel writes later, while the disk is compared with what it was
MKFS = ("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0")
#: bytes of ten pages of swap without the first one, its header
SWAP = range(4096, 40960)


def test_a_mounted_disk_is_refused_and_where_it_is_mounted_is_said(disk: StandIn, tmp_path: Path) -> None:
    run(*MKFS, disk.path)
    with mounted(disk.path, tmp_path / "m"):
        assert f"mounted on {tmp_path}/m (seen by process " in refused(disk, tmp_path)


def test_a_disk_mounted_in_another_mount_namespace_is_refused(disk: StandIn, tmp_path: Path) -> None:
    run(*MKFS, disk.path)
    (tmp_path / "m").mkdir()
    script = f"mount {disk.path} {tmp_path}/m && sync -f {tmp_path}/m && echo there && exec sleep 600"
    other = subprocess.Popen(["unshare", "--mount", "sh", "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "there\n"
        assert f"mounted on {tmp_path}/m (seen by process {other.pid} (sleep))" in refused(disk, tmp_path)
    finally:
        other.kill()
        other.communicate()


def test_a_disk_whose_mount_was_taken_away_while_a_file_is_open_is_refused(
    disk: StandIn, tmp_path: Path
) -> None:
    run(*MKFS, disk.path)
    folder = tmp_path / "m"
    folder.mkdir()
    run("mount", "--read-only", disk.path, str(folder))
    held = os.open(folder, os.O_RDONLY)
    run("umount", "--lazy", str(folder))  # gone from all mount tables; the file system is still active
    try:
        assert "in use" in refused(disk, tmp_path) or "claim" in refused(disk, tmp_path)
    finally:
        os.close(held)


def test_a_disk_with_a_mounted_partition_is_refused(disk: StandIn, tmp_path: Path) -> None:
    with partition(disk) as part:
        run(*MKFS, part)
        with mounted(part, tmp_path / "m"):
            assert f"mounted on {tmp_path}/m" in refused(disk, tmp_path)


def test_a_disk_with_a_partition_is_refused_though_nothing_is_in_it(disk: StandIn, tmp_path: Path) -> None:
    with partition(disk):
        assert f"has partitions ({disk.name}p1)" in refused(disk, tmp_path)


def test_a_partition_is_refused(disk: StandIn, tmp_path: Path) -> None:
    with partition(disk) as part:
        assert "is a partition; use a whole disk" in refused(disk, tmp_path, path=part)


def test_swap_is_refused_and_named(disk: StandIn, tmp_path: Path) -> None:
    """The area has the smallest size that mkswap(8) accepts: the kernel may write to all but its first page at any time."""
    run("mkswap", disk.path, str(SWAP.stop >> 10))
    run("swapon", disk.path)
    try:
        assert f"{disk.path} is swap" in refused(disk, tmp_path, apart_from=SWAP)
    finally:
        run("swapoff", disk.path)


def test_a_disk_that_somebody_else_has_claimed_is_refused(disk: StandIn, tmp_path: Path) -> None:
    holder = os.open(disk.path, os.O_RDONLY | os.O_EXCL)
    try:
        assert f"open in process {os.getpid()}" in refused(disk, tmp_path)
    finally:
        os.close(holder)


def test_a_disk_that_a_program_has_open_without_claiming_it_is_refused(disk: StandIn, tmp_path: Path) -> None:
    # an O_EXCL claim does not detect this: a virtual machine writes to its disk this way
    holder = os.open(disk.path, os.O_RDWR)
    try:
        assert f"in use: open in process {os.getpid()}" in refused(disk, tmp_path)
    finally:
        os.close(holder)


def test_a_disk_under_another_loop_device_is_refused(disk: StandIn, tmp_path: Path) -> None:
    above = run("losetup", "--show", "--find", disk.path).strip()
    try:
        assert f"{above.removeprefix('/dev/')} is attached to it" in refused(disk, tmp_path)
    finally:
        run("losetup", "--detach", above)


def test_a_second_disk_of_a_mounted_btrfs_is_refused(attach: Callable[..., StandIn], tmp_path: Path) -> None:
    # a btrfs mount has its own device number and names only the first disk
    first, second = attach("other.img", 128 * MIB), attach("disk.img", 128 * MIB)
    run("mkfs.btrfs", "-q", "-K", first.path, second.path)
    with mounted(first.path, tmp_path / "m"):
        assert f"{second.name} is part of the mounted btrfs" in refused(second, tmp_path)


@pytest.mark.skipif(
    "device-mapper" not in Path("/proc/devices").read_text(), reason="this kernel has no device mapper"
)
def test_a_disk_below_the_device_mapper_is_refused(disk: StandIn, tmp_path: Path) -> None:
    with mapped_linearly(disk.path):
        assert "is part of dm-" in refused(disk, tmp_path)


def test_while_a_lab_is_on_it_nobody_else_can_claim_or_format_it(disk: StandIn, tmp_path: Path) -> None:
    with place_on(disk.path, Journal(tmp_path / "journal")) as place:
        place.open()
        _cannot_be_taken(disk)
        with (
            place_on(disk.path, Journal(tmp_path / "second")) as second,
            pytest.raises(RequestError, match="in use"),
        ):
            second.open()
        place._unmount()
        _cannot_be_taken(disk)
        (tmp_path / "m").mkdir()
        done = subprocess.run(["mount", disk.path, str(tmp_path / "m")], capture_output=True, check=False)
        assert done.returncode != 0


def _cannot_be_taken(disk: StandIn) -> None:
    with pytest.raises(OSError, match="busy"):
        os.open(disk.path, os.O_RDONLY | os.O_EXCL)
    for argv in ([*MKFS, "-F", disk.path], ["mkswap", disk.path]):
        assert subprocess.run(argv, capture_output=True, check=False).returncode != 0


def test_the_claim_ends_with_the_probe(disk: StandIn) -> None:
    probe = Probe(isolate=True)
    probe.call("device_claim", path=disk.path)
    probe.kill()

    def free() -> bool:
        try:
            os.close(os.open(disk.path, os.O_RDONLY | os.O_EXCL))
        except OSError:
            return False
        return True

    # the inner process ends a moment after the outer one
    end = time.monotonic() + 10
    while not free() and time.monotonic() < end:
        time.sleep(0.02)
    assert free()
