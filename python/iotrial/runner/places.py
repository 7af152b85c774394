"""The places of a trial before they are made: what the study declares, and where the user locates each of them.

A study without places has one, named after what is made on it. A condition over several file systems has a
place for each of them, so that none is reformatted from block to block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from iotrial.errors import RequestError, UnknownName
from iotrial.knobs.knob import a_lab
from iotrial.lab.disk_identity import normal
from iotrial.lab.filesystem import FILESYSTEMS
from iotrial.lab.guard import Consent, whole_blocks
from iotrial.lab.log_device import log_bytes
from iotrial.study.disks import DiskSpec
from iotrial.study.model import Factor, Holds, PlaceSpec, Study
from iotrial.study.places import GUEST, IN_PLACE, LAB_DEVICE

FILESYSTEM = "filesystem.type"
#: labs that are a folder on a file system of the user's
FOLDERS = ("directory", IN_PLACE)
LOOK_IT_UP = "find it with `lsblk -o NAME,SERIAL,WWN,SIZE,MOUNTPOINTS`"


@dataclass(frozen=True, slots=True)
class Where:
    """Where the user locates a place: in a folder, or on a disk given up for it. Neither: in the default folder."""

    folder: str | None = None
    consent: Consent | None = None


@dataclass(frozen=True, slots=True)
class Site:
    """One place to be made.

    ``name`` is the study's (empty if it declares none). ``kind`` is that of the lab, or log. ``filesystems``:
    the file systems that conditions choose between, each on its own image.
    """

    name: str
    holds: Holds
    kind: str
    filesystems: tuple[str, ...]
    size_bytes: int
    where: Where
    text: str = ""
    disk: DiskSpec | None = None
    #: Number of disks; more than one form an array.
    disks: int = 1

    def place(self, filesystem: str) -> str:
        """Return the name of the place for one of its file systems."""
        if not self.name:
            return "folder" if self.kind in FOLDERS else filesystem
        return f"{self.name}.{filesystem}" if len(self.filesystems) > 1 else self.name


def sites_of(
    study: Study, lab: str, located: Mapping[str, Where], consent: Consent | None
) -> tuple[Site, ...]:
    """Return every place of a study in a kind of lab: those of runs, the additional ones, the log's.

    ``consent``: the disk for a study that declares no places. Raises RequestError or UnknownName for a
    located place that does not exist or does not match what the study declares.
    """
    specs = (*study.places_of_runs, *study.extra_places)
    known = [place.name for place in study.places_of_runs if place.holds is Holds.RUNS]
    for setting in study.settings:
        if setting.knob == LAB_DEVICE and setting.value not in known:
            raise UnknownName("place", setting.value, known, where=study.name)
    if study.lab.link is not None and lab != GUEST:
        raise RequestError(f"{a_lab(lab)} has no network: a link connects two guests", hint="use --lab guest")
    log = study.log
    _check_located(study, located, [*specs, *([log] if log is not None else [])])
    if not study.places_of_runs:
        specs = (PlaceSpec(""), *specs)
    # a disk given for the whole lab belongs to its only place
    alone = specs[0].name if len(study.places_of_runs) < 2 else None
    found = [_site(study, spec, lab, located.get(spec.name, Where(None, consent if spec.name == alone else None)))
             for spec in specs]  # fmt: skip
    _check_disks(found)
    served = [
        place for site in found if site.holds is Holds.RUNS for place in map(site.place, site.filesystems)
    ]
    if study.lab.link is not None and len(served) > 1:
        raise RequestError(
            f"a link serves one place, and this study has {len(served)}: {', '.join(served)}",
            hint="compare file systems as a treatment, or in separate studies",
        )
    if log is not None:
        smallest = min(site.size_bytes for site in found if site.holds is Holds.RUNS)
        found.append(_log(study, log, lab, located.get(log.name, Where()), smallest))
    return tuple(found)


def lab_of(sites: Sequence[Site], lab: str) -> str:
    """Return the kind of lab of these places together: images mixed with disks count as an image lab."""
    kinds = {site.kind for site in sites if site.holds is Holds.RUNS}
    return lab if lab in (*FOLDERS, GUEST) else "device" if kinds == {"device"} else "image"


def disk_bytes(study: Study, spec: PlaceSpec | None = None) -> int:
    """Return the bytes of a disk that a device lab takes, without its mark: enough for every file system made on it."""
    return whole_blocks(_enough(study, study.factors, spec))


def image_bytes(study: Study, spec: PlaceSpec | None = None) -> int:
    """Return the size of an image: enough for every file system made in it. A condition's file system has its own image."""
    return whole_blocks(_enough(study, study.treatment_factors, spec))


