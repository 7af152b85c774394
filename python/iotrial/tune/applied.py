"""The record on disk of what was applied, which suffices to revert it.

A record is written and synced before the first change. It lists steps in order: kernel files, mounts, files, links, folders.
Each step holds the previous state and the new one, so that it can be reverted from any point, repeatedly, also after SIGKILL
or a power cut. A step is reverted only if its own result is still in place; what others have changed since is left alone and
reported.

States of a record: ``applying`` (being made), ``pending`` (waits for ``iotrial keep``), ``kept``, ``reverting``,
``reverted``. Only one process at a time changes records or settings (``lock``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec import structs

from iotrial.decoding import decode
from iotrial.documents import JsonObject
from iotrial.durable import Damage, DamageError, read_each, read_own, sealed, sync_folder
from iotrial.errors import IotrialError, KnobError, LabError, RequestError
from iotrial.knobs.kernel_file import chosen_word
from iotrial.lab.lock import Busy, taken
from iotrial.polling import attempts
from iotrial.store.states import ProcessIdentity, end_hung, identity, is_alive
from iotrial.terminal import escape
from iotrial.tune.choice import Choice
from iotrial.tune.devices import DeviceName, device_named
from iotrial.tune.machine import DRAFT, FileFacts, Machine

#: one place for all users: settings belong to the machine
FOLDER = "/var/lib/iotrial/applied"
VERSION = 1
#: a process that holds the lock for longer hangs, or was stopped
HELD_S = 60.0
#: a timer may go off this much before the time that the record says
EARLY_S = 5.0


class Outcome(StrEnum):
    """The outcome of reverting a step."""

    RESTORED = "restored"
    ALREADY = "already as before"
    GONE = "gone"
    FOREIGN = "changed by somebody else since: left alone"


class Step(JsonObject, frozen=True, tag_field="step"):
    """One change, which can be made and reverted."""

    @property
    def target(self) -> str:
        """What is changed, for messages."""
        raise NotImplementedError

    def obstacle(self, machine: Machine) -> str | None:
        """Say what is in the way of the change: something that it neither replaces nor could put back."""
        return None

    def make(self, machine: Machine) -> None:
        """Make the change. Raises LabError."""
        raise NotImplementedError

    def undo(self, machine: Machine, *, force: bool = False) -> Outcome:
        """Revert it. ``force``: even if others have changed it since."""
        raise NotImplementedError

    def drift(self, machine: Machine) -> str | None:
        """Describe the current state if it is not what was set."""
        raise NotImplementedError


class FolderStep(Step, frozen=True, tag="folder"):
    """A folder that did not exist."""

    path: str

    @property
    def target(self) -> str:
        return self.path

    def make(self, machine: Machine) -> None:
        machine.make_folder(self.path)

    def undo(self, machine: Machine, *, force: bool = False) -> Outcome:
        machine.remove_folder(self.path)
        return Outcome.FOREIGN if machine.exists(self.path) else Outcome.RESTORED

    def drift(self, machine: Machine) -> str | None:
        return None if machine.exists(self.path) else "the folder is gone"


class LinkStep(Step, frozen=True, tag="link"):
    """A symbolic link that did not exist."""

    path: str
    to: str

    @property
    def target(self) -> str:
        return self.path

    def obstacle(self, machine: Machine) -> str | None:
        place = machine.at(self.path)
        if not machine.exists(self.path) or (place.is_symlink() and str(place.readlink()) == self.to):
            return None
        return f"{self.path} exists, and is no link to {self.to}"

    def make(self, machine: Machine) -> None:
        if not machine.exists(self.path):
            machine.link(self.path, self.to)

    def undo(self, machine: Machine, *, force: bool = False) -> Outcome:
        place = machine.at(self.path)
        if place.is_symlink() and str(place.readlink()) == self.to:
            machine.remove(self.path)
            return Outcome.RESTORED
        return Outcome.FOREIGN if machine.exists(self.path) else Outcome.ALREADY

    def drift(self, machine: Machine) -> str | None:
        return None if machine.at(self.path).is_symlink() else "the link is gone"


class FileStep(Step, frozen=True, tag="file"):
    """A file that is made, or gets new content. ``before`` is None if it did not exist."""

    path: str
    before: bytes | None
    after: bytes
    facts: FileFacts

    @property
    def target(self) -> str:
        return self.path

    @classmethod
    def writing(cls, machine: Machine, path: str, after: bytes) -> FileStep:
        """Return the step that gives a file this content, with its current content."""
        before = machine.read(path)
        facts = FileFacts.ours() if before is None else FileFacts.of_file(machine.at(path))
        return cls(path, before, after, facts)

    def obstacle(self, machine: Machine) -> str | None:
        # a masked unit, for one: the file in its place would get the mode of /dev/null
        place = machine.at(self.path)
        if place.is_symlink():
            return f"{self.path} is a link to {escape(place.readlink())}"
        folder, name = place.parent, self.path.rpartition("/")[0]
        if os.path.lexists(folder) and not folder.is_dir():
            return f"{name} is no folder"
        if folder.resolve().is_relative_to(machine.at("/run").resolve()):
            return f"{name} is a link into /run, which is empty after a reboot"
        return None

    def make(self, machine: Machine) -> None:
        found = machine.read(self.path)
        if found == self.after:
            return
        if found != self.before:
            raise LabError(f"{self.path} has been changed meanwhile by somebody else; run the command again")
        machine.replace(self.path, self.after, like=structs.replace(self.facts, modified_ns=None))

    def undo(self, machine: Machine, *, force: bool = False) -> Outcome:
        draft = f"{self.path}{DRAFT}"
        if machine.exists(draft):
            machine.remove(draft)
        found = machine.read(self.path)
        if found == self.before:
            return Outcome.ALREADY
        content = self.before
        if found != self.after and not force:
            content = None if found is None else self._without_ours(found)
            if content is None:
                return Outcome.FOREIGN
        if content is None:
            machine.remove(self.path)
            return Outcome.RESTORED
        whole = content == self.before
        machine.replace(
            self.path, content, like=self.facts if whole else structs.replace(self.facts, modified_ns=None)
        )
        return Outcome.RESTORED

    def _without_ours(self, found: bytes) -> bytes | None:
        """Return a file that others have edited since, with our own lines as they were before.

        None if that is not possible: for a file that we made, or if our lines are not there, together and once.
        """
        if self.before is None:
            return None
        old, new = self.before.splitlines(keepends=True), self.after.splitlines(keepends=True)
        first = next(
            (i for i, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]),
            min(len(old), len(new)),
        )
        last = 0
        while last < min(len(old), len(new)) - first and old[-1 - last] == new[-1 - last]:
            last += 1
        ours, theirs = b"".join(new[first : len(new) - last]), b"".join(old[first : len(old) - last])
        if not ours or found.count(ours) != 1:
            return None
        return found.replace(ours, theirs)

    def drift(self, machine: Machine) -> str | None:
        found = machine.read(self.path)
        if found == self.after:
            return None
        return "the file is gone" if found is None else "the file was edited since"


class LiveStep(Step, frozen=True, tag="live"):
    """A kernel file. ``device``: the block device that it belongs to, which may have another kernel name after a reboot.

    ``path`` then has ``{device}`` instead of that name. ``restore``: what else the change moves, with the values to
    write back after it, in order; ``back``: path and value that bring ``before`` back, if it is not written to ``path``.
    """

    path: str
    before: str
    after: str
    device: DeviceName | None = None
    restore: tuple[tuple[str, str], ...] = ()
    back: tuple[str, str] | None = None

    @property
    def target(self) -> str:
        return self.path if self.device is None else self.path.replace("{device}", self.device.kernel)

    @property
    def file(self) -> str:
        """The file below the device's folder: queue/scheduler."""
        return self.path.partition("{device}/")[2]

    def _place(self, machine: Machine, path: str) -> str | None:
        if self.device is None:
            return path
        name = device_named(machine, self.device)
        return None if name is None else path.replace("{device}", name)

    def now(self, machine: Machine) -> str | None:
        """Return the value in force; None if the file is not there."""
        place = self._place(machine, self.path)
        text = None if place is None else machine.text(place)
        return None if text is None else chosen_word(text)

    def make(self, machine: Machine) -> None:
        place = self._place(machine, self.path)
        if place is None:
            raise LabError(f"{self.target}: the device is gone")
        machine.write_live(place, self.after)
        found = self.now(machine)
        if found != self.after:
            raise KnobError("apply", place, wrote=self.after, found=str(found))

    def undo(self, machine: Machine, *, force: bool = False) -> Outcome:
        found = self.now(machine)
        if found is None:
            return Outcome.GONE
        if found not in (self.before, self.after) and not force:
            return Outcome.FOREIGN
        changed = found != self.before
        writes = [self.back or (self.path, self.before)] if changed else []
        for path, value in (*writes, *self.restore):
            place = self._place(machine, path)
            text = None if place is None else machine.text(place)
            if place is not None and text is not None and chosen_word(text) != value:
                machine.write_live(place, value)
                changed = True
        if self.now(machine) != self.before:
            raise KnobError("revert", self.target, wrote=self.before, found=str(self.now(machine)))
        return Outcome.RESTORED if changed else Outcome.ALREADY

    def drift(self, machine: Machine) -> str | None:
        found = self.now(machine)
        if found == self.after:
            return None
        return f"{self.target} is gone" if found is None else f'reads "{found}", not "{self.after}"'


