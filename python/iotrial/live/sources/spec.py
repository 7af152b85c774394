"""The metric of a live trial: ``--metric [NAME=]SPEC`` becomes a source (docs/metrics.md).

    promql:QUERY@URL                                a query with one number; $window is the length of the counted part
    openmetrics:URL#SERIES[:rate|:mean|:pNN]        a counter's rate, a gauge's mean, a histogram's mean or quantile
    command:SHELL COMMAND                           the number that it prints
    log:FILE:REGEX[:mean|:rate|:count|:pNN]         values, or a count, of the lines that match
    device[:NAME]:latency-p50|latency-p99|latency|throughput|requests|utilisation
    psi:io|cpu|memory[:full]                        share of the time in which tasks were stalled
    cpu                                             share of busy processors

Options follow at the end, each after a comma: ``lower`` or ``higher`` (is better), ``unit=UNIT``, ``every=TIME`` (between
two readings), ``timeout=TIME``, and ``rate`` for a command that prints a counter. They are read from the end, up to the
first part that is no option. A comma at the very end closes the text, so that a command may end like an option:
``command:./measure --sort a,higher,``.

Less is better, unless it is a rate or a count of lines, a throughput or a number of requests.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from iotrial.errors import RequestError, UnknownName, twice
from iotrial.live.sources import followed_log, kernel, programs
from iotrial.live.sources.base import EVERY_S, TIMEOUT_S, Metric, Source
from iotrial.live.sources.exposed import OpenMetrics, selector_of
from iotrial.live.sources.followed_log import FollowedLog
from iotrial.live.sources.kernel import DEVICE_METRICS, Processors, device_source, pressure_source
from iotrial.live.sources.programs import Command
from iotrial.live.sources.prometheus import PromQL
from iotrial.units import UnitError, parse_duration

KINDS = ("promql", "openmetrics", "command", "log", "device", "psi", "cpu")
LONGEST = 8000
#: bounds of ``every`` and ``timeout``, in seconds
FASTEST_S, SLOWEST_S, LONGEST_TIMEOUT_S = 0.2, 600.0, 60.0

_NAMED = re.compile(rf"([A-Za-z][A-Za-z0-9_.-]{{0,59}})=(?=(?:{'|'.join(KINDS)})(?:[:,]|$))")
_TAKE = re.compile(r":(rate|mean|count|p[0-9]{1,2}(?:\.[0-9]{1,4})?)$")
_UNIT = re.compile(r"[A-Za-z0-9%µ/_.-]{1,20}")
_FIRST_METRIC = re.compile(r"([a-zA-Z_][a-zA-Z0-9_:]*)\s*(?=[{\[]|\)|$)")
#: parts of a query that name labels and texts
_NO_METRIC = re.compile(r'"[^"]*"|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)')


def reach_s(source: Source) -> float:
    """Return how far before the counted part a value of this source reaches, in seconds.

    A shorter washout would let a window measure the level before it.
    """
    return float(getattr(source, "reach_s", 0.0))


def source_of(text: str, *, device: str | None = None) -> Source:
    """Parse what ``--metric`` says. ``device``: the one that ``device:METRIC`` means if it names none.

    Raises RequestError if the text cannot be understood, and MissingTool if a library is missing. Nothing is read yet.
    """
    if len(text) > LONGEST:
        raise RequestError(f"--metric: expected at most {LONGEST} characters, found {len(text)}")
    named = _NAMED.match(text)
    spec, options = _options(text[named.end() :] if named else text)
    kind, _, rest = spec.partition(":")
    if kind not in KINDS:
        if "=" in spec and spec.partition("=")[2].partition(":")[0] in KINDS:
            raise _expected(
                "--metric",
                "a name of letters, digits, _ . and -",
                spec.partition("=")[0],
                "its first character is a letter",
            )
        raise UnknownName("kind of metric", kind[:60], KINDS, where="--metric")
    parsed = _device(rest, device) if kind == "device" else _PARSERS[kind](rest)
    if "rate" in options.flags and kind != "command":
        raise _expected("--metric", "rate only with command", text, "elsewhere write :rate")
    if "rate" in options.flags:
        parsed = _Parsed(parsed.name, "", False, parsed.every_s, parsed.timeout_s, parsed.build)
    lower = parsed.lower_is_better if options.lower is None else options.lower
    metric = Metric(
        name=named.group(1) if named else parsed.name,
        unit=options.unit if options.unit is not None else parsed.unit,
        lower_is_better=lower,
        every_s=options.every_s or parsed.every_s,
        timeout_s=options.timeout_s or parsed.timeout_s,
    )
    return parsed.build(metric, options.flags)


def _expected(what: str, form: str, found: str, hint: str | None = None) -> RequestError:
    return RequestError(f"{what}: expected {form}, found {found[:80]!r}", hint=hint)


@dataclass(frozen=True, slots=True)
class _Options:
    lower: bool | None = None
    unit: str | None = None
    every_s: float | None = None
    timeout_s: float | None = None
    flags: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Parsed:
    """A kind's own part: its defaults, and what makes a source of it."""

    name: str
    unit: str
    lower_is_better: bool
    every_s: float
    timeout_s: float
    build: Callable[[Metric, frozenset[str]], Source]


