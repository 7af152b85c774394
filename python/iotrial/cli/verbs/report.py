"""``iotrial report``: report a stored or packed trial."""

from __future__ import annotations

from pathlib import Path

import click

from iotrial.cli.finish import (
    refuse_twice_on_standard_output,
    refuse_unwritable,
    say,
    status_of,
    write_markdown,
    write_report,
)
from iotrial.cli.open_store import document_at
from iotrial.cli.options import (
    fail_option,
    force_option,
    full_report,
    json_option,
    markdown_option,
    page_option,
)
from iotrial.cli.output import tell
from iotrial.report.figure_files import write_figures
from iotrial.report.notation import counted
from iotrial.report.render import html_report, markdown_report


@click.command("report")
@click.argument("trial", default="last")
@full_report
@page_option
@markdown_option
@force_option
@click.option(
    "--figures",
    metavar="FOLDER",
    help="Write every figure to this folder as SVG, with its numbers as CSV.",
)
@fail_option
@json_option
def command(
    trial: str,
    full: bool,
    html: str | None,
    markdown: str | None,
    force: bool,
    figures: str | None,
    fail_if: tuple[str, ...],
    as_json: bool,
) -> int:
    """Report a stored trial (its number, its id, or "last"), or a packed one (its file)."""
    refuse_twice_on_standard_output(markdown, as_json=as_json)
    refuse_unwritable(html, markdown, force=force)
    document = document_at(trial)
    drawn = None
    if figures:
        drawn = write_figures(document, Path(figures).expanduser())
    written = None
    if html:
        written = write_report(html_report(document), Path(html), force=force)
    on_standard_output = False
    if markdown:
        on_standard_output = write_markdown(markdown_report(document), markdown, force=force)
    if not on_standard_output:
        say(document, as_json=as_json, html=written, figures=drawn, full=full)
        if drawn is not None and not as_json:
            tell(f"{counted(len(drawn), 'figure')} in {figures}; index.md lists them")
    return status_of(document, fail_if)
