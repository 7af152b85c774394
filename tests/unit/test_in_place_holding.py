"""Which mount, device and queues hold a folder: partitions, arrays and mappings are followed down to what queues requests.

The trees imitate /sys as the kernel lays it out (Documentation/ABI/testing/sysfs-block); tests/root has real devices.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from iotrial.errors import RequestError
from iotrial.lab.in_place import holding_of


class Sys:
    """A tree like /sys, and a mount table for one folder."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder = root / "sys", folder
        self.mounts = root / "mountinfo"
        for name in ("class/block", "dev/block", "block"):
            (self.root / name).mkdir(parents=True)

    def disk(self, name: str, number: str, *slaves: str) -> Path:
        made = self.root / "devices" / name
        (made / "slaves").mkdir(parents=True)
        self._link(made, name, number)
        for slave in slaves:
            (made / "slaves" / slave).symlink_to((self.root / "class/block" / slave).resolve())
        return made

    def partition(self, disk: Path, name: str, number: str) -> None:
        made = disk / name
        made.mkdir()
        (made / "partition").write_text("1\n")
        self._link(made, name, number)

    def _link(self, made: Path, name: str, number: str) -> None:
        (made / "dev").write_text(f"{number}\n")
        (self.root / "class/block" / name).symlink_to(made)
        (self.root / "dev/block" / number).symlink_to(made)

    def mounted(self, source: str, kind: str = "ext4", target: Path | None = None) -> None:
        line = (
            f"36 35 98:0 / {target or self.folder} rw,noatime master:1 - {kind} {source} rw,errors=continue\n"
        )
        self.mounts.write_text("20 1 0:1 / / rw - rootfs none rw\n" + line)


@pytest.fixture
def sys(tmp_path: Path) -> Sys:
    folder = tmp_path / "data"
    folder.mkdir()
    return Sys(tmp_path, folder)


def own_number(folder: Path) -> str:
    number = folder.stat().st_dev
    return f"{os.major(number)}:{os.minor(number)}"


def test_a_plain_disk(sys: Sys) -> None:
    sys.disk("sda", own_number(sys.folder))
    sys.mounted("/dev/sda")
    found = holding_of(str(sys.folder), sys=sys.root, mountinfo=sys.mounts)
    assert (found.device, found.whole, found.queues) == ("sda", "sda", ("sda",))
    assert found.mount.type == "ext4"
    assert found.described == f"ext4 on /dev/sda, mounted at {sys.folder}"


def test_a_partition_is_queued_by_its_disk(sys: Sys) -> None:
    disk = sys.disk("nvme0n1", "259:900")
    sys.partition(disk, "nvme0n1p2", own_number(sys.folder))
    sys.mounted("/dev/nvme0n1p2")
    found = holding_of(str(sys.folder), sys=sys.root, mountinfo=sys.mounts)
    assert (found.device, found.whole, found.queues) == ("nvme0n1p2", "nvme0n1", ("nvme0n1",))
    assert "requests are queued by nvme0n1" in found.described


def test_a_logical_volume_on_an_array_of_partitions(sys: Sys) -> None:
    for name, number in (("sda", "8:900"), ("sdb", "8:916")):
        disk = sys.disk(name, number)
        sys.partition(disk, f"{name}1", f"{number}1")
    sys.disk("md0", "9:900", "sda1", "sdb1")
    sys.disk("dm-0", own_number(sys.folder), "md0")
    sys.mounted("/dev/mapper/vg-lv")
    found = holding_of(str(sys.folder), sys=sys.root, mountinfo=sys.mounts)
    assert (found.device, found.whole, found.queues) == ("dm-0", "dm-0", ("sda", "sdb"))


def test_a_file_system_without_a_block_device(sys: Sys) -> None:
    sys.mounted("server:/export", kind="nfs4")
    found = holding_of(str(sys.folder), sys=sys.root, mountinfo=sys.mounts)
    assert (found.device, found.queues) == (None, ())
    assert "no block device" in found.described


def test_the_last_mount_at_a_place_counts_and_neighbours_do_not(sys: Sys) -> None:
    sys.disk("sda", own_number(sys.folder))
    sys.mounted("/dev/sda")
    more = "40 35 8:1 / {} rw - xfs /dev/sdz rw\n"
    sys.mounts.write_text(
        sys.mounts.read_text() + more.format(f"{sys.folder}-more") + more.format(f"{sys.folder}/below")
    )
    assert holding_of(str(sys.folder), sys=sys.root, mountinfo=sys.mounts).mount.type == "ext4"
    sys.mounts.write_text(sys.mounts.read_text() + more.format(sys.folder))
    assert holding_of(str(sys.folder), sys=sys.root, mountinfo=sys.mounts).mount.type == "xfs"


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="No such file"):
        holding_of(str(tmp_path / "none"))


def backing(sys: Sys, *names: str) -> None:
    """Imitate /sys/class/bdi."""
    for name in names:
        (sys.root / "class" / "bdi" / name).mkdir(parents=True)


def test_a_network_mount_has_a_backing_device_of_its_number(sys: Sys) -> None:
    sys.mounted("server:/export", kind="nfs4")
    backing(sys, own_number(sys.folder), "0:9999")
    found = holding_of(str(sys.folder), sys=sys.root, mountinfo=sys.mounts)
    assert found.backing == (f"/sys/class/bdi/{own_number(sys.folder)}",)


def test_of_several_smb_mounts_none_is_taken(sys: Sys) -> None:
    sys.mounted("//server/share", kind="cifs")
    backing(sys, "cifs-3", "btrfs-1")
    found = holding_of(str(sys.folder), sys=sys.root, mountinfo=sys.mounts)
    assert found.backing == ("/sys/class/bdi/cifs-3",)
    backing(sys, "cifs-4")
    assert holding_of(str(sys.folder), sys=sys.root, mountinfo=sys.mounts).backing == ()


def test_an_overlay_is_held_by_what_holds_its_layers(sys: Sys, tmp_path: Path) -> None:
    for name in ("lower:one", "upper"):
        (tmp_path / name).mkdir()
    sys.disk("sda", own_number(tmp_path))
    options = f"rw,lowerdir={tmp_path}/lower\\:one,upperdir={tmp_path}/upper,workdir={tmp_path}/w"
    sys.mounts.write_text(
        f"20 1 0:1 / / rw - ext4 /dev/sda rw\n36 35 0:40 / {sys.folder} rw - overlay none {options}\n"
    )
    found = holding_of(str(sys.folder), sys=sys.root, mountinfo=sys.mounts)
    assert (found.mount.type, found.device, found.queues) == ("overlay", "sda", ("sda",))
    assert found.backing == ("/sys/block/sda",)
