"""Parallel streams, rewriting and copying: system calls compared with as many dd processes, data by a second
implementation, and rates as bytes over elapsed time."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from probe_client import MIB, Lab, Probe, content, make_set, rounding_ns
from test_probe_stream import NEEDS_STRACE, calls, data, traced

SIZE = 10_000


def run_traced(folder: Path, count: int, **fields: Any) -> dict[str, Any]:
    """Run a stream under strace; its calls are in strace.log."""
    probe = Probe(prefix=traced(folder))
    make = {"count": count, "size": SIZE, "seed": 1, "content": "zeros", "create": False}
    probe("fileset", set="s", dir=str(folder / "s"), **make)
    done = probe("stream", set="s", evict=False, **fields)
    assert probe.close() == 0
    return done


@NEEDS_STRACE
def test_each_of_several_readers_makes_the_calls_of_dd(folder: Path, probe: Probe) -> None:
    path = make_set(probe, folder, count=2, size=SIZE, content="zeros")
    subprocess.run(
        traced(folder, "dd", f"if={path / 'f000000'}", "of=/dev/null", "bs=4096"),
        check=True,
        capture_output=True,
    )
    log = folder / "strace.log"
    log.write_text("".join(x for x in log.read_text().splitlines(True) if not re.search(r"close\(3<", x)))
    theirs = calls(log, "f000000")
    run_traced(folder, 2, operation="read", block_size=4096, streams=2, beside=True)
    whole = _unbroken(folder / "strace.log")
    for name in ("f000000", "f000001"):
        ours = [call for call in calls(whole, name) if call[:2] != ("write", "null")]
        here = [tuple(name if word == "f000000" else word for word in call) for call in theirs]
        assert ours == [call for call in here if call[:2] != ("write", "null")]
    threads = {
        line.split()[0] for line in whole.read_text().splitlines() if "read(" in line and "/f00000" in line
    }
    assert len(threads) == 2


def _unbroken(log: Path) -> Path:
    """Rejoin calls that strace has split because of another thread's call, at the line where they end."""
    begun: dict[str, str] = {}
    lines = []
    for line in log.read_text().splitlines():
        thread = line.split(" ", 1)[0]
        if line.endswith("<unfinished ...>"):
            begun[thread] = line.removesuffix("<unfinished ...>").rstrip()
        elif "resumed>" in line and thread in begun:
            lines.append(begun.pop(thread) + line.split("resumed>", 1)[1])
        else:
            lines.append(line)
    log.write_text("\n".join(lines))
    return log


@pytest.mark.parametrize("shared", [False, True], ids=["apart", "shared"])
def test_the_rate_is_bytes_over_the_time_from_the_first_start_to_the_last_end(
    probe: Probe, folder: Path, shared: bool
) -> None:
    make_set(probe, folder, count=3, size=2 * MIB)
    done = probe("stream", set="s", operation="read", block_size=4096, streams=3, shared=shared)
    streams = done["streams"]
    assert [s["bytes"] for s in streams] == [2 * MIB] * 3
    assert done["bytes"] == 6 * MIB
    assert min(s["start_ns"] for s in streams) == 0
    assert done["wall_ns"] == pytest.approx(max(s["end_ns"] for s in streams), abs=rounding_ns(2))
    assert done["bytes_per_s"] == pytest.approx(done["bytes"] * 1e9 / done["wall_ns"])
    assert done["bytes_per_s"] <= sum(s["bytes_per_s"] for s in streams) * 1.0001
    for stream in streams:
        own = stream["bytes"] * 1e9 / (stream["end_ns"] - stream["start_ns"])
        assert stream["bytes_per_s"] == pytest.approx(own, rel=1e-3)
    assert {name: o["count"] for name, o in done["operations"].items()} == {"read": 1536, "close": 3}
    assert done["start_pages"] == (512 if shared else 1536)


def test_the_processor_time_of_several_streams_is_that_of_all(probe: Probe, folder: Path) -> None:
    make_set(probe, folder, count=2, size=8 * MIB)
    one, two = (
        median(
            probe("stream", set="s", operation="write", block_size=512, streams=streams, data="random")[
                "cpu_ns"
            ]
            for _ in range(3)
        )
        for streams in (1, 2)
    )
    # Both do the same work per stream: if only one thread were counted, both times would be equal, however
    # long they wait for a CPU.
    assert two > 1.5 * one > 0


