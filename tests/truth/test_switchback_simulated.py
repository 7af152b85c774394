"""Switchback trials of known truth: the test of no effect, the interval, the diagnoses of carry-over and the washout.

As in ``test_simulated.py``, seeds are fresh, and a valid method exceeds a bound with probability 1e-6.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from chance import at_most
from iotrial.stats.eprocess import Wanted, intervals
from iotrial.stats.model import Interval
from iotrial.stats.switchback import proposed_washout
from simulated.noise import Rng
from simulated.process import largest
from simulated.switchback import (
    ALPHA,
    COUNTED_S,
    DIAGNOSIS,
    EFFECT,
    NOISES,
    _after,
    _diagnosed,
    _trending,
    _welch,
    dependent,
    independent,
    simulate,
)

TRIALS, PAIRS = 200, 60


def holds(one: Interval, truth: float) -> bool:
    low = -math.inf if one.low is None else one.low
    high = math.inf if one.high is None else one.high
    return not one.empty and low <= truth <= high


@pytest.mark.parametrize("noise", list(NOISES))
def test_without_an_effect_none_is_found_and_no_carry_over_though_there_is_no_washout(
    rng: Rng, noise: str
) -> None:
    found = simulate(rng, NOISES[noise], trials=TRIALS, washout_s=0, pairs=PAIRS)
    alarms = largest(found.contrasts(found.values)) >= math.log(1 / ALPHA)
    assert int(alarms.sum()) <= at_most(TRIALS, ALPHA)
    assert int(_diagnosed(found).sum()) <= at_most(TRIALS, 2 * DIAGNOSIS)


def test_a_change_in_the_middle_of_the_time_is_taken_for_an_effect_by_the_usual_test(rng: Rng) -> None:
    """The bound catches a method that is not valid."""
    found = simulate(rng, dependent, trials=TRIALS, washout_s=0, pairs=PAIRS)
    late = np.arange(2 * PAIRS)[None, :] >= PAIRS + np.zeros((TRIALS, 1))
    assert _welch(found.values, late) > at_most(TRIALS, ALPHA)


def test_the_interval_holds_the_effect_if_the_washout_is_long_enough_and_not_otherwise(rng: Rng) -> None:
    effect = 4 * EFFECT
    missed = {}
    for washout_s in (0, 60):
        found = simulate(
            rng, independent, trials=TRIALS, washout_s=washout_s, effect=effect, lag_s=10, pairs=PAIRS
        )
        ends = intervals([Wanted(row, ALPHA, math.log(1.03)) for row in found.contrasts(found.values)])
        missed[washout_s] = sum(not holds(one, effect) for one in ends)
    assert missed[60] <= at_most(TRIALS, ALPHA)
    assert missed[0] > at_most(TRIALS, ALPHA)


def test_a_washout_that_is_too_short_is_diagnosed_and_one_that_is_long_enough_is_not(rng: Rng) -> None:
    effect = 6 * EFFECT
    short = simulate(rng, independent, trials=TRIALS, washout_s=0, effect=effect, lag_s=10, pairs=PAIRS)
    enough = simulate(rng, independent, trials=TRIALS, washout_s=90, effect=effect, lag_s=10, pairs=PAIRS)
    assert int(_trending(short).sum()) > 0.9 * TRIALS
    assert int(_trending(enough).sum()) <= at_most(TRIALS, DIAGNOSIS)
    assert int(_after(enough).sum()) <= at_most(TRIALS, DIAGNOSIS)


def test_the_proposed_washout_leaves_about_the_error_that_was_accepted(rng: Rng) -> None:
    """By the planted transient of 50 % with a time constant of 10 s, in nine of ten pilots at most three times that."""
    tolerance, lag_s, switches, length_s = 0.01, 10.0, 16, 150
    at = np.arange(length_s) + 0.5
    left = []
    for noise in independent(rng, 60, switches * length_s):
        series = noise.reshape(switches, length_s)
        series[1::2] += math.log(1.5) * np.exp(-at / lag_s)
        series[0::2] -= math.log(1.5) * np.exp(-at / lag_s)
        washout = proposed_washout(
            [list(zip(at.tolist(), row.tolist(), strict=True)) for row in series],
            [number % 2 for number in range(switches)],
            counted_s=COUNTED_S,
            tolerance=tolerance,
        )
        share = lag_s / COUNTED_S * -math.expm1(-COUNTED_S / lag_s)
        left.append(math.log(1.5) * share * math.exp(-washout / lag_s))
    assert float(np.quantile(left, 0.9)) <= 3 * tolerance
    assert max(left) < math.log(1.5) * 0.2
