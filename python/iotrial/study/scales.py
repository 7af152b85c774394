"""How values of a response are compared, and which of them a reader prefers."""

from __future__ import annotations

from enum import StrEnum


class Scale(StrEnum):
    """How two values of a response are compared: by ratio or by difference."""

    LOG = "log"
    DIFFERENCE = "difference"


class Better(StrEnum):
    """Which direction of a response its reader prefers."""

    LOWER = "lower"
    HIGHER = "higher"
    NONE = "none"
