"""Workload kind ``calls``: whole processes, with their system calls counted exactly, untimed.

For questions of fact: how often does a program read, and on what does that depend? Every run is traced, so
its times are not responses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Self

from msgspec import Meta

from iotrial.study.scales import Better, Scale
from iotrial.study.schema import Form, formed
from iotrial.study.work import DEVICE_RESPONSES, JobContext, Measured, ResponseSpec, calls_of
from iotrial.workloads.command import WRITTEN, CommandWork

_NAME = re.compile(r"[a-z0-9_]{1,40}(@(i386|arm))?")


def _call(text: str) -> None:
    if not _NAME.fullmatch(text):
        raise ValueError("expected a system call's name, such as read, or read@i386 of 32-bit programs")


def _count(name: str, text: str) -> ResponseSpec:
    return ResponseSpec(name, "1", Scale.DIFFERENCE, Better.NONE, f"{text} that returned")


CallName = Annotated[str, formed(Form("text", check=_call))]
_ALL = (_count("calls", "system calls"), _count("errors", "system calls with an error"))


class CallsWork(CommandWork, frozen=True, kw_only=True):
    """Whole processes, with system calls counted instead of time. ``calls`` names those that are responses."""

    kind = "calls"
    about = "Whole processes, with their system calls counted exactly, untimed."
    documented = (_count("calls.NAME", "calls of NAME"), *_ALL, *DEVICE_RESPONSES, *WRITTEN)
    accountable = False  # every run already counts system calls
    timed = False

    calls: Annotated[
        tuple[CallName, ...],
        Meta(max_length=32, description="system calls to report singly; the first is primary"),
    ] = ()

    @classmethod
    def made(cls, values: dict[str, Any]) -> Self:
        return super().made({**values, "calls": tuple(dict.fromkeys(values.get("calls", ())))})

    def responses(self) -> tuple[ResponseSpec, ...]:
        named = (_count(f"calls.{name}", f"calls of {name}") for name in self.calls)
        return (*named, *_ALL, *self._printed(), *DEVICE_RESPONSES, *self._written())

    def described(self) -> str:
        return f"system calls of {super().described()}"

    def probe_job(self, context: JobContext) -> dict[str, object]:
        return {**super().probe_job(context), "account": True}

    def measured(self, answer: Mapping[str, Any], context: JobContext) -> Measured:
        calls = calls_of(answer)
        numbers = {f"calls.{name}": 0.0 for name in self.calls}
        numbers |= {f"calls.{name}": float(call["count"]) for name, call in calls.items()}
        numbers["calls"] = float(sum(call["count"] for call in calls.values()))
        numbers["errors"] = float(sum(sum(call["errors"].values()) for call in calls.values()))
        printed = super().measured(answer, context)
        own = {
            spec.name: printed.numbers[spec.name] for spec in self._printed() if spec.name in printed.numbers
        }
        return Measured(numbers | own, facts=printed.facts, missing=printed.missing)


WORK = CallsWork
