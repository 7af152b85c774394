"""Least squares: by how much does a run depend on the runs before it?

A sensitive companion of the exact bets in ``carryover``. It carries no guarantee and needs none: it only decides when the
wash-in begins or grows, and whether a verdict is held back. The blocks before are then dropped, and the switch is a stopping
time, so the error levels of everything that is judged afterwards hold.

**Patterns.** For a level l, each pattern gives every run one number x from the levels of the runs before it: the number of
runs with l among the last k, such a number with weights that decay, or whether the last run had l, for runs that have l
themselves or for those that do not, or whether either of the two runs had l, but not both. The last three show a cost of
switching. Runs before the block count too. The model is

    value = unit + arm + slot + b x + noise,

fitted for one pattern at a time: patterns are too alike to be fitted together, and one that fits has most power.

**Score.** The variance of b is the jackknife over blocks, so noise may be correlated inside a block and scatter more in some
arms (MacKinnon and White, J. Econometrics 29, 1985). Its degrees of freedom are the effective number of blocks that inform
about b, less one. The score is the z with the same p-value as Student's t. docs/method-tables.md says how often it reaches
``SCORE`` in sound trials, with a look after every block.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]

#: score from which runs count as dependent on the runs before them, for one level in one condition
SCORE = 4.8
#: variance of a pattern that must be left, relative to its variance inside units
_LEFT = 1e-3
#: effective number of blocks, less one, below which a pattern has no score
_LEAST_FREEDOM = 3.0
#: distance in blocks up to which noise may vary together
_NEIGHBOURS = 1


@dataclass(frozen=True, slots=True)
class Pattern:
    """Weights of the last runs, the newest first, and the runs to which they apply (``own``: those that have the level).

    ``switched``: x says instead whether the run, or else the last one, has the level, but not both."""

    name: str
    weights: tuple[float, ...]
    own: bool | None = None
    switched: bool = False

    @property
    def of_switching(self) -> bool:
        """Whether x depends on a switch to the level: a cost of it makes the level's runs after themselves faster."""
        return self.switched or self.own is True


def _decay(factor: float) -> Pattern:
    return Pattern(f"decay {factor:g}", tuple(factor**lag for lag in range(8)))


AFTER_ITSELF = Pattern("last, own", (1.0,), own=True)
AFTER_OTHER = Pattern("last, others", (1.0,), own=False)
SWITCHED = Pattern("switched", (1.0,), switched=True)
PATTERNS = (
    *(Pattern(f"last {count}", (1.0,) * count) for count in range(1, 7)),
    Pattern("last but one", (0.0, 1.0)),
    _decay(0.5),
    _decay(0.75),
    AFTER_OTHER,
    AFTER_ITSELF,
    SWITCHED,
)


@dataclass(frozen=True, slots=True)
class RunColumns:
    """Runs in time order, one entry each. ``arm``, ``unit`` and ``block`` are numbers; ``slot`` counts from 0 in its unit.

    ``counted``: measured, of the condition in question, in a unit in which every run has a value; other runs only precede
    these.
    """

    value: Floats
    arm: Counts
    unit: Counts
    block: Counts
    slot: Counts
    counted: Flags


@dataclass(frozen=True, slots=True)
class Dependence:
    """The dependence on a level by one pattern: the coefficient of a run (``size``) and its score.

    ``largest``: what one run with the level does to a later one at most. ``exposure``: by how much x is larger in runs with
    the level than in the others of their units, so size times exposure is what the dependence adds to the level's effect.
    """

    factor: str
    level: str
    pattern: Pattern
    size: float
    score: float
    exposure: float = 0.0

    @property
    def largest(self) -> float:
        return self.size * max(self.pattern.weights)


def dependences(table: RunColumns, held: Mapping[tuple[str, str], Floats | Flags]) -> list[Dependence]:
    """Fit every pattern for every level. ``held``: by factor and level, which runs have it (of an unmeasured run with a level
    is not known: with which probability).

    Patterns that the arms and slots determine, or that too few blocks inform about, are left out."""
    which = np.flatnonzero(table.counted)
    if which.size < 4:
        return []
    names = [(pair, pattern) for pair in held for pattern in PATTERNS]
    columns = np.column_stack([_column(held[pair], pattern) for pair, pattern in names])[which]
    residuals = Residuals(table, columns)
    sizes, scores = residuals.alone()
    flags = _centred(
        np.column_stack([one[which].astype(np.float64) for one in held.values()]), table.unit[which]
    )
    exposures = _exposures(residuals.inside, np.repeat(flags, len(PATTERNS), axis=1))
    return [
        Dependence(*pair, pattern, float(sizes[place]), float(scores[place]), float(exposures[place]))
        for place, (pair, pattern) in enumerate(names)
        if scores[place] != 0.0
    ]


def score_needed(questions: int, alone: float = SCORE) -> float:
    """Return the score that as many questions (levels and conditions) need for the p-value of ``alone`` for one."""
    return -NormalDist().inv_cdf(NormalDist().cdf(-alone) / max(1, questions))


def _column(flags: Floats | Flags, pattern: Pattern) -> Floats:
    held = flags.astype(np.float64)
    found = np.zeros(held.size)
    for lag, weight in enumerate(pattern.weights, 1):
        found[lag:] += weight * held[:-lag]
    if pattern.switched:
        return found * (1.0 - held) + (1.0 - found) * held
    if pattern.own is not None:
        found *= held if pattern.own else 1.0 - held
    return found


def _exposures(columns: Floats, flags: Floats) -> Floats:
    """Return the slope of each column on the level's own flags; both are centred in their units."""
    found: Floats = (columns * flags).sum(axis=0) / np.maximum((flags**2).sum(axis=0), 1.0)
    return found


