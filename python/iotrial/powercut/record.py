"""Records what a piece of work writes to a fresh file system, with what it acknowledges."""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from iotrial.errors import LabError
from iotrial.lab.filesystem import FILESYSTEMS
from iotrial.lab.target import Target
from iotrial.powercut.disk import logged
from iotrial.powercut.enclosure import enclose
from iotrial.powercut.log import MARK_BYTES, LogError
from iotrial.powercut.mounts import enter_own_namespace, mount, sync_filesystem, unmount

# Records in the write log what a workload acknowledges, at the moment it does so and outside the disk under test.


class Marker:
    """A connection to the disk that logs. Use as a context manager. Safe for one thread.

    The socket is a Unix one of type SOCK_SEQPACKET: each message is the text of one mark, and is answered with one byte
    once the mark is in the log. So the mark follows all writes and flushes that completed before it was sent,
    and precedes those that begin after the answer.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._socket.connect(str(path))
        except BaseException:
            self._socket.close()
            raise

    def mark(self, text: str) -> None:
        """Put a mark into the log. Raises LogError if the text is too long, or if the disk has gone."""
        data = text.encode()
        if not 0 < len(data) <= MARK_BYTES:
            raise LogError(f"a mark has 1 to {MARK_BYTES} bytes, found {len(data)}")
        self._socket.sendall(data)
        if not self._socket.recv(1):
            raise LogError(f"mark {text!r}: the disk that logs has ended")

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


#: mark after mkfs and mount, before the work begins
BEGUN = "begun"
#: marks around the part of the work in which the power is cut
WORK_BEGUN, WORK_ENDED = "iotrial: begun", "iotrial: ended"
#: Work on the root of a file system. It runs in a child process.
Work = Callable[[Path, Marker], None]


def record(
    target: Target,
    log: Path,
    filesystem: str,
    size_bytes: int,
    work: Work,
    *,
    mkfs_options: Sequence[str] = (),
    options: str = "",
    model: dict[str, Any] | None = None,
    at: Path | None = None,
    enclosed: bool = False,
) -> None:
    """Make a file system on a disk that logs to ``log``, do the work on it, and unmount it.

    ``target``: an isolated probe. ``options``: mount options. ``model``: see ``disk.logged``. The mark ``BEGUN`` precedes the
    work. ``at``: an empty folder to mount on, for work that stores its own paths. ``enclosed``: the work cannot change this
    machine (``enclosure``). Raises LabError if the work fails.
    """
    with tempfile.TemporaryDirectory(prefix="iotrial-cut-") as name:
        folder = Path(name)
        marks, root = folder / "marks", at or folder / "root"
        root.mkdir(exist_ok=True)
        folder.chmod(0o711)  # the user of the work must reach the socket
        over = folder / "over" if enclosed else None
        if over is not None:
            over.mkdir()
        with logged(target, size_bytes, log, marks=marks, model=model) as disk:
            argv = [*FILESYSTEMS[filesystem].mkfs_argv(mkfs_options), disk.path]
            made = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
            if made.returncode != 0:
                raise LabError(f"{argv[0]} ended with {made.returncode}: {made.stderr.strip()[-400:]}")
            context = multiprocessing.get_context("fork")
            ours, theirs = context.Pipe(duplex=False)
            child = context.Process(
                target=_do,
                args=(theirs, os.getpid(), disk.path, filesystem, options, root, marks, work, over),
            )
            child.start()
            theirs.close()
            try:
                problem = ours.recv()
            except EOFError:
                problem = "its process died"
            child.join()
            ours.close()
        if problem:
            raise LabError(f"recording on {filesystem}: {problem}")


def _do(
    answers: Connection,
    parent: int,
    device: str,
    filesystem: str,
    options: str,
    root: Path,
    marks: Path,
    work: Work,
    over: Path | None,
) -> None:
    problem = ""
    try:
        enter_own_namespace(parent)
        if over is not None:
            enclose(over, device, marks)
        mount(device, root, filesystem, options)
        try:
            sync_filesystem(root)
            with Marker(marks) as marker:
                marker.mark(BEGUN)
                work(root, marker)
        finally:
            unmount(root)
    except LabError as error:
        problem = error.message
    except Exception:  # reported by the parent
        problem = traceback.format_exc()
    answers.send(problem)
