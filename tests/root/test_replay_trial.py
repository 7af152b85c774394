"""Whole trials of kind replay, on an image and in a directory."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from running import failures_of, iotrial, run_json, stored_runs, write_study
from test_in_place import contents, mounted, settings

from trace_files import MIB, Trace, small

__all__ = ["mounted"]
pytestmark = pytest.mark.root

STUDY = """
[study]
name = "app"
question = "Does the read-ahead matter to the application?"
margin = "50 %"
[lab]
size = "96 MiB"
[budget]
time = "30 s"
blocks = 4
[[factor]]
name = "readahead"
knob = "block.read_ahead_kb"
levels = [128, 0]
[[workload]]
name = "app"
kind = "replay"
trace = "app.iotrace"
timing = "flat-out"
cache = "cold"
latencies = ["read", "fsync"]
"""


def test_a_trial_on_an_image_is_cold_and_does_what_was_recorded(state: Path, tmp_path: Path) -> None:
    trace = small()
    trace.write(tmp_path / "app.iotrace")
    study = write_study(tmp_path, STUDY)
    report = run_json(study, "--lab", "image", "--no-stop", "--blocks", "4")
    assert report["trial"]["state"] == "done"
    assert failures_of(state) == []
    runs = stored_runs(state)
    assert len(runs) >= 8
    for run in runs:
        checks = run["checks"]
        assert checks["replay"] == {"operations": trace.operations, "other_results": 0}
        assert checks["bytes_read"] >= checks["bytes_expected"] == 8192 + 4096
        assert {"wall", "rate", "read_p99", "fsync_p50", "operation_p99"} <= set(run["responses"])
        assert run["responses"]["other_results"] == 0.0
        assert run["evidence"]["replay_read_bytes"] == 72 << 10
    # The stored study keeps the trace's folder and checksum.
    (tmp_path / "app.iotrace").unlink()
    done = iotrial("run", study, "--lab", "image", check=None)
    assert done.returncode != 0
    assert "app.iotrace: cannot be read: No such file or directory" in done.stderr


def test_a_replay_that_falls_behind_is_marked_and_reported(state: Path, tmp_path: Path) -> None:
    trace = Trace()
    trace.thread()
    trace.file("b", None)
    handle = trace.open("b", os.O_RDWR | os.O_CREAT)
    for number in range(40):
        trace.op("write", handle=handle, at=number * MIB, length=MIB)
        trace.op("fsync", handle=handle)
    trace.write(tmp_path / "app.iotrace")
    text = STUDY.replace('"flat-out"', '"open"').replace('cache = "cold"\n', "")
    text = text.replace('latencies = ["read", "fsync"]', 'latencies = ["fsync"]')
    report = run_json(write_study(tmp_path, text), "--lab", "image", "--no-stop", "--blocks", "2")
    assert failures_of(state) == []
    runs = stored_runs(state)
    assert {run["checks"]["replay"]["fell_behind"] for run in runs} == {True}
    assert all(run["responses"]["behind_share"] > 1.0 for run in runs)
    assert {e["response"] for e in report["effects"] if e["primary"]} == {"fsync_p99"}
    assert "fell behind the recording" in " ".join(iotrial("report").stdout.split())


def test_a_warm_replay_in_a_directory(state: Path, tmp_path: Path) -> None:
    small().write(tmp_path / "app.iotrace")
    knob = 'knob = "block.read_ahead_kb"\nlevels = [128, 0]'
    assert knob in STUDY
    text = STUDY.replace(knob, 'knob = "work.option"\noption = "calls"\nlevels = ["recorded", "io_uring"]')
    text = text.replace('"cold"', '"warm"').replace('size = "96 MiB"\n', "")
    with tempfile.TemporaryDirectory(prefix="iotrial-test-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)  # the replay is that of another user
        where = ("--lab", "directory", "--on", folder)
        report = run_json(write_study(tmp_path, text), *where, "--no-stop", "--blocks", "3")
    assert report["trial"]["state"] == "done"
    assert failures_of(state) == []
    assert {run["checks"]["replay"]["other_results"] for run in stored_runs(state)} == {0}


def test_a_trace_that_lacks_a_call_or_does_not_fit_is_a_clear_error(state: Path, tmp_path: Path) -> None:
    small().write(tmp_path / "app.iotrace")
    text = STUDY.replace('["read", "fsync"]', '["send"]')
    done = iotrial("run", write_study(tmp_path, text), "--lab", "image", check=None)
    assert done.returncode != 0
    assert 'no call of the trace is called "send"' in done.stderr
    large = Trace()
    large.thread()
    large.file("large", 500 * MIB)
    large.op("read", handle=large.open("large"), at=0, length=4096)
    large.write(tmp_path / "app.iotrace")
    text = STUDY.replace('latencies = ["read", "fsync"]', "")
    done = iotrial("run", write_study(tmp_path, text), "--lab", "image", check=None)
    assert done.returncode != 0
    assert "MiB are free" in done.stderr
    assert "use a larger lab: --size" in done.stderr


def test_try_replays_on_the_disk_that_holds_the_folder_and_leaves_nothing_there(
    state: Path, mounted: Path, disk_folder: Path, tmp_path: Path
) -> None:
    disk_folder.chmod(0o755)  # the replay is that of another user
    trace = small()
    trace.lost = 2
    words = ("--replay", str(trace.write(tmp_path / "app.iotrace")), "--in", str(mounted), "--cache", "cold")
    before, held = settings(mounted), contents(mounted)
    ending = ("--yes", "--blocks", "3", "--no-stop")
    done = iotrial("try", "block.read_ahead_kb=16,1024", *words, *ending)
    assert "app.iotrace: 2 operations could not be recorded" in done.stderr
    assert (settings(mounted), contents(mounted)) == (before, held)
    assert not list(mounted.glob("iotrial*"))
    assert failures_of(state) == []
    runs = stored_runs(state)
    assert len(runs) >= 6
    for run in runs:
        checks = run["checks"]
        assert checks["replay"] == {"operations": trace.operations, "other_results": 0}
        assert checks["bytes_read"] >= checks["bytes_expected"] == 8192 + 4096
    report = " ".join(iotrial("report", "--full").stdout.split())
    assert "The recording lacks 2 operations that could not be recorded" in report
    planned = iotrial("best", "--over", "block.read_ahead_kb=16,4096", *words, "--plan").stdout
    assert "read_ahead_kb: today 764" in planned
    assert "replay of app.iotrace" in planned


def test_try_replays_on_an_image_what_a_file_system_in_use_cannot_have(state: Path, tmp_path: Path) -> None:
    trace = small()
    saved = tmp_path / "saved" / "study.toml"
    saved.parent.mkdir()
    replay = ("--replay", str(trace.write(tmp_path / "app.iotrace")), "--lab", "image", "--size", "320MiB")
    iotrial(
        "try",
        "filesystem.type=ext4,xfs",
        *replay,
        "--blocks",
        "2",
        "--no-stop",
        "--save",
        str(saved),
        "--json",
    )
    assert failures_of(state) == []
    runs = stored_runs(state)
    assert {run["treatment"]["type"] for run in runs} == {"ext4", "xfs"}
    assert {run["checks"]["replay"]["operations"] for run in runs} == {trace.operations}
    assert "replay of app.iotrace" in iotrial("plan", str(saved)).stdout
