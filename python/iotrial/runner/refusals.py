"""The checks of ``resolve``: everything that is refused before anything is changed.

Checks raise RequestError or a subclass and return nothing.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, product
from pathlib import Path

from iotrial.errors import LARGER_LAB, MissingTool, PrivilegeError, RequestError, unknown
from iotrial.guest import qemu
from iotrial.knobs.declaration import Safety, Stage, consequence_of
from iotrial.knobs.encryption import BlockEncryption
from iotrial.knobs.knob import Knob, Requirement, a_lab
from iotrial.lab import cache, registry
from iotrial.lab.filesystem import FILESYSTEMS, Filesystem
from iotrial.lab.guard import LOOK_IT_UP, Consent
from iotrial.lab.knobs.filesystem import FilesystemType
from iotrial.lab.knobs.machine import GuestDiskAio, GuestDiskCache, GuestDiskFormat, GuestDiskInterface
from iotrial.lab.knobs.use import FilesystemAge
from iotrial.lab.log_device import LOGGED
from iotrial.ownership import other_writer
from iotrial.runner import combinations
from iotrial.runner.command_user import command_user
from iotrial.runner.places import Site
from iotrial.runner.requirements import PACKAGES, TOOL_FOLDERS, Brought, Means, package_of
from iotrial.stats.spec import stretched_response
from iotrial.study.model import Role, Setting, Study, Workload
from iotrial.study.places import GUEST, IN_PLACE, LABS
from iotrial.study.programs import PROGRAM_KNOB
from iotrial.study.schema import Problem
from iotrial.study.trust import unmet
from iotrial.study.work import HasPrograms, varied
from iotrial.units import format_size
from iotrial.workloads.mkfs import VOLUME, MkfsWork
from iotrial.workloads.replay import ReplayWork

#: Combinations of a workload's values tried in advance; others fail in the run, if they do.
MOST_COMBINATIONS = 10_000
#: Stages of knobs that can be switched under a service in use.
LIVE_STAGES = frozenset({Stage.HOST, Stage.DEVICE, Stage.MOUNT})
#: Stages of knobs that have no effect while a file system is made.
IDLE_WHILE_MADE = frozenset({Stage.FILES, Stage.MOUNT, Stage.CACHE})


def check_names(study: Study) -> None:
    """Refuse unknown knobs, options, levels and file systems, and those not on their lists."""
    for factor in study.factors:
        where = f"{study.origin}:{factor.line}" if factor.line else study.origin
        for level in factor.levels:
            for setting in level.settings:
                knob = registry.knob(setting.knob, where=where)
                registry.check_options(setting)
                knob.parse(setting)
    for setting in study.fixed:
        knob = registry.knob(setting.knob, where=study.origin)
        registry.check_options(setting)
        knob.parse(setting)
    if study.lab.filesystem not in FILESYSTEMS:
        message, hint = unknown(
            "file system", study.lab.filesystem, FILESYSTEMS, where=f"{study.origin}: [lab]"
        )
        raise RequestError(message, hint=hint)
    for place in study.places:
        if place.filesystem is not None and place.filesystem not in FILESYSTEMS:
            where = f"{study.origin}: [[place]] {place.name}"
            message, hint = unknown("file system", place.filesystem, FILESYSTEMS, where=where)
            raise RequestError(message, hint=hint)
    filesystem = FILESYSTEMS[study.lab.filesystem]
    for option in study.lab.mkfs_options:
        if not filesystem.allows_mkfs(option):
            raise _no_mkfs_option(study, option, filesystem)
    for option in study.lab.mount_options:
        if registry.knob("mount.option").parse(Setting("mount.option", option)) == "default":
            raise RequestError(f'{study.origin}: [lab] mount option "default" does not exist')
    _check_mkfs_options(study)
    _check_log(study)
    combinations.check(study)


def _check_log(study: Study) -> None:
    """Refuse an external log for a file system that has none."""
    if study.log is None:
        return
    made = {s.value for s in study.settings if s.knob == "filesystem.type"}
    own = {place.filesystem for place in study.places_of_runs if place.filesystem is not None}
    for filesystem in sorted((made or {study.lab.filesystem}) | own):
        if filesystem not in LOGGED:
            raise RequestError(
                f"{study.origin}: knob filesystem.log: {filesystem} does not support an external log",
                hint="known: " + ", ".join(LOGGED),
            )


def _check_mkfs_options(study: Study) -> None:
    """Check each mkfs option against every file system it may be used with.

    An option letter that is harmless to one mkfs may name a folder to copy, or a device, to another.
    """
    groups = [level.settings for factor in study.factors for level in factor.levels] + [study.fixed]
    made = [s.value for settings in groups for s in settings if s.knob == "filesystem.type"]
    own = [place.filesystem for place in study.places if place.filesystem is not None]
    every = tuple(dict.fromkeys((*(made or [study.lab.filesystem]), *own)))
    for settings in groups:
        named = tuple(s.value for s in settings if s.knob == "filesystem.type") or every
        for setting in settings:
            if setting.knob == "mkfs.option":
                option = registry.knob("mkfs.option").parse(setting)
                wrong = [
                    kind
                    for kind in named
                    if option != "default" and not FILESYSTEMS[kind].allows_mkfs(option)
                ]
                if wrong:
                    raise _no_mkfs_option(study, option, FILESYSTEMS[wrong[0]])


def _no_mkfs_option(study: Study, option: str, filesystem: Filesystem) -> RequestError:
    return RequestError(
        f'{study.origin}: mkfs option "{option}" is not on the list of {filesystem.name}',
        hint="it has patterns: " + "; ".join(filesystem.mkfs_allowed),
    )


def check_trust(study: Study, *, trust: bool) -> None:
    """Refuse what only a trusted study may do."""
    wanted = () if trust else unmet(study)
    if wanted:
        raise RequestError(
            f"{study.origin}: not trusted, and {wanted[0]}",
            hint="`iotrial plan --trust` shows its commands without running them; if you trust the study, run "
            "it with --trust",
        )


def check_consent(study: Study, kind: str, consent: Consent | None) -> None:
    """Refuse a device lab without a named disk, and a named disk for another lab or for several places."""
    if len(study.places_of_runs) > 1:
        if consent is not None:
            raise RequestError(
                f"--device and --erase name a disk, but study {study.name} has places",
                hint=f"choose one: --place {study.places_of_runs[0].name}=PATH --erase {study.places_of_runs[0].name}=NAME",
            )
        return
    if kind == "device" and consent is None:
        raise RequestError("a device lab: no disk given, and iotrial never chooses one", hint=LOOK_IT_UP)
    if kind != "device" and consent is not None:
        raise RequestError(
            f"--device and --erase name a disk, but this is a lab of kind {kind}", hint="add --lab device"
        )


def check_one_filesystem(study: Study) -> None:
    """Refuse a device lab of several file systems: it holds one at a time."""
    for factor in study.condition_factors:
        if len(factor.levels) > 1 and any(s.knob == "filesystem.type" for s in factor.levels[0].settings):
            raise RequestError(
                f"condition {factor.name}: a device lab holds one file system at a time",
                hint=f"name one with --condition {factor.name}={factor.levels[0].label}",
            )


def check_requirement(
    study: Study, setting: Setting, need: Requirement, kind: str, means: Means, *, root: bool
) -> None:
    """Refuse a setting that this lab cannot make, or that needs root or a missing program."""
    if kind not in need.labs:
        serving = ", ".join(sorted(need.labs & _labs_that_serve(study)))
        hint = f"it needs: {serving}{' (as root)' if need.root and not root else ''}"
        if not serving:
            hint = "no lab can set it for this work: remove it from the study"
        elif kind == IN_PLACE and (option := _into_a_lab(study)) is not None:
            hint = f"try it on an image: {option}"
        raise RequestError(f"knob {setting.knob}: {a_lab(kind)} cannot set it", hint=hint)
    if need.root and not root:
        raise PrivilegeError(f"knob {setting.knob}")
    for tool, package in need.tools.items():
        means.program(tool, package)
    for module in sorted(need.modules):
        means.module(module)


def check_disks(knobs: Sequence[Knob], sites: Iterable[Site]) -> None:
    """Refuse knobs of a guest's disks where runs do not happen on a disk that QEMU attaches, or on several, and the
    encryption of an array.
    """
    of_disks = GuestDiskInterface | GuestDiskCache | GuestDiskAio | GuestDiskFormat
    names = [knob.name for knob in knobs if isinstance(knob, of_disks)]
    if any(isinstance(knob, GuestDiskFormat) for knob in knobs):
        qemu.find_converter()
    encrypted = any(isinstance(knob, BlockEncryption) for knob in knobs)
    for site in sites:
        if encrypted and site.disks > 1:
            raise RequestError(
                f"knob {BlockEncryption.name}: an array is not encrypted", hint="omit `disks` from [lab]"
            )
        if names and site.disk is not None:
            raise RequestError(
                f"knob {names[0]}: the disk of this lab is simulated inside the guest, so QEMU does not attach it",
                hint="remove `disk` from [lab]",
            )
        if names and site.disks > 1:
            raise RequestError(
                f"knob {names[0]}: an array's disks are always attached by virtio-blk",
                hint="remove `disks` from [lab]",
            )


def check_filesystem(filesystem: str, means: Means) -> None:
    """Refuse a file system of the lab if its mkfs is missing."""
    kind = FILESYSTEMS[filesystem]
    means.module(filesystem)
    means.program(kind.mkfs[0], kind.package)


def check_files(study: Study, means: Means) -> None:
    """Refuse files that cannot be brought to a level, and levels that need a program missing for one of the file systems."""
    settings = study.settings
    sizes = [int(registry.knob(s.knob).parse(s)) for s in settings if s.knob == "file.size"]
    made = {s.value for s in settings if s.knob == "filesystem.type"} or {study.lab.filesystem}
    for setting in settings:
        knob = registry.knob(setting.knob)
        for workload in study.workloads:
            for size in sizes or [workload.work.size_bytes]:
                knob.suits(setting, workload.work, size)
        for filesystem in sorted(made):
            needed = knob.needs(setting, filesystem)
            if needed is not None:
                means.program(*needed)


def check_commands(study: Study, means: Means) -> None:
    """Refuse a command if its program is not installed."""
    check_programs(study)
    for workload in study.workloads:
        work = workload.work
        if chosen(study) and work.takes_program():
            continue
        for program, package in work.needed_programs().items():
            means.program(program, package)
        try:
            work.check_to_run(study.settings, None if isinstance(means, Brought) else command_user(study))
        except RequestError as error:
            raise RequestError(f"workload {workload.name}: {error.message}", hint=error.hint) from None
        named = work.named_programs() if isinstance(work, HasPrograms) else ()
        for program in (*named, *(workload.neighbour.argv[:1] if workload.neighbour else ())):
            if isinstance(means, Brought):
                if "{" not in program:
                    means.program(program, package_of(program))
                continue
            search = os.environ.get("PATH", "") + ":" + TOOL_FOLDERS
            if "{" in program or shutil.which(program, path=search):
                continue
            raise _missing(workload.name, program)


def _missing(workload: str, program: str) -> MissingTool:
    """Return the error for a program that cannot be started."""
    what = f"workload {workload}: program {program}"
    if "/" in program and os.path.isfile(program):  # noqa: PTH113  Path.is_file raises for a name that is too long
        return MissingTool(f"{what} is not executable", hint=f"chmod +x {shlex.quote(program)}")
    if "/" in program:
        return MissingTool(f"{what} does not exist", hint="correct its name")
    hint = (
        f"apt-get install {PACKAGES[program]}" if program in PACKAGES else "install it, or correct its name"
    )
    return MissingTool(f"{what} is not installed", hint=hint)


def check_work_options(study: Study) -> None:
    """Check workload keys that a factor varies: every workload must have them, and every combination of values
    must be valid.
    """
    groups = [[level.settings for level in factor.levels] for factor in study.factors] + [[study.fixed]]
    options = [[_work_options(settings) for settings in group] for group in groups]
    varying = [group for group in options if any(group)]
    if not varying:
        return
    for workload in study.workloads:
        for combination in islice(product(*varying), MOST_COMBINATIONS):
            wanted = {name: value for settings in combination for name, value in settings.items()}
            try:
                varied(workload.work, wanted)
            except Problem as problem:
                values = ", ".join(f"{name} = {value}" for name, value in wanted.items())
                raise RequestError(
                    f"{study.origin}: workload {workload.name} with {values}: {problem.message}",
                    hint=problem.hint,
                ) from None


def _work_options(settings: Iterable[Setting]) -> dict[str, str]:
    knob = registry.knob("work.option")
    return {knob.value_option(s): s.value for s in settings if s.knob == knob.name}


def check_made_files(study: Study, lab: str) -> None:
    """Refuse cache states that a work's own programs undo, and settings of files that a run only makes."""
    treated = {
        s.knob
        for f in study.factors
        if f.role is Role.TREATMENT
        for level in f.levels
        for s in level.settings
    }
    for workload in study.workloads:
        states = [s.value for s in study.settings if s.knob == "cache.state"] or [workload.cache or "as-is"]
        states = [cache.resolve(state, lab) for state in states]
        for state in states:
            try:
                workload.work.check_cache(state, study.settings)
            except RequestError as error:
                message = f"workload {workload.name}: its files cannot be {state}: {error.message}"
                raise RequestError(message, hint=error.hint) from None
        if not workload.work.starts_empty():
            continue
        where = f"workload {workload.name}: its files do not exist at the start of a run"
        for setting in study.settings:
            size_of_all = setting.knob == "file.size" and setting.knob not in treated
            if registry.knob(setting.knob).stage is Stage.FILES and not size_of_all:
                raise RequestError(f"{where}, so knob {setting.knob} has nothing to act on")
        for state in states:
            if state in ("warm", "cold-data"):
                raise RequestError(
                    f"{where}, so they cannot be {state}",
                    hint="it can be as-is, cold-files or cold-system",
                )