class Residuals:
    """Columns and values of the counted runs, without what units, arms and slots explain."""

    def __init__(self, table: RunColumns, columns: Floats) -> None:
        """``columns`` has shape (counted runs, columns)."""
        which = np.flatnonzero(table.counted)
        codes = np.unique(table.arm[which], return_inverse=True)[1]
        arms = np.eye(int(codes.max()) + 1)[codes]
        slots = _slots(table)[which]
        everything = np.column_stack([arms[:, 1:], slots, columns, table.value[which]])
        everything = _centred(everything, table.unit[which])
        count = arms.shape[1] - 1 + slots.shape[1]
        #: the columns, centred in their units
        self.inside = everything[:, count:-1]
        before = (self.inside**2).sum(axis=0)
        rest = _without(everything[:, :count], everything[:, count:])
        self._x, self._y = rest[:, :-1], rest[:, -1]
        self._known = (self._x**2).sum(axis=0) > _LEFT * before + 1e-9
        self._cluster = np.unique(table.block[which], return_inverse=True)[1]
        self.blocks = int(self._cluster.max()) + 1

    def alone(self) -> tuple[Floats, Floats]:
        """Return coefficient and score of each column, fitted without the other columns; 0 where unknown."""
        gram, product = self._by_block(self._x**2), self._by_block(self._x * self._y[:, None])
        with np.errstate(divide="ignore", invalid="ignore"):
            size = product.sum(axis=0) / gram.sum(axis=0)
            left_out = (product.sum(axis=0) - product) / (gram.sum(axis=0) - gram)
            spread = (self.blocks - 1) / self.blocks * _variation(left_out - size)
            freedom = gram.sum(axis=0) ** 2 / (gram**2).sum(axis=0) - 1.0
            score = normal_score(size / np.sqrt(spread), freedom)
        known = self._known & np.isfinite(score) & (freedom >= _LEAST_FREEDOM)
        return np.where(known, size, 0.0), np.where(known, score, 0.0)

    def _by_block(self, values: Floats) -> Floats:
        found = np.zeros((self.blocks, *values.shape[1:]))
        np.add.at(found, self._cluster, values)
        return found


def _variation(away: Floats) -> Floats:
    """Return the sum of squares by column, with the products of neighbouring blocks where their sum is positive.

    Neighbouring blocks share the order of the earlier one, so noise with a rhythm makes them vary together."""
    found: Floats = (away**2).sum(axis=0)
    for lag in range(1, _NEIGHBOURS + 1):
        found = found + 2.0 * np.maximum(0.0, (away[lag:] * away[:-lag]).sum(axis=0))
    return found


def normal_score(t: Floats, freedom: Floats) -> Floats:
    """Return the z with the same p-value as Student's t (D. L. Wallace, Ann. Math. Stat. 30, 1959)."""
    z: Floats = np.sign(t) * (8.0 * freedom + 1.0) / (8.0 * freedom + 3.0)
    z *= np.sqrt(freedom * np.log1p(t * t / freedom))
    return z


def _slots(table: RunColumns) -> Floats:
    """Return a column for each slot after the first of units of each size, so that noise with a rhythm is no dependence."""
    sizes = np.bincount(table.unit[table.counted], minlength=int(table.unit.max()) + 1)[table.unit]
    place = np.where(table.counted, 1000 * sizes + table.slot, 0)
    names = [name for name in np.unique(place) if name % 1000]
    columns = np.zeros((place.size, len(names)))
    for column, name in enumerate(names):
        columns[:, column] = place == name
    return columns


def _centred(columns: Floats, units: Counts) -> Floats:
    """Subtract each unit's mean."""
    _, unit, sizes = np.unique(units, return_inverse=True, return_counts=True)
    sums = np.zeros((len(sizes), columns.shape[1]))
    np.add.at(sums, unit, columns)
    return columns - (sums / sizes[:, None])[unit]


def _without(others: Floats, columns: Floats) -> Floats:
    """Return the residuals of ``columns`` on ``others`` (least squares)."""
    found: Floats = columns - others @ np.linalg.lstsq(others, columns, rcond=None)[0]
    return found


def arranged(
    values: Sequence[Sequence[float]],
    arms: Sequence[Sequence[str]],
    blocks: Sequence[int],
    own: Sequence[bool],
    led: Sequence[Collection[int]] = (),
) -> tuple[RunColumns, Counts]:
    """Lay out units in time order as a table; return with it which measured run, counted over all units, each entry is of.

    ``led``: in each unit, the places of the runs that one unmeasured run precedes. That run has an entry of its own, just
    before, which does not count.
    """
    sizes = [len(unit) for unit in arms]
    number = {name: place for place, name in enumerate(sorted({arm for unit in arms for arm in unit}))}
    value = np.array([one for unit in values for one in unit], dtype=np.float64)
    whole = np.array(
        [mine and all(map(math.isfinite, one)) for one, mine in zip(values, own, strict=True)], dtype=bool
    )
    starts = np.cumsum([0, *sizes])[:-1]
    extra = [start + place for start, places in zip(starts, led, strict=False) for place in sorted(places)]
    runs = np.insert(np.arange(value.size), extra, extra)
    measured = np.ones(runs.size, dtype=bool)
    measured[np.searchsorted(runs, extra)] = False
    return RunColumns(
        value=np.where(np.isfinite(value), value, 0.0)[runs],
        arm=np.array([number[arm] for unit in arms for arm in unit], dtype=np.intp)[runs],
        unit=np.repeat(np.arange(len(sizes)), sizes)[runs],
        block=np.repeat(np.array(blocks, dtype=np.intp), sizes)[runs],
        slot=(np.arange(value.size) - np.repeat(starts, sizes))[runs],
        counted=np.repeat(whole, sizes)[runs] & measured,
    ), runs
