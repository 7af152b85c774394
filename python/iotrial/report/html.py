"""The report as one HTML file that opens offline: no remote resource, nothing loaded.

Every label goes through jinja2's autoescape; only figures made by the plots are inserted as they are. A content
security policy in the page says the same to the browser. There is no script, but one where there are surfaces, which
turns them; the policy knows it by its hash and forbids any other.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from hashlib import sha256
from html import escape
from importlib import resources
from typing import TYPE_CHECKING

from iotrial.design.model import ArmKind
from iotrial.legible import shown, shown_lines
from iotrial.report.claims import Outcome, grouped
from iotrial.report.data_links import LARGEST_PAGE, data_links, fitting
from iotrial.report.document import Document
from iotrial.report.evidence import EvidenceRow
from iotrial.report.figure import stem
from iotrial.report.figures import MOST_PANELS, Figures, draw_figures
from iotrial.report.glossary import GLOSSARY
from iotrial.report.metrics import words_of
from iotrial.report.moments import utc
from iotrial.report.notation import elided, percent
from iotrial.report.page_figures import READING as PAGES_READING
from iotrial.report.phrases import amount, interval, reason_in_words, spoken
from iotrial.report.plots.canvas import DASHES, arm_marker
from iotrial.report.run_figures import DISTRIBUTIONS_READING, LATENCY_READING, WITHIN_READING
from iotrial.report.screens import arms_are_rows, row_label
from iotrial.report.series import Arm
from iotrial.report.templating import environment
from iotrial.units import format_duration, format_ratio

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

MOST_LISTED = 200
#: how many rows a table has and how many conditions are drawn, until the page is small enough
ATTEMPTS = ((1_000_000, MOST_PANELS), (2000, MOST_PANELS), (400, MOST_PANELS), (100, 6))
MOST_CONDITIONS = 6
INTERACTION_LEDE = (
    "What one setting does to the effect of another. In tables and figures an interaction is half the difference of one "
    "factor’s effects at the two levels of the other, on the scale of the response, so that it compares with main "
    "effects; in sentences it is the whole difference, which for ratios is the square of that number."
)
_COPIED = re.compile(r"(<pre>.*?</pre>|<style>.*?</style>|<script>.*?</script>)", re.DOTALL)
_OUTCOME_CLASSES = {
    Outcome.CONFIRMED: "confirmed",
    Outcome.NOT_CONFIRMED: "contradicted",
    Outcome.CONTRADICTED: "contradicted",
    Outcome.COMPATIBLE: "partly",
    Outcome.SMALLER: "partly",
    Outcome.LARGER: "partly",
    Outcome.CANNOT_SAY: "open",
}


@dataclass(frozen=True, slots=True)
class _Cell:
    """One median of the evidence table."""

    text: str
    moved: str | None


def html_report(document: Document) -> str:
    """The whole page, of at most ``LARGEST_PAGE`` bytes: where a trial has more to say its tables are cut, then its figures,
    and the data of figures last get what room is left."""
    drawn: dict[int, Figures] = {}  # what is drawn once need not be drawn again for a shorter table
    for most_rows, most_panels in ATTEMPTS:
        if most_panels not in drawn:
            drawn[most_panels] = draw_figures(document, most_panels=most_panels)
        page = _Page(document, drawn[most_panels], most_rows)
        room = LARGEST_PAGE - len(page.text(room=0).encode("utf-8", "replace"))
        if room >= 0:
            break
    return page.text(room=room)


class _Page:
    """The page of one document with these figures and so many rows a table."""

    def __init__(self, document: Document, figures: Figures, most_rows: int) -> None:
        self._figures = figures
        header = document.trial.header
        treatments = [arm for arm in figures.arms if arm.kind is ArmKind.TREATMENT]
        by_level = arms_are_rows(header.study)
        turning = _turning() if any(one.scenes for matrix in figures.matrices for one in matrix.tests) else ""
        evidence = [] if by_level else _evidence(document.evidence, treatments)
        some = _first(evidence, most_rows)
        number = document.trial.number
        self._prefix = stem(shown(header.study.name), *([str(number)] if number else ()))
        self._links = data_links(figures.every(), prefix=self._prefix)
        self._told: dict[str, object] = {
            "d": document,
            "header": header,
            "started": _started(header.started),
            "arms": figures.arms,
            "treatments": treatments,
            "claims": grouped(document.claims),
            "figures": figures,
            "effects_lede": _effects_lede(document),
            "distributions_lede": DISTRIBUTIONS_READING,
            "within_lede": WITHIN_READING,
            "latency_lede": LATENCY_READING,
            "pages_lede": PAGES_READING,
            "accounted": bool(document.data.calls or document.data.requests),
            "evidence": some,
            "evidence_left_out": len(evidence) - len(some),
            "moved": _moved(document) if by_level else [],
            "interaction_lede": INTERACTION_LEDE,
            "sections": _sections(document, figures),
            "glossary": GLOSSARY,
            "most_rows": most_rows,
            "most_listed": MOST_LISTED,
            "most_conditions": MOST_CONDITIONS,
            "turning": turning,
            "turning_hash": script_hash(turning),
        }

    def text(self, *, room: int) -> str:
        """The page with the data of as many figures as fit into ``room`` (bytes)."""
        links = fitting(self._links, room)
        return _unbroken(_template().render(**self._told, links=links))


def _first(
    evidence: list[tuple[str, list[tuple[str, list[_Cell | None]]]]], most: int
) -> list[tuple[str, list[tuple[str, list[_Cell | None]]]]]:
    """The conditions whose tables together have at most so many cells, one at least."""
    cells = 0
    for place, (_, lines) in enumerate(evidence):
        cells += sum(len(row) for _, row in lines)
        if place and cells > most:
            return evidence[:place]
    return evidence


@cache
def _turning() -> str:
    """The script that turns surfaces, as the page holds it."""
    return resources.files("iotrial.report").joinpath("templates/turning.js").read_text("utf-8").strip()


def script_hash(script: str) -> str:
    """What a content security policy calls an inline script by; "" for none."""
    return f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}" if script else ""


def _unbroken(page: str) -> str:
    """No line break between a number and its per cent sign, except in what people copy."""
    parts = _COPIED.split(page)
    return "".join(part if i % 2 else part.replace(" %", "\u00a0%") for i, part in enumerate(parts))


@cache
def _template() -> Template:
    made = environment(
        "iotrial.report",
        shown=shown,
        shown_lines=shown_lines,
        spoken=spoken,
        elided=elided,
        interval=interval,
        percent=percent,
        ratio=format_ratio,
        reason=reason_in_words,
        p_value=_p_value,
        sentence=lambda text: f"{text[:1].upper()}{text[1:]}.",
        seconds=lambda at_s: "–" if at_s is None else format_duration(at_s),
        outcome_class=lambda outcome: _OUTCOME_CLASSES.get(outcome, "partly"),
        swatch=_swatch,
    )
    return made.get_template("report.html.j2")


def _started(started: str) -> str:
    try:
        return datetime.fromisoformat(utc(started)).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return shown(started)


def _p_value(p: float) -> str:
    return "< 0.0001" if p < 0.0001 else f"{p:.2g}"


def _effects_lede(document: Document) -> str:
    margin = percent(document.trial.header.margin)
    text = (
        "A ratio is the response at the level over the response at the reference: below 1 is less time. "
        f"Intervals hold at any time, so looking early costs nothing; the margin is {margin}."
    )
    return text if document.valid else f"The trial is invalid: these are no verdicts. {text}"


def _evidence(
    rows: Sequence[EvidenceRow], treatments: Sequence[Arm]
) -> list[tuple[str, list[tuple[str, list[_Cell | None]]]]]:
    """By condition: metric and one cell for each treatment."""
    tables: dict[str, dict[str, dict[str, EvidenceRow]]] = {}
    for row in rows:
        tables.setdefault(row.condition.text, {}).setdefault(row.metric, {})[row.treatment] = row
    found = []
    for condition, metrics in tables.items():
        lines = [(words_of(metric), _cells(by_arm, treatments)) for metric, by_arm in metrics.items()]
        found.append((condition, lines))
    return found


@dataclass(frozen=True, slots=True)
class _Moved:
    """One metric that moved with one setting."""

    condition: str
    metric: str
    setting: str
    at_reference: str
    cell: _Cell


def _moved(document: Document) -> list[_Moved]:
    """Of a screen only what moved: by metric, setting, and the values at the reference and at the level."""
    references: dict[tuple[str, str, str], EvidenceRow] = {}
    found = []
    factor_of = {
        row_label(factor.name, level.label): factor.name
        for factor in document.trial.header.study.treatment_factors
        for level in factor.levels
    }
    for row in document.evidence:
        key = (row.condition.key, row.metric, factor_of.get(row.treatment, ""))
        if row.is_reference:
            references[key] = row
        elif row.moved is not None and (reference := references.get(key)) is not None:
            found.append(
                _Moved(
                    row.condition.text,
                    words_of(row.metric),
                    row.treatment,
                    amount(reference.value, row.unit),
                    _Cell(amount(row.value, row.unit, relative_to=reference.value), row.moved),
                )
            )
    return found


def _cells(by_arm: dict[str, EvidenceRow], treatments: Sequence[Arm]) -> list[_Cell | None]:
    reference = next((row.value for row in by_arm.values() if row.is_reference), None)
    cells: list[_Cell | None] = []
    for arm in treatments:
        row = by_arm.get(arm.name)
        if row is None:
            cells.append(None)
            continue
        relative = None if row.is_reference or row.moved is None else reference
        cells.append(_Cell(amount(row.value, row.unit, relative_to=relative), row.moved))
    return cells


def _sections(document: Document, figures: Figures) -> list[tuple[str, str]]:
    losses = len(document.void) + len(document.failures)
    every = (
        ("facts", "Facts", bool(document.facts)),
        ("matrix", "Matrix", bool(figures.matrices)),
        ("effects", "Effects", bool(document.primary)),
        ("factors", "Factors", bool(figures.factorial)),
        ("runs", "Runs in time", bool(figures.panels)),
        ("distributions", "Distributions", bool(figures.panels)),
        ("pages", "Pages", bool(figures.pages)),
        ("within", "Within a run", bool(figures.within)),
        ("latency", "Latency", bool(figures.latencies)),
        ("evidence", "Evidence", bool(document.evidence)),
        ("other", "Other responses", bool(document.exploratory)),
        ("controls", "Controls", True),
        ("losses", f"Void and failed ({losses})" if losses else "Void and failed", True),
        ("diagnostics", "Diagnostics", bool(document.diagnostics or document.analysis.notes)),
        ("plan", "Plan", True),
        ("machine", "Machine", True),
        ("again", "Run again", True),
        ("words", "Words", True),
    )
    return [(name, title) for name, title, there in every if there]


def _swatch(arm: Arm) -> Markup:
    """The arm's line and marker as the figures draw them."""
    from markupsafe import Markup

    colour = "var(--muted)" if arm.is_control else f"var(--arm-{arm.position % 8})"
    pattern = DASHES[2 + arm.position % 2 if arm.is_control else arm.position % len(DASHES)][1]
    dash = f' stroke-dasharray="{" ".join(f"{1.5 * part:g}" for part in pattern)}"' if pattern else ""
    fill = "none" if arm.is_control else colour
    shape = _SHAPES[arm_marker(arm.position)]
    return Markup(
        f'<svg viewBox="0 0 34 12" aria-hidden="true"><path d="M0 6H34" stroke="{escape(colour)}" stroke-width="1.6"{dash}/>'
        f'<path d="{shape}" fill="{fill}" stroke="{escape(colour)}"/></svg>'
    )


# Markers of the figures as paths around (17, 6).
_SHAPES = {
    "o": "M13.5 6a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z",
    "s": "M13.8 2.8h6.4v6.4h-6.4z",
    "^": "M17 2l4 7.5h-8z",
    "v": "M17 10l4-7.5h-8z",
    "D": "M17 1.6l4.4 4.4l-4.4 4.4l-4.4-4.4z",
    "P": "M15.5 2h3v2.5h2.5v3h-2.5v2.5h-3v-2.5h-2.5v-3h2.5z",
    "X": "M14 2l3 3l3-3l1.5 1.5l-2.8 2.5l2.8 2.5l-1.5 1.5l-3-3l-3 3l-1.5-1.5l2.8-2.5l-2.8-2.5z",
    "p": "M17 2l4 3l-1.5 4.6h-5l-1.5-4.6z",
}
