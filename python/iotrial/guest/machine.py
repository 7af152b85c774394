"""A guest assembled from its parts: disk images, the command that starts it, and its console output when it dies.

Nothing of it outlives the conductor: the disk images and the console log are unnamed files, and the kernel kills QEMU
together with the conductor (PR_SET_PDEATHSIG, set through setpriv(1)).
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from iotrial.errors import OTHER_FOLDER, LabError, NoSpace
from iotrial.guest import qemu
from iotrial.guest.snapshots import Monitor
from iotrial.lab.place import FULL

#: left free on the host's disk
_MARGIN_BYTES = 1 << 30
_PIECE_BYTES = 1 << 20
#: how much of the console log's end is searched for kernel errors, and how many of its lines are reported
_HEARD_BYTES, _MOST_ERRORS = 1 << 16, 5
_STAMP = re.compile(r"^(<\d+>)?\[ *\d+\.\d+\](\[ *T\d+\])? ")
_TROUBLE = re.compile(
    r"BUG:|kernel BUG at|Oops|[a-z ]*(fault|error|exception|opcode): |RIP: |Kernel panic|Out of memory|watchdog: "
)
#: if init has not run for this long, the guest hangs; even in a busy guest, init runs many times a second
HUNG_AFTER_S = 60.0
_SAVED_WITHIN_S = 60.0
_RAW = "raw"
#: what /proc/PID/fd shows of io_uring
_RING = "anon_inode:[io_uring]"
_BOOTS_WITHIN_S = {qemu.Accelerator.KVM: 8.0, qemu.Accelerator.TCG: 120.0}


@dataclass(frozen=True, slots=True)
class DiskImage:
    """A disk for a guest. ``serial`` identifies it in the guest. ``device``: a block device of this size to use as it is."""

    serial: str
    size_bytes: int
    device: str = ""


def _link(path: Path) -> str:
    """Return what a link in /proc/PID/fd shows; empty if it has been closed."""
    try:
        return str(path.readlink())
    except FileNotFoundError:
        return ""


class Pulse:
    """The guest's heartbeat, one byte per second through a socket pair; QEMU is started with the other end, ``theirs``."""

    def __init__(self) -> None:
        self._ours, self.theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._last: float | None = None

    def silent_s(self) -> float:
        """Return the seconds since the last heartbeat was read; 0 before the first.

        A heartbeat that has been waiting in the socket counts as just received.
        """
        try:
            while self._ours.recv(1 << 12):
                self._last = time.monotonic()
        except OSError:
            pass
        return 0.0 if self._last is None else time.monotonic() - self._last

    def close(self) -> None:
        """Close both ends. QEMU tolerates it."""
        self._ours.close()
        self.theirs.close()


