"""Workload kind ``calls``: whole processes whose system calls are counted, exactly, and not timed.

For questions of fact: how often does a program read, and on what does that depend? Every run is traced, so no time of it is a
response.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from iotrial.study.kinds.command import PROGRAMS, WRITTEN, CommandKeys, declared, written
from iotrial.study.kinds.contract import DEVICE_RESPONSES, ResponseSpec, WorkloadKind
from iotrial.study.model import Better, CallsWork, Scale, Work
from iotrial.study.wire import Line

_NAME = re.compile(r"[a-z0-9_]{1,40}(@i386)?")


def _call(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError("wanted a system call's name, such as read, or read@i386 of 32-bit programs")
    return text


class CallsKeys(CommandKeys):
    """Keys of ``kind = "calls"``: those of ``command``, and which calls are responses."""

    calls: list[Annotated[Line, AfterValidator(_call)]] = Field(
        [], max_length=32, description="system calls that are responses of their own, the first one primary"
    )


def build(keys: CallsKeys) -> CallsWork:
    """The work of these keys; KeyProblem where the steps cannot work."""
    return CallsWork(**declared(keys), calls=tuple(dict.fromkeys(keys.calls)))


def responses(work: Work) -> tuple[ResponseSpec, ...]:
    """What one run of this work counts."""
    assert isinstance(work, CallsWork)
    return (
        *(_count(f"calls.{name}", f"calls of {name}") for name in work.calls),
        *_ALL,
        *DEVICE_RESPONSES,
        *written(work),
    )


def _count(name: str, text: str) -> ResponseSpec:
    return ResponseSpec(name, "1", Scale.DIFFERENCE, Better.NONE, f"{text} that returned")


_ALL = (_count("calls", "system calls"), _count("errors", "system calls with an error"))

KIND = WorkloadKind(
    name="calls",
    work=CallsWork,
    summary="Whole processes whose system calls are counted, exactly, and not timed.",
    keys=CallsKeys,
    build=build,
    responses=responses,
    documented=(_count("calls.NAME", "calls of NAME"), *_ALL, *DEVICE_RESPONSES, *WRITTEN),
    notes="Counted are calls that returned, of all processes that the command starts, from its execve on, as strace -f "
    "counts them. Needs BPF: root, as a rule. All keys but calls are those of command.",
    programs=PROGRAMS,
)
