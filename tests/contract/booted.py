"""The guest that read-only tests share: four disks for arrays, two others, and one that may be overwritten."""

from __future__ import annotations

from dataclasses import dataclass

from iotrial.guest.array import LEVELS
from iotrial.guest.initramfs import Needs
from iotrial.guest.machine import DiskImage
from iotrial.guest.place import serials_of
from iotrial.knobs.encryption import CIPHER, BlockEncryption
from iotrial.lab.target import Target
from iotrial.runner.guest import Guest
from iotrial.study.model import Setting

MEMBERS, MEMBER_SIZE = 4, 128 << 20
SERIALS = tuple(serials_of("lab", MEMBERS))
SPARE = "WD-WX42A00815"
DISKS = (
    *(DiskImage(serial, MEMBER_SIZE) for serial in SERIALS),
    DiskImage("one", 64 << 20),
    DiskImage("two", 384 << 20),
    DiskImage(SPARE, 128 << 20),
)
NEEDS = Needs(
    modules=frozenset(
        {
            "ext4",
            "xfs",
            "btrfs",
            "dm_mod",
            "bfq",
            "mq_deadline",
            "loop",
            "fuse",
            *(level.module for level in LEVELS.values()),
            *BlockEncryption().requires(Setting(BlockEncryption.name, CIPHER)).modules,
        }
    ),
    packages=frozenset(
        {"e2fsprogs", "xfsprogs", "btrfs-progs", "mdadm", "dmsetup", "util-linux", "coreutils"}
    ),
    programs=frozenset(
        {"mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "btrfs", "mdadm", "dmsetup", "blkid", "wipefs", "dd"}
    ),
)


@dataclass(frozen=True, slots=True)
class Booted:
    guest: Guest
    target: Target
