"""PromQL queries against a Prometheus server.

A window's value is computed by the server, for the time of the counted part:

- A query with ``$window`` is evaluated once at the end, with the length of the counted part in its place:
  ``rate(http_requests_total[$window])``. Nothing from before the counted part enters it.
- A query without it is evaluated at up to 61 times between begin and end, and the mean counts. A range in it, as in
  ``rate(x[1m])``, reaches back from each of them: ``reach_s`` is by how much, and a washout must be at least as long.

All times are the server's own. Its clock is compared with CLOCK_MONOTONIC at both ends of a window, so a clock that was
set, or a machine that slept, makes the window void.

API: https://prometheus.io/docs/prometheus/latest/querying/api/
"""

from __future__ import annotations

import json
import math
import re
import statistics
import time
from dataclasses import replace
from urllib.parse import urlencode

from iotrial.errors import RequestError
from iotrial.live.sources.base import (
    Metric,
    MetricLost,
    Polled,
    Reading,
    WindowVoid,
    finite,
    no_number,
    nothing,
    several,
    unreadable,
)
from iotrial.live.sources.fetch import Server, get, server_of
from iotrial.units import measured

WINDOW = "$window"
#: what ``$window`` is for the guard, which looks back from now: the first that gives a number
_RECENT_S = (15.0, 30.0, 60.0, 120.0)
#: number of intervals between the evaluations of a query without ``$window``
_STEPS = 60
#: by how much the server's clock and ours may differ in the length of a window
_CLOCKS_AGREE_S = 1.0
_LONGEST_QUERY = 4000
_AGGREGATE = "aggregate them, for example with sum(...)"
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|`[^`]*`')
_RANGE = re.compile(
    r"\[\s*((?:[0-9]+(?:ms|[smhdwy]))+)\s*(?::[^\]]*)?\]|\boffset\s+((?:[0-9]+(?:ms|[smhdwy]))+)"
)
_DURATION = re.compile(r"([0-9]+)(ms|[smhdwy])")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "y": 31536000.0}


class PromQL(Polled[float]):
    """The answer to a query that has one number."""

    def __init__(self, metric: Metric, query: str, url: str) -> None:
        super().__init__(metric)
        if not 0 < len(query.strip()) <= _LONGEST_QUERY or "\0" in query:
            raise RequestError(
                f"promql: expected a query of 1 to {_LONGEST_QUERY} characters",
                hint="promql:QUERY@http://HOST:9090",
            )
        self._query = query.strip()
        self._server: Server = replace(server_of(url), path=server_of(url).path.rstrip("/"))
        #: how far before the counted part a value reaches
        self.reach_s = 0.0 if WINDOW in self._query else range_s(self._query)
        self._recent_s = _RECENT_S[1]
        self._began: tuple[float, float] | None = None

    def check(self, first: float) -> None:
        """Find the shortest time over which the query has a number: with long scrape intervals it is longer."""
        for self._recent_s in _RECENT_S:
            if not math.isnan(self.poller.call(self.read)):
                return
            if WINDOW not in self._query:
                break
        raise RequestError(
            f"metric {self.name}: the query has no number now: {self._query}",
            hint="try it in the web page of Prometheus; $window must hold at least two scrapes",
        )

    def read(self) -> float:
        """Return the query's value now; NaN if it has none, as after a time without requests."""
        found = self._ask("query", query=self._filled(self._recent_s))
        return one_number(found)

    def value(self, readings: object) -> float:
        raise NotImplementedError  # the server computes it

    def current(self) -> float | None:
        readings: list[Reading[float]] = self.poller.newest(0.0)
        if not readings or not math.isfinite(readings[-1].value):
            return None
        return readings[-1].value

    def begin(self) -> None:
        self._began = self.poller.call(self._clocks)

    def end(self) -> float:
        began, self._began = self._began, None
        if began is None:
            raise nothing(self.name)
        found: float = self.poller.call(lambda: self._window(began))
        return finite(found, self.name)

    def _clocks(self) -> tuple[float, float]:
        """Return the server's time and ours (CLOCK_MONOTONIC) of the same moment."""
        before = time.monotonic()
        server_s = one_number(self._ask("query", query="time()"))
        return server_s, (before + time.monotonic()) / 2.0

    def _window(self, began: tuple[float, float]) -> float:
        ended = self._clocks()
        length_s, ours_s = ended[0] - began[0], ended[1] - began[1]
        if not abs(length_s - ours_s) <= _CLOCKS_AGREE_S:
            raise WindowVoid(
                f"metric {self.name}: the window took {ours_s:.1f} s here and {length_s:.1f} s by the clock of "
                f"{self._server.authority}: one of them was set, or the machine slept"
            )
        if WINDOW in self._query:
            return one_number(self._ask("query", query=self._filled(ours_s), time=_moment(ended[0])))
        step_s = max(ours_s / _STEPS, 0.5)
        found = self._ask(
            "query_range",
            query=self._query,
            start=_moment(began[0]),
            end=_moment(ended[0]),
            step=f"{step_s:.3f}",
        )
        return mean_of_range(found, fewest=math.ceil(ours_s / step_s / 2.0))

    def _filled(self, seconds: float) -> str:
        return self._query.replace(WINDOW, f"{max(1, round(1000 * seconds))}ms")

    def _ask(self, verb: str, **parameters: str) -> object:
        path = f"{self._server.path}/api/v1/{verb}?{urlencode(parameters, errors='surrogateescape')}"
        answer = get(self._server, path, accept="application/json", timeout_s=self.metric.timeout_s)
        return result_of(answer.body, self._server.authority)


def range_s(query: str) -> float:
    """Return the longest time by which a range or an offset in the query reaches back, in seconds."""
    plain = _QUOTED.sub('""', query)
    found = [a or b for a, b in _RANGE.findall(plain)]
    return max(
        (sum(int(n) * _SECONDS[unit] for n, unit in _DURATION.findall(one)) for one in found), default=0.0
    )


def result_of(body: bytes, where: str) -> object:
    """Return ``data`` of an answer of the API. Raises MetricLost if it is none, or says that the query failed."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise unreadable(where, f"not an answer of Prometheus: {body[:80]!r}")
    if found.get("status") != "success":
        raise MetricLost(f"{where}: the query failed: {str(found.get('error', ''))[:300]}")
    return found.get("data")


def one_number(data: object) -> float:
    """Return the number of an instant query's result, NaN if it has no series.

    Raises MetricLost if the result has several series or is not a number.
    """
    match data:
        case {"resultType": "scalar", "result": [_, str(text)]}:
            return _number(text)
        case {"resultType": "vector", "result": []}:
            return math.nan
        case {"resultType": "vector", "result": [{"value": [_, str(text)]}]}:
            return _number(text)
        case {"resultType": "vector", "result": list(series)}:
            raise several("the query", len(series), _AGGREGATE)
    raise MetricLost(
        "the query's result is not one number", hint="a range needs a function, such as rate(x[$window])"
    )


def mean_of_range(data: object, *, fewest: int = 1) -> float:
    """Return the mean of the values of a range query's one series, without those that are NaN.

    Raises WindowVoid if it has fewer than ``fewest`` of them, MetricLost if it is not one series.
    """
    match data:
        case {"resultType": "matrix", "result": []}:
            raise nothing("of a query")
        case {"resultType": "matrix", "result": [{"values": list(pairs)}]} if len(pairs) > 2 * _STEPS:
            raise unreadable("the answer", f"{len(pairs)} values")
        case {"resultType": "matrix", "result": [{"values": list(pairs)}]} if pairs:
            values = [value for value in map(_second, pairs) if not math.isnan(value)]
            if len(values) < max(1, fewest):
                raise WindowVoid(f"the query has {len(values)} values in this window, expected {fewest}")
            return statistics.fmean(values)
        case {"resultType": "matrix", "result": list(series)}:
            raise several("the query", len(series), _AGGREGATE)
    raise no_number("the query", data)


def _second(pair: object) -> float:
    match pair:
        case [_, str(text)]:
            return _number(text)
    raise no_number("the query", pair)


def _number(text: str) -> float:
    """Return a sample's value; NaN is Prometheus' word for none."""
    found = math.nan if text == "NaN" else measured(text)
    if found is None:
        raise no_number("the query", text)
    return found


def _moment(seconds: float) -> str:
    return f"{seconds:.3f}"
