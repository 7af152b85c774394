"""The time to a verdict as ``iotrial plan --pilot`` predicts it, and as the trial then takes it.

    prediction.py run RECORD [--trials N] [--pilot 10s] [--time 120s] [--study NAME]...
    prediction.py summary RECORD

Small studies of one treatment factor whose two levels make no difference (permission bits), so that the case that the
prediction is for is the case that is measured: files and commands, in the directory and in the image lab (root). Each
trial is a pilot followed by the trial itself, both with seeds of their own, in a state folder that is thrown away. One
line of JSON is appended to RECORD for each, whatever came out; a second ``run`` goes on where the record ends.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from iotrial.units import parse_duration

ROOT = Path(__file__).resolve().parents[2]
HEAD = """
[study]
name = "{name}"
question = "Is there a difference?"
margin = "{margin}"
[lab]
kind = "{lab}"
size = "64 MiB"
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0444", "0777"]
[[workload]]
name = "work"
size = "16 KiB"
cache = "{cache}"
"""
FILES = 'kind = "files"\nfiles = 50\noperations = ["open", "read-to-end", "close"]\n'
COMMAND = 'kind = "command"\nfiles = 2\nargv = ["cat", "{file}"]\n'
#: name: lab, margin, cache state, workload
STUDIES = {
    "directory-files-warm": ("directory", "3 %", "warm", FILES),
    "directory-files-cold": ("directory", "5 %", "cold", FILES),
    "directory-command-warm": ("directory", "10 %", "warm", COMMAND),
    "image-files-cold": ("image", "5 %", "cold", FILES),
    "image-command-warm": ("image", "10 %", "warm", COMMAND),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run")
    run.add_argument("record", type=Path)
    run.add_argument("--trials", type=int, default=20, help="of each study, those in the record counted")
    run.add_argument("--pilot", default="10s")
    run.add_argument("--time", default="120s", help="budget of each trial")
    run.add_argument(
        "--study", action="append", choices=list(STUDIES), help="default: all that this user can run"
    )
    summary = verbs.add_parser("summary")
    summary.add_argument("record", type=Path)
    given = parser.parse_args()
    if given.verb == "summary":
        print_summary(list(records(given.record)))
        return
    conduct(given)


def conduct(given: argparse.Namespace) -> None:
    """Take turns between the studies until each has so many trials in the record."""
    possible = [name for name, (lab, *_) in STUDIES.items() if lab == "directory" or os.geteuid() == 0]
    names = given.study or possible
    before = list(records(given.record)) if given.record.exists() else []
    done = {name: sum(one["study"] == name for one in before) for name in names}
    while any(count < given.trials for count in done.values()):
        name = min(done, key=lambda one: done[one])
        one = trial(name, given.pilot, given.time)
        with given.record.open("a") as file:
            file.write(json.dumps(one) + "\n")
        done[name] += 1
        print(f"{name} {done[name]}/{given.trials}: {told(one)}", file=sys.stderr)


def trial(name: str, pilot: str, budget: str) -> dict[str, Any]:
    """One pilot and the trial after it, as a line of the record."""
    lab, margin, cache, work = STUDIES[name]
    with tempfile.TemporaryDirectory(prefix="iotrial-prediction-", dir="/var/tmp") as folder:
        study = Path(folder) / "study.toml"
        study.write_text(HEAD.format(name=name, margin=margin, lab=lab, cache=cache) + work)
        common = [str(study), "--time", budget, "--json"]
        begun = time.time()
        plan = iotrial(folder, "plan", *common, "--pilot", pilot, "--rounds", "1")
        report = iotrial(folder, "run", *common) if "error" not in plan else {}
    return {
        "schema": 1,
        "study": name,
        "at": begun,
        "pilot": pilot,
        "budget": budget,
        "machine": {"node": platform.machine(), "kernel": platform.release(), "processors": os.cpu_count()},
        "version": report.get("trial", {}).get("version"),
        "predicted": plan.get("prediction"),
        "actual": actual(report, parse_duration(budget)) if "trial" in report else None,
        "error": plan.get("error") or report.get("error"),
    }


def iotrial(state: str, *words: str) -> dict[str, Any]:
    """What the program says; its error where it fails. Status 3 (invalid) is an outcome, not a failure."""
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
    if done.returncode in (0, 3):
        found: dict[str, Any] = json.loads(done.stdout)
        return found
    return {"error": f"status {done.returncode}: {done.stderr.strip()[-400:]}"}


def actual(report: dict[str, Any], budget_s: float) -> dict[str, Any]:
    """What the trial came to. ``decided``: it stopped by itself, with a verdict."""
    (effect,) = [effect for effect in report["effects"] if effect["primary"]]
    return {
        "state": report["trial"]["state"],
        "seconds": report["trial"]["duration_s"],
        "blocks": effect["blocks"],
        "verdict": effect["verdict"],
        "decided": (
            effect["verdict"] != "inconclusive"
            and report["trial"]["state"] == "done"
            and report["trial"]["duration_s"] < 0.97 * budget_s
        ),
        "ratio": effect["ratio"],
        "low": effect["low"],
        "high": effect["high"],
    }


def records(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a record; one that was cut off at the end is left out."""
    for line in path.read_text().splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            print("a line that is no JSON is left out", file=sys.stderr)