class MountStep(Step, frozen=True, tag="mount"):
    """A mount: its access time flags, or one option of its file system.

    ``option``: the family of the option; empty for access times: their flags are separated by commas.
    """

    mount: str
    type: str
    device: str
    option: str
    before: str
    after: str

    @property
    def target(self) -> str:
        return f"mount {self.mount}"

    def now(self, machine: Machine) -> str | None:
        """Return the options in force; None if nothing of this type is mounted there."""
        return option_now(machine, self.mount, self.type, self.device, self.option)

    def _set(self, machine: Machine, words: str) -> None:
        info = machine.mount_at(self.mount)
        if info is None:
            raise LabError(f"{self.mount}: nothing is mounted there any more")
        if self.option:
            machine.remount(info, atime_of(info.mount_options), words)
        else:
            machine.remount(info, words.split(","))

    def make(self, machine: Machine) -> None:
        self._set(machine, self.after)
        found = self.now(machine)
        if found != self.after:
            raise KnobError("apply", self.target, wrote=self.after, found=str(found))

    def undo(self, machine: Machine, *, force: bool = False) -> Outcome:
        found = self.now(machine)
        if found is None:
            return Outcome.GONE
        if found == self.before:
            return Outcome.ALREADY
        if found != self.after and not force:
            return Outcome.FOREIGN
        self._set(machine, self.before)
        if self.now(machine) != self.before:
            raise KnobError("revert", self.target, wrote=self.before, found=str(self.now(machine)))
        return Outcome.RESTORED

    def drift(self, machine: Machine) -> str | None:
        found = self.now(machine)
        if found == self.after:
            return None
        return "not mounted" if found is None else f'has "{found}", not "{self.after}"'


