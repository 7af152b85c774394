"""Read a study file into a ``Study``. This is the only entry point; every error is a StudyError.

TOML is parsed first, then each table into its Struct, then the parts of the study are checked against each
other. Whatever the file alone shows to be wrong is rejected here, with its line; the lab decides whether a
knob exists and which levels this machine supports.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path as FilePath
from typing import Any

from msgspec.structs import replace

from iotrial.errors import StudyError, repeated, twice
from iotrial.ownership import other_writer_of_open
from iotrial.study.checks import MAX_BYTES, MAX_LINE, WORKLOAD, check_distinct_knobs
from iotrial.study.input_files import InputFile, input_file, text_file, with_texts
from iotrial.study.model import (
    CACHE_STATES,
    DEFAULT_CAP,
    DEFAULT_RESOLUTION,
    MEAN,
    TYPICAL,
    Budget,
    Claim,
    Design,
    DesignKind,
    Factor,
    LabSpec,
    Level,
    Response,
    Role,
    Scale,
    Setting,
    Study,
    Workload,
)
from iotrial.study.neighbour import check_neighbour
from iotrial.study.places import LAB_DEVICE, LOG_KNOB, Holds, PlaceSpec
from iotrial.study.programs import PROGRAM, PROGRAM_KNOB
from iotrial.study.schema import (
    MAX_SETTINGS,
    Path,
    Problem,
    fold,
    keys_of,
    match,
    printed,
    scalar,
    shown,
)
from iotrial.study.schema import label as label_of
from iotrial.study.source import Source, table_name
from iotrial.study.tables import (
    ClaimTable,
    DesignTable,
    FactorTable,
    LevelTable,
    ResponseTable,
    SettingTable,
    StudyFile,
    StudyTable,
    WorkloadTable,
)
from iotrial.study.work import HasCheck, HasPrograms, ResponseSpec, Work, kinds, nameable, past_kinds, work_of

_MAX_DOTS_SQUARED = 4_000_000  # takes tomllib about 0.1 s; legitimate lines have some tens of dots
_POSITION = re.compile(r"\s*\(at line (\d+), column (\d+)\)$")


def load(path: str | FilePath, *, trusted: bool = False) -> Study:
    """Read the study in this file.

    It is trusted if the user says so (``trusted``), or if only the user and root could have written the file
    and the text files it names.
    """
    path = FilePath(path)
    others: list[str] = []

    def read_text_file(name: str) -> str:
        text, other = text_file(path.parent, name)
        others.extend(filter(None, [other]))
        return text

    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise StudyError("is not a regular file", file=str(path))
            others.extend(filter(None, [other_writer_of_open(file.fileno(), path)]))
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        reason = error.strerror if isinstance(error, OSError) else error
        raise StudyError(
            f"cannot be read: {reason}",
            file=str(path),
            hint="`iotrial list` shows the studies of the catalogue",
        ) from error
    if len(data) > MAX_BYTES:
        raise StudyError("is larger than 1 MiB, the maximum of a study", file=str(path))
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise StudyError("is not UTF-8 text", file=str(path), line=line) from error
    study = read_study(
        text,
        str(path),
        trusted=trusted,
        read_text_file=read_text_file,
        find_file=lambda name: input_file(path.parent, name),
    )
    return replace(study, trusted=trusted or not others)


def read_study(
    text: str,
    origin: str,
    *,
    trusted: bool,
    read_text_file: Callable[[str], str] | None = None,
    find_file: Callable[[str], InputFile] | None = None,
    to_run: bool = True,
) -> Study:
    """Read the study in this text.

    ``origin`` (file or catalogue name) identifies it in errors and reports. ``read_text_file`` returns the text of a
    file that the study names, ``find_file`` the checksum of one; they raise ValueError.

    A study that is not ``to_run``, only to be looked at, takes less time: its text is not made self-contained, and its
    factors have no line.
    """
    source = Source(text, origin, read_text_file, find_file, keeps_lines=to_run)
    study = _read(source, trusted=trusted)
    if not (to_run and (source.read or source.found)):
        return study
    # The stored text must be self-contained.
    return replace(study, text=with_texts(text, source.read, source.found))


def _read(source: Source, *, trusted: bool) -> Study:
    text, origin = source.text, source.origin
    document = source.table(StudyFile, _parsed(text, origin))
    head = source.table(StudyTable, document.study, "study")
    lab = source.table(LabSpec, document.lab, "lab")
    budget = source.table(Budget, document.budget, "budget")
    factors = read_factors(source, document.factor)
    fixed = read_fixed(source, document.fixed)
    try:
        check_distinct_knobs(factors, fixed)
    except Problem as problem:
        raise source.explained(problem, ()) from None
    _check_no_programs(source, factors, fixed)
    places = read_places(source, document.place, factors, fixed)
    workloads = read_workloads(source, document.workload, factors)
    check_placeholders(source, factors, fixed, workloads)
    design = read_design(source, document.design, factors)
    responses = read_responses(source, document.response, workloads, design)
    if head.check and not any(isinstance(w.work, HasCheck) and w.work.checks() for w in workloads):
        raise source.error(
            "no workload of this study can be checked after a power cut",
            "study",
            "check",
            hint="files with fsync, inserts into a database and a command with a checker can be",
        )
    return Study(
        name=head.name,
        title=head.title or head.name,
        question=head.question,
        why=head.why,
        margin=head.margin,
        alpha=head.alpha,
        lab=lab,
        budget=budget,
        factors=factors,
        fixed=fixed,
        workloads=workloads,
        responses=responses,
        claims=read_claims(source, document.claim, factors, workloads, responses),
        text=text,
        origin=origin,
        trusted=trusted,
        design=design,
        account=head.account,
        wash_in=head.wash_in,
        check=head.check,
        cut_points=head.cut_points,
        sample_s=head.sample_s,
        places=places,
    )


def _check_no_programs(source: Source, factors: Sequence[Factor], fixed: Sequence[Setting]) -> None:
    """Reject program paths in a study: they are given by the user who runs it."""
    levels = [(f.name, s) for f in factors for level in f.levels for s in level.settings]
    for name, setting in (*levels, *(("[[fixed]]", s) for s in fixed)):
        if setting.knob == PROGRAM_KNOB:
            hint = f"remove it, and run the study with --set {PROGRAM}=PATH,PATH"
            raise source.error(f"{name}: a study cannot name programs by their path", hint=hint)


def _without_waiting(path: str, flags: int) -> int:
    """Open without blocking on a FIFO."""
    return os.open(path, flags | os.O_NONBLOCK)


def _parsed(text: str, origin: str) -> dict[str, object]:
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise StudyError("is larger than 1 MiB, the maximum of a study", file=origin)
    for number, line in enumerate(text.split("\n"), start=1):
        if len(line) > MAX_LINE:
            raise StudyError(f"a line has at most {MAX_LINE} characters", file=origin, line=number)
    if sum(line.count(".") ** 2 for line in text.split("\n")) > _MAX_DOTS_SQUARED:
        raise StudyError("has lines with too many dots", file=origin)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise StudyError("is nested too deeply", file=origin) from None
    except ValueError as error:  # TOMLDecodeError, or Python's limit on the digits of an integer
        message = str(error)
        row: int | None = None
        if match := _POSITION.search(message):
            message = f"{message[: match.start()]} (column {match[2]})"
            row = int(match[1])
        raise StudyError(f"is not TOML: {message}", file=origin, line=row) from error


# factors


def read_factors(source: Source, tables: Sequence[dict[str, Any]]) -> tuple[Factor, ...]:
    """Read all ``[[factor]]`` tables, of which at least one must be a treatment."""
    factors: list[Factor] = []
    for index, table in enumerate(tables):
        factor = _factor(source, table, ("factor", index))
        if factor.name == WORKLOAD:
            raise source.error('the name "workload" is reserved for [[workload]]', "factor", index, "name")
        if any(factor.name == other.name for other in factors):
            raise source.error(twice("factor", factor.name), "factor", index, "name")
        factors.append(factor)
    if not any(factor.role is Role.TREATMENT for factor in factors):
        raise source.error("a study needs a factor", hint="add a [[factor]] with name, knob and levels")
    return tuple(factors)


def read_fixed(source: Source, tables: Sequence[dict[str, Any]]) -> tuple[Setting, ...]:
    """Read all ``[[fixed]]`` tables."""
    wires = [source.table(SettingTable, table, "fixed", index) for index, table in enumerate(tables)]
    return tuple(Setting(entry.knob, entry.level, entry.options()) for entry in wires)


def _factor(source: Source, data: dict[str, Any], path: Path) -> Factor:
    table = source.table(FactorTable, data, *path)
    levels = tuple(
        _level(source, table, entry, (*path, "levels", index)) for index, entry in enumerate(table.levels)
    )
    labels = [level.label for level in levels]
    for index, label in enumerate(labels):
        if any(fold(label) == fold(other) for other in labels[:index]):
            raise source.error(twice(f'factor "{table.name}": level', label), *path, "levels", index)
    role = table.role
    if role is Role.TREATMENT and len(levels) < 2:
        raise source.error(f'factor "{table.name}" needs two levels to compare', *path, "levels")
    reference = labels[0]
    if table.reference is not None:
        reference = known_label(source, table.name, labels, table.reference, *path, "reference")
    default = tuple(labels)
    if table.default is not None:
        wanted = [
            known_label(source, table.name, labels, label, *path, "default", index)
            for index, label in enumerate(table.default)
        ]
        default = tuple(label for label in labels if label in wanted)
        if role is Role.TREATMENT and (reference not in default or len(default) < 2):
            message = (
                f'default of factor "{table.name}" must hold the reference "{reference}" and another level'
            )
            raise source.error(message, *path, "default")
    whole = table.plot == "whole"
    if whole and role is not Role.TREATMENT:
        raise source.error(f'factor "{table.name}" is a condition, which cannot have a plot', *path, "plot")
    return Factor(table.name, role, levels, reference, default, source.line_to_keep(*path), whole_plot=whole)


def known_label(source: Source, factor: str, labels: Iterable[str], text: str, *path: str | int) -> str:
    """Return the label of this factor that ``text`` means; otherwise raise an error that suggests the nearest."""
    labels = tuple(labels)
    label = match(text, labels)
    if label is None:
        raise source.unknown(f'level of "{factor}"', text, labels, *path)
    return label


def _level(source: Source, factor: FactorTable, entry: object, path: Path) -> Level:
    if not isinstance(entry, dict):
        try:
            value = scalar(entry)
            label = label_of(value)
        except ValueError as error:
            raise source.error(f'level of factor "{factor.name}": {error}', *path) from None
        return Level(label, (_own(source, factor, value, path),))
    table = source.table(LevelTable, entry, *path)
    if (table.value is None) == (table.set is None):
        raise source.error("a level's table has a label and either value or set", *path)
    if table.value is not None:
        return Level(table.label, (_own(source, factor, table.value, path),))
    if factor.options():
        name = factor.options()[0][0]
        message = f'"{name}" is for the factor\'s own knob, but this level sets other knobs'
        raise source.error(
            message, *path, hint=f"write set as a list: [{{ knob = ..., level = ..., {name} = ... }}]"
        )
    return Level(table.label, _bundle(source, table.set, (*path, "set")))


def _own(source: Source, factor: FactorTable, value: str, path: Path) -> Setting:
    if factor.knob is None:
        raise source.error(
            f'factor "{factor.name}" has no knob', *path, hint="or give every level a table { label, set }"
        )
    return Setting(factor.knob, value, factor.options())


def _bundle(source: Source, table: object, path: Path) -> tuple[Setting, ...]:
    """Read the settings of ``set``: a table of knobs, or (for knobs with options) a list as in ``[[fixed]]``."""
    if not isinstance(table, dict | list):
        raise source.error(f"set: expected a table of knobs or a list, found {shown(table)}", *path)
    if not 1 <= len(table) <= MAX_SETTINGS:
        raise source.error(f"set: expected 1 to {MAX_SETTINGS} entries, found {len(table)}", *path)
    settings = []
    if isinstance(table, list):
        tables = [source.table(SettingTable, entry, *path, index) for index, entry in enumerate(table)]
        settings = [Setting(entry.knob, entry.level, entry.options()) for entry in tables]
    else:
        for name, value in table.items():
            if isinstance(value, dict):
                hint = (
                    f'write the knob in quotes: "{printed(name)}.{printed(next(iter(value), "..."))}" = ...'
                )
                raise source.error(f'"{printed(name)}" is a table', *path, name, hint=hint)
            entry = source.table(SettingTable, {"knob": name, "level": value}, *path, name)
            settings.append(Setting(entry.knob, entry.level))
    if again := repeated([(setting.knob, setting.options) for setting in settings]):
        raise source.error(twice("knob", again[0]), *path)
    return tuple(settings)


# places

FILESYSTEM = "filesystem.type"
LOG = "log"


def read_places(
    source: Source, tables: Sequence[dict[str, Any]], factors: Sequence[Factor], fixed: Sequence[Setting]
) -> tuple[PlaceSpec, ...]:
    """Read all places and check that every level of ``lab.device`` is one of them.

    A place that no level names is not created.
    """
    places: list[PlaceSpec] = []
    for index, data in enumerate(tables):
        table = source.table(PlaceSpec, data, "place", index)
        if any(table.name == other.name for other in places):
            raise source.error(twice("place", table.name), "place", index, "name")
        places.append(table)
    settings = list(_settings(factors, fixed))
    _check_levels(source, places, settings)
    if any(setting.knob == LOG_KNOB for _, setting in settings):
        _check_name_of_log(source, places)
    for index, place in enumerate(places):
        _check_place(source, place, index, places, [setting for _, setting in settings])
    return tuple(places)


def _settings(factors: Sequence[Factor], fixed: Sequence[Setting]) -> Iterator[tuple[Path, Setting]]:
    """Yield every setting with the path in the file at which to report an error about it."""
    for index, factor in enumerate(factors):
        for level in factor.levels:
            for setting in level.settings:
                yield ("factor", index, "levels"), setting
    for index, setting in enumerate(fixed):
        yield ("fixed", index), setting


def _check_levels(
    source: Source, places: Sequence[PlaceSpec], settings: Sequence[tuple[Path, Setting]]
) -> None:
    runs = [place.name for place in places if place.holds is Holds.RUNS]
    for path, setting in settings:
        if setting.knob != LAB_DEVICE or setting.value in runs:
            continue
        if not runs:
            raise source.error(
                f'lab.device "{setting.value}": the study declares no place',
                *path,
                hint=f'add [[place]] with name = "{setting.value}"; its location is set by --place, not here',
            )
        raise source.unknown("place", setting.value, runs, *path)


def _check_name_of_log(source: Source, places: Sequence[PlaceSpec]) -> None:
    """Reserve the name ``log`` for the external log unless a place is declared for it."""
    if any(place.holds is Holds.LOG for place in places):
        return
    for index, place in enumerate(places):
        if place.name == LOG:
            raise source.error(
                f'"{LOG}" is the place of the file systems\' external log',
                "place",
                index,
                "name",
                hint='rename this place, or declare it for the log: holds = "log"',
            )


def _check_place(
    source: Source, place: PlaceSpec, index: int, places: Sequence[PlaceSpec], settings: Sequence[Setting]
) -> None:
    path = ("place", index)
    knobs = {setting.knob for setting in settings}
    if place.holds is Holds.RUNS and LAB_DEVICE not in knobs:
        raise source.error(
            f'no run uses place "{place.name}"',
            *path,
            "name",
            hint='name it as a level of a factor with knob = "lab.device", or set holds = "files"',
        )
    if place.holds is Holds.LOG:
        _check_log(source, place, path, places, knobs)
    elif place.filesystem is not None and place.holds is Holds.RUNS and FILESYSTEM in knobs:
        raise source.error(
            f'place "{place.name}" has its own file system, and a factor sets filesystem.type',
            *path,
            "filesystem",
        )


def _check_log(
    source: Source,
    place: PlaceSpec,
    path: Path,
    places: Sequence[PlaceSpec],
    knobs: set[str],
) -> None:
    if LOG_KNOB not in knobs:
        raise source.error(
            f'place "{place.name}" is for a log, but no file system uses one',
            *path,
            "holds",
            hint='add a factor with knob = "filesystem.log"',
        )
    if sum(other.holds is Holds.LOG for other in places) > 1:
        raise source.error(twice("holds", Holds.LOG.value), *path, "holds")
    if place.filesystem is not None:
        raise source.error(f'place "{place.name}" is a device without a file system', *path, "filesystem")
    if place.kind not in (None, "image"):
        raise source.error(f'place "{place.name}": a log must be an image', *path, "kind")


# workloads

CACHE_KNOB = "cache.state"


def read_workloads(
    source: Source, tables: Sequence[dict[str, Any]], factors: Sequence[Factor]
) -> tuple[Workload, ...]:
    """Read all ``[[workload]]`` tables, at least one of which must run by default."""
    workloads: list[Workload] = []
    for index, table in enumerate(tables):
        workload = _workload(source, table, factors, ("workload", index))
        if any(workload.name == other.name for other in workloads):
            raise source.error(twice("workload", workload.name), "workload", index, "name")
        workloads.append(workload)
    _check_stand_ins(source, workloads)
    if not any(workload.default for workload in workloads):
        hint = "add a [[workload]] with name and kind" if not workloads else "all have default = false"
        raise source.error("a study needs a workload", hint=hint)
    return tuple(workloads)


def _check_stand_ins(source: Source, workloads: Sequence[Workload]) -> None:
    names = {workload.name for workload in workloads}
    for index, workload in enumerate(workloads):
        name, path = workload.stands_for, ("workload", index, "stands_for")
        if name == workload.name:
            raise source.error("a workload cannot stand for itself", *path)
        if name is not None and name not in names:
            raise source.unknown("workload", name, names, *path)


def check_placeholders(
    source: Source, factors: Sequence[Factor], fixed: Sequence[Setting], workloads: Sequence[Workload]
) -> None:
    """Reject a placeholder that no command contains, which would have no effect, and ``{out}`` where there is no folder."""
    works = [workload.work for workload in workloads if isinstance(workload.work, HasPrograms)]
    neighbours = [word for workload in workloads if workload.neighbour for word in workload.neighbour.argv]
    places = [
        (setting, ("factor", index))
        for index, factor in enumerate(factors)
        for level in factor.levels
        for setting in level.settings
    ]
    places += [(setting, ("fixed", index)) for index, setting in enumerate(fixed)]
    for setting, place in places:
        placeholder = dict(setting.options).get("placeholder")
        if placeholder is None:
            continue
        having = [work for work in works if any(placeholder in text for text in work.texts())]
        if not having and not any(placeholder in word for word in neighbours):
            message = f'no command workload has the placeholder "{placeholder}"'
            raise source.error(message, *place, "placeholder")
        if "{out}" in setting.value and not all(work.needs_scratch() for work in having):
            message = "a level has {out}, and the workload has no output folder"
            raise source.error(message, *place, hint="set output_folder = true in the workload")


def _workload(source: Source, data: dict[str, Any], factors: Sequence[Factor], path: Path) -> Workload:
    common = {key: value for key, value in data.items() if key in keys_of(WorkloadTable)}
    table = source.table(WorkloadTable, common, *path)
    if table.kind not in kinds():
        if (past := past_kinds().get(table.kind)) is not None:
            message = f'kind "{table.kind}" is not supported any more'
            raise source.error(message, *path, "kind", hint=past.gone)
        raise source.unknown("workload kind", table.kind, kinds(), *path, "kind")
    kind = kinds()[table.kind]
    own = {key: value for key, value in data.items() if key not in common}
    for named, content in kind.text_files.items():
        own = _with_text(source, kind, own, named, content, path)
    for named, kept in kind.input_files.items():
        own = _with_input(source, own, named, kept, path)
    try:
        work = work_of(kind, own)
    except Problem as problem:
        raise source.explained(problem, path) from None
    _check_cache(source, table.cache, factors, path)
    try:
        check_neighbour(table.neighbour, table.cache)
    except Problem as problem:
        raise source.explained(problem, path) from None
    cache = table.cache
    if cache is None and not _varies_cache(factors):
        cache = work.default_cache()
    return Workload(
        name=table.name,
        kind=table.kind,
        work=work,
        cache=cache,
        only={name: _only(source, name, labels, factors, path) for name, labels in table.only.items()},
        default=table.default,
        stands_for=table.stands_for,
        neighbour=table.neighbour,
    )


def _with_text(
    source: Source, kind: type[Work], own: dict[str, Any], named: str, content: str, path: Path
) -> dict[str, Any]:
    """Return the table with the key that names a text file replaced by the file's content, included files in it."""
    if named not in own:
        return own
    if content in own:
        raise source.error(f'either "{named}" or "{content}", found both', *path, named)
    if not isinstance(own[named], str):
        raise source.error(f"{named}: expected text in quotes", *path, named)
    text = source.text_next_to_study(own[named], *path, named)
    if kind.includes:
        try:
            text = kind.whole_text(
                own[named], text, lambda name: source.text_next_to_study(name, *path, named)
            )
        except ValueError as problem:
            raise source.error(f"{own[named]} {problem}", *path, named) from None
    source.read[own[named]] = text
    return {key: value for key, value in own.items() if key != named} | {content: text}


