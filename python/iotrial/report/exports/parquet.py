"""Export of the runs as typed Parquet, with the trial's facts in the file's metadata. pyarrow is an optional extra."""

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
    """Write the table of ``runs_table``, with null for missing values. Raises RequestError if pyarrow is not installed."""
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
    """Return the text with lone surrogates escaped, since UTF-8 cannot encode them."""
    return text.encode("utf-8", "backslashreplace").decode()
