"""A pattern in a log that a program writes.

A line counts in the window in which it arrives in the file. A program that buffers its log for seconds shifts lines into
later windows: switch buffering off, or use a longer washout.

The log is followed through rotation. If it is renamed, the old file is read to its end, then the new one from its
beginning. If it is cut off in place (logrotate's ``copytruncate``), reading goes on at its beginning; lines written between
copy and cut are lost, as they are for everybody.
"""

from __future__ import annotations

import math
import os
import re
import stat
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from iotrial.errors import RequestError
from iotrial.live.sources.base import Metric, MetricLost, Polled, Reading, WindowVoid, elapsed_s, nearest_rank

#: time between two looks at the file
EVERY_S = 1.0
#: how long the log may be gone: rotation takes moments
GONE_S = 5.0
_PIECE = 1 << 18
#: bytes read in one go; a log that grows faster makes the metric late, and in the end lost
MOST_AT_ONCE = 64 << 20
#: a longer line is read in parts, and only its first part is searched
LONGEST_LINE = 16_384
#: values of one window; 8 bytes each
MOST_VALUES = 4_000_000
_LONGEST_REGEX = 1000


@dataclass(frozen=True, slots=True)
class Found:
    """What the lines since the reading before held: the number of lines that match, and their values."""

    lines: int = 0
    values: array[float] = field(default_factory=lambda: array("d"))


class FollowedLog(Polled[Found]):
    """Values, or a count, of the lines of a log that match. ``take`` is mean, rate, count or pNN; None: by the pattern."""

    def __init__(self, metric: Metric, path: str, pattern: str, take: str | None) -> None:
        super().__init__(metric)
        self._pattern = regex_of(pattern)
        self._take = take or ("mean" if self._pattern.groups else "rate")
        if self._take not in ("rate", "count") and not self._pattern.groups:
            raise RequestError(
                f"log: {self._take} needs a number in the line: put a group around it, as in 'took ([0-9.]+) ms'"
            )
        self._path = path
        self._follower = Follower(path)
        self.reach_s = 0.0

    def read(self) -> Found:
        return found_in(self._follower.lines(), self._pattern, self.name)

    def value(self, readings: Sequence[Reading[Found]]) -> float:
        # the first reading has what came before the window
        parts = [one.value for one in readings[1:]]
        lines = sum(part.lines for part in parts)
        if self._take == "count":
            return float(lines)
        if self._take == "rate":
            return lines / elapsed_s(readings)
        values = array("d")
        for part in parts:
            values.extend(part.values)
            if len(values) > MOST_VALUES:
                raise MetricLost(
                    f"metric {self.name}: more than {MOST_VALUES:,} lines in a window", hint="take :mean"
                )
        if not values:
            raise WindowVoid(f"metric {self.name}: no line of this window matches")
        if self._take == "mean":
            return math.fsum(values) / len(values)
        return nearest_rank(sorted(values), float(self._take[1:]) / 100.0)

    def stop(self) -> None:
        super().stop()
        self._follower.close()
        self._follower = Follower(self._path)


def regex_of(text: str) -> re.Pattern[bytes]:
    """Compile a pattern for the bytes of a line. Raises RequestError."""
    if not text or len(text) > _LONGEST_REGEX:
        raise RequestError(
            f"log: expected a regular expression of at most {_LONGEST_REGEX} characters",
            hint="log:FILE:REGEX:mean",
        )
    try:
        found = re.compile(text.encode("utf-8", "surrogateescape"))
    except (re.error, OverflowError, RecursionError) as error:
        raise RequestError(f"log: {text[:60]!r} is not a regular expression ({error})") from None
    if found.groups > 1:
        raise RequestError(
            f"log: expected at most one group in {text[:60]!r}, found {found.groups}",
            hint="(?:...) is no group",
        )
    return found


def found_in(lines: Sequence[bytes], pattern: re.Pattern[bytes], name: str) -> Found:
    """Search lines. Raises MetricLost if what the group holds is not a number."""
    values = array("d")
    count = 0
    for line in lines:
        match = pattern.search(line)
        if match is None:
            continue
        count += 1
        if pattern.groups:
            values.append(_value(match[1], name))
    return Found(count, values)


def _value(text: bytes | None, name: str) -> float:
    try:
        found = float(text or b"")
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise MetricLost(f"metric {name}: the group holds {(text or b'')[:40]!r}, expected a number")
    return found


class Follower:
    """Reads what is added to a file, through rotation. The first call goes to its end and returns nothing."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: int | None = None
        self._at = 0
        self._rest = b""
        self._dropping = False
        self._gone_since: float | None = None

    def lines(self) -> list[bytes]:
        """Return the whole lines since the last call, without line ends. Raises MetricLost if the file is gone for long."""
        if self._file is None:
            self._open()
            self._at = os.lseek(self._opened, 0, os.SEEK_END)
            # begin with a whole line
            self._dropping = self._at > 0 and os.pread(self._opened, 1, self._at - 1) != b"\n"
            return []
        found = self._added()
        if self._replaced():
            found += self._added()  # what was written between that and the renaming
            if self._rest:
                found.append(self._rest)  # no more will be added
            self._open()
            found += self._added()
        return found

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    @property
    def _opened(self) -> int:
        if self._file is None:
            raise MetricLost(f"log: {self._path} is not open")
        return self._file

    def _open(self) -> None:
        try:
            # not a pipe, which would wait for a writer
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise MetricLost(f"log: cannot read {self._path}: {error.strerror}") from error
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise MetricLost(f"log: {self._path} is not a plain file")
        self.close()
        self._file, self._at, self._rest, self._dropping = file, 0, b"", False

    def _replaced(self) -> bool:
        """Return whether another file has the name now."""
        try:
            now = Path(self._path).stat()
        except OSError as error:
            self._gone_since = self._gone_since or time.monotonic()
            if time.monotonic() - self._gone_since > GONE_S:
                raise MetricLost(f"log: {self._path} is gone for {GONE_S:g} s: {error.strerror}") from error
            return False
        self._gone_since = None
        here = os.fstat(self._opened)
        return (now.st_dev, now.st_ino) != (here.st_dev, here.st_ino)

    def _added(self) -> list[bytes]:
        found: list[bytes] = []
        size = os.fstat(self._opened).st_size
        if size < self._at:  # cut off in place
            self._at, self._rest, self._dropping = 0, b"", False
        taken = 0
        while taken < MOST_AT_ONCE:
            try:
                piece = os.pread(self._opened, _PIECE, self._at)
            except OSError as error:
                raise MetricLost(f"log: cannot read {self._path}: {error.strerror}") from error
            if not piece:
                return found
            self._at += len(piece)
            taken += len(piece)
            found += self._split(piece)
        raise MetricLost(f"log: {self._path} grows faster than {MOST_AT_ONCE >> 20} MiB between two readings")

    def _split(self, piece: bytes) -> list[bytes]:
        *whole, rest = (self._rest + piece).split(b"\n")
        if whole and self._dropping:
            whole, self._dropping = whole[1:], False
        if len(rest) > LONGEST_LINE:
            if not self._dropping:
                whole.append(rest)
            rest, self._dropping = b"", True
        self._rest = rest
        return [line[:LONGEST_LINE] for line in whole]
