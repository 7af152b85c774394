"""Standing back: the least of the processor and of the disk, for what is done while something may be measured."""

from __future__ import annotations

import ctypes
import os
import platform
from contextlib import suppress

_LOWEST = 19
# ioprio_set(2): class idle of this process. The numbers are the kernel's (include/uapi/linux/ioprio.h, unistd.h).
_SYSCALL = {"x86_64": 251, "aarch64": 30, "riscv64": 30}
_WHO_PROCESS, _CLASS_IDLE, _CLASS_SHIFT = 1, 3, 13


def stand_back() -> None:
    """This process runs when nothing else wants to, its disk requests last. What the system refuses is left as it is.

    Threads that are begun afterwards inherit it.
    """
    with suppress(OSError):
        os.nice(_LOWEST)
    with suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    number = _SYSCALL.get(platform.machine())
    if number is not None:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).syscall(number, _WHO_PROCESS, 0, _CLASS_IDLE << _CLASS_SHIFT)
