"""Read a trace through the probe: its summary, its log for fio, and what its replay needs."""

from __future__ import annotations

import subprocess
from pathlib import Path

from iotrial.decoding import decode
from iotrial.documents import Count, JsonObject
from iotrial.errors import ProbeError, RequestError
from iotrial.probe.binary import find_binary
from iotrial.terminal import escape
from iotrial.traces.summary import TraceSummary

#: what the name of a trace ends with
SUFFIX = ".iotrace"
#: what its content begins with
_MAGIC = b"iotrace\n"


class LogFile(JsonObject, frozen=True):
    """A file that must exist before fio replays the log of a trace."""

    name: str
    size: Count


class ReplayNeeds(JsonObject, frozen=True, forbid_unknown_fields=False):
    """What the replay of a trace needs.

    ``stored_bytes`` are those of its files at the start, ``growth_bytes`` what it may add to them. ``duration_ns`` is the
    time of the recording. ``lost``: operations that could not be recorded. ``complete`` is false if the recording was cut
    off.
    """

    operations: Count
    files: Count
    stored_bytes: Count
    growth_bytes: Count
    duration_ns: Count
    complete: bool
    lost: Count


def is_trace(name: str) -> bool:
    """Return whether this is a trace, by its name or its content."""
    if name.endswith(SUFFIX):
        return True
    try:
        path = Path(name).expanduser()
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except (OSError, ValueError, RuntimeError):  # no permission, a zero byte, no such user
        return False


def summary_of(trace: Path) -> TraceSummary:
    """Return what a trace says. Raises RequestError if it is missing, damaged or no trace."""
    return decode(_output("summary", trace), TraceSummary)


def replay_needs(trace: Path) -> ReplayNeeds:
    """Return what the replay of a trace needs. Raises RequestError as ``summary_of``, and for a trace that is too long or
    has no operations.
    """
    return decode(_output("replay", trace), ReplayNeeds)


def log_files(trace: Path) -> list[LogFile]:
    """Return the files that the log of a trace needs. Raises RequestError as ``summary_of``."""
    return decode(_output("iolog-files", trace), list[LogFile])


def print_log(trace: Path) -> None:
    """Write the trace as a log of fio to standard output. Raises RequestError as ``summary_of``."""
    _output("iolog", trace, to_standard_output=True)


def _output(command: str, trace: Path, *, to_standard_output: bool = False) -> bytes:
    if not trace.is_file():
        problem = "is a folder" if trace.is_dir() else "no such file"
        raise RequestError(
            f"{escape(trace)}: {problem}", hint="`iotrial record -o FILE -- COMMAND` makes a trace"
        )
    argv = [str(find_binary()), "trace", command, str(trace)]
    # The inherited standard output is written by the probe itself: a log may be larger than memory.
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=None if to_standard_output else subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    if done.returncode == 1:
        message = done.stderr.decode(errors="replace").strip()
        if "Broken pipe" in message:
            raise BrokenPipeError
        raise RequestError(
            escape(message),
            hint="a trace is what `iotrial record` writes; if it was copied, compare the sizes",
        )
    if done.returncode != 0:
        raise ProbeError(
            f"the probe cannot read traces (exit status {done.returncode})",
            hint="the versions of package and probe differ: install again",
        )
    return done.stdout or b""
