"""The runs as Parquet, typed, with the trial's facts in the file's metadata. pyarrow is an extra of the package."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any, BinaryIO

from iotrial.errors import RequestError
from iotrial.report.document import Document
from iotrial.report.jsonreport import report_json
from iotrial.report.runs_table import Type, Value, runs_table

SUFFIX = ".parquet"

INSTALL = "pip install 'iotrial[frames]'"
_AT_ONCE = 1 << 16


def write(document: Document, file: BinaryIO) -> None:
    """The table of ``runs_table``: null for what is missing. RequestError where pyarrow is not installed."""
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError as error:
        raise RequestError("Parquet needs pyarrow, which is not installed here", hint=INSTALL) from error
    types: dict[Type, Any] = {
        Type.TEXT: arrow.string(),
        Type.WHOLE: arrow.int64(),
        Type.NUMBER: arrow.float64(),
        Type.YES_NO: arrow.bool_(),
    }
    table = runs_table(document)
    trial = json.dumps(report_json(document)["trial"], allow_nan=False)
    schema = arrow.schema(
        [(_text(name), types[kind]) for name, kind in table.columns], metadata={"iotrial.trial": trial}
    )
    with parquet.ParquetWriter(file, schema) as writer:
        while rows := list(islice(table.rows, _AT_ONCE)):
            columns = [[_plain(value) for value in column] for column in zip(*rows, strict=True)]
            writer.write_table(arrow.table(columns, schema=schema))


def _plain(value: Value) -> Value:
    return _text(value) if isinstance(value, str) else value


def _text(text: str) -> str:
    """As it is, but that UTF-8 can hold it: a lone surrogate is no character."""
    return text.encode("utf-8", "backslashreplace").decode()
