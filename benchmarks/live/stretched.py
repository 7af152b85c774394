"""A service whose requests take a known number of times as long while a setting is not at its value of today.

    stretched.py FILE LOG SETTING TODAY TIMES RATE

A request reads the whole FILE from its disk. If SETTING, a file in /proc or /sys, does not hold TODAY, the request then spins
until it has taken TIMES as long. Requests start at a fixed RATE a second. Each line of LOG: the microseconds of the reading,
those of the whole request, and whether it was stretched.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

PIECE = 1 << 16
#: a service that is further behind its schedule than this begins a new one
BEHIND_S = 1.0


def main() -> None:
    """Serve until it is killed."""
    file, log, setting = map(Path, sys.argv[1:4])
    today, times, rate = sys.argv[4], float(sys.argv[5]), float(sys.argv[6])
    due = time.monotonic()
    with log.open("a", buffering=1) as out:
        while True:
            due += 1.0 / rate
            left = due - time.monotonic()
            if left > 0.0:
                time.sleep(left)
            elif left < -BEHIND_S:
                due = time.monotonic()
            stretched = setting.read_text().strip() != today
            began = time.perf_counter_ns()
            read(file)
            base = time.perf_counter_ns() - began
            until = began + int(base * times)
            while stretched and time.perf_counter_ns() < until:
                pass
            took = time.perf_counter_ns() - began if stretched else base
            out.write(f"base {base / 1e3:.3f} took {took / 1e3:.3f} us stretched {stretched:d}\n")


def read(file: Path) -> None:
    """Read a file from its disk: its pages are dropped first."""
    descriptor = os.open(file, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    while os.read(descriptor, PIECE):
        pass
    os.close(descriptor)


main()
