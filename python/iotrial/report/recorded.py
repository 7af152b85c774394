"""What a recorded application did, as blocks: ``iotrial show FILE.iotrace``."""

from __future__ import annotations

import errno
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from iotrial.report.blocks import Block, Code, Facts, Note, Report, Section, Table, View, table
from iotrial.report.notation import counted, elided, joined, plain
from iotrial.report.similar import Similar
from iotrial.report.text import Console, print_blocks
from iotrial.terminal import escape
from iotrial.traces.summary import CallTotals, Direction, HotFile, SizeTotals, Span, TraceSummary
from iotrial.units import format_bytes, format_duration, format_percent

#: widths of terminals that the figures are drawn for
NARROWEST, WIDEST = 60, 120
_LEVELS = " ▁▂▃▄▅▆▇█"
_BAR = "█"
#: room of the columns next to a curve, a map, a bar
_NEXT_TO_CURVE, _NEXT_TO_BAR = 28, 44
_NEXT_TO_MAP = 42
_MAPS = 5
_LONGEST_COMMAND = 200
_MOST_DEPTHS = 8


def print_recorded(summary: TraceSummary, close: Similar, *, name: str) -> None:
    """Print the report on standard output, in the width of its terminal."""
    console = Console(file=sys.stdout)
    print_blocks(recorded_report(summary, close, name=name, width=console.width), console, full=True)


def recorded_report(summary: TraceSummary, close: Similar, *, name: str, width: int) -> Report:
    """Build the report. ``name`` is the file's, for the commands to copy; ``width`` is that of the terminal."""
    width = min(max(width, NARROWEST), WIDEST)
    blocks: list[Block] = [
        Facts(tuple(_facts(summary)), view=View.ALL),
        *(Note(text, "Missing", "risk") for text in _missing(summary)),
        *_calls(summary),
        *_order(summary),
        *_sizes(summary, width),
        *_over_time(summary, width),
        *_concurrency(summary, width),
        *_hot_files(summary, width),
        *_errors(summary),
        *_close(close, name),
    ]
    return Report(escape(name), _headline(summary), "", tuple(blocks), kind="iotrial show")


def _headline(summary: TraceSummary) -> str:
    read, write = summary.read, summary.write
    did = []
    if read.operations:
        did.append(f"read {format_bytes(read.bytes)} in {counted(read.operations, 'read')}")
    if write.operations:
        did.append(f"wrote {format_bytes(write.bytes)} in {counted(write.operations, 'write')}")
    did.append(
        f"synced {counted(summary.syncs.operations, 'time')}" if summary.syncs.operations else "never synced"
    )
    what = _command(summary) or "The process"
    return f"{what} {joined(did)}, in {format_duration(summary.duration_s)}."


def _command(summary: TraceSummary) -> str:
    return elided(escape(" ".join(summary.command)), _LONGEST_COMMAND)


def _facts(summary: TraceSummary) -> Iterator[tuple[str, str]]:
    files, opens, mapping = summary.files, summary.opens, summary.mapping
    yield (
        "recorded",
        f"{escape(summary.recorded_at)}, Linux {escape(summary.kernel)}, in {escape(summary.under)}",
    )
    yield (
        "files",
        f"{counted(files.known, 'file')} known, {files.used:,} read or written ({files.read_only:,} only read, "
        f"{files.written:,} written, {files.created:,} new); {format_bytes(files.bytes_before)} before",
    )
    if files.sizes is not None:
        yield "file size", f"median {format_bytes(files.sizes.p50)}, largest {format_bytes(files.sizes.max)}"
    yield (
        "metadata",
        f"{counted(summary.count('metadata'), 'operation')}, {format_percent(round(summary.metadata_share, 3))} of all",
    )
    if opens.operations:
        ways = [
            f"{number:,} {flag}"
            for number, flag in (
                (opens.direct, "O_DIRECT"),
                (opens.synchronous, "O_SYNC or O_DSYNC"),
                (opens.append, "O_APPEND"),
                (opens.create, "O_CREAT"),
                (opens.truncate, "O_TRUNC"),
            )
            if number
        ]
        failed = f", {opens.failed:,} failed" if opens.failed else ""
        yield "opens", f"{opens.operations:,}{failed}{'; ' if ways else ''}{', '.join(ways)}"
    if mapping.maps:
        yield (
            "mmap",
            f"{counted(mapping.maps, 'mapping')} of {format_bytes(mapping.mapped_bytes)}; "
            f"{counted(mapping.faults, 'page fault')} read {format_bytes(mapping.fault_bytes)}",
        )
    if summary.uring:
        yield "io_uring", counted(summary.uring, "operation")
    yield from _syncs(summary)


