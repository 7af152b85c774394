"""e-BH: hand-computed cases, and its guarantee by simulation."""

from __future__ import annotations

import numpy as np

from iotrial.stats.ebh import discoveries


def test_a_single_e_value_is_a_discovery_from_one_over_alpha() -> None:
    assert discoveries([20.0], 0.05) == (True,)
    assert discoveries([19.9], 0.05) == (False,)
    assert discoveries([], 0.05) == ()


def test_of_many_the_largest_k_are_discoveries_where_the_kth_suffices() -> None:
    # K = 4 at .05: the k-th largest must reach 80 / k, that is 80, 40, 26.7, 20
    assert discoveries([1.0, 45.0, 41.0, 0.0], 0.05) == (False, True, True, False)
    assert discoveries([79.0, 1.0, 39.0, 0.0], 0.05) == (False, False, False, False)
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
