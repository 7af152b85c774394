"""`iotrial live` where the truth is known: false alarms, planted effects, time from harm to revert, processor time.

    python benchmarks/live/truth.py RECORD --part aa --minutes 60       # as root
    python benchmarks/live/truth.py RECORD --part planted --part reverts --part cost --trials 10
    python benchmarks/live/truth.py RECORD --summary --write BENCHMARKS.md

Each trial appends a line of JSON to RECORD, so that it may be stopped (Ctrl-C) and goes on where it was.

- aa: a sysctl that does nothing to a database under pgbench, its value of today against another. An effect that is shown
  (anytime-valid p-value at most alpha at any look) is a false alarm, and so is a guard that stops the trial.
- planted: a service whose requests take 1.03, 1.1 and 1.3 times as long while a sysctl is not at its value of today, by
  spinning; and the database with read-ahead 0, whose true size is the ratio of mean times of long stretches with each
  setting, measured without iotrial before and after the trials.
- reverts: requests take three times as long while the sysctl is not at its value of today. How long does it take until it is
  set back: by a hard guard, by a guard on windows, after SIGKILL and SIGSTOP of iotrial, and after the metric's server hangs?
  The time begins when the kernel has the setting (guards), or with the signal or the hang, and ends when it has today's for
  good; the kernel's file is read 50 times a second.
- cost: processor time of all of iotrial's processes, in percent of one processor: while windows are measured, and in all,
  with the start of Python and the report at the end.

Trials of several lanes run at the same time, each with a sysctl and a /run of its own (so that each has a machine lock): the
random orders are independent, and a sysctl that does nothing disturbs nobody. The load is small: other work can go on.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

sys.path.insert(0, str(Path(__file__).parents[1] / "truth"))
from service import Running, Stretched, database, mounted, stretched

from exact import rate
from marked import put

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("aa", "planted", "reverts", "cost")
#: sysctls that do nothing here: no swap, no mount with lazytime, no memory that is short, and counters that nobody reads
NULL_SYSCTLS = ("vm.page-cluster", "vm.dirtytime_expire_seconds", "vm.extfrag_threshold", "vm.stat_interval")
TIMES = (1.03, 1.1, 1.3)
HARM_TIMES = 3.0
READ_AHEAD = ("128", "0")
#: of a guard on windows of the A/A trials: close to no effect, where it is most likely to be wrong
AA_GUARD = "worse by 0.1 %"
FOUND = ("slower", "probably_slower")
TICK_S = 0.02
SAMPLE_S = 5.0
#: of a trial: start of Python and first look at the metrics; last analysis and report
START_S, END_S = 10.0, 10.0
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
#: errors in a row after which a lane gives up
MOST_ERRORS = 3
ALONE = 'mount -t tmpfs none /run && exec "$@"'
Line = dict[str, Any]

stopping = threading.Event()


@dataclass(frozen=True, slots=True)
class Lane:
    """Where a trial can run at the same time as others: a sysctl, today's value and another, and a folder for its state."""

    number: int
    key: str
    today: str
    other: str
    state: Path

    @property
    def path(self) -> Path:
        """The sysctl as a file."""
        return Path("/proc/sys") / self.key.replace(".", "/")

    @property
    def setting(self) -> str:
        """The sysctl as an argument of `iotrial live`."""
        return f"{self.key}={self.today},{self.other}"

    @property
    def harmful(self) -> bool:
        """Whether the kernel has another value than today's."""
        return self.path.read_text().strip() != self.today


Job = Callable[[Lane], Line]


