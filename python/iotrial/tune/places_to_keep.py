"""Where a system keeps each kind of setting, and what is written there: one class for each mechanism.

A mechanism turns choices into the text of files and into steps that set the running kernel. Nothing is changed here.
Sources: sysctl.d(5), udev(7), tmpfiles.d(5), fstab(5), systemd.mount(5), tuned.conf(5).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import ClassVar

from iotrial.errors import RequestError
from iotrial.knobs.block import BACKING, KNOBS, BlockScheduler, BlockTunable, DeviceFile
from iotrial.knobs.declaration import Stage, declarations
from iotrial.knobs.filesystem import MountAtime, MountOption
from iotrial.knobs.kernel_file import chosen_word
from iotrial.knobs.machine import CpuGovernor, MemoryHugePages, MemoryLruGen
from iotrial.knobs.sysctl import GuestSysctl, Sysctl
from iotrial.lab import registry
from iotrial.lab.in_place import Holding, holding_by_number, holding_of
from iotrial.lab.knobs.machine import CPUS
from iotrial.lab.knobs.memory import HUGE_PAGES, LRU_GEN, MIN_FREE
from iotrial.lab.knobs.mount import family
from iotrial.lab.machine.others import UDEV_FOLDERS
from iotrial.lab.target import MountInfo, unescape
from iotrial.study.model import Setting
from iotrial.terminal import escape
from iotrial.tune.applied import (
    AnyStep,
    Entry,
    FileStep,
    FolderStep,
    LiveStep,
    MountStep,
    ProfileStep,
    Record,
    ReloadStep,
    option_now,
    short_id,
)
from iotrial.tune.choice import Choice
from iotrial.tune.conflicts import (
    MARK,
    Rival,
    Tuned,
    block_rivals,
    sysctl_rivals,
    tmpfiles_rivals,
)
from iotrial.tune.devices import DeviceName, name_of
from iotrial.tune.machine import Machine

_UNIT_FOLDERS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
#: options of a file system that a remount changes and that the kernel shows: only these can be tried before they are kept
_LIVE_OPTIONS = {
    "ext4": (
        "auto_da_alloc", "barrier", "commit", "discard", "inode_readahead_blks", "lazytime", "max_batch_time",
        "min_batch_time",
    ),
    "xfs": ("lazytime",),
    "btrfs": ("lazytime",),
}  # fmt: skip
_ATIME_WORDS = frozenset(
    {"noatime", "atime", "relatime", "norelatime", "strictatime", "nostrictatime", "nodiratime", "diratime"}
)
#: what configuration management leaves at the head of the files that it writes
_MANAGED = re.compile(
    r"ansible managed|(?:managed|maintained|controlled|generated) by (ansible|puppet|chef|salt|cfengine|nix\w*|cloud-init)",
    re.IGNORECASE,
)
_HEAD = 4096
#: why a knob of a stage has no place in the system
_NOT_KEPT = {
    Stage.FORMAT: "choose it when the file system or the array is made",
    Stage.WORK: "write it into the script or unit that starts the command",
}
_CHOOSE = "choose one of the settings with --only"
_FOR_ANOTHER = "`--output DIR` writes files for another machine; here a script at boot can set it"
_NO_PLACE = "no system setting for it is known"


class NotKept(RequestError):
    """A setting for which the system has no place. Nothing was changed."""

    code = "not_kept"


class Managed(RequestError):
    """A file that cannot be written, or that another program writes. Nothing was changed."""

    code = "managed_elsewhere"


@dataclass(frozen=True, slots=True)
class Plan:
    """What keeping some settings means: an entry for each, steps in the order in which they are made, and warnings.

    The kernel is set first and files are written last, so that a setting that stops the machine is not on disk yet.
    """

    entries: tuple[Entry, ...]
    steps: tuple[AnyStep, ...]
    warnings: tuple[str, ...]
    #: each choice with the value that it replaces here, as the kernel shows it
    replaced: tuple[tuple[Choice, str], ...] = ()

    @property
    def files(self) -> tuple[FileStep, ...]:
        """The files that are written."""
        return tuple(step for step in self.steps if isinstance(step, FileStep))


@dataclass(slots=True)
class Draft:
    """A plan under construction, for this machine (``here``) or another.

    ``texts``: lines to add, by file; ``edits``: changes of a file that exists.
    """

    machine: Machine
    trial: str
    here: bool
    entries: list[Entry] = field(default_factory=list)
    live: list[AnyStep] = field(default_factory=list)
    texts: dict[str, list[str]] = field(default_factory=dict)
    edits: dict[str, list[Callable[[str], str]]] = field(default_factory=dict)
    sections: dict[str, list[str]] = field(default_factory=dict)
    reloads: dict[tuple[str, ...], None] = field(default_factory=dict)
    warnings: dict[str, None] = field(default_factory=dict)

    @property
    def short(self) -> str:
        return short_id(self.trial)

    def add(
        self, mechanism: str, choice: Choice, file: str, lines: Sequence[str], rivals: Sequence[Rival]
    ) -> None:
        """Note an entry, and the lines for its file unless the file is edited otherwise."""
        texts = tuple(str(rival) for rival in rivals)
        self.entries.append(Entry(choice, mechanism, file, tuple(lines), texts))

    def write(self, file: str, choice: Choice, lines: Sequence[str]) -> None:
        """Add lines to a file of our own, below their evidence."""
        self.texts.setdefault(file, []).extend([*comment(choice), *lines])


class Mechanism:
    """A way in which systems keep settings. ``knobs``: those that it keeps."""

    name: ClassVar[str]

    def keeps(self, choice: Choice) -> bool:
        """Return whether it keeps this knob."""
        raise NotImplementedError

    def plan(self, draft: Draft, choice: Choice, folder: str | None) -> None:
        """Add entry, lines and steps. ``folder``: selects its mount and its disks. Raises RequestError."""
        raise NotImplementedError


class SysctlFile(Mechanism):
    """sysctl.d(5); with tuned active, the [sysctl] section of a profile of our own."""

    name = "sysctl.d"

    def keeps(self, choice: Choice) -> bool:
        return choice.knob in (Sysctl.name, GuestSysctl.name)

    def plan(self, draft: Draft, choice: Choice, folder: str | None) -> None:
        machine, key = draft.machine, choice.options.get("key", "")
        if choice.value == "0" and key in Sysctl.PAIRS and Sysctl.ALLOWED[key][0]:
            raise NotKept(f"{key}=0 cannot be kept", hint=f"keep a value of {Sysctl.PAIRS[key]} instead")
        path = f"/proc/sys/{key.replace('.', '/')}"
        before = _now(machine, path, choice)
        back = None
        if (
            key in Sysctl.PAIRS and before == "0"
        ):  # the other one of the pair is in force, and must be written back
            other = f"/proc/sys/{Sysctl.PAIRS[key].replace('.', '/')}"
            back = (other, _now(machine, other, choice))
        draft.live.append(LiveStep(path, before, _words(choice.value), back=back))
        if key.startswith("fs.xfs."):
            draft.warnings[
                f"{key} exists only while the xfs module is loaded: at boot it is set only if that is so early"
            ] = None
        line = f"{key} = {_words(choice.value)}"
        if Tuned(machine).is_active:
            file = _profile_file(draft)
            draft.sections.setdefault("sysctl", []).extend([*comment(choice), line.replace(" = ", "=")])
            rivals = [
                replace(one, wins=Tuned(machine).reapplies_sysctl)
                for one in sysctl_rivals(machine, key, "/etc/sysctl.d/~")
                if not one.owner.startswith(("profile ", "the kernel"))
            ]
            draft.add("tuned profile", choice, file, (line,), rivals)
            return
        file = f"/etc/sysctl.d/99-zz-iotrial-{draft.short}.conf"
        draft.write(file, choice, (line,))
        draft.add(self.name, choice, file, (line,), list(sysctl_rivals(machine, key, file)))


class UdevRule(Mechanism):
    """udev(7): a rule for the disk by its stable name, applied whenever the disk appears or changes."""

    name = "udev rule"
    _rows: ClassVar[dict[str, DeviceFile]] = {row.name: row for row in KNOBS}

    def keeps(self, choice: Choice) -> bool:
        return choice.knob == BlockScheduler.name or choice.knob in self._rows

    def plan(self, draft: Draft, choice: Choice, folder: str | None) -> None:
        machine = draft.machine
        if not any(machine.names(one) for one in UDEV_FOLDERS):
            raise NotKept(f"{choice.name}: this machine has no udev", hint=_FOR_ANOTHER)
        row = self._rows.get(choice.knob)
        file = "queue/scheduler" if row is None else f"{row.folder}/{row.file}"
        holding = held_by(machine, folder, choice)
        whole = row is not None and row.of_the_whole
        kernels = (holding.whole,) if whole else holding.queues
        own = [folder for folder in holding.backing if folder.startswith(BACKING)]
        if whole and own:
            raise NotKept(
                f"{choice.name}: it is a setting of the mount {holding.mount.target} ({', '.join(own)}), "
                "and no rule for a disk keeps it",
                hint="a unit after the mount can write the file; for NFS nfsrahead of nfs-utils sets read-ahead",
            )
        if not kernels or kernels[0] is None:
            raise NotKept(f"{choice.name}: {holding.described}, which has no queue")
        path = f"/etc/udev/rules.d/99-zz-iotrial-{draft.short}.rules"
        for kernel in filter(None, kernels):
            device = name_of(machine, kernel)
            if not device.stable:
                draft.warnings[
                    f"{kernel} has no serial number or other stable name: the rule names it by its kernel name, which may be "
                    "another disk after a reboot"
                ] = None
            rivals = list(block_rivals(machine, file, device, path))
            draft.live.append(self._live(machine, choice, device, file))
            profile = Tuned(machine)
            option = {"queue/scheduler": "elevator", "queue/read_ahead_kb": "readahead"}.get(file)
            if option and option in profile.disk(kernel):
                self._in_tuned(draft, choice, device, option, profile)
                continue
            line = f'{device.match}, ATTR{{{file}}}="{choice.value}"'
            draft.write(path, choice, (line,))
            draft.add(self.name, choice, path, (line,), rivals)
            draft.reloads[("udevadm", "control", "--reload")] = None

    @staticmethod
    def _in_tuned(draft: Draft, choice: Choice, device: DeviceName, option: str, profile: Tuned) -> None:
        """Where the active profile sets a disk after udev has, only a section for this disk prevails."""
        kept = {
            k: v
            for k, v in profile.disk(device.kernel).items()
            if k not in ("type", "devices", "devices_udev_regex", option)
        }
        section = f"disk_{device.kernel}"
        where = (
            f"devices_udev_regex=({device.key}={re.escape(device.value)})"
            if device.kind == "ENV"
            else f"devices={device.kernel}"
        )
        lines = draft.sections.setdefault(
            section, ["type=disk", "priority=-1", where, *(f"{k}={v}" for k, v in kept.items())]
        )
        lines[:] = [one for one in lines if not one.startswith(f"{option}=")]
        line = f"{option}={choice.value}"
        lines.extend([*comment(choice), line])
        draft.add("tuned profile", choice, _profile_file(draft), (f"[{section}]", where, line), ())

    @staticmethod
    def _live(machine: Machine, choice: Choice, device: DeviceName, file: str) -> LiveStep:
        folder = f"/sys/block/{device.kernel}"
        path = f"{folder}/{file}"
        before = _now(machine, path, choice)
        # a change of scheduler or of a limit moves these (iotrial.knobs.block)
        moved = ["read_ahead_kb"]
        if file == "queue/scheduler":
            own = set(machine.names(f"{folder}/queue/iosched")) & set(BlockTunable.TUNABLES)
            moved = [
                "nr_requests",
                "wbt_lat_usec",
                "read_ahead_kb",
                *(f"iosched/{key}" for key in sorted(own)),
            ]
        restore = tuple(
            (f"/sys/block/{{device}}/queue/{name}", text)
            for name in moved
            if f"queue/{name}" != file and (text := machine.text(f"{folder}/queue/{name}")) is not None
        )
        return LiveStep(f"/sys/block/{{device}}/{file}", before, choice.value, device, restore)


class TmpfilesLine(Mechanism):
    """tmpfiles.d(5): a line that writes a kernel file at boot; with tuned active, a section of a profile of our own."""

    name = "tmpfiles.d"

    def keeps(self, choice: Choice) -> bool:
        return choice.knob in (MemoryHugePages.name, MemoryLruGen.name, CpuGovernor.name)

    def plan(self, draft: Draft, choice: Choice, folder: str | None) -> None:
        machine = draft.machine
        if choice.knob == MemoryHugePages.name:
            path, section, option = HUGE_PAGES, "vm", "transparent_hugepages"
            restore = ((MIN_FREE, found),) if (found := machine.text(MIN_FREE)) else ()
            draft.live.append(LiveStep(path, _now(machine, path, choice), choice.value, restore=restore))
        elif choice.knob == MemoryLruGen.name:
            path, section, option = LRU_GEN, "sysfs", LRU_GEN
            draft.live.append(LiveStep(path, _now(machine, path, choice), choice.value))
        else:
            governors = [
                f"{CPUS}/{cpu}/cpufreq/scaling_governor"
                for cpu in machine.names(CPUS)
                if re.fullmatch(r"cpu[0-9]+", cpu)
                and machine.exists(f"{CPUS}/{cpu}/cpufreq/scaling_governor")
            ]
            if not governors:
                raise NotKept(f"{choice.name}: the processors of this machine have no governor")
            draft.live += [LiveStep(one, _now(machine, one, choice), choice.value) for one in governors]
            path, section, option = f"{CPUS}/cpu*/cpufreq/scaling_governor", "cpu", "governor"
        if Tuned(machine).is_active:
            line = f"{option}={choice.value}"
            draft.sections.setdefault(section, []).extend([*comment(choice), line])
            draft.add("tuned profile", choice, _profile_file(draft), (f"[{section}]", line), ())
            return
        if not machine.exists("/usr/lib/tmpfiles.d"):
            raise NotKept(f"{choice.name}: this machine has no systemd-tmpfiles", hint=_FOR_ANOTHER)
        file = f"/etc/tmpfiles.d/00-iotrial-{draft.short}.conf"
        line = f"w {path} - - - - {choice.value}"
        draft.write(file, choice, (line,))
        rivals = tmpfiles_rivals(machine, path.replace("cpu*", "cpu0"), file)
        draft.add(self.name, choice, file, (line,), list(rivals))


class MountOptions(Mechanism):
    """fstab(5): the options of the mount's line; or a drop-in for its systemd.mount(5) unit."""

    name = "fstab"

    def keeps(self, choice: Choice) -> bool:
        return choice.knob in (MountAtime.name, MountOption.name)

    def plan(self, draft: Draft, choice: Choice, folder: str | None) -> None:
        machine = draft.machine
        holding = held_by(machine, folder, choice)
        mount = holding.mount
        wanted = self._wanted(choice)
        for about, words in wanted:
            if about:
                self._check(choice, mount, about)
            draft.live.append(self._live(draft, choice, holding, about, words))

        def edit(options: str) -> str:
            for about, words in wanted:
                options = with_option(options, about, "" if choice.value == "default" else words)
            return options

        lines = (machine.text("/etc/fstab") or "").split("\n")
        found = [line for line in lines if _mount_point(line) == mount.target]
        if len(found) > 1:
            raise Managed(
                f"/etc/fstab has {len(found)} lines for {mount.target}: it is not clear which one counts"
            )
        if found:
            draft.edits.setdefault("/etc/fstab", []).append(
                lambda text: fstab_edited(text, mount.target, edit, comment(choice))
            )
            draft.reloads[("systemctl", "daemon-reload")] = None
            line = next(one for one in fstab_edited(found[0], mount.target, edit, ()).split("\n") if one)
            draft.add(self.name, choice, "/etc/fstab", (line,), list(self.unit_rivals(machine, mount.target)))
            return
        self._drop_in(draft, choice, mount, edit)

    @staticmethod
    def _wanted(choice: Choice) -> tuple[tuple[str, str], ...]:
        """Return families of options and what they become; the family of access time flags is empty.

        As in a trial, nodiratime and lazytime come with strictatime (``lab.knobs.mount``).
        """
        if choice.knob == MountAtime.name:
            with_strict = {
                "nodiratime": (("", "strictatime,nodiratime"),),
                "lazytime": (("", "strictatime"), ("lazytime",) * 2),
            }
            return with_strict.get(choice.value, (("", choice.value),))
        about = family(choice.options.get("option") or choice.value)
        return ((about, {"barrier=0": "nobarrier", "barrier=1": "barrier"}.get(choice.value, choice.value)),)

    @staticmethod
    def _check(choice: Choice, mount: MountInfo, about: str) -> None:
        if mount.type not in MountOption.ALLOWED.get(about, ()):
            raise NotKept(f"{choice.name}: {mount.target} is {mount.type}, which has no option {about}")
        if about not in _LIVE_OPTIONS.get(mount.type, ()):
            raise NotKept(
                f"{choice.name}: apply does not set option {about} of {mount.type}",
                hint=f"write it into /etc/fstab for {mount.target} yourself, and mount the file system again to try it",
            )

    @staticmethod
    def _live(draft: Draft, choice: Choice, holding: Holding, about: str, words: str) -> MountStep:
        mount = holding.mount
        before = option_now(draft.machine, mount.target, mount.type, str(holding.device), about)
        for step in draft.live:  # an earlier choice for the same mount
            if isinstance(step, MountStep) and (step.mount, step.option) == (mount.target, about):
                raise RequestError(
                    f"{choice.name}: another setting of the trial changes the same options of {mount.target}",
                    hint=_CHOOSE,
                )
        if choice.value == "default":
            default = {
                "lazytime": "nolazytime",
                "commit": "commit=5",
                "barrier": "barrier",
                "auto_da_alloc": "auto_da_alloc",
                "discard": "nodiscard",
            }
            words = default.get(about, "")
            if not words:
                raise NotKept(
                    f"{choice.name}: the default of option {about} is not known; remove it from fstab by hand"
                )
        return MountStep(mount.target, mount.type, str(holding.device), about, str(before), words)

    def _drop_in(self, draft: Draft, choice: Choice, mount: MountInfo, edit: Callable[[str], str]) -> None:
        machine = draft.machine
        unit = f"{_unit_name(mount.target)}.mount"
        owner = next(
            (f"{folder}/{unit}" for folder in _UNIT_FOLDERS if machine.exists(f"{folder}/{unit}")), None
        )
        if owner is None:
            raise NotKept(
                f"{choice.name}: neither /etc/fstab nor a mount unit has {mount.target}, so there is no place for "
                "its options",
                hint="give the option where it is mounted: by hand, in a script, on the kernel command line",
            )
        text = machine.text(owner) or ""
        options = next(
            (line.partition("=")[2].strip() for line in text.split("\n") if line.startswith("Options=")), ""
        )
        folder = f"/etc/systemd/system/{unit}.d"
        file = f"{folder}/50-iotrial-{draft.short}.conf"
        if file in draft.texts:
            options = draft.texts[file].pop().partition("=")[2]
        else:
            draft.texts[file] = ["[Mount]"]
        line = f"Options={edit(options)}"
        draft.texts[file] += [*comment(choice), line]
        draft.add("mount unit", choice, file, (line,), ())
        draft.reloads[("systemctl", "daemon-reload")] = None

    @staticmethod
    def unit_rivals(machine: Machine, target: str) -> Iterator[Rival]:
        unit = f"{_unit_name(target)}.mount"
        for folder in ("/etc/systemd/system", "/run/systemd/system"):
            if machine.exists(f"{folder}/{unit}"):
                yield Rival(f"{folder}/{unit}", None, True)


