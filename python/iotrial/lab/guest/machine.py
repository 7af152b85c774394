"""A guest from its parts: disks made here, the command that starts it, what it said when it died.

Nothing of it outlives its process: the images of its disks have no name, what it says goes to a file without one, and the
kernel kills QEMU together with the conductor (PR_SET_PDEATHSIG, by setpriv(1)).
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from iotrial.errors import LabError, NoSpace
from iotrial.lab.guest import qemu

#: left free on the disk of whoever runs guests
_MARGIN_BYTES = 1 << 30
_PIECE_BYTES = 1 << 20
_BOOTS_WITHIN_S = {qemu.Accelerator.KVM: 8.0, qemu.Accelerator.TCG: 120.0}


@dataclass(frozen=True, slots=True)
class DiskImage:
    """A disk that a guest is to have. ``serial`` is how it is found in the guest."""

    serial: str
    size_bytes: int
    bytes_per_s: int = 0
    requests_per_s: int = 0


class GuestMachine:
    """A guest that can be started, and started anew when it has died; its disks stay as they are until ``close``."""

    def __init__(
        self,
        *,
        kernel: Path,
        initramfs: Path,
        disks: Sequence[DiskImage],
        folder: Path,
        memory_mib: int = 512,
        processors: int = 1,
    ) -> None:
        self._program = qemu.find()
        self._console = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the guest
        self._images: list[int] = []
        try:
            made = [
                qemu.Disk(self._image(disk, folder), disk.serial, disk.bytes_per_s, disk.requests_per_s)
                for disk in disks
            ]
        except BaseException:
            self.close()
            raise
        self._machine = qemu.Machine(kernel, initramfs, memory_mib, processors, tuple(made))

    @contextmanager
    def command(self, accelerator: qemu.Accelerator) -> Iterator[tuple[tuple[str, ...], tuple[int, ...]]]:
        """The command whose standard input and output carry the probe's protocol, and the descriptors that it inherits: open
        for as long as it takes to start it."""
        self._console.truncate(0)
        # QEMU wants a descriptor that is open just as it would have opened the file itself
        console = os.open(f"/proc/self/fd/{self._console.fileno()}", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            words = qemu.command(self._program, self._machine, accelerator, console=console)
            yield ("setpriv", "--pdeathsig", "KILL", *words), (*self._images, console)
        finally:
            os.close(console)

    def boots_within_s(self, accelerator: qemu.Accelerator) -> float:
        """After this long it will not come up any more."""
        return _BOOTS_WITHIN_S[accelerator]

    def last_words(self) -> str:
        """The end of what the guest's kernel has said, on one line: why it died, where it panicked."""
        self._console.seek(0)
        lines = self._console.read()[-4000:].decode(errors="replace").splitlines()
        said = [line.strip() for line in lines if line.strip()]
        panic = next((n for n, line in enumerate(said) if "Kernel panic" in line or "BUG:" in line), None)
        return " / ".join(said[-3:] if panic is None else said[panic : panic + 3])

    def close(self) -> None:
        """Give the disks up. The guest must have ended."""
        while self._images:
            os.close(self._images.pop())
        self._console.close()

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
        self._images.append(descriptor)
        try:
            os.posix_fallocate(descriptor, 0, disk.size_bytes)
            _write_all(descriptor, disk.size_bytes)
        except OSError as error:
            raise NoSpace(
                f"guest: an image of {disk.size_bytes >> 20} MiB in {folder}: {error.strerror}"
            ) from error
        return descriptor


def _write_all(descriptor: int, size_bytes: int) -> None:
    """Zeros all over, so that no read of the guest's is answered from a hole and none of its writes has to allocate."""
    with mmap.mmap(-1, _PIECE_BYTES) as zeros, memoryview(zeros) as piece:  # aligned, as O_DIRECT wants it
        at = 0
        while at < size_bytes:
            at += os.pwritev(descriptor, [piece[: size_bytes - at]], at)
    os.fdatasync(descriptor)