def _enough(study: Study, factors: Sequence[Factor], spec: PlaceSpec | None) -> int:
    settings = [s for factor in factors for level in factor.levels for s in level.settings]
    settings += study.fixed
    base = study.lab.filesystem if spec is None or spec.filesystem is None else spec.filesystem
    size = study.lab.size_bytes if spec is None or spec.size_bytes is None else spec.size_bytes
    kinds = {base, *(s.value for s in settings if s.knob == FILESYSTEM)}
    return max(size, *(FILESYSTEMS[kind].smallest_bytes for kind in kinds))


def _site(study: Study, spec: PlaceSpec, lab: str, where: Where) -> Site:
    label = f"place {spec.name}" if spec.name else "the lab"
    # an additional place may lie anywhere
    otherwise = "image" if lab == "device" and spec.holds is Holds.FILES else lab
    kind = "device" if where.consent is not None else otherwise
    if (lab in FOLDERS) != (kind in FOLDERS):
        raise RequestError(f"{label}: {a_lab(lab)} does not use a disk", hint="add --lab image")
    if lab == IN_PLACE and spec.name:
        raise RequestError(
            f"{label}: in place, your folder is the only place, but study {study.name} declares others",
            hint="omit --lab in-place",
        )
    if spec.kind is not None and "directory" in (spec.kind, kind) and spec.kind != kind:
        raise RequestError(
            f"{label}: the study needs a place of kind {spec.kind}, and this is a lab of kind {lab}",
            hint=f"use --lab {spec.kind}",
        )
    if where.consent is None and "device" in (spec.kind, kind):
        raise RequestError(
            f"{label}: no disk given, and iotrial never chooses one",
            hint=f"{LOOK_IT_UP}, then give --place {spec.name}=PATH --erase {spec.name}=SERIAL-OR-WWN",
        )
    if kind == "device" and spec.kind == "image":
        raise RequestError(f"{label}: the study needs an image, but the place is a disk")
    base = spec.filesystem or study.lab.filesystem
    disk = _disk(study, spec, where) if kind in ("image", GUEST) else None
    disks = study.lab.disks if spec.holds is Holds.RUNS else 1
    if disks > 1 and kind != GUEST:
        raise RequestError(
            f"{label}: {disks} disks make an array, which only a guest lab has", hint="use --lab guest"
        )
    if kind == GUEST and disk is not None and disks == 1:
        kind = "image"  # a simulated disk belongs to the probe, in the guest's memory, not to QEMU
    return Site(
        spec.name,
        spec.holds,
        kind,
        (_filesystems(study) or (base,)) if spec.holds is Holds.RUNS else (base,),
        disk_bytes(study, spec) if kind == "device" else image_bytes(study, spec),
        where,
        spec.text,
        disk,
        disks,
    )


def _disk(study: Study, spec: PlaceSpec, where: Where) -> DiskSpec | None:
    """Return the disk model of a place; None if the user has located it, which means that very disk."""
    return (spec.disk or study.lab.disk) if where == Where() else None


def _log(study: Study, spec: PlaceSpec, lab: str, where: Where, lab_bytes: int) -> Site:
    if where.consent is not None:
        raise RequestError(
            f"place {spec.name}: a log is an image, not a whole disk",
            hint=f"make a file system on that disk, and name a folder on it: --place {spec.name}=FOLDER",
        )
    options = [*study.lab.mkfs_options, *(s.value for s in study.settings if s.knob == "mkfs.option")]
    disk = _disk(study, spec, where)
    if lab == GUEST and disk is None:
        raise RequestError(
            f"place {spec.name}: in a guest lab a log is on a simulated disk",
            hint='choose one: `disk = "ssd-sata"` in its [[place]]',
        )
    size = log_bytes(spec.size_bytes, options, lab_bytes)
    return Site(spec.name, Holds.LOG, "log", (), size, where, spec.text, disk)


def _filesystems(study: Study) -> tuple[str, ...]:
    """Return the file systems that conditions choose between."""
    settings = (s for f in study.condition_factors for level in f.levels for s in level.settings)
    return tuple(dict.fromkeys(s.value for s in settings if s.knob == FILESYSTEM))


def _check_located(study: Study, located: Mapping[str, Where], specs: Iterable[PlaceSpec]) -> None:
    known = [spec.name for spec in specs]
    declared = {place.name for place in study.places}
    for name in located:
        if name in known:
            continue
        if name in declared:
            raise RequestError(
                f"--place {name}: not used by the chosen levels",
                hint=f"available: {', '.join(known)}" if known else None,
            )
        if not known:
            raise RequestError(
                f"--place {name}: study {study.name} declares no place",
                hint="use --on FOLDER to choose the disk of its lab",
            )
        raise UnknownName("place", name, known, where=study.name)


def _check_disks(sites: Iterable[Site]) -> None:
    seen: dict[str, str] = {}
    for site in sites:
        if site.where.consent is None:
            continue
        disk = normal(site.where.consent.name) or site.where.consent.name
        if disk in seen:
            raise RequestError(f"places {seen[disk]} and {site.name} are on one disk")
        seen[disk] = site.name
