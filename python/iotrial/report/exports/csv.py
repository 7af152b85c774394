"""Export of the runs as CSV (RFC 4180, UTF-8, lines end with CR LF), safe to open in a spreadsheet.

A text that a spreadsheet would take for a formula gets a leading apostrophe, and terminal control characters are
escaped. Parquet has the texts unchanged.
"""

from __future__ import annotations

import csv
import io
from typing import BinaryIO

from iotrial.report.document import Document
from iotrial.report.figure import no_formula
from iotrial.report.runs_table import Value, runs_table
from iotrial.terminal import escape

SUFFIX = ".csv"


def write(document: Document, file: BinaryIO) -> None:
    """Write the table of ``runs_table``.

    Missing values are empty cells, booleans are ``true`` and ``false``, numbers have all their digits.
    """
    table = runs_table(document)
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(text)
    writer.writerow(_cell(name) for name, _ in table.columns)
    for row in table.rows:
        writer.writerow(_cell(value) for value in row)
    text.detach()


def _cell(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return escape(no_formula(value))
    return repr(value)
