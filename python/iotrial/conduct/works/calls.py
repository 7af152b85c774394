"""Whole processes whose system calls the probe counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iotrial.conduct.works.command import Command
from iotrial.conduct.works.contract import Asked, Measured, calls_of
from iotrial.study.model import CallsWork, CommandWork


class Calls(Command):
    """Workload kind ``calls``."""

    work = CallsWork
    accountable = False  # it is nothing else, in every run
    timed = False

    def fields(self, work: CommandWork, asked: Asked) -> dict[str, object]:
        return {**super().fields(work, asked), "account": True}

    def measured(self, work: CommandWork, answer: Mapping[str, Any], asked: Asked) -> Measured:
        assert isinstance(work, CallsWork)
        calls = calls_of(answer)
        numbers = {f"calls.{name}": 0.0 for name in work.calls}
        numbers |= {f"calls.{name}": float(call["count"]) for name, call in calls.items()}
        numbers["calls"] = float(sum(call["count"] for call in calls.values()))
        numbers["errors"] = float(sum(sum(call["errors"].values()) for call in calls.values()))
        return Measured(numbers)

    def summary(self, work: CommandWork) -> str:
        return f"system calls of {super().summary(work)}"


DRIVER = Calls()
