"""Import other programs' results as plain observations: one module per format, autodetected by its ``FORMAT``.

External text is untrusted until it is an ``Observation``: sizes are capped, numbers are finite, nothing is
evaluated, and errors say where the input cannot be read.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from iotrial.audits.claims import parse_claim
from iotrial.audits.importers.contract import (
    MAX_OBSERVATIONS,
    TABLES,
    Format,
    Imported,
    ReadOptions,
    Source,
    no_result,
    too_many,
    with_stems,
)
from iotrial.audits.importers.printed import OWN_TABLE, others, refusal
from iotrial.audits.model import Dataset, Observation
from iotrial.errors import RequestError, UnknownName
from iotrial.units import converted

_MOST_UNREAD = 50


def formats() -> Mapping[str, Format]:
    """Return all formats by name, in the order in which they are tried (CSV, which accepts nearly anything, last)."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        form = getattr(importlib.import_module(f"{__name__}.{module.name}"), "FORMAT", None)
        if form is not None:
            found[form.name] = form
    return dict(sorted(found.items(), key=lambda pair: (pair[1].rank, pair[0])))


def detect(source: Source) -> Format:
    """Return the first format that recognises the text. Raises RequestError if none does, or if it is known to be no runs."""
    if not source.text.strip():
        raise no_result(source, "any program: it is empty")
    for form in formats().values():
        if form.rank >= TABLES and (known := refusal(source.text)) is not None:
            raise RequestError(f"{source.name} is {known[0]}, which is not read", hint=known[1])
        if form.recognises(source.text):
            return form
    raise RequestError(
        f"{source.name}: unknown format",
        hint=f"{OWN_TABLE}; or name the format with --format: {', '.join(formats())}",
    )


def read(sources: Sequence[Source], options: ReadOptions, *, form: str | None = None) -> Dataset:
    """Read all files into one dataset."""
    if form is not None and form not in formats():
        raise UnknownName("format", form, formats())
    imported = []
    stemmed = with_stems(sources)
    for source in stemmed:
        chosen = formats()[form] if form is not None else detect(source)
        imported.append((chosen, _noted(source, chosen, chosen.read(source, options))))
    imported = _settled(imported, options, {source.stem for source in stemmed if source.label is None})
    return _merged(sources, imported, options)


def _noted(source: Source, form: Format, part: Imported) -> Imported:
    """Add results of other programs, and that the text ends without a line end, as one that was cut off does."""
    if form.name not in ("printed", "csv") and (also := others(source.text)):
        part = replace(
            part, unread=(*part.unread, f"{source.name}: what {also} printed (it is read as {form.title})")
        )
    if source.text.endswith("\n") or source.text.lstrip().startswith(("{", "<")):
        return part
    return replace(
        part, notes=(*part.notes, f"{source.name} ends within a line: its last number may be cut off")
    )


def _runs_of(sources: Sequence[Source]) -> Iterator[str]:
    """Name files that are read as runs of one group by their names."""
    groups: dict[str, list[str]] = {}
    for source in with_stems(sources):
        if source.label is None:
            groups.setdefault(source.stem, []).append(source.name)
    for stem, names in groups.items():
        if len(names) > 1:
            shown = ", ".join(names[:3]) + " ..." * (len(names) > 3)
            yield f"{shown} are read as runs of {stem}; LABEL=FILE names other groups"


def _copies(sources: Sequence[Source]) -> Iterator[str]:
    """Name files that have the same text as an earlier one."""
    seen: dict[str, str] = {}
    for source in sources:
        if (first := seen.setdefault(source.text, source.name)) != source.name:
            yield f"{source.name} has the same content as {first}"


