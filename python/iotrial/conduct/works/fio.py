"""A fio job file, run as it is: fio as a process of the command job, its JSON taken from its output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iotrial.conduct.crowd.folders import own_folder
from iotrial.conduct.fio_clients import evenness, missing_of, of_clients
from iotrial.conduct.fio_result import picked, result_of
from iotrial.conduct.works.contract import (
    Asked,
    Launched,
    Measured,
    Situation,
    WorkDriver,
    filled,
    minimal_environment,
)
from iotrial.study.model import FioWork

#: of fio's output; a job with all percentiles makes some 30 KB
MOST_OUTPUT_BYTES = 8 << 20
ARGV = ("fio", "--output-format=json", "--eta=never", "-")


class Fio(WorkDriver[FioWork]):
    """Workload kind ``fio``."""

    verb = "command"
    work = FioWork
    starts_programs = True
    calls_clients = True

    def fields(self, work: FioWork, asked: Asked) -> dict[str, object]:
        job = filled(work.job, asked.arguments)
        return {
            # without "-", where clients are called: each of them is told the job file's name
            "steps": [{"name": "fio", "argv": list(ARGV[:-1] if work.clients else ARGV)}],
            "environment": {**minimal_environment(), **asked.environment},
            "cwd": self._below(asked.at) if work.clients and asked.at is not None else "{dir}",
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
        if work.clients:
            result = of_clients(result)
            if (even := evenness(result)) is not None:
                numbers["fairness"] = even
        return Measured(numbers | {pick.name: picked(result, pick) for pick in work.picks})

    def clients(self, work: FioWork) -> int:
        return work.clients

    def folder(self, work: FioWork) -> str:
        return work.folder

    def provide(self, work: FioWork, at: Situation) -> None:
        if not work.clients:
            return
        at.target.call("mkdir", path=at.own, mode="0755")
        at.target.call("mkdir", path=self._below(at), mode="0755")
        owner = None if at.user is None else dict(at.user)
        for number in range(1, work.clients + 1):
            folder = own_folder(self._below(at), number)
            if not at.target.exists(folder):
                at.target.call("mkdir", path=folder, mode="0755", owner=owner)

    def settle(self, work: FioWork, at: Situation, answer: Mapping[str, Any]) -> str | None:
        if not work.clients or answer["failures"]:
            return None
        return missing_of(result_of(str(answer["output"] or "")), work.clients)

    def labs(self, work: FioWork) -> frozenset[str]:
        # a lab's own mount is seen by its probe alone, and the servers are others'
        return frozenset({"directory"}) if work.clients else super().labs(work)

    def on_files(self, work: FioWork) -> bool:
        return not work.clients

    def never_root(self, work: FioWork) -> bool:
        return bool(work.clients)

    @staticmethod
    def _below(at: Situation) -> str:
        return f"{at.own}/fio"

    def reads_bytes(self, work: FioWork, size: int, files: int) -> int:
        return 1

    def chooses_files(self, work: FioWork) -> bool:
        return not work.clients

    def summary(self, work: FioWork) -> str:
        clients = f"by {work.clients} clients at once: " if work.clients else ""
        return f"fio {clients}" + "; ".join(line.strip() for line in work.job.splitlines() if line.strip())

    def programs(self, work: FioWork) -> Mapping[str, str]:
        return {"fio": "fio"}

    def launched(self, work: FioWork) -> Launched:
        lines = tuple(f"  {line}" for line in work.job.splitlines())
        if work.clients:
            where = f" in {work.folder} of other hosts" if work.folder else ""
            return Launched((f"fio, with {work.clients} fio servers{where} and this job file:",), lines)
        return Launched(("fio, with this job file:",), lines + ("as root",) * (work.run_as == "root"))

    def as_root(self, work: FioWork) -> bool:
        return work.run_as == "root"


DRIVER = Fio()
