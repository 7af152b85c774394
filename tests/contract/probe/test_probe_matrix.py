"""The matrix job: its system calls by strace compared with the published description, its verification, its
refusals."""

from __future__ import annotations

import re
import shutil
import statistics
import threading
from pathlib import Path
from typing import Any

import pytest
from probe_client import Lab, Probe, ProbeError, content, descriptors, make_set, mixed, names

TESTS = [
    "write", "rewrite", "read", "reread", "random-read", "random-write", "backward-read", "record-rewrite",
    "stride-read", "fwrite", "frewrite", "fread", "freread",
]  # fmt: skip
WRITING = {"write", "rewrite", "random-write", "record-rewrite", "fwrite", "frewrite"}
RECORD, RECORDS = 4096, 40
SIZE = RECORD * RECORDS
RISING = [n * RECORD for n in range(RECORDS)]
CALLS = "openat,read,write,lseek,fsync,fdatasync,close,unlink,unlinkat,getrusage"

needs_strace = pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")


def matrix(probe: Probe, **fields: Any) -> dict[str, Any]:
    return probe("matrix", **{"set": "s", "file_size": SIZE, "record_size": RECORD, **fields})


def several(probe: Probe, **fields: Any) -> None:
    for _ in range(20):
        matrix(probe, **fields)


class Timed:
    """One test as seen by strace: the calls between the two readings of its usage, and how its file was
    opened."""

    def __init__(self, opened: str, calls: list[str], before: list[str], after: list[str]) -> None:
        self.opened, self.calls, self.before, self.after = opened, calls, before, after

    @property
    def names(self) -> list[str]:
        return [call.split("(")[0] for call in self.calls]

    def offsets(self, name: str) -> list[int]:
        """Return the offset of each read or write, following the seeks as the kernel does."""
        at, found = 0, []
        for call in self.calls:
            if call.startswith("lseek("):
                at = int(re.search(r"lseek\(\d+, (\d+), SEEK_SET", call)[1])
            elif call.startswith(f"{name}("):
                assert call.endswith(f", {RECORD}) = {RECORD}"), call
                found.append(at)
                at += RECORD
        return found


def traced(folder: Path, **fields: Any) -> dict[str, Timed]:
    log = folder / "strace.log"
    probe = Probe(prefix=("strace", "-f", "-s", "0", "-o", str(log), "-e", f"trace={CALLS}"))
    make_set(probe, folder, count=1)
    done = matrix(probe, **fields)
    assert probe.close() == 0
    lines = [re.sub(r"^\d+\s+", "", line) for line in log.read_text().splitlines()]
    lines = [re.sub(r"\s+=", " =", line) for line in lines]
    marks = [n for n, line in enumerate(lines) if line.startswith("getrusage(")]
    tests = list(done["tests"])
    tests.sort(key=TESTS.index)
    assert len(marks) == 2 * len(tests)
    found = {}
    for n, test in enumerate(tests):
        start, end = marks[2 * n : 2 * n + 2]
        last = marks[2 * n - 1] if n else 0
        before = lines[last + 1 : start]
        opened = next(line for line in reversed(before) if line.startswith("openat") and "/matrix" in line)
        until = marks[2 * n + 2] if n + 1 < len(tests) else len(lines)
        found[test] = Timed(opened, lines[start + 1 : end], before, lines[end + 1 : until])
    return found


