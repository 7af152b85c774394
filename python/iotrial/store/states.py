"""Where a trial stands."""

from __future__ import annotations

from enum import StrEnum


class TrialState(StrEnum):
    """Where a trial stands. ``running`` in the store of a dead conductor means interrupted."""

    RUNNING = "running"
    DONE = "done"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    INVALID = "invalid"
