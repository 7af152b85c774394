"""Resources of a running trial: lock, journal, probe, places, file sets. Closing it restores everything.

Order matters. Take the lock first, then check the journal for leftovers, then start the probe. On the way
out, restore knobs through the journal while the devices still exist, then close the places, then end the
probe. If the probe was killed, the kernel has removed its mounts, devices and images, and a new probe undoes
the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from iotrial.design.model import Arm, Condition
from iotrial.design.plan import Plan
from iotrial.documents import plain
from iotrial.errors import (
    IotrialError,
    KnobError,
    LabError,
    ProbeError,
    RequestError,
    RestoreError,
    SettingChanged,
)
from iotrial.guest.array import ArrayPlace
from iotrial.guest.link import Link
from iotrial.guest.machine import DiskImage
from iotrial.guest.place import GuestPlace, serials_of
from iotrial.guest.share import Share
from iotrial.knobs.cgroup import GroupKnob
from iotrial.knobs.knob import FileSelection, RunContext, TakenError, Undone, WorkDraft
from iotrial.lab import host, registry
from iotrial.lab.cgroup import mount_in_guest
from iotrial.lab.device import DevicePlace
from iotrial.lab.disk import DiskOptions, DiskPlace
from iotrial.lab.filesystem import FILESYSTEMS
from iotrial.lab.folder import DirectoryPlace, make_folder
from iotrial.lab.image import ImagePlace
from iotrial.lab.in_place import InPlace
from iotrial.lab.journal import Entry, Journal
from iotrial.lab.knobs.mount import MountOption
from iotrial.lab.lock import MachineLock
from iotrial.lab.log_device import LogPlace
from iotrial.lab.objects.device import LabProcess
from iotrial.lab.objects.loop import LabLoop
from iotrial.lab.objects.path import LabPath
from iotrial.lab.place import Place
from iotrial.lab.restore import Restored, refuse_leftovers, restore
from iotrial.lab.simulated_disk import WriteLogging, make_logging
from iotrial.lab.target import Target
from iotrial.paths import guests_folder
from iotrial.probe.client import Probe
from iotrial.runner.command_user import unprivileged_user
from iotrial.runner.file_sets import FileSets
from iotrial.runner.guest import MachineSpec, clock_ahead_ns, guest_spec, own_boot_id
from iotrial.runner.guests import Guests
from iotrial.runner.places import FILESYSTEM, FOLDERS, Site
from iotrial.runner.resolve import KnobSetting, Resolved
from iotrial.runner.same_disk import disk_hardware, disk_kinds, sharing, used_shares
from iotrial.runner.sampling import Sampler
from iotrial.runner.settings import Settings
from iotrial.runner.signals import Stopped
from iotrial.runner.time_account import Part, TimeAccount
from iotrial.study.model import Holds, Role
from iotrial.study.places import GUEST, IN_PLACE, LAB_DEVICE
from iotrial.study.server import NOBODY
from iotrial.study.work import makes_files

MOUNT_FOLDER = "/run/iotrial"
_Found = TypeVar("_Found")


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
        sample_s: float | None = None,
        logging: WriteLogging | None = None,
        machine: MachineSpec | None = None,
    ) -> None:
        self.resolved = resolved
        self.plan = plan
        self.trial = trial
        self.time = TimeAccount()
        self.journal = Journal(state / "journal")
        #: Whether the journal was found empty, or without harmful entries.
        self._begun = False
        self.folder = folder
        self._guest: Guests | None = None
        #: By how much the probe's clock is ahead of ours: a guest has its own clock.
        self.clock_ahead_ns = 0
        self._own_folder = state / "lab"
        #: By name: places of runs, and additional ones.
        self.places: dict[str, Place] = {}
        self.restored: tuple[Restored, ...] = ()
        #: settings that something else had changed by the end: what was found, and what was done, in words
        self.changed_at_end: list[str] = []
        self._changed: list[tuple[KnobSetting, KnobError]] = []
        self._lock = MachineLock()
        self._waiting = waiting
        self.files = FileSets(resolved, plan)
        self.settings = Settings(resolved, self.context)
        self._sample_s = sample_s
        self._logging = logging
        self._first_machine = machine
        #: if a guest's disk logs its writes: the probe of this machine that has the disk, and the disk's name here
        self._host: Probe | None = None
        self.logged_device: str | None = None
        self.sampler: Sampler | None = None
        self.probe: Probe
        self.target: Target
        self.boot_id = ""

    def open(self) -> None:
        """Open everything. On an error, take down what was made, then re-raise."""
        with self.time.part(Part.LAB):
            self._open()

    def _open(self) -> None:
        self.check_kind()
        self._lock.__enter__()
        try:
            refuse_leftovers(self.journal)
            self._begun = True
            # a user's folder must already exist: if it is missing, it is not the one that was meant
            if Path(self.folder) == self._own_folder:
                make_folder(self._own_folder)
                self.folder = str(self._own_folder.resolve())  # the probe follows no symbolic link
            if self.resolved.needs is not None:
                spec = guest_spec(self.resolved, Path(self.folder))
                if self._logging is not None:
                    spec = replace(spec, disks=self._logged_disks(spec.disks))
                self._guest = Guests(spec, store=guests_folder(), waiting=self._waiting)
                if self._first_machine is not None:
                    self._guest.want(self._first_machine)
            self._start_probe()
            if self._sample_s is not None:
                self.sampler = Sampler(self._sample_s, own=self._guest is None)
            self._furnish()
        except BaseException as error:
            if isinstance(error, Stopped):
                self.abandon_probe()
            # check_restored reports what could not be restored, together with this error
            with suppress(IotrialError):
                self.close()
            raise

    def check_kind(self) -> None:
        """Raise RequestError for a study of a service in use: a lab has none."""
        if self.resolved.study.in_windows:
            raise RequestError(
                f"study {self.resolved.study.name}: it is about a service in use, which a lab cannot imitate",
                hint="run it with `iotrial run`, on the machine of the service",
            )

    def _start_probe(self) -> None:
        guest = self._guest
        if guest is not None:
            self.probe = guest.start(self._announce)
        else:
            inherits = any(one.work.inherits_stdout() for one in self.resolved.study.workloads)
            self.probe = Probe(isolate=self.resolved.root, waiting=self._waiting, shares_stdout=inherits)
            self._announce(self.probe)
        self.target = Target(self.probe)

    def _announce(self, probe: Probe) -> None:
        LabProcess().announce(
            self.journal,
            session=probe.session,
            started=probe.session_started,
            token=probe.token,
            boot_id=own_boot_id(),
            trial=self.trial,
        )

    @property
    def alive(self) -> bool:
        """Whether what carries out runs is alive: the probe, or the probe in each guest."""
        return self.probe.alive and (self._guest is None or self._guest.alive)

    def _furnish(self) -> None:
        """Prepare places, settings and files; retry once in a rebooted guest if the guest died or hung meanwhile.

        A guest's kernel may crash, and nothing is being measured yet, so the crash is not a failure of any
        run.
        """
        try:
            self._furnish_once()
        except ProbeError:
            if not self.revivable:
                raise
            self._boot()
            self._furnish_once()

    def _furnish_once(self) -> None:
        self.boot_id = host.boot_id(self.target)
        if self._guest is not None:
            link = self._guest.link
            self.clock_ahead_ns = clock_ahead_ns(self.target if link is None else link.client)
            every = (setting for group in self.resolved.settings.values() for setting in group)
            if any(isinstance(setting.knob, GroupKnob) for setting in (*every, *self.resolved.pinned)):
                mount_in_guest(self.target)
        self._open_places()
        extra = self.extra_places()
        self.settings.settle([p for name, p in self.places.items() if name not in extra], extra.values())
        for place in self.places.values():
            self._make_files(place, None)
        for place in extra.values():
            self.files.make_folder(place)

    @property
    def revivable(self) -> bool:
        """Whether a probe has died with its guest, which can be rebooted."""
        return self._guest is not None and not self.alive

    def again_where_it_dies(self, act: Callable[[], _Found]) -> _Found:
        """Return the result of ``act``; retry once in a rebooted guest if the guest died or hung. Raises what
        ``act`` raises.
        """
        try:
            return act()
        except ProbeError:
            if not self.revivable:
                raise
        self.revive()
        return act()

    @property
    def machine(self) -> MachineSpec | None:
        """The guest's machine; None if there is no guest."""
        return None if self._guest is None else self._guest.wanted

    def revive(self, machine: MachineSpec | None = None) -> None:
        """Reboot the guest, as ``machine`` if given, and prepare everything in it as when the trial began."""
        assert self._guest is not None
        self._guest.want(machine or self._guest.wanted)
        with self.time.part(Part.LAB):
            self._boot()
            self._furnish()

    def _boot(self) -> None:
        assert self._guest is not None
        self.probe.close()
        self._guest.hang_up()
        self._undo_through_a_fresh_probe()
        self._start_probe()

    def check_restored(self, error: BaseException | None = None) -> None:
        """Raise RestoreError if something could not be restored, or the journal was damaged.

        ``error`` is what had ended the trial before.
        """
        before = f"{error}; and then " if isinstance(error, IotrialError) else ""
        problems = {r.entry.number: r.problem or "foreign value" for r in self.restored if r.kept}
        pending, damaged = self.journal.read()
        lost = self.journal.lost
        kept = [entry for entry in pending if entry.trial == self.trial]
        # an entry that could not be removed from the disk although its change was undone
        undone = {entry.number for entry in kept if entry.number in lost and entry.number not in problems}
        left = [entry for entry in kept if entry.number not in undone]
        parts = []
        if left:
            parts.append(
                "not everything could be undone: "
                + "; ".join(f"{e.knob} on {e.target}: {problems.get(e.number, 'not tried')}" for e in left)
            )
        if lost:
            number = min(lost)
            entry, reason = lost[number]
            parts.append(
                f"the undo journal {self.journal.folder} was removed or damaged while the trial ran: "
                f"{len(lost)} {'entry' if len(lost) == 1 else 'entries'} "
                f"(first: {number}, {entry.knob} on {entry.target}: {reason}); "
                + ("the others were undone" if left else "all of them were undone")
                + " from memory"
            )
        damaged = damaged if self._begun else ()
        parts += [f"the undo journal has an entry that cannot be read: {one}" for one in damaged]
        if parts:
            hint = (
                "its entry is kept: fix the cause, then run `iotrial restore`"
                if kept or damaged
                else "the trial is stored; find out what changes the state folder: after SIGKILL nothing could "
                "have been undone"
            )
            raise RestoreError(before + "; ".join(parts), hint=hint) from error

    def abandon_probe(self) -> None:
        """Kill the probe in the middle of a job: mounts, devices and images go with it."""
        if hasattr(self, "probe"):
            self.probe.kill()
        if self._guest is not None:
            self._guest.kill()
        self.places.clear()

    @property
    def disk_target(self) -> Target:
        """The machine with the disk that logs: this one, also where the work is done in a guest."""
        return self.target if self._host is None else Target(self._host)

    def take_down(self) -> None:
        """Unmount and detach every place early, so that the log of its disk is complete; ``disk_target`` stays."""
        if self._guest is None:
            self._close_places()
        else:
            for place in reversed(list(self.places.values())):
                place.close()
        self.places.clear()
        if self._guest is not None:
            self.probe.close()
            self._guest.hang_up()
            self._guest.close()
            self._detach_logged()

    def _logged_disks(self, disks: Sequence[DiskImage]) -> list[DiskImage]:
        """Return the guest's only disk as a device of this machine that logs its writes. Raises RequestError for several."""
        assert self._logging is not None
        if len(disks) != 1:
            raise RequestError(f"the power of {len(disks)} disks cannot be cut together")
        self._host = Probe(isolate=True, waiting=self._waiting)
        self._announce(self._host)
        target, [disk] = Target(self._host), disks
        self._make_logging_folder(target)
        image = make_logging(target, self._logging, disk.size_bytes)
        attached = LabLoop().attach(
            target, self.journal, image["image"], image["inode"], boot_id=own_boot_id(), trial=self.trial
        )
        self.logged_device = attached.device
        return [replace(disk, device=f"/dev/{attached.device}")]

    def _detach_logged(self) -> None:
        if self._host is not None and self._host.alive and self.logged_device is not None:
            Target(self._host).call("loop_detach", device=f"/dev/{self.logged_device}")
        self.logged_device = None

    def _close_host(self) -> None:
        """End the probe that has the disk of a guest, once the guest has let go of it."""
        if self._host is not None:
            assert self._guest is not None
            self._guest.close()
            self._host.close()
            self._host = None

    def close(self) -> None:
        """Restore what the journal holds, then take the places down. Safe to call twice.

        If the probe is dead, or taking the places down fails, the kernel removes what the probe held, and a
        new probe undoes the journal; ``restored`` then lists what could not be undone.
        """
        if self.sampler is not None:
            self.sampler.close()
            self.sampler = None
        probe = getattr(self, "probe", None)
        if probe is None:
            self._give_up_guest()
            self._give_up_host()
            self._lock.__exit__(None, None, None)
            return
        try:
            if self._guest is not None:  # changes inside the guest vanish with it
                probe.close()
                self._guest.hang_up()
                self._close_host()
                self._undo_through_a_fresh_probe()
            elif probe.alive:
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
            self._give_up_guest()
            self._lock.__exit__(None, None, None)

    def _give_up_host(self) -> None:
        """Undo what was made for a guest that never started."""
        if self._host is not None:
            self._host.close()
            self._host = None
            self._undo_through_a_fresh_probe()

    def _give_up_guest(self) -> None:
        if self._guest is not None:
            self._guest.hang_up()
            self._guest.close()
            self._guest = None

    def _close_places(self) -> None:
        self._restore_settings()
        for place in reversed(list(self.places.values())):
            place.close()

    def _close_gently(self, probe: Probe) -> None:
        self._close_places()
        if self.resolved.lab not in FOLDERS and self.target.mount_at(MOUNT_FOLDER) is not None:
            self.target.unmount(MOUNT_FOLDER)
        self.restored += restore(self.journal, self.target, spare={LabProcess.name})
        if not probe.close():  # it was killed: a new probe must check that all of it has ended
            self._undo_through_a_fresh_probe()
        for entry in self.journal.pending():
            if entry.knob == LabProcess.name and entry.trial == self.trial and not self._kept(entry):
                self.journal.drop(entry)

    def _kept(self, entry: Entry) -> bool:
        return any(r.kept and r.entry.number == entry.number for r in self.restored)

    def _undo_through_a_fresh_probe(self) -> None:
        self.places.clear()
        with Probe(isolate=False) as fresh:
            self.restored += restore(self.journal, Target(fresh))

    def _restore_settings(self) -> None:
        """Restore knobs that name a device while that device is still the lab's own."""
        self._note_changed()
        done: dict[str, list[str]] = {}
        for entry in reversed(self.journal.pending()):
            if entry.knob not in registry.objects():
                did = "it is left alone"
                with suppress(TakenError):  # ``restore`` checks it again and reports it
                    undone = registry.knob(entry.knob).undo(self.target, entry)
                    did = _DID[undone].format(entry.original)
                done.setdefault(entry.knob, []).append(did)
        for setting, error in self._changed:
            what = "; ".join(dict.fromkeys(done.get(setting.knob.name, ["nothing was to be restored"])))
            self.changed_at_end.append(f"{SettingChanged(error, 'at the end').message}; {what}")
        self._changed.clear()

    def _note_changed(self) -> None:
        """Note which settings of the last run something else has changed since; nothing can in a guest."""
        if self._guest is None:
            self._changed += self.settings.changed()
        self.settings.forget()

    def who_changes_settings(self) -> tuple[str, ...]:
        """Return who may have changed the settings of the last run, in words; nobody can in a guest."""
        return self.settings.who_changes_them() if self._guest is None else ()

    # places

    def place_of(self, condition: Condition, arm: Arm) -> Place:
        """Return the place where this arm's runs under this condition happen."""
        site = next(site for site in self.resolved.sites if site.holds is Holds.RUNS)
        filesystem = site.filesystems[0]
        for setting in self.resolved.settings_of(condition, arm):
            if setting.knob.name == LAB_DEVICE:
                site = next(one for one in self.resolved.sites if one.name == setting.value)
            elif setting.knob.name == FILESYSTEM and setting.role is Role.CONDITION:
                filesystem = setting.value
        # the site's own file system if nothing chooses between several
        return self.places[site.place(filesystem if filesystem in site.filesystems else site.filesystems[0])]

    def extra_places(self) -> Mapping[str, Place]:
        """Return the additional places, by the study's name: for what a work keeps outside the place of the runs."""
        return {
            site.name: self.places[site.name] for site in self.resolved.sites if site.holds is Holds.FILES
        }

    def make_files(self, place: Place, *, only: Condition | None = None) -> None:
        """Create every file set that a condition of this place needs, or only the one that ``only`` needs."""
        with self.time.part(Part.FILES):
            self._make_files(place, only)

    def _make_files(self, place: Place, only: Condition | None) -> None:
        if place.data is not None:
            if self.resolved.copy_from is not None:
                place.copy_in(self.resolved.copy_from)
            return
        if only is not None:
            self.files.make(place, [only])
            return
        arms = self.plan.arms(controls=True)
        conditions = [c for c in self.plan.conditions if any(self.place_of(c, arm) is place for arm in arms)]
        self.files.make(place, conditions)

    def verify_files(self) -> None:
        """Raise ProbeError if a file that no workload writes to has changed."""
        self._note_changed()  # the files are read on a neutral mount, which is no setting of the last run
        with self.time.part(Part.FILES):
            for place in self.places.values():
                self.files.verify(place)

    def _make_logging_folder(self, target: Target) -> None:
        assert self._logging is not None
        LabPath().make_folder(
            target, self.journal, self._logging.folder, boot_id=own_boot_id(), trial=self.trial
        )

    def _open_places(self) -> None:
        if self._logging is not None and self._guest is None:
            self._make_logging_folder(self.target)
        if self.resolved.lab not in FOLDERS:
            if not self.target.exists(MOUNT_FOLDER):  # otherwise another journal entry removes it
                LabPath().make_folder(
                    self.target, self.journal, MOUNT_FOLDER, boot_id=self.boot_id, trial=self.trial
                )
            self.target.mount("iotrial", MOUNT_FOLDER, "tmpfs", ["mode=0755", "size=1m"])
        for site in self.resolved.sites:
            for filesystem in site.filesystems:
                place = self.places[site.place(filesystem)] = self._place(site, filesystem)
                if self.resolved.copy_from is not None and site.holds is Holds.RUNS:
                    place.data = f"{place.root}/data"
                place.open()
                if site.kind in FOLDERS:
                    _check_reach(self.resolved, self.plan, self.files.owner(), place)

    def _place(self, site: Site, filesystem: str) -> Place:
        if site.kind == IN_PLACE:
            return InPlace(
                site.place(filesystem),
                self.target,
                self.journal,
                folder=self.folder,
                makes_files=any(makes_files(one.work) for one in self.plan.study.workloads),
                trial=self.trial,
            )
        if site.kind != "directory":
            return place_for(
                self.resolved,
                site,
                filesystem,
                self.target,
                self.journal,
                folder=self.folder,
                mounts=MOUNT_FOLDER,
                boot_id=self.boot_id,
                trial=self.trial,
                link=None if self._guest is None else self._guest.link,
                logging=self._logging if site.holds is Holds.RUNS else None,
            )
        folder = (site.where.folder or self.folder).rstrip("/")
        name = f"iotrial-lab-{self.trial[:8]}" + (f"-{site.name}" if site.name else "")
        place = DirectoryPlace(
            site.place(filesystem),
            self.target,
            self.journal,
            folder=f"{folder}/{name}",
            bytes_needed=self._room(site),
            trial=self.trial,
        )
        place.site = site.name
        return place

    def _room(self, site: Site) -> int:
        """Return the bytes a folder must have free: its files and, if a command writes others, the lab's declared size."""
        writing = any(one.work.needs_scratch() for one in self.plan.study.workloads)
        return max(self.files.bytes_needed(), site.size_bytes if writing else 0)

    # settings that outlive the conductor

    def context(self, place: Place, files: FileSelection | None = None) -> RunContext:
        """Return what knobs act on."""
        context = RunContext(
            target=self.target,
            place=place,
            journal=self.journal,
            files=files,
            work=WorkDraft(),
            boot_id=self.boot_id,
            trial=self.trial,
            extra_places=self.extra_places() if self.places else {},
        )
        if self._guest is not None:
            context.memory_besides = self._guest.memory_besides
            context.attachment = self._guest.attachment
        return context

    def facts(self) -> Mapping[str, object]:
        """Return the facts of the lab for the stored trial."""
        together = plain(sharing(self.resolved, self.folder))
        return {
            "kind": self.resolved.lab,
            "places": [dict(place.facts()) for place in self.places.values()],
            "pinned": dict(self.settings.pinned()),
            "notes": [*self.resolved.notes, *(self._guest.notes() if self._guest is not None else ())],
            "file_sets": dict(self.files.names()),
            **({"today": plain(self.settings.today)} if self.settings.today else {}),
            **({"guest": dict(self._guest.facts())} if self._guest is not None else {}),
            **({"shared": together} if together else {}),
            **({"disks": kinds} if (kinds := disk_kinds(self.resolved, self.folder)) else {}),
            **({"hardware": known} if (known := disk_hardware(self.resolved, self.folder)) else {}),
            **({"used": shares} if (shares := used_shares(self.resolved, self.folder)) else {}),
        }


