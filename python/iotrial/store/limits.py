"""Types of the fields of stored records, with the limits for records from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta

from iotrial.study.schema import Form, fitting, formed, shown

MAX_BLOCK = 1_000_000
MAX_SLOT = 100_000
MAX_REASON = 8192
MAX_LINE_TEXT = 512
MAX_CONDITION = 16384
MAX_NUMBERS = 512
MAX_HISTOGRAMS = 64
MAX_BINS = 8192
MAX_FACTS = 4096
MAX_FILES = 256
MAX_VALUE = 1e18
MAX_SPAN_S = 1e10
MAX_CASES = 1_000_000_000


def check_facts(facts: Mapping[str, Any]) -> None:
    """Raise ValueError if facts, of any shape, are too many or too long for a report."""
    count = 1
    waiting: list[Mapping[str, Any] | list[Any]] = [facts]
    while waiting:
        holder = waiting.pop()
        count += len(holder)
        if count > MAX_FACTS:
            raise ValueError(f"more than {MAX_FACTS} facts")
        for key in holder if isinstance(holder, Mapping) else ():
            if len(key) > MAX_LINE_TEXT:
                raise ValueError(
                    f"the name of a fact has at most {MAX_LINE_TEXT} characters, found {shown(key)}"
                )
        for value in holder.values() if isinstance(holder, Mapping) else holder:
            if isinstance(value, str):
                if len(value) > MAX_REASON:
                    raise ValueError(f"a fact has at most {MAX_REASON} characters, found {shown(value)}")
            elif isinstance(value, dict | list):
                waiting.append(value)


def check_moment(text: str) -> None:
    """Raise ValueError unless the text is a time as ISO 8601 writes it, in a year in which trials may run."""
    try:
        year = datetime.fromisoformat(text).year
    except ValueError:
        raise ValueError(f"expected a time as ISO 8601 writes it, found {shown(text)}") from None
    if not 1970 <= year <= 9000:
        raise ValueError(f"not a year of a trial: {year}")


Id = Annotated[str, formed(Form("id", check=fitting(re.compile("[0-9a-f]{8,64}"), "trial's id")))]
Seed = Annotated[str, formed(Form("seed", check=fitting(re.compile("[0-9a-f]{32}"), "seed")))]
EventKind = Annotated[
    str, formed(Form("kind", check=fitting(re.compile("[a-z][a-z0-9_-]{0,63}"), "kind of event")))
]
Line = Annotated[str, Meta(max_length=MAX_LINE_TEXT)]
Text = Annotated[str, Meta(max_length=MAX_CONDITION)]
Reason = Annotated[str, Meta(max_length=MAX_REASON)]
Moment = Annotated[str, Meta(max_length=40), formed(Form("time", check=check_moment))]
Facts = Annotated[
    Mapping[str, object], Meta(max_length=MAX_NUMBERS), formed(Form("facts", check=check_facts))
]
Block = Annotated[int, Meta(ge=0, le=MAX_BLOCK)]
Measured = Annotated[float, Meta(ge=0, le=MAX_VALUE)]
Number = Annotated[float, Meta(ge=-MAX_VALUE, le=MAX_VALUE)]
Responses = Annotated[Mapping[Line, Measured], Meta(max_length=MAX_NUMBERS)]
Evidence = Annotated[Mapping[Line, Number], Meta(max_length=MAX_NUMBERS)]
Whole = Annotated[int, Meta(ge=0)]
Pair = Annotated[Sequence[Whole], Meta(min_length=2, max_length=2)]
Bins = Annotated[Sequence[Pair], Meta(max_length=MAX_BINS)]
Histograms = Annotated[
    Mapping[Line, Bins],
    Meta(max_length=MAX_HISTOGRAMS, description="by operation, as pairs of nanoseconds and count"),
]
Cases = Annotated[int, Meta(ge=0, le=MAX_CASES)]
