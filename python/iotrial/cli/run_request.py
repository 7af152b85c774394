"""Convert the options of ``iotrial.cli.options`` to typed values, and narrow the study to them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from msgspec import structs

from iotrial.cli.options import named_value
from iotrial.design.plan import seed_from_user
from iotrial.errors import RequestError, twice
from iotrial.knobs.own_values import with_own_values
from iotrial.lab.guard import Consent, consent
from iotrial.runner.places import Where
from iotrial.runner.resolve import resolve
from iotrial.runner.today import with_today
from iotrial.study.catalogue import find
from iotrial.study.disks import parse_disk
from iotrial.study.model import LONGEST_SAMPLE_S, SHORTEST_SAMPLE_S
from iotrial.study.programs import PROGRAM_KNOB
from iotrial.study.select import select
from iotrial.terminal import escape
from iotrial.units import UnitError, parse_duration, parse_margin, parse_size

if TYPE_CHECKING:
    from iotrial.lab.guard import Consent
    from iotrial.runner.places import Where
    from iotrial.runner.resolve import Resolved
    from iotrial.study.model import Study


# Parse the location of each place from the command line.


def named(
    places: Sequence[str],
    device: str | None,
    erase: Sequence[str],
    *,
    discard_contents: bool,
    discard_contents_of: Sequence[str],
) -> tuple[Consent | None, Mapping[str, Where]]:
    """Return the disk of a device lab (None if none is named) and the location of each place.

    Raises RequestError if a place is named twice, does not exist, or is a disk without consent, and for
    consent that matches no place.
    """
    paths = _named("--place", places)
    disks = {name: path for name, path in paths.items() if Path(path).expanduser().is_block_device()}
    words = _of_places(erase, disks)
    rest = [text for text in erase if text.partition("=")[0] not in words]
    waived = set(discard_contents_of)
    _check_consent(paths, disks, words, rest, device, discard_contents=discard_contents, waived=waived)
    located = {}
    for name, path in paths.items():
        if name not in disks:
            located[name] = Where(folder=_folder(name, path))
            continue
        if name not in words:
            raise _no_serial(f"--place {name}={path} is a disk")
        located[name] = Where(consent=Consent(path, words[name], name in waived))
    return consent(device, rest[0] if rest else None, discard_contents=discard_contents), located


def _named(option: str, texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, path = named_value(option, text, "FOLDER", "ssd=/mnt/ssd")
        if name in found:
            raise RequestError(twice(option, name))
        found[name] = path
    return found


def _of_places(erase: Sequence[str], disks: Mapping[str, str]) -> dict[str, str]:
    """Return the serial numbers by place."""
    found: dict[str, str] = {}
    for text in erase:
        name, equals, serial = text.partition("=")
        if not equals or name not in disks:
            continue
        if name in found:
            raise RequestError(twice("--erase", name))
        if not serial.strip():
            raise _no_serial(f'--erase "{text}"')
        found[name] = serial.strip()
    return found


def _check_consent(
    paths: Mapping[str, str],
    disks: Mapping[str, str],
    words: Mapping[str, str],
    rest: Sequence[str],
    device: str | None,
    *,
    discard_contents: bool,
    waived: set[str],
) -> None:
    """Raise RequestError for consent that does not match a named disk: that is likely a mistake of the user."""
    for text in rest:
        name = text.partition("=")[0]
        if name in paths:
            raise _no_disk(f"--erase {name}", name)
    if len(rest) > 1 or (rest and disks and device is None):
        raise _no_disk(f'--erase "{rest[-1]}"', "NAME")
    for name in sorted(waived - set(words)):
        raise _no_disk(f"--discard-contents-of {name}", name)
    if discard_contents and disks and device is None:
        raise RequestError(
            "--discard-contents: which disk?", hint="use --discard-contents-of PLACE for each disk"
        )


def _no_serial(what: str) -> RequestError:
    return RequestError(
        f"{what}: its serial number or WWN is missing, which confirms that it may be overwritten",
        hint="`lsblk -o NAME,SERIAL,WWN,SIZE,MOUNTPOINTS` shows it: --erase PLACE=SERIAL-OR-WWN",
    )


def _no_disk(what: str, name: str) -> RequestError:
    return RequestError(
        f"{what}: no disk of that name", hint=f"--place {name}=PATH --erase {name}=SERIAL-OR-WWN"
    )


def no_study() -> RequestError:
    return RequestError(
        "no study given", hint="`iotrial list` shows those of the catalogue; a TOML file works too"
    )


def _folder(name: str, path: str) -> str:
    folder = Path(path).expanduser().resolve()
    if not folder.is_dir():
        raise RequestError(f"--place {name}={path}: there is no such folder")
    return str(folder)


SEED_DIGITS = 32
SMALLEST_LAB = 1 << 20
LARGEST_SEED = 2**128 - 1
SEED_DECIMALS = len(str(LARGEST_SEED))
Q = TypeVar("Q", int, float)


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The user's options for a study, typed.

    ``named``: the factors that the user named, or that were named for the packed trial ``like``.
    """

    sets: dict[str, list[str]] = field(default_factory=dict)
    conditions: dict[str, list[str]] = field(default_factory=dict)
    references: dict[str, str] = field(default_factory=dict)
    full: bool = False
    lab: str | None = None
    on: str | None = None
    size: str | None = None
    time: str | None = None
    blocks: int | None = None
    margin: str | None = None
    alpha: float | None = None
    seed: str | None = None
    controls: bool = True
    no_stop: bool = False
    precise: bool = False
    trust: bool = False
    consent: Consent | None = None
    like: str | None = None
    named: tuple[str, ...] = ()
    account: bool = True
    check: bool = True
    disk: str | None = None
    located: Mapping[str, Where] = field(default_factory=dict)
    foreign: bool = False
    copy_from: str | None = None
    #: agrees to changes of a machine in use
    yes: bool = False
    #: compares fewer levels if the time is too short for all
    fewer: bool = False