MECHANISMS: tuple[Mechanism, ...] = (SysctlFile(), UdevRule(), TmpfilesLine(), MountOptions())
_RANK = {"block.scheduler": -2, "block.nr_requests": -1, "block.read_ahead_kb": 9}


def plan(machine: Machine, choices: Sequence[Choice], folder: str | None, *, here: bool = True) -> Plan:
    """Plan how these choices are kept, ``here`` or elsewhere. Raises NotKept, Managed or RequestError; changes nothing."""
    assert choices
    draft = Draft(machine, choices[0].trial, here)
    replaced: list[tuple[Choice, str]] = []
    # a change of scheduler moves the length of the queue, and a limit moves read-ahead: those come after
    for choice in sorted(choices, key=lambda one: _RANK.get(one.knob, 0)):
        _check_value(choice)
        first = len(draft.live)
        mechanism_of(choice).plan(draft, choice, folder)
        steps = [step for step in draft.live[first:] if isinstance(step, LiveStep | MountStep)]
        replaced += [(choice, step.before) for step in steps if step.before != step.after]
    _refuse_twice(draft)
    files, folders, profile = _files(draft)
    if here:
        for step in files:
            refuse_managed(machine, step.path)
    reloads = [ReloadStep(argv) for argv in draft.reloads if _wanted(machine, argv)]
    every: tuple[AnyStep, ...] = (*draft.live, *folders, *files, *profile, *reloads)
    return Plan(tuple(draft.entries), every, tuple(draft.warnings), tuple(replaced))


