"""Share of a trial's time that is timed work, by study, of one or two checkouts in turn.

python benchmarks/timed_share.py [--time 12s] [--other CHECKOUT] STUDY ...

As root. Prints one row for each study and checkout: all of the trial, and without set-up (making and removing the lab,
untimed first runs, counting).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from iotrial.runner.time_account import Part

SET_UP = (Part.LAB, Part.REHEARSAL, Part.COUNTING, Part.POWER_CUTS)


def spent(checkout: Path, study: str, time: str) -> Mapping[str, float]:
    """Run a study with a store of its own; return the seconds of each part."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as state:
        environment = {**os.environ, "PYTHONPATH": str(checkout / "python"), "XDG_STATE_HOME": state}
        words = [sys.executable, "-m", "iotrial", "run", study, "--time", time, "--json"]
        done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, check=True)
    return dict(json.loads(done.stdout)["trial"]["time_spent"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--time", default="12s", help="time budget of each trial")
    parser.add_argument("--other", type=Path, help="a second checkout, measured in turn with this one")
    parser.add_argument("studies", nargs="+", metavar="STUDY")
    asked = parser.parse_args()
    here = Path(__file__).resolve().parents[1]
    checkouts = [here] if asked.other is None else [asked.other.resolve(), here]
    print("| study | checkout | share | without set-up | s |\n| --- | --- | --- | --- | --- |")
    for study in asked.studies:
        for checkout in checkouts:
            parts = spent(checkout, study, asked.time)
            whole = sum(parts.values())
            runs = whole - sum(parts.get(part.value, 0.0) for part in SET_UP)
            timed = parts[Part.TIMED.value]
            name = checkout.name
            print(
                f"| {study} | {name} | {timed / whole:.2f} | {timed / runs:.2f} | {whole:.0f} |", flush=True
            )


if __name__ == "__main__":
    main()
