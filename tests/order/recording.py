"""A fake probe that does nothing and records the order of its calls."""

from __future__ import annotations

import itertools
from typing import Any

from iotrial.errors import TargetError

MOUNT = "36 35 7:0 / /run/iotrial/ext4 {words} - {kind} /dev/loop9 {rest}"


class Recording:
    """Fake probe that does nothing, reports success, and records its calls."""

    name = "a recording"
    alive = True
    token = "t"
    session = session_started = 1

    def __init__(self, *, isolate: bool, **_: object) -> None:
        self.isolated = isolate
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.mount_words = ["rw"]
        self.mounted = "ext4"
        self.modes: str = "0644"
        self.queue = {
            "scheduler": "[none] mq-deadline",
            "nr_requests": "128",
            "read_ahead_kb": "128",
            "wbt_lat_usec": "0",
            "rotational": "1",
            "write_cache": "write back",
            "stable_writes": "0",
            "max_sectors_kb": "1280",
        }

    def call(self, verb: str, **fields: Any) -> dict[str, Any]:
        self.calls.append((verb, fields))
        return getattr(self, f"_{verb}", lambda **_: {})(**fields) or {}

    def close(self) -> bool:
        return True

    def kill(self) -> None: ...

    def _hello(self) -> dict[str, Any]:
        return {"version": "0", "protocol": 1, "clock": {}}

    def _statfs(self, **_: Any) -> dict[str, Any]:
        return {"type": "0xef53", "available_bytes": 1 << 40, "total_bytes": 1 << 40, "free_bytes": 1 << 40}

    def _stat(self, path: str, **_: Any) -> dict[str, Any]:

        if path == "/run":
            return {"kind": "directory", "mtime_ns": 1, "btime_ns": 1}
        raise TargetError("no such file", errno=2)

    def _loop_free(self) -> dict[str, Any]:
        return {"name": "loop9", "present": True, "node": True}

    def _end_session(self, **_: Any) -> dict[str, Any]:
        return {"killed": 0, "left": []}

    def _list(self, **_: Any) -> dict[str, Any]:
        return {"names": ["loop9", "vda"]}

    def _image(self, **_: Any) -> dict[str, Any]:
        return {"image": 1, "inode": 1}

    def _loop_attach(self, **_: Any) -> dict[str, Any]:
        return {"device": "/dev/loop9", "name": "loop9", "direct_io": True, "inode": 1}

    def _run(self, **_: Any) -> dict[str, Any]:
        return {"exit": 0, "signal": None, "timed_out": False, "stdout": "", "stderr": "", "wall_ns": 1}

    def _mount(self, target: str, options: list[str], type: str, **_: Any) -> None:
        if target.endswith("ext4"):
            self.mounted = type or self.mounted
            self.mount_words = [o for o in options if o not in ("remount", "rw", "strictatime")]

    def _read(self, path: str) -> dict[str, Any]:
        if path.endswith("mountinfo"):
            words = ["ro" if "ro" in self.mount_words else "rw"]
            atimes = [w for w in self.mount_words if w.endswith("time")]
            return {"data": MOUNT.format(words=",".join(words + atimes), rest="rw", kind=self.mounted)}
        if "/queue/" in path:
            return {"data": self.queue.get(path.rsplit("/", 1)[1], "0")}
        return {"data": "x"}

    def _set_mode(self, mode: str, **_: Any) -> None:
        self.modes = mode

    def _get_mode(self, **_: Any) -> dict[str, Any]:
        return {"modes": {self.modes: 20}}

    def _set_atime_state(self, state: str, **_: Any) -> None:
        self.state = state

    def _get_atime_state(self, **_: Any) -> dict[str, Any]:
        return {"states": {self.state: 10000}}

    def _files(self, **_: Any) -> dict[str, Any]:
        usage = dict.fromkeys(
            (
                "faults_minor",
                "faults_major",
                "switches_voluntary",
                "switches_involuntary",
                "blocks_in",
                "blocks_out",
            ),
            0,
        )
        counters = dict.fromkeys(("read_ios", "read_bytes", "write_ios", "write_bytes"), 0)
        return {
            "wall_ns": 1000,
            "user_ns": 1,
            "sys_ns": 1,
            "cpu_ns": 2,
            "injected": 1.06,
            "usage": usage,
            "devices": {"loop9": counters},
            "devices_after_sync": {"loop9": counters},
            "started_ns": 1,
            "operations": {},
            "verified": True,
        }

    def _command(self, out: str | None = None, **_: Any) -> dict[str, Any]:
        held = None if out is None else {"files": 0, "folders": 0, "bytes": 0}
        return {
            **self._files(),
            "max_rss_bytes": 1,
            "steps": [],
            "stragglers": 0,
            "failures": [],
            "out": held,
        }


def shape(calls: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """Return the verbs of a run with their consecutive counts, which must not depend on the arm."""
    return [f"{verb}*{len(list(group))}" for verb, group in itertools.groupby(verb for verb, _ in calls)]
