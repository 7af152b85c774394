"""Energy of runs, measured by an external meter and imported later.

Runs are never changed. A meter's readings are stored as events of the trial: each holds the joules of some
runs, by their position in storage order, so that they are included in a packed trial. A later import replaces
an earlier one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from iotrial.store.model import Event, RunRecord

KIND = "energy"
NAME = "energy_metered"
_PER_EVENT = 256
_LARGEST_J = 1e12


def notes(joules: Sequence[float | None]) -> Iterator[str]:
    """Return the texts of the events, for all runs of a trial in order; None: no reading for this run."""
    for first in range(0, len(joules), _PER_EVENT):
        part = [None if j is None else float(f"{j:.6g}") for j in joules[first : first + _PER_EVENT]]
        yield json.dumps({"first": first, "joules": part}, separators=(",", ":"))


def with_energy(runs: tuple[RunRecord, ...], events: Sequence[Event]) -> tuple[RunRecord, ...]:
    """Return the runs with their energy from the events.

    An event of another shape, which a packed trial may hold, is ignored.
    """
    known: dict[int, float | None] = {}
    for event in events:
        if event.kind == KIND:
            known.update(_energies_in(event.text))
    if not known:
        return runs
    return tuple(
        run if (j := known.get(place)) is None else replace(run, evidence={**run.evidence, NAME: j})
        for place, run in enumerate(runs)
    )


def _energies_in(text: str) -> Iterator[tuple[int, float | None]]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return
    first, joules = (value.get("first"), value.get("joules")) if isinstance(value, dict) else (None, None)
    if type(first) is not int or not isinstance(joules, list):
        return
    for place, j in enumerate(joules[:_PER_EVENT], start=first):
        if j is None:
            yield place, None
        elif type(j) in (int, float) and 0 <= j <= _LARGEST_J:
            yield place, float(j)
