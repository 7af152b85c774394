"""The file systems that the lab knows: how to make and mount each without side effects.

Lazy initialisation would keep writing in the background after mkfs. Discard would punch holes into the image, so that
the next write allocates again on the user's disk. Both are switched off for all file systems. mke2fs also treats a lab
of less than 512 MiB as a small disk and makes blocks of 1 KiB: files then begin anywhere in a page, and every small
write to an array touches two stripes. So it is given the block size that it uses for larger disks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

#: block size of ext4 unless a study sets another
EXT4_BLOCK = "-b 4096"


@dataclass(frozen=True, slots=True)
class Filesystem:
    """One type of file system: how to make and mount it.

    ``mkfs`` is the argument list up to the device, ``mkfs_allowed`` patterns of the further options that a study may pass,
    ``mkfs_uuid`` the options that set the UUID, ``mkfs_lists`` flags of which mkfs uses only the last occurrence, so that
    their values are joined into one list, ``defragment`` the argument list of the defragmenter up to the files.
    """

    name: str
    mkfs: tuple[str, ...]
    package: str
    smallest_bytes: int
    mkfs_uuid: str
    mount_options: tuple[str, ...]
    mkfs_allowed: tuple[str, ...]
    mkfs_lists: tuple[str, ...] = ()
    defragment: tuple[str, ...] = ()
    #: arguments after the options when only part of the device is to be used
    mkfs_volume: tuple[str, ...] = ("{device}",)

    def mkfs_on(self, device: str, volume_bytes: int, options: Sequence[str]) -> list[str]:
        """Return the mkfs command for a file system of this size (whole KiB) at the start of a device."""
        numbers = {"device": device, "bytes": volume_bytes, "kib": volume_bytes >> 10}
        return self.mkfs_argv(options) + [word.format(**numbers) for word in self.mkfs_volume]

    def mkfs_argv(self, options: Sequence[str]) -> list[str]:
        """Return the mkfs command with these options ("-b 1024" ...), without the device. Later options win, as in mkfs."""
        words = [*self.mkfs, *(word for option in options for word in option.split())]
        lists: dict[str, list[str]] = {}
        argv: list[str] = []
        at = 0
        while at < len(words):
            if words[at] in self.mkfs_lists and at + 1 < len(words):
                lists.setdefault(words[at], []).append(words[at + 1])
                at += 2
            else:
                argv.append(words[at])
                at += 1
        return argv + [word for flag, values in lists.items() for word in (flag, ",".join(values))]

    def uuid_option(self, uuid: str) -> tuple[str, ...]:
        """Return the mkfs arguments that set this UUID."""
        return tuple(self.mkfs_uuid.format(uuid).split())

    def allows_mkfs(self, option: str) -> bool:
        """Return whether a study may pass this text to mkfs. No pattern admits a path or a device."""
        return any(re.fullmatch(pattern, option) for pattern in self.mkfs_allowed)


FILESYSTEMS: dict[str, Filesystem] = {
    "ext4": Filesystem(
        name="ext4",
        mkfs=(
            "mkfs.ext4",
            "-q",
            "-F",
            *EXT4_BLOCK.split(),
            "-E",
            "nodiscard,lazy_itable_init=0,lazy_journal_init=0",
        ),
        package="e2fsprogs",
        smallest_bytes=16 << 20,
        mkfs_uuid="-U {}",
        mount_options=(),
        mkfs_allowed=(
            r"-b (1024|2048|4096)",
            r"-I (128|256|512|1024)",
            r"-i [0-9]{4,8}",
            r"-J size=[0-9]{1,5}",
            r"-O \^?[a-z0-9_]+(,\^?[a-z0-9_]+)*",
            r"-m [0-9]{1,2}",
            r"-G [0-9]{1,5}",
            r"-E (stride|stripe_width)=[0-9]{1,5}",
            r"-E packed_meta_blocks=[01]",
            r"-E lazy_itable_init=[01]",
            r"-E num_backup_sb=[012]",
        ),
        mkfs_lists=("-E", "-O"),
        mkfs_volume=("{device}", "{kib}k"),
        defragment=("e4defrag",),
    ),
    "xfs": Filesystem(
        name="xfs",
        mkfs=("mkfs.xfs", "-q", "-f", "-K"),
        package="xfsprogs",
        smallest_bytes=300 << 20,
        mkfs_uuid="-m uuid={}",
        mount_options=(),
        mkfs_allowed=(
            r"-b size=(1024|2048|4096)",
            r"-i size=(512|1024|2048)",
            r"-l size=[0-9]{1,5}m",
            r"-l su=[0-9]{1,6}k?",
            r"-d agcount=[0-9]{1,4}",
            r"-m (crc|finobt|rmapbt|reflink)=[01]",
            r"-n size=(4096|8192|16384|65536)",
        ),
        mkfs_volume=("-d", "size={bytes}", "{device}"),
        defragment=("xfs_fsr",),
    ),
    "btrfs": Filesystem(
        name="btrfs",
        mkfs=("mkfs.btrfs", "-q", "-f", "-K"),
        package="btrfs-progs",
        smallest_bytes=128 << 20,
        mkfs_uuid="-U {}",
        # btrfs enables discard=async by default
        mount_options=("nodiscard",),
        mkfs_allowed=(
            r"-n (4096|8192|16384|32768|65536)",
            r"-m (single|dup)",
            r"-d (single|dup)",
            r"-M",
            r"--csum (crc32c|xxhash|sha256|blake2)",
        ),
        mkfs_volume=("-b", "{bytes}", "{device}"),
        defragment=("btrfs", "filesystem", "defragment", "-f"),
    ),
}
