"""Lower CPU and I/O priority, for processes that run during a measurement."""

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


def give_way(*, idle: bool = False) -> None:
    """Lower the priority of this process: nice 10, SCHED_BATCH, and idle I/O class.

    ``idle``: nice 19 and SCHED_IDLE, so that it runs only when the processor is otherwise idle. Applies to
    all threads and what they start later. Changes that the system rejects are skipped; without privileges
    they cannot be reverted.
    """
    nice, policy = (_LOWEST, "SCHED_IDLE") if idle else (_LOW, "SCHED_BATCH")
    for thread in _threads():
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, max(nice, os.getpriority(os.PRIO_PROCESS, thread)))
        with suppress(OSError, AttributeError):
            os.sched_setscheduler(thread, getattr(os, policy), os.sched_param(0))
        number = _SYSCALL.get(platform.machine())
        if number is not None:
            with suppress(OSError, AttributeError):
                ctypes.CDLL(None).syscall(number, _WHO_PROCESS, thread, _CLASS_IDLE << _CLASS_SHIFT)


def lowest_session() -> None:
    """Lower the priority of this session: with autogroups (sched(7)) a nice value only counts within a session."""
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(f"{_LOWEST}\n", "ascii")


def _threads() -> list[int]:
    try:
        return [int(entry.name) for entry in Path("/proc/self/task").iterdir()]
    except OSError:
        return [0]
