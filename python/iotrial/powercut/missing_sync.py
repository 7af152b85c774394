"""Which sync was missing: what had been written, renamed or emptied without a sync when an operation was acknowledged.

Read from a trace of its file operations (``iotrial record``), by the rules of POSIX and Linux: data are safe after fsync or
fdatasync of the file, names after fsync of the folder. What this says are facts about the trace; that one of them is the
reason is likely, and not proved. Writes through mappings are not in a trace.
"""

from __future__ import annotations

import json
import os
import posixpath
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iotrial.errors import ProbeError
from iotrial.probe.binary import find_binary

_SYNCED_OPEN = os.O_DSYNC
_CHANGES = {"write", "truncate", "allocate"}
_NAMES = {"rename", "link", "symlink", "unlink", "mkdir", "rmdir"}
_VERBS = {
    "rename": "renaming",
    "link": "linking",
    "symlink": "linking",
    "unlink": "deleting",
    "mkdir": "making",
    "rmdir": "deleting",
}
_MOST_OF_A_NAME = 3
#: a sync that comes this soon after an acknowledgement belongs to the same operation
_SOON_NS = 50_000_000


@dataclass(frozen=True, slots=True)
class Suspect:
    """``name``: the mistake, by one of ``MISTAKES``. ``text``: what the trace shows."""

    name: str
    text: str


#: from the surest on; the last ones are also what another client's operation looks like
MISTAKES = (
    "stale lock",
    "renamed before its data were synced",
    "no sync of the file",
    "no sync of the folder",
    "emptied before it was written again",
    "overwritten in place",
    "acknowledged before it was written",
    "acknowledged before its sync",
)


@dataclass(slots=True)
class _Name:
    """A change of a folder that is not synced."""

    at_ns: int
    text: str


