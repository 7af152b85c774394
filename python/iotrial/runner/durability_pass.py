"""Cuts the power of each arm's disk, and counts at how many points acknowledged writes are lost.

After the timed runs, the work is done a few times more for each arm, each time in a separate lab, on a simulated disk that
logs its writes (``iotrial.powercut``). The work acknowledges what it takes to be durable; each acknowledgement is a mark in
the log. Then points of this run are drawn, the disk is rebuilt as a power cut may have left it at each of them, recovered by
the kernel, and checked by the work. Nothing here is timed, and what fails here is noted: the trial stays valid.

The points of a run share its luck: where the work wrote, and when the kernel wrote back. So the points of an arm are spread
over several runs, in the drawn order of a block each, and arms are compared with the run as the unit.
"""

from __future__ import annotations

import hashlib
import math
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from iotrial.design.model import ArmKind, Condition, PlannedRun
from iotrial.design.plan import Plan
from iotrial.errors import IotrialError, LabError, RequestError
from iotrial.knobs.knob import RunContext
from iotrial.lab.objects.loop import LabLoop
from iotrial.lab.simulated_disk import WriteLogging
from iotrial.lab.target import Target
from iotrial.powercut.disk import CutDisk
from iotrial.powercut.log import LogError, WriteLog
from iotrial.powercut.rebuild import Rebuilder
from iotrial.powercut.record import WORK_BEGUN, WORK_ENDED, Marker
from iotrial.powercut.recover import MEMORY, Check, Findings, Outcome, Recovery
from iotrial.powercut.states import State, cut_points, state_of
from iotrial.runner.checked_work import checked_workloads, why_not
from iotrial.runner.guest import MachineSpec, own_boot_id
from iotrial.runner.places import FILESYSTEM
from iotrial.runner.progress import Watcher
from iotrial.runner.resolve import Resolved
from iotrial.runner.run import Runner
from iotrial.runner.session import Session
from iotrial.runner.signals import StopSignals
from iotrial.store import Store
from iotrial.store.event_records import NOT_CUT
from iotrial.store.limits import MAX_LINE_TEXT
from iotrial.store.model import PowerCuts
from iotrial.study.model import Workload
from iotrial.study.work import HasCheck, LabContext, Recovered, Work

#: beginning of the marks of the time, with the nanoseconds of this machine's monotonic clock
TICK = "iotrial: at "
_TICK_S = 0.005
_COMPARISONS = 25
#: how much two clocks may differ beyond what comparing them before and after a run shows
_SURPLUS_NS = 1_000_000
#: look with the file system's checker after every recovery
_FSCK_EVERY = 1
_MOST_EXAMPLES = 3
#: a request that no longer fits may leave this much
_FULL_BYTES = 2 << 20
#: how often to tell how far a run's points are
_TELL_S = 5.0
#: for all power cuts of a trial, so that checkers that hang cannot hold it for days; the point in progress is cut off
STAGE_LIMIT_S = 3600.0


@dataclass(slots=True)
class _Tally:
    """What has been found at the points of one run."""

    points: int = 0
    lossy: int = 0
    corrupt: int = 0
    needs_fsck: int = 0
    unmountable: int = 0
    most_lost: int = 0
    examples: dict[str, None] = field(default_factory=dict)

    def add(self, outcome: Outcome, items: int) -> None:
        """Add one point; ``items`` had been acknowledged by then."""
        self.points += 1
        self.lossy += bool(outcome.lost)
        self.corrupt += bool(outcome.corrupt)
        self.needs_fsck += outcome.needs_fsck
        self.unmountable += not outcome.mounted
        self.most_lost = max(self.most_lost, min(len(outcome.lost), items))
        for what, texts in (("lost", outcome.lost), ("corrupt", outcome.corrupt)):
            if texts and len(self.examples) < _MOST_EXAMPLES:
                self.examples[_line(f"{what}: {texts[0]}")] = None
        if outcome.needs_fsck and outcome.says and len(self.examples) < _MOST_EXAMPLES:
            self.examples[_line(f"fsck: {outcome.says}")] = None


