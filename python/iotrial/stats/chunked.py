"""The process of ``betting.py`` computed in chunks of blocks: the same answer with an order of magnitude fewer operations.

With r_b = x_b / s_b the two products of a bet theta are exp(+-theta S_n - C_n), where S_n is the sum of r_b and C_n that
of ln cosh(theta r_b), because 1 +- tanh z = exp(+-z) / cosh z. So M_n is a weighted mean over the bets of cosh(theta S_n)
exp(-C_n). This takes one running sum for all five bets, and of each C only its value at the end of a chunk: the product of
the chunk's factors and one logarithm. 2 cosh z exp(-|z|) = 1 + exp(-2|z|) is between 1 and 2, so a chunk's product cannot
overflow. The five bets are multiples of 1/20, so one exponential per block serves them all. The aimed bet has its own
running sum, of x_b / s_b**2, and takes a second exponential.

C never decreases. Hence the largest |S| of a chunk and the C before the chunk give an upper bound of M within it. If this
bound is below a threshold, nothing in the chunk reaches it; only the other chunks are evaluated block by block.

A search asks for a few candidates of one series at a time, so for short series the numpy call overhead dominates. ``run``
therefore advances many searches in lockstep and answers their questions on series of the same length in one batch.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from iotrial.stats.betting import BETS, SMALLEST, Floats, Side, log_paths, log_weights

Flags = npt.NDArray[np.bool_]
Places = tuple[npt.NDArray[np.intp], ...]
T = TypeVar("T")

_LN2 = math.log(2.0)
_CHUNK = 32
#: chunks and cells per pass: an excluded candidate stops costing time, and arrays stay in the CPU cache
_STRETCH = 32
_CELLS = 1 << 15
#: bound on the difference of ln M between this module and ``betting.py``; closer to the threshold, ``betting.py`` decides
_ROUNDING = 1e-9
_SCRATCH = 11
_own = threading.local()
# 2 theta = steps / 10
_STEPS = (3, 6, 12, 20, 32)
assert [round(20 * theta, 9) for theta in BETS] == [*_STEPS]


@dataclass(frozen=True, slots=True, eq=False)
class _Layout:
    """Contrasts with their running means and variances, and the bets on them.

    Array axes are place in the chunk, candidate (or 1 for all) and chunk, so that operations run over long contiguous rows.
    ``last``: number of contrasts in the last chunk. ``aim``: margin of the aimed bet, one for all or by candidate.
    """

    values: Floats
    means: Floats
    spreads: Floats
    aim: float | Floats
    side: Side
    weights: Floats
    last: int

    @property
    def aimed(self) -> bool:
        """True if there is an aimed bet."""
        return self.weights.size > len(BETS)

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return int(self.values.shape[2])

    def sided(self, signed: Floats) -> Floats:
        """Return the sums with the sign of the bets that take part (absolute values for both sides)."""
        return np.abs(signed) if self.side is Side.BOTH else float(self.side) * signed

    def log_mean(self, sided: Floats, against: Floats) -> Floats:
        """Return ln of the weighted mean over the bets of exp(S - C), or of cosh(S) exp(-C) if both sides take part.

        ``sided``: the sum of r and, with an aimed bet, of its stakes (first axis); ``against``: C by bet.
        """
        towards = np.multiply.outer(np.array(BETS), sided[0])
        if self.aimed:
            towards = np.concatenate([towards, sided[1:]])
        logs = towards - against
        top: Floats = logs.max(axis=0)
        parts = np.exp(logs - top)
        if self.side is Side.BOTH:
            parts *= 0.5 + 0.5 * np.exp(-2.0 * towards)
        mean: Floats = top + np.log(np.tensordot(self.weights, parts, axes=1))
        return mean


class Series:
    """Contrasts and the bets on them, laid out once for any number of candidates.

    ``aim`` is the margin of the aimed bet (0: none); ``side`` selects the bets that take part.
    """

    def __init__(self, contrasts: Floats, *, aim: float = 0.0, side: Side = Side.BOTH) -> None:
        self.contrasts = contrasts
        self.aim = aim
        self.side = side
        chunks = -(-contrasts.size // _CHUNK)
        filled = np.zeros(chunks * _CHUNK)
        filled[: contrasts.size] = contrasts
        # Extended precision, relative to the first contrast: exactly 0 if all so far are equal, and precise even if one of
        # them is far from all others.
        apart = (filled - filled[0]).astype(np.longdouble)
        blocks = np.arange(1, filled.size + 1)
        means = np.cumsum(apart) / blocks
        spreads = np.maximum(np.cumsum(apart * apart) / blocks - means * means, 0.0)
        self.layout = _Layout(
            values=_by_place(filled),
            means=_by_place((means + filled[0]).astype(np.float64)),
            spreads=_by_place(spreads.astype(np.float64)),
            aim=aim,
            side=side,
            weights=np.exp(log_weights(aim)),
            last=contrasts.size - (chunks - 1) * _CHUNK,
        )

    @property
    def alike(self) -> object:
        """Batch key, equal for series that can share one batch of candidates: short, of the same length and bets.

        None for others.
        """
        if self.layout.chunks > _STRETCH:
            return None
        return self.contrasts.size, self.aim > 0.0, self.side

    def survives(self, candidates: Floats, threshold: float) -> Flags:
        """Return for each candidate whether ln f stays below ``threshold`` (= ln 1/alpha) over all contrasts."""
        (alive,) = _survive([Question(self, candidates, threshold)])
        return alive

    def log_last(self, candidates: Floats) -> Floats:
        """Return ln M_n, at the last block, of each candidate."""
        (found,) = _log_last([Question(self, candidates)])
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A search's query on some candidates of a series: does ln f stay below the ``threshold`` over all contrasts?

    With ``at_last``: is ln M_n below it at the last contrast? Without a threshold: the value of ln M_n at the last.
    """

    series: Series
    candidates: Floats
    threshold: float | None = None
    at_last: bool = False