def _syncs(summary: TraceSummary) -> Iterator[tuple[str, str]]:
    syncs = summary.syncs
    if syncs.bytes_between is not None and syncs.writes_between is not None:
        written, writes = syncs.bytes_between, syncs.writes_between
        yield (
            "syncs",
            f"{syncs.operations:,} of {counted(syncs.files, 'file')}, "
            f"{format_percent(round(syncs.time_share, 3))} of the time in reads, writes and syncs; between two: "
            f"{plain(writes.mean)} writes (mean), {format_bytes(written.mean)} (mean), {format_bytes(written.p50)} (median), "
            f"{format_bytes(written.max)} (most)",
        )
    if syncs.synchronous_writes:
        yield "", f"{counted(syncs.synchronous_writes, 'write')} to files opened with O_SYNC or O_DSYNC"


def _missing(summary: TraceSummary) -> Iterator[str]:
    if not summary.complete:
        yield "the recording was cut off: what came after is not here"
    if summary.lost:
        share = summary.lost / (summary.lost + summary.operations)
        yield (
            f"{counted(summary.lost, 'operation')} lost while recording ({format_percent(share)}): counts are too low, and a "
            "replay does not do them"
        )
    if summary.elsewhere:
        yield f"{counted(summary.elsewhere, 'operation')} on files outside the folder: counted, not recorded"
    if not summary.command:
        yield "the process ran already: what it did before is not here, and pages that it had mapped may not be"
    if summary.mapping.maps:
        yield "reads of mapped pages that were in the cache, and writes to mappings: the kernel does not show them"
    for limit in summary.limits:
        yield escape(limit)


def _calls(summary: TraceSummary) -> Iterator[Table]:
    ranked = sorted(
        summary.calls, key=lambda one: (one.purpose == "threads", -one.time_ns.total, -one.operations)
    )
    yield table(
        ("call", ">count", ">errors", ">bytes", ">mean", ">median", ">p99", ">largest"),
        (_call_row(one) for one in ranked),
        title="Calls",
        note="Mean to largest: bytes of one call that moved data.",
    )
    yield table(
        ("call", ">total", ">mean", ">median", ">p90", ">p99", ">longest"),
        (_time_row(one) for one in ranked),
        title="Time of calls",
        note="From entry to return, while it was recorded.",
    )


def _call_row(one: CallTotals) -> tuple[str, ...]:
    size = one.size
    return (
        escape(one.call),
        f"{one.operations:,}",
        f"{one.errors:,}" if one.errors else "–",
        _bytes(one.bytes) if one.bytes else "–",
        *(
            ("–",) * 4
            if size is None
            else (_bytes(size.mean), _bytes(size.p50), _bytes(size.p99), _bytes(size.max))
        ),
    )


def _time_row(one: CallTotals) -> tuple[str, ...]:
    time = one.time_ns
    return (
        escape(one.call),
        *(_seconds(ns) for ns in (time.total, time.mean, time.p50, time.p90, time.p99, time.max)),
    )


def _order(summary: TraceSummary) -> Iterator[Block]:
    rows = [
        row
        for name, direction in (("reads", summary.read), ("writes", summary.write))
        if (row := _order_row(name, direction))
    ]
    if rows:
        yield table(
            ("", ">sequential", ">random", ">first", ">of bytes", ">O_DIRECT", ">with offset"),
            rows,
            title="Order of access",
            note=(
                "Sequential: where the access before of the same direction on the same open file ended. First: none before "
                "it. Of bytes: share of sequential ones, without first accesses."
            ),
        )


