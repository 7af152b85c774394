"""The server's end of the process that does what takes long: begun when there is work, ended when a trial begins.

It is a process of its own so that pages need not wait for Python's lock, so that its memory is given back, and so that it can
be stopped at any moment: a trial that begins finds the machine its own within a second.
"""

from __future__ import annotations

import os
import pickle
import select
import subprocess
import time
from collections.abc import Callable
from typing import TypeVar

from iotrial.errors import IotrialError, RequestError, StoreError
from iotrial.serve.desk import Unmade
from iotrial.serve.tasks import Task
from iotrial.serve.worker import ALIKE, ASIDE, Failed
from iotrial.workers import end_worker, start_worker

T = TypeVar("T")

LONGEST_S = 1800.0
_LOOK_S = 1.0


class Workshop:
    """``measuring`` says whether a trial is running, ``aside`` whether other work goes first. To be used by one thread."""

    def __init__(self, measuring: Callable[[], bool], *, aside: bool) -> None:
        self._measuring = measuring
        self._how = ALIKE if not aside else ASIDE
        self._worker: subprocess.Popen[bytes] | None = None

    def do(self, task: Task[T]) -> T:
        """What the task makes. Unmade where a trial began meanwhile; what the task raised, as an IotrialError of its kind."""
        worker = self._running()
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            pickle.dump(task, worker.stdin)
            worker.stdin.flush()
            self._wait(worker)
            answer = pickle.load(worker.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError) as error:
            self.close()
            raise IotrialError("the analysis ended without a word", hint="is there memory enough?") from error
        if isinstance(answer, Failed):
            kinds: dict[str, type[IotrialError]] = {"store": StoreError, "failed": IotrialError}
            raise kinds.get(answer.code, RequestError)(answer.message, hint=answer.hint)
        return answer  # type: ignore[no-any-return]

    def _wait(self, worker: subprocess.Popen[bytes]) -> None:
        assert worker.stdout is not None
        until_s = time.monotonic() + LONGEST_S
        while not select.select([worker.stdout], [], [], _LOOK_S)[0]:
            if self._measuring():
                self.close()
                raise Unmade(measuring=True)
            if time.monotonic() > until_s:
                self.close()
                raise IotrialError(f"the analysis took longer than {LONGEST_S:.0f} s and was given up")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._worker is None or self._worker.poll() is not None:
            self.close()
            # apart: Ctrl-C is for the server
            self._worker = start_worker("iotrial.serve.worker", str(os.getpid()), self._how, apart=True)
        return self._worker

    def close(self) -> None:
        """Ends the process, if there is one; the next task begins another."""
        if self._worker is not None:
            end_worker(self._worker)
        self._worker = None
