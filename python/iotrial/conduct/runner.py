"""One run: turn the knobs through their neutral values, bring the cache to its state, measure, verify.

The same transitions in every arm, in the order of the knobs' stages. What is measured is measured
by the probe; what is found wrong becomes a void rule (label-blind, the whole block goes) or a
failure (counted by level), never a silent loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from iotrial.analysis.spec import stretched_response
from iotrial.conduct import making, serving
from iotrial.conduct.accounts import counted, summed
from iotrial.conduct.activity import activity
from iotrial.conduct.answers import clock_of, failure_of
from iotrial.conduct.counted import Counted, Told, asked, told
from iotrial.conduct.facts import FACTS, by_word
from iotrial.conduct.resolve import Turn
from iotrial.conduct.sampling import BY_SECOND, SERIES, series_of
from iotrial.conduct.serving import Serving
from iotrial.conduct.session import Session
from iotrial.conduct.user import invoking_user
from iotrial.conduct.works import Asked, driver
from iotrial.conduct.works.contract import is_cpu, to_take_off
from iotrial.design.model import Condition, PlannedRun
from iotrial.errors import KnobError, LabError, ProbeError, TargetError
from iotrial.lab import cache, health
from iotrial.lab.disk import DiskPlace
from iotrial.lab.knob import Stage, Subject
from iotrial.lab.knobs.environment import ProcessUser
from iotrial.lab.knobs.mount import MountKnob
from iotrial.lab.place import FULL, Place
from iotrial.lab.server import NOBODY
from iotrial.study import kinds
from iotrial.study.kinds.varied import varied
from iotrial.study.model import Role, Work, Workload

KERNEL_BLOCK = 512
READ_BACK_FAILED = "read_back_failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run gave. Responses in seconds, bytes or counts; ``started_ns`` on the probe's
    monotonic clock."""

    responses: Mapping[str, float] = field(default_factory=dict)
    evidence: Mapping[str, float] = field(default_factory=dict)
    histograms: Mapping[str, list[list[int]]] = field(default_factory=dict)
    checks: Mapping[str, object] = field(default_factory=dict)
    started_ns: int = 0
    failure: str | None = None
    void: str | None = None
    problem: str | None = None


