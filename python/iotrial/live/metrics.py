"""The metrics of a live trial while it runs: their sources together, and what they showed in the course of a window.

A metric is needed if it is judged or guarded. If a needed one is lost, the window is void and the trial rests until it is
back; another one is just missing from the windows in which it is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from iotrial.live.sources import MetricLost, Source, source_of
from iotrial.live.sources.spec import LONGEST_TIMEOUT_S
from iotrial.workloads.live import LiveWork

#: most moments of a window at which current values are kept
MOST_SAMPLES = 60
SHORTEST_S = 1.0


class Metrics:
    """The sources of a trial's metrics. Use inside ``running``; between ``begin`` and ``end`` a window is counted.

    ``device``: the disk in use, for metrics of a device that name none.
    """

    def __init__(self, work: LiveWork, device: str | None) -> None:
        self._sources: Mapping[str, Source] = {
            one.name: source_of(one.source, device=device) for one in work.metrics
        }
        self._units = {one.name: one.unit for one in work.metrics}
        self._needed = {work.metrics[0].name, *(guard.metric for guard in work.guarding)}
        self._every_s = max(SHORTEST_S, (work.washout_s + work.window_s) / MOST_SAMPLES)
        self._counted: set[str] = set()
        self._series: dict[str, list[float | None]] = {}
        self._at: list[float] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start all sources, and stop them at the end. Raises RequestError for one that has no number."""
        try:
            for source in self._sources.values():
                source.start()
            yield
        finally:
            self._stop()

    def restart(self) -> None:
        """Start all sources again after one was lost. Raises RequestError or MetricLost if it still is."""
        self._stop()
        for name, source in self._sources.items():
            try:
                source.start()
            except Exception:
                if name in self._needed:
                    raise

    def _stop(self) -> None:
        for source in self._sources.values():
            source.stop()

    @property
    def longest_s(self) -> float:
        """How long all sources together may take to answer, each within its timeout."""
        return LONGEST_TIMEOUT_S * len(self._sources)

    def unit(self, name: str) -> str:
        """Return the unit of a metric."""
        return self._units[name]

    # a window

    def switched(self) -> None:
        """Forget the samples: a new window begins, with its washout."""
        self._at = []
        self._series = {name: [] for name in self._sources}

    def look(self, at_s: float) -> Mapping[str, float]:
        """Return the current values by name, without those that are not known yet; keep them as samples of this moment.

        ``at_s``: on the monotonic clock. Raises MetricLost if a needed metric is lost.
        """
        found: dict[str, float] = {}
        for name, source in self._sources.items():
            try:
                value = source.current()
            except MetricLost:
                if name in self._needed:
                    raise
                continue
            if value is not None:
                found[name] = value
        if self._series and (not self._at or at_s - self._at[-1] >= self._every_s - 0.1):
            self._at.append(at_s)
            for name, series in self._series.items():
                series.append(found.get(name))
        return found

    def begin(self) -> None:
        """Begin the counted part. Raises MetricLost."""
        self._counted = set()
        for name, source in self._sources.items():
            try:
                source.begin()
                self._counted.add(name)
            except MetricLost:
                if name in self._needed:
                    raise

    def end(self) -> Mapping[str, float]:
        """End the counted part; return its values by name. Raises MetricLost."""
        found = {}
        for name in sorted(self._counted, key=list(self._sources).index):
            try:
                found[name] = self._sources[name].end()
            except MetricLost:
                if name in self._needed:
                    raise
        return found

    def samples(self, began_s: float) -> Mapping[str, Sequence[float | None]]:
        """Return the samples of the window: seconds since the counted part began, and the values by name."""
        found: dict[str, Sequence[float | None]] = {"at_s": [round(at - began_s, 2) for at in self._at]}
        return {**found, **self._series}
