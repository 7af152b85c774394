"""The files job: its counts, its effects, its system calls by strace, and its bytes by the device's counter."""

from __future__ import annotations

import re
import shutil
import stat
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from probe_client import READING, Lab, Probe, ProbeError, content, descriptors, make_set, names, rounding_ns


def test_a_files_job_counts_what_it_did(probe: Probe, folder: Path) -> None:
    make_set(probe, folder, size=100)
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    done = probe("files", set="s", operations=READING, buffer=64, replicates=3, histograms=True)
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    assert done["verified"] is True
    assert (done["bytes_read"], done["bytes_written"], done["entries"]) == (3 * 20 * 100, 0, 0)
    assert before <= done["started_ns"] <= done["started_ns"] + done["wall_ns"] <= after
    assert done["devices"] == {}
    assert done["devices_after_sync"] is None
    assert done["stretched_ns"] == 0
    operations = done["operations"]
    assert {name: o["count"] for name, o in operations.items()} == {"open": 60, "read": 120, "close": 60}
    # One clock reading per operation: their times add up to the wall time.
    totals = sum(o["total_ns"] for o in operations.values())
    assert totals == pytest.approx(done["wall_ns"], abs=rounding_ns(len(operations)))
    for o in operations.values():
        assert sum(count for _, count in o["histogram"]) == o["count"]
        assert o["min_ns"] <= o["p50_ns"] <= o["p90_ns"] <= o["p99_ns"] <= o["p999_ns"] <= o["max_ns"]
        assert o["min_ns"] * o["count"] <= o["total_ns"] <= o["max_ns"] * o["count"]
    assert done["usage"]["faults_minor"] == 0
    assert probe("files", set="s", operations=READING)["operations"]["read"]["histogram"] == []


@pytest.mark.parametrize("order", ["by-file", "by-operation"])
def test_writing_jobs_leave_what_was_worked_out(probe: Probe, folder: Path, order: str) -> None:
    path = make_set(probe, folder)
    done = probe(
        "files", set="s", operations=["open-write", "write-byte", "write-byte", "fsync", "close"], order=order
    )
    assert done["bytes_written"] == 40
    probe("fileset_verify", set="s")  # the written bytes equal the previous content
    done = probe(
        "files", set="s", files=[4], operations=["open-truncate", "write-byte", "close"], order=order
    )
    assert (path / "f000004").read_bytes() == content("text", 1, 4, 1)
    probe("fileset_verify", set="s")
    operations = ["getdents", "stat", "unlink", "create", "write-byte", "close", "lstat", "getdents"]
    done = probe("files", set="s", operations=operations, order=order, replicates=2)
    assert done["entries"] == 2 * 2 * 20
    assert {file.stat().st_size for file in path.iterdir()} == {1}
    probe("fileset_verify", set="s")
    probe("files", set="s", files=[0, 1], operations=["unlink"], order=order)
    assert len(names(path)) == 18
    assert probe("fileset_verify", set="s")["files"] == 18
    with pytest.raises(ProbeError, match="a file that exists") as caught:
        probe("files", set="s", operations=READING)
    assert caught.value.code == "bad_request"


def test_create_works_on_a_set_that_is_not_there_yet(probe: Probe, folder: Path) -> None:
    path = make_set(probe, folder, empty=True, mode="0600", directories=2)
    assert names(path) == ["d000", "d001"]
    probe("files", set="s", operations=["create", "write-byte", "close"])
    files = list(path.rglob("f*"))
    assert len(files) == 20
    assert {(f.stat().st_size, stat.S_IMODE(f.stat().st_mode)) for f in files} == {(1, 0o600)}


def test_files_come_and_go_phase_by_phase(probe: Probe, folder: Path) -> None:
    path = make_set(probe, folder, empty=True, directories=3, size=5000)
    whole = ["create", "write-all", "fstat", "close", "getdents", "open", "sendfile", "close"]
    done = probe("files", set="s", operations=[*whole, "unlink", "getdents"], order="by-phase", buffer=2000)
    # by-file would have listed the folders while they were empty
    assert (done["bytes_written"], done["bytes_read"], done["entries"]) == (100_000, 100_000, 20)
    assert done["operations"]["getdents"]["count"] == 6
    assert not list(path.rglob("f*"))
    probe("files", set="s", operations=whole, order="by-phase")
    for index in range(20):
        written = (path / f"d{index % 3:03}/f{index:06}").read_bytes()
        assert written == content("text", 1, index, 5000)
    probe("fileset_verify", set="s")