@dataclass(slots=True)
class _Object:
    """A file or folder under its present name."""

    path: str
    dirty: list[tuple[int, int, int]] = field(default_factory=list)
    names: list[_Name] = field(default_factory=list)
    written_to: int = 0
    renamed_dirty: str = ""
    emptied_ns: int = 0
    overwritten: list[tuple[int, int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a trace; times in nanoseconds since its start; ``path`` is relative to the traced folder."""

    call: str
    start_ns: int
    end_ns: int
    path: str
    other: str
    offset: int
    length: int
    flags: int
    handle: int | None
    existed: bool


def operations(trace: Path) -> list[Operation]:
    """Read a trace. Raises ProbeError."""
    done = subprocess.run(
        [str(find_binary()), "record", "--dump", str(trace)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        raise ProbeError(f"the trace of the service cannot be read: {done.stderr.strip()[-400:]}")
    return list(_read(map(json.loads, done.stdout.splitlines())))


def _read(records: Iterable[dict[str, Any]]) -> Iterator[Operation]:
    paths: dict[int, tuple[str, bool]] = {}
    for record in records:
        if (file := record.get("file")) is not None:
            paths[file["id"]] = (file["path"], file["size"] is not None)
        elif (op := record.get("op")) is not None:
            if op["result"] < 0 or op["file"] is None:
                continue
            path, existed = paths[op["file"]]
            other = paths.get(op["other"], ("", False))[0] if op["call"] in ("rename", "link", "copy") else ""
            length = op["result"] if op["call"] == "write" else op["length"]
            start = op["start_ns"]
            yield Operation(
                op["call"], start, start + op["duration_ns"], path, other, op["offset"], length, op["flags"],
                op["handle"], existed,
            )  # fmt: skip


class _Files:
    """What is not synced at one moment of a trace."""

    def __init__(self) -> None:
        self._objects: dict[str, _Object] = {}
        self._opened: dict[int, int] = {}
        self._known: set[str] = set()

    def of(self, path: str) -> _Object:
        return self._objects.setdefault(path, _Object(path))

    @property
    def all(self) -> Iterable[_Object]:
        return self._objects.values()

    def take(self, op: Operation) -> None:
        match op.call:
            case "open":
                self._open(op)
            case "fsync" | "fdatasync":
                self._synced(self.of(op.path), op.start_ns)
            case "sync":
                for one in list(self.all):
                    self._synced(one, op.start_ns)
            case "rename":
                one = self._objects.pop(op.path, _Object(op.path))
                self._known.discard(op.path)
                self._known.add(op.other)
                if one.dirty:
                    one.renamed_dirty = op.path
                one.path = op.other
                self._objects[op.other] = one
                self._named(op, op.path, op.other)
            case "copy":
                self._changed(self.of(op.other), op)
            case _ if op.call in _NAMES:
                self._named(op, op.other or op.path)
                if op.call in ("unlink", "rmdir"):
                    self._objects.pop(op.path, None)
                    self._known.discard(op.path)
                else:
                    self._known.add(op.other or op.path)
            case _ if op.call in _CHANGES:
                self._changed(self.of(op.path), op)

    def _open(self, op: Operation) -> None:
        if op.handle is not None:
            self._opened[op.handle] = op.flags
        one = self.of(op.path)
        new = op.path not in self._known and not op.existed
        if op.flags & os.O_CREAT and new:
            self._add_name(op.path, op.end_ns, f"creating {posixpath.basename(op.path)}")
        elif op.flags & os.O_TRUNC and (op.existed or one.written_to):
            self._emptied(one, op.end_ns)
        self._known.add(op.path)

    def _changed(self, one: _Object, op: Operation) -> None:
        if op.call == "truncate" and op.length < one.written_to:
            self._emptied(one, op.end_ns)
            one.written_to = op.length
            return
        if op.call == "write" and op.offset < one.written_to:
            one.overwritten.append((op.end_ns, op.offset, op.length))
        if op.call == "write":
            one.written_to = max(one.written_to, op.offset + op.length)
        if not self._opened.get(op.handle if op.handle is not None else -1, 0) & _SYNCED_OPEN:
            one.dirty.append((op.end_ns, op.offset, op.length))

    def _emptied(self, one: _Object, at_ns: int) -> None:
        one.emptied_ns, one.written_to = at_ns, 0
        one.dirty.append((at_ns, 0, 0))

    def _named(self, op: Operation, *paths: str) -> None:
        text = f"{_VERBS[op.call]} {' to '.join(map(posixpath.basename, paths))}"
        for path in {posixpath.dirname(path): path for path in paths}.values():
            self._add_name(path, op.end_ns, text)

    def _add_name(self, path: str, at_ns: int, text: str) -> None:
        self.of(posixpath.dirname(path)).names.append(_Name(at_ns, text))

    @staticmethod
    def _synced(one: _Object, start_ns: int) -> None:
        one.dirty = [each for each in one.dirty if each[0] > start_ns]
        one.names = [each for each in one.names if each.at_ns > start_ns]
        if not one.dirty:
            one.renamed_dirty, one.emptied_ns, one.overwritten = "", 0, []


def suspects(
    ops: Sequence[Operation], *, since_ns: int, acknowledged_ns: int, cut_ns: tuple[int, int], newest: bool
) -> list[Suspect]:
    """Return the mistakes that explain why an operation was lost, the likeliest first.

    ``since_ns``: when the operation began, or the one before it was acknowledged. ``cut_ns``: the cut was between these.
    ``newest``: it is the last that was acknowledged before the cut; else it had been safe in an earlier state.
    """
    files, rest = _Files(), list(ops)
    while rest and rest[0].end_ns <= acknowledged_ns:
        files.take(rest.pop(0))
    own = sorted((one for one in files.all if _latest(one) >= since_ns), key=_latest, reverse=True)
    found = [each for one in own for each in _unsynced(one, rest, acknowledged_ns, since_ns)]
    changed = any(since_ns <= op.end_ns <= acknowledged_ns for op in ops if op.call in _CHANGES | _NAMES)
    if newest and not changed:
        found = found or _written_later(rest, acknowledged_ns)
    earlier = [each for one in files.all for each in _unsynced(one, rest, acknowledged_ns, 0)]
    found = (
        found
        or list(_harm_in_between(files, rest, cut_ns))
        or earlier
        or _written_later(rest, acknowledged_ns)
    )
    by_name: dict[str, list[Suspect]] = {}
    for each in dict.fromkeys(found):
        by_name.setdefault(each.name, []).append(each)
    return [each for name in MISTAKES for each in by_name.get(name, ())[:_MOST_OF_A_NAME]]


def _latest(one: _Object) -> int:
    return max([at for at, _, _ in one.dirty] + [name.at_ns for name in one.names], default=-1)


def _unsynced(
    one: _Object, rest: Sequence[Operation], acknowledged_ns: int, since_ns: int
) -> Iterator[Suspect]:
    """Yield what of one file or folder was not synced when the operation was acknowledged."""
    dirty = [each for each in one.dirty if each[0] >= since_ns] or one.dirty
    path = one.path or "the top folder"
    if dirty:
        where = _range(dirty)
        soon = next((op for op in rest if op.call in ("fsync", "fdatasync") and op.path == one.path), None)
        if one.renamed_dirty:
            yield Suspect(
                "renamed before its data were synced",
                f"{one.renamed_dirty} was renamed to {path} while {where} had not been synced",
            )
        elif soon is not None and soon.end_ns - acknowledged_ns < _SOON_NS:
            yield Suspect(
                "acknowledged before its sync",
                f"{where} of {path} were written; the {soon.call} ended {(soon.end_ns - acknowledged_ns) / 1e6:.1f} ms after "
                "the acknowledgement",
            )
        else:
            yield Suspect(
                "no sync of the file",
                f"{where} of {path} were written, and not synced before the acknowledgement",
            )
    if one.names and not (dirty and one.renamed_dirty):
        names = [name for name in one.names if name.at_ns >= since_ns] or one.names
        yield Suspect(
            "no sync of the folder",
            f"{path} was not synced after {names[-1].text}"
            + (f" and {len(names) - 1} more" if len(names) > 1 else ""),
        )


def _written_later(rest: Sequence[Operation], acknowledged_ns: int) -> list[Suspect]:
    for op in rest:
        if op.call in _CHANGES | _NAMES:
            after = (op.start_ns - acknowledged_ns) / 1e6
            when = f"began {after:.1f} ms after" if after >= 0 else "had not ended at"
            text = f"the {op.call} of {op.path} {when} the acknowledgement"
            return [Suspect("acknowledged before it was written", text)]
    return []


def _harm_in_between(files: _Files, rest: Sequence[Operation], cut_ns: tuple[int, int]) -> Iterator[Suspect]:
    """Yield what operations in progress at the cut did to data that had been safe."""
    first_ns, last_ns = cut_ns
    for op in rest:
        if op.start_ns > last_ns:
            break
        files.take(op)
        if op.end_ns < first_ns:
            continue
        for one in files.all:
            if one.emptied_ns:
                text = f"{one.path} is emptied, and what it held is written again after that: a cut in between loses both"
                yield Suspect("emptied before it was written again", text)
            elif one.renamed_dirty:
                text = f"{one.renamed_dirty} was renamed to {one.path} while {_range(one.dirty)} had not been synced"
                yield Suspect("renamed before its data were synced", text)
            elif one.overwritten:
                text = f"{_range(one.overwritten)} of {one.path} are written over older data: a cut may leave parts of both"
                yield Suspect("overwritten in place", text)


def _range(parts: Sequence[tuple[int, int, int]]) -> str:
    start = min(offset for _, offset, _ in parts)
    stop = max(offset + length for _, offset, length in parts)
    return f"bytes {start:,} to {stop:,}" if stop > start else "its new size"
