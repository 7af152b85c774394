"""Processes of this program that work for another one of it: asked on standard input, they answer on standard output."""

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
    """The process of ``python -m MODULE WORDS``, of the very files that this one runs. OSError where none is to be had.

    ``quiet``: what it says on standard error goes nowhere. ``apart``: in a session of its own, where a Ctrl-C at the terminal
    does not reach it.
    """
    paths = [str(Path(iotrial.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        # -P: nothing is imported from the folder where this one was started
        [sys.executable, "-P", "-m", module, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if quiet else None,
        # each takes one processor
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OPENBLAS_NUM_THREADS": "1"},
        start_new_session=apart,
    )


def end_worker(worker: subprocess.Popen[bytes]) -> None:
    """Ends it, whatever it is doing."""
    worker.kill()
    worker.wait()
    for pipe in (worker.stdin, worker.stdout):
        if pipe is not None:
            with suppress(OSError):  # what it did not take any more
                pipe.close()
