"""Contrasts: one number per block for each effect, the basis of test, interval, verdict and planning.

A contrast is a weighted sum of the arms' values (natural logarithms on a log scale): level minus reference, averaged over the
combinations of the other factors; the signed mean of a factorial; or a control against its original. ``Runs`` lays out the
blocks of one condition, ``Responses`` one response of these blocks, from which any number of contrasts can be computed.

In a study with whole plots an arm runs several times per block. These repeats are not independent blocks: they share
everything that their plot has in common. A whole-plot contrast averages them and has one number per block. A contrast
within the plots has one number per repeat, averaged over the plots, since each repeat's order is drawn separately.

A void block gives no contrast. Neither does a block in which an arm of the contrast failed or has no usable value: missing,
not finite, or not positive on a log scale, such as CPU time that the kernel counts as 0. Leaving out such a block depends on
the measurement, so failed and unusable runs are counted separately, and both limit the verdict.

Where a level is compared with a single reference arm that has an identical copy, a block's third number is the copy less the
reference: the bets use it (``betting.py``). If only the copy's run failed or is unusable, the block counts like one without a
copy. That is a fair game too: if the arms do not differ, then given that the copy is the run that failed, the level and the
reference are still equally likely to have either of their two values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from iotrial.design.model import Term, TermKind
from iotrial.stats.model import Observation, ObservedBlock
from iotrial.study.model import Response, Scale

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.intp]

_ROUNDING = 1e-12  # relative to the sum of magnitudes


@dataclass(frozen=True, slots=True)
class Contrasts:
    """The values of a contrast, one for each usable block or repeat in time order, and the block index of each.

    ``failures`` counts failed runs of the contrast's arms, ``unusable`` those that ran but gave no usable value.
    """

    values: tuple[float, ...]
    failures: int
    unusable: int = 0
    blocks: tuple[int, ...] = ()
    #: of each value's block, the copy of the reference less the reference; NaN without a copy, empty if no block has one
    copies: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class PairedRuns:
    """Runs of a level, and of the reference with the same levels of all other factors, on the scale of comparison.

    Both arrays have shape (units, runs), in time order. A unit is a group of runs with its own random order: a block, or a
    repeat within a plot. In a crossed design it has one run for each combination of the other factors.
    """

    level: Floats
    reference: Floats


class Runs:
    """The runs of one condition's blocks, laid out once for any number of responses.

    Blocks are in time order; the repeats of an arm are in slot order.
    """

    def __init__(self, blocks: Sequence[ObservedBlock]) -> None:
        self.blocks = blocks
        self.indices = [block.index for block in blocks]
        #: start of each block's first run, in seconds since the trial began, by block index
        self.starts_s = {
            block.index: min((run.started_s for run in block.observations), default=0.0) for block in blocks
        }
        self.void: Flags = np.array([block.void is not None for block in blocks], dtype=bool)
        self.runs: list[Observation] = []
        places: list[tuple[int, int, int]] = []
        self.arms: dict[str, int] = {}
        for row, block in enumerate(blocks):
            repeats: dict[str, int] = {}
            for run in sorted(block.observations, key=_slot):
                repeat = repeats[run.arm] = repeats.get(run.arm, -1) + 1
                places.append((self.arms.setdefault(run.arm, len(self.arms)), row, repeat))
                self.runs.append(run)
        table: Counts = np.array(places, dtype=np.intp).reshape(-1, 3)
        self.places = (table[:, 0], table[:, 1], table[:, 2])
        self.shape = (len(self.arms), len(blocks), int(table[:, 2].max()) + 1 if places else 0)
        failed = np.array([run.failure is not None for run in self.runs], dtype=bool)
        #: number of runs, and of failed runs, by arm and block
        self.present = self._counted(np.ones(len(self.runs), dtype=bool))
        self.failed = self._counted(failed)
        self._sound = np.flatnonzero(~failed)
        self._raw: dict[str, Floats] | None = None
        self._known: dict[tuple[str, Scale], Floats] = {}

    def _counted(self, which: Flags) -> Counts:
        counts: Counts = np.zeros(self.shape[:2], dtype=np.intp)
        np.add.at(counts, (self.places[0][which], self.places[1][which]), 1)
        return counts

    def counterparts(self, term: Term) -> list[tuple[str, str]] | None:
        """Pair each arm at the level of a main effect with the reference arm that differs from it in this factor only.

        None if an arm has no counterpart, and for effects of other kinds.
        """
        if term.kind is not TermKind.MAIN or not all(arm in self.arms for arm in term.weights):
            return None
        treatments = {run.arm: run.treatment for run in self.runs if run.arm in term.weights}
        by_treatment = {tuple(sorted(levels.items())): arm for arm, levels in treatments.items()}
        found = []
        for arm, levels in treatments.items():
            if levels.get(term.factor) == term.level:
                other = by_treatment.get(tuple(sorted({**levels, term.factor: term.reference}.items())))
                if other is None:
                    return None
                found.append((arm, other))
        return found if found and 2 * len(found) == len(treatments) else None

    def values(self, response: Response) -> Floats:
        """Return values by arm, block and repeat, on the response's scale of comparison; NaN if there is no usable value."""
        key = response.name, response.scale
        if key not in self._known:
            self._known[key] = self._laid_out(response)
        return self._known[key]

    def _laid_out(self, response: Response) -> Floats:
        runs = self.runs
        found: Floats = np.full(len(runs), np.nan)
        found[self._sound] = self._measured(response.name)
        if response.scale is Scale.DIFFERENCE:
            found[~np.isfinite(found)] = math.nan
        else:
            positive = np.flatnonzero(np.isfinite(found) & (found > 0.0))
            # math.log, because the last digit of numpy's differs between processors
            logs = [*map(math.log, found[positive].tolist())]
            found = np.full(len(runs), np.nan)
            found[positive] = logs
        values: Floats = np.full(self.shape, np.nan)
        values[self.places] = found
        values.flags.writeable = False  # cached and shared by all responses of this name and scale
        return values

    def _measured(self, name: str) -> Floats | list[float]:
        """Return the response of the runs that did not fail; NaN where missing.

        If all runs have the same responses, all responses are read in one pass and cached.
        """
        measured = [self.runs[place].responses for place in self._sound.tolist()]
        if self._raw is None:
            self._raw = {}
            names = tuple(measured[0]) if measured else ()
            if names and all(tuple(one) == names for one in measured):
                together = chain.from_iterable(one.values() for one in measured)
                table = np.fromiter(together, dtype=np.float64, count=len(measured) * len(names))
                self._raw = dict(zip(names, table.reshape(-1, len(names)).T, strict=True))
        if name in self._raw:
            return self._raw[name]
        return [one.get(name, math.nan) for one in measured]


