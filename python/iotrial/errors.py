"""What can go wrong, as one family: each error knows its exit status and may carry a hint.

A message says what was being done, to what, what was wanted and what was found; the hint says what
to do about it. The command line prints both; with ``--json`` they become one JSON object on
standard error. Causes are kept by ``raise ... from``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class IotrialError(Exception):
    """The work failed (exit status 1). Base of every error that iotrial raises on purpose."""

    code = "failed"
    exit_status = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint:
            self.add_note(f"hint: {hint}")  # what a traceback says, where no command line prints it


class RequestError(IotrialError):
    """The request was wrong (exit status 2); nothing was changed."""

    code = "bad_request"
    exit_status = 2


class UnknownName(RequestError):
    """A name that does not exist; the hint holds the nearest that does."""

    code = "unknown_name"

    def __init__(self, kind: str, name: str, known: Iterable[str], *, where: str = "") -> None:
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f'did you mean "{near[0]}"?' if near else None
        if names and (hint is None or len(names) <= 12):
            listing = "known: " + ", ".join(names)
            hint = f"{hint} ({listing})" if hint else listing
        prefix = f"{where}: " if where else ""
        super().__init__(f'{prefix}no {kind} is called "{name}"', hint=hint)
        self.kind = kind
        self.name = name


class StudyError(RequestError):
    """A study file that cannot be used: file, line, what was expected."""

    code = "bad_study"

    def __init__(self, message: str, *, file: str, line: int | None = None, hint: str | None = None) -> None:
        place = f"{file}:{line}" if line else file
        super().__init__(f"{place}: {message}", hint=hint)
        self.file = file
        self.line = line


class UnsupportedLevel(RequestError):
    """A level that this kernel, file system or lab does not have; says what it has."""

    code = "unsupported_level"


class PrivilegeError(RequestError):
    """Root is needed and is not there."""

    code = "needs_root"


class MissingTool(RequestError):
    """A program of the system is missing; the hint names the package."""

    code = "missing_tool"


class NoSpace(RequestError):
    """Too little free space for what was asked."""

    code = "no_space"


class TargetError(IotrialError):
    """The target refused an operation; ``errno`` is set where a system call said so."""

    code = "target"

    def __init__(self, message: str, *, errno: int | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.errno = errno


class NotSupported(TargetError):
    """The target's kernel, or the privilege there, cannot do this."""


class LabError(IotrialError):
    """The lab could not be brought into the wanted state."""

    code = "lab"


class KnobError(LabError):
    """A value that did not take: names knob, target, what was written and what stands there."""

    code = "knob"

    def __init__(self, knob: str, target: str, *, wrote: str, found: str, hint: str | None = None) -> None:
        super().__init__(f'knob {knob} on {target}: wrote "{wrote}", kernel reports "{found}"', hint=hint)
        self.knob = knob
        self.target = target


class RestoreError(IotrialError):
    """Something could not be put back (exit status 5); its journal entry is kept."""

    code = "restore_incomplete"
    exit_status = 5


class ProbeError(IotrialError):
    """The probe refused a job, failed at it, or died."""

    code = "probe"


class StoreError(IotrialError):
    """The store of trials cannot be read or written."""

    code = "store"