def _order_row(name: str, direction: Direction) -> tuple[str, ...] | None:
    if not direction.operations:
        return None
    total = direction.operations
    moved = direction.sequential_bytes + direction.random_bytes
    counts = (direction.sequential, direction.random, direction.first)
    return (
        name,
        *(_share(count, total) for count in counts),
        _share(direction.sequential_bytes, moved),
        _share(direction.direct, total),
        _share(direction.positional, total),
    )


def _sizes(summary: TraceSummary, width: int) -> Iterator[Block]:
    for name, direction in (("reads", summary.read), ("writes", summary.write)):
        if direction.sizes:
            yield _size_table(name, direction, width)


def _size_table(name: str, direction: Direction, width: int) -> Table:
    most = max(one.operations for one in direction.sizes)
    room = width - _NEXT_TO_BAR
    common = [one for one in direction.common if one.operations >= direction.operations / 100][:3]
    exact = joined(f"{_exact(one.up_to)} ({_share(one.operations, direction.operations)})" for one in common)
    return table(
        (f"size of {name}", ">count", ">of all", ">bytes", ""),
        (_size_row(one, direction.operations, most, room) for one in direction.sizes),
        title=f"Sizes of {name}",
        note=f"The most frequent: {exact}." if exact else "",
    )


def _size_row(one: SizeTotals, total: int, most: int, room: int) -> tuple[str, ...]:
    return (
        f"up to {_exact(one.up_to)}" if one.up_to else "nothing",
        f"{one.operations:,}",
        _share(one.operations, total),
        _bytes(one.bytes),
        bar(one.operations / most, room),
    )


def _over_time(summary: TraceSummary, width: int) -> Iterator[Block]:
    spans = summary.timeline.spans
    if not spans:
        return
    cells = min(width - _NEXT_TO_CURVE, len(spans)) if len(spans) > 1 else 1
    span_s = summary.timeline.span_ns / 1e9
    rows = []
    for name, values, unit in _curves(spans, span_s):
        binned = _binned(values, cells)
        if any(binned):
            rows.append((name, curve(binned), unit(max(binned))))
    yield table(
        ("", f"0 to {format_duration(span_s * len(spans))}", ">highest"),
        rows,
        title="Over time",
        note="Each row is drawn against its own highest value.",
    )


def _curves(
    spans: Sequence[Span], span_s: float
) -> Iterator[tuple[str, list[float], Callable[[float], str]]]:
    yield "read", [one.read_bytes / span_s for one in spans], _rate_of_bytes
    yield "written", [one.written_bytes / span_s for one in spans], _rate_of_bytes
    yield "reads", [one.reads / span_s for one in spans], _rate
    yield "writes", [one.writes / span_s for one in spans], _rate
    yield "syncs", [one.syncs / span_s for one in spans], _rate
    yield "metadata", [one.metadata / span_s for one in spans], _rate
    yield "in flight", [one.in_flight for one in spans], plain
    yield "threads", [float(one.threads) for one in spans], plain


def _concurrency(summary: TraceSummary, width: int) -> Iterator[Block]:
    found = summary.concurrency
    if not found.busy_ns or not summary.duration_ns:
        return
    text = (
        f"{counted(found.threads, 'thread')} in {counted(found.processes, 'process', 'processes')}, "
        f"{found.threads_with_io:,} of them read, wrote or synced. "
        f"In flight: {plain(found.mean)} on average, {plain(found.mean_while_busy)} while any was, at most {found.peak:,}."
    )
    rows = []
    depths = found.depths
    for place, one in enumerate(depths[:_MOST_DEPTHS]):
        last = place == _MOST_DEPTHS - 1 and len(depths) > _MOST_DEPTHS
        ns = sum(other.ns for other in depths[place:]) if last else one.ns
        label = f"{one.depth:,} or more" if last else f"{one.depth:,}"
        rows.append(
            (label, _share(ns, summary.duration_ns), bar(ns / summary.duration_ns, width - _NEXT_TO_CURVE))
        )
    yield Section(
        "Concurrency",
        (
            Note(text),
            table(
                (">in flight", ">of the time", ""), rows, note="Reads, writes and syncs, begun and not ended."
            ),
        ),
    )


