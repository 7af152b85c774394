"""A device of the kernel's device mapper that the lab has made over its own device, with dmsetup(8)."""

from __future__ import annotations

import re

from iotrial.errors import LabError
from iotrial.knobs.knob import Undone
from iotrial.lab.journal import NOT_OURS, Entry, Journal, still_there
from iotrial.lab.object import LabObject
from iotrial.lab.target import Target
from iotrial.polling import attempts

#: names of a lab's mappings; undo removes nothing else
OWN = re.compile(r"iotrial-[0-9a-f]{0,8}-[a-z0-9][a-z0-9.-]*")
#: there although the module is not loaded yet, if the kernel has it
CONTROL = "/dev/mapper/control"
ELSEWHERE = "the kernel must have the device mapper and dm-crypt; a guest has them: --lab guest"


class LabMapping(LabObject):
    """One mapping, identified by its name until the next boot."""

    name = "lab.mapping"
    #: time in seconds for the kernel to release the device after its last user has gone
    released_within_s = 10.0

    def make(
        self, target: Target, journal: Journal, name: str, table: str, *, boot_id: str, trial: str = ""
    ) -> str:
        """Create the mapping after recording it; return its name in /sys/block. Raises LabError, TargetError."""
        # without the device mapper, dmsetup would leave a device node that nothing answers to
        if not target.exists(CONTROL) and "device-mapper" not in target.read("/proc/misc"):
            raise LabError(f"making the mapping {name}: this kernel has no device mapper", hint=ELSEWHERE)
        if mapped(target, name) is not None:
            raise LabError(f"making the mapping {name}: exists already", hint="run `iotrial restore`")
        journal.record(self.name, {"mapping": name}, "absent", ("present",), boot_id=boot_id, trial=trial)
        done = target.run(["dmsetup", "create", name, "--noudevsync", "--table", table])
        device = mapped(target, name)
        if done.exit_status != 0 or device is None:
            raise LabError(
                f"making the mapping {name}: {done.stderr.strip()[-300:] or 'the kernel shows no such device'}",
                hint=ELSEWHERE,
            )
        return device

    def remove(self, target: Target, journal: Journal, name: str) -> None:
        """Remove a mapping that this trial has made, and its entry. Raises LabError, TargetError."""
        entry = journal.held(self.name, {"mapping": name})
        if entry is not None:
            self.undo(target, entry, journal)
            journal.drop(entry)

    def undo(self, target: Target, entry: Entry, journal: Journal) -> Undone:
        name = entry.address.get("mapping", "")
        if not OWN.fullmatch(name):
            raise LabError(f"removing the mapping {name}: not one of a lab", hint=NOT_OURS)
        if mapped(target, name) is None:
            return Undone.ALREADY
        why = ""
        for _ in attempts(self.released_within_s, every_s=0.05):
            done = target.run(["dmsetup", "remove", "--noudevsync", name])
            if done.exit_status == 0:
                break
            why = done.stderr.strip()[-300:]
        else:
            raise LabError(f"removing the mapping {name}: {why}")
        if mapped(target, name) is not None:
            raise still_there(name)
        return Undone.RESTORED


def mapped(target: Target, name: str) -> str | None:
    """Return the name in /sys/block of the device mapper's device with this name: a number; None if there is none."""
    for device in target.call("list", path="/sys/block")["names"]:
        if target.read_or_none(f"/sys/block/{device}/dm/name") == name:
            return str(device)
    return None
