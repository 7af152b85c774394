"""Knobs of a mount: access time mode, read-only, and options from an allow-list.

A value is requested from the place, which mounts once for all mount knobs of a run. The result is read back from
/proc/self/mountinfo. mount(2) is called directly: in a remount, mount(8) passes `noatime` on together with `relatime`
(libmount 2.38), and the mount silently stays noatime.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from iotrial.errors import KnobError, LabError, RequestError, UnsupportedLevel
from iotrial.knobs import filesystem as declared
from iotrial.knobs.kernel_file import ENTRY_CHANGED, foreign
from iotrial.knobs.knob import Knob, Requirement, RunContext, TakenError, Undone, one_of
from iotrial.lab.disk import DiskPlace, disk_place
from iotrial.lab.in_place import ATIME, InPlace, remount_atime
from iotrial.lab.journal import Entry
from iotrial.lab.place import Place
from iotrial.lab.target import MountInfo, Target
from iotrial.study.model import Setting
from iotrial.study.places import DISK_LABS, IN_PLACE

#: no comma (starts another option), no slash or dot (a path), no blank, ASCII only
ARGUMENT = re.compile(r"[A-Za-z0-9_:-]{1,32}")


def _mounted_place(knob: str, place: Place) -> DiskPlace | InPlace:
    return place if isinstance(place, InPlace) else disk_place(knob, place)


def _mounted(knob: str, context: RunContext) -> MountInfo:
    place = _mounted_place(knob, context.place)
    info = context.target.mount_at(place.mount_point)
    if info is None:
        raise KnobError(knob, place.label, wrote="a mount", found="nothing mounted there")
    return info


class MountKnob(Knob):
    """Base of the mount knobs: requested from the place, applied by it, read back from mountinfo."""

    requirement = Requirement(root=True, labs=DISK_LABS)
    remountable = True
    open_to_others = True

    def words(self, value: str) -> tuple[str, ...]:
        """Return the mount options for a value."""
        return (value,)

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        place = _mounted_place(self.name, context.place)
        place.want_options(self.name, self.words(value), remountable=self.remountable)


class MountAtime(MountKnob, declared.MountAtime):
    def requires(self, setting: Setting) -> Requirement:
        # lazytime is of the file system, not of the mount: in place all programs would see it
        labs = DISK_LABS if setting.value == "lazytime" else DISK_LABS | {IN_PLACE}
        return Requirement(root=True, labs=labs)

    def words(self, value: str) -> tuple[str, ...]:
        # nodiratime and lazytime do not affect the atime mode of files: combine them with strictatime,
        # so that each level differs from strictatime by its own option only.
        return (value,) if value not in ("nodiratime", "lazytime") else ("strictatime", value)

    def read(self, context: RunContext, setting: Setting) -> str:
        options = _mounted(self.name, context).options
        # another knob may have added lazytime to any mode
        lazy = _mounted_place(self.name, context.place).options_of(f"{MountOption.name} lazytime")
        if "noatime" in options:
            return "noatime"
        if "relatime" in options:
            return "relatime"
        if "lazytime" in options and not lazy and not isinstance(context.place, InPlace):
            return "lazytime"
        return "nodiratime" if "nodiratime" in options else "strictatime"

    def changes_in_use(self, setting: Setting, values: tuple[str, ...]) -> tuple[str, ...]:
        return (f"access time mode of the mount in use: {', '.join(values)}",)

    def prepare(self, context: RunContext, setting: Setting, values: tuple[str, ...]) -> None:
        place = context.place
        if not isinstance(place, InPlace) or not place.shared:
            return  # only the probe sees the change, and it ends with the probe
        mount = _mounted(self.name, context)
        flags = sorted((ATIME | {"nodiratime"}) & mount.mount_options)
        context.journal.record(
            self.name,
            {"mount": place.mount_point},
            self.read(context, setting),
            values,
            identity={"source": mount.source, "type": mount.type, "flags": ",".join(flags)},
            boot_id=context.boot_id,
            trial=context.trial,
        )

    def undo(self, target: Target, entry: Entry) -> Undone:
        where = entry.address.get("mount", "")
        flags = tuple(filter(None, entry.identity.get("flags", "").split(",")))
        if entry.original not in self.LEVELS or not set(flags) <= ATIME | {"nodiratime"}:
            raise LabError(
                f"undo journal: knob {self.name} never sets {entry.original!r}, so this entry is not iotrial's",
                hint=ENTRY_CHANGED,
            )
        mount = target.mount_at(where)
        if mount is None:
            return Undone.GONE
        if (mount.source, mount.type) != (entry.identity.get("source"), entry.identity.get("type")):
            raise TakenError(f"{where} is another mount now: it is left alone")
        found = _atime_of(mount)
        if found == entry.original:
            return Undone.ALREADY
        if found not in entry.ours:
            raise foreign(f"access time mode of {where}", found, entry)
        remount_atime(target, mount, flags)
        now = target.mount_at(where)
        back = "nothing mounted" if now is None else _atime_of(now)
        if back != entry.original:
            raise KnobError(self.name, where, wrote=entry.original, found=back)
        return Undone.RESTORED


def _atime_of(mount: MountInfo) -> str:
    """Return the access time mode of a mount, leaving aside lazytime, which is of the file system."""
    modes = ("noatime", "relatime", "nodiratime")
    return next((mode for mode in modes if mode in mount.mount_options), "strictatime")


class MountReadonly(MountKnob, declared.MountReadonly):
    LEVELS = ("rw", "ro")

    def parse(self, setting: Setting) -> str:
        return one_of(self.name, {"true": "ro", "false": "rw"}.get(setting.value, setting.value), self.LEVELS)

    def words(self, value: str) -> tuple[str, ...]:
        return ("ro",) if value == "ro" else ()

    def read(self, context: RunContext, setting: Setting) -> str:
        return "ro" if "ro" in _mounted(self.name, context).mount_options else "rw"


#: by file system: options that a remount changes and the kernel shows, so that they can be set in place, and the word for
#: each where nothing is shown (ext4 shows all in its own file)
LIVE: dict[str, dict[str, str]] = {
    "ext4": {
        one: f"no{one}"
        for one in (
            "auto_da_alloc",
            "commit",
            "discard",
            "inode_readahead_blks",
            "max_batch_time",
            "min_batch_time",
        )
    },
    "btrfs": {
        "autodefrag": "noautodefrag",
        "commit": "commit=30",
        "compress": "compress=no",
        "discard": "nodiscard",
    },
}


class MountOption(MountKnob, declared.MountOption):
    remountable = False

    def requires(self, setting: Setting) -> Requirement:
        about = family(dict(setting.options).get("option", setting.value))
        live = any(about in options for options in LIVE.values()) or setting.value == "default"
        return Requirement(root=True, labs=DISK_LABS | {IN_PLACE} if live else DISK_LABS)

    def changes_in_place(self, setting: Setting, values: tuple[str, ...]) -> tuple[str, ...]:
        return (f"options of the file system in use: {', '.join(values)}",)

    def prepare(self, context: RunContext, setting: Setting, values: tuple[str, ...]) -> None:
        place = context.place
        if not isinstance(place, InPlace):
            return
        about = self._about(setting, values)
        known = LIVE.get(place.filesystem, {})
        forced = any(word.startswith("compress-force") for word in _mounted(self.name, context).super_options)
        if about not in known or (about == "compress" and forced):
            raise RequestError(
                f"knob {self.name}: {about} cannot be changed in place on {place.filesystem}, which holds {place.root}",
                hint=f"in place it has: {', '.join(sorted(known))}"
                if known
                else "try it on a copy: --copy-from FOLDER",
            )
        entry = context.journal.record(
            self.name,
            {"mount": place.mount_point, "option": about},
            _live(context.target, place.mount_point, str(place.device), about),
            tuple(value for value in values if value != "default"),
            identity={
                "device": str(place.device),
                "number": context.target.read(f"/sys/class/block/{place.device}/dev"),
            },
            boot_id=context.boot_id,
            trial=context.trial,
        )
        place.options_before[about] = entry.original

    def undo(self, target: Target, entry: Entry) -> Undone:
        mount, about = entry.address.get("mount", ""), entry.address.get("option", "")
        if not any(about in options for options in LIVE.values()) or family(entry.original) != about:
            raise LabError(
                f"undo journal: knob {self.name} never sets {entry.original!r} in place, so this entry is not iotrial's",
                hint=ENTRY_CHANGED,
            )
        device = entry.identity.get("device", "")
        info = target.mount_at(mount)
        if info is None or about not in LIVE.get(info.type, {}):
            return Undone.GONE
        if target.read_or_none(f"/sys/class/block/{device}/dev") != entry.identity.get("number"):
            raise TakenError(f"{mount} is another file system now: it is left alone")
        found = _live(target, mount, device, about)
        if found == entry.original:
            return Undone.ALREADY
        if not any(_is(found, ours) for ours in entry.ours):
            raise foreign(f"option {about} of {mount}", found, entry)
        target.mount(info.source, mount, info.type, remount_words(info, entry.original))
        back = _live(target, mount, device, about)
        if back != entry.original:
            raise KnobError(self.name, mount, wrote=entry.original, found=back)
        return Undone.RESTORED

    def _about(self, setting: Setting, values: tuple[str, ...]) -> str:
        named = dict(setting.options).get("option")
        return family(named or next((value for value in values if value != "default"), "default"))

    def parse(self, setting: Setting) -> str:
        value = setting.value
        about = dict(setting.options).get("option")
        if about is not None and about not in self.ALLOWED:
            raise RequestError(
                f'knob mount.option: option "{about}" is not on its list',
                hint="it has: " + ", ".join(sorted(self.ALLOWED)),
            )
        if value == "default":
            return value
        if about is not None and family(value) != family(about):
            raise RequestError(f'knob mount.option: level "{value}" is not for option "{about}"')
        key, equals, argument = value.partition("=")
        if key not in self.ALLOWED:
            raise UnsupportedLevel(
                f'knob mount.option: "{key}" is not on its list',
                hint="it has: " + ", ".join(sorted(self.ALLOWED)),
            )
        if equals and not ARGUMENT.fullmatch(argument):
            raise UnsupportedLevel(f'knob mount.option: "{argument}" is not a value of {key}')
        return value

    def today(self, context: RunContext, setting: Setting) -> str:
        place = context.place
        if not isinstance(place, InPlace) or place.filesystem != "ext4":
            return "default"
        shown = option_today(context.target, place, self._about(setting, (setting.value,)))
        return "default" if shown == "not shown" else shown

    def is_today(self, setting: Setting, value: str) -> bool:
        return setting.value == "default" or super().is_today(setting, value)

    def levels(self, context: RunContext, setting: Setting) -> tuple[str, ...]:
        filesystem = disk_place(self.name, context.place).filesystem
        return ("default", *(o for o, where in sorted(self.ALLOWED.items()) if filesystem in where))

    def words(self, value: str) -> tuple[str, ...]:
        return () if value == "default" else (value,)

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        # One request per option, so that several factors are mounted together. Also for the default: mounts with and
        # without an option are set up in the same way.
        if isinstance(context.place, InPlace):
            self._set_in_place(context, context.place, setting, value)
            return
        place = disk_place(self.name, context.place)
        place.want_options(self._wish(setting, value), self.words(value), remountable=False)

    def _set_in_place(self, context: RunContext, place: InPlace, setting: Setting, value: str) -> None:
        _, word = _in_place(place, setting, value)
        info = _mounted(self.name, context)
        context.target.mount(info.source, info.target, info.type, remount_words(info, word))
        self._verify_in_place(context, place, setting, value)

    def _verify_in_place(self, context: RunContext, place: InPlace, setting: Setting, value: str) -> None:
        about, word = _in_place(place, setting, value)
        found = _live(context.target, place.mount_point, str(place.device), about)
        if not _is(found, word):
            raise KnobError(self.name, place.label, wrote=word, found=found)

    def read(self, context: RunContext, setting: Setting) -> str:
        _mounted(self.name, context)
        place = context.place
        if isinstance(place, InPlace):
            if not place.options_before:
                return "default"  # nothing has been changed yet
            about, before = _in_place(place, setting, "default")
            found = _live(context.target, place.mount_point, str(place.device), about)
            return "default" if found == before else found
        words = disk_place(self.name, context.place).options_of(self._wish(setting, setting.value))
        return words[0] if words else "default"

    def _wish(self, setting: Setting, value: str) -> str:
        return f"{self.name} {family(dict(setting.options).get('option', value))}"

    def verify(self, context: RunContext, setting: Setting, value: str) -> None:
        # The kernel omits its defaults from mountinfo and rewrites other options; what it cannot do, it refuses at mount(2).
        # ext4 lists all options in its own file. Any option that is shown must have the wanted value, and what is shown must
        # stay as it was right after the mount.
        if isinstance(context.place, InPlace):
            self._verify_in_place(context, context.place, setting, value)
            return
        super().verify(context, setting, value)
        every = self._shown(context)
        self._verify_unchanged(context, every)
        if value == "default":
            return
        key, equals, wanted = value.partition("=")
        if equals:
            shown = [o for o in every if o.partition("=")[0] == key]
            same = [
                o for o in shown if o.startswith(value) or _amount(o.partition("=")[2]) == _amount(wanted)
            ]
        else:
            shown = [o for o in every if family(o) == family(key)]
            same = [o for o in shown if _switch(o) == _switch(key)]
        if shown and not same:
            raise KnobError(self.name, self.where(context, setting), wrote=value, found=shown[0])

    def _verify_unchanged(self, context: RunContext, every: list[str]) -> None:
        place = disk_place(self.name, context.place)
        if place.shown is None:
            place.shown = every
        if place.shown != every:
            lost, new = (",".join(sorted(one)) for one in (
                set(place.shown) - set(every), set(every) - set(place.shown)
            ))  # fmt: skip
            raise KnobError(self.name, place.label, wrote=lost or "not set", found=new or "not set")

    def _shown(self, context: RunContext) -> list[str]:
        options = ""
        if disk_place(self.name, context.place).filesystem == "ext4":
            options = context.target.read_or_none(f"/proc/fs/ext4/{context.place.device}/options") or ""
        return sorted(_mounted(self.name, context).options) + options.split()


def _in_place(place: InPlace, setting: Setting, value: str) -> tuple[str, str]:
    """Return the family of the option that a setting is about, and the option as the kernel shows it for this value."""
    named = dict(setting.options).get("option") or next(
        (one for one in (value, setting.value) if one != "default"), None
    )
    about = next(iter(place.options_before)) if named is None else family(named)
    return about, place.options_before[about] if value == "default" else value


def _live(target: Target, mount: str, device: str, about: str) -> str:
    """Return an option of a file system in use as the kernel shows it: ``commit=5``, ``discard`` or ``nodiscard``."""
    info = target.mount_at(mount)
    if info is None or about not in LIVE.get(info.type, {}):
        return "nothing mounted"
    shown: Iterable[str] = info.super_options
    if info.type == "ext4":
        shown = target.read(f"/proc/fs/ext4/{device}/options").split()
    return next((option for option in shown if family(option) == about), LIVE[info.type][about])


def option_today(target: Target, place: InPlace, option: str) -> str:
    """Return an option of the file system that holds a folder in use, as the kernel shows it; "not shown" if it does not."""
    info = target.mount_at(place.mount_point)
    if info is not None and family(option) in LIVE.get(info.type, {}):
        return _live(target, place.mount_point, str(place.device), family(option))
    shown = [] if info is None else sorted(info.super_options)
    if info is not None and info.type == "ext4":
        shown += (target.read_or_none(f"/proc/fs/ext4/{place.device}/options") or "").split()
    return next((one for one in shown if family(one) == family(option)), "not shown")


def _is(shown: str, word: str) -> bool:
    """Return whether the kernel shows this option: with a level of compression even if none was given."""
    return shown == word or shown.startswith(f"{word}:")


def remount_words(info: MountInfo, option: str) -> tuple[str, ...]:
    """Return the options of a remount that changes one option of the file system and keeps the flags of the mount."""
    flags = {"ro", "nosuid", "nodev", "noexec", "noatime", "nodiratime", "relatime"} & info.mount_options
    flags |= {"ro", "sync", "dirsync", "lazytime"} & info.super_options
    atime = () if {"noatime", "relatime"} & flags else ("strictatime",)
    return ("remount", *sorted(flags), *atime, option)


#: aliases of options: name, and whether the alias switches it on or off
SAME = {
    "async": ("sync", "off"),
    "dioread_lock": ("dioread_nolock", "off"),
    "inode32": ("inode64", "off"),
}


def family(option: str) -> str:
    """Return the setting that an option belongs to: ``nodelalloc`` and ``delalloc`` are one family."""
    return _named(option)[0]


def _switch(option: str) -> str:
    return _named(option)[1]


def _named(option: str) -> tuple[str, str]:
    key, _, argument = option.partition("=")
    if key in SAME:
        return SAME[key]
    if key.startswith("no") and key[2:] in MountOption.ALLOWED:
        return key[2:], "off"
    if key == "barrier" and argument == "0":
        return key, "off"
    return key, "on"


def _amount(text: str) -> int | str:
    """Return a size in bytes, because the kernel shows 1m as 1024k; any other text unchanged."""
    found = re.fullmatch(r"([0-9]+)([kmg]?)", text, re.ASCII | re.IGNORECASE)
    return text if found is None else int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[found[2].lower()]
