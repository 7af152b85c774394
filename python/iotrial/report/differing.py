"""What differs between trials beside what they measured: machine, lab, versions, margins, and the work itself.

Only differences are listed: what two trials of one study have in common is in their reports. What changes from run to
run of one machine (the number of a loop device, the measured frequency of a clock) is no difference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from iotrial.legible import shown
from iotrial.report.analysed import Analysed
from iotrial.report.notation import percent
from iotrial.units import format_bytes

_PASSING = re.compile(r"^(probe clock (error|hz)|file sets\b.*|notes)$")
_LOOP = re.compile(r"^(/dev/)?loop\d+$")
_LONGEST = 200
_MOST = 200


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact with its value in every trial (None: the trial does not have it). ``group``: trial, machine, lab or work."""

    group: str
    name: str
    values: tuple[str | None, ...]


def differences_of(trials: Sequence[Analysed]) -> tuple[Difference, ...]:
    """The facts that are not the same in all trials, at most 200 of them."""
    found: list[Difference] = []
    for group, facts in (
        ("trial", [_own(one) for one in trials]),
        ("machine", [_lasting(one.machine) for one in trials]),
        ("lab", [_lasting(one.lab) for one in trials]),
        ("work", _in_all([one.does for one in trials])),
    ):
        found += _differing(group, facts)
    return tuple(found[:_MOST])


def _own(one: Analysed) -> Mapping[str, str]:
    """What was asked, and by which version."""
    return {
        "study": shown(one.study),
        "margin": percent(one.margin),
        "alpha": f"{one.alpha:g}",
        "version": shown(one.version),
        "state": ("" if one.valid else "invalid, ") + one.state if one.state != "invalid" else "invalid",
    }


def _lasting(facts: Mapping[str, str]) -> Mapping[str, str]:
    return {
        name: _sized(name, value)
        for name, value in facts.items()
        if not _PASSING.match(name) and not _LOOP.match(value)
    }


def _sized(name: str, value: str) -> str:
    """Bytes in the unit that suits them, in which what a kernel keeps for itself is no difference."""
    return format_bytes(float(value)) if name.endswith("bytes") and value.isdecimal() else value


def _in_all(facts: Sequence[Mapping[str, str]]) -> Sequence[Mapping[str, str]]:
    """Only what several trials have: a workload or level that one lacks is a comparison that it lacks."""
    several = {name for one in facts for name in one if sum(name in other for other in facts) > 1}
    return [{name: value for name, value in one.items() if name in several} for one in facts]


def _differing(group: str, facts: Sequence[Mapping[str, str]]) -> Iterator[Difference]:
    for name in dict.fromkeys(name for one in facts for name in one):
        values = tuple(one.get(name) for one in facts)
        there = [value for value in values if value is not None]
        missing = len(there) < len(values) and group != "work"
        if missing or len(set(there)) > 1:
            yield Difference(group, name, tuple(v if v is None else v[:_LONGEST] for v in values))
