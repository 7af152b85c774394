"""Work that acknowledges what it has made durable, versions of it with a known mistake, and the check of both.

Several processes work at the same time, each in its own folder through a fixed list of operations, and acknowledge each with
a mark "WORKER NUMBER". So the check needs only the marks: after a power cut every acknowledged operation must have
happened, the next one of each worker may have, and no later one may.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from iotrial.design.keyed import Stream
from iotrial.powercut.record import Marker
from iotrial.powercut.recover import Findings

SEED = f"{29:032x}"
#: name of the file to which records are appended, and of a file that is not in place yet
LOG, DRAFT = "log", "draft"


@dataclass(frozen=True, slots=True)
class Operation:
    """``kind``: put (create or replace a file), delete, or append (a record to the log).

    ``version``: its number in the list.
    """

    kind: str
    name: str
    version: int
    size: int


@dataclass(frozen=True, slots=True)
class Mistakes:
    """What a worker leaves out or does too early."""

    acknowledges_before_fsync: bool = False
    no_fsync_of_file: bool = False
    no_fsync_of_folder: bool = False


NO_MISTAKES = Mistakes()


def operations(worker: int, count: int) -> list[Operation]:
    """Return the list of a worker: two thirds puts on 12 names, the rest deletes and appends; 1 byte to 64 KiB."""
    stream = Stream(SEED, "powercut.work", worker)
    found: list[Operation] = []
    there: set[str] = set()
    for version in range(count):
        kind = ("put", "put", "put", "put", "append", "delete")[stream.below(6)]
        name = f"f{stream.below(12)}"
        size = 1 + stream.below(1 << (4, 9, 12, 16)[stream.below(4)])
        if kind == "append":
            found.append(Operation(kind, LOG, version, size))
            continue
        if kind == "delete" and name not in there:
            kind = "put"
        (there.add if kind == "put" else there.discard)(name)
        found.append(Operation(kind, name, version, size))
    return found


@lru_cache(maxsize=8192)
def content(worker: int, operation: Operation) -> bytes:
    """Return the bytes of a version: a header line and pseudo-random bytes."""
    head = f"{worker} {operation.name} {operation.version} {operation.size}\n".encode()
    return head + hashlib.shake_128(head).digest(operation.size)


class Working:
    """Work for ``powercut.record``: ``workers`` processes of ``count`` operations each."""

    def __init__(self, workers: int, count: int, mistakes: Mistakes = NO_MISTAKES) -> None:
        self.workers, self.count, self.mistakes = workers, count, mistakes

    def __call__(self, root: Path, marker: Marker) -> None:
        for worker in range(self.workers):
            (root / str(worker)).mkdir()
        _sync_folder(root)
        context = multiprocessing.get_context("fork")
        path = Path(marker.path)
        workers = [
            context.Process(target=_work, args=(root / str(n), n, self.count, path, self.mistakes))
            for n in range(self.workers)
        ]
        for one in workers:
            one.start()
        for one in workers:
            one.join()
        if any(one.exitcode for one in workers):
            raise RuntimeError("a worker failed")


def _work(folder: Path, worker: int, count: int, marks: Path, mistakes: Mistakes) -> None:
    with Marker(marks) as marker:
        for operation in operations(worker, count):
            text = f"{worker} {operation.version}"
            if mistakes.acknowledges_before_fsync:
                marker.mark(text)
            _do(folder, worker, operation, mistakes)
            if not mistakes.acknowledges_before_fsync:
                marker.mark(text)


def _do(folder: Path, worker: int, operation: Operation, mistakes: Mistakes) -> None:
    place = folder / operation.name
    if operation.kind == "append":
        new = not place.exists()
        _write(place, content(worker, operation), os.O_APPEND, mistakes)
        if not new:
            return
    elif operation.kind == "delete":
        place.unlink()
    else:
        _write(folder / DRAFT, content(worker, operation), os.O_TRUNC, mistakes)
        (folder / DRAFT).rename(place)
    if not mistakes.no_fsync_of_folder:
        _sync_folder(folder)


def _write(path: Path, data: bytes, flags: int, mistakes: Mistakes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o644)
    try:
        os.write(descriptor, data)
        if not mistakes.no_fsync_of_file:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Checking:
    """Check for ``powercut.recover`` of what ``Working`` has left."""

    def __init__(self, workers: int, count: int) -> None:
        self._plans = {worker: operations(worker, count) for worker in range(workers)}

    def __call__(self, root: Path, acknowledged: Sequence[str]) -> Findings:
        lost: list[str] = []
        corrupt: list[str] = []
        if not acknowledged:
            return Findings()
        reached = dict.fromkeys(self._plans, 0)
        for text in acknowledged:
            worker, _, number = text.partition(" ")
            if worker.isdecimal():
                reached[int(worker)] = int(number) + 1
        for worker, plan in self._plans.items():
            if reached[worker]:
                self._look(root / str(worker), worker, plan, reached[worker], lost, corrupt)
        return Findings(tuple(lost), tuple(corrupt))

    def _look(
        self, folder: Path, worker: int, plan: list[Operation], done: int, lost: list[str], corrupt: list[str]
    ) -> None:
        """Compare a worker's folder with its list: ``done`` operations are acknowledged, one more may have begun."""
        begun = plan[done : done + 1]
        now: dict[str, Operation] = {}
        appended = [each for each in plan[:done] if each.kind == "append"]
        for each in plan[:done]:
            if each.kind != "append":
                now[each.name] = each
        names = {each.name for each in plan if each.kind != "append"}
        for name in sorted(names):
            allowed = [now.get(name), *(each for each in begun if each.name == name)]
            self._look_at_file(folder / name, worker, allowed, lost, corrupt)
        self._look_at_log(folder / LOG, worker, appended, begun, lost, corrupt)

    def _look_at_file(
        self, path: Path, worker: int, allowed: list[Operation | None], lost: list[str], corrupt: list[str]
    ) -> None:
        found = path.read_bytes() if path.exists() else None
        wanted = [
            None if each is None or each.kind == "delete" else content(worker, each) for each in allowed
        ]
        if found in wanted:
            return
        what = f"{path.parent.name}/{path.name}: wanted version {[each and each.version for each in allowed]}"
        if found is None:
            lost.append(f"{what}, found nothing")
        elif self._is_version(found, worker, path.name):
            lost.append(f"{what}, found {found.split(maxsplit=3)[2].decode()}")
        elif not found.strip(b"\0"):
            lost.append(f"{what}, found {len(found)} zeros")
        else:
            corrupt.append(f"{what}, found {len(found)} other bytes")

    def _is_version(self, found: bytes, worker: int, name: str) -> bool:
        """Return whether a file is whole, but of another version."""
        return any(
            each.name == name and each.kind == "put" and content(worker, each) == found
            for each in self._plans[worker]
        )

    def _look_at_log(
        self,
        path: Path,
        worker: int,
        appended: list[Operation],
        begun: list[Operation],
        lost: list[str],
        corrupt: list[str],
    ) -> None:
        found = path.read_bytes() if path.exists() else b""
        wanted = b"".join(content(worker, each) for each in appended)
        if found[: len(wanted)] != wanted:
            whole = wanted.startswith(found.rstrip(b"\0"))
            (lost if whole else corrupt).append(
                f"{worker}/{LOG}: wanted {len(wanted)} bytes, found {len(found)}"
            )
        elif found[len(wanted) :].strip(b"\0"):
            tail = b"".join(content(worker, each) for each in begun if each.kind == "append")
            rest = found[len(wanted) :].rstrip(b"\0")
            if not all(mine in (0, byte) for mine, byte in zip(rest, tail[: len(rest)], strict=False)) or len(
                rest
            ) > len(tail):
                corrupt.append(f"{worker}/{LOG}: {len(rest)} bytes too many at its end")
