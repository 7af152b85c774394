"""Per-run servers and data: created before the timed part, checked and undone after it, the same in every arm.

Most works need neither; for them nothing is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from iotrial.knobs.knob import RunContext
from iotrial.lab import cache
from iotrial.lab.disk import DiskPlace
from iotrial.lab.simulated_disk import at_once
from iotrial.lab.target import Target
from iotrial.runner.command_user import unprivileged_user
from iotrial.study import server
from iotrial.study.neighbour import NAME as NEIGHBOUR
from iotrial.study.server import Server
from iotrial.study.work import HasOwnData, HasServer, LabContext, Work

#: Name of a study's place for a database's write-ahead log.
LOG = "log"


class Serving:
    """The servers of the current run. ``root``: the probe may switch to any user."""

    def __init__(self, *, root: bool) -> None:
        self._root = root
        self._port = 0
        self._running: list[tuple[Target, Server]] = []

    def user(self) -> dict[str, int] | None:
        """Return the user for programs that root must not run: the invoking user, or nobody if that is root."""
        return unprivileged_user() if self._root else None

    def lab_context(self, context: RunContext) -> LabContext:
        """Return the context of the run in the lab."""
        files, place, log = context.files, context.place, context.extra_places.get(LOG)
        folder = place.sets[files.set].folder if files is not None and files.set in place.sets else place.root
        return LabContext(
            target=context.worker,
            root=place.lab_folder,
            files=folder if context.work.view is None else f"{folder}.{context.work.view}",
            user=self.user(),
            programs=dict(context.work.programs),
            log=None if log is None else f"{log.root}/own",
            port=self._port,
            arguments=dict(context.work.arguments),
            device=place.device,
            disks=place.queues,
        )

    def provide(self, context: RunContext, work: Work, user: Mapping[str, int] | None) -> None:
        """Create what the work, which is done by this user, needs in the lab. Call before the cache is prepared."""
        if isinstance(work, HasServer) and work.listens():
            self._port = server.free_port(context.worker)
        if isinstance(work, HasOwnData):
            with ExitStack() as paces:
                if work.has_own_data():
                    _at_once(context, paces)
                work.provide(replace(self.lab_context(context), runs_as=user))

    def start(self, context: RunContext, work: Work, state: str) -> None:
        """Prepare the cache and start the servers: a cold cache before they start, a warm one after. Raises LabError."""
        lab = self.lab_context(context)
        if state != "warm":
            cache.prepare(context, state)
            if state == "cold-data" and isinstance(work, HasOwnData) and work.has_own_data():
                context.worker.call("evict_tree", path=lab.own)
        if isinstance(work, HasServer) and (servers := work.started_servers(lab)):
            for wanted in servers:
                self.begin(context.worker, wanted)
            work.begun(lab)
            # Otherwise what it wrote while starting would be written back, and space allocated for it, during
            # the timed part.
            context.place.syncfs()
        if state == "warm":
            cache.prepare(context, state)

    def begin(self, target: Target, wanted: Server) -> None:
        """Start one server. Raises LabError."""
        server.start(target, wanted, self.user())
        self._running.append((target, wanted))

    def forget(self, name: str) -> None:
        """Leave it to the caller to stop this server."""
        self._running = [(target, one) for target, one in self._running if one.name != name]

    def warm(
        self, context: RunContext, work: Work, state: str, job: Callable[[], Mapping[str, object]]
    ) -> str | None:
        """Run the warm-up jobs that the work wants before its timed one; return a problem, if any.

        ``job`` is called only if there are any: most works want none.
        """
        if not isinstance(work, HasOwnData):
            return None
        for _ in range(work.warm(state)):
            answer = context.worker.call(work.verb, **work.warming(job()))
            wrong = self.settle(context, work, answer)
            context.place.syncfs()
            if wrong is not None:
                return wrong
        return None

    def held(self, context: RunContext, work: Work, state: str) -> dict[str, object]:
        """Return the fields of a job in this cache state that keep the work's data in memory while it runs."""
        if state != "warm" or not isinstance(work, HasOwnData):
            return {}
        paths = work.held(self.lab_context(context))
        return {"hold": list(paths)} if paths else {}

    def settle(self, context: RunContext, work: Work, answer: Mapping[str, Any]) -> str | None:
        """Check and undo what the job did; return a problem, if any."""
        return work.settle(self.lab_context(context), answer) if isinstance(work, HasOwnData) else None

    def stop(self) -> str | None:
        """Stop the servers; return a message if one had already ended."""
        died = None
        while self._running:
            target, running = self._running.pop()
            died = server.stop(target, running) or died
        return died

    def abandon(self) -> None:
        """Forget the servers: the probe is lost, and they with it."""
        self._running.clear()


def _at_once(context: RunContext, until: ExitStack) -> None:
    """Let simulated disks answer without delay until the end: filling a database would take minutes at their pace."""
    places = [
        place for place in (context.place, *context.extra_places.values()) if isinstance(place, DiskPlace)
    ]
    devices = [device for place in places for device in place.modelled]
    if devices:
        until.enter_context(at_once(context.target, devices))
        for place in places:
            until.callback(place.syncfs)


def numbers(answer: Mapping[str, Any]) -> dict[str, float]:
    """Return what all servers of the work used during the timed part: seconds, bytes and counts by name."""
    found: dict[str, float] = {}
    for server_name, used in answer.get("servers", {}).items():
        if server_name == NEIGHBOUR:
            continue
        for name, value in used.items():
            if value is not None:
                plain, scale = (name.removesuffix("_ns"), 1e9) if name.endswith("_ns") else (name, 1)
                found[f"server_{plain}"] = found.get(f"server_{plain}", 0.0) + value / scale
    return found