def _with_input(
    source: Source, own: dict[str, Any], named: str, kept: tuple[str, str], path: Path
) -> dict[str, Any]:
    """Return the table with checksum and folder of the file that a key names. A stored study already has both."""
    checksum, folder = kept
    if not isinstance(own.get(named), str) or {checksum, folder} <= own.keys():
        return own
    found = source.file_next_to_study(own[named], *path, named)
    if own.get(checksum, found.checksum) != found.checksum:
        message = f"{own[named]} has the SHA-256 {found.checksum}, which is not the one stated"
        raise source.error(message, *path, checksum)
    return own | {checksum: found.checksum, folder: found.folder}


def _check_cache(source: Source, cache: str | None, factors: Sequence[Factor], path: Path) -> None:
    if cache is None:
        return
    if cache not in CACHE_STATES:
        raise source.unknown("cache state", cache, CACHE_STATES, *path, "cache")
    for factor in factors:
        if any(setting.knob == CACHE_KNOB for level in factor.levels for setting in level.settings):
            message = f'the cache state is varied by factor "{factor.name}", so a workload cannot name one'
            raise source.error(message, *path, "cache")


def _varies_cache(factors: Sequence[Factor]) -> bool:
    return any(s.knob == CACHE_KNOB for factor in factors for level in factor.levels for s in level.settings)


