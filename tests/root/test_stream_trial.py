"""Whole trials of streams and fio job files: the kernel's counters confirm the bytes moved, and fio's numbers
are the responses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from running import failures_of, iotrial, of_a_stranger, run_json, stored_runs, write_study

pytestmark = pytest.mark.root
MIB = 1 << 20

STREAMS = """
[study]
name = "streams"
question = "?"
[lab]
size = "96 MiB"
[budget]
blocks = 2
[[factor]]
name = "cache"
knob = "work.option"
option = "direct"
levels = [{ label = "buffered", value = false }, { label = "direct", value = true }]
[[factor]]
name = "block"
knob = "work.option"
option = "block_size"
levels = ["64 KiB", "1 MiB"]
role = "condition"
[[workload]]
name = "write"
kind = "stream"
operation = "write"
size = "4 MiB"
data = "50 % random"
flush = "fsync"
[[workload]]
name = "read"
kind = "stream"
operation = "read"
size = "4 MiB"
"""

ON_THE_DEVICE = """
[[workload]]
name = "device"
kind = "stream"
operation = "read"
on = "device"
volume = "16 MiB"
[[workload]]
name = "hdparm"
kind = "stream"
operation = "read"
on = "device"
time = "20 ms"
"""

FIO = """
[study]
name = "fio"
question = "?"
[lab]
size = "96 MiB"
[budget]
blocks = 2
[[factor]]
name = "depth"
knob = "command.argument"
placeholder = "{engine}"
levels = ["psync", "pvsync2"]
[[workload]]
name = "random"
kind = "fio"
file = "random.fio"
pick = ["jobs.rand-read.read.iops", { path = "jobs.rand-read.read.io_bytes", name = "read" }, "usr_cpu"]
"""
JOB = "[global]\nioengine={engine}\nsize=2m\n[rand-read]\nrw=randread\nbs=4k\n"


AT_ONCE = """
[study]
name = "at-once"
question = "?"
[lab]
size = "96 MiB"
[budget]
blocks = 2
[[factor]]
name = "readahead"
knob = "block.read_ahead_kb"
levels = [128, 512]
[[workload]]
name = "two"
kind = "stream"
operation = "read"
streams = 2
size = "4 MiB"
[[workload]]
name = "copy"
kind = "stream"
operation = "copy"
size = "4 MiB"
[[workload]]
name = "shared-out"
kind = "stream"
operation = "write"
streams = 3
shared = true
volume = "1 MiB"
size = "4 MiB"
[[workload]]
name = "again"
kind = "stream"
operation = "rewrite"
size = "4 MiB"
flush = "fsync"
[[response]]
name = "rate"
primary = true
[[response]]
name = "io_wait"
[[response]]
name = "device_busy"
"""


@pytest.mark.long
def test_several_streams_copies_and_rewriting_move_what_the_study_says(
    state: Path, disk_folder: Path
) -> None:
    study = write_study(state.parent, AT_ONCE)
    report = run_json(study, "--lab", "image", "--on", str(disk_folder), "--no-stop")
    assert failures_of(state) == []
    assert report["void"] == []
    moved = {"two": 8, "copy": 4, "shared-out": 1, "again": 4}
    for run in stored_runs(state):
        workload = run["condition"].removeprefix("workload=")
        responses, evidence = run["responses"], run["evidence"]
        assert evidence["stream_bytes"] == moved[workload] * MIB
        assert 0 <= responses["io_wait"] <= 100
        assert 0 <= responses["device_busy"] <= 100
        if workload in ("two", "copy"):  # no other workload changes the files that these read
            assert responses["device_read_bytes"] >= moved[workload] * MIB
        if workload == "two":
            assert 50 <= evidence["stream_fairness"] <= 100
            assert responses["rate"] <= evidence["stream_sum_of_own_rate"] * 1.0001
        else:
            assert responses["device_write_bytes_synced"] >= moved[workload] * MIB
        if workload == "again":
            assert responses["device_write_bytes"] >= 4 * MIB
    named = {e["response"] for e in report["effects"] if not e["primary"]}
    assert {"io_wait", "device_busy"} <= named


@pytest.mark.parametrize("lab", ["image", pytest.param("directory", marks=pytest.mark.long)])
def test_streams_move_what_the_study_says(state: Path, disk_folder: Path, lab: str) -> None:
    study = write_study(state.parent, STREAMS + (ON_THE_DEVICE if lab == "image" else ""))
    report = run_json(study, "--lab", lab, "--on", str(disk_folder), "--no-stop", "--seed", "1")
    assert failures_of(state) == []
    assert report["void"] == []
    runs = stored_runs(state)
    assert {run["arm"] for run in runs} >= {"buffered", "direct"}
    for run in runs:
        blocks = 64 if "block=64 KiB" in run["condition"] else 4
        responses, evidence = run["responses"], run["evidence"]
        if "workload=write" in run["condition"]:
            assert evidence["stream_bytes"] == 4 * MIB
            assert responses["device_write_bytes"] >= 4 * MIB
        elif "workload=read" in run["condition"]:
            assert evidence["stream_bytes"] == 4 * MIB
            assert evidence["start_pages_resident"] == 0
            assert responses["device_read_bytes"] >= 4 * MIB
        elif "workload=device" in run["condition"]:
            assert evidence["stream_bytes"] == 16 * MIB
            continue
        else:
            assert "wall" not in responses
            assert responses["rate"] > 0
            continue
        if lab == "image" and run["arm"] == "direct":
            ios = evidence["device_write_ios" if "workload=write" in run["condition"] else "device_read_ios"]
            assert ios >= blocks
        if not run["arm"].startswith("control"):
            assert responses["rate"] * responses["wall"] == pytest.approx(4 * MIB)


def test_a_device_is_streamed_in_a_lab_that_has_one(state: Path, disk_folder: Path) -> None:
    study = write_study(state.parent, STREAMS + ON_THE_DEVICE)
    refused = iotrial("run", study, "--lab", "directory", "--on", str(disk_folder), check=2)
    assert "a directory lab has no disk of its own" in refused.stderr


def test_an_option_that_a_workload_has_not_is_refused_before_anything_is_changed(state: Path) -> None:
    for old, new, message in (
        ('option = "direct"', 'option = "directt"', 'no option of stream is called "directt"'),
        ('option = "direct"', 'option = "operation"', 'no option of stream is called "operation"'),
        ('"1 MiB"]', '"1000 B"]', "whole sectors of 512 bytes, found 1000"),
        ('"1 MiB"]', '"1 Mib/s"]', "block_size"),
        ('kind = "stream"\noperation = "read"', 'kind = "files"\noperations = ["stat"]', "no option"),
    ):
        study = write_study(state.parent, STREAMS.replace(old, new))
        refused = iotrial("plan", study, check=2)
        assert message in refused.stderr


@pytest.mark.skipif(not shutil.which("fio"), reason="needs fio")
@pytest.mark.parametrize("lab", [pytest.param("image", marks=pytest.mark.long), "directory"])
def test_a_fio_job_runs_in_the_lab_and_its_numbers_are_responses(
    state: Path, disk_folder: Path, lab: str
) -> None:
    (state.parent / "random.fio").write_text(JOB)
    study = write_study(state.parent, FIO)
    report = run_json(study, "--lab", lab, "--on", str(disk_folder), "--no-stop")
    assert failures_of(state) == []
    for run in stored_runs(state):
        assert run["responses"]["read"] == 2 * MIB
        assert run["responses"]["jobs.rand-read.read.iops"] > 0
    assert {e["response"] for e in report["effects"] if e["primary"]} == {"jobs.rand-read.read.iops"}
    positive = next(control for control in report["controls"] if control["kind"] == "positive")
    assert positive["response"] == "wall"
    said = iotrial("report", "last", "--markdown", str(state / "r.md"))
    text = " ".join((said.stdout + (state / "r.md").read_text()).split())
    assert "can be injected into what the program reports" in text
    assert not list(disk_folder.glob("**/rand-read.0.0"))  # removed with the lab


@pytest.mark.skipif(not shutil.which("fio"), reason="needs fio")
def test_a_number_that_fio_does_not_give_ends_the_trial_with_near_ones(
    state: Path, disk_folder: Path
) -> None:
    (state.parent / "random.fio").write_text(JOB)
    study = write_study(state.parent, FIO.replace("rand-read.read.iops", "rand-read.read.iosp"))
    text = (
        Path(study)
        .read_text()
        .replace('"jobs.rand-read.read.iosp"', '{ path = "jobs.rand-read.read.iosp", unit = "1/s" }')
    )
    refused = iotrial(
        "run", write_study(state.parent, text), "--lab", "directory", "--on", str(disk_folder), check=2
    )
    assert 'no number "jobs.rand-read.read.iosp"' in refused.stderr
    assert "jobs.rand-read.read.iops" in refused.stderr


@pytest.mark.skipif(not shutil.which("fio"), reason="needs fio")
def test_a_job_that_fio_cannot_parse_is_refused_before_the_lab_is_made(
    state: Path, disk_folder: Path
) -> None:
    (state.parent / "random.fio").write_text(JOB.replace("bs=4k", "bs=4k\nrwmixread=abc"))
    study = write_study(state.parent, FIO)
    refused = iotrial("run", study, "--lab", "directory", "--on", str(disk_folder), check=2)
    assert "rwmixread" in refused.stderr
    assert not (state / "trials.db").exists()


@pytest.mark.skipif(not shutil.which("fio"), reason="needs fio")
def test_a_job_larger_than_the_lab_is_refused_before_the_lab_is_made(state: Path) -> None:
    (state.parent / "random.fio").write_text(JOB.replace("size=2m", "size=200m"))
    refused = iotrial("plan", write_study(state.parent, FIO), "--lab", "image", check=2)
    assert "lay out files of 200 MiB, in a lab of 96 MiB" in refused.stderr
    assert "size in [lab]" in refused.stderr


@pytest.mark.skipif(not shutil.which("fio"), reason="needs fio")
def test_files_of_a_job_that_failed_are_not_read_by_later_runs(state: Path, disk_folder: Path) -> None:
    # the size is only known to the shell that evaluates it, so the plan cannot refuse it
    job = JOB.replace("size=2m", "size=$pagesize*51200").replace("rw=randread", "rw=read\ndirect=1")
    (state.parent / "random.fio").write_text(job)
    study = write_study(state.parent, FIO)
    iotrial(
        "run",
        study,
        "--trust",
        "--lab",
        "image",
        "--on",
        str(disk_folder),
        "--no-stop",
        "--no-controls",
        check=None,
    )
    runs = stored_runs(state)
    assert len(runs) >= 4
    assert [run["failure"] for run in runs if "No space left" not in str(run["failure"])] == []


HOLES = """[written]
filename=/dev/nvme0n1
rw=write
size=8m
io_size=64k
ioengine={engine}
[rand-read]
stonewall
filename=/dev/nvme0n1
rw=read
bs=64k
direct=1
size=8m
ioengine={engine}
"""


@pytest.mark.skipif(not shutil.which("fio"), reason="needs fio")
@pytest.mark.parametrize("lab", ["image", "directory"])
def test_a_run_that_reads_what_was_never_written_fails(state: Path, disk_folder: Path, lab: str) -> None:
    (state.parent / "random.fio").write_text(HOLES)
    study = write_study(state.parent, FIO.replace(', "usr_cpu"', ""))
    options = ("--lab", lab, "--on", str(disk_folder), "--no-stop", "--no-controls")
    iotrial("run", study, *options, check=None)
    runs = stored_runs(state)
    assert runs
    for run in runs:
        assert "read 8 MiB past the page cache, but only" in run["failure"]
    # written whole, the same job reads from the device
    (state.parent / "random.fio").write_text(HOLES.replace("io_size=64k\n", ""))
    before = len(runs)
    iotrial("run", study, *options)
    runs = stored_runs(state)[before:]
    assert [run["failure"] for run in runs] == [None] * 4
    for run in runs:
        assert run["responses"]["device_read_bytes"] >= 8 * MIB
    said = iotrial("report", "last", "--markdown", str(state / "r.md")).stdout + (state / "r.md").read_text()
    for text in (iotrial("plan", study, "--lab", lab).stdout, said):
        assert "filename=/dev/nvme0n1: file nvme0n1 of the lab" in " ".join(text.split())


@pytest.mark.skipif(not shutil.which("fio"), reason="needs fio")
@pytest.mark.parametrize("lab", ["image", pytest.param("directory", marks=pytest.mark.long)])
def test_a_cold_run_of_buffered_fio_reads_from_the_device(state: Path, disk_folder: Path, lab: str) -> None:
    # without invalidate=0 fio itself empties the cache
    (state.parent / "random.fio").write_text(JOB.replace("bs=4k", "bs=4k\ninvalidate=0"))
    study = write_study(state.parent, FIO.replace('kind = "fio"', 'kind = "fio"\ncache = "cold"'))
    iotrial("run", study, "--lab", lab, "--on", str(disk_folder), "--no-stop", "--no-controls")
    runs = stored_runs(state)
    assert [run["failure"] for run in runs] == [None] * len(runs)
    for run in runs:
        assert run["checks"]["bytes_expected"] >= int(0.9 * 2 * MIB)
        assert run["checks"]["bytes_read"] >= 2 * MIB
        assert "void" not in run["checks"]


def test_a_job_that_reaches_beyond_the_lab_needs_trust(state: Path) -> None:
    (state.parent / "random.fio").write_text(JOB + "exec_prerun=touch /tmp/iotrial-was-here\n")
    study = of_a_stranger(write_study(state.parent, FIO))
    refused = iotrial("run", study, check=2)
    assert "exec_prerun" in refused.stderr
    assert "--trust" in refused.stderr
    shown = iotrial("plan", study, "--trust")
    assert "exec_prerun=touch /tmp/iotrial-was-here" in shown.stdout
    assert not Path("/tmp/iotrial-was-here").exists()


@pytest.mark.long
def test_a_machine_without_fio_says_what_to_install(state: Path, tmp_path: Path) -> None:
    (state.parent / "random.fio").write_text(JOB)
    study = write_study(state.parent, FIO)
    code = (
        "import sys; from iotrial.runner import requirements; "
        "requirements.TOOL_FOLDERS = sys.argv.pop(1); from iotrial.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), "plan", study, "--lab", "directory", "--json"],
        capture_output=True, text=True, check=False, env={**os.environ, "PATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 2
    error = json.loads(done.stderr)["error"]
    assert "fio is not installed" in error["message"]
    assert "apt-get install fio" in error["hint"]
