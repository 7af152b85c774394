"""``iotrial fleet report``: one verdict over the hosts of a fleet."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from iotrial.cli.finish import (
    refuse_twice_on_standard_output,
    refuse_unwritable,
    write_markdown,
    write_report,
)
from iotrial.cli.options import force_option, full_report, json_option, markdown_option, page_option
from iotrial.cli.output import warn
from iotrial.fleet.report.blocks import fleet_html, fleet_markdown, print_fleet
from iotrial.fleet.report.json_report import fleet_json
from iotrial.fleet.verdict import report_of
from iotrial.paths import store_path
from iotrial.report.text import Console


@click.command("report")
@click.argument("fleet", default="last")
@full_report
@page_option
@markdown_option
@force_option
@json_option
def command(
    fleet: str, full: bool, html: str | None, markdown: str | None, force: bool, as_json: bool
) -> int:
    """Report the combined verdict of a fleet (the newest, if none is named).

    The report has the mean of the hosts' effects, the spread between them, outliers, and properties associated with the
    effect. A host that failed its controls is named with its reason and not averaged. Each host's trial has its own report:
    iotrial report.
    """
    refuse_twice_on_standard_output(markdown, as_json=as_json)
    refuse_unwritable(html, markdown, force=force)
    report, warnings = report_of(
        store_path(), fleet, on_progress=_show_progress if sys.stderr.isatty() else None
    )
    for warning in warnings:
        warn(warning)
    on_standard_output = False
    if markdown:
        on_standard_output = write_markdown(fleet_markdown(report), markdown, force=force)
    if html:
        write_report(fleet_html(report), Path(html), force=force)
    if as_json:
        click.echo(json.dumps(fleet_json(report), indent=1, allow_nan=False))
    elif not on_standard_output:
        print_fleet(report, Console(file=sys.stdout), full=full, html_path=html)
    return 0


def _show_progress(done: int, count: int) -> None:
    if done % 10 == 0 or done == count:
        sys.stderr.write(f"\rsumming up host {done} of {count}" + "\n" * (done == count))
        sys.stderr.flush()
