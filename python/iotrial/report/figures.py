"""All figures of a page with their captions and the tables behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from iotrial.analysis.model import Verdict
from iotrial.report.document import Document
from iotrial.report.factorial_figures import MOST_CONDITIONS, FactorialFigures, factorial_figures
from iotrial.report.findings import strength
from iotrial.report.histograms import histogram_quantile
from iotrial.report.interplay import is_interaction
from iotrial.report.matrix_figures import MatrixFigures, matrix_figures
from iotrial.report.notation import counted, elided, percent, quantity
from iotrial.report.page_figures import PagesFigure, page_figures, page_rows
from iotrial.report.phrases import spoken
from iotrial.report.rows import EffectRow
from iotrial.report.screens import arms_are_rows, is_screen
from iotrial.report.series import (
    Arm,
    LatencyPanel,
    Panel,
    arms_of,
    latencies_of,
    panels_of,
    quantiles_of,
)
from iotrial.report.within import WithinPanel, within_of
from iotrial.study.model import Scale
from iotrial.units import format_duration

if TYPE_CHECKING:
    from markupsafe import Markup

MOST_PANELS = 24
# So many marks over all panels keep the page below a few megabytes.
_MARKS = 20_000
_LEAST_MARKS, _MOST_MARKS = 240, 1500
_MOST_NAMED = 5
_SHARES = (0.5, 0.9, 0.99, 0.999, 1.0)


@dataclass(frozen=True, slots=True)
class ForestFigure:
    """The effects of one scale, drawn for wide and for narrow pages."""

    wide: Markup
    narrow: Markup
    caption: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class PanelFigure:
    """One condition: its runs over time and their distribution."""

    title: str
    runs: Markup
    runs_caption: str
    distribution: Markup
    distribution_caption: str


@dataclass(frozen=True, slots=True)
class LatencyFigure:
    """One operation in one condition."""

    title: str
    figure: Markup
    caption: str


@dataclass(frozen=True, slots=True)
class WithinFigure:
    """One thing that went on within the runs of one condition."""

    title: str
    figure: Markup
    caption: str


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything that is drawn. ``step``: at most every so-manieth run has a mark."""

    arms: tuple[Arm, ...]
    forests: tuple[ForestFigure, ...]
    panels: tuple[PanelFigure, ...]
    panels_left_out: int
    latencies: tuple[LatencyFigure, ...]
    latencies_left_out: int
    run_rows: tuple[tuple[str, ...], ...]
    latency_rows: tuple[tuple[str, ...], ...]
    step: int
    factorial: tuple[FactorialFigures, ...] = ()
    matrices: tuple[MatrixFigures, ...] = ()
    by: str | None = None
    within: tuple[WithinFigure, ...] = ()
    within_left_out: int = 0
    pages: tuple[PagesFigure, ...] = ()
    page_rows: tuple[tuple[str, ...], ...] = ()


