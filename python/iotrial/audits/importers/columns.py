"""Find the role of each column of a table: given by options and directives, else guessed from names and cells.

Three layouts: *long* (a group column, one or more value columns), *repeats* (a group column and the repeats
side by side: run1, run2, ...), *wide* (one value column for each treatment, as in published tables).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from iotrial.audits.importers.cells import DECIMALS, Mark, is_missing, is_unit, marks_of, parse_cell, unclear
from iotrial.audits.importers.contract import ReadOptions, label
from iotrial.audits.importers.iozone import TESTS
from iotrial.audits.importers.table import (
    CENTRES,
    EXTREMES,
    PERCENTILE,
    ROLES,
    SPREADS,
    Table,
    english,
    is_statistic,
)
from iotrial.errors import RequestError, UnknownName
from iotrial.units import converted, scale_of

#: suffixes of column names, longest first
_UNITS = (
    ("mib_per_s", "MiB/s"), ("mb_per_s", "MB/s"), ("kib_per_s", "KiB/s"), ("kb_per_s", "kB/s"), ("gb_per_s", "GB/s"),
    ("bytes_per_s", "B/s"), ("ops_per_s", "1/s"), ("per_s", "1/s"), ("mb_s", "MB/s"), ("mib_s", "MiB/s"),
    ("kib_s", "KiB/s"), ("kb_s", "kB/s"), ("iops", "1/s"), ("rps", "1/s"), ("tps", "1/s"),
    ("qps", "1/s"), ("seconds", "s"), ("percent", "%"),
    ("minutes", "min"), ("secs", "s"), ("sec", "s"), ("min", "min"), ("ms", "ms"), ("us", "us"), ("ns", "ns"),
    ("s", "s"), ("kib", "KiB"), ("mib", "MiB"), ("gib", "GiB"), ("kb", "kB"), ("mb", "MB"), ("gb", "GB"),
    ("bytes", "B"),
)  # fmt: skip
_IN_BRACKETS = re.compile(r"(.*\S)\s*[(\[]([^()\[\]]{1,20})[)\]]")
_REPEAT = re.compile(
    r"(?:run|rep|repeat|repetition|trial|sample|measurement|value|time|r|t)[-_ ]?[0-9]{1,4}", re.I
)
_GROUPS = (
    "group", "treatment", "arm", "variant", "level", "setting", "option", "configuration", "config", "command", "mode",
    "scheduler", "filesystem", "file_system", "fs", "kind", "protocol", "mount", "what", "device", "type", "name",
)  # fmt: skip
_RUNS = ("run", "rep", "repeat", "repetition", "iteration", "replicate", "trial", "n", "i")
_ORDERS = ("order", "time_order", "sequence", "timestamp", "started", "start_time", "when")
_SERIES = ("series", "session", "pair", "day", "batch")
_CONDITION_WORDS = frozenset(
    {
        "delay",
        "interval",
        "size",
        "block",
        "record",
        "file",
        "files",
        "count",
        "position",
        "threads",
        "jobs",
        "depth",
    }
    | {
        "volume",
        "length",
        "chunk",
        "partition",
        "directories",
        "concurrency",
        "clients",
        "gb",
        "machine",
        "kernel",
    }
)
_VALUE_WORDS = frozenset(
    {
        "time",
        "seconds",
        "elapsed",
        "wall",
        "real",
        "user",
        "sys",
        "system",
        "cpu",
        "rate",
        "throughput",
        "bandwidth",
        "latency",
    }
    | {"duration", "value", "result", "mean", "median", "speed", "calls", "errors", "iops", "score", "used"}
)
#: of tests that a program runs one after the other: no treatments
_TEST_WORDS = frozenset(
    {"read", "reads", "write", "writes", "rewrite", "seq", "sequential", "rand", "random", "mixed"}
    | {"seqread", "seqwrite", "randread", "randwrite"}
)
_RESPONSES = frozenset({"real", "user", "sys", "wall", "elapsed", "system", "mean", "median"})


@dataclass(frozen=True, slots=True)
class Value:
    """A column of values, its response, and its group if each column is one (wide).

    ``unit`` applies to numbers written without one; "" if unknown.
    """

    column: str
    response: str
    unit: str
    group: str | None = None
    run: int | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """The role of each column. ``order`` may be "rows": the rows are in time order. ``marks`` are decimal marks.

    ``aside`` are columns of statistics over runs, and why they are left out.
    """

    group: str | None
    values: tuple[Value, ...]
    conditions: tuple[str, ...]
    order: str | None
    run: str | None
    series: str | None
    marks: Mapping[str, Mark]
    empty: tuple[str, ...]
    aside: Mapping[str, str]

    def role(self, name: str) -> str:
        """What the column was taken for: one of ``ROLES``."""
        named = {self.group: "treatment", self.order: "order", self.run: "run", self.series: "series"}
        if any(value.column == name for value in self.values):
            return "value"
        return named.get(name, "condition" if name in self.conditions else "ignore")


def find_layout(table: Table, options: ReadOptions) -> Layout:
    """Find the roles of the columns. Raises RequestError if no column can hold values, or a decimal mark is unclear."""
    directives = {key: values[0] for key, values in table.directives.items()}
    options = _by_roles(table, options)
    ignored = set(table.directives.get("ignore", ()))
    if options.columns:
        ignored = {
            name for name, role in zip(table.columns, options.columns, strict=True) if role == "ignore"
        }
    index = [] if options.columns else [name for name in table.columns if _is_index(name, table)]
    cells = {name: table.cells(name) for name in table.columns if name not in (*ignored, *index)}
    marks = _marks(table, cells, options.decimal or directives.get("decimal"))
    empty = tuple(name for name, column in cells.items() if all(map(is_missing, column)))
    left = [name for name in cells if name not in empty]
    numeric = [name for name in left if _is_numeric(name, cells[name], marks[name])]
    group = options.group or directives.get("group")
    order = options.order or directives.get("order")
    whole = [name for name in numeric if not _has_decimals(cells[name])]
    run = options.run or directives.get("run") or _named(left, _RUNS, whole)
    series = options.series or directives.get("series") or _named(left, _SERIES, left)
    order = order or _named(left, _ORDERS, numeric)
    for name in (group, run, series, None if order == "rows" else order):
        if name is not None:
            table.column(name)
    taken = {group, order, run, series}
    wanted_values = options.values or table.directives.get("value", ())
    conditions = options.conditions or table.directives.get("condition", ())
    for name in (*wanted_values, *conditions):
        table.column(name)
    columns = list(wanted_values)
    aside: dict[str, str] = {}
    if not columns:
        free = [name for name in numeric if name not in taken | set(conditions)]
        chosen = _value_columns(free)
        runs = len(chosen) > 1 and all(_REPEAT.fullmatch(english(split_unit(name)[0])) for name in chosen)
        statistics = [name for name in free if name not in chosen and _statistic(name, free)]
        guessed = [name for name in free if name in chosen or (name in statistics and not runs)]
        aside = _statistics([name for name in left if name not in taken], guessed)
        aside |= dict.fromkeys(statistics, "a statistic of the runs") if runs else {}
        columns = [name for name in guessed if name not in aside]
        odd = next((name for name in columns if _is_odd(name, columns, numeric, cells)), None)
        if odd is not None:
            raise _unknown_role(table, odd, cells, columns)
    if not columns:
        raise _no_values(table, cells, marks)
    for name in (*columns, run, order):
        if name in cells and marks[name] is Mark.UNCLEAR:
            raise unclear(name, cells[name], table.name)
    rest = [name for name in left if name not in columns and name not in taken and name not in aside]
    if not (columns and (conditions or options.columns)):
        aside |= {
            name: "decimal numbers of unknown meaning" for name in rest if _is_unknown(name, numeric, cells)
        }
        rest = [name for name in rest if name not in aside or name == group]
    named = [name for name in rest if not all(map(is_statistic, filter(None, cells[name])))]
    group = group or _group(named, columns, conditions)
    guessed_group = None if options.group or directives.get("group") else group
    if guessed_group and english(guessed_group) not in _GROUPS and _counts(cells[guessed_group], once=True):
        raise _unknown_role(table, guessed_group, cells, columns)
    unit = options.unit or directives.get("unit")
    values = _distinct(_values(columns, group, unit, directives.get("response")))
    if not conditions and not options.columns:
        conditions = tuple(name for name in rest if name != group)
    aside |= dict.fromkeys(index, "numbers of the rows")
    return Layout(group, values, tuple(conditions), order, run, series, marks, empty, aside)


def _is_index(name: str, table: Table) -> bool:
    """Whether a column has no name and numbers the rows, from 0 or 1, as data frames are written."""
    cells = table.cells(name)
    return name == label("") and any(
        cells == tuple(str(at) for at in range(first, first + len(cells))) for first in (0, 1)
    )


def _is_odd(
    name: str, columns: Sequence[str], numeric: Sequence[str], cells: Mapping[str, Sequence[str]]
) -> bool:
    """Whether a guessed column of values may be none: it counts 1, 2, 3, or is an extreme of unknown columns."""
    if _looks_measured(name) or len(numeric) < 2:
        return False
    if _statistic(name, columns) & EXTREMES:
        others = [one for one in numeric if _is_unknown(one, numeric, cells)]
        return not all(_statistic(one, columns) or _minimum(one, numeric) for one in others)
    return _counts(cells[name]) and any(not _counts(cells[one]) for one in columns)


def _counts(cells: Sequence[str], *, once: bool = False) -> bool:
    """Whether the cells are 1, 2, 3 and so on, once or again and again."""
    levels = {int(cell) if cell.isascii() and cell.isdigit() and len(cell) < 7 else 0 for cell in cells}
    return 1 < len(levels) >= once * len(cells) and levels == set(range(1, len(levels) + 1))


def _unknown_role(
    table: Table, name: str, cells: Mapping[str, Sequence[str]], values: Sequence[str]
) -> RequestError:
    """Return an error that says which option makes the table readable."""
    roles = []
    for one in table.columns:
        text = one in cells and not any(parse_cell(cell, Mark.UNCLEAR) for cell in cells[one])
        measured = one in cells and (_has_decimals(cells[one]) or (one in values and one != name))
        role = "treatment" if text and "treatment" not in roles else "value" if measured else "condition"
        if one == name and _counts(cells[one]):
            role = "run"
        elif one == name or _words(one) & EXTREMES:
            role = "ignore"
        roles.append(role)
    return RequestError(
        f"{table.name}: it is not clear what {name} is",
        hint=f"say what each column is, such as --columns {','.join(roles)} (roles: {', '.join(ROLES)})",
    )


def _by_roles(table: Table, options: ReadOptions) -> ReadOptions:
    """The options with the names of the columns that ``--columns`` gives roles. Raises RequestError, UnknownName."""
    if not options.columns:
        return options
    if len(options.columns) != len(table.columns):
        raise RequestError(
            f"{table.name}: --columns has {len(options.columns)} roles, but the table has {len(table.columns)} columns",
            hint=f"columns: {', '.join(table.columns[:20])}",
        )
    found: dict[str, list[str]] = defaultdict(list)
    for name, role in zip(table.columns, options.columns, strict=True):
        if role not in ROLES:
            raise UnknownName("role", role, ROLES, where="--columns")
        found[role].append(name)
    for role in ("treatment", "run", "order", "series"):
        if len(found[role]) > 1:
            raise RequestError(f"--columns: expected one {role}, found {len(found[role])}")
    if not found["value"]:
        raise RequestError("--columns: expected a value, found none")
    return replace(
        options,
        group=next(iter(found["treatment"]), None),
        values=tuple(found["value"]),
        conditions=tuple(found["condition"]),
        run=next(iter(found["run"]), None),
        order=next(iter(found["order"]), None),
        series=next(iter(found["series"]), None),
    )


def _words(name: str) -> set[str]:
    return set(re.split(r"[\s_\[\](),]+|-(?=\w)", english(name))) - {""}


def _statistic(name: str, among: Collection[str]) -> set[str]:
    """The words of a column's name that say which statistic it is; "min" is one, not minutes, next to a max or a mean."""
    stem, unit = split_unit(name)
    words = _words(name) if unit == "min" and _minimum(name, among) else _words(stem)
    first = (
        {"first", "last"} if english(name).endswith(("[first]", "[last]")) else set()
    )  # of elbencho's workers
    return {word for word in words if word in EXTREMES | CENTRES | first or PERCENTILE.fullmatch(word)}


