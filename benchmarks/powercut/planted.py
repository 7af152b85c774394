"""Does `iotrial powercut` find twelve planted mistakes, name them right, and nothing else? As root; prints a Markdown table.

python benchmarks/powercut/planted.py [--points N] [--time DURATION] [MISTAKE...]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from store import MISTAKES

STORE = f"{sys.executable} -S -E {Path(__file__).with_name('store.py').resolve()}"


def powercut(words: list[str], own: list[str], *, points: int, limit: str, seed: int) -> dict:
    """Run ``iotrial powercut`` with one setting, and return what its JSON document says of it; a problem if there is none."""
    with tempfile.TemporaryDirectory() as kept:
        argv = ["iotrial", "powercut", "--json", "--keep", kept, "--points", str(points), "--time", limit]
        done = subprocess.run(
            [*argv, "--seed", str(seed), *words, "--", *own], capture_output=True, text=True, check=False
        )
    if not done.stdout:
        return {"problem": done.stderr.strip()[-300:], "runs": [], "examples": []}
    return json.loads(done.stdout)["settings"][0]


def examined(mistake: str, *, points: int, limit: str, count: int = 80) -> dict:
    """Run one version of the store."""
    if mistake == "stale-lock":
        words = ["--client", f"{STORE} ask {{port}} {count}", "--dump", f"{STORE} ask {{port}} 0"]
        own = f"{STORE} serve {{dir}} {mistake} {{port}}"
    else:
        words = ["--dump", f"{STORE} dump {{dir}} {mistake}"]
        own = f"{STORE} work {{dir}} {mistake} {count}"
    return powercut(words, own.split(), points=points, limit=limit, seed=5)


def main() -> None:
    """Print a row for each mistake."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--points", type=int, default=80)
    parser.add_argument("--time", default="1m")
    parser.add_argument("mistake", nargs="*", default=["none", "files", *MISTAKES])
    given = parser.parse_args()
    print("| planted | points | lost | corrupt | will not start | named | right | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for mistake in given.mistake:
        began = time.monotonic()
        found = examined(mistake, points=given.points, limit=given.time)
        totals = [
            sum(run[name] for run in found["runs"]) for name in ("points", "lost", "corrupt", "not_started")
        ]
        named = list(dict.fromkeys(name for one in found["examples"] for name, _ in one["mistakes"]))
        right = (
            {True: "yes", False: "no"}[bool(named) and named[0] == MISTAKES.get(mistake, "")]
            if MISTAKES.get(mistake)
            else "–"
        )
        cells = (
            mistake,
            *totals,
            ", ".join(named) or found["problem"] or "–",
            right,
            f"{time.monotonic() - began:.0f}",
        )
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
        for one in found["examples"]:
            print(
                "<!--", one["kind"], one["found"][:2], one["writes"][:3], one["mistakes"], "-->", flush=True
            )


if __name__ == "__main__":
    main()