@needs_strace
def test_each_test_makes_the_calls_of_its_description_in_their_order(folder: Path) -> None:
    seen = traced(folder)
    assert list(seen) == TESTS
    for test in ("write", "rewrite"):
        assert seen[test].names == ["write"] * RECORDS, test
        assert seen[test].offsets("write") == RISING
    for test in ("fwrite", "frewrite"):
        # stdio buffers the last record until the flush, which is not timed unless requested.
        assert seen[test].names == ["write"] * (RECORDS - 1), test
        assert seen[test].offsets("write") == RISING[:-1]
        assert [line.split("(")[0] for line in seen[test].after[:2]] == ["write", "fsync"]
    for test in ("read", "reread", "fread", "freread"):
        assert seen[test].names == ["read"] * RECORDS, test
        assert seen[test].offsets("read") == RISING
    assert seen["backward-read"].names == ["lseek", "read"] * RECORDS
    assert seen["backward-read"].offsets("read") == RISING[::-1]
    assert seen["record-rewrite"].names == ["lseek", "write"] * RECORDS
    assert seen["record-rewrite"].offsets("write") == [0] * RECORDS
    assert seen["stride-read"].names == ["lseek", "read"] * RECORDS
    by_pass = [n * RECORD for first in range(17) for n in range(first, RECORDS, 17)]
    assert seen["stride-read"].offsets("read") == by_pass
    for test, call in (("random-read", "read"), ("random-write", "write")):
        assert seen[test].names == ["lseek", call] * RECORDS
        met = seen[test].offsets(call)
        assert sorted(met) == RISING, "every record once"
        assert met != RISING
    assert seen["random-read"].offsets("read") != seen["random-write"].offsets("write")


@needs_strace
def test_opening_the_first_record_fsync_and_close_are_outside_the_timed_part(folder: Path) -> None:
    seen = traced(folder)
    for test, timed in seen.items():
        writes = test in WRITING
        after = [line.split("(")[0] for line in timed.after]
        assert after.index("close") >= 0
        assert ("fsync" in after[: after.index("close")]) is writes, test
        flags = re.search(r'", (\S+?)[,)]', timed.opened)[1]
        wanted = "O_RDONLY" if not writes else "O_WRONLY" if not test.startswith("f") else None
        assert wanted is None or wanted in flags, (test, flags)
        assert ("O_CREAT" in flags and "O_EXCL" in flags) is (test in ("write", "fwrite")), (test, flags)
        assert "O_DIRECT" not in flags
        assert "O_SYNC" not in flags
        # Between open and the clock: the read tests read one record and seek back.
        opened = timed.before.index(timed.opened)
        between = [re.sub(r"^(\w+).*", r"\1", line) for line in timed.before[opened + 1 :]]
        assert between == (["read", "lseek"] if test in ("read", "reread") else []), test
    removed = [line for line in seen["fwrite"].before if line.startswith("unlink")]
    assert len(removed) == 1, "fwrite makes a new file, as write does"


@needs_strace
def test_fsync_and_close_are_timed_where_asked_for(folder: Path) -> None:
    for test, timed in traced(folder, fsync=True, close=True).items():
        ends = ["fsync", "close"] if test in WRITING else ["close"]
        assert timed.names[-len(ends) :] == ends, test
        assert timed.names.count("fsync") + timed.names.count("close") == len(ends)
        assert timed.names.count("write" if test in WRITING else "read") == RECORDS, test


@needs_strace
def test_a_file_closed_in_time_and_not_synced_is_synced_after_it(folder: Path) -> None:
    for test, timed in traced(folder, close=True).items():
        assert timed.names[-1] == "close"
        assert "fsync" not in timed.names
        after = [line.split("(")[0] for line in timed.after]
        assert ("fsync" in after) is (test in WRITING), test


@needs_strace
def test_direct_and_synchronous_writing_are_of_the_first_nine_tests(folder: Path) -> None:
    for test, timed in traced(folder, direct=True, sync=True).items():
        streams = test.startswith(("fw", "fr"))
        assert ("O_DIRECT" in timed.opened) is not streams, test
        assert ("O_SYNC" in timed.opened) is (test in WRITING and not streams), test


@needs_strace
def test_a_test_that_needs_a_file_finds_one_that_was_written_back(folder: Path) -> None:
    seen = traced(folder, tests=["stride-read", "read"])
    assert list(seen) == ["read", "stride-read"], "in the order of the thirteen"
    before = seen["read"].before
    assert any("O_CREAT" in line for line in before)
    assert any(line.startswith("fsync") for line in before)
    assert seen["read"].names == ["read"] * RECORDS