def _minimum(name: str, among: Collection[str]) -> bool:
    rest = _words(name) - {"min"}
    return any(
        rest < _words(other) and (_words(other) - rest) <= EXTREMES | CENTRES
        for other in among
        if other != name
    )


def _statistics(names: Sequence[str], values: Sequence[str]) -> dict[str, str]:
    """Columns that hold no runs, and why: spreads and ratios; extremes, where the table has a mean or a median."""
    found = {name: "a spread or a ratio" for name in names if _words(name) & SPREADS}
    if any(_statistic(name, names) & CENTRES for name in values):
        extremes = [name for name in values if _statistic(name, names) & EXTREMES]
        found |= dict.fromkeys(extremes, "an extreme of the runs")
    return found


def _marks(table: Table, cells: Mapping[str, Sequence[str]], decimal: str | None) -> dict[str, Mark]:
    if decimal is None:
        return marks_of(cells, semicolons=table.semicolons)
    if decimal not in DECIMALS:
        raise UnknownName("decimal mark", decimal[:60], DECIMALS, where=table.name)
    return dict.fromkeys(cells, DECIMALS[decimal])


def _no_values(table: Table, cells: Mapping[str, Sequence[str]], marks: Mapping[str, Mark]) -> RequestError:
    """Return an error that names the offending cell of a column of measurements, judged by its name, or all columns."""
    for name in filter(_looks_measured, cells):
        for row, cell in enumerate(cells[name], start=1):
            if parse_cell(cell, marks[name]) is None:
                return RequestError(
                    f'{table.name}: no column of numbers: in {name}, row {row} "{cell[:40]}" is not a number',
                    hint=f"--value {name} skips such cells; columns: {', '.join(table.columns[:20])}",
                )
    return RequestError(
        f"{table.name}: no column of numbers that look like measurements",
        hint=f"name it: --value COLUMN; columns: {', '.join(table.columns[:20])}",
    )


