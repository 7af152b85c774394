"""Leave-one-out mean and spread for every host, at the cost of about a hundred sums over all hosts.

The fit without a host has its own tau squared, t. Finding all of them directly takes a sum over all hosts for each host. But
the summed terms w = 1/(v + t), w y, w y^2, and the same with w^2, are analytic functions of the logarithm s of (least v) + t,
with no pole closer than pi to the real axis. So on an interval of s of length ln 2, the polynomial through ``_NODES``
Chebyshev points is exact to rounding (Trefethen, Approximation Theory and Approximation Practice, 2013, theorem 8.2: each
point reduces the error by a factor of 18), and the host's own term is subtracted from it. Newton's steps are as in
``spread.fit``.

If one host contributes nearly all of a sum, subtracting its term leaves only rounding error. There can be only a few such
hosts; they are fitted directly.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iotrial.stats.fleet.spread import Floats, fit

_NODES = 16
_ROUNDS = 100
_PRECISION = 1e-12
#: minimum share of a sum that must be left without a host
_LEFT = 1e-3
_OF_ONE_SIGN = [0, 2, 3, 5]  # those of the six sums with terms of one sign
_ROWS = 256  # batch size of direct fits


def direct(values: Floats, variances: Floats, rows: npt.NDArray[np.int64]) -> Floats:
    """Return the distance of these hosts from the mean of all others, in standard deviations of the difference.

    Each host gets a separate fit.
    """
    found = [np.empty(0)]
    for start in range(0, rows.size, _ROWS):
        some = rows[start : start + _ROWS]
        members = np.ones((some.size, 1, values.size))
        members[np.arange(some.size), 0, some] = 0.0
        others = fit(values, variances, members)
        total = variances[some] + others.between + 1.0 / others.weights[:, 0]
        found.append((values[some] - others.means[:, 0]) / np.sqrt(total))
    return np.concatenate(found)


def distances(values: Floats, variances: Floats) -> Floats:
    """Return the result of ``direct`` for all hosts (at least three), to about ten digits."""
    target, least = values.size - 2.0, float(variances.min())
    y = values - np.median(values)  # avoids cancellation in the sums of squares
    sums = _sums(y, variances, 0.0)
    own = _terms(y, variances, 0.0)
    found = _distance(y, variances, 0.0, sums - own)
    dominated = _dominated(sums, own)
    left = np.flatnonzero(_excess(sums - own, target)[0] > 0)
    low = 0.0
    while left.size:  # their tau squared is above ``low``; this round solves those not above ``high``
        high = 2.0 * low + least
        beyond = _sums(y, variances, high) - _terms(y[left], variances[left], high)
        here = _excess(beyond, target)[0] <= 0
        rows, left = left[here], left[~here]
        if rows.size:
            between = _Between(y, variances, low, high, least)
            at, sums, own = _solved(y[rows], variances[rows], between, low, target)
            found[rows] = _distance(y[rows], variances[rows], at, sums - own)
            dominated[rows] |= _dominated(sums, own)
        low = high
    alone = np.flatnonzero(dominated)
    found[alone] = direct(values, variances, alone)
    return found


class _Between:
    """Interpolation of the sums over all hosts for any tau squared from ``low`` to ``high``."""

    def __init__(self, y: Floats, variances: Floats, low: float, high: float, least: float) -> None:
        self._least = least
        angles = (np.arange(_NODES) + 0.5) * np.pi / _NODES
        begin, end = np.log(least + low), np.log(least + high)
        self._places = (begin + end) / 2 + (end - begin) / 2 * np.cos(angles)
        self._sums = np.stack(
            [_sums(y, variances, one)[:, 0] for one in np.exp(self._places) - least], axis=1
        )
        # Berrut and Trefethen, Barycentric Lagrange interpolation, SIAM Review 46 (2004), formula 5.3
        self._weights = (-1.0) ** np.arange(_NODES) * np.sin(angles)

    def at(self, between: Floats) -> Floats:
        """Return the six sums at each host's tau squared."""
        apart = np.log(self._least + between)[:, None] - self._places
        met = apart == 0.0
        share = self._weights / np.where(met, 1.0, apart)
        share = np.where(met.any(axis=1, keepdims=True), met.astype(float), share)
        found: Floats = self._sums @ (share / share.sum(axis=1, keepdims=True)).T
        return found


def _solved(
    y: Floats, variances: Floats, all_of_them: _Between, low: float, target: float
) -> tuple[Floats, Floats, Floats]:
    """Return tau squared without each of these hosts, and at that value the sums over all hosts and the host's own terms."""
    between = np.full(y.size, low)
    for _ in range(_ROUNDS):
        sums, own = all_of_them.at(between), _terms(y, variances, between)
        excess, slope = _excess(sums - own, target)
        step = np.where((excess > 0) & (slope > 0), excess / np.where(slope > 0, slope, 1.0), 0.0)
        between = between + step
        if (step <= _PRECISION * between).all():
            break
    return between, all_of_them.at(between), _terms(y, variances, between)


def _terms(y: Floats, variances: Floats, between: Floats | float) -> Floats:
    """Return six rows by host: w, w y, w y^2, w^2, w^2 y, w^2 y^2."""
    w = 1.0 / (variances + between)
    far = w * y
    return np.stack([w, far, far * y, w * w, w * far, far * far])


def _sums(y: Floats, variances: Floats, between: float) -> Floats:
    """Return the sums of the six rows, as a column."""
    found: Floats = _terms(y, variances, between).sum(axis=1, keepdims=True)
    return found


def _excess(rest: Floats, target: float) -> tuple[Floats, Floats]:
    """Return the excess of the remaining hosts' generalised Q over its expectation, and minus its slope."""
    mean = rest[1] / rest[0]
    return rest[2] - rest[1] * mean - target, rest[5] - 2.0 * mean * rest[4] + mean * mean * rest[3]


def _distance(y: Floats, variances: Floats, between: Floats | float, rest: Floats) -> Floats:
    found: Floats = (y - rest[1] / rest[0]) / np.sqrt(variances + between + 1.0 / rest[0])
    return found


def _dominated(sums: Floats, own: Floats) -> npt.NDArray[np.bool_]:
    """Return which hosts leave too little of a sum."""
    too_little = (sums - own)[_OF_ONE_SIGN] < _LEFT * sums[_OF_ONE_SIGN]
    return np.asarray(np.any(too_little, axis=0))