def main() -> None:
    """Run the parts, or summarise the record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("record", type=Path, help="file of JSON lines")
    parser.add_argument(
        "--part", action="append", choices=PARTS, help="may be repeated; default: all, one after the other"
    )
    parser.add_argument(
        "--minutes", type=float, default=60.0, help="begin no trial of a part after this (60)"
    )
    parser.add_argument(
        "--trials", type=int, default=10, help="of each kind but A/A, those in the record counted"
    )
    parser.add_argument("--pairs", type=int, default=20, help="of an A/A trial")
    parser.add_argument("--lanes", type=int, default=4, help="trials at the same time")
    parser.add_argument(
        "--sysctl", action="append", help=f"of a lane; may be repeated (default: {', '.join(NULL_SYSCTLS)})"
    )
    parser.add_argument("--rate", type=int, default=30, help="transactions a second of the database")
    parser.add_argument("--summary", action="store_true", help="only print the tables")
    parser.add_argument("--write", type=Path, help="file with the marks <!-- live --> and <!-- end -->")
    given = parser.parse_args()
    if not given.summary:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: sys.exit(1))
        with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="truth-live-") as name:
            Path(name).chmod(0o755)  # PostgreSQL is another user
            for part in given.part or PARTS:
                folder = Path(name) / part
                folder.mkdir()
                {"aa": aa, "planted": planted, "reverts": reverts, "cost": cost}[part](folder, given)
    text = summary(list(lines_of(given.record)))
    print(text)
    if given.write:
        put(given.write, "live", text)


# parts


def aa(folder: Path, given: argparse.Namespace) -> None:
    """A sysctl that does nothing, looked at after every pair."""
    with database(folder / "database", rate=given.rate) as running:

        def job(lane: Lane) -> Line:
            metrics = (running.mean, running.p99, running.rate)
            guards = [word for name in ("mean", "p99") for word in ("--guard", f"{name} {AA_GUARD}")]
            more = ("--blocks", str(given.pairs), "--no-stop", *guards)
            with Trial(lane, running.folder, lane.setting, metrics, (2.5, 0.5), more) as trial:
                return trial.line()

        work("aa", {"aa": job}, given, folder, endless=True)


def planted(folder: Path, given: argparse.Namespace) -> None:
    """Slowdowns of known size, each stopped as soon as it is decided."""
    with mounted(folder, size_bytes=64 << 20) as point:

        def job_of(times: float) -> Job:
            def job(lane: Lane) -> Line:
                with (
                    stretched(point, f"lane-{lane.number}", lane.path, times) as service,
                    Trial(
                        lane, point, lane.setting, (service.mean,), (3.0, 0.5), ("--blocks", "60")
                    ) as trial,
                ):
                    return {**trial.line(), "truth": service.injected()}

            return job

        work("planted", {f"{times:g} times": job_of(times) for times in TIMES}, given, folder)
    if stopping.is_set() or done(given.record, "planted")["read-ahead 0"] >= given.trials:
        return
    with database(folder / "database", rate=given.rate) as running:

        def job(lane: Lane) -> Line:
            setting = f"block.read_ahead_kb={','.join(READ_AHEAD)}"
            with Trial(lane, running.folder, setting, (running.mean,), (5.0, 2.0), ("--blocks", "40")) as one:
                return one.line()

        (running.queue / "read_ahead_kb").write_text(READ_AHEAD[0])
        add(given.record, true_ratio(running))
        work("planted", {"read-ahead 0": job}, given, folder, lanes=1)
        if not stopping.is_set():
            add(given.record, true_ratio(running))


def true_ratio(running: Running) -> Line:
    """Measure mean times at both settings, in sixteen stretches of 15 s in the order ABBABAAB."""
    means: dict[str, list[float]] = {value: [] for value in READ_AHEAD}
    for place in (0, 1, 1, 0, 1, 0, 0, 1) * 2:
        value = READ_AHEAD[place]
        (running.queue / "read_ahead_kb").write_text(value)
        time.sleep(3)
        means[value].append(running.exporter.mean_s(15.0))
    (running.queue / "read_ahead_kb").write_text(READ_AHEAD[0])
    today, harm = (statistics.fmean(means[value]) for value in READ_AHEAD)
    return {"part": "planted", "kind": "truth", "at": time.time(), "truth": harm / today, "means": means}


def reverts(folder: Path, given: argparse.Namespace) -> None:
    """Harm, and how long it lasts."""
    with mounted(folder, size_bytes=64 << 20) as point:

        def job_of(until: Callable[[Lane, Stretched], Line]) -> Job:
            def job(lane: Lane) -> Line:
                with stretched(point, f"lane-{lane.number}", lane.path, HARM_TIMES) as service:
                    return until(lane, service)

            return job

        kinds = {
            "hard guard": hard_guard,
            "guard on windows": guard_on_windows,
            "SIGKILL": killed,
            "SIGSTOP": stopped,
            "metric hangs": hung,
        }
        work("reverts", {name: job_of(until) for name, until in kinds.items()}, given, folder)


def hard_guard(lane: Lane, service: Stretched) -> Line:
    """A limit of twice the mean time of today, in long windows."""
    limit_s = HARM_TIMES * 2.0 / 3.0 * service.exporter.mean_s(5.0)
    return _guarded(lane, service, f"mean > {limit_s:.6f} s", LONG)


def guard_on_windows(lane: Lane, service: Stretched) -> Line:
    """A guard on windows: five blocks at least."""
    return _guarded(lane, service, "mean worse by 20 %", (3.0, 0.5))


#: windows that do not end by themselves while harm is timed: counted part and washout in seconds
LONG = (20.0, 2.0)


def _guarded(lane: Lane, service: Stretched, guard: str, window: tuple[float, float]) -> Line:
    more = ("--blocks", "30", "--no-stop", "--guard", guard)
    with Harm(lane) as harm, Trial(lane, service.folder, lane.setting, (service.mean,), window, more) as one:
        line = one.line()
    if "error" in line:
        return line
    if line["guard"] is None or not harm.spells:
        return {**line, "false": "stopped without harm" if not harm.spells else "not stopped"}
    return {**line, "reverted_s": harm.spells[-1][1] - harm.spells[0][0]}


def killed(lane: Lane, service: Stretched) -> Line:
    """SIGKILL of iotrial in a harmful window."""
    return _struck(lane, service, lambda process: process.send_signal(signal.SIGKILL))


def stopped(lane: Lane, service: Stretched) -> Line:
    """SIGSTOP of iotrial in a harmful window: it hangs, and the watchdog kills it."""
    return _struck(lane, service, lambda process: process.send_signal(signal.SIGSTOP))


def hung(lane: Lane, service: Stretched) -> Line:
    """The metric's server accepts and does not answer, from a moment of a harmful window on."""
    return _struck(lane, service, lambda _: service.exporter.hung.set())


