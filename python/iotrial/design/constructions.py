"""Published constructions of two-level and three-level designs, as coded rows (-1, 0, +1).

Plackett-Burman designs come from Hadamard matrices (Paley 1933, Sylvester 1867), definitive screening designs from
conference matrices (Xiao, Lin and Bai, Journal of Quality Technology 44(1), 2012), fractional factorials of resolution V
and VI from a search over products of base columns.

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

# Orders for which the construction from a prime does not exist: 9 is no prime, and neither is 15.
_CONFERENCE_10 = [
    "0+++++++++",
    "+0----++++",
    "+-0-++--++",
    "+--0++++--",
    "+-++0--+-+",
    "+-++-0+-+-",
    "++-+-+0--+",
    "++-++--0+-",
    "+++--+-+0-",
    "+++-+-+--0",
]
_CONFERENCE_16 = [
    "0+++++++++++++++",
    "-0++-+--+-++-+--",
    "--0++-+-+--++-+-",
    "---0++-++---++-+",
    "-+--0++-++---++-",
    "--+--0+++-+---++",
    "-+-+--0+++-+---+",
    "-++-+--0+++-+---",
    "--------0+++++++",
    "-+++-+---0--+-++",
    "--+++-+--+0--+-+",
    "---+++-+-++0--+-",
    "-+--+++---++0--+",
    "--+--+++-+-++0--",
    "-+-+--++--+-++0-",
    "-++-+--+---+-++0",
]


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


def definitive(ordered: int, two_level: int) -> Matrix:
    """Return the definitive screening design with ``ordered`` columns of three levels, then ``two_level`` columns of two.

    The rows of all factors in the middle come first. With columns of two levels there are two such rows, in which these are
    all at -1 and all at +1, or the reverse for a single one (Jones and Nachtsheim, Journal of Quality Technology 45(2),
    2013).
    """
    columns = ordered + two_level
    half = _conference(columns, plain=two_level == 0)
    design = np.vstack([half, -half])[:, :columns]
    if not two_level:
        return np.vstack([np.zeros((1, columns)), design]) + 0.0
    middle = np.where(np.arange(len(design)) < len(half), 1.0, -1.0)[:, np.newaxis]
    categories = design[:, ordered:]
    design[:, ordered:] = np.where(categories == 0, middle, categories)
    centers = np.zeros((2, columns))
    centers[:, ordered:] = [[1.0], [-1.0]] if two_level == 1 else [[-1.0], [1.0]]
    return np.vstack([centers, design]) + 0.0


def _conference(columns: int, *, plain: bool) -> Matrix:
    """Return a conference matrix of at least this order: zeros on the diagonal, else -1 and +1, orthogonal columns.

    ``plain`` chooses the signs of a design without columns of two levels.
    """
    if columns in (9, 10):
        return _signs(_CONFERENCE_10)
    if columns in (15, 16):
        return _signs(_CONFERENCE_16)
    if columns in (25, 26):
        return _conference_26()
    q = columns - 1 if columns % 2 == 0 else columns
    while q != 1 and not _is_prime(q):
        q += 2
    matrix = np.zeros((q + 1, q + 1))
    matrix[0, 1:] = 1.0
    if plain and columns >= 4 and q == columns - 1:
        matrix[1:, 0] = 1.0 if q % 4 == 1 else -1.0
        matrix[1:, 1:] = _jacobsthal(q)
    else:
        matrix[1:, 0] = 1.0
        matrix[1:, 1:] = -_jacobsthal(q)
    return matrix


def _conference_26() -> Matrix:
    """Return the matrix of order 26 from two circulants of order 13."""
    first = -_jacobsthal(13)
    starter = _signs(["--+-+++++-+++"])[0]
    second = np.array([np.roll(starter, -shift) for shift in range(13)])
    return np.block([[first, second], [second.T, -first]])


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


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))


def _signs(rows: list[str]) -> Matrix:
    return np.array([["-0+".index(sign) - 1.0 for sign in row] for row in rows])