def _labs_that_serve(study: Study) -> frozenset[str]:
    """Return the kinds of lab that have what the study's workloads and its log need."""
    labs = frozenset(LABS).intersection(*(w.work.labs() for w in study.workloads))
    if study.log is not None and study.log.disk is None and study.lab.disk is None:
        labs -= {GUEST}
    return labs


def gone(study: Study) -> list[str]:
    """Return notes for a plan on workloads of a removed kind, which is only read from trials of an earlier version."""
    return [f"{_gone(one)}; {one.work.gone}" for one in study.workloads if one.work.gone]


def check_kinds(study: Study) -> None:
    """Raise RequestError for a study with a workload of a removed kind: it can be planned but not run."""
    for workload in study.workloads:
        if workload.work.gone:
            raise RequestError(_gone(workload), hint=workload.work.gone)


def _gone(workload: Workload) -> str:
    return f'workload {workload.name}: kind "{workload.kind}" is not supported any more'


def check_labs(study: Study, lab: str) -> None:
    """Refuse a workload that needs what this kind of lab does not have."""
    for workload in study.workloads:
        labs = workload.work.labs()
        if lab not in labs:
            why = "makes no files" if lab == IN_PLACE else "has no disk of its own"
            raise RequestError(
                f"workload {workload.name}: {a_lab(lab)} {why}",
                hint="it needs a lab of kind " + " or ".join(sorted(labs)) + ", as root",
            )