class Disks:
    """The images of a guest's disks: open and unnamed, so that they vanish with this process.

    A guest with disks in another format than raw works on copies of the raw images, converted at each start; what it
    wrote is in the raw ones again before the next.
    """

    def __init__(self, wanted: Sequence[DiskImage], folder: Path) -> None:
        self.descriptors: list[int] = []
        self.sizes = [disk.size_bytes for disk in wanted]
        self._folder = folder
        self._copies: tuple[qemu.Disk, ...] = ()
        self._format = _RAW
        try:
            self._images = tuple(
                qemu.Disk(
                    self._device(disk) if disk.device else self._image(disk.size_bytes),
                    disk.serial,
                    bool(disk.device),
                )
                for disk in wanted
            )
        except BaseException:
            self.close()
            raise

    def attached_as(self, format: str) -> tuple[qemu.Disk, ...]:
        """Return the disks to attach in this format; ``convert`` fills them. Raises LabError."""
        if format == _RAW:
            return self._images
        if not self._copies:
            assert not any(image.on_device for image in self._images)
            self._copies = tuple(
                replace(image, descriptor=self._unnamed(size))
                for image, size in zip(self._images, self.sizes, strict=True)
            )
        return self._copies

    def convert(self, format: str) -> None:
        """Bring the contents into this format for the next guest. No guest may be running. Raises LabError."""
        if self._format != _RAW:
            for image, copy, size in zip(self._images, self._copies, self.sizes, strict=True):
                _convert(copy, self._format, image, _RAW)
                with self._writing(size):
                    _fill_holes(image.descriptor, size)
            self._format = _RAW
        if format != _RAW:
            for image, copy in zip(self._images, self.attached_as(format), strict=True):
                _convert(image, _RAW, copy, format)
            self._format = format

    def close(self) -> None:
        """Close the images. No guest may be using them."""
        while self.descriptors:
            os.close(self.descriptors.pop())

    def _device(self, disk: DiskImage) -> int:
        try:
            descriptor = os.open(disk.device, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
        except OSError as error:
            raise LabError(f"guest: a disk on {disk.device}: {error.strerror}") from error
        self.descriptors.append(descriptor)
        return descriptor

    def _unnamed(self, size_bytes: int) -> int:
        folder = self._folder
        free = os.statvfs(folder)
        if free.f_bavail * free.f_frsize < size_bytes + _MARGIN_BYTES:
            raise NoSpace(
                f"guest: a disk of {size_bytes >> 20} MiB in {folder}, with {_MARGIN_BYTES >> 20} MiB left free: "
                f"found {free.f_bavail * free.f_frsize >> 20} MiB",
                hint=OTHER_FOLDER,
            )
        try:
            descriptor = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LabError(
                f"guest: an image in {folder}: {error.strerror}",
                hint="name a folder on a disk with --on FOLDER: ext4, XFS or btrfs",
            ) from error
        self.descriptors.append(descriptor)
        return descriptor

    def _image(self, size_bytes: int) -> int:
        descriptor = self._unnamed(size_bytes)
        with self._writing(size_bytes):
            os.posix_fallocate(descriptor, 0, size_bytes)
            _fill(descriptor, 0, size_bytes)
        return descriptor

    @contextmanager
    def _writing(self, size_bytes: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            kind = NoSpace if error.errno in FULL else LabError
            raise kind(
                f"guest: an image of {size_bytes >> 20} MiB in {self._folder}: {error.strerror}",
                hint=OTHER_FOLDER,
            ) from error


class GuestMachine:
    """A guest that can be started, and restarted after it has died; its disks keep their contents."""

    def __init__(
        self,
        *,
        kernel: Path,
        initramfs: Path,
        disks: Disks,
        memory_mib: int = 512,
        processors: int = 1,
        card: tuple[str, str] | None = None,
        attached: qemu.Attachment = qemu.USUAL,
    ) -> None:
        self._program = qemu.find()
        self._disks = disks
        self._monitor: Monitor | None = None
        self._pulse: Pulse | None = None
        self._console = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the guest
        self._machine = qemu.Machine(
            kernel,
            initramfs,
            memory_mib,
            processors,
            disks.attached_as(attached.format),
            card=card,
            attached=attached,
        )

    @contextmanager
    def command(
        self, accelerator: qemu.Accelerator, *, state: int | None = None, wire: int | None = None
    ) -> Iterator[tuple[tuple[str, ...], tuple[int, ...]]]:
        """Yield the command and the descriptors it inherits, open until the command has been started.

        The command's standard input and output carry the probe's protocol. ``state``: descriptor of a saved state to resume
        from; ``wire``: descriptor of the guest's end of the network.
        """
        self._console.truncate(0)
        self._hang_up()
        self._monitor, self._pulse = Monitor(), Pulse()
        # QEMU requires the descriptor to have the flags with which it would have opened the file
        console = os.open(f"/proc/self/fd/{self._console.fileno()}", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            descriptors = qemu.Descriptors(
                console, self._monitor.theirs.fileno(), self._pulse.theirs.fileno(), state, wire
            )
            words = qemu.command(self._program, self._machine, accelerator, descriptors)
            passed = [
                *self._disks.descriptors,
                console,
                descriptors.monitor,
                descriptors.pulse,
                *(descriptor for descriptor in (state, wire) if descriptor is not None),
            ]
            yield ("setpriv", "--pdeathsig", "KILL", *words), tuple(passed)
        finally:
            os.close(console)
            for end in (self._monitor.theirs, self._pulse.theirs):  # QEMU has its own copies now
                end.close()

    def identity(self, accelerator: qemu.Accelerator) -> str:
        """Return an identifier of everything that a saved state depends on."""
        return qemu.identity(self._program, self._machine, accelerator, self._disks.sizes)

    def save(self, descriptor: int) -> None:
        """Save the guest's memory state. The guest must have booted and answered. Raises LabError."""
        assert self._monitor is not None
        self._monitor.save(descriptor, _SAVED_WITHIN_S)

    def attachment(self, about: str, pid: int) -> str:
        """Return a field of ``qemu.Attachment`` as QEMU, process ``pid``, shows it. Raises LabError."""
        match about:
            case "cache":
                return self._cache()
            case "format":
                return self._format()
            case _:
                return self._aio(pid)

    def _format(self) -> str:
        """Return the format of the disks, its options as QEMU shows them, if it does; not one for all: joined by "and"."""
        assert self._monitor is not None
        wanted = [word.split("=", 1) for word in self._machine.attached.image_options]
        found = set()
        for block in self._monitor.listed("query-block"):
            if inserted := block.get("inserted"):
                image = inserted["image"]
                shown = {"cluster_size": qemu.size_word(image.get("cluster-size", 0))}
                for key, value in image.get("format-specific", {}).get("data", {}).items():
                    if isinstance(value, bool):
                        shown[key.replace("-", "_")] = "on" if value else "off"
                options = [f"{key}={shown.get(key, value)}" for key, value in wanted]
                found.add(" ".join([inserted["drv"], *options]))
        return " and ".join(sorted(found)) or "unknown"

    def _cache(self) -> str:
        """Return the cache mode of the disks; "unknown" if it is not one for all of them."""
        assert self._monitor is not None
        nodes = {
            node.get("node-name"): node["cache"] for node in self._monitor.listed("query-named-block-nodes")
        }
        on_top = {
            block["inserted"].get("node-name"): block["inserted"]["cache"]
            for block in self._monitor.listed("query-block")
            if block.get("inserted")
        }
        modes = set()
        for number in range(len(self._machine.disks)):
            file, top = nodes[qemu.file_node(number)], on_top[qemu.top_node(number)]
            modes.add(
                qemu.CacheMode(direct=file["direct"], no_flush=file["no-flush"], writeback=top["writeback"])
            )
        return next((name for name, mode in qemu.CACHE_MODES.items() if modes == {mode}), "unknown")

    def _aio(self, pid: int) -> str:
        """Return how QEMU hands requests for the disks to the kernel.

        Where the kernel refuses Linux AIO or io_uring, QEMU uses its threads, with a warning; so what it holds open is
        looked for.
        """
        process, wanted = Path("/proc", str(pid)), self._machine.attached.aio
        try:
            if wanted == "native":
                there = "/[aio]" in (process / "maps").read_text()
            elif wanted == "io_uring":
                there = any(_link(one) == _RING for one in (process / "fd").iterdir())
            else:
                there = True
        except OSError as error:
            raise LabError(f"guest: QEMU, process {pid}: {error.strerror}") from error
        return wanted if there else qemu.USUAL.aio

    def boots_within_s(self, accelerator: qemu.Accelerator) -> float:
        """Return the boot timeout in seconds."""
        return _BOOTS_WITHIN_S[accelerator]

    def hung(self) -> str | None:
        """Return an error text if there was no heartbeat for ``HUNG_AFTER_S``; None otherwise, or before the first."""
        silent_s = 0.0 if self._pulse is None else self._pulse.silent_s()
        return None if silent_s < HUNG_AFTER_S else f"no response for {silent_s:.0f} s"

    def last_words(self) -> str:
        """Return the kernel errors in the guest's console log on one line; if there are none, the end of the log."""
        self._console.seek(0)
        lines = self._console.read()[-_HEARD_BYTES:].decode(errors="replace").splitlines()
        texts = [_STAMP.sub("", line).strip() for line in lines]
        errors = list(dict.fromkeys(line for line in texts if _TROUBLE.match(line)))
        return " / ".join(errors[:_MOST_ERRORS] or [line for line in texts if line][-3:])

    def close(self) -> None:
        """Discard the console log. The guest must have ended."""
        self._hang_up()
        self._console.close()

    def _hang_up(self) -> None:
        for end in (self._monitor, self._pulse):
            if end is not None:
                end.close()
        self._monitor = self._pulse = None


def _convert(source: qemu.Disk, kind: str, target: qemu.Disk, into: str) -> None:
    """Convert an image, past the page cache."""
    found, wanted = qemu.Attachment(format=kind), qemu.Attachment(format=into)
    # -n: into the file as it is, with its size
    options = ["-n"] if into == _RAW else [word for one in wanted.image_options for word in ("-o", one)]
    both = source.descriptor, target.descriptor
    words = [
        qemu.find_converter(), "convert", "-t", "none", "-T", "none", "-f", found.driver, "-O", wanted.driver, *options,
        *(f"/proc/self/fd/{descriptor}" for descriptor in both),
    ]  # fmt: skip
    done = subprocess.run(words, pass_fds=both, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"guest: a disk from {kind} to {into}: {done.stderr.strip()}", hint=OTHER_FOLDER)


def _fill_holes(descriptor: int, size_bytes: int) -> None:
    """Fill what qemu-img has left out, or has only reserved, of an image."""
    at = 0
    while at < size_bytes:
        try:
            data = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:  # no data up to the end
                raise
            data = size_bytes
        _fill(descriptor, at, data)
        at = size_bytes if data == size_bytes else os.lseek(descriptor, data, os.SEEK_HOLE)


def _fill(descriptor: int, start: int, end: int) -> None:
    """Fill a part of an image with zeros, so that no read of the guest hits a hole and no write has to allocate."""
    with mmap.mmap(-1, _PIECE_BYTES) as zeros, memoryview(zeros) as piece:  # aligned, for O_DIRECT
        while start < end:
            start += os.pwritev(descriptor, [piece[: end - start]], start)
    os.fdatasync(descriptor)
