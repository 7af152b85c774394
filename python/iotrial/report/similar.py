"""Which shipped study is closest to what an application did.

The rules are tried in order, and the first that holds names one or two studies. They look at bytes read against bytes
written, the median size of an operation, the share of random accesses, writes for each sync, the number of files, and
the share of metadata operations. They say where to look first, not that the application behaves like the study.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from iotrial.documents import JsonObject
from iotrial.report.notation import counted
from iotrial.traces.summary import Direction, TraceSummary
from iotrial.units import format_bytes, format_percent

#: from this share of the bytes on, a direction is the only one that matters
_MOSTLY = 0.9
_SOME = 0.2
_RANDOM = 0.3
_FEWEST_SYNCS = 5
_MANY_FILES = 20
_SMALL_FILE = 64 << 10
_COMMIT = 64 << 10
_WRITES_A_COMMIT = 50
_MUCH_METADATA = 0.5


class Similar(JsonObject, frozen=True):
    """Shipped studies that are close, and why; none if no rule holds."""

    studies: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class _Mix:
    summary: TraceSummary
    read_share: float
    random: float
    median: int
    writes_a_sync: float

    @property
    def many_files(self) -> bool:
        sizes = self.summary.files.sizes
        return self.summary.files.used >= _MANY_FILES and sizes is not None and sizes.p50 <= _SMALL_FILE


@dataclass(frozen=True, slots=True)
class _Rule:
    studies: tuple[str, ...]
    holds: Callable[[_Mix], bool]
    reason: Callable[[_Mix], str]


def similar(summary: TraceSummary) -> Similar:
    """Return the closest shipped studies."""
    mix = _mix(summary)
    for rule in RULES:
        if rule.holds(mix):
            return Similar(rule.studies, rule.reason(mix))
    return Similar((), "it read and wrote next to nothing")


def _mix(summary: TraceSummary) -> _Mix:
    read, write = summary.read, summary.write
    total = _read_bytes(summary) + write.bytes
    main = read if read.bytes >= write.bytes else write
    syncs = summary.syncs.operations
    return _Mix(
        summary,
        read_share=_read_bytes(summary) / total if total else 0.0,
        random=main.random_share or 0.0,
        median=_median(main),
        writes_a_sync=write.operations / syncs if syncs else float("inf"),
    )


def _read_bytes(summary: TraceSummary) -> int:
    return summary.read.bytes + summary.mapping.fault_bytes


def _median(direction: Direction) -> int:
    """Return the upper end of the power of two that holds the median size."""
    moving = [one for one in direction.sizes if one.up_to]
    left = sum(one.operations for one in moving) / 2
    for one in moving:
        left -= one.operations
        if left <= 0:
            return one.up_to
    return 0


def _commits(mix: _Mix) -> bool:
    return (
        mix.summary.syncs.operations >= _FEWEST_SYNCS
        and mix.writes_a_sync <= _WRITES_A_COMMIT
        and _median(mix.summary.write) <= _COMMIT
    )


def _same_files(mix: _Mix) -> bool:
    """Return whether the same files are synced again and again."""
    return mix.summary.syncs.operations >= 2 * mix.summary.syncs.files


def _small(mix: _Mix) -> bool:
    return mix.many_files or (
        mix.summary.metadata_share >= _MUCH_METADATA and mix.summary.files.used >= _MANY_FILES
    )


def _moves(mix: _Mix) -> bool:
    return _read_bytes(mix.summary) + mix.summary.write.bytes > 0


def _of_commits(mix: _Mix) -> str:
    return (
        f"{counted(mix.summary.syncs.operations, 'sync')}, one for {mix.writes_a_sync:.3g} writes of at most "
        f"{format_bytes(_median(mix.summary.write))} (median)"
    )


def _of_files(mix: _Mix) -> str:
    share = format_percent(round(mix.summary.metadata_share, 2))
    sizes = mix.summary.files.sizes
    size = f" of {format_bytes(sizes.p50)} (median)" if sizes else ""
    return f"{counted(mix.summary.files.used, 'file')}{size}, {share} metadata operations"


def _of_bytes(mix: _Mix) -> str:
    return (
        f"{format_percent(round(mix.read_share, 2))} of the bytes are read, {format_percent(round(mix.random, 2))} of the "
        f"accesses are random, the median is at most {format_bytes(mix.median)}"
    )


def _of_direct(mix: _Mix) -> str:
    return f"{_of_bytes(mix)}, past the page cache or by io_uring"


def _past_cache(mix: _Mix) -> bool:
    read, write = mix.summary.read, mix.summary.write
    return 2 * max(read.direct + write.direct, mix.summary.uring) > read.operations + write.operations


#: the first that holds counts
RULES: tuple[_Rule, ...] = (
    _Rule(
        ("application/database-durability", "application/durability"),
        lambda mix: _commits(mix) and _same_files(mix),
        _of_commits,
    ),
    _Rule(("filesystem/durability", "mount/commit"), _commits, _of_commits),
    _Rule(
        ("filesystem/copy-tree", "application/compile"),
        lambda mix: _small(mix) and _moves(mix) and _SOME <= mix.read_share <= 1 - _SOME,
        _of_files,
    ),
    _Rule(
        ("filesystem/small-files", "mount/commit"),
        lambda mix: _small(mix) and _moves(mix) and mix.read_share < _SOME,
        _of_files,
    ),
    _Rule(("mount/atime", "filesystem/website"), lambda mix: _small(mix) and _moves(mix), _of_files),
    _Rule(
        ("files/links",),
        lambda mix: not _moves(mix) and mix.summary.count("metadata") > 0,
        lambda mix: f"{counted(mix.summary.count('metadata'), 'metadata operation')}, and no data",
    ),
    _Rule(
        ("block/queue", "block/scheduler"),
        lambda mix: _moves(mix) and _past_cache(mix) and mix.random >= _RANDOM,
        _of_direct,
    ),
    _Rule(
        ("filesystem/record-pattern", "block/readahead"),
        lambda mix: _moves(mix) and mix.random >= _RANDOM and mix.read_share > 1 - _MOSTLY,
        _of_bytes,
    ),
    _Rule(
        ("filesystem/writeback", "filesystem/record-pattern"),
        lambda mix: _moves(mix) and mix.random >= _RANDOM,
        _of_bytes,
    ),
    _Rule(
        ("block/stream-read", "block/readahead"),
        lambda mix: mix.read_share >= _MOSTLY and _moves(mix),
        _of_bytes,
    ),
    _Rule(
        ("block/stream", "filesystem/writeback"),
        lambda mix: mix.read_share <= 1 - _MOSTLY and _moves(mix),
        _of_bytes,
    ),
    _Rule(("filesystem/stream",), _moves, _of_bytes),
)
