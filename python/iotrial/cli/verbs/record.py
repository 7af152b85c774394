"""``iotrial record``: record the file operations of a command, or of a running process, as a trace."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import click
from msgspec import Meta

from iotrial.cli.options import AFTER, OwnCommand, force_option, in_group, json_option
from iotrial.cli.output import tell, warn
from iotrial.cli.recordings import end_with, marked_environment
from iotrial.cli.run_request import quantity_of
from iotrial.documents import Count, JsonDocument, JsonObject, json_text
from iotrial.errors import IotrialError, MissingTool, NotSupported, PrivilegeError, ProbeError, RequestError
from iotrial.output_files import PRIVATE, output_file, refuse_taken
from iotrial.ownership import invoking_user
from iotrial.probe.binary import find_binary
from iotrial.report.notation import counted
from iotrial.terminal import escape
from iotrial.units import format_bytes, format_duration, parse_size

recorded = in_group("What is recorded")
written = in_group("The trace")

#: the buffer that holds events until they are decoded
_BUFFER = "32 MiB"
_SMALLEST_BUFFER = 4096
_LARGEST_BUFFER = 1 << 30
#: ends of a command that are no failure: Ctrl-C is how to end a recording
_ASKED_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Facts(JsonObject, frozen=True):
    """What was recorded."""

    operations: Count
    threads: Count
    files: Count
    read_bytes: Count
    written_bytes: Count
    lost: Annotated[int, Meta(ge=0, description="events that were not recorded")]
    beyond: Annotated[
        int, Meta(ge=0, description="of those, operations of threads or on files beyond what a trace holds")
    ]
    elsewhere: Annotated[
        int, Meta(ge=0, description="operations on other files, pipes and sockets: only counted")
    ]
    guessed: Annotated[int, Meta(ge=0, description="files with a guessed size before the start")]
    duration_ns: Count
    trace_bytes: Count
    under: str
    complete: Annotated[bool, Meta(description="all names of the folder were read before the start")]
    faults: Annotated[bool, Meta(description="this kernel shows page faults of mapped files")]
    uring: Annotated[bool, Meta(description="this kernel shows requests of io_uring")]
    exit_code: Annotated[int | None, Meta(description="of the command; null with --pid")]
    signal: Annotated[int | None, Meta(description="that ended the command")]


class Recorded(JsonDocument, frozen=True):
    """iotrial record --json"""

    trace: str
    recorded: Facts


#: the kernel's limit (PID_MAX_LIMIT in include/linux/threads.h)
MOST_PID = 1 << 22


@click.command("record", cls=OwnCommand)
@recorded(
    "--pid",
    type=click.IntRange(1, MOST_PID),
    metavar="P",
    help="Record a running process with all its threads and children, until it ends or Ctrl-C.",
)
@recorded(
    "--under",
    metavar="FOLDER",
    help="Record files in this folder (default: the current folder of the command or process).",
)
@written("-o", "--output", metavar="FILE", required=True, help="File for the trace, such as app.iotrace.")
@written("--hash-names", is_flag=True, help="Replace names of files by hashes that cannot be turned back.")
@written(
    "--buffer",
    metavar="SIZE",
    default=_BUFFER,
    help=f"Memory for events that are not yet written ({_BUFFER}); more if operations are lost.",
)
@force_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, as_json: bool, **values: Any) -> int:
    """Record the file operations of an application, to look at them or to replay them. No contents are stored.

      iotrial record -o app.iotrace -- ./app --its options

      iotrial record -o db.iotrace --pid 4711 --under /var/lib/mysql

    It needs root. Operations on files outside the folder are only counted.
    """
    words = ctx.meta.get(AFTER, ())
    pid, output = values["pid"], Path(values["output"]).expanduser()
    force = values["force"]
    ring_bytes = _buffer(values["buffer"])
    _check(words, pid, output)
    refuse_taken(output, force=force)
    options = ["--ring", str(ring_bytes)]
    if values["under"]:
        options += ["--under", str(Path(values["under"]).expanduser())]
    if values["hash_names"]:
        options.append("--hash-names")
    options += ["--pid", str(pid)] if pid else ["--", *words]
    found = _recorded(output, options, by_pid=pid is not None, force=force)
    if as_json:
        click.echo(json_text(Recorded(str(output), found)))
    else:
        _tell(found, output)
    return int(_failed(found))


def _check(words: tuple[str, ...], pid: int | None, output: Path) -> None:
    """Raise an error for what cannot be recorded."""
    if bool(words) == (pid is not None):
        raise RequestError(
            "expected a command or --pid",
            hint="iotrial record -o app.iotrace -- ./app, or iotrial record -o app.iotrace --pid 4711",
        )
    if words and shutil.which(words[0]) is None:
        raise MissingTool(f"{escape(words[0])}: no such program")
    if pid is not None and not Path(f"/proc/{pid}").exists():
        raise RequestError(
            f"no process has the number {pid}", hint="`pgrep -a NAME` shows numbers of processes"
        )
    if not output.parent.is_dir():
        raise RequestError(
            f"{escape(output)}: there is no folder {escape(output.parent)}",
        )
    if os.geteuid() != 0:
        raise PrivilegeError("recording")


def _buffer(text: str) -> int:
    """Return the size of the buffer in bytes: the next power of two."""
    size = quantity_of("--buffer", text, parse_size) or 0
    if not _SMALLEST_BUFFER <= size <= _LARGEST_BUFFER:
        raise RequestError(f"--buffer {escape(text)}: expected 4 KiB to 1 GiB")
    return 1 << (size - 1).bit_length()


def _recorded(output: Path, options: list[str], *, by_pid: bool, force: bool) -> Facts:
    """Record into a file of the user's that only its owner can read. What was written before a failure is kept."""
    failure: IotrialError | None = None
    with output_file(output, force=force, mode=PRIVATE, owner=invoking_user(), streamed=True) as file:
        # opened once more through this process: the command must not inherit it
        name = f"/proc/{os.getpid()}/fd/{file.fileno()}"
        try:
            return _run(["--output", name, *options], by_pid=by_pid)
        except IotrialError as error:
            error.message = error.message.replace(name, escape(output))
            if not os.fstat(file.fileno()).st_size:
                raise
            error.hint = f"what was recorded until then can be read: `iotrial show {escape(output)}`"
            failure = error
    raise failure


