"""Draws states in which a disk, a crash or another user may leave files: used to spoil a journal, records or a store."""

from __future__ import annotations

import os
import random
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

SECTOR = 512
NOBODY = 65534
#: the draft's name of each kind of file
DRAFTS = {".entry": ".draft", ".json": ".json.iotrial-draft"}


def _cut(path: Path, draw: random.Random) -> None:
    """Cut the end off. Without the last line, that of the checksum, a file is whole, as older ones have none."""
    content = path.read_bytes()
    left = draw.randrange(len(content))
    whole = content.rfind(b"\n", 0, len(content) - 1) + 1
    os.truncate(path, whole - 2 if whole and whole - 1 <= left <= whole else left)


def _torn(path: Path, draw: random.Random) -> None:
    """Some sectors were never written, and hold zeros or what stood there before."""
    content = bytearray(path.read_bytes())
    for start in range(0, len(content), SECTOR):
        if draw.random() < 0.5:
            end = min(start + SECTOR, len(content))
            content[start:end] = bytes(end - start) if draw.random() < 0.5 else draw.randbytes(end - start)
    path.write_bytes(content)


def _bits(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(draw.choice((1, 1, 1, 8))):
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def _longer(path: Path, draw: random.Random) -> None:
    with path.open("ab") as file:
        file.write(draw.randbytes(draw.randrange(1, 2 * SECTOR)))


def _garbage(path: Path, draw: random.Random) -> None:
    path.write_bytes(draw.choice((b"", b"\0" * 300, b"[" * 50_000, draw.randbytes(draw.randrange(1, 4096)))))


def _not_renamed(path: Path, draw: random.Random) -> None:
    """The draft is complete, but was not renamed."""
    path.rename(path.with_suffix(DRAFTS.get(path.suffix, ".draft")))


def _draft_too(path: Path, draw: random.Random) -> None:
    content = path.read_bytes()
    path.with_suffix(DRAFTS.get(path.suffix, ".draft")).write_bytes(content[: draw.randrange(len(content))])


def _removed(path: Path, draw: random.Random) -> None:
    path.unlink()


def _foreign_owner(path: Path, draw: random.Random) -> None:
    os.chown(path, NOBODY, NOBODY)


def _foreign_writer(path: Path, draw: random.Random) -> None:
    path.chmod(draw.choice((0o620, 0o602, 0o666, 0o777)))


def _unreadable(path: Path, draw: random.Random) -> None:
    """A mode stops nobody who is root; a link to nowhere and one to itself stop everyone."""
    path.unlink()
    path.symlink_to(draw.choice((path.name, "/nonexistent/x")))


def _link(path: Path, draw: random.Random) -> None:
    moved = path.with_name(path.name + ".moved")
    path.rename(moved)
    path.symlink_to(moved.name)


def _fifo(path: Path, draw: random.Random) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def _socket(path: Path, draw: random.Random) -> None:
    path.unlink()
    here = Path.cwd()
    os.chdir(path.parent)  # the name of a socket has at most 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)
    path.chmod(0o600)


def _folder(path: Path, draw: random.Random) -> None:
    path.unlink()
    path.mkdir(0o700)
    if draw.random() < 0.5:
        (path / "x").write_text("x")


def _copied(path: Path, draw: random.Random) -> None:
    shutil.copy2(path, path.with_name(f"9{path.name[1:]}"))


KINDS: dict[str, Callable[[Path, random.Random], None]] = {
    "cut": _cut, "torn": _torn, "bits": _bits, "longer": _longer, "garbage": _garbage, "not renamed": _not_renamed,
    "draft too": _draft_too, "removed": _removed, "foreign owner": _foreign_owner, "foreign writer": _foreign_writer,
    "unreadable": _unreadable, "link": _link, "FIFO": _fifo, "socket": _socket, "folder": _folder, "copied": _copied,
}  # fmt: skip
_OF_CONTENT = frozenset({"cut", "torn", "bits", "longer", "garbage"})
#: after these the file itself can still be used
HARMLESS = frozenset({"draft too", "copied"})


def spoil(paths: list[Path], draw: random.Random) -> dict[Path, str]:
    """Spoil one to three of these files, each in one way. Returns what was done."""
    names = list(KINDS) if os.geteuid() == 0 else [name for name in KINDS if name != "foreign owner"]
    chosen = draw.sample(paths, min(len(paths), draw.choice((1, 1, 2, 3))))
    done = {}
    for path in chosen:
        name, before = draw.choice(names), path.read_bytes()
        try:
            KINDS[name](path, draw)
        except ValueError:  # an empty file has no byte to change
            continue
        if name in _OF_CONTENT and path.read_bytes() == before:  # changed twice, or by chance to the same
            continue
        done[path] = name
    return done