def _values(
    columns: Sequence[str], group: str | None, unit: str | None, response: str | None
) -> tuple[Value, ...]:
    parts = [
        (column, column, "") if _minimum(column, columns) else (column, *split_unit(column))
        for column in columns
    ]
    if len(columns) > 1 and _are_repeats(parts):
        name = response or _plain_response(unit or parts[0][2])
        return tuple(Value(column, name, unit or own, run=i) for i, (column, _, own) in enumerate(parts))
    if group is None and len(columns) > 1 and not _are_responses(parts):
        return _wide(parts, unit, response)
    return tuple(
        Value(column, (response if len(columns) == 1 else None) or stem or _plain_response(own), unit or own)
        for column, stem, own in parts
    )


def _are_repeats(parts: Sequence[tuple[str, str, str]]) -> bool:
    """Return whether the columns are called run1, run2, ... and their units are of one quantity."""
    return all(_REPEAT.fullmatch(english(stem)) for _, stem, _ in parts) and all(
        converted(1.0, own, parts[0][2]) is not None for _, _, own in parts
    )


def _distinct(values: Sequence[Value]) -> tuple[Value, ...]:
    """Add units to response names that would otherwise be the same: time (s) and time (ms)."""
    units = defaultdict(set)
    for value in values:
        if value.run is None:
            units[value.response].add(value.unit)
    return tuple(
        replace(value, response=f"{value.response} ({value.unit})")
        if len(units[value.response]) > 1 and value.unit
        else value
        for value in values
    )


