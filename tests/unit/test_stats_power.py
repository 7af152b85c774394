"""Planning, against fresh simulation of the intervals of trials, and against random walks."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from iotrial.stats.eprocess import excluded, interval
from iotrial.stats.power import (
    MOST_BLOCKS,
    blocks_to_resolve,
    blocks_to_see,
    resolvable_margin,
    visible_margin,
)


@pytest.fixture
def rng() -> np.random.Generator:
    seed = int.from_bytes(os.urandom(4), "big")
    print("seed", seed)
    return np.random.default_rng(seed)


def equivalent(contrasts: np.ndarray, margin: float, alpha: float) -> bool:
    """Return whether a trial concludes "equivalent" after these blocks."""
    found = interval(contrasts, alpha, margin=math.log1p(margin))
    ends = (found.low, found.high)
    return found.bounds is not None or (
        None not in ends and max(map(abs, ends)) <= math.log1p(margin)  # type: ignore[arg-type]
    )


def share(rng: np.random.Generator, trials: int, one: Callable[[np.random.Generator], bool]) -> float:
    return sum(one(rng) for _ in range(trials)) / trials


def near(planned: float, trials: int) -> object:
    """Tolerance of a simulated share: four standard errors, and .04 for a table that is 5 % off in blocks."""
    return pytest.approx(planned, abs=4 * math.sqrt(planned * (1 - planned) / trials) + 0.04)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sd", "margin", "alpha", "planned"),
    [
        (0.03, 0.03, 0.05, 0.8),
        (0.08, 0.05, 0.01, 0.5),
        (0.05, 0.05, 0.0004, 0.8),
        *(
            pytest.param(*one, marks=pytest.mark.long)
            for one in (
                (0.1, 0.03, 0.05, 0.5),
                (0.1, 0.03, 0.05, 0.8),
                (0.33, 0.05, 0.025, 0.8),
                (0.08, 0.03, 0.05, 0.1),
                (0.05, 0.04, 0.003, 0.9),
            )
        ),
    ],
)
def test_so_many_trials_are_equivalent_by_the_planned_block(
    sd: float, margin: float, alpha: float, planned: float, rng: np.random.Generator
) -> None:
    blocks = blocks_to_resolve(sd, margin, alpha=alpha, share=planned)
    assert blocks is not None
    found = share(rng, 150, lambda rng: equivalent(rng.normal(0.0, sd, blocks), margin, alpha))
    assert found == near(planned, 150)


@pytest.mark.parametrize(
    ("sd", "margin", "alpha"),
    [(0.05, 0.03, 0.05), (0.3, 0.05, 0.05), (0.02, 0.2, 0.05), (0.1, 0.05, 0.001)],
)
def test_four_positive_controls_in_five_are_seen_by_the_planned_block(
    sd: float, margin: float, alpha: float, rng: np.random.Generator
) -> None:
    blocks = blocks_to_see(sd, margin, alpha=alpha)
    assert blocks is not None
    # where the evidence needs its minimum of blocks, nearly all are seen at once
    slowed = math.log1p(2 * margin)
    found = share(
        rng,
        300,
        lambda rng: excluded(rng.normal(slowed, sd, blocks), 0.0, alpha, margin=math.log1p(margin)),
    )
    assert found >= 0.8 - 4 * math.sqrt(0.16 / 300) - 0.04
    if blocks > 10:
        assert found <= 0.8 + 4 * math.sqrt(0.16 / 300) + 0.06


@pytest.mark.long
def test_all_of_many_comparisons_are_equivalent_by_the_block_planned_for_all(
    rng: np.random.Generator,
) -> None:
    sd, margin, alpha, many = 0.03, 0.03, 0.05 / 12, 12
    blocks = blocks_to_resolve(sd, margin, alpha=0.05, effects=many, together=many)
    assert blocks is not None
    found = share(
        rng, 60, lambda rng: all(equivalent(rng.normal(0.0, sd, blocks), margin, alpha) for _ in range(many))
    )
    assert found >= stats.binom.ppf(1e-4, 60, 0.8 - 0.06) / 60


def test_small_margins_take_blocks_as_their_inverse_square() -> None:
    """True of any test of a mean: every margin can be resolved, but a small one takes long."""
    few, many = (blocks_to_resolve(0.5, margin, alpha=0.05) for margin in (0.03, 0.015))
    assert few is not None
    assert many is not None
    assert many / few == pytest.approx((math.log1p(0.03) / math.log1p(0.015)) ** 2, rel=0.01)


def test_no_plan_is_below_what_a_walk_to_the_threshold_takes() -> None:
    """Of all processes the likelihood ratio of the two margins grows fastest, by ratio**2 / 2 per block (Wald 1945)."""
    for ratio, alpha in itertools.product((0.03, 0.1, 0.2, 0.4), (0.05, 0.001)):
        blocks = blocks_to_resolve(1.0, math.expm1(ratio), alpha=alpha, share=0.5)
        assert blocks is not None
        fastest = math.log(1 / alpha) / (ratio**2 / 2)
        assert fastest < blocks < 2.2 * fastest


def test_more_scatter_smaller_margins_more_effects_and_larger_shares_need_more_blocks() -> None:
    base = blocks_to_resolve(0.1, 0.05, alpha=0.05)
    assert base is not None
    for other in (
        blocks_to_resolve(0.15, 0.05, alpha=0.05),
        blocks_to_resolve(0.1, 0.03, alpha=0.05),
        blocks_to_resolve(0.1, 0.05, alpha=0.05, effects=6),
        blocks_to_resolve(0.1, 0.05, alpha=0.05, together=6),
        blocks_to_resolve(0.1, 0.05, alpha=0.05, share=0.9),
    ):
        assert other is not None
        assert other > base


def test_no_scatter_takes_the_fewest_blocks_that_evidence_needs() -> None:
    """n unanimous signs give at most 2**n / 15 with an aimed bet, and there is a look after each block."""
    still = blocks_to_resolve(0.0, 0.03, alpha=0.05)
    assert still in (8, 9)
    assert blocks_to_see(0.0, 0.03, alpha=0.05) in (8, 9)
    assert blocks_to_resolve(0.0, 0.03, alpha=0.05, share=0.1) == still


def test_the_margin_of_a_number_of_blocks_is_the_inverse_of_the_blocks_of_a_margin() -> None:
    margin = resolvable_margin(0.1, 150, alpha=0.05, effects=3)
    assert margin is not None
    assert blocks_to_resolve(0.1, margin * 1.0001, alpha=0.05, effects=3) in (149, 150)
    visible = visible_margin(0.1, 60, alpha=0.05)
    assert visible is not None
    assert blocks_to_see(0.1, visible * 1.0001, alpha=0.05) in (59, 60)
    assert resolvable_margin(0.1, 7, alpha=0.05) is None
    assert visible_margin(0.1, 7, alpha=0.05) is None


def test_a_margin_that_takes_more_blocks_than_any_trial_has_is_out_of_reach() -> None:
    blocks = blocks_to_resolve(0.5, 0.009, alpha=0.05)
    assert blocks is not None
    assert blocks <= MOST_BLOCKS
    assert blocks_to_resolve(0.5, 0.005, alpha=0.05) is None
    assert blocks_to_resolve(0.5, 0.0, alpha=0.05) is None


@pytest.mark.parametrize(
    "wrong", [{"effects": 0}, {"alpha": 0.0}, {"alpha": 1.0}, {"together": 0}, {"share": 1.0}]
)
def test_what_cannot_be_planned_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"cannot share|no plan"):
        blocks_to_resolve(0.1, 0.05, **{"alpha": 0.05, **wrong})  # type: ignore[arg-type]
