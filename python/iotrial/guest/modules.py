"""Find the kernel modules that a guest needs and their load order, from the modules' own .modinfo sections.

A distribution creates modules.dep when it installs a kernel. A kernel that was only unpacked has none, but every module
lists its dependencies (``depends=`` in .modinfo). Modules built into the kernel are skipped. Missing modules are an
error that names them, because the study cannot run with that kernel.
"""

from __future__ import annotations

import lzma
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

from iotrial.errors import LabError

_BEFORE = re.compile(rb"\0softdep=pre: ([^\0]*)(?=\0)")
_DEPENDS = re.compile(rb"\0depends=([^\0]*)\0")


class Modules:
    """The modules of one unpacked kernel; ``root`` is its ``lib/modules/VERSION``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def in_order(self, wanted: Iterable[str]) -> tuple[Path, ...]:
        """Return the files of these modules (named as in lsmod) and their dependencies, in load order.

        Raises LabError naming the modules that this kernel lacks.
        """
        names = [_plain(name) for name in wanted]
        missing = sorted({name for name in names if name not in self._files and name not in self._built_in})
        if missing:
            raise LabError(
                f"guest kernel {self.root.name}: it has no module {', '.join(missing)}",
                hint="choose another kernel for the guest, or omit what needs them",
            )
        order: dict[str, Path] = {}
        for name in names:
            self._add(name, order, ())
        return tuple(order.values())

    def _add(self, name: str, order: dict[str, Path], above: tuple[str, ...]) -> None:
        file = self._files.get(name)
        if file is None or name in order or name in above:
            return  # built in, or already added
        data = content(file)
        for other in (*self._before(data), *depends_on(data)):
            self._add(other, order, (*above, name))
        order[name] = file

    def _before(self, module: bytes) -> Iterator[str]:
        """Yield the module's soft dependencies (softdep "pre"), to be loaded first if they exist.

        Often these are crypto algorithms under the kernel's name; their portable module is called ``..._generic``.
        """
        for found in _BEFORE.findall(module):
            for name in found.decode().split():
                plain = _plain(name.removeprefix("crypto-"))
                yield next((one for one in (f"{plain}_generic", plain) if one in self._files), plain)

    @cached_property
    def _files(self) -> dict[str, Path]:
        found = {_name(path.name): path for path in sorted(self.root.rglob("*.ko*"))}
        if not found:
            raise LabError(f"guest kernel: there are no modules in {self.root}")
        return found

    @cached_property
    def _built_in(self) -> frozenset[str]:
        try:
            lines = (self.root / "modules.builtin").read_text().splitlines()
        except OSError as error:
            raise LabError(
                f"guest kernel {self.root.name}: reading modules.builtin: {error.strerror}"
            ) from error
        return frozenset(map(_name, lines))


def content(module: Path) -> bytes:
    """Return the module as it is loaded, decompressed if necessary. Raises LabError if the format is not supported."""
    data = module.read_bytes()
    if module.suffix == ".ko":
        return data
    if module.suffix == ".xz":
        return lzma.decompress(data)
    raise LabError(f"guest kernel: module {module.name} has an unknown compression format")


def depends_on(module: bytes) -> tuple[str, ...]:
    """Return the direct dependencies that the module lists."""
    found = _DEPENDS.search(module)
    return tuple(_plain(name.decode()) for name in found[1].split(b",") if name) if found else ()


def _name(path: str) -> str:
    return _plain(path.rpartition("/")[2].partition(".ko")[0])


def _plain(name: str) -> str:
    """Return a module name as lsmod prints it: with underscores where the file name may have hyphens."""
    return name.replace("-", "_")
