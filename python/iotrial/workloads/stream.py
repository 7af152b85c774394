"""Workload kind ``stream``: sequential reads and writes with the exact meaning of dd and hdparm, inside the probe."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from msgspec import Meta, structs

from iotrial.study.places import DISK_LABS
from iotrial.study.schema import Duration, Line, Problem, Share, Size
from iotrial.study.work import (
    CPU_RESPONSES,
    DEVICE_RESPONSES,
    SYNCED_RESPONSE,
    FileSet,
    JobContext,
    Measured,
    ResponseSpec,
    only_for,
    rate_response,
    time_response,
)
from iotrial.units import format_duration, format_percent, format_size

#: minimum alignment of direct I/O; many devices require 4096
SECTOR_BYTES = 512
#: each stream is a thread with a block and its data to write in memory
MOST_STREAMS = 64
_SHARE = re.compile(r"zeros|random|(?:100|[1-9]?[0-9]) % random")

_WALL = time_response(
    "wall",
    "time from the first block to the last, including flush and close of a file; with several streams, from the "
    "first start to the last end",
)
_RATE = rate_response("rate", "bytes/s", "bytes moved per that time; for a copy, bytes copied")
_OPTIONS = (
    "position",
    "within",
    "block_size",
    "volume",
    "streams",
    "shared",
    "copy_with",
    "direct",
    "sync",
    "flush",
    "truncate",
    "data",
)
#: writing options that do not apply to an operation
_NOT_OF = {
    "read": ("sync", "flush", "truncate", "data"),
    "write": (),
    "rewrite": ("truncate",),
    "copy": ("data",),
}


class StreamWork(FileSet, frozen=True, kw_only=True):
    """Sequential reading or writing as dd and hdparm do it."""

    kind = "stream"
    about = "Sequential reads and writes exactly like dd and hdparm, inside the probe."
    documented = (_WALL, _RATE, *CPU_RESPONSES, *DEVICE_RESPONSES, SYNCED_RESPONSE)
    options = _OPTIONS
    verb = "stream"

    operation: Annotated[
        Literal["read", "write", "rewrite", "copy"],
        Meta(description="`rewrite` overwrites a complete existing file; `copy` stays in the file system"),
    ]
    on: Annotated[
        Literal["file", "device"],
        Meta(description="a file, or the lab's block device (read only)"),
    ] = "file"
    position: Annotated[
        Share, Meta(ge=0, le=0.99, description="where on the device to start, 0 % to 99 %")
    ] = 0.0
    within: Annotated[
        Share,
        Meta(
            ge=0,
            le=1,
            description=(
                "read random blocks from this share of the device after `position`, the same at each "
                "position; 0: sequential"
            ),
        ),
    ] = 0.0
    lead_in_bytes: Annotated[
        Size,
        Meta(
            ge=0,
            le=1 << 30,
            description="bytes read first, untimed, in whole blocks, to place a hard disk's arm",
        ),
    ] = 0
    streams: Annotated[
        int,
        Meta(
            ge=1,
            le=MOST_STREAMS,
            description="readers or writers, started together",
        ),
    ] = 1
    shared: Annotated[
        bool,
        Meta(
            description=(
                "true: one file for all (each reads or copies all of it, or writes a part); false: one each"
            )
        ),
    ] = False
    copy_with: Annotated[
        Literal["read-write", "copy-file-range"],
        Meta(description=("read and write block by block, or copy_file_range, which can share blocks")),
    ] = "read-write"
    block_size_bytes: Annotated[
        Size, Meta(ge=1, le=1 << 30, description="size of one read or write (dd: bs)")
    ] = 1 << 20
    volume_bytes: Annotated[
        Size,
        Meta(
            ge=0,
            le=1 << 44,
            description="total bytes (dd: bs times count); 0: the file's size or the whole device",
        ),
    ] = 0
    time_s: Annotated[
        Duration,
        Meta(
            ge=0, le=3600, description="stop after the block that passes this time (hdparm: 3 s); 0: no limit"
        ),
    ] = 0.0
    pause_s: Annotated[
        Duration,
        Meta(ge=0, le=60, description="sync(2) and pause this long first (hdparm: 3 s); 0: neither"),
    ] = 0.0
    direct: Annotated[bool, Meta(description="bypass the page cache (O_DIRECT)")] = False
    sync: Annotated[
        Literal["none", "sync", "dsync"],
        Meta(description="O_SYNC or O_DSYNC: every write waits for the disk (dd: oflag)"),
    ] = "none"
    flush: Annotated[
        Literal["none", "fsync", "fdatasync"],
        Meta(description="after the last write, timed (dd: conv)"),
    ] = "none"
    truncate: Annotated[
        bool, Meta(description="empty the file first, untimed; false: conv=notrunc of dd")
    ] = True
    data: Annotated[
        Line, Meta(description='content to write: "zeros", "random", or a share such as "50 % random"')
    ] = "zeros"
    as_published: Annotated[
        bool,
        Meta(
            description=(
                "keep cached pages and do the original's other work per block (dd: read /dev/zero or "
                "write /dev/null; hdparm: touch every sector)"
            )
        ),
    ] = False
    files: Annotated[
        int,
        Meta(
            ge=0,
            le=2 * MOST_STREAMS,
            description="how many files one run works on; 0: as many as its streams need (a copy needs one more for each)",
        ),
    ] = 0
    pool: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="how many files there are to draw from; left out: no more than one run works on",
        ),
    ] = 0
    size_bytes: Annotated[Size, Meta(ge=0, le=1 << 44, description="size of the file")] = 64 << 20

    @classmethod
    def made(cls, values: dict[str, Any]) -> Self:
        """Fill in the number of files if not given: as many as its streams need. A device has no files."""
        work = cls(**values)
        if work.on == "device":
            alone = {"files": 1, "pool": 1, "size_bytes": 0}
            return cls(**{**values, **alone})
        files = work.files or work.needed_files()
        return cls(**{"pool": files, **values, "files": files})

    def needed_files(self) -> int:
        """Return how many files the streams work on, counted as in the probe."""
        apart = 1 if self.shared else self.streams
        return apart + self.streams if self.operation == "copy" else apart

    def check(self) -> None:
        super().check()
        if self.on == "file" and self.files < self.needed_files():
            raise Problem(f"these streams need {self.needed_files()} files, found {self.files}", "files")
        self._check_streams()
        if self.replicates != 1:
            raise Problem(
                "a stream runs once per run", "replicates", hint="use a larger volume for a longer run"
            )
        self._check_writing()
        if self.direct and self.block_size_bytes % SECTOR_BYTES:
            raise Problem(
                f"direct I/O needs whole sectors of {SECTOR_BYTES} bytes, found {self.block_size_bytes}",
                "block_size",
            )
        if self.on == "device":
            self._check_device()
        else:
            self._check_file()

    def _check_device(self) -> None:
        if self.lead_in_bytes % self.block_size_bytes:
            raise Problem(
                f"expected a multiple of the block size ({format_size(self.block_size_bytes)})", "lead_in"
            )
        if self.within and not self.volume_bytes:
            raise Problem("the number of random blocks is missing", "volume")
        if self.operation != "read":
            raise Problem("the lab's device is only read", "on", hint='write to a file: on = "file"')

    def _check_file(self) -> None:
        if self.position or self.within:
            name = "position" if self.position else "within"
            raise only_for(name, 'on = "device"')
        if self.lead_in_bytes:
            raise only_for("lead_in", 'on = "device"')
        reads = self.operation in ("read", "copy")
        if reads and self.volume_bytes % self.block_size_bytes and self.volume_bytes != self.size_bytes:
            raise Problem("a volume to read must be whole blocks, or the whole file", "volume")
        if self.operation != "read" and not (self.volume_bytes or self.size_bytes):
            raise Problem("there is nothing to write", "volume")

    def _check_streams(self) -> None:
        if self.on == "device" and (self.streams > 1 or self.shared):
            raise only_for("streams", 'on = "file"')
        if self.copy_with != "read-write":
            if self.operation != "copy":
                raise only_for("copy_with", "a copy")
            for name in ("direct", "as_published"):
                if getattr(self, name):
                    raise only_for(name, 'copy_with = "read-write"')

    def _check_writing(self) -> None:
        if not _SHARE.fullmatch(self.data):
            message = f'expected "zeros", "random", or a share such as "50 % random", found "{self.data}"'
            raise Problem(message, "data")
        if self.operation != "read" and self.time_s:
            raise only_for("time", "a read")
        if self.as_published and self.data != "zeros":
            raise Problem("as published, it writes from /dev/zero, which has only zeros", "data")
        plain = StreamWork(operation="write")
        for name in _NOT_OF[self.operation]:
            if getattr(self, name) != getattr(plain, name):
                raise only_for(name, "writing")

    def responses(self) -> tuple[ResponseSpec, ...]:
        """A read that ends at a given time has no ``wall`` response, which would not vary."""
        first = (_RATE,) if self.time_s else (_WALL, _RATE)
        synced = (SYNCED_RESPONSE,) if self.operation != "read" else ()
        return (*first, *CPU_RESPONSES, *DEVICE_RESPONSES, *synced)

    def default_cache(self) -> str | None:
        """Reading and copying start with a cold cache unless they are to start as published."""
        return "cold" if self.operation in ("read", "copy") and not self.as_published else None

    def described(self) -> str:
        words = [f"{self.operation} the {self.on} in blocks of {format_size(self.block_size_bytes)}"]
        if self.streams > 1:
            words = [f"{self.streams} streams, on {'one file' if self.shared else 'a file each'}, {words[0]}"]
        words += [f"at {format_percent(self.position)} of it"] if self.position else []
        words += [f"drawn from {format_percent(self.within)} of it"] if self.within else []
        words += [f"after {format_size(self.lead_in_bytes)} untimed"] if self.lead_in_bytes else []
        words += ["by copy_file_range"] if self.copy_with != "read-write" else []
        words += [format_size(self.volume_bytes)] if self.volume_bytes else []
        words += [f"for {format_duration(self.time_s)}"] if self.time_s else []
        words += ["direct"] if self.direct else []
        if self.operation in ("write", "rewrite"):
            words += [self.data]
        words += [word for word in (self.sync, self.flush) if word != "none"]
        words += ["as published"] if self.as_published else []
        return ", ".join(words)

    def probe_job(self, context: JobContext) -> dict[str, object]:
        common: dict[str, object] = {
            "operation": self.operation,
            "device": None if self.on_files() else context.device,
            "block_size": self.block_size_bytes,
            "volume": self.volume_bytes or None,
            "streams": self.streams,
            "shared": self.shared,
            "seconds": self.time_s or None,
            "direct": self.direct,
            "pause_s": self.pause_s,
            "evict": not self.as_published,
            "beside": self.as_published,
            "histograms": True,
        }
        if self.on == "device":
            common |= {
                "position": self.position,
                "within": self.within or None,
                "lead_in": self.lead_in_bytes,
            }
        if self.operation == "read":
            return common
        common |= {"sync": self.sync, "flush": self.flush, "truncate": self.truncate}
        if self.operation == "copy":
            return common | {"copy_with": self.copy_with}
        return common | {"data": self.data}

    def measured(self, answer: Mapping[str, Any], context: JobContext) -> Measured:
        # Subtract slowdown that was injected for another response, as for the wall time.
        spun = 0 if context.stretched == "rate" else answer["spun"]["wall_ns"]
        numbers = {
            "rate": answer["bytes"] * 1e9 / max(1, answer["wall_ns"] - spun),
            "stream_bytes": float(answer["bytes"]),
            "start_pages_resident": float(answer["start_resident"]),
        }
        if answer["short_block"]:
            numbers["short_block_bytes"] = float(answer["short_block"])
        if self.streams > 1:
            numbers |= among([stream["bytes_per_s"] for stream in answer["streams"]])
        return Measured(numbers, {name: found["histogram"] for name, found in answer["operations"].items()})

    def buffered(self) -> Self:
        return structs.replace(self, direct=False)

    def reads_bytes(self, size: int, files: int) -> int:
        if self.operation in ("write", "rewrite") or self.copy_with != "read-write":
            return 0  # copy_file_range may share blocks
        if self.time_s:
            return 1
        if self.on == "device":
            # the mounted file system keeps some of its blocks cached
            return max(1, self.volume_bytes // 2)
        # Streams that share a file each read it with direct I/O; through the cache it is read once.
        apart = self.streams if self.direct or not self.shared else 1
        return (self.volume_bytes or size) * apart

    def writes(self) -> bool:
        return self.operation != "read"

    def leaves_other_files(self) -> bool:
        return self.writes()

    def on_files(self) -> bool:
        return self.on == "file"

    def labs(self) -> frozenset[str]:
        return super().labs() if self.on_files() else DISK_LABS


def among(rates: Sequence[float]) -> dict[str, float]:
    """Compare streams that ran at once: Jain's fairness index of their rates in percent, the extremes, and the sum.

    Fairness is 100 if all rates are equal and 100/N if one stream had everything. The sum is what published
    totals report; it is not a rate at which data was ever moved.
    """
    squares = sum(rate * rate for rate in rates)
    return {
        "stream_fairness": 100.0 * sum(rates) ** 2 / (len(rates) * squares) if squares else 100.0,
        "stream_slowest_rate": min(rates),
        "stream_fastest_rate": max(rates),
        "stream_sum_of_own_rate": sum(rates),
    }


WORK = StreamWork
