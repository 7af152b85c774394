"""A trial: its question, its results and the underlying data. Analysed once, on first use."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from iotrial.errors import UnknownName
from iotrial.library.display import Card, Displayed, html, text
from iotrial.library.effects import Controls, Effects, control_of, effect_of, forests
from iotrial.library.findings import Claims, EvidenceTable, evidence_of
from iotrial.library.runs import Contrasts, Runs, contrasts_of, runs_of
from iotrial.library.study import Study, of_declaration
from iotrial.report.jsonreport import report_json
from iotrial.report.notation import counted, utc
from iotrial.report.render import html_report, markdown_report
from iotrial.report.rows import with_cells
from iotrial.report.sentences import controls_line
from iotrial.store.model import StoredTrial
from iotrial.units import format_duration

if TYPE_CHECKING:
    from pandas import DataFrame

    from iotrial.report.document import Document

Frame = Literal["runs", "contrasts", "effects", "controls", "evidence", "claims"]
FRAMES: tuple[Frame, ...] = ("runs", "contrasts", "effects", "controls", "evidence", "claims")
_MOST_ROWS = 24


class Trial(Displayed):
    """One trial. Made by ``trial``, ``trials``, ``open`` and ``run``.

    What a listing shows (name, state, times) is available at once. The first access to results reads and
    analyses all runs, which takes from a tenth of a second to some ten seconds, and caches the result; it
    raises StoreError if the trial is damaged.
    """

    def __init__(self, stored: StoredTrial, load: Callable[[], Document], *, number: int | None) -> None:
        self._stored = stored
        self._load = load
        self._number = number

    @cached_property
    def document(self) -> Document:
        """The complete report, as used inside iotrial; not part of the stable API."""
        return self._load()

    # -- what was run

    @property
    def number(self) -> int | None:
        """Its number in the store; None if it is in no store."""
        return self._number

    @property
    def id(self) -> str:
        """Its globally unique id."""
        return self._stored.header.id

    @property
    def study(self) -> Study:
        """The study as it was run, with the selected levels and margin."""
        return of_declaration(self._stored.header.study, of_trial=True)

    @property
    def state(self) -> str:
        """State of the trial: "done", "interrupted", "failed", "invalid" or "running"."""
        return self._stored.state.value

    @property
    def started(self) -> datetime:
        """Start time in UTC. Raises ValueError if the stored value is not a time."""
        return datetime.fromisoformat(utc(self._stored.header.started))

    @property
    def duration_s(self) -> float:
        """Duration in seconds."""
        return self._stored.duration_s

    @property
    def imported(self) -> str | None:
        """Source of a trial that was measured elsewhere (file and digest), else None."""
        return self._stored.imported

    @property
    def seed(self) -> str:
        """The seed of its plan: 32 hexadecimal digits."""
        return self._stored.header.seed

    @property
    def alpha(self) -> float:
        """The error level shared by all primary effects."""
        return self._stored.header.alpha

    @property
    def margin(self) -> float:
        """The smallest relative effect that matters, .03 for 3 %."""
        return self._stored.header.margin

    # -- results

    @property
    def verdict(self) -> str:
        """The whole trial in one sentence, including whether it is invalid or was interrupted."""
        return self.document.summary.headline

    @property
    def details(self) -> tuple[str, ...]:
        """What a reader must know in addition to the verdict, in sentences."""
        return self.document.summary.details

    @property
    def valid(self) -> bool:
        """Whether it may give verdicts: its controls passed."""
        return self.document.valid

    @cached_property
    def effects(self) -> Effects:
        """All effects, those that verdicts are based on first (``effects.primary``)."""
        rows = map(effect_of, with_cells(self.document.effects))
        return Effects(rows, self._facts, self._orders, margin=self.margin, name=self._drawing)

    @cached_property
    def controls(self) -> Controls:
        """The controls; empty if they were off."""
        return Controls(map(control_of, self.document.controls), self._facts, self._orders)

    @cached_property
    def claims(self) -> Claims:
        """The claims of the study, compared with the results."""
        return Claims(self.document.claims, self._facts, self._orders)

    @cached_property
    def evidence(self) -> EvidenceTable:
        """What else was measured and counted, and which of it moved."""
        return EvidenceTable(evidence_of(self.document.evidence), self._facts, self._orders)

    @cached_property
    def runs(self) -> Runs:
        """Every run in time order, including those that do not count."""
        responses = self._stored.header.study.responses
        return Runs(runs_of(self.document), self._facts, self._orders, responses=responses)

    @cached_property
    def contrasts(self) -> Contrasts:
        """The contrasts on which primary effects are based: one number per block."""
        return Contrasts(contrasts_of(self.document), self._facts, self._orders)

    @property
    def machine(self) -> Mapping[str, str]:
        """Facts about the machine in words, by name."""
        return MappingProxyType(dict(self.document.machine))

    @property
    def lab(self) -> Mapping[str, str]:
        """Where it ran: places and their settings in words, by name."""
        return MappingProxyType(dict(self.document.lab))

    @property
    def rerun(self) -> str:
        """The command that runs the same plan again."""
        return self.document.rerun

    # -- other formats

    def frame(self, what: Frame = "runs") -> DataFrame:
        """Return a pandas data frame of its "runs", "contrasts", "effects", "controls", "evidence" or "claims".

        ``attrs`` has the trial's id and study, and in ``units`` the unit of each column that has one. Raises
        RequestError if pandas is missing, and UnknownName for another name.
        """
        if what not in FRAMES:
            raise UnknownName("frame", str(what), FRAMES)
        tables = {
            "runs": lambda: self.runs.frame(),
            "contrasts": lambda: self.contrasts.frame(),
            "effects": lambda: self.effects.frame(),
            "controls": lambda: self.controls.frame(),
            "evidence": lambda: self.evidence.frame(),
            "claims": lambda: self.claims.frame(),
        }
        return tables[what]()

    def report(self) -> str:
        """Return the report as one HTML page that works offline."""
        return html_report(self.document)

    def markdown(self) -> str:
        """Return the report as Markdown, for example for a pull request."""
        return markdown_report(self.document)

    def json(self) -> dict[str, object]:
        """Return the report as plain objects: what ``iotrial report --json`` prints (schemas/report.schema.json)."""
        return report_json(self.document)

    @property
    def _facts(self) -> dict[str, object]:
        header = self._stored.header
        return {
            "trial": header.id,
            "study": header.study.name,
            "margin": header.margin,
            "alpha": header.alpha,
        }

    @property
    def _orders(self) -> dict[str, tuple[str, ...]]:
        """The labels of each factor, the reference of a treatment first."""
        return {
            factor.name: tuple(dict.fromkeys((factor.reference, *factor.levels)))
            if factor.role == "treatment"
            else factor.levels
            for factor in self.study.factors
        }

    @property
    def _drawing(self) -> str:
        """Prefix of the ids in its figures; a hash, since an imported trial may have any id."""
        return f"trial-{hashlib.sha256(self.id.encode('utf-8', 'replace')).hexdigest()[:12]}"

    # -- display

    def __repr__(self) -> str:
        header = self._stored.header
        which = "Trial" if self.number is None else f"Trial {self.number}"
        sentence = f': "{self.verdict}"' if "document" in self.__dict__ else ""
        return f"<{text(Card(f'{which} of {header.study.name}, {header.started[:10]}, {self.state}{sentence}'))}>"

    def __str__(self) -> str:
        return text(self._card())

    def _repr_html_(self) -> str:
        rows = self._drawn
        return html(self._card(forests(self._drawing, [one.row for one in rows], margin=self.margin)))

    @cached_property
    def _drawn(self) -> Effects:
        return self.effects.primary[:_MOST_ROWS]

    @property
    def _on_controls(self) -> str:
        """The result of the controls, in the report's words; empty for facts, which have no controls that could fail."""
        if not self.document.with_controls:
            return "There were no controls."
        if failed := sum(not one.passed for one in self.controls):
            return f"{failed} of {counted(len(self.controls), 'control')} failed."
        line = controls_line(self.document.analysis.controls, self._stored.header.study)
        return f"Controls: {line}." if line else ""

    def _card(self, figures: tuple[str, ...] = ()) -> Card:
        document = self.document
        which = "Trial" if self.number is None else f"Trial {self.number}"
        header = self._stored.header
        title = (
            f"{which}: {document.title}, {header.started[:10]}, {self.state}, "
            f"{counted(len(document.data.runs), 'run')} in {format_duration(self.duration_s)}"
        )
        lost = (
            f"{counted(len(document.void), 'block')} void, {counted(len(document.failures), 'failed run')}."
        )
        trust = f"{self._on_controls} {lost}".strip()
        drawn = self._drawn
        heads, rows = drawn.listed()
        invalid = () if self.valid else ("The trial is invalid: the table shows no verdicts.",)
        return Card(
            title=title,
            lead=self.verdict,
            lines=(header.study.question, trust, *invalid),
            figures=figures,
            heads=heads,
            rows=rows,
            left_out=len(self.effects.primary) - len(drawn),
        )