def _options(text: str) -> tuple[str, _Options]:
    """Split the options from the end of the text. Raises RequestError if one is given twice or has no good value."""
    found: dict[str, str] = {}
    while "," in text:
        head, _, last = text.rpartition(",")
        if not last.strip():
            text = head
            break
        name, equals, value = last.strip().partition("=")
        known = name in ("unit", "every", "timeout") if equals else name in ("lower", "higher", "rate")
        if not known:
            break
        key = "better" if name in ("lower", "higher") else name
        if key in found:
            raise RequestError(
                twice("--metric: option", key), hint="a comma at the end closes the text before the options"
            )
        found[key] = value if equals else name
        text = head
    unit = found.get("unit")
    if unit is not None and _UNIT.fullmatch(unit) is None:
        raise _expected("--metric: unit", "up to 20 letters, digits, % / _ . -", unit)
    return text, _Options(
        lower=None if "better" not in found else found["better"] == "lower",
        unit=unit,
        every_s=_seconds(found.get("every"), "every", SLOWEST_S),
        timeout_s=_seconds(found.get("timeout"), "timeout", LONGEST_TIMEOUT_S),
        flags=frozenset({"rate"} & found.keys()),
    )


def _seconds(text: str | None, what: str, most_s: float) -> float | None:
    if text is None:
        return None
    try:
        found = parse_duration(text)
    except UnitError as error:
        raise RequestError(f"--metric: {what}={text[:40]}: {error.message}", hint=error.hint) from None
    if not FASTEST_S <= found <= most_s:
        raise _expected(f"--metric: {what}", f"{FASTEST_S:g} s to {most_s:g} s", text)
    return found


def _promql(text: str) -> _Parsed:
    # an @ in a query is followed by a time or a function
    cut = max(text.rfind("@http://"), text.rfind("@https://"))
    if cut < 0:
        raise _expected(
            "promql", "QUERY@URL", text, "promql:rate(requests_total[$window])@http://127.0.0.1:9090"
        )
    query, url = text[:cut], text[cut + 1 :]
    first = _FIRST_METRIC.search(_NO_METRIC.sub("", query))
    name = (first[1] if first else "promql").replace(":", "_")[:60]
    return _Parsed(name, "", True, EVERY_S, TIMEOUT_S, lambda metric, _: PromQL(metric, query, url))


def _openmetrics(text: str) -> _Parsed:
    url, hash_mark, series = text.partition("#")
    if not hash_mark:
        raise _expected(
            "openmetrics", "URL#SERIES", text, "openmetrics:http://127.0.0.1:9100/metrics#requests_total:rate"
        )
    series, take = _taken(series, ("rate", "mean", "p"))
    selector = selector_of(series)
    counter = selector.name.endswith("_total")
    is_rate = take == "rate" or (take is None and counter)
    unit = _unit_of(selector.name, is_rate=is_rate)
    name = selector.name.replace(":", "_")[:50] + ("" if take is None else f"_{take}")
    return _Parsed(
        name,
        unit,
        not is_rate,
        EVERY_S,
        TIMEOUT_S,
        lambda metric, _: OpenMetrics(metric, url, selector, take),
    )