def told(one: dict[str, Any]) -> str:
    """One trial in words."""
    if one["actual"] is None:
        return f"failed: {one['error']}"
    likely = one["predicted"]["seconds"]["likely"]
    words = "never" if likely is None else f"{likely:.1f} s"
    return f"predicted {words}, took {one['actual']['seconds']:.1f} s, {one['actual']['verdict']}"


def print_summary(lines: list[dict[str, Any]]) -> None:
    """Predicted and actual seconds of every study: medians, quantiles of actual/predicted, how often within the range."""
    print(f"{'study':<24}{'trials':>7}{'decided':>8}{'other':>6}{'pred. s':>9}{'actual s':>9}", end="")
    print("   actual/predicted, 10 50 80 90 %     blocks 50 80 %   in range")
    for name in STUDIES:
        own = [one for one in lines if one["study"] == name]
        pairs = [
            (one["predicted"], one["actual"])
            for one in own
            if one["actual"]
            and one["actual"]["decided"]
            and one["predicted"]["seconds"]["likely"] is not None
        ]
        if not own:
            continue
        print(f"{name:<24}{len(own):>7}{len(pairs):>8}{len(own) - len(pairs):>6}", end="")
        if pairs:
            seconds = [(p["seconds"]["likely"], a["seconds"]) for p, a in pairs]
            ratio = [taken / likely for likely, taken in seconds]
            blocks = [a["blocks"] / p["conditions"][0]["blocks"]["likely"] for p, a in pairs]
            within = sum(
                p["seconds"]["low"] <= a["seconds"] <= (p["seconds"]["high"] or float("inf"))
                for p, a in pairs
            )
            print(
                f"{quantile([s[0] for s in seconds], 0.5):>9.1f}{quantile([s[1] for s in seconds], 0.5):>9.1f}",
                end="",
            )
            print("   " + "".join(f"{quantile(ratio, q):>8.2f}" for q in (0.1, 0.5, 0.8, 0.9)), end="")
            print("   " + "".join(f"{quantile(blocks, q):>8.2f}" for q in (0.5, 0.8)), end="")
            print(f"{within:>8}/{len(pairs)}", end="")
        print()
    print('"other": not decided in the budget, invalid, failed, or predicted never. They are in no quantile.')


def quantile(values: list[float], at: float) -> float:
    """By linear interpolation."""
    values = sorted(values)
    place = at * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (place - below) * (values[above] - values[below])


if __name__ == "__main__":
    main()
