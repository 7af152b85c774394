"""The view of a running trial: a live table on a terminal, plain lines in a pipe, nothing with --json."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from iotrial.conduct.progress import Silent, Snapshot, Watcher
from iotrial.design.plan import Plan

if TYPE_CHECKING:
    from iotrial.report.live import LiveView

INTERVAL_S = 0.25


@contextmanager
def watcher_for(plan: Plan, *, quiet: bool) -> Iterator[Watcher]:
    """A watcher for the time of one trial; it draws on standard error."""
    if quiet:
        yield Silent()
        return
    from iotrial.cli.console import Console
    from iotrial.report.live import live_view

    with live_view(Console(stderr=True)) as view:
        yield _Drawn(plan, view)


class _Drawn:
    """Turns what the conductor says into what the live view shows, no oftener than it can be drawn."""

    def __init__(self, plan: Plan, view: LiveView) -> None:
        self._plan = plan
        self._view = view
        self._last = float("-inf")

    def say(self, text: str) -> None:
        self._view.say(text)

    def update(self, snapshot: Snapshot) -> None:
        from iotrial.report.progress import Progress, blocks_in_words, effect_lines

        if time.monotonic() - self._last < INTERVAL_S:
            return
        self._last = time.monotonic()
        study = self._plan.study
        self._view.update(
            Progress(
                trial=snapshot.trial,
                study=study.name,
                elapsed_s=snapshot.elapsed_s,
                budget_s=snapshot.budget_s,
                blocks=blocks_in_words(snapshot.blocks, study),
                void=snapshot.void,
                failures=snapshot.failures,
                effects=effect_lines(snapshot.effects, study),
                activity=f"{len(snapshot.decided)} of {snapshot.conditions} conditions decided",
            )
        )
