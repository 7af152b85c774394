"""Resolves a study for this machine: which lab, which knobs, which values.

Everything that can be refused is refused here, before anything is changed: unknown knobs and levels, missing
root, missing programs, factors that this lab cannot vary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs

from iotrial.design.model import Arm, Condition
from iotrial.errors import PrivilegeError, RequestError, unknown
from iotrial.guest.array import DEFAULTS, LEVELS, MAKERS
from iotrial.guest.initramfs import Needs
from iotrial.guest.link import described as described_link
from iotrial.guest.link import needs_of
from iotrial.guest.protocols import DEFAULTS as SHARED
from iotrial.guest.protocols import PROTOCOLS
from iotrial.knobs.declaration import Scope, Stage
from iotrial.knobs.knob import Knob, RunContext, a_lab
from iotrial.lab import cache, registry
from iotrial.lab.guard import Consent
from iotrial.runner import combinations, refusals
from iotrial.runner.own_files import check_own_files
from iotrial.runner.places import Site, Where, disk_bytes, image_bytes, lab_of, sites_of
from iotrial.runner.requirements import Brought, Installed, Means, without_missing
from iotrial.study.disks import described
from iotrial.study.model import Factor, Holds, Level, Role, Setting, Study
from iotrial.study.places import CACHE_NEEDS_ROOT, DISK_LABS, GUEST, IN_PLACE, LABS

__all__ = ["KnobSetting", "Resolved", "cache_setting", "disk_bytes", "image_bytes", "resolve"]

FILES_FOR_ATIME = 1000
MODELLED = "in the memory of a process that simulates a disk (FUSE, not mounted)"


@dataclass(frozen=True, slots=True)
class KnobSetting:
    """One knob to set in a run: canonical ``value``, and ``values`` of all levels of its factor."""

    knob: Knob
    declared: Setting
    value: str
    values: tuple[str, ...]
    role: Role | None

    def read(self, context: RunContext) -> str:
        """Return the knob's current value."""
        return self.knob.read(context, self.declared)

    def write(self, context: RunContext) -> None:
        """Set the value. Raises what the knob raises."""
        self.knob.write(context, self.declared, self.value)

    def verify(self, context: RunContext) -> None:
        """Read the value back. Raises KnobError if it was not applied."""
        self.knob.verify(context, self.declared, self.value)


@dataclass(frozen=True, slots=True)
class Resolved:
    """A study as it can be run here.

    ``notes``: what this lab leaves out. ``changes``: what is changed as root. ``sites``: the places to be
    made. ``needs``: what a guest must contain.
    """

    study: Study
    lab: str
    root: bool
    notes: tuple[str, ...]
    changes: tuple[str, ...]
    settings: Mapping[tuple[str, str], tuple[KnobSetting, ...]]
    pinned: tuple[KnobSetting, ...]
    sites: tuple[Site, ...]
    needs: Needs | None = None
    #: folder of the user's that is copied into the lab for the work to use
    copy_from: str | None = None

    def settings_of(self, condition: Condition, arm: Arm) -> tuple[KnobSetting, ...]:
        """Return every knob setting of a run in the order of stages."""
        found = list(self.pinned)
        for factor, label in (*condition.levels.items(), *arm.treatment.items()):
            found.extend(self.settings[factor, label])
        if not any(setting.knob.name == "cache.state" for setting in found):
            state = self.study.workload(condition.workload).cache
            if state is not None:
                found.append(cache_setting(cache.resolve(state, self.lab)))
        return tuple(sorted(found, key=lambda setting: (setting.knob.stage, setting.knob.rank)))

    def treatment_stages(self, *, within_plots: bool = False) -> frozenset[Stage]:
        """Return the stages at which treatments act; ``within_plots``: only of those that vary from run to run."""
        whole = {factor.name for factor in self.study.factors if factor.whole_plot and within_plots}
        return frozenset(
            setting.knob.stage
            for (factor, _), settings in self.settings.items()
            for setting in settings
            if setting.role is Role.TREATMENT and factor not in whole
        )


def cache_setting(state: str) -> KnobSetting:
    """Return the setting that pins a workload's own cache state."""
    return KnobSetting(registry.knob("cache.state"), Setting("cache.state", state), state, (state,), None)


