"""Controls in every lab, for operations and commands, for times and counts: they pass in a sound lab, and
fail in one that is broken on purpose."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from running import SCHEMA, stored_runs, write_study

sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))

from stand_in import MIB, SERIAL, StandIn

pytestmark = pytest.mark.root

PROGRAM = Path(__file__).parent / "broken_lab.py"
# A wide margin gives a large injected slowdown, 3 times, which shows in a few blocks.
STUDY = """
[study]
name = "controlled"
question = "Does a variable that nobody reads matter?"
margin = "100 %"
[lab]
kind = "LAB"
size = "24 MiB"
[budget]
time = "60 s"
blocks = 40
[[factor]]
name = "arm"
knob = "environment.variable"
variable = "ARM"
levels = ["one", "two"]
[[workload]]
name = "read"
kind = "files"
files = 200
cache = "warm"
operations = ["open", "read-to-end", "close"]
[[workload]]
name = "steps"
kind = "command"
cache = "warm"
[[workload.step]]
name = "first"
argv = ["true"]
[[workload.step]]
name = "second"
argv = ["md5sum", "{file}"]
[[workload]]
name = "count"
kind = "command"
cache = "warm"
argv = ["true"]
[[response]]
workload = "read"
name = "read_to_end_time"
primary = true
[[response]]
workload = "steps"
name = "cpu.second"
primary = true
[[response]]
workload = "count"
name = "device_read_bytes"
primary = true
"""
JUDGED = {  # by workload: response in which the copy is judged, and response that is slowed down
    "read": ("read_to_end_time", "read_to_end_time"),
    "steps": ("cpu.second", "cpu.second"),
    "count": ("device_read_bytes", "wall"),
}


@pytest.fixture
def disk(disk_folder: Path) -> Iterator[StandIn]:
    disk = StandIn(disk_folder, "disk.img", 64 * MIB)
    yield disk
    disk.detach()
    disk.file.unlink()


def trial(mode: str, study: str, disk: StandIn | None, status: int) -> dict[str, Any]:
    words = () if disk is None else ("--device", disk.path, "--erase", SERIAL.lower())
    disks = "-" if disk is None else disk.named
    done = subprocess.run(
        [sys.executable, str(PROGRAM), mode, disks, "run", study, *words, "--no-stop", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    document = json.loads(done.stdout) if done.stdout.startswith("{") else {}
    if done.returncode != status:
        failed = [control for control in document.get("controls", ()) if not control["passed"]]
        why = {"failed": failed, "diagnostics": document.get("diagnostics"), "void": document.get("void")}
        pytest.fail(f"status {done.returncode}, wanted {status}: {json.dumps(why, indent=1)}\n{done.stderr}")
    report: dict[str, Any] = document
    jsonschema.validate(report, SCHEMA)
    return report


@pytest.mark.long
@pytest.mark.parametrize("lab", ["directory", "image", "device"])
def test_controls_pass_in_a_sound_lab_and_fail_in_a_broken_one(
    lab: str, state: Path, disk_folder: Path, request: pytest.FixtureRequest
) -> None:
    disk = request.getfixturevalue("disk") if lab == "device" else None
    study = write_study(disk_folder, STUDY.replace("LAB", lab))
    sound = trial("sound", study, disk, 0)
    assert sound["trial"]["state"] == "done"
    assert sound["diagnostics"]["likely_reasons"] == []
    found = {(c["condition"]["workload"], c["kind"]): c for c in sound["controls"]}
    assert {key: control["response"] for key, control in found.items()} == {
        (workload, kind): response
        for workload, pair in JUDGED.items()
        for kind, response in zip(("negative", "positive"), pair, strict=True)
    }
    assert all(control["passed"] for control in sound["controls"])
    # A copy may differ significantly at the study's alpha of .05; only the controls' own level makes a trial
    # invalid. The number of blocks needed to detect the slowed copy depends on the machine.
    for control in sound["controls"]:
        assert (
            1.7 < control["ratio"] < 5.0 if control["kind"] == "positive" else -0.5 < control["ratio"] < 1.7
        )
    stretched = [run for run in stored_runs(state) if run["arm"] == "control:positive"]
    assert all("injected" not in run["checks"] for run in stored_runs(state) if run not in stretched)
    ratios = sorted(run["checks"]["injected"] for run in stretched)
    assert ratios[len(ratios) // 2] == pytest.approx(3.0, rel=1e-3)

    broken = trial("broken", study, disk, 3)
    assert broken["trial"]["state"] == "invalid"
    failed = {(c["condition"]["workload"], c["kind"]) for c in broken["controls"] if not c["passed"]}
    # Expected failures: every slowed copy that was not slowed, and every copy that was, except for the count,
    # which a slowdown does not change.
    expected = {(w, kind) for w in JUDGED for kind in ("negative", "positive")} - {("count", "negative")}
    # The number of blocks needed depends on the machine; only these may fail, and both kinds do.
    assert failed <= expected
    assert {kind for _, kind in failed} == {"negative", "positive"}
    for control in broken["controls"]:
        slow = (control["condition"]["workload"], control["kind"]) in expected and control[
            "kind"
        ] == "negative"
        assert 1.7 < control["ratio"] < 5.0 if slow else -0.5 < control["ratio"] < 1.7, control
    # The probe reports that it injected nothing.
    assert broken["diagnostics"]["likely_reasons"][0]["code"] in ("not_in_response", "spin")
