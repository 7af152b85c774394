"""Tables of facts that runs found: names in rows, treatments in columns.

A fact is a word. If all runs of a cell found the same word, the cell holds that word; otherwise it says how many runs
found which, so that nothing that varies looks like a fact. Conditions with identical tables share one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from iotrial.design.model import ArmKind
from iotrial.report.blocks import Block, Cell, Column, Note, Section, Table, View, Words, table
from iotrial.report.conditions import Conditions, ConditionText
from iotrial.report.evidence import arm_order, sound_runs
from iotrial.report.notation import capitalised, counted, joined
from iotrial.store.checks import FACTS, by_name
from iotrial.store.model import TrialData
from iotrial.study.model import Study
from iotrial.terminal import escape
from iotrial.workloads.past import AtimeWork

Texts = tuple[str, ...]
_LEDE = "What the kernel reported, one row per name. Conditions with identical tables share one."
#: names of a row that text lists
_MOST_NAMES = 20
_Found = dict[str, dict[str, Counter[str]]]  # by name and arm


@dataclass(frozen=True, slots=True)
class FactRow:
    """Names that share the same words, and the words by column."""

    names: Texts
    cells: Texts


@dataclass(frozen=True, slots=True)
class FactTable:
    """One table: its conditions, its columns, one row per name.

    Each cell is based on ``least`` to ``most`` runs. ``varying`` is the number of cells in which the runs did not all
    agree.
    """

    conditions: tuple[ConditionText, ...]
    columns: Texts
    rows: tuple[FactRow, ...]
    least: int
    most: int
    varying: int

    @property
    def title(self) -> str:
        """The conditions in words: "filesystem ext4, state stale; filesystem ext4, state day-old"."""
        return "; ".join(condition.text for condition in self.conditions)

    @property
    def groups(self) -> tuple[FactRow, ...]:
        """The rows with identical ones merged, in the order of their first names."""
        found: dict[Texts, Texts] = {}
        for row in self.rows:
            found[row.cells] = found.get(row.cells, ()) + row.names
        return tuple(FactRow(names, cells) for cells, names in found.items())

    @property
    def certainty(self) -> str:
        """How certain the table is: "each cell the same in all of its 12 to 14 runs"."""
        runs = f"{self.least}" if self.least == self.most else f"{self.least} to {self.most}"
        whole = f"{runs} run{'s' * (self.most != 1)}"
        if not self.varying:
            return f"each cell the same in all of its {whole}"
        return f"{counted(self.varying, 'cell')} not the same in all of its {whole}, with how many found what"


def facts_of(data: TrialData, conditions: Conditions) -> tuple[FactTable, ...]:
    """Return all tables of a trial, in the order of its conditions; empty if no run found facts."""
    found: dict[str, _Found] = {}
    arms: dict[str, Mapping[str, str]] = {}
    treatment = ArmKind.TREATMENT.value
    for run in sound_runs(data):
        if run.kind != treatment:
            continue
        arms[run.arm] = run.treatment
        if FACTS not in run.checks:
            continue
        for name, word in by_name(run.checks[FACTS]).items():
            by_arm = found.setdefault(run.condition, {}).setdefault(name, {})
            by_arm.setdefault(run.arm, Counter())[word] += 1
    order = arm_order(data.trial.header.study, arms)
    shared: dict[tuple[Texts, tuple[FactRow, ...]], list[str]] = {}
    for key in sorted(found, key=lambda key: conditions.of_key(key).order):
        names = _names(data.trial.header.study, conditions.of_key(key).workload, found[key])
        shared.setdefault(_cells({name: found[key][name] for name in names}, order), []).append(key)
    tables = []
    for (columns, rows), keys in shared.items():
        counters = [words for key in keys for by_arm in found[key].values() for words in by_arm.values()]
        tables.append(
            FactTable(
                conditions=tuple(conditions.of_key(key) for key in keys),
                columns=columns,
                rows=rows,
                least=min(words.total() for words in counters),
                most=max(words.total() for words in counters),
                varying=sum(len(words) > 1 for words in counters),
            )
        )
    return tuple(tables)


def _names(study: Study, workload: str, found: _Found) -> list[str]:
    """Return the names in the order of the workload; without such an order, alphabetically."""
    works = [w.work for w in study.workloads if w.name == workload]
    calls = works[0].calls if works and isinstance(works[0], AtimeWork) else ()
    return sorted(found, key=lambda name: (calls.index(name) if name in calls else len(calls), name))


def _cells(found: _Found, arms: Sequence[str]) -> tuple[Texts, tuple[FactRow, ...]]:
    """Return the columns and rows of one condition's table."""
    columns = [arm for arm in arms if any(arm in by_arm for by_arm in found.values())]
    rows = (
        FactRow((escape(name),), tuple(_word(by_arm.get(arm, Counter())) for arm in columns))
        for name, by_arm in found.items()
    )
    return tuple(escape(arm) for arm in columns), tuple(rows)


