"""Knobs of the on-disk layout of files: their fragmentation, and the remedy applied to it.

Fragmentation is defined as in xfs_db's `frag`: (extents - files) / extents, where an extent is a contiguous piece on the
disk. 50 % is two extents per file, 90 % ten, 99 % a hundred, 99.9 % a thousand, whatever the size of the file. So its cost
depends on the length of the extents.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from iotrial.errors import KnobError, UnsupportedLevel
from iotrial.knobs import files as declared
from iotrial.knobs.knob import FileSelection, Knob, Requirement, RunContext
from iotrial.lab.disk import disk_place
from iotrial.lab.filesystem import FILESYSTEMS
from iotrial.study.model import Setting
from iotrial.study.places import DISK_LABS
from iotrial.study.work import Work

SHARE = re.compile(r"([0-9]{1,2})(?:\.([0-9]{1,2}))? ?%")
BLOCK = 4096
#: tolerance of the layout: of the fragmentation (absolute), and of the number of extents (relative)
CLOSE_SHARE, CLOSE_EXTENTS = 0.01, 0.05
ARGUMENTS_AT_ONCE = 500
BEFORE, AFTER, TIME = "extents_before", "extents", "relayout_time"


def _count(context: RunContext, files: FileSelection) -> tuple[int, int]:
    """Count the extents, and the files that have any."""
    found = context.worker.call("extents", set=files.set, files=files.wire)
    return int(found["extents"]), int(found["files"])


class FileFragmentation(Knob, declared.FileFragmentation):
    requirement = Requirement(root=True, labs=DISK_LABS)

    def parse(self, setting: Setting) -> str:
        found = SHARE.fullmatch(setting.value)
        if found is None:
            raise UnsupportedLevel(
                f'knob file.fragmentation: "{setting.value}" is not a share',
                hint='for example "50 %" or "99.9 %"',
            )
        return f"{float(f'{found[1]}.{found[2] or 0}'):g} %"

    def suits(self, setting: Setting, work: Work, bytes_each: int) -> None:
        value = self.parse(setting)
        extents, room = _extents(value, work.files), work.files * -(-bytes_each // BLOCK)
        if extents > room:
            raise UnsupportedLevel(
                f"knob file.fragmentation: {value} of {work.files} files of {bytes_each:,} bytes are {extents:,} extents, "
                f"and they have only {room:,} blocks of {BLOCK} bytes",
                hint="use larger files, or a smaller share",
            )
        if not _close(extents, work.files, value):
            raise UnsupportedLevel(
                f"knob file.fragmentation: {value} is impossible with {work.files} files: with {extents:,} extents it is "
                f"{_share(extents, work.files)}",
                hint="use more files per run, or another share",
            )

    # No neutral value: every arm's files are truncated, on the disk too, and written again, so no earlier layout survives.

    def read(self, context: RunContext, setting: Setting) -> str:
        extents, files = _count(context, context.selection(self.name))
        return self._level_of(extents, files, setting)

    def _level_of(self, extents: int, files: int, setting: Setting) -> str:
        wanted = self.parse(setting)
        return wanted if _close(extents, files, wanted) else _share(extents, files)

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        files = context.selection(self.name)
        context.worker.call("lay", set=files.set, files=files.wire, extents=_extents(value, files.count))
        context.work.evidence[AFTER] = float(_count(context, files)[0])

    def verify(self, context: RunContext, setting: Setting, value: str) -> None:
        # Use the count from before defragmentation; the result of that is verified by its own knob.
        files = context.selection(self.name)
        extents = int(context.work.evidence.get(BEFORE, context.work.evidence[AFTER]))
        found = self._level_of(extents, files.count, setting)
        if found != value:
            raise KnobError(
                self.name,
                self.where(context, setting),
                wrote=value,
                found=f"{found} ({extents:,} extents of {files.count:,} files)",
                hint="make the lab larger ([lab] size): contiguous files need contiguous free space",
            )


class FileDefragment(Knob, declared.FileDefragment):
    requirement = Requirement(root=True, labs=DISK_LABS)

    def needs(self, setting: Setting, filesystem: str) -> tuple[str, str] | None:
        kind = FILESYSTEMS[filesystem]
        return (kind.defragment[0], kind.package) if setting.value == "defragmented" else None

    def read(self, context: RunContext, setting: Setting) -> str:
        return context.work.relaid

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        files = context.selection(self.name)
        evidence = context.work.evidence
        evidence[BEFORE] = float(_count(context, files)[0])
        took_ns = 0
        if value == "defragmented":
            took_ns = self._defragment(context, setting, files)
        elif value == "rewritten":
            done = context.worker.call("copy_anew", set=files.set, files=files.wire, keep=True)
            took_ns = int(done["wall_ns"])
        # Every arm ends with this same copy through the page cache: xfs_fsr bypasses it, and memory that was not in use
        # just before costs more to fill, on a virtual machine above all.
        context.worker.call("copy_anew", set=files.set, files=files.wire, keep=False)
        context.place.syncfs()
        context.work.relaid = value
        evidence[AFTER] = float(_count(context, files)[0])
        evidence[TIME] = took_ns / 1e9

    def _defragment(self, context: RunContext, setting: Setting, files: FileSelection) -> int:
        kind = FILESYSTEMS[disk_place(self.name, context.place).filesystem]
        paths: Sequence[str] = context.worker.call("paths", set=files.set, files=files.wire)["paths"]
        took_ns = 0
        for first in range(0, len(paths), ARGUMENTS_AT_ONCE):
            done = context.worker.run(
                [*kind.defragment, *paths[first : first + ARGUMENTS_AT_ONCE]], timeout_s=600
            )
            took_ns += done.wall_ns
            if done.exit_status != 0:
                output = (done.stderr.strip() or done.stdout.strip())[-300:]
                raise KnobError(
                    self.name,
                    self.where(context, setting),
                    wrote="defragmented",
                    found=f"{kind.defragment[0]} ended with status {done.exit_status}: {output}",
                )
        return took_ns


def _extents(value: str, files: int) -> int:
    """Return the total number of extents of all files that gives this fragmentation."""
    return round(files / (1 - _number(value)))


def _number(value: str) -> float:
    return float(value.removesuffix("%")) / 100


def _share(extents: int, files: int) -> str:
    return f"{100 * (extents - files) / extents if extents else 0:.4g} %"


def _close(extents: int, files: int, value: str) -> bool:
    wanted = _number(value)
    found = (extents - files) / extents if extents else 0.0
    least = files / (1 - wanted)
    return abs(found - wanted) <= CLOSE_SHARE and (
        abs(extents - least) <= CLOSE_EXTENTS * least or extents == _extents(value, files)
    )
