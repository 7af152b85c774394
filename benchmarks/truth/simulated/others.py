"""Other common tests on the same runs: Welch's at a fixed number, Welch's at every look, the anytime-valid t."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from simulated.noise import Floats

FIRST_LOOK = 8


def welch_at(a: Floats, b: Floats, runs: int, alpha: float = 0.05) -> np.ndarray:
    """Return whether Welch's test of the first ``runs`` of each arm rejects (arms: trials by blocks)."""
    p = stats.ttest_ind(a[:, :runs], b[:, :runs], axis=1, equal_var=False).pvalue
    return np.asarray(p <= alpha)


def welch_every_look(a: Floats, b: Floats, alpha: float = 0.05) -> Floats:
    """Return the block at which Welch's test first rejects, with a look after each from the 8th; infinite if never."""
    n = np.arange(1, a.shape[1] + 1)
    (mean_a, var_a), (mean_b, var_b) = _running(a, n), _running(b, n)
    error = (var_a + var_b) / n
    with np.errstate(invalid="ignore", divide="ignore"):
        t = np.abs(mean_a - mean_b) / np.sqrt(error)
        df = (error**2) / (((var_a / n) ** 2 + (var_b / n) ** 2) / np.maximum(n - 1, 1))
    rejects = t >= _student(alpha, np.maximum(df, 1.0))
    rejects[:, : FIRST_LOOK - 1] = False
    return np.where(rejects.any(axis=1), rejects.argmax(axis=1) + 1.0, np.inf)


def _running(x: Floats, n: np.ndarray) -> tuple[Floats, Floats]:
    mean = np.cumsum(x, axis=1) / n
    variance = np.maximum(np.cumsum(x**2, axis=1) - n * mean**2, 1e-300) / np.maximum(n - 1, 1)
    return mean, variance


def _student(alpha: float, df: Floats) -> Floats:
    """Return the two-sided point of Student's t, interpolated in 1/df between exact ones."""
    inverse = np.linspace(1e-4, 1.0, 4000)
    found: Floats = np.interp(1.0 / df, inverse, stats.t.isf(alpha / 2, 1.0 / inverse))
    return found


def anytime_t(contrasts: Floats, alpha: float = 0.05, c: float = 3.0) -> np.ndarray:
    """Return whether the anytime-valid t test (Wang and Ramdas, arXiv 2310.03722) rejects 0 at a look after any block."""
    n = np.arange(1, contrasts.shape[1] + 1)
    total, squares = np.cumsum(contrasts, axis=1), np.cumsum(contrasts**2, axis=1)
    inner = np.maximum(1.0 - total**2 / ((n + c) * np.maximum(squares, 1e-300)), 1e-300)
    log_e = 0.5 * np.log(c / (n + c)) - 0.5 * n * np.log(inner)
    return np.asarray((log_e[:, 1:] >= math.log(1 / alpha)).any(axis=1))
