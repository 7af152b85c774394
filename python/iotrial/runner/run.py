"""One run: set the knobs through their neutral values, bring the cache to its state, measure, verify.

Every arm goes through the same transitions, in the order of the knobs' stages. The probe does the measuring.
A problem either triggers a void rule (blind to labels; the whole block is dropped) or counts as a failure (by
level). It never silently loses data.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from iotrial.design.model import Arm, Condition, PlannedRun
from iotrial.errors import (
    KnobError,
    LabError,
    ProbeError,
    RequestError,
    SettingChanged,
    TargetError,
    UnsupportedLevel,
)
from iotrial.guest.link import MARKS, SERVER
from iotrial.knobs.declaration import Stage
from iotrial.knobs.knob import RunContext
from iotrial.knobs.network import SHARE, WIRE
from iotrial.knobs.work import ProcessUser
from iotrial.lab import cache, health
from iotrial.lab.disk import DiskPlace, disk_place
from iotrial.lab.knobs.filesystem import FilesystemType
from iotrial.lab.knobs.mount import MountKnob
from iotrial.lab.place import FULL, Place
from iotrial.runner.command_user import command_user
from iotrial.runner.guest import MachineSpec
from iotrial.runner.neighbours import done_beside
from iotrial.runner.outcome import (
    MeasuredRun,
    Outcome,
    counters_of,
    failure_of,
    requested_of,
    voided,
)
from iotrial.runner.resolve import KnobSetting
from iotrial.runner.session import Session
from iotrial.runner.time_account import Part
from iotrial.runner.touched import Touched
from iotrial.runner.trace_job import Counted, TraceCounts, counts_of, request_fields
from iotrial.runner.work_server import Serving
from iotrial.stats.spec import stretched_response
from iotrial.stats.voids import Void
from iotrial.study.model import Role, Workload
from iotrial.study.server import NOBODY
from iotrial.study.work import HasCheck, JobContext, LabContext, Step, Work, filled, is_cpu, varied
from iotrial.workloads.mkfs import MkfsWork


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A run in which the work acknowledged: the workload as it was done, and the lab with the user of its programs.

    ``collected``: the acknowledgements in the answer, each with the time in nanoseconds of the worker's monotonic clock.
    """

    context: RunContext
    workload: Workload
    lab: LabContext
    collected: tuple[tuple[int, str], ...]


class NothingPrinted(ProbeError):
    """A program succeeded without printing what the study reads from its output."""