#: a generator that yields questions, is sent their answers (flags or numbers by candidate), and returns its result
Search = Generator[Question, Any, T]


def run(searches: Sequence[Search[T]]) -> list[T]:
    """Run all searches in lockstep and return their results; the questions of each step are answered in batches."""
    found: dict[int, T] = {}
    answers: dict[int, Flags | Floats | None] = dict.fromkeys(range(len(searches)))
    while answers:
        questions: dict[int, Question] = {}
        for place, answer in answers.items():
            try:
                questions[place] = searches[place].send(answer)
            except StopIteration as end:
                found[place] = end.value
        answers = dict(zip(questions, _answered([*questions.values()]), strict=True))
    return [found[place] for place in range(len(searches))]


def _answered(questions: Sequence[Question]) -> list[Flags | Floats]:
    together: dict[object, list[int]] = {}
    for place, one in enumerate(questions):
        at_last = one.at_last or one.threshold is None
        alike = one.series.alike
        together.setdefault((place if alike is None else alike, at_last), []).append(place)
    found: dict[int, Flags | Floats] = {}
    for places in together.values():
        some = [questions[place] for place in places]
        found.update(zip(places, _alike_answered(some), strict=True))
    return [found[place] for place in range(len(questions))]


def _alike_answered(questions: Sequence[Question]) -> Sequence[Flags | Floats]:
    first = questions[0]
    if first.at_last or first.threshold is None:
        return [
            last if one.threshold is None else last < one.threshold
            for one, last in zip(questions, _log_last(questions), strict=True)
        ]
    if len(questions) == 1:
        return [first.series.survives(first.candidates, first.threshold)]
    return _survive(questions)


def _log_last(questions: Sequence[Question]) -> list[Floats]:
    """Return ln M_n, at the last block, of the candidates of series with the same batch key (or of one series)."""
    out: Floats = np.empty(sum(one.candidates.size for one in questions))
    for part, layout, candidates, _ in _parts(questions):
        sums = _Sums(layout, candidates)
        for first in range(0, layout.chunks, _STRETCH):
            sums.advance(first)
        out[part] = layout.log_mean(layout.sided(sums.signed)[:, :, None], sums.against[:, :, None])[:, 0]
    return _split(out, questions)


