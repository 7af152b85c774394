"""Comparison of trials as report blocks: headline, every comparison with one line per trial, differences between trials."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from iotrial.report.blocks import (
    DECISIVE,
    EQUIVALENT,
    SELF_CONTAINED,
    Block,
    Cell,
    Code,
    Column,
    Drawn,
    Group,
    Note,
    Report,
    Row,
    Section,
    Table,
    View,
    Words,
    heads,
    table,
)
from iotrial.report.chart import INK, MUTED, RISK_INK, VERDICT_INKS, Chart, arm_ink, arm_marker
from iotrial.report.comparison import (
    NO_INTERVAL,
    Agreement,
    Comparison,
    LevelRow,
    agreement_words,
    cell_numbers,
    cell_verdict,
    headline,
    least_words,
    notes,
    title,
    verdict_of,
    verdict_words,
)
from iotrial.report.comparison import Cell as Found
from iotrial.report.comparison import Row as Compared
from iotrial.report.conditions import EVERYWHERE
from iotrial.report.html import html
from iotrial.report.interval_charts import IntervalGroup, interval_axis, interval_chart, of_effect
from iotrial.report.markdown import markdown
from iotrial.report.notation import capitalised, day_and_time, difference_numbers, elided, percent, quantity
from iotrial.report.phrases import axis_name, interval, spoken
from iotrial.stats.model import Verdict
from iotrial.study.model import Scale
from iotrial.terminal import escape
from iotrial.units import format_duration

#: the most trials that get a column each, on a page and in text; with more trials, each gets a row
MOST_COLUMNS, _MOST_TEXT_COLUMNS = 12, 4


def comparison_markdown(comparison: Comparison) -> str:
    """Format a comparison of trials as Markdown."""
    return markdown(comparison_report(comparison))


def comparison_html(comparison: Comparison) -> str:
    """Format a comparison of trials as one HTML page."""
    report = comparison_report(comparison, figures=True)
    return html(lambda _: report)


def comparison_report(
    comparison: Comparison, *, figures: bool = False, html_path: str | None = None
) -> Report:
    """Build the report; ``figures`` adds figures for a page, and ``html_path`` is named at the end of a text."""
    shared = [row for row in comparison.rows if row.shared]
    number = len(comparison.columns)
    return Report(
        title="Trials compared",
        headline=headline(comparison),
        tone=_tone(shared)[1],
        badges=(Words(*_tone(shared), badge=True),),
        kind="iotrial",
        top=(f"{number} trials compared",),
        footer=SELF_CONTAINED,
        blocks=tuple(_blocks(comparison, shared, html_path, figures=figures)),
    )


def _blocks(
    comparison: Comparison, shared: Sequence[Compared], html_path: str | None, *, figures: bool
) -> Iterator[Block]:
    if shared:
        main = [row for row in shared if row.like.kind != "pooled"]
        pooled = [row for row in shared if row.like.kind == "pooled"]
        drawn = tuple(_forests(comparison)) if figures else ()
        blocks: list[Block] = [*drawn, _effects(comparison, main)]
        if main:
            page = Section(
                "Effects as a table", (_side_by_side(comparison, main),), folded=bool(drawn), view=View.PAGE
            )
            blocks.append(page)
        if pooled:
            heading = f"Means over conditions, pooled: a separate family ({len(pooled)})"
            tables = (_effects(comparison, pooled), _side_by_side(comparison, pooled))
            blocks.append(Section(heading, tables, folded=True, view=View.LONG))
        yield Section("Effects", tuple(blocks), id="effects")
    yield from notes(comparison)
    verdicts = (Note(escape(one.trial.headline), one.mark, view=View.FULL) for one in comparison.columns)
    yield Section("Trials", (_trials(comparison), *verdicts), id="trials")
    if comparison.differences:
        rows: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
            (
                (f"{one.group}: {elided(escape(one.name), 44)}",),
                tuple(escape(value or "–") for value in one.values),
            )
            for one in comparison.differences
        ]
        yield Section(
            "What differs between the trials",
            tuple(_by_trial(comparison, ("~what",), rows)),
            id="differences",
            lede="Apart from their results. What all of them have in common is left out.",
        )
    if levels := [row for row in comparison.levels if sum(m is not None for m in row.medians) > 1]:
        yield Section(
            "Machine by machine (observational: no verdict)",
            (_machines(comparison, levels),),
            id="levels",
            lede="The change is that of the median against the first machine's. Nothing was randomised between trials.",
            view=View.LONG,
        )
    if alone := [row for row in comparison.rows if not row.shared]:
        rows_ = [
            (comparison.columns[row.has[0]].mark, title(row), _where(comparison, row), *_only(row))
            for row in alone
        ]
        found = table(("trial", "~comparison", "~condition", "~effect", "~verdict"), rows_)
        lede = "Not compared."
        yield Section("In one trial only", (found,), id="alone", lede=lede, view=View.LONG)
    if html_path is not None:
        yield Code(html_path, "Figures and everything else", view=View.TEXT)
    yield Note("--full shows the rest.", tone="dim", view=View.SHORT)


def _effects(comparison: Comparison, rows: Sequence[Compared]) -> Table:
    """Build a table with a heading per comparison and a line per trial.

    Comparisons that differ or share no verdict come first.
    """
    several = len({row.like.response for row in rows}) > 1
    groups = []
    for row in rows:
        place = comparison.place(row) + (f", {spoken(row.like.response)}" if several else "")
        summary = "; ".join(
            filter(None, (agreement_words(comparison, row), least_words(row), verdict_words(row)))
        )
        rank = DECISIVE if row.agreement is Agreement.DIFFERS or row.verdict is None else EQUIVALENT
        kind = "where trials differ" if row.agreement is Agreement.DIFFERS else row.agreement.value
        lines = tuple(
            Row((column.marked, interval(cell.effect), _gain(cell), verdict_of(cell)), rank, kind)
            for column, cell in zip(comparison.columns, row.cells, strict=True)
            if cell is not None
        )
        groups.append(Group(lines, f"{capitalised(place)}: {title(row)}: {summary}"))
    columns = heads("~trial", "effect", "~change", "~verdict")
    return Table(columns, tuple(groups), noun="comparison", whole=True, view=View.TEXT)


def _side_by_side(comparison: Comparison, rows: Sequence[Compared]) -> Table:
    """Build a table with a column per trial if they fit, else with a row per trial."""
    made = []
    for row in rows:
        what = (Words(title(row)), Words(_where(comparison, row), small=True))
        between = [Words(agreement_words(comparison, row), "mixed" if row.apart else "quiet", badge=True)]
        between += [Words(text, small=True) for text in (least_words(row), verdict_words(row)) if text]
        cells: list[Cell] = []
        for cell in row.cells:
            numbers = (
                () if cell is None else (Words(cell_numbers(cell)), Words(interval(cell.effect), small=True))
            )
            cells.append("–" if cell is None else (*numbers, *verdict_of(cell, small=True)))
        made.append(((what,), tuple(cells), (tuple(between),)))
    marks = [column.mark for column in comparison.columns]
    if len(marks) <= MOST_COLUMNS:
        columns = ("~comparison", *(f"~{mark}" for mark in marks), "~between trials")
        return table(columns, ((*first, *cells, *last) for first, cells, last in made), view=View.PAGE)
    lines = (
        (*first, mark, cell, *last)
        for first, cells, last in made
        for mark, cell in zip(marks, cells, strict=True)
        if cell != "–"
    )
    return table(("~comparison", "trial", "~effect", "~between trials"), lines, view=View.PAGE)


def _where(comparison: Comparison, row: Compared) -> str:
    return f"{comparison.place(row)}, {spoken(row.like.response)}"


def _only(row: Compared) -> tuple[Cell, Cell]:
    cell = row.cells[row.has[0]]
    assert cell is not None
    return cell_numbers(cell), verdict_of(cell)


def _gain(cell: Found) -> str:
    return cell.gain.said.removesuffix(NO_INTERVAL) if cell.gain is not None else ""


def _trials(comparison: Comparison) -> Table:
    """Build a table with a line per trial; on the page with its own verdict."""
    rows: list[tuple[Cell, ...]] = []
    for column in comparison.columns:
        one = column.trial
        state = one.state if one.valid or one.state == "invalid" else f"{one.state}, invalid"
        tone = "invalid" if not one.valid else "" if one.state == "done" else "mixed"
        verdict = (
            Words(escape(one.headline)),
            Words(
                f"{one.blocks:,} blocks; the verdict is at its own alpha of {one.alpha}",
                small=True,
                view=View.PAGE,
            ),
        )
        began = f"{day_and_time(one.started)} UTC"
        took = format_duration(one.duration_s)
        rows.append(
            (column.mark, column.name, escape(one.study), began, took, Words(escape(state), tone), verdict)
        )
    columns = ("", "~trial", "~study", "began", "took", "state", Column("verdict", wide=True, view=View.PAGE))
    return table(columns, rows)


def _machines(comparison: Comparison, levels: Sequence[LevelRow]) -> Table:
    """Build the table that articles on hardware print: for each work and arm a line per machine, with its change."""
    groups = []
    for row in levels:
        has = [
            column
            for column, median in zip(comparison.columns, row.medians, strict=True)
            if median is not None
        ]
        lines = tuple(
            Row(
                (
                    column.mark,
                    column.machine or column.name,
                    _median(row.like.unit, median, bounds),
                    "reference" if column is has[0] else change.said if change else "–",
                )
            )
            for column, median, bounds, change in zip(
                comparison.columns, row.medians, row.bounds, row.changes, strict=True
            )
            if median is not None
        )
        place = "" if (where := comparison.place(row)) == EVERYWHERE else f"{capitalised(where)}: "
        groups.append(Group(lines, f"{place}{escape(row.like.arm)}, {spoken(row.like.response)}"))
    columns = heads("trial", "~machine", "median", "~change")
    return Table(columns, tuple(groups), noun="median", whole=True)


def _median(unit: str, median: float, bounds: tuple[float | None, float | None]) -> str:
    """Format a median with its interval: "9.66 [9.61, 9.72] s"."""
    if bounds == (None, None):
        return quantity(median, unit)
    estimate, low, high, suited = difference_numbers(median, *bounds, unit)
    return f"{estimate} [{low}, {high}]{suited}"


def _by_trial(
    comparison: Comparison, names: tuple[str, ...], rows: Sequence[tuple[tuple[str, ...], tuple[str, ...]]]
) -> Iterator[Table]:
    """Yield tables with a column per trial if they fit (a page fits more), else with a row per trial."""
    marks = [column.mark for column in comparison.columns]
    for view, most in ((View.TEXT, _MOST_TEXT_COLUMNS), (View.PAGE, MOST_COLUMNS)):
        if len(marks) <= most:
            yield table(
                (*names, *(f"~{mark}" for mark in marks)),
                ((*what, *values) for what, values in rows),
                view=view,
            )
        else:
            lines = (
                (*what, mark, value)
                for what, values in rows
                for mark, value in zip(marks, values, strict=True)
            )
            yield table((*names, "trial", "~value"), lines, view=view)


def _forests(comparison: Comparison) -> Iterator[Drawn]:
    """Yield figures of the shared comparisons: ratios in one, differences by response, pooled effects separately."""
    groups: dict[tuple[object, ...], list[Compared]] = {}
    for row in comparison.rows:
        if row.shared:
            scale = ("ratio",) if row.like.scale is Scale.LOG else (row.like.response, row.like.unit)
            groups.setdefault((row.like.kind == "pooled", *scale), []).append(row)
    for number, ((pooled, what, *_), rows) in enumerate(groups.items()):
        drawn = _fitting(rows)
        caption = "One line per trial, with its interval; if intervals do not overlap, the effect differs."
        if len(drawn) < len(rows):
            caption += f" {len(rows) - len(drawn)} more comparisons are only in the table."
        of = "Means over conditions" if pooled else "Effects"
        yield Drawn(
            (_forest(f"trials{number}", comparison, drawn, narrow=False),),
            _forest(f"trials{number}n", comparison, drawn, narrow=True),
            title="" if not number else of if what == "ratio" else f"{of}: {spoken(str(what))}",
            caption=caption,
            apart=number < len(groups) - 1,
        )


_MOST_LINES = 150


def _fitting(rows: Sequence[Compared]) -> tuple[Compared, ...]:
    """Return as many leading rows as fit into one figure."""
    kept: list[Compared] = []
    lines = 0
    for row in rows:
        lines += 1 + len(row.has)
        if kept and lines > _MOST_LINES:
            break
        kept.append(row)
    return tuple(kept)


def _forest(name: str, comparison: Comparison, rows: Sequence[Compared], *, narrow: bool) -> Chart:
    """Draw these comparisons, all of one scale, with a line for each trial.

    Colour, mark and a letter distinguish the trials. Those that are not compared are hollow and pale.
    """
    several = len({row.like.response for row in rows}) > 1
    groups = []
    for row in rows:
        place = comparison.place(row) + (f", {axis_name(row.like.response)}" if several else "")
        lines = []
        for position in row.has:
            cell, column = row.cells[position], comparison.columns[position]
            assert cell is not None
            risk = cell.risk and cell.valid
            word_ink = VERDICT_INKS.get(cell.effect.conclusion.words, INK) if cell.valid else MUTED
            lines.append(
                of_effect(
                    cell.effect,
                    f"{column.mark}  {column.name}",
                    numbers=cell_numbers(cell),
                    word=("⚠ " if risk else "") + cell_verdict(cell).partition(":")[0].partition(",")[0],
                    ink=arm_ink(1 + position) if cell.counts else MUTED,
                    word_ink=RISK_INK if risk else word_ink,
                    shape=arm_marker(position),
                    hollow=not cell.counts,
                    undecided=not cell.counts or cell.effect.verdict is Verdict.INCONCLUSIVE,
                )
            )
        head = title(row) if place == EVERYWHERE else f"{title(row)}, {place}"
        agreement = agreement_words(comparison, row)
        groups.append(IntervalGroup(lines, head, agreement, INK if row.apart else MUTED))
    like, log = rows[0].like, rows[0].like.scale is Scale.LOG
    margins = {column.trial.margin for column in comparison.columns}
    margin = margins.pop() if len(margins) == 1 and log else 0.0
    note = f" (band: within {percent(margin)})" if margin else ""
    axis = interval_axis(
        [row for group in groups for row in group.rows],
        log=log,
        unit=like.unit,
        margin=margin,
        title=f"ratio to the reference{note}" if log else "difference to the reference",
    )
    words = "; ".join(
        f"{group.title}: {', '.join(f'{row.label} {row.numbers}' for row in group.rows)} ({group.note})"
        for group in groups[:12]
    )
    return interval_chart(
        name, groups, axis, margin=margin, description=f"Intervals of trials. {words}", narrow=narrow
    )  # fmt: skip


def _tone(rows: Sequence[Compared]) -> tuple[str, str]:
    """Return a word for the whole comparison, and the class that colours it."""
    if any(row.apart for row in rows):
        return "differs", "mixed"
    if any(row.agreement is Agreement.NOT_SHOWN for row in rows):
        return "no difference shown", "inconclusive"
    return "no verdict", "invalid"