def resolve(
    study: Study,
    *,
    root: bool,
    lab: str | None = None,
    explicit: Iterable[str] = (),
    trust: bool = False,
    consent: Consent | None = None,
    located: Mapping[str, Where] | None = None,
    copy_from: str | None = None,
) -> Resolved:
    """Choose lab, places and knobs. Changes nothing.

    ``explicit`` names condition factors that the user set explicitly, which are never dropped. ``consent`` is
    the disk of a device lab; ``located`` maps places of the study to their locations; ``copy_from`` is a
    folder to copy into the lab, which commands find as ``{dir}``. Raises UnknownName,
    UnsupportedLevel, PrivilegeError, MissingTool or RequestError.
    """
    refusals.check_names(study)
    refusals.check_trust(study, trust=trust)
    kind = _choose_lab(study, lab, root=root)
    refusals.check_consent(study, kind, consent)
    means: Means = Installed()
    missing: list[str] = []
    if kind == GUEST:
        means, root = Brought(), True  # inside the guest we are always root
    else:
        study, missing = without_missing(study)
    study, notes = _fit_to_lab(study, kind, root=root, explicit=frozenset(explicit))
    sites = sites_of(study, kind, located or {}, consent)
    kind = lab_of(sites, kind)
    settings = {
        (factor.name, level.label): _settings(factor, level, kind)
        for factor in study.factors
        for level in factor.levels
    }
    pinned = tuple(_pin(setting, kind) for setting in study.fixed)
    every = [setting for group in settings.values() for setting in group] + list(pinned)
    _check_settings(study, kind, sites, every, means, root=root)
    refusals.check_labs(study, kind)
    if copy_from is not None:
        refusals.check_copied(study, kind)
    if kind == IN_PLACE:
        refusals.check_safe_in_place(study)
    if study.in_windows:
        refusals.check_in_use(study, [setting.knob for setting in every])
    _check_sites(study, kind, sites, means)
    _check_work(study, kind, sites, every, means, root=root)
    notes = [*notes, *missing, *_notes(study, kind, sites, every)]
    if isinstance(means, Brought):  # changes inside the guest vanish with it
        return Resolved(study, kind, root, tuple(notes), (), settings, pinned, sites, means.needs)
    changes = _changes(sites, every, in_use=study.in_windows)
    return Resolved(study, kind, root, tuple(notes), changes, settings, pinned, sites, copy_from=copy_from)


def _check_settings(
    study: Study, kind: str, sites: Sequence[Site], every: Sequence[KnobSetting], means: Means, *, root: bool
) -> None:
    """Refuse settings that this lab cannot make, that contradict each other, or that the work cannot have."""
    for setting in every:
        refusals.check_requirement(
            study, setting.declared, setting.knob.requires(setting.declared), kind, means, root=root
        )
    refusals.check_disks([setting.knob for setting in every], sites)
    refusals.check_bundles(study)
    refusals.check_work_options(study)
    refusals.check_made_files(study, kind)
    refusals.check_files(study, means)


def _check_sites(study: Study, kind: str, sites: Sequence[Site], means: Means) -> None:
    """Refuse places for which something is missing."""
    if any(site.disk is not None for site in sites):
        means.modelled_disk()
    if any(site.disks > 1 for site in sites):
        for program, package in MAKERS[DEFAULTS["maker"]].tools.items():
            means.program(program, package)
        means.module(LEVELS[DEFAULTS["level"]].module)
    if study.lab.link is not None:
        means.bring(served_by(study))
    if kind in DISK_LABS:
        for filesystem in dict.fromkeys(name for site in sites for name in site.filesystems):
            refusals.check_filesystem(filesystem, means)
        combinations.check_mkfs(study)
    if any(site.kind == "device" for site in sites):
        for tool in ("blkid", "wipefs"):
            means.program(tool, "util-linux")
        refusals.check_one_filesystem(study)


