"""System calls and what becomes of access times, done and looked at inside the probe."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

from iotrial.conduct.works.contract import Asked, Measured, WorkDriver
from iotrial.lab.knob import DISK_LABS
from iotrial.study.model import AtimeWork


class Atime(WorkDriver[AtimeWork]):
    """Workload kind ``atime``."""

    verb = "atime"
    work = AtimeWork
    timed = False

    def fields(self, work: AtimeWork, asked: Asked) -> dict[str, object]:
        return {"calls": list(work.calls), "burst": work.burst}

    def measured(self, work: AtimeWork, answer: Mapping[str, Any], asked: Asked) -> Measured:
        found = answer["calls"]
        done = [fact for fact in found.values() if "errno" not in fact]
        burst = answer["burst"]
        return Measured(
            numbers={
                "changed": float(sum(fact["changed"] for fact in done)),
                "changed_again": float(sum(fact["changed"] and fact["again"] for fact in done)),
                "changed_lazily": float(sum(fact["lazily"] is True for fact in done)),
                **{f"changes.{call}": float(found[call].get("changed", False)) for call in work.each},
                "burst_reads": float(burst["reads"]),
                "burst_changes": float(burst["changes"]),
                "burst_ticks": float(burst["ticks"]),
            },
            facts={call: fact_in_words(found[call]) for call in work.calls},
        )

    def reads_bytes(self, work: AtimeWork, size: int, files: int) -> int:
        return 0  # what it reads it has made itself

    def summary(self, work: AtimeWork) -> str:
        return f"{len(work.calls)} system calls, each twice, and the access time looked at after each"

    def writes(self, work: AtimeWork) -> bool:
        return False  # not to the files of its set

    def labs(self, work: AtimeWork) -> frozenset[str]:
        return DISK_LABS


def fact_in_words(fact: Mapping[str, Any]) -> str:
    """What one call does to the access time: "no", "once", "each time", and whether it waits in memory alone."""
    if "errno" in fact:
        return f"refused ({_name_of(fact['errno'])})"
    if not fact["changed"]:
        return "only later" if fact["again"] else "no"
    often = "each time" if fact["again"] else "once"
    return f"{often}, lazily" if fact["lazily"] else often


def _name_of(number: int) -> str:
    """As the manual pages have it: Linux has two names for one number here."""
    return "EOPNOTSUPP" if number == errno.EOPNOTSUPP else errno.errorcode.get(number, str(number))


DRIVER = Atime()
