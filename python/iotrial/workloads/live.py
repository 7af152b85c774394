"""Workload kind ``live``: time windows of a service in use, judged by the service's own metrics (``iotrial live``).

The probe does nothing in such a run: ``iotrial.live`` switches the settings, leaves the washout out, and asks the metrics.
What a study declares about it is here: windows, metrics, guards, and the hours and the share of the time in which settings
may differ from today's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from iotrial.errors import twice, unknown
from iotrial.study.model import Setting, Study
from iotrial.study.places import IN_PLACE
from iotrial.study.scales import Better, Scale
from iotrial.study.schema import Argument, Duration, Form, Line, Name, Problem, Share, formed, keyed
from iotrial.study.work import HasPrograms, Launched, ResponseSpec, Work
from iotrial.units import UnitError, converted, parse_duration, parse_fraction

_GUARD = re.compile(
    r"(?:(?P<metric>[A-Za-z0-9][A-Za-z0-9_.-]*)\s+)??"
    r"(?:worse\s+by\s+(?P<worse>\S.*)|(?P<sign>[<>])\s*(?P<value>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>\S*?)"
    r"(?:\s+for\s+(?P<lasting>\S.*))?)"
)
_EXAMPLES = "such as 'p99 worse by 20 %', 'p99 > 50 ms' or 'p99 > 50 ms for 5 s'"
_HOURS = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])\s*-\s*([01]?[0-9]|2[0-3]):([0-5][0-9])")


class Metric(Struct, frozen=True, kw_only=True):
    """One number of the service; the first one of a study is judged, the others are explored."""

    name: Annotated[Name, Meta(description="what reports call it")]
    source: Annotated[
        Argument, Meta(min_length=1, description="where its value comes from, as for `iotrial live --metric`")
    ]
    unit: Annotated[str, Meta(min_length=1, max_length=20, description="its unit")] = "1"
    better: Annotated[Better, Meta(description="`lower` or `higher`")] = Better.LOWER
    scale: Annotated[
        Scale, Meta(description="compared by ratio (`log`; values above 0) or by difference")
    ] = Scale.LOG


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition on a metric under which the trial stops and today's settings are set again.

    Either ``worse_by`` (a fraction: windows with a setting are shown to be worse than today's by more than this), or a hard
    limit on the current value, in the metric's unit, that is exceeded for ``lasting_s`` seconds without a break.
    """

    text: str
    metric: str
    worse_by: float | None = None
    above: float | None = None
    below: float | None = None
    lasting_s: float = 0.0

    @property
    def is_limit(self) -> bool:
        """Whether it is a hard limit on the current value."""
        return self.worse_by is None

    def exceeded(self, value: float) -> bool:
        """Return whether a current value is beyond the hard limit."""
        return (self.above is not None and value > self.above) or (
            self.below is not None and value < self.below
        )


@dataclass(frozen=True, slots=True)
class QuietHours:
    """Hours of the day (local time) in which the trial rests, with today's settings. They may span midnight."""

    begin: timedelta
    end: timedelta

    def left(self, now: datetime) -> timedelta:
        """Return how long it is until the quiet hours end; zero outside of them."""
        of_day = now - now.replace(hour=0, minute=0, second=0, microsecond=0)
        inside = (
            self.begin <= of_day < self.end if self.begin < self.end else not self.end <= of_day < self.begin
        )
        return (self.end - of_day) % timedelta(days=1) if inside else timedelta()

    def within(self, now: datetime, span: timedelta) -> bool:
        """Return whether any part of the span from now on is quiet."""
        of_day = now - now.replace(hour=0, minute=0, second=0, microsecond=0)
        return bool(self.left(now)) or (self.begin - of_day) % timedelta(days=1) < span


def guard_of(text: str, metrics: Sequence[Metric]) -> Guard:
    """Parse "p99 worse by 20 %" or "p99 > 50 ms for 5 s"; without a name it is about the first metric. Raises Problem."""
    found = _GUARD.fullmatch(" ".join(text.split()))
    if found is None:
        raise Problem(f'guard "{text}": expected METRIC worse by PERCENT, or METRIC > VALUE', hint=_EXAMPLES)
    metric = metrics[0] if found["metric"] is None else _named(text, found["metric"], metrics)
    if found["worse"] is not None:
        if metric.scale is not Scale.LOG:
            raise Problem(
                f'guard "{text}": {metric.name} can be 0, so it has no percent',
                hint="use a limit: METRIC > VALUE",
            )
        try:
            share = parse_fraction(found["worse"], what="share")
        except UnitError as error:
            raise Problem(f'guard "{text}": {error.message}', hint=_EXAMPLES) from None
        if not 0.0 < share < (1.0 if metric.better is Better.HIGHER else 100.0):
            raise Problem(f'guard "{text}": {metric.name} cannot be worse by that much', hint=_EXAMPLES)
        return Guard(text, metric.name, worse_by=share)
    value = _limit(text, float(found["value"]), found["unit"], metric)
    try:
        lasting_s = 0.0 if found["lasting"] is None else parse_duration(found["lasting"])
    except UnitError as error:
        raise Problem(f'guard "{text}": {error.message}', hint=_EXAMPLES) from None
    if found["sign"] == ">":
        return Guard(text, metric.name, above=value, lasting_s=lasting_s)
    return Guard(text, metric.name, below=value, lasting_s=lasting_s)


def _named(text: str, name: str, metrics: Sequence[Metric]) -> Metric:
    for metric in metrics:
        if metric.name == name:
            return metric
    message, hint = unknown("metric", name, [metric.name for metric in metrics], where=f'guard "{text}"')
    raise Problem(message, hint=hint)


