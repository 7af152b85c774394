"""The random job: its counts, its system calls by strace, its content by a second generator, and stalls by
SIGSTOP."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from probe_client import (
    BINARY,
    GOLDEN,
    MASK,
    MIB,
    Lab,
    Probe,
    ProbeError,
    content,
    descriptors,
    inner,
    make_set,
    mixed,
)

BLOCK = 4096
ENGINES: list[dict[str, Any]] = [
    {"engine": "psync"},
    {"engine": "mmap"},
    {"engine": "io_uring"},
    {"engine": "io_uring", "depth": 8},
    {"engine": "io_uring", "depth": 8, "batch": 3},
]


@pytest.fixture
def blocks(probe: Probe, folder: Path) -> Path:
    return make_set(probe, folder, count=3, size=64 * BLOCK + 100, content="random")


def there(request: dict[str, Any], probe: Probe) -> None:
    """Skip the test if this kernel has no io_uring."""
    if request.get("engine") == "io_uring":
        try:
            probe("random", set="s", operations=1, engine="io_uring")
        except ProbeError as error:
            if error.code == "unsupported":
                pytest.skip(str(error))
            raise


@pytest.mark.parametrize("order", ["random", "sequential"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_random_job_counts_what_it_did(
    probe: Probe, blocks: Path, engine: dict[str, Any], order: str
) -> None:
    there(engine, probe)
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    done = probe(
        "random", set="s", operations=500, replicates=2, order=order, histograms=True, series=True, **engine
    )
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    assert done["verified"] is True
    assert (done["bytes_read"], done["bytes_written"]) == (1000 * BLOCK, 0)
    assert before <= done["started_ns"] <= done["started_ns"] + done["wall_ns"] <= after
    assert set(done["operations"]) == {"read"}
    read = done["operations"]["read"]
    assert read["count"] == sum(count for _, count in read["histogram"]) == 1000
    marks = [read[f"p{n}_ns"] for n in ("50", "90", "99", "999", "9999", "99999")]
    assert [read["min_ns"], *marks, read["max_ns"]] == sorted([read["min_ns"], *marks, read["max_ns"]])
    assert sum(second["count"] for second in done["series"]) == 1000
    assert max(second["max_ns"] for second in done["series"]) == read["max_ns"]
    assert done["late"] is None
    if engine.get("depth", 1) == 1:
        # One clock reading per operation: their times add up to the wall time.
        assert abs(read["total_ns"] - done["wall_ns"]) <= 3


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", ["text", "random", "zeros"])
def test_what_is_written_is_what_was_there(
    probe: Probe, folder: Path, engine: dict[str, Any], kind: str
) -> None:
    path = make_set(probe, folder, count=2, size=16 * BLOCK, content=kind)
    there(engine, probe)
    (path / "f000001").touch()
    before = (path / "f000001").stat().st_mtime_ns
    done = probe("random", set="s", operations=400, write_share=0.5, **engine)
    written = done["operations"]["write"]["count"]
    assert written + done["operations"]["read"]["count"] == 400
    assert 120 <= written <= 280  # binomial: mean 200, standard deviation 10
    assert done["bytes_written"] == written * BLOCK
    assert [(path / f"f00000{n}").read_bytes() for n in (0, 1)] == [
        content(kind, 1, n, 16 * BLOCK) for n in (0, 1)
    ]
    assert (path / "f000001").stat().st_mtime_ns > before
    assert set(probe("random", set="s", operations=50, write_share=1, **engine)["operations"]) == {"write"}


@pytest.mark.parametrize("engine", ENGINES)
def test_one_changed_byte_in_any_block_that_is_read_fails_the_job(
    probe: Probe, blocks: Path, engine: dict[str, Any]
) -> None:
    there(engine, probe)
    with (blocks / "f000002").open("r+b") as file:
        file.seek(17 * BLOCK + 3)
        file.write(b"\x00" if content("random", 1, 2, 17 * BLOCK + 4)[-1] else b"\x01")
    with pytest.raises(ProbeError, match=f"f000002: expected .* at offset {17 * BLOCK + 3}") as caught:
        probe("random", set="s", files=[2], operations=64, order="sequential", **engine)
    assert caught.value.code == "verify"
    probe("random", set="s", files=[0, 1], operations=64, **engine)


def test_a_file_that_has_become_shorter_fails_the_job(probe: Probe, blocks: Path) -> None:
    os.truncate(blocks / "f000000", 10 * BLOCK)
    for engine in ({"engine": "psync"}, {"engine": "io_uring", "depth": 4}):
        there(engine, probe)
        with pytest.raises(ProbeError, match="found 0 bytes") as caught:
            probe("random", set="s", files=[0], operations=64, order="sequential", **engine)
        assert caught.value.code == "verify"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "operations, time_s or both"),
        ({"operations": 0}, "operations: expected at least 1"),
        ({"operations": 1, "depth": 2}, "depth: expected 1 "),
        ({"operations": 1, "depth": 0}, "depth: expected 1 "),
        ({"operations": 1, "engine": "io_uring", "depth": 2, "batch": 3}, "batch: expected 1 to depth"),
        ({"operations": 1, "batch": 1}, "batch: expected 1 to depth"),
        ({"operations": 1, "engine": "mmap", "direct": True}, "direct: a mapping"),
        ({"operations": 1, "block": 4}, "block: expected at least 8 bytes"),
        ({"operations": 1, "block": 1 << 31}, "block: expected at least 8 bytes"),
        ({"operations": 1, "block": 128 * BLOCK}, "blocks of 524288 bytes, found"),
        ({"operations": 1, "write_share": 1.5}, "write_share: expected 0 to 1"),
        ({"operations": 1, "rate": 0}, "rate: expected"),
        ({"time_s": 0}, "time_s: expected more than 0"),
        ({"time_s": 1, "replicates": 2}, "replicates: expected 1 without operations"),
        (
            {"operations": 1, "engine": "libaio"},
            "engine: unknown variant `libaio`, expected one of `psync`, `mmap`, `io_uring`",
        ),
        ({"operations": 1, "files": []}, "expected at least one file"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_done(
    probe: Probe, blocks: Path, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ProbeError, match=re.escape(message)) as caught:
        probe("random", set="s", **given)
    assert caught.value.code == "bad_request"


# system calls

NUMBERED = re.compile(r"^\d+\s+(\w+)\(")


def calls_between(folder: Path, own: str, **fields: Any) -> list[str]:
    """Return all system calls of a job between the first and last of its own kind, by strace."""
    log = folder / "strace.log"
    probe = Probe()
    make_set(probe, folder, count=2, size=32 * BLOCK)
    there(fields, probe)
    assert probe.close() == 0
    probe = Probe(prefix=("strace", "-f", "-qq", "-y", "-o", str(log)))
    make_set(probe, folder, count=2, size=32 * BLOCK, create=False)
    probe("random", set="s", **fields)
    assert probe.close() == 0
    lines = [found for found in map(NUMBERED.match, log.read_text(errors="replace").splitlines()) if found]
    names = [found[1] for found in lines]
    # Calls on other files (counters, for example) are not part of the work.
    where = "" if own == "io_uring_enter" else r"\d+<.*/s/f\d{6}>"
    works = re.compile(rf"{own}\({where}")
    own_lines = [n for n, found in enumerate(lines) if works.match(found.string[found.start(1) :])]
    first, last = own_lines[0], own_lines[-1]
    shutil.rmtree(folder / "s")
    return names[first : last + 1]


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
@pytest.mark.parametrize("pace", [{}, {"rate": 20_000}, {"time_s": 0.2}])
def test_between_first_and_last_read_there_is_no_other_system_call(
    folder: Path, pace: dict[str, Any]
) -> None:
    calls = calls_between(folder, "pread64", operations=300, series=True, **pace)
    assert set(calls) == {"pread64"}
    assert len(calls) == 300 or ("time_s" in pace and calls)


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_reads_and_writes_are_one_system_call_each(folder: Path) -> None:
    calls = calls_between(folder, "pwrite64", operations=300, write_share=0.5)
    assert set(calls) == {"pread64", "pwrite64"}


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
@pytest.mark.parametrize(("depth", "most"), [(1, 300), (4, 75 * 2), (32, 2 * 10 + 2)])
def test_io_uring_makes_one_system_call_a_batch_and_no_other(folder: Path, depth: int, most: int) -> None:
    calls = calls_between(folder, "io_uring_enter", operations=300, engine="io_uring", depth=depth)
    assert set(calls) == {"io_uring_enter"}
    assert len(calls) <= most + 4, "calls that found nothing done on return are made again"


# open arrivals


@pytest.mark.parametrize("engine", [{"engine": "psync"}, {"engine": "io_uring", "depth": 4}])
def test_a_stall_is_in_the_latencies_of_all_who_came_during_it(
    probe: Probe, blocks: Path, engine: dict[str, Any]
) -> None:
    """2,000 arrivals in two seconds with a stop of half a second: 500 arrive during it and wait 250 ms on
    average."""
    there(engine, probe)
    stalled = _stopped_for_half_a_second(probe, operations=2000, rate=1000, **engine)
    read, late = stalled["operations"]["read"], stalled["late"]
    assert read["count"] == late["count"] == 2000
    assert read["max_ns"] >= 450e6
    assert read["p90_ns"] >= 100e6  # 200 of the 500 late ones waited longer than 300 ms
    assert late["p90_ns"] >= 100e6
    assert stalled["wall_ns"] >= 1.999e9
    assert read["total_ns"] >= 500 * 0.2e9


def test_a_closed_loop_shows_the_same_stall_in_one_operation(probe: Probe, blocks: Path) -> None:
    stalled = _stopped_for_half_a_second(probe, time_s=2)
    read = stalled["operations"]["read"]
    assert read["max_ns"] >= 450e6
    assert read["p99_ns"] < 100e6


def _stopped_for_half_a_second(probe: Probe, **fields: Any) -> dict[str, Any]:
    pid = inner(probe)

    def stop() -> None:
        time.sleep(0.7)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.5)
        os.kill(pid, signal.SIGCONT)

    stopper = threading.Thread(target=stop)
    stopper.start()
    try:
        return probe("random", set="s", **fields)
    finally:
        stopper.join()


# clock


def test_the_kernels_clock_serves_where_the_tsc_is_not_to_be_used(folder: Path) -> None:
    probe = Probe(env={**os.environ, "IOPROBE_CLOCK": "monotonic"})
    clock = probe("hello")["clock"]
    assert clock == {"source": "monotonic", "hz": 1_000_000_000, "error": 0.0}
    make_set(probe, folder, size=BLOCK)
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    done = probe("random", set="s", operations=1000)
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    assert 0 < done["wall_ns"] <= after - before
    assert done["operations"]["read"]["total_ns"] == done["wall_ns"]
    assert probe.close() == 0


def test_a_clock_that_is_not_known_is_refused() -> None:
    found = subprocess.run(
        [BINARY], env={**os.environ, "IOPROBE_CLOCK": "sundial"}, capture_output=True, text=True, check=False
    )
    assert found.returncode == 1
    assert 'expected "monotonic" or an empty file, found "sundial"' in found.stderr


def test_the_clock_says_how_far_off_it_may_be(probe: Probe) -> None:
    clock = probe("hello")["clock"]
    assert 0 <= clock["error"] < 1e-3
    if clock["source"] == "tsc":
        assert clock["error"] > 0


# order, direct work, other users


def places(seed: int, files: int, blocks: int, count: int) -> list[tuple[int, int]]:
    """Return file and block of each operation, from the description in docs/probe-protocol.md."""
    key = mixed(seed)
    draws = [mixed((key + (n + 1) * GOLDEN) & MASK) for n in range(count)]
    return [((w >> 32) * files >> 32, (w & 0xFFFFFFFF) * blocks >> 32) for w in draws]


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
@pytest.mark.parametrize("ramp", [0, 60])
def test_the_order_is_the_one_that_is_described(folder: Path, ramp: int) -> None:
    log = folder / "strace.log"
    probe = Probe(prefix=("strace", "-f", "-qq", "-y", "-e", "trace=pread64", "-o", str(log)))
    make_set(probe, folder, count=3, size=40 * BLOCK)
    probe("random", set="s", ramp=ramp, operations=200 - ramp, seed=9)
    assert probe.close() == 0
    found = re.findall(r"pread64\(\d+<.*/f(\d{6})>, .*, 4096, (\d+)\)", log.read_text(errors="replace"))
    assert [(int(file), int(offset) // BLOCK) for file, offset in found] == places(9, 3, 40, 200)


@pytest.mark.root
@pytest.mark.parametrize("engine", [{"engine": "psync"}, {"engine": "io_uring", "depth": 8}])
def test_direct_reads_and_writes_all_reach_the_device(lab: Lab, engine: dict[str, Any]) -> None:
    probe = lab.probe
    make_set(probe, lab.mounted, count=2, size=MIB)
    there(engine, probe)
    probe("warm", set="s")
    probe("syncfs", path=str(lab.mounted))
    done = probe("random", set="s", operations=100, direct=True, devices=[lab.name], **engine)
    assert done["devices"][lab.name]["read_bytes"] == 100 * BLOCK
    done = probe("random", set="s", operations=100, direct=True, write_share=1, devices=[lab.name], **engine)
    assert done["devices"][lab.name]["write_bytes"] >= 100 * BLOCK
    probe("fileset_verify", set="s")


@pytest.mark.root
def test_a_file_system_can_be_unmounted_as_soon_as_a_job_on_it_is_done(lab: Lab) -> None:
    """A ring that is closed without unregistering holds its registered files for a while."""
    make_set(lab.probe, lab.mounted, count=2, size=MIB)
    there({"engine": "io_uring"}, lab.probe)
    for engine in ENGINES * 3:
        lab.probe("random", set="s", operations=50, write_share=0.5, **engine)
        lab.make_cold()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_job_leaves_no_descriptor_mapping_or_ring(
    probe: Probe, blocks: Path, engine: dict[str, Any]
) -> None:
    there(engine, probe)

    def held() -> tuple[int, list[str]]:
        maps = Path(f"/proc/{inner(probe)}/maps").read_text()
        return len(descriptors(probe)), re.findall(r"(?:anon_inode|/f00000)\S*", maps)

    before = held()
    # A thread can register 16 rings (IO_RINGFD_REG_MAX).
    features = [probe("random", set="s", operations=10, **engine)["engine"]["features"] for _ in range(20)]
    assert held() == (before[0], [])
    assert all(found == features[0] for found in features)
    for wrong in ({"block": 1 << 20}, {"devices": ["loop999"]}):
        with pytest.raises(ProbeError):
            probe("random", set="s", operations=1, **wrong, **engine)
        assert held() == (before[0], [])


def test_an_answer_is_one_line_of_json_with_bounded_series(probe: Probe, blocks: Path) -> None:
    done = probe("random", set="s", time_s=1.2, series=True)
    assert 2 <= len(done["series"]) <= 3
    assert all(set(second) == {"count", "p50_ns", "p99_ns", "max_ns"} for second in done["series"])
    assert "\n" not in json.dumps(done)


@pytest.mark.parametrize("order", ["random", "sequential"])
@pytest.mark.parametrize("engine", ENGINES)
def test_operations_of_the_ramp_are_done_and_told_of_nowhere(
    probe: Probe, blocks: Path, engine: dict[str, Any], order: str
) -> None:
    there(engine, probe)
    started = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    done = probe(
        "random", set="s", ramp=200_000, operations=50, order=order, histograms=True, series=True, **engine
    )
    read = done["operations"]["read"]
    assert done["verified"] is True
    assert done["bytes_read"] == 50 * BLOCK
    assert read["count"] == sum(count for _, count in read["histogram"]) == 50
    assert sum(second["count"] for second in done["series"]) == 50
    assert done["engine"]["calls"] <= 51
    # 200,000 operations take far longer than 50, even if the first ones are slow.
    assert done["started_ns"] - started > 10 * done["wall_ns"]


def test_a_ramp_that_never_ends_is_refused(probe: Probe, blocks: Path) -> None:
    with pytest.raises(ProbeError, match="ramp: expected at most"):
        probe("random", set="s", ramp=(1 << 40) + 1, operations=1)
