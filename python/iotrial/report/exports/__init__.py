"""One trial as a file that other programs read: by name of the format, what writes it.

A packed trial, which iotrial itself reads, is the store's (``iotrial.store.packed``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import BinaryIO

from iotrial.report.document import Document

Write = Callable[[Document, BinaryIO], None]


@dataclass(frozen=True, slots=True)
class Format:
    """How a format is called, how its files' names end, and what writes one. ``write`` raises RequestError where a library
    that it needs is missing, before it writes."""

    name: str
    suffix: str
    write: Write


def _csv(document: Document, file: BinaryIO) -> None:
    from iotrial.report.exports.csv_table import write_csv

    write_csv(document, file)


def _parquet(document: Document, file: BinaryIO) -> None:
    from iotrial.report.exports.parquet import write_parquet

    write_parquet(document, file)


def _json(document: Document, file: BinaryIO) -> None:
    import json

    from iotrial.report.jsonreport import report_json

    file.write(json.dumps(report_json(document), indent=1, allow_nan=False).encode())
    file.write(b"\n")


def _benchfmt(document: Document, file: BinaryIO) -> None:
    from iotrial.report.exports.benchfmt import write_benchfmt

    write_benchfmt(document, file)


FORMATS: Mapping[str, Format] = {
    one.name: one
    for one in (
        Format("csv", ".csv", _csv),
        Format("parquet", ".parquet", _parquet),
        Format("json", ".json", _json),
        Format("benchfmt", ".bench", _benchfmt),
    )
}