def test_a_file_is_written_whole_at_the_size_that_it_was_given(probe: Probe, folder: Path) -> None:
    path = make_set(probe, folder)
    probe("set_size", set="s", files=[1], size=333)
    probe("files", set="s", operations=["open-truncate", "write-all", "close"], buffer=50)
    assert Counter(file.stat().st_size for file in path.iterdir()) == {100: 19, 333: 1}
    probe("fileset_verify", set="s")
    for operations in (
        ["write-all"],
        ["open", "write-all"],
        ["open-write", "write-byte", "write-all"],
        ["fstat"],
    ):
        with pytest.raises(ProbeError) as caught:
            probe("files", set="s", operations=operations)
        assert caught.value.code == "bad_request"


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_new_operations_are_the_system_calls_that_they_are_named_after(folder: Path) -> None:
    log = folder / "strace"
    with Probe(
        prefix=("strace", "-f", "-qq", "-o", str(log), "-e", "trace=sendfile,write,fstat,newfstatat")
    ) as probe:
        path = make_set(probe, folder, count=1, size=5000)
        log.write_text("")
        operations = ["open-truncate", "write-all", "fstat", "close", "open", "sendfile", "close"]
        probe("files", set="s", operations=operations, buffer=4096)
    said = log.read_text()
    assert re.findall(r"sendfile\(\d+, \d+, NULL, 4096\) += (\d+)", said) == ["4096", "904", "0"]
    assert re.search(
        r'write\(\d+, "[^"]+"\.\.\., 4096\) += 4096\n.*write\(\d+, "[^"]+"\.\.\., 904\) += 904', said
    )
    assert re.search(r"(fstat|newfstatat)\(.*st_size=5000", said)
    assert path.exists()


@pytest.mark.parametrize(
    "kind", ["hardlink", "symlink-absolute", "symlink-relative", "symlink-chain", "regular"]
)
def test_a_job_through_a_view_uses_its_names(probe: Probe, folder: Path, kind: str) -> None:
    make_set(probe, folder)
    probe("link", set="s", files=[3, 4, 5], view="A", kind=kind)
    operations = ["getdents", "lstat", "stat", "open", "read-to-end", "close"]
    if kind.startswith("symlink"):
        operations.append("readlink")
    done = probe("files", set="s", view="A", operations=operations)
    assert (done["bytes_read"], done["entries"]) == (300, 3)
    assert done["operations"]["lstat"]["count"] == 3
    assert done["operations"]["getdents"]["count"] == 1
    probe("files", set="s", view="A", files=[3], operations=["unlink"])
    assert names(folder / "s.A") == ["f000004", "f000005"]
    kept = "s.A" if kind == "regular" else "s"
    assert (folder / "s/f000003").exists() is (kind != "regular")
    assert (folder / kept / "f000004").exists()
    with pytest.raises(ProbeError, match="view A"):
        probe("files", set="s", view="A", files=[0], operations=["stat"])
    probe("unlink", set="s", view="A")
    assert names(folder) == ["s"]


def test_an_order_of_operations_that_cannot_work_is_refused_before_anything_is_done(
    probe: Probe, folder: Path
) -> None:
    path = make_set(probe, folder)
    for operations in (["read"], ["unlink", "open"], ["unlink", "create", "read"], ["readlink"], []):
        with pytest.raises(ProbeError) as caught:
            probe("files", set="s", operations=operations)
        assert caught.value.code == "bad_request"
    assert len(names(path)) == 20


def test_an_outcome_that_is_not_what_it_should_be_is_an_error(probe: Probe, folder: Path) -> None:
    path = make_set(probe, folder)
    open_before = len(descriptors(probe))
    (path / "f000003").write_text("shorter")
    with pytest.raises(ProbeError, match="expected 2000 bytes read, found 1907") as caught:
        probe("files", set="s", operations=["open", "read-to-end", "close"])
    assert caught.value.code == "verify"
    (path / "stranger").write_text("")
    with pytest.raises(ProbeError, match="expected 20 entries listed, found 21"):
        probe("files", set="s", operations=["getdents"])
    (path / "f000005").unlink()
    with pytest.raises(ProbeError, match=f"open {path}/f000005: No such file") as caught:
        probe("files", set="s", operations=READING)
    assert caught.value.code == "os"
    probe("files", set="s", files=[0, 1], operations=READING)
    assert len(descriptors(probe)) == open_before, "a broken job leaves no file open"


