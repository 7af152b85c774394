"""How values of a response are compared, and which of them a reader prefers."""

from __future__ import annotations

from enum import StrEnum


class Scale(StrEnum):
    """How two values of a response are compared: by ratio or by difference."""

    LOG = "log"
    DIFFERENCE = "difference"


class Says(StrEnum):
    """What a claim without a number says of a response at its level, against its reference."""

    FASTER = "faster"
    SLOWER = "slower"
    HIGHER = "higher"
    LOWER = "lower"
    SAME = "same"


class Better(StrEnum):
    """Which direction of a response its reader prefers."""

    LOWER = "lower"
    HIGHER = "higher"
    NONE = "none"