class ProfileStep(Step, frozen=True, tag="tuned"):
    """The active profile of tuned, which tuned-adm switches; the files that name it are put back to their bytes."""

    before: str
    after: str
    files: tuple[FileStep, ...]

    @property
    def target(self) -> str:
        return "profile of tuned"

    def obstacle(self, machine: Machine) -> str | None:
        return next(filter(None, (file.obstacle(machine) for file in self.files)), None)

    def make(self, machine: Machine) -> None:
        machine.run("tuned-adm", "profile", *self.after.split())
        for file in self.files:
            if machine.read(file.path) == file.after:
                machine.sync(file.path)  # tuned-adm does not
            else:
                machine.replace(file.path, file.after, like=structs.replace(file.facts, modified_ns=None))

    def undo(self, machine: Machine, *, force: bool = False) -> Outcome:
        found = (machine.text("/etc/tuned/active_profile") or "").strip()
        if found not in (self.before, self.after) and not force:
            return Outcome.FOREIGN
        # early at boot tuned does not run, and tuned-adm would wait for D-Bus; tuned reads the files when it starts
        if found != self.before and machine.exists("/run/tuned/tuned.pid"):
            machine.run("tuned-adm", "profile", *self.before.split())
        for file in self.files:
            if file.undo(machine, force=True) is Outcome.ALREADY:
                machine.sync(file.path)
        return Outcome.ALREADY if found == self.before else Outcome.RESTORED

    def drift(self, machine: Machine) -> str | None:
        found = (machine.text("/etc/tuned/active_profile") or "").strip()
        return None if found == self.after else f'is "{found}", not "{self.after}"'


