"""The probe's session of processes. It is ended before anything else is undone: as long as one process lives, it may write.

The probe dies with its conductor, and the processes that it started die with the probe, so there is usually nothing left to
end. But mounts, devices and settings are reliable only once no process is left.
"""

from __future__ import annotations

from iotrial.errors import TargetError
from iotrial.lab.journal import Entry, Journal
from iotrial.lab.knob import Undone
from iotrial.lab.object import LabObject
from iotrial.lab.target import Target


class LabProcess(LabObject):
    """The processes of one session, identified by its leader as long as that lives, and by a token."""

    name = "lab.process"
    first = True

    def announce(
        self, journal: Journal, *, session: int, started: int, token: str, boot_id: str, trial: str = ""
    ) -> Entry:
        """Record a session that we have just started.

        ``started``: its leader's start time, in clock ticks since boot; ``token``: set in the environment of its processes.
        """
        return journal.record(
            self.name,
            {"session": str(session)},
            "absent",
            ("alive",),
            identity={"started": str(started), "token": token},
            boot_id=boot_id,
            trial=trial,
        )

    def undo(self, target: Target, entry: Entry, journal: Journal) -> Undone:
        answer = target.call(
            "end_session",
            session=int(entry.address["session"]),
            started=int(entry.identity["started"]),
            token=entry.identity["token"],
        )
        if answer["left"]:
            names = ", ".join(f"{p['pid']} ({p['name']}, state {p['state']})" for p in answer["left"])
            raise TargetError(f"cannot stop the probe's processes: {names}")
        return Undone.RESTORED if answer["killed"] else Undone.ALREADY
