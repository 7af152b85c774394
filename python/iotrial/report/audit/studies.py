"""Find the catalogue study that would answer an audited claim: named by the table, or matched by what it compares."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from iotrial.audits.model import Audit
from iotrial.study.catalogue import look_up, names
from iotrial.study.model import Factor, Study
from iotrial.units import scale_of


@dataclass(frozen=True, slots=True)
class Answer:
    """A study of the catalogue, its question, and the command that runs it."""

    study: str
    question: str
    command: str


def answering(audit: Audit) -> Answer | None:
    """Return the study that the table names, if it is in the catalogue; otherwise the study that fits the table best.

    A study fits if all three hold: one of its factors has every compared group as a level; it measures what the table
    measures (times and rates count as one: how long work takes); and the table mentions the factor or the study in its
    name, its title, a column or its labels. "none" and "read" alone mean nothing. If several studies fit, the one with
    the most words in common with the table is returned, or None if two are tied.
    """
    if audit.dataset.study is not None:
        wanted = audit.dataset.study
        return _answer(wanted, look_up(wanted), _groups(audit)) if wanted in names() else None
    groups = _groups(audit)
    measured = {_measures(one.unit) for one in audit.comparisons} - {""}
    if len(groups) < 2 or not measured:
        return None
    words = _words_of(audit)
    fitting = []
    for name in names():
        study = look_up(name)
        if measured & {_measures(one.unit) for one in study.responses if one.primary}:
            own = _words((name, study.title, *(one.name for one in study.responses if one.primary)))
            if any(_fits(factor, name, groups, words) for factor in study.treatment_factors):
                fitting.append(((len(own & words), -len(own - words)), name, study))
    fitting.sort(key=lambda one: one[0], reverse=True)
    if not fitting or (len(fitting) > 1 and (fitting[0][0] == fitting[1][0] or not fitting[0][0][0])):
        return None
    _, name, study = fitting[0]
    return _answer(name, study, groups)


def _groups(audit: Audit) -> set[str]:
    """Return the labels that are compared, in lower case."""
    return {group.casefold() for one in audit.comparisons for group in (one.group, one.reference)}


def _fits(factor: Factor, study: str, groups: set[str], words: set[str]) -> bool:
    if not groups <= {level.label.casefold() for level in factor.levels}:
        return False
    own = _words((factor.name, study))
    return bool(own & words) or any(sum(word in group for group in groups) > 1 for word in own)


def _words_of(audit: Audit) -> set[str]:
    """Return the words with which a table describes itself."""
    data = audit.dataset
    names = {name for one in audit.comparisons for name in (one.response, *one.condition)}
    found = _words((data.name.rpartition("/")[2], data.title, data.group_column, *names))
    return found | ({"filesystem"} if data.group_column.casefold() == "fs" else set())


def _words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in re.findall(r"[a-z0-9]{3,}", text.casefold())}


def _measures(unit: str) -> str:
    """Return the quantity that a unit measures, with times and rates as one; "" if unknown."""
    scale = scale_of(unit)
    if unit.endswith("/s") or (scale is not None and scale[0] in ("time", "rate")):
        return "speed"
    return unit if scale is None else scale[0]


def _answer(name: str, study: Study, groups: set[str]) -> Answer:
    """Build the answer. ``--set`` names the levels if the table compares only some of them."""
    command = f"iotrial run {name}"
    for factor in study.treatment_factors:
        labels = [level.label for level in factor.levels if level.label.casefold() in groups]
        if len(labels) > 1:
            if len(labels) == len(groups) < len(factor.levels):
                command += f" --set {factor.name}={','.join(labels)}"
            break
    return Answer(name, study.question, command)
