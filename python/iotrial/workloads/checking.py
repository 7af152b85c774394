"""Runs a study's own checker on what a power cut has left.

The checker is a program with arguments. Lines ``lost ITEM`` and ``corrupt ITEM`` on its standard output say what is wrong.
Exit status 0 means that it has checked everything. 1 without such a line means corrupt, for the reason on its
standard error. Any other status means that the check itself failed.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from iotrial.errors import LabError
from iotrial.study.work import Damage

#: the file with what was acknowledged, an item a line
ACKNOWLEDGED = "{acknowledged}"
#: environment variable with the socket of the disk that logs, for programs that acknowledge without printing
MARKS = "IOTRIAL_MARKS"
#: time for one check
LIMIT_S = 50.0
_MOST_SAID = 400
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
) -> Damage:
    """Run a checker and return what it says. ``values`` are those of its placeholders.

    Raises LabError if it cannot be started, fails or takes too long.
    """
    with tempfile.NamedTemporaryFile("w", prefix="iotrial-acknowledged-", suffix=".txt") as listed:
        _write(listed, acknowledged)
        words = list(argv)
        for placeholder, value in {**values, ACKNOWLEDGED: listed.name}.items():
            words = [word.replace(placeholder, value) for word in words]
        try:
            done = run_as(words, cwd=cwd, environment=environment, stdin=stdin, user=user)
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
    user: Mapping[str, int] | None,
    limit_s: float = LIMIT_S,
) -> subprocess.CompletedProcess[str]:
    """Run a program as a user (None: as this process) until it ends. Raises OSError, subprocess.TimeoutExpired."""
    other = user if user is not None and os.geteuid() == 0 else None
    return subprocess.run(
        argv,
        cwd=cwd,
        env=dict(environment),
        input=stdin,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=limit_s,
        check=False,
        user=None if other is None else other["uid"],
        group=None if other is None else other["gid"],
        extra_groups=None if other is None else [],
    )


def _write(file: IO[str], acknowledged: Sequence[str]) -> None:
    file.writelines(f"{item}\n" for item in acknowledged)
    file.flush()
    Path(file.name).chmod(0o644)
