"""Mounts a disk as a power cut has left it, lets the file system recover, and checks what is there.

Mounting and checking happen in a child process with its own mount and PID namespaces: a check may hang, die of a damaged
file system or start daemons, and nothing of it stays mounted or running. After each check what it has left running is killed.
"""

from __future__ import annotations

import errno
import math
import multiprocessing
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from iotrial.errors import LabError, MissingTool
from iotrial.lab.machine.others import mounters_of, users_of
from iotrial.lab.target import Target
from iotrial.powercut.disk import over_image
from iotrial.powercut.enclosure import enclose
from iotrial.powercut.log import WriteLog
from iotrial.powercut.mounts import (
    end_all_others,
    enter_own_namespace,
    enter_own_processes,
    mount,
    unmount,
)
from iotrial.powercut.rebuild import Rebuilder
from iotrial.powercut.states import VOLATILE, Arrival, Cache, CutPoint, State, arrivals, cut_points, state_of


@dataclass(frozen=True, slots=True)
class Findings:
    """What a check found: acknowledged things that are missing, and things that are there but wrong.

    ``not_started``: why the service does not start, else empty.
    """

    lost: tuple[str, ...] = ()
    corrupt: tuple[str, ...] = ()
    not_started: str = ""


#: Checks a recovered file system: its root, and the texts of the marks before the cut. It must not change the caller's
#: state, because it runs in a child process. An OSError that it raises counts as corruption.
Check = Callable[[Path, Sequence[str]], Findings]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found after one cut.

    ``mounted``: the file system could be mounted without repair. ``needs_fsck``: it has to be repaired, either to be mounted
    or because its checker complains after recovery. ``lost``, ``corrupt`` and ``not_started``: see ``Findings``. ``says``:
    messages of mount and fsck.
    """

    mounted: bool
    needs_fsck: bool
    lost: tuple[str, ...]
    corrupt: tuple[str, ...]
    says: str
    not_started: str = ""

    @property
    def verdict(self) -> str:
        """The worst that was found, in a few words."""
        if not self.mounted:
            return "does not mount"
        if self.not_started:
            return "will not start"
        if self.lost:
            return "lost acknowledged"
        if self.corrupt:
            return "corrupt"
        return "needs fsck" if self.needs_fsck else "clean"


@dataclass(frozen=True, slots=True)
class Fsck:
    """The checker of a file system: its arguments to look and to repair, each followed by the device; 0 means in order."""

    look: tuple[str, ...]
    repair: tuple[tuple[str, ...], ...]
    package: str


FSCKS = {
    "ext4": Fsck(("e2fsck", "-fn"), (("e2fsck", "-fy"),), "e2fsprogs"),
    "xfs": Fsck(("xfs_repair", "-n"), (("xfs_repair",), ("xfs_repair", "-L")), "xfsprogs"),
    "btrfs": Fsck(
        ("btrfs", "check", "--readonly", "--force"),
        (("btrfs", "rescue", "super-recover", "-y"), ("btrfs", "rescue", "zero-log")),
        "btrfs-progs",
    ),
}


#: a tmpfs, for logs and images
MEMORY = Path("/dev/shm")
#: how long a file system's checker may take; how long a check may take to end once it was killed
_FSCK_S, _ENDS_WITHIN_S = 600.0, 10.0


class Recovery:
    """Recovers and checks one block device again and again. Use as a context manager.

    ``options``: mount options. ``fsck_every``: look with the file system's checker after this many recoveries (0: only
    when the mount fails). ``limit_s``: time for one check. ``until``: by the monotonic clock, when all must end.
    ``at``: an empty folder to mount on, as in ``record``. ``enclosed``: the check cannot change this machine. Raises
    MissingTool if the checker is not installed.
    """

    def __init__(
        self,
        device: str,
        filesystem: str,
        check: Check,
        *,
        options: str = "",
        fsck_every: int = 0,
        limit_s: float = 60.0,
        until: float = math.inf,
        at: Path | None = None,
        enclosed: bool = False,
    ) -> None:
        self._until = until
        self._device, self._filesystem, self._check, self._options = device, filesystem, check, options
        self._fsck, self._fsck_every, self._limit_s = FSCKS[filesystem], fsck_every, limit_s
        if shutil.which(self._fsck.look[0]) is None:
            raise MissingTool.program(f"checking {filesystem}", self._fsck.look[0], self._fsck.package)
        self._made = None if at else Path(tempfile.mkdtemp(prefix="iotrial-cut-"))
        self._folder = at or Path(str(self._made))
        self._over = Path(tempfile.mkdtemp(prefix="iotrial-cut-")) if enclosed else None
        self._child: _Child | None = None
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child process."""
        self._end_child()
        for made in (self._made, self._over):
            if made is not None:
                with suppress(OSError):
                    made.rmdir()

    def recover(self, acknowledged: Sequence[str]) -> Outcome:
        """Mount, check and unmount the device as it is now.

        Raises LabError if the check itself failed (with another error than OSError), if the device stays busy, or if the time
        is over.
        """
        self._count += 1
        outcome = self._ask(acknowledged)
        if not outcome.mounted:
            return self._repaired(outcome, acknowledged)
        if self._fsck_every and self._count % self._fsck_every == 0:
            status, said = self._run(self._fsck.look)
            if status != 0:
                return replace(outcome, needs_fsck=True, says=_joined(outcome.says, said))
        return outcome

    def _repaired(self, outcome: Outcome, acknowledged: Sequence[str]) -> Outcome:
        """Repair what could not be mounted, and check it then. What is missing after that counts too."""
        says = outcome.says
        for words in self._fsck.repair:
            _, said = self._run(words)
            says = _joined(says, said)
            again = self._ask(acknowledged)
            if again.mounted:
                return Outcome(False, True, again.lost, again.corrupt, says, again.not_started)
        return Outcome(False, True, tuple(acknowledged), outcome.corrupt, says)

    def _ask(self, acknowledged: Sequence[str]) -> Outcome:
        if self._child is None:
            self._child = _Child(
                self._device, self._filesystem, self._options, self._folder, self._check, self._over
            )
        answer = self._child.ask(tuple(acknowledged), min(self._limit_s, self._left_s()))
        if isinstance(answer, Outcome):
            return answer
        self._end_child()
        if answer is None:
            self._left_s()
            what = f"the check did not end within {self._limit_s:g} s, or its process died"
            return Outcome(True, False, (), (what,), "")
        raise LabError(f"checking {self._device} after a power cut: {answer}")

    def _left_s(self) -> float:
        """Return the time that is left. Raises LabError if there is none."""
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise LabError("the time for all power cuts is over")
        return left_s

    def _run(self, words: Sequence[str]) -> tuple[int, str]:
        """Run a checker of the file system on the device; return its status and what it says."""
        limit_s = min(_FSCK_S, self._left_s())
        try:
            done = subprocess.run(
                (*words, self._device),
                capture_output=True,
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            self._left_s()
            return 124, f"{words[0]} {words[1]} did not end within {limit_s:g} s"
        said = (done.stdout + done.stderr)[-2000:]
        return done.returncode, f"{words[0]} {words[1]} ended with {done.returncode}: {said}"

    def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()


class _Child:
    """The process that mounts and checks."""

    def __init__(
        self, device: str, filesystem: str, options: str, folder: Path, check: Check, over: Path | None
    ) -> None:
        context = multiprocessing.get_context("fork")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve,
            args=(theirs, os.getpid(), device, filesystem, options, folder, check, over),
            daemon=True,
        )
        self._process.start()
        theirs.close()

    def ask(self, acknowledged: tuple[str, ...], limit_s: float) -> Outcome | str | None:
        """Return the outcome, the text of an error, or None if there was no answer in time."""
        with suppress(EOFError, OSError):
            self._ours.send(acknowledged)
            if self._ours.poll(limit_s):
                answer: Outcome | str = self._ours.recv()
                return answer
        return None

    def end(self) -> None:
        """Kill it with all that it has started, and wait. Its mounts go with its namespace.

        Raises LabError if a process does not end, because it waits in the kernel.
        """
        self._process.terminate()
        self._process.join(_ENDS_WITHIN_S)
        stuck = self._process.is_alive()
        if stuck:
            self._process.kill()
        self._ours.close()
        if stuck:
            raise LabError(
                f"a process that checks a disk did not end within {_ENDS_WITHIN_S:g} s after it was killed: it waits in "
                f"the kernel, below process {self._process.pid}"
            )