class DurabilityPass:
    """The power cuts of one trial."""

    def __init__(
        self,
        resolved: Resolved,
        plan: Plan,
        store: Store,
        trial: str,
        watcher: Watcher,
        signals: StopSignals,
        *,
        state: Path,
        folder: str,
    ) -> None:
        self._resolved = resolved
        self._plan = plan
        self._store = store
        self._trial = trial
        self._watcher = watcher
        self._signals = signals
        self._state = state
        self._folder = folder
        self._until = math.inf

    def run(self) -> None:
        """Cut the power of every arm under every condition that has a check; what the trial already has is not repeated.

        Raises Stopped on a signal, RestoreError if something could not be restored. Any other IotrialError is noted.
        """
        names = checked_workloads(self._plan.study, self._resolved.lab)
        if not self._plan.study.check:
            return
        reason = why_not(self._resolved) if names else "no workload of this study has a check"
        if reason is not None:
            self._note(f"the power was not cut: {reason}")
            return
        had = {(one.condition, one.arm, one.repetition) for one in self._store.power_cuts(self._trial)}
        self._until = time.monotonic() + STAGE_LIMIT_S
        for condition in self._plan.conditions:
            if condition.workload not in names:
                continue
            failed: set[str] = set()
            for repetition, planned in self._runs(condition):
                arm = planned.arm.name
                if (condition.key, arm, repetition) in had or arm in failed:
                    continue
                try:
                    record = self._cut(condition, planned, repetition)
                except IotrialError as error:
                    failed.add(arm)
                    if time.monotonic() >= self._until:
                        self._note(
                            f"the power of {arm} ({condition.key}) was not cut in run {repetition + 1}, nor later ones: all "
                            f"power cuts of a trial may take {STAGE_LIMIT_S / 60:g} minutes"
                        )
                        return
                    self._note(f"the power of {arm} ({condition.key}) was not cut: {error.message}")
                    continue
                self._store.append_power_cuts(self._trial, record)
                self._signals.check()

    def _runs(self, condition: Condition) -> Iterator[tuple[int, PlannedRun]]:
        """Yield each repetition's first run of each treatment, in the order of a block."""
        for repetition in range(self._plan.study.cut_runs):
            done: set[str] = set()
            for planned in self._plan.block(condition, repetition).runs:
                treatment = planned.arm.kind is ArmKind.TREATMENT and not planned.arm.stretched
                if treatment and planned.arm.name not in done:
                    done.add(planned.arm.name)
                    yield repetition, planned

    def _points(self, repetition: int) -> int:
        """Return how many of the study's points are of this repetition."""
        every, runs = self._plan.study.cut_points, self._plan.study.cut_runs
        return every * (repetition + 1) // runs - every * repetition // runs

    def _cut(self, condition: Condition, planned: PlannedRun, repetition: int) -> PowerCuts:
        """Record one run, then rebuild, recover and check its points."""
        if time.monotonic() >= self._until:
            raise RequestError("the time for all power cuts is over")
        self._watcher.say(
            f"cutting the power of {planned.arm.name} ({condition.key}) at {self._points(repetition):,} points of run "
            f"{repetition + 1} of {self._plan.study.cut_runs}"
        )
        with ExitStack() as stack:
            logging = WriteLogging(f"{MEMORY}/iotrial-lab-{self._trial[:8]}-cut")
            session = stack.enter_context(self._session(condition, planned, logging))
            run = self._recorded(session, condition, planned, repetition, logging)
            return self._looked_at(session, condition, planned, repetition, run, logging)

    @contextmanager
    def _session(self, condition: Condition, planned: PlannedRun, logging: WriteLogging) -> Iterator[Session]:
        """Open a lab with one file system, that of the condition; in a guest, the arm's own from the first boot on."""
        sites = tuple(
            replace(site, filesystems=(self._filesystem(condition, site.filesystems),), disk=None)
            for site in self._resolved.sites
        )
        session = Session(
            replace(self._resolved, sites=sites),
            self._plan,
            state=self._state,
            folder=self._folder,
            trial=self._trial,
            waiting=self._signals.waiting,
            logging=logging,
            machine=MachineSpec.wanted_by(self._resolved.settings_of(condition, planned.arm)),
        )
        try:
            with self._signals.interruptible():
                session.open()
            yield session
        except BaseException as error:
            full = shutil.disk_usage(MEMORY).free < _FULL_BYTES
            if not isinstance(error, Exception):
                session.abandon_probe()
            session.close()
            session.check_restored(error)
            if full and isinstance(error, (IotrialError, OSError)):
                raise LabError(f"{MEMORY}, which holds the simulated disk and its log, is full") from error
            raise
        session.close()
        session.check_restored()

    def _filesystem(self, condition: Condition, possible: Sequence[str]) -> str:
        """Return the file system of a condition; the place's own if no condition chooses one."""
        for factor, label in condition.levels.items():
            for setting in self._resolved.settings[factor, label]:
                if setting.knob.name == FILESYSTEM and setting.value in possible:
                    return setting.value
        return possible[0]

    def _recorded(
        self,
        session: Session,
        condition: Condition,
        planned: PlannedRun,
        repetition: int,
        logging: WriteLogging,
    ) -> _Run:
        """Do the run on the disk that logs, and take the lab down: the log is complete then."""

        ticks = None if session.logged_device is None else _Ticks(Path(logging.marks))

        def mark(text: str, context: RunContext) -> None:
            device = session.logged_device or context.place.device
            session.disk_target.call("disk_mark", device=device, text=text)

        def begin(context: RunContext) -> None:
            if session.logged_device is not None:  # QEMU may have left the guest's writes in our page cache
                session.disk_target.call("fsync", path=f"/dev/{session.logged_device}")
            mark(WORK_BEGUN, context)
            if ticks is not None:
                ticks.start(context.worker)

        def end(context: RunContext) -> None:
            if ticks is not None:
                ticks.stop()
            mark(WORK_ENDED, context)

        runner = Runner(session, injected=1.0, reboots=False)
        try:
            with self._signals.interruptible():
                done = runner.acknowledge(
                    condition,
                    planned,
                    block=repetition,
                    marks=logging.marks if ticks is None else "",
                    begin=begin,
                    end=end,
                )
                place = done.context.place
                run = _Run(
                    done.workload,
                    done.lab,
                    place.root,
                    place.scratch,
                    str(getattr(place, "filesystem", "")),
                    _size(place),
                    None if ticks is None else ticks.timed(done.collected, done.workload.work),
                )
                session.take_down()
        finally:
            if ticks is not None:
                ticks.stop()
        return run

    def _looked_at(
        self,
        session: Session,
        condition: Condition,
        planned: PlannedRun,
        repetition: int,
        run: _Run,
        logging: WriteLogging,
    ) -> PowerCuts:
        tally, points = _Tally(), self._points(repetition)
        key = f"{self._plan.seed}/{condition.key}/{planned.arm.name}/{repetition}"
        seed = hashlib.sha256(key.encode()).hexdigest()[:32]
        reported = time.monotonic()
        with (
            WriteLog(Path(logging.log), until=WORK_ENDED) as log,
            _shown(session, log, Path(logging.image), run.size_bytes) as (rebuilder, disk),
        ):
            after = log.marked(WORK_BEGUN) + 1
            if after >= len(log):
                raise RequestError("the work neither wrote nor acknowledged anything")
            marks = [mark.text for mark in log.marks if mark.entry >= after]
            at = Path(logging.folder) / "mount"
            at.mkdir()
            with Recovery(
                disk.path, run.filesystem, run.check(), fsck_every=_FSCK_EVERY, until=self._until, at=at
            ) as recovery:
                checked: dict[State, Outcome] = {}
                for drawn in cut_points(log, seed, points, after=after):
                    if drawn.kind != "drawn":
                        continue
                    # Assume that what was done before the work has reached the disk long ago. Otherwise an arm with
                    # settings that keep the kernel from flushing would lose the file system as it was made.
                    point = replace(drawn, stable=max(drawn.stable, after))
                    acknowledged = run.acknowledged(point.acknowledged_before, marks)
                    state = state_of(log, point)
                    if (
                        state not in checked
                    ):  # the same state with the same acknowledgements is the same again
                        disk.forget()
                        rebuilder.build(point)
                        with self._signals.interruptible():
                            checked[state] = recovery.recover(acknowledged)
                    tally.add(checked[state], run.items(acknowledged))
                    self._signals.check()
                    if time.monotonic() - reported > _TELL_S:
                        reported = time.monotonic()
                        self._watcher.say(f"{tally.points:,} of {points:,} points checked")
            return PowerCuts(
                condition=condition.key,
                arm=planned.arm.name,
                treatment=dict(planned.arm.treatment),
                repetition=repetition,
                points=tally.points,
                lossy=tally.lossy,
                corrupt=tally.corrupt,
                needs_fsck=tally.needs_fsck,
                unmountable=tally.unmountable,
                acknowledged=run.items(run.all_acknowledged(marks)),
                most_lost=tally.most_lost,
                requests=len(log) - after - len(marks),
                flushes=sum(flush >= after for flush in log.flushes),
                examples=tuple(tally.examples),
            )

    def _note(self, text: str) -> None:
        self._watcher.say(text)
        self._store.note(self._trial, NOT_CUT, text)


