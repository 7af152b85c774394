"""The replay job: its calls by strace, its files by the kernel, its order and its times."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from probe_client import BINARY, MIB, NOBODY, Lab, Probe, ProbeError, descriptors

from trace_files import MILLISECOND, Trace, small


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def prepare(probe: Probe, folder: Path, trace: Trace, **more: Any) -> dict[str, Any]:
    path = folder / "app.iotrace"
    if not path.exists() or path.read_bytes() != trace.bytes():
        trace.write(path)
    return probe("replay_prepare", trace=str(path), folder=str(folder / "tree"), **more)


def replay(probe: Probe, folder: Path, **more: Any) -> dict[str, Any]:
    return probe("replay", folder=str(folder / "tree"), **more)


def refused(probe: Probe, folder: Path, data: bytes) -> str:
    path = folder / "bad.iotrace"
    path.write_bytes(data)
    with pytest.raises(ProbeError) as error:
        probe("replay_prepare", trace=str(path), folder=str(folder / "tree"))
    assert not (folder / "tree").exists()
    return str(error.value)


def test_a_replay_counts_what_it_did_and_its_files_come_back(probe: Probe, folder: Path) -> None:
    prepared = prepare(probe, folder, small())
    facts = prepared["trace"]
    assert (facts["operations"], facts["threads"], facts["files"], facts["left_out"]) == (22, 1, 2, 0)
    assert (facts["bytes"], facts["complete"]) == (72 << 10, True)
    assert facts["calls"]["read"] == 10
    data = folder / "tree" / "data"
    before = (data / "a").read_bytes()
    assert (len(before), names_in(data)) == (64 << 10, ["a", "b"])
    open_before = descriptors(probe)
    done = replay(probe, folder, timing="flat-out", histograms=True)
    assert descriptors(probe) == open_before
    assert (done["differing"], done["first_differing"], done["late"]) == (0, None, None)
    assert (done["bytes_read"], done["bytes_written"]) == (72 << 10, 10_100)
    counts = {name: found["count"] for name, found in done["operations"].items()}
    assert counts == facts["calls"]
    assert done["all"]["count"] == sum(counts.values())
    assert sum(count for _, count in done["operations"]["read"]["histogram"]) == 10
    assert names_in(data) == ["a", "b", "final"]
    after = (data / "a").read_bytes()
    assert after[:4096] + after[4196:] == before[:4096] + before[4196:]
    assert after[4096:4196] != before[4096:4196]
    with pytest.raises(ProbeError, match="call replay_prepare"):
        replay(probe, folder)
    again = prepare(probe, folder, small())
    assert again["files"]["made"] == 1  # only the file that was changed; the new one is removed
    assert (data / "a").read_bytes() == before
    assert names_in(data) == ["a", "b"]


def test_its_calls_are_the_recorded_ones(folder: Path) -> None:
    trace = small().write(folder / "app.iotrace")
    tree = str(folder / "tree")
    requests = [
        {"id": 1, "verb": "replay_prepare", "trace": str(trace), "folder": tree},
        {"id": 2, "verb": "replay", "folder": tree, "timing": "flat-out"},
    ]
    out = folder / "strace.out"
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run(
        ["strace", "-f", "-o", str(out), "--", str(BINARY)],
        input=lines,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert '"error"' not in done.stdout
    # The thread of the replay is the one that makes its first openat2 of a missing file.
    every = [line.split(maxsplit=1) for line in out.read_text().splitlines()]
    thread = next(pid for pid, call in every if call.startswith("openat2") and '"none"' in call)
    calls = [call for pid, call in every if pid == thread]
    begin = next(place for place, call in enumerate(calls) if '"none"' in call)
    plain = [re.match(r"\w+", call) for call in calls[begin:]]
    names = [found[0] for found in plain if found is not None]
    wanted = (
        ["openat2"] * 3 + ["read"] * 8 + ["pread64", "preadv", "openat2", "write", "fsync", "close"]
        + ["renameat", "newfstatat", "pwrite64", "fdatasync", "close"]
    )  # fmt: skip
    assert names[: len(wanted)] == wanted
    replayed = calls[begin : begin + len(wanted)]
    opened = [call for call in replayed if call.startswith("openat2")]
    assert all("RESOLVE_BENEATH" in call and "RESOLVE_NO_SYMLINKS" in call for call in opened)
    assert any("O_WRONLY|O_CREAT|O_TRUNC" in call and '"data/new"' in call for call in opened)
    sizes = [call.rsplit(", ", 1)[1] for call in replayed if call.startswith("read(")]
    assert [size.startswith("8192)") for size in sizes] == [True] * 8


def crossing(pairs: int) -> Trace:
    """A trace in which each of two threads needs what the other one has just made."""
    trace = Trace()
    trace.thread()
    trace.thread()
    for number in range(2 * pairs):
        trace.file(f"f{number}", None)
    handle = None
    for number in range(2 * pairs):
        thread = number % 2
        if handle is not None:
            reading = trace.open(f"f{number - 1}", os.O_RDONLY, thread=thread)
            trace.op("read", thread=thread, handle=reading, at=0, length=4096)
            trace.op("close", thread=thread, handle=reading)
        handle = trace.open(f"f{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, thread=thread)
        trace.op("write", thread=thread, handle=handle, at=0, length=4096)
        trace.op("close", thread=thread, handle=handle)
    return trace


@pytest.mark.parametrize("calls", ["recorded", "io_uring"])
def test_threads_wait_for_what_they_need_of_each_other(probe: Probe, folder: Path, calls: str) -> None:
    trace = crossing(200)
    facts = prepare(probe, folder, trace)["trace"]
    assert facts["threads"] == 2
    assert facts["waits"] >= 399
    try:
        done = replay(probe, folder, timing="flat-out", calls=calls)
    except ProbeError as error:
        if error.code == "unsupported":
            pytest.skip(str(error))
        raise
    assert (done["differing"], done["first_differing"]) == (0, None)
    assert done["bytes_read"] == 399 * 4096


def test_recorded_times_are_kept_and_lateness_is_marked(probe: Probe, folder: Path) -> None:
    trace = Trace()
    trace.thread()
    trace.file("a", 4096)
    handle = trace.open("a", os.O_RDONLY)
    for number in range(100):
        trace.op("read", handle=handle, length=4096, positional=True, start=(number + 1) * 2 * MILLISECOND)
    prepare(probe, folder, trace)
    done = replay(probe, folder, timing="open")
    assert done["wall_ns"] >= 200 * MILLISECOND
    assert done["late"]["count"] == 101
    twice = replay_again(probe, folder, trace, timing="open", speed=2)
    assert 100 * MILLISECOND <= twice["wall_ns"] < done["wall_ns"]
    closed = replay_again(probe, folder, trace, timing="closed")
    assert closed["wall_ns"] >= 198 * MILLISECOND
    assert closed["late"] is None

    busy = Trace()
    busy.thread()
    busy.file("b", None)
    handle = busy.open("b", os.O_RDWR | os.O_CREAT)
    for number in range(100):
        busy.op("write", handle=handle, at=number * MIB, length=MIB)
        busy.op("fsync", handle=handle)
    prepare(probe, folder, busy)
    done = replay(probe, folder, timing="open")
    assert done["behind"] > 2  # 100 MiB synced one by one, recorded as 200 microseconds
    assert done["late"]["max_ns"] > done["behind_ns"] == 10 * MILLISECOND


def replay_again(probe: Probe, folder: Path, trace: Trace, **more: Any) -> dict[str, Any]:
    prepare(probe, folder, trace)
    return replay(probe, folder, **more)


def test_a_hole_is_a_hole_and_a_missing_file_is_missing(probe: Probe, folder: Path) -> None:
    trace = Trace()
    trace.thread()
    trace.file("sparse", 1 << 30, stored=64 << 10, extents=4)
    trace.file("deep/er/later", None)
    trace.open("sparse")
    prepare(probe, folder, trace)
    found = (folder / "tree" / "sparse").stat()
    assert found.st_size == 1 << 30
    assert found.st_blocks * 512 <= 128 << 10
    assert (folder / "tree" / "deep" / "er").is_dir()
    assert not (folder / "tree" / "deep" / "er" / "later").exists()


@pytest.mark.root
def test_files_are_laid_out_in_as_many_extents_as_recorded(lab: Lab, isolated: Probe, folder: Path) -> None:
    trace = Trace()
    trace.thread()
    trace.file("pieces", 4 * MIB, extents=64)
    trace.open("pieces")
    path = trace.write(folder / "app.iotrace")
    tree = str(lab.mounted / "tree")
    plain = isolated("replay_prepare", trace=str(path), folder=tree)["files"]
    assert (plain["extents_wanted"], plain["extents_found"]) == (0, 0)
    laid = isolated("replay_prepare", trace=str(path), folder=tree, fragments=True)["files"]
    assert laid["extents_wanted"] == 64
    assert abs(laid["extents_found"] - 64) <= 6


@pytest.mark.root
def test_what_does_not_fit_is_refused_before_anything_is_written(
    lab: Lab, isolated: Probe, folder: Path
) -> None:
    for size, written in ((200 * MIB, 0), (4096, 200 * MIB)):
        trace = Trace()
        trace.thread()
        trace.file("large", size)
        handle = trace.open("large")
        if written:
            trace.op("write", handle=handle, at=0, length=written)
        path = trace.write(folder / "app.iotrace")
        tree = lab.mounted / "tree"
        with pytest.raises(ProbeError, match=r"need 20[0-9] MiB, and .* are free"):
            isolated("replay_prepare", trace=str(path), folder=str(tree))
        names = isolated("list", path=str(lab.mounted))["names"]
        assert names == ["lost+found"]


@pytest.mark.root
def test_it_can_be_another_user(probe: Probe, folder: Path) -> None:
    owner = {"uid": NOBODY, "gid": NOBODY}
    prepare(probe, folder, small(), owner=owner)
    assert (folder / "tree" / "data" / "a").stat().st_uid == NOBODY
    done = replay(probe, folder, timing="flat-out", user=owner)
    assert done["differing"] == 0
    assert (folder / "tree" / "data" / "final").stat().st_uid == NOBODY
    prepare(probe, folder, small())  # of root again
    done = replay(probe, folder, timing="flat-out", user=owner)
    assert done["differing"] > 0
    assert "Permission denied" in done["first_differing"]


def test_a_link_in_the_way_is_not_followed(probe: Probe, folder: Path) -> None:
    outside = folder / "outside"
    outside.mkdir()
    (outside / "a").write_text("mine")
    prepare(probe, folder, small())
    data = folder / "tree" / "data"
    (data / "a").unlink()
    (data / "a").symlink_to(outside / "a")
    done = replay(probe, folder, timing="flat-out")
    assert done["differing"] > 0
    assert (outside / "a").read_text() == "mine"
    for name in ("a", "b", "final"):
        (data / name).unlink()
    data.rmdir()
    data.symlink_to(outside)
    prepare(probe, folder, small())  # makes all of it again
    assert (outside / "a").read_text() == "mine"
    assert names_in(outside) == ["a"]
    assert not data.is_symlink()


def test_damaged_and_hostile_traces_are_refused(probe: Probe, folder: Path) -> None:
    whole = small().bytes()
    assert "not an .iotrace file" in refused(probe, folder, b"hello, world")
    assert "cut off" in refused(probe, folder, whole[:40])
    damaged = bytearray(whole)
    damaged[-10] ^= 1
    assert "checksum does not match" in refused(probe, folder, bytes(damaged))
    newer = whole[:8] + b"\x03\x00" + whole[10:]
    assert "version 3" in refused(probe, folder, newer)
    for path in ("../out", "/etc/passwd", "a/../../b", "a//b", "."):
        trace = Trace()
        trace.thread()
        trace.file(path, 10)
        assert "not plain" in refused(probe, folder, trace.bytes())
    trace = Trace()
    trace.thread()
    trace.file("huge", (1 << 64) - 1, stored=(1 << 64) - 1)
    trace.open("huge")
    assert "MiB are free" in refused(probe, folder, trace.bytes())
    trace = Trace()
    trace.thread(started_by=0)
    assert "thread 0 has no record" in refused(probe, folder, trace.bytes())
    trace = Trace()
    trace.thread()
    trace.files["unknown"] = 7
    trace.open("unknown")
    assert "file 7 has no record" in refused(probe, folder, trace.bytes())
    trace = Trace()
    trace.thread()
    trace.file("a", 1)
    trace.file("a/b", 1)
    trace.open("a/b")
    path = trace.write(folder / "bad.iotrace")
    with pytest.raises(ProbeError, match=r"Not a directory|File exists"):
        probe("replay_prepare", trace=str(path), folder=str(folder / "tree"))


def test_what_is_no_file_or_folder_is_refused(probe: Probe, folder: Path) -> None:
    os.mkfifo(folder / "fifo")
    with pytest.raises(ProbeError, match="expected a regular file"):
        probe("replay_prepare", trace=str(folder / "fifo"), folder=str(folder / "tree"))
    path = small().write(folder / "app.iotrace")
    with pytest.raises(ProbeError, match="expected an absolute path"):
        probe("replay_prepare", trace=str(path), folder="tree")
    with pytest.raises(ProbeError, match="No such file"):
        probe("replay_prepare", trace=str(folder / "none"), folder=str(folder / "tree"))
    with pytest.raises(ProbeError, match="call replay_prepare"):
        replay(probe, folder)
    prepare(probe, folder, small())
    for wrong in ({"speed": 0}, {"speed": 1e9}, {"replicates": 2}, {"set": "s"}, {"timing": "fast"}):
        with pytest.raises(ProbeError) as error:
            replay(probe, folder, **wrong)
        assert error.value.code == "bad_request"


def test_another_trace_in_the_same_file_is_read_anew(probe: Probe, folder: Path) -> None:
    prepare(probe, folder, small())
    other = Trace()
    other.thread()
    other.file("x", 5)
    other.op("read", handle=other.open("x"), at=0, length=5)
    assert prepare(probe, folder, other)["trace"]["operations"] == 2
    assert names_in(folder / "tree") == ["x"]
    assert replay(probe, folder)["bytes_read"] == 5


def test_a_cut_off_trace_is_replayed_up_to_there(probe: Probe, folder: Path) -> None:
    path = folder / "app.iotrace"
    path.write_bytes(small().bytes(complete=False))
    facts = probe("replay_prepare", trace=str(path), folder=str(folder / "tree"))["trace"]
    assert (facts["complete"], facts["operations"]) == (False, 22)
    assert replay(probe, folder, timing="flat-out")["differing"] == 0
