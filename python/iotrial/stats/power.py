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
    ((669, 1118, 1691, 3822), (165, 268, 384, 752), (40, 69, 98, 179), (11, 20, 28, 49),
     (8, 12, 17, 29), (8, 8, 10, 16), (8, 8, 8, 11), (8, 8, 8, 8)),
    ((1042, 1559, 2216, 4385), (262, 380, 513, 890), (66, 99, 131, 221), (18, 28, 37, 62),
     (12, 18, 23, 35), (11, 12, 14, 20), (11, 11, 11, 15), (11, 11, 11, 11)),
    ((1603, 2166, 2923, 5136), (387, 522, 685, 1110), (100, 139, 176, 278), (28, 40, 50, 76),
     (18, 25, 31, 44), (15, 17, 19, 26), (14, 14, 15, 19), (14, 14, 14, 15)),
    ((2592, 3275, 4142, 6458), (647, 809, 994, 1426), (169, 215, 259, 374), (47, 62, 73, 103),
     (31, 39, 45, 61), (24, 27, 29, 37), (22, 23, 24, 27), (22, 22, 22, 23)),
)
_SEEN: Table = (
    ((48, 207, 347, 677), (17, 55, 92, 175), (9, 17, 27, 48), (8, 9, 11, 17),
     (8, 8, 9, 13), (8, 8, 8, 9), (8, 8, 8, 9), (8, 8, 8, 8)),
    ((111, 298, 473, 847), (33, 81, 124, 213), (14, 25, 36, 61), (11, 13, 15, 21),
     (11, 11, 12, 16), (11, 11, 11, 12), (11, 11, 11, 11), (11, 11, 11, 11)),
    ((197, 433, 620, 1068), (55, 115, 166, 263), (21, 35, 48, 75), (15, 17, 20, 26),
     (15, 16, 17, 20), (14, 15, 15, 16), (14, 15, 15, 15), (14, 15, 15, 15)),
    ((366, 698, 922, 1455), (104, 186, 245, 369), (36, 54, 70, 103), (24, 26, 29, 37),
     (23, 24, 25, 29), (22, 23, 23, 24), (22, 22, 22, 23), (22, 22, 22, 22)),
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
    """Return the smallest margin whose positive control is detected within ``blocks`` blocks that have it; else None."""
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
