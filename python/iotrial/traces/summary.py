"""What an application did, as the probe summarises its trace: one pass, in bounded memory, whatever its length."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from iotrial.documents import Amount, Count, JsonObject, Probability


class Quantiles(JsonObject, frozen=True):
    """Total, mean and quantiles; quantiles are at most 3 % too high."""

    total: Count
    mean: Amount
    p50: Count
    p90: Count
    p99: Count
    max: Count


class CallTotals(JsonObject, frozen=True):
    """All operations of one call."""

    call: str
    purpose: Annotated[str, Meta(description="read, write, sync, metadata or threads")]
    operations: Count
    errors: Count
    bytes: Annotated[int, Meta(ge=0, description="moved by those that succeeded")]
    size: Annotated[Quantiles | None, Meta(description="bytes of one operation")]
    time_ns: Quantiles


class SizeTotals(JsonObject, frozen=True):
    """Operations of one size, or of a range of sizes that ends with it."""

    up_to: Count
    operations: Count
    bytes: Count


class Direction(JsonObject, frozen=True):
    """Reads (not page faults and copies) or writes that succeeded.

    ``sequential`` begins where the access before of this direction on the same open file ended; ``first`` had none
    before it.
    """

    operations: Count
    bytes: Count
    sequential: Count
    random: Count
    first: Count
    sequential_bytes: Count
    random_bytes: Count
    direct: Annotated[int, Meta(ge=0, description="on files opened with O_DIRECT")]
    positional: Annotated[int, Meta(ge=0, description="calls with an offset, such as pread")]
    vectored: Annotated[int, Meta(ge=0, description="calls with several buffers")]
    sizes: Annotated[tuple[SizeTotals, ...], Meta(description="by power of two")]
    common: Annotated[tuple[SizeTotals, ...], Meta(description="the most frequent sizes, one by one")]

    @property
    def random_share(self) -> float | None:
        """Share of random accesses among those that had one before them; None if none had."""
        known = self.sequential + self.random
        return self.random / known if known else None


class Syncs(JsonObject, frozen=True):
    """Calls that wait until data are on the disk."""

    operations: Annotated[int, Meta(ge=0, description="that succeeded")]
    writes_between: Annotated[
        Quantiles | None, Meta(description="writes since the sync before, of all files")
    ]
    bytes_between: Quantiles | None
    time_share: Annotated[float, Meta(ge=0, le=1, description="of the time of reads, writes and syncs")]
    files: Annotated[int, Meta(ge=0, description="that were synced")]
    synchronous_writes: Annotated[int, Meta(ge=0, description="to files opened with O_SYNC or O_DSYNC")]


class Mapping(JsonObject, frozen=True):
    """Files used through a mapping."""

    maps: Count
    mapped_bytes: Count
    faults: Annotated[
        int, Meta(ge=0, description="pages read from the file, as far as the kernel shows them")
    ]
    fault_bytes: Count


class Opens(JsonObject, frozen=True):
    """How files were opened."""

    operations: Count
    failed: Count
    direct: Count
    synchronous: Count
    append: Count
    create: Count
    truncate: Count


class Depth(JsonObject, frozen=True):
    """The time during which a number of operations were in flight."""

    depth: Count
    ns: Count


class Concurrency(JsonObject, frozen=True):
    """Reads, writes and syncs in flight."""

    threads: Count
    processes: Count
    threads_with_io: Count
    busy_ns: Annotated[int, Meta(ge=0, description="with at least one in flight")]
    mean: Amount
    mean_while_busy: Amount
    peak: Count
    depths: tuple[Depth, ...]


class Span(JsonObject, frozen=True):
    """What ended in one span of time."""

    reads: Count
    read_bytes: Count
    writes: Count
    written_bytes: Count
    syncs: Count
    metadata: Count
    in_flight: Annotated[float, Meta(ge=0, description="mean number of reads, writes and syncs")]
    threads: Count


class Timeline(JsonObject, frozen=True):
    """At most 240 spans of equal length."""

    span_ns: Count
    spans: tuple[Span, ...]


class FileMap(JsonObject, frozen=True):
    """Bytes in each of at most 32 cells of a file, from its beginning."""

    cell_bytes: Count
    read: tuple[Count, ...]
    written: tuple[Count, ...]


class HotFile(JsonObject, frozen=True):
    """One of the files with the most bytes."""

    id: Count
    path: str | None
    size: Annotated[int, Meta(ge=0, description="before, or the end of the last access if that is higher")]
    existed: bool
    read_bytes: Count
    written_bytes: Count
    operations: Count
    syncs: Count
    map: FileMap | None


class FileTotals(JsonObject, frozen=True):
    """The files under the recorded folder."""

    known: Annotated[int, Meta(ge=0, description="regular files")]
    used: Annotated[int, Meta(ge=0, description="read or written")]
    read_only: Count
    written: Count
    created: Count
    bytes_before: Count
    sizes: Annotated[Quantiles | None, Meta(description="of the used ones")]
    directories: Count
    hottest: tuple[HotFile, ...]


class Failures(JsonObject, frozen=True):
    """Operations that failed in the same way."""

    call: str
    errno: Count
    operations: Count


class TraceSummary(JsonObject, frozen=True):
    """What an application did."""

    recorded_at: str
    kernel: str
    command: Annotated[tuple[str, ...], Meta(description="empty if a running process was recorded")]
    under: Annotated[str, Meta(description="the recorded folder")]
    names_hashed: bool
    complete: Annotated[bool, Meta(description="false: the recording was cut off")]
    duration_ns: Count
    operations: Count
    lost: Annotated[int, Meta(ge=0, description="operations that could not be recorded")]
    elsewhere: Annotated[int, Meta(ge=0, description="operations outside the folder: counted, not recorded")]
    uring: Annotated[int, Meta(ge=0, description="operations by io_uring")]
    calls: tuple[CallTotals, ...]
    read: Direction
    write: Direction
    syncs: Syncs
    mapping: Mapping
    opens: Opens
    concurrency: Concurrency
    timeline: Timeline
    files: FileTotals
    errors: tuple[Failures, ...]
    limits: Annotated[tuple[str, ...], Meta(description="what this summary had no room for")]

    @property
    def duration_s(self) -> float:
        """Length of the recording in seconds."""
        return self.duration_ns / 1e9

    def count(self, purpose: str) -> int:
        """Return the number of operations with a purpose: read, write, sync, metadata or threads."""
        return sum(one.operations for one in self.calls if one.purpose == purpose)

    @property
    def metadata_share(self) -> Probability:
        """Share of metadata operations among all but those of threads."""
        every = self.operations - self.count("threads")
        return self.count("metadata") / every if every else 0.0
