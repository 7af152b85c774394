"""Leave-one-out over hosts in one sweep, against root finding and against a fit for each host."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize

from iotrial.stats.fleet.leave_one_out import direct, distances
from iotrial.stats.fleet.outliers import FEW, outliers
from iotrial.stats.fleet.spread import checked


def by_root_finding(values: np.ndarray, variances: np.ndarray, host: int) -> float:
    y, v = np.delete(values, host), np.delete(variances, host)

    def excess(between: float) -> float:
        w = 1 / (v + between)
        return float((w * (y - np.average(y, weights=w)) ** 2).sum()) - (y.size - 1)

    between = optimize.brentq(excess, 0.0, 1e3, xtol=1e-15, rtol=1e-14) if excess(0.0) > 0 else 0.0
    w = 1 / (v + between)
    mean = np.average(y, weights=w)
    return float((values[host] - mean) / math.sqrt(variances[host] + between + 1 / w.sum()))


def test_each_host_lies_as_far_from_the_others_as_root_finding_says() -> None:
    rng = np.random.default_rng(3)
    for spread in (0.0, 0.005, 0.5):
        values, errors = rng.normal(0.1, spread, 40), rng.uniform(0.005, 0.05, 40)
        wanted = [by_root_finding(values, errors**2, host) for host in range(40)]
        assert distances(values, errors**2) == pytest.approx(wanted, rel=1e-7, abs=1e-9)


def hosts(kind: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(count)
    values, errors = rng.normal(0, 0.03, count), rng.uniform(0.001, 0.02, count)
    match kind:
        case "agreeing":
            errors *= 100
        case "at the edge of a spread":
            errors[:] = 0.03
        case "one very far":
            values[0] = 1e6
        case "two very far":
            values[:2] = 1e6, -3e6
        case "heavy tails":
            values = rng.standard_cauchy(count)
        case "errors of all sizes":
            errors = np.exp(rng.normal(-4, 3, count))
        case "exact counts":
            values, errors = rng.integers(0, 5, count).astype(float), np.zeros(count)
        case "one exact":
            errors[1] = 0.0
        case "all the same":
            values[:], errors[:] = 2.0, 0.1
    return checked(values, errors)


KINDS = (
    "ordinary", "agreeing", "at the edge of a spread", "one very far", "two very far", "heavy tails",
    "errors of all sizes", "exact counts", "one exact", "all the same",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [5, 30, 300])
def test_the_sweep_gives_what_a_fit_for_each_host_gives(kind: str, count: int) -> None:
    values, variances = hosts(kind, count)
    wanted = direct(values, variances, np.arange(count))
    assert distances(values, variances) == pytest.approx(wanted, rel=1e-9, abs=1e-9)


def test_a_large_fleet_names_the_hosts_that_a_fit_for_each_host_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values, variances = hosts("ordinary", 4 * FEW)
    values[[7, 70]] += 0.2
    names = [f"h{n}" for n in range(values.size)]
    found = outliers(names, values, np.sqrt(variances), 0.05)
    monkeypatch.setattr("iotrial.stats.fleet.outliers.FEW", 10_000)
    wanted = outliers(names, values, np.sqrt(variances), 0.05)
    assert [one.host for one in found] == [one.host for one in wanted]
    assert {"h7", "h70"} <= {one.host for one in found}
    for one, other in zip(found, wanted, strict=True):
        assert (one.distance, one.p) == pytest.approx((other.distance, other.p), rel=1e-8)
