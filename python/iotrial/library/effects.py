"""Effects and controls of a trial as values: the content of a report's tables, with the underlying numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from iotrial.library.display import Card, Displayed, html
from iotrial.library.table import Column, Table, copied, fields
from iotrial.report.interval_charts import forest
from iotrial.report.phrases import interval, spoken
from iotrial.report.rows import Described, EffectRow
from iotrial.stats import model
from iotrial.stats.model import Conclusion, Verdict
from iotrial.study.model import Scale

#: maximum rows of a forest plot in a notebook
MOST_DRAWN = 24
# Colour roles in the report's figures, renamed so that they work without the report's style sheet.
_VARIABLE = re.compile(r"var\(--([a-z]+)\)")


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Effect(Displayed, model.Effect):
    """One effect: a level of a factor compared with the reference, in one condition, on one response.

    ``value``, ``low`` and ``high`` are ratios (response at the level over response at the reference) if
    ``scale`` is "log", else differences in ``unit``; None: unknown or unbounded. The interval holds at
    level ``alpha``, this effect's share of the trial's, at every look; so does ``p``. ``kind`` is "main",
    "cell" (a main effect at one level of another factor, which ``condition`` names: given where the average over
    them is no answer, so that the main effect's ``conclusion`` is "varies"), "interaction" (half the difference
    of two effects) or "pooled" (the mean over all conditions of a workload). Verdicts are
    based on ``primary`` effects; for the others, ``discovery`` says which stand out, as hints for a next study.
    """

    row: EffectRow = field(compare=False)

    @property
    def alpha(self) -> float:
        """The level of the interval."""
        return self.family_alpha

    @property
    def p(self) -> float:
        """The p-value, valid at every look."""
        return self.p_anytime

    @property
    def sentence(self) -> str:
        """The effect in words."""
        return self.row.sentence

    @property
    def ratio(self) -> float | None:
        """The estimate if it is a ratio, else None."""
        return self.value if self.scale is Scale.LOG else None

    @property
    def place(self) -> str:
        """The condition in words; "all conditions" if there is only one."""
        return self.row.place

    def _card(self) -> Card:
        words = f"{self.row.comparison}, {self.row.place}, {self.response}: {interval(self.row.effect)}"
        return Card(title=f"{words}, {self.row.verdict}")


def effect_of(row: EffectRow) -> Effect:
    """Convert a row of a report to an effect."""
    return copied(Effect, row.effect, row=row)


class Effects(Table[Effect]):
    """The effects of a trial in the report's order."""

    noun = "effect"
    heads = ("comparison", "condition", "response", "estimate [interval]", "verdict", "blocks")

    def __init__(
        self,
        rows: Iterable[Effect],
        facts: Mapping[str, object] | None = None,
        orders: Mapping[str, Sequence[str]] | None = None,
        *,
        margin: float,
        name: str,
    ) -> None:
        super().__init__(rows, facts, orders)
        self._margin = margin
        self._name = name

    @property
    def primary(self) -> Self:
        """The effects that verdicts are based on."""
        return self.where(lambda one: one.primary)

    @property
    def pooled(self) -> Self:
        """The means over the conditions of a workload."""
        return self.where(lambda one: one.kind == "pooled")

    @property
    def exploratory(self) -> Self:
        """All others: other responses, and interactions that the study does not name."""
        return self.where(lambda one: not one.primary and one.kind != "pooled")

    def _of(self, rows: Iterable[Effect]) -> Self:
        return type(self)(rows, self._facts, self._orders, margin=self._margin, name=self._name)

    def _cells(self, row: Effect) -> tuple[str, ...]:
        one = row.row
        numbers = interval(one.effect)
        return one.comparison, one.place, row.response, numbers, one.verdict, f"{row.blocks:,}"

    def _repr_html_(self) -> str:
        return html(self._card(figures=self.figures()))

    def figures(self) -> tuple[str, ...]:
        """Return forest plots as SVG: one of the ratios and one of the differences, at most 24 effects each."""
        return forests(self._name, [one.row for one in self], margin=self._margin)

    def listed(self) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
        """Return headings and rows of a table; a single response is moved from a column into a heading."""
        rows = tuple(self._cells(row) for row in self[: self.most_shown])
        responses = {row.response for row in self}
        if len(responses) != 1:
            return self.heads, rows
        at = self.heads.index("response")
        heads = (*self.heads[:at], f"{spoken(responses.pop())} [interval]", *self.heads[at + 2 :])
        return heads, tuple((*row[:at], *row[at + 1 :]) for row in rows)

    def _card(self, figures: tuple[str, ...] = ()) -> Card:
        card = super()._card()
        heads, rows = self.listed()
        return Card(card.title, figures=figures, heads=heads, rows=rows, left_out=card.left_out)

    def _columns(self) -> list[Column[Effect]]:
        fixed: list[Column[Effect]] = [
            *fields("label", "kind", "factor", "level", "reference", "workload", "response", "unit", "scale"),
            Column("primary", "flag", lambda one: one.primary),
            *fields("number", "value", "low", "high", "alpha", "p"),
            Column("verdict", "label", lambda one: one.verdict.value, order=[v.value for v in Verdict]),
            Column(
                "conclusion", "label", lambda one: one.conclusion.value, order=[c.value for c in Conclusion]
            ),
            Column("reason", "label", lambda one: one.reason),
            *fields("count", "blocks", "failures"),
            Column("block_sd", "number", lambda one: one.block_sd),
        ]
        return self._with_conditions(fixed, at=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Control(model.Control):
    """One control of a trial. ``kind`` "negative": two identical arms, which must show no difference;
    "positive": a run slowed down by the known ratio ``injected``, which the interval must contain.
    ``ratio`` is a difference for counts. ``standing``: why a control that has not failed shows nothing yet,
    else empty."""

    sentence: str


def control_of(row: Described[model.Control]) -> Control:
    """Convert a row of a report to a control."""
    return copied(Control, row.finding, sentence=row.sentence)


class Controls(Table[Control]):
    """The controls of a trial, which is invalid if one failed."""

    noun = "control"
    heads = ("kind", "passed", "what it says")

    @property
    def passed(self) -> bool:
        """Whether none failed. One that shows nothing yet (``told_from_zero``) has not failed."""
        return all(one.passed for one in self)

    def _cells(self, row: Control) -> tuple[str, ...]:
        return row.kind, (row.standing or "yes") if row.passed else "NO", row.sentence

    def _columns(self) -> list[Column[Control]]:
        fixed: list[Column[Control]] = [
            *fields("label", "kind", "response"),
            *fields("number", "injected", "ratio", "low", "high"),
            *fields("flag", "passed", "told_from_zero"),
            Column("blocks", "count", lambda one: one.blocks),
        ]
        return self._with_conditions(fixed, at=0)


def forests(name: str, rows: Sequence[EffectRow], *, margin: float) -> tuple[str, ...]:
    """Return forest plots of these effects, one for ratios and one for differences, for a page without the report's style."""
    drawn = []
    for scale in Scale:
        own = [row for row in rows if row.effect.scale is scale][:MOST_DRAWN]
        if own:
            figure = forest(f"{name}-{scale.value}", own, margin=margin, narrow=False)
            drawn.append(_VARIABLE.sub(r"var(--iotrial-\1)", figure.inline))
    return tuple(drawn)
