"""How a probe is started: as a process of this machine, or in a machine of its own whose process this machine runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Launch:
    """A command whose standard input and output carry the protocol."""

    argv: tuple[str, ...]
    #: the target, for messages
    name: str = "this machine"
    #: SIGKILL of this one process ends everything that it has started
    contained: bool = False
    #: whether the probe is on another machine than the process that is started
    elsewhere: bool = False
    #: descriptors that it inherits
    passed: tuple[int, ...] = ()
    #: how long it may take to answer for the first time; None: as long as it lives
    begins_within_s: float | None = None
    #: what there is to be told of its death besides its standard error
    last_words: Callable[[], str] | None = None
    #: what is to be told of it where it is hung: it lives, and will never answer; None where it is not
    hung: Callable[[], str | None] | None = None


def local(binary: Path, *, isolate: bool) -> Launch:
    """The probe as a process of this machine; ``isolate`` (root) in namespaces of its own, which end with it."""
    return Launch((str(binary), *(("--isolate",) if isolate else ())), contained=isolate)
