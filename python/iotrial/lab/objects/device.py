"""A disk that holds a lab: emptied again wherever the lab has written, and nowhere else.

First of all, a block with the trial's mark is written behind the lab's range; it is removed last. So undo can tell how far
the lab had come. If the mark is missing, or there is a file system that the lab did not make, the disk belongs to somebody
else by now and is not touched.
"""

from __future__ import annotations

import errno
import json

from iotrial.errors import IotrialError, MissingTool, TargetError
from iotrial.knobs.knob import Undone
from iotrial.lab import disk_identity
from iotrial.lab.guard import BLOCK_BYTES, Disk
from iotrial.lab.journal import Entry, Journal
from iotrial.lab.object import LabObject
from iotrial.lab.target import Target
from iotrial.polling import attempts

GIVEN_UP_WITHIN_S = 10.0

#: stages of a lab, in this order; only from "making" on has it written more than its mark
ANNOUNCED, MAKING, MADE, ZEROING = "announced", "making", "made", "zeroing"


class LabDevice(LabObject):
    """The first bytes of one disk, for the duration of a trial."""

    name = "lab.device"

    def take(self, target: Target, journal: Journal, disk: Disk, lab_bytes: int, *, trial: str) -> Entry:
        """Record a disk that has passed the guard, then mark it, which is the first write to it."""
        entry = journal.record(
            self.name,
            {"disk": disk.name},
            "empty",
            ("lab",),
            identity={"stage": ANNOUNCED, "bytes": str(lab_bytes), "uuids": ""},
            trial=trial,
        )
        target.call("device_mark", device=disk.device, offset=lab_bytes, text=mark(entry))
        return entry

    def making(self, journal: Journal, entry: Entry, uuid: str) -> Entry:
        """Record that a file system with this UUID is about to be made."""
        # the previous one may still be found until the new one is complete
        uuids = [*entry.identity["uuids"].split()[-1:], uuid]
        return journal.amend(entry, identity={**entry.identity, "stage": MAKING, "uuids": " ".join(uuids)})

    def made(self, journal: Journal, entry: Entry) -> Entry:
        """Record that the file system is complete."""
        uuid = entry.identity["uuids"].split()[-1]
        return journal.amend(entry, identity={**entry.identity, "stage": MADE, "uuids": uuid})

    def undo(self, target: Target, entry: Entry, journal: Journal) -> Undone:
        claimed = self._claim(target, entry)
        device = str(claimed["device"])
        try:
            done = self.empty(target, journal, entry, device, claimed)
        except IotrialError:
            target.call("device_close", device=device)
            raise
        target.call("device_close", device=device)
        return done

    def empty(
        self, target: Target, journal: Journal, entry: Entry, device: str, claimed: dict[str, object]
    ) -> Undone:
        """Write zeros over what the lab has written, on a claimed disk. Can be repeated."""
        lab_bytes = int(entry.identity["bytes"])
        stage = entry.identity["stage"]
        if int(str(claimed["size"])) < lab_bytes + BLOCK_BYTES:
            return Undone.FOREIGN
        marked = target.call("device_marked", device=device, offset=lab_bytes)["text"] == mark(entry)
        if not marked:
            if stage == ANNOUNCED:
                return Undone.ALREADY  # interrupted before the first write
            whole = target.call("device_scan", device=device, offset=0, length=lab_bytes + BLOCK_BYTES)
            return Undone.ALREADY if whole["nonzero"] is None else Undone.FOREIGN
        if stage != ANNOUNCED:
            if claimed["partitions"] or not self._ours(target, entry, str(claimed["descriptor"])):
                return Undone.FOREIGN
            journal.amend(entry, identity={**entry.identity, "stage": ZEROING}, undoing=True)
            target.call("device_zero", device=device, offset=0, length=lab_bytes)
        target.call("device_zero", device=device, offset=lab_bytes, length=BLOCK_BYTES)
        return Undone.RESTORED

    def _claim(self, target: Target, entry: Entry) -> dict[str, object]:
        """Claim the disk by its own name, whatever its kernel name is now.

        Raises TargetError if it is missing, ambiguous, or in use.
        """
        name = entry.address["disk"]
        for _ in attempts(GIVEN_UP_WITHIN_S, every_s=0.1):
            found = disk_identity.disks_named(target, name)
            if len(found) != 1:
                raise TargetError(
                    f"emptying the disk {name}: expected one, found {' and '.join(found) or 'none'}",
                    hint=None if found else "plug it in again, and run `iotrial restore`",
                )
            try:
                claimed = target.call("device_claim", path=f"/dev/{found[0]}", node=None)
            except TargetError as error:
                # the kernel removes the mount of a killed probe a moment later
                if error.errno != errno.EBUSY:
                    raise
                busy = error
                continue
            number = ":".join(map(str, claimed["rdevice"]))
            if disk_identity.normal(name) in disk_identity.names_of(target, number).names:
                return claimed
            target.call("device_close", device=claimed["device"])
            raise TargetError(f"emptying the disk {name}: /dev/{found[0]} is another disk now")
        raise busy

    def _ours(self, target: Target, entry: Entry, descriptor: str) -> bool:
        """Return whether every signature on the disk belongs to a file system made by the lab.

        No signature at all is valid only after an interrupted mkfs or zeroing.
        """
        try:
            done = target.run(["wipefs", "--no-act", "--json", descriptor])
        except TargetError as error:
            raise MissingTool.program("device lab", "wipefs", "util-linux") from error
        if done.exit_status != 0:
            raise TargetError(f"looking for signatures: {done.stderr.strip()}")
        found = json.loads(done.stdout)["signatures"] if done.stdout.strip() else []
        if not found:
            return entry.identity["stage"] in (MAKING, ZEROING)
        uuids = entry.identity["uuids"].split()
        return all(signature.get("uuid") in uuids for signature in found)


def mark(entry: Entry) -> str:
    """Return the text of the mark in the block behind the lab."""
    return f"trial {entry.trial} bytes {entry.identity['bytes']}"


# The probe's session of processes. It is ended before anything else is undone: as long as one process lives, it may
# write.


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
