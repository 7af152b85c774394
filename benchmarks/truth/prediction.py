"""Time to a verdict: predicted by ``iotrial plan --pilot``, and actually taken by the trial.

    prediction.py run RECORD [--trials N] [--pilot 10s] [--time 300s] [--load L] [--wider K]
                             [--study NAME]...
    prediction.py summary RECORD [--write BENCHMARKS.md]

Small studies of factors that make no difference (permission bits; in the screen also variables that nothing reads),
because the prediction is for that case: files and commands, in the directory lab and in the image lab (root), with one
or two conditions and two or three levels. Each trial is a pilot followed by the trial itself, with separate seeds, in
a temporary state folder. One line of JSON is appended to RECORD for each, whatever the outcome; a second ``run``
continues where the record ends. It waits while another trial runs on the machine and, with ``--load``, while the
one-minute load average is above L.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from exact import rate
from iotrial.lab.lock import is_held
from iotrial.units import parse_duration
from marked import put

ROOT = Path(__file__).resolve().parents[2]
HEAD = """
[study]
account = false
name = "{name}"
question = "Is there a difference?"
margin = "{margin}"
[lab]
kind = "{lab}"
size = "64 MiB"
[[factor]]
name = "mode"
knob = "file.mode"
levels = {levels}
[[workload]]
name = "work"
size = "16 KiB"
"""
FILES = 'kind = "files"\nfiles = 50\noperations = ["open", "read-to-end", "close"]\n'
WRITE = 'kind = "files"\nfiles = 50\noperations = ["open-write", "write-all", "close"]\n'
COMMAND = 'kind = "command"\nfiles = 2\nargv = ["cat", "{file}"]\n'
WARM, COLD = 'cache = "warm"\n', 'cache = "cold"\n'
BOTH = '[[factor]]\nname = "cache"\nknob = "cache.state"\nlevels = ["cold", "warm"]\nrole = "condition"\n'
SCREEN = '[design]\nkind = "plackett-burman"\n' + "".join(
    f'[[factor]]\nname = "v{n}"\nknob = "environment.variable"\nvariable = "V{n}"\nlevels = ["off", "on"]\n'
    for n in range(1, 6)
)
THREE = "# of three levels\n"
#: name: lab, margin in per cent, workload and other tables
STUDIES = {
    "directory-files-warm": ("directory", 3, FILES + WARM),
    "directory-files-cold": ("directory", 5, FILES + COLD),
    "directory-command-warm": ("directory", 5, COMMAND + WARM),
    "directory-write-warm": ("directory", 5, WRITE + WARM),
    "directory-three-levels": ("directory", 5, FILES + WARM + THREE),
    "directory-two-conditions": ("directory", 5, FILES + BOTH),
    "directory-screen-of-six": ("directory", 10, COMMAND + WARM + SCREEN),
    "image-files-cold": ("image", 5, FILES + COLD),
    "image-files-warm": ("image", 3, FILES + WARM),
    "image-command-warm": ("image", 5, COMMAND + WARM),
}
BUSY = "another iotrial is at work"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run")
    run.add_argument("record", type=Path)
    run.add_argument("--trials", type=int, default=12, help="of each study, those in the record counted")
    run.add_argument("--pilot", default="10s")
    run.add_argument("--time", default="300s", help="budget of each trial")
    run.add_argument(
        "--load", type=float, default=math.inf, help="begin no pair while the load is above this"
    )
    run.add_argument(
        "--wider",
        type=float,
        default=1.0,
        help="times the margins of a quiet machine, up to 50 %% (a busy one)",
    )
    run.add_argument(
        "--study", action="append", choices=list(STUDIES), help="default: all that this user can run"
    )
    shown = verbs.add_parser("summary")
    shown.add_argument("record", type=Path)
    shown.add_argument("--write", type=Path, help="a document with a place marked for it")
    given = parser.parse_args()
    if given.verb == "summary":
        text = summary(list(records(given.record)))
        if given.write is None:
            print(text)
        else:
            put(given.write, "prediction", text)
        return
    conduct(given)


def conduct(given: argparse.Namespace) -> None:
    """Run the studies in turn until each has the requested number of trials in the record."""
    possible = [name for name, (lab, *_) in STUDIES.items() if lab == "directory" or os.geteuid() == 0]
    names = given.study or possible
    before = list(records(given.record)) if given.record.exists() else []
    done = {name: sum(one["study"] == name for one in before) for name in names}
    while any(count < given.trials for count in done.values()):
        name = min(done, key=lambda one: done[one])
        while os.getloadavg()[0] > given.load:
            time.sleep(5.0)
        one = trial(name, given.pilot, given.time, given.wider)
        with given.record.open("a") as file:
            file.write(json.dumps(one) + "\n")
        done[name] += 1
        print(f"{name} {done[name]}/{given.trials}: {told(one)}", file=sys.stderr)


def trial(name: str, pilot: str, budget: str, wider: float) -> dict[str, Any]:
    """Run a pilot and the trial after it; return a line of the record."""
    lab, percent, work = STUDIES[name]
    margin = f"{min(50.0, percent * wider):g} %"
    with tempfile.TemporaryDirectory(prefix="iotrial-prediction-", dir="/var/tmp") as folder:
        study = Path(folder) / "study.toml"
        levels = '["0444", "0755", "0777"]' if work.endswith(THREE) else '["0444", "0777"]'
        study.write_text(HEAD.format(name=name, margin=margin, lab=lab, levels=levels) + work)
        common = [str(study), "--time", budget, "--json"]
        begun, load = time.time(), os.getloadavg()[0]
        plan = iotrial(folder, "plan", *common, "--pilot", pilot, "--rounds", "1")
        report = iotrial(folder, "run", *common) if "error" not in plan else {}
    return {
        "schema": 2,
        "study": name,
        "at": begun,
        "load": [round(load, 2), round(os.getloadavg()[0], 2)],
        "pilot": pilot,
        "budget": budget,
        "margin": margin,
        "machine": {"node": platform.machine(), "kernel": platform.release(), "processors": os.cpu_count()},
        "version": report.get("trial", {}).get("version"),
        "predicted": plan.get("prediction"),
        "actual": actual(report, parse_duration(budget)) if "trial" in report else None,
        "error": plan.get("error") or report.get("error"),
    }


def iotrial(state: str, *words: str) -> dict[str, Any]:
    """Run the program and return its JSON, or its error. Status 3 (invalid) is an outcome, not a failure.

    Waits while another trial runs on the machine.
    """
    while True:
        while is_held():
            time.sleep(0.2)
        done = subprocess.run(
            [sys.executable, "-m", "iotrial", *words],
            env={
                **os.environ,
                "XDG_STATE_HOME": state,
                "PYTHONPATH": f"{ROOT / 'python'}:{os.environ.get('PYTHONPATH', '')}",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        if BUSY not in done.stderr:
            break
        time.sleep(random.uniform(0.0, 1.0))  # another trial was faster
    if done.returncode in (0, 3, 6):
        found: dict[str, Any] = json.loads(done.stdout)
        return found
    return {"error": f"status {done.returncode}: {done.stderr.strip()[-400:]}"}


def actual(report: dict[str, Any], budget_s: float) -> dict[str, Any]:
    """Return the trial's outcome. ``decided``: it stopped by itself, with a verdict on each of its primary effects."""
    effects = [effect for effect in report["effects"] if effect["primary"]]
    verdicts = sorted({effect["verdict"] for effect in effects})
    return {
        "state": report["trial"]["state"],
        "seconds": report["trial"]["duration_s"],
        "blocks": max(effect["blocks"] for effect in effects),
        "verdict": ", ".join(verdicts),
        "decided": (
            "inconclusive" not in verdicts
            and report["trial"]["state"] == "done"
            and report["trial"]["duration_s"] < 0.97 * budget_s
        ),
        "effects": [{key: effect[key] for key in ("ratio", "low", "high")} for effect in effects],
    }


