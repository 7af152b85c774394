"""After a trial: analyse what is stored, write the report file, say it, and turn it into an exit status."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from iotrial.report.document import Document
    from iotrial.store import Store

EXIT_INVALID = 3
EXIT_FAIL_IF = 4


def document_of(store: Store, ref: str) -> Document:
    """A stored trial, analysed. Needs neither root nor the probe."""
    from iotrial.analysis.analyse import Spec, analyse
    from iotrial.design.plan import Plan
    from iotrial.report.document import build_document

    data = store.data(ref)
    header = data.trial.header
    plan = Plan(header.study, header.seed, controls=bool(header.options.get("controls", True)))
    spec = Spec.from_plan(plan, alpha=header.alpha, margin=header.margin)
    return build_document(data, analyse(spec, data.blocks))


def report_path(document: Document) -> Path:
    """Where the HTML report goes unless the user names a file: beside the store."""
    from iotrial.paths import state_folder

    trial = document.trial
    name = trial.header.study.name.replace("/", "-")
    return state_folder() / "reports" / f"{trial.number}-{name}.html"


def write_html(document: Document, path: Path) -> Path:
    """Write the report. Raises StoreError where the file cannot be written."""
    from iotrial.errors import StoreError
    from iotrial.report.html import html_report

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(html_report(document))
    except OSError as error:
        raise StoreError(
            f"writing the report {path}: {error.strerror}", hint="name another file with --html"
        ) from error
    return path


def say(document: Document, *, as_json: bool, html: Path | None) -> None:
    """The report on standard output: text, or one JSON document."""
    if as_json:
        from iotrial.report.jsonreport import report_json

        click.echo(json.dumps(report_json(document), indent=1))
        return
    from iotrial.cli.console import Console
    from iotrial.report.text import print_report

    print_report(document, Console(file=sys.stdout), html_path=None if html is None else str(html))


def conclude(
    store: Store, ref: str, *, as_json: bool, html: str | None, fail_if: tuple[str, ...], signal: int | None
) -> int:
    """Report a trial that has just ended, and give its exit status. A signal waits for the report."""
    from iotrial.conduct.signals import Held

    with Held() as held:
        document = document_of(store, ref)
        path = write_html(document, Path(html) if html else report_path(document))
        say(document, as_json=as_json, html=path)
        sys.stdout.flush()
    return exit_status(document, fail_if, signal or held.pending)


def exit_status(document: Document, fail_if: tuple[str, ...], signal: int | None) -> int:
    """0 whatever the verdict; 3 invalid; 4 where ``--fail-if`` is met; 128 + signal."""
    if signal is not None:
        return 128 + signal
    if not document.valid:
        return EXIT_INVALID
    verdicts = {row.effect.verdict.value for row in document.primary}
    return EXIT_FAIL_IF if verdicts & set(fail_if) else 0
