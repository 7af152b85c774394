"""What a bundle holds: the interpreter, its standard library compiled, the packages, the probe, and a start for each.

    bin/iotrial  bin/python  bin/ioprobe     starts (shell), and the static probe
    lib/                                     shared libraries
    packages/                                Python packages
    python/bin, python/lib                   the interpreter and its standard library
    MANIFEST                                 a line a file: SHA-256, mode, path; its own SHA-256 names the bundle

Python is moved by PYTHONHOME and LD_LIBRARY_PATH, which only the start sets: Python takes both out of its environment before
anything else runs, so that a program under test loads the host's own libraries, not those of the bundle. Modules are carried
compiled and without their sources: nothing is written beside them on a host, and the folder stays what the manifest says.
"""

from __future__ import annotations

import hashlib
import importlib.util
import marshal
import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from iotrial.errors import RequestError
from iotrial.fleet.ssh.carried import PACKAGES, left_out, left_out_of_library
from iotrial.fleet.ssh.libraries import c_library_needed, is_elf, shared_libraries

MANIFEST = "MANIFEST"
PYTHON = f"python{sys.version_info[0]}.{sys.version_info[1]}"

#: not even looked into
_NEVER = frozenset({"__pycache__", "site-packages", "dist-packages", "test", "tests"})
#: of a compiled module that is taken as it is: a hash of its source that is never checked, since no source is there
_HEADER = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8)

_START = """#!/bin/sh
here=${{0%/*}}/..
unset PYTHONPATH PYTHONSTARTUP PYTHONINSPECT PYTHONSAFEPATH PYTHONWARNINGS PYTHONOPTIMIZE PYTHONEXECUTABLE
PYTHONHOME=$here/python LD_LIBRARY_PATH=$here/lib exec "$here/python/bin/{python}" -B -s -P {what}"$@"
"""

_SITE = """import os, sys
_top = os.path.realpath(os.path.join(sys.prefix, os.pardir))
os.environ.pop("PYTHONHOME", None)
os.environ.pop("LD_LIBRARY_PATH", None)
os.environ["IOTRIAL_CARRIED"] = "1"
os.environ["IOTRIAL_PROBE"] = _top + "/bin/ioprobe"
sys.path[:] = [os.path.realpath(p) for p in sys.path if p and os.path.realpath(p).startswith(_top + "/python/")]
sys.path.append(_top + "/packages")
sys.executable = _top + "/bin/python"
"""


@dataclass(frozen=True, slots=True)
class Piece:
    """One file of a bundle."""

    path: str
    mode: int
    content: bytes

    def line(self) -> str:
        """Its line of the manifest."""
        return f"{hashlib.sha256(self.content).hexdigest()} {self.mode:03o} {self.path}\n"


@dataclass(frozen=True, slots=True)
class Contents:
    """All files of a bundle, and what it asks of a host."""

    pieces: tuple[Piece, ...]
    machine: str
    c_library: tuple[int, int]

    @property
    def manifest(self) -> bytes:
        """The file that lists all others."""
        return "".join(piece.line() for piece in self.pieces).encode()


def gather(probe: Path) -> Contents:
    """Everything that a host is brought, read from the Python that is running.

    Raises RequestError where a declared package or a library is not here.
    """
    originals = [Path(sys.executable).resolve()]
    pieces = [Piece(f"python/bin/{PYTHON}", 0o700, originals[0].read_bytes())]
    for path, source in (*_library(), *_packages()):
        if source.suffix == ".py":
            pieces.append(_compiled(path, source))
            continue
        if is_elf(source):
            originals.append(source)
        pieces.append(Piece(path, 0o600, source.read_bytes()))
    shared = shared_libraries(originals, within=[folder for _, folder in package_folders()])
    pieces += [Piece(f"lib/{name}", 0o600, place.read_bytes()) for name, place in shared.items()]
    pieces += [
        Piece("bin/ioprobe", 0o700, probe.read_bytes()),
        Piece("bin/python", 0o700, _START.format(python=PYTHON, what="").encode()),
        Piece("bin/iotrial", 0o700, _START.format(python=PYTHON, what="-m iotrial ").encode()),
        _code(f"{_home()}/sitecustomize", _SITE.encode()),
    ]
    pieces.sort(key=lambda piece: piece.path)
    needed = c_library_needed([*originals, *shared.values()])
    return Contents(tuple(pieces), os.uname().machine, needed)


def package_folders() -> list[tuple[str, Path]]:
    """Where the declared packages are here: name in the bundle, folder (or the one file of a module)."""
    found: list[tuple[str, Path]] = []
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise RequestError(
                f"the package {name}, which every host is brought, is not here", hint="install iotrial again"
            )
        origin = Path(spec.origin)
        if spec.submodule_search_locations is None:
            found.append((origin.name, origin))
            continue
        found.append((name, origin.parent))
        beside = origin.parent.with_name(f"{name}.libs")  # where wheels keep the libraries that they bring
        if beside.is_dir():
            found.append((beside.name, beside))
    return found


def _packages() -> Iterator[tuple[str, Path]]:
    for name, place in package_folders():
        if place.is_file():
            yield f"packages/{name}", place
            continue
        for path, file in _files(place):
            if not left_out(f"{name}/{path}"):
                yield f"packages/{name}/{path}", file


def _library() -> Iterator[tuple[str, Path]]:
    home = _home()
    stdlib, extensions = (
        Path(sysconfig.get_path("stdlib")),
        Path(sysconfig.get_config_var("DESTSHARED") or ""),
    )
    seen = set()
    for path, file in _files(stdlib):
        if not left_out_of_library(path):
            seen.add(path)
            yield f"{home}/{path}", file
    if not any(path.startswith("lib-dynload/") for path in seen) and extensions.is_dir():
        for path, file in _files(extensions):
            if not left_out_of_library(f"lib-dynload/{path}"):
                yield f"{home}/lib-dynload/{path}", file


def _home() -> str:
    return f"python/{sys.platlibdir}/{PYTHON}"


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _NEVER)
        for name in sorted(names):
            file = Path(parent, name)
            if file.is_file():
                yield os.path.relpath(file, folder), file


def _compiled(path: str, source: Path) -> Piece:
    """A module compiled: as Python itself has done on importing it, where that is not older than its source."""
    facts = source.stat()
    expected = importlib.util.MAGIC_NUMBER + b"".join(
        (number & 0xFFFF_FFFF).to_bytes(4, "little") for number in (0, int(facts.st_mtime), facts.st_size)
    )
    with suppress(OSError):
        cached = Path(importlib.util.cache_from_source(str(source), optimization="")).read_bytes()
        if cached.startswith(expected):
            return Piece(f"{path.removesuffix('.py')}.pyc", 0o600, _HEADER + cached[len(expected) :])
    return _code(path.removesuffix(".py"), source.read_bytes())


def _code(path: str, source: bytes) -> Piece:
    code = compile(source, f"{path}.py", "exec", dont_inherit=True, optimize=0)
    return Piece(f"{path}.pyc", 0o600, _HEADER + marshal.dumps(code))
