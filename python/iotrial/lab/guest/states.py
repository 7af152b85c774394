"""A cache of the memory of freshly booted guests: an identical guest resumes from it instead of booting.

Under emulation a boot takes seconds, reading a saved state a fraction of one. A state fits exactly one configuration: the
same QEMU, kernel, initramfs, memory, processors and disks; its file name identifies it. The disks are empty when a state is
saved, and none of their contents are in memory. It is only a cache: without a state, or if it fails, the guest is booted.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from iotrial.errors import LabError

#: number of states kept, by last use; each is about as large as the guest's memory without its zero pages
MOST = 6
_ENDING, _MAKING = ".state", ".making"
_ABANDONED_S = 3600.0
_MARGIN_BYTES = 2 << 30


class States:
    """The states in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, key: str) -> int | None:
        """Open a state for reading. None if it does not exist or another user could have written it: QEMU trusts it."""
        path = self._path(key)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return None
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            os.close(descriptor)
            return None
        with suppress(OSError):  # the folder may be another user's and read-only
            os.utime(path)
        return descriptor

    def keep(self, key: str, save: Callable[[int], None]) -> bool:
        """Save a state atomically with ``save``, which writes to a descriptor. Returns whether it was saved.

        Deletes the least recently used states above ``MOST``.
        """
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
        """Delete a state that failed to resume."""
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
            for path in self._folder.glob(f"*{_MAKING}"):  # left by a process that was killed
                if path.stat().st_mtime < time.time() - _ABANDONED_S:
                    path.unlink()
