"""Workload kind ``replay``: the file operations of a recorded application, repeated inside the probe.

The trace (``iotrial record``) is a file next to the study. The study keeps its checksum and folder, not its content.
Before each run the probe makes the files that the application had, and those again that a run has changed.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from msgspec import Meta

from iotrial.errors import LARGER_LAB, LabError, NoSpace, TargetError, repeated, twice, unknown
from iotrial.study.input_files import checksum_of, stamp_of
from iotrial.study.places import GUEST, IN_PLACE
from iotrial.study.scales import Better, Scale
from iotrial.study.schema import Line, Problem
from iotrial.study.work import (
    CPU_RESPONSES,
    DEVICE_RESPONSES,
    SYNCED_RESPONSE,
    HasOwnData,
    JobContext,
    LabContext,
    Measured,
    ResponseSpec,
    Work,
    only_for,
    rate_response,
    time_response,
    to_take_off,
)

#: limits of the scale of times; the same as the probe's
SLOWEST, FASTEST = 1e-3, 1e3
#: a run fell behind if more operations than this share (percent) started later than the probe's limit of 10 ms
MOST_BEHIND = 1.0
PERCENTILES = {"p50": "median", "p99": "99th percentile", "p999": "99.9th percentile"}
LATE = {"p50": "median", "p99": "99th percentile", "max": "largest"}
#: evidence of a run: the operations that the recording lacks
LOST = "replay_lost"
#: key among the checks of a run
CHECKS = "replay"
_CHECKSUM = re.compile(r"[0-9a-f]{64}")
#: by path: the version of a trace's file that was checked, and its checksum
_checked: dict[str, tuple[tuple[int, ...], str]] = {}

Call = Literal[
    "read",
    "write",
    "fsync",
    "fdatasync",
    "open",
    "close",
    "stat",
    "truncate",
    "rename",
    "unlink",
    "fault",
    "send",
    "copy",
    "readdir",
    "allocate",
    "sync",
    "sync_file_range",
]


def _latencies(name: str, what: str) -> tuple[ResponseSpec, ...]:
    # The injected slowdown comes after all operations, so a percentile does not include it.
    return tuple(
        time_response(f"{name}_{short}", f"{text} of the time of {what}", stretchable=False)
        for short, text in PERCENTILES.items()
    )


_WALL = time_response("wall", "time from the start of the replay to the end of its last operation")
_RATE = rate_response("rate", "1/s", "operations per second of it")
_ALL = _latencies("operation", "one operation")
# By difference, because an operation that is on time is late by nothing.
_LATE = tuple(
    ResponseSpec(
        f"late_{short}",
        "s",
        Scale.DIFFERENCE,
        Better.LOWER,
        f"{text} delay of an operation after its recorded time",
        stretchable=False,
    )
    for short, text in LATE.items()
)
_OTHER = ResponseSpec(
    "other_results",
    "1",
    Scale.DIFFERENCE,
    Better.LOWER,
    "operations with another result than recorded",
    stretchable=False,
)
_BEHIND = ResponseSpec(
    "behind_share",
    "%",
    Scale.DIFFERENCE,
    Better.LOWER,
    "operations that started more than 10 ms after their recorded time",
    stretchable=False,
)
_DEVICE = (*DEVICE_RESPONSES, SYNCED_RESPONSE)


class ReplayWork(HasOwnData, Work, frozen=True, kw_only=True):
    """The file operations of a trace, repeated on files like those that the application had."""

    kind = "replay"
    about = "The recorded file operations of an application (iotrial record), repeated inside the probe."
    documented = (
        _WALL,
        _RATE,
        *_ALL,
        *_latencies("CALL", "one call of this name"),
        *_LATE,
        _BEHIND,
        _OTHER,
        *CPU_RESPONSES,
        *_DEVICE,
    )
    options = ("timing", "speed", "calls", "fragments")
    unstretchable = "percentiles of single operations"
    input_files = {"trace": ("checksum", "folder")}
    verb = "replay"

    trace: Annotated[
        Line, Meta(description="recording to replay (`.iotrace`), relative to the study file; not stored")
    ]
    timing: Annotated[
        Literal["closed", "flat-out", "open"],
        Meta(
            description=(
                "`closed`: pauses between the operations of a thread as recorded; `flat-out`: no pauses; "
                "`open`: each operation at its recorded time, even if others are late"
            )
        ),
    ] = "closed"
    speed: Annotated[
        float, Meta(ge=SLOWEST, le=FASTEST, description="divides the recorded pauses and times")
    ] = 1.0
    calls: Annotated[
        Literal["recorded", "io_uring"],
        Meta(description="the recorded system calls, or reads, writes and syncs by io_uring"),
    ] = "recorded"
    fragments: Annotated[
        bool,
        Meta(description="lay files out in as many extents as recorded, if the file system lets it"),
    ] = False
    latencies: Annotated[
        tuple[Call, ...],
        Meta(max_length=8, description="calls with their latencies as responses"),
    ] = ()
    checksum: Annotated[Line, Meta(description="SHA-256 of the trace; filled in when the study is read")] = ""
    folder: Annotated[
        Line, Meta(description="folder that `trace` is relative to; filled in when the study is read")
    ] = ""

    def check(self) -> None:
        parts = PurePosixPath(self.trace).parts
        if not parts or self.trace.startswith("/") or ".." in parts:
            raise Problem("expected the path of a file below the study's folder", "trace")
        if not _CHECKSUM.fullmatch(self.checksum):
            raise Problem("expected a SHA-256 in hexadecimal digits", "checksum")
        if not self.folder.startswith("/"):
            raise Problem("expected an absolute path", "folder")
        if self.timing == "flat-out" and self.speed != 1.0:
            raise only_for("speed", 'timing = "closed"')
        if (again := repeated(self.latencies)) is not None:
            raise Problem(twice("call", again), "latencies")

    def responses(self) -> tuple[ResponseSpec, ...]:
        """With recorded times the recording sets the duration, so the latency tail (p99) comes first."""
        own = [spec for call in self.latencies for spec in _latencies(call, f"one {call}")]
        first = [*own, *_ALL]
        rest = (*CPU_RESPONSES, *_DEVICE, _OTHER)
        if self.timing == "open":
            first.sort(key=lambda spec: not spec.name.endswith("_p99"))
            return (*first, *_LATE, _BEHIND, _WALL, _RATE, *rest)
        return (_WALL, _RATE, *first, *rest)

    def remark(self) -> str:
        if self.timing != "open":
            return ""
        return "A replay at recorded times: latency counts from the actual start of each operation"

    def described(self) -> str:
        pace = {
            "closed": "recorded pauses",
            "flat-out": "no pauses",
            "open": "recorded times",
        }[self.timing]
        words = [f"replay of {self.trace} (SHA-256 {self.checksum[:12]})", pace]
        words += [f"{self.speed:g} times as fast"] if self.speed != 1.0 else []
        words += ["by io_uring"] if self.calls == "io_uring" else []
        words += ["files in fragments"] if self.fragments else []
        return ", ".join(words)

    def probe_job(self, context: JobContext) -> dict[str, object]:
        assert context.lab is not None
        return {
            "folder": self._tree(context.lab),
            "timing": self.timing,
            "speed": self.speed,
            "calls": self.calls,
            "histograms": True,
        }

    def measured(self, answer: Mapping[str, Any], context: JobContext) -> Measured:
        operations, count = answer["operations"], answer["all"]["count"]
        spun_wall, _ = to_take_off(answer, context.stretched)
        wall = answer["wall_ns"] / 1e9 - (0.0 if context.stretched == "rate" else spun_wall)
        numbers = {
            "rate": count / wall if wall > 0.0 else 0.0,
            "other_results": float(answer["differing"]),
            "replay_read_bytes": float(answer["bytes_read"]),
            "replay_written_bytes": float(answer["bytes_written"]),
        }
        for name, found in {"operation": answer["all"], **operations}.items():
            numbers |= {f"{name}_{short}": found[f"{short}_ns"] / 1e9 for short in PERCENTILES}
        if lost := answer["trace"]["lost"]:
            numbers[LOST] = float(lost)
        checks: dict[str, object] = {"operations": count, "other_results": answer["differing"]}
        if answer["first_differing"]:
            checks["first_other_result"] = str(answer["first_differing"])[:400]
        if answer["late"] is not None:
            share = 100.0 * answer["behind"] / count if count else 0.0
            numbers |= {f"late_{short}": answer["late"][f"{short}_ns"] / 1e9 for short in LATE}
            numbers["behind_share"] = share
            checks["fell_behind"] = share > MOST_BEHIND
        if not answer["trace"]["complete"]:
            checks["trace_cut_off"] = True
        if answer["trace"]["left_out"]:
            checks["left_out"] = answer["trace"]["left_out"]
        histograms = {name: found["histogram"] for name, found in operations.items()}
        return Measured(numbers, histograms, checks={CHECKS: checks})

    # its files

    def has_own_data(self) -> bool:
        return True

    def provide(self, lab: LabContext) -> None:
        path = f"{self.folder}/{self.trace}"
        self._check_trace(path)
        lab.target.call("mkdir", path=lab.own, mode="0755")
        facts = self._prepare(lab)["trace"]
        missing = [call for call in self.latencies if call not in facts["calls"]]
        if missing:
            message, hint = unknown("call of the trace", missing[0], facts["calls"], where=path)
            raise LabError(message, hint=hint)

    def warm(self, state: str) -> int:
        return 1 if state == "warm" else 0

    def warming(self, job: Mapping[str, object]) -> Mapping[str, object]:
        return {**job, "timing": "flat-out"}

    def settle(self, lab: LabContext, answer: Mapping[str, Any]) -> str | None:
        self._prepare(lab)
        return None

    def _prepare(self, lab: LabContext) -> dict[str, Any]:
        """Have the probe make the files, or those again that a run has changed. Raises NoSpace."""
        try:
            return lab.target.call(
                "replay_prepare",
                trace=f"{self.folder}/{self.trace}",
                folder=self._tree(lab),
                fragments=self.fragments,
                owner=None if lab.user is None else dict(lab.user),
            )
        except TargetError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise NoSpace(error.message, hint=LARGER_LAB) from error
            raise

    def _tree(self, lab: LabContext) -> str:
        return f"{lab.own}/replay-{self.checksum[:12]}{'-in-fragments' if self.fragments else ''}"

    def _check_trace(self, path: str) -> None:
        """Raise LabError if the trace is missing or is not the one of the study. Reads it only if it has changed."""
        try:
            stamp = stamp_of(Path(path))
            if _checked.get(path) != (stamp, self.checksum):
                found = checksum_of(Path(path))
                if found != self.checksum:
                    raise LabError(
                        f"the trace {path} is not the one of the study: SHA-256 {found[:12]}..., expected "
                        f"{self.checksum[:12]}...",
                        hint="a trial needs the same trace for all its runs; begin a new trial with this one",
                    )
                _checked[path] = (stamp, found)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise LabError(
                f"the trace {path} cannot be read: {reason}",
                hint="a study keeps only the checksum of a trace; put the file back",
            ) from error

    # what it needs

    def writes(self) -> bool:
        return False  # not to the files of its set

    def leaves_dirty(self) -> bool:
        return True

    def may_read_warm(self) -> bool:
        return True  # files opened with O_DIRECT, and those that do not fit into memory

    def on_files(self) -> bool:
        return False

    def labs(self) -> frozenset[str]:
        return super().labs() - {GUEST} | {IN_PLACE}

    def as_root(self) -> bool:
        return False

    def never_root(self) -> bool:
        return True


WORK = ReplayWork
