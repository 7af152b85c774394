"""How often is a CI job red although nothing changed, and how often does it find a slowdown of 5 %?

    python benchmarks/ci_gate.py                              # 1,000 A/A jobs and 100 with a slowdown: an hour and more
    python benchmarks/ci_gate.py --same 2 --slower 2          # only try whether it runs
    python benchmarks/ci_gate.py --table --write BENCHMARKS.md

Each job is a run of `iotrial ci` of a suite of five short benchmarks (ci_gate/suite.rs) against itself, or against itself
with 5 % more work in one benchmark, in a drawn order. Eight jobs run at a time (as root), so each is the noisy neighbour of
others. The usual gates judge the same runs: the first ten of each build, which are interleaved; and, as they are used, ten
runs of base followed by ten of head, made right after the job. A gate is red if any of the five benchmarks is.

The record (ci_gate/record.jsonl) is continued where it ends.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import multiprocessing
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "truth"))
import iotrial
import iotrial.cli.verbs.ci  # what each job needs is imported once
import iotrial.library.opening
from iotrial.cli import main as main_program
from iotrial.stats.proportion import Proportion
from iotrial.stats.student import two_sided
from marked import put

HERE = Path(__file__).parent / "ci_gate"
SUITE, RECORD = HERE / "suite.rs", HERE / "record.jsonl"
PLANTED, BENCHMARK = 1.05, "xorshift"
#: runs of each build that the usual gates see
RUNS = 10
THRESHOLD, LEVEL = 1.05, 0.05
CLONE_NEWNS = 0x20000
#: as root; another user has one machine lock
AT_ONCE = 8 if os.geteuid() == 0 else 1

Times = Mapping[str, Sequence[float]]


def main() -> None:
    """Run the jobs that the record lacks, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--same", type=int, default=1000, help="jobs without a difference")
    parser.add_argument("--slower", type=int, default=100, help="jobs with 5 %% more work in one benchmark")
    parser.add_argument("--time", default="180s", help="time budget of a job")
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--table", action="store_true", help="only print the table of the record")
    parser.add_argument("--write", type=Path, help="file with the marks <!-- ci --> and <!-- end -->")
    given = parser.parse_args()
    for name in ("IOTRIAL_STORE", "GITHUB_STEP_SUMMARY"):
        os.environ.pop(name, None)
    if not given.table:
        run_jobs(given.same, given.slower, given.time, given.record)
    text = table([json.loads(line) for line in given.record.read_text().splitlines()])
    print(text)
    if given.write:
        put(given.write, "ci", text)


def run_jobs(same: int, slower: int, budget: str, record: Path) -> None:
    """Run what is missing, in a drawn order."""
    done = (
        [json.loads(line)["planted"] for line in record.read_text().splitlines()] if record.exists() else []
    )
    jobs = [False] * (same - done.count(False)) + [True] * (slower - done.count(True))
    random.shuffle(jobs)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        suite = Path(name) / "suite"
        subprocess.run(["rustc", "-O", "-o", str(suite), str(SUITE)], check=True)
        # each job is a new process, forked from this one, which has everything imported: that saves half of its time
        with multiprocessing.get_context("fork").Pool(AT_ONCE, maxtasksperchild=1) as pool:
            for found in pool.imap_unordered(partial(job, suite, budget), jobs, chunksize=1):
                with record.open("a") as file:
                    file.write(json.dumps(found) + "\n")


