"""After a trial: analyse what is stored, write the report file, say it, and turn it into an exit status."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from iotrial.report.document import Document
    from iotrial.report.figure_files import FigureFiles
    from iotrial.store import Store

EXIT_INVALID = 3
EXIT_FAIL_IF = 4
LONGEST_NAME = 80
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")


def report_path(document: Document) -> Path:
    """Where the HTML report goes unless the user names a file: beside the store."""
    from iotrial.paths import state_folder

    trial = document.trial
    # A stored or imported trial may bear any name; the file stays in its folder whatever it is.
    name = _UNFIT.sub("-", trial.header.study.name)[:LONGEST_NAME].strip(".-")
    return state_folder() / "reports" / f"{trial.number}-{name or 'trial'}.html"


def write_html(document: Document, path: Path | None = None) -> Path:
    """Write the report to the file that the user named, or (None) beside the store. Raises StoreError."""
    from iotrial.report.html import html_report

    text = html_report(document)
    if path is not None:
        return write_report(text, path)
    return write_report(text, report_path(document), follow=False)


def write_report(text: str, path: Path, *, follow: bool = True) -> Path:
    """Write a report in any format. ``follow``: a link at that name leads on, as it should for a name that the user gave.

    Raises StoreError where the file cannot be written.
    """
    from iotrial.errors import StoreError

    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, flags, 0o666), "wb") as file:
            file.write(text.encode("utf-8", "replace"))  # a lone surrogate is no character of any file
    except OSError as error:
        raise StoreError(
            f"writing the report {path}: {error.strerror}", hint="name another file with --html"
        ) from error
    return path


def say(
    document: Document, *, as_json: bool, html: Path | None, figures: Sequence[FigureFiles] | None = None
) -> None:
    """The report on standard output: text, or one JSON document, which lists the ``figures`` that were written as well."""
    if as_json:
        from iotrial.report.jsonreport import report_json

        click.echo(json.dumps(report_json(document, figures), indent=1))
        return
    from iotrial.cli.console import Console
    from iotrial.report.text import print_report

    print_report(document, Console(file=sys.stdout), html_path=None if html is None else str(html))


def conclude(
    store: Store, ref: str, *, as_json: bool, html: str | None, fail_if: tuple[str, ...], signal: int | None
) -> int:
    """Report a trial that has just ended, and give its exit status. A signal waits for the report."""
    from iotrial.conduct.signals import Held
    from iotrial.report.opening import document_of
    from iotrial.report.remembered import Remembered

    with Held() as held:
        document = document_of(store, ref)
        path = write_html(document, Path(html) if html else None)
        with Remembered(store) as remembered:
            remembered.keep(document)
        say(document, as_json=as_json, html=path)
        sys.stdout.flush()
    return exit_status(document, fail_if, signal or held.pending)


def exit_status(document: Document, fail_if: tuple[str, ...], signal: int | None) -> int:
    """0 whatever the verdict; 3 invalid; 4 where ``--fail-if`` is met; 128 + signal."""
    if signal is not None:
        return 128 + signal
    if not document.valid:
        return EXIT_INVALID
    verdicts = {row.effect.verdict.value for row in document.primary if row.effect.kind == "main"}
    return EXIT_FAIL_IF if verdicts & set(fail_if) else 0