def check_copied(study: Study, lab: str) -> None:
    """Refuse a copy of the user's files where there is no lab on this machine to hold it, or work that makes its own."""
    if lab in (GUEST, IN_PLACE):
        raise RequestError(
            f"--copy-from: {a_lab(lab)} cannot work on a copy of a folder",
            hint="use --lab image, device or directory",
        )
    for workload in study.workloads:
        if IN_PLACE not in workload.work.labs():
            raise RequestError(
                f"--copy-from: workload {workload.name} works on files created by the lab",
                hint="a command with {dir}, without {file} and {files}, can use a copy",
            )


def check_safe_in_place(study: Study) -> None:
    """Refuse settings that could lose data of the user's after a power cut: in place they would act on the user's own."""
    for setting in study.settings:
        found = consequence_of(setting)
        if found.safety is Safety.DATA_AT_RISK:
            raise RequestError(
                f"knob {setting.knob}: {setting.value} puts data at risk ({found.sentence}), so it is not allowed in place",
                hint=f"try it in a separate lab: {_into_a_lab(study) or 'omit --in and --lab in-place'}",
            )


def _into_a_lab(study: Study) -> str | None:
    """Return the option that puts the work of a question of one line into a separate lab; None for other studies."""
    if not study.quick or study.in_windows:
        return None
    replays = any(isinstance(workload.work, ReplayWork) for workload in study.workloads)
    return "--lab image" if replays else "--copy-from FOLDER"


