"""The design of a study in words and as plain objects: the treatments in a block, and which effects are aliased.

It is built from the study alone, and is the same for ``plan``, ``show`` and every report.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from iotrial.design.interactions import alias_table
from iotrial.design.model import Arm, Term, TermKind
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


@dataclass(frozen=True, slots=True)
class DesignText:
    """A design in words.

    ``rows`` are the treatments as codes, one character per factor: ``-`` for the reference, ``+`` for the other level,
    ``0`` for a level between (a digit if a factor has more). ``labels`` are the same in the study's own words.
    ``aliases`` lists, by factor, the interactions that bias its effect (``+0.33 a:b``); ``mixed`` lists the
    interactions that cannot be distinguished.
    """

    kind: DesignKind
    words: str
    controls: str
    control_columns: bool
    runs: int
    factors: tuple[str, ...]
    names: tuple[str, ...]
    rows: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    stretched: tuple[bool, ...]
    whole_plots: tuple[str, ...]
    repeats: int
    resolution: int | None
    fold_over: bool
    aliases: tuple[tuple[str, tuple[str, ...]], ...]
    mixed: tuple[tuple[str, tuple[str, ...]], ...]
    interactions: int
    primary_interactions: int

    @property
    def clear(self) -> bool:
        """Whether no main effect is biased by a two-factor interaction."""
        return not any(biased for _, biased in self.aliases)


def design_of(plan: Plan) -> DesignText:
    """Return the design of a plan."""
    study, arms = plan.study, plan.treatments
    design = study.design
    mains = [term for term in plan.terms if term.kind is TermKind.MAIN]
    others = [term for term in plan.terms if term.kind is TermKind.INTERACTION]
    columns = plan.controls and len(plan.arms(controls=True)) == len(arms)
    runs = [len(plan.block(plan.conditions[0], index).runs) for index in (0, 1)]
    factors = study.treatment_factors
    return DesignText(
        kind=design.kind,
        words=_words(study, len(arms), max(runs)),
        controls=_controls(plan, columns=columns),
        control_columns=columns,
        runs=max(runs),
        factors=tuple(factor.name for factor in factors),
        names=tuple(arm.name for arm in arms),
        rows=tuple(_coded(study, arm) for arm in arms),
        labels=tuple(tuple(arm.treatment[factor.name] for factor in factors) for arm in arms),
        stretched=tuple(arm.stretched for arm in arms),
        whole_plots=tuple(factor.name for factor in factors if factor.whole_plot),
        repeats=design.repeats,
        resolution=design.resolution if design.kind is DesignKind.FRACTIONAL else None,
        fold_over=design.fold_over,
        aliases=_biased(study, arms, mains),
        mixed=tuple((term.factor, term.aliases) for term in others if term.aliases),
        interactions=len(others),
        primary_interactions=sum(term.primary for term in others),
    )


class DesignRow(JsonObject, frozen=True):
    """One treatment: its levels as codes, one character per factor, and in the study's own words."""

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


def design_in_full(text: DesignText) -> Design:
    """Return the design as ``plan --json`` prints it."""
    rows = zip(text.names, text.rows, text.labels, text.stretched, strict=True)
    return Design.of(
        text,
        treatments=len(text.names),
        runs_per_block=text.runs,
        controls="columns" if text.control_columns else text.controls.partition(":")[0],
        rows=[DesignRow(*row) for row in rows],
        main_effects_clear=text.clear,
        aliases={factor: biased for factor, biased in text.aliases if biased},
        mixed_interactions=dict(text.mixed),
    )


def plan_lines(plan: Plan) -> Iterator[str]:
    """Yield the arms of a block, by name or as coded rows, and the design if several factors are crossed."""
    text = design_of(plan)
    if text.kind.crossed and len(text.names) <= _MOST_ARMS:
        yield f"arms       {', '.join(arm.name for arm in plan.arms(controls=True))}"
    if len(text.factors) > 1:
        yield from design_lines(text)