def _only(
    source: Source, name: str, labels: Sequence[str], factors: Sequence[Factor], path: Path
) -> tuple[str, ...]:
    place = (*path, "only", name)
    conditions = {factor.name: factor for factor in factors if factor.role is Role.CONDITION}
    if name not in conditions:
        if any(factor.name == name for factor in factors):
            message = (
                f'"{name}" is a treatment; {table_name(path)} can be restricted by condition factors only'
            )
            raise source.error(message, *place)
        raise source.unknown("condition factor", name, conditions, *place)
    if not labels:
        raise source.error(f'"{name}" has no level left', *place)
    known = [level.label for level in conditions[name].levels]
    wanted = [known_label(source, name, known, text, *place, index) for index, text in enumerate(labels)]
    return tuple(label for label in known if label in wanted)


# design

ALL = "all"


def read_design(source: Source, table: dict[str, Any], factors: Sequence[Factor]) -> Design:
    """Read the design of these factors; a full factorial by default."""
    read = source.table(DesignTable, table, "design")
    kind = read.kind
    if read.resolution is not None and kind is not DesignKind.FRACTIONAL:
        raise source.error(f'a "{kind.value}" design has a fixed resolution', "design", "resolution")
    if read.fold_over is not None and kind not in (DesignKind.FRACTIONAL, DesignKind.PLACKETT_BURMAN):
        raise source.error(f'a "{kind.value}" design cannot be folded over', "design", "fold_over")
    whole = any(factor.whole_plot for factor in factors)
    treatments = [factor for factor in factors if factor.role is Role.TREATMENT]
    if kind.one_factor and (len(treatments) != 1 or whole):
        raise source.error(
            f'a "{kind.value}" design compares the levels of one factor, found {len(treatments)}',
            "design",
            "kind",
            hint="make one factor that sets several knobs at each level, or use `iotrial best`",
        )
    if read.repeats is not None and not whole:
        raise source.error(
            "repeats need a whole-plot factor",
            "design",
            "repeats",
            hint='set plot = "whole" for the factor that is expensive to change, or use replicates of a workload',
        )
    return Design(
        kind=kind,
        resolution=DEFAULT_RESOLUTION if read.resolution is None else read.resolution,
        fold_over=bool(read.fold_over),
        interactions=_interactions(source, read.interactions, factors),
        repeats=1 if read.repeats is None else read.repeats,
    )


