"""A study's design as a small text drawing: what varies, what is fixed, the crossing of conditions, an example block.

Used by ``show``, before anything is measured: with the study's defaults and an example seed. Sentences are lines of any
length, which ``show`` wraps on a terminal; tables are at most 80 columns wide.
``plan`` has the same for the requested options and the seed that a run would have.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from iotrial.design.model import Arm, ArmKind, Block
from iotrial.design.plan import Plan
from iotrial.documents import Count
from iotrial.errors import RequestError
from iotrial.report.designs import design_lines, design_of
from iotrial.report.notation import counted, elided, joined
from iotrial.study.model import Factor, Role, Setting, Study
from iotrial.study.select import select
from iotrial.terminal import escape
from iotrial.units import format_duration, format_percent

EXAMPLE_SEED = "0" * 32
WIDTH = 80
_INDENT = 11
_MOST_LISTED = 8  # treatment factors, one line each
_MOST_RUNS = 16  # of a block that is shown whole
_MOST_STRETCHES = 4
_LONGEST_LABEL = 24
_MOST_FACTORS_SPELT = 3


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a study at its defaults."""

    factors: Annotated[int, Meta(ge=0, description="treatment factors")]
    workloads: Count
    conditions: Annotated[int, Meta(ge=0, description="at the defaults")] = 0
    conditions_in_full: Annotated[int, Meta(ge=0, description="with --full")] = 0
    runs_a_block: Annotated[
        tuple[Count, Count], Meta(description="in blocks without and with control runs")
    ] = (0, 0)
    primary_effects: Annotated[int, Meta(ge=0, description="comparisons that share alpha")] = 0
    problem: Annotated[
        str | None, Meta(description="why it cannot be planned at its defaults; the counts are then 0")
    ] = None


def drawn(study: Study) -> tuple[Shape, tuple[str, ...]]:
    """Return the shape of a study at its defaults, and its drawing as lines. Labels are escaped."""
    factors, workloads = len(study.treatment_factors), len(study.workloads)
    lines = [*_varied(study), *_fixed(study)]
    try:
        plan = Plan(select(study), EXAMPLE_SEED)
    except RequestError as error:
        shape = Shape(factors, workloads, problem=error.message)
        return shape, (*lines, *_part("design", f"cannot be run at the default levels: {error.message}"))
    blocks = [plan.block(plan.conditions[0], index) for index in (0, 1)]
    runs = sorted(len(block.runs) for block in blocks)
    shape = Shape(
        factors,
        workloads,
        conditions=len(plan.conditions),
        conditions_in_full=_in_full(study, len(plan.conditions)),
        runs_a_block=(runs[0], runs[1]),
        primary_effects=plan.primary_effects,
    )
    lines += _crossed(plan, shape)
    if factors > 1:
        lines += design_lines(design_of(plan), rows=False)
    lines += ["", *_blocks(plan, blocks), "", *_judged(plan, shape)]
    return shape, tuple(lines)


# -- what varies, what does not


def _varied(study: Study) -> Iterator[str]:
    treatments = study.treatment_factors
    if len(treatments) <= _MOST_LISTED:
        for number, factor in enumerate(treatments):
            kept = [label for label in factor.others if label in factor.default]
            on_request = [label for label in factor.others if label not in factor.default]
            text = f"{escape(factor.name)}: {_cut(factor.reference)} (reference), {_labels(kept)}"
            text += f"; on request {_labels(on_request)}" if on_request else ""
            yield from _part("treatment" if not number else "", text)
    else:
        pairs = [f"{escape(f.name)}: {_cut(f.reference)} / {_labels(f.others)}" for f in treatments]
        yield from _columns("treatment", ["each factor: reference / other level", *pairs])
    for number, factor in enumerate(f for f in study.factors if f.role is Role.CONDITION):
        yield from _part(
            "condition" if not number else "", f"{escape(factor.name)}: {_default_first(factor)}"
        )
    for number, workload in enumerate(study.workloads):
        extra = "" if workload.default else ", on request"
        yield from _part(
            "workload" if not number else "", f"{escape(workload.name)} ({workload.kind}{extra})"
        )


def _default_first(factor: Factor) -> str:
    labels = [level.label for level in factor.levels]
    rest = [label for label in labels if label not in factor.default]
    behind = f"; on request {_labels(rest)}" if rest else ""
    return _labels([label for label in labels if label in factor.default]) + behind