def test_bytes_rates_and_times_belong_together(probe: Probe, folder: Path) -> None:
    make_set(probe, folder, count=1)
    matrix(probe)
    held = len(descriptors(probe))
    done = matrix(probe, replicates=3, histograms=True)
    assert list(done["tests"]) == sorted(TESTS)
    assert done["records"] == RECORDS
    for test in done["tests"].values():
        assert (test["bytes"], test["records"]) == (3 * SIZE, 3 * RECORDS)
        assert test["kib_per_s"] == pytest.approx(3 * SIZE / 1024 / (test["wall_ns"] / 1e9))
        latency = test["latency"]
        assert latency["count"] == 3 * RECORDS
        # The timed part is the records, and one clock reading after the last.
        assert 0 <= test["wall_ns"] - latency["total_ns"] <= test["wall_ns"]
    assert done["wall_ns"] == sum(test["wall_ns"] for test in done["tests"].values())
    assert abs(done["cpu_ns"] - sum(test["cpu_ns"] for test in done["tests"].values())) == 0
    assert matrix(probe)["tests"]["write"]["latency"] is None
    assert names(folder / "s") == ["f000000"], "the file is taken away again"
    assert len(descriptors(probe)) == held


def usual_ratio(tests: list[dict[str, Any]]) -> float:
    """Return the lower quartile of spun over original time.

    A spin that loses the CPU is too long, on a busy machine more than half of them; the next one may be too short by four
    steps of the clock.
    """
    return statistics.quantiles(
        [one["spun"]["wall_ns"] / (one["wall_ns"] - one["spun"]["wall_ns"]) for one in tests], n=4
    )[0]


def test_every_time_is_stretched_by_the_same_ratio(probe: Probe, folder: Path) -> None:
    make_set(probe, folder, count=1)
    jobs: list[dict[str, Any]] = []
    wanted = pytest.approx(dict.fromkeys(TESTS, 0.5), rel=0.02)
    for _ in range(10):
        jobs += [matrix(probe, stretch=0.5) for _ in range(9)]
        found = {name: usual_ratio([done["tests"][name] for done in jobs]) for name in TESTS}
        if found == wanted:
            break
    assert found == wanted
    for done in jobs:
        assert done["spun"]["wall_ns"] == sum(test["spun"]["wall_ns"] for test in done["tests"].values())
        assert done["injected"] >= 1.49
    one = matrix(probe, stretch=0.5, stretch_of="reread")
    assert {name for name, test in one["tests"].items() if test["spun"]["wall_ns"]} == {"reread"}


def test_the_stretch_is_user_time_of_each_test_and_of_their_sum(probe: Probe, folder: Path) -> None:
    make_set(probe, folder, count=1)
    done = matrix(probe, stretch=10)
    for times in (done, *done["tests"].values()):
        assert times["user_ns"] >= times["spun"]["cpu_ns"] > 0
    for key in ("user_ns", "sys_ns", "cpu_ns"):
        assert done[key] == sum(test[key] for test in done["tests"].values())


@pytest.mark.parametrize("kind", ["random", "text", "zeros"])
def test_records_hold_what_the_protocol_says(folder: Path, kind: str) -> None:
    """Check copies of the file that are taken while jobs run on it."""
    probe = Probe()
    make_set(probe, folder, count=1)
    path, copies = folder / "s" / "matrix", []
    stop = threading.Event()

    def copy() -> None:
        while not stop.is_set():
            try:
                copies.append(path.read_bytes())
            except FileNotFoundError:
                continue

    watcher = threading.Thread(target=copy)
    watcher.start()
    tests = ["write", "record-rewrite"]
    for _ in range(40):
        matrix(probe, tests=tests, content=kind, seed=9, record_size=RECORD)
    stop.set()
    watcher.join()
    assert probe.close() == 0

    def record(writer: int, number: int) -> bytes:
        whole = content(kind, 9, writer, RECORD)
        key = mixed(9 ^ mixed(writer + 1))
        return whole if kind == "zeros" else (key ^ number).to_bytes(8, "little") + whole[8:]

    wanted = record(8, 0) + b"".join(record(1, number) for number in range(1, RECORDS))
    assert wanted in copies


