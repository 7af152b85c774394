"""Fake probe that does no work: it answers the conductor with random times, so that the truth is known."""

from __future__ import annotations

import math
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from iotrial.errors import TargetError

SPREAD = 0.002
USAGE = (
    "blocks_in",
    "blocks_out",
    "faults_minor",
    "faults_major",
    "switches_voluntary",
    "switches_involuntary",
)
#: a command that read one file of the lab and nothing else
TOUCHED = {
    "complete": True,
    "unseen": [],
    "inside": {"files": 1, "bytes": 64 << 10, "read": 64 << 10, "held": 64 << 10},
    "outside": {"bytes": 0, "read": 0, "paths": []},
    "rewritten": [],
}


class StandInProbe:
    """Replaces ``iotrial.probe.client.Probe``. ``on_job`` is called before each timed job."""

    on_job: Callable[[], None] = staticmethod(lambda: None)
    jobs = 0

    def __init__(self, **_: object) -> None:
        self.name, self.token, self.alive = "a stand-in", "0" * 32, True
        self.session = self.session_started = 1
        self._rng = np.random.default_rng()

    def call(self, verb: str, **fields: Any) -> dict[str, Any]:
        answer = getattr(self, f"_{verb}", None)
        return answer(**fields) if answer is not None else {"left": [], "killed": 0}

    def close(self) -> bool:
        return True

    def kill(self) -> None:
        self.alive = False

    def __enter__(self) -> StandInProbe:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _hello(self) -> dict[str, Any]:
        return {"version": "0", "clock": "none"}

    def _time(self) -> dict[str, Any]:
        return {"realtime_ns": time.time_ns()}

    def _read(self, path: str) -> dict[str, Any]:
        try:
            return {"data": Path(path).read_text()}
        except OSError as error:
            raise TargetError(f"reading {path}", errno=error.errno or 0) from error

    def _stat(self, path: str) -> dict[str, Any]:
        try:
            facts = os.lstat(path)
        except OSError as error:
            raise TargetError(f"stat {path}", errno=error.errno or 0) from error
        kind = "directory" if stat.S_ISDIR(facts.st_mode) else "file"
        return {"kind": kind, "mtime_ns": facts.st_mtime_ns, "btime_ns": None}

    def _set_times(self, path: str, mtime_ns: int) -> dict[str, Any]:
        os.utime(path, ns=(mtime_ns, mtime_ns))
        return {}

    def _statfs(self, **_: object) -> dict[str, Any]:
        return {"type": "0xef53", "available_bytes": 1 << 40}

    def _mkdir(self, path: str, **_: object) -> dict[str, Any]:
        Path(path).mkdir()
        return {}

    def _remove(self, path: str, *, keep: bool = False, **_: object) -> dict[str, Any]:
        if not keep and Path(path).exists():
            Path(path).rmdir()
        return {}

    def _files(self, *, stretch: float, **fields: Any) -> dict[str, Any]:
        found = self._job(stretch)
        operations = {
            name: {"total_ns": found["wall_ns"] // 3, "histogram": []} for name in fields["operations"]
        }
        return found | {"operations": operations}

    def _command(self, *, stretch: float, touches: object = None, **_: object) -> dict[str, Any]:
        answer = self._job(stretch) | {"steps": [{}], "max_rss_bytes": 1 << 20, "stragglers": 0, "out": None}
        return answer if touches is None else answer | {"touched": TOUCHED}

    def _job(self, stretch: float) -> dict[str, Any]:
        StandInProbe.jobs += 1
        StandInProbe.on_job()
        wall_ns = int(1e6 * math.exp(self._rng.normal(0, SPREAD)) * (1.0 + stretch))
        return {
            "wall_ns": wall_ns,
            "user_ns": wall_ns // 2,
            "cpu_ns": wall_ns // 2,
            "sys_ns": wall_ns // 2,
            "usage": dict.fromkeys(USAGE, 0),
            "devices": {},
            "started_ns": time.monotonic_ns(),
            "failures": [],
            "injected": 1.0 + stretch,
        }
