"""State of the machine as seen from outside, before and after: read from the kernel's files, never through iotrial.

It leaves out what changes by itself (kernel counters) and what the suite may change: change times, the store.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import stat
from pathlib import Path

from left_behind import is_first_attach

#: keys of /proc/sys that are counters or random values
MOVING = (
    "fs/aio-nr",
    "fs/dentry-state",
    "fs/file-nr",
    "fs/inode-nr",
    "fs/inode-state",
    "fs/mqueue",
    "fs/quota",
    "kernel/ns_last_pid",
    "kernel/pty/nr",
    "kernel/random",
    "net",
)

#: read-only, and kept by a loop device from its last file: the block size of that file's file system
OF_LAST_FILE = "discard_granularity"


def machine() -> dict[str, str]:
    """Return mounts, block devices with all queue settings, attached images, sysctls, and whether the lab's folder exists."""
    found = {
        "mounts": Path("/proc/self/mounts").read_text(),
        "lab folder": str(Path("/run/iotrial").exists()),
    }
    for device in sorted(Path("/sys/block").iterdir()):
        found[f"block {device.name}"] = _text(device / "size")
        found[f"node {device.name}"] = str(Path("/dev", device.name).exists())
        left_out = {"max_bytes", "min_bytes"}
        if device.name.startswith("loop"):
            left_out.add(OF_LAST_FILE)
            found[f"attached {device.name}"] = _text(device / "loop" / "backing_file")
        for part in ("queue", "bdi"):
            for file in sorted((device / part).glob("*")):
                if file.is_file() and file.name not in left_out:
                    found[f"{part} {device.name} {file.name}"] = _text(file)
    found["huge pages"] = _text(Path("/sys/kernel/mm/transparent_hugepage/enabled"))
    for file in _sysctls(Path("/proc/sys")):
        found[f"sysctl {file}"] = _text(Path("/proc/sys") / file)
    return found


def _sysctls(root: Path) -> list[str]:
    found = []
    for folder, names, files in os.walk(root):
        inside = os.path.relpath(folder, root)
        names[:] = [name for name in names if os.path.normpath(f"{inside}/{name}") not in MOVING]
        for name in files:
            path = os.path.normpath(f"{inside}/{name}")
            if path not in MOVING:
                found.append(path)
    return sorted(found)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError as error:
        return f"({error.strerror})"


def files(root: Path) -> dict[str, tuple[object, ...]]:
    """Return all names below a folder, and the folder itself: kind and mode, owner, size, links, both times, content."""
    found: dict[str, tuple[object, ...]] = {}
    paths = [root, *_below(root)]
    for path in paths:
        seen = path.lstat()
        content = ""
        if stat.S_ISREG(seen.st_mode):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOATIME)
            with os.fdopen(descriptor, "rb") as file:
                content = hashlib.sha256(file.read()).hexdigest()
        elif stat.S_ISLNK(seen.st_mode):
            content = str(path.readlink())
        found[os.path.relpath(path, root)] = (
            oct(seen.st_mode),
            (seen.st_uid, seen.st_gid),
            (seen.st_size, seen.st_nlink),
            ("mtime", seen.st_mtime_ns),
            ("atime", seen.st_atime_ns),
            content,
        )
    return found


def _below(folder: Path) -> list[Path]:
    """List all names below, without changing the access times of the folders that are read."""
    found = []
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOATIME)
    with os.scandir(descriptor) as entries:
        for entry in sorted(entries, key=lambda e: e.name):
            found.append(folder / entry.name)
            if entry.is_dir(follow_symlinks=False):
                found += _below(folder / entry.name)
    os.close(descriptor)
    return found


def space(root: Path) -> tuple[int, int]:
    """Return free blocks and free inodes of the file system, after a sync has completed pending deletions."""
    descriptor = os.open(root, os.O_RDONLY)
    ctypes.CDLL(None, use_errno=True).syncfs(descriptor)  # of this file system alone, unlike os.sync
    os.close(descriptor)
    seen = os.statvfs(root)
    return seen.f_bfree, seen.f_ffree


def processes(token: str) -> list[str]:
    """Return the live processes that have a text in their arguments or environment."""
    found = []
    wanted = token.encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            arguments = (entry / "cmdline").read_bytes()
            environment = (entry / "environ").read_bytes()
            state = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in "ZX" and (wanted in arguments or wanted in environment):
            found.append(f"{entry.name} {arguments.replace(bytes(1), b' ').decode(errors='replace')}")
    return found


def differences(before: dict[str, object], after: dict[str, object]) -> dict[str, tuple[object, object]]:
    """Return all differences, except the lasting ones that the kernel makes when a loop device is first attached."""
    return {
        key: (before.get(key), after.get(key))
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key) and not is_first_attach(key, (before.get(key), after.get(key)))
    }