def mechanism_of(choice: Choice) -> Mechanism:
    """Return the mechanism that keeps a knob. Raises NotKept with the reason if there is none."""
    for mechanism in MECHANISMS:
        if mechanism.keeps(choice):
            return mechanism
    declared = declarations().get(choice.knob)
    why = _NO_PLACE if declared is None else _NOT_KEPT.get(declared.stage, _NO_PLACE)
    raise NotKept(f"{choice.name}={escape(choice.value)} cannot be kept: {why}")


def _check_value(choice: Choice) -> None:
    """Raise unless the knob takes this value: a trial from elsewhere may hold any text, and files are written with it."""
    setting = Setting(choice.knob, choice.value, tuple(choice.options.items()))
    parsed = registry.knob(choice.knob).parse(setting)
    if parsed != choice.value:
        raise RequestError(
            f'{choice.name}: "{choice.value}" is written as "{parsed}"; run the trial with that value'
        )


def _refuse_twice(draft: Draft) -> None:
    seen: dict[str, str] = {}
    for step in draft.live:
        if step.target in seen and isinstance(step, LiveStep):
            raise RequestError(f"{step.target} would be set twice", hint=_CHOOSE)
        seen[step.target] = ""


def _wanted(machine: Machine, argv: tuple[str, ...]) -> bool:
    return argv[0] != "systemctl" or machine.exists("/run/systemd/system")