def _interactions(
    source: Source, texts: Sequence[str], factors: Sequence[Factor]
) -> tuple[tuple[str, str], ...]:
    """Return pairs of treatment factors, in the study's order; ``["all"]`` means every pair."""
    names = [factor.name for factor in factors if factor.role is Role.TREATMENT]
    if [text.casefold() for text in texts] == [ALL]:
        return tuple((a, b) for i, a in enumerate(names) for b in names[i + 1 :])
    pairs: list[tuple[str, str]] = []
    for index, text in enumerate(texts):
        first, colon, second = text.partition(":")
        path = ("design", "interactions", index)
        if not colon:
            raise source.error(
                f'"{text}" is not a pair of factors', *path, hint='write "one:other", or ["all"]'
            )
        found = []
        for part in (first, second):
            name = match(part, names)
            if name is None:
                raise source.unknown("treatment factor", part.strip(), names, *path)
            found.append(name)
        if found[0] == found[1]:
            raise source.error(f'"{found[0]}" cannot interact with itself', *path)
        pair = (found[0], found[1]) if names.index(found[0]) < names.index(found[1]) else (found[1], found[0])
        if pair in pairs:
            raise source.error(twice("interaction", ":".join(pair)), *path)
        pairs.append(pair)
    return tuple(pairs)


