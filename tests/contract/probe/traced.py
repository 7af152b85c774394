"""Count system calls with strace, running a command as the probe does: the independent truth for accounting."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

Counts = dict[str, tuple[int, int]]

#: the environment that the probe sets: for root's programs the PATH of the system, not of the shell
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT = {"PATH": SYSTEM_PATH if os.geteuid() == 0 else os.environ["PATH"], "HOME": "/", "LC_ALL": "C"}
_ERRNO = re.compile(r"^(?:\d+ +)?(?:<\.\.\. )?(\w+).*\) += (?:-1 |\? )([A-Z]+[A-Z0-9_]*) ", re.MULTILINE)


def counted(argv: Sequence[str], folder: Path, *, cwd: Path | None = None) -> Counts:
    """Return calls and errors by name for the whole process tree (``strace -f -c``); those of 32-bit programs
    end in @i386."""
    found: Counts = {}
    suffix = ""
    for line in _strace(["-c", "-U", "calls,errors,name"], argv, folder, cwd).splitlines():
        if "32 bit mode" in line:
            suffix = "@i386"
        words = line.split()
        if len(words) < 2 or not words[0].isdigit() or words[-1] == "total":
            continue
        errors = int(words[1]) if len(words) == 3 else 0
        found[words[-1] + suffix] = (int(words[0]), errors)
    assert found
    return found


def errors(argv: Sequence[str], folder: Path) -> dict[str, dict[str, int]]:
    """Return how often each call failed with which error, by name, from the full trace (``strace -f``)."""
    found: dict[str, dict[str, int]] = {}
    for name, errno in _ERRNO.findall(_strace([], argv, folder, None)):
        by_errno = found.setdefault(name, {})
        by_errno[errno] = by_errno.get(errno, 0) + 1
    return found


def _strace(options: Sequence[str], argv: Sequence[str], folder: Path, cwd: Path | None) -> str:
    out = folder / "strace.out"
    with (folder / "strace.err").open("w") as stderr:
        subprocess.run(
            ["strace", "-f", *options, "-o", str(out), "--", *argv],
            env=ENVIRONMENT,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            check=False,
        )
    return out.read_text(errors="replace")