def _fixed(study: Study) -> Iterator[str]:
    parts = [_setting(setting) for setting in study.fixed]
    if study.lab.kind:
        parts.insert(0, f"lab {study.lab.kind}")
    if parts:
        yield from _part("fixed", ", ".join(parts))


def _setting(setting: Setting) -> str:
    options = "".join(f" {escape(value)}" for _, value in setting.options)
    return f"{setting.knob}{options} = {_cut(setting.value)}"


# -- how it is crossed


def _in_full(study: Study, by_default: int) -> int:
    """Return the number of conditions with --full; 0 if there are too many for any trial."""
    if all(workload.default for workload in study.workloads) and all(
        len(factor.default) == len(factor.levels) for factor in study.condition_factors
    ):
        return by_default
    try:
        return len(Plan(select(study, full=True), EXAMPLE_SEED).conditions)
    except RequestError:
        return 0


def _crossed(plan: Plan, shape: Shape) -> Iterator[str]:
    study = plan.study
    sizes = {"workload": len(study.workloads)}
    sizes |= {escape(factor.name): len(factor.levels) for factor in study.condition_factors}
    sizes = {name: size for name, size in sizes.items() if size > 1}
    text = counted(shape.conditions, "condition")
    if len(sizes) > 1:
        whole = math.prod(sizes.values())
        product = f"{' x '.join(sizes)}: {' x '.join(map(str, sizes.values()))}"
        text = (
            f"{product} = {text}" if whole == shape.conditions else f"{product}, of which {text} are possible"
        )
    if shape.conditions_in_full > shape.conditions:
        text += f" ({shape.conditions_in_full:,} with --full)"
    yield from _part("crossed", text + (", each with its own blocks" if shape.conditions > 1 else ""))


# -- a block


def _blocks(plan: Plan, blocks: Sequence[Block]) -> Iterator[str]:
    counts = [len(block.runs) for block in blocks]
    each = counted(counts[0], "run") if counts[0] == counts[1] else f"{min(counts)} or {max(counts)} runs"
    what = "every row of the design" if plan.control_columns else "every treatment"
    often = (
        f"{plan.study.design.repeats} times" if plan.whole_plots and plan.study.design.repeats > 1 else "once"
    )
    yield from _part("a block", f"{each}: {what} {often}, in random order; for example")
    grid = tuple(_grid(plan, blocks[1]))
    if grid:
        yield from grid
    for block in blocks[:1] if grid else blocks:
        yield from _one_block(plan, block)
        if counts[0] == counts[1] and not plan.whole_plots:
            break


def _one_block(plan: Plan, block: Block) -> Iterator[str]:
    begin = f"  block {block.index + 1} "
    if any(not factor.whole_plot for factor in plan.study.treatment_factors) and plan.whole_plots:
        yield f"{begin}in segments, each with its own {_whole(plan)}:"
        yield from _plots(plan, block)
        return
    if not plan.study.design.kind.crossed:
        yield from _rows(plan, block)
        return
    names = [_run(plan, run.arm) for run in block.runs]
    more = len(names) - _MOST_RUNS
    chips = names[:_MOST_RUNS] + ([f"{more} more"] if more > 0 else [])
    yield from _chips(f"{begin:<{_INDENT}}", chips)