def _files(draft: Draft) -> tuple[list[FileStep], list[FolderStep], list[ProfileStep]]:
    """Return the steps that write files, the folders that are missing, and the switch of tuned's profile."""
    machine = draft.machine
    files = []
    for path, lines in draft.texts.items():
        text = "\n".join([*header(draft), *lines]) + "\n"
        files.append(FileStep.writing(machine, path, text.encode()))
    for path, edits in draft.edits.items():
        before = machine.read(path) or b""
        text = before.decode("utf-8", "surrogateescape")
        for edit in edits:
            text = edit(text)
        files.append(FileStep.writing(machine, path, text.encode("utf-8", "surrogateescape")))
    profile = []
    if draft.sections:
        tuned = Tuned(machine)
        if "iotrial" in tuned.name:
            raise RequestError(
                f"tuned already has a profile of iotrial ({tuned.name})",
                hint="`iotrial revert` that trial first",
            )
        name = f"iotrial-{draft.short}"
        includes = ",".join(tuned.name.split())
        main = ["[main]", f"summary={header(draft)[0].lstrip('# ')}", f"include={includes}"]
        body = [line for section, lines in draft.sections.items() for line in ("", f"[{section}]", *lines)]
        text = "\n".join([*header(draft), *main, *body]) + "\n"
        files.append(FileStep.writing(machine, _profile_file(draft), text.encode()))
        profile.append(_profile(machine, tuned.name, name))
    missing: dict[str, None] = {}
    for path in [file.path for file in files]:
        folder = _above(path)
        above = []
        while folder != "/" and not machine.exists(folder):
            above.append(folder)
            folder = _above(folder)
        missing |= dict.fromkeys(reversed(above))
    return files, [FolderStep(path) for path in missing], profile


