"""The process that does what takes long, one task after another, for a server that goes on answering meanwhile.

Tasks come on standard input, answers go to standard output, pickled: both ends are this program. It has the lowest
priority there is, unless told otherwise, and is killed with its server, or by it when a trial begins.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
import traceback
from dataclasses import dataclass

from iotrial.errors import IotrialError
from iotrial.legible import shown
from iotrial.serve.quiet import stand_back

ASIDE, ALIKE = "aside", "alike"  # how it stands to other work
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Failed:
    """An error, to be raised again by who asked. ``code`` as in ``iotrial.errors``."""

    code: str
    message: str
    hint: str | None


def main(server: int, *, aside: bool) -> None:
    """Answers until there are no tasks any more, or no ``server`` (its process id); ``aside``: when nothing else is to do."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != server:
        return
    if aside:
        stand_back(wholly=True)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever is printed by the way is no answer
    tasks = sys.stdin.buffer
    while True:
        try:
            task = pickle.load(tasks)
        except EOFError:
            return
        pickle.dump(_answer(task), answers)
        answers.flush()


def _answer(task: object) -> object:
    try:
        return task.do()  # type: ignore[attr-defined]
    except IotrialError as error:
        return Failed(error.code, error.message, error.hint)
    except Exception as error:  # the next task may go well
        traceback.print_exc(file=sys.stderr)
        told = shown(f"{type(error).__name__}: {error}")[:300]
        return Failed("failed", f"a mistake of iotrial's: {told}", None)


if __name__ == "__main__":
    # under its own name, so that what is pickled here is known there
    from iotrial.serve import worker

    worker.main(int(sys.argv[1]), aside=sys.argv[2] == worker.ASIDE)
