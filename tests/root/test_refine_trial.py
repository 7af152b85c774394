"""A bundle with one effective knob, run for real and ablated; and a small screen with its follow-up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running import iotrial, run_json, write_study

pytestmark = pytest.mark.root

# gzip -9 takes about twice the time of -1; it ignores the two variables.
BUNDLE = """
[study]
name = "bundle"
question = "Do all of these make compressing faster?"
margin = "20 %"
[lab]
kind = "directory"
[[factor]]
name = "tuning"
levels = [
  { label = "stock", set = [
    { knob = "command.argument", placeholder = "{level}", level = "-9" },
    { knob = "environment.variable", variable = "ONE", level = "off" },
    { knob = "environment.variable", variable = "TWO", level = "off" } ] },
  { label = "tuned", set = [
    { knob = "command.argument", placeholder = "{level}", level = "-1" },
    { knob = "environment.variable", variable = "ONE", level = "on" },
    { knob = "environment.variable", variable = "TWO", level = "on" } ] },
]
[[workload]]
name = "gzip"
kind = "command"
size = "256 KiB"
cache = "warm"
argv = ["gzip", "-c", "{level}", "{file}"]
"""

SCREEN = """
[study]
name = "screen"
question = "Which of these matter?"
margin = "20 %"
[lab]
kind = "directory"
[design]
kind = "plackett-burman"
[[factor]]
name = "level"
knob = "command.argument"
placeholder = "{level}"
levels = ["-9", "-1"]
[[factor]]
name = "one"
knob = "environment.variable"
variable = "ONE"
levels = ["off", "on"]
[[factor]]
name = "two"
knob = "environment.variable"
variable = "TWO"
levels = ["off", "on"]
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0644", "0444"]
[[workload]]
name = "gzip"
kind = "command"
size = "256 KiB"
cache = "warm"
argv = ["gzip", "-c", "{level}", "{file}"]
"""


@pytest.mark.long
def test_a_bundle_is_taken_apart_and_the_one_knob_that_matters_is_found(state: Path, tmp_path: Path) -> None:
    on = ("--on", str(state.parent))
    first = run_json(write_study(tmp_path, BUNDLE), *on, "--blocks", "16", "--time", "20s")
    assert first["effects"][0]["verdict"] == "faster"
    iotrial("refine", "last", "--ablate", cwd=tmp_path)
    again = run_json(
        str(tmp_path / "bundle-ablation.toml"), *on, "--blocks", "40", "--time", "30s", "--no-stop"
    )
    found = {one["level"]: one["verdict"] for one in again["effects"] if one["primary"]}
    assert found["none"] == found["without level"] == "slower"
    assert found["without ONE"] in ("equivalent", "inconclusive")
    assert found["without TWO"] in ("equivalent", "inconclusive")
    assert again["trial"]["verdict"].startswith(
        "1 of 3 settings contributed to the gain: without level it takes "
    )


@pytest.mark.long
def test_a_screen_is_run_and_followed_up(state: Path, tmp_path: Path) -> None:
    on = ("--on", str(state.parent))
    study = write_study(tmp_path, SCREEN)
    plan = json.loads(iotrial("plan", study, *on, "--json").stdout)
    assert plan["design"]["kind"] == "plackett-burman"
    assert len(plan["design"]["rows"]) == 8  # four factors and two columns for the controls
    report = run_json(study, *on, "--blocks", "40", "--time", "60s")
    verdicts = {one["factor"]: one["verdict"] for one in report["effects"] if one["primary"]}
    assert verdicts["level"] == "faster"
    document = json.loads(iotrial("refine", "last", "--factors", "level,mode", "--json", cwd=tmp_path).stdout)
    assert {one["factor"] for one in document["pinned"]} == {"one", "two"}
    follow = json.loads(iotrial("plan", document["file"], *on, "--json", cwd=tmp_path).stdout)
    assert follow["design"]["primary_interactions"] == 1
    assert {run["arm"] for block in follow["blocks"] for run in block["runs"]} >= {
        "-9+0644", "-9+0444", "-1+0644", "-1+0444",
    }  # fmt: skip
