"""docs/audits.md and the pages in docs/catalogue/audits are what the tables in docs/audits give."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
AUDITS = runpy.run_path(str(ROOT / "scripts" / "audits"))
INDEX = ROOT / "docs" / "audits.md"
FOLDER = ROOT / "docs" / "catalogue" / "audits"
TABLES = sorted((ROOT / "docs" / "audits").glob("*.csv"))
MOST_WORDS_INDEX = 900
MOST_LINES = 40
MOST_WORDS = 600


def test_index_and_pages_are_up_to_date() -> None:
    pages = AUDITS["pages"]()
    assert {file: file.read_text() for file in (INDEX, *FOLDER.iterdir())} == pages, "run `make audits`"


def test_the_index_is_short_and_has_one_row_for_each_table() -> None:
    text = INDEX.read_text()
    assert len(text.split()) <= MOST_WORDS_INDEX
    rows = re.findall(r"^\| \[[^]]+\]\(catalogue/audits/([^)]+)\.md\) \|", text, re.MULTILINE)
    assert rows == [table.stem for table in TABLES]


@pytest.mark.parametrize("table", TABLES, ids=lambda path: path.stem)
def test_a_page_fits_on_a_screen_and_says_how_to_repeat_it(table: Path) -> None:
    page = FOLDER / f"{table.stem}.md"
    text = page.read_text()
    assert len(text.splitlines()) <= MOST_LINES
    assert len(text.split()) <= MOST_WORDS
    assert text.splitlines()[2].startswith("**")  # the answer comes first
    no_numbers = "**No numbers" in text
    assert (f"`iotrial audit docs/audits/{table.name}`" in text) != no_numbers


@pytest.mark.parametrize("page", [INDEX, *sorted(FOLDER.iterdir())], ids=lambda path: path.stem)
def test_links_and_anchors_of_index_and_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#([^)]+))?\)", page.read_text())
    assert links
    for target, anchor in links:
        file = page.parent / target
        assert file.is_file(), target
        headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
        assert not anchor or anchor in [heading.lower().replace(" ", "-") for heading in headings]
