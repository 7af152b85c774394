"""In a guest: kill ``iotrial apply``, ``keep`` or ``revert`` at every step, take it back, and compare with what stood before.

    apply_killed.py VERB EVERY APPLY-ARGUMENTS...

Everything is imported once; each run is a fork. Every EVERYth step is tried. What is reverted has been kept before. Prints
one JSON object: the number of steps, how many were tried, and for each that left something, what.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apply_forged
from accounts import with_evidence

from iotrial import cli
from iotrial.cli import kept_settings
from iotrial.cli.verbs import apply, keep, revert  # noqa: F401
from iotrial.tune.machine import Machine

COUNT = Path("/run/apply-killed.count")
LIVE = (
    "/proc/sys/vm/swappiness", "/sys/kernel/mm/transparent_hugepage/enabled", "/proc/sys/vm/min_free_kbytes",
    *(f"/sys/block/{disk}/queue/{file}" for disk in ("vda", "vdb") for file in ("read_ahead_kb", "scheduler", "nr_requests")),
)  # fmt: skip
_fsync = os.fsync


class Killed(Machine):
    """The machine, whose process is killed around each change and each write to the disk."""

    kill_at = 0
    ticks = 0

    @classmethod
    def tick(cls) -> None:
        cls.ticks += 1
        if cls.ticks == cls.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


def _around(name: str) -> Callable[..., Any]:
    plain = getattr(Machine, name)

    def changed(*args: Any, **kwargs: Any) -> Any:
        Killed.tick()
        found = plain(*args, **kwargs)
        Killed.tick()
        return found

    return changed


for _name in ("remove", "link", "make_folder", "remove_folder", "write_live", "remount", "run"):
    setattr(Killed, _name, _around(_name))


def _ticking_fsync(descriptor: int) -> None:
    Killed.tick()
    _fsync(descriptor)
    Killed.tick()


def forked(words: list[str], at: int | None) -> int:
    """Run iotrial in a fork, killed at a step (None: never); return how it ended."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            null = os.open("/dev/null", os.O_RDWR)
            os.dup2(null, 1)
            if at is not None:
                Killed.kill_at, Killed.ticks = at, 0
                kept_settings.Machine = Killed  # type: ignore[misc]
                os.fsync = _ticking_fsync
            sys.argv = ["iotrial", *words]
            try:
                cli.main()
            except SystemExit as end:
                status = int(end.code or 0)
            COUNT.write_text(str(Killed.ticks))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1]


def seen() -> dict[str, str]:
    """Return what stands in /etc and in the kernel now."""
    found = {path: Path(path).read_text() for path in LIVE}
    found["mounts"] = "\n".join(
        sorted(line.split(" ", 3)[3] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    )
    found["ext4"] = "".join(path.read_text() for path in sorted(Path("/proc/fs/ext4").glob("*/options")))
    for path in sorted(Path("/etc").rglob("*")):
        status = path.lstat()
        content = (
            str(path.readlink()) if path.is_symlink() else repr(path.read_bytes()) if path.is_file() else ""
        )
        found[str(path)] = f"{status.st_mode:o} {status.st_uid} {status.st_gid} {content}"
    return found


def main() -> None:
    """Try the steps."""
    verb, every, identity, *texts = sys.argv[1:]
    at = texts.index("--")
    trial = apply_forged.forged(identity, texts[:at])
    apply.document_at = lambda _: trial  # type: ignore[assignment]
    apply.account_here = lambda: with_evidence(trial)  # type: ignore[assignment]
    applying = ["apply", *texts[at + 1 :]]
    words = applying if verb == "apply" else [verb]
    earlier = {"apply": [], "keep": [applying], "revert": [applying, ["keep"]]}[verb]

    def run(at: int) -> int:
        for each in earlier:
            assert forked(each, None) == 0
        return forked(words, at)

    before = seen()
    assert run(0) == 0
    count = int(COUNT.read_text())
    left: dict[str, list[str]] = {}
    assert forked(["revert"], None) == 0
    tried = list(range(1, count + 1, int(every)))
    if seen() != before:
        left["whole"] = _different(before, seen())
    for step in tuple(tried):
        ended = run(step)
        if ended == 0 and int(COUNT.read_text()) < step:  # the first run makes folders too
            tried.remove(step)
        elif not os.WIFSIGNALED(ended):
            left[str(step)] = [f"was not killed: {ended}"]
        undone = forked(["revert"], None)
        after = seen()
        if undone or after != before:
            left[str(step)] = [f"revert ended with {undone}", *_different(before, after)]
            break
    print(json.dumps({"steps": count, "tried": len(tried), "left": left}))


def _different(before: dict[str, str], after: dict[str, str]) -> list[str]:
    return [
        f"{name}: {before.get(name, 'nothing')[:100]} -> {after.get(name, 'nothing')[:100]}"
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    ][:5]


if __name__ == "__main__":
    main()
