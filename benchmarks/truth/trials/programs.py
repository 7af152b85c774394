"""Trials of small programs with a state file through ``iotrial try``: what is published where runs depend on each other.

``stateful.py`` is the program. Its truth is known, so each kind names the verdicts that would be wrong.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from exact import rate
from trials.record import Record, read

PROGRAM = Path(__file__).with_name("stateful.py")
#: by kind: what a trial must not say. The times include the start of Python, so effects are smaller than the program's.
WRONG: dict[str, frozenset[str]] = {
    "lasting": frozenset({"faster", "slower", "probably_faster", "probably_slower"}),
    "dear": frozenset({"slower", "probably_slower", "equivalent", "equivalent_detectable"}),
    "one-way": frozenset({"faster", "slower", "probably_faster", "probably_slower"}),
    "stalling": frozenset({"faster", "probably_faster", "equivalent"}),
    "quiet": frozenset({"faster", "slower", "probably_faster", "probably_slower"}),
}
RECORD = "programs.jsonl"
TRIAL_S = 120.0
_WAITS_S = 600.0


def run(wanted: int, path: Path, *, budget_s: float) -> None:
    """Run trials in turn until the record has ``wanted`` of each kind, or the time is used up."""
    began = time.monotonic()
    with Record(path) as record:
        while time.monotonic() - began < budget_s:
            done = Counter(line["kind"] for line in read(path)[0])
            kind = min(WRONG, key=lambda one: done[one])
            if done[kind] >= wanted:
                return
            with tempfile.TemporaryDirectory() as folder:
                record.add(trial(kind, Path(folder), time_s=TRIAL_S))


def trial(kind: str, folder: Path, *, time_s: float) -> dict[str, Any]:
    """Run one trial in an empty folder; return what it published, as a line of the record. Raises RuntimeError."""
    command = [sys.executable, "-m", "iotrial", "try", "-L", "mode=a,b", "--time", f"{time_s:g}s", "--json"]
    command += ["--", sys.executable, "-I", "-S", str(PROGRAM), kind, "{mode}"]
    environment = os.environ | {"XDG_STATE_HOME": str(folder / "state")}
    (folder / "work").mkdir()
    until = time.monotonic() + _WAITS_S
    while True:
        done = subprocess.run(
            command,
            cwd=folder / "work",
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=time_s + 600,
        )
        if "another iotrial is running" not in done.stderr or time.monotonic() > until:
            break
        time.sleep(1.0)
    if not done.stdout.strip():
        raise RuntimeError(f"iotrial try ended with {done.returncode}: {done.stderr[-400:]}")
    return {
        "kind": kind,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        **published(json.loads(done.stdout)),
    }


def published(report: dict[str, Any]) -> dict[str, Any]:
    """Return what a report says of its only primary comparison, and of what its runs depend on."""
    (effect,) = [one for one in report["effects"] if one["primary"]]
    diagnostics = report["diagnostics"]
    carry = diagnostics["carry_over"][0] if diagnostics["carry_over"] else {}
    return {
        "conclusion": effect["conclusion"] if diagnostics["valid"] else "invalid",
        "ratio": effect.get("ratio"),
        "low": effect["low"],
        "high": effect["high"],
        "blocks": effect["blocks"],
        "wash_in_runs": carry.get("wash_in_runs", 0),
        "wash_in_level": carry.get("wash_in_level"),
        "switch_cost": carry.get("switch_cost"),
        "score": carry.get("score"),
    }


def table(lines: Iterable[dict[str, Any]]) -> str:
    """Tabulate the record: how many trials of each kind published something that is not true."""
    out = [
        "| program | trials | published wrong [95 % bounds] | conclusions | wash-in |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines = list(lines)
    for kind, wrong in WRONG.items():
        own = [line for line in lines if line["kind"] == kind]
        said = Counter(line["conclusion"] for line in own)
        stages = Counter(
            f"{line['wash_in_runs']} {line['wash_in_level']}" if line["wash_in_runs"] else "none"
            for line in own
        )
        cells = [
            ", ".join(f"{count} {name}" for name, count in each.most_common()) for each in (said, stages)
        ]
        out.append(
            f"| {kind} | {len(own)} | {rate(sum(line['conclusion'] in wrong for line in own), len(own))} | "
            f"{' | '.join(cells)} |"
        )
    return "\n".join(out)
