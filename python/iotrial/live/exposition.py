"""A running live trial as OpenMetrics, for the user's own dashboards and alarms.

``Exporter`` serves it on loopback with prometheus_client. It knows plain numbers only: the trial hands it a ``Running`` after
every window and every look at the guard, and a scrape never waits for the trial.
"""

from __future__ import annotations

import importlib
import io
import math
import socketserver
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from iotrial.errors import MissingTool, RequestError

PATH = "/metrics"
LOOPBACK = "127.0.0.1"
#: how long a client may say nothing, and take nothing of the answer
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


#: name of the family and its help, by the attribute of a metric that has a number for each level
_BY_LEVEL = {
    "windows": ("window", "Newest counted window of the level."),
    "ratio": ("effect_ratio", "Metric at the level, as a multiple of the reference."),
    "low": ("effect_low_ratio", "Lower end of the interval of the effect."),
    "high": ("effect_high_ratio", "Upper end of the interval of the effect."),
    "log_evidence": ("log_evidence", "Natural logarithm of the e-value against no effect."),
}


def families(running: Running) -> Iterator[Any]:
    """Yield prometheus_client's metrics of a running trial. Values that are unknown or not numbers are left out."""
    own = {"trial": running.trial}
    of_metric = {
        one.name: {**own, "metric": one.name, "unit": one.unit, "primary": "yes" if one.primary else "no"}
        for one in running.metrics
    }
    yield _family("trial", "info", "A switchback trial of a setting.", [({**own, "knob": running.knob}, 1)])
    for name, text, all_of, now in (
        ("state", "What the trial is doing.", STATES, running.state),
        ("level", "The level that is in force.", running.levels, running.level),
    ):
        yield _family(
            name, "stateset", text, [({**own, f"iotrial_{name}": one}, one == now) for one in all_of]
        )
    yield _family("pairs", "counter", "Complete pairs of windows.", [(own, running.pairs)])
    yield _family("void_pairs", "counter", "Pairs that do not count.", [(own, running.void_pairs)])
    shares = [({**own, "level": level}, share) for level, share in running.share.items()]
    yield _family("level_time_ratio", "gauge", "Share of the time in which the level was in force.", shares)
    current = [(of_metric[one.name], one.current) for one in running.metrics]
    yield _family("current", "gauge", "Newest value of the metric.", current)
    for attribute, (name, text) in _BY_LEVEL.items():
        by_level = [
            ({**of_metric[one.name], "level": level}, value)
            for one in running.metrics
            for level, value in getattr(one, attribute).items()
        ]
        yield _family(name, "gauge", text, by_level)
    for attribute, text in (
        ("tripped", "1 if the guard has stopped the trial."),
        ("limit", "Limit of the guard."),
        ("value", "Newest value that the guard has seen."),
    ):
        values = [({**own, "guard": one.name}, getattr(one, attribute)) for one in running.guards]
        yield _family(f"guard_{attribute}", "gauge", text, values)


def _family(
    name: str, kind: str, text: str, samples: Iterable[tuple[Mapping[str, str], float | None]]
) -> Any:
    made = _client("core").Metric(f"iotrial_{name}", text, kind, "ratio" if name.endswith("_ratio") else "")
    suffix = {"info": "_info", "counter": "_total"}.get(kind, "")
    for labels, value in samples:
        if value is not None and math.isfinite(value):
            # what UTF-8 cannot hold is replaced
            plain = {label: text.encode("utf-8", "replace").decode() for label, text in labels.items()}
            made.add_sample(made.name + suffix, plain, float(value))
    return made


def _client(module: str) -> Any:
    try:
        return importlib.import_module(f"prometheus_client.{module}")
    except ImportError:
        raise MissingTool.extra("--openmetrics", "prometheus_client", "live") from None


class Exporter:
    """Serves the newest state on http://127.0.0.1:PORT/metrics in a separate thread. Use as a context manager.

    Raises RequestError if the port cannot be had, and MissingTool without prometheus_client.
    """

    def __init__(self, port: int = 0) -> None:
        self._running: Running | None = None
        app = _known_hosts(_client("exposition").make_wsgi_app(self))
        try:
            self._server = make_server(LOOPBACK, port, app, _Server, _Handler)
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
        self._running = running

    def collect(self) -> list[Any]:
        """Return what is served now, as prometheus_client asks a collector for it."""
        return [] if self._running is None else [one for one in families(self._running) if one.samples]

    def __enter__(self) -> Exporter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False
    #: connections that wait to be accepted: of the usual 5, a sixth client tries again a second later
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has gone is no error of the trial."""


class _Handler(WSGIRequestHandler):
    timeout = _CLIENT_S

    def log_message(self, format: str, *args: object) -> None:
        """Standard error belongs to the trial."""

    def get_stderr(self) -> TextIO:
        return io.StringIO()


def _known_hosts(answer: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    """Refuse other names: a page in a browser here may have made its name point to this address."""

    def app(environ: Mapping[str, str], start: Callable[..., object]) -> Iterable[bytes]:
        given = environ.get("HTTP_HOST", "")
        host = given.rpartition(":")[0] or given
        if host not in (LOOPBACK, "localhost"):
            start("421 Misdirected Request", [("Content-Type", "text/plain")])
            return [b"expected a Host of 127.0.0.1 or localhost"]
        return answer(environ, start)

    return app
