"""A cache of the memory of freshly booted guests: an identical guest resumes from it instead of booting.

Under emulation a boot takes seconds, reading a saved state a fraction of one. A state fits exactly one configuration: the
same QEMU, kernel, initramfs, memory, processors and disks; its file name identifies it. The disks are empty when a state is
saved, and none of their contents are in memory. It is only a cache: without a state, or if it fails, the guest is booted.

``Monitor`` speaks the part of QEMU's monitor protocol (QMP) that saves a guest's memory while the guest keeps running, and
that lists what QEMU has: one JSON object per line; docs/interop/qmp-spec in QEMU's documentation.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from iotrial.errors import LabError
from iotrial.polling import attempts

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


_ANSWERS_WITHIN_S = 30.0
_LOOKS_EVERY_S = 0.02


class Monitor:
    """One end of a socket pair; QEMU is started with the other end, ``theirs``."""

    def __init__(self) -> None:
        self._ours, self.theirs = socket.socketpair()
        self._ours.settimeout(_ANSWERS_WITHIN_S)
        self._received = b""
        self._greeted = False

    def save(self, descriptor: int, within_s: float) -> None:
        """Save the guest's memory and device state to a file, for another guest to resume from. This one keeps running.

        QEMU must have been started, and ``theirs`` closed here. Raises LabError; the guest keeps running even then.
        """
        self._ask("getfd", {"fdname": "state"}, descriptor)
        # do not stop the guest first, or the resumed one would start stopped: QEMU stops it itself for the last part
        self._ask("migrate", {"uri": "fd:state"})
        try:
            for _ in attempts(within_s, _LOOKS_EVERY_S):
                status = self._status()
                if status in ("completed", "failed", "cancelled"):
                    break
            if status != "completed":
                raise LabError(f"guest: saving its memory: {status}")
        finally:
            try:
                if self._status() in ("setup", "active", "device"):
                    self._ask("migrate_cancel")
            finally:
                self._ask("cont")

    def listed(self, command: str) -> list[dict[str, Any]]:
        """Return the answer to a query that lists objects. Raises LabError."""
        found = self._answer(command)
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise LabError(f"guest: QEMU's {command}: expected a list of objects")
        return found

    def close(self) -> None:
        """Close both ends. QEMU tolerates it."""
        self._ours.close()
        self.theirs.close()

    def _status(self) -> str:
        return str(self._ask("query-migrate").get("status", "none"))

    def _ask(
        self, command: str, arguments: Mapping[str, object] | None = None, descriptor: int | None = None
    ) -> Mapping[str, object]:
        found = self._answer(command, arguments, descriptor)
        return found if isinstance(found, Mapping) else {}

    def _answer(
        self, command: str, arguments: Mapping[str, object] | None = None, descriptor: int | None = None
    ) -> object:
        if not self._greeted:
            self._line()
            self._greeted = True
            self._ask("qmp_capabilities")
        text = json.dumps({"execute": command, "arguments": arguments or {}}).encode() + b"\n"
        try:
            if descriptor is None:
                self._ours.sendall(text)
            else:
                socket.send_fds(self._ours, [text], [descriptor])
        except OSError as error:
            raise LabError(f"guest: QEMU command {command}: {error.strerror}") from error
        while True:
            answer = self._line()
            if "error" in answer:
                raise LabError(f"guest: QEMU's {command}: {answer['error']}")
            if "return" in answer:  # anything else is an event
                return answer["return"]

    def _line(self) -> Mapping[str, object]:
        try:
            while b"\n" not in self._received:
                chunk = self._ours.recv(1 << 16)
                if not chunk:
                    raise LabError("guest: QEMU closed its monitor")
                self._received += chunk
            line, _, self._received = self._received.partition(b"\n")
            found = json.loads(line)
        except (OSError, ValueError) as error:
            raise LabError(f"guest: QEMU's monitor: {error}") from error
        if not isinstance(found, dict):
            raise LabError(f"guest: QEMU's monitor reported {line[:200]!r}")
        return found
