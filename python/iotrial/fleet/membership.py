"""Which trials of a store make a fleet: those whose options carry the same id. Nothing else is asked of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from iotrial.errors import RequestError, UnknownName
from iotrial.store.outline import Outline
from iotrial.store.states import TrialState

_ID = re.compile(r"[0-9a-f]{32}")
LONGEST_NAME = 253  # of a host, as in DNS


@dataclass(frozen=True, slots=True)
class Fleet:
    """The trials of one fleet by number; ``hosts`` counts names. ``replaced``: trials of hosts that have a newer one here."""

    id: str
    trials: tuple[Outline, ...]
    replaced: tuple[Outline, ...] = ()

    @property
    def first(self) -> Outline:
        """The trial with the lowest number."""
        return self.trials[0]

    @property
    def states(self) -> dict[TrialState, int]:
        """How many hosts are in each state, in the order of states."""
        found = [one.state for one in self.trials]
        return {state: found.count(state) for state in TrialState if state in found}


def fleets(trials: Sequence[Outline]) -> tuple[Fleet, ...]:
    """All fleets of a store, the one with the newest trial last. Of a host with several trials the newest counts."""
    found: dict[str, list[Outline]] = {}
    for one in trials:
        if one.fleet is not None and one.member is not None and _is_sound(one.fleet, one.member):
            found.setdefault(one.fleet, []).append(one)
    made = [_fleet(name, members) for name, members in found.items()]
    return tuple(sorted(made, key=lambda fleet: max(one.number for one in fleet.trials)))


def chosen(found: Sequence[Fleet], ref: str | None) -> Fleet:
    """The fleet of this id, or the only one that begins so; None: the newest. UnknownName or RequestError otherwise."""
    if not found:
        raise RequestError("the store holds no fleet yet", hint="`iotrial fleet --help` says how one is made")
    if ref is None or ref == "last":
        return found[-1]
    fitting = [one for one in found if ref and one.id.startswith(ref)]
    if len(fitting) > 1:
        which = ", ".join(one.id[:12] for one in fitting[:8])
        raise RequestError(f'several fleets begin with "{ref}": {which}', hint="give more of the id")
    if not fitting:
        raise UnknownName("fleet", ref, [*(one.id[:12] for one in found[-8:]), "last"])
    return fitting[0]


def _is_sound(fleet: str, member: str) -> bool:
    return _ID.fullmatch(fleet) is not None and 0 < len(member) <= LONGEST_NAME


def _fleet(name: str, members: Sequence[Outline]) -> Fleet:
    newest = {one.member: one for one in sorted(members, key=lambda one: one.number)}
    kept = sorted(newest.values(), key=lambda one: one.number)
    numbers = {one.number for one in kept}
    return Fleet(name, tuple(kept), tuple(one for one in members if one.number not in numbers))
