"""The reference of study files: its examples are valid, and its lists name exactly the existing keys."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from generators.key_lists import with_keys
from iotrial.study import schema, tables
from iotrial.study.model import Budget, LabSpec
from iotrial.study.places import PlaceSpec
from iotrial.study.reader import read_study
from iotrial.study.schema import keys_of
from iotrial.study.work import FileSet, kinds, own_keys

DOCS = Path(__file__).parents[2] / "docs"
WORKLOADS = (DOCS / "workloads.md").read_text("utf-8")
TEXT = (DOCS / "study-files.md").read_text("utf-8") + WORKLOADS
SECTIONS = {
    part.split("\n", 1)[0].strip("# `"): part for part in re.split(r"^##+ ", TEXT, flags=re.MULTILINE)
}


@pytest.mark.parametrize("example", re.findall(r"^```toml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL))
def test_every_example_can_be_read(example: str) -> None:
    read_study(example, "docs/study-files.md", trusted=False)


def _documented(section: str) -> set[str]:
    items = re.findall(r"^- ((?:`[^`]+`(?:, )?)+) \(", SECTIONS[section], re.MULTILINE)
    return {key for item in items for key in re.findall(r"`([^`]+)`", item)}


_FILE_SET = set(keys_of(FileSet))


@pytest.mark.parametrize(
    ("section", "keys"),
    [
        ("[study]", set(keys_of(tables.StudyTable))),
        ("[lab]", set(keys_of(LabSpec))),
        ("[[place]]", set(keys_of(PlaceSpec))),
        ("[budget]", set(keys_of(Budget))),
        ("[design]", set(keys_of(tables.DesignTable))),
        ("[[factor]]", set(keys_of(tables.FactorTable))),
        ("[[fixed]]", set(keys_of(tables.SettingTable))),
        ("[[workload]]", set(keys_of(tables.WorkloadTable))),
        ("Files of a run", _FILE_SET),
        ("[[response]]", set(keys_of(tables.ResponseTable))),
        ("[[claim]]", set(keys_of(tables.ClaimTable))),
        ("needs` of a claim", set(keys_of(tables.NeedsTable))),
        *((f'kind = "{name}"', set(own_keys(kind)) - _FILE_SET) for name, kind in kinds().items()),
    ],
)
def test_the_lists_name_every_key_and_no_other(section: str, keys: set[str]) -> None:
    assert _documented(section) == keys


@pytest.mark.parametrize("name", sorted(kinds()))
def test_every_response_of_a_kind_is_named(name: str) -> None:
    common = WORKLOADS.partition("## ")[0]  # responses of nearly every kind are named once, at the top
    words = set(re.findall(r"`([^`\n]+)`", common + SECTIONS[f'kind = "{name}"']))
    assert {spec.name for spec in kinds()[name].documented} - {"OPERATION_time"} <= words


def test_the_limits_are_those_of_the_reader() -> None:
    limits = SECTIONS["Limits"]
    for number in (
        schema.MAX_FACTORS,
        schema.MAX_LEVELS,
        schema.MAX_WORKLOADS,
        schema.MAX_CLAIMS,
        schema.MAX_LABEL,
    ):
        assert re.search(rf"\b{number}\b", limits)


def test_the_lists_of_kinds_are_what_their_structs_declare() -> None:
    assert with_keys(WORKLOADS) == WORKLOADS, "run `make manual`"
