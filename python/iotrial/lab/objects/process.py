"""The probe's session of processes: ended before anything else is put back, for as long as one of them lives it may write.

The probe dies with its conductor, and what it has started dies with the probe. So there is mostly
nothing left to end; but only once nothing is there can mounts, devices and settings be relied on.
"""

from __future__ import annotations

from iotrial.errors import TargetError
from iotrial.lab.journal import Entry, Journal
from iotrial.lab.knob import Undone
from iotrial.lab.object import LabObject
from iotrial.lab.target import Target


class LabProcess(LabObject):
    """The processes of one session, known by its leader, as long as that lives, and by a token."""

    name = "lab.process"
    first = True

    def announce(
        self, journal: Journal, *, session: int, started: int, token: str, boot_id: str, trial: str = ""
    ) -> Entry:
        """Record a session that has just been started by us: when its leader started, in clock ticks since boot, and what
        its processes have in their environment."""
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
            raise TargetError(f"ending the probe's processes: {names} cannot be ended")
        return Undone.RESTORED if answer["killed"] else Undone.ALREADY
