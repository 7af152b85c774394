"""Values that a study has no level for: ``--set attribute_cache=+2`` where it has 3 to 60 s and 60 s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from iotrial.errors import IotrialError, RequestError, UnknownName
from iotrial.knobs.declaration import declarations
from iotrial.knobs.knob import Knob
from iotrial.study.model import Factor, Level, Setting, Study
from iotrial.study.schema import label, match
from iotrial.study.select import ALL

Named = Mapping[str, Sequence[str]]
#: what a value begins with that is no level of the study
NEW = "+"


def with_own_values(study: Study, *given: Named) -> tuple[Study, list[dict[str, list[str]]]]:
    """Return the study with a level for each ``+VALUE`` in ``given``, and ``given`` by the labels of levels.

    The levels of such a factor are values of one knob. What is the value of a level is that level, with + or without. Raises
    RequestError for a value that the knob or a level cannot have, and UnknownName for one without +: it may be mistyped.
    """
    factors = {factor.name: factor for factor in study.factors}
    found: list[dict[str, list[str]]] = []
    for names in given:
        labels: dict[str, list[str]] = {}
        for name, words in names.items():
            labels[name] = list(words)
            for index, word in enumerate(words) if name in factors else ():
                factors[name], labels[name][index] = _named(factors[name], word)
        found.append(labels)
    return replace(study, factors=tuple(factors.values())), found


def _named(factor: Factor, word: str) -> tuple[Factor, str]:
    """Return the factor, with one level more if the word is a new value of it, and the label or word for it."""
    known = [level.label for level in factor.levels]
    if word.casefold() == ALL or match(word, known) is not None:
        return factor, word
    new = word.startswith(NEW)
    setting = _setting(factor)
    knob = None if setting is None else declarations().get(setting.knob)
    where = f'factor "{factor.name}"'
    if setting is None or not isinstance(knob, Knob):
        if new:
            raise RequestError(f"{where} is no single knob, and takes its levels only: {', '.join(known)}")
        return factor, word
    own = replace(setting, value=word.removeprefix(NEW))
    try:
        value = knob.parse(own)
    except IotrialError:
        if new:
            raise
        return factor, word
    same = [level.label for level in factor.levels if knob.parse(level.settings[0]) == value]
    if same:
        return factor, same[0]
    if not new:
        error = UnknownName("level", word, [*known, ALL], where=where)
        error.hint = f'{error.hint or ""}; or "{NEW}{word}", as a value of {knob.name}'.removeprefix("; ")
        raise error
    try:
        level = Level(label(own.value), (own,))
    except ValueError as error:
        raise RequestError(f"{where}: {error}") from None
    return replace(factor, levels=(*factor.levels, level)), own.value


def _setting(factor: Factor) -> Setting | None:
    """Return a setting of the factor's levels without its value; None if they are not values of one knob."""
    bare = {replace(setting, value="") for level in factor.levels for setting in level.settings}
    one = all(len(level.settings) == 1 for level in factor.levels) and len(bare) == 1
    return bare.pop() if one else None
