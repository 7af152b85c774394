"""Jobs of the worker process of ``serve``: analyse and draw trials, compare them, pack them.

Every function opens the store and takes trials as (number, id), since the number may by then belong to
another trial.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from iotrial.errors import RequestError, StoreError
from iotrial.report.comparing import compare
from iotrial.report.comparison_blocks import comparison_html, comparison_markdown
from iotrial.report.comparison_json import comparison_json
from iotrial.report.jsonreport import report_json
from iotrial.report.opening import document_of, summary_of
from iotrial.report.render import html_report, markdown_report
from iotrial.store import Store
from iotrial.store.packed import verify_packed
from iotrial.store.states import TrialState

MOST_PACKED = 256 << 20
Which = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Reports:
    """A report in each format; ``json`` and ``markdown`` are UTF-8."""

    html: str
    json: bytes
    markdown: bytes


def trial_reports(path: Path, which: Which) -> Reports:
    """Return the reports of a trial that has ended. Raises StoreError if it cannot be read."""
    # not at the top: the server itself draws nothing, and starts in two thirds of the time without
    with _opened(path, which) as store:
        document = document_of(store, which[0])
        found = json.dumps(report_json(document), indent=1).encode()
        return Reports(html_report(document), found, markdown_report(document).encode("utf-8", "replace"))


def summarise(path: Path, trials: Sequence[Which], budget_s: float) -> dict[int, str]:
    """Analyse at least one of these trials, and more within the time budget.

    The analyses are stored. Returns the failures by trial number.
    """
    failed, until_s = {}, time.monotonic() + budget_s
    for which in trials:
        try:
            with _opened(path, which) as store:
                summary_of(store, which[0])
        except (StoreError, RequestError) as error:
            failed[which[0]] = error.message
        if time.monotonic() > until_s:
            break
    return failed


def comparison_reports(path: Path, trials: Sequence[Which]) -> Reports:
    """Compare these trials in this order, dividing the level among them. Raises RequestError if they share nothing."""
    summaries = []
    for which in trials:
        with _opened(path, which) as store:
            summaries.append(summary_of(store, which[0], share=len(trials)))
    comparison = compare(summaries)
    found = json.dumps(comparison_json(comparison), indent=1, allow_nan=False).encode()
    markdown = comparison_markdown(comparison).encode("utf-8", "replace")
    return Reports(comparison_html(comparison), found, markdown)


def packed_trial(path: Path, which: Which) -> bytes:
    """Return a packed trial, verified by reading it back. Raises StoreError if it could not be imported or is too large."""
    number, _ = which
    with _opened(path, which) as store, tempfile.TemporaryFile() as file:
        store.pack(number, file)
        size = file.seek(0, 2)
        if size > MOST_PACKED:
            raise StoreError(
                f"trial {number} is too large for a download ({size:,} bytes)",
                hint=f"iotrial export {number}",
            )
        verify_packed(file, number)
        return file.read()


@contextmanager
def _opened(path: Path, which: Which) -> Iterator[Store]:
    number, name = which
    with Store.open(path, read_only=True, checked=False) as store:
        found = store.find(number)
        if found.header.id != name:
            raise StoreError(f"trial {number} has been replaced")
        if found.state is TrialState.RUNNING:
            raise StoreError(f"trial {number} is running again")
        yield store
