"""Planning against fresh simulation of the e-process."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest

from iotrial.analysis.eprocess import interval
from iotrial.analysis.power import (
    blocks_to_resolve,
    half_width,
    reach,
    resolvable_margin,
    seconds_to_resolve,
)


@pytest.mark.parametrize(
    ("blocks", "alpha"),
    [
        (12, 0.05),
        (35, 0.004),
        *(pytest.param(*one, marks=pytest.mark.long) for one in ((35, 0.05), (160, 0.025))),
    ],
)
def test_the_tables_agree_with_fresh_intervals(blocks: int, alpha: float) -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    print("seed", seed)
    rng = np.random.default_rng(seed)
    widths, farther = [], []
    for _ in range(300):
        found = interval(rng.normal(size=blocks), alpha)
        if found.empty:
            continue
        assert found.low is not None
        assert found.high is not None
        widths.append((found.high - found.low) / 2)
        farther.append(max(-found.low, found.high))
    assert np.median(widths) == pytest.approx(half_width(blocks, alpha), rel=0.12)
    assert np.mean(np.array(farther) <= reach(blocks, alpha)) == pytest.approx(0.8, abs=0.12)


@pytest.mark.long
def test_four_trials_in_five_resolve_the_margin_at_the_planned_number_of_blocks() -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    print("seed", seed)
    rng = np.random.default_rng(seed)
    sd, margin = 0.1, 0.05
    planned = blocks_to_resolve(sd, margin, alpha=0.05, effects=2)
    assert planned is not None
    resolved = 0
    for _ in range(200):
        found = interval(rng.normal(0.0, sd, planned), 0.025)
        resolved += (
            found.low is not None
            and found.high is not None
            and max(-found.low, found.high) <= math.log1p(margin)
        )
    assert resolved / 200 == pytest.approx(0.8, abs=0.14)


def test_more_scatter_smaller_margins_and_more_effects_need_more_blocks() -> None:
    base = blocks_to_resolve(0.1, 0.05, alpha=0.05)
    assert base is not None
    for other in (
        blocks_to_resolve(0.15, 0.05, alpha=0.05),
        blocks_to_resolve(0.1, 0.03, alpha=0.05),
        blocks_to_resolve(0.1, 0.05, alpha=0.05, effects=6),
    ):
        assert other is not None
        assert other > base


def test_the_margin_of_a_number_of_blocks_is_the_inverse_of_the_blocks_of_a_margin() -> None:
    margin = resolvable_margin(0.1, 150, alpha=0.05, effects=3)
    assert margin is not None
    assert blocks_to_resolve(0.1, margin * 1.0001, alpha=0.05, effects=3) in (149, 150)
    assert resolvable_margin(0.1, 7, alpha=0.05) is None


def test_a_margin_below_the_floor_of_the_method_is_out_of_reach() -> None:
    assert blocks_to_resolve(0.5, 0.03, alpha=0.05) is None
    assert seconds_to_resolve(0.5, 1.0, 0.03, alpha=0.05) is None


def test_seconds_are_blocks_times_the_time_of_a_block() -> None:
    blocks = blocks_to_resolve(0.1, 0.05, alpha=0.05)
    assert blocks is not None
    assert seconds_to_resolve(0.1, 0.25, 0.05, alpha=0.05) == blocks * 0.25


def test_an_alpha_that_cannot_be_shared_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot share"):
        blocks_to_resolve(0.1, 0.05, alpha=0.05, effects=0)
