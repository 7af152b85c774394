"""A modelled disk as the image of a lab: held in memory by a process of its own, which answers when the model says.

The process is a child of the probe's and ends with it; the file that it exports is mounted nowhere. So there is nothing to
undo, and nothing of it on the user's disk.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from iotrial.errors import IotrialError, LabError, NoSpace, NotSupported, TargetError
from iotrial.lab.target import Target
from iotrial.study.disks import DiskSpec

#: of memory that has to be left for everything else; on a small machine a quarter of what is not for the disk
MARGIN_BYTES = 512 << 20
FUSE = "/dev/fuse"


def make(target: Target, disk: DiskSpec, size_bytes: int) -> Mapping[str, int]:
    """The image behind a modelled disk, as the verb ``image`` answers. Raises NoSpace, LabError, TargetError."""
    check_memory(target, size_bytes)
    try:
        return target.call("image_modelled", size=size_bytes, **wire(disk))
    except NotSupported:
        raise
    except TargetError as error:
        if error.errno in (errno.ENOMEM, errno.EAGAIN):
            raise _no_memory(size_bytes, error.message) from error
        raise LabError(
            f"making the modelled disk {disk.model}: {error.message}",
            hint=f"it is served through {FUSE}: modprobe fuse" if error.errno in _NO_FUSE else None,
        ) from error


@contextmanager
def at_once(target: Target, devices: Sequence[str]) -> Iterator[None]:
    """These modelled disks answer at once; behind it they are at rest: nothing waits or is cached, the arm is outermost."""
    try:
        for device in devices:
            target.call("disk_pace", device=device, modelled=False)
        yield
    except Exception:  # a signal finds the probe at work: what it has is given up
        for device in devices:
            with suppress(IotrialError):  # what went wrong first is what is told
                target.call("disk_pace", device=device, modelled=True)
        raise
    for device in devices:
        target.call("disk_pace", device=device, modelled=True)


_NO_FUSE = (errno.ENOENT, errno.ENODEV, errno.ENXIO)


def check_memory(target: Target, size_bytes: int) -> None:
    """Raises NoSpace where the image would leave less than a margin of memory."""
    lines = (line.partition(":") for line in target.read("/proc/meminfo").splitlines())
    memory = {
        name: int(rest.split()[0]) << 10 for name, _, rest in lines if name in ("MemTotal", "MemAvailable")
    }
    if not memory.keys() >= {"MemTotal", "MemAvailable"}:
        return
    margin = min(MARGIN_BYTES, max(0, memory["MemTotal"] - size_bytes) // 4)
    if memory["MemAvailable"] < size_bytes + margin:
        found = (
            f"found {memory['MemAvailable'] >> 20} MiB available, of which {margin >> 20} MiB have to be left"
        )
        raise _no_memory(size_bytes, found)


def _no_memory(size_bytes: int, found: str) -> NoSpace:
    return NoSpace(
        f"making a modelled disk: wanted {size_bytes >> 20} MiB of memory for its content: {found}",
        hint="make the lab smaller ([lab] size), or run without the model (--disk none)",
    )


def wire(disk: DiskSpec) -> dict[str, Any]:
    """The figures as the probe takes them: microseconds, bytes, bytes a second."""
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
