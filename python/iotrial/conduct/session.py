"""What a trial holds while it runs: lock, journal, probe, places, file sets. Leaving it puts everything back.

Order matters. The lock comes first, then the journal is asked for leftovers, then the probe starts;
on the way out knobs are restored through the journal while the devices still exist, then places
close, then the probe ends. If the probe was killed, the kernel has taken mounts, devices and images
down, and the journal is undone through a fresh probe.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from iotrial.conduct.disks import place_for
from iotrial.conduct.resolve import Resolved, Turn
from iotrial.conduct.signals import Stopped
from iotrial.design.model import Condition
from iotrial.design.plan import Plan
from iotrial.errors import IotrialError, LabError, RestoreError
from iotrial.lab import host, registry
from iotrial.lab.device import DevicePlace
from iotrial.lab.directory import DirectoryPlace
from iotrial.lab.disk import DiskPlace
from iotrial.lab.guard import Consent
from iotrial.lab.journal import Journal
from iotrial.lab.knob import FileSelection, Stage, Subject, WorkDraft
from iotrial.lab.knobs.block_queue import BlockNrRequests, BlockScheduler, pinned
from iotrial.lab.knobs.file import VIEW
from iotrial.lab.lock import MachineLock
from iotrial.lab.objects.path import LabPath
from iotrial.lab.objects.process import LabProcess
from iotrial.lab.place import FileSet, Place
from iotrial.lab.restore import Restored, restore
from iotrial.lab.target import Target
from iotrial.probe.client import Probe
from iotrial.study.model import CommandWork, FilesWork, Role, Setting

MOUNT_FOLDER = "/run/iotrial"
NOBODY = 65534
WRITING_OPERATIONS = frozenset({"open-write", "open-truncate", "create", "write-byte", "fsync", "unlink"})


class Session:
    """Everything that is open for one trial, between ``open`` and ``close``."""

    def __init__(
        self,
        resolved: Resolved,
        plan: Plan,
        *,
        state: Path,
        folder: str,
        trial: str,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
        consent: Consent | None = None,
    ) -> None:
        self.resolved = resolved
        self.plan = plan
        self.trial = trial
        self.journal = Journal(state / "journal")
        self.folder = folder
        self.consent = consent
        self.places: dict[str, Place] = {}
        self.restored: tuple[Restored, ...] = ()
        self._lock = MachineLock()
        self._waiting = waiting
        self._sets: dict[str, FileSet] = {}
        self._pins: tuple[Turn, ...] = ()
        self.probe: Probe
        self.target: Target
        self.boot_id = ""

    def open(self) -> None:
        """Make everything. Whatever goes wrong on the way, what was made is taken down again before
        the error goes on."""
        self._lock.__enter__()
        try:
            refuse_leftovers(self.journal)
            _make_folder(Path(self.folder))
            self.probe = Probe(isolate=self.resolved.root, waiting=self._waiting)
            self.target = Target(self.probe)
            self.boot_id = host.boot_id(self.target)
            LabProcess().announce(
                self.journal,
                session=self.probe.facts["session"],
                started=self.probe.facts["session_started"],
                boot_id=self.boot_id,
                trial=self.trial,
            )
            self._open_places()
            self._settle_settings()
            for place in self.places.values():
                self.make_files(place)
        except Stopped:
            self.abandon_probe()
            self.close()
            raise
        except BaseException:
            self.close()
            raise

    def check_restored(self, error: BaseException | None = None) -> None:
        """Raises RestoreError where something could not be put back; ``error`` is what had ended the trial before."""
        problems = {r.entry.number: r.problem or "foreign value" for r in self.restored if r.kept}
        kept = [entry for entry in self.journal.pending() if entry.trial == self.trial]
        if kept:
            raise RestoreError(
                (f"{error}; and then " if isinstance(error, IotrialError) else "")
                + "not everything could be put back: "
                + "; ".join(f"{e.knob} on {e.target}: {problems.get(e.number, 'not tried')}" for e in kept),
                hint="its entry is kept: see to the cause, then run `iotrial restore`",
            ) from error

    def abandon_probe(self) -> None:
        """Kill the probe in the middle of a job: mounts, devices and images go with it."""
        if hasattr(self, "probe"):
            self.probe.kill()
        self.places.clear()

    def close(self) -> None:
        """Put back what the journal holds, then take the places down. Safe to call twice.

        Where the probe is dead, or taking the places down fails, the kernel takes down what the probe held, and the
        journal is undone through a fresh one; ``restored`` then says what could not be.
        """
        probe = getattr(self, "probe", None)
        if probe is None:
            self._lock.__exit__(None, None, None)
            return
        try:
            if probe.alive:
                self._close_gently(probe)
            else:
                self._undo_through_a_fresh_probe()
        except Exception:
            probe.kill()
            self._undo_through_a_fresh_probe()
            raise
        finally:
            self.places.clear()
            probe.close()
            del self.probe
            self._lock.__exit__(None, None, None)

    def _close_gently(self, probe: Probe) -> None:
        self._restore_settings()
        for place in reversed(list(self.places.values())):
            place.close()
        if self.resolved.lab != "directory" and self.target.mount_at(MOUNT_FOLDER) is not None:
            self.target.unmount(MOUNT_FOLDER)
        self.restored += restore(self.journal, self.target, spare={LabProcess.name})
        probe.close()  # which waits for its end, and so proves it
        for entry in self.journal.pending():
            if entry.knob == LabProcess.name:
                self.journal.drop(entry)

    def _undo_through_a_fresh_probe(self) -> None:
        self.places.clear()
        with Probe(isolate=False) as fresh:
            self.restored += restore(self.journal, Target(fresh))

    def _restore_settings(self) -> None:
        """Knobs that name a device are put back while that device is still the lab's own."""
        for entry in reversed(self.journal.pending()):
            if entry.knob not in registry.objects():
                registry.knob(entry.knob).undo(self.target, entry)

    # places and files

    def place_of(self, condition: Condition) -> Place:
        """The place where a condition's runs happen."""
        for factor, label in condition.levels.items():
            for turn in self.resolved.turns[factor, label]:
                if turn.knob.name == "filesystem.type":
                    return self.places[turn.value]
        return next(iter(self.places.values()))

    def files_of(
        self, condition: Condition, indices: tuple[int, ...] | None, size: int | None
    ) -> FileSelection:
        """The selection of a run; ``size`` where a treatment sets it."""
        files = self._set_of(condition)
        return FileSelection(
            set=self.wire_set(self.place_of(condition), files.name),
            indices=indices,
            bytes_each=files.bytes_each if size is None else size,
            count=files.count if indices is None else len(indices),
        )

    def wire_set(self, place: Place, name: str) -> str:
        """The probe's name of a file set on a place."""
        return f"{place.name}-{name}"

    def make_files(self, place: Place) -> None:
        """Create every file set that a condition of this place needs."""
        wanted: dict[str, FileSet] = {}
        for condition in self.plan.conditions:
            if self.place_of(condition) is place:
                files = self._set_of(condition)
                wanted[files.name] = files
        for files in wanted.values():
            placed = FileSet(
                name=self.wire_set(place, files.name),
                folder=f"{place.root}/{files.name}",
                count=files.count,
                bytes_each=files.bytes_each,
                content=files.content,
                directories=files.directories,
            )
            digest = hashlib.sha256(f"{self.plan.seed}/{placed.name}".encode()).digest()
            place.make_files(placed, int.from_bytes(digest[:7], "big"), owner=self._owner())
        place.syncfs()

    def verify_files(self) -> None:
        """Every file that no workload writes to, byte by byte against what was written when the lab was made.

        Raises ProbeError where one differs: then what was measured was not what was meant.
        """
        written = {self._set_of(c).name for c in self.plan.conditions if self._writes(c)}
        for place in self.places.values():
            place.to_neutral(always=False, fresh=False)
            for name in place.sets:
                if name.removeprefix(f"{place.name}-") not in written:
                    self.target.call("unlink", set=name, view=VIEW)
                    self.target.call("set_mode", set=name, files=None, mode="0644")
                    self.target.call("fileset_verify", set=name)

    def _writes(self, condition: Condition) -> bool:
        work = self.plan.study.workload(condition.workload).work
        if isinstance(work, FilesWork):
            return bool(WRITING_OPERATIONS & set(work.operations))
        return True  # a command may do anything to its files

    def _set_of(self, condition: Condition) -> FileSet:
        workload = self.plan.study.workload(condition.workload)
        size = self._size_of(condition, workload.work.size_bytes)
        count = self.plan.pool_size(workload)
        key = f"{count}-{size}-{workload.work.content}-{workload.work.directories}"
        known = self._sets.get(key)
        if known is None:
            known = FileSet(
                name=f"s{len(self._sets)}",
                folder="",
                count=count,
                bytes_each=size,
                content=workload.work.content,
                directories=workload.work.directories,
            )
            self._sets[key] = known
        return known

    def _size_of(self, condition: Condition, default: int) -> int:
        for factor, label in condition.levels.items():
            for turn in self.resolved.turns[factor, label]:
                if turn.knob.name == "file.size":
                    return int(turn.value)
        return default

    def _owner(self) -> dict[str, int] | None:
        """Whose the files are where commands work on them: the invoking user's."""
        uid, gid = invoking_user()
        commands = any(isinstance(w.work, CommandWork) for w in self.plan.study.workloads)
        return {"uid": uid, "gid": gid} if self.resolved.root and commands and uid != 0 else None

    def _filesystems(self) -> tuple[str, ...]:
        found = [
            turn.value
            for (_, _), turns in self.resolved.turns.items()
            for turn in turns
            if turn.knob.name == "filesystem.type" and turn.role is Role.CONDITION
        ]
        return tuple(dict.fromkeys(found)) or (self.plan.study.lab.filesystem,)

    def _open_places(self) -> None:
        if self.resolved.lab == "directory":
            needed = sum(f.count * max(f.bytes_each, 4096) for f in map(self._set_of, self.plan.conditions))
            folder = f"{self.folder.rstrip('/')}/iotrial-lab-{self.trial[:8]}"
            place: Place = DirectoryPlace(
                "folder", self.target, self.journal, folder=folder, bytes_needed=needed, trial=self.trial
            )
            self.places["folder"] = place
            place.open()
            self._check_reach(place)
            return
        if not self.target.exists(MOUNT_FOLDER):  # else it is another journal's to take away
            LabPath().make_folder(
                self.target, self.journal, MOUNT_FOLDER, boot_id=self.boot_id, trial=self.trial
            )
        self.target.mount("iotrial", MOUNT_FOLDER, "tmpfs", ["mode=0755", "size=1m"])
        for filesystem in self._filesystems():
            place = self.places[filesystem] = place_for(
                self.resolved,
                filesystem,
                self.target,
                self.journal,
                folder=self.folder,
                mounts=MOUNT_FOLDER,
                consent=self.consent,
                boot_id=self.boot_id,
                trial=self.trial,
            )
            place.open()

    def _check_reach(self, place: Place) -> None:
        """Whoever works in the lab must be able to enter it: root's state folder is closed to everybody else.

        Raises LabError with the user and what to do.
        """
        owner = self._owner()
        users = [] if owner is None else [owner]
        if self.resolved.root and any(
            turn.knob.name == "process.user" and turn.value == "unprivileged"
            for turns in self.resolved.turns.values()
            for turn in turns
        ):
            users.append({"uid": NOBODY, "gid": NOBODY})
        for user in users:
            found = self.target.call("run", argv=["test", "-x", f"{place.root}/."], cwd="/", user=user)
            if found["exit"] != 0:
                raise LabError(
                    f"lab in {place.root}: user {user['uid']}, who works in it, cannot enter it",
                    hint="name a folder that this user can enter with --on FOLDER",
                )

    # settings that outlive the conductor

    def subject(self, place: Place, files: FileSelection | None = None) -> Subject:
        """What knobs act on."""
        return Subject(
            target=self.target,
            place=place,
            journal=self.journal,
            files=files,
            work=WorkDraft(),
            boot_id=self.boot_id,
            trial=self.trial,
        )

    def _settle_settings(self) -> None:
        """Journal everything that outlives the conductor, then pin what the study does not vary."""
        every = [t for turns in self.resolved.turns.values() for t in turns] + list(self.resolved.pinned)
        varied = [t for t in every if t.knob.stage in (Stage.HOST, Stage.DEVICE)]
        taken = {t.knob.name for t in varied}
        # The scheduler last, so that it is the first to be put back: it drags the others along.
        for place in self.places.values():
            subject = self.subject(place)
            if isinstance(place, DiskPlace):
                settings = pinned(place, scheduler_varies=BlockScheduler.name in taken)
                self._pins = tuple(_pin(s) for s in settings if s.knob not in taken)
            for turn in sorted((*varied, *self._pins), key=lambda t: t.knob.name == BlockScheduler.name):
                self._record(subject, turn)
            if isinstance(place, DevicePlace) and BlockScheduler.name in taken:
                self._pin_a_length_for_all_schedulers(subject)
            self.repin(place)
            self._try_out(subject, varied)

    def _try_out(self, subject: Subject, varied: list[Turn]) -> None:
        """Raises KnobError for a level that the kernel does not take as it is written, before the first run."""
        if any(turn.knob.name == "block.scheduler" for turn in varied):
            return  # it drags the others along: only a run has them all as they belong together
        for turn in varied:
            turn.knob.write(subject, turn.setting, turn.value)
            turn.knob.verify(subject, turn.setting, turn.value)

    def _record(self, subject: Subject, turn: Turn) -> None:
        neutral = turn.knob.neutral(turn.setting, turn.values)
        turn.knob.prepare(subject, turn.setting, turn.values if neutral is None else (*turn.values, neutral))
        if turn.knob.stage is Stage.DEVICE and turn.role is not None:
            # Tried on the lab's own device before the first run: what the kernel lacks is told now, with what it has.
            turn.knob.write(subject, turn.setting, turn.value)
            for pin in self._pins:  # what it has dragged along is ours too
                pin.knob.prepare(subject, pin.setting, ())

    def _pin_a_length_for_all_schedulers(self, subject: Subject) -> None:
        """Without a scheduler a queue is as long as the disk's own, with one twice that; the shorter fits both."""
        scheduler = registry.knob(BlockScheduler.name)
        scheduler.write(subject, Setting(BlockScheduler.name, "none"), "none")
        self._pins = tuple(
            _pin(Setting(pin.knob.name, pin.knob.read(subject, pin.setting)))
            if pin.knob.name == BlockNrRequests.name
            else pin
            for pin in self._pins
        )

    def repin(self, place: Place) -> None:
        """Write and verify the pinned queue settings, which a change of scheduler drags along."""
        subject = self.subject(place)
        for turn in self._pins:
            if turn.knob.read(subject, turn.setting) != turn.value:
                turn.knob.write(subject, turn.setting, turn.value)
        for turn in self._pins:
            turn.knob.verify(subject, turn.setting, turn.value)

    def facts(self) -> Mapping[str, object]:
        """The lab for the stored trial."""
        return {
            "kind": self.resolved.lab,
            "places": [dict(place.facts()) for place in self.places.values()],
            "pinned": {turn.knob.name: turn.value for turn in self._pins},
            "notes": list(self.resolved.notes),
            "file_sets": {k: v.name for k, v in self._sets.items()},
        }


def _pin(setting: Setting) -> Turn:
    return Turn(registry.knob(setting.knob), setting, setting.value, (setting.value,), None)


def refuse_leftovers(journal: Journal) -> None:
    """Raises LabError where an earlier trial was cut off and left something to put back."""
    pending = journal.pending()
    if pending:
        raise LabError(
            f"an earlier trial was cut off and left {len(pending)} thing{'s' * (len(pending) > 1)} to put back "
            f"(first: {pending[0].knob} on {pending[0].target})",
            hint="run `iotrial restore` first",
        )


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(
            f"making the lab's folder {folder}: {error.strerror}", hint="name another one with --on FOLDER"
        ) from error


def invoking_user() -> tuple[int, int]:
    """User and group who typed the command: behind sudo, who called it; else who we are."""
    if os.geteuid() == 0 and os.environ.get("SUDO_UID", "").isdigit():
        return int(os.environ["SUDO_UID"]), int(os.environ.get("SUDO_GID", os.environ["SUDO_UID"]))
    return os.geteuid(), os.getegid()
