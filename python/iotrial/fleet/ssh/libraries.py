"""The shared libraries that Python and its extension modules need, and the oldest C library that runs them all.

Asked of the loader (`ldd`) and read from the files (ELF's version needs), never from a list: a distribution may name
and place them as it likes. The C library itself stays the host's: it belongs to the host's kernel, name service
and time zones.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from iotrial.errors import MissingTool, RequestError

#: what comes with the C library, by the part of the name before ".so"
OF_THE_C_LIBRARY = frozenset(
    {
        "libc",
        "libm",
        "libmvec",
        "libdl",
        "libpthread",
        "librt",
        "libutil",
        "libresolv",
        "libanl",
        "linux-vdso",
    }
)
_ARROW = re.compile(r"^\s+(\S+) => (\S+)(?: \(0x[0-9a-f]+\))?$")
_MISSING = re.compile(r"^\s+(\S+) => not found$")
_VERSION = re.compile(r"^GLIBC_(\d+)\.(\d+)(?:\.\d+)?$")
#: a need that names no version: relative relocations, which the loader of 2.36 was the first to know
_UNNUMBERED = {"GLIBC_ABI_DT_RELR": (2, 36)}


def is_elf(path: Path) -> bool:
    """Whether a file is a program or library."""
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def shared_libraries(files: Sequence[Path], *, within: Iterable[Path] = ()) -> dict[str, Path]:
    """Libraries that these programs and libraries load, by the name that the loader looks for.

    Without those of the C library, and without those below a folder of ``within``, which are carried where they are.
    Raises MissingTool without `ldd`, RequestError for a library that this machine does not have.
    """
    if shutil.which("ldd") is None:
        raise MissingTool(
            "what Python needs is asked of `ldd`, which is not here",
            hint="ldd comes with the GNU C library (Debian: libc-bin)",
        )
    folders = [os.path.realpath(folder) + "/" for folder in within]
    said = subprocess.run(
        ["ldd", *map(str, files)], capture_output=True, text=True, errors="replace", check=False, timeout=120
    )
    found: dict[str, Path] = {}
    for line in said.stdout.splitlines():
        missing = _MISSING.match(line)
        if missing is not None and missing[1].split(".so")[0] not in OF_THE_C_LIBRARY:
            raise RequestError(f"a part of this Python needs {missing[1]}, which this machine does not have")
        arrow = _ARROW.match(line)
        if arrow is None or not arrow[2].startswith("/") or _of_the_c_library(arrow[1]):
            continue
        if not os.path.realpath(arrow[2]).startswith(tuple(folders)):
            found.setdefault(arrow[1], Path(arrow[2]))
    return found


def _of_the_c_library(name: str) -> bool:
    return name.split(".so")[0] in OF_THE_C_LIBRARY or name.rpartition("/")[2].startswith("ld-")


def c_library_needed(files: Iterable[Path]) -> tuple[int, int]:
    """The oldest GNU C library that has every symbol these files name, as (2, minor)."""
    newest = (2, 0)
    for path in files:
        for name in _needs(path):
            version = _VERSION.match(name)
            if version is not None:
                newest = max(newest, (int(version[1]), int(version[2])))
            newest = max(newest, _UNNUMBERED.get(name, (2, 0)))
    return newest


def _needs(path: Path) -> list[str]:
    with path.open("rb") as file:
        try:
            section = ELFFile(file).get_section_by_name(".gnu.version_r")
        except ELFError:
            return []
        if not isinstance(section, GNUVerNeedSection):
            return []
        return [str(aux.name) for _, auxiliaries in section.iter_versions() for aux in auxiliaries]