def _check_work(
    study: Study, kind: str, sites: Sequence[Site], every: Sequence[KnobSetting], means: Means, *, root: bool
) -> None:
    """Refuse work that cannot be run, that this lab is too small for, or that no setting could change."""
    refusals.check_commands(study, means)
    smallest = min(site.size_bytes for site in sites if site.holds is Holds.RUNS)
    refusals.check_mkfs_work(study, lab_bytes=image_bytes(study))
    check_own_files(study, lab=kind, lab_bytes=smallest)
    acting = next((t for t in every if t.role is not None and t.knob.scope is not Scope.MACHINE), None)
    for workload in study.workloads:
        refusals.check_primary(study, workload)
        if acting is not None and not workload.work.does_io():
            raise RequestError(
                f"workload {workload.name}: it uses no files of the lab, but {acting.knob.name} acts on {acting.knob.scope}"
            )
        if workload.cache is not None:
            state = cache.resolve(workload.cache, kind)
            if state in CACHE_NEEDS_ROOT and not root:
                raise PrivilegeError(f"cache state {state}", instead="use cold-data")


def _notes(study: Study, kind: str, sites: Sequence[Site], every: Sequence[KnobSetting]) -> list[str]:
    """Return what the user should know of a study in this lab."""
    notes = [] if kind == IN_PLACE else _coarse_clock(study, every)
    notes += [*_modelled(study, sites), *_left_warm(study, kind), *refusals.gone(study)]
    notes += [] if kind == GUEST else combinations.halved(study)
    if study.lab.link is not None:
        notes.append(
            f"the network is simulated: {described_link(study.lab.link)}, between two guests of this machine"
        )
    if any(setting.knob.stage is Stage.MACHINE for setting in every):
        notes.append("the guest is described as first booted")
    return notes


def _left_warm(study: Study, kind: str) -> list[str]:
    """Return the note on what the cache states of this lab leave warm; none if they leave nothing."""
    wanted = [workload.cache for workload in study.workloads if workload.cache is not None]
    wanted += [setting.value for setting in study.settings if setting.knob == "cache.state"]
    left = any(cache.resolve(state, kind) == "cold-data" for state in wanted)
    return [cache.LEFT_WARM] if left else []


def _choose_lab(study: Study, requested: str | None, *, root: bool) -> str:
    wanted = requested or study.lab.kind
    if wanted is None:
        in_folders_alone = any(w.work.labs() == {"directory"} for w in study.workloads)
        return "image" if root and not in_folders_alone else "directory"
    if wanted not in LABS:
        message, hint = unknown("kind of lab", wanted, LABS)
        raise RequestError(message, hint=hint)
    if wanted == "image" and not root:
        if requested is None and _directory_can_serve(study):
            return "directory"
        instead = "use --lab directory" if _directory_can_serve(study) else ""
        raise PrivilegeError(f"study {study.name}: the image lab", instead=instead)
    if wanted == "device" and not root:
        raise PrivilegeError(f"study {study.name}: the device lab")
    return wanted


def _directory_can_serve(study: Study) -> bool:
    settings = [s for factor in study.treatment_factors for level in factor.levels for s in level.settings]
    needs = [registry.knob(s.knob).requires(s) for s in (*settings, *study.fixed)]
    return (
        study.lab.disks == 1
        and all("directory" in need.labs and not need.root for need in needs)
        and all("directory" in workload.work.labs() for workload in study.workloads)
    )


def _fit_to_lab(study: Study, kind: str, *, root: bool, explicit: frozenset[str]) -> tuple[Study, list[str]]:
    """Drop condition levels that this lab cannot set, and note it."""
    fixed: list[str] = []
    kept: list[Factor] = []
    for factor in study.factors:
        if factor.role is Role.TREATMENT or factor.name in explicit:
            kept.append(factor)
            continue
        possible = tuple(level for level in factor.levels if _possible(level, kind, root=root))
        left_out = [level.label for level in factor.levels if level not in possible]
        if left_out:
            fixed.append(factor.name)
        if possible:
            kept.append(
                structs.replace(factor, levels=possible, default=tuple(level.label for level in possible))
            )
    gone = {factor.name for factor in study.factors} - {factor.name for factor in kept}
    workloads = tuple(
        structs.replace(w, only={k: v for k, v in w.only.items() if k not in gone}) if gone else w
        for w in study.workloads
    )
    where = a_lab(kind) + ("" if root else " without root")
    notes = [f"{where} cannot vary {', '.join(fixed)}: they keep your system's values"] if fixed else []
    return structs.replace(study, factors=tuple(kept), workloads=workloads), notes


def _possible(level: Level, kind: str, *, root: bool) -> bool:
    needs = [registry.knob(s.knob).requires(s) for s in level.settings]
    return all(kind in need.labs and (root or not need.root) for need in needs)


