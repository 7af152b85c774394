"""Accounts of errors made up for tests."""

from __future__ import annotations

from collections.abc import Collection

from compared_trials import one

from iotrial.report.document import Document
from iotrial.stats.questions import Answered, Question
from iotrial.store.ledger import Asked
from iotrial.tune.account import Account, Kept


def account(*trials: tuple[str, dict[str, float]], kept: Collection[Kept] = ()) -> Account:
    """Return the account of trials by id, in order; each asks one question for each level of factor f, with this evidence."""
    entries = [
        Asked(name, "study", "2026-03-01T10:00:00+00:00", tuple(("f", level) for level in levels))
        for name, levels in trials
    ]
    summaries = {
        name: one(
            name,
            number=place,
            answered=tuple(
                Answered(Question("f", level, "a"), e_value, 20) for level, e_value in levels.items()
            ),
        )
        for place, (name, levels) in enumerate(trials, start=1)
    }
    return Account.of(entries, summaries, kept)


def with_evidence(document: Document, e_value: float = 1e12) -> Account:
    """Return an account of a trial alone, with this evidence on each of its levels."""
    header = document.trial.header
    questions = [
        Question(factor.name, level.label, factor.reference)
        for factor in header.study.treatment_factors
        for level in factor.levels
        if level.label != factor.reference
    ]
    levels = tuple((question.factor, question.level) for question in questions)
    answered = tuple(Answered(question, e_value, 20) for question in questions)
    summary = one(header.id, number=1, answered=answered)
    return Account.of([Asked(header.id, header.study.name, header.started, levels)], {header.id: summary}, ())
