"""Knobs of the traces that use leaves on a file system: fragmented free space, and whether free blocks were trimmed."""

from __future__ import annotations

import re

from iotrial.errors import KnobError, RequestError, UnsupportedLevel
from iotrial.knobs import filesystem as declared
from iotrial.knobs.knob import Knob, Requirement, RunContext
from iotrial.lab.disk import disk_place
from iotrial.lab.target import Target
from iotrial.polling import attempts
from iotrial.study.model import Setting
from iotrial.study.places import DISK_LABS

PERCENT = re.compile(r"([1-9][0-9]?) ?%")
MOST = 95
#: tolerance in percentage points between the fill level that the file system reports and the requested one
CLOSE = 4.0
LONGEST_S = 60.0
FRESH, NONE, TRIMMED = "fresh", "none", "fstrim"


class FilesystemAge(Knob, declared.FilesystemAge):
    requirement = Requirement(root=True, labs=DISK_LABS)

    def parse(self, setting: Setting) -> str:
        if setting.value == FRESH:
            return FRESH
        found = PERCENT.fullmatch(setting.value)
        if found is None or int(found[1]) > MOST:
            raise UnsupportedLevel(
                f'knob filesystem.age: no level "{setting.value}"',
                hint="fresh, or a share such as 80 %",
            )
        return f"{int(found[1])} %"

    def read(self, context: RunContext, setting: Setting) -> str:
        age = disk_place(self.name, context.place).age
        return f"{age} %" if age else FRESH

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        percent = 0 if value == FRESH else int(value.removesuffix(" %"))
        disk_place(self.name, context.place).want_age(percent)

    def verify(self, context: RunContext, setting: Setting, value: str) -> None:
        # right after mkfs and ageing, while nothing else is there yet
        super().verify(context, setting, value)
        if value == FRESH:
            return
        facts = context.place.worker.call("statfs", path=context.place.root)
        full = 100 * (1 - facts["free_bytes"] / facts["total_bytes"])
        if abs(full - int(value.removesuffix(" %"))) > CLOSE:
            raise KnobError(self.name, self.where(context, setting), wrote=value, found=f"{full:.1f} % full")


class FilesystemTrim(Knob, declared.FilesystemTrim):
    requirement = Requirement(root=True, labs=DISK_LABS)
    LEVELS = (NONE, TRIMMED)

    def read(self, context: RunContext, setting: Setting) -> str:
        return TRIMMED if context.work.trimmed_bytes else NONE

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        place = disk_place(self.name, context.place)
        target, folder = context.target, f"/sys/block/{place.device}"
        if place.share is not None:
            raise RequestError(
                f"knob {self.name}: {place.label} is served to another machine, and cannot be trimmed from there",
                hint="use it in a lab without a link",
            )
        target.call("use_free_space", path=place.root)
        before = _discarded(target, folder)
        if value == TRIMMED:
            target.call("trim", path=place.root)
            self._await(context, folder)
        context.work.trimmed_bytes = _discarded(target, folder) - before
        context.work.evidence["trimmed_bytes"] = float(context.work.trimmed_bytes)

    def _await(self, context: RunContext, folder: str) -> None:
        """Wait until no request is in flight: FITRIM on XFS returns before its discards are done (fs/xfs/xfs_discard.c)."""
        for _ in attempts(LONGEST_S, every_s=0.0):
            if context.target.read(f"{folder}/inflight").split() == ["0", "0"]:
                return
        raise KnobError(
            self.name,
            context.place.label,
            wrote=TRIMMED,
            found=f"discards still running after {LONGEST_S:g} s",
        )


def _discarded(target: Target, folder: str) -> int:
    """Return the bytes discarded so far, from the device's own counter (Documentation/block/stat.rst)."""
    return int(target.read(f"{folder}/stat").split()[13]) * 512
