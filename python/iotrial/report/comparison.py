"""Several trials side by side, as one frozen value of no format: terminal, JSON, Markdown and HTML take the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from iotrial.analysis.model import Conclusion, Effect, Verdict
from iotrial.analysis.verdict import EFFECT_NOT_CONSTANT, FAILURES, NO_BLOCKS, UNUSABLE
from iotrial.legible import shown
from iotrial.report.analysed import Analysed
from iotrial.report.differing import Difference
from iotrial.report.gains import Gain
from iotrial.study.model import Better, Scale

#: what leaves an interval that says too little, or of a part of the runs only
_UNFIT = frozenset({FAILURES, UNUSABLE, EFFECT_NOT_CONSTANT, NO_BLOCKS})


class Agreement(StrEnum):
    """What the trials' intervals of one comparison say of each other."""

    DIFFERS = "differs"
    NOT_SHOWN = "no difference shown"
    OPEN = "cannot be compared"
    ALONE = "in one trial only"


@dataclass(frozen=True, slots=True)
class Column:
    """One trial: ``mark`` is "A", "B", ...; ``name`` is "trial 5", or what the caller calls it."""

    mark: str
    name: str
    trial: Analysed


@dataclass(frozen=True, slots=True)
class Cell:
    """What one trial says of one comparison. ``effect`` has ratios (scale log) or differences, at alpha / k.

    ``risk``: which of the levels puts data at risk. ``counts``: its interval may be held against others; it is of a valid
    trial, bounded, of all runs, and no mean of conditions that do not agree.
    """

    effect: Effect
    valid: bool
    gain: Gain | None
    risk: str = ""

    @property
    def counts(self) -> bool:
        effect = self.effect
        return (
            self.valid
            and effect.conclusion is not Conclusion.VARIES
            and effect.reason not in _UNFIT
            and not (effect.low is None and effect.high is None)
            and effect.blocks > 0
        )

    @property
    def verdict(self) -> Verdict | None:
        """None where the trial is invalid."""
        return self.effect.verdict if self.valid else None


@dataclass(frozen=True, slots=True)
class Apart:
    """Two trials (positions in ``Comparison.columns``) whose intervals do not overlap; ``low`` has the smaller effect.

    ``least``: by how much the effects differ at least, a factor above 1 (scale log) or a difference above 0; None where it
    has no bound (an interval that ends at a ratio of 0).
    """

    low: int
    high: int
    least: float | None


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison, the same by its labels in all trials; ``cells`` has one entry a trial, None where it has none.

    ``verdict`` is that of all valid trials which have it, where these are several and agree. ``kind`` as in ``Effect``.
    """

    kind: str
    condition: Mapping[str, str]
    workload: str
    response: str
    unit: str
    scale: Scale
    better: Better
    factor: str
    level: str
    reference: str
    cells: tuple[Cell | None, ...]
    agreement: Agreement
    apart: tuple[Apart, ...]
    verdict: Verdict | None
    opposite: bool

    @property
    def has(self) -> tuple[int, ...]:
        """The trials that have this comparison."""
        return tuple(i for i, cell in enumerate(self.cells) if cell is not None)

    @property
    def shared_words(self) -> str | None:
        """What all valid trials conclude, where several have it and their words are the same."""
        words = {cell.effect.conclusion.words for cell in self.cells if cell is not None and cell.valid}
        return words.pop() if self.verdict is not None and len(words) == 1 else None

    @property
    def shared(self) -> bool:
        """Whether more than one trial has it."""
        return len(self.has) > 1


@dataclass(frozen=True, slots=True)
class LevelRow:
    """Medians of one arm, one a trial (None: it has none). Observational: nothing was randomised between trials."""

    condition: Mapping[str, str]
    workload: str
    arm: str
    response: str
    unit: str
    medians: tuple[float | None, ...]
    runs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """All that is said of several trials together. ``alpha``: the level at which all intervals of a family hold together."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    levels: tuple[LevelRow, ...]
    differences: tuple[Difference, ...]
    alpha: float

    @property
    def constant(self) -> Mapping[str, str]:
        """The levels of conditions that all comparisons and medians have in common."""
        conditions = [row.condition for row in self.rows if row.kind != "pooled"]
        conditions += [level.condition for level in self.levels]
        if not conditions:
            return {}
        first, *others = conditions
        return {n: v for n, v in first.items() if all(other.get(n) == v for other in others)}

    @property
    def workloads(self) -> tuple[str, ...]:
        """All workloads that some comparison is of."""
        return tuple(dict.fromkeys(row.workload for row in self.rows))

    def place(self, row: Row | LevelRow) -> str:
        """The condition in words, without what all have in common: "cache cold, size 10 KiB"."""
        constant = self.constant
        parts = [f"{shown(n)} {shown(v)}" for n, v in row.condition.items() if constant.get(n) != v]
        if len(self.workloads) > 1:
            parts.insert(0, f"workload {shown(row.workload)}")
        said = ", ".join(parts) or "all conditions"
        return f"pooled over {said}" if isinstance(row, Row) and row.kind == "pooled" else said
