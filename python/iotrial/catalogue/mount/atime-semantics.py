"""System calls, each done twice to an object of its own, and what became of the object's access time, as JSON.

    python3 atime-semantics.py FILE FOLDER [READS]

FILE tells in which state the times of the objects are to stand; they are made in FOLDER, written back and not cached. Then
each call is done, and the kernel asked at once whether the access time is another one, and whether the change waits in memory
alone: an inode of which only times are dirty stands on a list of its own (b_dirty_time of the device's write-back, in
debugfs). Some ticks of the clock later each is done once more. At the end one file is read READS times in a row: its access
time comes from a clock that ticks. Needs root, and Linux on a 64-bit machine.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import mmap
import os
import platform
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

PAGE = 4096
#: both times of a call reach pages of their own
SIZE = 4 * PAGE
HOUR, SECOND = 3_600_000_000_000, 1_000_000_000
TICKS = 3
FICLONE, FIEMAP = 0x40049409, 0xC020660B
CLONE_NEWNS, MS_REC_PRIVATE = 0x20000, 0x44000
AT_FDCWD, UTIME_OMIT = -100, 0x3FFFFFFE
#: io_setup, io_destroy, io_getevents, io_submit; those of io_uring are the same everywhere
AIO = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
IO_URING_SETUP, IO_URING_ENTER = 425, 426
FOLDERS = ("getdents", "open-folder", "stat-inside", "open-inside", "create-inside", "rename-inside")
LINKS = ("readlink", "lstat", "stat-through", "open-through")

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.read.restype = ctypes.c_ssize_t
libc.readahead.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_size_t)
libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
libc.syscall.restype = ctypes.c_long


def done(result: int) -> int:
    """The result of a call by ctypes. OSError where it failed."""
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


class Object:
    """A file, folder or symbolic link of one call, and what the call works on, opened before the times are set."""

    def __init__(self, folder: str, call: str) -> None:
        self.call = call
        self.path = f"{folder}/{call}"
        self.beside = f"{self.path}/inside" if call in FOLDERS else f"{self.path}.beside"
        self.is_file = call not in (*FOLDERS, *LINKS)
        self.fd = self.other = -1
        self.mapping: mmap.mmap
        self.address: ctypes.c_void_p
        self.unprepared: OSError | None = None
        if call in FOLDERS:
            os.mkdir(self.path)
            write_file(self.beside, b"inside")
        elif call in LINKS:
            write_file(self.beside, b"beside")
            os.symlink(self.beside, self.path)
        else:
            write_file(self.path, b"#!/bin/true\n" if call == "execve" else b"a" * SIZE)
        if call in ("copy-file-range", "clone"):
            write_file(self.beside, b"")
        elif call in ("copy-file-range-to", "clone-to"):
            write_file(self.beside, b"a" * SIZE)
        elif call == "unlink":
            os.link(self.path, self.further(0))
            os.link(self.path, self.further(1))
        elif call == "getxattr":
            with suppress(OSError):  # a file system without such attributes refuses the call too
                os.setxattr(self.path, "user.iotrial", b"1")

    def atime(self) -> int:
        """Nanoseconds, of a link its own. Asking changes nothing."""
        return os.lstat(self.path).st_atime_ns

    def further(self, round: int) -> str:
        return f"{self.path}.{round}"

    def prepare(self) -> None:
        """Open and map what the call needs. Where that fails, so does the call."""
        flags = OPENED.get(self.call)
        try:
            if flags is not None:
                self.fd = os.open(self.path, flags | os.O_NOFOLLOW)
            if self.call == "sendfile":
                self.other = os.memfd_create("atime")
            elif self.call in ("copy-file-range", "clone"):
                self.other = os.open(self.beside, os.O_WRONLY)
            elif self.call in ("copy-file-range-to", "clone-to"):
                # without a trace, so that nothing but the object is changed
                self.other = os.open(self.beside, os.O_RDONLY | os.O_NOATIME)
            elif self.call == "splice":
                _, self.other = self.ends = os.pipe()
            elif self.call == "mincore":
                place = libc.mmap(None, ctypes.c_size_t(SIZE), mmap.PROT_READ, mmap.MAP_SHARED, self.fd, 0)
                self.address = ctypes.c_void_p(done(place))
            elif self.call in ("mapped-read", "madvise-willneed"):
                self.mapping = mmap.mmap(self.fd, SIZE, mmap.MAP_SHARED, mmap.PROT_READ)
            elif self.call == "mapped-write":
                self.mapping = mmap.mmap(self.fd, SIZE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
            elif self.call == "open-by-handle":
                self.handle = handle_of(self.path)
                self.other = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            self.unprepared = error

    def perform(self, round: int) -> None:
        """Do the call, for the first (0) or the second time (1). OSError where the kernel refuses."""
        if self.unprepared is not None:
            raise self.unprepared
        CALLS[self.call](self, round)


def write_file(path: str, content: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o755)
    os.write(fd, content)
    os.close(fd)


def opened(path: str, flags: int) -> None:
    os.close(os.open(path, flags))


# calls that need more than a line

# Direct reads go to a whole page that is there: for one that is not yet, btrfs reads through the cache instead, and notes it.
READ = mmap.mmap(-1, PAGE)
READ[:] = bytes(PAGE)
ROOM = ctypes.addressof(ctypes.c_char.from_buffer(READ))


def handle_of(path: str) -> ctypes.Array[ctypes.c_char]:
    """As name_to_handle_at(2) gives it: how many bytes, of which kind, and they themselves."""
    handle = ctypes.create_string_buffer(struct.pack("=Ii", 128, 0), 8 + 128)
    mount = ctypes.c_int()
    done(libc.name_to_handle_at(AT_FDCWD, path.encode(), handle, ctypes.byref(mount), 0))
    return handle


def read_by_aio(one: Object, round: int) -> None:
    setup, destroy, events, submit = AIO[platform.machine()]
    context = ctypes.c_ulong()
    done(libc.syscall(setup, 1, ctypes.byref(context)))
    try:
        # <linux/aio_abi.h>: data, key and flags, pread (0), priority, file, buffer, bytes, offset, reserved, flags, eventfd
        packed = struct.pack("=QQHhIQQqQII", 0, 0, 0, 0, one.fd, ROOM, PAGE, round * PAGE, 0, 0, 0)
        request = ctypes.create_string_buffer(packed)
        requests = (ctypes.c_void_p * 1)(ctypes.addressof(request))
        done(libc.syscall(submit, context, ctypes.c_long(1), requests))
        event = ctypes.create_string_buffer(32)
        done(libc.syscall(events, context, ctypes.c_long(1), ctypes.c_long(1), event, None))
    finally:
        libc.syscall(destroy, context)
    checked(struct.unpack("=QQqq", event.raw)[2])


def read_by_io_uring(one: Object, round: int) -> None:
    # struct io_uring_params: ten words, then where things stand in the rings
    params = ctypes.create_string_buffer(120)
    ring = done(libc.syscall(IO_URING_SETUP, 2, params))
    try:
        sq_entries, cq_entries = struct.unpack_from("=II", params, 0)
        sq, cq = struct.unpack_from("=8I", params, 40), struct.unpack_from("=8I", params, 80)
        both = mmap.MAP_SHARED | mmap.MAP_POPULATE
        submission = mmap.mmap(ring, sq[6] + 4 * sq_entries, both, offset=0)
        completion = mmap.mmap(ring, cq[5] + 16 * cq_entries, both, offset=0x8000000)
        entries = mmap.mmap(ring, 64 * sq_entries, both, offset=0x10000000)
        # IORING_OP_READ: opcode 22, file, offset, address, length
        struct.pack_into("=BBHiQQI", entries, 0, 22, 0, 0, one.fd, round * PAGE, ROOM, PAGE)
        struct.pack_into("=I", submission, sq[6], 0)
        struct.pack_into("=I", submission, sq[1], 1)
        done(libc.syscall(IO_URING_ENTER, ring, 1, 1, 1, None, 0))
        (result,) = struct.unpack_from("=i", completion, cq[5] + 8)
        for part in (submission, completion, entries):
            part.close()
    finally:
        os.close(ring)
    checked(result)


def checked(result: int) -> None:
    """The result of an asynchronous request: bytes, or an error below 0."""
    if result < 0:
        raise OSError(-result, os.strerror(-result))


def map_page(one: Object, _: int, flags: int = 0) -> None:
    mmap.mmap(one.fd, SIZE, mmap.MAP_SHARED | flags, mmap.PROT_READ).close()


def read_at_end(one: Object, _: int) -> None:
    os.lseek(one.fd, 0, os.SEEK_END)
    os.read(one.fd, PAGE)


def write_mapped(one: Object, round: int) -> None:
    one.mapping[round * PAGE] = ord("b")


def lock(one: Object, _: int) -> None:
    fcntl.flock(one.fd, fcntl.LOCK_SH)
    fcntl.flock(one.fd, fcntl.LOCK_UN)


def rename(one: Object, round: int) -> None:
    os.rename(one.path, one.further(round))
    one.path = one.further(round)


def rename_inside(one: Object, round: int) -> None:
    new = f"{one.path}/new.{round}"
    os.rename(one.beside, new)
    one.beside = new


def modification_time(one: Object, _: int) -> None:
    times = struct.pack("=qqqq", 0, UTIME_OMIT, 1_000_000_000, 0)
    done(libc.utimensat(AT_FDCWD, one.path.encode(), times, 0))


def by_handle(one: Object, _: int) -> None:
    os.close(done(libc.open_by_handle_at(one.other, one.handle, os.O_RDONLY | os.O_CLOEXEC)))


def advised(advice: int) -> Callable[[Object, int], object]:
    return lambda one, _: os.posix_fadvise(one.fd, 0, 0, advice)


CALLS: dict[str, Callable[[Object, int], object]] = {
    "read": lambda one, _: os.read(one.fd, PAGE),
    "read-nothing": lambda one, _: done(libc.read(one.fd, ctypes.c_void_p(ROOM), 0)),
    "read-at-end": read_at_end,
    "read-noatime": lambda one, _: os.read(one.fd, PAGE),
    "read-direct": lambda one, _: done(libc.read(one.fd, ctypes.c_void_p(ROOM), PAGE)),
    "pread": lambda one, round: os.pread(one.fd, PAGE, round * PAGE),
    "readv": lambda one, _: os.readv(one.fd, [bytearray(PAGE)]),
    "preadv2": lambda one, round: os.preadv(one.fd, [bytearray(PAGE)], round * PAGE, 0),
    "aio-read": read_by_aio,
    "io-uring-read": read_by_io_uring,
    "mmap": map_page,
    "mmap-populate": partial(map_page, flags=mmap.MAP_POPULATE),
    "mapped-read": lambda one, round: one.mapping[round * PAGE],
    "mapped-write": write_mapped,
    "sendfile": lambda one, _: os.sendfile(one.other, one.fd, None, PAGE),
    "splice": lambda one, _: os.splice(one.fd, one.other, PAGE),
    "copy-file-range": lambda one, _: os.copy_file_range(one.fd, one.other, PAGE),
    "copy-file-range-to": lambda one, _: os.copy_file_range(one.other, one.fd, PAGE),
    "clone": lambda one, _: fcntl.ioctl(one.other, FICLONE, one.fd),
    "clone-to": lambda one, _: fcntl.ioctl(one.fd, FICLONE, one.other),
    "execve": lambda one, _: subprocess.run([one.path], check=True),
    "open": lambda one, _: opened(one.path, os.O_RDONLY),
    "open-path": lambda one, _: opened(one.path, os.O_PATH),
    "open-write": lambda one, _: opened(one.path, os.O_WRONLY),
    "open-truncate": lambda one, _: opened(one.path, os.O_WRONLY | os.O_TRUNC),
    "open-by-handle": by_handle,
    "name-to-handle": lambda one, _: handle_of(one.path),
    "stat": lambda one, _: os.stat(one.path),
    "access": lambda one, _: os.access(one.path, os.R_OK),
    "getxattr": lambda one, _: os.getxattr(one.path, "user.iotrial"),
    "listxattr": lambda one, _: os.listxattr(one.path),
    "setxattr": lambda one, round: os.setxattr(one.path, "user.iotrial", b"a" * (round + 1)),
    "fadvise-willneed": advised(os.POSIX_FADV_WILLNEED),
    "fadvise-dontneed": advised(os.POSIX_FADV_DONTNEED),
    "readahead": lambda one, _: done(libc.readahead(one.fd, 0, SIZE)),
    "madvise-willneed": lambda one, _: one.mapping.madvise(mmap.MADV_WILLNEED),
    "mincore": lambda one, _: done(libc.mincore(one.address, ctypes.c_size_t(SIZE), bytes(SIZE // PAGE))),
    "lseek-data": lambda one, _: os.lseek(one.fd, 0, os.SEEK_DATA),
    # start, length, flags, mapped, room for no extent, reserved
    "fiemap": lambda one, _: fcntl.ioctl(one.fd, FIEMAP, struct.pack("=QQIIII", 0, 2**64 - 1, 0, 0, 0, 0)),
    "flock": lock,
    "fsync": lambda one, _: os.fsync(one.fd),
    "write": lambda one, _: os.write(one.fd, b"b" * PAGE),
    "write-nothing": lambda one, _: os.write(one.fd, b""),
    "truncate-same": lambda one, _: os.truncate(one.path, SIZE),
    "ftruncate-same": lambda one, _: os.ftruncate(one.fd, SIZE),
    "truncate-shorter": lambda one, round: os.truncate(one.path, SIZE - PAGE * (round + 1)),
    "fallocate": lambda one, _: done(libc.fallocate(one.fd, 0, 0, SIZE * 2)),
    "link": lambda one, round: os.link(one.path, one.further(round)),
    "unlink": lambda one, round: os.unlink(one.further(round)),
    "rename": rename,
    "chmod": lambda one, round: os.chmod(one.path, 0o700 + round),
    "chown": lambda one, _: os.chown(one.path, 0, 0),
    "utimensat-mtime": modification_time,
    "getdents": lambda one, _: os.listdir(one.fd),
    "open-folder": lambda one, _: opened(one.path, os.O_RDONLY | os.O_DIRECTORY),
    "stat-inside": lambda one, _: os.stat(one.beside),
    "open-inside": lambda one, _: opened(one.beside, os.O_RDONLY),
    "create-inside": lambda one, round: opened(
        f"{one.path}/new.{round}", os.O_WRONLY | os.O_CREAT | os.O_EXCL
    ),
    "rename-inside": rename_inside,
    "readlink": lambda one, _: os.readlink(one.path),
    "lstat": lambda one, _: os.lstat(one.path),
    "stat-through": lambda one, _: os.stat(one.path),
    "open-through": lambda one, _: opened(one.path, os.O_RDONLY),
}
#: what is open before the times are set, and how
OPENED = {
    **dict.fromkeys(
        (
            "read", "read-nothing", "read-at-end", "pread", "readv", "preadv2", "aio-read", "io-uring-read", "mmap",
            "mmap-populate", "mapped-read", "sendfile", "splice", "copy-file-range", "clone", "fadvise-willneed",
            "fadvise-dontneed", "readahead", "madvise-willneed", "mincore", "lseek-data", "fiemap", "flock", "fsync",
        ),
        os.O_RDONLY,
    ),
    **dict.fromkeys(
        ("mapped-write", "copy-file-range-to", "clone-to", "write", "write-nothing", "ftruncate-same", "fallocate"),
        os.O_RDWR,
    ),
    "read-noatime": os.O_RDONLY | os.O_NOATIME,
    "read-direct": os.O_RDONLY | os.O_DIRECT,
    "getdents": os.O_RDONLY | os.O_DIRECTORY,
}  # fmt: skip


# the times


def state_of(path: str) -> tuple[int, int]:
    """How far back access and modification times are set, in nanoseconds, for objects in the state of this file."""
    now, found = time.time_ns(), os.lstat(path)
    if now - found.st_atime_ns >= 24 * HOUR:
        return 25 * HOUR, 26 * HOUR
    if found.st_atime_ns <= found.st_mtime_ns or found.st_atime_ns <= found.st_ctime_ns:
        return HOUR, 0
    return -SECOND, HOUR


def set_times(path: str, state: tuple[int, int]) -> None:
    now = time.time_ns()
    os.utime(path, ns=(now - state[0], now - state[1]), follow_symlinks=False)


class WaitingInMemory:
    """How many inodes of the device wait with dirty times alone; None where nobody can tell."""

    def __init__(self, folder: str) -> None:
        self._file = None
        try:
            if not os.path.isdir("/sys/kernel/debug/bdi"):
                done(libc.unshare(CLONE_NEWNS))
                done(libc.mount(b"none", b"/", None, ctypes.c_ulong(MS_REC_PRIVATE), None))
                done(libc.mount(b"debugfs", b"/sys/kernel/debug", b"debugfs", ctypes.c_ulong(0), None))
            bdi = os.path.basename(os.readlink(f"/sys/class/block/{device_of(folder)}/bdi"))
            self._file = open(f"/sys/kernel/debug/bdi/{bdi}/stats")
        except OSError:
            pass

    def inodes(self) -> int | None:
        if self._file is None:
            return None
        self._file.seek(0)
        lines = dict(line.split(":") for line in self._file.read().splitlines() if ":" in line)
        return int(lines.get("b_dirty_time", "0"))


def device_of(folder: str) -> str:
    """The block device that holds a folder, as in /sys/class/block."""
    with open("/proc/self/mountinfo") as file:
        mounts = [line.split() for line in file]
    inside = [m for m in mounts if os.path.realpath(folder).startswith(m[4].rstrip("/") + "/")]
    if not inside:
        raise FileNotFoundError(errno.ENOENT, "no mount holds it", folder)
    deepest = max(inside, key=lambda mount: len(mount[4]))
    return os.path.basename(os.path.realpath(deepest[deepest.index("-") + 2]))


def in_words(refused: OSError | None, changed: bool, again: bool, lazily: bool) -> str:
    if refused is not None:
        name = errno.errorcode.get(refused.errno or 0, str(refused.errno))
        # two names of one number
        return f"refused ({'EOPNOTSUPP' if name == 'ENOTSUP' else name})"
    if not changed:
        return "only later" if again else "no"
    often = "each time" if again else "once"
    return f"{often}, lazily" if lazily else often


def main() -> None:
    file, folder = sys.argv[1], os.path.realpath(sys.argv[2])
    reads = int(sys.argv[3]) if len(sys.argv) > 3 else 1000
    state = state_of(file)
    objects = [Object(folder, call) for call in CALLS]
    often = f"{folder}/often"
    write_file(often, b"a" * SIZE)
    whole = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    done(libc.syncfs(whole))
    for one in objects:
        if one.is_file:
            fd = os.open(one.path, os.O_RDONLY | os.O_NOATIME)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)
    for one in objects:
        one.prepare()
        set_times(one.path, state)
    set_times(often, state)
    # what was set is on the disk, so that no inode is dirty for another reason than the call's
    done(libc.syncfs(whole))
    waiting = WaitingInMemory(folder)
    tick_s = time.clock_getres(6)  # CLOCK_MONOTONIC_COARSE ticks as the clock of time stamps does
    # within the tick of the last change relatime finds the access time no newer than it, and would note a second read too
    time.sleep(TICKS * tick_s)

    refused: dict[str, OSError] = {}
    changed, lazily, again = {}, {}, dict.fromkeys(CALLS, False)
    for one in objects:
        before, waited = one.atime(), waiting.inodes()
        try:
            one.perform(0)
        except OSError as error:
            refused[one.call] = error
        changed[one.call] = one.atime() != before
        now = waiting.inodes()
        lazily[one.call] = changed[one.call] and None not in (now, waited) and (now or 0) > (waited or 0)
    time.sleep(TICKS * tick_s)
    for one in objects:
        if one.call not in refused:
            before = one.atime()
            try:
                one.perform(1)
            except OSError as error:
                refused[one.call] = error
            again[one.call] = one.atime() != before

    fd = os.open(often, os.O_RDONLY)
    changes, ticks = 0, 1
    last, at = os.fstat(fd).st_atime_ns, time.clock_gettime(6)
    for _ in range(reads):
        os.pread(fd, 64, 0)
        atime, now_s = os.fstat(fd).st_atime_ns, time.clock_gettime(6)
        changes += atime != last
        ticks += round((now_s - at) / tick_s)
        last, at = atime, now_s

    known = [call for call in CALLS if call not in refused]
    found = {
        "calls": {
            call: in_words(refused.get(call), changed[call], again[call], lazily[call]) for call in CALLS
        },
        "changes": {call: int(call in known and changed[call]) for call in CALLS},
        "changed": sum(changed[call] for call in known),
        "changed_again": sum(changed[call] and again[call] for call in known),
        "changed_lazily": sum(lazily[call] for call in known),
        "burst": {"reads": reads, "changes": changes, "ticks": ticks},
    }
    print(json.dumps(found))


main()
