"""Coded design matrices: one row a treatment, one column a factor, entries -1, 0 and +1.

-1 stands for the reference, +1 for the other level (of three ordered levels the one at the far end), 0 for the level in
between. The matrices come from the package ``pydoe``; here they are chosen, turned so that a two-level design holds the
treatment at which every factor is at its reference, and checked for what the analysis relies on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from iotrial.errors import RequestError
from iotrial.study.model import DesignKind

Matrix = npt.NDArray[np.float64]

MAX_COLUMNS = 64


class Inseparable(ValueError):
    """Some columns of a design cannot be told from each other, or from the mean."""


def screening_matrix(
    kind: DesignKind, levels: Sequence[int], *, resolution: int, fold_over: bool, what: str
) -> Matrix:
    """The coded design for factors of these numbers of levels, a column each.

    Two levels everywhere, or for a definitive screening design two or three. Raises RequestError, in whose message
    ``what`` names the study, where there is no such design.
    """
    if not 2 <= len(levels) <= MAX_COLUMNS:
        raise RequestError(
            f"{what}: a {kind.value} design takes 2 to {MAX_COLUMNS} columns, not {len(levels)}"
        )
    if kind is DesignKind.DEFINITIVE:
        return _definitive(levels, what)
    if any(count != 2 for count in levels):
        raise RequestError(
            f"{what}: a {kind.value} design takes factors of two levels",
            hint='choose two levels of each with --set, or kind = "definitive-screening" for three ordered ones',
        )
    made = (
        _plackett_burman(len(levels))
        if kind is DesignKind.PLACKETT_BURMAN
        else _fractional(len(levels), resolution, what)
    )
    turned = made * -made[0]  # the first row then has every factor at its reference
    return np.vstack([turned, -turned]) if fold_over else turned


def _plackett_burman(columns: int) -> Matrix:
    """The smallest Plackett-Burman design that has this many columns (``pydoe`` makes them of 2^n, 12 2^n and 20 2^n
    rows)."""
    import pydoe

    for rows in range(4 * (columns // 4 + 1), 4 * MAX_COLUMNS + 1, 4):
        try:
            made = np.asarray(pydoe.pbdesign(rows - 1), dtype=np.float64)
        except ValueError:
            continue
        if made.shape[0] > columns:
            return made[:, :columns]
    raise AssertionError("a power of two is always among them")


def _fractional(columns: int, resolution: int, what: str) -> Matrix:
    import pydoe

    if columns <= resolution - 1:  # nothing to leave out
        return np.asarray(pydoe.ff2n(columns), dtype=np.float64)
    try:
        return np.asarray(pydoe.fracfact_by_res(columns, resolution), dtype=np.float64)
    except ValueError as error:
        raise RequestError(
            f"{what}: no fractional design of resolution {resolution} for {columns} columns: {error}",
            hint='ask for a lower resolution, or kind = "plackett-burman"',
        ) from error


def _definitive(levels: Sequence[int], what: str) -> Matrix:
    import pydoe

    if any(count not in (2, 3) for count in levels):
        raise RequestError(
            f"{what}: a definitive screening design takes factors of two levels, or of three ordered ones",
            hint="choose levels with --set",
        )
    ordered = [i for i, count in enumerate(levels) if count == 3]
    two = [i for i, count in enumerate(levels) if count == 2]
    made: Any = pydoe.definitive_screening_design(len(ordered), len(two))
    found = np.asarray(made, dtype=np.float64)
    placed = np.empty_like(found)
    placed[:, [*ordered, *two]] = found  # pydoe puts those of two levels last
    return placed


def column_weights(matrix: Matrix) -> Matrix:
    """For each column the weights (columns by rows) that make its effect, far end against reference, from the rows' values.

    Least squares on the main effects: unbiased whatever the other columns do. Where the columns are orthogonal this is the
    mean of the rows at +1 less the mean of those at -1. Raises Inseparable.
    """
    with_mean = np.column_stack([np.ones(len(matrix)), matrix])
    if np.linalg.matrix_rank(with_mean) < with_mean.shape[1]:
        raise Inseparable
    weights: Matrix = 2.0 * np.linalg.pinv(with_mean)[1:]
    weights[np.abs(weights) < 1e-12] = 0.0
    return weights
