"""docs/audits.md is what the tables in docs/audits give."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_page_of_audits_is_up_to_date() -> None:
    page = runpy.run_path(str(ROOT / "scripts" / "audits"))["page"]
    assert (ROOT / "docs" / "audits.md").read_text() == page(), "run `make audits`"


def test_every_table_has_its_section() -> None:
    text = (ROOT / "docs" / "audits.md").read_text()
    for table in (ROOT / "docs" / "audits").glob("*.csv"):
        assert text.count(f"[{table.name}](audits/{table.name})") == 1, "run `make audits`"
