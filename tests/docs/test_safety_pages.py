"""The tests that RELIABILITY.md and SECURITY.md name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE = re.compile(r"`((?:tests/[\w/]+/)?test_\w+\.py)(?:::(test_\w+))?`")


@pytest.mark.parametrize("page", ["RELIABILITY.md", "SECURITY.md"])
def test_every_test_that_a_page_names_exists(page: str) -> None:
    named = FILE.findall((ROOT / page).read_text())
    assert any(test for _, test in named)
    for file, test in named:
        # a table may leave out the folder that its heading names
        found = [ROOT / file] if "/" in file else list((ROOT / "tests").glob(f"*/{file}"))
        assert any(path.is_file() for path in found), file
        assert not test or any(f"def {test}(" in path.read_text() for path in found), f"{file}::{test}"
