"""The machine lock, which allows one conductor per machine, and the lookup of its holder.

Root's lock is in /run, where only root can create files, and only root can open it. Another user's lock is in a directory
where everybody can create files, and only its owner can open it. So nobody can hold a lock that is not their own. Locks of
other users are never opened but looked up in /proc/locks (proc_locks(5)), after taking one's own: of two conductors that
start at the same time, at least one sees the other.

The holder writes a signature into its lock. With it, restore can tell a trial run by any program, such as one that uses the
library, from a process that merely holds the file.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from iotrial.errors import IotrialError

#: everybody can see that it exists and, through /proc/locks, whether it is held
ROOT_LOCK = Path("/run/iotrial.lock")
#: folders for other users' locks; the first one that is writable is used (on some systems only root can write to /run/lock)
SHARED_FOLDERS = (Path("/run/lock"), Path("/dev/shm"))
_PROBE = "ioprobe"
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_REMOVE = "iotrial does not create it like this: find out who put it there, and remove it"


class Busy(IotrialError):
    """Another conductor is running on this machine: ``holder``, where it is known."""

    code = "busy"

    def __init__(self, message: str, *, hint: str | None = None, holder: Holder | None = None) -> None:
        super().__init__(message, hint=hint)
        self.holder = holder


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a lock, by the kernel's PID; ``pid`` 0 if it is in another PID namespace."""

    pid: int

    def __str__(self) -> str:
        if not self.pid:
            return "a process that is not visible from here"
        command = " ".join(_command(self.pid))
        return f"process {self.pid} of user {self._user()} ({command[:120] or 'no command line'})"

    def _user(self) -> str:
        try:
            uid = Path(f"/proc/{self.pid}").stat().st_uid
            return pwd.getpwuid(uid).pw_name
        except KeyError:
            return str(uid)
        except OSError:
            return "unknown"

    @property
    def at_work(self) -> bool:
        """True if it runs iotrial, or has started a probe (as a program that uses the library does)."""
        if any(word.rpartition("/")[2] == "iotrial" for word in _command(self.pid)):
            return True
        return any(_is_child(path, self.pid) for path in Path("/proc").glob("[0-9]*/stat"))


class MachineLock:
    """The lock held while a trial or a restore runs. The kernel releases it when the holder dies.

    A trial is refused while any other conductor is running on this machine, a restore (``restoring``) only while one of this
    user or root is. ``path``: use this lock instead of the user's, and check only it.
    """

    def __init__(self, path: Path | None = None, *, restoring: bool = False) -> None:
        self._path = path
        self._restoring = restoring
        self._descriptor: int | None = None

    def __enter__(self) -> MachineLock:
        path = self._path or own_lock()
        descriptor = _open(path)
        try:
            self._take(descriptor, path)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return self

    def _take(self, descriptor: int, path: Path) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(os.fstat(descriptor), any_mode=True) or Holder(0)
            if holder.at_work or not holder.pid or _is_signed(descriptor, holder.pid):
                raise _busy(holder) from None
            if not self._restoring:
                raise Busy(
                    f"lock {path}: held by {holder}, which is not a trial",
                    hint="stop that process, or wait for it",
                ) from None
        else:
            _sign(descriptor)
        if self._path is None:
            for holder in _others(path, restoring=self._restoring):
                raise _busy(holder)

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def taken(descriptor: int) -> bool:
    """Take an open file's lock if it is free, without waiting; return whether it is held now."""
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def still_held(descriptor: int, path: Path, after_s: float) -> Busy:
    """Return the error for a lock that another process has kept all the time; ``after_s``: seconds waited."""
    holder = _holder(os.fstat(descriptor), any_mode=True) or Holder(0)
    return Busy(
        f"lock {path}: waited {after_s:.0f} s, held by {holder}",
        hint="stop that process, or wait for it",
        holder=holder,
    )


def is_held(path: Path | None = None) -> bool:
    """Return whether somebody conducts a trial on this machine now, as far as the kernel shows; with ``path``, whether that
    lock is held.

    It does not try to take the lock: a trial that starts at that moment would be refused.
    """
    if path is None:
        return any(True for _ in _others(None, restoring=False))
    with suppress(OSError):
        return _holder(path.stat()) is not None
    return False


def is_held_here() -> bool:
    """Return whether a trial or a restore of this user, and thus of this undo journal, is running."""
    return any(is_held(path) for path, _ in _locks_of(os.geteuid()))


def own_lock() -> Path:
    """Return the path of this user's lock, creating it if it is missing (not root's).

    A name that somebody else has taken is skipped, so nobody can keep a user from having a lock. Raises IotrialError.
    """
    uid = os.geteuid()
    if uid == 0:
        return ROOT_LOCK
    for path, _ in _locks_of(uid):
        return path
    for folder in SHARED_FOLDERS:
        for more in ("", f"-{os.urandom(4).hex()}"):
            path = folder / f"iotrial-{uid}{more}.lock"
            with suppress(OSError):
                os.close(os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600))
                return path
            for made, _ in _locks_of(uid):  # created by another process of this user in the meantime
                return made
    raise IotrialError(
        f"lock: cannot create a file in {' or '.join(map(str, SHARED_FOLDERS))}",
        hint="without a lock two trials could disturb each other: make one of these folders writable (mode 1777)",
    )


