"""Render blocks as one HTML file that works offline and loads no remote resource.

Every label goes through jinja2's autoescape; only figures made by the plots are inserted unescaped. A content security
policy in the page enforces the same in the browser. The only script is the one that rotates surfaces, present if there
are any; the policy allows it by its hash and forbids all others.

The data of figures are embedded in the page as links, as many as fit. A ``data:`` link with a download name works
offline, from a file, under the page's content security policy. Large data are compressed. If a page would exceed its
limit, the largest are omitted, and the page says where to find them.
"""

from __future__ import annotations

import base64
import gzip
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import resources
from itertools import groupby
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from iotrial.report.blocks import (
    Block,
    Cell,
    Report,
    Section,
    Table,
    View,
    Words,
    figures_in,
    parts,
    shown_in,
)
from iotrial.report.chart import swatch
from iotrial.report.figure import Figure, csv_of, named
from iotrial.terminal import escape, escape_lines

if TYPE_CHECKING:
    from jinja2 import Environment, Template

#: conditions that are drawn, unless the page is too large
MOST_PANELS = 24
#: attempts at a small enough page: most rows per table, and most conditions drawn
ATTEMPTS = ((1_000_000, MOST_PANELS), (2000, MOST_PANELS), (400, MOST_PANELS), (100, 6))
_COPIED = re.compile(r"(<pre>.*?</pre>|<style>.*?</style>|<script>.*?</script>)", re.DOTALL)


def html(make: Callable[[int], Report]) -> str:
    """Render the report that ``make`` builds for a number of conditions to draw, in at most ``LARGEST_PAGE`` bytes.

    If it is too large, tables are cut first, then figures. The data of figures get the room below ``WITH_DATA``.
    """
    reports: dict[int, Report] = {}  # figures need not be redrawn for a shorter table
    for most_rows, most_panels in ATTEMPTS:
        if most_panels not in reports:
            reports[most_panels] = make(most_panels)
        page = _Page(reports[most_panels], most_rows)
        size = len(page.text(room=0).encode("utf-8", "replace"))
        if size <= LARGEST_PAGE:
            break
    return page.text(room=WITH_DATA - size)


class _Page:
    """The page of one report, with a limit on rows per table."""

    def __init__(self, report: Report, most_rows: int) -> None:
        self._links = data_links(
            (drawn.figure for drawn in figures_in(report.blocks) if drawn.figure is not None),
            prefix=report.files,
        )
        blocks = shown_in(report.blocks, View.PAGE)
        sections = [block for block in blocks if isinstance(block, Section) and block.id]
        runs = groupby(blocks, key=lambda block: isinstance(block, Section) and bool(block.id))
        body = [("sections" if alone else "loose", tuple(members)) for alone, members in runs]
        turns = any(drawn.scenes for drawn in figures_in(report.blocks))
        turning = _turning() if turns else ""
        self._values: dict[str, object] = {
            "r": report,
            "body": body,
            "sections": sections,
            "cut": lambda table: table.cut(most_rows),
            "turning": turning,
            "turning_hash": script_hash(turning),
        }

    def text(self, *, room: int) -> str:
        """Render the page with the data of as many figures as fit into ``room`` (bytes)."""
        return _unbroken(_template().render(**self._values, links=fitting(self._links, room)))


def _kinds(blocks: Iterable[Block]) -> list[tuple[str, Sequence[Block]]]:
    """Group the blocks that a page shows by kind: consecutive notes or claims together, all others one by one."""
    found: list[tuple[str, Sequence[Block]]] = []
    for kind, members in groupby(shown_in(blocks, View.PAGE), key=lambda block: type(block).__name__.lower()):
        together = tuple(members)
        found += [(kind, together)] if kind in ("note", "claim") else [(kind, (one,)) for one in together]
    return found


def _columns(table: Table) -> list[int]:
    return [place for place, column in enumerate(table.columns) if column.view & View.PAGE]


def _words(cell: Cell) -> tuple[Words, ...]:
    return parts(cell, View.PAGE)


@cache
def _turning() -> str:
    """Return the script that rotates surfaces, as embedded in the page."""
    return resources.files("iotrial.report").joinpath("templates/turning.js").read_text("utf-8").strip()


def script_hash(script: str) -> str:
    """Return the hash that a content security policy uses for an inline script; "" for no script."""
    return f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}" if script else ""


def _unbroken(page: str) -> str:
    """Prevent line breaks between a number and its per cent sign, except in text for copying."""
    pieces = _COPIED.split(page)
    return "".join(piece if i % 2 else piece.replace(" %", "\u00a0%") for i, piece in enumerate(pieces))


@cache
def _template() -> Template:
    made = environment(
        "iotrial.report",
        shown=escape,
        shown_lines=escape_lines,
        kinds=_kinds,
        columns=_columns,
        words=_words,
        swatch=lambda arm: Markup(swatch(arm)),
    )
    return made.get_template("page.html.j2")


#: limit of a whole page, in bytes
LARGEST_PAGE = 5_000_000
#: bytes up to which the numbers behind figures are put into the page
WITH_DATA = 400_000
#: a table with more bytes is compressed
_LARGEST_PLAIN = 65_536


@dataclass(frozen=True, slots=True)
class DataLink:
    """A link to the data of one figure.

    ``href`` holds the data and is empty if they do not fit; ``name`` is the file name.
    """

    href: str
    name: str
    rows: int

    @property
    def compressed(self) -> bool:
        """Whether the file is gzip."""
        return self.name.endswith(".gz")


def data_links(figures: Iterable[Figure], *, prefix: str) -> Mapping[str, DataLink]:
    """Return links by the name of the figure's drawing, without a size limit. ``prefix`` is the prefix of file names."""
    return {
        figure.drawing.name: _link(figure, f"{prefix}-{name}" if prefix else name)
        for name, figure in named(figures)
    }


def fitting(made: Mapping[str, DataLink], room: int) -> Mapping[str, DataLink]:
    """Keep the smallest links until ``room`` (bytes) is used up; the others get an empty ``href``."""
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


# Shared jinja2 set-up of all pages: values are escaped, and an undefined name is an error.


def environment(package: str, **filters: Callable[..., Any]) -> Environment:
    """Return an environment for the templates in a package's folder ``templates``, with these filters.

    Each template is read once.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader(package, "templates"),
        autoescape=True,
        auto_reload=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(filters)
    return made
