"""Decode the data files behind the download links of an HTML report."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import re
from html import unescape

_LINK = re.compile(r'<a href="data:([^;"]+)[^",]*,([^"]*)" download="([^"]+)"')


def saved(page: str) -> dict[str, list[list[str]]]:
    """Return the rows of each linked table by file name, header row first."""
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