def _wide(parts: Sequence[tuple[str, str, str]], unit: str | None, response: str | None) -> tuple[Value, ...]:
    """Read one column per treatment. Columns with one unit form one response, named by what their names share."""
    families: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for column, stem, own in parts:
        families[unit or own].append((column, stem))
    found = []
    for own, family in families.items():
        words = [stem.split("_") for _, stem in family]
        ahead = _shared(words)
        behind = _shared([row[len(ahead) :][::-1] for row in words])[::-1]
        shared = "_".join([*ahead, *behind])
        for (column, _), row in zip(family, words, strict=True):
            label = "_".join(row[len(ahead) : len(row) - len(behind)])
            found.append(
                Value(column, response or shared or _plain_response(own), own, group=label or column)
            )
    return tuple(found)


def _shared(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the words with which all rows begin, leaving each row at least one word."""
    if len(rows) < 2:
        return []
    found = []
    for words in zip(*(row[:-1] for row in rows), strict=False):
        if len(set(words)) > 1:
            break
        found.append(words[0])
    return found


def split_unit(name: str) -> tuple[str, str]:
    """Return a column's name without its unit, and the unit ("" if there is none)."""
    if (match := _IN_BRACKETS.fullmatch(name)) and is_unit(match[2].strip()):
        return match[1], match[2].strip()
    head, _, tail = name.replace("_", " ").rpartition(" ")
    if head and ("/" in tail or tail.endswith("ps")) and scale_of(tail):
        return name[: len(head)].removesuffix(" in"), tail
    folded = name.casefold().replace(" ", "_")
    for end, unit in _UNITS:
        if folded == end:
            return "", unit
        if folded.endswith("_" + end):
            return name[: -len(end) - 1].rstrip("_ ").removesuffix(" in"), unit
    return name, ""


def _value_columns(numeric: Sequence[str]) -> list[str]:
    """Return the numeric columns with names of measurements; else the last of them."""
    spread_free = [name for name in numeric if not _words(name) & SPREADS]
    repeats = [name for name in spread_free if _REPEAT.fullmatch(english(split_unit(name)[0]))]
    if len(repeats) > 1:
        return repeats
    found = [name for name in spread_free if _looks_measured(name)]
    if found:
        return found
    open_names = [name for name in spread_free if not _is_condition(name)]
    units = defaultdict(list)
    for name in open_names:
        units[split_unit(name)[1]].append(name)
    widest = max(units.values(), key=len, default=[])
    return widest if len(widest) > 1 else (open_names or list(spread_free))[-1:]


def _looks_measured(name: str) -> bool:
    stem, unit = split_unit(name)
    words = set(re.split(r"[_\s]+", english(name)))
    if _is_condition(name) or (converted(1.0, unit, "B") is not None and not words & _VALUE_WORDS):
        return False
    rate = any("/" in word and scale_of(word) for word in name.split())
    return bool(unit) or rate or bool(words & _VALUE_WORDS) or english(stem) in TESTS


def _is_condition(name: str) -> bool:
    if re.match("[0-9]", name):  # "16 jobs" is a level itself
        return False
    if english(name) in ("percentile", "quantile"):
        return True
    words = set(re.split(r"[_\s]+", english(name)))
    rate = split_unit(name)[1].endswith("/s")
    return (
        bool(words & _CONDITION_WORDS) and not rate and not words & {"calls", "errors", "rate", "throughput"}
    )


def _are_responses(parts: Sequence[tuple[str, str, str]]) -> bool:
    """Return whether the columns are different responses, rather than one response for different treatments."""
    stems = {english(stem) for _, stem, _ in parts}
    if any(_statistic(column, [one for one, _, _ in parts]) for column, _, _ in parts):
        return True
    if len(stems & set(TESTS)) > 1 or len(stems & _RESPONSES) > 1:
        return True
    if len(stems) > 1 and all(_words(stem) <= _TEST_WORDS for stem in stems):
        return True
    return len({unit for _, _, unit in parts}) == len(parts)


def _is_unknown(name: str, numeric: Collection[str], cells: Mapping[str, Sequence[str]]) -> bool:
    """Return whether a column holds decimal numbers, but its name is none of a condition: no level of anything."""
    return name in numeric and not _is_condition(name) and _has_decimals(cells[name])


def _has_decimals(cells: Sequence[str]) -> bool:
    return any(re.search("[.,][0-9]", cell) for cell in cells)


def _group(rest: Sequence[str], columns: Sequence[str], conditions: Sequence[str]) -> str | None:
    folded = {english(name): name for name in rest if name not in conditions}
    for name in _GROUPS:
        if name in folded:
            return folded[name]
    left = [name for name in folded.values() if not _is_condition(name)]
    return left[0] if len(columns) == 1 and len(left) == 1 else None


def _named(names: Sequence[str], known: Sequence[str], among: Sequence[str]) -> str | None:
    folded = {english(name): name for name in names if name in among}
    return next((folded[name] for name in known if name in folded), None)


def _is_numeric(name: str, cells: Sequence[str], mark: Mark) -> bool:
    """Return whether all non-empty cells are numbers; half of them suffice if the name suggests measurements or runs."""
    filled = [cell for cell in cells if not is_missing(cell)]
    numbers = sum(parse_cell(cell, mark) is not None for cell in filled)
    mostly = 2 * numbers >= len(filled) and (_looks_measured(name) or bool(_REPEAT.fullmatch(english(name))))
    return bool(filled) and (numbers == len(filled) or mostly)


def _plain_response(unit: str) -> str:
    if unit in ("s", "ms", "us", "ns", "min", "h"):
        return "time"
    return "rate" if unit.endswith("/s") else "value"