def _profile(machine: Machine, before: str, after: str) -> ProfileStep:
    written = {"/etc/tuned/active_profile": f"{after}\n", "/etc/tuned/profile_mode": "manual\n"}
    files = [FileStep.writing(machine, path, text.encode()) for path, text in written.items()]
    other = "/etc/tuned/post_loaded_profile"
    content = machine.read(other)
    if content is not None:
        files.append(FileStep.writing(machine, other, content))
    return ProfileStep(before, after, tuple(files))


def _profile_file(draft: Draft) -> str:
    return f"/etc/tuned/iotrial-{draft.short}/tuned.conf"


def header(draft: Draft) -> tuple[str, ...]:
    """Return the first lines of a file of our own."""
    known = "; `iotrial revert` takes it back, `iotrial applied` shows it" if draft.here else ""
    return (f"# {MARK} from trial {draft.short}{known}.",)


def comment(choice: Choice) -> tuple[str, ...]:
    """Return comment lines with the evidence of a setting, and what it means for the safety of data."""
    was = "" if choice.was is None else f" (was {escape(choice.was)} in the trial)"
    lines = (
        f"# {escape(choice.name)} = {escape(choice.value)}{was}: {choice.evidence}",
        f"# trial {short_id(choice.trial)} of {escape(choice.date[:10])}; {choice.safety}: {choice.consequence}",
    )
    return tuple(
        line.rstrip("\\") for line in lines
    )  # some programs join a line with the next one after a backslash


