"""Standing back: little of the processor and of the disk, or the least there is, for what is done beside a measurement."""

from __future__ import annotations

import ctypes
import os
import platform
from contextlib import suppress
from pathlib import Path

_LOW, _LOWEST = 10, 19
# ioprio_set(2): class idle of one thread. The numbers are the kernel's (include/uapi/linux/ioprio.h, unistd.h).
_SYSCALL = {"x86_64": 251, "aarch64": 30, "riscv64": 30}
_WHO_PROCESS, _CLASS_IDLE, _CLASS_SHIFT = 1, 3, 13


def stand_back(*, wholly: bool = False) -> None:
    """This process gives way: it preempts nobody when it wakes (SCHED_BATCH), has little where others want the processor
    (nice 10), and its disk requests come last. ``wholly``: it runs only when nothing else wants to (SCHED_IDLE, nice 19).

    Of all its threads, and of what they begin afterwards. What the system refuses is left as it is; without privileges there
    is no way back.
    """
    nice, policy = (_LOWEST, "SCHED_IDLE") if wholly else (_LOW, "SCHED_BATCH")
    for thread in _threads():
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, max(nice, os.getpriority(os.PRIO_PROCESS, thread)))
        with suppress(OSError, AttributeError):
            os.sched_setscheduler(thread, getattr(os, policy), os.sched_param(0))
        number = _SYSCALL.get(platform.machine())
        if number is not None:
            with suppress(OSError, AttributeError):
                ctypes.CDLL(None).syscall(number, _WHO_PROCESS, thread, _CLASS_IDLE << _CLASS_SHIFT)


def session_last() -> None:
    """Where sessions share the processor, a nice value counts within one only (autogroup, sched(7)): this session is last."""
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(f"{_LOWEST}\n", "ascii")


def _threads() -> list[int]:
    try:
        return [int(entry.name) for entry in Path("/proc/self/task").iterdir()]
    except OSError:
        return [0]
