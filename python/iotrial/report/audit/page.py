"""A published table as a section of docs/audits.md: question, answer, one table and its limits.

It is shorter than the output of ``iotrial audit``, which has every comparison, every finding and what a trial would
need: what several comparisons or claims have in common appears once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from iotrial.audits.model import Audit
from iotrial.report.audit.blocks import KEY, comparison_table, range_table
from iotrial.report.audit.sentences import (
    claims_in_brief,
    findings_in_brief,
    summary,
)
from iotrial.report.audit.studies import Answer
from iotrial.report.blocks import Note
from iotrial.report.markdown import block_lines, code, escaped
from iotrial.terminal import escape

#: the most rows of a table on the page
_MOST_ROWS = 8
#: and of one with intervals, which has seven columns
_MOST_INTERVALS = 6


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
    lines += block_lines(tuple(map(Note, sentences)))
    if answer is not None:
        lines += [f"To try it: {code(answer.command)}", ""]
    return "\n".join(lines).rstrip() + "\n"


def _table(audit: Audit) -> Iterator[str]:
    if len(audit.comparisons) < 2:
        return  # the headline has the numbers
    repeated = any(one.welch.bounded for one in audit.comparisons)
    if len(audit.comparisons) > (_MOST_INTERVALS if repeated else _MOST_ROWS):
        yield from block_lines((range_table(audit),))
        yield f"Every comparison: {code(f'iotrial audit docs/audits/{audit.dataset.name}')}"
        yield ""
        return
    table = comparison_table(audit)
    yield from block_lines((dataclasses.replace(table, note=table.note.replace(KEY, "").strip()),))
