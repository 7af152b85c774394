"""A simulated disk as the image of a lab: held in memory by its own process, which answers when the disk model says so.

The process is a child of the probe and ends with it; the file that it exports is mounted nowhere. So there is nothing to
undo, and nothing of it is on the user's disk.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from iotrial.errors import IotrialError, LabError, NoSpace, NotSupported, TargetError
from iotrial.lab.target import Target
from iotrial.study.disks import DiskSpec

#: memory that must stay free for everything else; on a small machine, a quarter of what the disk leaves
MARGIN_BYTES = 512 << 20
FUSE = "/dev/fuse"


def make(target: Target, disk: DiskSpec, size_bytes: int) -> Mapping[str, int]:
    """Create the image of a simulated disk; returns what the verb ``image`` does. Raises NoSpace, LabError, TargetError."""
    check_memory(target, size_bytes)
    try:
        return target.call("image_modelled", size=size_bytes, **wire(disk))
    except NotSupported:
        raise
    except TargetError as error:
        if error.errno in (errno.ENOMEM, errno.EAGAIN):
            raise _no_memory(size_bytes, error.message) from error
        raise LabError(
            f"cannot create the simulated disk {disk.model}: {error.message}",
            hint=f"it needs {FUSE}: modprobe fuse" if error.errno in _NO_FUSE else None,
        ) from error


@dataclass(frozen=True, slots=True)
class WriteLogging:
    """A simulated disk that answers at once and logs its writes, with everything about it in a new folder of this machine.

    ``folder``: best in memory; its name is one of those that a lab may use (``lab.objects.path``).
    """

    folder: str

    @property
    def log(self) -> str:
        """The file with the log."""
        return f"{self.folder}/log"

    @property
    def marks(self) -> str:
        """The socket that takes marks for the log."""
        return f"{self.folder}/marks"

    @property
    def image(self) -> str:
        """A file for the states of the disk."""
        return f"{self.folder}/image"


def make_logging(target: Target, logging: WriteLogging, size_bytes: int) -> Mapping[str, int]:
    """Create the image of a disk that logs its writes; returns and raises what ``make`` does."""
    check_memory(target, size_bytes)
    return target.call("image_modelled", size=size_bytes, log=logging.log, marks=logging.marks, instant={})


@contextmanager
def at_once(target: Target, devices: Sequence[str]) -> Iterator[None]:
    """Let these simulated disks answer without delay inside the block.

    On leaving it they are idle: nothing is queued or cached, and the arm is at the outermost track.
    """
    try:
        for device in devices:
            target.call("disk_pace", device=device, modelled=False)
        yield
    except Exception:  # not BaseException: on a signal the probe is busy, and its disks are given up
        for device in devices:
            with suppress(IotrialError):  # report the first error, not a later one
                target.call("disk_pace", device=device, modelled=True)
        raise
    for device in devices:
        target.call("disk_pace", device=device, modelled=True)


_NO_FUSE = (errno.ENOENT, errno.ENODEV, errno.ENXIO)


def check_memory(target: Target, size_bytes: int) -> None:
    """Raise NoSpace if the image would leave less than the margin of memory."""
    lines = (line.partition(":") for line in target.read("/proc/meminfo").splitlines())
    memory = {
        name: int(rest.split()[0]) << 10 for name, _, rest in lines if name in ("MemTotal", "MemAvailable")
    }
    if not memory.keys() >= {"MemTotal", "MemAvailable"}:
        return
    margin = min(MARGIN_BYTES, max(0, memory["MemTotal"] - size_bytes) // 4)
    if memory["MemAvailable"] < size_bytes + margin:
        found = (
            f"found {memory['MemAvailable'] >> 20} MiB available, of which {margin >> 20} MiB must stay free"
        )
        raise _no_memory(size_bytes, found)


def _no_memory(size_bytes: int, found: str) -> NoSpace:
    return NoSpace(
        f"cannot create a simulated disk: it needs {size_bytes >> 20} MiB of memory: {found}",
        hint="make the lab smaller ([lab] size), or use --disk none",
    )


def wire(disk: DiskSpec) -> dict[str, Any]:
    """Return the disk's figures in the probe's units: microseconds, bytes, bytes per second."""
    of = disk.figures
    if not disk.turning:
        return {
            "flat": {
                "read_us": of["read_latency"] * 1e6,
                "write_us": of["write_latency"] * 1e6,
                "jump_us": of["jump"] * 1e6,
                "flush_us": of["flush"] * 1e6,
                "overhead_us": of["overhead"] * 1e6,
                "read_bytes_per_s": of["rate_read"],
                "write_bytes_per_s": of["rate_write"],
                "depth": int(of["queue"]),
                **_collecting(of),
            }
        }
    return {
        "rotating": {
            "turns_per_minute": of["turns_per_minute"],
            "seek_track_us": of["seek_track"] * 1e6,
            "seek_mean_us": of["seek_mean"] * 1e6,
            "seek_full_us": of["seek_full"] * 1e6,
            "outer_bytes_per_s": of["rate_outer"],
            "inner_bytes_per_s": of["rate_inner"],
            "interface_bytes_per_s": of["rate_wire"],
            "overhead_us": of["overhead"] * 1e6,
            "ahead_bytes": int(of["read_ahead"]),
            "cache_bytes": int(of["write_cache"]),
            "depth": int(of["queue"]),
            "order": disk.order,
            "stroke": of["stroke"],
        }
    }


def _collecting(of: Mapping[str, float]) -> dict[str, Any]:
    """Return how a disk collects garbage; empty for one that does not."""
    if "erase_block" not in of:
        return {}
    return {
        "collects": {
            "block_bytes": int(of["erase_block"]),
            "spare": of["spare"],
            "page_move_us": of["page_move"] * 1e6,
            "erase_us": of["erase"] * 1e6,
        }
    }
