"""How to start a probe: as a process on this machine, or in a virtual machine that runs as a process on this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


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