def _serve(
    requests: Connection,
    parent: int,
    device: str,
    filesystem: str,
    options: str,
    folder: Path,
    check: Check,
    over: Path | None,
) -> None:
    try:
        enter_own_namespace(parent)
        if over is not None:
            enclose(over, device)
        outside = Path(f"/proc/self/fd/{os.open('/proc', os.O_RDONLY | os.O_DIRECTORY)}")
        enter_own_processes(requests.fileno())
    except LabError as error:
        requests.send(error.message)
        return
    while True:
        try:
            acknowledged = requests.recv()
        except (EOFError, OSError):
            os._exit(0)  # not through the clean-up of a program that this is only a copy of
        try:
            answer: Outcome | str = _mounted_and_checked(
                device, filesystem, options, folder, check, acknowledged, outside
            )
        except LabError as error:
            answer = error.message
        except Exception as error:  # reported by the parent
            answer = f"{type(error).__name__}: {error}"
        requests.send(answer)


def _mounted_and_checked(
    device: str,
    filesystem: str,
    options: str,
    folder: Path,
    check: Check,
    acknowledged: Sequence[str],
    outside: Path,
) -> Outcome:
    """``outside``: the /proc with all processes of the machine. Raises LabError if the device or its mount stays busy."""
    try:
        mount(device, folder, filesystem, options)
    except OSError as error:
        if error.errno == errno.EBUSY:  # that says nothing about the file system
            raise LabError(f"{error.strerror}: mounted by {mounters_of(device, outside)}") from error
        return Outcome(False, True, (), (), str(error.strerror))
    number = folder.stat().st_dev
    try:
        try:
            found = check(folder, acknowledged)
        except OSError as error:
            found = Findings(corrupt=(f"reading it: {error}",))
        errors = _errors_seen(device, filesystem)
    finally:
        end_all_others()
        try:
            unmount(folder)
        except OSError as error:
            raise LabError(f"{error.strerror}: in use by {users_of(number, outside)}") from error
    return Outcome(True, bool(errors), found.lost, found.corrupt, errors, found.not_started)