def _settings(factor: Factor, level: Level, kind: str) -> tuple[KnobSetting, ...]:
    settings = []
    for setting in level.settings:
        knob = registry.knob(setting.knob)
        values = []
        for other in factor.levels:
            values += [
                knob.parse(s)
                for s in other.settings
                if s.knob == setting.knob and s.options == setting.options
            ]
        value = knob.parse(setting)
        if knob.name == "cache.state":
            value = cache.resolve(value, kind)
        settings.append(KnobSetting(knob, setting, value, tuple(dict.fromkeys(values)), factor.role))
    return tuple(settings)


def _pin(setting: Setting, kind: str) -> KnobSetting:
    knob = registry.knob(setting.knob)
    value = knob.parse(setting)
    if knob.name == "cache.state":
        value = cache.resolve(value, kind)
    return KnobSetting(knob, setting, value, (value,), None)


def _coarse_clock(study: Study, settings: Sequence[KnobSetting]) -> list[str]:
    """Access times come from a clock that ticks every few milliseconds: a few files, read fast, hardly move it."""
    if not any(setting.knob.name == "mount.atime" and setting.role is Role.TREATMENT for setting in settings):
        return []
    few = [w.name for w in study.workloads if w.work.timed and w.work.files < FILES_FOR_ATIME]
    if not few:
        return []
    return [
        f"workload {', '.join(few)}: the kernel's timestamps change only every few milliseconds, so use at least "
        f"{FILES_FOR_ATIME:,} files"
    ]


def served_by(study: Study) -> Needs:
    """Return what the two guests of a link must contain: for the link, and for every protocol that serves files."""
    assert study.lab.link is not None
    found = needs_of(study.lab.link)
    protocols = {setting.value for setting in study.settings if setting.knob == "nas.protocol"}
    for name in (protocols & set(PROTOCOLS)) | {
        SHARED["protocol"]
    }:  # the protocol by which files are made before any knob is set
        found |= PROTOCOLS[name].needs
    return found


def _modelled(study: Study, sites: Sequence[Site]) -> list[str]:
    found = [
        f"the disk{f' of place {site.name}' if site.name else ''} is simulated: its speed is that of "
        f"{described(site.disk)}; processor, scheduler and file system are this machine's"
        for site in sites
        if site.disk is not None
    ]
    disk = study.lab.disk
    if disk is not None and not found:
        found.append(f"your own disk is used: {disk.model} is simulated only in an image lab")
    return found


def _changes(
    sites: Sequence[Site], settings: Sequence[KnobSetting], *, in_use: bool = False
) -> tuple[str, ...]:
    found: list[str] = []
    for site in sites:
        at = f" (place {site.name})" if site.name else ""
        how = "as an anonymous file" if site.disk is None else MODELLED
        if site.kind == "image":
            for filesystem in site.filesystems if site.name and len(site.filesystems) > 1 else ("",):
                which = f", {filesystem}" if filesystem else ""
                found.append(
                    f"an image of {site.size_bytes >> 20} MiB {how}{at}{which}, a loop device over it, "
                    f"a file system on it, a private mount"
                )
            found.append(
                "queue settings of that loop device (scheduler, nr_requests, read_ahead_kb, wbt_lat_usec), "
                "restored at the end"
            )
        if site.kind == "log":
            found.append(
                f"for the log of each of these an image of {site.size_bytes >> 20} MiB more{at}, and a loop device over it"
            )
        if site.kind == "device":
            named = f"--place {site.name}= and --erase {site.name}=" if site.name else "--device and --erase"
            found.append(
                f"the first {site.size_bytes:,} bytes of the disk that is named with {named} are overwritten, and one block "
                "of 4,096 behind them; a private mount"
            )
            found.append(
                "at the end those bytes are ZEROS, whatever they were before; the rest is not written"
            )
            found.append(
                "queue settings of that disk (scheduler, nr_requests, read_ahead_kb, wbt_lat_usec), restored at the end"
            )
    in_place = any(site.kind == IN_PLACE for site in sites)
    for setting in settings:
        tell = setting.knob.changes_in_place if in_place else setting.knob.changes
        tell = setting.knob.changes_in_use if in_use else tell
        found.extend(tell(setting.declared, setting.values))
    return tuple(dict.fromkeys(found))