def _word(words: Counter[str]) -> str:
    if not words:
        return "–"
    if len(words) == 1:
        return escape(next(iter(words)))
    total = words.total()
    return ", ".join(f"{escape(word)} ({number} of {total})" for word, number in words.most_common())


def facts_section(tables: Sequence[FactTable]) -> Iterator[Section]:
    """Yield the section of all tables, if there are any.

    The page has a row per name. Text has a row for all names with the same words, and lists those names below.
    """
    if tables:
        yield Section("Facts", tuple(_blocks(tables)), id="facts", lede=_LEDE)


def _blocks(tables: Sequence[FactTable]) -> Iterator[Block]:
    for facts in tables:
        yield _differing(facts)
        yield _block(facts, facts.rows, view=View.PAGE)
    alike = dict.fromkeys(row.names for facts in tables for row in facts.groups)
    rest = {_rest(facts.groups) for facts in tables}
    if any(rest):
        yield Note("--json names the others.", view=View.FULL)
    listed: list[Texts] = []
    for names in (names for names in alike if len(names) > 1 and names not in rest):
        first, *more = names
        whole = next((one for one in listed if set(names) < set(one)), ())
        left_out = [name for name in whole if name not in names]
        text = (
            f"the {len(whole)} above without {joined(left_out)}"
            if 0 < len(left_out) < len(more)
            else ", ".join(more)
        )
        yield Note(text, f"{first} and {len(more)} more", view=View.FULL)
        listed.append(names)


def fact_tables(tables: Sequence[FactTable]) -> Iterator[Table]:
    """Yield tables with a row for all names with the same words."""
    for facts in tables:
        yield _block(facts, facts.groups, view=View.TEXT)


def _differing(facts: FactTable) -> Table:
    """Return the table of the names that differ between settings, with the others below it."""
    differing = tuple(row for row in facts.groups if len(set(row.cells)) > 1)
    same = [row for row in facts.groups if len(set(row.cells)) == 1]
    # a table of these alone stays one
    return _block(facts, differing or facts.groups, below=same if differing else (), view=View.TEXT)


def _rest(rows: Sequence[FactRow]) -> Texts:
    """Return the names of the largest row if it has so many that text does not list them; else nothing."""
    largest = max((row.names for row in rows), key=len, default=())
    return largest if len(rows) > 1 and len(largest) > _MOST_NAMES else ()


def _block(facts: FactTable, rows: Sequence[FactRow], *, below: Sequence[FactRow] = (), view: View) -> Table:
    """Build one table; a row is labelled with the first of its names."""
    made: list[tuple[Cell, ...]] = []
    rest = _rest((*rows, *below))
    for row in rows:
        cells = (Words(cell, "dim" if cell in ("no", "–") else "") for cell in row.cells)
        made.append((_label(row, rest), *cells))
    columns = [Column("", wide=True), *(Column(name, wide=True) for name in facts.columns)]
    everywhere = "; ".join(f"{_label(row, rest)} {row.cells[0]}" for row in below)
    text = f"{f'All settings: {everywhere}. ' if below else ''}{capitalised(facts.certainty)}."
    return table(columns, made, title=facts.title, note=text, view=view)


def _label(row: FactRow, rest: Texts) -> str:
    more = len(row.names) - 1
    if row.names == rest:
        return f"{more + 1} others"
    return f"{row.names[0]} and {more} more" if more else row.names[0]
