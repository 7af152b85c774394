"""The audit as lines of text and of Markdown: the same sections, sentences and table."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from iotrial.analysis.audit.model import Audit, Comparison, Interval
from iotrial.legible import shown
from iotrial.report.audit.sentences import REASONS, SHOWS, claims, condition_text, findings, needs, summary
from iotrial.report.audit.studies import Answer
from iotrial.report.markdown import escaped
from iotrial.report.notation import counted, elided, percent
from iotrial.units import format_ratio

MOST_ROWS = 60
_COLUMNS = (
    "response, condition",
    "group : reference",
    "n",
    "ratio",
    "Welch 95 %",
    "shared",
    "ranks 95 %",
    "shows",
)


def text_lines(audit: Audit, answer: Answer | None) -> Iterator[str]:
    """The audit for a terminal."""
    yield f"{shown(audit.dataset.name)} ({shown(audit.dataset.form)}): {_extent(audit)}"
    if audit.dataset.title:
        yield shown(audit.dataset.title)
    yield ""
    yield summary(audit)
    rows = [_cells(one) for one in audit.comparisons[:MOST_ROWS]]
    if rows:
        names = _names(audit)
        widths = [max(len(row[i]) for row in [names, *rows]) for i in range(len(names))]
        yield ""
        for row in (names, *rows):
            yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        if len(audit.comparisons) > MOST_ROWS:
            yield f"... {len(audit.comparisons) - MOST_ROWS} more rows (--json has all)"
        for line in _key(audit):
            yield from textwrap.wrap(line, 110)
    for title, sentences in _sections(audit, answer):
        yield ""
        yield title
        for sentence in sentences:
            yield from _wrapped(sentence)


def markdown_lines(audit: Audit, answer: Answer | None, *, heading: str = "##") -> Iterator[str]:
    """The audit as a section of Markdown."""
    yield f"{heading} {escaped(audit.dataset.title or audit.dataset.name)}"
    yield ""
    yield f"{escaped(_extent(audit))}. {escaped(summary(audit))}"
    yield ""
    rows = [_cells(one) for one in audit.comparisons[:MOST_ROWS]]
    if rows:
        names = _names(audit)
        yield "| " + " | ".join(names) + " |"
        yield "|" + " --- |" * len(names)
        for row in rows:
            yield "| " + " | ".join(escaped(cell) for cell in row) + " |"
        yield ""
        for line in _key(audit):
            yield escaped(line)
        yield ""
    for title, sentences in _sections(audit, answer):
        yield f"**{title}**"
        yield ""
        for sentence in sentences:
            yield f"- {escaped(sentence)}"
        yield ""


def _sections(audit: Audit, answer: Answer | None) -> Iterator[tuple[str, Sequence[str]]]:
    for title, sentences in (
        ("Published numbers, recomputed", claims(audit)),
        ("What the data say about themselves", findings(audit)),
        ("What a sufficient trial would have needed (randomised blocks, four trials in five)", needs(audit)),
        ("Known of this table", [shown(note) for note in audit.dataset.notes]),
    ):
        if sentences:
            yield title, sentences
    if answer is not None:
        yield "The study that would answer it", [f"{answer.command}: {answer.question}"]


def _extent(audit: Audit) -> str:
    parts = [counted(len(audit.dataset.observations), "number"), counted(len(audit.groups), "group")]
    if audit.reference is not None:
        parts.append(f"reference {shown(audit.reference)}")
    return ", ".join(parts)


def _names(audit: Audit) -> tuple[str, ...]:
    level = percent(1.0 - audit.alpha)
    return tuple(name.replace("95 %", level) for name in _COLUMNS)


def _cells(one: Comparison) -> tuple[str, ...]:
    where = condition_text(one.condition, one.series)
    shows = SHOWS[one.standing]
    if one.reasons:
        shows += f" ({'; '.join(REASONS[reason] for reason in one.reasons)})"
    return (
        elided(f"{shown(one.response)}{', ' if where else ''}{where}", 70),
        elided(f"{shown(one.group)} : {shown(one.reference)}", 50),
        f"{one.n}, {one.n_reference}" if one.n != one.n_reference else str(one.n),
        "–" if one.ratio is None else format_ratio(one.ratio),
        _interval(one.welch),
        _interval(one.shared),
        _interval(one.rank),
        shows,
    )


def _interval(interval: Interval) -> str:
    if interval.low is None or interval.high is None:
        return "none"
    return f"{format_ratio(interval.low)} to {format_ratio(interval.high)}"


def _key(audit: Audit) -> Iterator[str]:
    if not any(one.welch.bounded for one in audit.comparisons):
        return
    yield (
        "Ratio of geometric means. Welch: t interval on logarithms, for independent values. shared: the same, with alpha "
        "divided by the number of comparisons of the response. ranks: "
        "Hodges-Lehmann with exact ranks, for independent values of equal shapes. "
        "None of them survives noise that depends on time."
    )


def _wrapped(sentence: str, width: int = 110) -> Iterator[str]:
    line = "- "
    for word in sentence.split(" "):
        if len(line) + len(word) + 1 > width and line.strip(" -"):
            yield line.rstrip()
            line = "  "
        line += word + " "
    yield line.rstrip()
