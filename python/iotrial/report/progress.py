"""How a running trial stands, as a frozen value: what the live view is given between blocks.

It holds complete blocks only: an unfinished one would show an arm that has run beside one that has not, and who
sees that is tempted to stop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from iotrial.analysis.model import Conclusion, Effect
from iotrial.legible import shown
from iotrial.report.conditions import Conditions
from iotrial.report.notation import bracketed
from iotrial.report.phrases import null_value
from iotrial.report.safety import risk_of, risks_of
from iotrial.study.model import Study

GOING_ON = "going on"


@dataclass(frozen=True, slots=True)
class EffectLine:
    """One effect after its blocks so far, on its own scale; ``verdict`` and ``conclusion`` are None while more blocks
    may change them.

    ``before_low`` and ``before_high`` are the interval that it had at ``before_blocks``, about half as many blocks (0: it
    has not been looked at so early, or had no interval): how far it has narrowed since. ``response`` is empty where a
    trial judges one only. ``risk``: the level that puts data at risk, in words, of a decided effect (``safety.risk_of``).
    """

    condition: str
    factor: str
    level: str
    reference: str
    value: float | None
    low: float | None
    high: float | None
    blocks: int
    verdict: str | None = None
    conclusion: Conclusion | None = None
    null: float = 1.0
    unit: str = ""
    crossed: bool = False
    before_low: float | None = None
    before_high: float | None = None
    before_blocks: int = 0
    response: str = ""
    risk: str = ""

    @property
    def comparison(self) -> str:
        """E.g. "mode 0444 / 0777"; of an interaction "atime × mode"; with the response where a trial judges several."""
        behind = f", {shown(self.response)}" if self.response else ""
        if self.crossed:
            return shown(self.factor.replace(":", " × ")) + behind
        return f"{shown(self.factor)} {shown(self.level)} / {shown(self.reference)}{behind}"

    @property
    def word(self) -> str:
        """What a table says of it, e.g. "probably slower"."""
        return GOING_ON if self.conclusion is None else self.conclusion.words

    @property
    def numbers(self) -> str:
        """E.g. "0.53 [0.50, 0.56]"."""
        return bracketed(self.value, self.low, self.high, null=self.null, unit=self.unit)


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a trial stands between two blocks. ``blocks`` counts complete ones by condition, in words.

    ``margin`` is the smallest relative effect that matters (.03 is 3 %). ``conditions_decided`` of ``conditions`` take no
    more blocks. ``upcoming`` says what is measured next, in words; ``outlook_s`` is in how many seconds all is decided if
    nothing makes a difference (None: not known).
    """

    trial: int
    study: str
    elapsed_s: float
    budget_s: float
    blocks: Mapping[str, int] = field(default_factory=dict)
    void: int = 0
    failures: int = 0
    effects: tuple[EffectLine, ...] = ()
    activity: str = ""
    margin: float = 0.0
    conditions: int = 0
    conditions_decided: int = 0
    upcoming: str = ""
    outlook_s: float | None = None

    @property
    def left_s(self) -> float:
        """Seconds of the budget that are left."""
        return max(0.0, self.budget_s - self.elapsed_s)

    @property
    def decided(self) -> int:
        """How many effects have their verdict."""
        return sum(line.verdict is not None for line in self.effects)


def effect_lines(effects: Iterable[Effect], study: Study) -> tuple[EffectLine, ...]:
    """The primary effects as lines, in the study's order of conditions; only decided ones have a verdict."""
    conditions, risks = Conditions(study), risks_of(study)
    several = len({r.name for r in study.responses if r.primary}) > 1
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
            conclusion=effect.conclusion if effect.decided else None,
            null=null_value(effect),
            unit=effect.unit,
            crossed=effect.kind == "interaction",
            response=effect.response if several else "",
            risk=risk_of(effect, risks) if effect.decided else "",
        )
        for effect in ordered
    )


def blocks_in_words(blocks: Mapping[str, int], study: Study) -> dict[str, int]:
    """Counts by condition key as counts by condition text."""
    conditions = Conditions(study)
    return {conditions.of_key(key).text: count for key, count in blocks.items()}