class ReloadStep(Step, frozen=True, tag="reload"):
    """A program that rereads its configuration after files were written, and after they were restored."""

    argv: tuple[str, ...]

    @property
    def target(self) -> str:
        return " ".join(self.argv)

    def make(self, machine: Machine) -> None:
        machine.run(*self.argv)

    def undo(self, machine: Machine, *, force: bool = False) -> Outcome:
        return Outcome.ALREADY

    def drift(self, machine: Machine) -> str | None:
        return None


AnyStep = FolderStep | LinkStep | FileStep | LiveStep | MountStep | ProfileStep | ReloadStep


class Entry(JsonObject, frozen=True):
    """One setting in force: the choice, where it is kept, and who else sets it."""

    choice: Choice
    mechanism: str
    file: str
    lines: tuple[str, ...]
    rivals: tuple[str, ...] = ()


class Record(JsonObject, frozen=True):
    """Everything that one ``iotrial apply`` changes. ``guard``: the steps that revert it if it is not kept."""

    trial: str
    number: int
    state: str
    applied: str
    kernel: str
    boot: str
    due_s: float
    due: str
    origin: str
    command: tuple[str, ...]
    folder: str
    entries: tuple[Entry, ...]
    steps: tuple[AnyStep, ...]
    guard: tuple[AnyStep, ...] = ()
    covers_reboot: bool = True
    timer: str = ""
    ended: str = ""
    why: str = ""
    problems: tuple[str, ...] = ()
    version: int = VERSION

    @property
    def in_force(self) -> bool:
        """Whether some of it may stand."""
        return self.state != "reverted"

    @property
    def unkept(self) -> bool:
        """Whether it still waits to be kept."""
        return self.state in ("applying", "pending", "reverting")

    @property
    def short(self) -> str:
        """The start of the trial's id, as in names of files."""
        return short_id(self.trial)

    def is_due(self, machine: Machine) -> bool:
        """Return whether it must be reverted: not kept in time, or the machine was restarted."""
        return self.unkept and (self.boot != machine.boot or machine.uptime_s >= self.due_s - EARLY_S)


def short_id(trial: str) -> str:
    """Return the start of a trial's id with only letters and digits."""
    return "".join(c for c in trial if c.isascii() and c.isalnum())[:8] or "trial"


def atime_of(options: frozenset[str]) -> tuple[str, ...]:
    """Return the access time flags of a mount as the kernel shows them; strictatime is what it does not show."""
    shown = tuple(word for word in ("noatime", "relatime") if word in options) or ("strictatime",)
    return (*shown, *(("nodiratime",) if "nodiratime" in options else ()))


def option_now(machine: Machine, mount: str, kind: str, device: str, option: str) -> str | None:
    """Return an option in force as the kernel shows it; ``option`` empty: the access time flags. None if not mounted."""
    info = machine.mount_at(mount)
    if info is None or info.type != kind:
        return None
    if not option:
        return ",".join(atime_of(info.mount_options))
    if option == "lazytime":
        return "lazytime" if "lazytime" in info.super_options else "nolazytime"
    shown = (machine.text(f"/proc/fs/{kind}/{device}/options") or "").split()
    return next((one for one in shown if one.partition("=")[0] in (option, f"no{option}")), f"no{option}")


