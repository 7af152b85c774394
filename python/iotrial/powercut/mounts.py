"""Mounts in a mount namespace of a process's own, so that nothing stays mounted after it."""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from iotrial.errors import LabError
from iotrial.polling import attempts

_LIBC = ctypes.CDLL(None, use_errno=True)
#: of linux/sched.h, linux/mount.h and linux/prctl.h
_CLONE_NEWNS, _CLONE_NEWPID, _MS_BIND, _MS_REC, _MS_PRIVATE = (
    0x00020000,
    0x20000000,
    1 << 12,
    1 << 14,
    1 << 18,
)
_DIES_WITH_PARENT = 1
#: how long a file system may stay busy
BUSY_S = 5.0


def enter_own_namespace(parent: int) -> None:
    """Give this process, a child of ``parent``, its own mount namespace, and let it die with its parent. Raises LabError."""
    _LIBC.prctl(_DIES_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    made = _LIBC.unshare(_CLONE_NEWNS) == 0
    if not made or _LIBC.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None) != 0:
        raise LabError(f"cannot make a mount namespace: {os.strerror(ctypes.get_errno())}")


def enter_own_processes(answers: int) -> None:
    """Continue as process 1 of a PID namespace, with its own /proc: whatever it starts ends with it. Raises LabError.

    The calling process, which must have its own mount namespace, only waits from now on. On SIGTERM it kills the new one,
    and it ends when no process of the namespace is left. ``answers``: a descriptor that only the new one keeps.
    """
    started: list[int] = []

    def end(*_: object) -> None:
        for pid in started:
            os.kill(pid, signal.SIGKILL)

    signal.signal(signal.SIGTERM, end)
    os.setsid()  # Ctrl-C at the terminal is for the caller, who then ends this one
    if _LIBC.unshare(_CLONE_NEWPID) != 0:
        raise LabError(f"cannot make a PID namespace: {os.strerror(ctypes.get_errno())}")
    pid = os.fork()
    if pid:
        started.append(pid)
        os.close(answers)  # so that the other side sees that the new process has ended
        os.waitpid(pid, 0)
        os._exit(0)
    _LIBC.prctl(_DIES_WITH_PARENT, signal.SIGKILL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if _LIBC.mount(b"proc", b"/proc", b"proc", ctypes.c_ulong(0), None) != 0:
        raise LabError(f"cannot mount /proc: {os.strerror(ctypes.get_errno())}")


def end_all_others() -> None:
    """Kill every other process of the PID namespace that has this as process 1, and wait until none is left."""
    with suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def mount(device: str, folder: Path, filesystem: str, options: str = "") -> None:
    """Mount a device, or "tmpfs"; waits while it is busy. Raises OSError."""
    _while_busy(
        lambda: _LIBC.mount(
            device.encode(),
            str(folder).encode(),
            filesystem.encode(),
            ctypes.c_ulong(0),
            options.encode() or None,
        ),
        f"mount {device}",
    )


def bind(file: Path, over: Path) -> None:
    """Bind-mount one file over another. Raises OSError."""
    _while_busy(
        lambda: _LIBC.mount(str(file).encode(), str(over).encode(), None, ctypes.c_ulong(_MS_BIND), None),
        f"bind {file} to {over}",
    )


def unmount(folder: Path) -> None:
    """Unmount; waits while it is busy, which files of a caught exception can make it. Raises OSError."""
    _while_busy(lambda: _LIBC.umount2(str(folder).encode(), 0), f"unmount {folder}")


def sync_filesystem(root: Path) -> None:
    """Write everything of one file system to its disk (syncfs). Raises OSError."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if _LIBC.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"sync {root}: {os.strerror(number)}")
    finally:
        os.close(descriptor)


def _while_busy(call: Callable[[], int], doing: str) -> None:
    for _ in attempts(BUSY_S, every_s=0.005):
        if call() == 0:
            return
        number = ctypes.get_errno()
        if number != errno.EBUSY:
            break
        gc.collect()
    raise OSError(number, f"{doing}: {os.strerror(number)}")
