"""A finding of the doctor: what was found, how serious it is, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Grade(StrEnum):
    """Severity of a finding."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. ``do`` says what to do about it (None if nothing), ``facts`` are its numbers.

    ``fatal``: no lab can be used at all.
    """

    area: str
    grade: Grade
    found: str
    do: str | None = None
    facts: Mapping[str, object] = field(default_factory=dict)
    fatal: bool = False
