"""How a running trial stands, as a frozen value: what the live view is given between blocks.

It holds complete blocks only: an unfinished one would show an arm that has run beside one that has not, and who
sees that is tempted to stop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from iotrial.analysis.model import Effect
from iotrial.legible import shown
from iotrial.report.conditions import Conditions
from iotrial.report.notation import bracketed
from iotrial.report.phrases import null_value
from iotrial.study.model import Study

GOING_ON = "going on"


@dataclass(frozen=True, slots=True)
class EffectLine:
    """One effect after its blocks so far, on its own scale; ``verdict`` is None while more blocks may change it."""

    condition: str
    factor: str
    level: str
    reference: str
    value: float | None
    low: float | None
    high: float | None
    blocks: int
    verdict: str | None = None
    null: float = 1.0
    unit: str = ""
    crossed: bool = False

    @property
    def comparison(self) -> str:
        """E.g. "mode 0444 / 0777"; of an interaction "atime × mode"."""
        if self.crossed:
            return shown(self.factor.replace(":", " × "))
        return f"{shown(self.factor)} {shown(self.level)} / {shown(self.reference)}"

    @property
    def numbers(self) -> str:
        """E.g. "0.53 [0.50, 0.56]"."""
        return bracketed(self.value, self.low, self.high, null=self.null, unit=self.unit)


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a trial stands between two blocks. ``blocks`` counts complete ones by condition, in words."""

    trial: int
    study: str
    elapsed_s: float
    budget_s: float
    blocks: Mapping[str, int] = field(default_factory=dict)
    void: int = 0
    failures: int = 0
    effects: tuple[EffectLine, ...] = ()
    activity: str = ""

    @property
    def decided(self) -> int:
        """How many effects have their verdict."""
        return sum(line.verdict is not None for line in self.effects)


def effect_lines(effects: Iterable[Effect], study: Study) -> tuple[EffectLine, ...]:
    """The primary effects as lines, in the study's order of conditions; only decided ones have a verdict."""
    conditions = Conditions(study)
    ordered = sorted(
        (effect for effect in effects if effect.primary),
        key=lambda effect: conditions.of_levels(effect.condition, effect.workload).order,
    )
    return tuple(
        EffectLine(
            condition=conditions.of_levels(effect.condition, effect.workload).text,
            factor=effect.factor,
            level=effect.level,
            reference=effect.reference,
            value=effect.value,
            low=effect.low,
            high=effect.high,
            blocks=effect.blocks,
            verdict=effect.verdict.value if effect.decided else None,
            null=null_value(effect),
            unit=effect.unit,
            crossed=effect.kind == "interaction",
        )
        for effect in ordered
    )


def blocks_in_words(blocks: Mapping[str, int], study: Study) -> dict[str, int]:
    """Counts by condition key as counts by condition text."""
    conditions = Conditions(study)
    return {conditions.of_key(key).text: count for key, count in blocks.items()}
