"""Standing back: the least of the processor and of the disk, for what is done while something may be measured."""

from __future__ import annotations

import ctypes
import os
import platform
from contextlib import suppress
from pathlib import Path

_LOWEST = 19
# ioprio_set(2): class idle of this process. The numbers are the kernel's (include/uapi/linux/ioprio.h, unistd.h).
_SYSCALL = {"x86_64": 251, "aarch64": 30, "riscv64": 30}
_WHO_PROCESS, _CLASS_IDLE, _CLASS_SHIFT = 1, 3, 13


def stand_back(*, wholly: bool = False) -> None:
    """Before others this process is not woken (SCHED_BATCH, nice 19), and its disk requests come last. What the system
    refuses is left as it is. Threads and processes that are begun afterwards inherit it.

    ``wholly``: it runs only when nothing else wants to (SCHED_IDLE), and so does all else in its session.
    """
    with suppress(OSError):
        os.nice(_LOWEST)
    with suppress(OSError, AttributeError):
        policy = os.SCHED_IDLE if wholly else os.SCHED_BATCH
        os.sched_setscheduler(0, policy, os.sched_param(0))
    number = _SYSCALL.get(platform.machine())
    if number is not None:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).syscall(number, _WHO_PROCESS, 0, _CLASS_IDLE << _CLASS_SHIFT)
    if wholly:
        with suppress(
            OSError
        ):  # where sessions share the processor, a nice value counts within one only (sched(7))
            Path("/proc/self/autogroup").write_text(f"{_LOWEST}\n", "ascii")
