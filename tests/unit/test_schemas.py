"""The files in schemas/ are what the Structs of the documents give."""

from __future__ import annotations

from pathlib import Path

import pytest

from iotrial.cli.schemas import DOCUMENTS, schema_text

SCHEMAS = Path(__file__).parents[2] / "schemas"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_schema_is_what_its_document_declares(name: str) -> None:
    assert (SCHEMAS / f"{name}.schema.json").read_text() == schema_text(name), "run `make schemas`"
