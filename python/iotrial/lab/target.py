"""The machine on which knobs act, as typed verbs over a channel.

Everything that reads or changes a target goes through here, so that a knob written for this machine also works on a guest
or another host: only the channel that carries the verbs differs. The verbs are those of ``docs/probe-protocol.md``.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from iotrial.errors import LabError, TargetError

_OCTAL = re.compile(r"\\([0-3][0-7]{2})")


class Channel(Protocol):
    """The transport of verbs to a target. ``name`` is for messages."""

    name: str

    def call(self, verb: str, **fields: object) -> dict[str, Any]:
        """Call one verb and return its answer. Raises TargetError or ProbeError."""
        ...


@dataclass(frozen=True, slots=True)
class Finished:
    """The result of a program that ran on the target."""

    argv: tuple[str, ...]
    exit_status: int | None
    signal: int | None
    timed_out: bool
    stdout: str
    stderr: str
    wall_ns: int = 0

    def output(self, doing: str) -> str:
        """Return what it printed. Raises LabError if it failed; ``doing`` says what it was run for."""
        if self.exit_status != 0:
            raise LabError(f"{doing}: {' '.join(self.argv)}: {self.stderr.strip()[-400:]}")
        return self.stdout


@dataclass(frozen=True, slots=True)
class MountInfo:
    """One line of /proc/self/mountinfo. ``options`` combines those of the mount and of the superblock.

    ``number``: MAJOR:MINOR of its files.
    """

    target: str
    source: str
    type: str
    mount_options: frozenset[str]
    super_options: frozenset[str]
    number: str = ""

    @property
    def options(self) -> frozenset[str]:
        """The options of the mount and of the superblock."""
        return self.mount_options | self.super_options


class Target:
    """A machine to act on. Paths are those of the target."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.name = channel.name

    def call(self, verb: str, **fields: object) -> dict[str, Any]:
        """Call any verb of the protocol."""
        return self.channel.call(verb, **fields)

    def read(self, path: str) -> str:
        """Return the text of a small file, without trailing newlines. Raises TargetError."""
        return str(self.call("read", path=path)["data"]).rstrip("\n")

    def read_or_none(self, path: str) -> str | None:
        """Like ``read``; None if there is no such file or device."""
        try:
            return self.read(path)
        except TargetError as error:
            if error.errno in (errno.ENOENT, errno.ENODEV, errno.ENXIO):
                return None
            raise

    def write(self, path: str, data: str) -> None:
        """Write text to an existing file with one system call. Raises TargetError."""
        self.call("write", path=path, data=data)

    def exists(self, path: str) -> bool:
        """Return whether the path exists (a dangling link counts)."""
        try:
            self.call("stat", path=path)
        except TargetError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return False
            raise
        return True

    def stat(self, path: str) -> dict[str, Any]:
        """Return the inode's facts; if the path is a symbolic link, the link's own."""
        return self.call("stat", path=path)

    def mount(self, source: str, target: str, kind: str, options: Sequence[str]) -> None:
        """Mount with mount(2). Options are separate words. Raises TargetError."""
        self.call("mount", source=source, target=target, type=kind, options=list(options))

    def unmount(self, target: str) -> None:
        """Unmount with umount2(2), never lazily. Raises TargetError (EBUSY does not say who uses it: see ``lab.disk``)."""
        self.call("unmount", target=target)

    def mount_at(self, path: str) -> MountInfo | None:
        """Return the topmost mount on exactly this path now, from mountinfo; None if there is none."""
        found = None
        for line in self.read("/proc/self/mountinfo").split("\n"):  # splitlines() could split names
            words = line.split(" ", 5)
            if len(words) > 4 and unescape(words[4]) == path:
                found = parse_mountinfo(line)
        return found

    def processes(self, wanted: Callable[[str], bool]) -> list[str]:
        """List the processes that satisfy ``wanted``, as "PID (name)". It may raise TargetError if a process has ended."""
        found = []
        for pid in filter(str.isdecimal, self.call("list", path="/proc")["names"]):
            try:
                if wanted(pid):
                    found.append(f"{pid} ({self.read(f'/proc/{pid}/comm')})")
            except TargetError:
                continue  # it ended in the meantime
        return found

    def run(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        cwd: str = "/",
        stdin: str = "",
        timeout_s: float = 120.0,
        user: Mapping[str, int] | None = None,
    ) -> Finished:
        """Run a program to its end, as this user (``uid``, ``gid``). Raises TargetError if it cannot be started."""
        answer = self.call(
            "run",
            argv=list(argv),
            environment=dict(environment) if environment is not None else None,
            cwd=cwd,
            stdin=stdin,
            timeout_s=timeout_s,
            user=dict(user) if user is not None else None,
        )
        return Finished(
            argv=tuple(argv),
            exit_status=answer["exit"],
            signal=answer["signal"],
            timed_out=answer["timed_out"],
            stdout=answer["stdout"],
            stderr=answer["stderr"],
            wall_ns=int(answer["wall_ns"]),
        )


def parse_mountinfo(line: str) -> MountInfo:
    """Parse a line of proc_pid_mountinfo(5), decoding octal escapes. Raises TargetError if it has another format."""
    fields = line.split(" ")
    try:
        dash = fields.index("-", 6)
        return MountInfo(
            target=unescape(fields[4]),
            source=unescape(fields[dash + 2]),
            type=unescape(fields[dash + 1]),
            mount_options=frozenset(fields[5].split(",")),
            super_options=frozenset(fields[dash + 3].split(",")),
            number=fields[2],
        )
    except (ValueError, IndexError) as error:
        raise TargetError(
            f"reading /proc/self/mountinfo: expected a line of it, found {line[:200]!r}"
        ) from error


def unescape(text: str) -> str:
    """Decode the octal escapes of blanks, tabs, line breaks and backslashes in the kernel's lists of mounts."""
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), text)