# responses

_Named = dict[str, tuple[int, ResponseTable]]


def read_responses(
    source: Source, tables: Sequence[dict[str, Any]], workloads: Sequence[Workload], design: Design
) -> tuple[Response, ...]:
    """Return the responses of every workload: the named ones first, then the rest that its kind measures.

    Primary are the named ones with ``primary = true``; if none, the first in this order with a ``primary`` that is
    not given; else the first.
    """
    entries = [source.table(ResponseTable, table, "response", index) for index, table in enumerate(tables)]
    specs = {workload.name: workload.responses() for workload in workloads}
    named: dict[str, _Named] = {workload.name: {} for workload in workloads}
    for index, entry in enumerate(entries):
        for workload in _workloads_of(source, index, entry, specs):
            if entry.name in named[workload]:
                message = twice(f'workload "{workload}": response', entry.name)
                raise source.error(message, "response", index)
            named[workload][entry.name] = (index, entry)
    if not design.kind.crossed:
        for index, entry in enumerate(entries):
            if entry.statistic != TYPICAL:
                message = f'a "{design.kind.value}" design has no two arms that differ in only one factor'
                raise source.error(message, "response", index, "statistic")
    return tuple(
        response
        for workload in workloads
        for response in _responses(source, workload.name, specs[workload.name], named[workload.name])
    )