def _settled(
    imported: Sequence[tuple[Format, Imported]], options: ReadOptions, unlabelled: Collection[str]
) -> list[tuple[Format, Imported]]:
    """The files of a format that needs all of them to tell groups from conditions become one."""
    kept = [(form, part) for form, part in imported if form.settle is None]
    for form in dict.fromkeys(form for form, _ in imported if form.settle is not None):
        parts = [part for own, part in imported if own is form]
        assert form.settle is not None
        observations, notes = form.settle(
            [one for part in parts for one in part.observations], options, unlabelled
        )
        unread = tuple(line for part in parts for line in part.unread)
        kept.append((form, Imported(observations, notes=notes, unread=unread)))
    return kept


def _merged(
    sources: Sequence[Source], imported: Sequence[tuple[Format, Imported]], options: ReadOptions
) -> Dataset:
    parts = [one for _, one in imported]
    grouped = any(form.rank < TABLES and form.name != "hyperfine" for form, _ in imported)
    on_files = [*_runs_of(sources)] * grouped + [*_copies(sources)]
    observations = _one_unit_each(tuple(_in_file_order(parts)))
    if len(observations) > MAX_OBSERVATIONS:
        raise too_many(f"{len(sources)} files", MAX_OBSERVATIONS, "numbers")
    if not observations:
        raise no_result(sources[0], "any program")
    claims = [*options.claims, *(claim for part in parts for claim in part.claims)]
    return Dataset(
        name=", ".join(source.name for source in sources[:4]) + (" ..." if len(sources) > 4 else ""),
        form=", ".join(dict.fromkeys(form.title for form, _ in imported)),
        observations=observations,
        reference=options.reference or _first(part.reference for part in parts),
        claims=tuple(parse_claim(claim) for claim in dict.fromkeys(claims)),
        same=tuple(row for part in parts for row in part.same),
        traced=_first(part.traced for part in parts),
        title=_first(part.title for part in parts) or "",
        study=_first(part.study for part in parts),
        notes=tuple(dict.fromkeys([*on_files, *(note for part in parts for note in part.notes)])),
        unread=_counted(tuple(dict.fromkeys(note for part in parts for note in part.unread))),
        group_column=_first(part.group_column for part in parts) or "",
        columns=_first(part.columns for part in parts) or "",
    )


def _counted(unread: tuple[str, ...]) -> tuple[str, ...]:
    more = len(unread) - _MOST_UNREAD
    return unread if more <= 0 else (*unread[:_MOST_UNREAD], f"{more} more places like these")


def _in_file_order(parts: Sequence[Imported]) -> Iterator[Observation]:
    """Number the runs of a group on from file to file, so that sorting by run does not mix the files."""
    last: dict[tuple[object, ...], int] = {}
    for part in parts:
        ahead = dict(last)
        for one in part.observations:
            key = (one.group, one.response, one.unit, one.condition, one.series)
            if one.run is not None:
                one = replace(one, run=one.run + ahead.get(key, -1) + 1)
                last[key] = max(last.get(key, 0), one.run or 0)
            yield one


def _one_unit_each(observations: tuple[Observation, ...]) -> tuple[Observation, ...]:
    """Give every response one unit: convert to the first if possible, else add the unit to the response's name."""
    units: dict[str, list[str]] = {}
    for one in observations:
        known = units.setdefault(one.response, [one.unit])
        if one.unit not in known and all(converted(1.0, one.unit, unit) is None for unit in known):
            known.append(one.unit)
    if all(one.unit == units[one.response][0] for one in observations):
        return observations
    return tuple(_in_unit_of(one, units[one.response]) for one in observations)


def _in_unit_of(one: Observation, units: Sequence[str]) -> Observation:
    for unit in units:
        value = converted(one.value, one.unit, unit)
        if value is not None:
            break
    else:
        raise AssertionError(one.unit)
    step = None if one.step is None else converted(one.step, one.unit, unit)
    name = f"{one.response} ({unit})" if len(units) > 1 and unit else one.response
    return replace(one, response=name, unit=unit, value=value, step=step)


def _first(values: Iterable[str | None]) -> str | None:
    return next((value for value in values if value), None)
