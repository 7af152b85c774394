"""Objects of documents that take their fields from a finding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec
import pytest
from msgspec import UNSET, Meta

from iotrial.documents import JsonObject, Size, has_fields_of, plain
from iotrial.study.model import Scale


@dataclass(frozen=True)
class Found:
    """A finding."""

    level: Annotated[str, Meta(description="Of the factor.")]
    value: float | None
    low: float | None
    scale: Scale
    secret: int = 0


@has_fields_of(
    Found,
    without=(
        "scale",
        "secret",
    ),
)
class Printed(JsonObject, frozen=True, kw_only=True):
    """What is printed."""

    ratio: Size = UNSET
    difference: Size = UNSET
    level: int
    more: bool


@pytest.mark.parametrize(("scale", "name"), [(Scale.LOG, "ratio"), (Scale.DIFFERENCE, "difference")])
def test_a_size_is_a_ratio_or_a_difference_by_its_scale(scale: Scale, name: str) -> None:
    printed = Printed.of(Found("a", 2.0, None, scale), level=3, more=True)
    assert list(plain(printed).items()) == [("level", 3), (name, 2.0), ("low", None), ("more", True)]


def test_an_own_field_keeps_its_place_and_the_description_of_the_finding() -> None:
    schema = msgspec.json.schema(Printed)["$defs"]["Printed"]
    assert list(schema["properties"]) == ["level", "ratio", "difference", "low", "more"]
    assert schema["properties"]["level"] == {"description": "Of the factor.", "type": "integer"}
    assert schema["required"] == ["level", "low", "more"]
    assert schema["additionalProperties"] is False