def test_writers_of_a_file_each_write_what_one_would(probe: Probe, folder: Path) -> None:
    path = make_set(probe, folder, count=3, size=50_000, seed=5)
    done = probe(
        "stream",
        set="s",
        files=[2, 0],
        operation="write",
        block_size=4096,
        data="random",
        streams=2,
        flush="fsync",
    )
    assert done["operations"]["fsync"]["count"] == 2
    for index in (2, 0):
        assert (path / f"f00000{index}").read_bytes() == data(100, 5, index, 50_000)
    assert (path / "f000001").read_bytes() == content("text", 5, 1, 50_000)


@pytest.mark.parametrize("streams", [2, 3, 7, 40])
@pytest.mark.parametrize("block", [512, 4096, 16_535])
def test_writers_of_one_file_write_a_part_each(probe: Probe, folder: Path, streams: int, block: int) -> None:
    path = make_set(probe, folder, count=1, size=60_000, seed=5)
    done = probe(
        "stream",
        set="s",
        operation="write",
        block_size=block,
        data="random",
        streams=streams,
        shared=True,
        volume=50_000,
    )
    assert (path / "f000000").read_bytes() == data(100, 5, 0, 50_000)
    assert done["blocks"] == -(-50_000 // block)
    assert sum(s["bytes"] for s in done["streams"]) == 50_000


def test_a_rewrite_fills_the_file_up_before_and_keeps_its_length(probe: Probe, folder: Path) -> None:
    path = make_set(probe, folder, count=1, size=20_000, content="random") / "f000000"
    probe("stream", set="s", operation="write", volume=5000)
    done = probe("stream", set="s", operation="rewrite", volume=8192, block_size=4096, data="random", seed=3)
    assert path.read_bytes() == data(100, 3, 0, 8192)
    assert done["start_pages"] == 2
    probe("stream", set="s", operation="write", volume=20_000)
    probe("stream", set="s", operation="rewrite", volume=8192, block_size=4096, data="random", seed=3)
    assert path.read_bytes() == data(100, 3, 0, 8192) + bytes(20_000 - 8192)


@pytest.mark.root
def test_a_rewrite_stays_where_the_file_lies(lab: Lab) -> None:
    path = make_set(lab.probe, lab.mounted, count=1, size=4 * MIB) / "f000000"
    lab.probe("syncfs", path=str(lab.mounted))

    def extents() -> list[str]:
        shown = lab.probe("run", argv=["filefrag", "-v", str(path)])["stdout"]
        return re.findall(r"^\s+\d+:\s+\d+\.\.\s*\d+:\s+(\d+\.\.\s*\d+)", shown, re.MULTILINE)

    before = extents()
    assert before
    lab.probe("stream", set="s", operation="rewrite", data="random", flush="fsync")
    assert extents() == before


COPIES: list[tuple[list[str], dict[str, Any]]] = [
    (["bs=4096"], {"block_size": 4096}),
    (["bs=4096", "iflag=direct", "oflag=direct"], {"block_size": 4096, "direct": True}),
    (["bs=1M", "conv=fsync"], {"block_size": MIB, "flush": "fsync"}),
    (["bs=4096", "count=2", "conv=notrunc"], {"block_size": 4096, "volume": 8192, "truncate": False}),
]


@NEEDS_STRACE
@pytest.mark.parametrize(("arguments", "fields"), COPIES, ids=lambda value: " ".join(value))
def test_a_copy_makes_the_calls_of_dd(
    folder: Path, probe: Probe, arguments: list[str], fields: dict[str, Any]
) -> None:
    path = make_set(probe, folder, count=2, size=SIZE, content="zeros")
    ends = [f"if={path / 'f000000'}", f"of={path / 'f000001'}"]
    subprocess.run(traced(folder, "dd", *ends, *arguments), check=True, capture_output=True)
    log = folder / "strace.log"
    log.write_text("".join(x for x in log.read_text().splitlines(True) if not re.search(r"close\(3<", x)))
    theirs = [calls(log, name) for name in ("f000000", "f000001")]
    order = _order(log)
    run_traced(folder, 2, operation="copy", **fields)
    assert [calls(log, name) for name in ("f000000", "f000001")] == theirs
    assert _order(log) == order
    assert len(order) > 3


def _order(log: Path) -> list[tuple[str, str]]:
    """Return the order of reads and writes on the two files, up to the first close of the second file after
    that."""
    found = re.findall(r"\b(read|write|close)\(\d+<[^>]*/(f00000[01])>", log.read_text())
    first = next(at for at, (verb, _) in enumerate(found) if verb == "read")
    last = next(at for at in range(first, len(found)) if found[at] == ("close", "f000001"))
    return found[first : last + 1]


@pytest.mark.parametrize("shared", [False, True], ids=["apart", "shared"])
@pytest.mark.parametrize("block", [4096, 16_535])
def test_copies_hold_what_was_copied(probe: Probe, folder: Path, shared: bool, block: int) -> None:
    path = make_set(probe, folder, count=4, size=50_000)
    done = probe("stream", set="s", operation="copy", streams=2, shared=shared, block_size=block)
    assert done["bytes"] == 100_000
    expected = [0, 0, 0] if shared else [0, 1, 0, 1]
    for index, source in enumerate(expected):
        assert (path / f"f00000{index}").read_bytes() == content("text", 1, source, 50_000)
    assert done["operations"]["copy"]["count"] == 2 * -(-50_000 // block)


@NEEDS_STRACE
def test_a_copy_by_copy_file_range_moves_nothing_itself(folder: Path, probe: Probe) -> None:
    path = make_set(probe, folder, count=2, size=SIZE)
    run_traced(folder, 2, operation="copy", copy_with="copy-file-range", block_size=4096)
    pattern = r"\b(read|write|copy_file_range|close)\(\d+<([^>]*/f00000[01])>"
    verbs = [verb for verb, _ in re.findall(pattern, (folder / "strace.log").read_text())]
    first = verbs.index("copy_file_range")
    assert verbs[first : first + 6] == ["copy_file_range"] * 4 + ["close"] * 2  # the last one: end of file
    assert (path / "f000001").read_bytes() == (path / "f000000").read_bytes() == content("text", 1, 0, SIZE)


@pytest.mark.root
def test_who_shares_a_file_reads_it_from_the_device_once_through_the_cache_and_each_time_past_it(
    lab: Lab,
) -> None:
    make_set(lab.probe, lab.mounted, count=2, size=8 * MIB)
    lab.probe("syncfs", path=str(lab.mounted))
    common = {"set": "s", "operation": "read", "devices": [lab.name], "streams": 2}
    once = lab.probe("stream", shared=True, **common)["devices"][lab.name]["read_bytes"]
    assert 8 * MIB <= once < 9 * MIB
    for fields in ({"shared": True, "direct": True}, {"shared": False}):
        each = lab.probe("stream", **fields, **common)["devices"][lab.name]["read_bytes"]
        assert 16 * MIB <= each < 17 * MIB


def test_waiting_for_io_is_what_the_kernel_says_of_all_processors(probe: Probe, folder: Path) -> None:
    make_set(probe, folder, count=1, size=16 * MIB)

    def waited() -> tuple[int, int]:
        lines = Path("/proc/stat").read_text().splitlines()
        each = [int(line.split()[5]) for line in lines if re.match(r"cpu\d", line)]
        return int(lines[0].split()[5]), len(each)

    tick_ns = 10_000_000
    before, count = waited()
    found = probe("stream", set="s", operation="write", direct=True, block_size=4096)["around"]
    after, _ = waited()
    processors = found["processors"]
    assert processors["count"] == len(processors["iowait_each_ns"]) == count
    assert 0 <= processors["iowait_ns"] <= (after - before) * tick_ns
    assert sum(processors["iowait_each_ns"]) <= processors["iowait_ns"] + count * tick_ns
    spent = sum(processors[f"{name}_ns"] for name in ("user", "sys", "idle", "iowait", "steal"))
    # Linux may count time stolen from a virtual machine's idle CPU as both idle and stolen.
    assert spent == pytest.approx(found["lasted_ns"] * count, rel=0.5, abs=8 * count * tick_ns)