class Responses:
    """One response of one condition's blocks (in time order), on its scale of comparison."""

    def __init__(self, blocks: Sequence[ObservedBlock] | Runs, response: Response) -> None:
        self._runs = blocks if isinstance(blocks, Runs) else Runs(blocks)
        self._values = self._runs.values(response)
        self._lacking: Counts = self._runs.present - np.isfinite(self._values).sum(axis=2)

    def pairs(self, term: Term) -> PairedRuns | None:
        """Return the paired runs of a main effect in the blocks that give it a contrast.

        None if arms have no counterpart that differs in this factor only, as in a fractional factorial.
        """
        counterparts = self._runs.counterparts(term)
        return None if counterparts is None else self.paired(counterparts, whole=term.whole)

    def paired(self, counterparts: Sequence[tuple[str, str]], *, whole: bool = False) -> PairedRuns | None:
        """Return the runs of these (arm, counterpart) pairs in the usable blocks; None if one of them never ran."""
        runs = self._runs
        if not all(arm in runs.arms for pair in counterparts for arm in pair):
            return None
        arms = [runs.arms[arm] for pair in counterparts for arm in pair]
        rows = self._usable(arms)
        count = int(runs.present[arms[0], rows].min()) if rows.any() else 1
        values = self._values[arms][:, rows, :count]
        blocks, pairs = values.shape[1], len(counterparts)
        shape = (blocks, count * pairs) if whole else (blocks * count, pairs)
        level, reference = (side.transpose(1, 2, 0).reshape(shape) for side in (values[0::2], values[1::2]))
        return PairedRuns(level, reference)

    def by_arm(self, arms: Sequence[str]) -> tuple[Floats, list[int]]:
        """Return values by arm and block, NaN where an arm did not run, failed, or the block is void; and failed runs by arm.

        For designs in which an arm runs once in a block.
        """
        runs = self._runs
        values: Floats = np.full((len(arms), runs.shape[1]), np.nan)
        failures = [0] * len(arms)
        for row, arm in enumerate(arms):
            place = runs.arms.get(arm)
            if place is not None:
                values[row] = np.where(runs.void, np.nan, self._values[place, :, 0])
                failures[row] = int(runs.failed[place].sum())
        return values, failures

    def _usable(self, arms: Sequence[int]) -> Flags:
        """Return, by block, whether it has all these arms equally often, each run with a usable value."""
        runs = self._runs
        present = runs.present[arms]
        lacking = self._lacking[arms].sum(axis=0)
        usable: Flags = ~runs.void & (lacking == 0) & (present[0] > 0) & (present == present[0]).all(axis=0)
        return usable

    def contrasts(
        self, weights: Mapping[str, float], *, whole: bool = False, copy: Mapping[str, float] | None = None
    ) -> Contrasts:
        """Return the contrast with these weights (by arm name), skipping blocks that lack one of the arms.

        ``whole``: average the repeats in a block; else each repeat gives a number. ``copy``: weights of the copy of the
        reference less the reference, if the bets are to use it.
        """
        runs = self._runs
        arms = [runs.arms[arm] for arm in weights if arm in runs.arms]
        failed = runs.failed[arms].sum(axis=0)
        lacking = np.where(runs.void, 0, self._lacking[arms].sum(axis=0))
        unusable = int((lacking - failed)[lacking > 0].sum())
        if len(arms) < len(weights) or not arms:
            return Contrasts((), int(failed.sum()), unusable)
        # Only blocks with every arm give a valid comparison.
        repeats = runs.present[arms[0]]
        values: list[float] = []
        blocks: list[int] = []
        rows = np.flatnonzero(self._usable(arms))
        sums = _weighted(np.array(list(weights.values())), self._values[arms][:, rows])
        if sums.shape[1] == 1:  # one run of each arm per block, as in most designs
            indices = [runs.indices[row] for row in rows.tolist()]
            found = tuple(sums[:, 0].tolist())
            return Contrasts(
                found, int(failed.sum()), unusable, tuple(indices), self._copies(copy, rows) if copy else ()
            )
        for row, count, of_row in zip(rows.tolist(), repeats[rows].tolist(), sums.tolist(), strict=True):
            numbers = of_row[:count]
            values += [math.fsum(numbers) / count] if whole else numbers
            blocks += [runs.indices[row]] * (1 if whole else count)
        return Contrasts(tuple(values), int(failed.sum()), unusable, tuple(blocks))

    def _copies(self, weights: Mapping[str, float], rows: Counts) -> tuple[float, ...]:
        """Return the contrast of the copy in these blocks, NaN where it did not run or has no usable value."""
        runs = self._runs
        if not all(arm in runs.arms for arm in weights):
            return ()
        values = self._values[[runs.arms[arm] for arm in weights]][:, rows, :1]
        there = np.isfinite(values).all(axis=0)
        found = np.where(there, _weighted(np.array(list(weights.values())), values), math.nan)[:, 0]
        return tuple(found.tolist()) if there.any() else ()


