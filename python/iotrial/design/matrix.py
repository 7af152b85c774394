"""Coded design matrices: one row per treatment, one column per factor, entries -1, 0 and +1.

-1 is the reference, +1 the other level (of three ordered levels the one at the far end), 0 the level in between. The
signs of a two-level design are flipped so that it contains the treatment with every factor at its reference.

``constructions`` builds the larger designs. A trial is stored with its rows (``to_text``, ``from_text``), so that it does
not depend on how a later version builds them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from iotrial.design import constructions
from iotrial.design.constructions import Matrix, all_signs
from iotrial.design.model import Screen
from iotrial.errors import RequestError
from iotrial.study.model import DesignKind

MAX_COLUMNS = 64
MAX_ROWS = 1024
_SIGNS = "-0+"


class Inseparable(ValueError):
    """Columns of a design are linearly dependent on each other or on the mean."""


def generated(
    kind: DesignKind, levels: Sequence[int], *, resolution: int, fold_over: bool, what: str
) -> Screen:
    """Return the design for factors with these numbers of levels. Raises RequestError as ``screening_matrix`` does."""
    made = screening_matrix(kind, levels, resolution=resolution, fold_over=fold_over, what=what)
    return _screen(made, kind, what)


def stored(rows: Sequence[str], kind: DesignKind, levels: Sequence[int], *, what: str) -> Screen:
    """Return the design of these stored rows. Raises RequestError if they do not fit the levels."""
    return _screen(from_text(rows, levels, what=what), kind, what)


def _screen(matrix: Matrix, kind: DesignKind, what: str) -> Screen:
    try:
        weights = column_weights(matrix)
    except Inseparable as error:
        raise RequestError(
            f"{what}: its factors cannot be distinguished in a {kind.value} design",
            hint="omit [design]: with this few factors a full factorial is small",
        ) from error
    return Screen(matrix.astype(int).tolist(), weights.tolist(), to_text(matrix))


def screening_matrix(
    kind: DesignKind, levels: Sequence[int], *, resolution: int, fold_over: bool, what: str
) -> Matrix:
    """Return the coded design for factors with these numbers of levels, one column per factor.

    Raises RequestError if there is no such design; ``what`` names the study in its message.
    """
    if not 2 <= len(levels) <= MAX_COLUMNS:
        raise RequestError(
            f"{what}: a {kind.value} design takes 2 to {MAX_COLUMNS} columns, not {len(levels)}"
        )
    if kind is DesignKind.DEFINITIVE:
        raise RequestError(
            f"{what}: iotrial no longer makes definitive screening designs",
            hint='use kind = "plackett-burman" with fold_over = true and the two end levels of each factor',
        )
    if any(count != 2 for count in levels):
        raise RequestError(
            f"{what}: a {kind.value} design takes factors of two levels",
            hint="choose two levels of each with --set",
        )
    made = (
        _plackett_burman(len(levels))
        if kind is DesignKind.PLACKETT_BURMAN
        else _fractional(len(levels), resolution, what)
    )
    turned = made * -made[0]  # the first row then has every factor at its reference
    return np.vstack([turned, -turned]) if fold_over else turned


def to_text(matrix: Matrix) -> list[str]:
    """Return the rows in stored form, e.g. "-0+"."""
    return ["".join(_SIGNS[int(code) + 1] for code in row) for row in matrix]


def from_text(rows: Sequence[str], levels: Sequence[int], *, what: str) -> Matrix:
    """Parse rows written by ``to_text``, for factors with these numbers of levels.

    Raises RequestError if the rows do not fit the levels.
    """
    if not 1 <= len(rows) <= MAX_ROWS or any(
        len(row) != len(levels) or set(row) - set(_SIGNS) for row in rows
    ):
        raise RequestError(f"{what}: its stored design lacks a sign for some of its {len(levels)} columns")
    matrix = np.array([[_SIGNS.index(sign) - 1 for sign in row] for row in rows], dtype=np.float64)
    if any(count == 2 and not column.all() for count, column in zip(levels, matrix.T, strict=True)):
        raise RequestError(f"{what}: its stored design has three levels in a column of two")
    return matrix


def _plackett_burman(columns: int) -> Matrix:
    """Return the smallest Plackett-Burman design with this many columns."""
    sizes = range(4 * (columns // 4 + 1), 4 * MAX_COLUMNS + 1, 4)
    made = next(found for rows in sizes if (found := constructions.plackett_burman(rows)) is not None)
    return made[:, :columns]


def _fractional(columns: int, resolution: int, what: str) -> Matrix:
    """Return a fractional factorial of the given resolution.

    Each column beyond the base is a product of base columns: of any number of them in resolution III, of an odd number in
    resolution IV, fewest first (Box and Hunter, Technometrics 3, 1961).
    """
    if columns <= resolution - 1:  # the full factorial is needed
        return all_signs(columns)
    if resolution < 5:
        odd = resolution == 4
        base = next(k for k in itertools.count(2) if (2 ** (k - 1) if odd else 2**k - 1) >= columns)
        sizes = range(1, base + 1, 1 + odd)
        words = [word for size in sizes for word in itertools.combinations(range(base), size)]
        signs = all_signs(base)
        return np.column_stack([signs[:, word].prod(axis=1) for word in words[:columns]])
    made = constructions.fractional(columns, resolution)
    if made is None:
        raise RequestError(
            f"{what}: a fractional design of resolution {resolution} for {columns} columns has more than {MAX_ROWS:,} rows",
            hint='use a lower resolution, or kind = "plackett-burman"',
        )
    return made


def column_weights(matrix: Matrix) -> Matrix:
    """Return the weights, shape (columns, rows), that turn the rows' values into each column's effect (+1 against -1).

    Least squares on the main effects, so unbiased whatever the effects of other columns. For orthogonal columns this is the
    mean of the rows at +1 minus the mean of those at -1. Raises Inseparable.
    """
    with_mean = np.column_stack([np.ones(len(matrix)), matrix])
    if np.linalg.matrix_rank(with_mean) < with_mean.shape[1]:
        raise Inseparable
    weights: Matrix = 2.0 * np.linalg.pinv(with_mean)[1:]
    weights[np.abs(weights) < 1e-12] = 0.0
    return weights