#: what was done about a setting that something else had changed
_DID = {
    Undone.RESTORED: 'the original "{}" is set again',
    Undone.ALREADY: "this is the original value",
    Undone.GONE: "it is gone",
    Undone.FOREIGN: "it is left alone",
}


def _check_reach(resolved: Resolved, plan: Plan, owner: Mapping[str, int] | None, place: Place) -> None:
    """Check that every user who works in the lab can enter it: root's state folder is closed to others.

    ``owner``: owner of its files. Raises LabError with the user and a remedy.
    """
    users = [] if owner is None else [owner]
    if resolved.root and any(
        setting.knob.name == "process.user" and setting.value == "unprivileged"
        for settings in (*resolved.settings.values(), resolved.pinned)
        for setting in settings
    ):
        users.append({"uid": NOBODY, "gid": NOBODY})
    served = any(one.work.never_root() for one in plan.study.workloads)
    if resolved.root and served and owner is None:
        users.append(unprivileged_user())
    in_place = resolved.lab == IN_PLACE and resolved.study.quick
    for user in users:
        if place.target.run(["test", "-x", f"{place.root}/."], user=user).exit_status != 0:
            raise LabError(
                f"lab in {place.root}: user {user['uid']}, who works in it, cannot enter it",
                hint=f"name a folder that this user can enter with {'--in' if in_place else '--on'} FOLDER",
            )


