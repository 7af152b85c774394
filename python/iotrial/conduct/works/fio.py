"""A fio job file, run as it is: fio as a process of the command job, its JSON taken from its output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iotrial.conduct.fio_result import picked, result_of
from iotrial.conduct.works.contract import Asked, Launched, Measured, WorkDriver, filled, minimal_environment
from iotrial.study.model import FioWork

#: of fio's output; a job with all percentiles makes some 30 KB
MOST_OUTPUT_BYTES = 8 << 20
ARGV = ("fio", "--output-format=json", "--eta=never", "-")


class Fio(WorkDriver[FioWork]):
    """Workload kind ``fio``."""

    verb = "command"
    work = FioWork
    starts_programs = True

    def fields(self, work: FioWork, asked: Asked) -> dict[str, object]:
        job = filled(work.job, asked.arguments)
        return {
            "steps": [{"name": "fio", "argv": list(ARGV)}],
            "environment": {**minimal_environment(), **asked.environment},
            "cwd": "{dir}",
            # A folder of the job's own would come later and win; that needs trust.
            "stdin": f"[global]\ndirectory=.\n{job}\n",
            "timeout_s": work.timeout_s,
            "expect_exit": 0,
            "keep_output": MOST_OUTPUT_BYTES,
        }

    def measured(self, work: FioWork, answer: Mapping[str, Any], asked: Asked) -> Measured:
        numbers = {"max_rss": float(answer["max_rss_bytes"])}
        if answer["stragglers"]:
            numbers["stragglers"] = float(answer["stragglers"])
        if answer["failures"]:
            return Measured(numbers)
        result = result_of(str(answer["output"] or ""))
        return Measured(numbers | {pick.name: picked(result, pick) for pick in work.picks})

    def reads_bytes(self, work: FioWork, size: int, files: int) -> int:
        return 1

    def summary(self, work: FioWork) -> str:
        return "fio " + "; ".join(line.strip() for line in work.job.splitlines() if line.strip())

    def programs(self, work: FioWork) -> Mapping[str, str]:
        return {"fio": "fio"}

    def launched(self, work: FioWork) -> Launched:
        lines = tuple(f"  {line}" for line in work.job.splitlines())
        return Launched(("fio, with this job file:",), lines + ("as root",) * (work.run_as == "root"))

    def as_root(self, work: FioWork) -> bool:
        return work.run_as == "root"


DRIVER = Fio()