def check_in_use(study: Study, knobs: Iterable[Knob]) -> None:
    """Refuse what a service in use cannot be tried with: what cannot be switched under it, may cost data, is not crossed."""
    for knob in knobs:
        if knob.stage not in LIVE_STAGES:
            raise RequestError(
                f"knob {knob.name}: it cannot be switched under a service in use",
                hint="use settings of the device, the mount or the machine: `iotrial knobs` lists them",
            )
    for setting in study.settings:
        found = consequence_of(setting)
        if found.safety not in (Safety.HARMLESS, Safety.TRADE_OFF):
            raise RequestError(
                f"knob {setting.knob}: {setting.value} is {found.safety.value} ({found.sentence}), "
                "so it is not tried on a service in use"
            )
    if len(study.workloads) > 1 or study.condition_factors or study.fixed:
        raise RequestError(
            f"study {study.name}: a service in use is one workload under one condition",
            hint="leave out [[fixed]], factors with role = condition, and all workloads but one",
        )
    if not study.design.kind.crossed or any(factor.whole_plot for factor in study.factors):
        raise RequestError(
            f"study {study.name}: on a service in use, each block has one window for each combination of levels",
            hint="leave out [design] and plot",
        )


def check_bundles(study: Study) -> None:
    """Refuse a level that sets other knobs than the other levels of its factor."""
    for factor in study.factors:
        knobs = [{(s.knob, s.options) for s in level.settings} for level in factor.levels]
        for level, mine in zip(factor.levels, knobs, strict=True):
            missing = set.union(*knobs) - mine
            if missing:
                raise RequestError(
                    f'factor {factor.name}: level "{level.label}" does not set {sorted(missing)[0][0]}, another level does',
                    hint="set every knob in every level, so that all arms make the same transitions",
                )


