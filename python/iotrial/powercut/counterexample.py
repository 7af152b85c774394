"""The least that shows a damage: the earliest cut with the fewest writes missing, kept to look at and to repeat."""

from __future__ import annotations

import array
import fcntl
import json
import os
import shutil
import struct
import subprocess
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from iotrial.decoding import decode
from iotrial.errors import IotrialError, LabError, RequestError
from iotrial.lab.target import Target
from iotrial.powercut.campaign import CHECK_S, KINDS, Cut, check_of
from iotrial.powercut.campaign import DISK as DISK_FOLDER
from iotrial.powercut.disk import over_image
from iotrial.powercut.log import Entry, WriteLog
from iotrial.powercut.missing_sync import Suspect, suspects
from iotrial.powercut.recover import Check, Examination, Findings, Outcome, Recovery
from iotrial.powercut.service import BEGINS_MARK, FILES, Ledger, Service, acknowledgements
from iotrial.powercut.states import Arrival

#: how many cuts may be tried to find an earlier one, and a smaller set of missing writes
_BOUNDARIES, _REDUCTIONS = 24, 40
#: recovered files are copied up to this size
_MOST_COPIED = 256 << 20
_MOST_LISTED = 40
_LOCKS = ("lock", "pid")
#: of linux/fiemap.h and linux/fs.h
_FIEMAP, _FIEMAP_HEAD, _FIEMAP_EXTENT = 0xC020660B, struct.Struct("=QQIIII"), struct.Struct("=QQQQQIIII")
_MOST_EXTENTS = 256

STATE, DISK, RECOVERED = "state.json", "disk.img", "files"


class Kept(msgspec.Struct, frozen=True):
    """What a folder of a counterexample tells: ``state.json``."""

    kind: str
    setting: str
    service: Service
    filesystem: str
    options: str
    at: str
    marks: tuple[str, ...]
    acknowledged: tuple[str, ...]
    #: what was found: lost, corrupt, not started
    found: tuple[str, ...]
    #: how the state came about, one line each
    writes: tuple[str, ...]
    #: mistakes that explain it, with what the trace shows
    mistakes: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _State:
    """A state of the disk: the first ``stable`` entries, and of those up to ``entry`` what has arrived."""

    entry: int
    stable: int
    arrived: tuple[Arrival, ...]
    missing: tuple[Entry, ...]
    outcome: Outcome


def explained(target: Target, folder: Path) -> Callable[[str, Cut], Path]:
    """Return what keeps the least that shows a kind of damage, in a new folder below ``folder``."""

    def explain(kind: str, cut: Cut) -> Path:
        least = _least(kind, cut)
        name = "-".join(
            [*("".join(c if c.isalnum() else "-" for c in cut.setup.name).split("-")), *kind.split()]
        )
        return _keep(target, kind, cut, least, folder / name)

    return explain


def _least(kind: str, cut: Cut) -> _State:
    """Look for the earliest state that is bad in this way, then for the fewest missing writes."""
    first = _State(
        cut.entry, cut.stable, cut.parts, _missing(cut.log, cut.stable, cut.entry, cut.parts), cut.outcome
    )
    best = _earliest(kind, cut) or first
    return _reduced(kind, cut, best) if best.missing else best


def _try(kind: str, cut: Cut, entry: int, stable: int, arrived: Sequence[Arrival]) -> _State | None:
    """Return the state if it is bad in this way."""
    marks = [mark.text for mark in cut.log.marks if cut.after <= mark.entry < entry]
    outcome = cut.examination.of(stable, arrived, marks)
    return (
        _State(entry, stable, tuple(arrived), _missing(cut.log, stable, entry, arrived), outcome)
        if KINDS[kind](outcome)
        else None
    )


