"""A place on an array of a guest's disks: md joins them anew whenever the file system is made.

An array is made as if its disks were in step already (``--assume-clean``): else it would be busy with itself for as long as
the trial lasts. Redundancy is not what is measured then, and nothing ever reads a parity that was not written by the array.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Unpack

from iotrial.errors import LabError, TargetError
from iotrial.lab.disk import DiskOptions, DiskPlace
from iotrial.lab.guest.place import disk_with_serial
from iotrial.lab.journal import Journal
from iotrial.lab.loop_image import LoopImage
from iotrial.lab.target import Target
from iotrial.study.disks import DiskSpec, described
from iotrial.units import format_size, parse_size

ARRAY = "md0"
BITMAPS = ("none", "internal")
#: what an array is made with unless a knob wishes otherwise
DEFAULTS: Mapping[str, str] = MappingProxyType({"level": "raid0", "chunk": "64 KiB", "bitmap": "none"})


@dataclass(frozen=True, slots=True)
class Level:
    """``least`` disks that it wants, the module that has it, whether it has chunks."""

    least: int
    module: str
    chunks: bool = True


LEVELS: Mapping[str, Level] = MappingProxyType(
    {
        "raid0": Level(2, "raid0"),
        "raid1": Level(2, "raid1", chunks=False),
        "raid4": Level(3, "raid456"),
        "raid5": Level(3, "raid456"),
        "raid6": Level(4, "raid456"),
        "raid10": Level(2, "raid10"),
    }
)


class ArrayPlace(DiskPlace):
    """A file system on an array of the disks with these serial numbers, or of so many modelled ones."""

    kind = "guest"
    #: making the array resets what was set of it
    forgets_settings = True

    def __init__(
        self,
        name: str,
        target: Target,
        journal: Journal,
        *,
        serials: tuple[str, ...],
        disk: DiskSpec | None,
        **common: Unpack[DiskOptions],
    ) -> None:
        super().__init__(name, target, journal, **common)
        self._serials = serials
        self._disk = disk
        self._images = [
            LoopImage(
                f"{name}.{number}",
                target,
                journal,
                folder="",
                disk=disk,
                boot_id=self._boot_id,
                trial=self._trial,
            )
            for number in range(len(serials) if disk is not None else 0)
        ]
        self.members: tuple[str, ...] = ()
        self._wanted_array = dict(DEFAULTS)
        self._joined = False

    @property
    def label(self) -> str:
        level = self._wanted_array["level"]
        return f"{self.filesystem} on {level} of {len(self._serials)} disks of {self.target.name}"

    @property
    def queues(self) -> tuple[str, ...]:
        return self.members

    def want_array(self, about: str, value: str) -> None:
        """How the array is to be made at the next ``format``: "level", "chunk" or "bitmap"."""
        self._wanted_array[about] = value

    def file(self, name: str) -> str:
        """A file of the array's in sysfs."""
        return f"/sys/block/{ARRAY}/md/{name}"

    def found(self, about: str) -> str:
        """What md says of the array, in the words of the knobs."""
        if about == "bitmap":
            location = self.target.read(self.file("bitmap/location"))
            return "none" if location in ("none", "") else "internal"
        text = self.target.read(self.file({"level": "level", "chunk": "chunk_size"}[about]))
        if about == "level":
            return text
        return format_size(int(text)) if LEVELS[self.found("level")].chunks else self._wanted_array["chunk"]

    def open(self) -> None:
        for number, serial in enumerate(self._serials):
            modelled = self._images[number].attach(self._size).device if self._images else None
            self.members = (*self.members, modelled or disk_with_serial(self.target, serial))
        self.target.call("mkdir", path=self.root, mode="0755")
        self._open_log()
        self.format()

    def close(self) -> None:
        if self._mounted is not None:
            self._unmount()
        self._close_log()
        self._part()
        for image, device in zip(self._images, self.members, strict=False):
            image.detach(device)
        self.members, self.device = (), None

    def format(self) -> None:
        if self._mounted is not None:
            self._unmount()
        self._part()
        self._join()
        super().format()

    def facts(self) -> Mapping[str, object]:
        disk = {} if self._disk is None else {"modelled": described(self._disk)}
        return {**super().facts(), "array": dict(self._wanted_array), "disks": len(self._serials), **disk}

    def _join(self) -> None:
        wanted = self._wanted_array
        level = LEVELS[wanted["level"]]
        if len(self.members) < level.least:
            raise LabError(
                f"{wanted['level']} wants {level.least} disks, and the lab has {len(self.members)}",
                hint="say how many with `disks = ` in [lab]",
            )
        argv = [
            "mdadm", "--create", f"/dev/{ARRAY}", "--run", "--quiet", "--assume-clean", "--metadata=1.2",
            "--homehost=any", f"--level={wanted['level']}", f"--raid-devices={len(self.members)}",
        ]  # fmt: skip
        argv += [f"--chunk={parse_size(wanted['chunk']) >> 10}"] if level.chunks else []
        argv += [f"--bitmap={wanted['bitmap']}"] if wanted["level"] != "raid0" else []
        done = self.target.run([*argv, *(f"/dev/{member}" for member in self.members)], timeout_s=120)
        if done.exit_status != 0:
            raise LabError(
                f"joining {len(self.members)} disks to {wanted['level']}: {done.stderr.strip()[-400:]}"
            )
        self._joined = True
        self.device = ARRAY
        # The claim lets the probe empty what is cached of the array itself; mount(2) wants it for itself.
        self.target.call("device_claim", path=f"/dev/{ARRAY}")
        self.target.call("device_release", device=ARRAY)

    def _part(self) -> None:
        if not self._joined:
            return
        self.target.call("device_close", device=ARRAY)
        self._joined = False
        done = self.target.run(["mdadm", "--stop", "--quiet", f"/dev/{ARRAY}"], timeout_s=120)
        if done.exit_status != 0:
            raise TargetError(f"taking the array apart: {done.stderr.strip()[-400:]}")
