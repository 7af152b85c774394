"""The server and the data of a run's own: made before the timed part, checked and undone after it, the same in every arm.

Most works need neither; for them nothing is done here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from iotrial.conduct.user import invoking_user
from iotrial.lab import cache
from iotrial.lab.knob import Subject
from iotrial.lab.target import Target
from iotrial.study import server
from iotrial.study.server import NOBODY, Server
from iotrial.study.work import HasOwnData, HasServer, LabContext, Work

#: the name of a study's place for what a database writes ahead
LOG = "log"


class Serving:
    """What is running for the present run. ``root``: the probe may become any user."""

    def __init__(self, *, root: bool) -> None:
        self._root = root
        self._port = 0
        self._running: list[tuple[Target, Server]] = []

    def user(self) -> dict[str, int] | None:
        """Whose programs are that root must not run: the invoking user's, or nobody's where that is root."""
        uid, gid = invoking_user()
        if not self._root:
            return None
        return {"uid": uid, "gid": gid} if uid != 0 else {"uid": NOBODY, "gid": NOBODY}

    def lab_context(self, subject: Subject) -> LabContext:
        """Where the run is."""
        files, place, log = subject.files, subject.place, subject.beside.get(LOG)
        folder = place.sets[files.set].folder if files is not None and files.set in place.sets else place.root
        return LabContext(
            target=subject.worker,
            root=place.root,
            files=folder if subject.work.view is None else f"{folder}.{subject.work.view}",
            user=self.user(),
            programs=dict(subject.work.programs),
            log=None if log is None else f"{log.root}/own",
            port=self._port,
            arguments=dict(subject.work.arguments),
            device=place.device,
            disks=place.queues,
        )

    def provide(self, subject: Subject, work: Work) -> None:
        """What the work needs in the lab; before its cache is prepared."""
        if isinstance(work, HasServer) and work.listens():
            self._port = server.free_port(subject.worker)
        if isinstance(work, HasOwnData):
            work.provide(self.lab_context(subject))

    def start(self, subject: Subject, work: Work, state: str) -> None:
        """Bring the cache to its state, the server up in between: what is cold is so before it starts, what is warm only
        after. Raises LabError."""
        lab = self.lab_context(subject)
        if state != "warm":
            cache.prepare(subject, state)
            if state == "cold-data" and isinstance(work, HasOwnData) and work.has_own_data():
                subject.worker.call("evict_tree", path=lab.own)
        if isinstance(work, HasServer) and (servers := work.started_servers(lab)):
            for wanted in servers:
                server.start(subject.worker, wanted, lab.user)
                self._running.append((subject.worker, wanted))
            work.begun(lab)
            # Else what it has written while it started would be written back, and room for it be looked for, in the time.
            subject.place.syncfs()
        if state == "warm":
            cache.prepare(subject, state)

    def warm(
        self, subject: Subject, work: Work, state: str, job: Callable[[], Mapping[str, object]]
    ) -> str | None:
        """Do the job as often as the work wants that before its timed one; what was wrong with its outcome. It is asked for
        only then: most works want none."""
        for _ in range(work.warm(state) if isinstance(work, HasOwnData) else 0):
            answer = subject.worker.call(work.verb, **job())
            wrong = self.settle(subject, work, answer)
            subject.place.syncfs()
            if wrong is not None:
                return wrong
        return None

    def settle(self, subject: Subject, work: Work, answer: Mapping[str, Any]) -> str | None:
        """Check and undo what the job did; in words what was wrong."""
        return work.settle(self.lab_context(subject), answer) if isinstance(work, HasOwnData) else None

    def stop(self) -> str | None:
        """Stop what runs; in words which server had ended by itself."""
        died = None
        while self._running:
            target, running = self._running.pop()
            died = server.stop(target, running) or died
        return died

    def abandon(self) -> None:
        """The probe is lost, and with it what it held."""
        self._running.clear()


def numbers(answer: Mapping[str, Any]) -> dict[str, float]:
    """What the servers used over the timed part, all of them together: seconds, bytes and counts by name."""
    found: dict[str, float] = {}
    for used in answer.get("servers", {}).values():
        for name, value in used.items():
            if value is not None:
                plain, scale = (name.removesuffix("_ns"), 1e9) if name.endswith("_ns") else (name, 1)
                found[f"server_{plain}"] = found.get(f"server_{plain}", 0.0) + value / scale
    return found
