"""The guard's test of harm is a fair bet at its limit, and fast."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from iotrial.stats.switchback import log_capital, log_harm

ALPHA = 0.05


@pytest.mark.parametrize("sizes", [(1.0,) * 8, (0.1, 3.0, 0.2, 0.2, 8.0, 0.5, 1.0, 1.0)])
def test_the_capital_is_a_martingale_where_the_effect_is_at_the_limit(sizes: tuple[float, ...]) -> None:
    """All orders of the pairs are equally likely, so all signs are: the exact mean over them is 1 after each block."""
    limit = 0.2
    every = [
        np.exp(log_capital([limit + sign * size for sign, size in zip(signs, sizes, strict=True)], limit))
        for signs in itertools.product((-1.0, 1.0), repeat=len(sizes))
    ]
    assert np.mean(every, axis=0) == pytest.approx(np.ones(len(sizes)))


def test_a_setting_at_the_limit_is_rarely_called_harmful_however_often_it_is_looked_at() -> None:
    alarms = [
        log_harm(signs, 0.0) >= math.log(1 / ALPHA) for signs in itertools.product((-1.0, 1.0), repeat=14)
    ]
    assert np.mean(alarms) <= ALPHA


def test_a_setting_better_than_the_limit_is_called_harmful_even_more_rarely() -> None:
    orders = list(itertools.product((-1.0, 1.0), repeat=14))
    threshold = math.log(1 / ALPHA)
    better = np.mean([log_harm([-0.5 + sign for sign in signs], 0.0) >= threshold for signs in orders])
    assert better < np.mean([log_harm(signs, 0.0) >= threshold for signs in orders])


def test_clear_harm_is_shown_after_six_blocks_and_never_before_five() -> None:
    harm = [math.log(2.0)] * 6
    limit = math.log(1.2)
    assert log_harm(harm, limit) >= math.log(1 / ALPHA)
    assert log_harm(harm[:4], limit) < math.log(1 / ALPHA)


def test_no_blocks_show_nothing() -> None:
    assert log_harm([], 0.0) == 0.0
