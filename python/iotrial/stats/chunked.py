"""The process of ``betting.py`` computed in chunks of blocks: the same answer with an order of magnitude fewer operations.

The product of a bet is exp(+-S_n - C_n): S_n is the running sum of its stakes l y, and C_n that of ln cosh(l y) or of the
logarithm of the mean over the block's runs, whichever is larger so far. All five bets and the bold one have the same stakes
but for a factor, so S takes one running sum. Of each C only the value at the end of a chunk is computed: the product of the
chunk's factors and one logarithm. A factor is divided by its largest term, so it is between 1 and the number of runs, and
the product of a chunk cannot overflow. The aimed bet has its own running sum.

C never decreases, because a mean of exponentials of numbers with sum 0 is at least 1. Hence the largest +-S of a chunk
and the C before the chunk give an upper bound of M within it. If this bound is below a threshold, nothing in the chunk
reaches
it; only the other chunks are evaluated block by block.

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

from iotrial.stats.betting import (
    DOUBLED,
    MOST_AIMED,
    SMALLEST,
    SQUARED,
    Blocks,
    Flags,
    Floats,
    Mixture,
    Side,
    mixture,
)

Places = tuple[npt.NDArray[np.intp], ...]
#: places in a chunk
Rows = slice | npt.NDArray[np.intp]
T = TypeVar("T")

_LN2, _LN3 = math.log(2.0), math.log(3.0)
_CHUNK = 32
#: number of factors, each at most 3 exp(stake + gap), with a finite product if stake + gap is at most the second
_FEW, _LARGEST_OF_FEW = 8, 80.0
_LARGEST_OF_ALL = 20.0
#: chunks and cells per pass: an excluded candidate stops costing time, and arrays stay in the CPU cache
_STRETCH = 32
_CELLS = 1 << 15
#: bound on the difference of ln M between this module and ``betting.py``; closer to the threshold, ``betting.py`` decides
_ROUNDING = 1e-9
_own = threading.local()


@dataclass(frozen=True, slots=True, eq=False)
class _Layout:
    """The blocks of a series, what their running scale needs, and the bets on them.

    Array axes are place in the chunk, candidate (or 1 for all) and chunk, so that operations run over long contiguous rows.
    ``middles``: the contrasts against the mean of the block's other runs; ``slopes``: y / (middle - d). The square of the
    scale is ``shares`` (``means`` - d)**2 + ``spreads``. ``gaps``: size of the copy less the reference; None, like
    ``copied``, if
    no block has a copy. ``last``: number of blocks in the last chunk. ``aim``: margin of the aimed bet, one for all or by
    candidate.
    """

    middles: Floats
    slopes: Floats
    shares: Floats
    means: Floats
    spreads: Floats
    gaps: Floats | None
    copied: Flags | None
    aim: float | Floats
    side: Side
    bets: Mixture
    last: int

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return int(self.middles.shape[2])

    @property
    def signs(self) -> Floats:
        """The signs of the bets that take part."""
        return np.array(self.side.signs)

    def signed(self, sums: Floats) -> Floats:
        """Return the sums (first axis: r and, with an aimed bet, its stakes) with each sign (new first axis)."""
        return np.multiply.outer(self.signs, sums)

    def costs(self, coin: Floats, all_runs: Floats) -> Floats:
        """Return C by sign and bet, from the sums of ln cosh by bet, and of the logarithms of the means by sign and bet."""
        if self.copied is None:
            return coin[None]
        found = np.maximum(coin[None], all_runs)
        found[:, self.bets.bold] = all_runs[:, self.bets.bold]
        return found

    def log_mean(self, signed: Floats, costs: Floats) -> Floats:
        """Return ln of the weighted mean over signs and bets of exp(S - C); ``signed`` as by ``signed``."""
        towards = np.array(self.bets.thetas).reshape(-1, *[1] * (signed.ndim - 2)) * signed[:, :1]
        if self.bets.aimed:
            towards = np.concatenate([towards, signed[:, 1:]], axis=1)
        logs = towards - costs
        top: Floats = logs.max(axis=(0, 1))
        parts = np.exp(logs - top).sum(axis=0)
        mean: Floats = top + np.log(np.tensordot(self.bets.weights / len(self.signs), parts, axes=1))
        return mean


class Series:
    """The blocks of a comparison and the bets on them, laid out once for any number of candidates.

    ``aim`` is the margin of the aimed bet (0: none); ``side`` selects the bets that take part.
    """

    def __init__(self, blocks: Blocks, *, aim: float = 0.0, side: Side = Side.BOTH) -> None:
        self.blocks = blocks
        self.aim = aim
        self.side = side
        chunks = -(-blocks.size // _CHUNK)
        copied = _filled(blocks.copied, chunks)
        apart = np.where(copied, _filled(blocks.copies, chunks), 0.0)
        middles = _filled(blocks.contrasts, chunks) - apart / 2.0
        weights = np.where(copied, SQUARED, 1.0)
        # Extended precision, relative to the first block: exactly 0 if all so far are equal, and precise even if one of
        # them is far from all others.
        distances = (middles - middles[0]).astype(np.longdouble)
        number = np.arange(1, middles.size + 1)
        shares = np.cumsum(weights) / number
        means = np.cumsum(weights * distances) / number / shares
        squares = np.cumsum(weights * distances * distances + apart * apart / 2.0) / number
        spreads = np.maximum(squares - shares * means * means, 0.0)
        self.layout = _Layout(
            middles=_by_place(middles),
            slopes=_by_place(np.where(copied, DOUBLED, 1.0)),
            shares=_by_place(shares),
            means=_by_place((means + middles[0]).astype(np.float64)),
            spreads=_by_place(spreads.astype(np.float64)),
            gaps=_by_place(np.abs(apart)) if copied.any() else None,
            copied=_by_place(copied) if copied.any() else None,
            aim=aim,
            side=side,
            bets=mixture(side, aimed=aim > 0.0),
            last=blocks.size - (chunks - 1) * _CHUNK,
        )

    @property
    def alike(self) -> object:
        """Batch key, equal for series that can share one batch of candidates: short, of the same length and bets.

        None for others.
        """
        if self.layout.chunks > _STRETCH:
            return None
        return self.blocks.size, self.aim > 0.0, self.side, self.layout.copied is None

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
        while sums.done < layout.chunks:
            sums.advance()
        out[part] = layout.log_mean(layout.signed(sums.sums), layout.costs(sums.coin, sums.all_runs))
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
    while index.size and sums.done < layout.chunks:
        limits = thresholds[index]
        chunks = sums.advance()
        out = chunks.at_end() >= limits + _ROUNDING
        places = np.nonzero(~out[:, None] & (chunks.at_most() >= limits[:, None] - _ROUNDING))
        if places[0].size:
            highest = chunks.largest(places)
            limit = limits[places[0]]
            out[places[0][highest >= limit + _ROUNDING]] = True
            unsure += index[places[0][np.abs(highest - limit) < _ROUNDING]].tolist()
        alive[index[out]] = False
        index = index[~out]
        sums.keep(~out)
    for place in {place for place in unsure if alive[place]}:
        own = series[place]
        path = own.blocks.against(candidates[[place]], aim=own.aim, side=own.side)
        alive[place] = path.max() < thresholds[place]
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
    names = ["middles", "slopes", "shares", "means", "spreads"]
    names += ["gaps", "copied"] if layouts[0].copied is not None else []
    if several:
        arrays = {name: np.concatenate([getattr(one, name) for one in layouts], axis=1) for name in names}
        aims: Floats = np.array([one.series.aim for one in questions])[:, None]
    for start in range(0, candidates.size, rows):
        part = slice(start, start + rows)
        layout = layouts[0]
        if several:
            taken: dict[str, Any] = {
                name: np.take(array, own[part], axis=1) for name, array in arrays.items()
            }
            layout = replace(layout, aim=aims[own[part]], **taken)
        yield part, layout, candidates[part], own[part]


def _split(found: npt.NDArray[Any], questions: Sequence[Question]) -> list[npt.NDArray[Any]]:
    """Split the results of all candidates by question."""
    return np.split(found, np.cumsum([one.candidates.size for one in questions])[:-1])


def _filled(values: npt.NDArray[Any], chunks: int) -> npt.NDArray[Any]:
    found = np.zeros(chunks * _CHUNK, dtype=values.dtype)
    found[: values.size] = values
    return found


def _by_place(filled: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.ascontiguousarray(filled.reshape(-1, _CHUNK).T)[:, None]


class _Sums:
    """S and the two sums of C of several candidates, carried from pass to pass."""

    def __init__(self, layout: _Layout, candidates: Floats) -> None:
        self._layout = layout
        self._candidates = candidates[:, None]
        #: number of chunks processed
        self.done = 0
        bets = layout.bets.weights.size
        #: the sums of r and, with an aimed bet, of its stakes; by candidate
        self.sums: Floats = np.zeros((1 + layout.bets.aimed, candidates.size))
        #: by bet and candidate
        self.coin: Floats = np.zeros((bets, candidates.size))
        #: by sign, bet and candidate; no signs if no block has a copy
        signs = 0 if layout.copied is None else layout.signs.size
        self.all_runs: Floats = np.zeros((signs, bets, candidates.size))

    def keep(self, which: Flags) -> None:
        """Continue with only some of the candidates."""
        if not which.all():
            self._candidates = self._candidates[which]
            self.sums, self.coin = self.sums[:, which], self.coin[:, which]
            self.all_runs = self.all_runs[:, :, which]

    def advance(self) -> _Chunks:
        """Process the next chunks. The last chunk is padded with blocks that change nothing (stakes of 0)."""
        layout, bets = self._layout, self._layout.bets
        first = self.done
        room = _CELLS // (_CHUNK * max(self._candidates.shape[0], 1))
        self.done = past = min(first + max(room, _STRETCH) if first else _STRETCH, layout.chunks)
        shape = (_CHUNK, self._candidates.shape[0], past - first)
        ratio, rms = _arrays("ratio", 2, shape)
        np.subtract(layout.middles[:, :, first:past], self._candidates, out=ratio)
        ratio *= layout.slopes[:, :, first:past]
        np.subtract(layout.means[:, :, first:past], self._candidates, out=rms)
        rms *= rms
        rms *= layout.shares[:, :, first:past]
        rms += layout.spreads[:, :, first:past]
        np.sqrt(rms, out=rms)
        rms[rms <= SMALLEST] = np.inf  # all x so far are 0, hence no stake
        ratio /= rms
        if past == layout.chunks:
            ratio[layout.last :, :, -1] = 0.0
        stakes = _arrays("stakes", bets.weights.size, shape)
        gaps = copied = None
        if layout.gaps is not None and layout.copied is not None:
            copied = layout.copied[:, :, first:past]
            gaps = _arrays("gaps", bets.weights.size, shape)
            np.divide(layout.gaps[:, :, first:past], rms, out=gaps[0])
        if bets.aimed:
            np.divide(layout.aim, rms, out=rms)
            np.minimum(rms, MOST_AIMED, out=rms)
            np.multiply(ratio, rms, out=stakes[-1])
            if gaps is not None:
                np.multiply(gaps[0], rms, out=gaps[-1])
        thetas = np.array(bets.thetas)
        np.multiply.outer(thetas, ratio, out=stakes[: thetas.size])
        if gaps is not None:
            for k in range(thetas.size - 1, -1, -1):
                np.multiply(gaps[0], thetas[k], out=gaps[k])
        sums = [_running(ratio, self.sums[0])]
        if bets.aimed:
            sums.append(_running(stakes[-1], self.sums[1]))
        found = _Chunks(layout, np.stack(sums), stakes, gaps, copied, self)
        self.sums = found.sums[:, -1, :, -1].copy()
        self.coin, self.all_runs = found.coin[:, :, -1].copy(), found.all_runs[..., -1].copy()
        return found


class _Chunks:
    """One pass for several candidates.

    ``sums``: S after every block, of r and, with an aimed bet, of its stakes (first axis). ``stakes`` and, of blocks with a
    copy, ``gaps`` are by bet. Further axes: place in the chunk, candidate and chunk.
    """

    def __init__(
        self,
        layout: _Layout,
        sums: Floats,
        stakes: Floats,
        gaps: Floats | None,
        copied: Flags | None,
        before: _Sums,
    ) -> None:
        self._layout, self._stakes, self._gaps, self._copied = layout, stakes, gaps, copied
        self.sums = sums
        coin, all_runs = self._costs()
        #: the sums of C, before the pass and after every chunk (last axis)
        self.coin: Floats = np.concatenate([before.coin[..., None], coin], axis=-1).cumsum(axis=-1)
        self.all_runs: Floats = np.concatenate([before.all_runs[..., None], all_runs], axis=-1).cumsum(
            axis=-1
        )

    def at_end(self) -> Floats:
        """Return ln M by candidate after the last chunk."""
        costs = self._layout.costs(self.coin[..., -1], self.all_runs[..., -1])
        return self._layout.log_mean(self._layout.signed(self.sums[:, -1, :, -1]), costs)

    def at_most(self) -> Floats:
        """Return an upper bound of ln M within each chunk."""
        costs = self._layout.costs(self.coin[..., :-1], self.all_runs[..., :-1])
        extremes = {1.0: self.sums.max, -1.0: self.sums.min}
        highest = [sign * extremes[sign](axis=1) for sign in self._layout.side.signs]
        return self._layout.log_mean(np.stack(highest), costs)

    def largest(self, places: Places) -> Floats:
        """Return the largest ln M in the chunks at ``places`` (candidates and chunks)."""
        layout = self._layout
        which, chunk = places
        stakes = self._stakes[:, :, which, chunk]
        coin = np.abs(stakes)
        coin += np.log(1.0 + np.exp(-2.0 * coin)) - _LN2
        coin_sums = coin.cumsum(axis=1) + self.coin[:, None, which, chunk]
        all_sums = coin_sums[None]
        if self._gaps is not None and self._copied is not None:
            copied = np.broadcast_to(self._copied, self._stakes.shape[1:])[:, which, chunk]
            gaps, means = self._gaps[:, :, which, chunk], []
            for sign in layout.side.signs:
                terms, top = _three_terms(sign * stakes, gaps)
                means.append(np.where(copied, np.log(terms) + top - _LN3, coin))
            all_sums = np.stack(means).cumsum(axis=2) + self.all_runs[:, :, None, which, chunk]
        costs = layout.costs(coin_sums, all_sums)
        largest: Floats = layout.log_mean(layout.signed(self.sums[:, :, which, chunk]), costs).max(axis=0)
        return largest

    def _costs(self) -> tuple[Floats, Floats]:
        """Return the sums over each chunk of ln cosh, by bet, candidate and chunk, and of ln of the means, also by sign."""
        stakes, gaps, copied = self._stakes, self._gaps, self._copied
        boldest = int(np.argmax(self._layout.bets.thetas))
        largest = max(float(stakes[boldest].max()), -float(stakes[boldest].min()))
        if gaps is not None:
            largest += float(gaps[boldest].max())
        together = _CHUNK if largest <= _LARGEST_OF_ALL else _FEW
        factors = _Scaled(stakes) if largest > _LARGEST_OF_FEW else _Plain(stakes, together)
        coin: Floats = factors.log_coins(slice(None)) - _LN2 * _CHUNK
        if gaps is None or copied is None:
            return coin, np.empty((0, *coin.shape))
        # only the places that have a copy in some chunk: from block 25 on these are every second one
        having = copied.any(axis=(1, 2))
        rows, others = _spaced(np.flatnonzero(having)), _spaced(np.flatnonzero(~having))
        threes = copied.sum(axis=0)
        rest = factors.log_coins(others) - threes * _LN3 - (_CHUNK - threes) * _LN2
        single = None if copied[rows].all() else ~copied[rows]
        found = [
            factors.log_means(sign, rows, gaps[:, rows], single) + rest for sign in self._layout.side.signs
        ]
        return coin, np.stack(found)


class _Plain:
    """The factors of a pass without large stakes: two exponentials give them all.

    ``together``: number of factors with a finite product.
    """

    def __init__(self, stakes: Floats, together: int) -> None:
        self._together = together
        self._up, self._down, self._coins = _arrays("costs", 3, stakes.shape)
        np.multiply(stakes, 0.5, out=self._up)
        np.exp(self._up, out=self._up)
        np.divide(1.0, self._up, out=self._down)
        np.multiply(self._up, self._up, out=self._coins)
        squares = _arrays("squares", 1, stakes.shape)[0]
        self._coins += np.multiply(self._down, self._down, out=squares)
        self._spread: Floats | None = None

    def log_coins(self, rows: Rows) -> Floats:
        """Return ln of the products of 2 cosh(stake) over these places."""
        return self._log_product(self._coins[:, rows])

    def log_means(self, sign: float, rows: Rows, gaps: Floats, single: Flags | None) -> Floats:
        """Return ln of the products of the sum over the three runs, where ``single`` is not set, over these places."""
        if self._spread is None:  # 2 cosh(gap), for both signs
            self._spread = np.exp(gaps)
            self._spread += 1.0 / self._spread
        level, others = (self._up, self._down) if sign > 0.0 else (self._down, self._up)
        terms, squares = _arrays("terms", 2, gaps.shape[:2] + self._up.shape[2:])
        np.multiply(self._spread, others[:, rows], out=terms)
        terms += np.multiply(level[:, rows], level[:, rows], out=squares)
        if single is not None:
            np.copyto(terms, self._coins[:, rows], where=np.broadcast_to(single, terms.shape))
        return self._log_product(terms)

    def _log_product(self, factors: Floats) -> Floats:
        found: Floats = np.zeros((factors.shape[0], *factors.shape[2:]))
        for place in range(0, factors.shape[1], self._together):
            found += np.log(np.multiply.reduce(factors[:, place : place + self._together], axis=1))
        return found


class _Scaled:
    """The same for stakes of any size: each factor is divided by its largest term."""

    def __init__(self, stakes: Floats) -> None:
        self._stakes = stakes
        self._size, self._factor = _arrays("costs", 2, stakes.shape)
        np.abs(stakes, out=self._size)
        np.multiply(self._size, -2.0, out=self._factor)
        np.exp(self._factor, out=self._factor)
        self._factor += 1.0

    def log_coins(self, rows: Rows) -> Floats:
        """As ``_Plain.log_coins``."""
        product = np.multiply.reduce(self._factor[:, rows], axis=1)
        found: Floats = np.log(product) + self._size[:, rows].sum(axis=1)
        return found

    def log_means(self, sign: float, rows: Rows, gaps: Floats, single: Flags | None) -> Floats:
        """As ``_Plain.log_means``."""
        terms, top = _three_terms(sign * self._stakes[:, rows], gaps)
        if single is not None:
            alone = np.broadcast_to(single, terms.shape)
            np.copyto(terms, self._factor[:, rows], where=alone)
            np.copyto(top, self._size[:, rows], where=alone)
        found: Floats = np.log(np.multiply.reduce(terms, axis=1)) + top.sum(axis=1)
        return found


def _spaced(places: npt.NDArray[np.intp]) -> Rows:
    """Return these places as a slice if they are evenly spaced: an index array would copy what it selects."""
    if places.size == 0:
        return slice(0, 0)
    step = int(places[1] - places[0]) if places.size > 1 else 1
    even = bool((np.diff(places) == step).all())
    return slice(int(places[0]), int(places[-1]) + 1, step) if even else places


def _three_terms(stake: Floats, gap: Floats) -> tuple[Floats, Floats]:
    """Return the sum of exp(stake), exp(-stake/2 + gap) and exp(-stake/2 - gap) over its largest term, and ln of that term.

    ``gap`` is not negative, so the largest is one of the first two.
    """
    lead, top, terms, least = _arrays("terms", 4, stake.shape)
    np.multiply(stake, 1.5, out=lead)
    lead -= gap  # ln of the first term over the second
    np.maximum(lead, 0.0, out=top)
    np.multiply(gap, 2.0, out=least)
    least += top
    np.exp(np.negative(least, out=least), out=least)
    np.abs(lead, out=terms)
    np.exp(np.negative(terms, out=terms), out=terms)
    terms += least
    terms += 1.0
    top += gap
    top -= np.multiply(stake, 0.5, out=lead)
    return terms, top


def _running(values: Floats, before: Floats) -> Floats:
    """Return running sums over places and chunks, starting from ``before`` (by candidate)."""
    sums: Floats = np.empty_like(values)
    sums[0] = values[0]
    for place in range(1, _CHUNK):  # a matrix product with a triangle of ones would wait for BLAS threads
        np.add(sums[place - 1], values[place], out=sums[place])
    earlier = np.concatenate([before[:, None], sums[-1, :, :-1]], axis=1)
    sums += np.cumsum(earlier, axis=1)
    return sums


def _arrays(name: str, count: int, shape: tuple[int, ...]) -> Floats:
    """Return this thread's scratch arrays of that name, reused because allocating costs more than the computation in them."""
    size = count * math.prod(shape)
    rooms: dict[str, Floats] = _own.__dict__
    if name not in rooms or rooms[name].size < size:
        rooms[name] = np.empty(size)
    return rooms[name][:size].reshape(count, *shape)
