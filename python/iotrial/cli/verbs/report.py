"""``iotrial report``: what a stored trial says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from iotrial.cli.options import as_json as json_option
from iotrial.cli.options import markdown_option

if TYPE_CHECKING:
    from iotrial.report.document import Document


@click.command("report", short_help="What a stored or packed trial says.")
@click.argument("trial", default="last")
@click.option("--html", metavar="FILE", help="Write the self-contained HTML report there.")
@markdown_option
@click.option(
    "--figures", metavar="FOLDER", help="Write every figure there as SVG and PNG, with its numbers as CSV."
)
@click.option(
    "--fail-if", type=click.Choice(["slower", "inconclusive"]), multiple=True, help="Exit with status 4 then."
)
@json_option
def command(
    trial: str,
    html: str | None,
    markdown: str | None,
    figures: str | None,
    fail_if: tuple[str, ...],
    as_json: bool,
) -> int:
    """Report a stored trial (its number, its id, or "last"), or a packed one (its file)."""
    from iotrial.cli.ending import (
        exit_status,
        refuse_missing_folder,
        refuse_twice_on_standard_output,
        say,
        write_html,
        write_markdown_report,
    )

    refuse_twice_on_standard_output(markdown, as_json=as_json)
    refuse_missing_folder(html, markdown)
    document = document_at(trial)
    drawn = None
    if figures:
        from iotrial.report.figure_files import write_figures

        drawn = write_figures(document, Path(figures).expanduser())
    written = write_html(document, Path(html)) if html else None
    if not (markdown and write_markdown_report(document, markdown)):
        say(document, as_json=as_json, html=written, figures=drawn)
        if drawn is not None and not as_json:
            from iotrial.cli.output import tell
            from iotrial.report.notation import counted

            tell(f"{counted(len(drawn), 'figure')} in {figures}; index.md lists them")
    return exit_status(document, fail_if, None)


def document_at(ref: str) -> Document:
    """A stored trial; else the packed trial in the file of this name."""
    from iotrial.cli.storing import store_to_read
    from iotrial.errors import UnknownName
    from iotrial.report.opening import document_of, packed_document

    path = Path(ref).expanduser()
    if ref.endswith(".iotrial") or "/" in ref:
        return packed_document(path)
    is_file = not ref.isdigit() and ref != "last" and os.path.lexists(path) and not path.is_dir()
    store = store_to_read(needed=not is_file)
    if store is None:
        return packed_document(path)
    with store:
        try:
            return document_of(store, ref)
        except UnknownName:
            if not is_file:
                raise
    return packed_document(path)
