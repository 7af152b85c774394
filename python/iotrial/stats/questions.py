"""The questions that a trial asks of the account of errors (``account.py``), and the evidence on each.

A trial asks one question for each level of a treatment factor but the reference, if it has a response that can be better:
"is this level no better than the reference, in none of the conditions and primary responses?". That is what ``iotrial
apply`` may keep. A race asks none: only its confirmation, on fresh blocks, can be kept.

The evidence on one comparison is the capital, after the last block, of the bets that the level is better (one side of
``betting.py``), against whichever effect that is not better leaves it the least: a level that does nothing, or is worse
by any constant factor. It has no margin, and no part in it has the budget. For a mean it is that of ``run_statistics.py``
against equal means; a quantile has none (1). The evidence on the question is the mean over its comparisons, which is at
most 1 in the mean if none of them is better. Runs that failed, or have no usable value, are skipped because of what they
measured, so that a comparison with any counts 0. Where a trial has dropped its first blocks because runs depended on
those before them, the evidence is the smaller of that of all blocks and that of the others: to start again from 1
whenever things go badly would not be fair.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from iotrial.design.model import Condition, Term, TermKind
from iotrial.stats.betting import Blocks, Floats, keeping_bets
from iotrial.stats.confidence_set import least_beyond
from iotrial.stats.contrast import Responses, Runs
from iotrial.stats.model import ObservedBlock
from iotrial.stats.run_statistics import log_evidence_of_mean
from iotrial.stats.spec import Spec
from iotrial.stats.wash_in import judged
from iotrial.study.model import MEAN, TYPICAL, Better, Response

_LOG_LARGEST = 690.0


@dataclass(frozen=True, slots=True)
class Question:
    """Whether ``level`` of ``factor`` is no better than ``reference``."""

    factor: str
    level: str
    reference: str


@dataclass(frozen=True, slots=True)
class Answered:
    """A question with its e-value so far. ``blocks``: the most that any of its comparisons is based on."""

    question: Question
    e_value: float
    blocks: int


def questions(spec: Spec) -> tuple[Question, ...]:
    """Return the questions that a trial asks, in the order of its levels: known before its first run."""
    if spec.race_against is not None or not any(_judged(spec, one) for one in spec.conditions):
        return ()
    return tuple(Question(one.factor, one.level, one.reference) for one in _terms(spec))


def answered(spec: Spec, blocks: Sequence[ObservedBlock]) -> tuple[Answered, ...]:
    """Return the questions with their evidence. ``blocks``: all of the trial, in time order."""
    asked = questions(spec)
    if not asked:
        return ()
    found: list[list[tuple[float, int]]] = [[] for _ in asked]
    for condition in spec.conditions:
        own = [block for block in blocks if block.condition == condition.key]
        later = judged(own)
        laid_out = [Runs(one) for one in ([own] if len(later) == len(own) else [own, later])]
        for response in _judged(spec, condition):
            tables = [Responses(runs, response) for runs in laid_out]
            for place, term in enumerate(_terms(spec)):
                found[place].append(min(_evidence(spec, term, response, table) for table in tables))
    return tuple(
        Answered(question, float(np.mean([value for value, _ in parts])), max(blocks for _, blocks in parts))
        for question, parts in zip(asked, found, strict=True)
    )


def _judged(spec: Spec, condition: Condition) -> tuple[Response, ...]:
    return tuple(one for one in spec.responses_of(condition, primary=True) if one.better is not Better.NONE)


def _terms(spec: Spec) -> list[Term]:
    """Return the contrast of each level with the reference of its factor.

    A confirmation compares its further levels with the first one, which it compares with the reference. All of them run in
    every block, so that each has a contrast with the reference itself.
    """
    found: dict[tuple[str, str], Term] = {}
    for term in spec.terms:
        if term.kind is not TermKind.MAIN or not term.primary:
            continue
        first = found.get((term.factor, term.reference))
        if first is not None:
            weights = {
                arm: weight
                for arm in (*term.weights, *first.weights)
                if (weight := term.weights.get(arm, 0.0) + first.weights.get(arm, 0.0)) != 0.0
            }
            term = Term(term.kind, term.factor, term.level, first.reference, weights, whole=term.whole)
        found[term.factor, term.level] = term
    return list(found.values())


def log_evidence(blocks: Blocks, margin: float) -> Floats:
    """Return ln of the e-value after every block that the level is lower. ``margin``: on the contrasts' scale, 0 for none."""
    return least_beyond(blocks, 0.0, aim=margin, bets=keeping_bets(aimed=margin > 0.0))


def _evidence(spec: Spec, term: Term, response: Response, table: Responses) -> tuple[float, int]:
    """Return the e-value of one comparison, and the number of its contrasts."""
    contrasts = table.contrasts(term.weights, whole=term.whole, copy=spec.copy_of_reference(term, response))
    count = len(contrasts.values)
    if contrasts.failures or contrasts.unusable:
        return 0.0, count
    if response.statistic == MEAN:
        log_e = log_evidence_of_mean(table.pairs(term), response)
    elif response.statistic == TYPICAL and count:
        blocks = Blocks.of(contrasts.values, contrasts.copies)
        if response.better is Better.HIGHER:
            blocks = blocks.scaled(-1.0)
        log_e = float(log_evidence(blocks, spec.margin_of(response))[-1])
    else:
        log_e = 0.0
    return math.exp(min(log_e, _LOG_LARGEST)), count
