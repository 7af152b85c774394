"""Worker processes: they read requests from standard input and answer on standard output."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import iotrial


def start_worker(
    module: str, *words: str, quiet: bool = False, apart: bool = False
) -> subprocess.Popen[bytes]:
    """Start ``python -m MODULE WORDS`` with the same source files as this process. Raises OSError on failure.

    ``quiet``: discard its standard error. ``apart``: start it in its own session, where Ctrl-C at the terminal does not
    reach it.
    """
    paths = [str(Path(iotrial.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        # -P: do not import from the current folder
        [sys.executable, "-P", "-m", module, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if quiet else None,
        # one CPU per worker
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OPENBLAS_NUM_THREADS": "1"},
        start_new_session=apart,
    )


def end_worker(worker: subprocess.Popen[bytes]) -> None:
    """Kill a worker, whatever it is doing, and close its pipes."""
    worker.kill()
    worker.wait()
    for pipe in (worker.stdin, worker.stdout):
        if pipe is not None:
            with suppress(OSError):  # flushing what the worker no longer read
                pipe.close()
