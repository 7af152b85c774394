"""The clients of a trial: made before its first run, begun together in each, and held against their clocks.

In a run every client first answers with its clock, which says that it is there and idle. Then each gets its job with
a moment of its own clock, some way ahead; it lays everything out and sleeps until then (``begin_ns`` of
docs/probe-protocol.md). The trial's own probe does a job over the same time: a program that waits until the last
client is done. So its counters, and those of the server that it has started, are of the whole time; and the known
slow-down of the positive control comes after it. When clients began and ended is what their own probes say. Nothing
is timed here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from iotrial.conduct.crowd import fio
from iotrial.conduct.crowd.bell import Bell, Latch
from iotrial.conduct.crowd.client import ANSWERS_S, Client
from iotrial.conduct.crowd.clock import Common, Reading
from iotrial.conduct.crowd.links import Links
from iotrial.conduct.crowd.machine import Spent
from iotrial.conduct.crowd.one import Task, as_one
from iotrial.conduct.crowd.wanted import most_clients
from iotrial.conduct.resolve import Resolved
from iotrial.errors import IotrialError, ProbeError
from iotrial.lab.target import Target
from iotrial.probe.binary import find_binary
from iotrial.probe.client import Probe
from iotrial.workloads.served.figures import client_folder

#: how far ahead the common beginning is, at the least and by round trips
LEAD_NS, LEAD_ROUND_TRIPS = 50_000_000, 20
#: how much longer than its commands may take a client is waited for
GRACE_S = 15.0
#: what of a job is the trial's own probe's, and not the clients'
_OWN = ("stretch", "stretch_clock", "devices", "sync_after", "account", "account_requests")
NUMBER, COUNT = "{client}", "{clients}"
SERVER = "server"


class Crowd:
    """The clients of one session. ``announce`` is told of every probe that is a process of this machine."""

    def __init__(self, links: Links, *, most: int, root: bool, announce: Callable[[Probe], None]) -> None:
        self._clients = [
            _client(links, number, most, root=root, announce=announce) for number in range(1, most + 1)
        ]
        self._server = (
            Client(f"{SERVER} (its machine's probe)", links.server, local=False, begun=_nothing)
            if links.server
            else None
        )
        #: each client's clock when it was first read: the longer ago, the better is known how it drifts
        self._first: dict[str, Reading] = {}
        self._threads = ThreadPoolExecutor(max_workers=max(1, most), thread_name_prefix="client")

    def open(self) -> None:
        """Reach all. Raises ProbeError that names who cannot be."""
        for client in self._all():
            client.start()

    def close(self) -> None:
        """End all. They may be dead already, and may be at work."""
        for client in self._all():
            client.close()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def abandon(self) -> None:
        """End all in the middle of what they do; the next run starts them again."""
        for client in self._all():
            client.kill()

    def facts(self) -> dict[str, object]:
        """Who the clients are, for the stored trial."""
        return {
            "clients": [
                {"name": client.name, "where": "this machine" if client.local else "a link"}
                for client in self._clients
            ]
        }

    def run(self, worker: Target, job: Mapping[str, object], task: Task) -> dict[str, Any]:
        """One run: the answer of a job, as if one probe had done all of it, with ``clients`` and ``void`` besides. Raises
        ProbeError where a client or the server's machine fails."""
        clients = self._clients[: task.clients]
        self._revive(clients)
        before = [client.clock() for client in clients]
        spent = None if self._server is None else _spent(self._server)
        lead_ns = max(LEAD_NS, LEAD_ROUND_TRIPS * max(reading.round_trip_ns for reading in before))
        begin_ns = time.monotonic_ns() + lead_ns
        limit_s = task.limit_s + GRACE_S + lead_ns / 1e9
        jobs = [
            {
                **_of_client(job, number, task.clients),
                "user": client.user(),
                "begin_ns": begin_ns + reading.offset_ns,
            }
            for number, (client, reading) in enumerate(zip(clients, before, strict=True), start=1)
        ]
        own, answers = self._together(worker, job, begin_ns, limit_s, clients, jobs)
        served = {} if self._server is None or spent is None else _spent(self._server).since(spent)
        after = [client.clock() for client in clients]
        clocks = [Common(one, other) for one, other in zip(before, after, strict=True)]
        names = [client.name for client in clients]
        since = [
            Common(self._first.setdefault(name, one), other)
            for name, one, other in zip(names, before, after, strict=True)
        ]
        return {**as_one(own, answers, names, clocks, task, served), "clocks_since": since}

    def called(self, worker: Target, job: Mapping[str, object], count: int, folder: str) -> dict[str, Any]:
        """One run of a fio that calls so many of the clients: each works in ``folder`` of its host, or where it is a
        process of this machine in one of its own below the job's. Raises ProbeError as ``run`` does."""
        clients = self._clients[:count]
        self._revive(clients)
        below = str(job["cwd"])
        folders = [
            client_folder(below, number) if client.local else folder
            for number, client in enumerate(clients, start=1)
        ]
        return fio.called(worker, job, clients, folders)

    def _together(
        self,
        worker: Target,
        job: Mapping[str, object],
        begin_ns: int,
        limit_s: float,
        clients: Sequence[Client],
        jobs: Sequence[Mapping[str, object]],
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The answers of the trial's own probe and of all clients. Raises ProbeError that names the first that gave
        none, once no other is at work any more."""
        with Bell() as bell:
            latch = Latch(len(clients), bell.ring)
            futures: list[Future[dict[str, Any]]] = []
            try:
                for client, each in zip(clients, jobs, strict=True):
                    future = self._threads.submit(client.call, "command", each, limit_s)
                    future.add_done_callback(latch.one_done)
                    futures.append(future)
                own = worker.call(
                    "command",
                    **{name: job[name] for name in _OWN if name in job},
                    steps=[{"name": "attend", "argv": ["head", "-c", "1", bell.path]}],
                    cwd="/",
                    timeout_s=limit_s + GRACE_S,
                    begin_ns=begin_ns,
                )
            except BaseException:
                self.abandon()
                raise
        failed = [error for future in futures if (error := future.exception()) is not None]
        if failed:
            more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
            first = failed[0]
            raise ProbeError(
                f"{first.message if isinstance(first, IotrialError) else first}{more}"
            ) from first
        return own, [future.result() for future in futures]

    def _revive(self, clients: Sequence[Client]) -> None:
        for client in (*clients, *([] if self._server is None else [self._server])):
            if not client.alive:
                client.start()

    def _all(self) -> list[Client]:
        return [*self._clients, *([] if self._server is None else [self._server])]


def _client(links: Links, number: int, most: int, *, root: bool, announce: Callable[[Probe], None]) -> Client:
    """Client ``number`` from 1: a process of this machine, or one on the hosts, which take turns."""
    if not links.clients:
        argv = (str(find_binary()), *(("--isolate",) if root else ()))
        return Client(f"c{number}", argv, local=True, begun=announce, contained=root)
    turn, at = divmod(number - 1, len(links.clients))
    link = links.clients[at]
    several = most > len(links.clients)
    name = f"{link.name}.{turn + 1}" if several else link.name
    return Client(name, link.argv, local=False, begun=_nothing, address=link.address)


def _nothing(_: Probe) -> None:
    """A link of the user's own is his to end where it outlives its standard input."""


def _of_client(job: Mapping[str, object], number: int, count: int) -> dict[str, object]:
    """The job of one client: its number in place of the placeholder."""

    def put(value: object) -> object:
        if isinstance(value, str):
            return value.replace(NUMBER, str(number)).replace(COUNT, str(count))
        if isinstance(value, list):
            return [put(inner) for inner in value]
        if isinstance(value, dict):
            return {key: put(inner) for key, inner in value.items()}
        return value

    return {name: put(value) for name, value in job.items() if name not in (*_OWN, "user", "replicates")}


def _spent(machine: Client) -> Spent:
    text = machine.call("read", {"path": "/proc/stat"}, ANSWERS_S).get("data")
    return Spent.of(text if isinstance(text, str) else "")


def gathered(resolved: Resolved, announce: Callable[[Probe], None]) -> Crowd | None:
    """The clients of a study, each reached; None where it has none. Raises ProbeError as ``Crowd.open``, all ended again."""
    most = most_clients(resolved.study)
    if not most:
        return None
    crowd = Crowd(resolved.links, most=most, root=resolved.root, announce=announce)
    try:
        crowd.open()
    except BaseException:
        crowd.close()
        raise
    return crowd