@dataclass(frozen=True, slots=True)
class _Run:
    """A recorded run: what it was, and where it was done.

    ``timed``: the acknowledgements of a guest, which are not in the log.
    """

    workload: Workload
    lab: LabContext
    root: str
    scratch: str
    filesystem: str
    size_bytes: int
    timed: _Timed | None = None

    def acknowledged(self, marks: Sequence[str], every: Sequence[str]) -> tuple[str, ...]:
        """Return what had been acknowledged when the log had these marks; ``every``: those it had in the end."""
        return tuple(marks) if self.timed is None else self.timed.before(marks, every)

    def all_acknowledged(self, every: Sequence[str]) -> tuple[str, ...]:
        """Return what had been acknowledged in the end."""
        return tuple(every) if self.timed is None else tuple(text for _, _, text in self.timed.made)

    def items(self, acknowledged: Sequence[str]) -> int:
        """Return how many items these acknowledgements are."""
        work = self.workload.work
        assert isinstance(work, HasCheck)
        return work.items(acknowledged)

    def check(self) -> Check:
        """Return the work's check, for the root of a recovered file system."""
        work = self.workload.work
        assert isinstance(work, HasCheck)

        def moved(path: str, root: Path) -> str:
            return f"{root}{path.removeprefix(self.root)}"

        def check(root: Path, acknowledged: Sequence[str]) -> Findings:
            lab = replace(self.lab, root=str(root), files=moved(self.lab.files, root))
            found = work.damage(Recovered(lab, self.root, moved(self.scratch, root), acknowledged))
            return Findings(found.lost, found.corrupt)

        return check


