"""The report of a trial as JSON: what ``report --json`` prints."""

from __future__ import annotations

import json
from typing import BinaryIO

from iotrial.report.document import Document
from iotrial.report.jsonreport import report_json

SUFFIX = ".json"


def write(document: Document, file: BinaryIO) -> None:
    """The report, indented by one space, with a line break at its end."""
    file.write(json.dumps(report_json(document), indent=1, allow_nan=False).encode())
    file.write(b"\n")
