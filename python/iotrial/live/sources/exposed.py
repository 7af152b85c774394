"""A metric that a program exposes itself, as text of OpenMetrics or in the older format of Prometheus.

    counter                 rate: its increments over the window, per second; of several series, of all together
    histogram               pNN: a quantile of the window's increments, mean, or the rate of observations
    summary                 mean, or the rate of observations; its own quantiles reach over minutes, across windows
    gauge                   mean over the readings in the window

A counter that was reset would give a wrong rate, so the window is void if a value falls or a series disappears between two
readings, or if the start time of the process or of the series changes. The latter also shows a counter that has overtaken
its old value.

Formats: https://prometheus.io/docs/instrumenting/exposition_formats/ and
https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md. They are read with the parsers of
prometheus_client (``pip install 'iotrial[live]'``).
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

from iotrial.errors import MissingTool, RequestError
from iotrial.live.sources.base import (
    Metric,
    MetricLost,
    Polled,
    Reading,
    bucket_quantile,
    elapsed_s,
    no_number,
    nothing,
    several,
    unreadable,
    was_reset,
)
from iotrial.live.sources.fetch import get, server_of
from iotrial.patterns import Pattern, PatternError, TooMuchWork
from iotrial.units import measured

#: the older format first: its parser is the faster one
ACCEPT = "text/plain;version=0.0.4;q=1,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1"
_STARTED = "process_start_time_seconds"
_SUFFIXES = ("_total", "_created", "_bucket", "_count", "_sum")
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_MATCHER = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*"((?:[^"\\\n]|\\.)*)"\s*')
_ESCAPED = re.compile(r"\\(.)")
_MOST_SERIES = 10_000
_LONGEST_LINE = 65_536
#: bytes of the lines about the metric: the parsers take up to some microseconds for each
_MOST_BYTES = 4 << 20

#: name of the sample, and its labels in order of their names
Key = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class Selector:
    """The series to read: ``name{label="value",...}``, with the matchers =, !=, =~ and !~ of PromQL."""

    name: str
    matchers: tuple[tuple[str, str, str], ...] = ()

    def takes(self, labels: Mapping[str, str]) -> bool:
        """Return whether a series with these labels is selected; a label that is not there counts as empty."""
        return all(_takes(how, labels.get(label, ""), value) for label, how, value in self.matchers)


def _takes(how: str, found: str, wanted: str) -> bool:
    if how in ("=", "!="):
        return (found == wanted) is (how == "=")
    try:
        return _label_pattern(wanted).matches(found) is (how == "=~")
    except TooMuchWork as error:
        raise MetricLost(f"openmetrics: a label of {len(found)} characters: {error}") from None


@lru_cache(maxsize=64)
def _label_pattern(text: str) -> Pattern:
    """Compile a pattern as Prometheus does: a dot also stands for the end of a line. Raises PatternError."""
    return Pattern(f"(?s:{text})")


def selector_of(text: str) -> Selector:
    """Parse a selector. Raises RequestError."""
    text = text.strip()
    name = _NAME.match(text)
    if name is None:
        raise RequestError(
            f"openmetrics: expected a metric's name after the #, found {text[:60]!r}",
            hint='openmetrics:http://HOST:PORT/metrics#NAME{label="value"}:rate',
        )
    rest = text[name.end() :].strip()
    if not rest:
        return Selector(name.group())
    matchers, at = [], 1
    if rest[0] == "{":
        while (one := _MATCHER.match(rest, at)) is not None:
            label, how, quoted = one.groups()
            value = _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], quoted)
            if how in ("=~", "!~"):
                _checked_regex(value)
            matchers.append((label, how, value))
            at = one.end()
            if rest[at : at + 1] != ",":
                break
            at += 1
        if rest[at:].strip() == "}":
            return Selector(name.group(), tuple(matchers))
    raise RequestError(
        f"openmetrics: cannot read {rest[:80]!r} after {name.group()}",
        hint='labels are written {code="200",method!="GET"}',
    )


def _checked_regex(text: str) -> None:
    try:
        _label_pattern(text)
    except PatternError as error:
        raise RequestError(f"openmetrics: {text[:60]!r}: {error}", hint=error.hint) from None


@dataclass(frozen=True, slots=True)
class Scrape:
    """What one reading says about the selected metric: its kind, its samples, and when its counters began (Unix time)."""

    kind: str
    samples: Mapping[Key, float]
    started: Mapping[Key, float]


class OpenMetrics(Polled[Scrape]):
    """One metric of an endpoint. ``take`` is rate, mean or pNN; None: by the metric's kind."""

    def __init__(self, metric: Metric, url: str, selector: Selector, take: str | None) -> None:
        super().__init__(metric)
        parsers()
        self._server = server_of(url)
        self._selector, self._take = selector, take
        self.reach_s = 0.0

    def read(self) -> Scrape:
        answer = get(self._server, self._server.path, accept=ACCEPT, timeout_s=self.metric.timeout_s)
        return scrape_of(answer.body, answer.content_type, self._selector)

    def check(self, first: Scrape) -> None:
        take_of(first.kind, self._take, self._selector.name)
        if first.kind == "gauge" and len(first.samples) > 1 and self._take != "rate":
            raise several(
                self._selector.name,
                len(first.samples),
                f"select one by its labels: {_shown(next(iter(first.samples)))}",
            )

    def value(self, readings: Sequence[Reading[Scrape]]) -> float:
        return taken(readings, self._selector.name, self._take)


