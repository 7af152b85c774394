"""Whole processes, started and timed by the probe."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from iotrial.conduct.works.contract import (
    Asked,
    Launched,
    Measured,
    WorkDriver,
    filled,
    minimal_environment,
    to_take_off,
)
from iotrial.study.kinds.command import writes_to_scratch
from iotrial.study.model import CommandWork

_BARE = {ord("{"): "_", ord("}"): "_"}


class Command(WorkDriver[CommandWork]):
    """Workload kind ``command``."""

    verb = "command"
    work = CommandWork
    starts_programs = True
    accountable = True

    def fields(self, work: CommandWork, asked: Asked) -> dict[str, object]:
        return {
            "steps": [
                {"name": step.name, "argv": [filled(word, asked.arguments) for word in step.argv]}
                for step in work.steps
            ],
            "environment": {
                **minimal_environment(),
                **{name: filled(value, asked.arguments) for name, value in work.environment},
                **asked.environment,
            },
            "cwd": filled(work.cwd, asked.arguments),
            "stdin": filled(work.stdin, asked.arguments),
            "timeout_s": work.timeout_s,
            "expect_exit": work.expect_exit,
        }

    def measured(self, work: CommandWork, answer: Mapping[str, Any], asked: Asked) -> Measured:
        numbers = {"max_rss": float(answer["max_rss_bytes"])}
        if answer["out"] is not None:
            numbers |= {f"out_{what}": float(answer["out"][what]) for what in ("bytes", "files")}
        if answer["stragglers"]:
            numbers["stragglers"] = float(answer["stragglers"])
        for step in answer["steps"] if len(answer["steps"]) > 1 else ():
            spun_wall, spun_cpu = to_take_off(step, asked.stretched)
            numbers[f"wall.{step['name']}"] = step["wall_ns"] / 1e9 - spun_wall
            numbers[f"cpu.{step['name']}"] = (step["user_ns"] + step["sys_ns"]) / 1e9 - spun_cpu
        return Measured(numbers)

    def reads_bytes(self, work: CommandWork, size: int, files: int) -> int:
        return size * files if work.reads == "data" else 1

    def chooses_files(self, work: CommandWork) -> bool:
        return True

    def summary(self, work: CommandWork) -> str:
        return "command " + "; ".join(" ".join(step.argv) for step in work.steps)

    def named_programs(self, work: CommandWork) -> tuple[str, ...]:
        return tuple(step.argv[0] for step in work.steps)

    def launched(self, work: CommandWork) -> Launched:
        details = [f"in the folder {work.cwd}"] if work.cwd != "{dir}" else []
        details += [f"with {name}={value}" for name, value in work.environment]
        details += ["as root"] if work.run_as == "root" else []
        return Launched(
            tuple(" ".join(map(_word, step.argv)) for step in work.steps), tuple(details), work.stdin or ""
        )

    def scratch(self, work: CommandWork) -> bool:
        return writes_to_scratch(work)

    def as_root(self, work: CommandWork) -> bool:
        return work.run_as == "root"


def _word(word: str) -> str:
    """The argument, quoted where it could be taken for two or for none; ``{file}`` and the like stay bare."""
    return word if word and shlex.quote(word.translate(_BARE)) == word.translate(_BARE) else shlex.quote(word)


DRIVER = Command()
