"""Export of a trial's report as JSON, as printed by ``report --json``."""

from __future__ import annotations

import json
from typing import BinaryIO

from iotrial.report.document import Document
from iotrial.report.jsonreport import report_json

SUFFIX = ".json"


def write(document: Document, file: BinaryIO) -> None:
    """Write the report, indented by one space, with a newline at the end."""
    file.write(json.dumps(report_json(document), indent=1, allow_nan=False).encode())
    file.write(b"\n")
