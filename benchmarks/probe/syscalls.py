"""Slowdown of a command while its system calls are counted: iotrial compared with strace, perf trace and bpftrace.

``grep -r`` over 10,000 warm files of 64 bytes makes about 50,000 calls and does little else, so this is close to the
worst case. All ways run in every round, in random order; each is compared with the bare run of its round. A tool that
is not installed is left out and reported (``--install``: by apt-get). Needs root; takes a minute or two.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from comparison import machine, options, parsed_arguments, tell
from iotrial.errors import TargetError
from iotrial.probe.client import Probe

MARK = "syscalls"
FILES = 10_000
#: as in bpftrace's own documentation: counts and total times; and everything that iotrial reports
BPFTRACE = {
    "counts and total time": """
tracepoint:raw_syscalls:sys_enter /comm == "grep"/ { @began[tid] = nsecs; }
tracepoint:raw_syscalls:sys_exit /@began[tid]/ {
  @count[args->id] = count(); @total[args->id] = sum(nsecs - @began[tid]); delete(@began[tid]);
}
""",
    "counts, errors, total time, histograms": """
tracepoint:raw_syscalls:sys_enter /comm == "grep"/ { @began[tid] = nsecs; }
tracepoint:raw_syscalls:sys_exit /@began[tid]/ {
  @count[args->id] = count(); @total[args->id] = sum(nsecs - @began[tid]);
  @times[args->id] = hist(nsecs - @began[tid]); if (args->ret < 0) { @errors[args->id] = count(); }
  delete(@began[tid]);
}
""",
}
MOUNTED = '[ -d /sys/kernel/tracing/events ] || mount -t tracefs tracefs /sys/kernel/tracing; exec "$@"'
PACKAGES = {"strace": "strace", "perf": "linux-perf", "bpftrace": "bpftrace"}

Run = Callable[[], dict[str, Any]]


class Ways:
    """The command, bare and under every installed tool."""

    def __init__(self, probe: Probe, folder: str) -> None:
        self._probe = probe
        self._argv = ["grep", "-r", "linux", folder]
        self._trace = Path(f"{folder}-trace")

    def all(self) -> dict[str, Run]:
        """Return the ways by name, the bare one first."""
        ways: dict[str, Run] = {
            "bare": lambda: self._run(self._argv),
            "iotrial: counts, errors, total time, histograms": lambda: self._run(self._argv, account=True),
        }
        if shutil.which("bpftrace"):
            for what, script in BPFTRACE.items():
                ways[f"bpftrace: {what}"] = lambda script=script: self._under_bpftrace(script)
        if shutil.which("perf"):
            ways["perf trace -s"] = lambda: self._under("perf", "trace", "-s")
        if shutil.which("strace"):
            ways["strace -c -f"] = lambda: self._under("strace", "-c", "-f")
        return ways

    def _run(self, argv: list[str], **more: object) -> dict[str, Any]:
        steps = [{"name": "it", "argv": argv}]
        return self._probe.call("command", steps=steps, expect_exit=1, timeout_s=60, **more)

    def _under(self, *tracer: str) -> dict[str, Any]:
        answer = self._run([*tracer, "-o", str(self._trace), *self._argv])
        if not self._trace.exists() or not self._trace.read_text().strip():
            raise TargetError(f"{tracer[0]} has counted nothing")
        self._trace.unlink()
        return answer

    def _under_bpftrace(self, script: str) -> dict[str, Any]:
        # in a mount namespace of its own, like the probe: tracers mount tracefs if it is not mounted, and
        # leave it there
        with subprocess.Popen(
            ["unshare", "-m", "sh", "-c", MOUNTED, "sh", "bpftrace", "-e", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as tracer:
            assert tracer.stdout is not None
            try:
                for line in tracer.stdout:
                    if "Attaching" in line:
                        break
                else:
                    raise TargetError("bpftrace has attached nothing")
                # it prints this before attaching, and nothing afterwards
                subprocess.run(["sleep", "2"], check=True)
                return self._run(self._argv)
            finally:
                tracer.send_signal(2)
                tracer.communicate()


def measure(ways: dict[str, Run], rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Return wall and CPU seconds of every way in every round."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    order = list(ways)
    for _ in range(rounds):
        random.shuffle(order)
        for name in order:
            answer = ways[name]()
            found[name].append((answer["wall_ns"] / 1e9, answer["cpu_ns"] / 1e9))
    return found


def rows(found: dict[str, list[tuple[float, float]]]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| way | wall, median | times the bare command, median [quartiles] | CPU time likewise |"
    yield "| --- | --- | --- | --- |"
    bare = found["bare"]
    for name, runs in found.items():
        cells = []
        for which in (0, 1):
            ratios = [run[which] / base[which] for run, base in zip(runs, bare, strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
            cells.append("1" if name == "bare" else f"{middle:.2f} [{low:.2f}, {high:.2f}]")
        wall = statistics.median(run[0] for run in runs)
        yield f"| {name} | {wall * 1e3:.1f} ms | {cells[0]} | {cells[1]} |"


def calls(probe: Probe, argv: list[str]) -> int:
    """Return the number of system calls that the command makes."""
    steps = [{"name": "it", "argv": argv}]
    account = probe.call("command", steps=steps, expect_exit=1, account=True)["account"]
    return sum(call["count"] for call in account["calls"].values())


def main() -> None:
    """Measure, print, and write into a document if requested."""
    parser = options(__doc__, MARK, rounds=(40, 4, "how often each way has its turn"))
    parser.add_argument("--install", action="store_true", help="install what is missing, by apt-get")
    arguments = parsed_arguments(parser)
    if os.geteuid() != 0:
        parser.error("wanted root, which counting the calls of others needs; run it by sudo")
    if arguments.install:
        missing = [package for tool, package in PACKAGES.items() if not shutil.which(tool)]
        if missing:
            subprocess.run(["apt-get", "install", "-y", "-qq", *missing], check=False, stdout=sys.stderr)
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp") as folder,
        contextlib.closing(Probe(isolate=True)) as probe,
    ):
        tree = f"{folder}/s"
        probe.call("fileset", set="s", dir=tree, count=FILES, size=64, seed=1, content="text", directories=10)
        ways = Ways(probe, tree).all()
        for name, run in list(ways.items()):  # warm-up run, so that everything is loaded
            try:
                run()
            except TargetError as error:
                print(f"{name}: left out: {error.message}", file=sys.stderr)
                del ways[name]
        number = calls(probe, ["grep", "-r", "linux", tree])
        table = list(rows(measure(ways, arguments.rounds)))
    absent = [tool for tool in PACKAGES if not shutil.which(tool)]
    text = "\n".join(
        [
            f"{machine()}; {number:,} calls, {arguments.rounds} rounds"
            + (f"; not installed here: {', '.join(absent)}" if absent else "")
            + ".\n",
            *table,
        ]
    )
    tell(text, MARK, arguments.write)


if __name__ == "__main__":
    main()