def _weighted(weights: Floats, values: Floats) -> Floats:
    """Return the weighted sums over the arms (first axis), exactly 0 if only a rounding error is left.

    Weights such as 1/3 are not exact in binary. Without this, a count that no level changes would differ from 0 in its last
    digit, in every block in the same direction.
    """
    parts = weights[:, None, None] * values
    if len(weights) == 2:
        total, magnitude = parts[0] + parts[1], np.abs(parts[0]) + np.abs(parts[1])
    else:
        total, magnitude = _exact(parts), _exact(np.abs(parts))
    return np.where(np.abs(total) > _ROUNDING * magnitude, total, 0.0)


def _exact(parts: Floats) -> Floats:
    """Return sums over the first axis, each rounded only once."""
    columns = parts.reshape(len(parts), -1).T.tolist()
    return np.array([*map(math.fsum, columns)], dtype=np.float64).reshape(parts.shape[1:])


def _slot(run: Observation) -> int:
    return run.slot


def pooled(parts: Sequence[Contrasts]) -> Contrasts:
    """Average the conditions' contrasts over complete rounds, in which every condition has a contrast.

    Block i of a condition runs in round i.
    """
    single = [dict(zip(part.blocks, part.values, strict=True)) for part in parts]
    if all(len(one) == len(part.blocks) for one, part in zip(single, parts, strict=True)):
        rounds = sorted(set.intersection(*map(set, single))) if single else []
        columns = [[one[number] for number in rounds] for one in single]
        return Contrasts(
            tuple(math.fsum(numbers) / len(parts) for numbers in zip(*columns, strict=True)),
            sum(part.failures for part in parts),
            sum(part.unusable for part in parts),
        )
    by_round = [_by_round(part) for part in parts]
    common = set.intersection(*(set(one) for one in by_round)) if by_round else set()
    values: list[float] = []
    for number in sorted(common):
        repeats = [one[number] for one in by_round]
        if len({len(one) for one in repeats}) == 1:
            values += [math.fsum(numbers) / len(parts) for numbers in zip(*repeats, strict=True)]
    return Contrasts(
        tuple(values), sum(part.failures for part in parts), sum(part.unusable for part in parts)
    )


def usable(run: Observation, response: Response) -> float | None:
    """Return the response on its scale of comparison (its logarithm on a log scale), or None if there is no usable value."""
    if run.failure is not None:
        return None
    value = run.responses.get(response.name)
    if value is None or not math.isfinite(value):
        return None
    if response.scale is Scale.DIFFERENCE:
        return value
    return math.log(value) if value > 0.0 else None


def _by_round(part: Contrasts) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for value, index in zip(part.values, part.blocks, strict=True):
        found.setdefault(index, []).append(value)
    return found
