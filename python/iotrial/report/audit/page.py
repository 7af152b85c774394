"""A published table as a section of docs/audits.md: question, answer, one table, limits, and what a trial would need.

It is shorter than the output of ``iotrial audit``, which has every comparison and every finding: what several
comparisons or claims have in common appears once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from iotrial.audits.model import Audit
from iotrial.report.audit.blocks import KEY, comparison_table, range_table
from iotrial.report.audit.sentences import (
    claims_in_brief,
    findings_in_brief,
    needs_in_brief,
    summary,
    without_first,
)
from iotrial.report.audit.studies import Answer
from iotrial.report.blocks import Note
from iotrial.report.markdown import block_lines, code, escaped
from iotrial.terminal import escape

#: the most rows of a table on the page
_MOST_ROWS = 12


def published_section(audit: Audit, answer: Answer | None, *, file: str) -> str:
    """Return the section of one table, ending in a newline. ``file`` is the link to the table."""
    source, *notes = audit.dataset.notes
    title = [f"## {escaped(audit.dataset.title)}", ""]
    lines = [
        *title,
        f"{escaped(source)} [{audit.dataset.name}]({file})",
        "",
        f"**{escaped(summary(audit))}**",
        "",
    ]
    lines += _table(audit)
    sentences = [*claims_in_brief(audit), *findings_in_brief(audit), *map(escape, notes)]
    if needed := needs_in_brief(audit):
        sentences.append(needed)
    lines += block_lines(tuple(map(Note, sentences)))
    if answer is not None:
        lines += [f"To try it: {code(answer.command)}", ""]
    return "\n".join(lines).rstrip() + "\n"


def _table(audit: Audit) -> Iterator[str]:
    if len(audit.comparisons) < 2:
        return  # the headline has the numbers
    if len(audit.comparisons) > _MOST_ROWS:
        yield from block_lines((range_table(audit),))
        yield f"Every comparison: {code(f'iotrial audit docs/audits/{audit.dataset.name}')}"
        yield ""
        return
    table = comparison_table(audit)
    yield from block_lines((dataclasses.replace(table, note=table.note.replace(KEY, "").strip()),))


def overview(audits: Sequence[tuple[str, Audit | None]]) -> Iterator[str]:
    """Yield a table of all sections: their titles, and the numbers of an audit (None: a table without a number)."""
    yield "| question | comparisons | claims that recompute |"
    yield "| --- | ---: | ---: |"
    for title, audit in audits:
        link = f"[{escaped(title)}](#{anchor(title)})"
        if audit is None:
            yield f"| {link} | no number | – |"
            continue
        main = [one for one in audit.comparisons if not without_first(one)]
        claims = (
            f"{sum(one.recomputes for one in audit.claims)} of {len(audit.claims)}" if audit.claims else "–"
        )
        yield f"| {link} | {len(main)} | {claims} |"


def anchor(title: str) -> str:
    """Return the name that GitHub gives a heading."""
    kept = "".join(c for c in title.lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")
