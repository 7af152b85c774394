"""A text table: comments, directives, a header and rows, as CSV in any of its usual dialects or as Markdown.

Lines that begin with ``#`` before or between the rows are comments. ``#: key = value`` is a directive with
metadata of the table (unit, reference, claims). The keys are in docs/auditing.md.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from iotrial.audits.importers.cells import Mark, is_missing, parse_cell
from iotrial.audits.importers.contract import MAX_COLUMNS, MAX_ROWS, label, too_many
from iotrial.errors import RequestError, UnknownName

KEYS = (
    "title", "group", "value", "response", "unit", "condition", "order", "run", "series", "ignore", "reference",
    "claim", "same", "traced", "study", "note", "decimal",
)  # fmt: skip
MANY = frozenset({"claim", "same", "note", "condition", "value", "ignore"})
#: what a column can be
ROLES = ("treatment", "condition", "value", "run", "order", "series", "ignore")
#: words for statistics, in names of columns and as labels of rows: what no run has
SPREADS = frozenset(
    {"stddev", "sd", "std", "stdev", "stderr", "se", "cv", "ci", "mad", "iqr", "variance", "deviation"}
    | {"±", "σ", "+/-", "relative", "ratio", "speedup", "range", "q1", "q3", "lower", "upper"}
)
EXTREMES = frozenset({"min", "max", "minimum", "maximum", "lowest", "highest", "best", "worst"})
CENTRES = frozenset({"mean", "avg", "average", "median", "geomean"})
PERCENTILE = re.compile(r"(?:p|perc|percentile)_?[0-9]{1,3}(?:[._][0-9]+)?|[0-9]{1,2}(?:\.[0-9]+)?(?:th|%)")
#: as the label of a row: not 10% or p1, which may be levels
_RANK = re.compile(r"p[0-9]{2,3}(?:\.[0-9]+)?|[0-9]{1,2}(?:\.[0-9]+)?th")
#: the line of dashes below the header of a table in Markdown or Org
MARKDOWN_RULE = re.compile(r"\s*\|?\s*:?-+:?\s*(?:[|+]\s*:?-+:?\s*)+\|?\s*|\s*\|\s*:?-+:?\s*\|\s*")
_LONGEST_LINE = 100_000
#: German words of headers and labels
_GERMAN = {
    "abweichung": "deviation", "anzahl": "count", "art": "kind", "bandbreite": "bandwidth", "befehl": "command",
    "blockgröße": "block size", "dateien": "files", "dateigröße": "file size", "dateisystem": "filesystem",
    "dauer": "duration", "durchlauf": "run", "durchsatz": "throughput", "durchschnitt": "average", "einstellung": "setting",
    "faden": "threads", "fäden": "threads", "gerät": "device", "geschwindigkeit": "speed", "gesamt": "total",
    "größe": "size", "gruppe": "group", "höchstwert": "maximum", "kleinster": "minimum", "größter": "maximum",
    "konfiguration": "configuration", "kleinstwert": "minimum", "latenz": "latency", "lauf": "run", "laufzeit": "time",
    "lesen": "read", "messung": "measurement", "messwert": "value", "mittel": "mean", "mittelwert": "mean",
    "modus": "mode", "platte": "device", "protokoll": "protocol", "reihenfolge": "order", "rechner": "machine",
    "schreiben": "write", "sekunden": "seconds", "sitzung": "session", "standardabweichung": "stddev", "stufe": "level",
    "summe": "sum", "tiefe": "depth", "variante": "variant", "verhältnis": "ratio", "versuch": "trial",
    "verzögerung": "latency", "warteschlangentiefe": "depth", "wert": "value", "wiederholung": "repeat", "zeit": "time",
    "zeitstempel": "timestamp", "zeitplaner": "scheduler",
}  # fmt: skip
_MOST_DIRECTIVES = 400


@dataclass(frozen=True, slots=True)
class Table:
    """Column names, rows with that many cells, and the directives by key.

    ``numbers`` are the rows' places in the file, from 1 below the header; ``unread`` describes rows that were left out.
    """

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    directives: Mapping[str, tuple[str, ...]]
    numbers: tuple[int, ...]
    unread: tuple[str, ...] = ()
    semicolons: bool = False

    def column(self, name: str) -> int:
        """Return the index of a column. Raises UnknownName."""
        if name not in self.columns:
            raise UnknownName("column", name, self.columns, where=self.name)
        return self.columns.index(name)

    def cells(self, name: str) -> tuple[str, ...]:
        at = self.column(name)
        return tuple(row[at] for row in self.rows)


def read_table(text: str, name: str, *, roles: bool = False) -> Table:
    """Parse a table, CSV or Markdown. ``roles``: the user says what each column is, so a header may be missing.

    Raises RequestError for a missing header, a row longer than the header, or an exceeded limit.
    """
    directives: dict[str, list[str]] = {}
    body: list[str] = []
    parted = set()  # lines of the body below an empty one
    for at, line in enumerate(text.split("\n"), start=1):
        if len(line) > _LONGEST_LINE:
            raise too_many(f"{name}:{at}", _LONGEST_LINE, "characters")
        if line.startswith("#:"):
            _directive(directives, line[2:], f"{name}:{at}")
        elif line.strip() and not line.startswith("#"):
            body.append(line)
        elif not line.strip() and body:
            parted.add(len(body))
        if len(body) > MAX_ROWS:
            raise too_many(name, MAX_ROWS, "rows")
    if body and re.fullmatch(
        r"sep=[,;\t]", body[0].strip(" ")
    ):  # written by spreadsheets; the header shows the delimiter anyway
        del body[0]
        parted = {at - 1 for at in parted}
    rows, others, outside = _first_markdown(body)
    if len(body if rows is None else rows) < 2:
        raise RequestError(f"{name}: not a table: expected a line of column names, then rows")
    unread = []
    if rows is None:
        rows = _split(body, name)
        if len(rows) < len(body):
            unread.append(f"{name}: {len(body) - len(rows)} line ends (is a quotation mark missing?)")
    unread += [f"{name}: {others} more Markdown table{'s' * (others > 1)} below the first"] if others else []
    unread += [f"{name}: {outside} line{'s' * (outside > 1)} with cells outside the table"] if outside else []
    if not roles and _is_data(rows[0], rows[1:]):
        first = ",".join(rows[0])[:60]
        raise RequestError(
            f'{name}: the first line ("{first}") holds numbers, so it is no line of column names',
            hint=f"add such a line, or say what each column is: --columns ROLE,ROLE... of {', '.join(ROLES)}",
        )
    if roles and _is_data(rows[0], rows[1:]):
        rows = [[f"column {at}" for at in range(1, len(rows[0]) + 1)], *rows]
    columns = tuple(_distinct([label(cell) for cell in rows[0]]))
    if len(columns) > MAX_COLUMNS:
        raise too_many(name, MAX_COLUMNS, "columns")
    kept, short = [], []
    for at, row in enumerate(rows[1:], start=1):
        if len(row) > len(columns) and any(cell.strip() for cell in row[len(columns) :]):
            raise RequestError(
                f"{name}: row {at} has {len(row)} cells, the header {len(columns)}",
                hint="are commas decimal marks? Then separate the columns by semicolons. Not CSV? Then name its --format",
            )
        cells = [cell.strip() for cell in row[: len(columns)]]
        texts = all(cell and not parse_cell(cell, Mark.UNCLEAR) for cell in cells)
        if (
            texts
            and len(rows) == len(body)
            and (at in parted or cells[0] == rows[0][0].strip())
            and cells != rows[0]
        ):
            raise RequestError(
                f"{name}: row {at} ({label(','.join(cells))[:60]}) begins a second table",
                hint="give each table a file of its own",
            )
        if len(cells) < len(columns):
            short.append(at)
        kept.append(tuple(cells + [""] * (len(columns) - len(cells))))
    unread += [f"{name}: {_rows_named(short)} with fewer cells than the header"] if short else []
    summaries = _summaries(columns, kept)
    unread += [
        f"{name}: row {at} ({label(word)[:40]}), a statistic of other rows" for at, word in summaries.items()
    ]
    numbers = tuple(at for at in range(1, len(kept) + 1) if at not in summaries)
    return Table(
        name,
        columns,
        tuple(kept[at - 1] for at in numbers),
        {key: tuple(values) for key, values in directives.items()},
        numbers,
        tuple(unread),
        semicolons=";" in body[0],
    )


def english(text: str) -> str:
    """Return a name or a label in lower case, with words in German by their English ones."""
    return re.sub(r"[^\W\d_]+", lambda found: _GERMAN.get(found[0], found[0]), text.casefold())


def is_statistic(cell: str) -> bool:
    """Return whether a cell says which statistic its row holds: mean, stddev, max, p99."""
    word = english(cell).strip(" .:")
    return word in SPREADS | CENTRES | EXTREMES | {"total", "sum"} or bool(_RANK.fullmatch(word))


def _summaries(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[int, str]:
    """The rows that hold a statistic of the others (a mean below the runs) or a spread, by number, and the word for it."""
    found: dict[int, str] = {}
    for at in range(len(columns)):
        words = {number: english(row[at]).strip(" .:") for number, row in enumerate(rows, start=1) if row[at]}
        mixed = not all(map(is_statistic, words.values()))
        centred = not CENTRES.isdisjoint(words.values())
        for number, word in words.items():
            spread = word in SPREADS and not word.isdigit()
            if (
                (spread and centred)
                or (mixed and word in CENTRES | {"total", "sum"})
                or (centred and word in EXTREMES)
            ):
                found[number] = word
    return found


def _rows_named(numbers: Sequence[int]) -> str:
    more = f" and {len(numbers) - 6} more" if len(numbers) > 6 else ""
    return f"row{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers[:6]))}{more}"


def _first_markdown(body: Sequence[str]) -> tuple[list[list[str]] | None, int, int]:
    """The rows of the first table in Markdown without the line of dashes (None: there is none).

    Also how many tables follow it, and how many lines of cells are in none.
    """
    heads = [at for at, line in enumerate(body[1:]) if MARKDOWN_RULE.fullmatch(line) and "|" in body[at]]
    if not heads:
        return None, 0, 0
    rows, end = [], heads[1] if len(heads) > 1 else len(body)
    for at, line in enumerate(body[heads[0] : end], heads[0]):
        if "|" not in line and not MARKDOWN_RULE.fullmatch(line):
            end = at
            break
        cells = [
            cell.strip().strip("`*=").replace("\\|", "|")
            for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))
        ]
        if not all(re.fullmatch(r":?-[-+]*:?", cell) for cell in cells):
            rows.append(cells)
    around = (*body[: heads[0]], *body[end : heads[1] if len(heads) > 1 else None])
    return rows, len(heads) - 1, sum(line.count("|") > 1 for line in around)


def _is_data(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first line holds measurements: numbers where the rows have some, other than rising levels (1, 2, 4)."""
    numbers = []
    for at, cell in enumerate(first):
        column = [row[at] for row in rows if at < len(row) and not is_missing(row[at].strip())]
        if parse_cell(cell, Mark.UNCLEAR) and column and all(parse_cell(one, Mark.UNCLEAR) for one in column):
            numbers.append(cell.strip())
    levels = [int(cell) for cell in numbers if cell.isascii() and cell.isdigit() and len(cell) < 10]
    rising = len(levels) == len(numbers) > 1 and levels == sorted(set(levels))
    return bool(numbers) and not rising


