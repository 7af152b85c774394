"""Switchback trials on a machine in use (``iotrial live``).

A live trial is a trial whose runs are time windows: a block has one window for each setting, in random order, and the
response is the service's own metric. Plan, store, analysis and report are those of every trial. This package has what is
new: sources of metrics, the window, the guard, and the watchdog that takes the settings back if iotrial cannot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iotrial.runner.start import LAB, Engine

if TYPE_CHECKING:
    from iotrial.study.model import Study


def engine_of(study: Study) -> Engine:
    """Return what carries out a study: on a machine in use, or in a lab."""
    if not study.in_windows:
        return LAB
    from iotrial.live.conductor import LIVE  # the sources of metrics are no business of other trials

    return LIVE
