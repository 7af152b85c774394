"""Write an initramfs: the "new ASCII" cpio format, as described in the kernel's Documentation/driver-api/early-userspace.

Only names, modes and content are stored, no time and no owner, so that the same files always give the same bytes.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_MAGIC = "070701"
_TRAILER = "TRAILER!!!"


@dataclass(frozen=True, slots=True)
class File:
    """A regular file in the guest, with the content of a file on this machine."""

    source: Path
    mode: int = 0o755


@dataclass(frozen=True, slots=True)
class Bytes:
    """A regular file in the guest with this content."""

    content: bytes
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link in the guest."""

    target: str


Entry = File | Bytes | Link


def archive(entries: Mapping[str, Entry], folders: Iterable[str] = ()) -> Iterator[bytes]:
    """Yield the archive in pieces: entries by absolute path, their parent directories first, plus ``folders``."""
    names = {PurePosixPath(path).relative_to("/"): entry for path, entry in entries.items()}
    wanted = {parent for name in names for parent in name.parents}
    for folder in folders:
        name = PurePosixPath(folder).relative_to("/")
        wanted |= {name, *name.parents}
    number = 0
    for name in sorted(wanted - {PurePosixPath(".")}):
        number += 1
        yield _member(number, str(name), stat.S_IFDIR | 0o755, b"", links=2)
    for name, entry in sorted(names.items()):
        number += 1
        match entry:
            case File(source, mode):
                yield _member(number, str(name), stat.S_IFREG | mode, source.read_bytes())
            case Bytes(content, mode):
                yield _member(number, str(name), stat.S_IFREG | mode, content)
            case Link(target):
                yield _member(number, str(name), stat.S_IFLNK | 0o777, target.encode())
    yield _member(0, _TRAILER, 0, b"")


def _member(inode: int, name: str, mode: int, content: bytes, *, links: int = 1) -> bytes:
    fields = (inode, mode, 0, 0, links, 0, len(content), 0, 0, 0, 0, len(name.encode()) + 1, 0)
    head = _MAGIC + "".join(f"{field:08X}" for field in fields)
    return _padded(head.encode() + name.encode() + b"\0") + _padded(content)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
