"""Which modules of a kernel a guest needs, and in which order they are loaded: from what the modules say of themselves.

A distribution makes modules.dep when a kernel is installed; one that is only unpacked has none, but every module names what
it depends on (``depends=`` in its .modinfo). A module that a kernel has built in is none to load, and one that it does not
have at all is told by name, because what a study needs is then not possible with that kernel.
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
    """The modules of one unpacked kernel, whose ``lib/modules/VERSION`` is ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def in_order(self, wanted: Iterable[str]) -> tuple[Path, ...]:
        """Files of these modules (named as in lsmod) and of all that they depend on, each behind what it needs.

        Raises LabError that names those which this kernel does not have.
        """
        asked = [_plain(name) for name in wanted]
        missing = sorted({name for name in asked if name not in self._files and name not in self._built_in})
        if missing:
            raise LabError(
                f"guest kernel {self.root.name}: it has no module {', '.join(missing)}",
                hint="choose another kernel for the guest, or leave out what needs them",
            )
        order: dict[str, Path] = {}
        for name in asked:
            self._add(name, order, ())
        return tuple(order.values())

    def _add(self, name: str, order: dict[str, Path], above: tuple[str, ...]) -> None:
        file = self._files.get(name)
        if file is None or name in order or name in above:
            return  # built in, or there already
        data = content(file)
        for other in (*self._before(data), *depends_on(data)):
            self._add(other, order, (*above, name))
        order[name] = file

    def _before(self, module: bytes) -> Iterator[str]:
        """What it wants to be there where there is such a thing: often an algorithm, by the name that the kernel has for it,
        of which one that any processor can do is called after it."""
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
    """What is loaded: the module itself, unpacked where the distribution has packed it. Raises LabError where it cannot."""
    data = module.read_bytes()
    if module.suffix == ".ko":
        return data
    if module.suffix == ".xz":
        return lzma.decompress(data)
    raise LabError(f"guest kernel: module {module.name} is packed in a way that is not known here")


def depends_on(module: bytes) -> tuple[str, ...]:
    """The modules that one needs directly, as it says itself."""
    found = _DEPENDS.search(module)
    return tuple(_plain(name.decode()) for name in found[1].split(b",") if name) if found else ()


def _name(path: str) -> str:
    return _plain(path.rpartition("/")[2].partition(".ko")[0])


def _plain(name: str) -> str:
    """lsmod writes an underline where the file has either."""
    return name.replace("-", "_")
