"""Keys of a run's stored checks, and the encoding of the facts that a run finds out.

A fact maps a name to a word ("read": "once"). Facts are stored inverted, the names by word, because few words
occur for many names.
"""

from __future__ import annotations

from collections.abc import Mapping

FACTS = "facts"
#: Samples taken during the run.
SERIES = "series"
#: The work's own data by second.
BY_SECOND = "seconds"
#: The window of a live trial: when its settings were switched, and samples of its metrics since, in seconds since the counted
#: part began.
WINDOW = "window"


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
