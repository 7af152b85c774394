"""Sample-size planning: the number of blocks to a verdict, given the scatter of the contrast from block to block.

Two events are planned for. A comparison without an effect is called equivalent once the bets of each side have excluded
every effect beyond the margin (``eprocess.py``); it takes fewer blocks if the bets also use a copy of the reference, here in
the first 24 blocks and then in every second one. The positive control, a slowdown of twice the margin, is detected: zero is
excluded. Both depend on two numbers only: the margin in block SDs, and alpha.

The stopping time of the e-process has no closed form, so the tables below are simulated: blocks until the event, with a look
after each block, for normal contrasts (regenerate with ``python benchmarks/truth/simulate.py power-table``). Between the
points of a table, ln blocks is interpolated linearly in ln ratio, ln ln 1/alpha and the normal score of the share, with an
error of about 5 %. Below a ratio of .1 the number of blocks grows as 1 / ratio**2, as for a random walk with drift; above
the largest ratio it stays constant. With stalls the SD overstates the scatter, and fewer blocks suffice.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from statistics import NormalDist

#: no trial can run more blocks than this
MOST_BLOCKS = 100_000
#: default probability of reaching the event within the planned blocks
SHARE = 0.8

TABLE_ALPHAS = (0.05, 0.01, 0.001, 0.00001)
#: margin in block SDs
TABLE_RATIOS = (0.1, 0.2, 0.4, 0.8, 1.1, 1.6, 2.3, 3.2)
#: share of trials that have reached the event by then
TABLE_SHARES = (0.1, 0.5, 0.8, 0.99)

Table = Sequence[Sequence[Sequence[float]]]
# Blocks: one row per alpha, in it one group per ratio, in it one number per share.
# fmt: off
_EQUIVALENT: Table = (
    ((566, 922, 1382, 3368), (144, 233, 378, 937), (38, 65, 98, 197), (10, 20, 28, 53),
     (8, 12, 17, 29), (8, 8, 10, 16), (8, 8, 8, 12), (8, 8, 8, 8)),
    ((930, 1304, 1890, 3941), (229, 339, 502, 1082), (60, 93, 129, 236), (17, 28, 38, 64),
     (11, 17, 23, 36), (10, 11, 14, 21), (10, 10, 10, 15), (10, 10, 10, 10)),
    ((1391, 1857, 2512, 4716), (358, 491, 671, 1220), (94, 131, 171, 290), (27, 40, 50, 78),
     (18, 25, 31, 44), (14, 16, 19, 26), (14, 14, 15, 19), (14, 14, 14, 15)),
    ((2347, 2912, 3746, 6400), (613, 775, 988, 1676), (159, 204, 251, 393), (47, 62, 74, 105),
     (31, 39, 46, 61), (23, 26, 29, 38), (21, 22, 23, 28), (21, 21, 21, 22)),
)
_EQUIVALENT_COPIED: Table = (
    ((490, 753, 1172, 2753), (126, 198, 308, 719), (32, 54, 82, 172), (9, 15, 22, 44),
     (7, 9, 13, 23), (7, 7, 7, 13), (7, 7, 7, 7), (7, 7, 7, 7)),
    ((792, 1086, 1603, 3045), (198, 293, 422, 854), (52, 77, 109, 199), (14, 22, 30, 54),
     (10, 13, 18, 29), (10, 10, 11, 16), (10, 10, 10, 10), (10, 10, 10, 10)),
    ((1187, 1579, 2092, 3819), (305, 420, 562, 1042), (80, 111, 144, 238), (22, 31, 41, 67),
     (15, 19, 24, 36), (13, 13, 15, 21), (13, 13, 13, 14), (13, 13, 13, 13)),
    ((2016, 2503, 3170, 5272), (516, 648, 824, 1343), (135, 173, 215, 324), (39, 50, 61, 91),
     (25, 31, 37, 51), (20, 22, 24, 31), (20, 20, 20, 22), (20, 20, 20, 20)),
)
_SEEN: Table = (
    ((65, 228, 358, 715), (17, 55, 94, 183), (9, 17, 27, 49), (8, 9, 11, 17),
     (8, 8, 9, 12), (8, 8, 8, 9), (8, 8, 8, 8), (8, 8, 8, 8)),
    ((127, 321, 489, 839), (29, 81, 126, 223), (13, 24, 36, 61), (11, 12, 14, 21),
     (10, 11, 12, 16), (10, 11, 11, 12), (10, 10, 11, 11), (10, 10, 10, 11)),
    ((213, 458, 641, 1094), (55, 115, 170, 270), (21, 35, 48, 75), (15, 17, 19, 27),
     (14, 15, 16, 20), (14, 14, 15, 16), (14, 14, 14, 15), (14, 14, 14, 14)),
    ((394, 724, 935, 1420), (105, 190, 251, 365), (36, 54, 70, 103), (23, 26, 29, 37),
     (22, 23, 24, 28), (21, 22, 22, 23), (21, 21, 22, 22), (21, 21, 21, 22)),
)
# fmt: on


def blocks_to_resolve(
    block_sd: float,
    margin: float,
    *,
    alpha: float,
    effects: int = 1,
    together: int = 1,
    share: float = SHARE,
    copied: bool = False,
) -> int | None:
    """Return the blocks until a trial without an effect is called equivalent with probability ``share``.

    None beyond ``MOST_BLOCKS``. ``block_sd`` is the SD of the log contrast from block to block, ``margin`` is relative (.03
    for 3 %), ``effects`` the number of primary effects that share ``alpha``, ``together`` the number of independent effects
    that must all be called equivalent. ``copied``: the bets use a copy of the reference. Raises ValueError for impossible
    arguments.
    """
    if not 0.0 < share < 1.0 or together < 1:
        raise ValueError(f"no plan for {together} comparisons with probability {share}")
    ratio = _ratio(math.log1p(margin), block_sd)
    return _whole(_blocks(_table(copied=copied), ratio, _level(alpha, effects), share ** (1.0 / together)))


def blocks_to_see(block_sd: float, margin: float, *, alpha: float, share: float = SHARE) -> int | None:
    """Return the blocks until the positive control, slowed down by the factor 1 + 2 ``margin``, is detected.

    Counts only blocks that have the control. Otherwise as in ``blocks_to_resolve``.
    """
    return _whole(_blocks(_SEEN, _ratio(math.log1p(2.0 * margin) / 2.0, block_sd), alpha, share))


def resolvable_margin(
    block_sd: float, blocks: int, *, alpha: float, effects: int = 1, copied: bool = False
) -> float | None:
    """Return the smallest margin for which a trial without an effect is equivalent within ``blocks`` with probability .8.

    None if the blocks are too few for any margin.
    """
    return _margin(_least_ratio(_table(copied=copied), blocks, _level(alpha, effects)), block_sd)


def visible_margin(block_sd: float, blocks: int, *, alpha: float) -> float | None:
    """Return the smallest margin at which the positive control is detected within ``blocks`` blocks with it; else None."""
    ratio = _least_ratio(_SEEN, blocks, alpha)
    found = _margin(None if ratio is None else 2.0 * ratio, block_sd)
    return None if found is None else found / 2.0


def _table(*, copied: bool) -> Table:
    return _EQUIVALENT_COPIED if copied else _EQUIVALENT


def _ratio(size: float, block_sd: float) -> float:
    return size / block_sd if block_sd > 0.0 else math.inf


def _margin(ratio: float | None, block_sd: float) -> float | None:
    return None if ratio is None or ratio * block_sd >= 690.0 else math.expm1(ratio * block_sd)


def _level(alpha: float, effects: int) -> float:
    if effects < 1 or not 0.0 < alpha < 1.0:
        raise ValueError(f"cannot share alpha {alpha} over {effects} effects")
    return alpha / effects


def _whole(blocks: float) -> int | None:
    # logarithms return an exact table entry slightly too large
    return math.ceil(blocks - 1e-6) if blocks <= MOST_BLOCKS else None


def _least_ratio(table: Table, blocks: int, alpha: float) -> float | None:
    """Return the smallest ratio of margin to block SD for which this many blocks suffice; None if none is large enough."""
    low, high = math.log(1e-6), math.log(TABLE_RATIOS[-1])
    if _blocks(table, math.exp(high), alpha, SHARE) > blocks:
        return None
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (
            (low, middle) if _blocks(table, math.exp(middle), alpha, SHARE) <= blocks else (middle, high)
        )
    return math.exp(high)


def _blocks(table: Table, ratio: float, alpha: float, share: float) -> float:
    """Interpolate the table; extrapolate as described in the module docstring."""
    if ratio <= 0.0:
        return math.inf
    within = min(max(ratio, TABLE_RATIOS[0]), TABLE_RATIOS[-1])
    score = NormalDist().inv_cdf
    a, down = _position([math.log(-math.log(one)) for one in TABLE_ALPHAS], math.log(-math.log(alpha)))
    r, right = _position([math.log(one) for one in TABLE_RATIOS], math.log(within))
    s, deep = _position([score(one) for one in TABLE_SHARES], score(share))
    log_blocks = sum(
        (down if i else 1.0 - down)
        * (right if j else 1.0 - right)
        * (deep if k else 1.0 - deep)
        * math.log(table[a + i][r + j][s + k])
        for i in (0, 1)
        for j in (0, 1)
        for k in (0, 1)
    )
    return math.exp(log_blocks) * max(1.0, TABLE_RATIOS[0] / ratio) ** 2


def _position(points: Sequence[float], at: float) -> tuple[int, float]:
    """Return the table interval nearest to ``at``, and the relative position in it (below 0 or above 1 beyond the ends)."""
    i = min(max(bisect_right(points, at) - 1, 0), len(points) - 2)
    return i, (at - points[i]) / (points[i + 1] - points[i])
