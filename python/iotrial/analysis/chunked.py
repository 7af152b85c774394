"""The process of ``betting.py`` over chunks of blocks: an order of magnitude fewer operations for the same answer.

With r_b = x_b / s_b the two products of a bet theta are exp(+-theta S_n - C_n), where S_n is the sum of r_b and C_n that
of ln cosh(theta r_b), because 1 +- tanh z = exp(+-z) / cosh z. So M_n is the mean over the bets of cosh(theta S_n)
exp(-C_n): one running sum for all bets, and of each C only its value at the end of a chunk, for which the factors of the
chunk are multiplied and one logarithm taken. 2 cosh z exp(-|z|) = 1 + exp(-2|z|) lies between 1 and 2, so a chunk's
product cannot overflow; all bets are multiples of 1/20, and one exponential for each block serves them all.

C never falls. Hence within a chunk M is at most what the largest |S| of the chunk and the C before it give. Where this bound
stays below a threshold nothing in the chunk reaches it, and only the other chunks are looked at block by block.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from iotrial.analysis.betting import BETS, Floats, log_paths

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
_own = threading.local()
_THETAS: Floats = np.array(BETS)[:, None, None]
# 2 theta = steps / 10
_STEPS = (3, 6, 12, 20, 32)
assert [round(20 * theta, 9) for theta in BETS] == [*_STEPS]


def survives(contrasts: Floats | Series, candidates: Floats, threshold: float) -> Flags:
    """Of each candidate whether ln f stays below ``threshold`` (= ln 1/alpha) through all contrasts."""
    alive = np.ones(candidates.size, dtype=bool)
    series = contrasts if isinstance(contrasts, Series) else Series(contrasts)
    for part in series.parts(candidates.size):
        alive[part] = _survives(series, candidates[part], threshold)
    return alive


def log_last(contrasts: Floats | Series, candidates: Floats) -> Floats:
    """ln M_n, at the last block, of each candidate."""
    out = np.empty(candidates.size)
    series = contrasts if isinstance(contrasts, Series) else Series(contrasts)
    for part in series.parts(candidates.size):
        sums = _Sums(candidates[part])
        for first in range(0, series.chunks, _STRETCH):
            sums.advance(series, first)
        out[part] = _log_mean(np.abs(sums.signed)[:, None], sums.against[:, :, None])[:, 0]
    return out


def _survives(series: Series, candidates: Floats, threshold: float) -> Flags:
    alive = np.ones(candidates.size, dtype=bool)
    index = np.arange(candidates.size)
    unsure: list[int] = []
    sums = _Sums(candidates)
    for first in range(0, series.chunks, _STRETCH):
        chunks = sums.advance(series, first)
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
        alive[place] = log_paths((series.contrasts - candidates[place])[None, :]).max() < threshold
    return alive


class Series:
    """Contrasts by place in their chunk and by chunk: so that operations run over long contiguous rows. Laid out once for any
    number of questions."""

    def __init__(self, contrasts: Floats) -> None:
        self.contrasts = contrasts
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

    def parts(self, candidates: int) -> Iterator[slice]:
        """So many candidates at once."""
        rows = max(1, _CELLS // (_CHUNK * min(_STRETCH, max(self.chunks, 1))))
        return (slice(start, start + rows) for start in range(0, candidates, rows))


def _by_place(filled: Floats) -> Floats:
    return np.ascontiguousarray(filled.reshape(-1, _CHUNK).T)


class _Sums:
    """S and C of several candidates, carried from stretch to stretch."""

    def __init__(self, candidates: Floats) -> None:
        self._candidates = candidates[:, None]
        self.signed: Floats = np.zeros(candidates.size)
        #: by bet and candidate
        self.against: Floats = np.zeros((len(BETS), candidates.size))

    def keep(self, which: Flags) -> None:
        """Carry on with some of the candidates only."""
        if not which.all():
            self._candidates = self._candidates[which]
            self.signed, self.against = self.signed[which], self.against[:, which]

    def advance(self, series: Series, first: int) -> _Chunks:
        """Take the next chunks. The last one is filled up with blocks that change nothing (r = 0)."""
        past = min(first + _STRETCH, series.chunks)
        x, rms = _arrays(2, (_CHUNK, self._candidates.shape[0], past - first))
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
        found = _Chunks(ratio, self.signed, self.against)
        self.signed, self.against = found.signed[-1, :, -1].copy(), found.against[:, :, -1].copy()
        return found


class _Chunks:
    """A stretch of several candidates: r by place in the chunk, candidate and chunk."""

    def __init__(self, ratio: Floats, signed: Floats, against: Floats) -> None:
        #: S after every block
        _, self.signed = _arrays(2, ratio.shape)
        _running(ratio, signed, out=self.signed)
        self._size = np.abs(ratio, out=ratio)
        #: C by bet and candidate before the stretch and after every chunk
        self.against: Floats = np.concatenate([against[:, :, None], _against(self._size)], axis=2)
        np.cumsum(self.against, axis=2, out=self.against)

    def at_ends(self) -> Floats:
        """ln M by candidate after every chunk."""
        return _log_mean(np.abs(self.signed[-1]), self.against[:, :, 1:])

    def at_most(self) -> Floats:
        """What ln M does not exceed anywhere in a chunk."""
        largest = np.maximum(self.signed.max(axis=0), -self.signed.min(axis=0))
        return _log_mean(largest, self.against[:, :, :-1])

    def largest(self, places: Places) -> Floats:
        """The largest ln M in some chunks, given as candidates and chunks."""
        size = self._size[:, places[0], places[1]]
        against = np.log(np.stack(_factors(size)))
        against += _THETAS * size - _LN2
        np.cumsum(against, axis=1, out=against)
        against += self.against[:, None, places[0], places[1]]
        largest: Floats = _log_mean(np.abs(self.signed[:, places[0], places[1]]), against).max(axis=0)
        return largest


def _running(values: Floats, before: Floats, *, out: Floats) -> None:
    """Running sums over the places of a chunk and the chunks, from ``before`` on (by candidate)."""
    np.matmul(_TRIANGLE, values.reshape(_CHUNK, -1), out=out.reshape(_CHUNK, -1))
    earlier = np.concatenate([before[:, None], out[-1, :, :-1]], axis=1)
    out += np.cumsum(earlier, axis=1)


def _against(size: Floats) -> Floats:
    """The sum of ln cosh(theta r) over each chunk, by bet, candidate and chunk."""
    products = np.stack([np.multiply.reduce(one, axis=0) for one in _factors(size)])
    total: Floats = np.log(products) + _THETAS * size.sum(axis=0) - _LN2 * _CHUNK
    return total


def _factors(size: Floats) -> list[Floats]:
    """1 + exp(-2 theta size) of every bet, theta = .15, .3, .6, 1, 1.6: powers of exp(-size/10)."""
    one, two, three, six, twelve, twenty, thirty_two = _arrays(9, size.shape)[2:]
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


def _arrays(count: int, shape: tuple[int, ...]) -> list[Floats]:
    """The first of this thread's own arrays, always the same: new ones would cost more than what is reckoned in them."""
    size = math.prod(shape)
    room: Floats | None = getattr(_own, "room", None)
    if room is None or room.shape[1] < size:
        room = _own.room = np.empty((9, max(size, _CELLS)))
    return [room[place, :size].reshape(shape) for place in range(count)]


def _log_mean(size: Floats, against: Floats) -> Floats:
    """ln of the mean over the bets (first axis of ``against``) of cosh(theta S) exp(-C), given |S|."""
    towards = _THETAS * size
    logs = towards - against
    top: Floats = logs.max(axis=0)
    parts = np.exp(logs - top) * (1.0 + np.exp(-2.0 * towards))
    mean: Floats = top + np.log(parts.sum(axis=0)) - math.log(2 * len(BETS))
    return mean
