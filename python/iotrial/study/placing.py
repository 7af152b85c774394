"""The ``[[place]]`` tables of a study file, held against the factors that name them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from iotrial.study import wire
from iotrial.study.model import Factor, Holds, PlaceSpec, Setting
from iotrial.study.places import LAB_DEVICE, LOG_KNOB
from iotrial.study.source import Source

FILESYSTEM = "filesystem.type"
LOG = "log"


def read_places(
    source: Source, tables: Sequence[dict[str, Any]], factors: Sequence[Factor], fixed: Sequence[Setting]
) -> tuple[PlaceSpec, ...]:
    """All places; every level of ``lab.device`` is one of them. One that no level names is not made."""
    places: list[PlaceSpec] = []
    for index, data in enumerate(tables):
        table = source.table(wire.PlaceTable, data, "place", index)
        if any(table.name == other.name for other in places):
            raise source.error(f'two places are called "{table.name}"', "place", index, "name")
        places.append(
            PlaceSpec(
                table.name,
                table.text,
                Holds(table.holds),
                table.kind,
                table.size,
                table.filesystem,
                table.disk,
            )
        )
    settings = list(_settings(factors, fixed))
    _check_levels(source, places, settings)
    if any(setting.knob == LOG_KNOB for _, setting in settings):
        _check_name_of_log(source, places)
    for index, place in enumerate(places):
        _check_place(source, place, index, places, [setting for _, setting in settings])
    return tuple(places)


def _settings(
    factors: Sequence[Factor], fixed: Sequence[Setting]
) -> Iterator[tuple[tuple[str | int, ...], Setting]]:
    """Every setting with the place in the file where an error about it is shown."""
    for index, factor in enumerate(factors):
        for level in factor.levels:
            for setting in level.settings:
                yield ("factor", index, "levels"), setting
    for index, setting in enumerate(fixed):
        yield ("fixed", index), setting


def _check_levels(
    source: Source, places: Sequence[PlaceSpec], settings: Sequence[tuple[tuple[str | int, ...], Setting]]
) -> None:
    runs = [place.name for place in places if place.holds is Holds.RUNS]
    for path, setting in settings:
        if setting.knob != LAB_DEVICE or setting.value in runs:
            continue
        if not runs:
            raise source.error(
                f'lab.device "{setting.value}": the study declares no place',
                *path,
                hint=f'add [[place]] with name = "{setting.value}"; where it lies is said by --place, not here',
            )
        raise source.unknown("place", setting.value, runs, *path)


def _check_name_of_log(source: Source, places: Sequence[PlaceSpec]) -> None:
    """Unless a place is declared for it, the log's is called ``log``, and no other may be."""
    if any(place.holds is Holds.LOG for place in places):
        return
    for index, place in enumerate(places):
        if place.name == LOG:
            raise source.error(
                f'"{LOG}" is the place of the file systems\' external log',
                "place",
                index,
                "name",
                hint='give this place another name, or declare one for the log: holds = "log"',
            )


def _check_place(
    source: Source, place: PlaceSpec, index: int, places: Sequence[PlaceSpec], settings: Sequence[Setting]
) -> None:
    path = ("place", index)
    knobs = {setting.knob for setting in settings}
    if place.holds is Holds.RUNS and LAB_DEVICE not in knobs:
        raise source.error(
            f'no run happens at place "{place.name}"',
            *path,
            "name",
            hint='name it as a level of a factor with knob = "lab.device", or say holds = "files"',
        )
    if place.holds is Holds.LOG:
        _check_log(source, place, path, places, knobs)
    elif place.filesystem is not None and place.holds is Holds.RUNS and FILESYSTEM in knobs:
        raise source.error(
            f'place "{place.name}" has a file system of its own, and a factor sets filesystem.type',
            *path,
            "filesystem",
            hint="one of the two says which file system is made",
        )


def _check_log(
    source: Source,
    place: PlaceSpec,
    path: tuple[str | int, ...],
    places: Sequence[PlaceSpec],
    knobs: set[str],
) -> None:
    if LOG_KNOB not in knobs:
        raise source.error(
            f'place "{place.name}" is for a log, and no file system is given one',
            *path,
            "holds",
            hint='add a factor with knob = "filesystem.log"',
        )
    if sum(other.holds is Holds.LOG for other in places) > 1:
        raise source.error('two places have holds = "log"', *path, "holds")
    if place.filesystem is not None:
        raise source.error(
            f'place "{place.name}" is a bare device, without a file system', *path, "filesystem"
        )
    if place.kind not in (None, "image"):
        raise source.error(f'place "{place.name}": a log lies on an image', *path, "kind")
