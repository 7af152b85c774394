"""Keys of a run's stored checks, and the encoding of the facts that a run finds out.

A fact maps a name to a word ("read": "once"). Facts are stored inverted, the names by word, because few words
occur for many names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from iotrial.units import is_number

#: numbers in the checks of a packed trial that are larger are ignored
LONGEST_S = 1e9
FACTS = "facts"
#: Samples taken during the run.
SERIES = "series"
#: The work's own data by second.
BY_SECOND = "seconds"
#: The window of a live trial: when its settings were switched, and samples of its metrics since, in seconds since the counted
#: part began.
WINDOW = "window"
#: of a window after a rest: the arm of its lead-in.
LEAD_IN = "lead_in"


def parts_of(checks: Mapping[str, object]) -> dict[str, tuple[float | None, float, float]]:
    """Return the means of each metric in a window's washout, and in the earlier and the later half of its counted part.

    Metrics without values in both halves are left out; without one in the washout, its mean is None. Checks of another
    form, as in an imported trial, are ignored.
    """
    kept, clock = checks.get(WINDOW), checks.get("clock")
    lasted_s = clock.get("lasted_s") if isinstance(clock, Mapping) else None
    at_s = kept.get("at_s") if isinstance(kept, Mapping) else None
    if not isinstance(kept, Mapping) or not isinstance(at_s, list) or not is_number(lasted_s, LONGEST_S):
        return {}
    half_s = float(lasted_s) / 2.0
    found = {}
    for name, values in kept.items():
        if name == "at_s" or not isinstance(values, list) or len(values) != len(at_s):
            continue
        parts: tuple[list[float], list[float], list[float]] = ([], [], [])
        for moment, value in zip(at_s, values, strict=True):
            if is_number(moment, LONGEST_S) and is_number(value, LONGEST_S) and moment <= 2.0 * half_s:
                parts[0 if moment < 0.0 else 1 if moment < half_s else 2].append(float(value))
        before, first, second = (math.fsum(part) / len(part) if part else None for part in parts)
        if first is not None and second is not None:
            found[name] = (before, first, second)
    return found


def by_word(facts: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the names for each word."""
    found: dict[str, list[str]] = {}
    for name, word in facts.items():
        found.setdefault(word, []).append(name)
    return found


def by_name(kept: object) -> dict[str, str]:
    """Return the word of each name; entries of another form, as in an imported trial, are ignored."""
    if not isinstance(kept, Mapping):
        return {}
    return {
        name: word
        for word, names in kept.items()
        if isinstance(word, str) and isinstance(names, list)
        for name in names
        if isinstance(name, str)
    }
