"""Test file names: pytest imports each file under its bare name."""

from __future__ import annotations

from collections import Counter
from pathlib import Path


def test_no_two_files_of_tests_have_one_name() -> None:
    """Files with the same name cannot be collected together, as `make test-long` does."""
    names = Counter(path.name for path in Path(__file__).parents[1].rglob("test_*.py"))
    assert len(names) > 100
    assert [name for name, count in names.items() if count > 1] == []
