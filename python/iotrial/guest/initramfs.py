"""The initramfs of a guest: the probe as init, the modules it loads and the programs it may run.

It is not compressed: an emulated guest takes longer to unpack it than to have it copied into memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from iotrial.guest import cpio
from iotrial.guest.modules import Modules, content
from iotrial.guest.packages import Kernel, Packages
from iotrial.guest.tools import MERGED, Tools

#: cache version: raise it when the code below builds something else from the same needs
_EDITION = 1
_FOLDERS = ("/dev", "/proc", "/sys", "/run", "/tmp", "/root", "/etc", "/var/lib", "/var/tmp", "/var/run")
_ALWAYS = ("virtio_pci", "virtio_console", "virtio_blk")


@dataclass(frozen=True, slots=True)
class Needs:
    """What a guest must contain: modules (named as in lsmod), programs and files, and the packages that provide them."""

    modules: frozenset[str] = frozenset()
    packages: frozenset[str] = frozenset()
    programs: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()

    def __or__(self, other: Needs) -> Needs:
        return Needs(
            self.modules | other.modules,
            self.packages | other.packages,
            self.programs | other.programs,
            self.files | other.files,
        )


def initramfs(kernel: Kernel, needs: Needs, probe: Path, packages: Packages, folder: Path) -> Path:
    """Return the archive for this kernel, these needs and this probe: from the cache in ``folder``, or built there.

    Raises LabError if a module or program is not available.
    """
    made = folder / f"initramfs-{_key(kernel, needs, probe)}"
    if made.exists():
        return made
    entries: dict[str, cpio.Entry] = {**MERGED, "/init": cpio.File(probe)}
    if needs.programs or needs.files:
        tools = Tools(packages.tree(needs.packages))
        entries |= tools.entries(sorted(needs.programs), sorted(needs.files))
    loaded = []
    for module in Modules(kernel.modules).in_order((*_ALWAYS, *sorted(needs.modules))):
        path = f"/modules.d/{module.name.partition('.ko')[0]}.ko"
        entries[path] = cpio.Bytes(content(module))
        loaded.append(path)
    entries["/modules"] = cpio.Bytes("".join(f"{path}\n" for path in loaded).encode())
    entries["/etc/passwd"] = cpio.Bytes(
        b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"
    )
    entries["/etc/group"] = cpio.Bytes(b"root:x:0:\nnogroup:x:65534:\n")
    write(made, cpio.archive(entries, _FOLDERS))
    return made


def _key(kernel: Kernel, needs: Needs, probe: Path) -> str:
    words = [str(_EDITION), kernel.release, hashlib.sha256(probe.read_bytes()).hexdigest()]
    for group in (needs.modules, needs.packages, needs.programs, needs.files):
        words += ["", *sorted(group)]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]


def write(target: Path, pieces: Iterable[bytes]) -> None:
    """Write the file atomically: another process may look for it at the same time."""
    target.parent.mkdir(parents=True, exist_ok=True)
    making = target.with_name(target.name + ".making")
    with making.open("wb") as file:
        for piece in pieces:
            file.write(piece)
    making.rename(target)
