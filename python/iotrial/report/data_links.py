"""The data of figures within a page: links that hold them, as many as fit.

A link of the scheme ``data:`` with a name to download works offline, from a file, under the page's content security policy.
Much data is compressed. Where a page would grow beyond its limit the largest are left out, and the page says where they are.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from iotrial.report.figure import Figure, csv_of, named

#: of a whole page, in bytes
LARGEST_PAGE = 5_000_000
#: above this a table is compressed
_LARGEST_PLAIN = 65_536


@dataclass(frozen=True, slots=True)
class DataLink:
    """Where the data of one figure are: in ``href``, to be saved as ``name``; an empty ``href`` is one that does not fit."""

    href: str
    name: str
    rows: int

    @property
    def compressed(self) -> bool:
        """Whether the file is gzip."""
        return self.name.endswith(".gz")


def data_links(figures: Iterable[Figure], *, prefix: str) -> Mapping[str, DataLink]:
    """By the name of the figure's drawing, whatever they take; ``prefix`` begins names."""
    return {
        figure.drawing.name: _link(figure, f"{prefix}-{name}" if prefix else name)
        for name, figure in named(figures)
    }


def fitting(made: Mapping[str, DataLink], room: int) -> Mapping[str, DataLink]:
    """The same, the smallest first, until ``room`` (bytes) is used up; the others are empty."""
    links = {}
    for name, link in sorted(made.items(), key=lambda pair: len(pair[1].href)):
        room -= len(link.href)
        links[name] = link if room >= 0 else DataLink("", link.name, link.rows)
    return links


def _link(figure: Figure, name: str) -> DataLink:
    data = csv_of(figure).encode()
    kind, ending = "text/csv;charset=utf-8", ".csv"
    if len(data) > _LARGEST_PLAIN:
        data = gzip.compress(data, mtime=0)
        kind, ending = "application/gzip", ".csv.gz"
    return DataLink(f"data:{kind};base64,{base64.b64encode(data).decode()}", name + ending, len(figure.rows))
