"""A bet that uses the budget: it tries to exclude the candidate before the budget is spent.

The bets of ``betting.py`` do not know when a trial ends. That costs power: within a given number of blocks a test with a
known end detects more. This bet makes up most of the difference. Its capital is p = g a M, where a is its level, g is
``AIM`` and M, as for the other bets, starts at 1. Its goal is p = g, since M >= 1/a excludes the candidate. Let R be the sum
of squared scores that is expected until the budget is spent. A Gaussian path reaches its goal with probability p if it
starts at z = Phi^-1(p). A score r up or down leads to the probabilities

    V+- = Phi((z sqrt(R) +- r) / sqrt(R - r**2)),   and the stake is t = (V+ - V-) / (V+ + V-):   p becomes p (1 +- t).

This is the strategy most likely to reach a goal by a deadline in the Gaussian game (Kulldorff 1993). In terms of betting it
is what a group-sequential test with a known end does: p is its conditional error (Mueller and Schaefer 2001).

Validity requires neither Gaussian data nor a known end. The stake depends on earlier blocks, on the magnitude of this
block's x, and on the number of blocks still expected, estimated from times before this block's runs. Given these, the sign
of x is a fair coin under the candidate, so the capital is a martingale whatever R, Phi and the number of blocks turn out to
be. Run durations may depend on earlier signs (runs of the slower level are longer); a group-sequential test with looks at
fixed times would have to assume that they do not. A trial may end early, be resumed or be continued.

``eprocess.py`` gives this bet a share of the stake, and the rest to the other bets.

Sources: Kulldorff, SIAM J. Control Optim. 31 (1993), 52-69; Mueller and Schaefer, Biometrics 57 (2001), 886-891; in terms of
martingales: Ramdas et al., arXiv 2210.01948. The score and the estimate of R are ours;
docs/method-tables.md shows what they gain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from iotrial.stats.betting import Blocks, Flags, Floats, Side, log_paths
from iotrial.stats.chunked import Series

#: share of the stake in new trials; docs/method-tables.md has the table it was chosen from
SHARE = 0.35
#: the goal g of the capital: below 1, so that a path that is almost there need not wait for the last block
AIM = 0.7
#: latest deadline, in contrasts: after this many only the other bets continue
MOST = 2_000
_LARGEST_SCORE = 2.5
#: lower limit of the remaining sum of squares, in blocks, since another block is always possible
_LAST = 0.5
#: z is recomputed when the number of blocks left falls below, or rises above, this multiple of its value at the last time
_FALLEN, _RISEN = 0.8, 1.1
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Budget:
    """Input of the budget bet: its ``share`` of the stake, and the number of contrasts ``left`` in the budget.

    ``left`` has one number per contrast, counted before and including it; 0 once the budget is spent.
    """

    share: float
    left: Floats


def contrasts_left(
    indices: Sequence[int], starts_s: Sequence[float], *, blocks: int, time_s: float
) -> Floats:
    """Estimate, before each contrast, how many contrasts the budget of ``blocks`` and ``time_s`` still allows, including it.

    ``indices`` and ``starts_s``: index and start time of each contrast's block, in seconds since the trial began. The pace
    is that of the second half of the contrasts so far, since decided conditions leave their time to the others. The
    result is 0 beyond ``MOST``.
    """
    found = np.zeros(len(indices))
    for place, (index, start_s) in enumerate(zip(indices, starts_s, strict=True)):
        if index >= blocks or start_s >= time_s or place >= MOST:
            break
        of_blocks = (blocks - index) * (place / index if index and place else 1.0)
        half = place // 2
        took_s = start_s - starts_s[half]
        of_time = math.floor((time_s - start_s) * (place - half) / took_s) if took_s > 0.0 else math.inf
        found[place] = max(1.0, min(of_blocks, of_time, float(MOST - place)))
    return found


def capital(x: Floats, left: Floats, level: float) -> Floats:
    """Return ``level`` times the capital of the bet on a positive x after every block, for each row of ``x``.

    A row is x_b = D_b - d of one series, in time order. The bet alone excludes d once this reaches 1. ``left``: as in
    ``Budget``, one number per block.
    """
    blocks = np.arange(1, x.shape[1] + 1)
    sizes = np.abs(x)
    # mean magnitude, not root mean square: a stall then reduces the scores of all others less
    scale = np.cumsum(sizes, axis=1) / blocks
    scores = np.minimum(np.divide(sizes, scale, out=np.zeros_like(x), where=scale > 0.0), _LARGEST_SCORE)
    squares = np.cumsum(scores * scores, axis=1) / blocks
    signs = np.sign(x)
    held = np.full(x.shape[0], AIM * level)
    paths = np.empty_like(x)
    for first, past in _spans(left):
        if left[first] <= 0.0:
            paths[:, first:] = held[:, None]
            break
        square = squares[:, first - 1] if first else np.ones(x.shape[0])
        score, sign = scores[:, first:past], signs[:, first:past]
        moved = sign * score
        at = (_z(held) * np.sqrt(square * left[first]))[:, None] + np.cumsum(moved, axis=1) - moved
        spread = np.sqrt(square[:, None] * np.maximum(left[first:past] - 1.0, _LAST))
        spread[spread == 0.0] = 1.0  # all x so far are 0: no score, no stake
        up, down = _phi((at + score) / spread), _phi((at - score) / spread)
        both = up + down
        stake = np.divide(up - down, both, out=np.zeros_like(both), where=both > 1e-290)
        paths[:, first:past] = held[:, None] * np.cumprod(1.0 + sign * stake, axis=1)
        held = paths[:, past - 1]
    return paths / AIM


def _spans(left: Floats) -> Iterator[tuple[int, int]]:
    """Yield ranges of blocks without recomputation of z; each end is known before its block."""
    first, blocks = 0, left.tolist()
    while first < len(blocks):
        past = first + 1
        while past < len(blocks) and _FALLEN * blocks[first] < blocks[past] < _RISEN * blocks[first]:
            past += 1
        yield first, past
        first = past


def _z(held: Floats) -> Floats:
    return np.array([_NORMAL.inv_cdf(min(max(one, 1e-12), 1.0 - 1e-9)) for one in held.tolist()])


def _phi(z: Floats) -> Floats:
    tails = [*map(math.erfc, (z * -math.sqrt(0.5)).ravel().tolist())]
    return 0.5 * np.array(tails).reshape(z.shape)


def mixed_paths(
    x: Floats,
    budget: Budget,
    level: float,
    *,
    copies: Floats | None = None,
    aim: float = 0.0,
    side: Side = Side.BOTH,
) -> Floats:
    """Return ``level`` times M after every block, for each row of ``x``; a candidate is excluded once this has reached 1.

    ``copies`` as in ``betting.log_paths``. M combines the bets of ``betting.py``, with 1 - share of the stake, and this bet,
    with the share. If both sides take part, each has half of this bet's share.
    """
    whole = (1.0 - budget.share) * level
    mixed: Floats = np.exp(
        np.minimum(log_paths(x, copies=copies, aim=aim, side=side) + math.log(whole), 600.0)
    )
    if budget.share == 0.0:
        return mixed
    sides = (Side.SMALLER, Side.LARGER) if side is Side.BOTH else (side,)
    both = capital(
        np.concatenate([float(one) * x for one in sides]), budget.left, budget.share * level / len(sides)
    )
    mixed += both.reshape(len(sides), *x.shape).sum(axis=0)
    return mixed


class MixedSeries(Series):
    """The first contrasts of a series; a candidate survives while M of all bets, budget bet included, stays below 1/alpha.

    ``threshold`` is that of the bets of ``betting.py`` alone, ln 1/((1 - share) alpha): what they exclude by themselves is
    excluded here too.
    """

    def __init__(self, blocks: Blocks, budget: Budget, *, aim: float = 0.0, side: Side = Side.BOTH) -> None:
        super().__init__(blocks.first(MOST), aim=aim, side=side)
        self._budget = Budget(budget.share, budget.left[:MOST])

    @property
    def alike(self) -> object:
        """None: candidates of different series are never answered in one batch."""
        return None

    def survives(self, candidates: Floats, threshold: float) -> Flags:
        """Return for each candidate whether M of all bets stays below 1/alpha over all contrasts."""
        level = math.exp(-threshold) / (1.0 - self._budget.share)
        x = self.blocks.contrasts[None, :] - candidates[:, None]
        paths = mixed_paths(x, self._budget, level, copies=self.blocks.copies, aim=self.aim, side=self.side)
        alive: Flags = paths.max(axis=1, initial=0.0) < 1.0
        return alive
