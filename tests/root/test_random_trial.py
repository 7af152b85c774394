"""Whole trials of random block reads and writes, in a directory and on an image, with the injected slowdown."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import failures_of, iotrial, run_json, stored_runs, were_warm, write_study

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


@pytest.mark.parametrize("lab", [pytest.param("directory", marks=pytest.mark.long), "image"])
@pytest.mark.long
def test_blocks_end_to_end_with_the_positive_control(state: Path, tmp_path: Path, lab: str) -> None:
    report = run_json(write_study(tmp_path, STUDY), "--lab", lab, "--no-stop", "--blocks", "24")
    assert report["trial"]["state"] == "done"
    assert failures_of(state) == []
    primary = {(e["workload"], e["response"]) for e in report["effects"] if e["primary"]}
    assert primary == {("warm", "wall"), ("mixed", "rate")}
    exploratory = {e["response"] for e in report["effects"] if not e["primary"]}
    assert {"read_p50", "read_p99", "write_p50"} <= exploratory
    positive = [control for control in report["controls"] if control["kind"] == "positive"]
    # 1 + 2 margins for a time, the inverse for a rate.
    assert {(c["response"], round(c["injected"], 2)) for c in positive} == {("wall", 1.4), ("rate", 0.71)}
    assert all(control["passed"] for control in positive)
    mixed, warm = (
        [run for run in stored_runs(state) if name in run["condition"]] for name in ("mixed", "warm")
    )
    assert mixed
    assert all(run["checks"]["bytes_read"] >= run["checks"]["bytes_expected"] > 0 for run in mixed)
    assert warm
    assert were_warm(warm)


LOAD = """
[study]
name = "load"
question = "Does the mode of a file matter to who has to wait?"
margin = "20 %"
[budget]
time = "60 s"
blocks = 2
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0644", "0444"]
[[workload]]
name = "load"
kind = "random"
size = "2 MiB"
operations = 420
rate = 200
series = true
cache = "warm"
"""


@pytest.mark.long
def test_open_arrivals_end_to_end(state: Path, tmp_path: Path) -> None:
    study = write_study(tmp_path, LOAD)
    report = run_json(study, "--lab", "directory", "--no-stop", "--blocks", "1")
    assert report["trial"]["state"] == "done"
    assert failures_of(state) == []
    assert [e["response"] for e in report["effects"] if e["primary"]] == ["read_p99"]
    assert {c["response"] for c in report["controls"] if c["kind"] == "positive"} == {"wall"}
    runs = stored_runs(state)
    for run in runs:
        # the intended start of the last of 420 operations is 419 periods after the first
        assert run["responses"]["wall"] >= 419 / 200
        assert 0 <= run["evidence"]["late_p50"] <= run["evidence"]["late_p999"]
        seconds = run["checks"]["seconds"]
        assert seconds["at_s"][:2] == [0.5, 1.5]
        assert 0 < sum(seconds["operations_rate"]) <= 420
        assert {len(column) for column in seconds.values()} == {len(seconds["at_s"])}
    page = tmp_path / "page.html"
    text = iotrial("report", "last", "--html", str(page)).stdout
    assert "Open arrivals, 200 per second" in " ".join(text.split())
    assert "The response compared is read p99." in text
    assert "operations completed in each second" in page.read_text()