def _now(machine: Machine, path: str, choice: Choice) -> str:
    text = machine.text(path)
    if text is None:
        raise NotKept(f"{choice.name}: this machine has no {path}")
    return chosen_word(text)


def _words(value: str) -> str:
    return " ".join(value.split())


def held_by(machine: Machine, folder: str | None, choice: Choice) -> Holding:
    """Return the mount and the disks that hold a folder. Raises RequestError without one."""
    if folder is None:
        raise RequestError(
            f"{choice.name} is a setting of one disk or mount, and the trial was not made on one of this machine's",
            hint="say which one: --in FOLDER, any folder on it",
        )
    if machine.is_this:
        return holding_of(folder)
    mountinfo, sys = machine.at("/proc/self/mountinfo"), machine.at("/sys")
    return holding_by_number(folder, sys=sys, mountinfo=mountinfo)


# fstab


def _mount_point(line: str) -> str | None:
    words = line.split()
    if len(words) < 3 or words[0].startswith("#"):
        return None
    return unescape(words[1]).rstrip("/") or "/"


_FSTAB_LINE = re.compile(r"(\s*\S+\s+\S+\s+\S+)(?:(\s+)(\S+))?(.*)", re.DOTALL)


def fstab_edited(text: str, target: str, edit: Callable[[str], str], note: Sequence[str]) -> str:
    """Return fstab with the options of one mount changed and ``note`` above it; every other byte stays."""
    found = []
    for line in text.split("\n"):
        if _mount_point(line) != target:
            found.append(line)
            continue
        match = _FSTAB_LINE.fullmatch(line)
        assert match is not None
        first, gap, options, rest = match[1], match[2] or "\t", match[3] or "defaults", match[4]
        found += [*note, f"{first}{gap}{edit(options)}{rest}"]
    return "\n".join(found)