class Runner:
    """Carries out the planned runs of one session."""

    def __init__(self, session: Session, *, injected: float, reboots: bool = True) -> None:
        """Set up. ``reboots``: a run that varies the guest begins with a boot, even if such a guest is running."""
        self._session = session
        self._time = session.time
        self._control_slowdown = injected - 1.0
        stages = session.resolved.treatment_stages()
        self._formats = Stage.FORMAT in stages
        #: By place: the whole plot for which its file system was made.
        self._plot_formatted: dict[str, tuple[str, int, int] | None] = {}
        varied_within = session.resolved.treatment_stages(within_plots=True)
        self._formats_each_run = Stage.FORMAT in varied_within
        self._boots = reboots and Stage.MACHINE in stages
        self._boots_each_run = Stage.MACHINE in varied_within
        #: The whole plot for which the guest was booted.
        self._plot_booted: tuple[str, int, int] | None = None
        self._compares_places = Stage.PLACE in stages
        self._entered: list[tuple[KnobSetting, RunContext]] = []
        #: whether something else has changed a setting of the last run: the next one applies everything again
        self._changed = False
        #: By workload: what a run of it was seen to use.
        self._seen: dict[str, Touched] = {}
        self._serving = Serving(root=session.resolved.root)
        syncs = stages & {Stage.PLACE, Stage.FORMAT, Stage.MOUNT, Stage.HOST, Stage.DEVICE}
        self._job_builder = JobBuilder(session, self._serving, syncs=bool(syncs))

    @property
    def alive(self) -> bool:
        """Whether a probe is alive to carry out runs."""
        return self._session.alive

    def rehearse(self, condition: Condition, run: PlannedRun) -> None:
        """Do an untimed run, so that programs and libraries are loaded before the first timed one.

        Its outcome is ignored. A failure will happen again in the first timed run, which reports it.
        """
        self.run(condition, run, block=0)

    def run(self, condition: Condition, run: PlannedRun, *, block: int) -> Outcome:
        """Set, prepare, measure, verify. Raises only if the lab itself is broken."""
        try:
            outcome = self._run(condition, run, block)
            self._changed = outcome.void == Void.SETTING_CHANGED
            return outcome
        except BaseException as error:
            if not isinstance(error, Exception):  # a signal: the probe is still busy, and will be killed
                self._entered.clear()
                self._serving.abandon()
            raise
        finally:
            self._leave()

    def account(
        self, condition: Condition, run: PlannedRun, *, block: int, what: frozenset[Counted]
    ) -> TraceCounts:
        """Do a run only to count what it does.

        Raises what the lab, the target or the probe raises (NotSupported: nothing was run), and ProbeError if
        the work failed or calls were lost.
        """
        answer, context, _ = self._untimed(condition, run, block, lambda _: request_fields(what))
        return counts_of(answer, what, requested_of(context))

    def acknowledge(
        self,
        condition: Condition,
        run: PlannedRun,
        *,
        block: int,
        marks: str,
        begin: Callable[[RunContext], None],
        end: Callable[[RunContext], None],
    ) -> Acknowledged:
        """Do a run on a disk that logs its writes, in which the work acknowledges what is durable, to this socket.

        ``begin`` is called just before the work, ``end`` just after it. ``marks`` is empty in a guest. Raises as ``account``
        does.
        """
        done: list[tuple[Workload, LabContext]] = []

        def job_of(context: RunContext, workload: Workload, job: dict[str, object]) -> dict[str, object]:
            assert isinstance(workload.work, HasCheck)
            lab = self._serving.lab_context(context)
            done.append((workload, replace(lab, user=self._job_builder.user(context, workload.work))))
            begin(context)
            return workload.work.acknowledging(job, marks)

        answer, context, _ = self._untimed(condition, run, block, lambda _: {}, job_of, end)
        collected = tuple((int(at), str(text)) for at, text in answer.get("acknowledged") or ())
        return Acknowledged(context, *done[0], collected)

    def look(self, condition: Condition, run: PlannedRun) -> tuple[Touched | None, RunContext, str]:
        """Do a run to find out which files it uses; also returns the cache state it began in. Raises as
        ``account`` does.
        """

        began_ns = time.time_ns()

        def roots(context: RunContext) -> dict[str, object]:
            roots = [context.place.root, *(place.root for place in context.extra_places.values())]
            wanted: dict[str, object] = {"touches": roots, "touches_since_ns": began_ns}
            return (
                wanted if context.place.data is None else {**wanted, "touches_device": context.place.number}
            )

        answer, context, state = self._untimed(condition, run, 0, roots)
        assert context.files is not None
        self._check_output(condition, answer, context)
        return Touched.of(answer, context.files.bytes), context, state

    def _check_output(self, condition: Condition, answer: dict[str, Any], context: RunContext) -> None:
        """Raise NothingPrinted if a program succeeded without printing what the study reads."""
        workload = _as_drafted(self._session.plan.study.workload(condition.workload), context)
        missing = workload.work.measured(answer, self._job_builder.job_context(context, workload)).missing
        if missing is not None:
            raise NothingPrinted(f"workload {workload.name}: {missing}")

    def saw(self, workload: str, touched: Touched) -> None:
        """Require cold runs of a workload to read what it was seen to read."""
        self._seen[workload] = touched

    def _untimed(
        self,
        condition: Condition,
        run: PlannedRun,
        block: int,
        besides: Callable[[RunContext], Mapping[str, object]],
        job_of: Callable[[RunContext, Workload, dict[str, object]], dict[str, object]] = lambda _, __, job: (
            job
        ),
        end: Callable[[RunContext], None] = lambda _: None,
    ) -> tuple[dict[str, Any], RunContext, str]:
        plot = None if run.plot is None else (condition.key, block, run.plot)
        settings = self._session.resolved.settings_of(condition, run.arm)
        self._boot_if_due(settings, plot)
        place = self._session.place_of(condition, run.arm)
        try:
            context, state, workload = self._prepare(condition, run, settings, place, plot)
            job = {
                **self._job(context, workload, state),
                "devices": list(requested_of(context)),
            }
            wrong = self._serving.warm(context, workload.work, state, lambda: job)
            answer = self._do(context, workload, job_of(context, workload, {**job, **besides(context)}))
            end(context)
            self._aside(context, workload, workload.work.after())
            wrong = self._serving.settle(context, workload.work, answer) or wrong or self._serving.stop()
        except BaseException as error:
            if not isinstance(error, Exception):
                self._entered.clear()
                self._serving.abandon()
            raise
        finally:
            self._leave()
        failure = failure_of(answer) or wrong
        if failure is not None:
            raise ProbeError(failure)
        return answer, context, state

    def _enter(self, context: RunContext, settings: list[KnobSetting]) -> None:
        """Apply the knobs of the work to the probe for the rest of the run."""
        for setting in settings:
            self._entered.append((setting, context))
            setting.knob.enter(context, setting.declared, setting.value)

    def _leave(self) -> None:
        if self._session.alive:
            self._serving.stop()
        while self._entered:
            setting, context = self._entered.pop()
            if self._session.alive:
                setting.knob.leave(context, setting.declared)

    def _run(self, condition: Condition, run: PlannedRun, block: int) -> Outcome:
        settings = self._session.resolved.settings_of(condition, run.arm)
        plot = None if run.plot is None else (condition.key, block, run.plot)
        self._boot_if_due(settings, plot)
        place = self._session.place_of(condition, run.arm)
        try:
            context, state, workload = self._prepare(condition, run, settings, place, plot)
        except (KnobError, UnsupportedLevel) as error:
            health.check(place, error.message)
            return voided(error)
        except LabError as error:
            health.check(place, error.message)
            raise
        except TargetError as error:
            health.check(place, error.message, number=error.errno)
            if error.errno not in FULL:
                raise
            return Outcome(failure=error.message)  # an earlier run's work has filled the lab
        try:
            with self._time.part(Part.MOUNTS):
                wrong = self._serving.warm(
                    context, workload.work, state, lambda: self._job_builder.job(context, workload, 0.0)
                )
            if wrong is not None:
                return Outcome(failure=wrong)
            slowdown = self._control_slowdown if run.arm.stretched else 0.0
            answer = self._measure(context, workload, slowdown, state)
            with self._time.part(Part.START):
                end_mkfs(context, workload.work, settings, answer)
                self._aside(context, workload, workload.work.after())
                wrong = self._serving.settle(context, workload.work, answer) or self._serving.stop()
        except KnobError as error:
            return voided(error)
        except TargetError as error:
            health.check(place, error.message, number=error.errno)
            return Outcome(failure=error.message)
        except ProbeError as error:
            if not self._session.alive:
                raise
            health.check(place, error.message)
            return Outcome(failure=error.message)
        declared = {response.name for response in self._session.plan.responses(workload.name)}
        known = replace(self._job_builder.job_context(context, workload), slowdown=slowdown)
        outcome = MeasuredRun(
            answer,
            context,
            workload.work,
            known,
            state,
            declared,
            self._seen.get(workload.name),
            workload.neighbour,
            self._session.clock_ahead_ns,
        ).outcome()
        if outcome.failure is None and wrong is not None:
            outcome = replace(outcome, failure=wrong)
        if run.arm.stretched:
            outcome = replace(outcome, checks={**outcome.checks, "injected": float(answer["injected"])})
        if outcome.failure is not None:
            health.check(place, outcome.failure, files=context.files)
        return outcome

    # before the timed part

    def _boot_if_due(self, settings: tuple[KnobSetting, ...], plot: tuple[str, int, int] | None) -> None:
        """Boot the guest if this run needs it.

        If a treatment varies it: for every run, or at the start of a whole plot. If it is pinned or
        a condition: if a different guest is running.
        """
        wanted = MachineSpec.wanted_by(settings)
        if wanted is None:
            return
        reboots = self._boots and (self._boots_each_run or plot is None or plot != self._plot_booted)
        if reboots or wanted != self._session.machine:
            self._plot_booted = None  # until the boot has succeeded
            self._plot_formatted.clear()
            self._session.revive(wanted)
            self._plot_booted = plot

    def _prepare(
        self,
        condition: Condition,
        run: PlannedRun,
        settings: tuple[KnobSetting, ...],
        place: Place,
        plot: tuple[str, int, int] | None,
    ) -> tuple[RunContext, str, Workload]:
        session = self._session
        context = session.context(place)
        seen = self._seen.get(condition.workload)
        context.own_files = () if seen is None else seen.own
        if self._compares_places:
            # flush whatever the previous run left on any place, so that none of them has anything to write
            # back
            for every in session.places.values():
                every.syncfs()
        by_stage = {stage: [t for t in settings if t.knob.stage is stage] for stage in Stage}
        mounts = by_stage[Stage.MOUNT]
        session.settings.forget()
        self._verify(context, by_stage[Stage.MACHINE])
        # a place that is about to be reassembled gets its settings after that: until then they may not even
        # exist
        if not (place.forgets_settings and self._format_due(context, by_stage[Stage.FORMAT], plot)):
            self._set_outer(context, settings)
        state = self._cache_state(by_stage[Stage.CACHE])
        fresh = cache.needs_fresh_mount(state)
        treated = self._changed or any(t.role is Role.TREATMENT for t in mounts)
        # A run that leaves the neutral mount makes the next one begin by returning to it. The first run of a
        # block must do so, too.
        leaves = any(isinstance(t.knob, MountKnob) and t.knob.words(t.value) for t in mounts)
        with self._time.part(Part.MOUNTS):
            place.to_neutral(always=treated or leaves, fresh=fresh)
        declared = session.plan.study.workload(condition.workload).work
        self._make_filesystem(context, declared, by_stage[Stage.FORMAT], condition, run.arm, plot)
        scratch = declared.needs_scratch()
        if scratch:
            with self._time.part(Part.FILES):
                place.make_scratch(self._job_builder.owner(by_stage[Stage.WORK], declared))
        files = self._set_files(context, condition, run, by_stage[Stage.FILES])
        for setting in by_stage[Stage.WORK] + by_stage[Stage.CACHE]:
            setting.write(context)
            setting.verify(context)
        workload = _as_drafted(session.plan.study.workload(condition.workload), context)
        before = workload.work.before()
        with self._time.part(Part.FILES):
            self._serving.provide(context, workload.work, self._job_builder.user(context, workload.work))
            self._aside(context, workload, before)
        written = files or fresh or scratch or bool(before)
        self._mount(context, mounts, state, written=written, always=treated)
        self._verify(context, by_stage[Stage.PLACE] + mounts)
        session.settings.applied(context, settings)
        with self._time.part(Part.SETTINGS):
            self._enter(context, by_stage[Stage.WORK])
        with self._time.part(Part.MOUNTS):
            self._serving.start(context, workload.work, state)
        begin_mkfs(context, workload.work)
        return context, state, workload

    def _make_filesystem(
        self,
        context: RunContext,
        work: Work,
        settings: list[KnobSetting],
        condition: Condition,
        arm: Arm,
        plot: tuple[str, int, int] | None,
    ) -> None:
        """Make the file system if it is due, unless the work makes it."""
        by_the_work = wish_mkfs(context, work, settings)
        if by_the_work or not self._format_due(context, settings, plot):
            return
        self._plot_formatted[context.place.name] = None  # until formatting has succeeded
        with self._time.part(Part.FILES):
            self._format(context, settings, condition, arm)
        self._plot_formatted[context.place.name] = plot

    def _set_files(
        self, context: RunContext, condition: Condition, run: PlannedRun, settings: list[KnobSetting]
    ) -> bool:
        """Select the run's files and bring them to its levels; return whether anything was set."""
        sizes = [t for t in settings if t.knob.name == "file.size"]
        size = next((int(t.value) for t in sizes if t.role is Role.TREATMENT), None)
        context.files = self._session.files.selection(context.place, condition, run.files, size)
        files = [t for t in settings if t not in sizes or t.role is not Role.CONDITION]
        self._set_through_neutral(context, files)
        return bool(files)

    def _mount(
        self,
        context: RunContext,
        settings: list[KnobSetting],
        state: str,
        *,
        written: bool,
        always: bool,
    ) -> None:
        """Mount with the run's options and bring the cache to its state. ``written``: files may have changed before."""
        place, fresh = context.place, cache.needs_fresh_mount(state)
        with self._time.part(Part.MOUNTS):
            shared = isinstance(place, DiskPlace) and place.share is not None
            if written and (shared or not cache.writes_back(state)):
                place.syncfs()
            for setting in settings:
                setting.write(context)
            place.settle(always=always, fresh=fresh)
            for other in context.extra_places.values():
                if fresh and isinstance(other, DiskPlace):  # the work's data there must be cold, too
                    other.settle(always=False, fresh=True)

    def _cache_state(self, settings: list[KnobSetting]) -> str:
        return settings[-1].value if settings else "as-is"

    def _set_outer(self, context: RunContext, settings: tuple[KnobSetting, ...]) -> None:
        outer = [t for t in settings if t.knob.stage in (Stage.HOST, Stage.DEVICE)]
        # the scheduler first: changing it changes the others
        outer.sort(key=lambda t: (t.knob.name != "block.scheduler", not t.knob.yields(t.value)))
        self._set_through_neutral(context, outer, verify=False)
        if self._changed or any(t.knob.stage is Stage.DEVICE for t in outer):
            with self._time.part(Part.SETTINGS):
                self._session.settings.repin(context.place)
        self._verify(context, outer)

    def _set_through_neutral(
        self, context: RunContext, settings: list[KnobSetting], *, verify: bool = True
    ) -> None:
        with self._time.part(Part.SETTINGS):
            for setting in settings:
                # a value that is the same in every arm of a block needs no neutral step
                neutral = (
                    setting.knob.neutral(setting.declared, setting.values)
                    if setting.role is Role.TREATMENT
                    else None
                )
                if neutral is not None:
                    setting.knob.write(context, setting.declared, neutral)
                setting.write(context)
        if verify:
            self._verify(context, settings)

    def _verify(self, context: RunContext, settings: Sequence[KnobSetting]) -> None:
        with self._time.part(Part.READ_BACK):
            for setting in settings:
                try:
                    setting.verify(context)
                except KnobError as error:
                    if not setting.knob.open_to_others:
                        raise
                    # the kernel does not take it, or something else was quick: write it again and read it at once
                    setting.write(context)
                    setting.verify(context)
                    raise SettingChanged(error, "before the run") from error

    def _check_in_force(self, when: str) -> None:
        with self._time.part(Part.READ_BACK):
            self._session.settings.check_in_force(when)

    def _format_due(
        self, context: RunContext, settings: list[KnobSetting], plot: tuple[str, int, int] | None
    ) -> bool:
        """Return whether the file system must be made for this run.

        If a treatment makes it: for every run, or at the start of a whole plot. If it is pinned or
        a condition: if the current one differs.
        """
        if self._formats:
            made_for = self._plot_formatted.get(context.place.name)
            return self._formats_each_run or plot is None or plot != made_for
        return any(setting.read(context) != setting.value for setting in settings)

    def _format(
        self, context: RunContext, settings: list[KnobSetting], condition: Condition, arm: Arm
    ) -> None:
        place = context.place
        assert isinstance(place, DiskPlace)
        for setting in settings:
            setting.write(context)
        place.format()
        for setting in settings:
            setting.verify(context)
        if place.forgets_settings:
            self._set_outer(context, self._session.resolved.settings_of(condition, arm))
            self._session.settings.repin(place)
        # If every run or plot gets its own file system, do not make files of other conditions, which
        # would never be used.
        self._session.make_files(place, only=condition if self._formats else None)

    def _aside(self, context: RunContext, workload: Workload, steps: tuple[Step, ...]) -> None:
        """Run commands of the study that are not timed, as the user of the work. Raises LabError if one fails."""
        if not steps:
            return
        job = self._job_builder.job(context, workload, 0.0)
        job |= {
            "steps": [
                {"name": step.name, "argv": self._job_builder.words(context, workload, step)}
                for step in steps
            ],
            "replicates": 1,
            "expect_exit": 0,
            "keep_output": 0,
            "keep_files": [],
            "stdin": None,
            "sync_after": None,
        }
        failure = failure_of(context.worker.call(workload.work.verb, **job))
        if failure is not None:
            raise LabError(f"workload {workload.name}: {steps[0].name}: {failure}")

    # the timed part

    def _job(
        self, context: RunContext, workload: Workload, state: str, slowdown: float = 0.0
    ) -> dict[str, Any]:
        return {
            **self._job_builder.job(context, workload, slowdown),
            **self._serving.held(context, workload.work, state),
        }

    def _measure(
        self, context: RunContext, workload: Workload, slowdown: float, state: str
    ) -> dict[str, Any]:
        job, place = self._job(context, workload, state, slowdown), context.place

        def run() -> dict[str, Any]:
            if isinstance(place, DiskPlace) and place.share is not None:
                return measured_with_server(
                    place, lambda besides: self._do(context, workload, {**job, **besides})
                )
            return self._do(context, workload, job)

        sampler = self._session.sampler
        with self._time.part(Part.START):
            self._check_in_force("before the run")
            answer = run() if sampler is None else sampler.sampled(place, run)
            self._time.worked(answer)
            self._check_in_force("after the run")
        return answer

    def _do(self, context: RunContext, workload: Workload, job: dict[str, object]) -> dict[str, Any]:
        return done_beside(
            context,
            workload,
            self._serving,
            self._job_builder.job_context(context, workload).arguments,
            lambda: context.worker.call(workload.work.verb, **job),
        )


