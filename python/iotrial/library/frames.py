"""Columns of values as a pandas data frame. pandas is an optional extra and is imported only here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from iotrial.errors import RequestError

if TYPE_CHECKING:
    from pandas import DataFrame

    from iotrial.library.table import Column

Row = TypeVar("Row")
INSTALL = "pip install 'iotrial[frames]'"


def pandas() -> Any:
    """Return the pandas module. Raises RequestError with the install command if it is missing."""
    try:
        import pandas as found
    except ImportError as error:
        raise RequestError("a data frame needs pandas, which is not installed here", hint=INSTALL) from error
    return found


def frame_of(columns: Sequence[Column[Row]], rows: Sequence[Row], facts: Mapping[str, object]) -> DataFrame:
    """Build a data frame, one row per value; ``facts`` and the columns' units become ``attrs``, JSON-compatible."""
    pd = pandas()
    found = {_text(column.name): _values(pd, column, [column.of(row) for row in rows]) for column in columns}
    frame = pd.DataFrame(found, columns=list(found))
    units = {_text(column.name): _text(column.unit) for column in columns if column.unit}
    frame.attrs = {**{name: _text(value) for name, value in facts.items()}, "units": units}
    made: DataFrame = frame
    return made


def _values(pd: Any, column: Column[Row], values: Sequence[Any]) -> Any:
    if column.kind in ("label", "text"):
        values = [_text(value) for value in values]
    if column.kind == "label":
        occurring = dict.fromkeys(value for value in values if value is not None)
        known = [label for label in map(_text, column.order) if label in occurring]
        return pd.Categorical(values, categories=list(dict.fromkeys((*known, *occurring))))
    if column.kind == "number":
        return pd.array([math.nan if value is None else float(value) for value in values], dtype="float64")
    if column.kind == "count":
        return pd.array(values, dtype="int64")
    if column.kind == "flag":
        return pd.array(values, dtype="bool")
    if column.kind == "time":
        return pd.to_datetime(list(values), utc=True)
    return pd.array(values, dtype="string")


def _text(value: Any) -> Any:
    """Escape lone surrogates in text: an imported trial may contain them and Arrow rejects them."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
