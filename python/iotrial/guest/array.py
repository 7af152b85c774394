"""A place on an array of a guest's disks, assembled again for every mkfs: by md, by the device mapper in the way LVM uses
it, or by btrfs itself.

md arrays are created with ``--assume-clean``: otherwise the initial sync would keep the array busy for the whole trial.
Redundancy is not what is measured, and nothing ever reads parity that the array has not written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Unpack

from iotrial.errors import LabError
from iotrial.guest.place import disk_with_serial
from iotrial.lab.disk import DiskOptions, DiskPlace, hold
from iotrial.lab.filesystem import Filesystem
from iotrial.lab.journal import Journal
from iotrial.lab.loop_image import LoopImage
from iotrial.lab.target import Target
from iotrial.study.disks import DiskSpec, described
from iotrial.units import format_size, parse_size

ARRAY = "md0"
STRIPES = "iotrial"
BITMAPS = ("none", "internal")
#: how an array is made unless a knob asks for something else
DEFAULTS: Mapping[str, str] = MappingProxyType(
    {"maker": "md", "level": "raid0", "chunk": "64 KiB", "bitmap": "none", "state": "whole"}
)
#: all disks present, or created without the last one
STATES = ("whole", "degraded")
#: the least size of the stripe cache that raid4, raid5 and raid6 have, in stripes
LEAST_STRIPES = 17
#: left free at the end of each disk under the device mapper
_ALIGNED_SECTORS = 2048


@dataclass(frozen=True, slots=True)
class Level:
    """A RAID level: ``least`` disks required, the kernel module, whether it uses chunks."""

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


@dataclass(frozen=True, slots=True)
class Maker:
    """A tool that builds arrays: its programs, each with the package that provides it, and its kernel modules."""

    tools: Mapping[str, str]
    modules: tuple[str, ...] = ()


MAKERS: Mapping[str, Maker] = MappingProxyType(
    {
        "md": Maker({"mdadm": "mdadm", "dd": "coreutils"}),
        "btrfs": Maker({"mkfs.btrfs": "btrfs-progs", "btrfs": "btrfs-progs"}, ("btrfs",)),
        "lvm": Maker({"dmsetup": "dmsetup"}, ("dm_mod",)),
    }
)


class ArrayPlace(DiskPlace):
    """A file system on an array of the disks with these serial numbers, or of the same number of simulated disks."""

    kind = "guest"
    #: re-creating the array resets its settings
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
        #: the maker that has assembled the disks; "" if they are not assembled
        self._made_by = ""

    @property
    def label(self) -> str:
        level, maker = self._wanted_array["level"], self._wanted_array["maker"]
        return f"{self.filesystem} on {level} of {len(self._serials)} disks by {maker} of {self.target.name}"

    @property
    def devices(self) -> Mapping[str, str]:
        """The devices of the lab. btrfs accesses its disks directly, so all of them count."""
        if self._made_by != "btrfs":
            return super().devices
        others = {f"disk {number}": name for number, name in enumerate(self.members[1:], 2)}
        return {**super().devices, **others}

    @property
    def queues(self) -> tuple[str, ...]:
        return self.members

    def want_array(self, about: str, value: str) -> None:
        """Set one property for the next ``format``: "maker", "level", "chunk", "bitmap" or "state"."""
        self._wanted_array[about] = value

    def file(self, name: str) -> str:
        """Return the path of one of the array's files in sysfs."""
        return f"/sys/block/{ARRAY}/md/{name}"

    def found(self, about: str) -> str:
        """Return what the kernel reports, in the knobs' terms; the requested value for a property that the maker lacks."""
        if about == "maker":
            return self._found_maker()
        return self._FOUND[self._made_by](self, about)

    def _found_maker(self) -> str:
        if self.target.exists(f"/sys/block/{ARRAY}/md"):
            return "md"
        return "lvm" if self.device is not None and self.device.startswith("dm-") else "btrfs"

    def _found_by_md(self, about: str) -> str:
        if about == "state":
            missing = self.target.read_or_none(self.file("degraded"))
            return "whole" if missing in (None, "0") else "degraded"
        if about == "bitmap":
            location = self.target.read(self.file("bitmap/location"))
            return "none" if location in ("none", "") else "internal"
        text = self.target.read(self.file({"level": "level", "chunk": "chunk_size"}[about]))
        if about == "level":
            return text
        return format_size(int(text)) if LEVELS[self.found("level")].chunks else self._wanted_array["chunk"]

    def _found_by_btrfs(self, about: str) -> str:
        if about != "level":
            return self._wanted_array[about]
        # from the file system's directory in sysfs, which is named after its UUID
        (uuid,) = [
            name
            for name in self.target.call("list", path="/sys/fs/btrfs")["names"]
            if self.target.exists(f"/sys/fs/btrfs/{name}/devices/{self.device}")
        ]
        names = self.target.call("list", path=f"/sys/fs/btrfs/{uuid}/allocation/data")["names"]
        return str(next(name for name in names if name in LEVELS))

    def _found_by_lvm(self, about: str) -> str:
        if about in ("bitmap", "state"):
            return self._wanted_array[about]
        table = self._run(["dmsetup", "table", STRIPES]).split()
        kind, stripes, sectors = table[2], int(table[3]), int(table[4])
        if about == "chunk":
            return format_size(sectors * 512)
        return "raid0" if (kind, stripes) == ("striped", len(self.members)) else f"{kind} of {stripes}"

    _FOUND: ClassVar[Mapping[str, Callable[[ArrayPlace, str], str]]] = MappingProxyType(
        {"md": _found_by_md, "btrfs": _found_by_btrfs, "lvm": _found_by_lvm}
    )

    def _attach(self) -> None:
        for number, serial in enumerate(self._serials):
            modelled = self._images[number].attach(self._size).device if self._images else None
            self.members = (*self.members, modelled or disk_with_serial(self.target, serial))

    def _detach(self) -> None:
        self._part()
        for image in self._images:
            image.detach()
        self.members, self.device = (), None

    @property
    def modelled(self) -> tuple[str, ...]:
        return (*(device for image in self._images for device in image.modelled), *super().modelled)

    def _format(self) -> None:
        if self._mounted is not None:
            self._unmount()
        self._part()
        self._join()
        super()._format()

    def empty_device_cache(self) -> None:
        """Empty md's stripe cache: a RAID5 that lacks a disk reads through it, and no drop of the page cache empties it.

        The stripes that stay at its least size then hold the end of the array, which is read for this.
        """
        path = self.file("stripe_cache_size")
        size = self.target.read_or_none(path)  # other arrays have none
        if size is None:
            return
        last = int(self.target.read(f"/sys/block/{ARRAY}/size")) // 2048 - 1
        self.target.write(path, str(LEAST_STRIPES))
        self._run(
            ["dd", f"if=/dev/{ARRAY}", "of=/dev/null", "iflag=direct", "bs=1M", "count=1", f"skip={last}"]
        )
        self.target.write(path, size)

    def facts(self) -> Mapping[str, object]:
        disk = {} if self._disk is None else {"modelled": described(self._disk)}
        return {**super().facts(), "array": dict(self._wanted_array), "disks": len(self._serials), **disk}

    def _join(self) -> None:
        wanted = self._wanted_array
        level, maker = LEVELS[wanted["level"]], wanted["maker"]
        if len(self.members) < level.least:
            raise LabError(
                f"{wanted['level']} needs {level.least} disks, but the lab has {len(self.members)}",
                hint="set `disks = ` in [lab]",
            )
        if maker == "btrfs" and self._wanted_filesystem != "btrfs":
            raise LabError(
                f"btrfs can only join disks for a btrfs file system, found {self._wanted_filesystem}",
                hint='set `filesystem = "btrfs"` in [lab]',
            )
        if maker == "lvm" and wanted["level"] != "raid0":
            raise LabError(
                f"the device mapper stripes (raid0); {wanted['level']} is not available with this maker",
                hint="LVM's other levels use md underneath: use the maker md",
            )
        if maker == "btrfs" and (wanted["level"] == "raid4" or wanted["chunk"] != DEFAULTS["chunk"]):
            raise LabError(
                f"btrfs does not make {wanted['level']} with chunks of {wanted['chunk']}",
                hint="it has raid0, raid1, raid5, raid6 and raid10, and its stripes are of 64 KiB",
            )
        if maker != "md" and wanted["bitmap"] != "none":
            raise LabError(f"{maker} has no write-intent bitmap", hint="md has one: raid.maker = md")
        if wanted["state"] == "degraded" and (maker != "md" or wanted["level"] == "raid0"):
            raise LabError(
                f"{wanted['level']} by {maker} cannot run with a disk missing",
                hint="raid1, raid4, raid5, raid6 and raid10 by md do",
            )
        if maker == "md":
            self._run(self._mdadm(level))
            self.device = ARRAY
        elif maker == "lvm":
            self._run(["dmsetup", "create", STRIPES, "--noudevsync", "--table", self._stripes()])
            self.device = self._mapped()
        else:
            self.device = self.members[0]
        self._made_by = maker
        for device in self.devices.values():
            hold(self.target, device)

    def _mdadm(self, level: Level) -> list[str]:
        wanted = self._wanted_array
        argv = [
            "mdadm", "--create", f"/dev/{ARRAY}", "--run", "--quiet", "--assume-clean", "--metadata=1.2",
            "--homehost=any", f"--level={wanted['level']}", f"--raid-devices={len(self.members)}",
        ]  # fmt: skip
        argv += [f"--chunk={parse_size(wanted['chunk']) >> 10}"] if level.chunks else []
        argv += [f"--bitmap={wanted['bitmap']}"] if wanted["level"] != "raid0" else []
        members = [f"/dev/{member}" for member in self.members]
        return [*argv, *members[:-1], members[-1] if wanted["state"] == "whole" else "missing"]

    def _stripes(self) -> str:
        """Return the dm-stripe table, using whole chunks of every disk."""
        chunk = parse_size(self._wanted_array["chunk"]) // 512
        each = min(int(self.target.read(f"/sys/block/{member}/size")) for member in self.members)
        each = (each - _ALIGNED_SECTORS) // chunk * chunk
        disks = " ".join(f"/dev/{member} 0" for member in self.members)
        return f"0 {each * len(self.members)} striped {len(self.members)} {chunk} {disks}"

    def _mapped(self) -> str:
        """Return the name in /sys/block of the device mapper's device: a number, so look it up by its dm name."""
        for name in self.target.call("list", path="/sys/block")["names"]:
            if self.target.read_or_none(f"/sys/block/{name}/dm/name") == STRIPES:
                return str(name)
        raise LabError(f"{self.target.name}: the device mapper shows no {STRIPES}")

    def _part(self) -> None:
        if not self._made_by:
            return
        for device in self.devices.values():
            self.target.call("device_close", device=device)
        maker, self._made_by = self._made_by, ""
        if maker == "md":
            self._run(["mdadm", "--stop", "--quiet", f"/dev/{ARRAY}"])
        elif maker == "lvm":
            self._run(["dmsetup", "remove", "--noudevsync", STRIPES])
        else:  # otherwise the kernel would mistake the next contents of these disks for the old file system
            self._run(["btrfs", "device", "scan", "--forget"])

    def _make(self, argv: list[str], kind: Filesystem) -> None:
        if self._made_by != "btrfs":
            super()._make(argv, kind)
            return
        level = self._wanted_array["level"]
        disks = [f"/dev/{member}" for member in self.members]
        self._tool([*argv, "-d", level, "-m", level, *disks], kind)
        self._run(["btrfs", "device", "scan", *disks])

    def _run(self, argv: list[str]) -> str:
        return self.target.run(argv).output(f"an array of {len(self.members)} disks")
