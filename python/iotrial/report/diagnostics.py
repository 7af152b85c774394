"""Diagnostics in words: where a trial was in two states. None of them gates a verdict.

The method is valid under all diagnostics, so those that a reader would not act on (drift, order, autocorrelation, the share
of the variance between blocks) are only in the JSON.
"""

from __future__ import annotations

from iotrial.report.notation import joined
from iotrial.stats.model import Diagnostic
from iotrial.units import format_duration

_MOST_CHANGES = 6
# Sarle's coefficient is 5/9 for a uniform distribution; more suggests two modes.
_TWO_MODES = 5 / 9


def diagnostic_sentences(diagnostic: Diagnostic) -> tuple[str, ...]:
    """Return the sentences on changes of level and on two modes, as far as there are any."""
    found = (_change(diagnostic), _modes(diagnostic.bimodality))
    return tuple(sentence for sentence in found if sentence is not None)


def _change(diagnostic: Diagnostic) -> str | None:
    """Describe where the level of the blocks changed; None if no change was found."""
    if not diagnostic.changes:
        return None
    times = [
        f"after {format_duration(one.at_s)} by "
        + (f"{one.ratio - 1.0:+.1%}" if one.ratio is not None else f"{one.difference:+.3g}")
        for one in diagnostic.changes[:_MOST_CHANGES]
    ]
    more = len(diagnostic.changes) - len(times)
    tail = f" and {more} more" if more else ""
    return (
        f"the level of the blocks changed {joined(times)}{tail}; it is the same for all arms of a "
        f"block and cancels, but the machine was in different states before and after"
    )


def _modes(value: float | None) -> str | None:
    if value is None or value <= _TWO_MODES:
        return None
    return "values may fall in two clusters; look at the distributions before relying on a single number"
