"""Hosts in network namespaces: three clients and a server on a switch; the server's link has a configured
rate.

    c1 ┐
    c2 ┼ switch ── rate ── server (10.77.4.1)
    c3 ┘

All are processes of this machine with their own addresses. The links are veth pairs, the rate is a token
bucket (tc tbf).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

SERVER = "10.77.4.1"
PORT = 8123
CLIENTS = ("c1", "c2", "c3")

# Sends a number of bytes to each client, after burning CPU time for each.
SERVE = """
import os, socket, sys, threading, time
def serve(client, volume):
    until = time.thread_time() + 0.02
    while time.thread_time() < until:
        pass
    client.sendall(bytes(volume))
    client.close()
listening = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=64)
print("ready", flush=True)
while True:
    threading.Thread(target=serve, args=(listening.accept()[0], int(sys.argv[3])), daemon=True).start()
"""


@dataclass(frozen=True)
class Network:
    """The network. ``holders`` are processes that each keep one host's namespace alive; ``server`` is the pid
    of the server process."""

    holders: Mapping[str, int]
    server: int

    def inside(self, host: str, *argv: str) -> list[str]:
        """Return the command line that runs a command on one of the hosts."""
        return inside(self.holders[host], *argv)

    def slow(self, client: str, rate: str) -> None:
        """Limit the switch's link to one client to this rate."""
        shell(*self.inside("sw", "tc", "qdisc", "replace", "dev", client, *bucket(rate)))

    def server_cpu_s(self) -> float:
        """Return the CPU time of the server process in seconds, from the kernel's accounting of that process
        alone."""
        words = Path(f"/proc/{self.server}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def inside(holder: int, *argv: str) -> list[str]:
    """Return the command line that runs a command in this process's network namespace; nsenter execs it."""
    return ["nsenter", f"--net=/proc/{holder}/ns/net", "--", *argv]


def bucket(rate: str) -> list[str]:
    """Return tc's arguments for a link of this rate, with a queue long enough that nothing is dropped."""
    return ["root", "tbf", "rate", rate, "burst", "32kb", "latency", "2s"]


def shell(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True, timeout=60)


@contextmanager
def host() -> Iterator[int]:
    """Yield the pid of a process that keeps a new network namespace alive."""
    # the namespace exists once the program prints its line, and ends with it
    keeps = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "echo there; exec sleep infinity"], stdout=subprocess.PIPE, text=True
    )
    assert keeps.stdout is not None
    try:
        if keeps.stdout.readline() != "there\n":
            raise OSError("no network namespace")
        yield keeps.pid
    finally:
        keeps.kill()
        keeps.wait()
        keeps.stdout.close()


@contextmanager
def network(rate: str, volume: int) -> Iterator[Network]:
    """Yield the hosts with a running server; remove all of it afterwards. ``rate``: of the server's link, in
    tc's notation."""
    with ExitStack() as stack:
        at = {name: stack.enter_context(host()) for name in ("sw", "srv", *CLIENTS)}
        switch = inside(at["sw"], "ip", "link")
        for pid in at.values():
            shell(*inside(pid, "ip", "link", "set", "lo", "up"))
        shell(*switch, "add", "br0", "type", "bridge")
        shell(*switch, "set", "br0", "up")
        for number, name in enumerate(("srv", *CLIENTS), start=1):
            shell(*switch, "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(at[name]))
            shell(*switch, "set", name, "master", "br0", "up")
            shell(*inside(at[name], "ip", "address", "add", f"10.77.4.{number}/24", "dev", "eth0"))
            shell(*inside(at[name], "ip", "link", "set", "eth0", "up"))
        shell(*inside(at["srv"], "tc", "qdisc", "add", "dev", "eth0", *bucket(rate)))
        serve = [sys.executable, "-S", "-c", SERVE, SERVER, str(PORT), str(volume)]
        serving = subprocess.Popen(inside(at["srv"], *serve), stdout=subprocess.PIPE, text=True)
        try:
            assert serving.stdout is not None
            assert serving.stdout.readline() == "ready\n"
            yield Network(at, serving.pid)
        finally:
            serving.kill()
            serving.wait()
