"""What the design and the analysis promise, held against simulated trials of known truth.

Seeds are drawn fresh from the system and printed, never chosen. A bound is the number that a sound method exceeds
with probability 1e-6 (exact binomial), so a failure is a finding and not bad luck. The longer version
with tables is benchmarks/truth/simulate.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from iotrial.analysis.betting import log_paths
from iotrial.analysis.eprocess import interval
from iotrial.analysis.model import Observation, ObservedBlock
from iotrial.analysis.verdict import judge
from iotrial.analysis.voids import compare_void_rates
from iotrial.design.keyed import Stream, new_seed
from iotrial.design.model import ArmKind
from iotrial.study.model import Better, Response, Scale

ALPHA = 0.05
TIME = Response("w", "wall", "s", Scale.LOG, Better.LOWER, primary=True)
Rng = np.random.Generator


@pytest.fixture
def seed() -> str:
    drawn = new_seed()
    print("seed", drawn)
    return drawn


def rng_of(seed: str) -> Rng:
    return np.random.default_rng(int(seed, 16))


def at_most(trials: int, probability: float) -> int:
    return int(stats.binom.isf(1e-6, trials, probability))


def normal(rng: Rng, trials: int, runs: int) -> np.ndarray:
    return rng.normal(size=(trials, runs))


def heavy_tailed(rng: Rng, trials: int, runs: int) -> np.ndarray:
    return rng.standard_t(3, size=(trials, runs))


def stalling(rng: Rng, trials: int, runs: int) -> np.ndarray:
    stalls = rng.random((trials, runs)) < 0.05
    return rng.normal(size=(trials, runs)) + stalls * rng.uniform(5, 50, size=(trials, runs))


def autocorrelated(rng: Rng, trials: int, runs: int) -> np.ndarray:
    out = rng.normal(size=(trials, runs))
    for i in range(1, runs):
        out[:, i] += 0.9 * out[:, i - 1]
    return out


def alternating(rng: Rng, trials: int, runs: int) -> np.ndarray:
    sign = np.where(np.arange(runs) % 2 == 0, 1.0, -1.0)
    return sign * np.abs(autocorrelated(rng, trials, runs)) + rng.normal(size=(trials, runs))


def drawn_contrasts(seed: str, runs: np.ndarray) -> np.ndarray:
    """D of two identical arms whose order in each block is the plan generator's; ``runs`` is trials by 2 blocks."""
    trials, count = runs.shape
    blocks = count // 2
    order = [
        Stream(seed, "order", f"trial={t}", b).permutation(2) for t in range(trials) for b in range(blocks)
    ]
    sign = np.array([1.0 if first == 0 else -1.0 for first, _ in order]).reshape(trials, blocks)
    return sign * (runs[:, 1::2] - runs[:, 0::2])


def alarms(contrasts: np.ndarray, alpha: float = ALPHA) -> int:
    """Trials in which a look after some block would have told identical arms apart."""
    return int((log_paths(contrasts).max(axis=1) >= math.log(1 / alpha)).sum())


@pytest.mark.parametrize("noise", [normal, heavy_tailed, stalling, autocorrelated, alternating])
def test_identical_arms_are_told_apart_no_more_often_than_promised_with_a_look_after_every_block(
    seed: str, noise: Callable[[Rng, int, int], np.ndarray]
) -> None:
    trials = 600
    contrasts = drawn_contrasts(seed, noise(rng_of(seed), trials, 2 * 150))
    assert alarms(contrasts) <= at_most(trials, ALPHA)


def test_without_the_drawn_order_alternating_noise_makes_an_effect(seed: str) -> None:
    runs = alternating(rng_of(seed), 200, 2 * 150)
    assert alarms(runs[:, 1::2] - runs[:, 0::2]) > 150


def test_all_of_one_arm_and_then_all_of_the_other_makes_an_effect(seed: str) -> None:
    runs = autocorrelated(rng_of(seed), 200, 2 * 150)
    assert alarms(runs[:, 150:] - runs[:, :150]) > 100


