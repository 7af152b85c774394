"""What CONTRIBUTING.md names on the way of one level is there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).resolve().parents[2] / "CONTRIBUTING.md").read_text()
SECTION = TEXT.split("## One level, from TOML to verdict")[1].split("\n## ")[0]
NAMES = sorted(set(re.findall(r"`((?:study|design|runner|lab|stats|report)\.[\w.]+)`", SECTION)))


def test_the_way_has_ten_steps_and_names_every_stage() -> None:
    assert len(re.findall(r"(?m)^\d+\. ", SECTION)) == 10
    assert {name.split(".")[0] for name in NAMES} == {
        "study",
        "design",
        "runner",
        "lab",
        "stats",
        "report",
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_name_on_the_way_is_there(name: str) -> None:
    stage, module, *inside = name.split(".")
    found: object = importlib.import_module(f"iotrial.{stage}.{module}")
    for part in inside:
        found = getattr(found, part)
