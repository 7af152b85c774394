"""A fio job with the mix of a trace: sizes, order, syncs, files and concurrency.

It has the totals of the application, not its order of operations: no think time, no metadata operations, and offsets
drawn by fio. A replay has all of these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from iotrial.errors import RequestError
from iotrial.terminal import escape
from iotrial.traces.summary import Direction, SizeTotals, TraceSummary

#: fio takes at most this many sizes for each direction
_MOST_SIZES = 64
_MOST_FILES = 10_000
#: at once, of each job
_MOST_OPEN = 128
#: above this share of operations by io_uring, the job uses it too
_BY_URING = 0.5


def fio_job(summary: TraceSummary) -> str:
    """Return the text of the job. Raises RequestError if the trace has neither reads nor writes with data."""
    read, write = summary.read, summary.write
    total = read.bytes + write.bytes
    if not total:
        raise RequestError(
            "the trace has no reads or writes with data, so there is nothing for fio to do",
            hint="`iotrial show FILE` lists what it has; a workload of kind replay repeats all of it",
        )
    jobs, depth = _parallel(summary)
    files, file_bytes = _file_set(summary, jobs)
    options: list[tuple[str, object]] = [
        *_engine(summary, depth),
        ("rw", _rw(read, write)),
        *_mix(read, write),
        ("bssplit", ",".join(_split(one) for one in (read, write))),
        ("bs_unaligned", 1),
        *_order(read, write),
        *_syncs(summary),
        ("direct", int(2 * (read.direct + write.direct) > read.operations + write.operations)),
        ("numjobs", jobs),
        ("nrfiles", files),
        *([("openfiles", _MOST_OPEN)] if files > _MOST_OPEN else []),
        ("filesize", file_bytes),
        # Each job does its part of the bytes.
        ("io_size", max(1, total // jobs)),
        ("size", file_bytes * files),
    ]
    lines = [
        "; The mix of a recorded application, by iotrial show --as fio.",
        f"; {' '.join(escape(word) for word in summary.command) or 'a running process'}, {escape(summary.recorded_at)}",
        f"; recorded: {read.operations} reads of {read.bytes} bytes, {write.operations} writes of {write.bytes} bytes,",
        f";   {summary.syncs.operations} syncs, {summary.count('metadata')} metadata operations, {summary.duration_s:.3f} s",
        "; Not in this job: think time, metadata operations, mappings, copies, and which file an operation is on.",
        "[global]",
        "group_reporting",
        "norandommap",
        "randrepeat=1",
        "",
        "[application]",
        *(f"{name}={value}" for name, value in options),
    ]
    return "\n".join(lines)


def _rw(read: Direction, write: Direction) -> str:
    is_random = any((one.random_share or 0) > 0 for one in (read, write))
    if not write.bytes:
        return "randread" if is_random else "read"
    if not read.bytes:
        return "randwrite" if is_random else "write"
    return "randrw" if is_random else "rw"


def _mix(read: Direction, write: Direction) -> list[tuple[str, object]]:
    """fio counts the mix in operations."""
    if not read.bytes or not write.bytes:
        return []
    moving = [_moving(one) for one in (read, write)]
    return [("rwmixread", min(99, max(1, round(100 * moving[0] / sum(moving)))))]


def _moving(direction: Direction) -> int:
    """Return the number of operations that moved data."""
    return sum(one.operations for one in direction.sizes if one.up_to)


def _split(direction: Direction) -> str:
    """Return sizes with whole percentages that sum to 100: exact sizes where they cover most, else the mean of each power
    of two."""
    if not direction.bytes:
        return "4096/100"
    moving = _moving(direction)
    exact = [one for one in direction.common if one.up_to]
    covered = sum(one.operations for one in exact)
    if covered >= 0.98 * moving:
        parts = [(one.up_to, one.operations) for one in exact]
    else:
        parts = [(_mean(one), one.operations) for one in direction.sizes if one.up_to]
    parts = sorted(parts, key=lambda part: -part[1])[:_MOST_SIZES]
    shares = _whole_percentages([count for _, count in parts])
    kept = sorted((size, share) for (size, _), share in zip(parts, shares, strict=True) if share)
    return ":".join(f"{size}/{share}" for size, share in kept)


def _mean(sizes: SizeTotals) -> int:
    return max(1, round(sizes.bytes / sizes.operations))


def _whole_percentages(counts: Sequence[int]) -> list[int]:
    """Round shares to whole percentages that sum to 100, by largest remainder."""
    total = sum(counts)
    exact = [100 * count / total for count in counts]
    whole = [math.floor(one) for one in exact]
    by_remainder = sorted(range(len(counts)), key=lambda place: whole[place] - exact[place])
    for place in by_remainder[: 100 - sum(whole)]:
        whole[place] += 1
    return whole


def _order(read: Direction, write: Direction) -> list[tuple[str, object]]:
    shares = [one.random_share or 0 for one in (read, write)]
    if not any(shares):
        return []
    return [("percentage_random", ",".join(str(round(100 * share)) for share in shares))]


def _syncs(summary: TraceSummary) -> list[tuple[str, object]]:
    syncs, reads, writes = summary.syncs, _moving(summary.read), _moving(summary.write)
    if writes and 2 * syncs.synchronous_writes > writes:
        return [("sync", "dsync")]
    if not syncs.operations or not writes:
        return []
    data_only = sum(one.operations for one in summary.calls if one.call == "fdatasync")
    name = "fdatasync" if 2 * data_only > syncs.operations else "fsync"
    # fio (3.33) syncs after each operation, also a read, while the number of writes is a multiple of this.
    return [(name, max(1, round((reads + writes) / syncs.operations)))]


def _parallel(summary: TraceSummary) -> tuple[int, int]:
    """Return the number of jobs and the depth of each."""
    in_flight = max(1, round(summary.concurrency.mean_while_busy))
    if _uring(summary):
        return 1, in_flight
    return max(1, min(in_flight, summary.concurrency.threads_with_io or 1)), 1


def _uring(summary: TraceSummary) -> bool:
    data = summary.read.operations + summary.write.operations
    return summary.uring > _BY_URING * max(1, data)


def _engine(summary: TraceSummary, depth: int) -> list[tuple[str, object]]:
    return [("ioengine", "io_uring"), ("iodepth", depth)] if _uring(summary) else [("ioengine", "psync")]


def _file_set(summary: TraceSummary, jobs: int) -> tuple[int, int]:
    """Return files of each job, and the size of each: their sum is that of the files that the application used."""
    sizes = summary.files.sizes
    used = summary.files.used
    every = [one for way in (summary.read, summary.write) for one in (*way.common, *way.sizes)]
    largest = max((one.up_to for one in every), default=4096)
    files = max(1, min(_MOST_FILES, round(used / jobs)))
    mean = sizes.mean if sizes else 0
    return files, max(4096, math.ceil(mean), largest)