def draw_figures(document: Document) -> Figures:
    """Draw all figures of the document."""
    by = _stands_for_arms(document)
    arms = arms_of(document.data, by)
    panels = panels_of(document.data, document.conditions, arms, by)
    latencies = latencies_of(document.data, document.conditions, arms, by)
    within = within_of(document.data, document.conditions, arms, by)
    drawn = _chosen(panels, document.primary)
    changes = {
        row.condition.key: tuple(one.at_s for one in row.diagnostic.changes) for row in document.diagnostics
    }
    shown_latencies = latencies[:MOST_PANELS]
    most_marks = min(_MOST_MARKS, max(_LEAST_MARKS, _MARKS // max(1, len(drawn))))
    return Figures(
        arms=arms,
        forests=tuple(_forests(document)),
        panels=tuple(
            _panel(i, panel, most_marks=most_marks, changes_s=changes.get(panel.condition.key, ()))
            for i, panel in enumerate(drawn)
        ),
        panels_left_out=len(panels) - len(drawn),
        latencies=tuple(_latency(i, panel) for i, panel in enumerate(shown_latencies)),
        latencies_left_out=len(latencies) - len(shown_latencies),
        run_rows=tuple(row for panel in panels for row in _run_rows(panel)),
        latency_rows=tuple(row for panel in latencies for row in _latency_rows(panel)),
        step=max((-(-panel.runs // most_marks) for panel in drawn), default=1),
        factorial=factorial_figures(document),
        matrices=matrix_figures(document),
        by=by,
        within=tuple(_within(i, panel) for i, panel in enumerate(within[:MOST_PANELS])),
        within_left_out=max(0, len(within) - MOST_PANELS),
        pages=page_figures(document.pages, arms),
        page_rows=page_rows(document.pages),
    )


def _stands_for_arms(document: Document) -> str | None:
    """The factor with the largest effect, whose levels are drawn where the arms are too many to be told apart."""
    study = document.trial.header.study
    if not arms_are_rows(study):
        return None
    mains = [row.effect for row in document.primary if row.effect.kind == "main"]
    known = {factor.name for factor in study.treatment_factors}
    return max((e for e in mains if e.factor in known), key=strength).factor if mains else None


def _chosen(panels: Sequence[Panel], effects: Sequence[EffectRow]) -> list[Panel]:
    """All panels, or where there are too many the ones with something to see first."""
    if len(panels) <= MOST_PANELS:
        return list(panels)
    loud = {row.condition.key for row in effects if row.effect.verdict is not Verdict.EQUIVALENT}
    kept = sorted(panels, key=lambda panel: panel.condition.key not in loud)[:MOST_PANELS]
    return sorted(kept, key=lambda panel: panel.condition.order)


def _forests(document: Document) -> list[ForestFigure]:
    from markupsafe import Markup

    from iotrial.report.plots.forest import MOST_ROWS, forest

    margin = document.trial.header.margin
    found = []
    for name, title, rows in _forest_groups(document):
        wide = forest(f"forest-{name}", rows, margin=margin, narrow=False)
        narrow = forest(f"forest-{name}-narrow", rows, margin=margin, narrow=True)
        caption = _caption(rows, margin=margin, most=MOST_ROWS)
        if any(is_interaction(row.effect) for row in rows):
            caption += " Interactions are drawn as half differences, on the same scale as main effects."
        found.append(ForestFigure(Markup(wide), Markup(narrow), caption, title))
    return found


def _forest_groups(document: Document) -> list[tuple[str, str, list[EffectRow]]]:
    """One forest a scale, all conditions beside each other; in a screen one a condition and response, largest first."""
    if not is_screen(document.trial.header.study):
        scales = [(scale, [r for r in document.primary if r.effect.scale is scale]) for scale in Scale]
        return [(scale.value, "", rows) for scale, rows in scales if rows]
    groups: dict[tuple[str, str], list[EffectRow]] = {}
    for row in document.primary:
        groups.setdefault((row.condition.key, row.effect.response), []).append(row)
    drawn = list(groups.values())[:MOST_CONDITIONS]
    titles = [f"{rows[0].condition.text}, {spoken(rows[0].effect.response)}" for rows in drawn]
    return [
        (f"screen-{i}", title if len(groups) > 1 else "", rows)
        for i, (title, rows) in enumerate(zip(titles, drawn, strict=True))
    ]


def _caption(rows: Sequence[EffectRow], *, margin: float, most: int) -> str:
    log = rows[0].effect.scale is Scale.LOG
    null = "1" if log else "0"
    text = f"An interval that does not touch {null} is an effect"
    if log:
        text += f"; one that stays inside the band is equivalent within {percent(margin)}"
    text += (
        ". A triangle points to less or more, a full dot is equivalent, a hollow one inconclusive; an arrow "
    )
    text += "means that the interval goes on."
    if len(rows) > most:
        text += f" The first {most} of {len(rows)} are drawn; the table has all."
    return text


def _panel(index: int, panel: Panel, *, most_marks: int, changes_s: Sequence[float]) -> PanelFigure:
    from markupsafe import Markup

    from iotrial.report.plots.small import distributions, runs_in_time

    said = [counted(panel.runs, "run")]
    if panel.void_blocks:
        said.append(f"{counted(panel.void_blocks, 'void block')} (×)")
    if panel.gaps_s:
        said.append("dashed: here the trial went on after an interruption")
    if changes_s:
        said.append("dotted: the level of the blocks changes")
    drawn = runs_in_time(f"runs-{index}", panel, most_points=most_marks, changes_s=changes_s)
    return PanelFigure(
        title=panel.condition.text,
        runs=Markup(drawn),
        runs_caption=", ".join(said),
        distribution=Markup(distributions(f"ecdf-{index}", panel)),
        distribution_caption=_medians(panel),
    )


def _medians(panel: Panel) -> str:
    """E.g. "Medians: 0777 211 µs, 0444 215 µs"."""
    treatments = [series for series in panel.series if not series.arm.is_control and series.counted.size]
    parts = [
        f"{elided(series.arm.label, 24)} {quantity(quantiles_of(series.counted)[2], panel.unit)}"
        for series in treatments[:_MOST_NAMED]
    ]
    return f"Medians of {spoken(panel.response)}: {', '.join(parts)}" if parts else "No run that counts"


def _latency(index: int, panel: LatencyPanel) -> LatencyFigure:
    from markupsafe import Markup

    from iotrial.report.plots.small import latencies

    tails = [
        f"{elided(arm.label, 24)} {quantity(histogram_quantile(latency, counts, 0.99), 'ns')}"
        for arm, latency, counts in panel.arms[:_MOST_NAMED]
    ]
    return LatencyFigure(
        f"{panel.operation}: {panel.condition.text}",
        Markup(latencies(f"latency-{index}", panel)),
        f"99 % of the operations took at most: {', '.join(tails)}",
    )


def _within(index: int, panel: WithinPanel) -> WithinFigure:
    from markupsafe import Markup

    from iotrial.report.plots.small import within_run

    runs = sum(curve.runs for curve in panel.curves)
    return WithinFigure(
        f"{panel.what}: {panel.condition.text}",
        Markup(within_run(f"within-{index}", panel)),
        f"Medians and middle halves of {counted(runs, 'run')}" + _changed(panel),
    )


def _changed(panel: WithinPanel) -> str:
    """Where levels change, e.g. "; dotted: changes of level (noatime after 34 s from 1.2 GB/s to 0.8 GB/s)"."""
    found = [
        f"{elided(curve.arm.label, 24)} after {format_duration(at_s)} from {quantity(before, panel.unit)} "
        f"to {quantity(after, panel.unit)}"
        for curve in panel.curves
        for at_s, before, after in curve.changes
    ]
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    return f"; dotted: changes of level ({', '.join(found[:_MOST_NAMED])}{more})" if found else ""


def _run_rows(panel: Panel) -> list[tuple[str, ...]]:
    rows = []
    for series in panel.series:
        values = series.counted
        if values.size:
            numbers = (quantity(value, panel.unit) for value in quantiles_of(values))
            rows.append((panel.condition.text, series.arm.label, f"{values.size:,}", *numbers))
    return rows


def _latency_rows(panel: LatencyPanel) -> list[tuple[str, ...]]:
    return [
        (
            panel.condition.text,
            panel.operation,
            arm.label,
            f"{int(counts.sum()):,}",
            *(quantity(histogram_quantile(latency, counts, share), "ns") for share in _SHARES),
        )
        for arm, latency, counts in panel.arms
    ]
