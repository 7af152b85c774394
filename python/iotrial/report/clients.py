"""How far apart the clients of a run began, and how well that is known: what a reader must know of a common beginning."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from iotrial.report.notation import counted, quantity
from iotrial.store.checks import CLIENTS
from iotrial.store.model import TrialData

_LONGEST_S = 1e9


def sentences(data: TrialData) -> Iterator[str]:
    """One sentence of all runs whose clients told, those of void blocks included; none where there are none."""
    apart, bounds, most = [], [], 0
    drifts: list[tuple[float, float]] = []
    for run in data.runs:
        told = run.checks.get(CLIENTS)
        if not isinstance(told, Mapping):
            continue
        began, bound = _numbers(told.get("began_s")), _numbers(told.get("clock_bound_s"))
        if not began or not bound:
            continue
        most = max(most, len(began))
        bounds.append(max(bound))
        doubts = _numbers(told.get("clock_drift_bound_ppm"))
        # of the last run, which is the longest after the first reading
        drifts = list(zip(map(abs, _numbers(told.get("clock_drift_ppm"))), doubts, strict=False))
        if len(began) > 1:
            apart.append(max(began) - min(began))
    if not apart:
        return
    drift = ""
    if drifts:
        largest, doubt = max(drifts)
        drift = f" and drifted by {largest:,.0f} ± {doubt:,.0f} ppm at most"
    yield (
        f"The clients of a run ({counted(most, 'client')} at most) began within {quantity(median(apart), 's')} of each other "
        f"(median of {counted(len(apart), 'run')}; at most {quantity(max(apart), 's')}), on clocks that were compared before "
        f"and after each run: they were known to {quantity(max(bounds), 's')}{drift}."
    )


def _numbers(value: object) -> Sequence[float]:
    """The list as it may be believed, empty where it may not: a packed trial may hold anything."""
    if not isinstance(value, list | tuple):
        return ()
    if not all(
        isinstance(one, int | float) and math.isfinite(one) and abs(one) < _LONGEST_S for one in value
    ):
        return ()
    return [float(one) for one in value]
