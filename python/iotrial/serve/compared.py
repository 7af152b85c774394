"""Several trials side by side: gains in per cent with intervals that hold together, a forest, what differs besides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from iotrial.legible import shown
from iotrial.report.comparing import compare
from iotrial.report.comparison import Cell, Comparison, Row
from iotrial.report.notation import quantity
from iotrial.report.phrases import interval, spoken
from iotrial.serve.asked import pairs_of, trials_of
from iotrial.serve.drawing import NARROW, WIDE, Axis, Mark, forest
from iotrial.serve.listed import row_of
from iotrial.serve.rendering import page as rendered
from iotrial.serve.reply import Reply
from iotrial.serve.site import Said, Site
from iotrial.store.model import TrialState
from iotrial.study.model import Scale

if TYPE_CHECKING:
    from markupsafe import Markup
    from starlette.requests import Request

REFRESH_S = 2
MOST_ROWS = 400
MOST_DRAWN = 30


@dataclass(frozen=True, slots=True)
class Shown:
    """One cell of the table: the gain or the interval in words, and its verdict ("" for none)."""

    said: str
    verdict: str


def page(site: Site, request: Request) -> Reply:
    """``/compare?trials=1,2``"""
    numbers = trials_of(pairs_of(request.scope["query_string"]))
    view = site.view()
    trials = [site.trial(number, view) for number in numbers]
    running = [trial.number for trial in trials if trial.state is TrialState.RUNNING]
    common = {
        "title": "Compare",
        "asked": ", ".join(map(str, numbers)),
        "warnings": view.warnings,
        "running": running,
        "enough": len(trials) > 1,
        "open": 0,
        "measuring": False,
        "failed": {},
        "c": None,
    }
    if len(trials) < 2 or running:
        return Reply(rendered("compare.html.j2", **common))
    looked = site.looked(trials, share=len(trials))
    common |= {"open": looked.open, "measuring": looked.measuring, "failed": looked.failed}
    if looked.open or looked.failed:
        refresh = None if looked.failed and not looked.open else 10 if looked.measuring else REFRESH_S
        return Reply(rendered("compare.html.j2", **{**common, "refresh": refresh}))
    comparison = compare([looked.found[number] for number in numbers])
    rows = [
        row_of(trial, _said(looked.found[trial.number].headline, looked.found[trial.number].tone))
        for trial in trials
    ]
    shared = [row for row in comparison.rows if row.shared]
    values = {
        "c": comparison,
        "trials": list(zip(comparison.columns, rows, strict=True)),
        "rows": [_line(comparison, row) for row in shared[:MOST_ROWS]],
        "left_out": max(0, len(shared) - MOST_ROWS),
        "alone": sum(not row.shared for row in comparison.rows),
        "apart": sum(bool(row.apart) for row in shared),
        "figures": figures(comparison, shared),
        "levels": [
            (
                comparison.place(level),
                shown(level.arm),
                spoken(level.response),
                [quantity(median, level.unit) for median in level.medians],
            )
            for level in comparison.levels[:MOST_ROWS]
        ],
    }
    return Reply(rendered("compare.html.j2", **{**common, **values}))


def _said(headline: str, tone: str) -> Said:
    return Said(headline, tone)


@dataclass(frozen=True, slots=True)
class Line:
    """One comparison over all trials."""

    place: str
    comparison: str
    response: str
    cells: tuple[Shown | None, ...]
    agreement: str
    apart: str


def _line(comparison: Comparison, row: Row) -> Line:
    return Line(
        place=comparison.place(row),
        comparison=named(row),
        response=spoken(row.response),
        cells=tuple(None if cell is None else _cell(cell) for cell in row.cells),
        agreement=row.agreement.value,
        apart=", ".join(_apart(comparison, row)),
    )


def _apart(comparison: Comparison, row: Row) -> Sequence[str]:
    """E.g. "A below B, by a factor of 1.3 at least"."""
    said = []
    for one in row.apart:
        low, high = comparison.columns[one.low].mark, comparison.columns[one.high].mark
        least = ""
        if one.least is not None:
            by = f"a factor of {one.least:.3g}" if row.scale is Scale.LOG else quantity(one.least, row.unit)
            least = f", by {by} at least"
        said.append(f"{low} below {high}{least}")
    return said


def named(row: Row) -> str:
    """E.g. "mode 0444 / 0777"; of an interaction "atime × mode"."""
    if row.kind == "interaction":
        return shown(row.factor.replace(":", " × "))
    return f"{shown(row.factor)} {shown(row.level)} / {shown(row.reference)}"


def _cell(cell: Cell) -> Shown:
    said = cell.gain.said if cell.gain is not None else interval(cell.effect)
    return Shown(said, cell.verdict.value if cell.verdict is not None else "")


def figures(comparison: Comparison, rows: Sequence[Row]) -> list[tuple[str, Markup, Markup]]:
    """One figure for all ratios, one for the differences of each unit: what it is of, wide, narrow."""
    kinds: dict[str, list[Row]] = {}
    for row in rows:
        kinds.setdefault("" if row.scale is Scale.LOG else row.unit, []).append(row)
    drawn = []
    for unit, of_kind in kinds.items():
        log = of_kind[0].scale is Scale.LOG
        groups = [(_title(comparison, row), _marks(comparison, row)) for row in of_kind[:MOST_DRAWN]]
        margin = min(column.trial.margin for column in comparison.columns) if log else 0.0
        axis = Axis.of((mark for _, marks in groups for mark in marks), log=log, margin=margin)
        said = f"Forest plot of {len(groups)} comparisons in {len(comparison.columns)} trials; the table has the numbers."
        both = [
            forest(groups, axis, unit=unit, margin=margin, width=width, said=said) for width in (WIDE, NARROW)
        ]
        drawn.append(("ratios" if log else f"differences in {shown(unit)}", both[0], both[1]))
    return drawn


def _title(comparison: Comparison, row: Row) -> str:
    return f"{named(row)}, {spoken(row.response)}: {comparison.place(row)}"


def _marks(comparison: Comparison, row: Row) -> list[Mark]:
    marks = []
    for column, cell in zip(comparison.columns, row.cells, strict=True):
        if cell is not None:
            effect = cell.effect
            tone = cell.verdict.value if cell.verdict is not None else ""
            where = f"/trials/{column.trial.number}"
            marks.append(
                Mark(effect.value, effect.low, effect.high, tone, column.mark, interval(effect), where)
            )
    return marks
