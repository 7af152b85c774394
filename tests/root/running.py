"""Run the program for tests of whole trials, and read its store."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import jsonschema

import program
from study_texts import reading

STRANGER = 54_321
#: exit status of a trial without an interval (docs/command-line.md)
NO_INTERVAL = 6
SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "report.schema.json").read_text())


def iotrial(*words: str, check: int | None = 0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run it. ``check``: the exit status; 0 is that of a trial of few blocks too, which has no interval."""
    done = program.iotrial(*words, cwd=cwd)
    assert check is None or done.returncode in ((0, NO_INTERVAL) if check == 0 else (check,)), done.stderr
    return done


def run_json(*words: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(iotrial("run", *words, "--json").stdout)
    jsonschema.validate(report, SCHEMA)
    return report


def stored_runs(state: Path) -> list[dict[str, Any]]:
    connection = sqlite3.connect(state / "trials.db")
    connection.row_factory = sqlite3.Row
    # The store may be in the process of being created.
    made = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'run'").fetchone()
    rows = [dict(row) for row in connection.execute("SELECT * FROM run ORDER BY rowid")] if made else []
    for row in rows:
        for key in ("responses", "evidence", "checks", "treatment", "files"):
            if isinstance(row.get(key), str):
                row[key] = json.loads(row[key])
    connection.close()
    return rows


def failures_of(state: Path) -> list[str]:
    return [str(run["failure"]) for run in stored_runs(state) if run["failure"] is not None]


def were_warm(runs: list[dict[str, Any]]) -> bool:
    """Return whether nothing was read from the device. The kernel may reclaim a page at any time: such a run
    must be void, and these must be few."""
    cooled = [run["checks"] for run in runs if run["checks"]["bytes_read"] > 0]
    return {checks.get("void") for checks in cooled} <= {"warm_was_not_warm"} and 8 * len(cooled) <= len(runs)


def write_study(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text)
    return str(path)


def of_a_stranger(study: str) -> str:
    """Give the study file to another user, so that iotrial asks before it runs; return its path."""
    os.chown(study, STRANGER, STRANGER)
    return study


SCHEDULERS = """
[study]
name = "schedulers"
question = "Does the scheduler matter to reading?"
[lab]
kind = "image"
size = "64 MiB"
[budget]
time = "20 s"
blocks = 3
[[factor]]
name = "scheduler"
knob = "block.scheduler"
levels = ["none", "mq-deadline", "bfq"]
[[factor]]
name = "pressure"
knob = "sysctl"
key = "vm.vfs_cache_pressure"
levels = ["50", "200"]
role = "condition"
""" + reading()
