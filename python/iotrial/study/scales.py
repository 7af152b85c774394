"""How values of a response are compared, and which direction is better."""

from __future__ import annotations

from enum import StrEnum


class Scale(StrEnum):
    """Comparison of two values of a response: by ratio or by difference."""

    LOG = "log"
    DIFFERENCE = "difference"


class Says(StrEnum):
    """Direction that a claim without a number states for the response at its level, relative to its reference."""

    FASTER = "faster"
    SLOWER = "slower"
    HIGHER = "higher"
    LOWER = "lower"
    SAME = "same"


class Better(StrEnum):
    """Which direction of a response is better."""

    LOWER = "lower"
    HIGHER = "higher"
    NONE = "none"