def _errors_seen(device: str, filesystem: str) -> str:
    """Return what the kernel has noticed since the mount; ext4 counts errors."""
    counter = Path(f"/sys/fs/{filesystem}/{Path(device).name}/errors_count")
    with suppress(OSError):
        if filesystem == "ext4" and (count := int(counter.read_text())):
            return f"the kernel counted {count} errors"
    return ""


def _joined(*texts: str) -> str:
    return "\n".join(text for text in texts if text)


class Examination:
    """Puts a disk into states of a log, and recovers and checks each. Use as a context manager.

    ``target``: an isolated probe. ``base``: the disk's content before the log. ``memory``: a folder for the image, best a
    tmpfs. The rest is for ``Recovery``.
    """

    def __init__(
        self,
        target: Target,
        log: WriteLog,
        size_bytes: int,
        filesystem: str,
        check: Check,
        *,
        base: Path | None = None,
        memory: Path = MEMORY,
        **recovery: Any,
    ) -> None:
        self._stack = ExitStack()
        with self._stack:
            folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="iotrial-cut-", dir=memory))
            self.image = Path(folder) / "disk"
            self._rebuilder = self._stack.enter_context(Rebuilder(log, self.image, size_bytes, base=base))
            self._disk = self._stack.enter_context(over_image(target, self.image))
            self._recovery = self._stack.enter_context(
                Recovery(self._disk.path, filesystem, check, **recovery)
            )
            self._stack = self._stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def of(self, stable: int, arrived: Iterable[Arrival], acknowledged: Sequence[str]) -> Outcome:
        """Return what is found in the state of ``Rebuilder.put``. Fast in the order of the log. Raises as ``recover``."""
        self._disk.forget()
        self._rebuilder.put(stable, arrived)
        return self._recovery.recover(acknowledged)


@dataclass(frozen=True, slots=True)
class Checked:
    """A cut point with its outcome. ``repeated``: the same state had been checked before."""

    point: CutPoint
    outcome: Outcome
    repeated: bool


def outcomes(
    target: Target,
    log: WriteLog,
    size_bytes: int,
    filesystem: str,
    check: Check,
    *,
    seed: str,
    drawn: int,
    after: int = 0,
    cache: Cache = VOLATILE,
    **more: Any,
) -> Iterator[Checked]:
    """Rebuild, recover and check every state of ``states.cut_points``, in the order of the log.

    ``more``: as in ``Examination``. A state that has been checked, with the same acknowledgements, is not checked again.
    Raises LabError, TargetError.
    """
    with Examination(target, log, size_bytes, filesystem, check, **more) as examination:
        yield from examined(examination, log, cut_points(log, seed, drawn, after=after, cache=cache))


def examined(examination: Examination, log: WriteLog, points: Iterable[CutPoint]) -> Iterator[Checked]:
    """Check points of a log in its order, each state once."""
    checked: dict[State, Outcome] = {}
    stable = -1
    for point in points:
        if point.stable != stable:  # no later point is equal to an earlier one
            checked.clear()
            stable = point.stable
        state = state_of(log, point)
        outcome = checked.get(state)
        if outcome is None:
            checked[state] = examination.of(point.stable, arrivals(log, point), point.acknowledged_before)
        yield Checked(point, outcome or checked[state], repeated=outcome is not None)
