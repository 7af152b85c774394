"""The process of ``betting.py`` over chunks of blocks: an order of magnitude fewer operations for the same answer.

With r_b = x_b / s_b the two products of a bet theta are exp(+-theta S_n - C_n), where S_n is the sum of r_b and C_n that
of ln cosh(theta r_b), because 1 +- tanh z = exp(+-z) / cosh z. So M_n is a weighted mean over the bets of cosh(theta S_n)
exp(-C_n): one running sum for all five bets, and of each C only its value at the end of a chunk, for which the factors of the
chunk are multiplied and one logarithm taken. 2 cosh z exp(-|z|) = 1 + exp(-2|z|) lies between 1 and 2, so a chunk's
product cannot overflow; the five bets are multiples of 1/20, and one exponential for each block serves them all. The aimed
bet has a running sum of its own, of x_b / s_b**2, and takes a second exponential.

C never falls. Hence within a chunk M is at most what the largest |S| of the chunk and the C before it give. Where this bound
stays below a threshold nothing in the chunk reaches it, and only the other chunks are looked at block by block.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from iotrial.analysis.betting import BETS, Floats, Side, log_paths, log_weights

Flags = npt.NDArray[np.bool_]
Places = tuple[npt.NDArray[np.intp], ...]

_LN2 = math.log(2.0)
_CHUNK = 32
#: chunks and cells that are taken at once: a candidate that is out stops costing, and arrays stay in the cache
_STRETCH = 32
_CELLS = 1 << 15
#: ln M by chunks and by ``betting.py`` differ by less; nearer to the threshold than this ``betting.py`` decides
_ROUNDING = 1e-9
_TRIANGLE: Floats = np.tri(_CHUNK)  # a product with it is a running sum
_SCRATCH = 11
_own = threading.local()
# 2 theta = steps / 10
_STEPS = (3, 6, 12, 20, 32)
assert [round(20 * theta, 9) for theta in BETS] == [*_STEPS]


class Series:
    """Contrasts and the bets on them, laid out once for any number of candidates. They lie by place in their chunk and by
    chunk, so that operations run over long contiguous rows.

    ``aim`` is the margin of the aimed bet (0: none), ``side`` which bets take part.
    """

    def __init__(self, contrasts: Floats, *, aim: float = 0.0, side: Side = Side.BOTH) -> None:
        self.contrasts = contrasts
        self.aim = aim
        self.side = side
        self.weights = np.exp(log_weights(aim))
        self.chunks = -(-contrasts.size // _CHUNK)
        filled = np.zeros(self.chunks * _CHUNK)
        filled[: contrasts.size] = contrasts
        self.values = _by_place(filled)
        # of longer numbers, about the first contrast: exactly 0 where all so far are equal, and else of full precision
        # also where one of them is far from all others
        apart = (filled - filled[0]).astype(np.longdouble)
        blocks = np.arange(1, filled.size + 1)
        means = np.cumsum(apart) / blocks
        spreads = np.maximum(np.cumsum(apart * apart) / blocks - means * means, 0.0)
        #: mean and variance of the contrasts so far
        self.means = _by_place((means + filled[0]).astype(np.float64))
        self.spreads = _by_place(spreads.astype(np.float64))
        #: places of the last chunk that hold a contrast
        self.last = contrasts.size - (self.chunks - 1) * _CHUNK

    def survives(self, candidates: Floats, threshold: float) -> Flags:
        """Of each candidate whether ln f stays below ``threshold`` (= ln 1/alpha) through all contrasts."""
        alive = np.ones(candidates.size, dtype=bool)
        for part in self._parts(candidates.size):
            alive[part] = self._survives(candidates[part], threshold)
        return alive

    def log_last(self, candidates: Floats) -> Floats:
        """ln M_n, at the last block, of each candidate."""
        out = np.empty(candidates.size)
        for part in self._parts(candidates.size):
            sums = _Sums(self, candidates[part])
            for first in range(0, self.chunks, _STRETCH):
                sums.advance(first)
            out[part] = self.log_mean(self.sided(sums.signed)[:, :, None], sums.against[:, :, None])[:, 0]
        return out

    def _survives(self, candidates: Floats, threshold: float) -> Flags:
        alive = np.ones(candidates.size, dtype=bool)
        index = np.arange(candidates.size)
        unsure: list[int] = []
        sums = _Sums(self, candidates)
        for first in range(0, self.chunks, _STRETCH):
            chunks = sums.advance(first)
            out = chunks.at_ends().max(axis=1) >= threshold + _ROUNDING
            places = np.nonzero(~out[:, None] & (chunks.at_most() >= threshold - _ROUNDING))
            if places[0].size:
                highest = chunks.largest(places)
                out[places[0][highest >= threshold + _ROUNDING]] = True
                near = places[0][np.abs(highest - threshold) < _ROUNDING]
                unsure += index[near].tolist()
            alive[index[out]] = False
            index = index[~out]
            if index.size == 0:
                break
            sums.keep(~out)
        for place in {place for place in unsure if alive[place]}:
            x = (self.contrasts - candidates[place])[None, :]
            alive[place] = log_paths(x, aim=self.aim, side=self.side).max() < threshold
        return alive

    def _parts(self, candidates: int) -> Iterator[slice]:
        """Ranges of candidates that are taken at once."""
        rows = max(1, _CELLS // (_CHUNK * min(_STRETCH, max(self.chunks, 1))))
        return (slice(start, start + rows) for start in range(0, candidates, rows))

    def sided(self, signed: Floats) -> Floats:
        """The sums as the bets that take part see them."""
        return np.abs(signed) if self.side is Side.BOTH else float(self.side) * signed

    def log_mean(self, sided: Floats, against: Floats) -> Floats:
        """ln of the weighted mean over the bets of exp(S - C), or of cosh(S) exp(-C) where both sides take part.

        ``sided``: the sum of r and, with an aimed bet, of its stakes (first axis); ``against``: C by bet.
        """
        towards = np.multiply.outer(np.array(BETS), sided[0])
        if self.aim > 0.0:
            towards = np.concatenate([towards, sided[1:]])
        logs = towards - against
        top: Floats = logs.max(axis=0)
        parts = np.exp(logs - top)
        if self.side is Side.BOTH:
            parts *= 0.5 + 0.5 * np.exp(-2.0 * towards)
        mean: Floats = top + np.log(np.tensordot(self.weights, parts, axes=1))
        return mean


def _by_place(filled: Floats) -> Floats:
    return np.ascontiguousarray(filled.reshape(-1, _CHUNK).T)


class _Sums:
    """S and C of several candidates, carried from stretch to stretch."""

    def __init__(self, series: Series, candidates: Floats) -> None:
        self._series = series
        self._candidates = candidates[:, None]
        #: the sums of r and, with an aimed bet, of its stakes; by candidate
        self.signed: Floats = np.zeros((1 + (series.aim > 0.0), candidates.size))
        #: by bet and candidate
        self.against: Floats = np.zeros((series.weights.size, candidates.size))

    def keep(self, which: Flags) -> None:
        """Carry on with some of the candidates only."""
        if not which.all():
            self._candidates = self._candidates[which]
            self.signed, self.against = self.signed[:, which], self.against[:, which]

    def advance(self, first: int) -> _Chunks:
        """Take the next chunks. The last one is filled up with blocks that change nothing (r = 0)."""
        series = self._series
        past = min(first + _STRETCH, series.chunks)
        x, rms, stake = _arrays(3, (_CHUNK, self._candidates.shape[0], past - first))
        np.subtract(series.values[:, None, first:past], self._candidates, out=x)
        # the mean of (D - d)^2 is the variance of D and the square of what its mean is from d
        np.subtract(series.means[:, None, first:past], self._candidates, out=rms)
        rms *= rms
        rms += series.spreads[:, None, first:past]
        np.sqrt(rms, out=rms)
        rms[rms == 0.0] = 1.0  # all x so far are 0, and so is r
        ratio = np.divide(x, rms, out=x)
        if past == series.chunks:
            ratio[series.last :, :, -1] = 0.0
        stakes = [ratio]
        if series.aim > 0.0:
            np.divide(ratio, rms, out=stake)
            stake *= series.aim
            stakes.append(stake)
        found = _Chunks(series, stakes, self.signed, self.against)
        self.signed, self.against = found.signed[:, -1, :, -1].copy(), found.against[:, :, -1].copy()
        return found


class _Chunks:
    """A stretch of several candidates: r, and the stakes of the aimed bet, by place in the chunk, candidate and chunk."""

    def __init__(self, series: Series, stakes: list[Floats], signed: Floats, against: Floats) -> None:
        self._series = series
        #: S after every block
        self.signed: Floats = np.stack([_running(*one) for one in zip(stakes, signed, strict=True)])
        self._sizes = [np.abs(one, out=one) for one in stakes]
        #: C by bet and candidate before the stretch and after every chunk
        self.against: Floats = np.concatenate([against[:, :, None], self._against()], axis=2)
        np.cumsum(self.against, axis=2, out=self.against)

    def at_ends(self) -> Floats:
        """ln M by candidate after every chunk."""
        return self._series.log_mean(self._series.sided(self.signed[:, -1]), self.against[:, :, 1:])

    def at_most(self) -> Floats:
        """What ln M does not exceed anywhere in a chunk."""
        return self._series.log_mean(self._series.sided(self.signed).max(axis=1), self.against[:, :, :-1])

    def largest(self, places: Places) -> Floats:
        """The largest ln M in some chunks, given as candidates and chunks."""
        size = self._sizes[0][:, places[0], places[1]]
        parts = [np.log(factor) for factor in _factors(size)]
        parts = [part + (theta * size - _LN2) for part, theta in zip(parts, BETS, strict=True)]
        for aimed in self._sizes[1:]:
            stake = aimed[:, places[0], places[1]]
            parts.append(np.log1p(np.exp(-2.0 * stake)) + (stake - _LN2))
        against = np.cumsum(np.stack(parts), axis=1)
        against += self.against[:, None, places[0], places[1]]
        sided = self._series.sided(self.signed[:, :, places[0], places[1]])
        largest: Floats = self._series.log_mean(sided, against).max(axis=0)
        return largest

    def _against(self) -> Floats:
        """The sum of ln cosh over each chunk, by bet, candidate and chunk."""
        size = self._sizes[0]
        products = [np.multiply.reduce(factor, axis=0) for factor in _factors(size)]
        towards = [theta * size.sum(axis=0) for theta in BETS]
        for aimed in self._sizes[1:]:
            (factor,) = _arrays(1, aimed.shape, after=3)
            np.exp(np.multiply(aimed, -2.0, out=factor), out=factor)
            factor += 1.0
            products.append(np.multiply.reduce(factor, axis=0))
            towards.append(aimed.sum(axis=0))
        total: Floats = np.log(np.stack(products)) + np.stack(towards) - _LN2 * _CHUNK
        return total


def _running(values: Floats, before: Floats) -> Floats:
    """Running sums over the places of a chunk and the chunks, from ``before`` on (by candidate)."""
    sums: Floats = np.matmul(_TRIANGLE, values.reshape(_CHUNK, -1)).reshape(values.shape)
    earlier = np.concatenate([before[:, None], sums[-1, :, :-1]], axis=1)
    sums += np.cumsum(earlier, axis=1)
    return sums


def _factors(size: Floats) -> list[Floats]:
    """1 + exp(-2 theta size) of every bet, theta = .15, .3, .6, 1, 1.6: powers of exp(-size/10)."""
    one, two, three, six, twelve, twenty, thirty_two = _arrays(7, size.shape, after=3)
    np.exp(np.multiply(size, -0.1, out=one), out=one)
    np.multiply(one, one, out=two)
    np.multiply(two, one, out=three)
    np.multiply(three, three, out=six)
    np.multiply(six, six, out=twelve)
    eight = np.multiply(two, six, out=one)
    np.multiply(eight, twelve, out=twenty)
    np.multiply(twenty, twelve, out=thirty_two)
    found = [three, six, twelve, twenty, thirty_two]
    for factor in found:
        factor += 1.0
    return found


def _arrays(count: int, shape: tuple[int, ...], *, after: int = 0) -> list[Floats]:
    """Some of this thread's own scratch arrays, always the same: new ones would cost more than what is reckoned in them."""
    size = math.prod(shape)
    room: Floats | None = getattr(_own, "room", None)
    if room is None or room.shape[1] < size:
        room = _own.room = np.empty((_SCRATCH, max(size, _CELLS)))
    return [room[place, :size].reshape(shape) for place in range(after, after + count)]
