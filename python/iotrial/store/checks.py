"""What is stored of a run besides its numbers, among its checks: by what names, and the facts that a run finds out.

A fact is a word by name ("read": "once"). Facts are stored the other way round, the names by word, because few words stand
for many names.
"""

from __future__ import annotations

from collections.abc import Mapping

FACTS = "facts"
#: samples within the run
SERIES = "series"
#: what the work itself tells of its seconds
BY_SECOND = "seconds"


def by_word(facts: Mapping[str, str]) -> dict[str, list[str]]:
    """The names that each word was found for."""
    found: dict[str, list[str]] = {}
    for name, word in facts.items():
        found.setdefault(word, []).append(name)
    return found


def by_name(kept: object) -> dict[str, str]:
    """The word of each name; what is of another form, as in an imported trial, is left out."""
    if not isinstance(kept, Mapping):
        return {}
    return {
        name: word
        for word, names in kept.items()
        if isinstance(word, str) and isinstance(names, list)
        for name in names
        if isinstance(name, str)
    }
