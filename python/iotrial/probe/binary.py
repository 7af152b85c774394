"""Find the probe binary, and describe how to start a probe.

The binary is named by an environment variable, next to the interpreter (if installed), or in a source tree. A probe runs as a
process on this machine, or in a virtual machine that runs as a process on this machine.
"""

from __future__ import annotations

import os
import platform
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from iotrial.errors import ProbeError


def find_binary() -> Path:
    """Return the path of ``ioprobe``: ``$IOTRIAL_PROBE``, the scripts folder of this Python, or the build of a checkout.

    Raises ProbeError if there is none.
    """
    named = os.environ.get("IOTRIAL_PROBE")
    if named:
        if os.access(named, os.X_OK):
            return Path(named)
        raise ProbeError(f"IOTRIAL_PROBE names {named}, which cannot be executed")
    checkout = Path(__file__).resolve().parents[3]
    candidates = [
        Path(sysconfig.get_path("scripts")) / "ioprobe",
        Path(sys.executable).parent / "ioprobe",
        checkout / "target" / f"{platform.machine()}-unknown-linux-gnu" / "release" / "ioprobe",
    ]
    for candidate in candidates:
        if os.access(candidate, os.X_OK):
            return candidate
    raise ProbeError(
        "the probe (ioprobe) is not installed",
        hint="run `make build` in the source tree, or install the package again",
    )


@dataclass(frozen=True, slots=True)
class Launch:
    """A command that speaks the probe protocol on its standard input and output."""

    argv: tuple[str, ...]
    #: the target, for messages
    name: str = "this machine"
    #: killing this one process with SIGKILL ends everything it has started
    contained: bool = False
    #: True if the probe runs on a different machine than the started process
    elsewhere: bool = False
    #: file descriptors that it inherits
    passed: tuple[int, ...] = ()
    #: timeout for the first answer, in seconds; None: no timeout while the process lives
    begins_within_s: float | None = None
    #: returns details about its death beyond its standard error
    last_words: Callable[[], str] | None = None
    #: returns a description if it hangs (alive, but will never answer), else None
    hung: Callable[[], str | None] | None = None


def local(binary: Path, *, isolate: bool) -> Launch:
    """Launch the probe as a process on this machine; ``isolate`` (root): in its own namespaces, which end with it."""
    return Launch((str(binary), *(("--isolate",) if isolate else ())), contained=isolate)
