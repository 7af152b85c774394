"""docs/audits.md is what the tables in docs/audits give."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_page_of_audits_is_up_to_date() -> None:
    page = runpy.run_path(str(ROOT / "scripts" / "audits"))["page"]
    assert (ROOT / "docs" / "audits.md").read_text() == page(), "run `make audits`"


def test_links_in_the_table_of_contents_lead_to_sections() -> None:
    text = (ROOT / "docs" / "audits.md").read_text()
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    targets = re.findall(r"\]\(#([^)]+)\)", text)
    assert len(headings) == len(list((ROOT / "docs" / "audits").glob("*.csv")))
    assert targets == [re.sub(r"[^a-z0-9 _-]", "", title.lower()).replace(" ", "-") for title in headings]
