"""The table of seeded faults (`scripts/mutants`) still matches the program."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
MUTANTS: list[dict[str, Any]] = tomllib.loads((ROOT / "tests/mutants/mutants.toml").read_text())["mutant"]


@pytest.mark.parametrize("file", sorted({mutant["file"] for mutant in MUTANTS}))
def test_every_mutant_of_a_file_applies_once_and_gives_another_program(file: str) -> None:
    is_rust = file.startswith("crates/")
    text = (ROOT / file if is_rust else ROOT / "python" / "iotrial" / file).read_text()
    plain = "" if is_rust else ast.dump(ast.parse(text))
    for mutant in MUTANTS:
        if mutant["file"] == file:
            assert text.count(mutant["old"]) == 1, mutant["name"]
            changed = text.replace(mutant["old"], mutant["new"])
            assert is_rust or ast.dump(ast.parse(changed)) != plain, mutant["name"]


def test_every_mutant_has_a_name_of_its_own_and_tests_that_exist() -> None:
    names = Counter(mutant["name"] for mutant in MUTANTS)
    assert [name for name, count in names.items() if count > 1] == []
    files = {
        test for mutant in MUTANTS for test in mutant["tests"] if "::" not in test
    }  # the others are modules in Rust
    missing = {test for test in files if not (ROOT / test).is_file()}
    assert missing == set()
