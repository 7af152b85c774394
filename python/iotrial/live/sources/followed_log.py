"""A pattern in a log that a program writes.

A line counts in the window in which it arrives in the file. A program that buffers its log for seconds shifts lines into
later windows: switch buffering off, or use a longer washout.

The log is followed through rotation. If it is renamed, the old file is read on for some seconds, and the new one from its
beginning. If it is cut off in place (logrotate's ``copytruncate``), reading goes on at its beginning; lines written between
copy and cut are lost, as they are for everybody.
"""

from __future__ import annotations

import math
import os
import stat
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from iotrial.errors import RequestError
from iotrial.live.sources.base import (
    Metric,
    MetricLost,
    Polled,
    Reading,
    WindowVoid,
    elapsed_s,
    nearest_rank,
    no_number,
    nothing,
    unreadable,
)
from iotrial.patterns import MOST_CPU_S, Pattern, PatternError
from iotrial.units import measured

#: time between two looks at the file
EVERY_S = 1.0
#: how long the log may be gone: rotation takes moments
GONE_S = 5.0
#: how long a renamed log is read on
LINGERS_S = 10.0
_PIECE = 1 << 18
#: bytes read in one go; a log that grows faster makes the metric late, and in the end lost
MOST_AT_ONCE = 64 << 20
#: a longer line is read in parts, and only its first part is searched
LONGEST_LINE = 16_384
#: values of one window; 8 bytes each
MOST_VALUES = 4_000_000
_LONGEST_REGEX = 1000
#: number of bytes between two checks of the CPU time used
_CHECKED_AFTER = 1 << 16


@dataclass(frozen=True, slots=True)
class Found:
    """What the lines since the reading before held: the number of lines that match, and their values."""

    lines: int = 0
    values: array[float] = field(default_factory=lambda: array("d"))
    #: lines may be missing
    missed: bool = False


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
        #: a reading failed, so lines may be missing from the next one
        self._missed = False
        self.reach_s = 0.0

    def read(self) -> Found:
        missed, self._missed = self._missed, True
        found = found_in(self._follower.lines(), self._pattern, self.name)
        self._missed = False
        return replace(found, missed=missed)

    def value(self, readings: Sequence[Reading[Found]]) -> float:
        # the first reading has what came before the window
        parts = [one.value for one in readings[1:]]
        if any(part.missed for part in parts):
            raise WindowVoid(f"metric {self.name}: lines may be missing from this window")
        lines = sum(part.lines for part in parts)
        if self._take == "count":
            return float(lines)
        if self._take == "rate":
            return lines / elapsed_s(readings)
        values = array("d")
        for part in parts:
            values.extend(part.values)
            if len(values) > MOST_VALUES:
                raise MetricLost(f"metric {self.name}: more than {MOST_VALUES:,} lines", hint="take :mean")
        if not values:
            raise nothing(self.name)
        if self._take == "mean":
            return math.fsum(values) / len(values)
        return nearest_rank(sorted(values), float(self._take[1:]) / 100.0)

    def stop(self) -> None:
        super().stop()
        self._follower, self._missed = Follower(self._path), False

    def release(self) -> None:
        self._follower.close()


def regex_of(text: str) -> Pattern:
    """Compile a pattern for the bytes of a line. Raises RequestError."""
    if not text or len(text) > _LONGEST_REGEX:
        raise RequestError(
            f"log: expected a regular expression of at most {_LONGEST_REGEX} characters",
            hint="log:FILE:REGEX:mean",
        )
    try:
        found = Pattern(text, of_bytes=True)
    except PatternError as error:
        raise RequestError(f"log: {text[:60]!r}: {error}", hint=error.hint) from None
    if found.groups > 1:
        raise RequestError(
            f"log: {text[:60]!r}: expected at most one group, found {found.groups}",
            hint="(?:...) is no group",
        )
    return found


def found_in(lines: Sequence[bytes], pattern: Pattern, name: str) -> Found:
    """Search lines. Raises MetricLost if what the group holds is not a number, or if the search takes too long."""
    values = array("d")
    count = size = 0
    until_s = time.thread_time() + MOST_CPU_S
    for line in lines:
        size += len(line)
        if size > _CHECKED_AFTER:
            size = 0
            if time.thread_time() > until_s:
                raise MetricLost(
                    f"metric {name}: the pattern takes more than {MOST_CPU_S:g} s of processor time",
                    hint="shorten the pattern, or read more often with every=",
                )
        match = pattern.search(line)
        if match is None:
            continue
        count += 1
        if pattern.groups:
            values.append(_value(match[1], name))
    return Found(count, values)


def _value(text: bytes | None, name: str) -> float:
    found = measured(text or b"")
    if found is None:
        raise no_number(f"metric {name}: group", (text or b"")[:40])
    return found


