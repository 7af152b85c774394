"""The design of a study in words and as plain objects: the treatments in a block, and which effects are aliased.

It is built from the study alone, and is the same for ``plan``, ``show`` and every report.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from msgspec import Meta

from iotrial.design.interactions import alias_table
from iotrial.design.model import Arm, TermKind
from iotrial.design.plan import Plan
from iotrial.documents import Count, JsonObject
from iotrial.report.notation import counted, joined
from iotrial.study.model import DesignKind, Study
from iotrial.terminal import escape

_KINDS = {
    DesignKind.FULL: "full factorial",
    DesignKind.FRACTIONAL: "fractional factorial",
    DesignKind.PLACKETT_BURMAN: "Plackett-Burman screening design",
    DesignKind.DEFINITIVE: "definitive screening design",
    DesignKind.RACE: "race: a level leaves once it cannot be the best",
    DesignKind.CONFIRM: "confirmation: today's settings, the new ones, and these without one each",
}
_MOST_LISTED = 3
_MOST_ROWS = 64
_MOST_ARMS = 16
_WIDTH, _INDENT = 80, 11
_MIXED_WITH = 4


class DesignRow(JsonObject, frozen=True):
    """One treatment: its levels as codes, one character per factor, and in the study's own words.

    Codes: ``-`` for the reference, ``+`` for the other level, ``0`` for a level between (a digit if a factor has more).
    """

    arm: str
    code: str
    levels: tuple[str, ...]
    stretched: bool


class Design(JsonObject, frozen=True, forbid_unknown_fields=False):
    """How treatments are combined. ``main_effects_clear``: no main effect is biased by an interaction of two factors."""

    kind: DesignKind
    resolution: int | None
    fold_over: bool
    treatments: Count
    runs_per_block: Count
    repeats: Count
    whole_plots: tuple[str, ...]
    controls: str
    factors: tuple[str, ...]
    rows: list[DesignRow]
    main_effects_clear: bool
    aliases: Annotated[
        Mapping[str, tuple[str, ...]], Meta(description="By factor the interactions that bias its effect.")
    ]
    mixed_interactions: Annotated[
        Mapping[str, tuple[str, ...]], Meta(description="Interactions that are one and the same.")
    ]
    interactions: Count
    primary_interactions: Count

    @property
    def words(self) -> str:
        """The design in words, with its size."""
        text = _KINDS[self.kind]
        if self.resolution is not None:
            text += f" of resolution {self.resolution}"
        if self.fold_over:
            text += ", folded over"
        sizes = (counted(len(self.factors), "factor"), counted(self.treatments, "treatment"))
        return f"{text}: {', '.join(sizes)}, {counted(self.runs_per_block, 'run')} in a block"


def design_of(plan: Plan) -> Design:
    """Return the design of a plan."""
    study, arms, design = plan.study, plan.treatments, plan.study.design
    mains = [term for term in plan.terms if term.kind is TermKind.MAIN]
    others = [term for term in plan.terms if term.kind is TermKind.INTERACTION]
    columns = len(plan.arms(controls=True)) == len(arms)
    names = tuple(factor.name for factor in study.treatment_factors)
    biased = {} if design.kind.crossed else {name: by for name, by in alias_table(study, arms, mains) if by}
    return Design(
        kind=design.kind,
        resolution=design.resolution if design.kind is DesignKind.FRACTIONAL else None,
        fold_over=design.fold_over,
        treatments=len(arms),
        runs_per_block=max(len(plan.block(plan.conditions[0], index).runs) for index in (0, 1)),
        repeats=design.repeats,
        whole_plots=tuple(factor.name for factor in study.treatment_factors if factor.whole_plot),
        controls="none" if not plan.controls else "columns" if columns else "arms",
        factors=names,
        rows=[
            DesignRow(
                arm.name, _coded(study, arm), tuple(arm.treatment[name] for name in names), arm.stretched
            )
            for arm in arms
        ],
        main_effects_clear=not biased,
        aliases=biased,
        mixed_interactions={term.factor: term.aliases for term in others if term.aliases},
        interactions=len(others),
        primary_interactions=sum(term.primary for term in others),
    )


def plan_lines(plan: Plan) -> Iterator[str]:
    """Yield the arms of a block, by name or as coded rows, and the design if several factors are crossed."""
    text = design_of(plan)
    if text.kind.crossed and text.treatments <= _MOST_ARMS:
        yield f"arms       {', '.join(arm.name for arm in plan.arms(controls=True))}"
    if len(text.factors) > 1:
        yield from design_lines(text)


def design_lines(text: Design, *, rows: bool = True) -> Iterator[str]:
    """Yield the design as lines for a terminal, each part beginning with its name. Labels are escaped."""
    parts = [text.words, f"controls are {_controls(text)}"]
    if text.whole_plots:
        parts.append(whole_plots_in_words(text))
    parts += aliases_in_lines(text)
    for number, part in enumerate(parts):
        begin = f"{'design' if number == 0 else '':<{_INDENT}}"
        yield from textwrap.wrap(
            part,
            _WIDTH,
            initial_indent=begin + part[: len(part) - len(part.lstrip())],
            subsequent_indent=" " * (_INDENT + 4),
            break_on_hyphens=False,
        )
    if rows and (not text.kind.crossed or text.treatments > _MOST_ARMS):
        between = ", 0 the level between" if any("0" in row.code for row in text.rows) else ""
        yield f"rows       - is the reference, + the other level{between}"
        yield from (f"           {line}" for line in _ruler(text))
        for row in text.rows[:_MOST_ROWS]:
            yield f"           {row.code}  {escape(row.arm)}{' slowed' if row.stretched else ''}"
        if len(text.rows) > _MOST_ROWS:
            yield f"           and {len(text.rows) - _MOST_ROWS} more rows (--json has all)"


def whole_plots_in_words(text: Design) -> str:
    """Describe which factors vary between plots, and how often the rest is repeated in each."""
    names = joined(map(escape, text.whole_plots))
    again = f", repeated {text.repeats} times in each" if text.repeats > 1 else ""
    return f"whole plots: {names} (one value per segment of a block); the other treatments vary within segments{again}"


def aliases_in_lines(text: Design) -> Iterator[str]:
    """Yield what main effects, the first few of them, and interactions are mixed with."""
    if len(text.factors) < 2:
        return
    biased = list(text.aliases.items())
    if not biased:
        yield "main effects are not mixed with two-factor interactions"
    else:
        yield f"{len(biased)} of {counted(len(text.factors), 'main effect')} mixed with two-factor interactions:"
        for factor, some in biased[:_MOST_LISTED]:
            yield f"  {escape(factor)}: {_shortened(some)}"
        if len(biased) > _MOST_LISTED:
            yield f"  and {len(biased) - _MOST_LISTED} more such factors (--json has all)"
    if text.interactions:
        count = counted(text.interactions, "interaction")
        yield f"{count} of two factors can be estimated, {text.primary_interactions} of them primary"
    if text.mixed_interactions:
        yield f"{len(text.mixed_interactions)} of these cannot be distinguished from others (--json names them)"


def design_rows(text: Design) -> Iterator[tuple[str, str]]:
    """Yield (name, words) for the plan of a report."""
    yield "Treatments", text.words
    if text.whole_plots:
        yield "Whole plots", whole_plots_in_words(text).partition(": ")[2]
    lines = list(aliases_in_lines(text))
    if lines:
        yield "What is mixed with what", "; ".join(line.strip().rstrip(":") for line in lines)


def _shortened(biased: Sequence[str]) -> str:
    some = ", ".join(escape(one) for one in biased[:_MIXED_WITH])
    return some + (f" and {len(biased) - _MIXED_WITH} more" if len(biased) > _MIXED_WITH else "")


def _controls(text: Design) -> str:
    if text.controls == "none":
        return "none: switched off"
    if text.controls == "columns":
        return "two more columns: one half of the treatments is slowed, another half is identical"
    if text.whole_plots:
        return "arms: a second, identical segment in every even block, a slowed copy in each segment of the others"
    return "arms: an identical copy of the reference and a slowed run, in the first blocks, then in every second block"


def _coded(study: Study, arm: Arm) -> str:
    return "".join(_code(study, name, label) for name, label in arm.treatment.items())


def _code(study: Study, name: str, label: str) -> str:
    factor = study.factor(name)
    if label == factor.reference:
        return "-"
    if len(factor.levels) == 2:
        return "+"
    labels = [level.label for level in factor.levels]
    if study.design.kind is DesignKind.DEFINITIVE and len(labels) == 3:
        return "0" if label == labels[1] else "+"
    return str(factor.others.index(label) + 1) if len(factor.others) < 10 else "*"


def _ruler(text: Design) -> Iterator[str]:
    """Yield the factors in the order of their columns, wrapped to the line width."""
    line = "columns: "
    for number, name in enumerate(text.factors, start=1):
        word = f"{number} {escape(name)}" + (", " if number < len(text.factors) else "")
        if _INDENT + len(line) + len(word) > _WIDTH:
            yield line.rstrip()
            line = "  "
        line += word
    yield line
