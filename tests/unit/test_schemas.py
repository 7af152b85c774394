"""The files in schemas/ are what the Structs of the documents give."""

from __future__ import annotations

import json
import math
from pathlib import Path

import jsonschema
import pytest

from generators.schemas import DOCUMENTS, schema_text
from iotrial.cli.verbs.list_ import Row, Studies
from iotrial.documents import json_text, plain
from iotrial.knobs.declaration import Safety

SCHEMAS = Path(__file__).parents[2] / "schemas"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_schema_is_what_its_document_declares(name: str) -> None:
    assert (SCHEMAS / f"{name}.schema.json").read_text() == schema_text(name), "run `make schemas`"


def test_no_schema_is_kept_by_hand() -> None:
    assert {path.name.removesuffix(".schema.json") for path in SCHEMAS.iterdir()} == set(DOCUMENTS)


def test_a_key_that_is_missing_or_unknown_or_of_another_kind_is_refused() -> None:
    validator = jsonschema.Draft202012Validator(json.loads(schema_text("list")))
    made = json.loads(json_text(Studies([Row("a/b", "A", "Is it?", 60.0, Safety.HARMLESS)])))
    assert validator.is_valid(made)
    (row,) = made["studies"]
    for wrong in ({**row, "more": 1}, {**row, "title": None}, {**row, "safety": "safe"}, {"name": "a/b"}):
        assert not validator.is_valid({**made, "studies": [wrong]})


def test_numbers_that_are_not_finite_are_null_wherever_they_stand() -> None:
    assert plain({"a": [math.nan, (1.0, -math.inf)], "b": {1: math.inf}}) == {
        "a": [None, [1.0, None]],
        "b": {"1": None},
    }
