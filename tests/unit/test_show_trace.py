"""``iotrial show FILE.iotrace``: what an application did, and the same for fio."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from recorded_traces import MIB, call, data, database, write_trace

import program
from iotrial.report.recorded import bar, curve, recorded_report
from iotrial.report.similar import RULES, similar
from iotrial.report.text import plain_lines
from iotrial.study.catalogue import names
from iotrial.traces.fio_job import fio_job
from iotrial.traces.reading import summary_of
from iotrial.traces.summary import TraceSummary

SCHEMA = Path(__file__).parents[2] / "schemas" / "show.schema.json"
needs_fio = pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return database(tmp_path_factory.mktemp("traces") / "app.iotrace")


def summary(folder: Path, files: list[dict[str, Any]], operations: list[dict[str, Any]]) -> TraceSummary:
    made = write_trace(folder / "made.iotrace", files, operations, end={"duration_ns": 10**9})
    return summary_of(made)


def lines(of: TraceSummary, width: int = 80) -> list[str]:
    return plain_lines(recorded_report(of, similar(of), name="app.iotrace", width=width), width=width)


def run_fio(folder: Path, *words: str) -> dict[str, Any]:
    done = subprocess.run(
        ["fio", "--output-format=json", *words], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr + done.stdout
    found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    return found


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
    assert shown["syncs"]["writes_between"]["mean"] == 2
    assert (shown["complete"], shown["elsewhere"], shown["files"]["created"]) == (True, 17, 1)
    assert found["similar"]["studies"][0] == "application/database-durability"


def test_the_text_names_calls_files_syncs_and_what_is_missing(trace: Path) -> None:
    text = "\n".join(lines(summary_of(trace)))
    assert text.startswith(
        "app --fast read 320 KiB in 80 reads, wrote 320 KiB in 80 writes and synced 40 times"
    )
    for words in ("fdatasync", "db/main.db", "17 operations on files outside the folder", "--as fio"):
        assert words in text


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_every_line_fits_terminals_from_60_to_120_columns(trace: Path, width: int) -> None:
    assert max(map(len, lines(summary_of(trace), width))) <= width


def test_an_ascii_locale_without_colour_gets_ascii_only(trace: Path) -> None:
    environment = {**os.environ, "LC_ALL": "C", "NO_COLOR": "1", "COLUMNS": "80"}
    done = program.iotrial("show", str(trace), env=environment)
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "\x1b" not in done.stdout
    assert "?" not in done.stdout


def test_names_from_a_trace_cannot_control_the_terminal(tmp_path: Path) -> None:
    hostile = write_trace(
        tmp_path / "x.iotrace",
        [{"path": "a\x1b[2Jb", "size": 10}],
        [data("read", 0, 0, 10, at_us=1)],
        header={"command": ["evil\x1b]0;x\x07"], "under": "/\u202ex"},
    )
    done = program.iotrial("show", str(hostile))
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    assert "cut off" in done.stdout  # it has no end


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
        (["show", str(trace), "--as", "fio", "--json"], "both print"),
        (["show", str(trace), "--files", str(tmp_path)], "--as iolog"),
    ):
        done = program.iotrial(*words)
        assert done.returncode == 2, words
        assert wanted in done.stderr
        assert "hint:" in done.stderr
        assert done.stdout == ""


@needs_fio
def test_fio_replays_the_log_with_exactly_the_bytes_and_operations(trace: Path, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    done = program.iotrial("show", str(trace), "--as", "iolog", "--files", str(folder))
    assert done.returncode == 0, done.stderr
    assert [(file.name, file.stat().st_size) for file in folder.iterdir()] == [("000000-main.db", 4 * MIB)]
    (tmp_path / "app.log").write_text(done.stdout)
    found = run_fio(folder, "--name=replay", "--ioengine=psync", f"--read_iolog={tmp_path / 'app.log'}")
    job = found["jobs"][0]
    assert job["error"] == 0
    assert (job["read"]["io_bytes"], job["read"]["total_ios"]) == (80 * 4096, 80)
    assert (job["write"]["io_bytes"], job["write"]["total_ios"]) == (80 * 4096, 80)
    assert job["sync"]["total_ios"] == 40
    # The recorded times are kept: 40 transactions, one in a millisecond.
    assert job["job_runtime"] >= 39


@needs_fio
def test_the_job_of_fio_has_the_bytes_the_mix_and_the_syncs(trace: Path, tmp_path: Path) -> None:
    done = program.iotrial("show", str(trace), "--as", "fio")
    assert (done.returncode, done.stderr) == (0, "")
    (tmp_path / "app.fio").write_text(done.stdout)
    job = run_fio(tmp_path, "app.fio")["jobs"][0]
    total = job["read"]["io_bytes"] + job["write"]["io_bytes"]
    assert total == pytest.approx(160 * 4096, rel=0.05)
    operations = job["read"]["total_ios"] + job["write"]["total_ios"]
    assert operations == pytest.approx(160, rel=0.1)
    assert job["read"]["total_ios"] == pytest.approx(operations / 2, rel=0.2)
    assert job["sync"]["total_ios"] == pytest.approx(job["write"]["total_ios"] / 2, abs=2)


@needs_fio
def test_a_job_with_unaligned_sizes_has_their_mean(tmp_path: Path) -> None:
    sizes = [100, 5000, 70_000, 1] * 50
    operations = [
        data("write", 0, number * 100_000, size, at_us=number * 20) for number, size in enumerate(sizes)
    ]
    found = summary(tmp_path, [{"path": "f"}], operations)
    (tmp_path / "app.fio").write_text(fio_job(found))
    job = run_fio(tmp_path, "app.fio")["jobs"][0]
    assert job["write"]["io_bytes"] == pytest.approx(sum(sizes), rel=0.05)
    assert job["write"]["total_ios"] == pytest.approx(200, rel=0.25)  # the sizes are drawn


def test_threads_in_flight_become_jobs_and_io_uring_becomes_depth(tmp_path: Path) -> None:
    def work(**more: Any) -> list[dict[str, Any]]:
        return [
            data("read", 0, number * 4096, 4096, at_us=(number // 4) * 10, thread=number % 4, **more)
            for number in range(400)
        ]

    def job(operations: list[dict[str, Any]]) -> dict[str, str]:
        made = write_trace(tmp_path / "x.iotrace", [{"path": "f", "size": 4 * MIB}], operations, threads=4)
        return dict(line.split("=", 1) for line in fio_job(summary_of(made)).splitlines() if "=" in line)

    threads, uring = job(work()), job(work(uring=True))
    assert (threads["ioengine"], threads["numjobs"]) == ("psync", "4")
    assert (uring["ioengine"], uring["numjobs"], uring["iodepth"]) == ("io_uring", "1", "4")


def test_the_studies_of_all_rules_are_shipped() -> None:
    assert {name for rule in RULES for name in rule.studies} <= set(names())


SMALL = [{"path": f"d/{number}", "size": 3000} for number in range(50)]


@pytest.mark.parametrize(
    ("files", "operations", "wanted"),
    [
        (
            [{"path": "f", "size": 64 * MIB}],
            [data("read", 0, number * 131072, 131072, at_us=number * 20) for number in range(500)],
            "block/stream-read",
        ),
        (
            [{"path": "f"}],
            [data("write", 0, number * 131072, 131072, at_us=number * 20) for number in range(500)],
            "block/stream",
        ),
        (
            SMALL,
            [
                one
                for number in range(50)
                for one in (
                    call("open", number, at_us=number * 100, handle=number),
                    data("read", number, 0, 3000, at_us=number * 100 + 10),
                    call("close", number, at_us=number * 100 + 30, handle=number),
                )
            ],
            "mount/atime",
        ),
        (
            [{"path": f"{number}"} for number in range(50)],
            [
                one
                for number in range(50)
                for one in (
                    call("open", number, at_us=number * 100, handle=number),
                    data("write", number, 0, 3000, at_us=number * 100 + 10),
                    call("fsync", number, at_us=number * 100 + 30, handle=number),
                )
            ],
            "filesystem/durability",
        ),
        (SMALL, [call("stat", number, at_us=number * 10) for number in range(50)], "files/links"),
    ],
    ids=["reads in order", "writes in order", "small files read", "files synced", "names only"],
)
def test_the_closest_study_follows_from_the_mix(
    tmp_path: Path, files: list[dict[str, Any]], operations: list[dict[str, Any]], wanted: str
) -> None:
    found = similar(summary(tmp_path, files, operations))
    assert found.studies[0] == wanted
    assert found.reason


def test_a_trace_without_data_has_no_job(tmp_path: Path) -> None:
    write_trace(tmp_path / "x.iotrace", [{"path": "f", "size": 1}], [call("stat", 0, at_us=1)])
    done = program.iotrial("show", str(tmp_path / "x.iotrace"), "--as", "fio")
    assert done.returncode == 2
    assert "nothing for fio to do" in done.stderr


def test_small_values_are_seen_in_bars_and_curves() -> None:
    assert (bar(0, 40), bar(1e-6, 40), bar(1, 4)) == ("", "█", "████")
    assert curve([0, 1e-6, 0.5, 1]) == " ▁▄█"
    assert curve([0, 0]) == "  "
