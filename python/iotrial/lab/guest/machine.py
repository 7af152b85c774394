"""A guest from its parts: disks made here, the command that starts it, what it said when it died.

Nothing of it outlives its process: the images of its disks have no name, what it says goes to a file without one, and the
kernel kills QEMU together with the conductor (PR_SET_PDEATHSIG, by setpriv(1)).
"""

from __future__ import annotations

import mmap
import os
import re
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from iotrial.errors import LabError, NoSpace
from iotrial.lab.guest import qemu
from iotrial.lab.guest.monitor import Monitor
from iotrial.lab.place import FULL

#: left free on the disk of whoever runs guests
_MARGIN_BYTES = 1 << 30
_PIECE_BYTES = 1 << 20
#: so much of what a guest's kernel has said is looked at, and so many of its lines are told
_HEARD_BYTES, _TOLD = 1 << 16, 5
_STAMP = re.compile(r"^(<\d+>)?\[ *\d+\.\d+\](\[ *T\d+\])? ")
_TROUBLE = re.compile(
    r"BUG:|kernel BUG at|Oops|[a-z ]*(fault|error|exception|opcode): |RIP: |Kernel panic|Out of memory|watchdog: "
)
#: a guest whose first process has not run for so long is hung; one that is merely busy runs it many times a second
HUNG_AFTER_S = 60.0
_SAVED_WITHIN_S = 60.0
_BOOTS_WITHIN_S = {qemu.Accelerator.KVM: 8.0, qemu.Accelerator.TCG: 120.0}


@dataclass(frozen=True, slots=True)
class DiskImage:
    """A disk that a guest is to have. ``serial`` is how it is found in the guest."""

    serial: str
    size_bytes: int


class Pulse:
    """Signs of life, a byte a second, by one end of a pair of sockets; QEMU is started with the other, ``theirs``."""

    def __init__(self) -> None:
        self._ours, self.theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._last: float | None = None

    def silent_s(self) -> float:
        """Since the last one was taken from the socket: one that has waited there counts as just come. 0 before the first."""
        try:
            while self._ours.recv(1 << 12):
                self._last = time.monotonic()
        except OSError:
            pass
        return 0.0 if self._last is None else time.monotonic() - self._last

    def close(self) -> None:
        """QEMU does not mind."""
        self._ours.close()
        self.theirs.close()


