"""fio's own client and server mode: a fio server on every client host, called by one fio here.

fio starts its servers' jobs by a protocol of its own, so there is no common clock and no barrier of ours, and the
sums are fio's ("All clients"). Its servers know nobody: whoever reaches the address may have them run any job. So
each is bound to the one address that the user has named (or 127.0.0.1), listens on a port that is new for each run,
and lives no longer than that run.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from iotrial.conduct.crowd.client import ANSWERS_S, Client
from iotrial.errors import ProbeError
from iotrial.lab.target import Target
from iotrial.legible import shown

LOOPBACK = "127.0.0.1"
STARTS_S, STOPS_S = 20.0, 10.0
NAME = "fio"


def called(
    worker: Target, job: Mapping[str, object], clients: Sequence[Client], folders: Sequence[str]
) -> dict[str, Any]:
    """The answer of fio's job, its servers up while it runs. Raises ProbeError that names the client whose server does not
    come up, and what the job raises."""
    with ExitStack() as stack:
        calls: list[str] = []
        for client, folder in zip(clients, folders, strict=True):
            where = stack.enter_context(_server(client, folder, job.get("user")))
            calls += [f"--client={where}", "/dev/stdin"]
        steps = job["steps"]
        assert isinstance(steps, list)
        [step] = steps
        return worker.call("command", **{**job, "steps": [{**step, "argv": [*step["argv"], *calls]}]})


@contextmanager
def _server(client: Client, folder: str, user: object) -> Iterator[str]:
    """A fio server of this client, as fio's --client names it."""
    address = client.address or LOOPBACK
    port = int(client.call("free_port", {}, ANSWERS_S)["port"])
    where = f"ip6:{address},{port}" if ":" in address else f"ip:{address},{port}"
    client.call(
        "server_start",
        {
            "name": NAME,
            "argv": ["fio", f"--server={where}"],
            "environment": {},
            "cwd": folder,
            "user": user if client.local else client.user(),
            # it is asked below whether it listens: the probe would look at its own loopback alone
            "ready": {"file": "/proc/self/stat"},
            "timeout_s": STARTS_S,
        },
        STARTS_S + ANSWERS_S,
    )
    try:
        _await(client, address, port)
        yield where
    finally:
        with suppress(ProbeError):  # one that has died has no server any more
            fields = {"name": NAME, "signal": "TERM", "timeout_s": STOPS_S}
            client.call("server_stop", fields, STOPS_S + ANSWERS_S)


def _await(client: Client, address: str, port: int) -> None:
    """Until its server takes connections. Raises ProbeError where it does not."""
    until = time.monotonic() + STARTS_S
    while True:
        try:
            with socket.create_connection((address, port), timeout=2.0):
                return
        except OSError as error:
            there = client.call("server_status", {"name": NAME}, ANSWERS_S)
            if there.get("alive") is not True or time.monotonic() > until:
                said = str(there.get("stderr", "")).strip()[-200:]
                why = f"{error.strerror or error}" + (f"; it said: {shown(said)}" if said else "")
                raise ProbeError(
                    f"client {client.name}: its fio server does not listen on {address} port {port}: {why}"
                ) from error
        time.sleep(0.02)
