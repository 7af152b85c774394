"""After a trial: analyse what is stored, write the report file, say it, and turn it into an exit status."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from iotrial.cli.output import tell
from iotrial.conduct.signals import Held
from iotrial.errors import IotrialError, RequestError, StoreError
from iotrial.paths import state_folder
from iotrial.report.jsonreport import report_json
from iotrial.report.opening import document_of
from iotrial.report.render import html_report, markdown_report, print_report
from iotrial.report.text import Console

if TYPE_CHECKING:
    from iotrial.report.document import Document
    from iotrial.report.figure_files import FigureFiles
    from iotrial.store import Store

EXIT_INVALID = 3
EXIT_FAIL_IF = 4
LONGEST_NAME = 80
#: names the file whose Markdown GitHub shows with a job
STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
#: set by the Python that was carried to a host: it has nothing that draws, and the report is made where the trial goes
CARRIED = "IOTRIAL_CARRIED"
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")


def report_path(document: Document) -> Path:
    """Where the HTML report goes unless the user names a file: beside the store."""
    trial = document.trial
    # A stored or imported trial may bear any name; the file stays in its folder whatever it is.
    name = _UNFIT.sub("-", trial.header.study.name)[:LONGEST_NAME].strip(".-")
    return state_folder() / "reports" / f"{trial.number}-{name or 'trial'}.html"


def write_page(text: str, document: Document, path: Path | None = None) -> Path:
    """Write the page of a trial to the file that the user named, or (None) beside the store. Raises StoreError."""
    if path is not None:
        return write_report(text, path)
    return write_report(text, report_path(document), follow=False)


def write_report(text: str, path: Path, *, follow: bool = True, add: bool = False) -> Path:
    """Write a report in any format; where it is. ``follow``: a link at that name leads on, and so does a ``~``, as it
    should for a name that the user gave. ``add``: behind what is there. Only the folder of our own reports is made where
    it is missing.

    RequestError where the user's folder is not there, StoreError where the file cannot be written.
    """
    if follow:
        path = _led_home(path)
        refuse_missing_folder(path)

    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    flags |= os.O_APPEND if add else os.O_TRUNC
    try:
        if not follow:
            path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, flags, 0o666), "wb") as file:
            file.write(text.encode("utf-8", "replace"))  # a lone surrogate is no character of any file
    except OSError as error:
        raise StoreError(f"writing the report {path}: {error.strerror}", hint="name another file") from error
    return path


def refuse_missing_folder(*files: str | Path | None) -> None:
    """RequestError where a report is to go into a folder that is not there: a mistyped name should not make one."""
    for file in files:
        if file is not None and file != "-":
            folder = _led_home(file).parent
            # not Path.is_dir, which raises for a name that is too long
            if not os.path.isdir(folder):  # noqa: PTH112
                raise RequestError(
                    f"writing the report {file}: there is no folder {folder}",
                    hint=f"make it with `mkdir -p {shlex.quote(str(folder))}`, or name a file in another folder",
                )


def _led_home(file: str | Path) -> Path:
    """With the home folder for a leading ``~``; that of somebody whom the system does not know stays as it was typed."""
    return Path(os.path.expanduser(file))  # noqa: PTH111  Path.expanduser raises RuntimeError for a stranger


def write_markdown(text: str, target: str) -> bool:
    """Write Markdown where ``--markdown`` says; whether that is standard output ("-"), which then takes nothing else.

    What is in the summary of a GitHub job's step stays there: it is added to.
    """
    if target == "-":
        tell(text.removesuffix("\n"))
        return True
    write_report(text, Path(target), add=target == os.environ.get(STEP_SUMMARY))
    return False


def say(
    document: Document,
    *,
    as_json: bool,
    html: Path | None,
    figures: Sequence[FigureFiles] | None = None,
    full: bool = False,
) -> None:
    """The report on standard output: text, one screen unless ``full``, or one JSON document, which lists the ``figures`` that
    were written as well."""
    if as_json:
        click.echo(json.dumps(report_json(document, figures), indent=1))
    else:
        path = None if html is None else str(html)
        print_report(document, Console(file=sys.stdout), full=full, html_path=path)


def refuse_twice_on_standard_output(markdown: str | None, *, as_json: bool) -> None:
    """RequestError where both Markdown and JSON would go to standard output: before anything is measured."""
    if markdown == "-" and as_json:
        raise RequestError("standard output takes either Markdown or --json", hint="name a file")


def conclude(
    store: Store,
    ref: str,
    *,
    as_json: bool,
    html: str | None,
    fail_if: tuple[str, ...],
    signal: int | None,
    markdown: str | None = None,
) -> int:
    """Report a trial that has just ended, and give its exit status. A signal waits for the report."""
    with Held() as held:
        document = document_of(store, ref)
        path = None
        try:
            if not os.environ.get(CARRIED):
                path = write_page(html_report(document), document, Path(html) if html else None)
            if not (markdown and write_markdown(_markdown(document), markdown)):
                say(document, as_json=as_json, html=path)
            sys.stdout.flush()
        except IotrialError as error:
            stored = document.trial.number
            error.hint = f"trial {stored} is measured and stored: `iotrial report {stored}` shows it"
            raise
        status = status_of(document, fail_if)
    number = signal or held.pending
    return status if number is None else 128 + number


def status_of(document: Document, fail_if: tuple[str, ...]) -> int:
    """0 whatever the verdict; 3 invalid; 4 where ``--fail-if`` is met by a main effect."""
    if not document.valid:
        return EXIT_INVALID
    verdicts = {row.effect.verdict.value for row in document.primary if row.effect.kind == "main"}
    return EXIT_FAIL_IF if verdicts & set(fail_if) else 0


def _markdown(document: Document) -> str:
    return markdown_report(document)
