"""Plan and run public fio job files: what iotrial accepts must run.

    python benchmarks/fio_jobs.py FOLDER OUT.csv [--with "flock FILE"] [--only TEXT]

FOLDER holds job files in folders named after their source (OWNER+NAME). Each is planned as it is, then made small (sizes,
run times, clones) and run for one block in an image lab, as root. The table has a line for each file.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

from iotrial.workloads.fio_job import (
    Job,
    JobProblem,
    bytes_in,
    entries_of,
    included,
    jobs_of,
    least_seconds,
    mapped,
    options_of,
)

LAB = "512 MiB"
STUDY = """
[study]
name = "public-job"
question = "Does it run?"
account = false
[lab]
size = "{lab}"
[budget]
blocks = 1
[[factor]]
name = "read-ahead"
knob = "block.read_ahead_kb"
levels = [128, 256]
[[workload]]
name = "job"
kind = "fio"
timeout = "{timeout}"
file = "job.fio"
pick = [{pick}]
"""
#: the largest value of an option, in its unit without a suffix, and what a larger one becomes
SMALL = {
    **dict.fromkeys(("size", "filesize", "file_size", "io_size", "io_limit"), (16 << 20, "16m")),
    **dict.fromkeys(("offset", "offset_increment"), (0, "0")),
    **dict.fromkeys(("runtime", "timeout"), (2, "2")),
    **dict.fromkeys(("ramp_time", "startdelay", "ss_ramp", "steadystate_ramp_time"), (0, "0")),
    **dict.fromkeys(("ss_dur", "steadystate_duration"), (1, "1")),
    "numjobs": (4, "4"),
    "nrfiles": (64, "64"),
    "loops": (1, "1"),
    "thinktime": (1000, "1000"),
}
TIMES = ("runtime", "timeout", "ramp_time", "startdelay", "ss_ramp", "ss_dur", "steadystate_duration")


def small(text: str) -> str:
    """Return the job file with less work: smaller files, and two seconds for jobs that a rate makes long."""
    lines = text.splitlines()
    for option in options_of(text):
        most, least = SMALL.get(option.name, (None, ""))
        value = re.split(r"\s[;#]", option.value)[0].strip()  # without a comment
        amount = bytes_in(value)
        timed = option.name in TIMES and value[-1:] in tuple("smhd")
        if most is not None and (timed or (amount is not None and amount > most)):
            lines[option.line - 1] = f"{option.name}={least}"
    text = "\n".join(lines) + "\n"
    slow = any(least_seconds(job) > 2 for job in jobs_of(text))
    return ("[global]\nruntime=2\n" if slow else "") + text


def pick_of(jobs: tuple[Job, ...]) -> str:
    """Return a number of the first job that it has."""
    job = next((entry[0] for entry in entries_of(jobs)), jobs[0])
    way = next((way for way in ("read", "write", "trim") if way in job.ways), "read")
    path = f"jobs.{job.name}.{way}.io_bytes"
    if job.options.get("unified_rw_reporting", "0") not in ("0", "none", "both", "2"):
        path = f"jobs.{job.name}.mixed.io_bytes"
    if job.options.get("ioengine") == "cpuio":
        path = f"jobs.{job.name}.usr_cpu"
    table = {"path": path, "name": "picked", "unit": "1", "scale": "difference", "better": "none"}
    return "{ " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in table.items()) + " }"


def iotrial(folder: Path, *words: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    return subprocess.run(
        [*before, sys.executable, "-m", "iotrial", *words],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=900,
    )


def reason(done: subprocess.CompletedProcess[str]) -> str:
    if done.stderr.startswith('{"error"'):
        return str(json.loads(done.stderr)["error"]["message"])[:160]
    lines = [line for line in done.stderr.splitlines() if line.startswith("iotrial:")]
    text = " ".join(lines or done.stderr.strip().splitlines()[-1:])
    return re.sub(r"iotrial: |\S*/job\.toml:[0-9]+: |study public-job: |workload job: ", "", text)[:160]


def tried(folder: Path, path: Path, before: tuple[str, ...], *, plans: bool, runs: bool) -> tuple[str, str]:
    """Return the outcome of one job file: of its plan as it is, and of the small one's run."""
    text = path.read_text(errors="replace")
    try:
        text = included(text, lambda name: (path.parent / name).read_text(), "")
        jobs = jobs_of(mapped(text)[0])
        names = [entry[0].name for entry in entries_of(jobs)]
        if names.count(names[0]) > 1:  # clones: no number of them is one number
            text = f"[global]\ngroup_reporting\n{text}"
            jobs = jobs_of(mapped(text)[0])
    except (JobProblem, OSError) as problem:
        return f"refused: the job file {problem}"[:160], ""
    study = folder / "job.toml"
    study.write_text(STUDY.format(lab=LAB, pick=pick_of(jobs), timeout="24 h"))
    (folder / "job.fio").write_text(text)
    planned = ""
    if plans:
        plan = iotrial(folder, "plan", str(study), "--trust", "--lab", "image")
        planned = "accepted" if plan.returncode == 0 else f"refused: {reason(plan)}"
    if not runs or (planned.startswith("refused") and "lay out files" not in planned):
        return planned, ""
    (folder / "job.fio").write_text(small(text))
    study.write_text(STUDY.format(lab=LAB, pick=pick_of(jobs), timeout="20 s"))
    words = ("--trust", "--lab", "image", "--no-controls", "--no-stop", "--json")
    done = iotrial(folder, "run", str(study), *words, before=before)
    if "lay out files" in done.stderr:
        (folder / "job.fio").write_text(
            small(text).replace("size=16m", "size=2m").replace("size=32m", "size=2m")
        )
        done = iotrial(folder, "run", str(study), *words, before=before)
    failures: list[str] = []
    if (store := folder / "state" / "iotrial" / "trials.db").exists():
        connection = sqlite3.connect(store)
        rows = connection.execute("SELECT failure, checks FROM run").fetchall()
        failures = [failure for failure, _ in rows if failure]
        failures += [
            f"void: {json.loads(checks)['void']}" for _, checks in rows if "void" in json.loads(checks)
        ]
        connection.close()
        store.unlink()
    if done.returncode in (0, 6) and not failures:
        return planned, "ran"
    why = " ".join((failures[0] if failures else reason(done)).split())[:160]
    return planned, f"{'failed' if failures else 'refused'}: {why}; fio alone: {alone(folder)}"


