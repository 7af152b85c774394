"""The reference of study files: its examples read, and its tables name every key that there is and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from iotrial.workloads.contract import FileSetKeys

from iotrial.study import wire
from iotrial.study.reader import read_study
from iotrial.study.work import kinds

TEXT = (Path(__file__).parents[2] / "docs" / "study-files.md").read_text("utf-8")
SECTIONS = {
    part.split("\n", 1)[0].strip("# `"): part for part in re.split(r"^##+ ", TEXT, flags=re.MULTILINE)
}


@pytest.mark.parametrize("example", re.findall(r"^```toml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL))
def test_every_example_can_be_read(example: str) -> None:
    read_study(example, "docs/study-files.md", trusted=False)


def _documented(section: str) -> set[str]:
    cells = re.findall(r"^\| (`[^|]*`) \|", SECTIONS[section], re.MULTILINE)
    return {key for cell in cells for key in re.findall(r"`([^`]+)`", cell)}


_FILE_SET = set(FileSetKeys.model_fields)


@pytest.mark.parametrize(
    ("section", "keys"),
    [
        ("[study]", set(wire.StudyTable.model_fields)),
        ("[lab]", set(wire.LabTable.model_fields)),
        ("[[place]]", set(wire.PlaceTable.model_fields)),
        ("[budget]", set(wire.BudgetTable.model_fields)),
        ("[design]", set(wire.DesignTable.model_fields)),
        ("[[factor]]", set(wire.FactorTable.model_fields)),
        ("[[fixed]]", set(wire.SettingTable.model_fields)),
        ("[[workload]]", set(wire.WorkloadTable.model_fields)),
        ("Files of a run", _FILE_SET),
        ("[[response]]", set(wire.ResponseTable.model_fields)),
        ("[[claim]]", set(wire.ClaimTable.model_fields)),
        ("needs` of a claim", set(wire.NeedsTable.model_fields)),
        *((f'kind = "{name}"', set(kind.keys.model_fields) - _FILE_SET) for name, kind in kinds().items()),
    ],
)
def test_the_tables_name_every_key_and_no_other(section: str, keys: set[str]) -> None:
    assert _documented(section) == keys


@pytest.mark.parametrize("name", sorted(kinds()))
def test_every_response_of_a_kind_is_named(name: str) -> None:
    words = set(re.findall(r"`([^`]+)`", SECTIONS[f'kind = "{name}"']))
    assert {spec.name for spec in kinds()[name].documented} - {"OPERATION_time"} <= words


def test_the_limits_are_those_of_the_reader() -> None:
    limits = SECTIONS["Limits"]
    for number in (wire.MAX_FACTORS, wire.MAX_LEVELS, wire.MAX_WORKLOADS, wire.MAX_CLAIMS, wire.MAX_LABEL):
        assert re.search(rf"\b{number}\b", limits)