def _with_statistic(source: Source, response: Response, index: int, entry: ResponseTable) -> Response:
    path = ("response", index, "statistic")
    if entry.cap is not None and entry.statistic != MEAN:
        raise source.error('only a response with statistic = "mean" can have a cap', "response", index, "cap")
    if entry.statistic == TYPICAL:
        return response
    if response.scale is not Scale.LOG or response.unit != "s":
        raise source.error(
            f'"{response.name}" is not a time compared by ratio, so its mean or tail cannot be compared',
            *path,
        )
    if not response.primary:
        hint = "or omit statistic: exploratory responses are compared by typical runs"
        raise source.error(f'"{response.name}" is not primary', *path, hint=f"add primary = true, {hint}")
    return replace(response, statistic=entry.statistic, cap=DEFAULT_CAP if entry.cap is None else entry.cap)


def _workloads_of(
    source: Source, index: int, entry: ResponseTable, specs: dict[str, tuple[ResponseSpec, ...]]
) -> list[str]:
    if entry.workload is not None and entry.workload not in specs:
        raise source.unknown("workload", entry.workload, specs, "response", index, "workload")
    workloads = [entry.workload] if entry.workload is not None else list(specs)
    having = [name for name in workloads if any(spec.name == entry.name for spec in nameable(specs[name]))]
    if not having:
        known = {spec.name for name in workloads for spec in nameable(specs[name])}
        raise source.unknown("response", entry.name, known, "response", index, "name")
    return having