# Builds the places of a study: images, disks that the user has named, and the devices of their logs.


def place_for(
    resolved: Resolved,
    site: Site,
    filesystem: str,
    target: Target,
    journal: Journal,
    *,
    folder: str,
    mounts: str,
    boot_id: str,
    trial: str,
    link: Link | None = None,
    logging: WriteLogging | None = None,
) -> DiskPlace:
    """Return the place for one type of file system, not open yet.

    ``folder`` holds images of places that the user has not located, ``mounts`` the mount points. ``link``
    leads to the machine that does the work, if it is another one. ``logging``: an image on a disk that logs.
    """
    lab = resolved.study.lab
    name = site.place(filesystem)
    common: DiskOptions = {
        "mount_point": f"{mounts}/{name}",
        "filesystem": filesystem,
        "size_bytes": site.size_bytes,
        "mkfs_options": {lab.filesystem: lab.mkfs_options},
        "mount_options": {
            kind: tuple(o for o in lab.mount_options if kind in MountOption.ALLOWED[o.partition("=")[0]])
            for kind in FILESYSTEMS
        },
        "boot_id": boot_id,
        "trial": trial,
        "share": None if link is None or site.holds is not Holds.RUNS else Share(link),
        "log": _log(resolved, site, name, target, journal, folder=folder, boot_id=boot_id, trial=trial),
    }
    if site.where.consent is not None:
        place: DiskPlace = DevicePlace(name, target, journal, consent=site.where.consent, **common)
    elif site.kind == GUEST and site.disks > 1:
        serials = tuple(serials_of(name, site.disks))
        place = ArrayPlace(name, target, journal, serials=serials, disk=site.disk, **common)
    elif site.kind == GUEST:
        place = GuestPlace(name, target, journal, **common)
    else:
        place = ImagePlace(
            name,
            target,
            journal,
            folder=site.where.folder or folder,
            disk=site.disk,
            logging=logging,
            **common,
        )
    place.site = site.name
    return place


def _log(
    resolved: Resolved,
    site: Site,
    name: str,
    target: Target,
    journal: Journal,
    *,
    folder: str,
    boot_id: str,
    trial: str,
) -> LogPlace | None:
    """Return the log device for a place of runs if the study varies where logs lie; else None."""
    log = next((one for one in resolved.sites if one.holds is Holds.LOG), None)
    if log is None or site.holds is not Holds.RUNS:
        return None
    return LogPlace(
        f"{name}.{log.name}",
        target,
        journal,
        folder=log.where.folder or folder,
        size_bytes=log.size_bytes,
        disk=log.disk,
        boot_id=boot_id,
        trial=trial,
    )