@pytest.mark.parametrize("tests", [["read", "random-read"], ["write", "rewrite"], ["fwrite", "freread"]])
def test_a_file_that_is_changed_under_a_test_is_told(probe: Probe, folder: Path, tests: list[str]) -> None:
    make_set(probe, folder, count=1)
    path = folder / "s" / "matrix"
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            try:
                with path.open("r+b") as file:
                    while not stop.is_set():
                        file.seek(5 * 65536)
                        file.write(b"not what was written")
                        file.flush()
                        if not path.exists():
                            break
            except FileNotFoundError:
                continue

    intruder = threading.Thread(target=change)
    intruder.start()
    try:
        with pytest.raises(ProbeError, match=r"matrix: .*record") as caught:
            several(probe, tests=tests, file_size=8 << 20, record_size=65536)
    finally:
        stop.set()
        intruder.join()
    assert caught.value.code == "verify"
    assert names(folder / "s") == ["f000000"], "a job that fails takes its file away too"


def test_somebody_elses_file_is_left_alone(probe: Probe, folder: Path) -> None:
    path = make_set(probe, folder, count=1) / "matrix"
    path.write_text("mine")
    with pytest.raises(ProbeError, match=r"create .*matrix: File exists") as caught:
        matrix(probe)
    assert caught.value.code == "os"
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"record_size": 3 * 4096}, "file_size: expected a multiple of the record size 12288, found 163840"),
        ({"file_size": 2048}, "file_size: expected a multiple of the record size 4096, found 2048"),
        ({"file_size": 0}, "file_size"),
        ({"record_size": 0}, "record_size: expected 8 to"),
        ({"record_size": 1000, "file_size": 2000, "direct": True}, "record_size: expected a multiple of 512"),
        ({"tests": []}, "tests: expected at least one, each once"),
        ({"tests": ["read", "read"]}, "tests: expected at least one, each once"),
        ({"tests": ["readd"]}, r"tests\[0\]: unknown variant `readd`, expected one of `write`, `rewrite`"),
        ({"stride": 0}, "stride: expected at least 1"),
        ({"tests": ["read"], "stretch_of": "write"}, "stretch_of: expected one of the tests, found write"),
        ({"files": [0]}, "files, view, user: expected none"),
        ({"file_size": 1 << 40, "record_size": 512}, "records"),
        ({"set": "unknown"}, "set unknown"),
        ({"size": 1}, "unknown field `size`, expected one of `tests`, `file_size`"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_done(
    probe: Probe, folder: Path, fields: dict[str, Any], said: str
) -> None:
    path = make_set(probe, folder, count=1)
    with pytest.raises(ProbeError, match=said) as caught:
        matrix(probe, **fields)
    assert caught.value.code == "bad_request"
    assert names(path) == ["f000000"]


@pytest.mark.root
def test_cold_reads_come_from_the_device_and_rereads_do_not(lab: Lab) -> None:
    make_set(lab.probe, lab.mounted, count=1)
    counters = Path("/sys/block") / lab.name / "stat"

    def read_bytes(**fields: Any) -> int:
        before = int(counters.read_text().split()[2])
        done = matrix(lab.probe, file_size=4 << 20, devices=[lab.name], **fields)
        found = done["devices"][lab.name]["read_bytes"]
        assert found <= (int(counters.read_text().split()[2]) - before) * 512
        return found

    assert read_bytes(tests=["read", "reread", "fread"]) == 0, "what was just written is cached"
    assert read_bytes(tests=["read", "reread"], cold=True) >= 4 << 20
    assert read_bytes(tests=["reread", "freread"], cold=True) == 0
    assert (
        read_bytes(tests=["read", "random-read", "backward-read", "stride-read", "fread"], cold=True)
        >= 20 << 20
    )
    assert read_bytes(tests=["read", "reread"], direct=True) >= 8 << 20


@pytest.mark.root
def test_writes_reach_the_device_once_a_test(lab: Lab) -> None:
    make_set(lab.probe, lab.mounted, count=1)
    lab.probe("syncfs", path=str(lab.mounted))
    done = matrix(lab.probe, file_size=4 << 20, devices=[lab.name], tests=["write", "rewrite"], sync=True)
    written = done["devices"][lab.name]["write_bytes"]
    assert written >= 8 << 20
    assert done["devices"][lab.name]["flush_ios"] >= 2 * (4 << 20) // RECORD, "O_SYNC flushes each record"
