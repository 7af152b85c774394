"""CSV: any table of numbers, long or wide, with metadata in ``#:`` lines. See docs/auditing.md."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from iotrial.audits.importers.cells import Mark, Quantity, parse_cell
from iotrial.audits.importers.columns import Layout, Value, find_layout, split_unit
from iotrial.audits.importers.contract import (
    MAX_OBSERVATIONS,
    TABLES,
    Format,
    Imported,
    ReadOptions,
    Source,
    label,
    too_many,
)
from iotrial.audits.importers.table import MARKDOWN_RULE, Table, read_table
from iotrial.audits.model import Observation
from iotrial.errors import RequestError, UnknownName
from iotrial.units import converted

ALL = "all"
ROWS = "rows"
_MOST_NAMED = 6
_PREFIXED = re.compile(r"(.*[0-9.,])\s?([kKMG])")
_PREFIXES = {"k": "e3", "K": "e3", "M": "e6", "G": "e9"}


def recognises(text: str) -> bool:
    lines = [line for line in text.split("\n", 2000)[:2000] if line.strip() and not line.startswith("#")]
    return len(lines) > 1 and (
        any(delimiter in lines[0] for delimiter in ",;\t") or any(map(MARKDOWN_RULE.fullmatch, lines))
    )


def read(source: Source, options: ReadOptions) -> Imported:
    table = read_table(source.text, source.name, roles=bool(options.columns))
    notes = list(table.directives.get("note", ()))
    if table.columns[:3] == ("command", "mean", "stddev"):  # hyperfine --export-csv
        options = replace(options, unit=options.unit or "s")
        notes.append("hyperfine's CSV holds means; its --export-json holds the time of each run")
    table = _without_prefixes(table)
    layout = find_layout(table, options)
    if len(table.rows) * len(layout.values) > MAX_OBSERVATIONS:
        raise too_many(source.name, MAX_OBSERVATIONS, "numbers")
    unread = [*table.unread]
    unread += [
        f"{name}: {_named(zip(table.numbers, table.cells(name), strict=True), len(table.rows))}"
        for name in layout.empty
    ]
    unread += [f"{name}: {why}, not a measurement" for name, why in layout.aside.items()]
    observations = tuple(_observations(source, table, layout, options, unread))
    directives = {key: values[0] for key, values in table.directives.items()}
    notes += _repeated(table, observations)
    return Imported(
        observations,
        reference=directives.get("reference"),
        claims=table.directives.get("claim", ()),
        same=tuple(
            tuple(part.strip() for part in row.split("|")) for row in table.directives.get("same", ())
        ),
        traced=directives.get("traced"),
        title=directives.get("title"),
        study=directives.get("study"),
        notes=tuple(notes),
        unread=tuple(unread),
        group_column=layout.group or "",
        columns=",".join(layout.role(name) for name in table.columns),
    )


def _without_prefixes(table: Table) -> Table:
    """Write 35.2k as 35.2e3 in columns of counts a second, where k is a thousand."""
    counts = {i for i, name in enumerate(table.columns) if split_unit(name)[1] == "1/s"}
    rows = tuple(
        tuple(
            f"{match[1]}{_PREFIXES[match[2]]}"
            if i in counts and (match := _PREFIXED.fullmatch(cell))
            else cell
            for i, cell in enumerate(row)
        )
        for row in table.rows
    )
    return replace(table, rows=rows) if counts else table


def _repeated(table: Table, observations: Iterable[Observation]) -> Iterator[str]:
    """Name rows that may be copies: of one run, or equal to another in all cells, with numbers of four digits or more."""
    runs = Counter((one.group, one.response, one.condition, one.series, one.run) for one in observations)
    for (group, response, _, _, run), count in [(key, n) for key, n in runs.items() if n > 1][:_MOST_NAMED]:
        if run is not None:
            yield f"run {run} of {group} occurs {count} times in {response}: each counts as a separate run"
    rows = defaultdict(list)
    for number, row in zip(table.numbers, table.rows, strict=True):
        if any(sum(map(str.isdigit, cell)) > 3 and parse_cell(cell) for cell in row):
            rows[row].append(str(number))
    for numbers in [found for found in rows.values() if len(found) > 1][:_MOST_NAMED]:
        yield f"rows {' and '.join(numbers[:_MOST_NAMED])} are identical: each counts as a separate run"


def _observations(
    source: Source, table: Table, layout: Layout, options: ReadOptions, unread: list[str]
) -> Iterator[Observation]:
    """Yield the numbers of all value columns; list what is left out of a column in ``unread``."""
    at = {name: i for i, name in enumerate(table.columns)}
    wanted = set(options.responses)
    known = {value.response for value in layout.values}
    if not wanted <= known:
        missing = sorted(wanted - known)[0]
        raise UnknownName("response", missing, known, where=source.name)
    for value in layout.values:
        if wanted and value.response not in wanted:
            continue
        cells = table.cells(value.column)
        mark = layout.marks.get(value.column, Mark.POINT)
        quantities = {}
        left_out = []
        for index, cell in enumerate(cells):
            found = parse_cell(cell, mark)
            if found is not None and found.measurable:
                quantities[index] = found
            else:
                left_out.append((table.numbers[index], cell))
        if left_out:
            unread.append(f"{value.column}: {_named(left_out, len(cells))}")
        steps = _steps(quantities.values())
        for index, found in quantities.items():
            row, number = table.rows[index], table.numbers[index]
            where = f'{source.name}: column {value.column}: row {number} "{cells[index][:40]}"'
            unit, measured = _in_unit(found, value, steps, where)
            step = steps[found.unit]
            yield Observation(
                group=_group(source, layout, value, row, at),
                response=label(value.response),
                unit=unit,
                value=measured,
                condition=tuple((name, label(row[at[name]])) for name in layout.conditions if row[at[name]]),
                series=_series(source, layout, row, at),
                run=value.run if value.run is not None else _whole(row, at, layout),
                place=_place(layout, row, at, number - 1),
                step=None if step is None else converted(step, found.unit or unit, unit),
                row=number,
            )


def _in_unit(found: Quantity, value: Value, units: Collection[str], where: str) -> tuple[str, float]:
    """Return a cell's number in the column's unit, or in its own if the column has none. ``units``: all units in the cells.

    Raises RequestError if they contradict each other.
    """
    declared = label(value.unit) if value.unit else ""
    if not found.unit:
        other = next(filter(None, units), None)
        if other is not None and not declared:
            raise RequestError(
                f"{where} has no unit, but other cells have ({other})",
                hint="write the unit in each cell, or name it for the cells without one: --unit UNIT",
            )
        return declared, found.value
    if not declared:
        return label(found.unit), found.value
    measured = converted(found.value, found.unit, declared)
    if measured is None:
        raise RequestError(
            f"{where} is not a value in {declared}, the unit of its column",
            hint="put values of different kinds in separate columns",
        )
    return declared, measured


def _named(cells: Iterable[tuple[int, str]], rows: int) -> str:
    """Describe which cells of a column are left out, by their rows."""
    found = [f'row {row} "{label(cell)[:40]}"' if cell else f"row {row} empty" for row, cell in cells]
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    return (
        f"{len(found)} of {rows} cells without a measurable number ({', '.join(found[:_MOST_NAMED])}{more})"
    )


def _steps(quantities: Iterable[Quantity]) -> dict[str, float | None]:
    """Return the resolution of a column's numbers as written, by unit; None if some have exponents."""
    decimals: dict[str, list[int | None]] = defaultdict(list)
    for one in quantities:
        decimals[one.unit].append(one.decimals)
    return {
        unit: None if None in row else 10.0 ** -max(number for number in row if number is not None)
        for unit, row in decimals.items()
    }


