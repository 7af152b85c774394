"""A running live trial as OpenMetrics text, for the user's own dashboards and alarms.

``Exporter`` serves it on loopback. It knows plain numbers only: the trial hands it a ``Running`` after every window and every
look at the guard, and a scrape never waits for the trial.

Format: https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md
"""

from __future__ import annotations

import http.server
import math
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from iotrial.errors import RequestError

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PATH = "/metrics"
LOOPBACK = "127.0.0.1"
#: scrapes answered at the same time; more are refused
MOST_AT_ONCE = 8
#: how long a client may take to send its request, and to take the answer
_CLIENT_S = 5.0
#: what a trial may be doing
STATES = ("waiting", "washout", "measuring", "paused", "reverted", "ended")


@dataclass(frozen=True, slots=True)
class RunningMetric:
    """One metric of a running trial. None: not known yet.

    By level: ``windows``, the newest counted value; ``ratio``, ``low`` and ``high``, the effect against the reference and
    its interval; ``log_evidence``, the natural logarithm of the e-process against "no effect".
    """

    name: str
    unit: str = ""
    primary: bool = False
    current: float | None = None
    windows: Mapping[str, float] = field(default_factory=dict)
    ratio: Mapping[str, float] = field(default_factory=dict)
    low: Mapping[str, float] = field(default_factory=dict)
    high: Mapping[str, float] = field(default_factory=dict)
    log_evidence: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunningGuard:
    """One guard: its limit on its metric's scale, the newest value it has seen, and whether it has stopped the trial."""

    name: str
    tripped: bool
    limit: float | None = None
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Running:
    """A running trial at one moment. ``state`` is one of ``STATES``; ``level`` is the one in force now.

    ``share``: part of the time so far in which the level was in force, by level.
    """

    trial: str
    knob: str
    state: str
    level: str
    levels: Sequence[str]
    pairs: int = 0
    void_pairs: int = 0
    metrics: Sequence[RunningMetric] = ()
    guards: Sequence[RunningGuard] = ()
    share: Mapping[str, float] = field(default_factory=dict)


def openmetrics(running: Running) -> str:
    """Return the text of all metrics of a running trial. Values that are unknown or not numbers are left out."""
    trial = {"trial": running.trial}
    lines: list[str] = []
    lines += _family(
        "iotrial_trial",
        "info",
        "A switchback trial of a setting.",
        "",
        [("_info", {**trial, "knob": running.knob}, 1.0)],
    )
    lines += _family(
        "iotrial_state",
        "stateset",
        "What the trial is doing.",
        "",
        [("", {**trial, "iotrial_state": one}, float(one == running.state)) for one in STATES],
    )
    lines += _family(
        "iotrial_level",
        "stateset",
        "The level that is in force.",
        "",
        [("", {**trial, "iotrial_level": one}, float(one == running.level)) for one in running.levels],
    )
    lines += _family(
        "iotrial_pairs",
        "counter",
        "Complete pairs of windows.",
        "",
        [("_total", trial, float(running.pairs))],
    )
    lines += _family(
        "iotrial_void_pairs",
        "counter",
        "Pairs that do not count.",
        "",
        [("_total", trial, float(running.void_pairs))],
    )
    lines += _family(
        "iotrial_level_time_ratio",
        "gauge",
        "Share of the time in which the level was in force.",
        "ratio",
        [("", {**trial, "level": level}, share) for level, share in running.share.items()],
    )
    lines += _family(
        "iotrial_current",
        "gauge",
        "Newest value of the metric.",
        "",
        [("", {**trial, **_labels(one)}, one.current) for one in running.metrics],
    )
    lines += _family(
        "iotrial_window",
        "gauge",
        "Newest counted window of the level.",
        "",
        list(_by_level(running, "windows")),
    )
    lines += _family(
        "iotrial_effect_ratio",
        "gauge",
        "Metric at the level, as a multiple of the reference.",
        "ratio",
        list(_by_level(running, "ratio")),
    )
    lines += _family(
        "iotrial_effect_low_ratio",
        "gauge",
        "Lower end of the interval of the effect.",
        "ratio",
        list(_by_level(running, "low")),
    )
    lines += _family(
        "iotrial_effect_high_ratio",
        "gauge",
        "Upper end of the interval of the effect.",
        "ratio",
        list(_by_level(running, "high")),
    )
    lines += _family(
        "iotrial_log_evidence",
        "gauge",
        "Natural logarithm of the e-value against no effect.",
        "",
        list(_by_level(running, "log_evidence")),
    )
    lines += _family(
        "iotrial_guard_tripped",
        "gauge",
        "1 if the guard has stopped the trial.",
        "",
        [("", {**trial, "guard": one.name}, float(one.tripped)) for one in running.guards],
    )
    lines += _family(
        "iotrial_guard_limit",
        "gauge",
        "Limit of the guard.",
        "",
        [("", {**trial, "guard": one.name}, one.limit) for one in running.guards],
    )
    lines += _family(
        "iotrial_guard_value",
        "gauge",
        "Newest value that the guard has seen.",
        "",
        [("", {**trial, "guard": one.name}, one.value) for one in running.guards],
    )
    return "\n".join([*lines, "# EOF", ""])


