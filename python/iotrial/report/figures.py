"""All figures of a page, by section, with the tables behind them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from iotrial.report.blocks import Block, Drawn, Note, Panels, Section, View, table
from iotrial.report.document import Document
from iotrial.report.effect_figures import FactorialFigures, effect_figures, factorial_figures
from iotrial.report.evidence import histogram_quantile
from iotrial.report.figure import Figure
from iotrial.report.findings import arms_are_rows, strength
from iotrial.report.matrix_figures import MatrixFigures, matrix_figures
from iotrial.report.notation import quantity
from iotrial.report.race import race_figures
from iotrial.report.rows import EffectRow
from iotrial.report.run_figures import (
    DISTRIBUTIONS_READING,
    LATENCY_READING,
    WITHIN_READING,
    PanelFigures,
    latency_figure,
    panel_figures,
    within_figure,
)
from iotrial.report.series import (
    Arm,
    LatencyPanel,
    Panel,
    arms_of,
    latencies_of,
    panels_of,
    quantiles_of,
)
from iotrial.report.windows import window_figures
from iotrial.report.within import within_of
from iotrial.stats.model import Verdict
from iotrial.terminal import escape

MOST_PANELS = 24
# Limit the marks over all panels, to keep the page below a few megabytes.
_MARKS = 8_000
_LEAST_MARKS, _MOST_MARKS = 240, 1500
_SHARES = (0.5, 0.9, 0.99, 0.999, 1.0)


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures of a report."""

    arms: tuple[Arm, ...]
    forests: tuple[Figure, ...]
    panels: tuple[PanelFigures, ...]
    panels_left_out: int
    latencies: tuple[Figure, ...]
    latencies_left_out: int
    run_rows: tuple[tuple[str, ...], ...]
    latency_rows: tuple[tuple[str, ...], ...]
    runs_reading: str
    factorial: tuple[FactorialFigures, ...] = ()
    matrices: tuple[MatrixFigures, ...] = ()
    within: tuple[Figure, ...] = ()
    within_left_out: int = 0
    races: tuple[Figure, ...] = ()
    windows: tuple[Figure, ...] = ()

    def every(self) -> Iterator[Figure]:
        """Yield each figure, in the order of the page."""
        yield from self.races
        for matrix in self.matrices:
            yield from matrix.every()
        yield from self.forests
        for group in self.factorial:
            yield from group.every()
        yield from self.windows
        for panel in self.panels:
            yield panel.runs
        for panel in self.panels:
            yield panel.distribution
        yield from self.within
        yield from self.latencies


