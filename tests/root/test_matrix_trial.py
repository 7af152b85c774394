"""A matrix as a whole trial on this machine: real file systems, the kernel's own counters, all cells end to
end."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest
from running import failures_of, iotrial, run_json, stored_runs, write_study

pytestmark = pytest.mark.root

TESTS = {
    "write", "rewrite", "read", "reread", "random_read", "random_write", "backward_read", "record_rewrite",
    "stride_read", "fwrite", "frewrite", "fread", "freread",
}  # fmt: skip
CELLS = ("--condition", "file_size=256KiB,1MiB", "--condition", "record_size=4KiB,64KiB")
MIB = 1 << 20


@pytest.mark.long
def test_two_by_two_cells_of_two_file_systems(state: Path) -> None:
    report = run_json("matrix/iozone", *CELLS, "--blocks", "2", "--no-stop", "--time", "120s")
    assert report["trial"]["state"] == "done"
    primary = [effect for effect in report["effects"] if effect["primary"] and effect["kind"] == "main"]
    places = {(e["condition"]["file_size"], e["condition"]["record_size"], e["response"]) for e in primary}
    assert places == {
        (file, record, f"{test}_time")
        for file in ("256 KiB", "1 MiB")
        for record in ("4 KiB", "64 KiB")
        for test in TESTS
    }
    assert failures_of(state) == []
    assert report["void"] == []
    runs = stored_runs(state)
    # Even blocks hold a copy of the reference's stretch (whole plot), odd ones a slowed arm in each stretch; everything
    # is run twice per stretch.
    assert len(runs) == 4 * 2 * ((2 + 1) + (2 + 2))
    for run in runs:
        times = {name for name in run["responses"] if name.endswith("_time")}
        assert times == {f"{test}_time" for test in TESTS}
        assert all(run["responses"][name] > 0 for name in times)
        together = sum(run["responses"][name] for name in times)
        if "positive" in run["arm"]:  # the slowdown is in the tests, not in the whole
            assert run["responses"]["wall"] < together
        else:
            assert run["responses"]["wall"] == pytest.approx(together, rel=1e-6)
    # The median, since a spin that loses the CPU is not corrected.
    slowed = [run["checks"]["injected"] for run in runs if "positive" in run["arm"]]
    assert median(slowed) == pytest.approx(1.1, abs=0.02)
    (page,) = (state / "reports").glob("1-*.html")
    assert '<section id="matrix">' in page.read_text()
    assert "1 MiB" in iotrial("report", "last").stdout


def test_direct_cells_move_their_bytes_between_file_and_device(state: Path) -> None:
    run_json(
        "matrix/iozone",
        *(
            "--condition",
            "file_size=1MiB",
            "--condition",
            "record_size=64KiB",
            "--condition",
            "workload=direct",
        ),
        *("--blocks", "1", "--no-controls"),
    )
    runs = stored_runs(state)
    assert failures_of(state) == []
    assert len(runs) == 4
    for run in runs:
        moved = {**run["responses"], **run["evidence"]}
        # Five direct tests read the file, two of them one record before that; six write it, one of them the
        # same record repeatedly.
        assert moved["device_read_bytes"] >= 5 * MIB + 2 * 65536
        assert moved["device_write_bytes"] >= 6 * MIB


CACHED = """
[study]
name = "own/cold"
question = "Does read-ahead matter to cold sequential reads?"
[lab]
kind = "image"
size = "64 MiB"
[[factor]]
name = "read_ahead"
knob = "block.read_ahead_kb"
levels = ["0", "1024"]
[[factor]]
name = "file_size"
knob = "matrix.file_size"
levels = ["1 MiB", "{size}"]
role = "condition"
[[workload]]
name = "cold"
kind = "matrix"
tests = ["read", "reread"]
record_size = "4 KiB"
cold = true
"""


def test_cold_reads_come_from_the_device_in_requests_as_large_as_read_ahead_makes_them(
    state: Path, tmp_path: Path
) -> None:
    study = write_study(tmp_path, CACHED.format(size="4 MiB"))
    run_json(study, "--blocks", "2", "--no-controls", "--no-stop")
    assert failures_of(state) == []
    requests: dict[tuple[bool, str], list[float]] = {}
    for run in stored_runs(state):
        size = 4 * MIB if "4 MiB" in run["condition"] else MIB
        moved = {**run["responses"], **run["evidence"]}
        assert size <= moved["device_read_bytes"] <= 1.5 * size, (
            "read cold once, and the second time from the cache"
        )
        requests.setdefault((size > MIB, run["treatment"]["read_ahead"]), []).append(moved["device_read_ios"])
    for large in (False, True):
        assert min(requests[large, "0"]) > 4 * max(requests[large, "1024"])


def test_a_file_that_the_lab_cannot_hold_is_refused_before_anything_is_made(
    state: Path, tmp_path: Path
) -> None:
    study = write_study(tmp_path, CACHED.format(size="1 GiB"))
    done = iotrial("run", study, check=2)
    assert "a file of 1024 MiB in a lab of 64 MiB" in done.stderr