_Sample = tuple[str, Mapping[str, str], float | None]


def _family(name: str, kind: str, text: str, unit: str, samples: Sequence[_Sample]) -> Iterator[str]:
    known = [
        (suffix, labels, value)
        for suffix, labels, value in samples
        if value is not None and math.isfinite(value)
    ]
    if not known:
        return
    yield f"# TYPE {name} {kind}"
    if unit:
        yield f"# UNIT {name} {unit}"
    yield f"# HELP {name} {text}"
    for suffix, labels, value in known:
        inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"{name}{suffix}{{{inside}}} {value!r}"


def _labels(metric: RunningMetric) -> dict[str, str]:
    return {"metric": metric.name, "unit": metric.unit, "primary": "yes" if metric.primary else "no"}


def _by_level(running: Running, what: str) -> Iterator[_Sample]:
    for metric in running.metrics:
        for level, value in getattr(metric, what).items():
            yield "", {"trial": running.trial, **_labels(metric), "level": level}, value


def _escaped(text: str) -> str:
    """Escape a label's value; what UTF-8 cannot hold is replaced."""
    plain = text.encode("utf-8", "replace").decode("utf-8")
    return plain.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


class Exporter:
    """Serves the newest text on http://127.0.0.1:PORT/metrics in a separate thread. Use as a context manager."""

    def __init__(self, port: int = 0) -> None:
        self._text = "# EOF\n"
        try:
            self._server = _Server((LOOPBACK, port), self)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise RequestError(
                f"cannot serve metrics on {LOOPBACK}:{port}: {why}",
                hint="choose another port, or 0 for a free one",
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)

    @property
    def url(self) -> str:
        """Where to scrape."""
        return f"http://{LOOPBACK}:{self._server.server_port}{PATH}"

    def update(self, running: Running) -> None:
        """Serve this from now on."""
        self._text = openmetrics(running)

    @property
    def text(self) -> str:
        """What is served now."""
        return self._text

    def __enter__(self) -> Exporter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], exporter: Exporter) -> None:
        self.exporter = exporter
        #: open connections and when they began, the oldest first
        self.open: dict[socket.socket, float] = {}
        self.changing = threading.Lock()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread. With as many as there may be, refuse; one that takes too long makes room for the next."""
        with self.changing:
            if len(self.open) >= MOST_AT_ONCE:
                oldest, began_s = next(iter(self.open.items()))
                if time.monotonic() - began_s <= _CLIENT_S:
                    self.shutdown_request(request)
                    return
                del self.open[oldest]
                with suppress(OSError):  # it has ended by itself
                    oldest.shutdown(socket.SHUT_RDWR)
            self.open[request] = time.monotonic()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self.changing:
                self.open.pop(request, None)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has gone is no error of the trial."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    timeout = _CLIENT_S
    server_version = "iotrial"
    sys_version = ""

    def do_GET(self) -> None:
        host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        if host not in (LOOPBACK, "localhost"):
            # a page in a browser here may have made its name point to this address
            self.send_error(421, "expected a Host of 127.0.0.1 or localhost")
            return
        if self.path.partition("?")[0] != PATH:
            self.send_error(404, f"the metrics are at {PATH}")
            return
        body = self.server.exporter.text.encode()
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Standard error belongs to the trial."""
