"""The betting products of the e-process, as logarithms.

A block has k runs with logarithms x_0 .. x_{k-1}: the level's run less a candidate effect d, the reference's run and,
in most blocks, that of its identical copy. If d is the effect, the drawn order makes all k! assignments of these numbers to
the runs equally likely. Hence for any l the factor

    exp(2 l x_0) / mean over j of exp(2 l x_j)

has mean 1, given everything else. With k runs it is at most k; of two runs it is 1 + tanh(l x), where x = D - d and D is the
contrast, level less reference. The scale s of the bets is the root mean square so far (this block included) of a number
that does not change if runs change places: twice the variance within the block, which is x**2 for two runs.

Five bets have l = +-theta / s, one sign for a larger and one for a smaller effect than d. If the response has a margin m, an
*aimed* bet has l = +-m / s**2, at most as bold as theta = 1.6: for normal noise this bet gains most when the effect is a
margin away from d. The *bold* bet risks almost everything on every block, so that large effects are found early.

*Unequal scatter.* The mean over j assumes that the level's runs scatter as the reference's do. Let y be twice the distance
of x_0 from the block's mean: if the level scatters more, but symmetrically, the sign of y is still a fair coin, and
exp(l y) / cosh(l y) has mean 1. Every bet but the bold one of both sides is the smaller of the two products so far. Its mean
is at most 1 in both cases, and in blocks of two runs the two products are the same.

``eprocess.py`` explains the use of the bets. Sums of logarithms neither overflow nor underflow, for any number of blocks.
``chunked.py`` is a faster implementation of fewer queries, for many candidates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

BETS = (0.15, 0.3, 0.6, 1.0, 1.6)
#: theta and weight of the bold bet; chosen on normal noise and judged on others, see docs/method-details.md
BOLD, BOLD_WEIGHT = 2.5, 0.05
#: weight of the aimed bet among the bets of one side, which must exclude the margin
AIMED_WEIGHT = 0.7
#: most that the aimed bet risks, as a theta: else a first block with hardly any difference would ruin it
MOST_AIMED = 1.6
#: a root mean square not above this counts as 0: squares of smaller numbers lose precision
SMALLEST = 1e-150
#: what a block with a copy adds: weight of (v - d)**2 in the scale, and y / (v - d), where v is the middle of its two
#: contrasts
SQUARED, DOUBLED = 2.0 / 3.0, 4.0 / 3.0


class Side(IntEnum):
    """Which bets take part: on an effect larger than the candidate, on a smaller one, or both with half the stake each."""

    SMALLER = -1
    BOTH = 0
    LARGER = 1

    @property
    def signs(self) -> tuple[float, ...]:
        """The signs of the bets that take part."""
        return (1.0, -1.0) if self is Side.BOTH else (float(self),)


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """The numbers of one comparison, one of each per block in time order.

    ``contrasts``: level less reference. ``copies``: copy of the reference less reference, NaN in blocks without a copy.
    """

    contrasts: Floats
    copies: Floats

    @classmethod
    def of(cls, contrasts: Sequence[float] | Floats, copies: Sequence[float] | Floats = ()) -> Blocks:
        """Build them; without ``copies`` no block has one. Raises ValueError if the numbers do not fit."""
        values: Floats = np.asarray(contrasts, dtype=np.float64)
        if values.ndim != 1 or not np.isfinite(values).all():
            raise ValueError("contrasts must be one finite number a block")
        others: Floats = (
            np.asarray(copies, dtype=np.float64) if len(copies) else np.full(values.size, math.nan)
        )
        if others.shape != values.shape or np.isinf(others).any():
            raise ValueError("copies must be one number a block, NaN where there is none")
        return cls(values, others)

    @property
    def size(self) -> int:
        """Number of blocks."""
        return int(self.contrasts.size)

    @property
    def copied(self) -> Flags:
        """Whether each block has a copy."""
        return np.isfinite(self.copies)

    @property
    def points(self) -> Floats:
        """All contrasts of a block: against the reference and, where there is one, against its copy."""
        return np.concatenate([self.contrasts, (self.contrasts - self.copies)[self.copied]])

    def first(self, count: int) -> Blocks:
        """Return the first blocks."""
        return Blocks(self.contrasts[:count], self.copies[:count])

    def scaled(self, by: float, centre: float = 0.0) -> Blocks:
        """Return them with ``centre`` subtracted from the contrasts, divided by ``by`` (negative: with the other sign)."""
        return Blocks((self.contrasts - centre) / by, self.copies / by)

    def against(
        self, candidates: Floats, *, aim: float = 0.0, side: Side = Side.BOTH, bets: Mixture | None = None
    ) -> Floats:
        """Return ln M after every block (second axis) of each candidate."""
        x = self.contrasts[None, :] - candidates[:, None]
        return log_paths(x, copies=self.copies, aim=aim, side=side, bets=bets)


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """The bets of a process: their thetas, which of them are bold, whether an aimed one follows, and the weights of all."""

    thetas: tuple[float, ...]
    bold: Flags
    aimed: bool
    weights: Floats


@lru_cache(8)
def mixture(side: Side, *, aimed: bool) -> Mixture:
    """Return the bets of a process of one side or of both.

    Of both sides the bold bet has its weight and the others equal ones. Of one side the aimed bet, if there is one, has most
    of the weight: its task is to exclude the margin. The others exclude what is far beyond it, and are bolder for that.
    """
    bold = np.zeros(len(BETS) + (side is Side.BOTH) + aimed, dtype=bool)
    if side is Side.BOTH:
        bold[len(BETS)] = True
        weights = np.where(bold, BOLD_WEIGHT, (1.0 - BOLD_WEIGHT) / (len(BETS) + aimed))
        return Mixture((*BETS, BOLD), bold, aimed, weights)
    weights = np.full(bold.size, (1.0 - AIMED_WEIGHT * aimed) / len(BETS))
    weights[len(BETS) :] = AIMED_WEIGHT
    return Mixture((*BETS[1:], BOLD) if aimed else BETS, bold, aimed, weights)


@lru_cache(2)
def keeping_bets(*, aimed: bool) -> Mixture:
    """Return the bets of one side on which a setting is kept (``questions.py``), all but the aimed one with fixed stakes.

    Each further question needs more capital, so these bets are bolder: a large effect must not take many more blocks than
    its own trial does.
    """
    thetas = (*BETS[1:], BOLD)
    weights = np.array([0.05, 0.1, 0.1, 0.15, 0.3, 0.3] if aimed else [0.1, 0.15, 0.2, 0.25, 0.3])
    bold = np.zeros(weights.size, dtype=bool)
    bold[len(thetas) - 1] = True
    return Mixture(thetas, bold, aimed, weights)


def log_process(
    contrasts: Floats | Blocks, candidate: float, *, aim: float = 0.0, side: Side = Side.BOTH
) -> tuple[float, float]:
    """Return ln f and ln M_n at one candidate: the largest value of the process so far (at least 0), and its last value."""
    blocks = contrasts if isinstance(contrasts, Blocks) else Blocks.of(contrasts)
    log_m = blocks.against(np.array([candidate]), aim=aim, side=side)[0]
    return float(max(log_m.max(), 0.0)), float(log_m[-1])


def log_paths(
    x: Floats,
    *,
    copies: Floats | None = None,
    aim: float = 0.0,
    side: Side = Side.BOTH,
    bets: Mixture | None = None,
) -> Floats:
    """Return ln M after every block, for each row of ``x`` (x_b = D_b - d of one series, in time order).

    ``copies``: of each block, the copy less the reference, NaN where there is none; one row for all of ``x``, or one each.
    ``aim`` is the margin on the contrasts' own scale (0 if there is none). ``bets``: None for those of ``mixture``.
    """
    x = np.atleast_2d(x)
    copied = (
        np.zeros(x.shape, dtype=bool) if copies is None else np.broadcast_to(np.isfinite(copies), x.shape)
    )
    apart = np.zeros(x.shape) if copies is None else np.where(copied, copies, 0.0)
    middle = x - apart / 2.0
    squares = np.where(copied, SQUARED, 1.0) * middle * middle + apart * apart / 2.0
    rms = np.sqrt(np.cumsum(squares, axis=1) / np.arange(1, x.shape[1] + 1))
    stakes, gaps = _divided(np.where(copied, DOUBLED, 1.0) * middle, rms), _divided(apart, rms)
    bets, signs = bets or mixture(side, aimed=aim > 0.0), side.signs
    logs = np.empty((bets.weights.size, len(signs), *x.shape))
    for k, weight in enumerate(bets.weights.tolist()):
        scale = (
            bets.thetas[k]
            if k < len(bets.thetas)
            else np.minimum(_divided(np.full(x.shape, aim), rms), MOST_AIMED)
        )
        stake, gap = scale * stakes, scale * gaps
        coin = log_cosh(stake)
        won, coin_cost = np.cumsum(stake, axis=1), np.cumsum(coin, axis=1)
        others = np.logaddexp(gap, -gap) if copied.any() else None
        for i, sign in enumerate(signs):
            cost = coin_cost
            if others is not None:
                mean = _log_mean_of_three(sign * stake, others)
                all_runs = np.cumsum(np.where(copied, mean, coin), axis=1)
                cost = all_runs if bets.bold[k] else np.maximum(cost, all_runs)
            logs[k, i] = sign * won - cost + math.log(weight / len(signs))
    return log_sum(logs.reshape(bets.weights.size * len(signs), *x.shape))


def log_rank_path(blocks: Blocks) -> Floats:
    """Return ln of the capital after every block of bets on the rank of the level's run within its block.

    They test that the level's run is exchangeable with the reference's and its copy's, and need no symmetry. Runs that stall
    move a rank no further than others do. A rank is -1, 0 or 1, ties in the middle; the bets have the thetas of the others.
    """
    d, c = blocks.contrasts, np.where(blocks.copied, blocks.copies, 0.0)
    of_level, of_reference, of_copy = np.sign(d), np.sign(c), np.sign(d - c)
    # a third rank that does not exist has no weight in the mean over the runs
    ranks = np.where(
        blocks.copied,
        [of_level + of_copy, -of_level - of_reference, of_reference - of_copy],
        [2.0 * of_level, -2.0 * of_level, np.full(blocks.size, math.nan)],
    )
    runs = np.where(blocks.copied, 3.0, 2.0)
    logs = []
    for theta in (*BETS, BOLD):
        for sign in (1.0, -1.0):
            powers = sign * theta * ranks / 2.0
            mean = log_sum(np.where(np.isnan(powers), -math.inf, powers)) - np.log(runs)
            logs.append(np.cumsum(powers[0] - mean))
    return log_sum(np.stack(logs)) - math.log(len(logs))


def log_cosh(z: Floats) -> Floats:
    """Return ln cosh z = |z| + ln(1 + exp(-2|z|)) - ln 2, precise for every z."""
    size = np.abs(z)
    found: Floats = size + np.log1p(np.exp(-2.0 * size)) - math.log(2.0)
    return found


def _log_mean_of_three(stake: Floats, others: Floats) -> Floats:
    """Return ln of the mean of exp(stake), exp(-stake/2 + gap) and exp(-stake/2 - gap).

    ``others``: ln of exp(gap) + exp(-gap)."""
    found: Floats = np.logaddexp(stake, others - stake / 2.0) - math.log(3.0)
    return found


def _divided(x: Floats, rms: Floats) -> Floats:
    """Return x / rms, or 0 where all x so far are 0."""
    ratio: Floats = np.divide(x, rms, out=np.zeros_like(x), where=rms > SMALLEST)
    return ratio


def log_sum(logs: Floats) -> Floats:
    """Return ln of the sum of exponentials over the first axis."""
    top: Floats = logs.max(axis=0)
    total: Floats = top + np.log(np.exp(logs - top).sum(axis=0))
    return total


def log_agreeing(copied: Flags, share: float, *, aimed: bool, side: Side) -> Floats:
    """Return lower bounds of ln M after every block if every run of the level is on the side that ``side`` bets on.

    ``copied``: whether each block has a copy. The bound holds if all of the level's distances from the other runs of its
    block are at least ``share`` times the largest of all blocks; the aimed bet counts nothing.
    """
    bets = mixture(side, aimed=aimed)
    blocks = np.arange(1, copied.size + 1)
    sizes = share / np.sqrt(np.cumsum(np.where(copied, SQUARED, 1.0)) / blocks)
    logs = []
    for theta, weight, bold in zip(bets.thetas, bets.weights.tolist(), bets.bold, strict=False):
        coin = np.cumsum(np.log1p(np.tanh(theta * np.where(copied, DOUBLED, 1.0) * sizes)))
        others = np.where(copied, 2.0, 1.0)
        all_runs = np.cumsum(np.log((others + 1.0) / (1.0 + others * np.exp(-2.0 * theta * sizes))))
        logs.append((all_runs if bold else np.minimum(coin, all_runs)) + math.log(weight / len(side.signs)))
    return log_sum(np.stack(logs))
