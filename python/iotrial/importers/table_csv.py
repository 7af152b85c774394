"""CSV: anybody's table of numbers, long or wide, with what it says of itself in ``#:`` lines. See docs/auditing.md."""

from __future__ import annotations

from collections.abc import Iterator

from iotrial.analysis.audit.model import Observation
from iotrial.errors import RequestError
from iotrial.importers.columns import Layout, Value, cell_number, find_layout
from iotrial.importers.contract import MAX_OBSERVATIONS, Asked, Format, Imported, Source, label
from iotrial.importers.table import Table, read_table

ALL = "all"
ROWS = "rows"


def recognises(text: str) -> bool:
    lines = [line for line in text.split("\n", 2000)[:2000] if line.strip() and not line.startswith("#")]
    return len(lines) > 1 and any(delimiter in lines[0] for delimiter in ",;\t")


def read(source: Source, asked: Asked) -> Imported:
    table = read_table(source.text, source.name)
    layout = find_layout(table, asked)
    if len(table.rows) * len(layout.values) > MAX_OBSERVATIONS:
        raise RequestError(f"{source.name}: more than {MAX_OBSERVATIONS} numbers", hint="audit a part of it")
    observations = tuple(_observations(source, table, layout, asked))
    said = {key: values[0] for key, values in table.directives.items()}
    return Imported(
        observations,
        reference=said.get("reference"),
        claims=table.directives.get("claim", ()),
        same=tuple(
            tuple(part.strip() for part in row.split("|")) for row in table.directives.get("same", ())
        ),
        traced=said.get("traced"),
        title=said.get("title"),
        study=said.get("study"),
        notes=table.directives.get("note", ()),
    )


def _observations(source: Source, table: Table, layout: Layout, asked: Asked) -> Iterator[Observation]:
    at = {name: i for i, name in enumerate(table.columns)}
    wanted = set(asked.responses)
    known = {value.response for value in layout.values}
    if not wanted <= known:
        missing = sorted(wanted - known)[0]
        raise RequestError(
            f'{source.name}: no response is called "{missing}"', hint=f"known: {', '.join(known)}"
        )
    for value in layout.values:
        if wanted and value.response not in wanted:
            continue
        step = _step([row[at[value.column]] for row in table.rows])
        for index, row in enumerate(table.rows):
            measured = cell_number(row[at[value.column]])
            if measured is None:
                continue
            yield Observation(
                group=_group(source, layout, value, row, at),
                response=label(value.response),
                unit=label(value.unit) if value.unit else "",
                value=measured,
                condition=tuple((name, label(row[at[name]])) for name in layout.conditions if row[at[name]]),
                series=_series(source, layout, row, at),
                run=value.run if value.run is not None else _whole(row, at, layout.run),
                place=_place(layout, row, at, index),
                step=step,
            )


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


def _whole(row: tuple[str, ...], at: dict[str, int], name: str | None) -> int | None:
    found = cell_number(row[at[name]]) if name is not None else None
    return int(found) if found is not None and found == int(found) else None


def _place(layout: Layout, row: tuple[str, ...], at: dict[str, int], index: int) -> float | None:
    if layout.order is None:
        return None
    if layout.order == ROWS:
        return float(index)
    return cell_number(row[at[layout.order]])


def _step(cells: list[str]) -> float | None:
    """The last digit in which the numbers of a column differ by writing; None where they have exponents."""
    decimals = 0
    for cell in cells:
        words = cell.split()
        if not words or cell_number(cell) is None:
            continue
        if "e" in words[0].casefold():
            return None
        decimals = max(decimals, len(words[0].rstrip("%").partition(".")[2]))
    return 10.0**-decimals


FORMAT = Format("csv", "CSV", recognises, read, rank=90)