def _survive(questions: Sequence[Question]) -> list[Flags]:
    """Return whether ln f stays below the threshold, for candidates of series with the same batch key (or of one series)."""
    alive: Flags = np.ones(sum(one.candidates.size for one in questions), dtype=bool)
    for part, layout, candidates, own in _parts(questions):
        thresholds: Floats = np.array([one.threshold for one in questions], dtype=np.float64)[own]
        series = [questions[place].series for place in own.tolist()]
        alive[part] = _stay_below(layout, candidates, thresholds, series)
    return _split(alive, questions)


def _stay_below(layout: _Layout, candidates: Floats, thresholds: Floats, series: Sequence[Series]) -> Flags:
    alive: Flags = np.ones(candidates.size, dtype=bool)
    index = np.arange(candidates.size)
    unsure: list[int] = []
    sums = _Sums(layout, candidates)
    for first in range(0, layout.chunks, _STRETCH):
        limits = thresholds[index]
        chunks = sums.advance(first)
        out = chunks.at_ends().max(axis=1) >= limits + _ROUNDING
        places = np.nonzero(~out[:, None] & (chunks.at_most() >= limits[:, None] - _ROUNDING))
        if places[0].size:
            highest = chunks.largest(places)
            limit = limits[places[0]]
            out[places[0][highest >= limit + _ROUNDING]] = True
            unsure += index[places[0][np.abs(highest - limit) < _ROUNDING]].tolist()
        alive[index[out]] = False
        index = index[~out]
        if index.size == 0:
            break
        sums.keep(~out)
    for place in {place for place in unsure if alive[place]}:
        own = series[place]
        x = (own.contrasts - candidates[place])[None, :]
        alive[place] = log_paths(x, aim=own.aim, side=own.side).max() < thresholds[place]
    return alive