def _limit(text: str, value: float, unit: str, metric: Metric) -> float:
    """Return the value in the metric's unit."""
    if not unit or unit == metric.unit:
        return value
    found = converted(value, unit, metric.unit)
    if found is None:
        raise Problem(
            f'guard "{text}": {metric.name} is measured in "{metric.unit}", which "{unit}" cannot be converted to',
            hint=f"write the limit in {metric.unit}",
        )
    return found


def hours_of(text: str) -> QuietHours | None:
    """Parse "22:00-06:00" (local time); None for no text. Raises Problem."""
    if not text:
        return None
    found = _HOURS.fullmatch(text.strip())
    if found is None:
        raise Problem(f'quiet hours "{text}": expected a time of day and another', hint="such as 22:00-06:00")
    begin, end = (timedelta(hours=int(found[at]), minutes=int(found[at + 1])) for at in (1, 3))
    if begin == end:
        raise Problem(f'quiet hours "{text}": begin and end are the same', hint="such as 22:00-06:00")
    return QuietHours(begin, end)


def _readable_hours(text: str) -> None:
    hours_of(text)


class LiveWork(HasPrograms, Work, frozen=True, kw_only=True):
    """Windows of a service in use. Each run is one window: the washout, which is not counted, then the counted part."""

    kind = "live"
    about = "Time windows of a service in use, judged by the service's own metrics (`iotrial live`)."
    documented = (
        ResponseSpec(
            "METRIC", "its own", Scale.LOG, Better.LOWER, "value of a metric over the counted part", False
        ),
    )
    noun = "its metrics"
    verb = "none"
    timed = False
    in_windows = True

    window_s: Annotated[Duration, Meta(gt=0, le=86400, description="the counted part of a window")] = 30.0
    washout_s: Annotated[
        Duration,
        Meta(ge=0, le=86400, description="not counted after each switch, whether or not it changes anything"),
    ] = 10.0
    metrics: Annotated[
        tuple[Metric, ...],
        keyed("metric"),
        formed(Form("[[workload.metric]] tables")),
        Meta(min_length=1, max_length=32, description="what the service is judged by"),
    ]
    guards: Annotated[
        tuple[Line, ...],
        keyed("guard"),
        Meta(
            max_length=32,
            description="when to stop and set today's settings again: `p99 worse by 20 %`, `p99 > 50 ms for 5 s`",
        ),
    ] = ()
    most_share: Annotated[
        Share,
        Meta(gt=0, le=1, description="most of the time that settings may differ from today's; 1: no limit"),
    ] = 1.0
    quiet_hours: Annotated[
        Line,
        formed(Form("hours", check=_readable_hours)),
        Meta(
            description="hours of the day (local time) in which it rests with today's settings: `22:00-06:00`"
        ),
    ] = ""

    #: how the settings stand while the trial rests
    resting: ClassVar[str] = "today's settings"

    def check(self) -> None:
        names = [metric.name for metric in self.metrics]
        for index, metric in enumerate(self.metrics):
            if metric.name in names[:index]:
                raise Problem(twice("metric", metric.name), "metric", index, "name")
            if metric.better is Better.NONE:
                raise Problem(f'metric "{metric.name}": expected lower or higher', "metric", index, "better")
        for index, text in enumerate(self.guards):
            try:
                guard_of(text, self.metrics)
            except Problem as problem:
                raise Problem(problem.message, "guard", index, hint=problem.hint) from None
        hours_of(self.quiet_hours)

    @property
    def guarding(self) -> tuple[Guard, ...]:
        """The guards, parsed."""
        return tuple(guard_of(text, self.metrics) for text in self.guards)

    def block_s(self, windows: int) -> float:
        """Return how long a block of this number of windows takes."""
        return windows * (self.washout_s + self.window_s)

    def owed_s(self, windows: int, spent_s: float, changed_s: float, lead_in_s: float = 0.0) -> float:
        """Return how long to rest before a block, so that after it settings differed from today's for their share at most.

        ``windows``: of a block, one of them with today's settings. ``spent_s``: how long the trial has lasted,
        ``changed_s``: for how long of this settings differed. ``lead_in_s``: of the lead-in before the block, which may
        have any setting. Not above 0: it need not rest.
        """
        changed_s += lead_in_s + self.block_s(windows - 1)
        return changed_s / self.most_share - (spent_s + lead_in_s + self.block_s(windows))

    def responses(self) -> tuple[ResponseSpec, ...]:
        return tuple(
            ResponseSpec(one.name, one.unit, one.scale, one.better, f"from {one.source}", False)
            for one in self.metrics
        )

    def described(self) -> str:
        return f"windows of {self.window_s:g} s after a washout of {self.washout_s:g} s, of a service in use"

    def labs(self) -> frozenset[str]:
        return frozenset({IN_PLACE})

    def writes(self) -> bool:
        return False

    def on_files(self) -> bool:
        return False

    def texts(self) -> Iterator[str]:
        yield from ()

    def demands(self, settings: Sequence[Setting]) -> Iterator[str]:
        yield "reads metrics of this machine, by its own commands, files and addresses, as the user who runs it"

    def launched(self) -> Launched:
        return Launched(tuple(f"{one.name}: {one.source}" for one in self.metrics))


def work_of(study: Study) -> LiveWork:
    """Return the only work of a study of a service in use."""
    work = study.workloads[0].work
    assert isinstance(work, LiveWork)
    return work


WORK = LiveWork
