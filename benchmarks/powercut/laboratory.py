"""Records work on a logged disk, cuts the power at every flush and at drawn states, and counts what is found."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from iotrial.lab.target import Target
from iotrial.powercut.log import WriteLog
from iotrial.powercut.record import BEGUN, Work, record
from iotrial.powercut.recover import Check, outcomes
from iotrial.powercut.states import VOLATILE, Cache
from iotrial.probe.client import Probe

SEED = f"{20261126:032x}"
#: bytes of the disk; XFS has a minimum, and ext4 keeps a second superblock from 128 MiB on
SIZES = {"ext4": 256 << 20, "xfs": 300 << 20, "btrfs": 256 << 20}
#: a tmpfs, for logs and images
MEMORY = Path("/dev/shm")


@dataclass
class Tally:
    """Counts of one log. ``distinct``: states that differ from each other; ``seconds``: for all of them, rebuilding
    included; ``examples``: the first of each verdict."""

    flushes: int = 0
    drawn: int = 0
    distinct: int = 0
    seconds: float = 0.0
    entries: int = 0
    acknowledged: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    shapes: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    @property
    def points(self) -> int:
        return self.flushes + self.drawn

    @property
    def bad(self) -> int:
        return self.points - self.verdicts["clean"]

    @property
    def rate(self) -> float:
        return self.distinct / self.seconds if self.seconds else 0.0

    def brief(self) -> str:
        """Return the counts in a cell of a table."""
        if not self.bad:
            return f"none of {self.points}"
        found = ", ".join(f"{word} {n}" for word, n in sorted(self.verdicts.items()) if word != "clean")
        example = next(text for word, text in self.examples.items() if word != "clean")
        return f"{found} of {self.points} ({example.split(';')[0].split('[')[0].strip()})"


@contextmanager
def lab() -> Iterator[Target]:
    """Yield an isolated probe, whose disks end with it."""
    with Probe(isolate=True) as probe:
        yield Target(probe)


def tried(
    target: Target,
    filesystem: str,
    work: Work,
    check: Check,
    *,
    drawn: int,
    options: str = "",
    mkfs_options: Sequence[str] = (),
    after: str = BEGUN,
    cache: Cache = VOLATILE,
    fsck_every: int = 0,
    seed: str = SEED,
    latency_us: float = 0.0,
    size_bytes: int = 0,
    at: Path | None = None,
) -> Tally:
    """Record ``work`` on a new file system, then check it at every flush and at ``drawn`` states after the mark ``after``.

    ``size_bytes``: of the disk, if not that of ``SIZES``.
    ``latency_us``: how long the recording disk takes for a write, which keeps more of them in flight.
    """
    model = None
    if latency_us:
        times = dict.fromkeys(("read_us", "write_us", "flush_us"), latency_us)
        rates = dict.fromkeys(("read_bytes_per_s", "write_bytes_per_s"), 2e9)
        model = {"flat": {**times, **rates, "jump_us": 0.0, "overhead_us": 0.0, "depth": 32}}
    with tempfile.TemporaryDirectory(prefix="iotrial-cut-", dir=MEMORY) as folder:
        log = Path(folder) / "log"
        record(
            target,
            log,
            filesystem,
            size_bytes or SIZES[filesystem],
            work,
            options=options,
            mkfs_options=mkfs_options,
            model=model,
            at=at,
        )
        with WriteLog(log) as read:
            return counted(
                target,
                read,
                filesystem,
                check,
                drawn=drawn,
                after=after,
                cache=cache,
                fsck_every=fsck_every,
                seed=seed,
                size_bytes=size_bytes,
                at=at,
            )


def counted(
    target: Target,
    log: WriteLog,
    filesystem: str,
    check: Check,
    *,
    drawn: int,
    after: str = BEGUN,
    cache: Cache = VOLATILE,
    fsck_every: int = 0,
    seed: str = SEED,
    size_bytes: int = 0,
    at: Path | None = None,
) -> Tally:
    """Check every state of a log."""
    start = log.marked(after)
    tally = Tally(entries=len(log) - start, acknowledged=len([m for m in log.marks if m.entry > start]))
    began = time.monotonic()
    found = outcomes(
        target, log, size_bytes or SIZES[filesystem], filesystem, check,
        seed=seed, drawn=drawn, after=start, cache=cache, fsck_every=fsck_every, memory=MEMORY, at=at,
    )  # fmt: skip
    for checked in found:
        point, outcome = checked.point, checked.outcome
        tally.distinct += not checked.repeated
        if point.kind == "flush":
            tally.flushes += 1
        else:
            tally.drawn += 1
        tally.verdicts[outcome.verdict] += 1
        if outcome.verdict != "clean":
            tally.shapes[point.shape] += 1
            what = " ".join("; ".join((*outcome.lost, *outcome.corrupt, outcome.says)).split())[:400]
            tally.examples.setdefault(
                outcome.verdict, f"{what} [{point.kind} {point.index} at {point.entry}, {point.shape}]"
            )
    tally.seconds = time.monotonic() - began
    return tally
