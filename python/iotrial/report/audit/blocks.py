"""An audit as report blocks: its answer, every comparison, and what limits them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from iotrial.audits.model import Audit, AuditedPair, Interval, Standing
from iotrial.documents import Labels
from iotrial.report.audit.sentences import (
    REASONS,
    SHOWS,
    claims,
    condition_text,
    findings,
    needs,
    ranged,
    summary,
)
from iotrial.report.audit.studies import Answer
from iotrial.report.blocks import Block, Note, Report, Section, Table, table
from iotrial.report.markdown import markdown
from iotrial.report.notation import counted, elided, percent
from iotrial.report.text import plain_lines
from iotrial.terminal import escape
from iotrial.units import format_ratio

_WIDTH = 110
KEY = (
    "Ratios are of geometric means. Welch: t interval on logarithms. shared: the same, with alpha divided by the number "
    "of intervals in the table. ranks: Hodges-Lehmann with exact ranks. All assume that runs are independent of "
    "each other and of time."
)


def audit_text(audit: Audit, answer: Answer | None) -> str:
    """Format the audit for a terminal."""
    title = [escape(audit.dataset.title), ""] if audit.dataset.title else []
    return "\n".join([*title, *plain_lines(audit_report(audit, answer), width=_WIDTH)])


def audit_markdown(audit: Audit, answer: Answer | None) -> str:
    """Format the audit as a section of Markdown, ending in a newline."""
    return markdown(audit_report(audit, answer), heading="##")


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
        yield comparison_table(audit)
    for title, sentences in (
        ("Published numbers, recomputed", claims(audit)),
        ("What limits the result", findings(audit)),
        ("What a randomised trial would need (enough in four of five trials)", needs(audit)),
        ("Notes of the table", map(escape, data.notes)),
    ):
        if notes := tuple(map(Note, sentences)):
            yield Section(title, notes)
    if answer is not None:
        yield Section("A trial that would answer it", (Note(f"{answer.command}: {answer.question}"),))


def _extent(audit: Audit) -> str:
    parts = [counted(len(audit.dataset.observations), "number"), counted(len(audit.groups), "group")]
    if audit.reference is not None:
        parts.append(f"reference {escape(audit.reference)}")
    return ", ".join(parts)


def comparison_table(audit: Audit) -> Table:
    """Return a row for each comparison. What all rows have in common appears once, in a heading or below the table."""
    rows = audit.comparisons
    level = percent(1.0 - audit.alpha)
    responses, pairs = ({name(one) for one in rows} for name in (_response, _pair))
    common = _common(rows)
    places = [_place(one, common, response=len(responses) > 1) for one in rows]
    if any(places):
        places = [place or "all runs" for place in places]
    ratio = ["ratio"]
    ratio += [f" of {_response(rows[0])}"] if len(responses) == 1 else []
    ratio += [f", {_pair(rows[0])}"] if len(pairs) == 1 else []
    columns: dict[str, list[str]] = {}
    if any(places):
        columns["~condition" if len(responses) == 1 else "~response, condition"] = places
    if len(pairs) > 1:
        columns["~group : reference"] = [_pair(one) for one in rows]
    if any(max(one.n, one.n_reference) > 1 for one in rows):
        columns[">n"] = [
            (f"{one.n}, {one.n_reference}" if one.n != one.n_reference else str(one.n)) for one in rows
        ]
    columns[f">{''.join(ratio)}"] = ["–" if one.ratio is None else format_ratio(one.ratio) for one in rows]
    bounded = any(one.welch.bounded for one in rows)
    if bounded:
        columns[f"Welch {level}"] = [_interval(one.welch) for one in rows]
        columns["shared"] = [_interval(one.shared) for one in rows]
        columns[f"ranks {level}"] = [_interval(one.rank) for one in rows]
    shows = [_shown(one, standing=not _all_single(rows)) for one in rows]
    if len(rows) == 1 or len(set(shows)) > 1 or not _all_single(rows):
        columns["~limit" if _all_single(rows) else "~shows"] = shows
    everywhere = f"Everywhere: {condition_text(common)}." if common else ""
    note = " ".join(filter(None, (everywhere, KEY if bounded else "")))
    return table(columns, zip(*columns.values(), strict=True), note=note)


def range_table(audit: Audit) -> Table:
    """Return a row for all comparisons of two groups that show the same, with the range of their numbers."""
    rows: dict[tuple[str, str, str], list[AuditedPair]] = {}
    for one in audit.comparisons:
        rows.setdefault((_response(one), _pair(one), SHOWS[one.standing]), []).append(one)
    cells = []
    for key, row in rows.items():
        ratios = [one.ratio for one in row if one.ratio is not None]
        ratio = ranged(ratios, format_ratio) if ratios else "–"
        cells.append((*key[:2], f"{len(row)}", ratio, _widest(row), key[2]))
    names = ("~response", "~group : reference", ">conditions", "ratio", "widest shared interval", "~shows")
    if _all_single(audit.comparisons):
        return table(names[:4], (row[:4] for row in cells))
    return table(names, cells)


def _all_single(rows: Sequence[AuditedPair]) -> bool:
    """Whether no row has an interval because of single runs, which the headline says already."""
    return all(one.standing is Standing.SINGLE for one in rows)


def _common(rows: Sequence[AuditedPair]) -> Labels:
    """Return the parts of the condition that all of several comparisons share."""
    if len(rows) == 1:
        return {}
    return {
        name: level
        for name, level in rows[0].condition.items()
        if all(one.condition.get(name) == level for one in rows)
    }


def _widest(row: Sequence[AuditedPair]) -> str:
    lows = [one.shared.low for one in row if one.shared.low is not None]
    highs = [one.shared.high for one in row if one.shared.high is not None]
    return f"{format_ratio(min(lows))} to {format_ratio(max(highs))}" if lows and highs else "none"


def _response(one: AuditedPair) -> str:
    return elided(escape(one.response), 50)


def _place(one: AuditedPair, common: Labels, *, response: bool) -> str:
    own = {name: level for name, level in one.condition.items() if name not in common}
    where = condition_text(own, one.series)
    return elided(", ".join(filter(None, (_response(one) if response else "", where))), 70)


def _pair(one: AuditedPair) -> str:
    return elided(f"{escape(one.group)} : {escape(one.reference)}", 50)


def _shown(one: AuditedPair, *, standing: bool) -> str:
    reasons = "; ".join(REASONS[reason] for reason in one.reasons)
    if not standing:
        return reasons
    return SHOWS[one.standing] + (f" ({reasons})" if reasons else "")


def _interval(interval: Interval) -> str:
    if interval.low is None or interval.high is None:
        return "none"
    return f"{format_ratio(interval.low)} to {format_ratio(interval.high)}"
