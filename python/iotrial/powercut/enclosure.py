"""A place for programs that must not change the machine: a view of it that is thrown away, without a network.

In a separate mount namespace every file system is read-only. Folders where programs expect to write have an overlay in
memory, /dev has no disks, and the network is a separate loopback. A program that runs as root loses the capabilities with
which it could undo this.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import stat
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from iotrial.errors import LabError, NotSupported
from iotrial.powercut.mounts import bind

_LIBC = ctypes.CDLL(None, use_errno=True)
#: of linux/sched.h, linux/mount.h, linux/sockios.h, linux/if.h, linux/prctl.h and linux/capability.h
_NEWUTS, _NEWIPC, _NEWNET = 0x04000000, 0x08000000, 0x40000000
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _ATTR_RDONLY = 442, -100, 0x8000, 1
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_CAPBSET_DROP, _NO_NEW_PRIVS = 24, 38
#: DAC_READ_SEARCH, LINUX_IMMUTABLE, SYS_MODULE, SYS_RAWIO, SYS_ADMIN, SYS_BOOT, SYS_TIME, MKNOD, SYSLOG
_DROPPED = (2, 9, 16, 17, 21, 22, 25, 27, 34)
#: what gets an overlay
_WRITABLE = ("/tmp", "/var", "/run", "/home", "/root")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_MEMORY_SHARE, _LEAST_MEMORY = 0.5, 256 << 20
MOST_PROCESSES = 1000
_LOOK_S = 0.1


def enclose(folder: Path, device: str, socket_path: Path | None = None) -> None:
    """Make this mount namespace such a place. ``folder``: an empty one, for the overlays. ``device``: a disk to leave.
    ``socket_path``: a socket that can be connected to from inside, which an overlay would prevent.

    Raises LabError, or NotSupported before Linux 5.12.
    """
    if _LIBC.unshare(_NEWUTS | _NEWIPC | _NEWNET) != 0:
        raise _failed("make a network namespace")
    _loopback_up()
    number = Path(device).stat().st_rdev
    attributes = struct.pack("=QQQQ", _ATTR_RDONLY, 0, 0, 0)
    if _LIBC.syscall(_MOUNT_SETATTR, _AT_FDCWD, b"/", _AT_RECURSIVE, attributes, len(attributes)) != 0:
        if ctypes.get_errno() == 38:
            raise NotSupported("cutting the power of a service needs Linux 5.12")
        raise _failed("make everything read-only")
    held = None if socket_path is None else os.open(socket_path, os.O_PATH)
    _mounted("tmpfs", folder, "tmpfs", "mode=755,size=25%")
    # the one that hides the folder comes last
    for writable in sorted(map(Path, _WRITABLE), key=lambda one: folder.is_relative_to(one)):
        if writable.is_symlink() or not writable.is_dir():
            continue
        upper, work = (folder / f"{writable.name}-{what}" for what in ("upper", "work"))
        there = writable.stat()
        for one in (upper, work):
            one.mkdir()
            one.chmod(stat.S_IMODE(there.st_mode))
            os.chown(one, there.st_uid, there.st_gid)
        _mounted("overlay", writable, "overlay", f"lowerdir={writable},upperdir={upper},workdir={work}")
    _devices(device, number)
    if socket_path is not None and held is not None:
        bind(Path(f"/proc/self/fd/{held}"), socket_path)
        os.close(held)


def _devices(device: str, number: int) -> None:
    """Replace /dev by one without disks but for the one named."""
    dev = Path("/dev")
    numbers = {name: (dev / name).stat().st_rdev for name in _DEVICES if (dev / name).exists()}
    _mounted("tmpfs", dev, "tmpfs", "mode=755,size=1m")
    old = os.umask(0)
    try:
        for name, each in numbers.items():
            os.mknod(f"/dev/{name}", 0o666 | stat.S_IFCHR, each)
        os.mknod(device, 0o600 | stat.S_IFBLK, number)
    finally:
        os.umask(old)
    (dev / "fd").symlink_to("/proc/self/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        (dev / name).symlink_to(f"/proc/self/fd/{number}")
    for name, kind, options in (
        ("shm", "tmpfs", "mode=1777,size=25%"),
        ("pts", "devpts", "newinstance,ptmxmode=0666"),
    ):
        (dev / name).mkdir()
        _mounted(kind, dev / name, kind, options)
    (dev / "ptmx").symlink_to("pts/ptmx")


def as_user(uid: int, gid: int) -> Callable[[], None]:
    """Return what a program of this user does before it starts: it gives up what could lead out of the enclosure."""

    def drop() -> None:
        for capability in _DROPPED:
            _LIBC.prctl(_CAPBSET_DROP, capability, 0, 0, 0)
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
        _LIBC.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)

    return drop


class Guard:
    """Ends everything in this PID namespace once it takes too many processes or too much memory. Use as a context manager.

    For process 1 of the namespace. ``reason``: why it did, or empty.
    """

    def __init__(self) -> None:
        self.reason = ""
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self._most_bytes = max(_LEAST_MEMORY, int(pages * _MEMORY_SHARE))
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Guard:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(_LOOK_S):
            processes = [one.name for one in Path("/proc").iterdir() if one.name.isdigit()]
            if len(processes) > MOST_PROCESSES:
                self.reason = f"it started more than {MOST_PROCESSES:,} processes"
            elif sum(map(_own_bytes, processes)) > self._most_bytes:
                self.reason = f"it took more than {self._most_bytes >> 20} MiB of memory"
            if self.reason:
                with suppress(ProcessLookupError):
                    os.kill(-1, 9)
                return


def _own_bytes(process: str) -> int:
    """Return what a process has in memory for itself: resident, less what it shares."""
    with suppress(OSError, ValueError, IndexError):
        words = Path(f"/proc/{process}/statm").read_bytes().split()
        return (int(words[1]) - int(words[2])) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))


def _mounted(source: str, folder: Path, kind: str, options: str) -> None:
    if (
        _LIBC.mount(source.encode(), str(folder).encode(), kind.encode(), ctypes.c_ulong(0), options.encode())
        != 0
    ):
        raise _failed(f"mount {kind} on {folder}")


def _failed(what: str) -> LabError:
    return LabError(f"cannot {what}: {os.strerror(ctypes.get_errno())}")
