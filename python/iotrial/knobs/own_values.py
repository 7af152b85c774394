"""Values of one's own for a factor of a study: ``--set attribute_cache=2`` where the study has 3 to 60 s and 60 s."""

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


def with_own_values(study: Study, *given: Named) -> tuple[Study, list[dict[str, list[str]]]]:
    """Return the study with the values in ``given`` that are none of its levels, and ``given`` by the labels of levels.

    A value can be given for a factor whose levels are values of one knob that takes a range of them, some of which begin
    with a digit. So does the value: a word that is no level is mistyped. Raises UnknownName, and RequestError for a value
    that no level can have.
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
    setting = _setting(factor)
    knob = None if setting is None else declarations().get(setting.knob)
    numbers = any(level.settings[0].value[:1].isdigit() for level in factor.levels)
    if setting is None or not isinstance(knob, Knob) or knob.open_levels is None or not numbers:
        return factor, word
    others = UnknownName("level", word, [*known, ALL], where=f'factor "{factor.name}"')
    others.hint = f"{others.hint or ''}; or a value of {knob.name}: {knob.open_levels}".removeprefix("; ")
    try:
        own = replace(setting, value=word)
        value = knob.parse(own)
        same = [one.label for one in factor.levels if knob.parse(one.settings[0]) == value]
    except IotrialError:
        raise others from None
    if same:
        return factor, same[0]
    if not word[:1].isdigit():
        raise others
    try:
        level = Level(label(word), (own,))
    except ValueError as error:
        raise RequestError(f'factor "{factor.name}": {error}') from None
    return replace(factor, levels=(*factor.levels, level)), word


def _setting(factor: Factor) -> Setting | None:
    """Return a setting of the factor's levels without its value; None if they are not values of one knob."""
    bare = {replace(setting, value="") for level in factor.levels for setting in level.settings}
    one = all(len(level.settings) == 1 for level in factor.levels) and len(bare) == 1
    return bare.pop() if one else None
