"""Parse query strings with limits: on the digits of numbers, the length of text, and the number of parameters.

Everything else is a RequestError, which becomes an error page.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import date
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request

from iotrial.errors import RequestError
from iotrial.terminal import escape

MOST_PARAMETERS = 64
LONGEST_QUERY = 8192
LONGEST_TEXT = 200
MOST_COMPARED = 20
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")
_LARGEST_PAGE = 100_000

Pairs = tuple[tuple[str, str], ...]


def pairs_of(request: Request) -> Pairs:
    """Return names and values of the query string. Raises RequestError if it is too long or has too many parameters."""
    query: bytes = request.scope["query_string"]
    if len(query) > LONGEST_QUERY:
        raise RequestError(
            f"the address has a query of {len(query):,} bytes: expected at most {LONGEST_QUERY:,}"
        )
    try:
        text = query.decode("ascii", "replace")
        found = parse_qsl(text, keep_blank_values=True, errors="replace", max_num_fields=MOST_PARAMETERS)
    except ValueError as error:
        raise RequestError(f"the address has more than {MOST_PARAMETERS} parameters") from error
    return tuple(found)


def number_of(text: str) -> int | None:
    """Return a trial's number in plain digits; None for anything else."""
    return int(text) if _NUMBER.fullmatch(text) else None


def value_of(pairs: Pairs, name: str) -> str:
    """Return the last value of this name, sanitised, or "". Raises RequestError if it is too long."""
    text = next((value for key, value in reversed(pairs) if key == name), "").strip()
    if len(text) > LONGEST_TEXT:
        raise RequestError(f"{name}: {len(text):,} characters, expected at most {LONGEST_TEXT}")
    return escape(text)


def trials_of(pairs: Pairs) -> tuple[int, ...]:
    """Return the trials to compare, from ``trials=1,2`` or ``trials=1&trials=2``, without duplicates, in the given order."""
    texts = [
        part.strip()
        for name, value in pairs
        if name == "trials"
        for part in re.split(r"[,\s]+", value)
        if part.strip()
    ]
    numbers: dict[int, None] = {}
    for text in texts:
        number = number_of(text)
        if number is None:
            raise RequestError(f'trials: "{escape(text[:40])}" is not the number of a trial')
        numbers[number] = None
    if len(numbers) > MOST_COMPARED:
        raise RequestError(f"trials: {len(numbers)} at once, expected at most {MOST_COMPARED}")
    return tuple(numbers)


@dataclass(frozen=True, slots=True)
class Search:
    """Filters of the list; "" does not filter. All words must occur in the text, ignoring case."""

    study: str = ""
    state: str = ""
    machine: str = ""
    kernel: str = ""
    since: str = ""
    until: str = ""
    verdict: str = ""
    page: int = 1

    @classmethod
    def of(cls, pairs: Pairs) -> Search:
        """Parse the filters. Raises RequestError for an invalid date or page."""
        texts = {one.name: value_of(pairs, one.name) for one in fields(cls) if one.name != "page"}
        for name in ("since", "until"):
            if texts[name]:
                texts[name] = _date(name, texts[name])
        page = value_of(pairs, "page") or "1"
        number = number_of(page)
        if number is None or number > _LARGEST_PAGE:
            raise RequestError(f'page: "{escape(page[:40])}" is not the number of a page')
        return cls(**texts, page=number)

    @property
    def narrows(self) -> bool:
        """Whether any filter is set."""
        return any(getattr(self, one.name) for one in fields(self) if one.name != "page")

    def address(self, page: int) -> str:
        """Return the URL of another page of the same search, relative to the list."""
        wished = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "page"}
        wished = {name: value for name, value in wished.items() if value}
        return "?" + urlencode({**wished, "page": page} if page > 1 else wished)


def holds(wanted: str, texts: Sequence[str]) -> bool:
    """Return whether every word of ``wanted`` occurs in the texts."""
    if not wanted:
        return True
    whole = "\n".join(texts).casefold()
    return all(word in whole for word in wanted.casefold().split())


def _date(name: str, text: str) -> str:
    try:
        if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
            raise ValueError
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise RequestError(f'{name}: "{escape(text[:40])}" is not a date') from None