def _run(options: list[str], *, by_pid: bool) -> Facts:
    """Run the probe until the recording ends; signals end the recording, not this program."""
    reading, writing = os.pipe()
    argv = [str(find_binary()), "record", "--report", str(writing), *options]
    process: subprocess.Popen[bytes] | None = None

    def end(number: int, _: FrameType | None) -> None:
        # The terminal sends Ctrl-C to the probe as well.
        if process is not None and (by_pid or number == signal.SIGTERM):
            process.send_signal(number)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        process = subprocess.Popen(
            argv,
            pass_fds=(writing,),
            env=marked_environment(),
            preexec_fn=partial(end_with, os.getpid()),
        )
        os.close(writing)
        with os.fdopen(reading, "rb") as report:
            text = report.read()
        process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    try:
        answer = json.loads(text)
    except ValueError:
        raise ProbeError(
            "the recorder died", hint="what it had written can be read: `iotrial show` says up to where"
        ) from None
    if "error" in answer:
        raise _error(answer["error"])
    return Facts(**answer["ok"])


def _error(answer: dict[str, Any]) -> Exception:
    message = str(answer["message"])
    match answer["code"]:
        case "bad_request":
            return RequestError(message, hint="`iotrial record --help` shows its options")
        case "unsupported":
            return NotSupported(message)
    return ProbeError(message)


def _failed(found: Facts) -> bool:
    """Return whether the command failed."""
    if found.signal is not None:
        return found.signal not in _ASKED_TO_END
    return bool(found.exit_code)


def _tell(found: Facts, output: Path) -> None:
    """Print the summary on standard error: standard output is the command's."""

    def say(text: str) -> None:
        tell(text, err=True, fold=4)

    name = escape(output)
    if _failed(found):
        how = f"signal {found.signal}" if found.signal is not None else f"status {found.exit_code}"
        warn(f"the command ended with {how}; what it did is recorded")
    say(
        f"{name}: {counted(found.operations, 'operation')} of {counted(found.threads, 'thread')} on "
        f"{counted(found.files, 'file')} in {format_duration(found.duration_ns / 1e9)}; "
        f"read {format_bytes(found.read_bytes)}, wrote {format_bytes(found.written_bytes)}; "
        f"{found.elsewhere:,} elsewhere; the trace takes {format_bytes(found.trace_bytes)}"
    )
    if found.lost > found.beyond:
        warn(
            f"{counted(found.lost - found.beyond, 'event')} lost, and the trace says so: record again with a larger --buffer"
        )
    if found.beyond:
        warn(
            f"{counted(found.beyond, 'operation')} left out: a trace holds 4,096 threads, 1,048,576 files and "
            f"134,217,728 operations; record a shorter time"
        )
    if found.guessed:
        say(f"note: the size of {counted(found.guessed, 'file')} before the start is a guess")
    if not found.operations:
        say(f"hint: nothing was done in {escape(found.under)}: name the application's folder with --under")
        return
    say(f"next: `iotrial show {escape(shlex.quote(str(output)))}`")
