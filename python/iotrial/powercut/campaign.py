"""Cuts the power of a service again and again, under each of several settings, and counts what is lost.

Each run of a setting is recorded on a new file system; then points of it are drawn, and each is rebuilt, recovered and
examined. The settings take turns in drawn order. Points of one run share its luck, so runs are the unit.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import subprocess
import tempfile
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path

from iotrial.design.keyed import Stream
from iotrial.errors import IotrialError, LabError
from iotrial.lab.target import Target
from iotrial.polling import attempts
from iotrial.powercut.log import WriteLog
from iotrial.powercut.missing_sync import Operation, operations
from iotrial.powercut.mounts import enter_own_namespace, enter_own_processes, mount
from iotrial.powercut.record import WORK_BEGUN, WORK_ENDED, Marker, record
from iotrial.powercut.recover import MEMORY, Check, Examination, Findings, Outcome, examined
from iotrial.powercut.service import BEGINS_MARK, Ledger, Placed, Service, acknowledgements
from iotrial.powercut.states import Arrival, Cache, arrivals, cut_points
from iotrial.probe.binary import find_binary
from iotrial.study.model import Setting

#: the disk answers like an SSD: a flush takes so long that a line of the client is read before one that follows it is done
PACE = {
    "flat": {
        "read_us": 50.0, "write_us": 100.0, "jump_us": 0.0, "flush_us": 2000.0, "overhead_us": 0.0,
        "read_bytes_per_s": 1e9, "write_bytes_per_s": 1e9, "depth": 32,
    }
}  # fmt: skip
#: names next to each other: where the disk is mounted, and a folder with what the client prints
DISK, OUTPUT = "disk", "output"
CLIENT, CLOCK = "client", "clock"
#: for the tracer to begin and to end
_TRACER_S = 20.0
#: for one check, with the start of the service
CHECK_S = 130.0
#: what may be wrong after a cut, the worst first; by the word in reports
KINDS: dict[str, Callable[[Outcome], bool]] = {
    "lost": lambda one: bool(one.lost),
    "corrupt": lambda one: bool(one.corrupt),
    "will not start": lambda one: bool(one.not_started),
    "needs fsck": lambda one: one.needs_fsck,
}
HARMED = "harmed"
#: what is counted: each kind, and points at which the service has lost or damaged something, or does not start
COUNTED: dict[str, Callable[[Outcome], bool]] = {
    **KINDS,
    HARMED: lambda one: bool(one.lost or one.corrupt or one.not_started),
}


@dataclass(frozen=True, slots=True)
class Setup:
    """One setting of the service and of its file system. ``options``: of the mount. ``levels``: what distinguishes it."""

    name: str
    service: Service
    filesystem: str = "ext4"
    size_bytes: int = 512 << 20
    mkfs_options: tuple[str, ...] = ()
    options: str = ""
    levels: tuple[Setting, ...] = ()


@dataclass(frozen=True, slots=True)
class Recording:
    """One run of a service. ``lines``: offset in the client's output, and text, of each mark. ``operations``: on files below
    the folder that holds its disk and that output; none if they cannot be traced here. ``trace_began``: ns of the monotonic
    clock.
    """

    log: Path
    lines: tuple[tuple[int, str], ...]
    operations: tuple[Operation, ...]
    trace_began_ns: int
    seconds: float

    @property
    def printed(self) -> list[tuple[int, str]]:
        """When each line was printed, in ns since the trace began; nothing if it is not known.

        The beginning of the write for what begins, its end for what is acknowledged.
        """
        writes = [op for op in self.operations if op.call == "write" and op.path == f"{OUTPUT}/{CLIENT}"]
        ends = [op.offset + op.length for op in writes]
        found = []
        for at, text in self.lines:
            place = bisect_left(ends, at)
            if place == len(ends):
                return []
            found.append(
                (writes[place].start_ns if text.startswith(BEGINS_MARK) else writes[place].end_ns, text)
            )
        return found


def recorded(target: Target, setup: Setup, folder: Path, at: Path) -> Recording:
    """Run the service once on a disk that logs, with everything about it in ``folder``. Raises LabError."""
    log, trace = folder / "log", folder / "trace"
    with trace.open("wb") as traced_to, tempfile.TemporaryFile("w+") as facts_file:
        work = _Recorded(setup.service, traced_to.fileno(), facts_file.fileno())
        record(
            target, log, setup.filesystem, setup.size_bytes, work, mkfs_options=setup.mkfs_options, options=setup.options,
            model=PACE, at=at, enclosed=True,
        )  # fmt: skip
        facts_file.seek(0)
        facts = json.load(facts_file)
    lines = tuple((int(at), str(text)) for at, text in facts["lines"])
    ops = _operations(trace) if facts["traced"] else ()
    clock = next((op for op in ops if op.call == "write" and op.path == f"{OUTPUT}/{CLOCK}"), None)
    if clock is None:
        return Recording(log, lines, (), 0, float(facts["seconds"]))
    return Recording(log, lines, ops, int(facts["clock"]) - clock.end_ns, float(facts["seconds"]))


def _operations(trace: Path) -> tuple[Operation, ...]:
    """Read a trace; nothing if it cannot be read."""
    try:
        return tuple(operations(trace))
    except IotrialError:
        return ()


class _Recorded:
    """The work of a recording: the service runs in a PID namespace, its file operations are traced from outside."""

    def __init__(self, service: Service, trace: int, facts_file: int) -> None:
        self._service, self._trace, self._facts = service, trace, facts_file
        self._outside = 0

    def __call__(self, root: Path, marker: Marker) -> None:
        mount("none", root.parent / OUTPUT, "tmpfs", "mode=700,size=10%")
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        self._outside = os.getpid()
        child = context.Process(target=self._inside, args=(theirs, root, marker.path))
        child.start()
        theirs.close()
        try:
            _expect(ours)  # its files are prepared
            with _traced(root.parent, self._trace) as tracing:
                ours.send(tracing)
                _expect(ours)
        finally:
            ours.close()
            child.join()

    def _inside(self, answers: Connection, root: Path, marks: Path) -> None:
        problem = ""
        placed = Placed(self._service, root)
        try:
            enter_own_namespace(self._outside)  # its /proc is not for the tracer
            enter_own_processes(answers.fileno())
            placed.make()
            answers.send("")
            traced = answers.recv()
            (root.parent / OUTPUT / CLOCK).write_text("now")  # its time in the trace and here
            clock, began = time.monotonic_ns(), time.monotonic()
            lines = placed.work(marks, root.parent / OUTPUT / CLIENT)
            facts = {"lines": lines, "traced": traced, "clock": clock, "seconds": time.monotonic() - began}
            os.write(self._facts, json.dumps(facts).encode())
        except (IotrialError, OSError, subprocess.SubprocessError) as error:
            problem = str(error) or type(error).__name__
        except EOFError:
            return
        answers.send(problem)


def _expect(answers: Connection) -> None:
    try:
        problem = answers.recv()
    except EOFError:
        problem = "the process that runs the service died"
    if problem:
        raise LabError(problem)


@contextmanager
def _traced(under: Path, to: int) -> Iterator[bool]:
    """Trace the file operations of this process and its children below a folder; yields whether it works on this kernel."""
    argv = [
        str(find_binary()),
        "record",
        "--output",
        f"/proc/self/fd/{to}",
        "--under",
        str(under),
        "--pid",
        str(os.getpid()),
    ]
    tracer = subprocess.Popen(
        argv, pass_fds=(to,), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    began = False
    for _ in attempts(_TRACER_S, every_s=0.02):
        began = os.fstat(to).st_size > 0
        if began or tracer.poll() is not None:
            break
    try:
        yield began and tracer.poll() is None
    finally:
        tracer.terminate()  # SIGINT may be ignored, as in the background of a script
        with suppress(subprocess.TimeoutExpired):
            tracer.wait(_TRACER_S)
        tracer.kill()
        tracer.wait()


# -- cuts


@dataclass(slots=True)
class RunTally:
    """What was found at the points of one run. ``by_kind``: points by what was wrong (``COUNTED``)."""

    points: int = 0
    distinct: int = 0
    acknowledged: int = 0
    seconds: float = 0.0
    checking_s: float = 0.0
    by_kind: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))


@dataclass(slots=True)
class SetupTally:
    """All runs of one setting, and the first bad point of each kind with what is needed to see it again."""

    setup: Setup
    runs: list[RunTally] = field(default_factory=list)
    problem: str = ""
    examples: dict[str, Path] = field(default_factory=dict)

    @property
    def points(self) -> int:
        """All points."""
        return sum(run.points for run in self.runs)

    def count(self, kind: str) -> int:
        """Points of all runs at which this was wrong."""
        return sum(run.by_kind[kind] for run in self.runs)


def check_of(service: Service, ledger: Ledger) -> Check:
    """Return the check of a recovered file system."""

    def check(root: Path, marks: Sequence[str]) -> Findings:
        return Placed(service, root).examine(marks, ledger)

    return check


#: called for the first bad point of each kind of a setting; returns the folder that shows it
Explain = Callable[[str, "Cut"], Path]


@dataclass(frozen=True, slots=True)
class Cut:
    """One bad point, while its log is open."""

    setup: Setup
    recording: Recording
    log: WriteLog
    examination: Examination
    after: int
    stable: int
    entry: int
    parts: tuple[Arrival, ...]
    outcome: Outcome
    cache: Cache
    at: Path


class Campaign:
    """The power cuts of all settings. ``say`` gets lines on how far it is. ``explain``: see ``Explain``. ``check``
    is called between points, and may end all of it by an exception.

    ``points`` of each setting are spread over ``runs``; all of it takes ``time_s`` at most, but one run of each setting.
    """

    def __init__(
        self,
        target: Target,
        setups: Sequence[Setup],
        *,
        seed: str,
        points: int,
        runs: int,
        time_s: float,
        cache: Cache,
        say: Callable[[str], None],
        explain: Explain,
        check: Callable[[], None],
    ) -> None:
        self._target, self._setups, self._seed = target, tuple(setups), seed
        self._points, self._runs, self._time_s = points, runs, time_s
        self._cache, self._say, self._explain, self._check = cache, say, explain, check
        self.tallies = [SetupTally(setup) for setup in setups]

    def run(self) -> list[SetupTally]:
        """Do all of it. A setting that cannot be run has its ``problem``."""
        began = time.monotonic()
        turns = [
            (run, index)
            for run in range(self._runs)
            for index in Stream(self._seed, "iotrial.powercut", "turn", run).permutation(len(self._setups))
        ]
        with tempfile.TemporaryDirectory(prefix="iotrial-cut-") as name:
            Path(name).chmod(0o711)
            at = Path(name) / DISK
            at.mkdir()
            (Path(name) / OUTPUT).mkdir()
            for number, (run, index) in enumerate(turns):
                tally, now = self.tallies[index], time.monotonic()
                if tally.problem or (run and now - began > self._time_s):
                    continue
                until = max(began + self._time_s * (number + 1) / len(turns), now + 5.0)
                self._check()
                self._say(f"run {run + 1} of {self._runs}: {tally.setup.name}")
                try:
                    self._one(tally, run, until, at)
                except LabError as error:
                    tally.problem = error.message
        return self.tallies

    def _one(self, tally: SetupTally, run: int, until: float, at: Path) -> None:
        """Record one run of a setting, and examine its points."""
        setup = tally.setup
        seed = hashlib.sha256(f"{self._seed}/{setup.name}/{run}".encode()).hexdigest()[:32]
        points = self._points * (run + 1) // self._runs - self._points * run // self._runs
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="iotrial-cut-", dir=MEMORY)))
            recording = recorded(self._target, setup, folder, at)
            log = stack.enter_context(WriteLog(recording.log, until=WORK_ENDED))
            after = log.marked(WORK_BEGUN) + 1
            marks = [mark for mark in log.marks if mark.entry >= after]
            printed = recording.printed
            exact = len(printed) == len(marks)  # else the client marks itself, or nothing was traced
            if exact and marks:
                log.place([(recording.trace_began_ns + at, text) for at, text in printed], after=after)
                marks = [mark for mark in log.marks if mark.entry >= after]
            if not acknowledgements([mark.text for mark in marks]):
                raise LabError(
                    'the client has acknowledged nothing: it prints "acknowledged KEY VALUE" for each operation'
                )
            # later than this, an operation may have been sent that nothing tells of
            before = max(mark.entry for mark in marks) + 1
            texts = tuple(mark.text for mark in marks)
            check = check_of(setup.service, Ledger.of(texts, late=not exact and bool(recording.lines)))
            examination = stack.enter_context(
                Examination(
                    self._target, log, setup.size_bytes, setup.filesystem, check, at=at, options=setup.options,
                    fsck_every=1, limit_s=CHECK_S, enclosed=True,
                )
            )  # fmt: skip
            counts = RunTally(acknowledged=len(acknowledgements(texts)), seconds=recording.seconds)
            tally.runs.append(counts)
            drawn = (
                # what was done before the work has reached the disk long ago
                replace(point, stable=max(point.stable, after))
                for point in cut_points(log, seed, points, after=after, before=before, cache=self._cache)
                if point.kind == "drawn"
            )
            began = time.monotonic()
            bad: dict[str, Cut] = {}
            for checked in examined(examination, log, drawn):
                self._check()
                counts.points += 1
                counts.distinct += not checked.repeated
                for kind, is_so in COUNTED.items():
                    if not is_so(checked.outcome):
                        continue
                    counts.by_kind[kind] += 1
                    if kind in KINDS and kind not in bad and kind not in tally.examples:
                        bad[kind] = Cut(
                            setup, recording, log, examination, after, checked.point.stable, checked.point.entry,
                            tuple(arrivals(log, checked.point)), checked.outcome, self._cache, at,
                        )  # fmt: skip
                if time.monotonic() > until:
                    break
            counts.checking_s = time.monotonic() - began
            for kind, cut in bad.items():
                self._say(f"looking for the least that shows: {kind}")
                tally.examples[kind] = self._explain(kind, cut)
