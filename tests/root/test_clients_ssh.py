"""Clients of a workload that are reached over a real sshd."""

from __future__ import annotations

import shlex
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import iotrial, stored_runs, write_study

from iotrial.probe.binary import find_binary
from namespaces import eventually
from ssh_hosts import Bench, SshHost

pytestmark = [pytest.mark.root, pytest.mark.long]  # hosts with networks of their own, started and ended

VOLUME = 1 << 20


@pytest.fixture
def server() -> Iterator[int]:
    """A port of this machine, at all of its addresses, that sends VOLUME bytes to whoever connects."""
    with socket.create_server(("0.0.0.0", 0), backlog=64) as listening:
        listening.settimeout(0.2)
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                try:
                    client, _ = listening.accept()
                except TimeoutError:
                    continue
                with client:
                    client.settimeout(60)
                    client.sendall(bytes(VOLUME))

        serving = threading.Thread(target=serve)
        serving.start()
        yield listening.getsockname()[1]
        over.set()
        serving.join()


def test_clients_on_two_hosts_by_ssh_fetch_from_one_server(
    bench: Bench, server: int, everybody: Path, state: Path
) -> None:
    links = []
    address = ""
    for name in ("c1", "c2"):
        # each host has a cable of its own to this machine, which answers for all its addresses on each
        host = bench.host(name, extra="ip route add 192.0.2.0/24 dev eth0")
        address = address or _ours(host)
        shutil.copy(find_binary(), host.folder / "home-root" / "ioprobe")
        (host.folder / "home-root" / "ioprobe").chmod(0o755)
        # commands run there as nobody, who may not look into the home of root: the probe alone is to be found there
        links.append(
            f"--client={name}="
            + shlex.join(["ssh", "-F", str(bench.config), "-o", "BatchMode=yes", name, "./ioprobe"])
        )
    study = write_study(
        everybody,
        f"""\
[study]
name = "fetch"
question = "Does a word make fetching slower?"
[budget]
time = "120 s"
blocks = 2
[[factor]]
name = "word"
knob = "command.argument"
placeholder = "{{word}}"
levels = ["a", "b"]
[[workload]]
name = "fetch"
kind = "clients"
clients = 2
server = "{address}/{server}"
volume = "{VOLUME} B"
spread = 1.0
argv = ["bash", "-c", "exec 3<>/dev/tcp/$1 && test $(cat <&3 | wc -c) = {VOLUME}", "{{word}}", "{{server}}"]
""",
    )
    iotrial(
        "run",
        study,
        "--trust",
        "--lab",
        "directory",
        "--on",
        str(everybody),
        "--no-controls",
        "--no-stop",
        *links,
    )
    runs = stored_runs(state)
    assert [run["failure"] for run in runs] == [None] * 4
    for run in runs:
        assert run["checks"]["clients"]["names"] == ["c1", "c2"]
        assert run["responses"]["rate"] == pytest.approx(2 * VOLUME / run["responses"]["wall"])
        assert 0.5 <= run["responses"]["fairness"] <= 1.0
    for host in bench.hosts:
        eventually("nothing of it is left there", lambda host=host: not host.processes())  # type: ignore[misc]


def _ours(host: SshHost) -> str:
    """This machine's end of a host's cable."""
    front, _, last = host.address.rpartition(".")
    return f"{front}.{int(last) - 1}"
