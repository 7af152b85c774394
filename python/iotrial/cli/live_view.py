"""Progress display of a running trial: a live table on a terminal, plain lines in a pipe, nothing with
--json. In every case the progress is also kept in a small file next to the store.

All of it runs in the conductor's own calls, between two blocks: there is no thread that could wake up during
a timed run.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from iotrial.cli.output import report_error
from iotrial.design.plan import Plan
from iotrial.report.conditions import Conditions
from iotrial.report.live import live_view
from iotrial.report.outlook import outlook_s, upcoming_in_words
from iotrial.report.progress import (
    Narrowing,
    Progress,
    blocks_in_words,
    effect_lines,
    progress_path,
    remove_progress,
    window_lines,
    write_progress,
)
from iotrial.report.text import Console
from iotrial.runner.progress import Snapshot, Watcher
from iotrial.runner.signals import Stopped

if TYPE_CHECKING:
    from iotrial.report.live import LiveView

DRAWN_EVERY_S = 0.25
WRITTEN_EVERY_S = 1.0
NEVER = float("-inf")


@contextmanager
def watcher_for(plan: Plan, *, quiet: bool, store: Path) -> Iterator[Watcher]:
    """Yield the watcher of one trial. It draws on standard error and keeps the progress file next to this
    store.

    A trial that is stopped before it has begun has no report, so its end is reported here.
    """
    file = progress_path(store)
    try:
        if quiet:
            yield _Watching(plan, None, file)
            return
        with live_view(Console(stderr=True)) as view:
            yield _Watching(plan, view, file)
    except Stopped as stopped:
        if stopped.number != signal.SIGPIPE:
            what = f"ended by {stopped}; all changes are being undone"
            report_error("stopped", what, None, as_json=quiet)
        raise
    finally:
        remove_progress(file)


class _Watching:
    """Turns the conductor's updates into output, limited to ``DRAWN_EVERY_S`` and ``WRITTEN_EVERY_S``."""

    def __init__(self, plan: Plan, view: LiveView | None, file: Path) -> None:
        self._plan = plan
        self._view = view
        self._progress_file = file
        self._conditions = Conditions(plan.study)
        self._narrowing = Narrowing()
        self._block_s: dict[str, float] = {}
        self._drawn = self._written = NEVER
        self._last: Progress | None = None

    def say(self, text: str) -> None:
        if self._view is not None:
            self._view.say(text)
        if self._last is not None:
            self._write(replace(self._last, activity=text, upcoming="", outlook_s=None))

    def update(self, snapshot: Snapshot) -> None:
        for key, seconds in snapshot.block_s.items():
            # smooth: blocks with controls take longer than those without, and the two alternate
            self._block_s[key] = (self._block_s.get(key, seconds) + seconds) / 2.0
        now = time.monotonic()
        draws = self._view is not None and now - self._drawn >= DRAWN_EVERY_S
        writes = now - self._written >= WRITTEN_EVERY_S
        if not draws and not writes:
            return
        self._last = progress = self._progress(snapshot)
        if draws and self._view is not None:
            self._drawn = now
            self._view.update(progress)
        if writes:
            self._write(progress)

    def _write(self, progress: Progress) -> None:
        self._written = time.monotonic()
        write_progress(self._progress_file, progress)

    def _progress(self, snapshot: Snapshot) -> Progress:
        study = self._plan.study
        return Progress(
            trial=snapshot.trial,
            study=study.name,
            elapsed_s=snapshot.elapsed_s,
            budget_s=snapshot.budget_s,
            blocks=blocks_in_words(snapshot.blocks, study),
            void=snapshot.void,
            failures=snapshot.failures,
            effects=self._narrowing.of(effect_lines(snapshot.effects, study)),
            margin=study.margin,
            activity=snapshot.activity,
            windows=window_lines(snapshot.recent, study),
            conditions=snapshot.conditions,
            conditions_decided=len(snapshot.decided),
            upcoming=upcoming_in_words(self._plan, self._conditions, snapshot.upcoming),
            outlook_s=outlook_s(
                self._plan,
                snapshot.effects,
                had=snapshot.blocks,
                decided=snapshot.decided,
                block_s=self._block_s,
            ),
        )
