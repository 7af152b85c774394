"""Diagnostics in words: what each number says about how a trial was conducted. None of them gates a verdict.

The method is valid under all of these (drift, autocorrelation, two modes). They explain why an interval is as wide as
it is, and what the next trial could do better. The thresholds only select words.
"""

from __future__ import annotations

from iotrial.report.notation import joined, percent
from iotrial.stats.model import Diagnostic
from iotrial.terminal import escape
from iotrial.units import format_duration

_NOTABLE_CORRELATION = 0.2
_NOTABLE_DRIFT = 0.05
_NOTABLE_SHARE = 0.5
_ORDER_P = 0.01
_MOST_CHANGES = 6
# Sarle's coefficient is 5/9 for a uniform distribution; more suggests two modes.
_TWO_MODES = 5 / 9


def diagnostic_sentences(diagnostic: Diagnostic) -> tuple[str, ...]:
    """Return a sentence for every diagnostic that shows something, or one that says that none does."""
    found = (
        _order(diagnostic.order_effect, diagnostic.order_p),
        _autocorrelation(diagnostic.autocorrelation),
        _drift(diagnostic.drift_per_hour),
        change_sentence(diagnostic),
        _modes(diagnostic.bimodality),
        _share(diagnostic.block_share),
    )
    if parts := tuple(sentence for sentence in found if sentence is not None):
        return parts
    if diagnostic.drift_per_hour is None:
        return (f"Too few blocks of {escape(diagnostic.response)} for diagnostics.",)
    return ("No effect of order, no dependence between blocks, no drift and no second mode was found.",)


def _order(effect: float | None, p: float | None) -> str | None:
    if effect is None or p is None or p >= _ORDER_P:
        return None
    return (
        f"Order: from the first to the last position in a block the response changes by {effect:+.3g} (p = {p:.2g}); "
        "the random order keeps that out of the effect."
    )


def _autocorrelation(value: float | None) -> str | None:
    if value is None or abs(value) < _NOTABLE_CORRELATION:
        return None
    kind = "resemble" if value > 0 else "alternate with"
    return (
        f"Neighbours: contrasts of successive blocks {kind} each other (autocorrelation {value:+.2f}); the verdict "
        "does not need them to be independent."
    )


def _drift(value: float | None) -> str | None:
    if value is None or abs(value) < _NOTABLE_DRIFT:
        return None
    return (
        f"Drift: the level of the blocks moved by {value:+.1%} an hour; it is the same for all arms "
        "of a block and cancels."
    )


def change_sentence(diagnostic: Diagnostic) -> str | None:
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
        f"Steady state: the level of the blocks changed {joined(times)}{tail}; it is the same for all arms of a "
        f"block and cancels, but the machine was in different states before and after."
    )


def _modes(value: float | None) -> str | None:
    if value is None or value <= _TWO_MODES:
        return None
    return (
        f"Modes: values may fall in two clusters ({value:.2f}, above 0.56); look at the distributions before "
        f"relying on a single number."
    )


def _share(value: float | None) -> str | None:
    if value is None or value < _NOTABLE_SHARE:
        return None
    return f"Blocking: {percent(value)} of the variance lies between blocks, noise that blocking removed."
