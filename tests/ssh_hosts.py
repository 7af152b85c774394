"""SSH hosts on this machine: each with its own network, processes, homes, /run, /var/lib and a real sshd.

The tests' own iotrial is on each host's PATH like an installed program. What a host writes stays below its
folder on disk, where a test can look. Needs root, sshd, ip and unshare.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path

import iotrial
from namespaces import APART, children, dies_with_us, eventually

TOOLS = ("sshd", "ssh", "ssh-keygen", "ip", "unshare")
#: 192.0.2.0/24 is for documentation (RFC 5737): no real host is shadowed
_NETWORK = "192.0.2"
_numbers = count(1)
_SEEN = "/run/host"  # the host's own folder, as mounted in the host
_USER = f"worker:*:61234:61234::{_SEEN}/home/worker:/bin/sh\n"

_CONFIG = """ListenAddress {address}
HostKey {folder}/key
PidFile none
AuthorizedKeysFile .ssh/authorized_keys
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UsePAM no
SetEnv PATH={folder}/bin:/usr/bin:/bin:/usr/sbin:/sbin
{more}
"""

_SETUP = """set -e
mount --make-rprivate /
mount -t tmpfs none /run && mkdir -p /run/lock /run/sshd && chmod 1777 /run/lock
mount --bind {folder}/passwd /etc/passwd
mount --bind {folder}/shadow /etc/shadow
mkdir -p {seen}
mount --bind {folder} {seen}
mount --bind {folder}/varlib /var/lib
while ! ip -o link show eth0 >/dev/null 2>&1; do sleep 0.05; done
ip link set lo up
ip link set eth0 up
ip addr add {address}/30 dev eth0
{extra}
exec {sshd} -D -e -f {seen}/sshd_config
"""
#: the installed program: a wrapper for the tests' own iotrial
_PROGRAM = """#!/bin/sh
{environment}
exec {python} -m iotrial "$@"
"""


class Missing(Exception):
    """A required tool is missing on this machine."""


class Bench:
    """The coordinator's side: its key, known hosts and ssh configuration, and the hosts that were created."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o755)
        for tool in TOOLS:
            if _which(tool) is None:
                raise Missing(tool)
        _keygen(folder / "id")
        self.known = folder / "known_hosts"
        self.known.touch()
        self.config = folder / "ssh_config"
        self.config.write_text(
            f"IdentityFile {folder / 'id'}\nIdentitiesOnly yes\nUserKnownHostsFile {self.known}\n"
            "GlobalKnownHostsFile /dev/null\nHashKnownHosts no\n"
        )
        self.hosts: list[SshHost] = []

    def host(
        self,
        name: str,
        *,
        known: bool = True,
        access: bool = True,
        extra: str = "",
        sshd: str = "",
        user: str = "root",
    ) -> SshHost:
        """Start a host that can be reached as ``name``. ``extra``: shell commands that run last in its
        set-up; ``sshd``: lines for its sshd configuration."""
        host = SshHost(self, name, next(_numbers), access=access, extra=extra, sshd=sshd)
        self.hosts.append(host)
        with self.config.open("a") as file:
            file.write(f"Host {name}\n  HostName {host.address}\n  User {user}\n")
        if known:
            key = (host.folder / "key.pub").read_text().split()
            with self.known.open("a") as file:
                file.write(f"{host.address} {key[0]} {key[1]}\n")
        return host

    def close(self) -> None:
        for host in self.hosts:
            host.close()