def _directive(found: dict[str, list[str]], text: str, where: str) -> None:
    key, equals, value = text.partition("=")
    key, value = key.strip(), " ".join(value.split())
    if not equals or not value:
        raise RequestError(f"{where}: expected #: key = value", hint=f"keys: {', '.join(KEYS)}")
    if key not in KEYS:
        raise UnknownName("directive", key[:60], KEYS, where=where)
    row = found.setdefault(key, [])
    if row and key not in MANY:
        raise RequestError(f"{where}: {key} occurs twice")
    if sum(map(len, found.values())) >= _MOST_DIRECTIVES:
        raise too_many(where, _MOST_DIRECTIVES, "directives")
    row.append(value[:4000])


def _split(body: Sequence[str], name: str) -> list[list[str]]:
    # a header such as "setup;time, warm (s)" has as many commas as semicolons
    delimiter = max(";\t,", key=body[0].count)
    if not body[0].count(delimiter):
        raise RequestError(
            f"{name}: not a table: its first line has only one column",
            hint="separate columns by commas, semicolons or tabs",
        )
    try:
        return list(csv.reader((f"{line}\n" for line in body), delimiter=delimiter, skipinitialspace=True))
    except csv.Error as error:
        raise RequestError(f"{name}: not CSV: {error}") from None


def _distinct(names: Sequence[str]) -> list[str]:
    """Number repeated names."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found
