"""``iotrial report``: what a stored trial says."""

from __future__ import annotations

from pathlib import Path

import click

from iotrial.cli.options import as_json as json_option


@click.command("report")
@click.argument("trial", default="last")
@click.option("--html", metavar="FILE", help="Write the self-contained HTML report there.")
@click.option("--markdown", metavar="FILE", help="Write Markdown there (for a pull request).")
@click.option(
    "--fail-if", type=click.Choice(["slower", "inconclusive"]), multiple=True, help="Exit with status 4 then."
)
@json_option
def command(
    trial: str, html: str | None, markdown: str | None, fail_if: tuple[str, ...], as_json: bool
) -> int:
    """Report a stored trial (its number, its id, or "last")."""
    from iotrial.cli.ending import document_of, exit_status, say, write_html, write_report
    from iotrial.errors import RequestError
    from iotrial.paths import store_path
    from iotrial.store import Store

    path = store_path()
    if not path.exists():
        raise RequestError("there are no trials yet", hint="start with `iotrial run files/permissions`")
    document = document_of(Store.open(path, read_only=True), trial)
    if markdown:
        from iotrial.report.markdown import markdown_report

        write_report(markdown_report(document), Path(markdown))
    written = write_html(document, Path(html)) if html else None
    say(document, as_json=as_json, html=written)
    return exit_status(document, fail_if, None)
