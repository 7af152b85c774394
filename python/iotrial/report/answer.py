"""Yes or no: the answer to the study's question, where the question is plain enough for one.

A question is free text. One word in front of the verdict helps the reader, a wrong one ruins the report; so a word is
given only under narrow rules, and none otherwise:

* the question opens with Does, Do, Is, Are, Will, Can or Has, and holds no "or", "not", "no", "without" or "n't";
* it asks for exactly one thing: faster; slower; or a difference (difference, matter, affect, change);
* it does not name the reference level before the level that is compared with it (that would turn the direction
  round). Where it names some of the levels, only these count;
* no comparison that counts is undecided, and all responses are times or rates.

Then: every effect as asked is "Yes", none of them "No", some of them "Partly".
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from iotrial.analysis.model import Effect, Verdict

_OPENING = re.compile(r"\s*(does|do|is|are|will|can|has)\b", re.IGNORECASE)
_REFUSED = re.compile(r"\b(or|not|no|without|nor|neither)\b|n't\b|n’t\b", re.IGNORECASE)
_ASKED = (
    (re.compile(r"\b(faster|quicker|speeds? up)\b", re.IGNORECASE), frozenset({Verdict.FASTER})),
    (re.compile(r"\b(slower|slows? down)\b", re.IGNORECASE), frozenset({Verdict.SLOWER})),
    (
        re.compile(r"\b(differences?|matters?|affects?|changes?)\b", re.IGNORECASE),
        frozenset({Verdict.FASTER, Verdict.SLOWER}),
    ),
)


def answer(question: str, effects: Sequence[Effect]) -> str | None:
    """One of "Yes", "No", "Partly", or None where one word could mislead."""
    if not effects or not _OPENING.match(question) or _REFUSED.search(question):
        return None
    asked = [wanted for pattern, wanted in _ASKED if pattern.search(question)]
    if len(asked) != 1:
        return None
    counted = _named(question, effects)
    if not counted or any(not _is_plain(effect) for effect in counted):
        return None
    hits = sum(effect.verdict in asked[0] for effect in counted)
    return "Yes" if hits == len(counted) else "Partly" if hits else "No"


def _named(question: str, effects: Sequence[Effect]) -> list[Effect]:
    """The effects whose level the question names; all where it names none; none where the direction is unclear."""
    named = []
    for effect in effects:
        level, reference = _place(question, effect.level), _place(question, effect.reference)
        if reference is not None and (level is None or reference < level):
            return []
        if level is not None:
            named.append(effect)
    return named or list(effects)


def _place(question: str, label: str) -> int | None:
    match = re.search(rf"(?<!\w){re.escape(label)}(?!\w)", question, re.IGNORECASE)
    return match.start() if match else None


def _is_plain(effect: Effect) -> bool:
    return effect.verdict in (Verdict.FASTER, Verdict.SLOWER, Verdict.EQUIVALENT)
