"""``iotrial audit``: check what foreign benchmark results can and cannot show."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iotrial.audits.audit import audit
from iotrial.audits.importers import read
from iotrial.audits.importers.contract import MAX_BYTES, ReadOptions, open_source, source_of
from iotrial.cli.finish import refuse_unwritable, write_report
from iotrial.cli.options import force_option, json_option, margin_option
from iotrial.cli.output import tell
from iotrial.cli.run_request import quantity_of
from iotrial.errors import RequestError
from iotrial.report.audit.blocks import audit_markdown, audit_text
from iotrial.report.audit.jsonaudit import audit_json
from iotrial.report.audit.studies import answering
from iotrial.units import parse_alpha, parse_margin

if TYPE_CHECKING:
    from iotrial.audits.importers.contract import Source

MOST_FILES = 200


@click.command("audit")
@click.argument("files", nargs=-1, required=True, metavar="[LABEL=]FILE...")
@click.option(
    "--format",
    "form",
    metavar="NAME",
    help="csv, hyperfine, fio, iozone, bonnie, strace, printed (default: detected).",
)
@click.option("--group", metavar="COLUMN", help="Column of a table that holds the treatment.")
@click.option(
    "--value", "values", multiple=True, metavar="COLUMN", help="Column of measured values (repeatable)."
)
@click.option(
    "--columns",
    metavar="ROLE,...",
    help="What each column of a table is, in order: treatment, condition, value, run, order, series or ignore.",
)
@click.option("--unit", metavar="UNIT", help="Unit of values without one (s, ms, MB/s, ...).")
@click.option(
    "--decimal",
    type=click.Choice(("comma", "point")),
    help="Decimal mark of the numbers (default: detected).",
)
@click.option(
    "--condition", "conditions", multiple=True, metavar="COLUMN", help="Column of a condition (repeatable)."
)
@click.option(
    "--order", metavar="COLUMN", help='Column of the time or order of runs; "rows": the rows are in order.'
)
@click.option("--run", metavar="COLUMN", help="Column with the number of the repetition.")
@click.option("--series", metavar="COLUMN", help="Column that separates series of one treatment.")
@click.option("--reference", metavar="LABEL", help="Group that the others are compared with.")
@click.option(
    "--response", "responses", multiple=True, metavar="NAME", help="Only this response (repeatable)."
)
@click.option(
    "--claim",
    "claims",
    multiple=True,
    metavar="TEXT",
    help='Claim to check, e.g. "noatime 53.67 % of strictatime".',
)
@click.option("--alpha", default="0.05", show_default=True, metavar="LEVEL", help="Error level.")
@margin_option("3 %")
@click.option("--markdown", metavar="FILE", help="Write a Markdown report.")
@force_option
@json_option
def command(files: tuple[str, ...], as_json: bool, **values: Any) -> None:
    """Check what published or imported measurements can show, and what not: CSV, hyperfine, fio, iozone, bonnie++, strace -c.

    LABEL=FILE names the treatment of a file that holds one run. "-" is standard input.
    """
    if len(files) > MOST_FILES:
        raise RequestError(f"more than {MOST_FILES} files")
    alpha = quantity_of("--alpha", values["alpha"], parse_alpha)
    margin = quantity_of("--margin", values["margin"], parse_margin)
    options = ReadOptions(
        group=values["group"],
        values=values["values"],
        unit=values["unit"],
        conditions=values["conditions"],
        order=values["order"],
        run=values["run"],
        series=values["series"],
        reference=values["reference"],
        responses=values["responses"],
        claims=values["claims"],
        decimal=values["decimal"],
        columns=tuple(part.strip() for part in (values["columns"] or "").split(",") if part.strip()),
    )
    refuse_unwritable(values["markdown"], force=values["force"])
    dataset = read([_source(file, alone=len(files) == 1) for file in files], options, form=values["form"])
    found = audit(dataset, alpha=alpha, margin=margin)
    answer = answering(found)
    if values["markdown"]:
        write_report(audit_markdown(found, answer), Path(values["markdown"]), force=values["force"])
    if as_json:
        click.echo(json.dumps(audit_json(found, answer), indent=1))
        return
    tell(audit_text(found, answer))
    if dataset.columns:
        tell(f"\nThe columns were read as --columns {dataset.columns}")


def _source(word: str, *, alone: bool) -> Source:
    """Open a file, split from its label if the whole word is not the name of a file."""
    before, equals, rest = word.partition("=")
    name, label = (rest, before) if equals and before and rest and not os.path.lexists(word) else (word, None)
    if name == "-":
        return source_of(
            sys.stdin.buffer.read(MAX_BYTES + 1), name="standard input", label=label, alone=alone
        )
    return open_source(Path(name).expanduser(), name=name, label=label, alone=alone)