def _struck(lane: Lane, service: Stretched, strike: Callable[[subprocess.Popen[bytes]], None]) -> Line:
    more = ("--blocks", "30", "--no-stop")
    with Trial(lane, service.folder, lane.setting, (service.mean,), LONG, more) as one:
        if not eventually(lambda: lane.harmful or one.process.poll() is not None, 120.0) or not lane.harmful:
            one.interrupt()
            return {**one.line(), "error": "no harmful window"}
        time.sleep(random.uniform(0.5, 10.0))
        began = time.monotonic()
        strike(one.process)
        reverted = eventually(lambda: not lane.harmful, 60.0)
        took_s = time.monotonic() - began
        service.exporter.hung.clear()
        one.interrupt()
        line = one.line(ended=False)
    time.sleep(3.0)  # a watchdog has a note to write
    return {**line, "reverted_s": took_s} if reverted else {**line, "error": "not reverted within 60 s"}


def cost(folder: Path, given: argparse.Namespace) -> None:
    """Trials of about six minutes with windows of two lengths; both sorts run at the same time."""
    with database(folder / "database", rate=given.rate) as running:

        def job_of(window: tuple[float, float], pairs: int) -> Job:
            def job(lane: Lane) -> Line:
                metrics = (running.mean, running.p99, running.rate, "psi:io")
                more = ("--blocks", str(pairs), "--no-stop")
                with Trial(lane, running.folder, lane.setting, metrics, window, more) as one:
                    return one.line()

            return job

        kinds = {"30 s": job_of((30.0, 10.0), 5), "5 s": job_of((5.0, 2.0), 28)}
        work("cost", kinds, given, folder, lanes=2)


# one trial


