"""Whole trials of blocks read and written at random, in a folder and on an image, with the slow-down put in."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import failures_of, run_json, stored_runs, were_warm, write_study

pytestmark = pytest.mark.root

STUDY = """
[study]
name = "blocks"
question = "Is the mode of a file a matter for its blocks?"
margin = "20 %"
[lab]
size = "128 MiB"
[budget]
time = "60 s"
blocks = 24
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0644", "0444"]
[[workload]]
name = "warm"
kind = "random"
size = "2 MiB"
operations = 400
cache = "warm"
[[workload]]
name = "mixed"
kind = "random"
size = "2 MiB"
engine = "io_uring"
depth = 8
operations = 200
write_share = 0.3
cache = "cold-data"
[[response]]
name = "rate"
workload = "mixed"
primary = true
"""


@pytest.mark.parametrize("lab", ["directory", "image"])
def test_blocks_end_to_end_with_the_positive_control(state: Path, tmp_path: Path, lab: str) -> None:
    report = run_json(write_study(tmp_path, STUDY), "--lab", lab, "--no-stop", "--blocks", "24")
    assert report["trial"]["state"] == "done"
    assert failures_of(state) == []
    primary = {(e["workload"], e["response"]) for e in report["effects"] if e["primary"]}
    assert primary == {("warm", "wall"), ("mixed", "rate")}
    exploratory = {e["response"] for e in report["effects"] if not e["primary"]}
    assert {"read_p50", "read_p99", "write_p50"} <= exploratory
    positive = [control for control in report["controls"] if control["kind"] == "positive"]
    # 1 + 2 m of a time, and its inverse of a rate.
    assert {(c["response"], round(c["injected"], 2)) for c in positive} == {("wall", 1.4), ("rate", 0.71)}
    assert all(control["passed"] for control in positive)
    mixed, warm = (
        [run for run in stored_runs(state) if name in run["condition"]] for name in ("mixed", "warm")
    )
    assert mixed
    assert all(run["checks"]["bytes_read"] >= run["checks"]["bytes_expected"] > 0 for run in mixed)
    assert warm
    assert were_warm(warm)