def with_option(options: str, about: str, words: str) -> str:
    """Return options of a mount with those of one family replaced; ``about`` empty: the access time flags."""
    kept = []
    for one in options.split(","):
        key = one.partition("=")[0]
        ours = key in _ATIME_WORDS if not about else (family(one) == about or key == f"no{about}")
        if one and not ours:
            kept.append(one)
    found = [*kept, *filter(None, words.split(","))]
    return ",".join(found) or "defaults"


def _unit_name(path: str) -> str:
    """Return the name of a mount unit as systemd-escape(1) --path makes it."""
    if path == "/":
        return "-"
    found = ""
    for at, c in enumerate(path.strip("/")):
        if c == "/":
            found += "-"
        elif c.isascii() and (c.isalnum() or c in ":_" or (c == "." and at)):
            found += c
        else:
            found += "".join(f"\\x{byte:02x}" for byte in c.encode())
    return found


# who owns a file


def refuse_managed(machine: Machine, path: str) -> None:
    """Raise Managed if a file cannot be written, or if another program writes it. Names the file and the program."""
    hint = "set it there instead, choose others with --only, or write files for it with --output DIR or --print FORMAT"
    for part in _on_the_way(path):
        place = machine.at(part)
        if place.is_symlink():
            to = str(place.readlink())
            if part == path or to.startswith(("/nix", "/gnu/store")) or "/nix/store" in to:
                owner = (
                    "NixOS"
                    if "/nix" in to
                    else "Guix"
                    if "/gnu/store" in to
                    else f"the program that writes {to}"
                )
                raise Managed(
                    f"{path} is managed elsewhere: {part} is a link to {to} (owner: {owner})", hint=hint
                )
    text = machine.text(path)
    if text is not None:
        mark = _MANAGED.search(text[:_HEAD])
        if mark is not None:
            line = next(one.strip() for one in text.split("\n") if mark[0] in one)
            raise Managed(f'{path} is managed elsewhere: it says "{escape(line)[:200]}"', hint=hint)
    above = path
    while not machine.exists(above):
        above = _above(above)
    folder = above if machine.at(above).is_dir() else _above(above)
    if os.statvfs(machine.at(folder)).f_flag & os.ST_RDONLY or _is_mounted_read_only(machine, folder):
        raise Managed(f"{path} cannot be written: {folder} is on a read-only file system", hint=hint)


