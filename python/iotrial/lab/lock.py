"""One conductor a machine: a lock file in /run/lock, for root and others alike."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path
from types import TracebackType

from iotrial.errors import IotrialError

LOCK = Path("/run/lock/iotrial.lock")
_REMOVE = "no iotrial makes it so: look who has put it there, and remove it"


def is_held(path: Path = LOCK) -> bool:
    """Whether somebody conducts a trial on this machine just now, as far as the kernel tells.

    It is not tried out: for that moment whoever begins a trial would be refused.
    """
    try:
        inode = path.stat().st_ino
        locks = Path("/proc/locks").read_text("ascii")
    except OSError:
        return False
    # 1: FLOCK  ADVISORY  WRITE 4242 00:1a:1337 0 EOF; one who waits has "->" before the kind (proc_locks(5))
    held = [line.split() for line in locks.splitlines() if "->" not in line]
    return any(
        (one[1], one[3]) == ("FLOCK", "WRITE") and one[5].endswith(f":{inode}")
        for one in held
        if len(one) > 5
    )


class Busy(IotrialError):
    """Another conductor is at work on this machine."""

    code = "busy"


class MachineLock:
    """Held for as long as a trial or a restore runs; the kernel lets go of it when its holder dies."""

    def __init__(self, path: Path = LOCK) -> None:
        self._path = path
        self._descriptor: int | None = None

    def __enter__(self) -> MachineLock:
        descriptor = self._open()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise Busy(
                f"another iotrial is measuring on this machine (process {holder or 'unknown'})",
                hint="two trials at once would disturb each other: wait for it to end",
            ) from None
        self._descriptor = descriptor
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError:
            pass  # opened for reading only: the lock counts, the number is a courtesy
        return self

    def _open(self) -> int:
        # Without O_CREAT first: in a sticky folder the kernel refuses O_CREAT on another user's file.
        always = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        for flags in (os.O_RDWR, os.O_RDONLY, os.O_RDWR | os.O_CREAT):
            try:
                descriptor = os.open(self._path, flags | always, 0o666)
            except (FileNotFoundError, PermissionError) as error:
                last: OSError = error
                continue
            except OSError as error:  # ELOOP, EISDIR, ENXIO: not a file
                last = error
                break
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return descriptor
            os.close(descriptor)
            raise IotrialError(f"lock {self._path}: wanted a plain file, found something else", hint=_REMOVE)
        raise IotrialError(f"lock {self._path}: {last.strerror}", hint=_REMOVE) from last

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