def alone(folder: Path) -> str:
    """Return how fio ends on the same job in a folder of the root's file system."""
    (folder / "alone").mkdir()
    job = f"[global]\ndirectory=.\n{mapped((folder / 'job.fio').read_text())[0]}"
    try:
        done = subprocess.run(
            ["fio", "-"],
            input=job,
            capture_output=True,
            text=True,
            check=False,
            cwd=folder / "alone",
            timeout=25,
        )
    except subprocess.TimeoutExpired:
        return "does not end in 25 s"
    return f"status {done.returncode}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--with", dest="before", default="")
    parser.add_argument("--only", default="")
    parser.add_argument("--plan", action="store_true", help="only plan")
    parser.add_argument("--run", action="store_true", help="only run")
    given = parser.parse_args()
    with given.out.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("source", "file", "plan", "run"))
        for path in sorted(given.folder.rglob("*.fio")):
            source, name = (
                path.relative_to(given.folder).parts[0],
                "/".join(path.relative_to(given.folder).parts[1:]),
            )
            if given.only not in str(path):
                continue
            with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
                row = (
                    source.replace("+", "/"),
                    name,
                    *tried(
                        Path(folder),
                        path,
                        tuple(shlex.split(given.before)),
                        plans=not given.run,
                        runs=not given.plan,
                    ),
                )
            table.writerow(row)
            file.flush()
            print(*row, sep=" | ", flush=True)


if __name__ == "__main__":
    main()
