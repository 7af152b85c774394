"""One comparison over several hosts, against worked examples, scipy and brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import optimize, stats

from iotrial.stats.fleet import chi_square
from iotrial.stats.fleet.combine import combine, evidence
from iotrial.stats.fleet.model import HostEffect
from iotrial.stats.fleet.moderators import moderators
from iotrial.stats.fleet.outliers import outliers
from iotrial.stats.fleet.spread import mean_of

# Thirteen trials of the BCG vaccine, log risk ratios and their variances (Colditz et al., JAMA 271, 1994).
BCG = np.array(
    [-0.8893, -1.5854, -1.3481, -1.4416, -0.2175, -0.7861, -1.6209, 0.0120, -0.4694, -1.3713, -0.3394, 0.4459, -0.0173]
)  # fmt: skip
BCG_VARIANCES = np.array(
    [0.3256, 0.1946, 0.4154, 0.0200, 0.0512, 0.0069, 0.2230, 0.0040, 0.0564, 0.0730, 0.0124, 0.5325, 0.0714]
)


def q(tau_squared: float, values: np.ndarray, variances: np.ndarray) -> float:
    weights = 1 / (variances + tau_squared)
    mean = (weights * values).sum() / weights.sum()
    return float((weights * (values - mean) ** 2).sum())


def host(
    name: str, estimate: float | None = 0.0, error: float | None = 0.01, **changes: object
) -> HostEffect:
    plain: dict[str, object] = {"low": None, "high": None, "log_e": 0.0, "blocks": 50}
    return HostEffect(name, estimate, error, **{**plain, **changes})  # type: ignore[arg-type]


def test_the_published_spread_of_the_bcg_trials_and_its_published_interval_are_found() -> None:
    found = mean_of(BCG, np.sqrt(BCG_VARIANCES), 0.05)
    # metafor's documentation of confint.rma.uni: tau^2 between 0.1197 and 1.1115 by the Q-profile
    assert found.spread_low**2 == pytest.approx(0.1197, abs=5e-5)
    assert found.spread_high**2 == pytest.approx(1.1115, abs=5e-4)


def test_spread_and_mean_are_what_scipy_s_root_finding_gives() -> None:
    rng = np.random.default_rng(7)
    for count in (2, 3, 8, 40):
        values, variances = rng.normal(0, 0.2, count), rng.uniform(1e-4, 0.01, count)
        found = mean_of(values, np.sqrt(variances), 0.1)
        if q(0.0, values, variances) > count - 1:
            tau = optimize.brentq(lambda t, v=values, w=variances, k=count: q(t, v, w) - (k - 1), 0, 10)
        else:
            tau = 0.0
        weights = 1 / (variances + tau)
        mean, error = (weights * values).sum() / weights.sum(), 1 / math.sqrt(weights.sum())
        assert found.spread**2 == pytest.approx(tau, rel=1e-8, abs=1e-14)
        assert found.value == pytest.approx(mean)
        assert found.high - found.value == pytest.approx(stats.t.isf(0.05, count - 1) * error)
        if count > 2:
            assert found.new_host_high is not None
            wanted = stats.t.isf(0.05, count - 2) * math.sqrt(tau + error**2)
            assert found.new_host_high - found.value == pytest.approx(wanted)


def test_two_hosts_have_a_mean_with_an_honest_interval_and_say_nothing_of_a_third() -> None:
    found = mean_of(np.array([0.1, 0.3]), np.array([0.01, 0.01]), 0.05)
    # equal weights: tau^2 + v = (y1 - y2)^2 / 2 = 0.02, standard error sqrt(0.02 / 2) = 0.1, and t with 1
    # degree of freedom is tan(0.475 pi)
    assert found.value == pytest.approx(0.2)
    assert found.spread == pytest.approx(math.sqrt(0.02 - 1e-4))
    assert found.high - found.low == pytest.approx(2 * math.tan(0.475 * math.pi) * 0.1)
    assert found.new_host_low is None


def test_hosts_that_agree_by_luck_do_not_make_the_interval_shorter_than_their_errors_allow() -> None:
    found = mean_of(np.array([0.1, 0.1, 0.1]), np.array([0.03, 0.03, 0.03]), 0.05)
    assert found.spread == 0.0
    assert found.high - found.value == pytest.approx(stats.t.isf(0.025, 2) * 0.03 / math.sqrt(3))


def test_exact_counts_without_any_error_have_finite_weights() -> None:
    found = mean_of(np.array([4.0, 4.0, 7.0]), np.zeros(3), 0.05)
    assert found.value == pytest.approx(5.0)
    assert found.spread == pytest.approx(math.sqrt(3.0))  # the plain standard deviation
    same = mean_of(np.array([4.0, 4.0]), np.zeros(2), 0.05)
    assert same.low == pytest.approx(4.0)
    assert same.spread == 0.0


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        mean_of(np.array([0.1, math.nan]), np.array([0.1, 0.1]), 0.05)
    with pytest.raises(ValueError, match="two"):
        mean_of(np.array([0.1]), np.array([0.1]), 0.05)
    with pytest.raises(ValueError, match="not a number"):
        evidence([math.nan], 0.05)


@pytest.mark.parametrize("freedom", [1, 2, 9, 99, 999])
def test_quantiles_of_chi_square_are_scipy_s(freedom: int) -> None:
    for probability in (0.999, 0.975, 0.5, 0.025, 1e-6):
        assert chi_square.quantile(probability, freedom) == pytest.approx(
            stats.chi2.isf(probability, freedom)
        )


def test_e_values_are_multiplied_averaged_and_the_half_of_both_is_judged() -> None:
    found = evidence([math.log(e) for e in (2.0, 0.5, 40.0)], 0.05)
    assert math.exp(found.log_e_product) == pytest.approx(40.0)
    assert math.exp(found.log_e_mean) == pytest.approx(42.5 / 3)
    assert math.exp(found.log_e) == pytest.approx((40 + 42.5 / 3) / 2)
    assert found.excluded
    assert found.least_hosts_with_an_effect == 0
    assert evidence([math.log(e) for e in (2.0, 0.5, 40.0)], 0.1).least_hosts_with_an_effect == 1


def test_the_least_number_of_hosts_with_an_effect_is_that_of_closed_testing_by_brute_force() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        values = np.exp(rng.normal(1, 3, size=6))
        # "no effect on this set of hosts" is rejected if it is rejected for every superset, each tested by
        # its mean
        rejected = {
            one
            for size in range(1, 7)
            for one in itertools.combinations(range(6), size)
            if np.mean(values[list(one)]) >= 20
        }
        largest = max(
            (len(one) for size in range(1, 7) for one in itertools.combinations(range(6), size) if one not in rejected),
            default=0,
        )  # fmt: skip
        assert evidence(np.log(values).tolist(), 0.05).least_hosts_with_an_effect == 6 - largest


def test_e_values_beyond_all_numbers_are_no_trouble() -> None:
    found = evidence([-math.inf, 5e6, 0.0], 0.05)
    assert math.isinf(found.log_e_product)
    assert found.excluded
    assert found.least_hosts_with_an_effect == 1
    assert evidence([-math.inf, -math.inf], 0.05).least_hosts_with_an_effect == 0
    assert evidence([], 0.05).excluded is False


def test_an_outlying_host_is_named_and_its_distance_is_that_from_all_others() -> None:
    values = np.array([0.10, 0.12, 0.09, 0.11, 0.10, 0.13, 0.50])
    errors = np.full(7, 0.01)
    (found,) = outliers([f"h{i}" for i in range(7)], values, errors, 0.05)
    others = mean_of(values[:6], errors[:6], 0.05)
    distance = (0.5 - others.value) / math.sqrt(0.01**2 + others.spread**2 + others.error**2)
    assert found.host == "h6"
    assert found.distance == pytest.approx(distance)
    assert found.p == pytest.approx(7 * 2 * stats.t.sf(distance, 5))
    assert outliers(["a", "b", "c", "d"], values[3:], errors[3:], 0.05) == ()


def test_groups_of_a_property_are_compared_as_a_weighted_regression_does() -> None:
    rng = np.random.default_rng(11)
    kernels = ["6.1"] * 5 + ["6.12"] * 4 + ["5.10"]
    values = rng.normal(0.1, 0.05, 10) + 0.2 * np.array([k == "6.12" for k in kernels])
    variances = rng.uniform(1e-4, 1e-3, 10)
    properties = [{"kernel": kernel, "same": "x", "own": str(i)} for i, kernel in enumerate(kernels)]
    (table,), comparisons = moderators(properties, values, np.sqrt(variances), 0.05)
    assert comparisons == 1
    assert [(group.value, group.hosts) for group in table.groups] == [("6.1", 5), ("6.12", 4), ("5.10", 1)]
    assert table.groups[2].low is None
    (difference,) = table.differences
    # a host that is the only one with its kernel takes no part
    y, v = values[:9], variances[:9]
    x = np.column_stack([np.ones(9), np.arange(9) >= 5])

    def fitted(t: float) -> tuple[np.ndarray, np.ndarray]:
        w = np.diag(1 / (v + t))
        covariance = np.linalg.inv(x.T @ w @ x)
        return covariance @ x.T @ w @ y, covariance

    def excess(t: float) -> float:
        return float((((y - x @ fitted(t)[0]) ** 2) / (v + t)).sum()) - 7

    coefficients, covariance = fitted(float(optimize.brentq(excess, 0, 1)))
    assert difference.value == pytest.approx(coefficients[1])
    assert difference.high - difference.value == pytest.approx(
        stats.t.isf(0.025, 7) * math.sqrt(covariance[1, 1])
    )
    assert difference.shown


def test_properties_that_all_hosts_share_or_each_has_alone_are_not_listed() -> None:
    found, comparisons = moderators(
        [{"a": "1", "b": str(i)} for i in range(6)], np.arange(6.0), np.ones(6), 0.05
    )
    assert (found, comparisons) == ((), 0)


def test_a_host_that_does_not_count_is_never_averaged_whatever_its_effect() -> None:
    sound = [host(f"h{i}", 0.1 + i / 100) for i in range(6)]
    plain = combine(sound, alpha=0.05, limit=math.log(1.03))
    others = [
        host("invalid", 5.0, distrusted="invalid", log_e=600.0),
        host("short", 5.0, blocks=7),
        host("running", 5.0, left_out="still running"),
        host("none", None, None),
    ]
    found = combine([*others, *sound], alpha=0.05, limit=math.log(1.03))
    assert found.mean == plain.mean
    assert found.outliers == plain.outliers == ()
    assert found.evidence.hosts == 9  # all but the invalid one
    assert not found.evidence.excluded


@pytest.mark.parametrize(
    ("centre", "word"), [(0.0, "equivalent"), (0.1, "higher"), (-0.1, "lower"), (0.015, "inconclusive")]
)
def test_the_mean_is_worded_by_its_interval(centre: float, word: str) -> None:
    hosts = [host(str(i), centre + offset) for i, offset in enumerate((-0.02, -0.01, 0.0, 0.01, 0.02))]
    limit = math.log(1.03)
    found = combine(hosts, alpha=0.05, limit=limit)
    assert found.mean is not None
    # by hand: the plain standard error is .0071, t with 4 degrees of freedom 2.78, so the half-width is .0196
    assert found.mean.high - found.mean.value == pytest.approx(2.776 * math.sqrt(2.5e-4 / 5), rel=1e-3)
    assert found.word == word


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_hosts_have_no_mean(count: int) -> None:
    found = combine([host("only", 0.2, log_e=9.0)][:count], alpha=0.05, limit=0.03)
    assert (found.mean, found.word) == (None, "none")
    assert found.evidence.excluded is bool(count)