class Trial:
    """`iotrial live` as a process, in a lane. A context manager: leaving it ends the process, as Ctrl-C does."""

    alive: ClassVar[set[Trial]] = set()

    def __init__(
        self,
        lane: Lane,
        folder: Path,
        setting: str,
        metrics: Sequence[str],
        window: tuple[float, float],
        more: Sequence[str],
    ) -> None:
        self.window_s, self.washout_s = window
        words = [
            sys.executable, "-m", "iotrial", "live", setting, "--in", str(folder), "--window", f"{self.window_s:g} s",
            "--washout", f"{self.washout_s:g} s", "--time", "12 h", "--yes", "--json",
            *(word for one in metrics for word in ("--metric", one)), *more,
        ]  # fmt: skip
        lane.state.mkdir(exist_ok=True)
        self._out, self._err = lane.state / "out.json", lane.state / "err"
        self._load = os.getloadavg()[0]
        self._at, self._began = time.time(), time.monotonic()
        environment = {
            **os.environ,
            "XDG_STATE_HOME": str(lane.state),
            "PYTHONPATH": f"{ROOT / 'python'}:{os.environ.get('PYTHONPATH', '')}",
        }
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                ["unshare", "-m", "sh", "-c", ALONE, "sh", *words], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                env=environment,
            )  # fmt: skip
        self._cpu_s = 0.0
        self._samples: list[tuple[float, float]] = []
        self._watchdog_s = 0.0
        self._ended = threading.Event()
        self._waiter = threading.Thread(target=self._wait)
        self._sampler = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Trial:
        Trial.alive.add(self)
        self._waiter.start()
        self._sampler.start()
        if stopping.is_set():
            self.interrupt()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._ended.is_set():
            self.interrupt()
        self._ended.wait()
        self._sampler.join()
        Trial.alive.discard(self)

    def interrupt(self) -> None:
        """End it as Ctrl-C does (which a background job of a shell ignores)."""
        with suppress(ProcessLookupError):
            if not self._ended.is_set():
                os.kill(self.process.pid, signal.SIGTERM)

    def line(self, *, ended: bool = True) -> Line:
        """Wait for its end, and return its line of the record. Not ``ended``: it was not meant to end by itself."""
        self._ended.wait()
        self._sampler.join()
        status = self.process.returncode
        found: Line = {
            "at": self._at,
            "load": [round(self._load, 2), round(os.getloadavg()[0], 2)],
            "machine": {"kernel": platform.release(), "processors": os.cpu_count()},
            "window_s": self.window_s,
            "washout_s": self.washout_s,
            "status": status,
            "wall_s": self._wall_s,
            "cpu_s": self._cpu_s + self._watchdog_s,
            **self._steady(),
        }
        error = self._err.read_text(errors="replace").strip()[-500:]
        if not ended:
            return found
        if status not in (0, 3, 4):
            return {**found, "error": f"status {status}: {error}"}
        report = json.loads(self._out.read_text())
        judged = next(one for one in report["effects"] if one["primary"])
        keys = ("conclusion", "ratio", "low", "high", "p_anytime", "family_alpha", "blocks")
        return {
            **found,
            **{key: judged[key] for key in keys},
            "version": report["trial"]["version"],
            "state": report["trial"]["state"],
            "seconds": report["trial"]["duration_s"],
            "void": sum(one["count"] for one in report["void"]),
            "guard": error or "stopped" if status == 4 else None,
            "explored": {
                one["response"]: [one["p_anytime"], one["family_alpha"]]
                for one in report["effects"]
                if not one["primary"] and one["kind"] == "main"
            },
        }

    def _wait(self) -> None:
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self._wall_s = time.monotonic() - self._began
        self._cpu_s = usage.ru_utime + usage.ru_stime
        self._ended.set()

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            tree, self._watchdog_s = cpu_of(self.process.pid)
            self._samples.append((time.monotonic(), tree + self._watchdog_s))

    def _steady(self) -> Line:
        """Return processor time and time between the first and the last sample of windows."""
        end = self._began + self._wall_s - END_S
        inside = [one for one in self._samples if self._began + START_S < one[0] < end]
        if len(inside) < 2:
            return {}
        return {
            "steady_cpu_s": inside[-1][1] - inside[0][1],
            "steady_wall_s": inside[-1][0] - inside[0][0],
        }


