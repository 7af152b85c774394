"""Programs from an unpacked distribution, with everything they need to run in an otherwise empty guest.

Dependencies are read from the ELF files (interpreter and needed libraries, recursively), not from a list. The interpreter
of a script has to be requested as a program.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

from iotrial.errors import LabError, MissingTool
from iotrial.guest.architecture import GUEST
from iotrial.guest.cpio import Entry, File, Link

#: the symbolic links of a merged-/usr system
MERGED: Mapping[str, Entry] = {f"/{name}": Link(f"usr/{name}") for name in ("bin", "sbin", "lib", "lib64")}
_PROGRAMS = ("usr/sbin", "usr/bin", "sbin", "bin", "usr/lib/nfs-utils")
_LIBRARIES = (f"lib/{GUEST.name}-linux-gnu", f"usr/lib/{GUEST.name}-linux-gnu", "lib64", "lib", "usr/lib")


class Tools:
    """The programs in a tree of unpacked packages."""

    def __init__(self, tree: Path) -> None:
        self._tree = tree

    def entries(self, programs: Iterable[str], files: Iterable[str] = ()) -> dict[str, Entry]:
        """Return these programs and ``files`` (absolute paths or glob patterns), with all libraries, by path in the guest.

        Raises LabError naming a program or library that is in none of the packages.
        """
        found: dict[str, Entry] = {}
        for name in programs:
            self._add(self._program(name), found)
        for pattern in files:
            matching = sorted(self._tree.glob(pattern.lstrip("/")))
            if not matching:
                raise LabError(f"guest: no package provides {pattern}")
            for path in matching:
                self._add(path, found)
        return found

    def _program(self, name: str) -> Path:
        folders = ("",) if name.startswith("/") else _PROGRAMS
        for folder in folders:
            path = self._tree / folder / name.lstrip("/")
            if os.path.lexists(path):
                return path
        raise LabError(f"guest: no package provides the program {name}")

    def _add(self, path: Path, found: dict[str, Entry]) -> None:
        place = _merged("/" + str(path.relative_to(self._tree)))
        if place in found:
            return
        if path.is_symlink():
            target = str(path.readlink())
            found[place] = Link(target)
            inside = self._tree / target.lstrip("/") if target.startswith("/") else path.parent / target
            self._add(Path(os.path.normpath(inside)), found)
            return
        if not path.is_file():
            raise LabError(f"guest: no package provides {place}")
        found[place] = File(path, path.stat().st_mode & 0o777)
        for library in self._needed(path):
            self._add(library, found)

    def _needed(self, path: Path) -> list[Path]:
        # imported here: only guests need it, and it would slow down every command that loads the knobs
        try:
            from elftools.common.exceptions import ELFError
            from elftools.elf.dynamic import DynamicSection
            from elftools.elf.elffile import ELFFile
            from elftools.elf.segments import InterpSegment
        except ModuleNotFoundError as error:
            hint = "pip install 'iotrial[guest]'"
            raise MissingTool("a guest needs the Python package pyelftools", hint=hint) from error

        with path.open("rb") as file:
            try:
                elf = ELFFile(file)
            except ELFError:
                return []  # a script, or data
            names: list[str] = []
            runpath: list[str] = []
            interpreters = [
                self._tree / segment.get_interp_name().lstrip("/")
                for segment in elf.iter_segments("PT_INTERP")
                if isinstance(segment, InterpSegment)
            ]
            section = elf.get_section_by_name(".dynamic")
            for tag in section.iter_tags() if isinstance(section, DynamicSection) else ():
                if tag.entry.d_tag == "DT_NEEDED":
                    names.append(str(tag.needed))  # type: ignore[attr-defined] # made for each kind of tag
                elif tag.entry.d_tag in ("DT_RUNPATH", "DT_RPATH"):
                    runpath += str(getattr(tag, tag.entry.d_tag.removeprefix("DT_").lower())).split(":")
        return [*interpreters, *(self._library(name, path, runpath) for name in names)]

    def _library(self, name: str, needed_by: Path, runpath: Iterable[str]) -> Path:
        folders = [
            (
                needed_by.parent / folder.removeprefix("$ORIGIN").lstrip("/")
                if folder.startswith("$ORIGIN")
                else self._tree / folder.lstrip("/")
            )
            for folder in runpath
        ]
        for folder in (*folders, *self._folders):
            if os.path.lexists(folder / name):
                return folder / name
        raise LabError(f"guest: {needed_by.name} needs {name}, which no package provides")

    @cached_property
    def _folders(self) -> tuple[Path, ...]:
        return tuple(self._tree / folder for folder in _LIBRARIES)


def _merged(path: str) -> str:
    """Return the path on a merged-/usr system, where /bin is a link to /usr/bin."""
    first = path.split("/")[1]
    return f"/usr{path}" if f"/{first}" in MERGED else path
