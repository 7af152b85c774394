"""The doctor and the pilot for real: short, on this machine, and leaving nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from running import NO_INTERVAL, iotrial, write_study

from iotrial.probe.client import Probe
from iotrial.runner import session as session_module
from iotrial.runner.doctor.noise import measure_noise
from iotrial.runner.progress import Silent

pytestmark = pytest.mark.root

ROOT = Path(__file__).parents[2]
MODES = """
[study]
name = "modes"
question = "Do modes matter?"
margin = "20 %"
[lab]
kind = "{lab}"
size = "64 MiB"
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0444", "0777"]
[[factor]]
name = "cache"
knob = "cache.state"
levels = ["cold", "warm"]
role = "condition"
[[workload]]
name = "read"
kind = "files"
files = 10
operations = ["open", "read-to-end", "close"]
"""


def schema(verb: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "schemas" / f"{verb}.schema.json").read_text())
    return found


def left_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_short_doctor_measures_three_workloads_and_leaves_nothing(state: Path) -> None:
    began = time.monotonic()
    done = iotrial("doctor", "--time", "3s", "--json")
    took = time.monotonic() - began
    found = json.loads(done.stdout)
    jsonschema.validate(found, schema("doctor"))
    noise = found["noise"]
    assert noise is not None, found["findings"]
    assert 1.0 < noise["seconds"] < took
    assert [one["workload"] for one in noise["workloads"]] == [
        "files-warm",
        "files-cold-data",
        "command-warm",
    ]
    assert all(one["blocks"] >= 3 and one["scatter"]["sd"] > 0 for one in noise["workloads"])
    for one in noise["workloads"]:
        margins = [two["margin"] for two in one["resolvable"] if two["margin"] is not None]
        assert margins == sorted(margins, reverse=True)  # more time never resolves less
    assert left_in(state.parent) == []


@pytest.mark.long
def test_a_user_has_the_doctor_too(everybody: Path) -> None:
    home, probe = str(everybody / "home"), str(everybody / "ioprobe")
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "as_nobody.py"), "doctor", "--time", "2s", "--json"],
        env={**os.environ, "XDG_STATE_HOME": home, "HOME": home, "IOTRIAL_PROBE": probe},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["noise"] is not None, found["findings"]
    assert [lab["kind"] for lab in found["labs"] if lab["possible"]] == ["directory", "guest"]
    assert left_in(everybody / "home") == []


def test_the_blind_trial_changes_nothing_outside_its_own_folder(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, dict[str, Any]]] = []

    class Recorded(Probe):
        def call(self, verb: str, **fields: object) -> dict[str, Any]:
            calls.append((verb, dict(fields)))
            return super().call(verb, **fields)

    monkeypatch.setattr(session_module, "Probe", Recorded)
    noise = measure_noise(Silent(), root=True, time_s=0.5, on=None)
    assert noise.floor.blocks >= 3
    verbs = {verb for verb, _ in calls}
    assert verbs <= {
        *(
            "hello",
            "read",
            "stat",
            "statfs",
            "list",
            "run",
            "syncfs",
            "fsync",
            "time",
        ),  # queries (`run`: `test -x`), and write-back
        *(
            "mkdir",
            "set_times",
            "remove",
            "fileset",
            "fileset_verify",
            "set_mode",
            "unlink",
        ),  # the lab's folder and files
        *("evict", "warm", "files", "command", "end_session"),
    }
    for verb, fields in calls:
        if verb in ("mkdir", "set_times", "remove", "fileset", "syncfs"):
            assert str(fields.get("path", fields.get("dir"))).startswith(str(state)), (verb, fields)
    assert left_in(state.parent) == []


@pytest.mark.parametrize("lab", [pytest.param("directory", marks=pytest.mark.long), "image"])
def test_a_pilot_predicts_every_condition_and_stores_nothing(lab: str, state: Path, tmp_path: Path) -> None:
    study = write_study(tmp_path, MODES.format(lab=lab))
    for length in ("2s", "20s"):  # retry with more time: the machine may be slow today
        found = json.loads(iotrial("plan", study, "--pilot", length, "--json").stdout)
        jsonschema.validate(found, schema("plan"))
        prediction = found["prediction"]
        if prediction["pilot"]["blocks"] >= 6:
            break
    assert prediction["pilot"]["blocks"] >= 6
    assert len(prediction["conditions"]) == 2
    for one in prediction["conditions"]:
        assert one["reason"] is None
        assert one["blocks"]["low"] >= 8  # it is in each of the first blocks, and needs 8 of them
        likely = one["blocks"]["likely"]  # None if it would more likely than not stay undecided
        assert (one["seconds"]["likely"] is None) == (likely is None)
        if likely is not None:
            assert one["seconds"]["low"] < one["seconds"]["likely"] < one["seconds"]["high"]
            assert one["blocks"]["low"] <= likely <= one["blocks"]["high"]
    assert not [name for name in left_in(state.parent) if ".db" in name or ".entry" in name]


def test_a_trial_says_that_its_time_is_too_short_and_a_pilot_does_not(state: Path, tmp_path: Path) -> None:
    study = write_study(tmp_path, MODES.format(lab="directory"))
    said = "fit into the time, and a verdict takes at least"
    assert said in iotrial("run", study, "--yes", "--time", "400ms").stderr
    assert said not in iotrial("plan", study, "--pilot", "100ms").stderr


@pytest.mark.long
def test_an_interrupted_pilot_puts_back_and_ends_with_its_signal(state: Path, tmp_path: Path) -> None:
    study = write_study(tmp_path, MODES.format(lab="image"))
    process = subprocess.Popen(
        [sys.executable, "-m", "iotrial", "plan", study, "--pilot", "60s"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 30
    while not list((state / "journal").glob("*.entry")) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1.0)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT, errors.decode()
    assert not list((state / "journal").glob("*.entry"))


def test_a_busy_machine_is_named_before_the_trial_and_in_the_report(state: Path, tmp_path: Path) -> None:
    spinning = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)
    ]
    try:
        done = iotrial(
            "try", "--blocks", "2", "--no-controls", "-L", "n", "1,2", "--in", str(tmp_path), "--time", "20 s", "--",
            "sh -c ': {n}'", check=NO_INTERVAL,
        )  # fmt: skip
    finally:
        for one in spinning:
            one.kill()
            one.wait()
    said = "the machine was busy before the trial: other work kept"
    assert said in done.stderr
    assert f"python3 ({spinning[0].pid})" in done.stderr or "python" in done.stderr
    report = iotrial("report", "last", "--full").stdout
    assert said.capitalize() in " ".join(report.split())