def check_primary(study: Study, workload: Workload) -> None:
    """Refuse a timed workload without a response that a known slowdown can be injected into.

    It could have no positive control. Workloads that only count calls are exempt: nothing in them is timed.
    """
    own = [r for r in study.responses if r.workload == workload.name]
    if not any(r.primary for r in own):
        raise RequestError(f"workload {workload.name}: no response is primary")
    if workload.work.timed and stretched_response(own) is None:
        raise RequestError(
            f"workload {workload.name}: none of its responses is a time compared by ratio, so no known slowdown "
            f"can be injected",
            hint='omit scale = "difference" for a time (wall, cpu, wall.STEP, read_time ...)',
        )


def check_mkfs_work(study: Study, *, lab_bytes: int) -> None:
    """Refuse settings that do not fit a work that makes the lab's file system itself.

    Refused are other workloads, because it would destroy their files; knobs that have no effect on it; and a file
    system larger than the lab or smaller than its type allows.
    """
    own = [w for w in study.workloads if w.work.makes_filesystem]
    if not own:
        return
    where = f"workload {own[0].name}"
    others = [w.name for w in study.workloads if w not in own]
    if others:
        raise RequestError(f"{where}: it recreates the file system, which deletes the files of {others[0]}")
    for setting in study.settings:
        if setting.knob == FilesystemAge.name or registry.knob(setting.knob).stage in IDLE_WHILE_MADE:
            raise RequestError(f"{where}: knob {setting.knob} has no effect while a file system is made")
    types = {s.value for s in study.settings if s.knob == FilesystemType.name} or {study.lab.filesystem}
    smallest = max(FILESYSTEMS[name].smallest_bytes for name in types)
    for workload in own:
        if workload.cache not in (None, "as-is"):
            raise RequestError(f"workload {workload.name}: it has no data to cache", hint="leave `cache` out")
        for volume in _made_volumes(study, workload):
            if volume > lab_bytes:
                raise RequestError(
                    f"workload {workload.name}: a file system of {format_size(volume)} in a lab of {format_size(lab_bytes)}",
                    hint=LARGER_LAB,
                )
            if 0 < volume < smallest:
                raise RequestError(
                    f"workload {workload.name}: a file system of {format_size(volume)}, expected at least "
                    f"{format_size(smallest)} for {', '.join(sorted(types))}"
                )


def _made_volumes(study: Study, workload: Workload) -> list[int]:
    volumes = [s for s in study.settings if s.knob == "work.option"]
    found = []
    for options in [{}, *({VOLUME: setting.value} for setting in volumes)]:
        work = varied(workload.work, options)
        assert isinstance(work, MkfsWork)
        found.append(work.volume_bytes)
    return found


# Checks programs that the user names by path: refused if another user could replace them.


def check_programs(study: Study) -> None:
    """Check the programs that a study names.

    Raises RequestError for a path that is neither a program nor a folder of programs, or that others may
    write to; MissingTool if a workload lacks one of its programs there.
    """
    for setting in study.settings:
        if setting.knob == PROGRAM_KNOB:
            path = registry.knob(PROGRAM_KNOB).parse(setting)
            _check(Path(path))
            for workload in study.workloads:
                workload.work.check_program(path)


def chosen(study: Study) -> bool:
    """Return whether the user has named where the programs are."""
    return any(setting.knob == PROGRAM_KNOB for setting in study.settings)


def _check(path: Path) -> None:
    try:
        true = path.resolve(strict=True)
        found = true.stat()
    except OSError as error:
        raise RequestError(f"program {path}: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode) and not (stat.S_ISREG(found.st_mode) and found.st_mode & 0o111):
        raise RequestError(f"program {path}: expected a program or a folder of programs, found neither")
    for one in (path, *_within(true)):
        other = other_writer(one)
        if other is not None:
            raise RequestError(
                f"program {path}: {other}, so another user could replace the program",
                hint="install it where only root or you can write",
            )


def _within(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (
            entry.resolve() for entry in folder.iterdir() if entry.is_file() and os.access(entry, os.X_OK)
        )