def take_of(kind: str, take: str | None, name: str) -> str:
    """Return what is taken of a metric of this kind. Raises RequestError if the kind does not have it."""
    if take is None and kind in _DEFAULT:
        return _DEFAULT[kind]
    if take is not None and (take in _TAKES[kind] or (take[0] == "p" and "p" in _TAKES[kind])):
        return take
    known = ", ".join(f":{one}" if one != "p" else ":p50, :p99" for one in _TAKES[kind])
    raise RequestError(f"openmetrics: {name} is a {kind}", hint=f"say what to take of it: {known}")


_TAKES = {
    "counter": ("rate",),
    "gauge": ("mean", "rate"),
    "histogram": ("p", "mean", "rate"),
    "summary": ("mean", "rate"),
}
_DEFAULT = {"counter": "rate", "gauge": "mean"}
_BY_LABELS = "select by labels"


def taken(readings: Sequence[Reading[Scrape]], name: str, take: str | None) -> float:
    """Return the value of the time from the first reading to the last. Raises WindowVoid, MetricLost, RequestError."""
    first, last = readings[0].value, readings[-1].value
    if any(one.value.kind != last.kind for one in readings):
        raise MetricLost(f"openmetrics: {name} has changed its type")
    how = take_of(last.kind, take, name)
    if how == "mean" and last.kind == "gauge":
        return math.fsum(_only(one.value, name) for one in readings) / len(readings)
    for before, after in pairwise(readings):
        refuse_reset(before.value, after.value, name)
    more = {key: value - first.samples.get(key, 0.0) for key, value in last.samples.items()}
    if last.kind in ("counter", "gauge"):
        return math.fsum(more.values()) / elapsed_s(readings)
    count = math.fsum(value for (sample, _), value in more.items() if sample == f"{name}_count")
    if how == "rate":
        return count / elapsed_s(readings)
    if count <= 0.0:
        raise nothing(name)
    if how == "mean":
        return math.fsum(value for (sample, _), value in more.items() if sample == f"{name}_sum") / count
    return bucket_quantile(share_of(how), *_buckets(more, f"{name}_bucket"))


def share_of(take: str) -> float:
    """Return .999 for "p99.9"."""
    return float(take[1:]) / 100.0


def refuse_reset(before: Scrape, after: Scrape, name: str) -> None:
    """Raise WindowVoid if a counter was reset between two readings."""
    for key, value in before.started.items():
        if after.started.get(key, value) != value:
            raise was_reset(name, f"{key[0]} has changed")
    for key, value in before.samples.items():
        now = after.samples.get(key)
        if now is None:
            raise was_reset(name, f"{_shown(key)} has gone")
        # the sum of a histogram falls with negative observations, which are no reset
        if now < value and not key[0].endswith("_sum"):
            raise was_reset(name, f"{_shown(key)} fell from {value:g} to {now:g}")


def _shown(key: Key) -> str:
    labels = ",".join(f'{label}="{value}"' for label, value in key[1])
    return f"{key[0]}{{{labels}}}"[:120] if labels else key[0]


def _only(scrape: Scrape, name: str) -> float:
    if len(scrape.samples) != 1:
        raise several(name, len(scrape.samples), _BY_LABELS)
    return next(iter(scrape.samples.values()))


def _buckets(more: Mapping[Key, float], name: str) -> tuple[list[float], list[float]]:
    """Return the upper ends of the buckets and the observations in each, over all series."""
    up_to: dict[float, float] = {}
    series: dict[tuple[tuple[str, str], ...], set[float]] = {}
    for (sample, labels), value in more.items():
        if sample != name:
            continue
        end = _bound(dict(labels).get("le", ""))
        up_to[end] = up_to.get(end, 0.0) + value
        series.setdefault(tuple(one for one in labels if one[0] != "le"), set()).add(end)
    if not up_to or any(ends != up_to.keys() for ends in series.values()):
        raise MetricLost(
            f"openmetrics: {name} has no buckets, or series with different ones", hint=_BY_LABELS
        )
    bounds = sorted(up_to)
    counts = [up_to[bounds[0]], *(up_to[high] - up_to[low] for low, high in pairwise(bounds))]
    return bounds, [
        max(0.0, count) for count in counts
    ]  # buckets are read one after the other, and may be off by some


