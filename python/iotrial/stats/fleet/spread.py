"""Random-effects model for effects that differ between hosts: y_h = mean + u_h + e_h.

u_h has standard deviation tau (the spread), e_h the host's own standard error. tau is the estimate of Paule and Mandel
(Journal of Research of the NBS 87, 1982): the generalised Q, the sum of w (y - mean)^2 with w = 1/(v + tau^2), equals its
expectation, the degrees of freedom. Its interval inverts Q's chi-square distribution (Q-profile; Viechtbauer, Statistics in
Medicine 26, 2007). The mean's interval is that of Hartung, Knapp, Sidik and Jonkman with Student's t at H - 1 degrees of
freedom, but never with a smaller error than the model's own (Roever, Knapp and Friede, BMC Medical Research Methodology 15,
2015), since it would be absurdly short for two or three hosts that agree by chance. With Paule and Mandel's tau the two
errors are equal if tau > 0, so the interval is mean +- t / sqrt(sum of w). The prediction interval of a new host's effect is
mean +- t (H - 2 degrees of freedom) times sqrt(tau^2 + error^2) (Higgins, Thompson and Spiegelhalter, JRSS A 172, 2009).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iotrial.stats.fleet import chi_square
from iotrial.stats.fleet.model import Mean
from iotrial.stats.student import quantile

Floats = npt.NDArray[np.float64]

# lower limit of a standard error, relative to the scale of the effects, so that exact counts have finite weights
_LEAST_ERROR = 1e-6
_ROUNDS = 300
_PRECISION = 1e-12


@dataclass(frozen=True, slots=True)
class Fit:
    """Weighted means by row and group (NaN for a group without members), their sums of weights, and tau squared by row."""

    means: Floats
    weights: Floats
    between: Floats


def mean_of(estimates: Floats, errors: Floats, alpha: float) -> Mean:
    """Return mean, spread and prediction interval of two or more hosts; ValueError for fewer or for non-finite values."""
    values, variances = checked(estimates, errors)
    count = values.size
    if count < 2:
        raise ValueError("a mean over hosts takes two of them")
    found = fit(values, variances, np.ones((1, 1, count)))
    value, between = float(found.means[0, 0]), float(found.between[0])
    error = 1.0 / math.sqrt(float(found.weights[0, 0]))
    reach = quantile(alpha, count - 1) * error
    beyond = None if count < 3 else quantile(alpha, count - 2) * math.sqrt(between + error * error)
    low, high = _profile(values, variances, alpha)
    return Mean(
        hosts=count,
        value=value,
        low=value - reach,
        high=value + reach,
        error=error,
        spread=math.sqrt(between),
        spread_low=low,
        spread_high=high,
        new_host_low=None if beyond is None else value - beyond,
        new_host_high=None if beyond is None else value + beyond,
    )


def checked(estimates: Floats, errors: Floats) -> tuple[Floats, Floats]:
    """Return values and variances, with errors raised to at least a millionth of the scale; ValueError for invalid input."""
    values, spread = np.asarray(estimates, dtype=np.float64), np.asarray(errors, dtype=np.float64)
    if values.shape != spread.shape or values.ndim != 1:
        raise ValueError("one estimate and one error a host")
    if not (np.isfinite(values).all() and np.isfinite(spread).all() and (spread >= 0).all()):
        raise ValueError("estimates and errors must be finite, errors not negative")
    if values.size == 0:
        return values, spread
    scale = max(float(np.ptp(values)), float(spread.max()), 1e-9 * float(np.abs(values).max()), 1e-150)
    return values, np.maximum(spread, _LEAST_ERROR * scale) ** 2


def fit(values: Floats, variances: Floats, members: Floats, target: Floats | None = None) -> Fit:
    """Fit tau squared, common to the groups of a row, and the groups' means, for every row of ``members``.

    ``members`` has shape (rows, groups, hosts), 1 for a host in the group. ``target``: the value that the generalised Q must
    equal, by row (default: the degrees of freedom). Newton's method from 0 never overshoots, because Q is convex and
    decreasing.
    """
    if target is None:
        target = members.sum(axis=(1, 2)) - (members.sum(axis=2) > 0).sum(axis=1)
    between = np.zeros(members.shape[0])
    for _ in range(_ROUNDS):
        weights, means, q, slope = _state(values, variances, members, between)
        excess = np.where(target > 0, q - target, 0.0)
        step = np.where((excess > 0) & (slope > 0), excess / np.where(slope > 0, slope, 1.0), 0.0)
        between = between + step
        if (step <= _PRECISION * between).all():
            break
    weights, means, _, _ = _state(values, variances, members, between)
    return Fit(means, weights, between)


def _state(
    values: Floats, variances: Floats, members: Floats, between: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    weight = members / (variances[None, None, :] + between[:, None, None])
    total = weight.sum(axis=2)
    with np.errstate(invalid="ignore"):
        means = (weight @ values) / total
    far = np.where(members > 0, (values[None, None, :] - means[:, :, None]) ** 2, 0.0)
    q = (weight * far).sum(axis=(1, 2))
    slope = (weight * weight * far).sum(axis=(1, 2))
    return total, means, q, slope


def _profile(values: Floats, variances: Floats, alpha: float) -> tuple[float, float]:
    """Return the interval of tau; both ends are 0 if hosts agree better than their errors predict."""
    all_in = np.ones((2, 1, values.size))
    target = np.array([chi_square.quantile(p, values.size - 1) for p in (alpha / 2, 1 - alpha / 2)])
    found = fit(values, variances, all_in, target).between
    return math.sqrt(float(found[0])), math.sqrt(float(found[1]))
