"""What a reader saves from a page: the files behind its data links, by name."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import re
from html import unescape

_LINK = re.compile(r'<a href="data:([^;"]+)[^",]*,([^"]*)" download="([^"]+)"')


def saved(page: str) -> dict[str, list[list[str]]]:
    """Rows of every table that the page holds, the head first."""
    found = {}
    for kind, text, name in _LINK.findall(page):
        data = base64.b64decode(text, validate=True)
        if kind == "application/gzip":
            assert name.endswith(".csv.gz")
            data = gzip.decompress(data)
        else:
            assert (kind, name[-4:]) == ("text/csv", ".csv")
        found[unescape(name)] = list(csv.reader(io.StringIO(data.decode(), newline="")))
    return found
