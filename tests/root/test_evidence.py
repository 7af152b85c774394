"""Evidence of whole trials: the mechanism in the table, samples in the HTML page, a meter's energy in the
runs."""

from __future__ import annotations

import json
import math
import statistics
import time
from pathlib import Path

import pytest
from running import iotrial, run_json, stored_runs, write_study

from study_texts import reading

pytestmark = pytest.mark.root

ATIME = """
[study]
name = "access-times"
question = "Is reading slower where access times are written?"
[lab]
kind = "image"
size = "64 MiB"
[budget]
time = "60 s"
[[factor]]
name = "atime"
knob = "mount.atime"
levels = ["strictatime", "noatime"]
""" + reading(files=60, cache="warm", operations=("open", "read", "close"))

NAP = """
[study]
name = "nap"
question = "?"
[lab]
kind = "directory"
[budget]
time = "60 s"
[[factor]]
name = "size"
knob = "environment.variable"
variable = "SECONDS_OF_SLEEP"
levels = ["a", "b"]
[[workload]]
name = "sleep"
kind = "command"
argv = ["sleep", "0.3"]
"""


@pytest.mark.long
def test_the_inodes_that_access_times_dirty_stand_first_among_what_moved(state: Path, tmp_path: Path) -> None:
    report = run_json(write_study(tmp_path, ATIME), "--blocks", "24", "--no-stop")
    rows = {
        (row["metric"], row["treatment"]): row
        for row in report["evidence"]
        if row["metric"].startswith("device_")
    }
    dirtied = rows["device_inodes_dirtied", "strictatime"]["value"]
    assert 60 <= dirtied <= 62
    assert rows["device_inodes_dirtied", "noatime"]["value"] == 0
    moved = [row["metric"] for row in report["evidence"] if row["moved"]]
    counted = [metric for metric in moved if metric.startswith(("device_", "work_", "system_"))]
    assert rows["device_inodes_dirtied", "noatime"]["moved"] == "down"
    assert "device_write_bytes_synced" in counted
    assert "device_inodes_dirtied" in counted[:4]
    # the work's own calls are the same in both arms, and known: one read per file
    runs = stored_runs(state)
    assert {run["evidence"]["work_read_calls"] for run in runs} == {60.0}
    assert not {metric for metric in moved if metric.startswith("work_")}


@pytest.mark.long
def test_samples_are_drawn_and_a_meter_gives_runs_their_energy(state: Path, tmp_path: Path) -> None:
    before = time.time()
    page = tmp_path / "page.html"
    iotrial(
        *("run", write_study(tmp_path, NAP), "--trust", "--blocks", "3", "--no-stop", "--sample", "20ms"),
        *("--html", str(page)),
    )
    after = time.time()
    runs = stored_runs(state)
    for run in runs:
        at_s, lasted_s = run["checks"]["series"]["at_s"], run["checks"]["clock"]["lasted_s"]
        assert len(at_s) <= lasted_s / 0.02 + 1
        assert all(0 <= at <= lasted_s for at in at_s)
        assert before <= run["checks"]["clock"]["unix_s"] <= after - 0.3
        assert run["checks"]["clock"]["lasted_s"] >= 0.3
    # if the machine stalls for a moment, the runs of that moment lose samples
    assert statistics.median(len(run["checks"]["series"]["at_s"]) for run in runs) >= 6
    assert "Within a run" in page.read_text()
    # constant 100 W: the energy of a run in J is 100 times its duration in s
    rows = [f"{before - 1 + i / 10:.2f},100" for i in range(math.ceil(10 * (after - before)) + 20)]
    (tmp_path / "meter.csv").write_text("\n".join(["time,watts", *rows]))
    document = json.loads(iotrial("meter", "last", str(tmp_path / "meter.csv"), "--json").stdout)["meter"]
    assert document["with_energy"] == document["runs"] == len(runs)
    assert document["joules"] == pytest.approx(
        sum(100 * run["checks"]["clock"]["lasted_s"] for run in runs), rel=1e-3
    )
    report = json.loads(iotrial("report", "last", "--json").stdout)
    energy = [row for row in report["evidence"] if row["metric"] == "energy_metered"]
    assert {row["unit"] for row in energy} == {"J"}
    longest = max(run["checks"]["clock"]["lasted_s"] for run in runs)
    assert all(30 <= row["value"] <= 100.1 * longest for row in energy)


def test_a_period_that_cannot_be_sampled_is_refused(tmp_path: Path) -> None:
    for period, told in (("1ms", "expected 10 ms to 1 min"), ("often", "--sample")):
        done = iotrial("run", write_study(tmp_path, NAP), "--trust", "--sample", period, check=2)
        assert told in done.stderr
