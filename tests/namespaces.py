"""Fleet hosts on one machine: kernel namespaces joined by a bridge, which disappear with the process that
created them.

Each host has its own network, mounts and processes: an address, a /run with its lock, a state folder. Nothing
has a name on the machine itself, so nothing is left behind, whatever happens to a test.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

LIMIT_S = 120.0
_HOLDS = (
    "hostname {name} && mount -t tmpfs run /run && mkdir /run/lock && ip link set lo up && echo ready "
    "&& exec sleep infinity"
)
#: runs the following command as process 1 of new namespaces, which end with it
APART = ("unshare", "--fork", "--kill-child", "--pid", "--mount-proc", "--net", "--mount", "--uts")
_LIBC = ctypes.CDLL(None)


def dies_with_us() -> None:
    """Arrange for SIGKILL when the parent process dies (PR_SET_PDEATHSIG of prctl(2)). Called in a child
    before exec."""
    _LIBC.prctl(1, signal.SIGKILL)


def eventually(
    what: str, holds: Callable[[], object], within_s: float = LIMIT_S, said: Callable[[], str] = str
) -> None:
    """Wait for an event, with a timeout long enough for a slow machine; ``said`` is shown if it expires."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"never: {what} {said()}"
        time.sleep(0.05)


def children(pid: int) -> list[int]:
    """Return the current child processes of a process."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def below(pid: int) -> list[int]:
    """Return all descendants of a process, nearest first."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        own = children(waiting.pop(0))
        found += own
        waiting += own
    return found


class Started:
    """A program in a host, with its output in a file."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path) -> None:
        self._process = process
        self._out = out

    @property
    def said(self) -> str:
        return self._out.read_text(errors="replace")

    @property
    def pid(self) -> int:
        """Its process id on this machine: nsenter's only child."""
        found = children(self._process.pid)
        assert found, self.said
        return found[0]

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, within_s: float = LIMIT_S) -> int:
        try:
            return self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end; it said: {self.said[-3000:]}") from None

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None


class Host:
    """One host. ``address``: in the common network; ``state``: the state folder of its iotrial."""

    def __init__(self, name: str, address: str, folder: Path) -> None:
        self.name = name
        self.address = address
        self.folder = folder / name
        self.folder.mkdir()
        self._count = 0
        self._holder = subprocess.Popen(
            [*APART, "sh", "-c", _HOLDS.format(name=name)],
            stdout=subprocess.PIPE, bufsize=0, preexec_fn=dies_with_us,
        )  # fmt: skip
        assert self._holder.stdout
        ready, _, _ = select.select([self._holder.stdout], [], [], LIMIT_S)
        assert ready
        assert self._holder.stdout.readline() == b"ready\n"
        (self.pid,) = children(self._holder.pid)

    @property
    def state(self) -> Path:
        return self.folder / "iotrial"

    def enter(self, *argv: str) -> list[str]:
        return ["nsenter", f"--target={self.pid}", "--net", "--mount", "--pid", "--uts", "--", *argv]

    def command(self, *argv: str) -> str:
        """Run a command in this host to its end and return its output."""
        return subprocess.run(self.enter(*argv), check=True, capture_output=True, text=True).stdout

    def start(self, *words: str) -> Started:
        """Start ``iotrial WORD...`` in this host."""
        return self.python("iotrial", *words)

    def python(self, module: str, *words: str) -> Started:
        """Start ``python -m MODULE WORD...`` in this host."""
        self._count += 1
        out = self.folder / f"said-{self._count}"
        environment = {**os.environ, "XDG_STATE_HOME": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        environment["PYTHONFAULTHANDLER"] = "1"
        environment.pop("IOTRIAL_STORE", None)
        with out.open("wb") as file:
            process = subprocess.Popen(
                self.enter(sys.executable, "-m", module, *words),
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment, preexec_fn=dies_with_us,
            )  # fmt: skip
        return Started(process, out)

    def processes(self, *words: str) -> list[int]:
        """Return the process ids, on this machine, of this host's processes whose command line contains all
        these words."""
        own = Path(f"/proc/{self.pid}/ns/pid").readlink()
        found = []
        for one in Path("/proc").iterdir():
            try:
                if one.name.isdigit() and (one / "ns/pid").readlink() == own:
                    line = (one / "cmdline").read_bytes().split(b"\0")
                    if all(word.encode() in line for word in words):
                        found.append(int(one.name))
            except OSError:
                continue
        return found

    def end(self) -> None:
        """Stop the host and everything that runs in it."""
        self._holder.kill()
        self._holder.wait(LIMIT_S)
        if self._holder.stdout:
            self._holder.stdout.close()


class Network:
    """A bridge in a host of its own, and the hosts connected to it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.middle = Host("middle", "10.77.0.1", folder)
        self.hosts: dict[str, Host] = {}
        for words in (
            "link add bridge type bridge",
            "address add 10.77.0.1/24 dev bridge",
            "link set bridge up",
        ):
            self.middle.command("ip", *words.split())

    def add(self, name: str) -> Host:
        """Add a host with a link to the bridge."""
        host = Host(name, f"10.77.0.{len(self.hosts) + 2}", self._folder)
        self.hosts[name] = host
        port = f"to-{name}"
        # the veth peer is created here and moved to the host's namespace by its process id
        subprocess.run(
            ["nsenter", f"--target={self.middle.pid}", "--net", "--",
             "ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(host.pid)],
            check=True,
        )  # fmt: skip
        self.middle.command("ip", "link", "set", port, "master", "bridge", "up")
        host.command("ip", "address", "add", f"{host.address}/24", "dev", "eth0")
        host.command("ip", "link", "set", "eth0", "up")
        return host

    def cut(self, name: str) -> None:
        self.middle.command("ip", "link", "set", f"to-{name}", "down")

    def mend(self, name: str) -> None:
        self.middle.command("ip", "link", "set", f"to-{name}", "up")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for host in (*self.hosts.values(), self.middle):
            host.end()


@contextmanager
def network(folder: Path, *names: str) -> Iterator[Network]:
    """Yield a network with these hosts."""
    with Network(folder) as made:
        for name in names:
            made.add(name)
        yield made