def design_lines(text: DesignText, *, rows: bool = True) -> Iterator[str]:
    """Yield the design as lines for a terminal, each part beginning with its name. Labels are escaped."""
    parts = [text.words, f"controls are {text.controls}"]
    if text.whole_plots:
        parts.append(whole_plots_in_words(text))
    parts += aliases_in_lines(text, most=_MOST_LISTED)
    for number, part in enumerate(parts):
        begin = f"{'design' if number == 0 else '':<{_INDENT}}"
        yield from textwrap.wrap(
            part,
            _WIDTH,
            initial_indent=begin + part[: len(part) - len(part.lstrip())],
            subsequent_indent=" " * (_INDENT + 4),
            break_on_hyphens=False,
        )
    if rows and (not text.kind.crossed or len(text.names) > _MOST_ARMS):
        yield "rows       - is the reference, + the other level" + (
            ", 0 the level between" if any("0" in row for row in text.rows) else ""
        )
        yield from (f"           {line}" for line in _ruler(text))
        for name, row, stretched in itertools.islice(
            zip(text.names, text.rows, text.stretched, strict=True), _MOST_ROWS
        ):
            yield f"           {row}  {escape(name)}{' slowed' if stretched else ''}"
        if len(text.rows) > _MOST_ROWS:
            yield f"           and {len(text.rows) - _MOST_ROWS} more rows (--json has all)"


def whole_plots_in_words(text: DesignText) -> str:
    """Describe which factors vary between stretches, and how often the rest is repeated in each."""
    names = joined(map(escape, text.whole_plots))
    again = f", repeated {text.repeats} times in each" if text.repeats > 1 else ""
    return f"whole plots: {names} (one value per segment of a block); the other treatments vary within segments{again}"


def aliases_in_lines(text: DesignText, *, most: int | None = None) -> Iterator[str]:
    """Yield the aliases, limited to the first ``most`` of each sort."""
    if len(text.factors) < 2:
        return
    biased = [(factor, some) for factor, some in text.aliases if some]
    if not biased:
        yield "main effects are not mixed with two-factor interactions"
    else:
        yield f"{len(biased)} of {counted(len(text.aliases), 'main effect')} mixed with two-factor interactions:"
        for factor, some in biased[:most]:
            yield f"  {escape(factor)}: {_shortened(some)}"
        if most is not None and len(biased) > most:
            yield f"  and {len(biased) - most} more such factors (--json has all)"
    if text.interactions:
        count = counted(text.interactions, "interaction")
        yield f"{count} of two factors can be estimated, {text.primary_interactions} of them primary"
    if text.mixed:
        yield f"{len(text.mixed)} of these cannot be distinguished from others:"
        for name, aliases in text.mixed[:most]:
            yield f"  {escape(name)} = {' = '.join(map(escape, aliases[:_MIXED_WITH]))}" + (
                f" = {len(aliases) - _MIXED_WITH} more" if len(aliases) > _MIXED_WITH else ""
            )
        if most is not None and len(text.mixed) > most:
            yield f"  and {len(text.mixed) - most} more such (--json has all)"


def design_rows(text: DesignText) -> Iterator[tuple[str, str]]:
    """Yield (name, words) for the plan of a report."""
    yield "Treatments", text.words
    if text.whole_plots:
        yield "Whole plots", whole_plots_in_words(text).partition(": ")[2]
    lines = list(aliases_in_lines(text, most=_MOST_LISTED))
    if lines:
        yield "What is mixed with what", "; ".join(line.strip().rstrip(":") for line in lines)


def _shortened(biased: Sequence[str]) -> str:
    some = ", ".join(escape(one) for one in biased[:_MIXED_WITH])
    return some + (f" and {len(biased) - _MIXED_WITH} more" if len(biased) > _MIXED_WITH else "")


def _words(study: Study, treatments: int, runs: int) -> str:
    design = study.design
    text = _KINDS[design.kind]
    if design.kind is DesignKind.FRACTIONAL:
        text += f" of resolution {design.resolution}"
    if design.fold_over:
        text += ", folded over"
    factors = counted(len(study.treatment_factors), "factor")
    return f"{text}: {factors}, {counted(treatments, 'treatment')}, {counted(runs, 'run')} in a block"


def _controls(plan: Plan, *, columns: bool) -> str:
    if not plan.controls:
        return "none: switched off"
    if columns:
        return "two more columns: one half of the treatments is slowed, another half is identical"
    if plan.whole_plots:
        return "arms: a second, identical segment in every even block, a slowed copy in each segment of the others"
    return "arms: an identical copy of the reference and a slowed one, in the first blocks, then in every second block"


def _biased(
    study: Study, arms: Sequence[Arm], mains: Sequence[Term]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if study.design.kind.crossed:
        return tuple((factor.name, ()) for factor in study.treatment_factors)
    return alias_table(study, arms, mains)


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


def _ruler(text: DesignText) -> Iterator[str]:
    """Yield the factors in the order of their columns, wrapped to the line width."""
    line = "columns: "
    for number, name in enumerate(text.factors, start=1):
        word = f"{number} {escape(name)}" + (", " if number < len(text.factors) else "")
        if _INDENT + len(line) + len(word) > _WIDTH:
            yield line.rstrip()
            line = "  "
        line += word
    yield line