def _as_drafted(workload: Workload, context: RunContext) -> Workload:
    """Return the workload with the keys that knobs have set."""
    return structs.replace(workload, work=varied(workload.work, context.work.options))


# A run on files that another guest serves: measures the server and the network as well.


_NS = 1e-9
#: The card's counters mapped to traffic on the link, as the server sees it.
_LINK = {
    "rx_bytes": "link_to_server_bytes",
    "rx_packets": "link_to_server_packets",
    "tx_bytes": "link_from_server_bytes",
    "tx_packets": "link_from_server_packets",
    "interrupts": "link_interrupts",
}


def measured_with_server(
    place: DiskPlace, job: Callable[[dict[str, object]], dict[str, Any]]
) -> dict[str, Any]:
    """Return the job's answer, with the serving machine's devices and an additional key ``served``.

    ``served`` holds processor seconds of the server (``nas_cpu``, of which ``nas_interrupts``), the share of
    the time that its processors were busy in percent, and bytes, packets and interrupts of the link, all of the
    timed part; then ``nas_sync``, the seconds that the server took to write to its disk what it had received
    and only held in memory. ``job`` is called with the fields that let the working probe tell the other one
    when its timed part begins and ends.
    """
    devices = list(dict.fromkeys((*place.queues, *place.devices.values())))
    place.target.call("watch_start", devices=devices, cards=[WIRE], listen=f"{SERVER}:{MARKS}")
    try:
        answer = job({"peer": f"{SERVER}:{MARKS}"})
        synced = place.target.call("syncfs", path=place.root)
    except Exception:
        with suppress(ProbeError, TargetError):
            place.target.call("watch_stop")
        raise
    there = place.target.call("watch_stop")
    around = there["around"]
    found = {_LINK[name]: float(more) for name, more in there["cards"][WIRE].items()}
    found["nas_sync"] = synced["wall_ns"] * _NS
    processors, lasted = around["processors"] or {}, around["lasted_ns"]
    if processors and lasted > 0:
        spent = processors["user_ns"] + processors["sys_ns"]
        found |= {
            "nas_cpu": spent * _NS,
            "nas_interrupts": processors["interrupt_ns"] * _NS,
            "nas_busy": min(100.0, 100.0 * spent / (lasted * processors["count"])),
        }
    return {**answer, "devices": there["devices"], "devices_after_sync": None, "served": found}


