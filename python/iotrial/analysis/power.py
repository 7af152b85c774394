"""Planning: how many blocks it takes to resolve a margin, given the scatter of the contrast from block to
block.

The e-process has no formula for its width, so the tables below are simulated (normal contrasts of SD 1, no
effect, 600 series; ``python benchmarks/truth/simulate.py power-table`` makes them anew). They hold for normal
contrasts to about 5 % in width, 10 % in blocks; with stalls the SD overstates the scatter and fewer blocks
do. The smallest bet, theta = .15, puts a floor under the width: however many blocks, it stays above some .07
of the block SD (``half_width``), so a margin below that is out of reach and planning says None.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from statistics import NormalDist

inf = math.inf

TABLE_BLOCKS = (
    8,
    10,
    12,
    14,
    16,
    18,
    20,
    25,
    30,
    40,
    50,
    70,
    100,
    140,
    200,
    300,
    500,
    700,
    1000,
    1400,
    2000,
    4000,
)
TABLE_ALPHAS = (0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0005, 0.0002, 0.0001, 0.00001)
# fmt: off
# Median half-width, in block SDs: a row for each alpha, a column for each number of blocks.
_HALF_WIDTH = (
    (1.864, 1.19, 0.9917, 0.8743, 0.7942, 0.7302, 0.6862, 0.6015, 0.5411, 0.4579, 0.4112,
     0.3485, 0.2912, 0.2439, 0.2033, 0.1684, 0.1306, 0.1122, 0.09764, 0.0873, 0.07975, 0.07042),
    (inf, 1.746, 1.236, 1.061, 0.9459, 0.8645, 0.8004, 0.6949, 0.6232, 0.5268, 0.4706,
     0.3944, 0.3295, 0.2754, 0.2267, 0.1878, 0.1458, 0.1231, 0.1061, 0.09389, 0.08524, 0.07411),
    (inf, 6.057, 1.516, 1.226, 1.076, 0.9636, 0.8882, 0.7599, 0.6789, 0.5708, 0.5107,
     0.4253, 0.3552, 0.2964, 0.2434, 0.2006, 0.1563, 0.1312, 0.1121, 0.09844, 0.08884, 0.07648),
    (inf, inf, 2.153, 1.432, 1.209, 1.067, 0.9811, 0.824, 0.7329, 0.6157, 0.5478,
     0.4535, 0.3789, 0.3174, 0.2593, 0.2127, 0.1665, 0.1388, 0.1178, 0.1026, 0.09198, 0.0785),
    (inf, inf, inf, 1.955, 1.435, 1.232, 1.11, 0.9118, 0.8021, 0.6708, 0.591,
     0.4883, 0.4074, 0.3423, 0.28, 0.2277, 0.1788, 0.149, 0.1249, 0.1081, 0.09604, 0.08098),
    (inf, inf, inf, 3.751, 1.707, 1.38, 1.216, 0.9804, 0.8579, 0.7108, 0.6235,
     0.5145, 0.4263, 0.3605, 0.2947, 0.2389, 0.1875, 0.1564, 0.1303, 0.112, 0.09883, 0.08282),
    (inf, inf, inf, inf, 2.249, 1.577, 1.344, 1.055, 0.9116, 0.7499, 0.6552,
     0.5408, 0.4468, 0.3767, 0.309, 0.2491, 0.1956, 0.1635, 0.1354, 0.116, 0.1016, 0.08447),
    (inf, inf, inf, inf, inf, 2.034, 1.567, 1.165, 0.9852, 0.7999, 0.6976,
     0.5739, 0.4711, 0.3969, 0.3269, 0.2622, 0.2058, 0.173, 0.1422, 0.1209, 0.1053, 0.08663),
    (inf, inf, inf, inf, inf, 3.107, 1.817, 1.255, 1.045, 0.8379, 0.7294,
     0.597, 0.4889, 0.4109, 0.3402, 0.2717, 0.2127, 0.1797, 0.1474, 0.1246, 0.1079, 0.0882),
    (inf, inf, inf, inf, inf, inf, inf, 1.684, 1.274, 0.9732, 0.8299,
     0.6731, 0.5473, 0.4556, 0.3801, 0.3025, 0.2339, 0.2002, 0.1642, 0.1368, 0.1167, 0.093),
)
# The farther end's distance from 0 that four trials in five stay within, where there is no effect.
_REACH = (
    (2.856, 1.848, 1.571, 1.38, 1.231, 1.123, 1.042, 0.9341, 0.8346, 0.7118, 0.6314,
     0.5226, 0.4279, 0.3572, 0.2969, 0.2455, 0.1898, 0.1614, 0.1404, 0.1227, 0.1114, 0.09443),
    (inf, 2.526, 1.856, 1.601, 1.4, 1.28, 1.174, 1.022, 0.9104, 0.7753, 0.6879,
     0.5653, 0.4667, 0.3862, 0.3201, 0.2649, 0.203, 0.172, 0.1471, 0.1281, 0.1156, 0.09668),
    (inf, 11.86, 2.204, 1.779, 1.559, 1.392, 1.278, 1.091, 0.9703, 0.8264, 0.728,
     0.5948, 0.493, 0.4075, 0.3358, 0.2776, 0.2132, 0.1801, 0.1523, 0.1325, 0.1191, 0.09847),
    (inf, inf, 3.117, 2.009, 1.714, 1.527, 1.38, 1.165, 1.029, 0.8737, 0.7648,
     0.6228, 0.5169, 0.4289, 0.351, 0.2898, 0.223, 0.1885, 0.1577, 0.1368, 0.1226, 0.1006),
    (inf, inf, inf, 2.664, 1.976, 1.72, 1.543, 1.265, 1.116, 0.9274, 0.8159,
     0.6603, 0.5445, 0.4541, 0.3704, 0.3055, 0.235, 0.1984, 0.1647, 0.1423, 0.1268, 0.103),
    (inf, inf, inf, 5.688, 2.297, 1.902, 1.672, 1.341, 1.176, 0.976, 0.854,
     0.6892, 0.5643, 0.4714, 0.385, 0.3163, 0.2438, 0.2058, 0.1699, 0.1466, 0.1296, 0.1047),
    (inf, inf, inf, inf, 3.049, 2.112, 1.804, 1.425, 1.233, 1.02, 0.8892,
     0.7152, 0.5835, 0.4888, 0.3994, 0.3269, 0.252, 0.2129, 0.1753, 0.1505, 0.1324, 0.106),
    (inf, inf, inf, inf, inf, 2.674, 2.044, 1.548, 1.321, 1.076, 0.9338,
     0.7505, 0.6091, 0.5084, 0.4182, 0.3398, 0.2624, 0.222, 0.1818, 0.1554, 0.1355, 0.1081),
    (inf, inf, inf, inf, inf, 4.29, 2.335, 1.664, 1.385, 1.119, 0.969,
     0.7751, 0.6261, 0.5224, 0.4322, 0.3488, 0.2694, 0.2289, 0.1874, 0.1591, 0.138, 0.1096),
    (inf, inf, inf, inf, inf, inf, inf, 2.146, 1.642, 1.262, 1.08,
     0.8546, 0.6851, 0.5677, 0.4723, 0.3796, 0.2901, 0.2494, 0.2041, 0.1714, 0.146, 0.1141),
)
# fmt: on


def half_width(blocks: int, alpha: float) -> float:
    """Median half-width of the interval after ``blocks`` blocks, in block SDs; infinite where unbounded."""
    return _looked_up(_HALF_WIDTH, blocks, alpha)


def reach(blocks: int, alpha: float) -> float:
    """How far from 0 the farther end lies at most in four trials of five without an effect, in block SDs."""
    return _looked_up(_REACH, blocks, alpha)


def reach_of_all(blocks: int, alpha: float, together: int) -> float:
    """The same for the farthest of so many independent comparisons: within it lie all of them in four trials of five.

    Only the mean of the blocks, a normal quantity of SD 1/sqrt(blocks), is taken farther; the width hardly varies.
    """
    more = _two_sided(0.8 ** (1.0 / together)) - _two_sided(0.8)
    return reach(blocks, alpha) + more / math.sqrt(blocks)


def _two_sided(share: float) -> float:
    return NormalDist().inv_cdf((1.0 + share) / 2.0)


def blocks_to_resolve(
    block_sd: float, margin: float, *, alpha: float, effects: int = 1, together: int = 1
) -> int | None:
    """Blocks until a trial without an effect is called equivalent with probability .8; None where never.

    ``block_sd`` is the SD of the log contrast from block to block, ``margin`` relative (.03 for 3 %),
    ``effects`` the number of primary effects that share ``alpha``, ``together`` how many all are to be called so.
    """
    wanted = math.log1p(margin)
    level = _level(alpha, effects)
    low, high = TABLE_BLOCKS[0], TABLE_BLOCKS[-1]
    if block_sd * reach_of_all(high, level, together) > wanted:
        return None
    while low < high:
        middle = (low + high) // 2
        enough = block_sd * reach_of_all(middle, level, together) <= wanted
        low, high = (low, middle) if enough else (middle + 1, high)
    return low


def seconds_to_resolve(
    block_sd: float, block_s: float, margin: float, *, alpha: float, effects: int = 1
) -> float | None:
    """The same in seconds, a block of one condition taking ``block_s``; None where never."""
    blocks = blocks_to_resolve(block_sd, margin, alpha=alpha, effects=effects)
    return None if blocks is None else blocks * block_s


def resolvable_margin(block_sd: float, blocks: int, *, alpha: float, effects: int = 1) -> float | None:
    """The smallest margin that ``blocks`` blocks resolve with probability .8; None where unbounded."""
    farthest = block_sd * reach(blocks, _level(alpha, effects))
    return math.expm1(farthest) if farthest < 690.0 else None


def _level(alpha: float, effects: int) -> float:
    if effects < 1 or not 0.0 < alpha < 1.0:
        raise ValueError(f"cannot share alpha {alpha} over {effects} effects")
    return alpha / effects


def _looked_up(table: Sequence[Sequence[float]], blocks: int, alpha: float) -> float:
    """The table's value, interpolated in logarithms; beyond its last alpha or block, the value at the end."""
    if blocks < TABLE_BLOCKS[0]:
        return inf
    logs = [-math.log(level) for level in TABLE_ALPHAS]
    row, down = _position(logs, -math.log(alpha))
    column, right = _position([math.log(n) for n in TABLE_BLOCKS], math.log(blocks))
    corners = [
        ((1 - down) * (1 - right), table[row][column]),
        ((1 - down) * right, table[row][column + 1]),
        (down * (1 - right), table[row + 1][column]),
        (down * right, table[row + 1][column + 1]),
    ]
    if any(weight > 0.0 and math.isinf(value) for weight, value in corners):
        return inf
    return math.exp(sum(weight * math.log(value) for weight, value in corners if weight > 0.0))


def _position(points: Sequence[float], at: float) -> tuple[int, float]:
    """The interval that holds ``at``, and how far along it lies (0 to 1; beyond the ends, the end)."""
    i = min(max(bisect_right(points, at) - 1, 0), len(points) - 2)
    return i, min(max((at - points[i]) / (points[i + 1] - points[i]), 0.0), 1.0)