@pytest.mark.parametrize("noise", [normal, heavy_tailed, stalling])
def test_the_interval_holds_the_true_effect_at_every_look(
    seed: str, noise: Callable[[Rng, int, int], np.ndarray]
) -> None:
    trials, effect = 100, 0.7
    contrasts = effect + drawn_contrasts(seed, noise(rng_of(seed), trials, 2 * 80))
    missed = 0
    for row in contrasts:
        looks = [interval(row[:n], ALPHA) for n in (8, 12, 20, 40, 80)]
        missed += any(
            found.empty or (found.low or -math.inf) > effect or (found.high or math.inf) < effect
            for found in looks
        )
    assert missed <= at_most(trials, ALPHA)


def test_a_sound_trial_of_many_conditions_is_hardly_ever_called_invalid(seed: str) -> None:
    trials, effects = 50, 96
    rng = rng_of(seed)
    invalid = sum(alarms(heavy_tailed(rng, effects, 100), 0.001 / effects) > 0 for _ in range(trials))
    assert invalid <= at_most(trials, 0.001)


def stalled_pairs(rng: Rng, trials: int, blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """Contrasts of two identical arms, and which of their runs stalled (one in ten)."""
    stalled = rng.random((trials, blocks, 2)) < 0.1
    y = 0.1 * rng.normal(size=stalled.shape) + stalled * rng.uniform(0.5, 2.0, size=stalled.shape)
    return y[:, :, 1] - y[:, :, 0], stalled


def alarms_of_kept(contrasts: np.ndarray, void: np.ndarray) -> int:
    return sum(alarms(row[~gone][None, :]) for row, gone in zip(contrasts, void, strict=True))


def test_throwing_out_blocks_by_a_rule_blind_to_labels_keeps_the_promise(seed: str) -> None:
    trials = 600
    rng = rng_of(seed)
    contrasts, stalled = stalled_pairs(rng, trials, 200)
    failed_check = stalled & (rng.random(stalled.shape) < 0.5)
    assert alarms_of_kept(contrasts, failed_check.any(axis=2)) <= at_most(trials, ALPHA)


def test_a_rule_that_hits_one_arm_makes_effects_and_the_comparison_of_void_rates_sees_it(seed: str) -> None:
    trials = 100
    contrasts, stalled = stalled_pairs(rng_of(seed), trials, 200)
    one_arm = stalled[:, :, 1]
    assert alarms_of_kept(contrasts, one_arm) > trials // 2
    runs = tuple(Observation(name, ArmKind.TREATMENT, {"f": name}, 0, 0.0, {}) for name in "AB")
    for gone in one_arm[:20]:
        if gone.sum() >= 15:
            void = [ObservedBlock("c", b, runs, void="stall", void_level="B") for b in np.flatnonzero(gone)]
            assert compare_void_rates(void)[1]


def test_going_on_to_a_width_leaves_a_useful_interval_where_the_first_chance_to_stop_leaves_a_wide_one(
    seed: str,
) -> None:
    """True effect 6 %, margin 3 %: as soon as 0 is excluded the size of the effect is still open."""
    trials, effect, margin = 40, math.log(1.06), 0.03
    rng = rng_of(seed)
    first, last, covered = [], [], 0
    for _ in range(trials):
        contrasts = rng.normal(effect, 0.08, 400)
        blocks, excluded = 8, None
        while True:
            found = interval(contrasts[:blocks], ALPHA)
            assert found.low is not None
            assert found.high is not None
            if excluded is None and found.low > 0:
                excluded = found
            judged = judge(found, TIME, margin=margin)
            if judged.decided or blocks == 400:
                break
            blocks += max(1, blocks // 10)
            blocks = min(blocks, 400)
        assert judged.decided
        assert (found.high - found.low) / 2 <= max(math.log1p(margin), abs(found.estimate or 0.0) / 4)
        covered += found.low <= effect <= found.high
        first.append(excluded or found)
        last.append(found)
    assert trials - covered <= at_most(trials, ALPHA)
    widths = [
        np.median([(one.high or math.inf) - (one.low or 0.0) for one in rows]) for rows in (first, last)
    ]
    assert widths[0] > 1.3 * widths[1]