# Works that make the lab's file system themselves: it is removed before they begin, and checked after they end.


def wish_mkfs(context: RunContext, work: Work, settings: Sequence[KnobSetting]) -> bool:
    """If the work makes the file system, record the options its knobs want and return True."""
    if not work.makes_filesystem:
        return False
    for setting in settings:
        setting.write(context)
    return True


def begin_mkfs(context: RunContext, work: Work) -> None:
    """Clear the device, right before the timed part: unused, and nothing of it cached."""
    if work.makes_filesystem:
        assert isinstance(work, MkfsWork)
        place = disk_place(FilesystemType.name, context.place)
        context.work.mkfs = place.clear_for_mkfs(work.volume_bytes)


def end_mkfs(
    context: RunContext, work: Work, settings: Iterable[KnobSetting], answer: dict[str, Any]
) -> None:
    """Mount the new file system, verify its knobs, and add its free space to the answer.

    Raises KnobError.
    """
    if not work.makes_filesystem or failure_of(answer) is not None:
        return
    assert isinstance(work, MkfsWork)
    place = disk_place(FilesystemType.name, context.place)
    place.to_neutral(always=False, fresh=False)
    for setting in settings:
        if setting.knob.stage is Stage.FORMAT:
            setting.verify(context)
    found: Mapping[str, int] = context.worker.call("statfs", path=place.root)
    answer["made"] = {**found, "volume_bytes": work.volume_bytes or place.size_bytes}