def job(suite: Path, budget: str, planted: bool) -> Mapping[str, object]:
    """Run one job and the usual gates; return what each said."""
    # words of one length: the layout of the stack depends on them
    factors = {"base": "1.00", "head": f"{PLANTED:.2f}" if planted else "1.00"}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=suite.parent) as name:
        state = Path(name)
        argv = ["iotrial", "ci", "--json", "--time", budget]
        argv += [word for label, factor in factors.items() for word in (f"--{label}", f"{suite} {factor}")]
        began = time.monotonic()
        status, text = run(argv, state)
        seconds = time.monotonic() - began
        if not text:
            return {"planted": planted, "status": status}
        answer = json.loads(text)["ci"]
        first = first_runs(state)
    after = {label: one_after_another(suite, factor) for label, factor in factors.items()}
    return {
        "planted": planted,
        "status": status,
        "answers": {one["name"]: one["answer"] for one in answer["benchmarks"]},
        "ratio": {one["name"]: round(one["ratio"], 5) for one in answer["benchmarks"] if one["ratio"]},
        "blocks": max(one["blocks"] for one in answer["benchmarks"]),
        "seconds": round(seconds, 2),
        "load": load,
        "interleaved": gates(first["base"], first["head"]),
        "one_after_another": gates(after["base"], after["head"]),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def run(argv: Sequence[str], state: Path) -> tuple[int, str]:
    """Run the program in this process, with the trials below ``state``; return its exit status and what it printed."""
    if os.geteuid() == 0:
        # a /run of its own, since a machine has one trial at a time
        assert ctypes.CDLL(None).unshare(CLONE_NEWNS) == 0
        subprocess.run(
            "mount --make-rprivate / && mount -t tmpfs run /run && mkdir /run/lock", shell=True, check=True
        )
    os.environ["XDG_STATE_HOME"] = str(state)
    os.chdir(state)
    sys.argv = list(argv)
    printed = state / "printed"
    kept = os.dup(1), os.dup(2)
    with printed.open("w") as out, Path(os.devnull).open("w") as nowhere:
        os.dup2(out.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
        try:
            main_program()
            status = 0
        except SystemExit as ended:
            status = int(ended.code or 0)
        finally:
            sys.stdout.flush()
            for number, file in enumerate(kept, 1):
                os.dup2(file, number)
    return status, printed.read_text()


def first_runs(state: Path) -> Mapping[str, Times]:
    """Return the times of the first runs of each build in the stored trial, by benchmark."""
    (store,) = state.rglob("trials.db")
    runs = [
        run for run in iotrial.trial("last", store).runs if run.kind == "treatment" and run.failure is None
    ]
    return {
        label: {name: [run.responses[name] for run in own] for name in own[0].responses if name in names()}
        for label in ("base", "head")
        if (own := [run for run in runs if run.treatment["build"] == label][:RUNS])
    }


def names() -> frozenset[str]:
    """The names of the benchmarks in the suite."""
    return frozenset(("lcg", "xorshift", "table", "float", "rotate"))


def one_after_another(suite: Path, factor: str) -> Times:
    """Return the times of runs without a pause, by benchmark: the median of its repeats, as `iotrial ci` takes it."""
    found: dict[str, list[float]] = {}
    for _ in range(RUNS):
        done = subprocess.run([str(suite), factor], capture_output=True, text=True, check=True)
        times: dict[str, list[float]] = {}
        for row in json.loads(done.stdout)["benchmarks"]:
            times.setdefault(row["name"], []).append(row["real_time"])
        for name, own in times.items():
            found.setdefault(name, []).append(statistics.median(own))
    return found


def gates(base: Times, head: Times) -> Mapping[str, Sequence[str]]:
    """Return the benchmarks that each usual gate calls slower."""
    rules: Mapping[str, Callable[[Sequence[float], Sequence[float]], bool]] = {
        "mean": lambda a, b: statistics.fmean(b) > THRESHOLD * statistics.fmean(a),
        "best": lambda a, b: min(b) > THRESHOLD * min(a),
        "welch": lambda a, b: statistics.fmean(b) > statistics.fmean(a) and welch(a, b) < LEVEL,
    }
    return {rule: [name for name in base if slower(base[name], head[name])] for rule, slower in rules.items()}


def welch(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the p value of Welch's test."""
    u, v = statistics.variance(a) / len(a), statistics.variance(b) / len(b)
    t = (statistics.fmean(a) - statistics.fmean(b)) / math.sqrt(u + v)
    return two_sided(abs(t), (u + v) ** 2 / (u**2 / (len(a) - 1) + v**2 / (len(b) - 1)))


_RULES = {
    "mean": f"mean of {RUNS} runs more than 5 % larger",
    "best": f"best of {RUNS} runs more than 5 % larger",
    "welch": f"Welch's test on {RUNS} runs, .05",
}


def table(records: Sequence[Mapping[str, object]]) -> str:
    """Return the shares as Markdown."""
    same = [one for one in records if not one["planted"] and "answers" in one]
    planted = [one for one in records if one["planted"] and "answers" in one]
    broken = [one for one in records if "answers" not in one]
    loads = sorted(one["load"] for one in (*same, *planted))
    lines = [
        f"{len(same):,} A/A jobs and {len(planted)} with 5 % more work in one of five benchmarks; {len(broken)} jobs ended "
        f"otherwise. Load average at the start of a job: median {statistics.median(loads):.1f}, "
        f"{loads[len(loads) // 10]:.1f} to {loads[-1 - len(loads) // 10]:.1f} in eight of ten. {machine()}.",
        "",
        "| gate | red although nothing changed | finds the slowdown | names another benchmark as slower |",
        "| --- | --- | --- | --- |",
    ]

    def row(title: str, red: Callable[[Mapping[str, object]], Sequence[str]]) -> str:
        false = share(sum(bool(red(one)) for one in same), len(same))
        found = share(sum(BENCHMARK in red(one) for one in planted), len(planted))
        wrong = share(sum(bool(set(red(one)) - {BENCHMARK}) for one in planted), len(planted))
        return f"| {title} | {false} | {found} | {wrong} |"

    lines.append(row("`iotrial ci`", slower_of))
    for way, words in (
        ("interleaved", "the same runs, interleaved"),
        ("one_after_another", "all of base, then all of head"),
    ):
        lines += [
            row(f"{text}; {words}", lambda one, w=way, r=rule: one[w][r]) for rule, text in _RULES.items()
        ]
    lines += ["", f"`iotrial ci` by exit status: {statuses(same)} (A/A); {statuses(planted)} (slowdown)."]
    for title, own in (("A/A", same), ("slowdown", planted)):
        seconds, blocks = (sorted(one[key] for one in own) for key in ("seconds", "blocks"))
        lines.append(
            f"{title}: {statistics.median(seconds):.1f} s a job without the program's start (nine in ten within "
            f"{seconds[len(seconds) * 9 // 10]:.1f} s), {statistics.median(blocks):.0f} blocks."
        )
    return "\n".join(lines)


def slower_of(one: Mapping[str, object]) -> Sequence[str]:
    """The benchmarks that `iotrial ci` calls slower."""
    return [name for name, answer in one["answers"].items() if answer == "slower"]


def statuses(own: Sequence[Mapping[str, object]]) -> str:
    """Count the exit statuses."""
    words = {0: "green", 4: "red", 6: "no answer", 3: "invalid"}
    found = [one["status"] for one in own]
    return ", ".join(
        f"{found.count(status)} {words.get(status, f'status {status}')} ({status})"
        for status in sorted(set(found))
    )


def share(part: int, whole: int) -> str:
    """Return a share with its 95 % bounds."""
    low, high = Proportion(part, whole).interval
    return f"{part} of {whole:,} [{low:.2%}, {high:.2%}]"


def machine() -> str:
    """Return machine and versions."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        "a processor",
    )
    rust = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True).stdout.split()[
        1
    ]
    return (
        f"{os.cpu_count()} x {model}, shared, Linux {platform.release()}, Python {platform.python_version()}, rustc {rust}, "
        f"iotrial {iotrial.__version__}, {datetime.now(UTC).date()}"
    )


if __name__ == "__main__":
    main()
