"""Hosts to reach by ssh, on this machine: each with its own network, processes, home, /run, /var/lib, and a real sshd.

Nothing of the project, of its Python or of the user who tests is to be seen there: those folders are covered. What a host
writes stays below its folder on disk, where a test can look. Needs root, sshd, ip and unshare.
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

from iotrial.fleet.ssh.client import Ssh
from iotrial.fleet.ssh.destination import Destination
from namespaces import APART, below, children, dies_with_us, eventually

TOOLS = ("sshd", "ssh", "ssh-keygen", "ip", "unshare")
#: 192.0.2.0/24 is for documentation (RFC 5737): no real host is shadowed
_NETWORK = "192.0.2"
_numbers = count(1)
_USER = "worker:*:61234:61234::/home/worker:/bin/sh\n"

_CONFIG = """ListenAddress {address}
HostKey {folder}/key
PidFile none
AuthorizedKeysFile .ssh/authorized_keys
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UsePAM no
"""

_SETUP = """set -e
mount --make-rprivate /
mount -t tmpfs none /run && mkdir -p /run/lock /run/sshd && chmod 1777 /run/lock
mount --bind {folder}/passwd /etc/passwd
mount --bind {folder}/shadow /etc/shadow
mkdir -p {seen}
mount --bind {folder} {seen}
{covers}
mount --bind {folder}/varlib /var/lib
mount --bind {folder}/home-root /root
mount --bind {folder}/home /home
while ! ip -o link show eth0 >/dev/null 2>&1; do sleep 0.05; done
ip link set lo up
ip link set eth0 up
ip addr add {address}/30 dev eth0
{extra}
exec {sshd} -D -e -f {seen}/sshd_config
"""


class Missing(Exception):
    """A tool that such hosts need is not here."""


class Bench:
    """The coordinator's side: its key, known hosts and ssh configuration, and the hosts that were made."""

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
        self, name: str, *, known: bool = True, access: bool = True, extra: str = "", user: str = "root"
    ) -> SshHost:
        """A host that is ready to be reached as ``name``; ``extra``: shell that its making runs last."""
        host = SshHost(self, name, next(_numbers), access=access, extra=extra)
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

    def __init__(self, bench: Bench, name: str, number: int, *, access: bool, extra: str) -> None:
        self.name = name
        self.folder = folder = bench.folder / f"host-{name}"
        self.interface = f"iot{os.getpid() % 100_000}n{number}"
        self.address = f"{_NETWORK}.{4 * number + 2}"
        for part in ("varlib", "home-root/.ssh", "home/worker/.ssh"):
            (folder / part).mkdir(parents=True)
        for home in (folder / "home-root", folder / "home/worker"):
            home.chmod(0o700)
            (home / ".ssh").chmod(0o700)
            key = (bench.folder / "id.pub").read_text() if access else ""
            (home / ".ssh/authorized_keys").write_text(key)
        for path in (folder / "home/worker", *(folder / "home/worker").rglob("*")):
            os.chown(path, 61234, 61234)
        _keygen(folder / "key")
        passwd = [
            line for line in Path("/etc/passwd").read_text().splitlines() if not line.startswith("root:")
        ]
        (folder / "passwd").write_text("\n".join(["root:x:0:0::/root:/bin/sh", *passwd]) + "\n" + _USER)
        (folder / "shadow").write_text("root:*:19000:0:99999:7:::\nworker:*:19000:0:99999:7:::\n")
        seen = "/run/host"  # where its own folder is to be seen once everything else is covered
        (folder / "sshd_config").write_text(_CONFIG.format(address=self.address, folder=seen))
        covers = "\n".join(f"mount -t tmpfs none {path}" for path in _covered())
        script = _SETUP.format(
            folder=folder, seen=seen, covers=covers, address=self.address, extra=extra, sshd=_which("sshd")
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
        """The state folder of iotrial of root."""
        return self.folder / "varlib" / "iotrial"

    @property
    def cache(self) -> Path:
        """Where root's bundles are."""
        return self.folder / "home-root" / ".cache" / "iotrial"

    def processes(self) -> list[str]:
        """Command lines of all that runs there, its sshd left out."""
        found = []
        for pid in below(self._process.pid):
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                if words and not words.startswith(("sshd", "unshare", str(_which("sshd")))):
                    found.append(words)
        return found

    def link(self, state: str) -> None:
        """Cut ("down") or mend ("up") the way to it."""
        _run("ip", "link", "set", self.interface, state)

    def close(self) -> None:
        """Ends everything there, and the network with it."""
        if self._process.poll() is None:
            for pid in children(self._process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)  # the first process of its namespace: the others go with it
            self._process.wait(60)
        subprocess.run(["ip", "link", "del", self.interface], capture_output=True, check=False)
        self._log.close()

    def _connect(self, number: int) -> None:
        eventually(
            "its network is not ours", self._apart, said=self._said
        )  # until unshare has made the namespace
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


def _covered() -> list[str]:
    """Folders that a host must not see: the project, the virtual environment, its Python, and the user's own."""
    python = [Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()]
    wanted = {Path(__file__).resolve().parents[1], *python, Path("/root"), Path("/home")}
    wanted |= {Path(os.environ["IOTRIAL_PROBE"]).resolve().parent} if "IOTRIAL_PROBE" in os.environ else set()
    system = {Path("/"), Path("/usr"), Path("/usr/local"), Path("/tmp")}
    kept = sorted(path for path in wanted - system if path.is_dir())
    return [str(path) for path in kept if not any(other in path.parents for other in kept)]


def _which(name: str) -> str | None:
    return shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")


def _keygen(path: Path) -> None:
    _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path))


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True, timeout=60)


def ssh_to(host: SshHost, bench: Bench, user: str | None = None) -> Ssh:
    """The way to a host of this bench."""
    return Ssh(Destination(host.name, user), bench.config)
