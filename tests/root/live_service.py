"""A service for the tests of live trials: reads a file from the disk again and again, and logs how long it took.

    live_service.py FILE LOG QUEUE

Each line of the log: the time of day, the read-ahead that the kernel shows in the folder QUEUE, and the milliseconds of a
read of the whole file, whose pages it drops first. It is slow as long as there is a file LOG.slow, and logs nothing as long
as there is LOG.silent.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path


def main() -> None:
    file, log, queue = map(Path, sys.argv[1:4])
    slow, silent = log.with_suffix(".slow"), log.with_suffix(".silent")
    with log.open("a", buffering=1) as out:
        while True:
            ahead = (queue / "read_ahead_kb").read_text().strip()
            descriptor = os.open(file, os.O_RDONLY)  # read-ahead is that of the disk when a file is opened
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            began = time.monotonic()
            while os.read(descriptor, 4096):
                pass
            os.close(descriptor)
            if slow.exists():
                time.sleep(1.0)
            took_ms = 1000.0 * (time.monotonic() - began)
            if not silent.exists():
                out.write(f"{time.time():.3f} ahead {ahead} took {took_ms:.3f} ms\n")
            time.sleep(0.02)


main()
