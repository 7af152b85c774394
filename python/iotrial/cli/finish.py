"""Finish a trial: analyse the stored data, write and print the report, and compute the exit status."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from iotrial.cli.options import refuse_together
from iotrial.cli.output import tell
from iotrial.errors import IotrialError, NoAnswer, RequestError
from iotrial.output_files import append, output_file, refuse_taken
from iotrial.paths import state_folder
from iotrial.report.jsonreport import report_json
from iotrial.report.opening import document_of
from iotrial.report.render import html_report, markdown_report, print_report
from iotrial.report.text import Console
from iotrial.runner.signals import Held

if TYPE_CHECKING:
    from iotrial.report.document import Document
    from iotrial.report.figure_files import FigureFiles
    from iotrial.runner.start import Ended
    from iotrial.store import Store

EXIT_INVALID = 3
EXIT_FAIL_IF = 4
EXIT_NO_ANSWER = NoAnswer.exit_status
LONGEST_NAME = 80
#: environment variable with the file of Markdown that GitHub shows as the job summary
STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Outputs:
    """What to write about a trial that has ended. ``page``: an HTML report, at its default path unless ``html`` names one."""

    as_json: bool = False
    html: str | None = None
    markdown: str | None = None
    json_file: str | None = None
    fail_if: tuple[str, ...] = ()
    page: bool = True
    force: bool = False

    def check(self) -> None:
        """Raise RequestError for two outputs on standard output, or a file that cannot be written."""
        refuse_twice_on_standard_output(self.markdown, as_json=self.as_json)
        refuse_unwritable(self.html, self.markdown, self.json_file, force=self.force)


def report_path(document: Document) -> Path:
    """Return the default path of the HTML report, in the state folder next to the store."""
    trial = document.trial
    # A stored or imported trial may have any name: sanitise it so that the file stays in this folder.
    name = _UNFIT.sub("-", trial.header.study.name)[:LONGEST_NAME].strip(".-")
    return state_folder() / "reports" / f"{trial.number}-{name or 'trial'}.html"


def write_page(text: str, document: Document, path: Path | None = None, *, force: bool = False) -> Path:
    """Write a trial's HTML page to the file that the user named, or (None) to the default path. Raises as
    ``write_report``."""
    if path is not None:
        return write_report(text, path, force=force)
    path = report_path(document)
    with output_file(path, force=True, make_folder=True) as file:
        file.write(_encoded(text))
    return path


def write_report(text: str, path: Path, *, force: bool = False, add: bool = False) -> Path:
    """Write a report in any format to a file that the user named, and return its path.

    ``force``: replace an existing file. ``add``: append to it. Raises RequestError if the folder does not exist or the name
    is taken, StoreError if the file cannot be written.
    """
    refuse_missing_folder(path)
    path = _led_home(path)
    if add:
        append(path, _encoded(text))
        return path
    with output_file(path, force=force) as file:
        file.write(_encoded(text))
    return path


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")  # a lone surrogate cannot be encoded


def refuse_unwritable(*files: str | None, force: bool) -> None:
    """Raise RequestError if a report cannot be written: its folder is missing, or the name is taken."""
    for file in files:
        if file is not None and file != "-":
            refuse_missing_folder(file)
            refuse_taken(_led_home(file), force=force or _is_added_to(file))


def _is_added_to(file: str) -> bool:
    """Return whether text is appended to this file: the step summary of a GitHub job."""
    return file == os.environ.get(STEP_SUMMARY)


def refuse_missing_folder(*files: str | Path | None) -> None:
    """Raise RequestError if a report's folder does not exist: a mistyped name should not create one."""
    for file in files:
        if file is not None and file != "-":
            folder = _led_home(file).parent
            # Path.is_dir raises for a name that is too long
            if not os.path.isdir(folder):  # noqa: PTH112
                raise RequestError(
                    f"cannot write {file}: no such folder: {folder}",
                    hint=f"make it with `mkdir -p {shlex.quote(str(folder))}`, or name a file in another folder",
                )


def _led_home(file: str | Path) -> Path:
    """Expand a leading ``~``. The home of an unknown user is left as typed."""
    return Path(os.path.expanduser(file))  # noqa: PTH111  Path.expanduser raises RuntimeError for a stranger


def write_markdown(text: str, target: str, *, force: bool = False) -> bool:
    """Write Markdown to the target of ``--markdown``. Return True if that is standard output ("-"), which
    then takes nothing else.

    Text is appended to the step summary of a GitHub job, never written over it.
    """
    if target == "-":
        tell(text.removesuffix("\n"))
        return True
    write_report(text, Path(target), force=force, add=_is_added_to(target))
    return False


def say(
    document: Document,
    *,
    as_json: bool,
    html: Path | None,
    figures: Sequence[FigureFiles] | None = None,
    full: bool = False,
) -> None:
    """Print the report to standard output: text (one screen unless ``full``), or one JSON document, which
    also lists the ``figures`` that were written."""
    if as_json:
        click.echo(json.dumps(report_json(document, figures), indent=1))
    else:
        path = None if html is None else str(html)
        print_report(document, Console(file=sys.stdout), full=full, html_path=path)


def stored_all_the_same(number: int) -> str:
    """Return the hint of an error after the trial has ended."""
    return f"trial {number} is measured and stored: `iotrial report {number}` shows it"


def refuse_twice_on_standard_output(markdown: str | None, *, as_json: bool) -> None:
    """Raise RequestError if both Markdown and JSON would go to standard output. Called before anything is
    measured."""
    refuse_together(markdown=markdown == "-", json=as_json)


def conclude(store: Store, ended: Ended, outputs: Outputs) -> int:
    """Report a trial that has just ended, and return its exit status. Signals are held until the report is
    written."""
    with Held() as held:
        document = document_of(store, ended.trial.header.id, final=ended.final)
        path = None
        try:
            if outputs.page or outputs.html:
                page = Path(outputs.html) if outputs.html else None
                path = write_page(html_report(document), document, page, force=outputs.force)
            if outputs.json_file:
                text = json.dumps(report_json(document), indent=1) + "\n"
                write_report(text, Path(outputs.json_file), force=outputs.force)
            markdown = outputs.markdown
            if not (markdown and write_markdown(markdown_report(document), markdown, force=outputs.force)):
                say(document, as_json=outputs.as_json, html=path)
            sys.stdout.flush()
        except IotrialError as error:
            error.hint = stored_all_the_same(document.trial.number)
            raise
        status = status_of(document, outputs.fail_if)
    number = ended.signal or held.pending
    return status if number is None else 128 + number


def status_of(document: Document, fail_if: tuple[str, ...]) -> int:
    """Return 0 whatever the verdict, 3 for an invalid trial, 4 if a main effect meets ``--fail-if`` or a guard stopped it, 6
    if no comparison has an interval, or no run could feel any setting."""
    if document.data.guarded:
        return EXIT_FAIL_IF
    if not document.valid:
        return EXIT_INVALID
    main = [one for row in document.primary if row.effect.kind == "main" for one in row.answers]
    if all(effect.not_tried or (effect.low is None and effect.high is None) for effect in main):
        return EXIT_NO_ANSWER
    verdicts = {effect.verdict.value for effect in main}
    return EXIT_FAIL_IF if verdicts & set(fail_if) else 0
