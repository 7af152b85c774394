"""Draws the states in which a power cut may leave a disk with a volatile write cache.

A write that completed before a flush arrived is stable once that flush has completed; one with FUA is stable when it
completes. Of all others, the disk may have kept any, in any order, and of each any of its sectors: what counts in the end is
only which version each sector has. So a state is drawn as a subset of the open writes (those that are not stable), each
whole or with some of its sectors, applied in the order of the log: every reordering leaves one of these.

Draws are keyed (``design.keyed``): draw number i of a seed is the same on every machine.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from iotrial.design.keyed import Stream
from iotrial.powercut.log import DISCARD, Entry, WriteLog

_DOMAIN = "iotrial.powercut"
#: how often to draw an entry until one has data
_ATTEMPTS = 64
#: how the open writes of a drawn state arrived; each is as likely as any other
SHAPES = (
    "none kept",
    "all kept",
    "the last one torn",
    "one lost",
    "one kept",
    "each by a coin",
    "each kept, lost or torn",
    "the later ones kept",
)


@dataclass(frozen=True, slots=True)
class Cache:
    """What the disk promises.

    ``volatile``: it loses writes that were not flushed; otherwise only the one in progress when the power is cut may be
    incomplete. ``size_bytes``: it holds at most this much; what was written earlier is stable even without a flush.
    ``sector_bytes``: it writes this much as a whole or not at all. ``reorders``: writes that were not flushed arrive in any
    order. ``flushes``: a flush makes earlier writes stable, and so does FUA its own; else the disk only says so.
    ``loses_sector``: one sector that had arrived is lost as well.
    """

    volatile: bool = True
    size_bytes: int = 16 << 20
    sector_bytes: int = 512
    reorders: bool = True
    flushes: bool = True
    loses_sector: bool = False


VOLATILE = Cache()
#: disks by name, with what they are
DISKS = {
    "volatile": (VOLATILE, "a cache that loses, reorders and tears what was not flushed"),
    "ordered": (Cache(reorders=False), "the same, but writes arrive in the order in which they were sent"),
    "write-through": (Cache(volatile=False), "no cache: only the write in progress may be incomplete"),
    "4k-sectors": (Cache(sector_bytes=4096), "volatile, and a sector of 4096 bytes is never torn"),
    "lying": (Cache(flushes=False), "volatile, and it only claims to have flushed"),
    "bad-sector": (Cache(loses_sector=True), "volatile, and one sector that was written is lost in the cut"),
}


@dataclass(frozen=True, slots=True)
class CutPoint:
    """One state of the disk.

    ``entry``: how many entries of the log had completed when the power was cut. ``acknowledged_before``: texts of the marks
    among them, in order: what the workload had acknowledged. ``stable``: all writes before this entry have arrived.
    ``shape``: how the open writes arrived. ``index``: number of the draw; of a flush, its entry.
    """

    index: int
    entry: int
    kind: Literal["flush", "drawn"]
    acknowledged_before: tuple[str, ...]
    stable: int
    shape: str
    seed: str
    cache: Cache


@dataclass(frozen=True, slots=True)
class Arrival:
    """A part of a write that is on the disk: bytes ``start`` to ``stop`` of its entry."""

    entry: Entry
    start: int
    stop: int


def cut_points(
    log: WriteLog,
    seed: str,
    drawn: int,
    *,
    after: int = 0,
    before: int | None = None,
    cache: Cache = VOLATILE,
) -> Iterator[CutPoint]:
    """Yield the state as of each flush, and ``drawn`` states at entries drawn uniformly, in the order of the log.

    Only states with at least the first ``after`` entries are yielded, and only marks from there on count as
    acknowledgements. ``before``: only of this many entries. ``seed``: 32 hexadecimal digits.
    """
    end = len(log) if before is None else before
    marks = [mark for mark in log.marks if mark.entry >= after]
    places = [mark.entry for mark in marks]
    texts = tuple(mark.text for mark in marks)
    flushes = ((entry + 1, 0, entry) for entry in log.flushes if after <= entry < end)
    draws = sorted(
        (_position(seed, index, after, end), 1, index) for index in range(drawn if end > after else 0)
    )
    seen = 0
    for entry, is_drawn, index in heapq.merge(flushes, draws):
        while seen < len(places) and places[seen] < entry:
            seen += 1
        if is_drawn:
            shape = SHAPES[Stream(seed, _DOMAIN, "shape", index).below(len(SHAPES))]
            stable = _stable(log, entry, cache)
        else:
            shape, stable = "as of a flush", entry
        yield CutPoint(
            index, entry, "drawn" if is_drawn else "flush", texts[:seen], stable, shape, seed, cache
        )


def arrivals(log: WriteLog, point: CutPoint) -> Iterator[Arrival]:
    """Yield what the disk kept of the writes that are not stable, in the order to apply it."""
    if point.kind == "flush":
        return
    stream = Stream(point.seed, _DOMAIN, "writes", point.index)
    stop = point.entry if point.cache.volatile else point.entry + 1
    entries = [entry for entry in log.entries(point.stable, stop) if entry.length]
    free = [
        number
        for number, entry in enumerate(entries)
        if not (entry.fua and point.cache.flushes) or not point.cache.volatile
    ]
    fates = _fates if point.cache.reorders else _fates_in_order
    kept = dict(zip(free, fates(point.shape, len(free), stream), strict=True))
    for number, entry in enumerate(entries):
        fate = kept.get(number, "kept")
        if fate == "kept":
            yield Arrival(entry, 0, entry.length)
        elif fate == "torn":
            yield from _torn(entry, point.cache.sector_bytes, stream)
    if point.cache.loses_sector:
        yield from _lost_sector(log, point)


#: see ``state_of``
State = tuple[int, int, tuple[tuple[int, int, int], ...]]


def state_of(log: WriteLog, point: CutPoint) -> State:
    """Return what two points of a log have in common if they leave the same disk after the same acknowledgements."""
    parts = tuple((part.entry.index, part.start, part.stop) for part in arrivals(log, point))
    return point.stable, len(point.acknowledged_before), parts


def _position(seed: str, index: int, after: int, count: int) -> int:
    return after + 1 + Stream(seed, _DOMAIN, "entry", index).below(count - after)


def _stable(log: WriteLog, entry: int, cache: Cache) -> int:
    if not cache.volatile:
        return entry
    if not cache.flushes:
        return log.within_cache(entry, cache.size_bytes)
    return max(log.last_flush(entry) + 1, log.within_cache(entry, cache.size_bytes))


def _fates(shape: str, count: int, stream: Stream) -> Sequence[str]:
    """Return for each of the open writes whether it was kept, lost or torn."""
    if count == 0:
        return ()
    lost, kept, torn = "lost", "kept", "torn"
    match shape:
        case "none kept":
            return [lost] * count
        case "all kept":
            return [kept] * count
        case "the last one torn":
            return [kept] * (count - 1) + [torn]
        case "one lost":
            one = stream.below(count)
            return [lost if number == one else kept for number in range(count)]
        case "one kept":
            one = stream.below(count)
            return [kept if number == one else lost for number in range(count)]
        case "each by a coin":
            eighths = 1 + stream.below(7)
            return [kept if stream.below(8) < eighths else lost for _ in range(count)]
        case "each kept, lost or torn":
            return [(kept, lost, torn)[stream.below(3)] for _ in range(count)]
        case _:
            first = stream.below(count)
            return [lost if number < first else kept for number in range(count)]


def _fates_in_order(shape: str, count: int, stream: Stream) -> Sequence[str]:
    """Return the same for a disk that keeps the order: all writes up to one, which may be torn."""
    if count == 0 or shape == "none kept":
        return ["lost"] * count
    first = count if shape == "all kept" else stream.below(count)
    return ["kept" if n < first else "torn" if n == first else "lost" for n in range(count)]


def _lost_sector(log: WriteLog, point: CutPoint) -> Iterator[Arrival]:
    """Yield zeros for one sector of a write before the cut: as a discard with a number that no entry has."""
    stream, size = Stream(point.seed, _DOMAIN, "sector", point.index), point.cache.sector_bytes
    for _ in range(_ATTEMPTS):
        entry = log.entry(stream.below(point.entry))
        if entry.length >= size and not entry.discard:
            offset = entry.offset + size * stream.below(entry.length // size)
            yield Arrival(Entry(-1 - offset // size, offset, size, DISCARD, 0), 0, size)
            return


def _torn(entry: Entry, sector_bytes: int, stream: Stream) -> Iterator[Arrival]:
    """Yield some sectors of a write: its beginning, its end, or any; neither all nor none.

    A single sector, or a discard, is kept or lost.
    """
    count = -(-entry.length // sector_bytes)
    if entry.discard or count < 2:
        if stream.below(2):
            yield Arrival(entry, 0, entry.length)
        return
    first = 1 + stream.below(count - 1)
    match stream.below(3):
        case 0:
            yield Arrival(entry, 0, first * sector_bytes)
        case 1:
            yield Arrival(entry, first * sector_bytes, entry.length)
        case _:
            edges = sorted({0, count, *(stream.below(count) for _ in range(min(count, 8)))})
            for number, (start, stop) in enumerate(pairwise(edges)):
                if number % 2 == first % 2:
                    yield Arrival(entry, start * sector_bytes, min(stop * sector_bytes, entry.length))