class Records:
    """The records of a machine, one file for each trial."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def path(self, trial: str) -> str:
        return f"{FOLDER}/{short_id(trial)}.json"

    def read(self) -> tuple[list[Record], list[Damage]]:
        """Return all records that can be read, oldest first, and the files that cannot."""
        found, damaged = read_each(self.machine.at(FOLDER), ".json", self._read)
        return sorted(found, key=lambda one: one.applied), damaged

    def all(self) -> list[Record]:
        """Return all records that can be read, oldest first; ``read`` also names the files that cannot."""
        return self.read()[0]

    def one(self, short: str) -> Record:
        """Return the record of a trial, whatever state the others are in. Raises LabError, FileNotFoundError."""
        return self._read(self.machine.at(f"{FOLDER}/{short}.json"))

    def _read(self, path: Path) -> Record:
        """Read one record. Raises FileNotFoundError, DamageError."""
        hint = "it names every file and value that was changed and what stood there before"
        content = read_own(path)
        try:
            record = decode(content, Record)
        except (ValueError, RecursionError) as error:  # msgspec's, or text that is not UTF-8
            reason = f"not a record of this version of iotrial: {error}"
            raise DamageError(Damage(path, reason, hint=hint)) from error
        if record.version != VERSION:
            hint = "revert with that version"
            raise DamageError(Damage(path, "written by another version of iotrial", hint=hint))
        if path.name != f"{record.short}.json":
            raise DamageError(Damage(path, f"holds the record of trial {record.short}", hint=hint))
        return record

    def set_aside(self, damage: Damage) -> Path:
        """Rename a file that cannot be read, so that it is no longer looked at. Raises LabError."""
        kept = damage.path.with_suffix(".unreadable")
        try:
            damage.path.rename(kept)
            sync_folder(kept.parent)
        except OSError as error:
            raise LabError(f"renaming {damage.path}: {error.strerror}") from error
        return kept

    def save(self, record: Record) -> None:
        """Write a record durably."""
        folder = self.machine.at(FOLDER)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
            facts = structs.replace(FileFacts.ours(), mode=0o600)
            self.machine.replace(self.path(record.trial), sealed(msgspec.json.encode(record)), like=facts)
            sync_folder(folder.parent)
        except OSError as error:
            raise LabError(f"writing {self.path(record.trial)}: {error.strerror}") from error

    @contextmanager
    def lock(self, *, insist: bool = False) -> Iterator[None]:
        """Hold the lock of the records. Raises LabError, and Busy if another process keeps it for ``HELD_S``.

        ``insist``: that process, which hangs or was stopped (Ctrl-Z), is killed instead: its record can be reverted from
        any point.
        """
        folder = self.machine.at(FOLDER)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
            descriptor = os.open(
                folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
        except OSError as error:
            raise LabError(f"opening {FOLDER}/lock: {error.strerror}") from error
        try:
            if not _locked(descriptor, HELD_S):
                holder = _holder(descriptor)
                if holder is not None and insist:
                    end_hung(holder)
                if not (insist and _locked(descriptor, HELD_S)):
                    who = "another process" if holder is None else f"process {holder.pid}"
                    raise Busy(
                        f"{who} has been changing kept settings for {HELD_S:.0f} s",
                        hint="if it was stopped (Ctrl-Z), `fg` continues it; after kill -9 `iotrial revert` undoes it",
                    )
            own = identity()
            with suppress(OSError):  # on a full disk the holder is not known
                os.pwrite(descriptor, f"{own.pid} {own.pid_started}".encode(), 0)
            yield
            with suppress(OSError):
                os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)


def _locked(descriptor: int, within_s: float) -> bool:
    return any(taken(descriptor) for _ in attempts(within_s, every_s=0.1))


def _holder(descriptor: int) -> ProcessIdentity | None:
    """Return the living process that wrote its name into the lock."""
    with suppress(ValueError):
        pid, started = os.pread(descriptor, 200, 0).decode().split()
        found = ProcessIdentity(int(pid), started)
        return found if is_alive(found) else None
    return None


def programs_of(record: Record) -> tuple[str, ...]:
    """Return the programs that a record needs, to be made and to be taken back."""
    steps = (*record.guard, *record.steps)
    found = ["systemd-run"] if record.timer == "systemd" else []
    found += [step.argv[0] for step in steps if isinstance(step, ReloadStep)]
    found += ["tuned-adm" for step in steps if isinstance(step, ProfileStep)]
    return tuple(dict.fromkeys(found))


def apply(records: Records, record: Record, arm: Callable[[Record], None]) -> Record:
    """Make every step of a new record; ``arm`` starts its watchdog. On an error everything is reverted.

    Call it with the lock held. Raises RequestError if something is in the way, and what a step raises.
    """
    machine = records.machine
    for step in (*record.guard, *record.steps):
        if (obstacle := step.obstacle(machine)) is not None:
            raise RequestError(
                f"{obstacle}; nothing was changed",
                hint="it may have been put there to forbid such a file: look, and remove it (`systemctl unmask` for a unit)",
            )
    for program in programs_of(record):
        if not machine.has_program(program):
            raise LabError(
                f"{program} is not installed, which this needs; nothing was changed",
                hint="install it, or choose other settings with --only",
            )
    records.save(record)
    done = structs.replace(record, state="pending")
    try:
        for step in record.guard:
            step.make(machine)
        arm(record)
        for step in record.steps:
            step.make(machine)
        records.save(done)
    except (IotrialError, OSError, KeyboardInterrupt) as error:
        left = revert(records, record, why=f"it failed: {_message(error)}")
        if isinstance(error, KeyboardInterrupt):
            raise
        kept = "; ".join(left.problems)
        hint = (
            f"what could not be taken back: {kept}; `iotrial revert` tries again"
            if kept
            else "everything was taken back"
        )
        raise LabError(f"applying the settings failed: {_message(error)}", hint=hint) from error
    return done


def keep(records: Records, record: Record, disarm: Callable[[Record], None]) -> Record:
    """Keep what is pending. Once the record says so, only ``revert`` reverts it."""
    if record.state != "pending":
        raise RequestError(f"trial {record.short} is {record.state}, not waiting to be kept")
    kept = structs.replace(record, state="kept", ended=_now())
    records.save(kept)
    disarm(kept)
    problems = _undo(records.machine, kept.guard, force=False)
    done = structs.replace(kept, problems=problems, guard=kept.guard if problems else ())
    return _saved(records, done)


def revert(
    records: Records,
    record: Record,
    *,
    why: str,
    force: bool = False,
    disarm: Callable[[Record], None] | None = None,
) -> Record:
    """Take everything back from the record alone, newest step first. Steps that fail are named in ``problems``.

    A record that cannot be written does not stop it. With ``force`` it ends in any case, and what others have changed since
    is overwritten.
    """
    machine = records.machine
    going = structs.replace(record, state="reverting", why=why)
    _saved(records, going)
    problems = _undo(machine, record.steps, force=force)
    if disarm is not None and (force or not problems):
        disarm(record)
    if force or not problems:
        problems += _undo(machine, record.guard, force=force)
    state = "reverting" if problems and not force else "reverted"
    return _saved(records, structs.replace(going, state=state, problems=problems, ended=_now()))


def _saved(records: Records, record: Record) -> Record:
    """Write a record; if the disk refuses, return it with that as a problem, and still to be taken back."""
    try:
        records.save(record)
    except LabError as error:
        state = "reverting" if record.state == "reverted" else record.state
        return structs.replace(record, state=state, problems=(*record.problems, error.message))
    return record


def _undo(machine: Machine, steps: tuple[AnyStep, ...], *, force: bool) -> tuple[str, ...]:
    """Revert steps in reverse order, then restart what reads the files. Returns what could not be reverted."""
    problems = []
    for step in reversed(steps):
        try:
            outcome = step.undo(machine, force=force)
        except (IotrialError, OSError, ValueError) as error:  # ValueError: a path that no system call takes
            problems.append(f"{step.target}: {_message(error)}")
        else:
            if outcome is Outcome.FOREIGN and not isinstance(step, FolderStep):
                problems.append(f"{step.target}: {outcome}")
    for step in steps:
        # without the program nothing rereads the files, which are as they were
        if isinstance(step, ReloadStep) and machine.has_program(step.argv[0]):
            try:
                step.make(machine)
            except IotrialError as error:
                problems.append(error.message)
    return tuple(problems)


def _message(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return error.message if isinstance(error, IotrialError) else str(error)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