#: options that are fields of the same name
_FIELDS = (
    "full", "lab", "disk", "on", "size", "time", "blocks", "margin", "alpha", "no_stop", "precise", "trust", "foreign", "yes",
    "like", "fewer",
)  # fmt: skip


def request_of(values: Mapping[str, Any]) -> RunRequest:
    """Convert the options to typed values; a verb need not have all of them. Raises RequestError for one that is not
    NAME=LEVEL."""
    sets = _pairs("--set", values.get("sets", ()))
    conditions = _pairs("--condition", values.get("conditions", ()))
    references: dict[str, str] = {}
    for text in values.get("references", ()):
        name, level = named_value("--reference", text, "LEVEL", "scheduler=none")
        if name in references:
            raise RequestError(f"--reference: {twice('factor', name)}")
        references[name] = level
    consent, located = named(
        values.get("places", ()),
        values.get("device"),
        values.get("erase", ()),
        discard_contents=values.get("discard_contents", False),
        discard_contents_of=values.get("discard_contents_of", ()),
    )
    return RunRequest(
        sets=sets,
        conditions=conditions,
        references=references,
        seed=seed_of(values.get("seed")),
        controls=not values.get("no_controls"),
        account=not values.get("no_account"),
        check=not values.get("no_check"),
        copy_from=_copied(values.get("copy_from")),
        named=tuple(sorted({*sets, *conditions, *references})),
        consent=consent,
        located=located,
        **{name: values[name] for name in _FIELDS if name in values},
    )


def _copied(folder: str | None) -> str | None:
    if folder is None:
        return None
    found = Path(folder).expanduser().resolve()
    if not found.is_dir():
        raise RequestError(f"--copy-from {folder}: there is no such folder")
    return str(found)


def seed_of(text: str | None) -> str | None:
    """Return the seed as 32 hexadecimal digits: those given, or derived from a number. Raises RequestError."""
    if text is None:
        return None
    if len(text) == SEED_DIGITS and set(text.lower()) <= set("0123456789abcdef"):
        return text.lower()
    number = (
        int(text) if text.isascii() and text.isdigit() and len(text) <= SEED_DECIMALS else LARGEST_SEED + 1
    )
    if number > LARGEST_SEED:
        raise RequestError(
            f'--seed "{text[:80]}": expected a whole number below 2^128, or the 32 hexadecimal digits of a trial',
        )
    return seed_from_user(number)


