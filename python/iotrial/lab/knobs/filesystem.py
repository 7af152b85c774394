"""Knobs of the file system: its type and its mkfs options. Only on the lab's own disks."""

from __future__ import annotations

import re

from iotrial.errors import KnobError, RequestError, UnsupportedLevel
from iotrial.knobs import filesystem as declared
from iotrial.knobs.knob import Knob, Requirement, RunContext, one_of
from iotrial.lab import superblock
from iotrial.lab.disk import disk_place
from iotrial.lab.filesystem import FILESYSTEMS
from iotrial.lab.log_device import EXTERNAL, INTERNAL
from iotrial.study.model import Setting
from iotrial.study.places import DISK_LABS

ABOUT = re.compile(r"-[A-Za-z](?: [a-z0-9_]+)?(?: -O [a-z0-9_]+)*")


class FilesystemType(Knob, declared.FilesystemType):
    def parse(self, setting: Setting) -> str:
        return one_of(self.name, setting.value, tuple(FILESYSTEMS))

    def levels(self, context: RunContext, setting: Setting) -> tuple[str, ...]:
        known = {line.split()[-1] for line in context.target.read("/proc/filesystems").splitlines()}
        return tuple(name for name in FILESYSTEMS if name in known)

    def requires(self, setting: Setting) -> Requirement:
        tools = {FILESYSTEMS[setting.value].mkfs[0]: FILESYSTEMS[setting.value].package}
        return Requirement(root=True, labs=DISK_LABS, tools=tools, modules=frozenset({setting.value}))

    def read(self, context: RunContext, setting: Setting) -> str:
        place = disk_place(self.name, context.place)
        info = context.target.mount_at(place.root)
        return info.type if info else "none"

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        disk_place(self.name, context.place).want_filesystem(value)


class MkfsOption(Knob, declared.MkfsOption):
    def parse(self, setting: Setting) -> str:
        value = " ".join(setting.value.split())
        about = dict(setting.options).get("option")
        if about is not None and not ABOUT.fullmatch(about):
            raise RequestError(
                f'knob mkfs.option: "{about}" is not an option of mkfs',
                hint='for example "-I" or "-O dir_index"',
            )
        if about is not None and value != "default" and about != _about(value):
            raise RequestError(
                f'knob mkfs.option: level "{value}" is not for option "{about}"',
                hint=f'it is for "{_about(value)}"',
            )
        if value == "default" or any(kind.allows_mkfs(value) for kind in FILESYSTEMS.values()):
            return value
        known = sorted({pattern for kind in FILESYSTEMS.values() for pattern in kind.mkfs_allowed})
        raise UnsupportedLevel(
            f'knob mkfs.option: "{value}" is not on its list', hint="it has patterns: " + "; ".join(known)
        )

    def levels(self, context: RunContext, setting: Setting) -> tuple[str, ...]:
        return ("default", *FILESYSTEMS[disk_place(self.name, context.place).filesystem].mkfs_allowed)

    def requires(self, setting: Setting) -> Requirement:
        value = " ".join(setting.value.split())
        tools = {"dumpe2fs": "e2fsprogs"} if FILESYSTEMS["ext4"].allows_mkfs(value) else {}
        return Requirement(root=True, labs=DISK_LABS, tools=tools)

    def read(self, context: RunContext, setting: Setting) -> str:
        made = disk_place(self.name, context.place).made_with
        return made.get(dict(setting.options).get("option", _about(self.parse(setting))), "default")

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        if value != "default":
            disk_place(self.name, context.place).want_mkfs_option(_about(value), value)

    def verify(self, context: RunContext, setting: Setting, value: str) -> None:
        super().verify(context, setting, value)
        place = disk_place(self.name, context.place)
        if place.filesystem != "ext4":
            return
        dump = place.superblock()  # for "default" too, so that all arms do the same
        found = None if value == "default" else superblock.contradicts(value, dump)
        if found is not None:
            raise KnobError(self.name, self.where(context, setting), wrote=value, found=found)


class FilesystemLog(Knob, declared.FilesystemLog):
    requirement = Requirement(root=True, labs=DISK_LABS)
    LEVELS = (INTERNAL, EXTERNAL)

    def read(self, context: RunContext, setting: Setting) -> str:
        place = disk_place(self.name, context.place)
        device = None if place.log is None else place.log.device
        info = context.target.mount_at(place.root)
        if info is None:
            return "none"
        if place.filesystem == "xfs":
            named = [o.removeprefix("logdev=/dev/") for o in info.options if o.startswith("logdev=")]
            return _log(named[0] if named else None, device)
        journal = re.search(r"^Journal device:\s+0x([0-9a-f]+)$", place.superblock(), re.MULTILINE)
        if journal is None:
            return INTERNAL
        number = context.target.read(f"/sys/block/{device}/dev").strip()
        found = int(journal[1], 16)  # encoded as by the kernel's old_encode_dev and new_encode_dev
        minor = (found & 0xFF) | ((found >> 12) & 0xFFF00)
        return _log(device if number == f"{(found >> 8) & 0xFFF}:{minor}" else journal[1], device)

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        disk_place(self.name, context.place).want_log(value)


def _log(found: str | None, own: str | None) -> str:
    if found is None:
        return INTERNAL
    return EXTERNAL if found == own else f"on {found}"


def _about(option: str) -> str:
    return " ".join(superblock.about(option))
