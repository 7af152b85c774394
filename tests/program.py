"""Run the program to its end: forked from a process that has everything imported, or as a process of its own."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


class Forks:
    """A fork server that runs the program, one run at a time; ``script`` is forking.py or one that builds on
    it."""

    def __init__(self, script: Path = HERE / "forking.py") -> None:
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        argv = [sys.executable, str(script)]
        # unbuffered: data that has arrived but is not read yet must be visible to select(2)
        self._server = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=environment
        )
        assert self._answer() == {"ready": True}

    def begin(self, **order: Any) -> int:
        """Start one run and return its process id."""
        assert self._server.stdin
        self._server.stdin.write(json.dumps(order).encode() + b"\n")
        return int(self._answer()["pid"])

    def status(self, within_s: float | None = None) -> int | None:
        """Return the exit status of the run that was started, or None if it has not ended within the timeout."""
        assert self._server.stdout
        ready, _, _ = select.select([self._server.stdout], [], [], within_s)
        return int(self._answer()["status"]) if ready else None

    @property
    def alive(self) -> bool:
        return self._server.poll() is None

    def close(self) -> None:
        assert self._server.stdin
        assert self._server.stdout
        with suppress(BrokenPipeError):
            self._server.stdin.close()
        self._server.wait(30)
        self._server.stdout.close()

    def _answer(self) -> dict[str, Any]:
        assert self._server.stdout
        line = self._server.stdout.readline()
        assert line, "the process that forks runs has died"
        answer: dict[str, Any] = json.loads(line)
        return answer


@cache
def _forks(script: Path) -> Forks:
    made = Forks(script)
    atexit.register(made.close)
    return made


def where_it_stands(pid: int) -> str:
    """Describe a run that hangs: what each of its processes waits for, as the kernel shows root. Also make
    the first one print a traceback to its standard error."""
    told, waiting = [], [pid]
    while waiting:
        one = Path(f"/proc/{waiting.pop()}")
        with suppress(OSError, IndexError):
            name, rest = (one / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
            stack = " < ".join(line.split()[-1] for line in (one / "stack").read_text().splitlines()[:6])
            told.append(f"{one.name} ({name}) {rest.split()[0]}: {stack or (one / 'wchan').read_text()}")
            waiting += map(int, (one / f"task/{one.name}/children").read_text().split())
    os.kill(pid, signal.SIGUSR2)
    time.sleep(1)
    return "\n".join(told)


def iotrial(
    *words: str, cwd: Path | None = None, env: dict[str, str] | None = None, timeout: float = 180
) -> subprocess.CompletedProcess[str]:
    """Run the program and return its result.

    With an environment of its own it is a separate process: some variables, such as the loader's, only take
    effect at start.
    """
    if env is not None:
        argv = [sys.executable, "-m", "iotrial", *words]
        return subprocess.run(
            argv, capture_output=True, text=True, timeout=timeout, check=False, cwd=cwd, env=env
        )
    return forked(HERE / "forking.py", *words, cwd=cwd, timeout=timeout)


def forked(
    script: Path, *words: str, cwd: Path | None = None, timeout: float = 180
) -> subprocess.CompletedProcess[str]:
    """Run the program forked by ``script``, forking.py or one that builds on it, and return its result."""
    forks = _forks(script)
    with tempfile.TemporaryDirectory(prefix="iotrial-output-") as output:
        pid = forks.begin(argv=words, environment=dict(os.environ), cwd=str(cwd or Path.cwd()), output=output)
        status = forks.status(timeout)
        stands = ""
        if status is None:
            stands = where_it_stands(pid)
            os.killpg(pid, signal.SIGKILL)
            forks.status()
        out, err = ((Path(output) / name).read_text() for name in ("stdout", "stderr"))
    if status is None:
        late = subprocess.TimeoutExpired(words, timeout, out, err)
        late.add_note(f"{stands}\nit had said: {err[-4000:]}")
        raise late
    return subprocess.CompletedProcess(words, status, out, err)