def draw_figures(document: Document, *, most_panels: int | None = MOST_PANELS) -> Figures:
    """Return all figures of the document; each is drawn lazily.

    ``most_panels`` limits the number of conditions (and operations, and background activities) drawn, to limit the size
    of a page; None draws all.
    """
    by = _stands_for_arms(document)
    arms = arms_of(document.data, by)
    panels = panels_of(document.data, document.conditions, arms, by)
    latencies = latencies_of(document.data, document.conditions, arms, by)
    within = within_of(document.data, document.conditions, arms, by)
    drawn = _chosen(panels, document.primary, most_panels)
    diagnostics = {row.condition.key: row.finding for row in document.diagnostics}
    most_marks = min(_MOST_MARKS, max(_LEAST_MARKS, _MARKS // max(1, len(drawn))))
    step = max((-(-panel.runs // most_marks) for panel in drawn), default=1)
    reading = _runs_reading(by, step)
    return Figures(
        arms=arms,
        forests=effect_figures(document),
        panels=tuple(
            panel_figures(
                i,
                panel,
                arms,
                most_marks=most_marks,
                diagnostic=diagnostics.get(panel.condition.key),
                reading=reading,
            )
            for i, panel in enumerate(drawn)
        ),
        panels_left_out=len(panels) - len(drawn),
        latencies=tuple(latency_figure(i, panel, arms) for i, panel in enumerate(latencies[:most_panels])),
        latencies_left_out=max(0, len(latencies) - (most_panels or len(latencies))),
        run_rows=tuple(row for panel in panels for row in _run_rows(panel)),
        latency_rows=tuple(row for panel in latencies for row in _latency_rows(panel)),
        runs_reading=reading,
        factorial=factorial_figures(document),
        matrices=matrix_figures(document),
        within=tuple(within_figure(i, panel, arms) for i, panel in enumerate(within[:most_panels])),
        within_left_out=max(0, len(within) - (most_panels or len(within))),
        races=race_figures(document),
        windows=window_figures(document),
    )


def _stands_for_arms(document: Document) -> str | None:
    """Return the factor with the levels to draw if there are too many arms to distinguish."""
    return largest_factor(document) if arms_are_rows(document.trial.header.study) else None


def largest_factor(document: Document) -> str | None:
    """Return the factor with the largest primary effect; None if there is no such effect."""
    known = {factor.name for factor in document.trial.header.study.treatment_factors}
    effects = (row.effect for row in document.primary if row.effect.kind == "main")
    largest = max((effect for effect in effects if effect.factor in known), key=strength, default=None)
    return None if largest is None else largest.factor


def _chosen(panels: Sequence[Panel], effects: Sequence[EffectRow], most: int | None) -> list[Panel]:
    """Return all panels; if there are too many, prefer those with an effect."""
    if most is None or len(panels) <= most:
        return list(panels)
    loud = {row.condition.key for row in effects if row.effect.verdict is not Verdict.EQUIVALENT}
    kept = sorted(panels, key=lambda panel: panel.condition.key not in loud)[:most]
    return sorted(kept, key=lambda panel: panel.condition.order)


def _runs_reading(by: str | None, step: int) -> str:
    text = (
        "Each mark is one run, at its start time; lines are running medians of the treatments. Arms that rise "
        "and fall together show drift, which blocking removes; arms that separate show an effect."
    )
    if by is not None:
        text = (
            "Each mark is one run, at its start time. There are too many treatments to show separately, so they "
            f"are coloured by the level of {escape(by)} (largest effect); all other settings vary "
            "within both. Lines are running medians; levels that rise and fall together show drift, which blocking removes."
        )
    if step > 1:
        text += f" To keep the page small, as few as one run in {step} is drawn; the lines and the data use all runs."
    return text


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


# blocks


def runs_sections(drawn: Figures) -> Iterator[Section]:
    """Yield figures of runs: in order of time, as distributions, within a run and by operation."""
    treatments = tuple(arm for arm in drawn.arms if not arm.is_control)
    if drawn.panels:
        time = tuple(
            Drawn.of(one.runs, title=one.title, more=one.marks, reading=False) for one in drawn.panels
        )
        spread = tuple(Drawn.of(one.distribution, title=one.title, reading=False) for one in drawn.panels)
        quantiles = (">runs", ">5 %", ">25 %", ">median", ">75 %", ">95 %")
        rows = table(("~condition", "~arm", *quantiles), drawn.run_rows)
        blocks: list[Block] = [
            Panels(time, drawn.arms),
            *_left_out(drawn.panels_left_out),
            Section(
                "Distributions",
                (Panels(spread),),
                id="distributions",
                lede=DISTRIBUTIONS_READING,
                view=View.PAGE,
            ),
            Section("Runs as a table", (rows,), folded=True, view=View.PAGE),
        ]
        yield Section(
            "Runs in order of time",
            tuple(blocks),
            id="runs",
            lede=drawn.runs_reading,
            folded=True,
            view=View.PAGE,
        )
    if drawn.within:
        blocks = [Panels(Drawn.all_of(drawn.within), treatments), *_left_out(drawn.within_left_out)]
        yield Section(
            "Within a run", tuple(blocks), id="within", lede=WITHIN_READING, folded=True, view=View.PAGE
        )
    if drawn.latencies:
        quantiles = (">operations", ">median", ">90 %", ">99 %", ">99.9 %", ">longest")
        rows = table(("~condition", "operation", "~arm", *quantiles), drawn.latency_rows)
        blocks = [
            Panels(Drawn.all_of(drawn.latencies), treatments),
            *_left_out(drawn.latencies_left_out, "combinations of operation and condition"),
            Section("Latencies as a table", (rows,), folded=True, view=View.PAGE),
        ]
        title = "Latency of single operations"
        yield Section(
            title,
            tuple(blocks),
            id="latency",
            lede=LATENCY_READING,
            folded=True,
            view=View.PAGE,
        )


def _left_out(number: int, what: str = "conditions") -> Iterator[Note]:
    if number:
        yield Note(f"{number} more {what} are not drawn; the tables have their numbers.", view=View.PAGE)