def records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a record, except one cut off at the end."""
    for line in path.read_text().splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            print("a line that is no JSON is left out", file=sys.stderr)


def told(one: dict[str, Any]) -> str:
    """Describe one trial in words."""
    if one["actual"] is None:
        return f"failed: {one['error']}"
    likely = one["predicted"]["seconds"]["likely"]
    words = "never" if likely is None else f"{likely:.1f} s"
    return f"predicted {words}, took {one['actual']['seconds']:.1f} s, {one['actual']['verdict']}"


def summary(lines: list[dict[str, Any]]) -> str:
    """Return Markdown: predicted and actual seconds over all studies, quantiles of actual/predicted, share within the range.

    A trial that was still open at the end of its budget counts as infinitely long.
    """
    machines = sorted(
        {f"{one['machine']['processors']} processors, Linux {one['machine']['kernel']}" for one in lines}
    )
    pilots, budgets, versions = (
        sorted({str(one[key]) for one in lines if one[key]}) for key in ("pilot", "budget", "version")
    )
    loads = [load for one in lines for load in one["load"]]
    every = [pair for one in lines if (pair := _pair(one))]
    within = sum(_within(*pair) for pair in every)
    out = [
        f"{len(lines)} trials, {' and '.join(machines)}, iotrial {' and '.join(versions)}, pilots of {' and '.join(pilots)}, "
        f"budgets of {' and '.join(budgets)}, load average {min(loads):.1f} to {max(loads):.1f} (median "
        f"{quantile(loads, 0.5):.1f}); medians of seconds.",
        "",
        f"**{within} of {len(every)} trials within the range**: {rate(within, len(every), 2)}, stated 0.80. "
        f"{sum(math.isfinite(taken) for _, taken in every)} were decided; an open one counts as infinitely long (-).",
        "",
        "| study | predicted s | actual s | actual/predicted (10 to 90 %) | blocks likewise | within the range |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    if every:
        out.append(f"| all | {' | '.join(_cells(lines))} |")
    return "\n".join(out)


def _pair(one: dict[str, Any]) -> tuple[dict[str, Any], float] | None:
    """Return the prediction and the trial's seconds (infinite: open at its end).

    None if the trial failed, is invalid or has no prediction: it takes no part in the comparison.
    """
    actual = one["actual"]
    if not actual or actual["state"] != "done" or one["predicted"]["seconds"]["likely"] is None:
        return None
    return one["predicted"]["seconds"], actual["seconds"] if actual["decided"] else math.inf


def _within(predicted: dict[str, Any], taken: float) -> bool:
    high = math.inf if predicted["high"] is None else predicted["high"]
    return bool(predicted["low"] <= taken <= high)


def _cells(lines: list[dict[str, Any]]) -> list[str]:
    pairs = [pair for one in lines if (pair := _pair(one))]
    if not pairs:
        return ["-"] * 5
    ratio = [taken / predicted["likely"] for predicted, taken in pairs]
    blocks = [
        one["actual"]["blocks"] / max(c["blocks"]["likely"] for c in one["predicted"]["conditions"])
        for one in lines
        if _pair(one)
    ]
    return [
        f"{quantile([p['likely'] for p, _ in pairs], 0.5):.1f}",
        _number(quantile([taken for _, taken in pairs], 0.5), 1),
        "{1} ({0} to {2})".format(*(_number(quantile(ratio, at), 2) for at in (0.1, 0.5, 0.9))),
        _number(quantile(blocks, 0.5), 2),
        f"{sum(_within(*pair) for pair in pairs)} of {len(pairs)}",
    ]


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "-"


def quantile(values: list[float], at: float) -> float:
    """Return a quantile by linear interpolation."""
    values = sorted(values)
    place = at * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    if math.isinf(values[above]):
        return values[above] if place > below else values[below]
    return values[below] + (place - below) * (values[above] - values[below])


if __name__ == "__main__":
    main()