def _others(own: Path | None, *, restoring: bool) -> Iterator[Holder]:
    """Yield the holders of locks other than this one. A restore checks only those of root and its own user."""
    locks = [*_locks_of(0), *_locks_of(os.geteuid() if restoring else None)]
    for path, status in locks:
        holder = None if path == own else _holder(status)
        if holder is not None and (status.st_uid == 0 or holder.at_work):
            yield holder


def _locks_of(uid: int | None) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield root's lock (0), those of one user, or of all users (None). Only files that nobody but their owner can open."""
    paths = [ROOT_LOCK]
    if uid != 0:
        paths = [path for folder in SHARED_FOLDERS for path in sorted(folder.glob("iotrial-*.lock"))]
    for path in paths:
        with suppress(OSError):
            found = path.lstat()
            wanted = found.st_uid != 0 if uid is None else found.st_uid == uid
            if wanted and stat.S_ISREG(found.st_mode) and not found.st_mode & 0o077:
                yield path, found


def _holder(lock: os.stat_result, *, any_mode: bool = False) -> Holder | None:
    """Return the holder of this file's flock(2) lock: an exclusive one, or with ``any_mode`` any."""
    try:
        table = Path("/proc/locks").read_text("ascii")
    except OSError:
        return None
    file = f"{os.major(lock.st_dev):02x}:{os.minor(lock.st_dev):02x}:{lock.st_ino}"
    # 1: FLOCK  ADVISORY  WRITE 4242 00:1a:1337 0 EOF; a waiting process has "->" before the type
    for line in table.splitlines():
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[5] == file and (any_mode or words[3] == "WRITE"):
            return Holder(_living(int(words[4]), file))
    return None


def _living(pid: int, file: str) -> int:
    """Return the process that took a lock. If it has ended, one that inherited the lock and is visible here, else 0.

    The kernel keeps reporting the PID of the first process, which may belong to another process by now.
    """
    if _holds(Path(f"/proc/{pid}"), file) is not False:
        return pid
    return next((int(path.name) for path in Path("/proc").glob("[0-9]*") if _holds(path, file)), 0)


def _holds(process: Path, file: str) -> bool | None:
    """Return whether a process has a descriptor with this lock; None if we have no permission to look."""
    try:
        for path in (process / "fdinfo").iterdir():
            with suppress(FileNotFoundError):
                lines = path.read_text().splitlines()
                if any(line.startswith("lock:") and f" {file} " in line for line in lines):
                    return True
    except PermissionError:
        return None
    except OSError:
        return False
    return False


def _sign(descriptor: int) -> None:
    """Write the owner's signature into a lock. If there is no space for it, the owner is recognised by its command only."""
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, _signature(os.getpid()), 0)


def _is_signed(descriptor: int, pid: int) -> bool:
    """Return whether this process has taken the lock as a trial or a restore does."""
    with suppress(OSError):
        signature = _signature(pid)
        return bool(signature) and os.pread(descriptor, 64, 0) == signature
    return False


def _signature(pid: int) -> bytes:
    """Return the start time of a process in clock ticks since boot (proc_pid_stat(5)): the same in every PID namespace."""
    with suppress(OSError, IndexError):
        started = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19]
        return b"started " + started + b"\n"
    return b""


def _command(pid: int) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    return []


def _is_child(path: Path, pid: int) -> bool:
    """Return whether this /proc/PID/stat file (proc_pid_stat(5)) is that of a probe started by the process."""
    with suppress(OSError, IndexError):
        name, rest = path.read_text(errors="replace").split("(", 1)[1].rsplit(")", 1)
        return name == _PROBE and int(rest.split()[1]) == pid
    return False


def _busy(holder: Holder) -> Busy:
    end = "" if os.geteuid() else f", or stop it (kill {holder.pid})" if holder.pid else ""
    return Busy(
        f"another iotrial is running on this machine: {holder}",
        hint=f"two at once would disturb each other: wait until it ends{end}",
        holder=holder,
    )


def _open(path: Path) -> int:
    """Open the lock's file so that nobody but this user can open it. Raises IotrialError."""
    try:
        descriptor = os.open(path, _FLAGS | os.O_CREAT, 0o600)
    except OSError as error:  # ELOOP, EISDIR, ENXIO: not a file
        raise IotrialError(f"lock {path}: {error.strerror}", hint=_REMOVE) from error
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
        if found.st_mode & 0o077:
            os.fchmod(descriptor, 0o600)
        return descriptor
    os.close(descriptor)
    wrong = f"it belongs to user {found.st_uid}" if stat.S_ISREG(found.st_mode) else "something else"
    raise IotrialError(
        f"lock {path}: expected a plain file of user {os.geteuid()}, found {wrong}", hint=_REMOVE
    )