def cpu_of(pid: int) -> tuple[float, float]:
    """Return the processor time of a process and its descendants, and that of its watchdog, in seconds."""
    parents: dict[int, int] = {}
    spent_s: dict[int, float] = {}
    watchdog_s = 0.0
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        own = int(entry.name)
        parents[own] = int(fields[1])
        # its own and that of children that have ended: utime, stime, cutime, cstime
        spent_s[own] = sum(map(int, fields[11:15])) / CLOCK_TICKS
        if b"iotrial.live.watchdog" in words and str(pid).encode() in words:
            watchdog_s = spent_s[own]
    tree_s = 0.0
    for own, seconds in spent_s.items():
        above: int | None = own
        while above is not None and above != pid:
            above = parents.get(above)
        tree_s += seconds if above == pid else 0.0
    return tree_s, watchdog_s


class Harm:
    """Watches a lane's setting in the kernel: the spells in which it is harmful, on the monotonic clock."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.spells: list[tuple[float, float]] = []

    def __enter__(self) -> Harm:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        since: float | None = None
        while not self._ended.wait(TICK_S):
            now, harmful = time.monotonic(), self._lane.harmful
            if harmful and since is None:
                since = now
            elif not harmful and since is not None:
                self.spells.append((since, now))
                since = None


def eventually(condition: Callable[[], bool], within_s: float) -> bool:
    """Wait until a condition holds; return whether it did in time."""
    end = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(TICK_S)
    return True


# lanes


@contextmanager
def lanes_of(folder: Path, keys: Sequence[str]) -> Iterator[list[Lane]]:
    """Yield lanes; afterwards each sysctl holds what it held."""
    found = []
    for number, key in enumerate(keys):
        today = (Path("/proc/sys") / key.replace(".", "/")).read_text().strip()
        found.append(Lane(number, key, today, str(int(today) + 1), folder / f"state-{number}"))
    try:
        yield found
    finally:
        for lane in found:
            if lane.harmful:
                print(f"{lane.key}: set back to {lane.today} by the benchmark", file=sys.stderr)
                lane.path.write_text(lane.today)


def work(
    part: str,
    kinds: Mapping[str, Job],
    given: argparse.Namespace,
    folder: Path,
    *,
    lanes: int | None = None,
    endless: bool = False,
) -> None:
    """Run trials in lanes until there are enough of each kind (unless ``endless``), or the time is over."""
    before = done(given.record, part)
    begun = {name: before[name] for name in kinds}
    end = time.monotonic() + 60.0 * given.minutes
    changing = threading.Lock()

    def lane_of_work(lane: Lane) -> None:
        errors = 0
        while errors < MOST_ERRORS and not stopping.is_set() and time.monotonic() < end:
            with changing:
                kind = min(kinds, key=lambda name: begun[name])
                if not endless and begun[kind] >= given.trials:
                    return
                begun[kind] += 1
            try:
                line = kinds[kind](lane)
            except Exception as error:  # one trial must not end a night
                line = {"at": time.time(), "error": f"{type(error).__name__}: {error}"}
            if stopping.is_set():
                return
            failed = "error" in line
            errors = errors + 1 if failed else 0
            with changing:
                begun[kind] -= 1 if failed else 0
                add(given.record, {"part": part, "kind": kind, "lane": lane.number, **line})
            print(f"{part}, {kind}, lane {lane.number}: {in_words(line)}", file=sys.stderr, flush=True)

    keys = (given.sysctl or NULL_SYSCTLS)[: lanes or given.lanes]
    with lanes_of(folder, keys) as found:
        threads = [threading.Thread(target=lane_of_work, args=(lane,)) for lane in found]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                time.sleep(0.5)
        finally:
            if any(thread.is_alive() for thread in threads):
                stopping.set()
                for trial in list(Trial.alive):
                    trial.interrupt()
            for thread in threads:
                thread.join()


def in_words(line: Line) -> str:
    """Describe a line of the record."""
    if "error" in line:
        return f"failed: {line['error']}"
    parts = [str(line[key]) for key in ("conclusion", "false") if key in line]
    if "blocks" in line:
        parts.append(f"{line['blocks']} pairs in {line['seconds']:.0f} s, p {line['p_anytime']:.3f}")
    if line.get("guard"):
        parts.append("stopped by a guard")
    if "reverted_s" in line:
        parts.append(f"reverted after {line['reverted_s']:.2f} s")
    return ", ".join(parts)


# the record


def add(record: Path, line: Line) -> None:
    """Append a line to the record."""
    with record.open("a") as file:
        file.write(json.dumps(line) + "\n")


def lines_of(record: Path) -> Iterator[Line]:
    """Yield the lines of the record, except one that was cut off at the end."""
    if not record.exists():
        return
    for text in record.read_text().splitlines():
        with suppress(ValueError):
            yield json.loads(text)


def done(record: Path, part: str) -> Counter[str]:
    """Count the trials of a part that did not fail, by kind."""
    return Counter(one["kind"] for one in lines_of(record) if one["part"] == part and "error" not in one)


def summary(lines: Sequence[Line]) -> str:
    """Return the results as Markdown."""
    sound = [one for one in lines if "error" not in one]
    of_part = {part: [one for one in sound if one["part"] == part] for part in PARTS}
    tables = [
        *(_aa_table(of_part["aa"]) if of_part["aa"] else ()),
        *(_planted_table(of_part["planted"]) if of_part["planted"] else ()),
        *(_reverts_table(of_part["reverts"]) if of_part["reverts"] else ()),
        *(_cost_table(of_part["cost"]) if of_part["cost"] else ()),
    ]
    trials = [one for one in sound if "machine" in one]
    if not trials:
        return "no trial yet"
    machines = sorted(
        {f"Linux {one['machine']['kernel']}, {one['machine']['processors']} processors" for one in trials}
    )
    loads = [load for one in trials for load in one["load"]]
    days = sorted({time.strftime("%Y-%m-%d", time.gmtime(one["at"])) for one in trials})
    foot = (
        f"<sub>{' and '.join(machines)}; {days[0]}{f' to {days[-1]}' if len(days) > 1 else ''}; load average "
        f"{min(loads):.1f} to {max(loads):.1f} (median {statistics.median(loads):.1f}); "
        f"{len(lines) - len(sound)} trials failed</sub>"
    )
    return "\n".join([*tables, foot])


def _aa_table(lines: Sequence[Line]) -> Iterator[str]:
    pairs = sum(one["blocks"] for one in lines)
    hours = sum(one["seconds"] for one in lines) / 3600.0
    spans = [(one["at"], one["at"] + one["wall_s"]) for one in lines]
    yield (
        f"**No effect**: {len(lines)} trials, {pairs} pairs of windows of {lines[0]['window_s']:g} s after a washout of "
        f"{lines[0]['washout_s']:g} s, {hours:.1f} hours of trials in {_covered(spans) / 3600.0:.1f} hours; "
        "a look after every pair."
    )
    yield from ("", "| false alarms | trials | rate [95 %] | level |", "| --- | --- | --- | --- |")
    judged = [one["p_anytime"] <= one["family_alpha"] for one in lines]
    level = f"{lines[0]['family_alpha']:g}"
    yield f"| judged metric: mean | {sum(judged)} of {len(lines)} | {rate(sum(judged), len(lines))} | {level} |"
    for name in sorted({name for one in lines for name in one["explored"]}):
        found = [one["explored"][name] for one in lines if name in one["explored"]]
        hits = sum(p <= alpha for p, alpha in found)
        yield f"| explored metric: {name} | {hits} of {len(found)} | {rate(hits, len(found))} | {found[0][1]:g} |"
    stopped_by = sum(one["guard"] is not None for one in lines)
    yield f"| guards: mean or p99 {AA_GUARD} | {stopped_by} of {len(lines)} | {rate(stopped_by, len(lines))} | {level} |"
    void = sum(one["void"] for one in lines)
    yield from ("", f"Void pairs: {void} of {pairs + void}.", "")


def _covered(spans: Sequence[tuple[float, float]]) -> float:
    """Return the length of the union of intervals."""
    total, last = 0.0, -float("inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, last))
        last = max(last, end)
    return total


def _planted_table(lines: Sequence[Line]) -> Iterator[str]:
    truths = [one["truth"] for one in lines if one["kind"] == "truth"]
    trials = [one for one in lines if one["kind"] != "truth"]
    yield (
        "**Planted**: each trial stops when it is decided (margin 5 %; at most 60 pairs of 3 s, or 40 of 5 s with read-ahead "
        "0). *Found*: slower, or probably slower. *Inside*: equivalent."
    )
    yield from (
        "",
        "| requests take | true ratio | found | inside | undecided | covered | estimate | pairs | seconds |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    )
    for kind in dict.fromkeys(one["kind"] for one in trials):
        own = [one for one in trials if one["kind"] == kind]
        true = truths if kind == "read-ahead 0" else [one["truth"] for one in own]
        if not true:
            continue
        covered = sum(
            (one["low"] or 0.0)
            <= one.get("truth", statistics.fmean(true))
            <= (float("inf") if one["high"] is None else one["high"])
            for one in own
        )
        conclusions = [one["conclusion"] for one in own]
        found = sum(one in FOUND for one in conclusions)
        inside = sum(one.startswith("equivalent") for one in conclusions)
        yield (
            f"| {kind} | {_span(true, 3)} | {found} of {len(own)} | {inside} | {conclusions.count('undecided')} | "
            f"{covered} of {len(own)} | {_spread([one['ratio'] for one in own], 3)} | "
            f"{_spread([one['blocks'] for one in own], 0)} | {_spread([one['seconds'] for one in own], 0)} |"
        )
    yield ""


def _reverts_table(lines: Sequence[Line]) -> Iterator[str]:
    yield (
        f"**From harm to revert**: requests take {HARM_TIMES:g} times as long. Windows of {LONG[0]:g} s after {LONG[1]:g} s, "
        "for the guard on windows 3 s after 0.5 s; median (range)."
    )
    yield from ("", "| what | trials | seconds | pairs |", "| --- | --- | --- | --- |")
    for kind in dict.fromkeys(one["kind"] for one in lines):
        own = [one for one in lines if one["kind"] == kind]
        times = [one["reverted_s"] for one in own if "reverted_s" in one]
        wrong = [one["false"] for one in own if "false" in one]
        pairs = [one["blocks"] for one in own if "blocks" in one and "reverted_s" in one]
        note = "".join(f"; {wrong.count(text)} {text}" for text in sorted(set(wrong)))
        shown = _spread(pairs, 0) if kind == "guard on windows" else "–"
        yield f"| {kind} | {len(own)}{note} | {_spread(times, 1)} | {shown} |"
    yield ""


def _cost_table(lines: Sequence[Line]) -> Iterator[str]:
    yield (
        "**Processor time** of iotrial and all that it starts, with three queries to Prometheus and `psi:io`; median (range)."
    )
    yield from (
        "",
        "| windows | trials | minutes of a trial | % of one processor in windows | seconds for start and end |",
        "| --- | --- | --- | --- | --- |",
    )
    for kind in dict.fromkeys(one["kind"] for one in lines):
        own = [one for one in lines if one["kind"] == kind and "steady_cpu_s" in one]
        steady = [one["steady_cpu_s"] / one["steady_wall_s"] for one in own]
        rest = [one["cpu_s"] - share * one["wall_s"] for one, share in zip(own, steady, strict=True)]
        yield (
            f"| {kind} | {len(own)} | {_spread([one['wall_s'] / 60.0 for one in own], 1)} | "
            f"{_spread([100.0 * share for share in steady], 2)} | {_spread(rest, 1)} |"
        )
    yield ""


def _spread(values: Sequence[float], digits: int) -> str:
    if not values:
        return "–"
    middle, low, high = statistics.median(values), min(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def _span(values: Sequence[float], digits: int) -> str:
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"


if __name__ == "__main__":
    main()