def traced(folder: Path, calls: str, order: str, operations: list[str]) -> list[str]:
    """Return the system calls between the two getrusage calls that enclose the timed part."""
    log = folder / "strace.log"
    prefix = ("strace", "-f", "-o", str(log), "-e", f"trace={calls}")
    probe = Probe(prefix=prefix)
    make_set(probe, folder, count=50, name=f"traced-{order}")
    probe("files", set=f"traced-{order}", operations=operations, order=order, replicates=2)
    assert probe.close() == 0
    lines = [re.sub(r"^\d+\s+", "", line) for line in log.read_text().splitlines()]
    marks = [n for n, line in enumerate(lines) if line.startswith("getrusage(")]
    assert len(marks) == 2
    inner = lines[marks[0] + 1 : marks[1]]
    # The CPU time is read when the work is over, and once more with the second getrusage.
    assert all(inner.pop().startswith("clock_gettime(CLOCK_THREAD_CPUTIME_ID") for _ in range(2))
    return inner


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
@pytest.mark.parametrize("order", ["by-file", "by-operation"])
def test_the_timed_part_makes_the_works_own_system_calls_and_no_other(folder: Path, order: str) -> None:
    lines = traced(folder, "all", order, ["getdents", "stat", *READING])
    calls = Counter(line.split("(")[0] for line in lines)
    listing = Counter(line.split("(")[0] for line in lines if "O_DIRECTORY" in line or "getdents" in line)
    assert listing["openat"] == 2
    assert listing["getdents64"] == 4, "the names, and the end, of one folder, twice"
    calls -= listing
    calls["close"] -= 2
    stats = {name: calls.pop(name) for name in list(calls) if "stat" in name}
    assert sum(stats.values()) == 100
    assert calls == {"openat": 100, "read": 200, "close": 100}
    opened = [re.search(r'"(.*?)"', line)[1] for line in lines if line.startswith("openat") and "f0" in line]
    assert opened == [str(folder / f"traced-{order}" / f"f{n:06}") for n in range(50)] * 2
    if order == "by-operation":
        first = [line.split("(")[0] for line in lines if "f0" in line or line.startswith(("read", "close"))]
        assert first[first.index("openat") : first.index("openat") + 51] == ["openat"] * 50 + ["read"]


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_the_clock_is_read_without_a_system_call(folder: Path) -> None:
    assert traced(folder, "clock_gettime,gettimeofday,time,getrusage", "by-file", READING) == []


@pytest.mark.root
def test_cold_files_come_from_the_device_and_warm_ones_do_not(lab: Lab) -> None:
    size, count = 10_000, 100
    make_set(lab.probe, lab.mounted, size=size, count=count, content="random")
    lab.probe("syncfs", path=str(lab.mounted))

    def read_bytes(**fields: Any) -> int:
        counters = Path("/sys/block") / lab.name / "stat"
        before = int(counters.read_text().split()[2])
        done = lab.probe(
            "files", set="s", operations=["open", "read-to-end", "close"], devices=[lab.name], **fields
        )
        after = int(counters.read_text().split()[2])
        found = done["devices"][lab.name]["read_bytes"]
        assert found == (after - before) * 512
        return found

    assert read_bytes() == 0, "just written"
    lab.probe("evict", set="s")
    assert read_bytes() >= count * size
    assert read_bytes() == 0
    lab.make_cold("noatime")
    assert (
        lab.probe("files", set="s", operations=["stat"], devices=[lab.name])["devices"][lab.name]["read_ios"]
        > 0
    )
    assert read_bytes() >= count * size
    lab.make_cold("noatime")
    lab.probe("warm", set="s", names=True)
    # Inode tables are read ahead, and a request is counted when it completes.
    while (Path("/sys/block") / lab.name / "inflight").read_text().split() != ["0", "0"]:
        time.sleep(0.01)
    assert read_bytes() == 0


@pytest.mark.root
def test_written_bytes_are_seen_after_the_sync(lab: Lab) -> None:
    make_set(lab.probe, lab.mounted, count=200, size=4096)
    lab.probe("syncfs", path=str(lab.mounted))
    done = lab.probe(
        "files",
        set="s",
        operations=["open-write", "write-byte", "close"],
        devices=[lab.name],
        sync_after=str(lab.mounted),
    )
    during, after = done["devices"][lab.name], done["devices_after_sync"][lab.name]
    assert after["write_bytes"] >= 200 * 4096
    assert after["write_bytes"] >= during["write_bytes"]
    assert after["flush_ios"] >= 1
    with pytest.raises(ProbeError, match="loop999"):
        lab.probe("files", set="s", operations=["stat"], devices=["loop999"])
    with pytest.raises(ProbeError, match="devices"):
        lab.probe("files", set="s", operations=["stat"], devices=["../loop0"])
