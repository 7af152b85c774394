"""Tables of facts that runs found: names in rows, treatments in columns.

A fact is a word. If all runs of a cell found the same word, the cell holds that word; otherwise it says how many runs
found which, so that nothing that varies looks like a fact. Conditions with identical tables share one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from iotrial.design.model import ArmKind
from iotrial.report.conditions import Conditions, ConditionText
from iotrial.report.evidence import arm_order, sound_runs
from iotrial.report.notation import counted
from iotrial.store.checks import FACTS, by_name
from iotrial.store.model import TrialData
from iotrial.study.model import Study
from iotrial.terminal import escape
from iotrial.workloads.past import AtimeWork

Words = tuple[str, ...]
_Found = dict[str, dict[str, Counter[str]]]  # by name and arm


@dataclass(frozen=True, slots=True)
class FactRow:
    """Names that share the same words, and the words by column."""

    names: Words
    cells: Words


@dataclass(frozen=True, slots=True)
class FactTable:
    """One table: its conditions, its columns, one row per name.

    Each cell is based on ``least`` to ``most`` runs. ``varying`` is the number of cells in which the runs did not all
    agree.
    """

    conditions: tuple[ConditionText, ...]
    columns: Words
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
        found: dict[Words, Words] = {}
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


@dataclass(frozen=True, slots=True)
class _Cells:
    """The content of a table, before the conditions that share it are known."""

    columns: Words
    rows: tuple[FactRow, ...]


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
    shared: dict[_Cells, list[str]] = {}
    for key in sorted(found, key=lambda key: conditions.of_key(key).order):
        names = _names(data.trial.header.study, conditions.of_key(key).workload, found[key])
        shared.setdefault(_cells({name: found[key][name] for name in names}, order), []).append(key)
    return tuple(
        _table(cells, [found[key] for key in keys], keys, conditions) for cells, keys in shared.items()
    )


def _names(study: Study, workload: str, found: _Found) -> list[str]:
    """Return the names in the order of the workload; without such an order, alphabetically."""
    works = [w.work for w in study.workloads if w.name == workload]
    calls = works[0].calls if works and isinstance(works[0], AtimeWork) else ()
    return sorted(found, key=lambda name: (calls.index(name) if name in calls else len(calls), name))


def _cells(found: _Found, arms: Sequence[str]) -> _Cells:
    columns = [arm for arm in arms if any(arm in by_arm for by_arm in found.values())]
    rows = (
        FactRow((escape(name),), tuple(_word(by_arm.get(arm, Counter())) for arm in columns))
        for name, by_arm in found.items()
    )
    return _Cells(tuple(escape(arm) for arm in columns), tuple(rows))


def _word(words: Counter[str]) -> str:
    if not words:
        return "–"
    if len(words) == 1:
        return escape(next(iter(words)))
    total = words.total()
    return ", ".join(f"{escape(word)} ({number} of {total})" for word, number in words.most_common())


def _table(
    cells: _Cells,
    found: Sequence[_Found],
    keys: Sequence[str],
    conditions: Conditions,
) -> FactTable:
    counters = [words for one in found for by_arm in one.values() for words in by_arm.values()]
    return FactTable(
        conditions=tuple(conditions.of_key(key) for key in keys),
        columns=cells.columns,
        rows=cells.rows,
        least=min(words.total() for words in counters),
        most=max(words.total() for words in counters),
        varying=sum(len(words) > 1 for words in counters),
    )
