"""What the doctor says of one side of a machine: found, how grave, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Grade(StrEnum):
    """How grave a finding is."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. ``do`` says what to do about it (None where nothing need be done), ``facts`` are its numbers.

    ``fatal``: with it no lab at all can be used.
    """

    area: str
    grade: Grade
    found: str
    do: str | None = None
    facts: Mapping[str, object] = field(default_factory=dict)
    fatal: bool = False
