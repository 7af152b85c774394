"""Accounted repetitions of whole trials, and the study that counts calls: the truth is strace and plain
arithmetic."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from running import iotrial, run_json, stored_runs, write_study

pytestmark = pytest.mark.root

AS_NOBODY = Path(__file__).parents[1] / "as_nobody.py"

STUDY = """
[study]
name = "bytes"
question = "Do more bytes take more calls?"
[lab]
kind = "directory"
[budget]
blocks = 3
[[factor]]
name = "bytes"
knob = "command.argument"
placeholder = "{bytes}"
levels = ["1", "100000"]
[[workload]]
name = "head"
kind = "command"
argv = ["head", "-c", "{bytes}", "/dev/zero"]
stdout = "null"
"""


def evidence(report: dict[str, Any], metric: str) -> dict[str, float]:
    return {e["treatment"]: e["value"] for e in report["evidence"] if e["metric"] == metric}


def events(state: Path) -> list[tuple[str, dict[str, Any]]]:
    connection = sqlite3.connect(state / "trials.db")
    found = connection.execute("SELECT kind, text FROM event ORDER BY sequence").fetchall()
    connection.close()
    return [(kind, json.loads(text) if kind == "call" else text) for kind, text in found]


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_calls_of_each_arm_are_those_that_strace_counts(state: Path, tmp_path: Path) -> None:
    report = run_json(write_study(tmp_path, STUDY), "--no-controls", "--no-stop")
    environment = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/",
        "LC_ALL": "C",
    }
    for level in ("1", "100000"):
        argv = ["strace", "-f", "-c", "-o", str(tmp_path / "out"), "head", "-c", level, "/dev/zero"]
        subprocess.run(argv, env=environment, stdout=subprocess.DEVNULL, check=True)
        table = [line.split() for line in (tmp_path / "out").read_text().splitlines()]
        truth = {words[-1]: int(words[3]) for words in table if len(words) >= 5 and words[0][0].isdigit()}
        counted = [call for kind, call in events(state) if kind == "call" and call["arm"] == level]
        # once, and again while that takes less than a tenth of the time that was measured
        assert {0} <= {call["repetition"] for call in counted} <= {0, 1, 2}
        assert {c["name"]: c["count"] for c in counted if c["repetition"] == 0} == {
            name: count for name, count in truth.items() if name != "total"
        }
        assert evidence(report, "accounted_calls.read")[level] == truth["read"]
        assert evidence(report, "accounted_calls.all")[level] == truth["total"]
    # one read for a byte; for 100,000, several of head's buffer size
    reads = evidence(report, "accounted_calls.read")
    assert reads["100000"] > reads["1"]
    assert len(stored_runs(state)) == 6, "a repetition that was accounted is a run"


def test_accounting_can_be_left_out_and_the_plan_says_whether(state: Path, tmp_path: Path) -> None:
    study = write_study(tmp_path, STUDY)
    with_it, without = iotrial("plan", study), iotrial("plan", study, "--no-account")
    assert "accounted" in with_it.stderr + with_it.stdout
    assert "accounted" not in without.stderr + without.stdout
    run_json(study, "--no-controls", "--no-account")
    assert not [kind for kind, _ in events(state) if kind == "call"]
    (tmp_path / "own").mkdir()
    off = write_study(tmp_path / "own", STUDY.replace("[study]", "[study]\naccount = false"))
    run_json(off, "--no-controls")
    assert not [kind for kind, _ in events(state) if kind == "call"]


NO_SUCH_CALLS = "import ctypes; c = ctypes.CDLL(None); [c.syscall(n) for n in range(1000, 1000 + {count})]"


def test_counts_of_which_some_were_lost_are_used_nowhere(state: Path, tmp_path: Path) -> None:
    """Lost counts are used nowhere: each unassigned call number takes an entry in BPF's table of 4,096
    errors."""
    program = f'argv = ["{sys.executable}", "-I", "-S", "-c", "{NO_SUCH_CALLS}"]'
    study = STUDY.replace("{bytes}", "{count}").replace('"100000"', '"6000"')
    study = study.replace('argv = ["head", "-c", "{count}", "/dev/zero"]', program)
    report = run_json(write_study(tmp_path, study), "--no-controls", "--trust")
    counted = [call for kind, call in events(state) if kind == "call"]
    assert {call["arm"] for call in counted} <= {"1"}
    (said,) = [text for kind, text in events(state) if kind == "not-accounted"]
    assert re.search(r"expected all events, but \d+ events were lost", said)
    assert "6000" not in evidence(report, "accounted_calls.all")


def test_grep_reads_twice_for_each_file_and_find_as_often_in_any_tree(state: Path) -> None:
    names = ("grep-10x10", "grep-10x100", "grep-100x10", "find-10x10", "find-100x10")
    report = run_json("mount/read-calls", "--condition", f"workload={','.join(names)}", "--blocks", "1")
    reads = {
        (e["condition"]["workload"], e["treatment"]): e["value"]
        for e in report["evidence"]
        if e["metric"] == "calls.read"
    }
    for level in ("strictatime", "noatime"):
        found = {name: reads[name, level] for name in names}
        assert found["grep-10x100"] - found["grep-10x10"] == 2 * 900
        assert found["grep-100x10"] == found["grep-10x100"]
        assert found["find-10x10"] == found["find-100x10"] < 20
    for run in stored_runs(state):
        assert run["failure"] is None
        assert not {"wall", "cpu", "user", "sys"} & {*run["responses"], *run["evidence"]}


@pytest.mark.long
def test_without_root_a_trial_is_as_good_without(everybody: Path) -> None:
    study = write_study(everybody, STUDY)
    Path(study).chmod(0o644)
    home = str(everybody / "home")
    done = subprocess.run(
        [sys.executable, str(AS_NOBODY), "run", study, "--no-controls"],
        env={**os.environ, "XDG_STATE_HOME": home, "HOME": home, "IOTRIAL_PROBE": str(everybody / "ioprobe")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "system calls were not counted" in done.stderr
    assert "not permitted" in done.stderr
    kinds = [kind for kind, _ in events(everybody / "home" / "iotrial")]
    assert [kind for kind in kinds if kind != "time-spent"] == ["not-accounted"]
