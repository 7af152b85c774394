"""The anytime-valid test on your own measurements: one number per treatment in each block."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, SupportsFloat

import numpy as np

from iotrial.errors import RequestError
from iotrial.library.display import Card, Displayed
from iotrial.report.notation import bracketed, capitalised, counted, p_value, percent
from iotrial.stats.anytime_t import t_interval
from iotrial.stats.betting import Floats
from iotrial.stats.eprocess import interval
from iotrial.stats.power import blocks_to_resolve

Scale = Literal["ratio", "difference"]


@dataclass(frozen=True, slots=True, repr=False)
class BlockComparison(Displayed):
    """The result of comparing a level with the reference, made by ``compare_blocks``.

    ``value``, ``low`` and ``high`` are ratios (level over reference) or differences (level minus reference);
    None: not bounded yet, or no value is left in the interval. ``p`` and the interval hold at level ``alpha``
    at every look.

    ``moved``: no single effect fits all blocks, so it changed during the measurement. ``leaning``: all blocks
    together support values that the first ones excluded, and the interval is the wider one that treats all
    blocks alike; measure again. ``bounds``: if a margin was given and every larger effect is excluded, the
    bounds of the ratio from one-sided bets. ``block_sd`` is the standard deviation of the contrast between
    blocks (natural logarithms for ratios); ``t_low`` and ``t_high`` are a cross-check that assumes normal
    contrasts.
    """

    scale: Scale
    value: float | None
    low: float | None
    high: float | None
    p: float
    alpha: float
    blocks: int
    moved: bool
    leaning: bool
    block_sd: float | None
    t_low: float | None
    t_high: float | None
    bounds: tuple[float, float] | None = None

    @property
    def ratio(self) -> float | None:
        """The estimate if it is a ratio, else None."""
        return self.value if self.scale == "ratio" else None

    @property
    def detected(self) -> bool:
        """Whether "no effect" is excluded: the interval does not contain 1 (or a difference of 0)."""
        null = 1.0 if self.scale == "ratio" else 0.0
        return (self.low is not None and self.low > null) or (self.high is not None and self.high < null)

    def within(self, margin: float) -> bool:
        """Return whether every effect outside 1/(1 + margin) to 1 + margin is excluded (``margin`` .03 for 3 %). Ratios only.

        Uses the interval, or ``bounds``. This is only as reliable as the blocks are. A trial of iotrial says
        "equivalent" only if an injected slowdown was detected; here nothing shows that one would have been.
        """
        if self.scale != "ratio" or not margin > 0.0:
            raise RequestError("within: expected ratios and a margin above 0", hint="e.g. within(0.03)")
        ends = [(self.low, self.high), *([] if self.bounds is None else [self.bounds])]
        return any(
            low is not None and high is not None and 1.0 / (1.0 + margin) <= low and high <= 1.0 + margin
            for low, high in ends
        )

    def blocks_for(self, margin: float) -> int | None:
        """Return how many blocks with this scatter settle a margin with 80 % probability if there is no effect.

        Assumes that ``compare_blocks`` is given the margin. None: more than 100,000, or fewer than two blocks
        so far. Ratios only.
        """
        if self.scale != "ratio" or not margin > 0.0:
            raise RequestError(
                "blocks_for: expected ratios and a margin above 0", hint="e.g. blocks_for(0.03)"
            )
        if self.block_sd is None:
            return None
        return blocks_to_resolve(self.block_sd, margin, alpha=self.alpha)

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        null = 1.0 if self.scale == "ratio" else 0.0
        blocks = counted(self.blocks, "block")
        if self.moved:
            return f"The effect changed while it was measured: no single {self.scale} fits all {blocks}."
        sentence = f"{self.scale} {bracketed(self.value, self.low, self.high, null=null)} after {blocks}"
        if self.low is None and self.high is None:
            return f"{sentence}: too few for an interval, p {p_value(self.p)}."
        level = f"at {percent(1.0 - self.alpha)}, valid at any time"
        excludes = "excludes" if self.detected else "does not exclude"
        sentence += f": the interval ({level}) {excludes} {null:g}, p {p_value(self.p)}"
        if self.leaning:
            sentence += ". All blocks together contradict the first ones: measure again before relying on it"
        return f"{sentence}."

    def _card(self) -> Card:
        return Card(capitalised(self.sentence))


def compare_blocks(
    reference: Sequence[SupportsFloat],
    level: Sequence[SupportsFloat],
    *,
    alpha: float = 0.05,
    scale: Scale = "ratio",
    margin: float | None = None,
) -> BlockComparison:
    """Compare a level with the reference, from blocks that were measured in random order.

    ``reference[i]`` and ``level[i]`` are the two numbers of block i, of shape (blocks,), in time order and in
    the same unit: two consecutive runs, or the sums of several. ``scale`` "ratio" compares logarithms and
    requires numbers above 0; "difference" takes any (counts that may be 0). ``margin`` (.03 for 3 %; ratios
    only) is the effect size to exclude: part of each bet is aimed at it, so that ``within(margin)`` is
    reached sooner. Choose it before looking at the data.

    Assumptions: in every block a coin flip, independent of everything measured, decided which of the two ran
    first. The test of "no effect" assumes nothing else: neither normal noise, nor independent blocks, nor a
    fixed number of blocks. You may look after every block and stop at any time. The interval also assumes
    that the effect is the same factor (or difference) in every block, or that the noise of the difference is
    symmetric. Not detected: files or devices that always carry the same treatment, caches that one treatment
    fills for the other, a setting that never took effect. If the order was not random (all of one, then all
    of the other; or strictly alternating), the numbers may be confounded with time, and neither p nor the
    interval means anything: see ``audit``.

    Give every pair. Leaving one out because of what was measured breaks the test, so missing numbers are an
    error. Several simultaneous comparisons share a level: pass ``alpha / k``. Fewer than 8 blocks (at .05)
    give no bounded interval.

    Raises RequestError for arrays of unequal length or another shape, for numbers that are not finite or, for
    ratios, not above 0, for an alpha outside 0 to 1, and for a margin that is not above 0 or is given with
    differences.
    """
    if not 0.0 < alpha < 1.0:
        raise RequestError(f"compare_blocks: alpha {alpha} is not between 0 and 1")
    if scale not in ("ratio", "difference"):
        raise RequestError(f'compare_blocks: expected scale "ratio" or "difference", found {scale!r}')
    if margin is not None and (scale != "ratio" or not 0.0 < margin < math.inf):
        raise RequestError("compare_blocks: expected a margin above 0, and ratios", hint="e.g. margin=0.03")
    first, second = _numbers("reference", reference, scale), _numbers("level", level, scale)
    if first.size != second.size:
        raise RequestError(
            f"compare_blocks: expected one number of each in every block, found {first.size} and {second.size}",
            hint="give complete pairs; an incomplete block cannot be compared",
        )
    contrasts = np.log(second) - np.log(first) if scale == "ratio" else second - first
    found = interval(contrasts, alpha, margin=math.log1p(margin or 0.0))
    cross = t_interval(contrasts.tolist(), alpha)
    return BlockComparison(
        scale=scale,
        value=_back(found.estimate, scale),
        low=_back(found.low, scale),
        high=_back(found.high, scale),
        p=found.p_anytime,
        alpha=alpha,
        blocks=found.blocks,
        moved=found.empty,
        leaning=found.leaning,
        block_sd=float(np.std(contrasts, ddof=1)) if contrasts.size > 1 else None,
        t_low=None if cross is None else _back(cross[0], scale),
        t_high=None if cross is None else _back(cross[1], scale),
        bounds=None if found.bounds is None else (math.exp(found.bounds[0]), math.exp(found.bounds[1])),
    )


def _numbers(name: str, sequence: Sequence[SupportsFloat], scale: Scale) -> Floats:
    try:
        values: Floats = np.asarray(sequence, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise RequestError(f"compare_blocks: {name}: expected numbers, one a block: {error}") from error
    if values.ndim != 1:
        raise RequestError(f"compare_blocks: {name}: expected one number a block, found shape {values.shape}")
    unfit = ~np.isfinite(values)
    wanted = "finite numbers"
    if scale == "ratio":
        unfit |= ~(values > 0.0)
        wanted = "finite numbers above 0"
    if unfit.any():
        where = int(np.flatnonzero(unfit)[0])
        hint = "do not leave out blocks with failed runs silently: report how many there were"
        if scale == "ratio" and math.isfinite(values[where]):
            hint = 'for counts that can be 0, use scale="difference"'
        raise RequestError(
            f"compare_blocks: {name}: expected {wanted}, found {values[where]:g} in block {where}", hint=hint
        )
    return values


def _back(value: float | None, scale: Scale) -> float | None:
    """Convert from the contrast's scale to the reported one."""
    if value is None or scale == "difference":
        return value
    return math.exp(min(value, 700.0))
