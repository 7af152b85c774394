"""A small system to boot from a disk image: kernel, initramfs, and a root file system in an image file.

The initramfs loads the modules of disk and file system and mounts the root, read-only. The init there does what the start
of a system asks of a disk: it reads some hundred small files, and starts programs one after the other, each with its
shared libraries. Then it says in the kernel's log that it is ready, and resets the machine, which ends QEMU.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from iotrial.errors import LabError, MissingTool
from iotrial.guest import cpio
from iotrial.guest.initramfs import write
from iotrial.guest.modules import Modules, content
from iotrial.guest.packages import Packages
from iotrial.guest.tools import MERGED, Tools

#: file systems of the root, with the program that makes each from a folder, and its package
MAKERS: Mapping[str, tuple[str, str]] = {
    "ext4": ("mkfs.ext4", "e2fsprogs"),
    "xfs": ("mkfs.xfs", "xfsprogs"),
    "btrfs": ("mkfs.btrfs", "btrfs-progs"),
}
#: what the init starts: programs of coreutils: --version needs only their pages and libraries
SERVICES = (
    "b2sum", "base32", "base64", "basename", "chgrp", "chmod", "chown", "cksum", "comm", "cp", "csplit", "cut", "date",
    "dd", "df", "dir", "du", "env", "expand", "expr", "factor", "fmt", "fold", "head", "id", "install", "join", "ln",
    "logname", "ls", "md5sum", "mkdir", "mkfifo", "mknod", "mktemp", "mv", "nl", "nproc", "od", "paste",
)  # fmt: skip
CONFIGURATIONS, CONFIGURATION_BYTES = 300, 1024
#: size of the root file system: mkfs.xfs accepts no smaller one. Its image has holes.
SIZE_BYTES = 320 << 20
#: the most that an image takes of a disk: files of 20 MiB, and the log of XFS, which is written in full
MOST_STORED_BYTES = 112 << 20
#: cache version: raise it when the code below builds something else
_EDITION = 1
_PACKAGES = ("busybox-static", "coreutils")
_MODULES = ("virtio_pci", "virtio_blk")
_FOLDERS = ("/dev", "/proc", "/sys", "/run", "/tmp", "/root")
_SAID = re.compile(r"\[ *(\d+\.\d+)\](?:\[ *[TC]\d+\])? iotrial: (root|ready)\b")

#: Lines for the kernel's log are written to the console before the writer continues, so that a reset loses none.
_FIRST_INIT = """#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t devtmpfs dev /dev
while read -r module; do $b insmod "$module"; done < /modules
$b mkdir -p /new
$b mount -t {filesystem} -o ro /dev/vda /new
echo "<1>iotrial: root" > /dev/kmsg
exec $b chroot /new /sbin/init
"""
#: if the reset does nothing, the end of init is a panic, which resets the machine too
_INIT = """#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t devtmpfs dev /dev
$b cat /etc/services/* > /dev/null
for service in {services}; do /usr/bin/$service --version > /dev/null || exit 1; done
echo "<1>iotrial: ready" > /dev/kmsg
echo b > /proc/sysrq-trigger
"""


@dataclass(frozen=True, slots=True)
class Bootable:
    """Files to boot from, on this machine: the kernel, its initramfs, and the image of the root file system."""

    kernel: Path
    initramfs: Path
    root: Path


def bootable(filesystem: str, kernel: str, packages: Packages, folder: Path) -> Bootable:
    """Return a system with this file system as its root: from the cache in ``folder``, or built there.

    Raises LabError if a package or module is not available, or mkfs fails; MissingTool if mkfs is not installed.
    """
    found = packages.kernel(kernel)
    key = hashlib.sha256(f"{_EDITION} {filesystem} {found.release}".encode()).hexdigest()[:16]
    made = Bootable(found.image, folder / f"boot-initramfs-{key}", folder / f"boot-root-{key}")
    tools = Tools(packages.tree(_PACKAGES))
    if not made.initramfs.exists():
        entries: dict[str, cpio.Entry] = {**MERGED, **tools.entries(["busybox"])}
        entries["/init"] = cpio.Bytes(_FIRST_INIT.format(filesystem=filesystem).encode(), 0o755)
        loaded = []
        for module in Modules(found.modules).in_order((*_MODULES, filesystem)):
            path = f"/modules.d/{module.name.partition('.ko')[0]}.ko"
            entries[path] = cpio.Bytes(content(module))
            loaded.append(f"{path}\n")
        entries["/modules"] = cpio.Bytes("".join(loaded).encode())
        write(made.initramfs, cpio.archive(entries, _FOLDERS))
    if not made.root.exists():
        _make_root(made.root, filesystem, tools)
    return made


def said(log: str) -> dict[str, float]:
    """Return when the guest said "root" and "ready", in seconds of its kernel's clock, from its log."""
    return {what: float(seconds) for seconds, what in _SAID.findall(log)}


def _make_root(image: Path, filesystem: str, tools: Tools) -> None:
    """Make the image of a root file system, atomically."""
    entries: dict[str, cpio.Entry] = {**MERGED, **tools.entries(["busybox", *SERVICES])}
    entries["/usr/sbin/init"] = cpio.Bytes(_INIT.format(services=" ".join(SERVICES)).encode(), 0o755)
    for number in range(CONFIGURATIONS):
        line = f"service {number:03} is started after all that come before it\n".encode()
        text = (line * (CONFIGURATION_BYTES // len(line) + 1))[:CONFIGURATION_BYTES]
        entries[f"/etc/services/{number:03}.conf"] = cpio.Bytes(text)
    with tempfile.TemporaryDirectory(dir=image.parent, prefix="making-root-") as making:
        tree, new = Path(making) / "tree", Path(making) / "image"
        _unpack(entries, tree)
        with new.open("wb") as file:
            file.truncate(SIZE_BYTES)
        match filesystem:
            case "ext4":
                words = ["-F", "-d", tree.name]
            case "xfs":
                described = Path(making) / "proto"
                described.write_text("".join(f"{line}\n" for line in _proto(tree)))
                words = ["-f", "-p", described.name]
            case _:
                words = ["-f", "--rootdir", tree.name]
        program, package = MAKERS[filesystem]
        _run([program, "-q", *words, new.name], package, cwd=making)
        new.rename(image)


def _unpack(entries: Mapping[str, cpio.Entry], tree: Path) -> None:
    for folder in _FOLDERS:
        (tree / folder.lstrip("/")).mkdir(parents=True)
    for path, entry in entries.items():
        target = tree / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        match entry:
            case cpio.Link(to):
                target.symlink_to(to)
            case cpio.File(source, mode):
                shutil.copyfile(source, target)
                target.chmod(mode)
            case cpio.Bytes(text, mode):
                target.write_bytes(text)
                target.chmod(mode)


def _proto(tree: Path) -> Iterator[str]:
    """Yield the lines of the prototype from which mkfs.xfs fills a file system (mkfs.xfs(8), option -p).

    Paths are relative to the parent of ``tree``: the format allows no blanks in them.
    """

    def members(folder: Path) -> Iterator[str]:
        for path in sorted(folder.iterdir()):
            mode = f"{path.lstat().st_mode & 0o777:03o}"
            if path.is_symlink():
                yield f"{path.name} l--777 0 0 {path.readlink()}"
            elif path.is_dir():
                yield f"{path.name} d--{mode} 0 0"
                yield from members(path)
                yield "$"
            else:
                yield f"{path.name} ---{mode} 0 0 {path.relative_to(tree.parent)}"

    yield from ("/", "0 0", "d--755 0 0", *members(tree), "$")


def _run(argv: Sequence[str], package: str, *, cwd: str) -> None:
    folders = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    program = shutil.which(argv[0], path=folders)
    if program is None:
        raise MissingTool.program("workload kind boot", argv[0], package)
    done = subprocess.run(
        [program, *argv[1:]],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        raise LabError(
            f"workload kind boot: {argv[0]} ended with {done.returncode}: {done.stderr.strip()[-300:]}"
        )