def _plots(plan: Plan, block: Block) -> Iterator[str]:
    numbers = sorted({run.plot for run in block.runs if run.plot is not None})
    whole = [f.name for f in plan.study.treatment_factors if f.whole_plot]
    for number in numbers[:_MOST_STRETCHES]:
        runs = [run for run in block.runs if run.plot == number]
        level = ", ".join(_cut(runs[0].arm.treatment[name]) for name in whole)
        copy = " (copy)" if all(run.arm.kind is ArmKind.NEGATIVE for run in runs) else ""
        names = [_run(plan, run.arm, without=whole) for run in runs]
        more = len(names) - _MOST_RUNS // 2
        chips = names[: _MOST_RUNS // 2] + ([f"{more} more"] if more > 0 else [])
        yield from _chips(f"    {level}{copy}: ", chips)
    if len(numbers) > _MOST_STRETCHES:
        yield f"    and {counted(len(numbers) - _MOST_STRETCHES, 'more segment', 'more segments')}"


def _rows(plan: Plan, block: Block) -> Iterator[str]:
    text = design_of(plan)
    codes = {row.arm: row.code for row in text.rows}
    yield f"  block {block.index + 1}  (- the reference, + the other level, factors in the order above)"
    for run in block.runs[:_MOST_LISTED]:
        slowed = "  slowed" if run.arm.stretched else ""
        yield f"    run {run.slot + 1:>2}  {codes[run.arm.name]}  {escape(run.arm.name)}{slowed}"
    if len(block.runs) > _MOST_LISTED:
        yield f"    and {len(block.runs) - _MOST_LISTED} more runs"


def _grid(plan: Plan, block: Block) -> Iterator[str]:
    """Yield two crossed factors as a table; each cell is the position of its run in the block."""
    factors = [f for f in plan.study.treatment_factors if len(f.levels) > 1]
    if len(factors) != 2 or plan.whole_plots or not plan.study.design.kind.crossed:
        return
    down, across = sorted(factors, key=lambda f: -len(f.levels))
    places = {
        (run.arm.treatment[down.name], run.arm.treatment[across.name]): run.slot + 1
        for run in block.runs
        if run.arm.kind is ArmKind.TREATMENT
    }
    widths = [max(3, len(_cut(level.label))) for level in across.levels]
    first = max(len(escape(down.name)), *(len(_cut(level.label)) for level in down.levels))
    if first + sum(widths) + 2 * len(widths) + 4 > WIDTH:
        return
    yield f"    {'':<{first}}  {escape(across.name)}"
    heads = (f"{_cut(level.label):>{width}}" for level, width in zip(across.levels, widths, strict=True))
    yield f"    {escape(down.name):<{first}}  {'  '.join(heads)}"
    for row in down.levels:
        cells = (
            f"{places[row.label, level.label]:>{width}}"
            for level, width in zip(across.levels, widths, strict=True)
        )
        yield f"    {_cut(row.label):<{first}}  {'  '.join(cells)}"
    yield f"    (block {block.index + 1}: run order; the first blocks, then every 2nd, have controls)"


def _run(plan: Plan, arm: Arm, *, without: Sequence[str] = ()) -> str:
    varied = [f for f in plan.study.treatment_factors if len(f.levels) > 1 and f.name not in without]
    name = "+".join(_cut(arm.treatment[factor.name]) for factor in varied[:_MOST_FACTORS_SPELT])
    name += "+..." if len(varied) > _MOST_FACTORS_SPELT else ""
    name = name or "run"
    if arm.kind is ArmKind.NEGATIVE and not without:
        return f"{name} (copy)"
    return f"{name} (slowed)" if arm.kind is ArmKind.POSITIVE else name


def _whole(plan: Plan) -> str:
    return joined(escape(f.name) for f in plan.study.treatment_factors if f.whole_plot)


# -- what is judged


def _judged(plan: Plan, shape: Shape) -> Iterator[str]:
    study = plan.study
    by_workload = []
    for workload in study.workloads:
        primary = [escape(r.name) for r in study.responses if r.workload == workload.name and r.primary]
        by_workload.append(f"{', '.join(primary)} of {escape(workload.name)}")
    yield from _part("judged", "; ".join(by_workload))
    effects = counted(shape.primary_effects, "comparison")
    yield from _part(
        "", f"{effects} with the reference share alpha {study.alpha:g}; margin {format_percent(study.margin)}"
    )
    per_round = sum(shape.runs_a_block) / 2.0 * shape.conditions
    yield from _part(
        "budget",
        f"{format_duration(study.budget.time_s)}; a round, one block of each condition, is about {per_round:,.0f} runs",
    )


# -- formatting lines


def _cut(label: str) -> str:
    return elided(escape(label), _LONGEST_LABEL)


def _labels(labels: Sequence[str]) -> str:
    return ", ".join(map(_cut, labels))


def _part(name: str, text: str) -> list[str]:
    return [f"{name:<{_INDENT}}{text}"]


def _chips(begin: str, names: Sequence[str]) -> Iterator[str]:
    """Yield runs one after the other, separated by bars."""
    line = f"{begin}|"
    for name in names:
        if len(line) + len(name) + 3 > WIDTH and not line.endswith(f"{begin}|"):
            yield line
            line = f"{'':<{_INDENT}}|"
        line += f" {name} |"
    yield line


def _columns(name: str, texts: Sequence[str]) -> Iterator[str]:
    """Yield a heading, then texts, two to a line if they fit."""
    heading, *rest = texts
    yield f"{name:<{_INDENT}}{heading}"
    width = (WIDTH - 2) // 2
    left: str | None = None
    for text in rest:
        if left is not None and len(text) <= width:
            yield f"  {left:<{width}}{text}".rstrip()
            left = None
            continue
        if left is not None:
            yield f"  {left}"
        left = text if len(text) < width else None
        if left is None:
            yield f"  {text}"
    if left is not None:
        yield f"  {left}"
