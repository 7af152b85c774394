"""Histograms of latencies: what a share of the operations does not exceed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def histogram_quantile(latency_ns: Floats, counts: Floats, share: float) -> float:
    """The latency that ``share`` of the operations do not exceed. ``latency_ns`` ascending, with the count of each."""
    running = np.cumsum(counts)
    position = int(np.searchsorted(running, share * running[-1], side="left"))
    return float(latency_ns[min(position, latency_ns.size - 1)])
