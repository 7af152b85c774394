"""The state of a trial and the time it took, from the rows that say when it changed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from iotrial.store.liveness import ProcessIdentity
from iotrial.store.model import TrialState

ORPHANED = "its conductor ended without a word"


@dataclass(frozen=True, slots=True)
class StateChange:
    """One change of state. ``at_s`` is Unix time; ``process`` conducts from here on (``running`` only)."""

    at_s: float
    state: TrialState
    reason: str | None = None
    process: ProcessIdentity | None = None


def present(
    changes: Sequence[StateChange], alive: Callable[[ProcessIdentity], bool]
) -> tuple[TrialState, str | None]:
    """State and reason now: ``running`` under a process that is gone is ``interrupted``."""
    newest = changes[-1]
    if newest.state is TrialState.RUNNING and not (newest.process is not None and alive(newest.process)):
        return TrialState.INTERRUPTED, newest.reason or ORPHANED
    return newest.state, newest.reason


def duration_s(
    changes: Sequence[StateChange], last_run_s: Callable[[int], float | None], *, now_s: float | None
) -> float:
    """Seconds in state ``running``, over all attempts.

    An attempt without an end lasted until its last run (``last_run_s`` of its number, Unix time), the newest one
    until ``now_s`` where it still runs (None: it does not).
    """
    total, attempt = 0.0, 0
    for index, change in enumerate(changes):
        if change.state is not TrialState.RUNNING:
            continue
        attempt += 1
        following = changes[index + 1] if index + 1 < len(changes) else None
        if following is not None and following.state is not TrialState.RUNNING:
            ended: float | None = following.at_s
        elif following is None and now_s is not None:
            ended = now_s
        else:
            ended = last_run_s(attempt)
        total += max(0.0, (change.at_s if ended is None else ended) - change.at_s)
    return total
