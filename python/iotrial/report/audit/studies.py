"""The study of the catalogue that would answer an audited claim: named by the table, or found by its labels."""

from __future__ import annotations

from dataclasses import dataclass

from iotrial.analysis.audit.model import Audit
from iotrial.study.catalogue import find, names


@dataclass(frozen=True, slots=True)
class Answer:
    """A study that ships, its question, and the command that runs it."""

    study: str
    question: str
    command: str


def answering(audit: Audit) -> Answer | None:
    """The study that the table names, if it ships; else one with a treatment factor that has two of the groups."""
    shipped = names()
    if audit.dataset.study is not None:
        wanted = audit.dataset.study
        return _answer(wanted, audit) if wanted in shipped else None
    return next((found for name in shipped if (found := _answer(name, audit, by_labels=True))), None)


def _answer(name: str, audit: Audit, *, by_labels: bool = False) -> Answer | None:
    study = find(name)
    groups = {group.casefold() for group in audit.groups}
    command = f"iotrial run {name}"
    matched = False
    for factor in study.treatment_factors:
        labels = [level.label for level in factor.levels if level.label.casefold() in groups]
        if len(labels) < 2:
            continue
        matched = True
        if len(labels) == len(groups) < len(factor.levels):
            command += f" --set {factor.name}={','.join(labels)}"
        break
    return Answer(name, study.question, command) if matched or not by_labels else None