def _group(source: Source, layout: Layout, value: Value, row: tuple[str, ...], at: dict[str, int]) -> str:
    if value.group is not None:
        return label(value.group)
    if layout.group is not None:
        return label(row[at[layout.group]])
    return source.label or ALL


def _series(source: Source, layout: Layout, row: tuple[str, ...], at: dict[str, int]) -> str:
    parts = [] if source.alone or source.label else [source.name]
    if layout.series is not None and row[at[layout.series]]:
        parts.append(label(row[at[layout.series]]))
    return " ".join(parts)


def _whole(row: tuple[str, ...], at: dict[str, int], layout: Layout) -> int | None:
    found = _number(layout, row, at, layout.run)
    return int(found) if found is not None and found == int(found) else None


def _place(layout: Layout, row: tuple[str, ...], at: dict[str, int], index: int) -> float | None:
    return float(index) if layout.order == ROWS else _number(layout, row, at, layout.order)


def _number(layout: Layout, row: tuple[str, ...], at: dict[str, int], name: str | None) -> float | None:
    if name is None:
        return None
    found = parse_cell(row[at[name]], layout.marks.get(name, Mark.POINT))
    return found.value if found is not None and found.measurable else None


FORMAT = Format("csv", "CSV", recognises, read, rank=TABLES)