@dataclass(frozen=True, slots=True)
class _Timed:
    """Acknowledgements from a guest, by its clock, against marks of this machine's time in the log.

    ``made``: nanoseconds of this machine's clock, whether it takes an earlier one back, and the text. ``off_ns``: how
    wrong these times may be.
    """

    made: tuple[tuple[int, bool, str], ...]
    off_ns: int

    def before(self, marks: Sequence[str], every: Sequence[str]) -> tuple[str, ...]:
        """Return what had been acknowledged when the log had these marks, the first of ``every``.

        The power was cut after the last tick among the marks, and before the second tick after it was read. So what had
        certainly been made by that tick counts, and what may have been withdrawn by then does not.
        """
        ticks = [int(text.removeprefix(TICK)) for text in every if text.startswith(TICK)]
        seen = sum(text.startswith(TICK) for text in marks)
        now = ticks[seen - 1] if seen else 0
        soon = ticks[seen + 1] if seen + 1 < len(ticks) else None
        return tuple(
            text
            for at, takes_back, text in self.made
            if (soon is None or at - self.off_ns <= soon if takes_back else at + self.off_ns <= now)
        )


class _Ticks:
    """Marks the time in the log of a guest's disk, which the work in the guest cannot reach."""

    def __init__(self, marks: Path) -> None:
        self._marks = marks
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._worker: Target
        #: by how much the guest's clock was ahead, and how wrong that may be
        self._compared: list[tuple[int, int]] = []

    def start(self, worker: Target) -> None:
        """Compare the clocks, and begin."""
        self._worker = worker
        self._compare()
        self._thread = threading.Thread(target=self._tick, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Compare the clocks again, and end after a tick that is late enough for all so far. Safe to call twice."""
        if self._thread is None or self._stop.is_set():
            return
        try:
            self._compare()
            time.sleep(2 * self._off_ns / 1e9 + 3 * _TICK_S)
        finally:
            self._stop.set()
            self._thread.join()

    def timed(self, collected: Sequence[tuple[int, str]], work: Work) -> _Timed:
        """Return acknowledgements with the time of this machine."""
        assert isinstance(work, HasCheck)
        ahead_ns, _ = self._compared[0]
        made = tuple((at - ahead_ns, work.withdraws(text), text) for at, text in collected)
        return _Timed(made, self._off_ns)

    @property
    def _off_ns(self) -> int:
        first, last = self._compared[0], self._compared[-1]
        return abs(last[0] - first[0]) + max(first[1], last[1]) + _SURPLUS_NS

    def _compare(self) -> None:
        found = []
        for _ in range(_COMPARISONS):
            before = time.monotonic_ns()
            there = int(self._worker.call("time")["monotonic_ns"])
            after = time.monotonic_ns()
            found.append((after - before, there - (before + after) // 2))
        round_trip, ahead_ns = min(found)
        self._compared.append((ahead_ns, round_trip // 2))

    def _tick(self) -> None:
        with suppress(OSError, LogError), Marker(self._marks) as marker:
            while not self._stop.wait(_TICK_S):
                marker.mark(f"{TICK}{time.monotonic_ns()}")


@contextmanager
def _shown(
    session: Session, log: WriteLog, image: Path, size_bytes: int
) -> Iterator[tuple[Rebuilder, CutDisk]]:
    """Attach a disk that shows the states of a log, held in ``image``; its loop device is in the journal."""
    with ExitStack() as stack:
        rebuilder = stack.enter_context(Rebuilder(log, image, size_bytes))
        target = session.disk_target
        made: Mapping[str, int] = target.call("image_modelled", size=size_bytes, over=str(image), instant={})
        device = (
            LabLoop()
            .attach(
                target,
                session.journal,
                made["image"],
                made["inode"],
                boot_id=own_boot_id(),
                trial=session.trial,
            )
            .device
        )
        stack.callback(target.call, "loop_detach", device=f"/dev/{device}")
        yield rebuilder, CutDisk(target, device)


def _size(place: object) -> int:
    size = getattr(place, "size_bytes", None)
    if not isinstance(size, int):
        raise RequestError("the place has no disk")
    return size


def _line(text: str) -> str:
    """Return a text on one line, as short as a stored record may hold."""
    words = " ".join(text.split())
    return words if len(words) <= MAX_LINE_TEXT else words[: MAX_LINE_TEXT - 1] + "…"
