"""A loop device that is added for one test and removed after it, with all settings that attaching an image changes."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: ioctls of /dev/loop-control, from linux/loop.h
_ADD, _REMOVE = 0x4C80, 0x4C81
#: the number for the first worker of pytest-xdist: higher than those that the kernel gives out as free
_FIRST = 64
#: how long the kernel may go on detaching an image
_REMOVED_WITHIN_S = 10.0


@contextmanager
def own_loop(image: Path) -> Iterator[str]:
    """Attach an image to a loop device that no other worker uses, and yield the device's name."""
    number = _FIRST + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    device = f"loop{number}"
    with suppress(FileExistsError):  # left by a run that was killed
        _control(_ADD, number)
    made = _node(device)
    try:
        subprocess.run(["losetup", f"/dev/{device}", str(image)], check=True)
        yield device
        subprocess.run(["losetup", "--detach", f"/dev/{device}"], check=True)
    finally:
        if made:
            Path("/dev", device).unlink()
        _remove(number)


def _node(device: str) -> bool:
    """Make the device's node where the kernel does not, as in a container. Return whether it was made here."""
    path = Path("/dev", device)
    if path.exists():
        return False
    major, minor = map(int, Path(f"/sys/block/{device}/dev").read_text().split(":"))
    os.mknod(path, stat.S_IFBLK | 0o600, os.makedev(major, minor))
    return True


def _remove(number: int) -> None:
    end = time.monotonic() + _REMOVED_WITHIN_S
    while True:
        try:
            _control(_REMOVE, number)
        except OSError:  # busy
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
        else:
            return


def _control(request: int, number: int) -> None:
    with open("/dev/loop-control", "r+b", buffering=0) as control:  # noqa: PTH123
        fcntl.ioctl(control, request, number)