class Follower:
    """Reads what is added to a file, through rotation. The first call goes to its end and returns nothing.

    Each open file is in one place, ``_now`` or ``_before``, and is closed when it leaves it.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._now: _OpenLog | None = None
        self._before: _OpenLog | None = None
        self._before_until = 0.0
        self._gone_since: float | None = None
        self._begun = False

    def lines(self) -> list[bytes]:
        """Return the whole lines since the last call, without line ends. Raises MetricLost if the file is gone for long."""
        if not self._begun:
            self._now = _OpenLog(self._path)
            self._now.skip()
            self._begun = True
            return []
        found = self._of_before()
        if self._now is not None:
            found += self._now.added()
            if self._replaced(self._now):
                self._forget_before()
                self._before, self._now = self._now, None
                self._before_until = time.monotonic() + LINGERS_S
        if self._now is None:
            self._now = self._opened_again()
            if self._before is not None:
                found += self._before.added()
            if self._now is not None:
                found += self._now.added()
        return found

    def close(self) -> None:
        """Close the files."""
        self._forget_before()
        if self._now is not None:
            self._now.close()
            self._now = None

    def _of_before(self) -> list[bytes]:
        """Return what was added to a renamed log: programs write to it until they open their log again."""
        if self._before is None:
            return []
        found = self._before.added()
        if time.monotonic() > self._before_until:
            found += self._before.rest()
            self._forget_before()
        return found

    def _forget_before(self) -> None:
        if self._before is not None:
            self._before.close()
            self._before = None

    def _replaced(self, log: _OpenLog) -> bool:
        """Return whether another file has the name now. Raises MetricLost if none has it for long."""
        try:
            now = Path(self._path).stat()
        except OSError as error:
            self._miss(unreadable(self._path, error.strerror).message)
            return False
        if log.same_as(now):
            self._gone_since = None
            return False
        return True

    def _opened_again(self) -> _OpenLog | None:
        """Return the file that has the name now; None if there is none that can be read. Raises MetricLost if that lasts."""
        try:
            found = _OpenLog(self._path)
        except MetricLost as lost:
            self._miss(lost.message)
            return None
        self._gone_since = None
        return found

    def _miss(self, what: str) -> None:
        """Note that the log is not there. Raises MetricLost if that is so for longer than a rotation takes."""
        self._gone_since = self._gone_since or time.monotonic()
        if time.monotonic() - self._gone_since > GONE_S:
            raise MetricLost(what)


class _OpenLog:
    """An open file, and how far it was read."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            # Looked at before it is opened: to open a pipe or a device may do something.
            held = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                if not stat.S_ISREG(os.fstat(held).st_mode):
                    raise unreadable(path, "not a plain file")
                self._file = os.open(f"/proc/self/fd/{held}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            finally:
                os.close(held)
        except OSError as error:
            raise unreadable(path, error.strerror) from error
        self._at = 0
        self._lines = Lines()
        try:
            self._refuse_full()
        except MetricLost:
            self.close()
            raise

    def same_as(self, status: os.stat_result) -> bool:
        """Return whether this is the file with that status."""
        here = os.fstat(self._file)
        return (status.st_dev, status.st_ino) == (here.st_dev, here.st_ino)

    def skip(self) -> None:
        """Go to the end. A line of which a part is there already is left out."""
        self._at = os.lseek(self._file, 0, os.SEEK_END)
        self._lines = Lines(inside_one=self._at > 0 and os.pread(self._file, 1, self._at - 1) != b"\n")

    def added(self) -> list[bytes]:
        """Return the lines that are whole since the last call. Raises MetricLost."""
        status = os.fstat(self._file)
        try:
            self._refuse_full()
        except MetricLost:
            self.skip()  # a line that did not fit is missing, or cut off and joined to the next one
            raise
        if status.st_size < self._at:  # cut off in place
            self._at, self._lines = 0, Lines()
        found: list[bytes] = []
        taken = 0
        while taken < MOST_AT_ONCE:
            try:
                piece = os.pread(self._file, _PIECE, self._at)
            except OSError as error:
                raise unreadable(self._path, error.strerror) from error
            if not piece:
                return found
            self._at += len(piece)
            taken += len(piece)
            found += self._lines.split(piece)
        raise unreadable(self._path, f"more than {MOST_AT_ONCE >> 20} MiB since the last reading")

    def _refuse_full(self) -> None:
        if _is_full(os.fstatvfs(self._file), owner=os.fstat(self._file).st_uid):
            raise unreadable(self._path, "its file system is full")

    def rest(self) -> list[bytes]:
        """Return the last line, if it has no end."""
        return [self._lines.rest] if self._lines.rest else []

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def _is_full(room: os.statvfs_result, *, owner: int) -> bool:
    """Return whether a file system has no room for a line of the log's owner. One without a size (0 blocks) is never full."""
    blocks = room.f_bfree if owner == 0 else room.f_bavail
    return room.f_blocks > 0 and blocks * room.f_frsize < LONGEST_LINE


class Lines:
    """Splits bytes that arrive in pieces into lines. ``rest`` is the beginning of the next one."""

    def __init__(self, *, inside_one: bool = False) -> None:
        self.rest = b""
        self._dropping = inside_one

    def split(self, piece: bytes) -> list[bytes]:
        """Return the lines that this piece completes; of one that is too long, its beginning as soon as it is."""
        *whole, rest = (self.rest + piece).split(b"\n")
        if whole and self._dropping:
            whole, self._dropping = whole[1:], False
        if self._dropping:
            rest = b""
        elif len(rest) > LONGEST_LINE:
            whole.append(rest)
            rest, self._dropping = b"", True
        self.rest = rest
        return [line[:LONGEST_LINE] for line in whole]
