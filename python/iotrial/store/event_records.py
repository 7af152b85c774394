"""Records that are kept as events of a trial, so that a packed trial includes them.

Continuations, where the time went, power cuts, energy.

An iotrial that does not know a kind shows its events as notes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace

import msgspec

from iotrial.errors import StoreError
from iotrial.store.model import Continuation, Event, PowerCuts, RunRecord
from iotrial.store.records import to_json
from iotrial.units import is_number

# continuations of a trial that had ended, with its new limits

CONTINUED = "continued"
#: Per condition; a store and a packed trial hold no more.
MOST_BLOCKS = 1_000_000
_LONGEST_S = 1e10


def continuation_text(one: Continuation) -> str:
    """Return the text of the event."""
    return json.dumps({"time_s": one.time_s, "blocks": one.blocks, "no_stop": one.no_stop})


def continuations(events: Iterable[Event]) -> tuple[Continuation, ...]:
    """Return the continuations in the events, oldest first.

    An event of another shape, which a packed trial may hold, is ignored.
    """
    found = (_continuation_of(event) for event in events if event.kind == CONTINUED)
    return tuple(one for one in found if one is not None)


def _continuation_of(event: Event) -> Continuation | None:
    value = _table(event.text)
    time_s, blocks, no_stop = value.get("time_s"), value.get("blocks"), value.get("no_stop")
    if not is_number(time_s, _LONGEST_S) or time_s < 0:
        return None
    if type(blocks) is not int or not 0 <= blocks <= MOST_BLOCKS or not isinstance(no_stop, bool):
        return None
    return Continuation(event.at, float(time_s), blocks, no_stop)


def _table(text: str) -> dict[str, object]:
    """Return a JSON object; empty if the text is something else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


# where the time of an attempt went

TIME_SPENT = "time-spent"
_MOST_PARTS = 64


def time_spent_text(spent_s: Mapping[str, float]) -> str:
    """Return the text of the event."""
    return json.dumps({part: round(seconds, 6) for part, seconds in spent_s.items()})


def time_spent_of(events: Iterable[Event]) -> dict[str, float]:
    """Return the seconds by part over all attempts, the longest first.

    An event of another shape, which a packed trial may hold, is ignored.
    """
    found: dict[str, float] = {}
    for event in events:
        if event.kind == TIME_SPENT:
            spent = _table(event.text)
            if len(spent) > _MOST_PARTS:
                continue
            for part, seconds in spent.items():
                if is_number(seconds, _LONGEST_S) and seconds >= 0:
                    found[part] = found.get(part, 0.0) + float(seconds)
    return dict(sorted(found.items(), key=lambda one: -one[1]))


# what power cuts left of an arm's run

POWER_CUTS = "power-cuts"
#: what was not cut, and why
NOT_CUT = "not-cut"
_decode = msgspec.json.Decoder(PowerCuts).decode


def power_cuts_text(record: PowerCuts) -> str:
    """Return the text of the event."""
    return to_json(asdict(record))


def power_cuts_of(text: str) -> PowerCuts:
    """Return the record in the text of an event. Raises StoreError if it holds none, or one that contradicts itself."""
    try:
        record = _decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise StoreError("holds a damaged record: power cuts of another shape") from error
    if any(count > record.points for count in record.bad) or record.most_lost > record.acknowledged:
        raise StoreError("holds a damaged record: more power cuts did harm than were made")
    return record


# energy of runs, measured by an external meter and imported later: joules by the runs' position in storage order, because
# runs are never changed; a later import replaces an earlier one

ENERGY = "energy"
_ENERGY_METRIC = "energy_metered"
_PER_EVENT = 256
_LARGEST_J = 1e12


def energy_texts(joules: Sequence[float | None]) -> Iterator[str]:
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
        if event.kind == ENERGY:
            known.update(_energies_in(event.text))
    if not known:
        return runs
    return tuple(
        run if (j := known.get(place)) is None else replace(run, evidence={**run.evidence, _ENERGY_METRIC: j})
        for place, run in enumerate(runs)
    )


def _energies_in(text: str) -> Iterator[tuple[int, float | None]]:
    value = _table(text)
    first, joules = value.get("first"), value.get("joules")
    if type(first) is not int or not isinstance(joules, list):
        return
    for place, j in enumerate(joules[:_PER_EVENT], start=first):
        if j is None:
            yield place, None
        elif type(j) in (int, float) and 0 <= j <= _LARGEST_J:
            yield place, float(j)
