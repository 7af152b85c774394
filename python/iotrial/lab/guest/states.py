"""Memory of guests that have just come up, kept in files: the next one that is to be the same goes on from there.

Under emulation a boot takes seconds, reading this a fraction of one. A state is good for exactly one machine: the same QEMU,
kernel, initramfs, memory, processors and disks; its name says which. Disks are empty when it is made, and nothing of them is
in memory. Nothing else depends on it: where there is none, or it does not come up, the guest is booted.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from iotrial.errors import LabError

#: so many are kept, those used last; each holds what the guest's memory holds besides zeros
MOST = 6
_ENDING, _MAKING = ".state", ".making"
_ABANDONED_S = 3600.0
_MARGIN_BYTES = 2 << 30


class States:
    """The states in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, key: str) -> int | None:
        """A descriptor of the one with this name, for reading; None where there is none, or one that another could have
        written: QEMU believes what stands in it."""
        path = self._path(key)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return None
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            os.close(descriptor)
            return None
        with suppress(OSError):  # another's folder, to be read only
            os.utime(path)
        return descriptor

    def keep(self, key: str, save: Callable[[int], None]) -> bool:
        """Have ``save`` write one to a descriptor, whole or not at all; whether it did. Gives up the one used longest ago."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            free = os.statvfs(self._folder)
            if free.f_bavail * free.f_frsize < _MARGIN_BYTES:
                return False
            descriptor, name = tempfile.mkstemp(dir=self._folder, suffix=_MAKING)
        except OSError:
            return False
        making = Path(name)
        try:
            save(descriptor)
            making.rename(self._path(key))
        except (LabError, OSError):
            return False
        finally:
            os.close(descriptor)
            making.unlink(missing_ok=True)
        self._tidy()
        return True

    def forget(self, key: str) -> None:
        """It did not come up."""
        with suppress(OSError):
            self._path(key).unlink()

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}{_ENDING}"

    def _tidy(self) -> None:
        with suppress(OSError):
            states = sorted(
                self._folder.glob(f"*{_ENDING}"), key=lambda path: path.stat().st_mtime, reverse=True
            )
            for path in states[MOST:]:
                path.unlink()
            for path in self._folder.glob(f"*{_MAKING}"):  # of somebody who was killed
                if path.stat().st_mtime < time.time() - _ABANDONED_S:
                    path.unlink()
