"""A loop device taken by the lab. The kernel detaches it, but some traces are left for us to undo.

The device is autoclear: it detaches once the probe and the mount are gone. What stays is the read-ahead that attaching has
changed, and the device itself if it had to be added.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import dataclass

from iotrial.errors import LabError, TargetError
from iotrial.knobs.knob import TakenError, Undone
from iotrial.lab.journal import Entry, Journal, still_there
from iotrial.lab.object import LabObject
from iotrial.lab.target import Target
from iotrial.polling import attempts

QUEUE_FILES = (
    "scheduler",
    "nr_requests",
    "read_ahead_kb",
    "wbt_lat_usec",
    "rotational",
    "write_cache",
    "stable_writes",
    "max_sectors_kb",
)
#: settings that change when an image is attached
CHANGED_BY_ATTACHING = ("read_ahead_kb", "rotational")
#: of these, the ones that some kernels reset when the image is detached (6.18 does, 6.1 does not)
RESET_BY_DETACHING = ("rotational",)
ATTEMPTS = 64
#: a loop device that something left without its write cache keeps that from one image to the next (6.18 does), and no sync
#: of a file on it reaches the image. It is switched on for good, as by the kernel when a file is attached for the first time
NO_CACHE, CACHE = "write through", "write back"
#: how long the kernel continues detaching after the file is gone; at the end it may raise the read-ahead
DETACHING_S = 0.15


@dataclass(frozen=True, slots=True)
class Attached:
    """A loop device over an image. ``queue_before``: its queue settings from before it was attached."""

    device: str
    direct_io: bool
    queue_before: dict[str, str]


class LabLoop(LabObject):
    """One loop device, taken for the duration of a trial."""

    name = "lab.loop"
    #: time in seconds for the kernel to detach the device after its last user has gone
    cleared_within_s = 10.0

    def attach(
        self,
        target: Target,
        journal: Journal,
        image: int,
        inode: int,
        *,
        boot_id: str,
        trial: str = "",
        rotational: bool | None = None,
    ) -> Attached:
        """Attach the image to a free device, adding one if none is free; recorded before it is touched.

        ``rotational``: the value to set for the device, since the kernel cannot know it. Raises LabError if other processes
        always take the free device first, TargetError.
        """
        for _ in range(ATTEMPTS):
            free = target.call("loop_free")
            device = str(free["name"])
            before = _queue(target, device) if free["present"] else {}
            entry = journal.record(
                self.name,
                {"device": device},
                "present" if free["present"] else "absent",
                ("attached",),
                identity={"inode": str(inode), "node": "present" if free["node"] else "absent", **before},
                boot_id=boot_id,
                trial=trial,
            )
            try:
                answer = target.call("loop_attach", image=image, device=device, direct_io=True)
            except TargetError as error:
                if error.errno != errno.EBUSY:
                    raise
                journal.drop(entry)  # another program took it in between: not ours to undo
                continue
            if rotational is not None:
                target.write(f"/sys/block/{device}/queue/rotational", str(int(rotational)))
            cache = f"/sys/block/{device}/queue/write_cache"
            if target.read_or_none(cache) == NO_CACHE:
                target.write(cache, CACHE)  # also sets the read-ahead
            queue = _queue(target, device)
            after = {f"{file} attached": queue.get(file, "") for file in CHANGED_BY_ATTACHING}
            journal.amend(entry, identity={**entry.identity, **after})
            return Attached(device, bool(answer["direct_io"]), before)
        raise LabError(f"attaching an image: {ATTEMPTS} free loop devices were taken by other programs")

    def put_back(self, target: Target, journal: Journal, device: str) -> None:
        """Undo at once what taking this device has changed, for a device that was needed only briefly."""
        taken = [e for e in journal.pending() if e.knob == self.name and e.address["device"] == device]
        for entry in taken:
            with suppress(TakenError):  # the entry is kept
                if self.undo(target, entry, journal) is not Undone.FOREIGN:
                    journal.drop(entry)

    def undo(self, target: Target, entry: Entry, journal: Journal) -> Undone:
        device = entry.address["device"]
        if not target.exists(f"/sys/block/{device}"):
            if entry.original == "absent":  # an interrupted undo may have left its device node
                target.call("loop_remove", device=device, node=entry.identity["node"] == "absent")
                return Undone.ALREADY
            return Undone.GONE
        if not self._cleared(target, entry, device):
            return self._taken(target, entry, device)
        if entry.original == "absent":
            target.call("loop_remove", device=device, node=entry.identity["node"] == "absent")
            if target.exists(f"/sys/block/{device}"):
                raise still_there(device)
            return Undone.RESTORED
        return self._put_back_queue(target, entry, device, journal)

    def _taken(self, target: Target, entry: Entry, device: str) -> Undone:
        """Handle a device that another program has attached to a file. Raises TakenError if changes of ours remain on it."""
        ours = [
            file
            for file in CHANGED_BY_ATTACHING
            if entry.identity.get(file)
            not in (None, target.read_or_none(f"/sys/block/{device}/queue/{file}"))
        ]
        if entry.original != "absent" and not ours:
            return Undone.GONE
        left = [f"its {file} differs from before the trial" for file in ours]
        if entry.original == "absent":
            left.append("it was added to the kernel for the trial")
        theirs = target.read_or_none(backing_file(device)) or "an unknown file"
        raise TakenError(
            f"{device} is in use by another program now, with {theirs} attached; {' and '.join(left)}: it is left alone"
        )

    def _cleared(self, target: Target, entry: Entry, device: str) -> bool:
        """Wait until our image is detached. Returns False if another image is attached."""
        for _ in attempts(self.cleared_within_s, every_s=0.01):
            status = target.call("loop_status", device=device)
            if not status["attached"]:
                return True
            if str(status["inode"]) != entry.identity["inode"]:
                return False
        raise LabError(f"{device} still holds the lab's image: in use by {holders(target, device)}")

    def _put_back_queue(self, target: Target, entry: Entry, device: str, journal: Journal) -> Undone:
        outcome = Undone.ALREADY
        others = {other.address.get("path") for other in journal.pending()}
        for file in CHANGED_BY_ATTACHING:
            path, before = f"/sys/block/{device}/queue/{file}", entry.identity.get(file)
            if before is None or path in others or target.read(path) == before:
                continue
            if target.read(path) != entry.identity.get(f"{file} attached", target.read(path)):
                if file in RESET_BY_DETACHING:
                    continue
                return Undone.FOREIGN
            target.write(path, before)
            found = target.read(path)
            if found != before:
                raise TargetError(f"putting back {path}: expected {before}, found {found}")
            outcome = Undone.RESTORED
        before = entry.identity.get("read_ahead_kb")
        if before is not None and f"/sys/block/{device}/queue/read_ahead_kb" not in others:
            _lower_readahead(target, device, before)
        return outcome


def _lower_readahead(target: Target, device: str, before: str) -> None:
    """Set the read-ahead again if the kernel raises it at the end of detaching, as it does after a simulated disk."""
    path = f"/sys/block/{device}/queue/read_ahead_kb"
    for _ in attempts(DETACHING_S, every_s=0.005):
        if target.read_or_none(path) not in (before, None) and not target.exists(backing_file(device)):
            target.write(path, before)
            return


def backing_file(device: str) -> str:
    """Return the sysfs file that names the attached file."""
    return f"/sys/block/{device}/loop/backing_file"


def holders(target: Target, device: str) -> str:
    """Return in words the processes that have the device mounted in their mount namespace."""
    number = target.read_or_none(f"/sys/block/{device}/dev")

    def mounts_it(pid: str) -> bool:
        table = target.read(f"/proc/{pid}/mountinfo")
        return any(line.split(" ")[2] == number for line in table.splitlines())

    return ", ".join(f"process {who}" for who in target.processes(mounts_it)) or "an unknown program"


def _queue(target: Target, device: str) -> dict[str, str]:
    texts = {file: target.read_or_none(f"/sys/block/{device}/queue/{file}") for file in QUEUE_FILES}
    return {file: text for file, text in texts.items() if text is not None}