class Disks:
    """Images of a guest's disks, open and without a name, so that they go with this process."""

    def __init__(self, wanted: Sequence[DiskImage], folder: Path) -> None:
        self.descriptors: list[int] = []
        self.sizes = [disk.size_bytes for disk in wanted]
        try:
            self.attached = tuple(qemu.Disk(self._image(disk, folder), disk.serial) for disk in wanted)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give them up. No guest must have them any more."""
        while self.descriptors:
            os.close(self.descriptors.pop())

    def _image(self, disk: DiskImage, folder: Path) -> int:
        free = os.statvfs(folder)
        if free.f_bavail * free.f_frsize < disk.size_bytes + _MARGIN_BYTES:
            raise NoSpace(
                f"guest: a disk of {disk.size_bytes >> 20} MiB in {folder}, with {_MARGIN_BYTES >> 20} MiB left free: "
                f"found {free.f_bavail * free.f_frsize >> 20} MiB",
                hint="name another folder with --on FOLDER, or make the lab smaller ([lab] size)",
            )
        try:
            descriptor = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LabError(
                f"guest: an image in {folder}: {error.strerror}",
                hint="name a folder on a disk with --on FOLDER: ext4, XFS or btrfs",
            ) from error
        self.descriptors.append(descriptor)
        try:
            os.posix_fallocate(descriptor, 0, disk.size_bytes)
            _write_all(descriptor, disk.size_bytes)
        except OSError as error:
            kind = NoSpace if error.errno in FULL else LabError
            raise kind(
                f"guest: an image of {disk.size_bytes >> 20} MiB in {folder}: {error.strerror}",
                hint="name another folder with --on FOLDER",
            ) from error
        return descriptor


class GuestMachine:
    """A guest that can be started, and started anew when it has died; its disks stay as they are."""

    def __init__(
        self,
        *,
        kernel: Path,
        initramfs: Path,
        disks: Disks,
        memory_mib: int = 512,
        processors: int = 1,
        card: tuple[str, str] | None = None,
    ) -> None:
        self._program = qemu.find()
        self._disks = disks
        self._monitor: Monitor | None = None
        self._pulse: Pulse | None = None
        self._console = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the guest
        self._machine = qemu.Machine(kernel, initramfs, memory_mib, processors, disks.attached, card=card)

    @contextmanager
    def command(
        self, accelerator: qemu.Accelerator, *, state: int | None = None, wire: int | None = None
    ) -> Iterator[tuple[tuple[str, ...], tuple[int, ...]]]:
        """The command whose standard input and output carry the probe's protocol, and the descriptors that it inherits: open
        for as long as it takes to start it. ``state``: a descriptor of one from which it is to go on; ``wire``: that of its
        end of a network."""
        self._console.truncate(0)
        self._hang_up()
        self._monitor, self._pulse = Monitor(), Pulse()
        # QEMU wants a descriptor that is open just as it would have opened the file itself
        console = os.open(f"/proc/self/fd/{self._console.fileno()}", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            given = qemu.Descriptors(
                console, self._monitor.theirs.fileno(), self._pulse.theirs.fileno(), state, wire
            )
            words = qemu.command(self._program, self._machine, accelerator, given)
            passed = [
                *self._disks.descriptors,
                console,
                given.monitor,
                given.pulse,
                *(given_one for given_one in (state, wire) if given_one is not None),
            ]
            yield ("setpriv", "--pdeathsig", "KILL", *words), tuple(passed)
        finally:
            os.close(console)
            for end in (self._monitor.theirs, self._pulse.theirs):  # they are QEMU's now
                end.close()

    def identity(self, accelerator: qemu.Accelerator) -> str:
        """Names what a state of it would be good for."""
        return qemu.identity(self._program, self._machine, accelerator, self._disks.sizes)

    def save(self, descriptor: int) -> None:
        """Write its memory down. It must have come up, and have answered. Raises LabError."""
        assert self._monitor is not None
        self._monitor.save(descriptor, _SAVED_WITHIN_S)

    def boots_within_s(self, accelerator: qemu.Accelerator) -> float:
        """After this long it will not come up any more."""
        return _BOOTS_WITHIN_S[accelerator]

    def hung(self) -> str | None:
        """What is to be told of it where it has given no sign of life for long; None where it has, or has not come up yet."""
        silent_s = 0.0 if self._pulse is None else self._pulse.silent_s()
        return None if silent_s < HUNG_AFTER_S else f"it has given no sign of life for {silent_s:.0f} s"

    def last_words(self) -> str:
        """What the guest's kernel has said of its own trouble, on one line; else the end of what it said."""
        self._console.seek(0)
        lines = self._console.read()[-_HEARD_BYTES:].decode(errors="replace").splitlines()
        said = [_STAMP.sub("", line).strip() for line in lines]
        told = list(dict.fromkeys(line for line in said if _TROUBLE.match(line)))
        return " / ".join(told[:_TOLD] or [line for line in said if line][-3:])

    def close(self) -> None:
        """Forget what it said. It must have ended."""
        self._hang_up()
        self._console.close()

    def _hang_up(self) -> None:
        for end in (self._monitor, self._pulse):
            if end is not None:
                end.close()
        self._monitor = self._pulse = None


def _write_all(descriptor: int, size_bytes: int) -> None:
    """Zeros all over, so that no read of the guest's is answered from a hole and none of its writes has to allocate."""
    with mmap.mmap(-1, _PIECE_BYTES) as zeros, memoryview(zeros) as piece:  # aligned, as O_DIRECT wants it
        at = 0
        while at < size_bytes:
            at += os.pwritev(descriptor, [piece[: size_bytes - at]], at)
    os.fdatasync(descriptor)
