"""Published constructions of two-level designs, as coded rows (-1, +1).

Plackett-Burman designs come from Hadamard matrices (Paley 1933, Sylvester 1867), fractional factorials of resolution V and
VI from a search over products of base columns.

Rows and columns have the order in which the package ``pydoe`` 1.5 returns them, because the plan of a trial follows from
its seed and its rows. ``pydoe`` itself needs scipy, which is larger than everything else that iotrial needs.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]

# The largest number of columns of a fractional factorial with 2**k rows, by k. Larger designs have more rows than a
# block may have.
_MOST_COLUMNS = {
    5: {4: 5, 5: 6, 6: 8, 7: 11, 8: 17, 9: 23, 10: 29},
    6: {5: 6, 6: 7, 7: 9, 8: 12, 9: 18, 10: 24},
}


def all_signs(columns: int) -> Matrix:
    """Return the full factorial of two levels; the last column changes fastest."""
    return np.array(list(itertools.product((-1.0, 1.0), repeat=columns)))


def plackett_burman(rows: int) -> Matrix | None:
    """Return the design with this many rows and one column less.

    There is one for 2^n, 12 2^n and 20 2^n rows; None for any other number.
    """
    for size in (1, 12, 20):
        doublings = (rows // size).bit_length() - 1
        if rows == size << doublings:
            break
    else:
        return None
    hadamard = np.ones((size, size))
    if size == 12:
        hadamard[1:, 1:] = _jacobsthal(11) - np.eye(11)
    elif size == 20:
        sums = np.add.outer(np.arange(19), np.arange(19)) % 19
        hadamard[1:, 1:] = np.where(sums == 0, -1.0, -_characters(19)[sums])
    for _ in range(doublings):
        hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
    return hadamard[::-1, 1:]


def fractional(columns: int, resolution: int) -> Matrix | None:
    """Return the smallest fractional factorial of resolution 5 or 6, or None if it has more than 1,024 rows.

    The base columns come first. Each further column is a product of base columns, and no product of ``resolution - 1`` or
    fewer columns is constant. Products of few columns are preferred, in alphabetical order.
    """
    most = _MOST_COLUMNS[resolution]
    base = next((k for k in most if most[k] >= columns), None)
    if base is None:
        return None
    factors = [word for size in range(2, base + 1) for word in itertools.combinations(range(base), size)]
    words = _independent_words(base, columns, resolution, factors)
    signs = all_signs(base)
    return np.column_stack([signs, *(signs[:, word].prod(axis=1) for word in words)])


def _independent_words(
    base: int, columns: int, resolution: int, factors: list[tuple[int, ...]]
) -> list[tuple[int, ...]]:
    """Return the first words, in this order, that give the resolution. Depth-first search with backtracking.

    A word is a bit mask of base columns, and a product of columns is the exclusive or of their masks. ``sums[j]`` holds
    the products of j chosen columns; a word that equals one of at most ``resolution - 2`` columns is not allowed.
    """
    masks = [sum(1 << column for column in word) for word in factors]
    empty: tuple[frozenset[int], ...] = (frozenset({0}), *(frozenset[int]() for _ in range(resolution - 2)))

    def extended(sums: tuple[frozenset[int], ...], mask: int) -> tuple[frozenset[int], ...]:
        more = [frozenset(mask ^ product for product in fewer) for fewer in sums[:-1]]
        return (sums[0], *(old | new for old, new in zip(sums[1:], more, strict=True)))

    def search(chosen: list[int], sums: tuple[frozenset[int], ...], first: int) -> list[int] | None:
        wanted = columns - base - len(chosen)
        if wanted == 0:
            return chosen
        taken = frozenset().union(*sums[1:])
        for place in range(first, len(masks) - wanted + 1):
            if masks[place] not in taken:
                found = search([*chosen, place], extended(sums, masks[place]), place + 1)
                if found is not None:
                    return found
        return None

    sums = empty
    for column in range(base):
        sums = extended(sums, 1 << column)
    found = search([], sums, 0)
    assert found is not None, "the table holds only sizes that exist"
    return [factors[place] for place in found]


def _characters(q: int) -> Matrix:
    """Return the Legendre symbols of 0 to q - 1 for a prime q: 0, +1 for squares, -1 for the others."""
    symbols = np.full(q, -1.0)
    symbols[[i * i % q for i in range(1, q)]] = 1.0
    symbols[0] = 0.0
    return symbols


def _jacobsthal(q: int) -> Matrix:
    """Return the matrix of Legendre symbols of column minus row."""
    places = np.arange(q)
    differences = places - places[:, np.newaxis]
    symbols: Matrix = _characters(q)[differences % q]
    return symbols
