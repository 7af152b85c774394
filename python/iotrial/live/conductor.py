"""Conducts a live trial: its runs are windows of a service in use.

Rounds, stopping, storing and analysis are those of every trial (``runner.trial``). A window switches the settings, reads
them back, waits for the washout, counts, and reads back again. Today's settings are in force while the trial rests (quiet
hours, the maximum share of the time), while it waits for a lost metric, and while an analysis takes long.

After such a rest a window with today's settings would begin without a change and any other with one, and a cost of
switching would look like an effect. So a *lead-in* comes first: a setting drawn for the block is set, with a change in
any case (away and back, if it is today's), for as long as a washout. Then whether the first window begins with a change
is a fair draw, as it is where block follows block (``stats.switchback``).

A block with a disturbed window is void as a whole, by rules that do not look at the settings: a metric was lost, a clock was
set, the machine slept, a window was late, something else changed a setting, or the trial was cut off. Once a window is void,
today's settings are set and the rest of its block is not run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from iotrial.design.keyed import Stream
from iotrial.design.model import Arm, Block, Condition, PlannedRun, WashIn
from iotrial.errors import IotrialError, KnobError, LabError, UnsupportedLevel
from iotrial.lab import health
from iotrial.live.exposition import Exporter, Running, RunningGuard, RunningMetric
from iotrial.live.metrics import Metrics
from iotrial.live.question import PORT
from iotrial.live.session import LiveSession
from iotrial.live.sources import MetricLost, WindowVoid
from iotrial.report.notation import quantity
from iotrial.runner.outcome import Outcome, voided
from iotrial.runner.start import Engine
from iotrial.runner.trial import Conductor, Line
from iotrial.stats.contrast import Responses, Runs
from iotrial.stats.model import ObservedBlock
from iotrial.stats.switchback import log_harm
from iotrial.stats.voids import Void
from iotrial.store.accounted import GUARD
from iotrial.store.checks import LEAD_IN, WINDOW
from iotrial.store.model import TrialState
from iotrial.study.scales import Better, Scale
from iotrial.terminal import escape
from iotrial.units import format_duration, format_percent
from iotrial.workloads.live import Guard, LiveWork, hours_of, work_of

#: how often hard limits are checked and the heartbeat is written
TICK_S = 1.0
#: a clock that has moved by more against the monotonic one was set; NTP slews at most 0.5 ms in a second
CLOCK_STEP_S = 0.5
SLEEP_S = 0.1
#: a window that lasts this much longer than planned was held up, and so was one in which iotrial was, by this much
LATE_S = 2.0
#: how long a trial waits for a lost metric, with today's settings, before it gives up
LOST_FOR_S = 600.0
_ASKS_AGAIN_S = 5.0
_ANALYSIS_S = 300.0
#: today's settings are set for the next analysis if the last one took longer
_QUICK_ANALYSIS_S = 2.0
_SHOWN_BLOCKS = 20


class _GuardTripped(Exception):
    """A guard ends the trial; the message says why."""

    def __init__(self, guard: Guard, message: str) -> None:
        super().__init__(message)
        self.guard = guard


@dataclass(frozen=True, slots=True)
class _Clocks:
    """By how much two other clocks are ahead of the monotonic one, in seconds: the time of day, and the time since boot."""

    of_day_s: float
    since_boot_s: float

    @classmethod
    def now(cls) -> _Clocks:
        monotonic = time.monotonic()
        return cls(time.time() - monotonic, time.clock_gettime(time.CLOCK_BOOTTIME) - monotonic)

    def disturbed(self) -> tuple[Void, str] | None:
        """Return the rule and what has happened since, if the clock was set or the machine slept."""
        now = _Clocks.now()
        slept = now.since_boot_s - self.since_boot_s
        if slept > SLEEP_S:
            return Void.SLEPT, f"the machine slept for {format_duration(slept)}"
        step = now.of_day_s - self.of_day_s
        if abs(step) > CLOCK_STEP_S:
            return Void.CLOCK_SET, f"the clock was set by {step:+.1f} s"
        return None


class LiveConductor(Conductor):
    """Runs one live trial in an open ``LiveSession``."""

    def run(self) -> TrialState:
        session, work = self._live, self._work
        self._void_from: tuple[Void, str, int] | None = None
        self._spent_s = self._changed_s = self._held_up_s = 0.0
        self._over: dict[Guard, float] = {}
        #: by guard, the evidence of harm as a share of what stops the trial
        self._harm: dict[Guard, float] = {}
        self._lost = False
        #: of the last window, if its settings are still in force; None after a rest
        self._set_arm: Arm | None = None
        self._analysis_s = 0.0
        for line in self._lines.values():
            line.block_s = work.block_s(self._windows)
        self._hard = tuple(guard for guard in work.guarding if guard.is_limit)
        self._metrics = Metrics(work, session.context_in_use.place.whole)
        self._newest: dict[str, dict[str, float]] = {one.name: {} for one in work.metrics}
        self._in_force: dict[str, float] = dict.fromkeys((arm.name for arm in self._plan.treatments), 0.0)
        self._seen: Mapping[str, float] = {}
        self._tripped: Guard | None = None
        self._state, self._arm = "waiting", self._plan.reference
        with ExitStack() as stack:
            port = self._options.get(PORT)
            self._exporter = stack.enter_context(Exporter(port)) if isinstance(port, int) else None
            if self._exporter is not None:
                self._watcher.say(f"the state of the trial: {self._exporter.url}")
            stack.enter_context(self._metrics.running())
            try:
                return super().run()
            except _GuardTripped as tripped:
                self._to_today()
                self._tripped = tripped.guard
                self._enter("reverted", self._plan.reference)
                text = f"{tripped}; today's settings are set again"
                self._store.note(self._trial, GUARD, text)
                self._watcher.say(f"stopped by the guard: {text}")
                return self._finish()

    @property
    def _live(self) -> LiveSession:
        assert isinstance(self._session, LiveSession)
        return self._session

    @property
    def _work(self) -> LiveWork:
        return work_of(self._plan.study)

    @property
    def _windows(self) -> int:
        return len(self._plan.arms(controls=True))

    # between blocks

    def _rehearse(self) -> None:
        """Nothing to rehearse: the service is running."""

    def _next_wash_in(self, line: Line) -> WashIn | None:
        return None

    def _block(self, line: Line) -> None:
        self._void_from = None
        if line.condition.key in self._unfinished:
            why = "the trial was cut off in the middle of this block, so its windows are too far apart"
            self._void_from = Void.CUT_OFF, why, line.next_index
        elif not self._ready():
            return  # the time is up
        super()._block(line)

    def _look(self, line: Line, *, always: bool = False) -> None:
        if self._analysis_s > _QUICK_ANALYSIS_S:
            self._to_today()
        self._enter("waiting", self._set_arm or self._plan.reference)
        self._live.watchdog.beat(_ANALYSIS_S)
        began = time.monotonic()
        super()._look(line, always=always)
        self._check_harm(line)
        self._analysis_s = time.monotonic() - began
        self._live.watchdog.beat()

    def _to_today(self) -> None:
        self._live.to_today()
        self._set_arm = None

    def _ready(self) -> bool:
        """Rest, with today's settings, until the next block may begin; return False if the time is up before."""
        work = self._work
        span = timedelta(seconds=work.washout_s + work.block_s(self._windows))
        hours = hours_of(work.quiet_hours)
        while self.elapsed_s < self._limits.time_s:
            wall = datetime.now()
            lead_in_s = work.washout_s if self._set_arm is None else 0.0
            if hours is not None and hours.within(wall, span):
                self._say(f"quiet hours ({work.quiet_hours}): resting with {work.resting}")
                self._rest(60.0)
            elif (wait_s := work.owed_s(self._windows, self._spent_s, self._changed_s, lead_in_s)) > 0.0:
                self._say(
                    f"resting with {work.resting} for {format_duration(math.ceil(wait_s))} (--most-share)"
                )
                self._rest(wait_s)
            elif self._lost and not self._regained():
                self._rest(_ASKS_AGAIN_S)
            else:
                return True
        return False

    def _rest(self, seconds: float) -> None:
        began = time.monotonic()
        self._to_today()
        self._enter("paused", self._plan.reference)
        try:
            with self._signals.interruptible():
                self._wait(began + min(seconds, self._limits.time_s - self.elapsed_s + 0.01))
        except MetricLost:
            self._lose()
        self._spent_s += time.monotonic() - began
        self._in_force[self._plan.reference.name] += time.monotonic() - began

    def _lose(self) -> None:
        self._lost, self._lost_since = True, time.monotonic()

    def _regained(self) -> bool:
        """Ask for the lost metrics again. Raises LabError if they have been lost for too long."""
        self._live.watchdog.beat(self._metrics.longest_s)
        try:
            self._metrics.restart()
        except IotrialError as error:
            self._say(f"waiting for the metric with {self._work.resting}: {error.message}")
            if time.monotonic() - self._lost_since > LOST_FOR_S:
                raise LabError(
                    f"a metric has been lost for {format_duration(LOST_FOR_S)}: {error.message}",
                    hint="today's settings are set; `iotrial resume` goes on when the metric is back",
                ) from error
            return False
        self._lost = False
        return True

    def _check_harm(self, line: Line) -> None:
        """Raise _GuardTripped if a setting is shown to be worse than today's by more than a guard allows."""
        guards = [guard for guard in self._work.guarding if not guard.is_limit]
        reference = self._plan.reference
        arms = [arm for arm in self._plan.arms(controls=False) if arm is not reference]
        if not guards or not line.blocks:
            return
        threshold = math.log(len(guards) * len(arms) / self._spec.alpha)
        runs = Runs(line.blocks)
        for guard in guards:
            assert guard.worse_by is not None
            response = next(one for one in self._plan.study.responses if one.name == guard.metric)
            higher = response.better is Better.HIGHER
            limit = -math.log1p(-guard.worse_by) if higher else math.log1p(guard.worse_by)
            table = Responses(runs, response)
            harms: list[float] = []
            for arm in arms:
                sign = -1.0 if higher else 1.0
                found = table.contrasts({arm.name: sign, reference.name: -sign})
                harm = log_harm(found.values, limit)
                harms.append(max(0.0, harm / threshold))
                if harm >= threshold:
                    raise _GuardTripped(
                        guard,
                        f"{self._in_words(arm)} makes {guard.metric} worse by more than {format_percent(guard.worse_by)}, as "
                        f"{len(found.values)} blocks show",
                    )
            self._harm[guard] = max(harms, default=0.0)

    # one window

    def _run(
        self, condition: Condition, planned: PlannedRun, block: Block, *, wash_in: WashIn | None
    ) -> Outcome:
        if self._void_from is not None and self._void_from[2] == block.index:
            rule, problem, _ = self._void_from
            return Outcome(void=rule, problem=problem, started_ns=time.monotonic_ns())
        began = time.monotonic()
        try:
            lead_in = self._lead_in(condition, block) if self._set_arm is None else None
            began = time.monotonic()
            outcome = self._window(condition, planned, block, lead_in)
        except WindowVoid as error:
            outcome = Outcome(void=Void.NO_VALUE, problem=error.message)
        except MetricLost as error:
            self._lose()
            outcome = Outcome(void=Void.METRIC_LOST, problem=error.message)
        except (KnobError, UnsupportedLevel) as error:
            health.check(self._live.context_in_use.place, error.message)
            if isinstance(error, UnsupportedLevel):
                raise
            outcome = voided(error)
        self._count(planned.arm, time.monotonic() - began)
        if outcome.void is not None:
            self._to_today()
            self._void_from = (outcome.void, outcome.problem or "", block.index)
            self._watcher.say(f"block {block.index + 1} is void: {outcome.problem}")
        return outcome

    def _lead_in(self, condition: Condition, block: Block) -> Arm:
        """Set a drawn arm for the time of a washout, beginning with a change; return it."""
        arms = sorted((one.arm for one in block.runs), key=lambda arm: arm.name)
        arm = arms[Stream(self._plan.seed, LEAD_IN, condition.key, block.index).below(len(arms))]
        began = time.monotonic()
        self._live.watchdog.beat()
        if arm is self._plan.reference:
            self._live.switch(condition, next(one for one in arms if one is not arm))
        self._live.switch(condition, arm)
        self._set_arm = arm
        self._metrics.switched()
        self._enter("washout", arm)
        self._phase(f"block {block.index + 1}, lead-in with {self._in_words(arm)}")
        self._wait(began + self._work.washout_s)
        self._count(arm, time.monotonic() - began)
        return arm

    def _count(self, arm: Arm, seconds: float) -> None:
        self._spent_s += seconds
        self._in_force[arm.name] += seconds
        self._changed_s += seconds if arm is not self._plan.reference else 0.0

    def _window(
        self, condition: Condition, planned: PlannedRun, block: Block, lead_in: Arm | None
    ) -> Outcome:
        work, arm = self._work, planned.arm
        named = f"block {block.index + 1}, {self._in_words(arm)}"
        clocks, switched = _Clocks.now(), time.monotonic()
        self._held_up_s = 0.0
        self._live.watchdog.beat()
        self._live.switch(condition, arm, stays=arm is self._set_arm)
        self._set_arm = arm
        self._metrics.switched()
        self._enter("washout", arm)
        self._phase(f"{named}: washout of {format_duration(work.washout_s)}")
        self._wait(switched + work.washout_s)
        self._live.settings.check_in_force("before the window")
        self._live.watchdog.beat(self._metrics.longest_s)
        self._metrics.begin()
        began = time.monotonic()
        self._enter("measuring", arm)
        self._phase(f"{named}: counting for {format_duration(work.window_s)}")
        end = began + work.window_s
        self._wait(end)
        self._live.watchdog.beat(self._metrics.longest_s)
        found = self._metrics.end()
        ended = time.monotonic()
        self._live.settings.check_in_force("after the window")
        for name, value in found.items():
            self._newest[name][arm.name] = value
        disturbed = clocks.disturbed()
        late_s = max(ended - end, began - switched - work.washout_s, self._held_up_s)
        if disturbed is None and late_s > LATE_S:
            disturbed = Void.LATE, f"a part of the window was {late_s:.1f} s late"
        return Outcome(
            responses=found,
            checks={
                "clock": {
                    "unix_s": round(time.time() - (time.monotonic() - began), 3),
                    "lasted_s": ended - began,
                },
                WINDOW: {
                    "switched_s": round(switched - began, 3),
                    **self._metrics.samples(began),
                    **({} if lead_in is None else {LEAD_IN: lead_in.name}),
                },
            },
            started_ns=round(began * 1e9),
            void=None if disturbed is None else disturbed[0],
            problem=None if disturbed is None else disturbed[1],
        )

    def _wait(self, until: float) -> None:
        """Wait until this moment of the monotonic clock.

        Every second the heartbeat is written and the metrics are looked at. Raises MetricLost, _GuardTripped.
        """
        while (left := until - (now := time.monotonic())) > 0.0:
            self._live.watchdog.beat()
            if not self._lost:
                self._check_limits()
            with self._signals.waiting():
                time.sleep(max(0.0, min(TICK_S, left)))
            # the machine may have been frozen in the middle of a window that ends in time all the same
            self._held_up_s = max(self._held_up_s, time.monotonic() - now - TICK_S)

    def _check_limits(self) -> None:
        """Raise _GuardTripped if a current value has been beyond its hard limit for long enough."""
        now = time.monotonic()
        self._seen = found = self._metrics.look(now)
        self._export()
        self._show(())
        for guard in self._hard:
            value = found.get(guard.metric)
            if value is None or not guard.exceeded(value):
                self._over.pop(guard, None)
                continue
            if now - self._over.setdefault(guard, now) >= guard.lasting_s:
                unit = self._metrics.unit(guard.metric)
                raise _GuardTripped(
                    guard, f"{guard.metric} is {value:.4g} {unit}, beyond its limit ({guard.text})"
                )

    # what is shown

    def _doing(self) -> str:
        """Return the phase, the current value of every metric, and how near each guard is to stopping the trial."""
        values = [
            f"{escape(one.name)} {quantity(self._seen[one.name], escape(one.unit))}"
            for one in self._work.metrics
            if one.name in self._seen
        ]
        guards = [f"guard {escape(guard.text)}: {self._state_of(guard)}" for guard in self._work.guarding]
        return "; ".join(
            filter(None, (self._activity, f"now {', '.join(values)}" if values else "", *guards))
        )

    def _state_of(self, guard: Guard) -> str:
        if guard == self._tripped:
            return "has stopped the trial"
        if guard.is_limit:
            since = self._over.get(guard)
            return "holds" if since is None else f"exceeded for {format_duration(time.monotonic() - since)}"
        return f"{format_percent(self._harm.get(guard, 0.0))} of the evidence that stops it"

    def _recent(self) -> tuple[ObservedBlock, ...]:
        return tuple(block for line in self._lines.values() for block in line.blocks[-_SHOWN_BLOCKS:])

    def _in_words(self, arm: Arm) -> str:
        return escape(", ".join(f"{factor} {label}" for factor, label in arm.treatment.items()))

    def _enter(self, state: str, arm: Arm) -> None:
        self._state, self._arm = state, arm
        self._export()

    def _export(self) -> None:
        """Export the state of the trial as metrics."""
        if self._exporter is None:
            return
        lines = list(self._lines.values())
        effects = [
            e for line in lines if line.state is not None for e in line.state.effects if e.kind == "main"
        ]
        metrics = []
        for number, metric in enumerate(self._work.metrics):
            own = {e.level: e for e in effects if e.response == metric.name and e.scale is Scale.LOG}
            metrics.append(
                RunningMetric(
                    metric.name,
                    metric.unit,
                    primary=number == 0,
                    current=self._seen.get(metric.name),
                    windows=self._newest[metric.name],
                    ratio={level: e.value for level, e in own.items() if e.value is not None},
                    low={level: e.low for level, e in own.items() if e.low is not None},
                    high={level: e.high for level, e in own.items() if e.high is not None},
                    log_evidence={level: math.log(e.e_value) for level, e in own.items() if e.e_value},
                )
            )
        spent = sum(self._in_force.values())
        self._exporter.update(
            Running(
                trial=str(self._number),
                knob=", ".join(factor.name for factor in self._plan.study.treatment_factors),
                state=self._state,
                level=self._arm.name,
                levels=[arm.name for arm in self._plan.treatments],
                pairs=sum(line.complete for line in lines),
                void_pairs=sum(line.void for line in lines),
                metrics=metrics,
                guards=[
                    RunningGuard(
                        guard.text,
                        tripped=guard == self._tripped,
                        limit=guard.above if guard.below is None else guard.below,
                        value=self._seen.get(guard.metric) if guard.is_limit else None,
                    )
                    for guard in self._work.guarding
                ],
                share={arm: s / spent for arm, s in self._in_force.items()} if spent else {},
            )
        )

    def _phase(self, text: str) -> None:
        self._activity = text
        self._show(())

    def _say(self, text: str) -> None:
        if text != self._activity:
            self._watcher.say(text)
        self._activity = text

    def _finish(self) -> TrialState:
        self._activity = ""
        self._to_today()
        for line in self._lines.values():
            with suppress(_GuardTripped):  # it ends anyway
                self._look(line, always=True)
        self._enter("reverted" if self._tripped else "ended", self._plan.reference)
        return self._decide()


LIVE = Engine(LiveSession, LiveConductor)