def _earliest(kind: str, cut: Cut) -> _State | None:
    """Return the first bad state right after an acknowledgement: all writes have arrived, or none that was not flushed."""
    places = [mark.entry + 1 for mark in cut.log.marks if cut.after <= mark.entry < cut.entry]
    step = max(1, len(places) // _BOUNDARIES)
    coarse = places[::step]

    def at(entry: int) -> _State | None:
        found = _try(kind, cut, entry, entry, ())
        if found is None and cut.cache.volatile:
            stable = max(cut.log.last_flush(entry) + 1 if cut.cache.flushes else 0, cut.after)
            kept = [
                Arrival(one, 0, one.length)
                for one in cut.log.entries(stable, entry)
                if one.length and one.fua and cut.cache.flushes
            ]
            found = _try(kind, cut, entry, stable, kept)
        return found

    before = 0
    for entry in coarse:
        if (found := at(entry)) is not None:
            for finer in [place for place in places if before < place < entry]:
                if (earlier := at(finer)) is not None:
                    return earlier
            return found
        before = entry
    return None


def _missing(log: WriteLog, stable: int, entry: int, arrived: Sequence[Arrival]) -> tuple[Entry, ...]:
    """Return the writes that have not arrived, or only in part."""
    have: dict[int, int] = {}
    for part in arrived:
        have[part.entry.index] = have.get(part.entry.index, 0) + part.stop - part.start
    return tuple(
        one for one in log.entries(stable, entry) if one.length and have.get(one.index, 0) < one.length
    )


def _reduced(kind: str, cut: Cut, state: _State) -> _State:
    """Let more and more of the missing writes arrive while the state stays bad."""
    if not (cut.cache.reorders and cut.cache.volatile):
        return state
    left, size = _REDUCTIONS, max(1, len(state.missing) // 2)
    while left > 0:
        better = None
        for at in range(0, len(state.missing), size):
            group = state.missing[at : at + size]
            if len(group) == len(state.missing) or left <= 0:
                continue
            left -= 1
            chosen = {one.index for one in group}
            arrived = [part for part in state.arrived if part.entry.index not in chosen]
            arrived += [Arrival(one, 0, one.length) for one in group]
            arrived.sort(key=lambda part: (part.entry.index, part.start))
            better = _try(kind, cut, state.entry, state.stable, arrived)
            if better is not None:
                break
        if better is not None:
            state = better
            size = min(size, max(1, len(state.missing) // 2))
        elif size == 1:
            return state
        else:
            size = max(1, size // 2)
    return state


# -- where writes are


@dataclass(frozen=True, slots=True)
class _Extents:
    """Ranges of the disk with the file that has them."""

    ranges: tuple[tuple[int, int, str, int], ...]

    def name(self, offset: int, length: int) -> str:
        """Return what a write is of, such as "log, bytes 0 to 4,096"."""
        place = bisect_right(self.ranges, (offset, 1 << 62, "", 0)) - 1
        if place >= 0:
            start, stop, path, at = self.ranges[place]
            if offset < stop:
                first = at + offset - start
                return f"{path}, bytes {first:,} to {first + length:,}"
        return "the file system's own: journal, inodes or folders"


def _extents_below(root: Path) -> list[tuple[int, int, str, int]]:
    found = []
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder) / name
            with suppress(OSError):
                if path.is_file() and not path.is_symlink():
                    found += [
                        (*one[:2], str(path.relative_to(root / FILES)), one[2]) for one in _extents_of(path)
                    ]
    return found


def _extents_of(path: Path) -> list[tuple[int, int, int]]:
    """Return start and stop on the disk, and the offset in the file, of each extent (FIEMAP)."""
    request = array.array("B", bytes(_FIEMAP_HEAD.size + _MOST_EXTENTS * _FIEMAP_EXTENT.size))
    _FIEMAP_HEAD.pack_into(request, 0, 0, (1 << 64) - 1, 0, 0, _MOST_EXTENTS, 0)
    with path.open("rb") as file:
        fcntl.ioctl(file.fileno(), _FIEMAP, request, True)
    count = _FIEMAP_HEAD.unpack_from(request, 0)[3]
    found = []
    for index in range(count):
        logical, physical, length, *_ = _FIEMAP_EXTENT.unpack_from(
            request, _FIEMAP_HEAD.size + index * _FIEMAP_EXTENT.size
        )
        found.append((physical, physical + length, logical))
    return found


# -- a folder


def _keep(target: Target, kind: str, cut: Cut, state: _State, folder: Path) -> Path:
    """Write the folder of a counterexample."""
    folder.mkdir(parents=True)
    marks = [mark for mark in cut.log.marks if mark.entry >= cut.after]
    texts = [mark.text for mark in marks if mark.entry < state.entry]
    # the state once more: other states have been on the disk since
    cut.examination.of(state.stable, state.arrived, texts)
    subprocess.run(
        ["cp", "--sparse=always", "--", str(cut.examination.image), str(folder / DISK)], check=True
    )
    extents: list[tuple[int, int, str, int]] = []
    if cut.setup.filesystem != "btrfs":  # its addresses are not those of the disk
        listing = folder / "extents"
        with Examination(
            target,
            cut.log,
            cut.setup.size_bytes,
            cut.setup.filesystem,
            _looking(listing),
            options=cut.setup.options,
            at=cut.at,
        ) as later:
            for entry in (state.entry, len(cut.log)):
                with suppress(IotrialError, OSError, ValueError):
                    later.of(entry, (), ())
                    extents += [tuple(one) for one in json.loads(listing.read_text())]
        listing.unlink(missing_ok=True)
    recovered = folder / RECOVERED
    with (
        over_image(target, folder / DISK) as disk,
        Recovery(
            disk.path, cut.setup.filesystem, _copying(recovered), options=cut.setup.options, at=cut.at
        ) as recovery,
        suppress(IotrialError),
    ):
        recovery.recover(())
    service = cut.setup.service
    own = tuple(pair for pair in service.environment if pair not in os.environ.items())
    mistakes = [] if kind == "needs fsck" else _mistakes(cut, state, texts)
    if state.outcome.not_started:
        mistakes = [*_stale_lock(target, cut, folder, texts), *mistakes]
    kept = Kept(
        kind=kind,
        setting=cut.setup.name,
        service=replace(service, environment=own),
        filesystem=cut.setup.filesystem,
        options=cut.setup.options,
        at=str(cut.at),
        marks=tuple(mark.text for mark in marks),
        acknowledged=tuple(texts),
        found=found_lines(state.outcome),
        writes=tuple(_writes_in_words(cut, state, _Extents(tuple(sorted(extents))))),
        mistakes=tuple((one.name, one.text) for one in mistakes),
    )
    (folder / STATE).write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1))
    return folder


def found_lines(outcome: Outcome) -> tuple[str, ...]:
    """Return what was found after a cut, a line each."""
    return (
        *(f"lost {item}" for item in outcome.lost),
        *(f"corrupt {item}" for item in outcome.corrupt),
        *([f"will not start: {outcome.not_started}"] if outcome.not_started else []),
        *([f"needs fsck: {outcome.says}"] if outcome.needs_fsck else []),
    )


def _writes_in_words(cut: Cut, state: _State, extents: _Extents) -> list[str]:
    """Return in words which writes had reached the disk."""
    marks = sum(
        cut.after <= mark.entry < state.entry and not mark.text.startswith("iotrial: ")
        for mark in cut.log.marks
    )
    lines = [f"the power is cut after {marks:,} acknowledgements"]
    if not state.missing:
        return [*lines, "every write that had been sent to the disk by then has arrived"]
    flush = cut.log.last_flush(state.entry)
    sent = sum(1 for one in cut.log.entries(max(flush + 1, cut.after), state.entry) if one.length)
    lines.append(
        f"of {sent:,} writes after the last flush, {len(state.missing):,} did not arrive, or in part:"
    )
    lines += [
        f"{one.length:,} bytes at {one.offset:,} of the disk: {extents.name(one.offset, one.length)}"
        for one in state.missing[:_MOST_LISTED]
    ]
    if len(state.missing) > _MOST_LISTED:
        lines.append(f"and {len(state.missing) - _MOST_LISTED:,} others")
    return lines


def _mistakes(cut: Cut, state: _State, texts: Sequence[str]) -> list[Suspect]:
    """Return which missing sync explains the damage, from the trace of the run."""
    done = acknowledgements(texts)
    times = cut.recording.printed
    if not done or not times:
        return []
    item = _lost_item(state.outcome, done)
    places = [place for place, (_, text) in enumerate(times) if text == item]
    if not places:  # marked by the client itself, at a time that is not known
        return []
    place = places[min(done.count(item), len(places)) - 1]
    began = [at for at, text in times[:place] if text == f"{BEGINS_MARK}{item}"]
    earlier = [at for at, text in times[:place] if text in done]
    # marks are late by a fraction of a millisecond: that the next operation has begun may not be in the log yet
    next_ns = next((at for at, text in times[len(texts) :] if not text.startswith(BEGINS_MARK)), times[-1][0])
    top = f"{DISK_FOLDER}/{FILES}"
    return suspects(
        [
            replace(op, path=op.path[len(top) + 1 :], other=op.other[len(top) + 1 :])
            for op in cut.recording.operations
            if f"{op.path}/".startswith(f"{top}/")
        ],
        since_ns=(began or earlier or [0])[-1],
        acknowledged_ns=times[place][0],
        cut_ns=(times[len(texts) - 1][0], next_ns),
        newest=item == done[-1],
    )


def _lost_item(outcome: Outcome, done: Sequence[str]) -> str:
    """Return the last acknowledgement that is named in what was found; the last of all if none is."""
    named = {text.partition(":")[0].strip() for text in (*outcome.lost, *outcome.corrupt)}
    return next(
        (text for text in reversed(done) if text in named or text.partition(" ")[0] in named), done[-1]
    )


def _stale_lock(target: Target, cut: Cut, folder: Path, texts: Sequence[str]) -> list[Suspect]:
    """Try whether the service starts once a file that looks like a lock is gone."""
    files = folder / RECOVERED
    locks = [
        path.relative_to(files)
        for path in files.rglob("*")
        if path.is_file() and any(word in path.name.casefold() for word in _LOCKS)
    ]
    check = check_of(cut.setup.service, Ledger.of(texts))
    for lock in locks[:4]:

        def without(root: Path, acknowledged: Sequence[str], lock: Path = lock) -> Findings:
            (root / FILES / lock).unlink(missing_ok=True)
            return check(root, acknowledged)

        with (
            over_image(target, folder / DISK) as disk,
            Recovery(
                disk.path,
                cut.setup.filesystem,
                without,
                options=cut.setup.options,
                at=cut.at,
                limit_s=CHECK_S,
                enclosed=True,
            ) as recovery,
            suppress(IotrialError),
        ):
            if not recovery.recover(texts).not_started:
                return [
                    Suspect(
                        "stale lock", f"the service starts once {lock}, which the cut has left, is removed"
                    )
                ]
    return []


def _looking(to: Path) -> Check:
    def check(root: Path, _: Sequence[str]) -> Findings:
        to.write_text(json.dumps(_extents_below(root)))
        return Findings()

    return check


def _copying(to: Path) -> Check:
    def check(root: Path, _: Sequence[str]) -> Findings:
        files = root / FILES
        size = sum(path.lstat().st_size for path in files.rglob("*"))
        if files.is_dir() and size <= _MOST_COPIED:
            shutil.copytree(files, to, symlinks=True, ignore_dangling_symlinks=True)
        return Findings()

    return check


def repeated(target: Target, folder: Path, environment: Sequence[tuple[str, str]]) -> tuple[Kept, Outcome]:
    """Recover a kept state once more and check it. Raises RequestError if the folder is none of ours, LabError."""
    try:
        kept = decode((folder / STATE).read_bytes(), Kept)
    except (OSError, msgspec.DecodeError) as error:
        raise RequestError(f"{folder}: not a folder that `iotrial powercut` has kept: {error}") from error
    service = replace(kept.service, environment=(*environment, *kept.service.environment))
    at = Path(kept.at)
    try:
        at.mkdir(parents=True)
    except OSError as error:
        raise LabError(f"cannot make {at}, where the service had its files: {error.strerror}") from error
    try:
        with over_image(target, folder / DISK) as disk, Recovery(
            disk.path, kept.filesystem, check_of(service, Ledger.of(kept.marks)), options=kept.options, at=at,
            limit_s=CHECK_S,
            fsck_every=1, enclosed=True,
        ) as recovery:  # fmt: skip
            return kept, recovery.recover(kept.acknowledged)
    finally:
        with suppress(OSError):
            at.rmdir()
            at.parent.rmdir()
