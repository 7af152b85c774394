"""An audit as report blocks: its answer, every comparison, and what the data reveal about themselves."""

from __future__ import annotations

from collections.abc import Iterator

from iotrial.audits.model import Audit, Comparison, Interval
from iotrial.report.audit.sentences import REASONS, SHOWS, claims, condition_text, findings, needs, summary
from iotrial.report.audit.studies import Answer
from iotrial.report.blocks import Block, Note, Report, Section, table
from iotrial.report.markdown import markdown
from iotrial.report.notation import counted, elided, percent
from iotrial.report.text import plain_lines
from iotrial.terminal import escape
from iotrial.units import format_ratio

_WIDTH = 110
_COLUMNS = (
    "~response, condition",
    "~group : reference",
    ">n",
    ">ratio",
    "Welch 95 %",
    "shared",
    "ranks 95 %",
    "~shows",
)
_KEY = (
    "Ratio of geometric means. Welch: t interval on logarithms, for independent values. shared: the same, with alpha "
    "divided by the number of comparisons of the response. ranks: "
    "Hodges-Lehmann with exact ranks, for independent values of equal shapes. "
    "None of them survives noise that depends on time."
)


def audit_text(audit: Audit, answer: Answer | None) -> str:
    """Format the audit for a terminal."""
    title = [escape(audit.dataset.title), ""] if audit.dataset.title else []
    return "\n".join([*title, *plain_lines(audit_report(audit, answer), width=_WIDTH)])


def audit_markdown(audit: Audit, answer: Answer | None, *, heading: str = "##") -> str:
    """Format the audit as a section of Markdown, ending in a newline."""
    return markdown(audit_report(audit, answer), heading=heading)


def audit_report(audit: Audit, answer: Answer | None) -> Report:
    """Build the report of an audit. ``answer`` is the study that would answer its question, if there is one."""
    data = audit.dataset
    return Report(
        title=escape(data.title or data.name),
        headline=summary(audit),
        tone="",
        blocks=tuple(_blocks(audit, answer)),
    )


def _blocks(audit: Audit, answer: Answer | None) -> Iterator[Block]:
    data = audit.dataset
    yield Note(f"{escape(data.name)} ({escape(data.form)}): {_extent(audit)}.")
    if audit.comparisons:
        names = (name.replace("95 %", percent(1.0 - audit.alpha)) for name in _COLUMNS)
        key = _KEY if any(one.welch.bounded for one in audit.comparisons) else ""
        yield table(names, map(_cells, audit.comparisons), note=key)
    for title, sentences in (
        ("Published numbers, recomputed", claims(audit)),
        ("What the data say about themselves", findings(audit)),
        ("What a sufficient trial would have needed (randomised blocks, four trials in five)", needs(audit)),
        ("Known of this table", map(escape, data.notes)),
    ):
        if notes := tuple(map(Note, sentences)):
            yield Section(title, notes)
    if answer is not None:
        yield Section("The study that would answer it", (Note(f"{answer.command}: {answer.question}"),))


def _extent(audit: Audit) -> str:
    parts = [counted(len(audit.dataset.observations), "number"), counted(len(audit.groups), "group")]
    if audit.reference is not None:
        parts.append(f"reference {escape(audit.reference)}")
    return ", ".join(parts)


def _cells(one: Comparison) -> tuple[str, ...]:
    where = condition_text(one.condition, one.series)
    shows = SHOWS[one.standing]
    if one.reasons:
        shows += f" ({'; '.join(REASONS[reason] for reason in one.reasons)})"
    return (
        elided(f"{escape(one.response)}{', ' if where else ''}{where}", 70),
        elided(f"{escape(one.group)} : {escape(one.reference)}", 50),
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
