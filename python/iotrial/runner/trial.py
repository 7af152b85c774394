"""The conductor: rounds of blocks until every condition is decided or the budget is spent.

Decisions are made between complete blocks only. A block that has begun is finished, if necessary by
``resume`` (and marked ``gap``). Every finished run is stored before the next one starts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from iotrial.design.model import Arm, ArmKind, Before, Block, Condition, PlannedRun, WashIn
from iotrial.design.plan import Plan
from iotrial.design.treatments import join
from iotrial.errors import KnobError, LabError, NoAnswer, ProbeError, RequestError, TargetError
from iotrial.knobs.knob import RunContext
from iotrial.lab import health
from iotrial.runner.budget_note import Fewer, budget_note, fewer_levels
from iotrial.runner.outcome import UNUSED, Outcome
from iotrial.runner.progress import Snapshot, Watcher
from iotrial.runner.resolve import KnobSetting
from iotrial.runner.run import NothingPrinted, Runner
from iotrial.runner.session import Session
from iotrial.runner.signals import StopSignals
from iotrial.runner.syscall_pass import A_TENTH, Accounting
from iotrial.runner.time_account import Part
from iotrial.runner.touched import (
    MOST_COLD,
    NOT_USED,
    Touched,
    had_request,
    leaves_work,
    little_note,
    names_note,
    needs_lab,
    outside_note,
    refusal,
    rewritten_note,
    sets_device,
    uncounted,
    uncounted_note,
    uneven_note,
    unseen_note,
)
from iotrial.stats.analyse import ConditionState, Spec, analyse, analyse_condition, look_due
from iotrial.stats.carryover import in_words, wash_in_words
from iotrial.stats.model import FinalAnalysis, Observation, ObservedBlock
from iotrial.stats.voids import Void
from iotrial.store import Store
from iotrial.store.accounted import NOT_USED as NOT_USED_KIND
from iotrial.store.accounted import OUTSIDE
from iotrial.store.model import (
    AFTER_ITSELF,
    WASH_IN,
    BlockEnd,
    RunRecord,
    StoredTrial,
    TrialData,
    TrialHeader,
    TrialState,
)
from iotrial.store.not_tried import why_not_tried
from iotrial.store.records import observation_of, wash_in_check, washed_in

FAILURES_TO_DROP = 3
READ_BACKS_TO_FAIL = 3
#: complete blocks after which a setting that none of their runs could feel needs no more
BLOCKS_TO_FEEL = 5
#: a trial ends when at least this many blocks, and this share of all, are void because something else changed a setting
CHANGES_TO_END, SHARE_TO_END = 3, 0.25
VOIDS_TO_DROP = 20  # without one complete block in between


#: number of runs after which the time is judged, if each takes at least this many seconds
MOST_FIRST, SLOW_S = 2, 1.0
#: of the time that is left, for fewer levels: their runs may be longer than the first ones
SURELY = 0.85


class _FewerFirst(Exception):
    """The time is too short for all levels, and fewer are to be compared."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop: seconds, complete blocks of each condition, and whether verdicts may stop it.

    ``time_s`` are seconds of measuring or, with ``report_s``, all until the answer: with the preparation, what is counted at
    the end, and this many seconds for the report. ``fewer``: end early if the time is too short for all levels and enough for
    fewer (``Conductor.fewer``).
    """

    time_s: float
    blocks: int
    stop_when_decided: bool = True
    report_s: float | None = None
    fewer: bool = False

    def measuring_s(self, prepared_s: float, *, counts: bool) -> float:
        """Return the seconds for measuring after a preparation of this many seconds: at least half of all.

        ``counts``: system calls or requests are counted at the end.
        """
        if self.report_s is None:
            return self.time_s
        counting_s = A_TENTH * self.time_s if counts else 0.0
        return max(self.time_s / 2.0, self.time_s - prepared_s - counting_s - self.report_s)


@dataclass(slots=True)
class Line:
    """Progress of one condition."""

    condition: Condition
    blocks: list[ObservedBlock]
    next_index: int = 0
    last_look: int = 0
    state: ConditionState | None = None
    void: int = 0
    failures: int = 0
    block_s: float = 0.0
    #: its finished runs, without histograms and checks
    runs: list[RunRecord] = field(default_factory=list)

    @property
    def dropped(self) -> bool:
        """Whether it fails too often, or never completes a block that counts."""
        return self.failures >= FAILURES_TO_DROP or (self.void >= VOIDS_TO_DROP and not self.complete)

    @property
    def decided(self) -> bool:
        return self.dropped or (self.state is not None and self.state.decided)

    @property
    def complete(self) -> int:
        return sum(block.void is None for block in self.blocks)

    @property
    def inside(self) -> frozenset[str] | None:
        """The arms still in a race; None if all arms run."""
        race = None if self.state is None else self.state.race
        return None if race is None else race.inside

    def count_failures(self, observations: Sequence[Observation], spec: Spec) -> None:
        """Count a block with a failed run; in a race only where the reference fails, because other arms just leave it."""
        against = spec.race_against
        self.failures += any(o.failure and against in (None, o.arm) for o in observations)

    def keep(self, run: RunRecord) -> None:
        """Keep what a run measured."""
        self.runs.append(replace(run, histograms={}, checks={}, files=None))

    def look(self, spec: Spec, every: Sequence[ObservedBlock], header: TrialHeader) -> None:
        """Analyse the blocks once one counts; ``every``: those of all conditions."""
        if self.complete:
            judges = spec.race_against is None and self.complete >= BLOCKS_TO_FEEL
            why = partial(why_not_tried, header.study, self.runs, header.host) if judges else None
            self.state = analyse_condition(spec, self.condition.key, self.blocks, every, why_not_tried=why)
            self.last_look = self.complete

    @property
    def wash_in(self) -> WashIn | None:
        """The unmeasured runs before each measured one of the next block (wash-in).

        They start, or become more, with the block after runs were found to depend on those before them. This depends only
        on the stored blocks, so a resumed trial continues as it would have.
        """
        if self.state is not None and self.state.carry_over is not None:
            return self.state.carry_over.upcoming
        return self.blocks[-1].wash_in if self.blocks else None


def _lines_of(plan: Plan, spec: Spec, earlier: TrialData) -> dict[str, Line]:
    """Return the progress of the conditions when an earlier attempt stopped."""
    lines = {c.key: Line(c, []) for c in plan.conditions}
    for block in earlier.blocks:
        line = lines[block.condition]
        line.blocks.append(block)
        line.void += block.void is not None
        line.count_failures(block.observations, spec)
    for end in earlier.ends:
        line = lines[end.condition]
        line.next_index = max(line.next_index, end.block + 1)
    for run in earlier.runs:
        lines[run.condition].keep(run)
    for line in lines.values():
        line.look(spec, earlier.blocks, earlier.trial.header)
    return lines


def is_decided(plan: Plan, spec: Spec, earlier: TrialData) -> bool:
    """Return whether no condition of a stored trial needs another block."""
    return all(line.decided for line in _lines_of(plan, spec, earlier).values())


class Conductor:
    """Runs one trial in an open session."""

    def __init__(
        self,
        session: Session,
        plan: Plan,
        spec: Spec,
        store: Store,
        trial: StoredTrial,
        limits: Limits,
        watcher: Watcher,
        signals: StopSignals,
        earlier: TrialData | None = None,
    ) -> None:
        self._session = session
        self._time = session.time
        self._plan = plan
        self._spec = spec
        self._store = store
        self._header = trial.header
        self._trial = trial.header.id
        self._number = trial.number
        self._options = trial.header.options
        self._limits = limits
        #: seconds of measuring after which no block begins
        self._until_s = limits.time_s
        self._watcher = watcher
        self._signals = signals
        self._runner = Runner(session, injected=spec.injected)
        self._lines = {c.key: Line(c, []) for c in plan.conditions}
        #: the complete blocks of all conditions, in the order in which they ended
        self._ended: list[ObservedBlock] = []
        #: what the end of the trial was decided by; None before that
        self.final: FinalAnalysis | None = None
        #: the levels to compare instead in the seconds that are left, if the trial ended for that
        self.fewer: tuple[Fewer, float] | None = None
        self._budget_noted = False
        self._elapsed_before = 0.0
        self._round = 0
        self._read_backs = 0
        self._unfinished: dict[str, list[RunRecord]] = {}
        #: By condition: number of runs, of runs that made no use of the device, of runs with a request to it
        #: during the timed part.
        self._use: dict[str, list[int]] = {}
        #: By condition and level: bytes that its runs requested by read calls.
        self._read: dict[str, dict[str, list[float]]] = {}
        self._done_in_round: set[str] = set()
        #: What a run is doing, where runs are long.
        self._activity = ""
        if earlier is not None:
            self._take_up(earlier)
        self._began_ns = 0

    def _take_up(self, earlier: TrialData) -> None:
        """Continue where an earlier attempt stopped."""
        ended = {(end.condition, end.block) for end in earlier.ends}
        self._lines = _lines_of(self._plan, self._spec, earlier)
        self._ended = list(earlier.blocks)
        for run in earlier.runs:
            self._count_use(run)
            if (run.condition, run.block) not in ended:
                self._unfinished.setdefault(run.condition, []).append(run)
        self._round = max((end.round for end in earlier.ends), default=0)
        self._done_in_round = {end.condition for end in earlier.ends if end.round == self._round}
        # Not the time of day, which may have been set in between: each run stores the seconds since the trial
        # began, from a clock that cannot be set.
        self._elapsed_before = max((run.started_s for run in earlier.runs), default=0.0)

    @property
    def elapsed_s(self) -> float:
        """Seconds of measuring, including earlier attempts."""
        return self._elapsed_before + (time.monotonic_ns() - self._began_ns) / 1e9

    def run(self) -> TrialState:
        """Measure until decided or the budget is spent. Raises LabError if the lab breaks, Stopped on a signal."""
        self._rehearse()
        self._began_ns = time.monotonic_ns()
        prepared_s = (self._began_ns - self._time.began_ns) / 1e9
        self._until_s = self._limits.measuring_s(prepared_s, counts=self._plan.study.account)
        while True:
            waiting = [line.condition for line in self._lines.values() if self._goes_on(line)]
            order = self._rest_of_round(waiting)
            if not waiting:
                return self._finish()
            for place, condition in enumerate(order, 1):
                line = self._lines[condition.key]
                begun = condition.key in self._unfinished
                if not begun and self.elapsed_s + line.block_s > self._until_s:
                    return self._finish()
                try:
                    self._block(line)
                except _FewerFirst:
                    return TrialState.INTERRUPTED
                self._show(order[place:])
                self._signals.check()
                if self._control_failed() and self._limits.stop_when_decided:
                    return self._finish()
            self._round += 1
            self._done_in_round.clear()

    def _rest_of_round(self, waiting: Sequence[Condition]) -> list[Condition]:
        """Return the rest of this round, in the order drawn for all conditions that it began with.

        So a resumed round continues as it would have, even if some of its conditions have used up their
        blocks meanwhile.
        """
        keys = {condition.key for condition in waiting} | self._done_in_round
        began = [line.condition for key, line in self._lines.items() if key in keys]
        return [c for c in self._plan.round(self._round, began) if c.key not in self._done_in_round]

    def _goes_on(self, line: Line) -> bool:
        if line.condition.key in self._unfinished:  # finish a begun block, even if all is decided
            return True
        if line.next_index >= self._limits.blocks or line.dropped:
            return False
        return not (self._limits.stop_when_decided and line.decided)

    def _control_failed(self) -> bool:
        return any(line.state is not None and line.state.control_failed for line in self._lines.values())

    def _rehearse(self) -> None:
        """Run works that start processes once, untimed, so that their programs are loaded: loading is not on trial."""
        rehearsed: set[str] = set()
        for condition in self._plan.conditions:
            starts = self._plan.study.workload(condition.workload).work.starts_programs
            if starts and condition.workload not in rehearsed:
                rehearsed.add(condition.workload)
                with self._signals.interruptible(), self._time.part(Part.REHEARSAL, whole=True):
                    self._rehearse_in(condition)

    def _rehearse_in(self, condition: Condition) -> None:
        work = self._plan.study.workload(condition.workload).work
        if work.chooses_files() and self._look_at(condition):
            return
        run = self._plan.block(condition, 0).runs[0]
        try:
            self._runner.rehearse(condition, run)
        except ProbeError as error:
            self._revive(error)
            self._runner.rehearse(condition, run)

    def _look_at(self, condition: Condition) -> bool:
        """Find out which files a workload uses; return whether a run was done for it.

        Raises RequestError if no arm uses the lab, or only a little of it, although the study changes
        something there, and if no arm prints what the study reads. A run that fails for another reason shows
        nothing; the first timed run reports why.
        """
        first: tuple[Touched, RunContext, str] | None = None
        settings: list[KnobSetting] = []
        done: set[str] = set()
        silent: NothingPrinted | None = None
        for planned in self._plan.block(condition, 0).runs:
            if planned.arm.kind is not ArmKind.TREATMENT or planned.arm.name in done:
                continue
            done.add(planned.arm.name)
            try:
                touched, context, state = self._runner.look(condition, planned)
            except NothingPrinted as error:
                silent = error
                continue
            except (KnobError, TargetError, ProbeError) as error:
                if not self._runner.alive:
                    if not isinstance(error, ProbeError):
                        raise
                    self._revive(error)
                elif isinstance(error, TargetError):
                    self._note_outside(
                        f"{condition.workload}: could not observe which files it uses: {error.message}"
                    )
                return False
            assert touched is not None
            settings += self._session.resolved.settings_of(condition, planned.arm)
            first = first or (touched, context, state)
            enough = touched.is_enough(cut_down=self._plan.cut_down)
            if enough or not touched.sure or not needs_lab(settings, state):
                _check_own_files(condition.workload, touched, context, state)
                self._runner.saw(condition.workload, touched)
                if state == "cold-data" and touched.own and touched.seen_little:
                    touched = self._measured_cold(condition, touched)
                    self._runner.saw(condition.workload, touched)
                for note in (
                    little_note(condition.workload, touched),
                    names_note(condition.workload, touched, state),
                ):
                    if note:
                        self._note_outside(note)
                if note := rewritten_note(
                    condition.workload, touched, context.place.data or context.place.root
                ):
                    self._note_outside(note)
                if state.startswith("cold") and uncounted(context.place):
                    kind = str(context.place.facts()["filesystem"])
                    self._note_outside(uncounted_note(condition.workload, kind))
                if needs_lab(settings, state):
                    if note := outside_note(condition.workload, touched):
                        self._note_outside(note)
                    if not enough:
                        self._note_outside(unseen_note(condition.workload))
                return True
        if first is None:
            assert silent is not None
            raise RequestError(silent.message)
        if silent is not None:
            return True
        raise refusal(condition.workload, first[0], settings, first[1], first[2])

    def _measured_cold(self, condition: Condition, touched: Touched) -> Touched:
        """Measure how many bytes cold runs read from the device, where calls do not tell."""
        runs = self._plan.block(condition, 0).runs
        levels = {run.arm.name: run for run in runs if run.arm.kind is ArmKind.TREATMENT}
        found = []
        for planned in list(levels.values())[:MOST_COLD]:
            outcome = self._runner.run(condition, planned, block=0)
            if outcome.failure is None and "bytes_read" in outcome.checks:
                found.append(int(float(str(outcome.checks["bytes_read"]))))
        return touched.measured_cold(found, every_level=len(found) == len(levels))

    def _note_outside(self, text: str) -> None:
        self._watcher.say(text)
        self._store.note(self._trial, OUTSIDE, text)

    # one block

    def _block(self, line: Line) -> None:
        began = time.monotonic()
        block = self._plan.block(line.condition, line.next_index, line.inside)
        earlier = {
            run.slot: run for run in self._unfinished.pop(line.condition.key, []) if run.block == block.index
        }
        void: tuple[str, str] | None = None
        problems: list[object] = []
        observations: list[Observation] = []
        # a block that has begun is finished the way it began
        wash_in = washed_in(earlier.values()) if earlier else self._next_wash_in(line)
        for planned in block.runs:
            kept = earlier.get(planned.slot)
            if kept is not None:
                observations.append(observation_of(kept))
                void = void or _void_of_record(kept)
                continue
            with self._signals.interruptible():
                outcome = self._run(line.condition, planned, block, wash_in=wash_in)
            record = self._record(line.condition, block, planned, outcome)
            with self._time.part(Part.STORE):
                self._store.append_run(self._trial, record)
            line.keep(record)
            self._count_use(record)
            self._note_budget(len(block.runs))
            observations.append(observation_of(record))
            void = void or _void_of_record(record)
            if record.checks.get("void") == Void.SETTING_CHANGED:
                problems.append(outcome.problem)
            if outcome.void == Void.READ_BACK_FAILED and self._spec.race_against is None:
                self._count_read_back(outcome)
        rule, level = void or (None, None)
        gap = bool(earlier)
        end = BlockEnd(line.condition.key, block.index, self._round, block.controls, rule, level, gap)
        with self._time.part(Part.STORE):
            self._store.end_block(self._trial, end)
        line.next_index = block.index + 1
        done = ObservedBlock(
            line.condition.key,
            block.index,
            tuple(observations),
            void=rule,
            void_level=level,
            gap=gap,
            wash_in=wash_in,
        )
        line.blocks.append(done)
        self._ended.append(done)
        line.void += rule is not None
        line.count_failures(observations, self._spec)
        line.block_s = time.monotonic() - began
        self._stop_if_failed(line, observations)
        self._look(line)
        if rule == Void.SETTING_CHANGED:
            self._check_changes(next(str(one) for one in problems if one is not None))

    def _stop_if_failed(self, line: Line, observations: Sequence[Observation]) -> None:
        """Raise NoAnswer if the user's own command fails in the first block; of a race, only if it fails as it is today.

        A study says what a failure means: there a setting may be on trial for it.
        """
        if not self._plan.study.quick or self._plan.study.in_windows or len(line.blocks) != 1:
            return
        against = self._spec.race_against
        for one in observations:
            if one.failure is not None and one.kind is ArmKind.TREATMENT and against in (None, one.arm):
                level = " and ".join(f"{name} {label}" for name, label in one.treatment.items())
                raise NoAnswer(
                    f"the command fails with {level}: {one.failure}",
                    hint="try it alone, in the folder of --in. If its status means success: --expect-exit N, or "
                    "--ignore-failure",
                )

    def _run(
        self, condition: Condition, planned: PlannedRun, block: Block, *, wash_in: WashIn | None
    ) -> Outcome:
        """Do one run, after the unmeasured ones of its wash-in, or after one of the same arm.

        If the guest dies during the run, the run counts as failed, the guest is rebooted, and the trial goes
        on.
        """
        checks: dict[str, object] = {}
        if wash_in is not None:
            before, other = self._plan.wash_in(wash_in, condition, block.index, planned)
            checks[WASH_IN] = wash_in_check(wash_in, other=other)
        elif planned.slot in block.after_itself:
            wash_in = WashIn(Before.SAME)
            before, _ = self._plan.wash_in(wash_in, condition, block.index, planned)
            # not on its own files, which would then be in the page cache
            before = replace(before, files=block.runs[planned.slot - 1].files)
            checks[WASH_IN] = AFTER_ITSELF
        for _ in range(0 if wash_in is None else wash_in.runs):
            if (wrong := self._unmeasured(condition, before, block)) is not None:
                own = before.arm.name == planned.arm.name
                return replace(self._judged(planned, wrong) if own else wrong, checks=checks)
        try:
            outcome = self._runner.run(condition, planned, block=block.index)
        except ProbeError as error:
            self._revive(error)
            outcome = Outcome(failure=error.message)
        outcome = self._judged(planned, outcome)
        return replace(outcome, checks={**outcome.checks, **checks})

    def _judged(self, planned: PlannedRun, outcome: Outcome) -> Outcome:
        """Count it as a failure of the arm if the kernel refuses an arm of a race: then this arm leaves."""
        against = self._spec.race_against
        if outcome.void != Void.READ_BACK_FAILED or against in (None, planned.arm.name):
            return outcome
        return Outcome(failure=outcome.problem)

    def _unmeasured(self, condition: Condition, run: PlannedRun, block: Block) -> Outcome | None:
        """Do a run of a wash-in, of which nothing is stored.

        If it fails, the next run does not start from the common state: the block is void, whichever arm comes
        next.
        """
        try:
            with self._time.part(Part.WASH_IN, whole=True):
                outcome = self._runner.run(condition, run, block=block.index)
        except ProbeError as error:
            self._revive(error)
            outcome = Outcome(failure=error.message)
        if outcome.void is None and outcome.failure is None:
            return None
        return Outcome(void=outcome.void or Void.WASH_IN_FAILED, problem=outcome.problem or outcome.failure)

    def _next_wash_in(self, line: Line) -> WashIn | None:
        """Return the wash-in of a condition's next block; report it where it starts or changes."""
        last = line.blocks[-1].wash_in if line.blocks else None
        found = line.wash_in
        if found is None and self._plan.study.wash_in:
            found = WashIn()
        elif found is not None and found != last:
            carry_over = None if line.state is None else line.state.carry_over
            assert carry_over is not None
            text = (
                f"{line.condition.key}: {in_words(carry_over)}. From now on, {wash_in_words(found)} (wash-in)"
            )
            self._watcher.say(text)
            self._store.note(self._trial, WASH_IN, text)
        return found

    def _revive(self, error: ProbeError) -> None:
        """Reboot a guest that has died or hung; re-raise ``error`` if it has not, or if there is no guest."""
        if not self._session.revivable:
            raise error
        self._watcher.say(f"{error.message}: booting it again")
        self._session.revive()
        self._runner = Runner(self._session, injected=self._spec.injected)

    def _count_use(self, run: RunRecord) -> None:
        if run.failure is None:
            found = self._use.setdefault(run.condition, [0, 0, 0])
            found[0] += 1
            found[1] += UNUSED in run.checks
            found[2] += had_request(run.evidence)
            if run.kind == ArmKind.TREATMENT and "work_read_bytes" in run.evidence:
                levels = self._read.setdefault(run.condition, {})
                levels.setdefault(join(list(run.treatment.values())), []).append(
                    run.evidence["work_read_bytes"]
                )

    def _not_used(self) -> tuple[str, ...]:
        """Return messages for conditions in which a treatment changes the lab's device but no run of any arm used it."""
        found = []
        for condition in self._plan.conditions:
            runs, unused, _ = self._use.get(condition.key, (0, 0, 0))
            if runs and runs == unused and self._sets_device(condition):
                found.append(f"{condition.key}: {NOT_USED}, in none of {runs} runs")
        return tuple(found)

    def _settings(self, condition: Condition) -> Iterator[KnobSetting]:
        for arm in self._plan.arms(controls=False):
            yield from self._session.resolved.settings_of(condition, arm)

    def _sets_device(self, condition: Condition) -> bool:
        return sets_device(self._settings(condition))

    def _note_uneven(self) -> None:
        """Note conditions in which levels read different amounts although no treatment changes the work."""
        for condition in self._plan.conditions:
            starts = self._plan.study.workload(condition.workload).work.starts_programs
            if starts and leaves_work(self._settings(condition)):
                note = uneven_note(condition.workload, self._read.get(condition.key, {}))
                if note is not None:
                    self._store.note(self._trial, OUTSIDE, note)

    def _note_budget(self, runs: int) -> None:
        """Say in the first round if the time is too short for a verdict, and what to type instead.

        After the first runs if they are slow, else after the round of blocks (of ``runs`` each, in every condition). Raises
        _FewerFirst if fewer levels are to be compared.
        """
        done, every = sum(len(line.runs) for line in self._lines.values()), runs * len(self._lines)
        slow = done == MOST_FIRST and self.elapsed_s >= SLOW_S * MOST_FIRST
        if self._budget_noted or not (slow or done == every) or self._elapsed_before:
            return
        pilot = self._options.get("pilot", False)
        if pilot or self._plan.study.in_windows or self._spec.race_against is not None:
            return
        round_s = max(self.elapsed_s, 1e-9) * every / done
        rounds = max(0, math.floor((self._until_s - self.elapsed_s + round_s * done / every) / round_s))
        spent_s = self._limits.time_s - (self._until_s - round_s)
        prepared_s = (self._began_ns - self._time.began_ns) / 1e9
        left = (self._until_s - self.elapsed_s - prepared_s) / round_s
        fewer = None
        if self._limits.fewer:
            surely = fewer_levels(self._plan, self._spec, SURELY * left)
            fewer = surely or fewer_levels(self._plan, self._spec, left)
        note = budget_note(
            self._plan, self._spec, round_s=round_s, rounds=rounds, spent_s=spent_s, fewer=fewer
        )
        if note is not None:
            self._budget_noted = True
            self._watcher.say(note)
            if fewer is not None:
                self.fewer = fewer, self._limits.time_s - (time.monotonic_ns() - self._time.began_ns) / 1e9
                raise _FewerFirst

    def _note_idle(self) -> None:
        """Note conditions in which a treatment changes the lab's device but no run had a request to it."""
        for condition in self._plan.conditions:
            runs, unused, requests = self._use.get(condition.key, (0, 0, 0))
            if runs and not requests and unused < runs and self._sets_device(condition):
                if self._plan.study.quick:
                    text = (
                        "the disk had no requests during any timed run, so its settings could not matter; with "
                        "--cache cold the work reads from the disk"
                    )
                else:
                    text = (
                        f"{condition.key}: the lab's device had no requests during any timed run, so its settings "
                        f"could not matter; this result does not apply to work that uses the device"
                    )
                self._store.note(self._trial, OUTSIDE, text)

    def _count_read_back(self, outcome: Outcome) -> None:
        self._read_backs += 1
        if self._read_backs >= READ_BACKS_TO_FAIL:
            raise LabError(
                f"a setting cannot be applied ({self._read_backs} times): {outcome.problem}",
                hint="the trial cannot continue; what was measured is kept",
            )

    def _check_changes(self, problem: str) -> None:
        """Raise LabError if something else changes the settings again and again; it says who that may be."""
        changed = sum(block.void == Void.SETTING_CHANGED for block in self._ended)
        if changed < CHANGES_TO_END or changed < SHARE_TO_END * len(self._ended):
            return
        who = self._session.who_changes_settings()
        named = f"; {'; '.join(who)}" if who else ""
        raise LabError(
            f"{changed} of {len(self._ended)} blocks are void: {problem}{named}",
            hint="stop what changes it while the trial runs, then `iotrial resume`"
            + ("" if who else "; udev rules, tuned and similar tools can do it, but none was found"),
        )

    def _record(self, condition: Condition, block: Block, planned: PlannedRun, outcome: Outcome) -> RunRecord:
        started = outcome.started_ns or time.monotonic_ns()
        checks = dict(outcome.checks)
        if outcome.void is not None:
            checks["void"] = outcome.void
            checks["void_level"] = level_text(planned.arm)
        if outcome.problem is not None:
            checks["problem"] = outcome.problem
        return RunRecord(
            condition=condition.key,
            block=block.index,
            slot=planned.slot,
            arm=planned.arm.name,
            kind=planned.arm.kind.value,
            treatment=dict(planned.arm.treatment),
            started_s=self._elapsed_before + (started - self._began_ns) / 1e9,
            failure=outcome.failure,
            responses=outcome.responses,
            evidence=outcome.evidence,
            histograms=outcome.histograms,
            checks=checks,
            files=planned.files if planned.files is not None and len(planned.files) <= 256 else None,
        )

    # between blocks

    def _look(self, line: Line, *, always: bool = False) -> None:
        # a race looks after every block: what runs next depends on it, also after a resume
        if always or self._spec.race_against is not None or look_due(line.complete, line.last_look):
            with self._time.part(Part.ANALYSIS):
                line.look(self._spec, self._ended, self._header)

    def _upcoming(self, rest: Sequence[Condition]) -> tuple[str, int] | None:
        """Return the next block, of the rest of this round or of the next one; the time left is not considered."""
        if not rest:
            waiting = [line.condition for line in self._lines.values() if self._goes_on(line)]
            rest = self._plan.round(self._round + 1, waiting)
        return (rest[0].key, self._lines[rest[0].key].next_index) if rest else None

    def _show(self, rest: Sequence[Condition]) -> None:
        lines = self._lines.values()
        self._watcher.update(
            Snapshot(
                trial=self._number,
                elapsed_s=self.elapsed_s,
                budget_s=self._until_s,
                blocks={other.condition.key: other.complete for other in lines},
                decided=frozenset(other.condition.key for other in lines if other.decided),
                conditions=len(self._lines),
                void=sum(other.void for other in lines),
                failures=sum(other.failures for other in lines),
                effects=tuple(e for other in lines if other.state is not None for e in other.state.effects),
                upcoming=self._upcoming(rest),
                block_s={other.condition.key: other.block_s for other in lines if other.block_s},
                activity=self._doing(),
                recent=self._recent(),
            )
        )

    def _doing(self) -> str:
        """Return what the present run does, in words; empty while short runs are measured."""
        return self._activity

    def _recent(self) -> tuple[ObservedBlock, ...]:
        """Return the newest complete blocks, where the watcher is to show single runs."""
        return ()

    def _finish(self) -> TrialState:
        with self._signals.interruptible():
            self._verify_files()
        self._account()  # last, so that no problem there can spoil the trial
        unused = self._not_used()
        self._store.note_all(self._trial, NOT_USED_KIND, unused)
        self._note_idle()
        self._note_uneven()
        return self._decide(unused)

    def _decide(self, unused: tuple[str, ...] = ()) -> TrialState:
        """Analyse the trial: DONE, or INVALID if a control failed or no run used what was varied (``unused``)."""
        with self._time.part(Part.ANALYSIS):
            analysis = analyse(self._spec, self._ended, unused=unused)
        self.final = FinalAnalysis(tuple(self._ended), unused, analysis)
        return TrialState.DONE if analysis.valid else TrialState.INVALID

    def _account(self) -> None:
        accounting = Accounting(
            self._plan,
            self._session.resolved.lab,
            self._runner,
            self._store,
            self._trial,
            self._watcher,
            self._signals,
        )
        with self._time.part(Part.COUNTING, whole=True):
            accounting.run(
                [(line.condition, line.next_index) for line in self._lines.values() if line.complete],
                measured_s=self.elapsed_s,
            )

    def _verify_files(self) -> None:
        try:
            self._session.verify_files()
        except TargetError as error:
            for place in self._session.places.values():
                health.check(place, error.message, number=error.errno)
            raise
        except ProbeError as error:  # a guest's files are gone with it; everything measured is stored
            self._revive(error)


def _check_own_files(workload: str, touched: Touched, context: RunContext, state: str) -> None:
    """Raise RequestError if a work on the user's own files has none that could be made cold or warm."""
    if context.place.data is not None and state in ("cold-data", "warm") and not touched.own:
        raise RequestError(
            f'workload "{workload}" read no data of files in or next to {context.place.data}, '
            f"so nothing can be {state}",
            hint="omit --cache, or use --in with a folder on the file system that it reads "
            "(tar, for one, reads no data if its archive is /dev/null)",
        )


def level_text(arm: Arm) -> str:
    """Return a run's treatment as text, for counts by level; that of a control is its original's."""
    return arm.name if arm.kind is ArmKind.TREATMENT else join(list(arm.treatment.values()))


def _void_of_record(run: RunRecord) -> tuple[str, str] | None:
    rule = run.checks.get("void")
    return (str(rule), str(run.checks.get("void_level", ""))) if rule else None