def _unit_of(name: str, *, is_rate: bool) -> str:
    """Return the unit by the name, following the rules of OpenMetrics; "" if it is not known.

    The rate of a name in seconds or bytes that is no counter may be that of a histogram's observations, or of a gauge.
    """
    if name.endswith(("_count", "_bucket")):
        return "1/s" if is_rate else ""
    counter = name.endswith("_total")
    ends = (("_seconds", "s"), ("_bytes", "bytes"), ("_ratio", "1"))
    unit = next((unit for end, unit in ends if name.removesuffix("_total").endswith(end)), "")
    if not is_rate:
        return unit
    return f"{unit or '1'}/s" if counter or not unit else ""


def _command(text: str) -> _Parsed:
    words = text.split()
    name = re.sub(r"[^A-Za-z0-9_.-]", "", words[0].rpartition("/")[2])[:60] if words else ""
    name = name if name[:1].isalpha() else "command"
    return _Parsed(
        name,
        "",
        True,
        programs.EVERY_S,
        programs.TIMEOUT_S,
        lambda metric, flags: Command(metric, text, rate="rate" in flags),
    )


def _log(text: str) -> _Parsed:
    path, colon, rest = text.partition(":")
    if not path or not colon:
        raise _expected("log", "FILE:REGEX", text, r"log:/var/log/app.log:took ([0-9.]+) ms:p99")
    pattern, take = _taken(rest, ("rate", "mean", "count", "p"))
    counts = take in ("rate", "count") or (take is None and followed_log.regex_of(pattern).groups == 0)
    name = re.sub(r"[^A-Za-z0-9_.-]", "", path.rpartition("/")[2])[:50] or "log"
    return _Parsed(
        f"{name if name[:1].isalpha() else 'log'}{'' if take is None else f'_{take}'}",
        "" if not counts or take == "count" else "1/s",
        not counts,
        followed_log.EVERY_S,
        TIMEOUT_S,
        lambda metric, _: FollowedLog(metric, path, pattern, take),
    )


def _device(text: str, device: str | None) -> _Parsed:
    named, colon, what = text.rpartition(":")
    target = named if colon else device
    if what not in DEVICE_METRICS:
        raise UnknownName("metric of a device", what[:60], DEVICE_METRICS, where="--metric")
    if not target:
        raise _expected(
            "device", "NAME:METRIC", text, f"device:NAME:{what}, with a name from /sys/class/block"
        )
    unit, lower, _ = DEVICE_METRICS[what]
    return _Parsed(
        what, unit, lower, kernel.EVERY_S, TIMEOUT_S, lambda metric, _: device_source(metric, target, what)
    )


def _psi(text: str) -> _Parsed:
    name = "psi-" + text.replace(":", "-")[:40]
    return _Parsed(
        name, "%", True, kernel.EVERY_S, TIMEOUT_S, lambda metric, _: pressure_source(metric, text)
    )


def _cpu(text: str) -> _Parsed:
    if text:
        raise _expected("cpu", "nothing after it", text)
    return _Parsed("cpu", "%", True, kernel.EVERY_S, TIMEOUT_S, lambda metric, _: Processors(metric))


def _taken(text: str, known: tuple[str, ...]) -> tuple[str, str | None]:
    """Split ``:rate``, ``:mean``, ``:count`` or ``:pNN`` from the end. Raises RequestError for p0."""
    found = _TAKE.search(text)
    if found is None or not (found[1] in known or found[1][0] == "p"):
        return text, None
    if found[1][0] == "p" and float(found[1][1:]) <= 0.0:
        raise _expected("--metric", "a quantile from p1 to p99.99", found[1])
    return text[: found.start()], found[1]


_PARSERS: dict[str, Callable[[str], _Parsed]] = {
    "promql": _promql,
    "openmetrics": _openmetrics,
    "command": _command,
    "log": _log,
    "psi": _psi,
    "cpu": _cpu,
}