# The job that the probe is sent for a run, from the study's work and what knobs have changed of it.


class JobBuilder:
    """Builds the jobs of one session. ``syncs``: sync what a run has written after its timed part, whatever the work."""

    def __init__(self, session: Session, serving: Serving, *, syncs: bool) -> None:
        self._session = session
        self._serving = serving
        self._syncs_after = syncs

    def job(self, context: RunContext, workload: Workload, slowdown: float) -> dict[str, object]:
        """Return the whole job: the fields common to all kinds, and the kind's own.

        ``slowdown``: what is injected in the positive control, as a share; 0 in other arms.
        """
        files = context.files
        assert files is not None
        work = workload.work
        # A program has to sync its own output. But what it leaves in the scratch folder must not be written
        # back while the next run is timed.
        scratch = work.needs_scratch()
        writes = scratch or work.leaves_dirty()
        common: dict[str, object] = {
            **(
                {"set": files.set, "files": files.wire, "view": context.work.view}
                if work.on_files() and context.place.data is None
                else {}
            ),
            **({"out": context.place.scratch} if scratch else {}),
            "user": self.user(context, work),
            "stretch": slowdown,
            "stretch_clock": "cpu" if is_cpu(self._stretched(workload)) else "wall",
            "devices": list(counters_of(context)),
            "sync_after": context.place.root if self._syncs_after or writes else None,
            "replicates": work.repeats_from(context.work.cache),
        }
        own = work.probe_job(self.job_context(context, workload))
        if prefix := context.work.prefix:
            steps = own.get("steps")
            if not isinstance(steps, list):
                raise RequestError(
                    f"workload {workload.name}: without root only a command can have another niceness",
                    hint="run it with sudo, or try it with a command of your own: iotrial try process.nice=0,10 -- COMMAND",
                )
            own = {**own, "steps": [{**step, "argv": [*prefix, *step["argv"]]} for step in steps]}
        return {**common, **own}

    def words(self, context: RunContext, workload: Workload, step: Step) -> list[str]:
        """Return the arguments of a command of the study, with its placeholders filled in."""
        values = self.job_context(context, workload).arguments
        return [filled(word, values) for word in step.argv]

    def job_context(self, context: RunContext, workload: Workload) -> JobContext:
        """Return what the kind of work needs to know about the run."""
        draft, place = context.work, context.place
        share = place.share if isinstance(place, DiskPlace) else None
        folders = {name: f"{place.root}/own" for name, place in context.extra_places.items()}
        return JobContext(
            self._stretched(workload),
            {
                **({} if share is None else {SHARE: share.url}),
                **draft.arguments,
                **{f"{{place.{name}}}": folder for name, folder in folders.items()},
                **({} if context.place.data is None else {"{dir}": context.place.data}),
            },
            draft.environment,
            context.place.device,
            draft.sizes,
            self._serving.lab_context(context),
            folders,
            draft.mkfs,
        )

    def owner(self, settings: list[KnobSetting], work: Work) -> dict[str, int] | None:
        """Return the owner of the scratch folder: the user who will do the work."""
        reader = next((t.value for t in settings if t.knob.name == ProcessUser.name), "self")
        return self._user(reader, work)

    def user(self, context: RunContext, work: Work) -> dict[str, int] | None:
        """Return the user of the work's programs; None: the probe's own."""
        return self._user(context.work.reader, work)

    def _user(self, reader: str, work: Work) -> dict[str, int] | None:
        if not self._session.resolved.root or reader == "root":
            return None
        if reader == "unprivileged":
            return {"uid": NOBODY, "gid": NOBODY}
        if work.never_root():
            return self._serving.user()
        uid, gid = command_user(self._session.resolved.study)
        return None if work.as_root() or uid == 0 else {"uid": uid, "gid": gid}

    def _stretched(self, workload: Workload) -> str:
        response = stretched_response(self._session.plan.responses(workload.name))
        return "" if response is None else response.name
