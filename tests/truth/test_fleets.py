"""The verdict over hosts, against simulated fleets with known truth.

Seeds are drawn and printed. A bound is what a valid method exceeds with probability 1e-6. The longer version is
benchmarks/truth/simulate.py.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from chance import at_most
from iotrial.stats.fleet.combine import evidence
from iotrial.stats.fleet.outliers import outliers
from iotrial.stats.fleet.spread import mean_of
from simulated.fleets import _alarms, _claimed, _contrasts, _shared
from simulated.noise import Rng, normal, spiky

ALPHA = 0.05


@pytest.mark.parametrize("noise", ["normal", "spiky", "one server's"])
def test_no_effect_anywhere_is_excluded_no_more_often_than_promised_however_hosts_stop(
    rng: Rng, noise: str
) -> None:
    fleets, hosts, blocks = 200, 6, 40
    found = [
        _alarms(
            rng,
            _shared(rng, hosts, blocks)
            if noise == "one server's"
            else _contrasts(rng, hosts, blocks, normal if noise == "normal" else spiky),
        )
        for _ in range(fleets)
    ]
    # the verdict, the product alone, the mean alone: each with a look after every round
    for alarms in np.array(found).sum(axis=0):
        assert alarms <= at_most(fleets, ALPHA)


def test_no_more_hosts_are_claimed_to_have_an_effect_than_have_one(rng: Rng) -> None:
    fleets = 150
    claimed = np.array([_claimed(rng, 8, 40, 3) for _ in range(fleets)])
    assert (claimed > 3).sum() <= at_most(fleets, ALPHA)
    assert np.median(claimed) == 3  # and they are found


def test_a_bound_that_lets_everything_through_would_be_noticed(rng: Rng) -> None:
    # the largest e-value over many hosts is not an e-value: it claims "some host" far too often
    fleets = 300
    wrong = sum(rng.exponential(size=200).max() >= math.log(1 / ALPHA) for _ in range(fleets))
    assert wrong > at_most(fleets, ALPHA)


@pytest.mark.parametrize("hosts", [2, 3, 12])
@pytest.mark.parametrize("spread", [0.0, 0.05])
def test_mean_spread_and_further_host_are_covered_with_unequal_hosts(
    rng: Rng, hosts: int, spread: float
) -> None:
    fleets = 150
    missed = dict.fromkeys(("mean", "spread", "new", "outlier"), 0)
    for _ in range(fleets):
        blocks = rng.integers(20, 400, size=hosts)
        noise = 0.08 * np.exp(rng.uniform(-0.8, 0.8, size=hosts))
        errors = noise / np.sqrt(blocks) * np.sqrt(rng.chisquare(blocks - 1) / (blocks - 1))
        true = 0.05 + spread * rng.normal(size=hosts + 1)
        estimates = true[:hosts] + noise / np.sqrt(blocks) * rng.normal(size=hosts)
        mean = mean_of(estimates, errors, ALPHA)
        missed["mean"] += not mean.low <= 0.05 <= mean.high
        missed["spread"] += not mean.spread_low <= spread <= mean.spread_high
        if mean.new_host_low is not None and mean.new_host_high is not None:
            missed["new"] += not mean.new_host_low <= true[hosts] <= mean.new_host_high
        missed["outlier"] += bool(outliers([str(i) for i in range(hosts)], estimates, errors, ALPHA))
    # tau's interval and the outliers' t are approximate (METHOD.md): up to .08
    for what, count in missed.items():
        assert count <= at_most(fleets, 0.05 if what == "mean" else 0.08), what


def test_evidence_of_hosts_that_all_have_an_effect_grows_with_their_number() -> None:
    assert evidence([1.0] * 2, ALPHA).excluded is False
    assert evidence([1.0] * 5, ALPHA).excluded is True
