"""Sentences on figures of runs: how the level moves, where distributions differ most.

They are computed from the drawn numbers and descriptive: whether arms differ is said with the effects.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from iotrial.report.evidence import histogram_quantile
from iotrial.report.notation import capitalised, counted, elided, joined, percent, quantity
from iotrial.report.phrases import spoken
from iotrial.report.series import (
    Arm,
    ArmSeries,
    Floats,
    LatencyPanel,
    Panel,
    quantiles_of,
)
from iotrial.report.within import Curve, WithinPanel
from iotrial.stats.change_points import FEWEST
from iotrial.stats.model import Diagnostic
from iotrial.units import format_duration

MOST_NAMED = 5
_PARTS = 10
_FEWEST_A_STRETCH = 3
_TOGETHER = 0.8
_TIMES = {1: "once", 2: "twice"}


def runs_seen(panel: Panel, diagnostic: Diagnostic | None) -> str:
    """E.g. "The level of the blocks changes twice, and the arms rise and fall together"."""
    text = _level(panel, diagnostic) or f"{counted(panel.runs, 'run')} of {counted(len(panel.series), 'arm')}"
    return f"{capitalised(text)}."


def _level(panel: Panel, diagnostic: Diagnostic | None) -> str:
    parts = []
    if diagnostic is not None and diagnostic.blocks >= FEWEST and diagnostic.drift_per_hour is not None:
        times = len(diagnostic.changes)
        changes = f"the level of the blocks changes {_TIMES.get(times, f'{times} times')}"
        parts.append(changes if times else "no change of level between blocks was found")
    treatments = [series for series in panel.series if not series.arm.is_control]
    least = least_agreement(treatments)
    if least is not None and least >= _TOGETHER:
        by = f"{'at least ' if len(treatments) > 2 else ''}{least:.2f}"
        parts.append(f"the arms rise and fall together (their medians over time correlate by {by})")
    return ", and ".join(parts)


def least_agreement(treatments: Sequence[ArmSeries]) -> float | None:
    """Return the smallest correlation between the first treatment's medians over ten intervals of time and another's.

    None if an interval holds too few runs for a median.
    """
    usable = [series for series in treatments if series.counted.size]
    if len(usable) < 2:
        return None
    times = np.concatenate([series.at_s[~series.void] for series in usable])
    edges = np.quantile(times, np.linspace(0, 1, _PARTS + 1)[1:-1])
    medians = []
    for series in usable:
        part = np.searchsorted(edges, series.at_s[~series.void], side="right")
        parts = [series.counted[part == number] for number in range(_PARTS)]
        if min(part.size for part in parts) < _FEWEST_A_STRETCH:
            return None
        medians.append([float(np.median(part)) for part in parts])
    if min(np.ptp(row) for row in medians) == 0:
        return None
    return min(float(np.corrcoef(medians[0], other)[0, 1]) for other in medians[1:])


def distribution_seen(panel: Panel) -> str:
    """Describe where the curves of two treatments are farthest apart, and the medians."""
    treatments = [series for series in panel.series if not series.arm.is_control and series.counted.size]
    if not treatments:
        return "No valid run."
    medians = [
        f"{_name(series.arm)} {quantity(quantiles_of(series.counted)[2], panel.unit)}"
        for series in treatments[:MOST_NAMED]
    ]
    text = f"Medians of {spoken(panel.response)}: {', '.join(medians)}"
    if len(treatments) < 2:
        return f"{text}."
    first = treatments[0]
    gap, value, other = max(
        ((*widest_gap(first.counted, series.counted), series) for series in treatments[1:]),
        key=lambda found: found[0],
    )
    if gap == 0:
        return f"{text}; the curves coincide."
    shares = [
        f"{_share(float(np.mean(s.counted <= value)))} of the runs of {_name(s.arm)}" for s in (other, first)
    ]
    return f"{text}; largest gap at {quantity(value, panel.unit)}, which {joined(shares)} do not exceed."


def widest_gap(one: Floats, other: Floats) -> tuple[float, float]:
    """Return the largest distance between two empirical distribution functions, and the smallest value at which it occurs."""
    values = np.unique(np.concatenate([one, other]))
    shares = [np.searchsorted(np.sort(some), values, side="right") / some.size for some in (one, other)]
    gaps = np.abs(shares[0] - shares[1])
    place = int(np.argmax(gaps))
    return float(gaps[place]), float(values[place])


def latency_seen(panel: LatencyPanel) -> str:
    """Describe medians and 99th percentiles by treatment."""
    half, tail = (
        ", ".join(
            f"{_name(arm)} {quantity(histogram_quantile(latency, counts, share), 'ns')}"
            for arm, latency, counts in panel.arms[:MOST_NAMED]
        )
        for share in (0.5, 0.99)
    )
    return f"Half of the operations took at most: {half}; 99 %: {tail}."


def within_seen(panel: WithinPanel) -> str:
    """Describe the median of each curve, where two are farthest apart, and the changes of level."""
    levels = [
        f"{_name(curve.arm)} {quantity(float(np.median(curve.middle)), panel.unit)}"
        for curve in panel.curves[:MOST_NAMED]
    ]
    text = f"At the middle of the curves: {', '.join(levels)}"
    if len(panel.curves) > 1:
        first = panel.curves[0]
        gap, at_s, there, here, other = max(
            ((*apart(first, curve), curve) for curve in panel.curves[1:]), key=lambda found: found[0]
        )
        if gap > 0:
            both = f"{_name(other.arm)} {quantity(there, panel.unit)}, {_name(first.arm)} {quantity(here, panel.unit)}"
            text += f"; largest gap after {format_duration(at_s)}: {both}"
    found = [
        f"{_name(curve.arm)} after {format_duration(at_s)} from {quantity(before, panel.unit)} "
        f"to {quantity(after, panel.unit)}"
        for curve in panel.curves
        for at_s, before, after in curve.changes
    ]
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    changes = f"; dotted: changes of level ({', '.join(found[:MOST_NAMED])}{more})" if found else ""
    return f"{text}{changes}."


def apart(first: Curve, other: Curve) -> tuple[float, float, float, float]:
    """Return the largest distance of two curves while both last: distance, time (s), and both values then (other, first)."""
    here = np.interp(other.at_s, first.at_s, first.middle, left=np.nan, right=np.nan)
    gaps = np.abs(other.middle - here)
    if not np.isfinite(gaps).any():
        return 0.0, 0.0, 0.0, 0.0
    place = int(np.nanargmax(gaps))
    return float(gaps[place]), float(other.at_s[place]), float(other.middle[place]), float(here[place])


def _name(arm: Arm) -> str:
    return elided(arm.label, 24)


def _share(share: float) -> str:
    return percent(share) if 0 < share < 1 else "none" if share == 0 else "all"
