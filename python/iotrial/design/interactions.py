"""Two-factor interactions that a design can separate from main effects, and aliases that it cannot separate.

An interaction is half the difference of one factor's effects at the two levels of the other, on the scale of the response:
the signed mean over the products of the factors' signs. In a fractional factorial some of these products are the same
column. They are aliases, represented by one term. In Plackett-Burman and definitive screening designs every
interaction is partially confounded with many columns, so none is offered.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import mul

from iotrial.design.model import Arm, Term, TermKind
from iotrial.errors import RequestError
from iotrial.study.model import DesignKind, Factor, Study

MAX_TERMS = 512  # above this, interactions that the study does not name are dropped: too many to read
_SAME = 1e-9
_DIGITS = 8


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
                hint='use kind = "fractional" with resolution = 5, or for a full factorial of fewer factors',
            )
        return ()
    columns = {_direction(_vector(arms, weights)): "a control" for weights in controls}
    columns |= {_direction(_vector(arms, term.weights)): f"the effect of {term.factor}" for term in mains}
    found: list[Term] = []
    places: dict[tuple[float, ...], int] = {}
    for candidate, column in _candidates(study, arms, named, whole):
        direction = _direction(column)
        if direction in columns:
            if candidate.primary:
                raise RequestError(
                    f"study {study.name}: its design cannot tell the interaction {candidate.factor} "
                    f"from {columns[direction]}",
                    hint="use a higher resolution",
                )
            continue
        alias = places.get(direction)
        if alias is None:
            places[direction] = len(found)
            found.append(candidate)
        else:
            opposite = sum(map(mul, column, _vector(arms, found[alias].weights))) < 0.0
            found[alias] = _merged(study, found[alias], candidate, opposite=opposite)
        if len(found) > MAX_TERMS and not candidate.primary:
            return tuple(term for term in found if term.primary)
    return tuple(found)


def _candidates(
    study: Study, arms: Sequence[Arm], named: set[tuple[str, str]], whole: set[str]
) -> Iterator[tuple[Term, list[float]]]:
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
            weights = {arm.name: weight for arm, weight in zip(arms, column, strict=True) if weight != 0.0}
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
            hint="use a higher resolution, or name only one of them",
        )
    return replace(term, aliases=(*term.aliases, "-" * opposite + candidate.factor))


def _product(
    arms: Sequence[Arm], first: tuple[Factor, str], second: tuple[Factor, str]
) -> list[float] | None:
    """Return weights of half of (first factor's effect at the second's level) minus (the same at the second's reference).

    None if a cell is empty.
    """
    cells = [(arm.treatment[first[0].name], arm.treatment[second[0].name]) for arm in arms]
    weights = {}
    for sign_a, label_a in ((1.0, first[1]), (-1.0, first[0].reference)):
        for sign_b, label_b in ((1.0, second[1]), (-1.0, second[0].reference)):
            count = cells.count((label_a, label_b))
            if not count:
                return None
            weights[label_a, label_b] = sign_a * sign_b / (2.0 * count)
    return [weights.get(cell, 0.0) for cell in cells]


def _vector(arms: Iterable[Arm], weights: Mapping[str, float]) -> list[float]:
    return [weights.get(arm.name, 0.0) for arm in arms]


def _direction(column: Sequence[float]) -> tuple[float, ...]:
    """Return the same key for columns that are equal up to sign and scale."""
    first = next((value for value in column if abs(value) > _SAME), 0.0)
    length = math.copysign(math.hypot(*column), first) or 1.0
    # adding zero turns -0.0 into 0.0
    return tuple(round(value / length, _DIGITS) + 0.0 for value in column)


def _others(factor: Factor) -> list[str]:
    return [level.label for level in factor.levels if level.label != factor.reference]


def alias_table(
    study: Study, arms: Sequence[Arm], mains: Sequence[Term]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the interactions that bias each main effect (``mixed_into``): they may cause what looks like the main effect.

    The lists are empty for designs of resolution IV and above.
    """
    products = _products(study, arms)
    return tuple((term.factor, _shares(_vector(arms, term.weights), products)) for term in mains)


def mixed_into(study: Study, arms: Sequence[Arm], weights: Mapping[str, float]) -> tuple[str, ...]:
    """Return the two-factor interactions that these weights (by arm name) do not cancel, each with the share that enters
    the contrast (``+0.33 a:b``)."""
    return _shares(_vector(arms, weights), _products(study, arms))


def _products(study: Study, arms: Sequence[Arm]) -> dict[str, list[float]]:
    """Return the products of the signs of each pair of factors of two levels, by the name of their interaction."""
    signs = {
        factor.name: [-1.0 if arm.treatment[factor.name] == factor.reference else 1.0 for arm in arms]
        for factor in study.treatment_factors
        if len(factor.levels) == 2
    }
    return {
        f"{one}:{other}": list(map(mul, signs[one], signs[other]))
        for one, other in itertools.combinations(signs, 2)
    }


def _shares(vector: Sequence[float], products: Mapping[str, Sequence[float]]) -> tuple[str, ...]:
    found = []
    for name, product in products.items():
        # contribution to the contrast of a product that moves the response by 1 between its signs
        share = math.fsum(map(mul, vector, product)) / 2.0
        if abs(share) > _SAME:
            found.append(f"{share:+.2g} {name}")
    return tuple(found)
