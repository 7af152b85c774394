"""A bundle as a file: made once for this Python, these packages and this probe, and remembered by its content.

Two names. What it was made *from* (sizes and times of every file, quick to see) says whether a bundle that is
remembered still fits; what it *holds* (the SHA-256 of its manifest) is its identity, and the name of its folder on a host.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from iotrial.fleet.ssh.carried import left_out
from iotrial.fleet.ssh.contents import MANIFEST, Contents, gather, package_folders
from iotrial.paths import state_folder

#: raised when a bundle is laid out differently
LAYOUT = 1
_LEVEL = 1


@dataclass(frozen=True, slots=True)
class Bundle:
    """One archive: gzip of a tar, and what it asks of a host."""

    path: Path
    #: 64 hex digits: SHA-256 of its manifest
    id: str
    #: what `uname -m` says on a host that can use it
    machine: str
    #: the oldest GNU C library that it runs with
    c_library: tuple[int, int]
    #: bytes unpacked, and as sent
    size: int
    packed: int


def bundle(probe: Path, folder: Path | None = None, say: Callable[[str], None] | None = None) -> Bundle:
    """The bundle of this installation: the one that is remembered in ``folder``, or a new one, which ``say`` is told of.

    Raises RequestError where a part is missing, OSError where it cannot be written.
    """
    folder = state_folder() / "fleet" / "bundles" if folder is None else folder
    made_from = _made_from(probe)
    note = folder / f"{made_from}.json"
    remembered = _remembered(note)
    if remembered is not None:
        return remembered
    if say is not None:
        say("packing what hosts are brought, once for this version")
    made = _write(gather(probe), folder)
    for old in (*folder.glob("*.json"), *folder.glob("*.tar.gz")):
        if old != made.path:
            old.unlink(missing_ok=True)
    values = {name: getattr(made, name) for name in ("id", "machine", "c_library", "size", "packed")}
    _replace(note, json.dumps(values).encode())
    return made


def _remembered(note: Path) -> Bundle | None:
    try:
        values = json.loads(note.read_bytes())
        path = note.with_name(f"{values['id']}.tar.gz")
        if path.stat().st_size != values["packed"]:
            return None
        major, minor = values["c_library"]
        return Bundle(path, values["id"], values["machine"], (major, minor), values["size"], values["packed"])
    except (OSError, ValueError, KeyError, TypeError):
        return None  # not there, or cut short: it is made again


def _made_from(probe: Path) -> str:
    said = hashlib.sha256(
        f"{LAYOUT}\0{sys.version}\0{sys.executable}\0{sysconfig.get_path('stdlib')}\0".encode()
    )
    for name, file in _looked_at(probe):
        facts = file.stat()
        said.update(f"{name}\0{facts.st_size}\0{facts.st_mtime_ns}\0".encode())
    return said.hexdigest()


def _looked_at(probe: Path) -> Iterator[tuple[str, Path]]:
    yield "ioprobe", probe
    for name, place in package_folders():
        if place.is_file():
            yield name, place
            continue
        for parent, folders, names in os.walk(place):
            folders.sort()
            for file in sorted(names):
                path = Path(parent, file)
                within = f"{name}/{path.relative_to(place)}"
                if not left_out(within):
                    yield within, path


def _write(contents: Contents, folder: Path) -> Bundle:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    manifest = contents.manifest
    name = hashlib.sha256(manifest).hexdigest()
    raw = io.BytesIO()
    files = [
        (MANIFEST, 0o600, manifest),
        *((piece.path, piece.mode, piece.content) for piece in contents.pieces),
    ]
    with (
        gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=_LEVEL, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for within, mode, content in files:
            entry = tarfile.TarInfo(within)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    path = folder / f"{name}.tar.gz"
    _replace(path, raw.getvalue())
    size = sum(len(content) for _, _, content in files)
    return Bundle(path, name, contents.machine, contents.c_library, size, len(raw.getvalue()))


def _replace(path: Path, content: bytes) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
