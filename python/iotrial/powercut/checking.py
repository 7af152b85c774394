"""Runs a user's own checker on what a power cut has left.

The checker is a program with arguments. Lines ``lost ITEM`` and ``corrupt ITEM`` on its standard output say what is wrong.
Exit status 0 means that it has checked everything. 1 without such a line means corrupt, for the reason on its
standard error. Any other status means that the check itself failed.
"""

from __future__ import annotations

import os
import select
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from iotrial.errors import LabError
from iotrial.study.work import Damage

#: the file with what was acknowledged, an item a line
ACKNOWLEDGED = "{acknowledged}"
#: environment variable with the path of the socket, for workloads that put marks by themselves
MARKS = "IOTRIAL_MARKS"
#: time for one check
LIMIT_S = 50.0
_MOST_SAID = 400
_MOST_OUTPUT, _PIECE = 16 << 20, 1 << 16
_LOST, _CORRUPT = "lost ", "corrupt "


def run_checker(
    argv: Sequence[str],
    values: Mapping[str, str],
    acknowledged: Sequence[str],
    *,
    cwd: str,
    environment: Mapping[str, str],
    stdin: str,
    user: Mapping[str, int] | None,
    before: Callable[[], None] | None = None,
) -> Damage:
    """Run a checker and return what it says. ``values`` are those of its placeholders; ``before`` as in ``run_as``.

    Raises LabError if it cannot be started, fails or takes too long.
    """
    with tempfile.NamedTemporaryFile("w", prefix="iotrial-acknowledged-", suffix=".txt") as listed:
        _write(listed, acknowledged)
        words = list(argv)
        for placeholder, value in {**values, ACKNOWLEDGED: listed.name}.items():
            words = [word.replace(placeholder, value) for word in words]
        try:
            done = run_as(words, cwd=cwd, environment=environment, stdin=stdin, user=user, before=before)
        except subprocess.TimeoutExpired as error:
            raise LabError(f"the checker {words[0]} did not end within {LIMIT_S:g} s") from error
        except FileNotFoundError as error:
            raise LabError(f"the checker {words[0]} cannot be started: {error.strerror}") from error
    lines = done.stdout.splitlines()
    lost = tuple(line.removeprefix(_LOST) for line in lines if line.startswith(_LOST))
    corrupt = tuple(line.removeprefix(_CORRUPT) for line in lines if line.startswith(_CORRUPT))
    said = done.stderr.strip()[-_MOST_SAID:]
    if done.returncode not in (0, 1):
        raise LabError(
            f"the checker {words[0]} ended with status {done.returncode}: {said}",
            hint="status 0: checked; 1: corrupt; any other: it could not check",
        )
    if done.returncode == 1 and not lost and not corrupt:
        corrupt = (said or f"{words[0]} ended with status 1",)
    return Damage(lost, corrupt)


def run_as(
    argv: Sequence[str],
    *,
    cwd: str,
    environment: Mapping[str, str],
    stdin: str,
    user: Mapping[str, int] | None = None,
    before: Callable[[], None] | None = None,
    limit_s: float = LIMIT_S,
) -> subprocess.CompletedProcess[str]:
    """Run a program as a user (None: as this process) until it ends, even if other programs still have its output open.

    ``before`` is called in the new process, before the program starts.
    At most 16 MiB of each output are kept. Raises OSError, subprocess.TimeoutExpired.
    """
    other = user if user is not None and os.geteuid() == 0 else None
    with ExitStack() as stack:
        given = stack.enter_context(tempfile.TemporaryFile("w+"))
        given.write(stdin)
        given.seek(0)
        process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=dict(environment),
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=before,
            user=None if other is None else other["uid"],
            group=None if other is None else other["gid"],
            extra_groups=None if other is None else [],
        )
        stack.callback(process.wait)
        stack.callback(process.kill)
        ended = os.pidfd_open(process.pid)
        stack.callback(os.close, ended)
        assert process.stdout is not None
        assert process.stderr is not None
        kept = {}
        for pipe in (process.stdout, process.stderr):
            stack.enter_context(pipe)
            os.set_blocking(pipe.fileno(), False)
            kept[pipe.fileno()] = bytearray()
        if not _drain(kept, ended, time.monotonic() + limit_s):
            raise subprocess.TimeoutExpired(argv, limit_s)
        said, complained = (bytes(one).decode(errors="replace") for one in kept.values())
        return subprocess.CompletedProcess(argv, process.wait(), said, complained)


def _drain(kept: dict[int, bytearray], ended: int, deadline: float) -> bool:
    """Read outputs until the process of a pidfd has ended; return whether it did in time. What is too long is dropped."""
    open_ones = set(kept)
    while (left := deadline - time.monotonic()) > 0.0:
        ready = select.select([ended, *open_ones], [], [], left)[0]
        over = ended in ready
        for pipe in tuple(open_ones):
            # of what others still write, no more than is kept
            for _ in range(_MOST_OUTPUT // _PIECE if over else int(pipe in ready)):
                try:
                    piece = os.read(pipe, _PIECE)
                except BlockingIOError:
                    break
                kept[pipe] += piece[: max(0, _MOST_OUTPUT - len(kept[pipe]))]
                if not piece:
                    open_ones.discard(pipe)
                    break
        if over:
            return True
    return False


def _write(file: IO[str], acknowledged: Sequence[str]) -> None:
    file.writelines(f"{item}\n" for item in acknowledged)
    file.flush()
    Path(file.name).chmod(0o644)
