"""The exception hierarchy: each error has an exit status and an optional hint.

A message states the operation, its target, the expected and the actual value; the hint says what to do.
The command line prints both; with ``--json`` they become one JSON object on standard error.
Causes are kept with ``raise ... from``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def twice(what: str, name: object) -> str:
    """Return the message for a name that may be given once."""
    return f'{what} "{name}" is given twice'


def repeated(items: Sequence[T]) -> T | None:
    """Return the first item that occurs twice."""
    return next((item for place, item in enumerate(items) if item in items[:place]), None)


class IotrialError(Exception):
    """The operation failed (exit status 1). Base class of every error that iotrial raises deliberately."""

    code = "failed"
    exit_status = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint:
            self.add_note(f"hint: {hint}")  # shown in tracebacks, where the command line does not print it


class RequestError(IotrialError):
    """The request was invalid (exit status 2); nothing was changed."""

    code = "bad_request"
    exit_status = 2


#: hints for a lab that has no room, or a disk without room for the lab
LARGER_LAB = "use a larger lab: --size, or size in [lab]"
OTHER_FOLDER = "name another folder with --on, or use a smaller lab (--size)"

#: more known names than this are not listed in a hint
_MOST_LISTED = 12
#: how to see all names of a kind
_LISTED_BY = {
    "study": "`iotrial list` shows all studies, `iotrial list WORD` those that match WORD",
    "knob": "`iotrial knobs` shows all knobs",
}


def unknown(kind: str, name: str, known: Iterable[str], *, where: str = "") -> tuple[str, str | None]:
    """Return message and hint for a name that is not known: the nearest one that is, and a few of all."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f'did you mean "{near[0]}"?' if near else None
    if names and len(names) <= _MOST_LISTED:
        listing = "known: " + ", ".join(names)
        hint = f"{hint} ({listing})" if hint else listing
    elif names and hint is None:
        listing = ", ".join(names[:_MOST_LISTED])
        hint = _LISTED_BY.get(kind) or f"known: {listing} and {len(names) - _MOST_LISTED} more"
    return f'{where}{where and ": "}no {kind} is called "{name}"', hint


class UnknownName(RequestError):
    """An unknown name; the hint suggests the closest known one."""

    code = "unknown_name"

    def __init__(self, kind: str, name: str, known: Iterable[str], *, where: str = "") -> None:
        message, hint = unknown(kind, name, known, where=where)
        super().__init__(message, hint=hint)
        self.kind = kind
        self.name = name


class StudyError(RequestError):
    """An invalid study file. The message gives the file, the line and what was expected."""

    code = "bad_study"

    def __init__(self, message: str, *, file: str, line: int | None = None, hint: str | None = None) -> None:
        place = f"{file}:{line}" if line else file
        super().__init__(f"{place}: {message}", hint=hint)
        self.file = file
        self.line = line


class UnsupportedLevel(RequestError):
    """A level that this kernel, file system or lab does not support. The message lists what it supports."""

    code = "unsupported_level"


class PrivilegeError(RequestError):
    """The operation requires root."""

    code = "needs_root"

    def __init__(self, what: str, *, instead: str = "") -> None:
        """``instead``: what is possible without root."""
        super().__init__(
            f"{what}: needs root", hint="run it as root (sudo)" + (f", or {instead}" if instead else "")
        )


class MissingTool(RequestError):
    """A system program is not installed; the hint names its package."""

    code = "missing_tool"

    @classmethod
    def program(cls, what: str, name: str, package: str) -> MissingTool:
        """Return the error for a program that ``what`` needs, from a package of Debian."""
        return cls(f"{what}: {name} is not installed", hint=f"apt-get install {package}")

    @classmethod
    def extra(cls, what: str, name: str, extra: str) -> MissingTool:
        """Return the error for a Python package that ``what`` needs, from an extra of iotrial."""
        return cls(f"{what}: {name} is not installed", hint=f"pip install 'iotrial[{extra}]'")


class NoSpace(RequestError):
    """Not enough free space for the request."""

    code = "no_space"


class TargetError(IotrialError):
    """The target refused an operation; ``errno`` is set if a system call failed."""

    code = "target"

    def __init__(self, message: str, *, errno: int | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.errno = errno


class NotSupported(TargetError):
    """The target's kernel does not support this, or the privileges there do not suffice."""


class LabError(IotrialError):
    """The lab could not be brought into the required state."""

    code = "lab"


class KnobError(LabError):
    """A knob did not take a value. Names the knob, the target, the value written and the value read back."""

    code = "knob"

    def __init__(self, knob: str, target: str, *, wrote: str, found: str, hint: str | None = None) -> None:
        super().__init__(f'knob {knob} on {target}: wrote "{wrote}", kernel reports "{found}"', hint=hint)
        self.knob = knob
        self.target = target
        self.found = found


class SettingChanged(KnobError):
    """Another program has changed a setting that had been applied."""

    def __init__(self, error: KnobError, when: str) -> None:
        super().__init__(error.knob, error.target, wrote="", found=error.found)
        self.message = f"setting changed by something else, found {when}: {error.message}"
        self.args = (self.message,)


class RestoreError(IotrialError):
    """A setting or object could not be restored (exit status 5); its undo journal entry is kept."""

    code = "restore_incomplete"
    exit_status = 5


class NoAnswer(IotrialError):
    """Nothing can be said about the question (exit status 6): the command fails, or no comparison has an answer."""

    code = "no_answer"
    exit_status = 6


class ProbeError(IotrialError):
    """The probe rejected a job, failed during it, or died."""

    code = "probe"


class StoreError(IotrialError):
    """The trial store cannot be read or written."""

    code = "store"