def _pairs(option: str, texts: tuple[str, ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for text in texts:
        name, levels = named_value(option, text, "LEVEL,LEVEL", "size=4KiB,1MiB")
        found.setdefault(name, []).extend(level.strip() for level in levels.split(","))
    return found


def find_study(name: str | None, request: RunRequest) -> tuple[Study, RunRequest]:
    """Find the study and narrow it to the request. Return it, with the request completed from a packed trial.

    Raises RequestError and its kin.
    """
    if not name and request.like is None:
        raise no_study()
    if name and request.like is not None:
        raise RequestError("STUDY and --like exclude each other")
    if request.like is not None:
        study, request = _study_like(request.like, request)
    else:
        study = find(name or "")
        study = structs.replace(study, trusted=study.trusted and not request.foreign)
    return narrowed(study, request), request


def narrowed(study: Study, request: RunRequest) -> Study:
    """Return the study with the levels, budget and lab that the user wants. Raises RequestError and its kin."""
    margin = quantity_of("--margin", request.margin, parse_margin)
    time_s = quantity_of("--time", request.time, parse_duration)
    size = quantity_of("--size", request.size, parse_size)
    study, (sets, conditions) = with_own_values(study, request.sets, request.conditions)
    chosen = select(
        study,
        sets=sets,
        conditions=conditions,
        references=request.references,
        full=request.full,
        margin=margin,
        alpha=request.alpha,
        time_s=time_s,
        blocks=request.blocks,
    )
    lab = chosen.lab if size is None else structs.replace(chosen.lab, size_bytes=max(size, SMALLEST_LAB))
    chosen = _on_disk(structs.replace(chosen, lab=lab), request.disk)
    return structs.replace(
        chosen, account=chosen.account and request.account, check=chosen.check and request.check
    )


def _on_disk(study: Study, disk: str | None) -> Study:
    if disk is None:
        return study
    try:
        wanted = parse_disk(disk)
    except ValueError as error:
        raise RequestError(f"--disk: {error}") from error
    # "none" applies to every place; another model is the lab's, and places keep theirs
    places = (
        study.places if wanted is not None else tuple(structs.replace(p, disk=None) for p in study.places)
    )
    return structs.replace(study, lab=structs.replace(study.lab, disk=wanted), places=places)


def _study_like(file: str, request: RunRequest) -> tuple[Study, RunRequest]:
    """Read the study of a packed trial, as untrusted. Its seed, lab and controls apply unless the request
    sets others."""
    # only here: what reads stored trials takes a tenth of the start-up of a plan
    from iotrial.store.model import TrialHeader
    from iotrial.store.packed import open_packed, read_packed

    path = Path(file).expanduser()
    with open_packed(path) as packed:
        records = read_packed(packed, escape(path))
        header = next(records)
        for _ in records:  # read to the end: the whole file must be valid
            pass
    assert isinstance(header, TrialHeader)
    named_paths = [setting.value for setting in header.study.settings if setting.knob == PROGRAM_KNOB]
    if named_paths and not request.trust:
        raise RequestError(
            f"{escape(path)}: this trial ran programs of {escape(named_paths[0])}, and running it would run yours",
            hint="check who owns them on this machine; --trust runs them",
        )
    options = header.options
    named = options.get("asked")
    return structs.replace(header.study, trusted=False, origin=escape(path)), replace(
        request,
        seed=request.seed or header.seed,
        lab=request.lab or (str(options["lab"]) if "lab" in options else None),
        controls=request.controls and options.get("controls") is not False,
        no_stop=request.no_stop or options.get("no_stop") is True,
        precise=request.precise or options.get("precise") is True,
        named=tuple(sorted({*request.named, *(named if isinstance(named, list) else ())})),
    )


@overload
def quantity_of(option: str, text: str, parse: Callable[[str], Q]) -> Q: ...


@overload
def quantity_of(option: str, text: str | None, parse: Callable[[str], Q]) -> Q | None: ...


def quantity_of(option: str, text: str | None, parse: Callable[[str], Q]) -> Q | None:
    """Parse an option's quantity with its unit; None if it is not given. Raises RequestError with the
    option's name."""
    try:
        return None if text is None else parse(text)
    except UnitError as error:
        raise RequestError(f"{option}: {error.message}", hint=error.hint) from error


def sampling_period(text: str | None) -> float | None:
    """Return the period of ``--sample`` in seconds. Raises RequestError if it cannot be parsed or is out of
    bounds."""
    period_s = quantity_of("--sample", text, parse_duration)
    if period_s is not None and not SHORTEST_SAMPLE_S <= period_s <= LONGEST_SAMPLE_S:
        raise RequestError(f"--sample {text}: expected 10 ms to 1 min, found {period_s:g} s")
    return period_s


def resolve_study(study: Study, request: RunRequest) -> Resolved:
    """Resolve the study for this machine, with today's values where a level asks for them."""
    study = with_today(study, request.lab or study.lab.kind or "", request.on or ".")
    return resolve(
        study,
        root=os.geteuid() == 0,
        lab=request.lab,
        explicit=set(request.named),
        trust=request.trust,
        consent=request.consent,
        located=request.located,
        copy_from=request.copy_from,
    )
