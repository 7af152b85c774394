"""e-BH: hand-computed cases, and its guarantee by simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np

from iotrial.stats.ebh import discoveries


def test_a_single_e_value_is_a_discovery_from_one_over_alpha() -> None:
    assert discoveries([20.0], 0.05) == (True,)
    assert discoveries([19.9], 0.05) == (False,)
    assert discoveries([], 0.05) == ()


def brute_force(e_values: list[float], alpha: float) -> int:
    """Return how many of the largest are discoveries, trying every set of hypotheses."""
    ranked = sorted(e_values, reverse=True)
    total = len(ranked)
    for r in range(total, 0, -1):
        sets = (
            chosen for size in range(1, total + 1) for chosen in itertools.combinations(range(total), size)
        )
        if all(
            alpha * math.fsum(ranked[i] for i in chosen) / len(chosen) >= sum(i < r for i in chosen) / r
            for chosen in sets
        ):
            return r
    return 0


def test_every_set_of_hypotheses_has_a_say() -> None:
    rng = np.random.default_rng(6)
    counts = set()
    for _ in range(300):
        e_values = np.exp(rng.normal(1.5, 2.0, int(rng.integers(1, 8)))).tolist()
        found = discoveries(e_values, 0.1)
        assert sum(found) == brute_force(e_values, 0.1)
        chosen = sorted(np.array(e_values)[np.array(found)], reverse=True)
        assert chosen == sorted(e_values, reverse=True)[: len(chosen)]
        by_size = [k for k, e in enumerate(sorted(e_values, reverse=True), 1) if e * 0.1 * k >= len(e_values)]
        assert sum(found) >= max(by_size, default=0)  # e-BH finds no more
        counts.add(sum(found))
    assert {0, 1, 2, 3} <= counts


def test_of_many_the_largest_are_discoveries_together() -> None:
    assert discoveries([1.0, 45.0, 41.0, 0.0], 0.05) == (False, True, True, False)
    # the mean of all four is 29.75, of the smallest three 13.3: enough for the whole and for half of two discoveries
    assert discoveries([79.0, 1.0, 39.0, 0.0], 0.05) == (True, False, True, False)
    assert discoveries([70.0, 1.0, 5.0, 0.0], 0.05) == (False, False, False, False)
    # the largest alone does not suffice, the four together do
    assert discoveries([21.0, 22.0, 23.0, 20.0], 0.05) == (True, True, True, True)


def test_the_share_of_false_discoveries_stays_below_alpha() -> None:
    rng = np.random.default_rng(4)
    false_shares = []
    for _ in range(2000):
        # with no effect, exp(lambda z - lambda**2/2) has mean 1
        null = np.exp(2.0 * rng.normal(size=30) - 2.0)
        real = np.full(10, 1000.0)
        found = discoveries([*null, *real], 0.1)
        false_shares.append(sum(found[:30]) / max(1, sum(found)))
    assert np.mean(false_shares) <= 0.1
