"""Render a trial in each format: connects builder and renderer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iotrial.report.document import Document
from iotrial.report.html import html
from iotrial.report.markdown import markdown
from iotrial.report.text import print_blocks
from iotrial.report.trial_blocks import trial_report

if TYPE_CHECKING:
    from iotrial.report.text import Console


def print_report(
    document: Document, console: Console, *, full: bool = False, html_path: str | None = None
) -> None:
    """Write the report of a trial to ``console``, on one screen unless ``full``; ``html_path`` is named at the end."""
    print_blocks(trial_report(document, html_path=html_path), console, full=full)


def markdown_report(document: Document) -> str:
    """Return the report of a trial as Markdown."""
    return markdown(trial_report(document))


def html_report(document: Document) -> str:
    """Return the report of a trial as one HTML page."""
    return html(lambda panels: trial_report(document, figures=panels))