def _is_mounted_read_only(machine: Machine, folder: str) -> bool:
    """Return whether a prepared tree says that a folder is read-only."""
    if machine.is_this:
        return False
    best = max(
        (
            one
            for one in machine.mounts()
            if one.target == "/" or (folder + "/").startswith(one.target.rstrip("/") + "/")
        ),
        key=lambda one: len(one.target),
        default=None,
    )
    return best is not None and "ro" in best.mount_options


def _on_the_way(path: str) -> Iterator[str]:
    parts = path.split("/")
    for number in range(2, len(parts) + 1):
        yield "/".join(parts[:number])


def rivals_now(machine: Machine, record: Record) -> list[Rival]:
    """Find again who else sets what a record has applied."""
    found: list[Rival] = []
    if not record.in_force:
        return found
    for entry in record.entries:
        if entry.mechanism == SysctlFile.name:
            found += sysctl_rivals(machine, entry.choice.options.get("key", ""), entry.file)
        elif entry.mechanism == TmpfilesLine.name:
            path = entry.lines[0].split()[1].replace("cpu*", "cpu0")
            found += tmpfiles_rivals(machine, path, entry.file)
        elif entry.mechanism == UdevRule.name:
            for step in record.steps:
                if (
                    isinstance(step, LiveStep)
                    and step.device is not None
                    and f"ATTR{{{step.file}}}" in entry.lines[0]
                ):
                    found += block_rivals(machine, step.file, step.device, entry.file)
    found += (
        rival
        for step in record.steps
        if isinstance(step, MountStep)
        for rival in MountOptions.unit_rivals(machine, step.mount)
    )
    return list(dict.fromkeys(found))


def _above(path: str) -> str:
    return str(PurePosixPath(path).parent)
