"""``iotrial show FILE.iotrace``: what an application did, and the same for fio."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from recorded_traces import at_once, database, many_files, named, sequential

import program
from iotrial.report.recorded import bar, curve, recorded_report
from iotrial.report.similar import RULES, similar
from iotrial.report.text import plain_lines
from iotrial.study.catalogue import names
from iotrial.traces.fio_job import fio_job
from iotrial.traces.reading import summary_of
from iotrial.traces.summary import TraceSummary
from trace_files import MIB, MICROSECOND, Trace

SCHEMA = Path(__file__).parents[2] / "schemas" / "show.schema.json"
needs_fio = pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return database().write(tmp_path / "app.iotrace")


def summary(of: Trace, folder: Path) -> TraceSummary:
    return summary_of(of.write(folder / "made.iotrace"))


def lines(of: TraceSummary, width: int = 80) -> list[str]:
    return plain_lines(recorded_report(of, similar(of), name="app.iotrace", width=width), width=width)


def run_fio(folder: Path, *words: str) -> dict[str, Any]:
    """Run fio in a folder and return its one job."""
    done = subprocess.run(
        ["fio", "--output-format=json", *words], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr + done.stdout
    found = json.loads(done.stdout[done.stdout.index("{") :])
    (job,) = found["jobs"]
    assert job["error"] == 0
    return dict(job)


def test_the_document_has_the_numbers_of_the_trace_and_matches_the_schema(trace: Path) -> None:
    done = program.iotrial("show", str(trace), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    jsonschema.validate(found, json.loads(SCHEMA.read_text()))
    shown = found["trace"]
    counts = {one["call"]: one["operations"] for one in shown["calls"]}
    assert counts == {"open": 2, "close": 2, "read": 80, "write": 80, "fdatasync": 40}
    assert (shown["read"]["bytes"], shown["write"]["bytes"]) == (80 * 4096, 80 * 4096)
    assert (shown["write"]["sequential"], shown["write"]["random"], shown["write"]["first"]) == (79, 0, 1)
    assert (shown["syncs"]["files"], shown["syncs"]["writes_between"]["mean"]) == (1, 2)
    assert (shown["complete"], shown["elsewhere"], shown["files"]["created"]) == (True, 17, 1)
    assert found["similar"]["studies"][0] == "application/database-durability"


def test_the_text_names_calls_files_syncs_and_what_is_missing(trace: Path) -> None:
    text = "\n".join(lines(summary_of(trace), 120))
    wanted = "app --fast read 320 KiB in 80 reads, wrote 320 KiB in 80 writes and synced 40 times"
    assert text.startswith(wanted)
    for words in ("fdatasync", "db/main.db", "17 operations on files outside the folder", "--as fio"):
        assert words in text


@pytest.mark.parametrize("width", [60, 80, 100, 120])
@pytest.mark.parametrize("made", [database, at_once], ids=["database", "at once"])
def test_every_line_fits_terminals_from_60_to_120_columns(
    made: Callable[[], Trace], width: int, tmp_path: Path
) -> None:
    assert max(map(len, lines(summary(made(), tmp_path), width))) <= width


def test_an_ascii_locale_without_colour_gets_ascii_only(trace: Path) -> None:
    environment = {**os.environ, "LC_ALL": "C", "NO_COLOR": "1", "COLUMNS": "80"}
    done = program.iotrial("show", str(trace), env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert "\x1b" not in done.stdout
    assert "?" not in done.stdout


def test_names_from_a_trace_cannot_control_the_terminal(tmp_path: Path) -> None:
    hostile = named(["evil\x1b]0;x\x07"], "/\u202ex")
    hostile.file("a\x1b[2Jb", 10)
    hostile.op("read", file=0, length=10)
    path = tmp_path / "x.iotrace"
    path.write_bytes(hostile.bytes(complete=False))
    done = program.iotrial("show", str(path))
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    assert "cut off" in done.stdout


def test_what_is_no_trace_is_refused_with_what_to_do(tmp_path: Path, trace: Path) -> None:
    (tmp_path / "x.iotrace").write_bytes(b"something else")
    damaged = bytearray(trace.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    (tmp_path / "damaged.iotrace").write_bytes(damaged)
    for words, wanted in (
        (["show", str(tmp_path / "x.iotrace")], "not an .iotrace file"),
        (["show", str(tmp_path / "none.iotrace")], "no such file"),
        (["show", str(tmp_path / "damaged.iotrace")], "checksum"),
        (["show", "files/permissions", "--as", "fio"], "is not a trace"),
        (["show", str(trace), "--as", "fio", "--json"], "--as and --json exclude each other"),
        (["show", str(trace), "--files", str(tmp_path)], "--as iolog"),
    ):
        done = program.iotrial(*words)
        assert done.returncode == 2, words
        assert wanted in done.stderr
        assert re.search(r"\bhint\b", done.stderr)
        assert done.stdout == ""


def test_a_trace_is_known_by_its_content_whatever_its_name(tmp_path: Path) -> None:
    path = database(transactions=1).write(tmp_path / "trace.bin")
    assert "2 reads" in program.iotrial("show", str(path)).stdout


@needs_fio
def test_fio_replays_the_log_with_exactly_the_bytes_and_operations(trace: Path, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    done = program.iotrial("show", str(trace), "--as", "iolog", "--files", str(folder))
    assert done.returncode == 0, done.stderr
    assert [(file.name, file.stat().st_size) for file in folder.iterdir()] == [("000000-main.db", 4 * MIB)]
    (tmp_path / "app.log").write_text(done.stdout)
    job = run_fio(folder, "--name=replay", "--ioengine=psync", f"--read_iolog={tmp_path / 'app.log'}")
    assert (job["read"]["io_bytes"], job["read"]["total_ios"]) == (80 * 4096, 80)
    assert (job["write"]["io_bytes"], job["write"]["total_ios"]) == (80 * 4096, 80)
    assert job["sync"]["lat_ns"]["N"] == 40
    # Times are kept: the last of 40 transactions, one each millisecond, begins 39 ms after the first.
    assert job["job_runtime"] >= 38


@needs_fio
def test_the_job_of_fio_has_the_bytes_the_mix_and_the_syncs(trace: Path, tmp_path: Path) -> None:
    done = program.iotrial("show", str(trace), "--as", "fio")
    assert (done.returncode, done.stderr) == (0, "")
    (tmp_path / "app.fio").write_text(done.stdout)
    job = run_fio(tmp_path, "app.fio")
    assert job["read"]["io_bytes"] + job["write"]["io_bytes"] == pytest.approx(160 * 4096, rel=0.05)
    operations = job["read"]["total_ios"] + job["write"]["total_ios"]
    assert operations == pytest.approx(160, rel=0.1)
    assert job["read"]["total_ios"] == pytest.approx(operations / 2, rel=0.25)
    assert job["sync"]["lat_ns"]["N"] == pytest.approx(40, rel=0.3)  # fio draws reads and writes


@needs_fio
def test_a_job_with_unaligned_sizes_has_their_mean(tmp_path: Path) -> None:
    sizes = [100, 5000, 70_000, 1] * 50
    trace = named()
    trace.file("f", None)
    handle = trace.open("f", os.O_RDWR | os.O_CREAT)
    for place, size in enumerate(sizes):
        trace.op("write", handle=handle, at=place * 100_000, length=size)
    (tmp_path / "app.fio").write_text(fio_job(summary(trace, tmp_path)))
    job = run_fio(tmp_path, "app.fio")
    assert job["write"]["io_bytes"] == pytest.approx(sum(sizes), rel=0.05)
    assert job["write"]["total_ios"] == pytest.approx(200, rel=0.25)  # fio draws the sizes


@needs_fio
def test_the_job_of_many_files_and_threads_runs(tmp_path: Path) -> None:
    for made, total in ((many_files("read", count=1500), 1500 * 3000), (at_once(), 400 * 4096)):
        folder = tmp_path / str(total)
        folder.mkdir()
        (folder / "app.fio").write_text(fio_job(summary(made, tmp_path)))
        job = run_fio(folder, "app.fio")
        assert job["read"]["io_bytes"] == pytest.approx(total, rel=0.05)


def job_options(made: Trace, folder: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in fio_job(summary(made, folder)).splitlines() if "=" in line)


def test_the_options_of_a_job_are_those_of_the_operations(tmp_path: Path) -> None:
    made = named()
    made.file("a", 64 << 10)
    made.file("b", 64 << 10)
    plain, direct = made.open("a", os.O_RDWR), made.open("b", os.O_RDWR | os.O_DIRECT)
    for place in range(30):  # all but the first at random; 20 of 4 KiB, 10 of 8 KiB
        made.op("read", handle=plain, at=place * 7 % 16 * 4096, length=4096 << (place % 3 == 2))
    for place in range(10):
        made.op("write", handle=direct, at=place * 4096, length=4096)
    for place in range(5):
        made.op("fsync" if place < 3 else "fdatasync", handle=direct)
    found = job_options(made, tmp_path)
    assert (found["rw"], found["rwmixread"], found["direct"]) == ("randrw", "75", "0")
    assert found["bssplit"] == "4096/67:8192/33,4096/100"
    assert (found["nrfiles"], found["filesize"], found["numjobs"]) == ("2", str(64 << 10), "1")
    assert int(found["io_size"]) == 20 * 4096 + 10 * 8192 + 10 * 4096
    assert (found.get("fsync"), found.get("fdatasync")) == ("8", None)  # 40 operations, 5 syncs
    assert found["percentage_random"] == "100,0"
    for place in range(30):
        made.op("write", handle=direct, at=place * 4096, length=4096)
    assert job_options(made, tmp_path)["direct"] == "1"


def test_threads_share_the_bytes_and_the_files_of_a_job(tmp_path: Path) -> None:
    found = job_options(at_once(), tmp_path)
    assert (found["rw"], found["numjobs"]) == ("read", "4")
    assert int(found["io_size"]) == 400 * 4096 / 4
    assert job_options(at_once(files=8), tmp_path)["nrfiles"] == "2"
    assert job_options(many_files("write"), tmp_path)["rw"] == "write"
    assert "rwmixread" not in found


def test_threads_in_flight_become_jobs_and_io_uring_becomes_depth(tmp_path: Path) -> None:
    threads, uring = job_options(at_once(), tmp_path), job_options(at_once(uring=True), tmp_path)
    assert (threads["ioengine"], threads["numjobs"]) == ("psync", "4")
    assert (uring["ioengine"], uring["numjobs"], uring["iodepth"]) == ("io_uring", "1", "4")


def test_the_studies_of_all_rules_are_shipped() -> None:
    assert {name for rule in RULES for name in rule.studies} <= set(names())


def names_only() -> Trace:
    trace = named()
    for place in range(50):
        trace.file(f"{place}", 3000)
        trace.op("stat", file=place)
    return trace


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (sequential("read"), "block/stream-read"),
        (sequential("write"), "block/stream"),
        (many_files("read"), "mount/atime"),
        (many_files("write"), "filesystem/small-files"),
        (many_files("write", synced=True), "filesystem/durability"),
        (names_only(), "files/links"),
    ],
    ids=["reads in order", "writes in order", "files read", "files written", "files synced", "names only"],
)
def test_the_closest_study_follows_from_the_mix(made: Trace, wanted: str, tmp_path: Path) -> None:
    found = similar(summary(made, tmp_path))
    assert found.studies[0] == wanted
    assert found.reason


def test_a_trace_without_data_has_no_job(tmp_path: Path) -> None:
    path = names_only().write(tmp_path / "x.iotrace")
    done = program.iotrial("show", str(path), "--as", "fio")
    assert done.returncode == 2
    assert "nothing for fio to do" in done.stderr


def test_operations_in_flight_are_those_of_the_threads(tmp_path: Path) -> None:
    found = summary(at_once(), tmp_path).concurrency
    assert (found.threads, found.threads_with_io, found.peak) == (4, 4, 4)
    assert found.busy_ns == 100 * 10 * MICROSECOND
    assert found.mean_while_busy == 4


def test_small_values_are_seen_in_bars_and_curves() -> None:
    assert (bar(0, 40), bar(1e-6, 40), bar(1, 4)) == ("", "█", "████")
    assert curve([0, 1e-6, 0.5, 1]) == " ▁▄█"
    assert curve([0, 0]) == "  "
