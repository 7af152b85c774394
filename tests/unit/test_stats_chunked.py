"""The process over chunks of blocks, against the same process block by block."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from iotrial.stats.betting import Blocks, Side, log_paths
from iotrial.stats.chunked import Series

LENGTHS = (1, 2, 31, 32, 33, 64, 1000, 1023, 1024, 1025, 2500)


def series(seed: int, blocks: int) -> np.ndarray:
    """Return a series: normal, heavy-tailed, rounded (ties and zeros), drifting, or with a change half-way."""
    rng = np.random.default_rng([seed, blocks])
    normal = rng.normal(0.1, 1.0, blocks)
    kinds = (
        normal,
        rng.standard_cauchy(blocks),
        np.round(normal),
        normal + np.linspace(0.0, 2.0, blocks),
        np.where(np.arange(blocks) < blocks // 2, normal, normal + 3.0),
        np.where(rng.random(blocks) < 0.02, 1e3 * normal, 1e-3 * normal),
    )
    return kinds[seed % len(kinds)]


def candidates_of(d: np.ndarray, seed: int) -> np.ndarray:
    """Return candidates near the mean (scaled by its error), among all contrasts, far outside, and at the contrasts."""
    rng = np.random.default_rng(seed)
    spread = float(np.ptp(d)) + 1.0
    near = d.mean() + rng.normal(size=20) * 4.0 * spread / math.sqrt(d.size)
    return np.concatenate([near, rng.uniform(d.min(), d.max(), 5), [d.max() + 100 * spread, 0.0], d[:6]])


def copies_of(seed: int, blocks: int) -> np.ndarray:
    """Return copies less references: NaN where a block has none, as in a trial, at random, or in the first block only."""
    rng = np.random.default_rng([seed, blocks, 7])
    places = np.arange(blocks)
    there = ((places < 24) | (places % 2 == 0), rng.random(blocks) < 0.4, places == 0)[seed % 3]
    values = rng.standard_cauchy(blocks) if seed % 2 else np.round(rng.normal(0.0, 1.0, blocks), 1)
    return np.where(there, values, math.nan)


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("blocks", LENGTHS)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("aim", "side"), [(0.0, Side.BOTH), (0.2, Side.BOTH), (0.2, Side.LARGER), (0.0, Side.SMALLER)]
)
def test_chunks_and_single_blocks_agree_on_every_candidate(
    seed: int, blocks: int, aim: float, side: Side, *, copied: bool
) -> None:
    d = series(seed, blocks)
    data = Blocks.of(d, copies_of(seed, blocks) if copied else ())
    candidates = candidates_of(d, seed)
    paths = data.against(candidates, aim=aim, side=side)
    chunked = Series(data, aim=aim, side=side)
    assert chunked.log_last(candidates) == pytest.approx(paths[:, -1], abs=1e-9, rel=1e-9)
    largest = paths.max(axis=1)
    for threshold in (math.log(20.0), math.log(1000.0), 12.0):
        assert chunked.survives(candidates, threshold).tolist() == (largest < threshold).tolist()


@pytest.mark.parametrize("seed", range(6))
def test_a_threshold_that_is_met_in_the_middle_of_a_chunk_only_is_met(seed: int) -> None:
    d = series(seed, 1500)
    candidates = candidates_of(d, seed)
    for place, path in enumerate(log_paths(d[None, :] - candidates[:, None])):
        highest = float(path.max())
        if highest <= 0.01:
            continue
        # also with thresholds closer to the highest value than two ways of summing agree
        for step in (-1e-3, -1e-6, -1e-8, -1e-12, 0.0, 1e-12, 1e-8, 1e-6, 1e-3):
            threshold = highest + step
            assert Series(Blocks.of(d)).survives(candidates[[place]], threshold)[0] == (
                highest < threshold
            ), (
                place,
                step,
            )


def test_many_candidates_at_once_say_what_each_says_alone() -> None:
    d = series(0, 1500)
    candidates = np.linspace(-0.5, 0.7, 60)
    together = Series(Blocks.of(d)).survives(candidates, 5.0)
    assert [
        bool(Series(Blocks.of(d)).survives(np.array([one]), 5.0)[0]) for one in candidates
    ] == together.tolist()
    alone = np.array([Series(Blocks.of(d)).log_last(np.array([one]))[0] for one in candidates])
    assert Series(Blocks.of(d)).log_last(candidates) == pytest.approx(alone, abs=1e-9)


def test_what_is_reckoned_for_one_does_not_reach_the_next() -> None:
    d, other = series(0, 700), series(1, 90)
    candidates = np.linspace(-1.0, 1.0, 9)
    before = Series(Blocks.of(d)).log_last(candidates)
    Series(Blocks.of(other)).survives(candidates, 3.0)
    assert Series(Blocks.of(d)).log_last(candidates).tolist() == before.tolist()


@settings(max_examples=60, deadline=None)
@example([0.0, 0.0, 3.350251199750083e-159, 1.0], 0.0)
@example([1e-160, 3e-160, 2e-155, 1e-149], 0.0)
@given(
    st.lists(
        st.one_of(st.just(0.0), st.floats(-1e6, 1e6), st.sampled_from([1.0, -1.0, 1e-200, 1e-9])),
        min_size=1,
        max_size=80,
    ),
    st.floats(-2.0, 2.0),
)
def test_any_contrasts_give_the_same_last_value(contrasts: list[float], candidate: float) -> None:
    d = np.array(contrasts)
    for at in (candidate, contrasts[0]):
        plain = log_paths((d - at)[None, :])[0]
        assert Series(Blocks.of(d)).log_last(np.array([at]))[0] == pytest.approx(
            plain[-1], abs=1e-9, rel=1e-9
        )