def _responses(
    source: Source, workload: str, specs: tuple[ResponseSpec, ...], named: _Named
) -> list[Response]:
    order = [*named, *(spec.name for spec in specs if spec.name not in named)]
    primary = {name for name, (_, entry) in named.items() if entry.primary}
    if not primary:
        first = (name for name in order if name not in named or named[name][1].primary is None)
        primary = {next(first, order[0])}
    by_name = {spec.name: spec for spec in nameable(specs)}
    responses = []
    for name in order:
        spec = by_name[name]
        scale, better = spec.scale, spec.better
        if name in named:
            index, entry = named[name]
            if entry.unit is not None and entry.unit != spec.unit:
                message = f'"{name}" is measured in "{spec.unit}", not in "{entry.unit}"'
                raise source.error(message, "response", index, "unit")
            scale = entry.scale or scale
            better = entry.better or better
        response = Response(workload, name, spec.unit, scale, better, name in primary, spec.stretchable)
        if name in named:
            response = _with_statistic(source, response, *named[name])
        responses.append(response)
    return responses


# claims


def read_claims(
    source: Source,
    tables: Sequence[dict[str, Any]],
    factors: Sequence[Factor],
    workloads: Sequence[Workload],
    responses: Sequence[Response],
) -> tuple[Claim, ...]:
    """Read all ``[[claim]]`` tables. The factor may be omitted if there is only one treatment factor."""
    names = {workload.name for workload in workloads}
    claims = []
    for index, data in enumerate(tables):
        path = ("claim", index)
        table = source.table(ClaimTable, data, *path)
        factor = _factor_of_claim(source, table, factors, path)
        labels = [level.label for level in factor.levels]
        level = known_label(source, factor.name, labels, table.level, *path, "level")
        reference = factor.reference
        if table.reference is not None:
            reference = known_label(source, factor.name, labels, table.reference, *path, "reference")
        if level == reference:
            raise source.error(f'a claim compares two levels, found "{level}" twice', *path, "level")
        if table.workload is not None and table.workload not in names:
            raise source.unknown("workload", table.workload, names, *path, "workload")
        of_work = {r.name for r in responses if table.workload in (None, r.workload)}
        if table.response is not None and table.response not in of_work:
            raise source.unknown("response", table.response, of_work, *path, "response")
        if table.value is not None and (table.ratio is not None or None in (table.workload, table.response)):
            raise source.error(
                "a claim of a value needs workload and response, and cannot have a ratio", *path, "value"
            )
        if table.says is not None and (table.ratio is not None or table.value is not None):
            raise source.error("a claim of a direction cannot have a ratio or value", *path, "says")
        if table.tolerance is not None and table.value is None:
            raise source.error("only a claim of a value has a tolerance", *path, "tolerance")
        others = [one for one in factors if one is not factor]
        condition = {
            name: _condition(source, name, text, others, names, (*path, "condition", name))
            for name, text in table.condition.items()
        }
        needs = {
            name: words
            for name in table.needs.__struct_fields__
            if (words := getattr(table.needs, name)) is not None
        }
        claims.append(
            Claim(
                source=table.source,
                text=table.text,
                factor=factor.name,
                level=level,
                reference=reference,
                ratio=table.ratio,
                workload=table.workload,
                response=table.response,
                condition=condition,
                note=table.note,
                value=table.value,
                says=table.says,
                needs=needs,
                cannot=table.cannot,
                scale=table.scale,
                tolerance=table.tolerance or 0.0,
            )
        )
    return tuple(claims)


def _factor_of_claim(source: Source, table: ClaimTable, factors: Sequence[Factor], path: Path) -> Factor:
    treatments = {factor.name: factor for factor in factors if factor.role is Role.TREATMENT}
    if table.factor is None:
        if len(treatments) == 1:
            return next(iter(treatments.values()))
        hint = f"one of: {', '.join(sorted(treatments))}"
        raise source.error("a claim needs its factor if there are several", *path, hint=hint)
    if table.factor not in treatments:
        raise source.unknown("treatment factor", table.factor, treatments, *path, "factor")
    return treatments[table.factor]


def _condition(
    source: Source,
    name: str,
    text: str,
    factors: Sequence[Factor],
    workloads: set[str],
    path: Path,
) -> str:
    if name == WORKLOAD:
        if text not in workloads:
            raise source.unknown("workload", text, workloads, *path)
        return text
    known = {factor.name: factor for factor in factors}
    if name not in known:
        raise source.unknown("condition", name, [*known, WORKLOAD], *path)
    return known_label(source, name, [level.label for level in known[name].levels], text, *path)
