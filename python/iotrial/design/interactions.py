"""Two-factor interactions that a design can separate from main effects, and aliases that it cannot separate.

An interaction is half the difference of one factor's effects at the two levels of the other, on the scale of the response:
the signed mean over the products of the factors' signs. In a fractional factorial some of these products are the same
column. They are aliases, and one term stands for all of them. In Plackett-Burman and definitive screening designs every
interaction is partially confounded with many columns, so none is offered.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from iotrial.design.model import Arm, Term, TermKind
from iotrial.errors import RequestError
from iotrial.study.model import DesignKind, Factor, Study

Floats = npt.NDArray[np.float64]

MAX_TERMS = 512  # above this, interactions that the study does not name are dropped: nobody reads them
_SAME = 1e-9


def terms(
    study: Study,
    arms: Sequence[Arm],
    mains: Sequence[Term],
    whole: set[str],
    controls: Sequence[Mapping[str, float]],
    *,
    screening: bool,
) -> tuple[Term, ...]:
    """Return the interactions of a study: those it names, as primary, and all others that its design can estimate.

    ``controls`` are the weights of controls that are columns of the design. Raises RequestError if a named interaction is
    aliased with a main effect, a control or another named interaction.
    """
    named = set(study.design.interactions)
    if screening and study.design.kind is not DesignKind.FRACTIONAL:
        if named:
            first = ":".join(next(iter(study.design.interactions)))
            raise RequestError(
                f"study {study.name}: a {study.design.kind.value} design cannot estimate the interaction {first}",
                hint='ask for kind = "fractional" with resolution = 5, or for a full factorial of fewer factors',
            )
        return ()
    columns = np.array([_vector(arms, weights) for weights in (*(term.weights for term in mains), *controls)])
    found: list[Term] = []
    vectors: list[Floats] = []
    for candidate, column in _candidates(study, arms, named, whole):
        main = _same_as(column, columns)
        if main is not None:
            if candidate.primary:
                taken = f"the effect of {mains[main].factor}" if main < len(mains) else "a control"
                raise RequestError(
                    f"study {study.name}: its design cannot tell the interaction {candidate.factor} from {taken}",
                    hint="ask for a higher resolution",
                )
            continue
        alias = _same_as(column, np.array(vectors)) if vectors else None
        if alias is None:
            found.append(candidate)
            vectors.append(column)
        else:
            found[alias] = _merged(
                study, found[alias], candidate, opposite=bool(column @ vectors[alias] < 0.0)
            )
        if len(found) > MAX_TERMS and not candidate.primary:
            return tuple(term for term in found if term.primary)
    return tuple(found)


def _candidates(
    study: Study, arms: Sequence[Arm], named: set[tuple[str, str]], whole: set[str]
) -> Iterator[tuple[Term, Floats]]:
    """Yield a term and its column of weights for every pair of levels of every pair of factors, named ones first."""
    pairs = sorted(
        itertools.combinations(study.treatment_factors, 2),
        key=lambda pair: (pair[0].name, pair[1].name) not in named,
    )
    for first, second in pairs:
        for level, other in itertools.product(_others(first), _others(second)):
            column = _product(arms, (first, level), (second, other))
            if column is None:
                continue
            weights = {
                arm.name: float(weight) for arm, weight in zip(arms, column, strict=True) if weight != 0.0
            }
            yield (
                Term(
                    TermKind.INTERACTION,
                    f"{first.name}:{second.name}",
                    f"{level}:{other}",
                    f"{first.reference}:{second.reference}",
                    weights,
                    primary=(first.name, second.name) in named,
                    whole=first.name in whole and second.name in whole,
                ),
                column,
            )


def _merged(study: Study, term: Term, candidate: Term, *, opposite: bool) -> Term:
    """Add the candidate, which has the same or the opposite column, to the term's aliases."""
    if term.primary and candidate.primary:
        raise RequestError(
            f"study {study.name}: its design cannot tell the interactions {term.factor} and {candidate.factor} apart",
            hint="ask for a higher resolution, or name one of them",
        )
    return replace(term, aliases=(*term.aliases, "-" * opposite + candidate.factor))


def _product(arms: Sequence[Arm], first: tuple[Factor, str], second: tuple[Factor, str]) -> Floats | None:
    """Return weights of half of (first factor's effect at the second's level) minus (the same at the second's reference).

    None if a cell is empty.
    """
    column = np.zeros(len(arms))
    for sign_a, label_a in ((1.0, first[1]), (-1.0, first[0].reference)):
        for sign_b, label_b in ((1.0, second[1]), (-1.0, second[0].reference)):
            cell = np.array(
                [
                    arm.treatment[first[0].name] == label_a and arm.treatment[second[0].name] == label_b
                    for arm in arms
                ]
            )
            if not cell.any():
                return None
            column[cell] += sign_a * sign_b / (2.0 * cell.sum())
    return column


def _vector(arms: Sequence[Arm], weights: Mapping[str, float]) -> Floats:
    return np.array([weights.get(arm.name, 0.0) for arm in arms])


def _same_as(column: Floats, others: Floats) -> int | None:
    """Return the index of the row of ``others`` that equals this column up to sign and scale, or None."""
    norms = np.linalg.norm(others, axis=1) * np.linalg.norm(column)
    same = np.flatnonzero(np.abs(np.abs(others @ column) - norms) < _SAME * np.maximum(norms, 1e-300))
    return int(same[0]) if same.size else None


def _others(factor: Factor) -> list[str]:
    return [level.label for level in factor.levels if level.label != factor.reference]


def alias_table(
    study: Study, arms: Sequence[Arm], mains: Sequence[Term]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the interactions that bias each main effect (``mixed_into``): they may cause what looks like the main effect.

    The lists are empty for designs of resolution IV and above.
    """
    return tuple((term.factor, mixed_into(study, arms, term.weights)) for term in mains)


def mixed_into(study: Study, arms: Sequence[Arm], weights: Mapping[str, float]) -> tuple[str, ...]:
    """Return the two-factor interactions that these weights (by arm name) do not cancel, each with the share that enters
    the contrast (``+0.33 a:b``)."""
    vector = _vector(arms, weights)
    signs = {
        factor.name: _signs(arms, factor) for factor in study.treatment_factors if len(factor.levels) == 2
    }
    found = []
    for one, other in itertools.combinations(signs, 2):
        # contribution to the contrast of a product that moves the response by 1 between its signs
        share = float(vector @ (signs[one] * signs[other])) / 2.0
        if abs(share) > _SAME:
            found.append(f"{share:+.2g} {one}:{other}")
    return tuple(found)


def _signs(arms: Sequence[Arm], factor: Factor) -> Floats:
    return np.array([-1.0 if arm.treatment[factor.name] == factor.reference else 1.0 for arm in arms])