def _parts(
    questions: Sequence[Question],
) -> Iterator[tuple[slice, _Layout, Floats, npt.NDArray[np.intp]]]:
    """Yield the passes: a range of all candidates, their layout, the candidates, and the index of each one's question."""
    layouts = [one.series.layout for one in questions]
    candidates = np.concatenate([one.candidates for one in questions])
    own = np.repeat(np.arange(len(questions)), [one.candidates.size for one in questions])
    rows = max(1, _CELLS // (_CHUNK * min(_STRETCH, max(layouts[0].chunks, 1))))
    several = len(layouts) > 1
    if several:
        values, means, spreads = (
            np.concatenate([getattr(one, name) for one in layouts], axis=1)
            for name in ("values", "means", "spreads")
        )
        aims: Floats = np.array([one.series.aim for one in questions])[:, None]
    for start in range(0, candidates.size, rows):
        part = slice(start, start + rows)
        layout = layouts[0]
        if several:
            layout = replace(
                layout,
                values=np.take(values, own[part], axis=1),
                means=np.take(means, own[part], axis=1),
                spreads=np.take(spreads, own[part], axis=1),
                aim=aims[own[part]],
            )
        yield part, layout, candidates[part], own[part]


def _split(found: npt.NDArray[Any], questions: Sequence[Question]) -> list[npt.NDArray[Any]]:
    """Split the results of all candidates by question."""
    return np.split(found, np.cumsum([one.candidates.size for one in questions])[:-1])


def _by_place(filled: Floats) -> Floats:
    return np.ascontiguousarray(filled.reshape(-1, _CHUNK).T)[:, None]


class _Sums:
    """S and C of several candidates, carried from pass to pass."""

    def __init__(self, layout: _Layout, candidates: Floats) -> None:
        self._layout = layout
        self._candidates = candidates[:, None]
        #: the sums of r and, with an aimed bet, of its stakes; by candidate
        self.signed: Floats = np.zeros((1 + layout.aimed, candidates.size))
        #: by bet and candidate
        self.against: Floats = np.zeros((layout.weights.size, candidates.size))

    def keep(self, which: Flags) -> None:
        """Continue with only some of the candidates."""
        if not which.all():
            self._candidates = self._candidates[which]
            self.signed, self.against = self.signed[:, which], self.against[:, which]

    def advance(self, first: int) -> _Chunks:
        """Process the next chunks. The last chunk is padded with blocks that change nothing (r = 0)."""
        layout = self._layout
        past = min(first + _STRETCH, layout.chunks)
        x, rms, stake = _arrays(3, (_CHUNK, self._candidates.shape[0], past - first))
        np.subtract(layout.values[:, :, first:past], self._candidates, out=x)
        # mean of (D - d)^2 = variance of D + (mean of D - d)^2
        np.subtract(layout.means[:, :, first:past], self._candidates, out=rms)
        rms *= rms
        rms += layout.spreads[:, :, first:past]
        np.sqrt(rms, out=rms)
        rms[rms <= SMALLEST] = 1.0  # all x so far are 0, hence r = 0
        ratio = np.divide(x, rms, out=x)
        if past == layout.chunks:
            ratio[layout.last :, :, -1] = 0.0
        stakes = [ratio]
        if layout.aimed:
            np.divide(ratio, rms, out=stake)
            stake *= layout.aim
            stakes.append(stake)
        found = _Chunks(layout, stakes, self.signed, self.against)
        self.signed, self.against = found.signed[:, -1, :, -1].copy(), found.against[:, :, -1].copy()
        return found


class _Chunks:
    """One pass for several candidates: r and the stakes of the aimed bet, by place in the chunk, candidate and chunk."""

    def __init__(self, layout: _Layout, stakes: list[Floats], signed: Floats, against: Floats) -> None:
        self._layout = layout
        #: S after every block
        self.signed: Floats = np.stack([_running(*one) for one in zip(stakes, signed, strict=True)])
        self._sizes = [np.abs(one, out=one) for one in stakes]
        #: C by bet and candidate, before the pass and after every chunk
        self.against: Floats = np.concatenate([against[:, :, None], self._against()], axis=2)
        np.cumsum(self.against, axis=2, out=self.against)

    def at_ends(self) -> Floats:
        """Return ln M by candidate after every chunk."""
        return self._layout.log_mean(self._layout.sided(self.signed[:, -1]), self.against[:, :, 1:])

    def at_most(self) -> Floats:
        """Return an upper bound of ln M within each chunk."""
        return self._layout.log_mean(self._layout.sided(self.signed).max(axis=1), self.against[:, :, :-1])

    def largest(self, places: Places) -> Floats:
        """Return the largest ln M in the chunks at ``places`` (candidates and chunks)."""
        size = self._sizes[0][:, places[0], places[1]]
        parts = [np.log(factor) for factor in _factors(size)]
        parts = [part + (theta * size - _LN2) for part, theta in zip(parts, BETS, strict=True)]
        for aimed in self._sizes[1:]:
            stake = aimed[:, places[0], places[1]]
            parts.append(np.log1p(np.exp(-2.0 * stake)) + (stake - _LN2))
        against = np.cumsum(np.stack(parts), axis=1)
        against += self.against[:, None, places[0], places[1]]
        sided = self._layout.sided(self.signed[:, :, places[0], places[1]])
        largest: Floats = self._layout.log_mean(sided, against).max(axis=0)
        return largest

    def _against(self) -> Floats:
        """Return the sum of ln cosh over each chunk, by bet, candidate and chunk."""
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
    """Return running sums over places and chunks, starting from ``before`` (by candidate)."""
    sums: Floats = np.empty_like(values)
    sums[0] = values[0]
    for place in range(1, _CHUNK):  # a matrix product with a triangle of ones would wait for BLAS threads
        np.add(sums[place - 1], values[place], out=sums[place])
    earlier = np.concatenate([before[:, None], sums[-1, :, :-1]], axis=1)
    sums += np.cumsum(earlier, axis=1)
    return sums


def _factors(size: Floats) -> list[Floats]:
    """Return 1 + exp(-2 theta size) of every bet, theta = .15, .3, .6, 1, 1.6, by powers of exp(-size/10)."""
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
    """Return some of this thread's scratch arrays, reused because allocating costs more than the computation in them."""
    size = math.prod(shape)
    room: Floats | None = getattr(_own, "room", None)
    if room is None or room.shape[1] < size:
        room = _own.room = np.empty((_SCRATCH, max(size, _CELLS)))
    return [room[place, :size].reshape(shape) for place in range(after, after + count)]