def _bound(text: str) -> float:
    """Return the upper end of a bucket. The parsers write numbers of their own, such as 1e+16."""
    found = math.inf if text in ("+Inf", "inf", "Inf") else measured(text)
    if found is None:
        raise no_number("openmetrics: end of a bucket", text)
    return found


def scrape_of(body: bytes, content_type: str, selector: Selector) -> Scrape:
    """Read the selected series from the text of an endpoint. Raises MetricLost if they are not there, or not readable."""
    strict = "application/openmetrics-text" in content_type
    lines = list(_lines_about(body, selector.name))
    if strict and not (lines and lines[-1] == "# EOF"):
        raise unreadable(selector.name, "the text has no # EOF at its end")
    text = "".join(f"{line}\n" for line in lines)
    if len(text) > _MOST_BYTES:
        raise unreadable(selector.name, f"more than {_MOST_BYTES >> 20} MiB")
    try:
        families = list(parsers()[strict](text))
    except Exception as error:  # the parsers raise many kinds
        raise unreadable(selector.name, error) from error
    found = [one for family in families if (one := _of_family(family, selector)) is not None]
    if not found:
        labels = " with these labels" if selector.matchers else ""
        raise MetricLost(
            f"openmetrics: no series of {selector.name}{labels}", hint="look at the page with curl"
        )
    kind, samples = found[0]
    if len(samples) > _MOST_SERIES:
        raise several(selector.name, len(samples), _BY_LABELS)
    own = f"{_base(selector.name)}_created"
    started = {
        _key(sample): _value(sample)
        for family in families
        for sample in family.samples
        if sample.name == _STARTED or (sample.name == own and selector.takes(sample.labels))
    }
    return Scrape(kind, samples, started)


def _base(name: str) -> str:
    """Return the name of the family that has a sample of this name, without the suffix that its kind adds."""
    return next((name.removesuffix(one) for one in _SUFFIXES if name.endswith(one)), name)


def _lines_about(body: bytes, name: str) -> Iterable[str]:
    """Yield the lines that the parser needs: pages are long, and parsers slow."""
    base = _base(name).encode()
    wanted = (base, _STARTED.encode(), b"# TYPE " + base, b"# TYPE " + _STARTED.encode(), b"# EOF")
    for line in body.split(b"\n"):
        if line.startswith(wanted) and len(line) <= _LONGEST_LINE:
            yield line.decode("utf-8", "replace").rstrip("\r")


def _of_family(family: Any, selector: Selector) -> tuple[str, dict[Key, float]] | None:
    """Return kind and samples of the selected series of a family; None if it has none."""
    name, kind = selector.name, str(family.type)
    whole = kind in ("histogram", "summary") and name == family.name
    names = _parts(name, kind) if whole else (name, f"{name}_total") if kind == "counter" else (name,)
    samples = {
        _key(sample): _value(sample)
        for sample in family.samples
        if sample.name in names and selector.takes(sample.labels)
    }
    if not samples or whole:
        return (kind, samples) if samples else None
    counts = kind == "counter" or (
        kind in ("histogram", "summary") and name.endswith(("_count", "_sum", "_bucket"))
    )
    return "counter" if counts else "gauge", samples


def _key(sample: Any) -> Key:
    return str(sample.name), tuple(sorted(sample.labels.items()))


def _value(sample: Any) -> float:
    """Return the value of a sample, which the parser has made a float or an int. Raises MetricLost."""
    found = measured(sample.value)
    if found is None:
        # an int may have more digits than str() takes
        raise no_number(_shown(_key(sample)), sample.value if isinstance(sample.value, float) else "...")
    return found


def _parts(name: str, kind: str) -> tuple[str, ...]:
    parts = (f"{name}_count", f"{name}_sum")
    return (*parts, f"{name}_bucket") if kind == "histogram" else parts


@lru_cache(maxsize=1)
def parsers() -> tuple[Callable[[str], Iterable[Any]], Callable[[str], Iterable[Any]]]:
    """Return the parsers of the older format and of OpenMetrics. Raises MissingTool without prometheus_client."""
    try:
        older = importlib.import_module("prometheus_client.parser")
        newer = importlib.import_module("prometheus_client.openmetrics.parser")
    except ImportError:
        raise MissingTool.extra("openmetrics", "prometheus_client", "live") from None
    return older.text_string_to_metric_families, newer.text_string_to_metric_families
