"""Two simulated disks: one that logs its writes, and one that shows an image and forgets what was written over it.

Both are served by processes of an isolated probe, through FUSE and a loop device. The loop device turns the kernel's flushes
into fsync, and FUA into a write and a flush. Both end with the probe.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iotrial.errors import ProbeError
from iotrial.lab import host
from iotrial.lab.journal import Journal
from iotrial.lab.objects.loop import LabLoop
from iotrial.lab.target import Target


@dataclass(frozen=True, slots=True)
class CutDisk:
    """One of these disks, attached. ``path``: its block device."""

    target: Target
    device: str

    @property
    def path(self) -> str:
        """The block device's path."""
        return f"/dev/{self.device}"

    def mark(self, text: str) -> None:
        """Put a mark into the log of a disk that logs. Raises TargetError."""
        self.target.call("disk_mark", device=self.device, text=text)

    def forget(self) -> None:
        """Drop all that was written to a disk over an image, and what the kernel has cached of it; nothing may use it."""
        self.target.call("disk_forget", device=self.device)


@contextmanager
def logged(
    target: Target,
    size_bytes: int,
    log: Path,
    *,
    marks: Path | None = None,
    base: Path | None = None,
    model: dict[str, Any] | None = None,
) -> Iterator[CutDisk]:
    """Attach a disk that logs its writes to a new file ``log``, and detach it at the end, after which the log is complete.

    ``marks``: path of the socket to make for ``marks.Marker``. ``base``: an image of ``size_bytes`` that the disk begins with
    and does not change. ``model``: the timing of a disk (``lab.simulated_disk.wire``); None: no delay. Raises TargetError.
    """
    more = {name: str(path) for name, path in (("marks", marks), ("over", base)) if path is not None}
    with _attached(target, size=size_bytes, log=str(log), **more, **(model or {"instant": {}})) as disk:
        yield disk


@contextmanager
def over_image(target: Target, image: Path) -> Iterator[CutDisk]:
    """Attach a disk that shows ``image`` as it is now. What is written to it stays in memory until ``forget``."""
    with _attached(target, size=image.stat().st_size, over=str(image), instant={}) as disk:
        yield disk


@contextmanager
def _attached(target: Target, **description: Any) -> Iterator[CutDisk]:
    """Attach a simulated disk. What attaching changes of the loop device is undone, from a journal that ends with it."""
    with tempfile.TemporaryDirectory(prefix="iotrial-cut-") as folder:
        journal, loop = Journal(Path(folder) / "journal"), LabLoop()
        image = target.call("image_modelled", **description)
        boot_id = host.boot_id(target)
        device = loop.attach(target, journal, image["image"], image["inode"], boot_id=boot_id).device
        try:
            yield CutDisk(target, device)
        finally:
            with suppress(ProbeError):  # a probe that has died has detached it
                target.call("loop_detach", device=f"/dev/{device}")
                loop.put_back(target, journal, device)