class Runner:
    """Carries out the planned runs of one session."""

    def __init__(self, session: Session, *, injected: float) -> None:
        self._session = session
        self._stretch = injected - 1.0
        stages = session.resolved.treatment_stages()
        self._formats = Stage.FORMAT in stages
        #: by place, the stretch for which its file system was made
        self._stretch_formatted: dict[str, tuple[str, int, int] | None] = {}
        varied_within = session.resolved.treatment_stages(within_stretches=True)
        self._formats_each_run = Stage.FORMAT in varied_within
        self._compares_places = Stage.PLACE in stages
        self._syncs_after = bool(stages & {Stage.PLACE, Stage.FORMAT, Stage.MOUNT, Stage.HOST, Stage.DEVICE})
        self._entered: list[tuple[Turn, Subject]] = []
        self._serving = Serving(root=session.resolved.root)

    @property
    def alive(self) -> bool:
        """Whether there is a probe to carry out anything."""
        return self._session.probe.alive

    def rehearse(self, condition: Condition, run: PlannedRun) -> None:
        """Do a run untimed, so that programs and libraries are loaded before the first timed one. Its outcome is ignored
        but for a failure, which the first timed run will meet and report."""
        self.run(condition, run, block=0)

    def run(self, condition: Condition, run: PlannedRun, *, block: int) -> Outcome:
        """Set, prepare, measure, verify. Raises only where the lab itself is broken."""
        try:
            return self._run(condition, run, block)
        except BaseException as error:
            if not isinstance(error, Exception):  # a signal: the probe is still busy, and will be killed
                self._entered.clear()
                self._serving.abandon()
            raise
        finally:
            self._leave()

    def account(self, condition: Condition, run: PlannedRun, *, block: int, what: frozenset[Counted]) -> Told:
        """Do a run for what is counted of it alone. Raises what the lab, the target or the probe raises (NotSupported:
        nothing of it was done), and ProbeError where the work failed or calls were lost."""
        stretch = None if run.stretch is None else (condition.key, block, run.stretch)
        turns = self._session.resolved.turns_of(condition, run.arm)
        place = self._session.place_of(condition, run.arm)
        try:
            subject, state, workload = self._prepare(condition, run, turns, place, stretch)
            job = self._job(subject, workload, 0.0)
            wrong = self._serving.warm(subject, workload.work, state, job)
            answer = subject.target.call(driver(workload.work).verb, **job, **asked(what))
            wrong = self._serving.settle(subject, workload.work, answer) or wrong or self._serving.stop()
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
        return told(answer, what, _devices(subject))

    def _enter(self, subject: Subject, turns: list[Turn]) -> None:
        """Put the probe where the knobs of the work want it, for the rest of the run."""
        for turn in turns:
            self._entered.append((turn, subject))
            turn.knob.enter(subject, turn.setting, turn.value)

    def _leave(self) -> None:
        if self._session.probe.alive:
            self._serving.stop()
        while self._entered:
            turn, subject = self._entered.pop()
            if self._session.probe.alive:
                turn.knob.leave(subject, turn.setting)

    def _run(self, condition: Condition, run: PlannedRun, block: int) -> Outcome:
        place = self._session.place_of(condition, run.arm)
        turns = self._session.resolved.turns_of(condition, run.arm)
        stretch = None if run.stretch is None else (condition.key, block, run.stretch)
        try:
            subject, state, workload = self._prepare(condition, run, turns, place, stretch)
        except KnobError as error:
            health.check(place, error.message)
            return Outcome(void=READ_BACK_FAILED, problem=error.message)
        except LabError as error:
            health.check(place, error.message)
            raise
        except TargetError as error:
            health.check(place, error.message, number=error.errno)
            if error.errno not in FULL:
                raise
            return Outcome(failure=error.message)  # the work of an earlier run has filled the lab
        try:
            wrong = self._serving.warm(subject, workload.work, state, self._job(subject, workload, 0.0))
            if wrong is not None:
                return Outcome(failure=wrong)
            answer = self._measure(subject, workload, self._stretch if run.arm.stretched else 0.0)
            making.end(subject, workload.work, turns, answer)
            wrong = self._serving.settle(subject, workload.work, answer) or self._serving.stop()
        except KnobError as error:
            return Outcome(void=READ_BACK_FAILED, problem=error.message)
        except TargetError as error:
            health.check(place, error.message, number=error.errno)
            return Outcome(failure=error.message)
        except ProbeError as error:
            if not self._session.probe.alive:
                raise
            health.check(place, error.message)
            return Outcome(failure=error.message)
        outcome = self._outcome(answer, subject, workload, state)
        if outcome.failure is None and wrong is not None:
            outcome = replace(outcome, failure=wrong)
        if run.arm.stretched:
            outcome = replace(outcome, checks={**outcome.checks, "injected": float(answer["injected"])})
        if outcome.failure is not None:
            health.check(place, outcome.failure, files=subject.files)
        return outcome

    # before the timed part

    def _prepare(
        self,
        condition: Condition,
        run: PlannedRun,
        turns: tuple[Turn, ...],
        place: Place,
        stretch: tuple[str, int, int] | None,
    ) -> tuple[Subject, str, Workload]:
        session = self._session
        subject = session.subject(place)
        if self._compares_places:
            # whatever the run before has left on whichever place: none of them has anything to write
            for every in session.places.values():
                every.syncfs()
        self._turn_settings(subject, turns)
        by_stage = {stage: [t for t in turns if t.knob.stage is stage] for stage in Stage}
        state = self._cache_state(by_stage[Stage.CACHE])
        fresh = cache.needs_fresh_mount(state)
        treated = any(t.role is Role.TREATMENT for t in by_stage[Stage.MOUNT])
        # Where a run leaves the neutral mount, the next one starts with the way back to it: so must the first of a block.
        leaves = any(isinstance(t.knob, MountKnob) and t.knob.words(t.value) for t in by_stage[Stage.MOUNT])
        place.to_neutral(always=treated or leaves, fresh=fresh)
        declared = session.plan.study.workload(condition.workload).work
        by_the_work = making.wished(subject, declared, by_stage[Stage.FORMAT])
        if not by_the_work and self._format_due(subject, by_stage[Stage.FORMAT], stretch):
            self._stretch_formatted[place.name] = None  # until it is done
            self._format(subject, by_stage[Stage.FORMAT], condition)
            self._stretch_formatted[place.name] = stretch
        size = next(
            (int(t.value) for t in turns if t.knob.name == "file.size" and t.role is Role.TREATMENT), None
        )
        scratch = driver(declared).scratch(declared)
        if scratch:
            place.make_scratch(self._owner(by_stage[Stage.WORK], declared))
        subject.files = session.files.selection(place, condition, run.files, size)
        files = [
            t for t in by_stage[Stage.FILES] if not (t.knob.name == "file.size" and t.role is Role.CONDITION)
        ]
        self._turn_through_neutral(subject, files)
        for turn in by_stage[Stage.WORK] + by_stage[Stage.CACHE]:
            turn.knob.write(subject, turn.setting, turn.value)
            turn.knob.verify(subject, turn.setting, turn.value)
        workload = _as_drafted(session.plan.study.workload(condition.workload), subject)
        self._serving.provide(subject, workload.work)
        if files or fresh or scratch:
            place.syncfs()
        for turn in by_stage[Stage.MOUNT]:
            turn.knob.write(subject, turn.setting, turn.value)
        place.settle(always=treated, fresh=fresh)
        for turn in by_stage[Stage.PLACE] + by_stage[Stage.MOUNT]:
            turn.knob.verify(subject, turn.setting, turn.value)
        self._enter(subject, by_stage[Stage.WORK])
        self._serving.start(subject, workload.work, state)
        making.begin(subject, workload.work)
        return subject, state, workload

    def _cache_state(self, turns: list[Turn]) -> str:
        return turns[-1].value if turns else "as-is"

    def _turn_settings(self, subject: Subject, turns: tuple[Turn, ...]) -> None:
        settings = [t for t in turns if t.knob.stage in (Stage.HOST, Stage.DEVICE)]
        # the scheduler first: it drags the others along
        settings.sort(key=lambda t: t.knob.name != "block.scheduler")
        self._turn_through_neutral(subject, settings, verify=False)
        if any(t.knob.stage is Stage.DEVICE for t in settings):
            self._session.settings.repin(subject.place)
        for turn in settings:
            turn.knob.verify(subject, turn.setting, turn.value)

    def _turn_through_neutral(self, subject: Subject, turns: list[Turn], *, verify: bool = True) -> None:
        for turn in turns:
            # what is the same in every arm of a block needs no common way to it
            neutral = turn.knob.neutral(turn.setting, turn.values) if turn.role is Role.TREATMENT else None
            if neutral is not None:
                turn.knob.write(subject, turn.setting, neutral)
            turn.knob.write(subject, turn.setting, turn.value)
        if verify:
            for turn in turns:
                turn.knob.verify(subject, turn.setting, turn.value)

    def _format_due(self, subject: Subject, turns: list[Turn], stretch: tuple[str, int, int] | None) -> bool:
        """Where a treatment makes the file system: for every run, or at the start of a stretch. What is pinned or a condition
        has it made where it is another than the one that stands."""
        if self._formats:
            made_for = self._stretch_formatted.get(subject.place.name)
            return self._formats_each_run or stretch is None or stretch != made_for
        return any(turn.knob.read(subject, turn.setting) != turn.value for turn in turns)

    def _format(self, subject: Subject, turns: list[Turn], condition: Condition) -> None:
        place = subject.place
        assert isinstance(place, DiskPlace)
        for turn in turns:
            turn.knob.write(subject, turn.setting, turn.value)
        place.format()
        for turn in turns:
            turn.knob.verify(subject, turn.setting, turn.value)
        # Where every run or stretch has a file system of its own, other conditions' files would be made for nothing.
        self._session.make_files(place, only=condition if self._formats else None)

    # the timed part

    def _measure(self, subject: Subject, workload: Workload, stretch: float) -> dict[str, Any]:
        verb, job = driver(workload.work).verb, self._job(subject, workload, stretch)
        sampler, device = self._session.sampler, subject.place.device
        if sampler is None:
            return subject.target.call(verb, **job)
        sampler.start([] if device is None else [device])
        try:
            answer = subject.target.call(verb, **job)
        finally:
            samples = sampler.stop()
        return {**answer, "samples": samples}

    def _job(self, subject: Subject, workload: Workload, stretch: float) -> dict[str, object]:
        files = subject.files
        assert files is not None
        work = workload.work
        kind = driver(work)
        # What a program writes is its own to sync; but what it leaves in the scratch folder must not be written back while
        # the next run is timed.
        scratch = kind.scratch(work)
        writes = scratch or kind.leaves_dirty(work)
        common: dict[str, object] = {
            **(
                {"set": files.set, "files": files.wire, "view": subject.work.view}
                if kind.on_files(work)
                else {}
            ),
            **({"out": subject.place.scratch} if scratch else {}),
            "user": self._user(subject.work.reader, work),
            "stretch": stretch,
            "stretch_clock": "cpu" if is_cpu(self._stretched(workload)) else "wall",
            "devices": list(_devices(subject).values()),
            "sync_after": subject.place.root if self._syncs_after or writes else None,
            "replicates": work.replicates,
        }
        return {**common, **kind.fields(work, self._asked(subject, workload))}

    def _asked(self, subject: Subject, workload: Workload) -> Asked:
        draft = subject.work
        folders = {name: f"{place.root}/own" for name, place in subject.beside.items()}
        return Asked(
            self._stretched(workload),
            {**draft.arguments, **{f"{{place.{name}}}": folder for name, folder in folders.items()}},
            draft.environment,
            subject.place.device,
            draft.sizes,
            self._serving.situation(subject),
            folders,
            draft.mkfs,
        )

    def _owner(self, turns: list[Turn], work: Work) -> dict[str, int] | None:
        """Whose the scratch folder is: who will do the work."""
        reader = next((t.value for t in turns if t.knob.name == ProcessUser.name), "self")
        return self._user(reader, work)

    def _user(self, reader: str, work: Work) -> dict[str, int] | None:
        if not self._session.resolved.root or reader == "root":
            return None
        if reader == "unprivileged":
            return {"uid": NOBODY, "gid": NOBODY}
        if driver(work).never_root:
            return self._serving.user()
        uid, gid = invoking_user()
        return None if driver(work).as_root(work) or uid == 0 else {"uid": uid, "gid": gid}

    def _stretched(self, workload: Workload) -> str:
        response = stretched_response(self._session.plan.responses(workload.name))
        return "" if response is None else response.name

    # after it

    def _outcome(self, answer: dict[str, Any], subject: Subject, workload: Workload, state: str) -> Outcome:
        work = workload.work
        files = subject.files
        assert files is not None
        usage = answer["usage"]
        devices = _devices(subject)
        counters = summed(answer["devices"], devices.values())
        own = summed(answer["devices"], subject.place.devices.values())
        served = serving.numbers(answer)
        in_process = (
            usage["blocks_in"] * KERNEL_BLOCK + served.get("server_fetched_bytes", 0.0),
            usage["blocks_out"] * KERNEL_BLOCK + served.get("server_dirtied_bytes", 0.0),
        )
        bytes_read = own["read_bytes"] if own else in_process[0]
        spun_wall, spun_cpu = to_take_off(answer, self._stretched(workload))
        numbers: dict[str, float] = {
            "wall": answer["wall_ns"] / 1e9 - spun_wall,
            "user": max(0.0, answer["user_ns"] / 1e9 - spun_cpu),
            "sys": answer["sys_ns"] / 1e9,
            "cpu": answer["cpu_ns"] / 1e9 - spun_cpu,
            "device_read_bytes": float(counters["read_bytes"] if counters else bytes_read),
            "device_write_bytes": float(counters["write_bytes"] if counters else in_process[1]),
            **{key: float(usage[key]) for key in ("faults_minor", "faults_major")},
            **served,
            **activity(answer, subject.place.device),
        }
        synced = answer.get("devices_after_sync")
        if devices and synced:
            numbers["device_write_bytes_synced"] = float(summed(synced, devices.values())["write_bytes"])
        if not driver(work).timed:
            for name in ("wall", "user", "sys", "cpu"):
                del numbers[name]
        if driver(work).of_client:
            numbers["client_cpu"] = numbers["cpu"]
            for name in ("user", "sys", "cpu"):
                del numbers[name]
        found = driver(work).measured(work, answer, self._asked(subject, workload))
        numbers |= found.numbers
        declared = {r.name for r in self._session.plan.responses(workload.name)}
        evidence = {
            "switches_voluntary": float(usage["switches_voluntary"]),
            "switches_involuntary": float(usage["switches_involuntary"]),
            **counted(answer, devices),
            **subject.work.evidence,
        }
        expected = driver(work).reads_bytes(work, files.bytes_each, files.count)
        return Outcome(
            responses={name: value for name, value in numbers.items() if name in declared},
            evidence=evidence | {k: v for k, v in numbers.items() if k not in declared},
            histograms=found.histograms,
            checks={
                "cache": state,
                "bytes_read": bytes_read,
                "bytes_expected": expected,
                **clock_of(answer),
                **self._series(answer, subject.place.device),
                **({BY_SECOND: found.seconds} if found.seconds else {}),
                **found.checks,
                **({FACTS: by_word(found.facts)} if found.facts else {}),
            },
            started_ns=int(answer["started_ns"]),
            failure=failure_of(answer),
            void=None
            if state == "warm" and driver(work).may_read_warm(work)
            else cache.void_rule(state, bytes_read=int(bytes_read), bytes_expected=expected),
        )

    def _series(self, answer: dict[str, Any], device: str | None) -> dict[str, object]:
        if "samples" not in answer:
            return {}
        found = series_of(
            answer["samples"], device, started_ns=int(answer["started_ns"]), wall_ns=int(answer["wall_ns"])
        )
        return {} if found is None else {SERIES: found}


def _devices(subject: Subject) -> dict[str, str]:
    """The block devices that the work of a run may reach, by what each holds: those of its place, and of places beside it."""
    beside = {
        f"beside {name}": place.device for name, place in subject.beside.items() if place.device is not None
    }
    return {**subject.place.devices, **beside}


def _as_drafted(workload: Workload, subject: Subject) -> Workload:
    """The workload with those of its keys that knobs have set."""
    work = varied(kinds.kind(workload.kind), workload.work, subject.work.options)
    return replace(workload, work=work)