def _hot_files(summary: TraceSummary, width: int) -> Iterator[Block]:
    hottest = summary.files.hottest
    if not hottest:
        return
    yield table(
        ("~file", ">size", ">read", ">written", ">calls", ">syncs"),
        (_file_row(one, width) for one in hottest),
        title=f"Files with the most bytes ({len(hottest)} of {summary.files.used:,})",
    )
    rows = []
    for one in hottest[:_MAPS]:
        found = one.map
        if found is None or len(found.read) < 2:
            continue
        for way, cells in (("read", found.read), ("written", found.written)):
            if any(cells):
                drawn, together = _fitting(cells, width - _NEXT_TO_MAP)
                rows.append((_path(one, 20), way, curve(drawn), _bytes(together * found.cell_bytes)))
    if rows:
        yield table(
            ("~file", "", "from its beginning", ">a cell"),
            rows,
            title="Where in the hottest files",
            note="Bytes in each cell of a file, drawn against the fullest cell of the row.",
        )


def _file_row(one: HotFile, width: int) -> tuple[str, ...]:
    return (
        _path(one, max(16, width - 50)),
        _bytes(one.size),
        _bytes(one.read_bytes),
        _bytes(one.written_bytes),
        f"{one.operations:,}",
        f"{one.syncs:,}" if one.syncs else "–",
    )


def _path(one: HotFile, width: int) -> str:
    return elided(escape(one.path), width) if one.path else f"file {one.id}"


def _errors(summary: TraceSummary) -> Iterator[Block]:
    if summary.errors:
        yield table(
            ("call", "error", ">count"),
            ((escape(one.call), _error(one.errno), f"{one.operations:,}") for one in summary.errors),
            title="Errors",
        )


def _error(number: int) -> str:
    return errno.errorcode.get(number, f"error {number}")


def _close(close: Similar, name: str) -> Iterator[Block]:
    blocks: list[Block] = []
    if close.studies:
        blocks.append(Note(f"{joined(close.studies)}: {close.reason}.", "Closest shipped studies"))
        blocks.append(Code(f"iotrial show {close.studies[0]}", "such a study"))
    else:
        blocks.append(Note(f"No shipped study comes close: {close.reason}."))
    blocks.append(Code(f"iotrial show {escape(name)} --as fio", "as a job of fio"))
    yield Section("What comes close", tuple(blocks))


# figures in text


def bar(share: float, room: int) -> str:
    """Draw a share of 0 to 1 as a bar; anything above 0 has one cell at least."""
    if not share > 0:
        return ""
    return _BAR * max(1, round(share * room))


def curve(values: Sequence[float]) -> str:
    """Draw values as levels of the highest; anything above 0 is above the lowest level."""
    most = max(values, default=0.0)
    if not most > 0:
        return " " * len(values)
    return "".join(_LEVELS[math.ceil(value / most * (len(_LEVELS) - 1))] for value in values)


def _fitting(cells: Sequence[int], room: int) -> tuple[list[float], int]:
    """Return the cells, in groups of as many as it takes for all to fit, and that number."""
    together = 1
    while -(-len(cells) // together) > room:
        together *= 2
    return [float(sum(cells[start : start + together])) for start in range(0, len(cells), together)], together


def _binned(values: Sequence[float], cells: int) -> list[float]:
    """Return means of equal parts."""
    edges = [len(values) * place // cells for place in range(cells + 1)]
    return [sum(values[start:end]) / (end - start) for start, end in pairwise(edges) if end > start]


def _share(part: float, whole: float) -> str:
    return format_percent(round(part / whole, 3)) if whole else "–"


def _bytes(count: float) -> str:
    return format_bytes(count) if count else "0"


def _exact(size: int) -> str:
    for unit, length in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= length and size % length == 0:
            return f"{size // length} {unit}"
    return f"{size:,} B"


def _seconds(ns: float) -> str:
    return format_duration(ns / 1e9) if ns else "0"


def _rate(value: float) -> str:
    return f"{plain(value)}/s"


def _rate_of_bytes(value: float) -> str:
    return f"{format_bytes(value)}/s"
