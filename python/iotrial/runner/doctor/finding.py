"""A finding of the doctor: what was found, how serious it is, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta, field

from iotrial.documents import JsonObject


class Grade(StrEnum):
    """Severity of a finding."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


class Finding(JsonObject, frozen=True):
    """One finding. ``facts`` are its numbers."""

    area: str
    grade: Grade
    found: str
    do: Annotated[str | None, Meta(description="What to do about it.")] = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    fatal: Annotated[bool, Meta(description="No lab at all can be used: exit status 1.")] = False