class SshHost:
    """One host. ``folder`` holds its home (``home-root``, ``home/worker``) and its /var/lib (``varlib``)."""

    def __init__(self, bench: Bench, name: str, number: int, *, access: bool, extra: str, sshd: str) -> None:
        self.name = name
        self.folder = folder = bench.folder / f"host-{name}"
        self.interface = f"iot{os.getpid() % 100_000}n{number}"
        self.address = f"{_NETWORK}.{4 * number + 2}"
        for part in ("bin", "varlib", "home-root/.ssh", "home/worker/.ssh"):
            (folder / part).mkdir(parents=True)
        for home in (folder / "home-root", folder / "home/worker"):
            home.chmod(0o700)
            (home / ".ssh").chmod(0o700)
            key = (bench.folder / "id.pub").read_text() if access else ""
            (home / ".ssh/authorized_keys").write_text(key)
        for path in (folder / "home/worker", *(folder / "home/worker").rglob("*")):
            os.chown(path, 61234, 61234)
        seen = {
            "PYTHONPATH": str(Path(iotrial.__file__).parents[1]),
            "IOTRIAL_PROBE": os.environ.get("IOTRIAL_PROBE"),
        }
        handed_on = [f"export {name}='{value}'" for name, value in seen.items() if value]
        self.program = folder / "bin" / "iotrial"
        self.program.write_text(_PROGRAM.format(environment="\n".join(handed_on), python=sys.executable))
        self.program.chmod(0o755)
        _keygen(folder / "key")
        passwd = [
            line for line in Path("/etc/passwd").read_text().splitlines() if not line.startswith("root:")
        ]
        (folder / "passwd").write_text(
            "\n".join([f"root:x:0:0::{_SEEN}/home-root:/bin/sh", *passwd]) + "\n" + _USER
        )
        (folder / "shadow").write_text("root:*:19000:0:99999:7:::\nworker:*:19000:0:99999:7:::\n")
        (folder / "sshd_config").write_text(_CONFIG.format(address=self.address, folder=_SEEN, more=sshd))
        script = _SETUP.format(
            folder=folder, seen=_SEEN, address=self.address, extra=extra, sshd=_which("sshd")
        )
        self._log = (folder / "log").open("wb")
        self._process = subprocess.Popen(
            [*APART, "sh", "-c", script],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, preexec_fn=dies_with_us,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, cwd="/",
        )  # fmt: skip
        self._connect(number)
        self._wait_until_it_answers()

    @property
    def state(self) -> Path:
        """The state folder of root's iotrial."""
        return self.folder / "varlib" / "iotrial"

    def processes(self) -> list[str]:
        """Return the command lines of all processes there except sshd."""
        return [words for _, words in self._inside()]

    def kill(self) -> None:
        """Kill all processes there except sshd, as the kernel does when memory is short."""
        for pid, _ in self._inside():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _inside(self) -> list[tuple[int, str]]:
        """Find processes by their PID namespace. Walking from parent to child would miss a process that is
        reparented during the walk."""
        found = []
        own = [Path(f"/proc/{pid}/ns/pid").readlink() for pid in children(self._process.pid)]
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                mine = (path / "ns/pid").readlink() in own
                if mine and words and not words.startswith(("sshd", str(_which("sshd")))):
                    found.append((int(path.name), words))
        return found

    def link(self, state: str) -> None:
        """Set the link to the host "down" or "up"."""
        _run("ip", "link", "set", self.interface, state)

    def close(self) -> None:
        """Kill everything there, and remove its network."""
        if self._process.poll() is None:
            for pid in children(self._process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)  # process 1 of its namespace: the others end with it
            self._process.wait(60)
        subprocess.run(["ip", "link", "del", self.interface], capture_output=True, check=False)
        self._log.close()

    def _connect(self, number: int) -> None:
        eventually(
            "its network is not ours", self._apart, said=self._said
        )  # wait until unshare has created the namespace
        (inner,) = children(self._process.pid)
        _run("ip", "link", "add", self.interface, "type", "veth", "peer", "name", "eth0", "netns", str(inner))
        _run("ip", "addr", "add", f"{_NETWORK}.{4 * number + 1}/30", "dev", self.interface)
        _run("ip", "link", "set", self.interface, "up")

    def _apart(self) -> bool:
        with suppress(OSError):
            for inner in children(self._process.pid):
                return Path(f"/proc/{inner}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()
        return False

    def _wait_until_it_answers(self) -> None:
        def listens() -> bool:
            assert self._process.poll() is None, self._said()
            return "Server listening" in self._said()

        eventually("its sshd listens", listens, said=self._said)

    def _said(self) -> str:
        return (self.folder / "log").read_text(errors="replace")


def _which(name: str) -> str | None:
    return shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")


def _keygen(path: Path) -> None:
    _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path))


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True, timeout=60)
