"""Audit existing numbers: ``iotrial audit`` on a file, on columns of numbers or on a data frame."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iotrial.audits import model
from iotrial.audits.audit import audit as audited
from iotrial.audits.claims import parse_claim
from iotrial.audits.importers import read
from iotrial.audits.importers.contract import (
    MAX_OBSERVATIONS,
    ReadOptions,
    Source,
    open_source,
    source_of,
)
from iotrial.errors import RequestError
from iotrial.library.display import Card, html
from iotrial.library.table import Column, Table, fields
from iotrial.report.audit import sentences
from iotrial.report.audit.blocks import audit_markdown, audit_text
from iotrial.report.audit.jsonaudit import audit_json
from iotrial.report.audit.studies import answering
from iotrial.units import format_ratio, measured

if TYPE_CHECKING:
    from pandas import DataFrame

Numbers = Sequence[float]
VALUE = "value"


#: A group compared with the reference under one condition. ``ratio`` is a ratio of geometric means, ``low`` and ``high`` its
#: t interval on logarithms, with alpha shared by all comparisons of the response. The interval assumes that the values are
#: independent of each other and of time; ``standing`` and ``reasons`` say how far that can be relied on.
Comparison = model.AuditedPair


class Comparisons(Table[Comparison]):
    """All groups compared with the reference."""

    noun = "comparison"
    heads = ("response, condition", "group : reference", "n", "ratio [interval]", "shows")

    def _cells(self, row: Comparison) -> tuple[str, ...]:
        at = ", ".join((row.response, *(f"{name} {label}" for name, label in row.place.items())))
        n = f"{row.n}" if row.n == row.n_reference else f"{row.n}, {row.n_reference}"
        numbers = "–" if row.ratio is None else format_ratio(row.ratio)
        if row.low is not None and row.high is not None:
            numbers += f" [{format_ratio(row.low)}, {format_ratio(row.high)}]"
        shows = f"{_shows(row)} ({_reasons(row)})" if row.reasons else _shows(row)
        return at, f"{row.group} : {row.reference}", n, numbers, shows

    def _columns(self) -> list[Column[Comparison]]:
        fixed: list[Column[Comparison]] = [
            *fields("label", "group", "reference", "response", "unit"),
            *fields("count", "n", "n_reference"),
            *fields("number", "ratio", "low", "high"),
            Column("standing", "label", _shows),
            Column("reasons", "text", _reasons),
        ]
        return self._with_conditions(fixed, at=4, of="place")


def _shows(row: Comparison) -> str:
    return sentences.SHOWS[row.standing]


def _reasons(row: Comparison) -> str:
    return "; ".join(sentences.REASONS[reason] for reason in row.reasons)


class Audit:
    """What some numbers can and cannot show; made by ``audit``."""

    def __init__(self, found: model.Audit) -> None:
        self._found = found
        self._answer = answering(found)

    @property
    def summary(self) -> str:
        """The whole audit in one or two sentences."""
        return sentences.summary(self._found)

    @property
    def reference(self) -> str | None:
        """The group that the others are compared with; None if there is only one group."""
        return self._found.reference

    @property
    def comparisons(self) -> Comparisons:
        """All groups compared with the reference."""
        facts: dict[str, object] = {"alpha": self._found.alpha, "margin": self._found.margin}
        return Comparisons(self._found.comparisons, facts)

    @property
    def findings(self) -> tuple[str, ...]:
        """Findings about the data, most important first: order, heaping, first runs, repeats, rounding."""
        return tuple(sentences.findings(self._found))

    @property
    def needs(self) -> tuple[str, ...]:
        """What a randomised trial would need to answer the question."""
        return tuple(sentences.needs(self._found))

    @property
    def claims(self) -> tuple[str, ...]:
        """The given published numbers, recomputed."""
        return tuple(sentences.claims(self._found))

    def json(self) -> dict[str, Any]:
        """Return the audit as plain objects: what ``iotrial audit --json`` prints (schemas/audit.schema.json)."""
        return audit_json(self._found, self._answer)

    def markdown(self) -> str:
        """Return the audit as Markdown."""
        return audit_markdown(self._found, self._answer)

    def __repr__(self) -> str:
        return f"<Audit of {len(self._found.dataset.observations):,} numbers: {self.summary}>"

    def __str__(self) -> str:
        return audit_text(self._found, self._answer)

    def _repr_html_(self) -> str:
        rows = self.comparisons._card()
        lines = (*self.claims, *self.findings, *self.needs)
        card = Card("Audit", self.summary, lines, heads=rows.heads, rows=rows.rows, left_out=rows.left_out)
        return html(card)

    def _repr_markdown_(self) -> str:
        return self.markdown()


def audit(
    data: str | os.PathLike[str] | Mapping[str, Numbers] | DataFrame,
    *,
    group: str | None = None,
    values: Sequence[str] = (),
    unit: str | None = None,
    conditions: Sequence[str] = (),
    order: str | None = None,
    reference: str | None = None,
    claims: Sequence[str] = (),
    decimal: str | None = None,
    alpha: float = 0.05,
    margin: float = 0.03,
) -> Audit:
    """Report what these numbers can and cannot show, however they were measured.

    ``data`` is a file that ``iotrial audit`` reads (CSV, hyperfine, fio, iozone, bonnie++, strace -c), a data
    frame with such a table, or a mapping from each treatment to its numbers in the order in which they were
    measured.

    ``group``, ``values``, ``conditions`` and ``order`` name columns; ``order="rows"`` says that the rows are
    in time order, without which nothing can be said about time. ``reference`` is the group that the others
    are compared with, ``claims`` are published numbers such as "noatime 53.67 % of strictatime". ``unit``
    applies to numbers without one; ``decimal`` ("comma" or "point") is the decimal mark of a file, if its
    numbers are ambiguous.

    Raises RequestError for unreadable data, and UnknownName for a reference that is not a group.
    """
    if not 0.0 < alpha < 1.0 or not margin > 0.0:
        raise RequestError(
            f"audit: expected alpha between 0 and 1 and margin above 0, found {alpha}, {margin}"
        )
    if isinstance(data, Mapping):
        dataset = _of_groups(data, unit or "1", reference, claims)
    else:
        options = ReadOptions(
            group=group,
            values=tuple(values),
            unit=unit,
            conditions=tuple(conditions),
            order=order,
            reference=reference,
            claims=tuple(claims),
            decimal=decimal,
        )
        table = not isinstance(data, str | os.PathLike)
        dataset = read([_source(data)], options, form="csv" if table else None)
    return Audit(audited(dataset, alpha=alpha, margin=margin))


def _source(data: Any) -> Source:
    if isinstance(data, str | os.PathLike):
        name = os.fspath(data)
        return open_source(Path(name).expanduser(), name=name, label=None, alone=True)
    if not hasattr(data, "to_csv"):
        hint = "e.g. audit('numbers.csv'), or audit({'off': [1.2, 1.3], 'on': [1.1, 1.2]})"
        raise RequestError(
            f"audit: expected a file, a data frame or a mapping, found {type(data).__name__}", hint=hint
        )
    return source_of(
        data.to_csv(index=False, float_format=_digits).encode("utf-8", "replace"), name="data frame"
    )


def _of_groups(
    groups: Mapping[str, Numbers], unit: str, reference: str | None, claims: Sequence[str]
) -> model.Dataset:
    observations = tuple(_observed(groups, unit))
    if not observations or len(observations) > MAX_OBSERVATIONS:
        raise RequestError(f"audit: expected 1 to {MAX_OBSERVATIONS:,} numbers, found {len(observations):,}")
    parsed = tuple(map(parse_claim, claims))
    return model.Dataset("numbers", "values by group", observations, reference=reference, claims=parsed)


def _observed(groups: Mapping[str, Numbers], unit: str) -> Iterator[model.Observation]:
    step = _step(float(number) for numbers in groups.values() for number in numbers)
    for name, numbers in groups.items():
        for run, number in enumerate(numbers):
            value = measured(float(number))
            if value is None:
                raise RequestError(
                    f'audit: group "{name}": expected numbers between 1e-100 and 1e100, or 0; found {number}',
                    hint="leave out what was not measured, and say so when you publish",
                )
            yield model.Observation(str(name), VALUE, unit, value, run=run, step=step)


def _step(numbers: Iterable[float]) -> float | None:
    """Return the last decimal place that any of the numbers needs; None if one needs an exponent."""
    texts = [_digits(number) for number in numbers]
    if any("e" in text for text in texts):
        return None
    return 10.0 ** -max((len(text.partition(".")[2]) for text in texts), default=0)


def _digits(number: float) -> str:
    """Return the digits that a number needs: 1.0 may as well have been measured in whole seconds as 1."""
    return repr(float(number)).removesuffix(".0")
