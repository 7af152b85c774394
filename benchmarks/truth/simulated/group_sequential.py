"""Group-sequential tests: a few planned looks, with boundaries that keep the error over all of them.

The statistic Z_k at information fraction t_k = k/K has independent increments: S_k = Z_k sqrt(t_k) is a Brownian motion
looked at K times. The density of S_k on the paths that have not left is carried from look to look by numerical
integration (Armitage, McPherson and Rowe, J. R. Stat. Soc. A 132, 1969). O'Brien and Fleming (Biometrics 35, 1979) and
Pocock (Biometrika 64, 1977) give the shape of the boundary and one constant; Lan and DeMets (Biometrika 70, 1983) an
error-spending function. With t statistics each boundary is used at its nominal p-value (Jennison and Turnbull, *Group
Sequential Methods*, 2000, section 3.8), a good approximation from some tens of blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from scipy import optimize, special, stats

from simulated.noise import Floats

_POINTS = 401


@dataclass(frozen=True, slots=True)
class _Staying:
    """The density of S on the paths that have not left, on a grid, at a time; None before the first look."""

    time: float = 0.0
    grid: Floats | None = None
    density: Floats | None = None

    def leaving(self, limit: float, t: float) -> float:
        """Return P(|Z| >= limit at the next look, at time t, and not before)."""
        if self.grid is None or self.density is None:
            return float(2 * stats.norm.sf(limit))
        end, step_sd = limit * math.sqrt(t), math.sqrt(t - self.time)
        out = special.ndtr((self.grid - end) / step_sd) + special.ndtr((-end - self.grid) / step_sd)
        return float((_simpson(self.grid) * self.density * out).sum())

    def after(self, limit: float, t: float) -> _Staying:
        """Return the density of the paths that stay at this look."""
        end, step_sd = limit * math.sqrt(t), math.sqrt(t - self.time)
        new = np.linspace(-end, end, _POINTS)
        if self.grid is None or self.density is None:
            return _Staying(t, new, _bell(new / step_sd) / step_sd)
        weights = _simpson(self.grid) * self.density
        return _Staying(t, new, _bell((new[:, None] - self.grid[None, :]) / step_sd) @ weights / step_sd)


def exit_probabilities(boundary: Sequence[float], fractions: Sequence[float]) -> list[float]:
    """Return P(first |Z_k| >= boundary_k at look k) under no effect, for each k."""
    found: list[float] = []
    staying = _Staying()
    for limit, t in zip(boundary, fractions, strict=True):
        found.append(staying.leaving(limit, t))
        staying = staying.after(limit, t)
    return found


def _bell(z: Floats) -> Floats:
    density: Floats = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return density


def _simpson(grid: Floats) -> Floats:
    weights = np.ones(grid.size)
    weights[1:-1:2], weights[2:-1:2] = 4.0, 2.0
    step: float = (grid[1] - grid[0]) / 3.0
    return weights * step


def _with_constant(
    shape: Callable[[float], float], looks: int, alpha: float
) -> tuple[float, tuple[float, ...]]:
    fractions = [k / looks for k in range(1, looks + 1)]

    def excess(constant: float) -> float:
        return sum(exit_probabilities([constant * shape(t) for t in fractions], fractions)) - alpha

    constant = float(optimize.brentq(excess, 1.0, 6.0, xtol=1e-6))
    return constant, tuple(constant * shape(t) for t in fractions)


@lru_cache
def pocock(looks: int, alpha: float = 0.05) -> tuple[float, tuple[float, ...]]:
    """Return Pocock's constant and the boundary of |Z|, the same at every look."""
    return _with_constant(lambda t: 1.0, looks, alpha)  # noqa: ARG005


@lru_cache
def obrien_fleming(looks: int, alpha: float = 0.05) -> tuple[float, tuple[float, ...]]:
    """Return O'Brien and Fleming's constant (that of the last look) and the boundary of |Z|."""
    return _with_constant(lambda t: 1.0 / math.sqrt(t), looks, alpha)


@lru_cache
def spending(looks: int, alpha: float = 0.05) -> tuple[float, ...]:
    """Return the boundary of |Z| that spends alpha by Lan and DeMets' function of O'Brien-Fleming type.

    Each side spends 2 - 2 Phi(z / sqrt(t)), where z is the upper alpha/4 point.
    """
    fractions = [k / looks for k in range(1, looks + 1)]
    z = stats.norm.isf(alpha / 4)
    spent = [float(4 * stats.norm.sf(z / math.sqrt(t))) for t in fractions]
    limits: list[float] = []
    staying = _Staying()
    for k, t in enumerate(fractions):
        wanted = spent[k] - (spent[k - 1] if k else 0.0)
        leaving = partial(_excess, staying, t, wanted)
        limits.append(float(optimize.brentq(leaving, 0.5, 12.0, xtol=1e-6)))
        staying = staying.after(limits[-1], t)
    return tuple(limits)


def _excess(staying: _Staying, t: float, wanted: float, limit: float) -> float:
    return staying.leaving(limit, t) - wanted


def first_rejection(contrasts: Floats, boundary: Sequence[float]) -> Floats:
    """Return the block at which a paired t test with these looks rejects, infinite if never (from trials by blocks)."""
    blocks = contrasts.shape[1]
    out = np.full(contrasts.shape[0], np.inf)
    for k, limit in enumerate(boundary, start=1):
        n = round(k * blocks / len(boundary))
        if n < 2:
            continue
        part = contrasts[:, :n]
        with np.errstate(invalid="ignore", divide="ignore"):
            t = part.mean(axis=1) / (part.std(axis=1, ddof=1) / math.sqrt(n))
        critical = stats.t.isf(stats.norm.sf(limit), n - 1)
        out = np.where(np.isinf(out) & (np.abs(t) >= critical), float(n), out)
    return out
