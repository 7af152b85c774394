"""The stream job: system calls compared with the real dd and hdparm, data by a second implementation, counts
by the kernel."""

from __future__ import annotations

import re
import shutil
import subprocess
import zlib
from pathlib import Path
from typing import Any

import pytest
from probe_client import (
    GOLDEN,
    MASK,
    MIB,
    Lab,
    Probe,
    ProbeError,
    content,
    make_set,
    mixed,
    rounding_ns,
)

PAGE = 4096
PERIOD = 16 * MIB
UNSEEN = {"O_CLOEXEC", "O_NOFOLLOW", "O_LARGEFILE"}
NEEDS_STRACE = pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
NEEDS_HDPARM = pytest.mark.skipif(not shutil.which("hdparm"), reason="needs hdparm")


def data(percent: int, seed: int, index: int, volume: int) -> bytes:
    """Return the data that a stream writes, from its description in docs/probe-protocol.md."""
    key = mixed(seed ^ mixed((index + GOLDEN) & MASK))

    def word(n: int) -> bytes:
        return mixed((key + (n + 1) * GOLDEN) & MASK).to_bytes(8, "little")

    random = PAGE * percent // 100 // 8 * 8
    pages = []
    for page in range((volume + PAGE - 1) // PAGE):
        first = page * PAGE % PERIOD // 8
        own = word(PERIOD // 8 + page) if random else b""
        pages.append(own + b"".join(word(first + n) for n in range(1, random // 8)) + bytes(PAGE - random))
    return b"".join(pages)[:volume]


# System calls of the original programs, by strace.


def calls(log: Path, name: str) -> list[tuple[Any, ...]]:
    """Return the calls from the open of the file with this name to its close, without calls that only query."""
    found: list[tuple[Any, ...]] = []
    for line in log.read_text().splitlines():
        call = re.search(r"(\w+)\((.*)\)\s+= (-?\d+)", line)
        if call is None:
            continue
        verb, arguments, result = call[1], call[2], int(call[3])
        if verb == "openat" and f'{name}"' in arguments and result >= 0:
            flags = set(re.findall(r"O_\w+", arguments)) - UNSEEN
            if "O_PATH" not in flags:
                found = [("open", *sorted(flags))]  # the last open, if there were several before the work
        path = re.match(r"\d+<([^>]*)>", arguments)
        on = Path(path[1]).name if path else ""
        if not found or verb not in ("read", "write", "fsync", "fdatasync", "fcntl", "fadvise64", "close"):
            continue
        if verb in ("read", "write") and on in (name, "zero", "null"):
            asked = int(arguments.rsplit(", ", 1)[1])
            found.append((verb, on, asked, result))
        elif on == name and verb == "fcntl" and "F_SETFL" in arguments:
            found.append(("fcntl", *sorted(set(re.findall(r"O_\w+", arguments)) - UNSEEN)))
        elif on == name and verb == "fadvise64":
            found.append((verb, *arguments.split(", ")[1:]))
        elif on == name and verb.endswith("sync"):
            found.append((verb,))
        elif on == name and verb == "close" and any(call[0] in ("read", "write") for call in found):
            return found
    raise AssertionError(f"{name} is never closed again in {log.read_text()[-2000:]}")


def traced(folder: Path, *argv: str) -> tuple[str, ...]:
    """Return the strace prefix that logs a program's calls."""
    return ("strace", "-f", "-y", "-s", "0", "-o", str(folder / "strace.log"), *argv)


def of_dd(folder: Path, *arguments: str) -> list[tuple[Any, ...]]:
    name = next(Path(a[3:]).name for a in arguments if re.match(r"(if|of)=.*/f\d+$", a))
    # dd moves its files to descriptors 0 and 1 and closes the original at once: only the second close ends
    # its work.
    subprocess.run(traced(folder, "dd", *arguments), check=True, capture_output=True)
    log = folder / "strace.log"
    log.write_text("".join(x for x in log.read_text().splitlines(True) if not re.search(r"close\(3<", x)))
    return calls(log, name)


def of_probe(folder: Path, **fields: Any) -> list[tuple[Any, ...]]:
    probe = Probe(prefix=traced(folder))
    probe(
        "fileset", set="s", dir=str(folder / "s"), count=1, size=10_000, seed=1, content="zeros", create=False
    )
    probe("stream", set="s", evict=False, **fields)
    assert probe.close() == 0
    return calls(folder / "strace.log", "f000000")


WRITES = [
    (["bs=4096", "count=3"], {"block_size": 4096, "volume": 12288}),
    (["bs=4096", "count=3", "oflag=direct"], {"block_size": 4096, "volume": 12288, "direct": True}),
    (["bs=4096", "count=2", "conv=fsync"], {"block_size": 4096, "volume": 8192, "flush": "fsync"}),
    (["bs=4096", "count=2", "conv=fdatasync"], {"block_size": 4096, "volume": 8192, "flush": "fdatasync"}),
    (["bs=4096", "count=2", "conv=notrunc"], {"block_size": 4096, "volume": 8192, "truncate": False}),
    (["bs=4096", "count=2", "oflag=sync"], {"block_size": 4096, "volume": 8192, "sync": "sync"}),
    (["bs=8192", "count=2", "oflag=dsync"], {"block_size": 8192, "volume": 16384, "sync": "dsync"}),
    (["count=5"], {"block_size": 512, "volume": 2560}),
    (
        ["bs=4096", "count=2", "oflag=direct,dsync", "conv=fsync,notrunc"],
        {"block_size": 4096, "volume": 8192, "direct": True, "sync": "dsync", "flush": "fsync", "truncate": False},
    ),
]  # fmt: skip


@NEEDS_STRACE
@pytest.mark.parametrize(("arguments", "fields"), WRITES, ids=lambda value: " ".join(value))
def test_writing_zeros_makes_the_calls_of_dd(
    folder: Path, probe: Probe, arguments: list[str], fields: dict[str, Any]
) -> None:
    path = make_set(probe, folder, count=1, size=10_000, content="zeros") / "f000000"
    theirs = of_dd(folder, "if=/dev/zero", f"of={path}", *arguments)
    ours = of_probe(folder, operation="write", beside=True, **fields)
    assert ours == theirs
    assert len(ours) > 4


READS: list[tuple[list[str], dict[str, Any]]] = [
    (["bs=4096"], {"block_size": 4096}),
    (["bs=4096", "iflag=direct"], {"block_size": 4096, "direct": True}),
    (["bs=4096", "count=2"], {"block_size": 4096, "volume": 8192}),
    (["bs=1M"], {"block_size": MIB}),
    (["bs=512"], {"block_size": 512}),
    (
        ["count=3"],
        {"block_size": 512, "volume": 1536},
    ),  # dd's default block size is 512 bytes
]


@NEEDS_STRACE
@pytest.mark.parametrize(("arguments", "fields"), READS, ids=lambda value: " ".join(value) or "default")
def test_reading_makes_the_calls_of_dd(
    folder: Path, probe: Probe, arguments: list[str], fields: dict[str, Any]
) -> None:
    path = make_set(probe, folder, count=1, size=10_000, content="zeros") / "f000000"
    theirs = of_dd(folder, f"if={path}", "of=/dev/null", *arguments)
    assert of_probe(folder, operation="read", beside=True, **fields) == theirs


@NEEDS_STRACE
def test_a_short_last_block_past_the_cache_makes_the_calls_of_dd(folder: Path, probe: Probe) -> None:
    """dd writes a short block only if its input is not a whole number of blocks, so its input is a file here."""
    path = make_set(probe, folder, count=1, size=10_000, content="zeros") / "f000000"
    source = folder / "in"
    source.write_bytes(bytes(10_000))
    theirs = of_dd(folder, f"if={source}", f"of={path}", "bs=4096", "oflag=direct")
    ours = of_probe(folder, operation="write", block_size=4096, volume=10_000, direct=True)
    assert ours == theirs
    assert ("fsync",) in ours  # not requested, but dd does it
    assert ours[-1][0] == "fadvise64"


@NEEDS_STRACE
def test_nothing_but_the_work_happens_between_its_first_call_and_its_last(folder: Path, probe: Probe) -> None:
    make_set(probe, folder, count=1, size=10_000, content="zeros")
    of_probe(folder, operation="write", block_size=512, volume=10_000, data="random", flush="fsync")
    lines = [
        re.search(r"(\w+)\((?:\d+<([^>]*)>)?", x) for x in (folder / "strace.log").read_text().splitlines()
    ]
    named = [(x[1], Path(x[2] or "").name) for x in lines if x]
    first = named.index(("write", "f000000"))
    last = next(n for n in range(first, len(named)) if named[n] == ("close", "f000000"))
    assert named[first:last] == [("write", "f000000")] * 20 + [("fsync", "f000000")]


@pytest.mark.root
@NEEDS_STRACE
@NEEDS_HDPARM
@pytest.mark.parametrize("direct", [False, True], ids=["buffered", "direct"])
def test_reading_the_device_makes_the_calls_of_hdparm(folder: Path, direct: bool) -> None:
    probe = Probe(prefix=traced(folder))
    image = probe("image", folder=str(folder), size=9 * MIB, fill="write")["image"]
    device = probe("loop_attach", image=image, direct_io=True)["name"]
    flags = ("--direct",) if direct else ()
    argv = [
        "strace",
        "-y",
        "-s",
        "0",
        "-o",
        str(folder / "hdparm.log"),
        "hdparm",
        "-t",
        *flags,
        f"/dev/{device}",
    ]
    subprocess.run(argv, check=True, capture_output=True)
    done = probe("stream", operation="read", device=device, block_size=2 * MIB, seconds=3.0, pause_s=0.1, evict=False,
                 direct=direct, beside=True)  # fmt: skip
    probe("loop_detach", device=f"/dev/{device}")
    assert probe.close() == 0
    theirs = calls(folder / "hdparm.log", device)
    # The probe reopens the device through the descriptor that it holds.
    (folder / "ours.log").write_text(_from_the_reopening((folder / "strace.log").read_text(), device))
    ours = calls(folder / "ours.log", device)
    assert [c for c in theirs if c[0] in ("open", "read")] == [c for c in ours if c[0] in ("open", "read")]
    # The device is smaller than what hdparm reads in 3 s: whole blocks, and no read that returns end of file.
    assert [c[2:] for c in ours if c[0] == "read"] == [(2 * MIB, 2 * MIB)] * 4
    assert (done["bytes"], done["blocks"], done["ended"]) == (8 * MIB, 4, "end")
    log = (folder / "strace.log").read_text()
    order = re.findall(r"\b(sync|nanosleep|clock_nanosleep)\(", log)
    assert order[order.index("sync") + 1] in ("nanosleep", "clock_nanosleep")


def _from_the_reopening(log: str, device: str) -> str:
    """Return the log from the reopening of the device for the stream, with the device name instead of the
    descriptor's path."""
    lines = log.splitlines(keepends=True)
    opening = re.compile(r'"/proc/self/fd/\d+", O_RDONLY\|O_NONBLOCK[^<]*= \d+<[^>]*' + device + ">")
    at = next(n for n, line in enumerate(lines) if opening.search(line))
    return re.sub(r'"/proc/self/fd/\d+"', f'"/dev/{device}"', lines[at]) + "".join(lines[at + 1 :])


# Written data.


@pytest.mark.parametrize("percent", [0, 1, 50, 99, 100])
@pytest.mark.parametrize("block", [512, 4096, 16_535, MIB])
def test_what_is_written_is_what_the_description_says(
    probe: Probe, folder: Path, percent: int, block: int
) -> None:
    path = make_set(probe, folder, count=3, size=50_000, seed=5)
    done = probe(
        "stream", set="s", files=[2], operation="write", block_size=block, data=f"{percent} % random"
    )
    assert (path / "f000002").read_bytes() == data(percent, 5, 2, 50_000)
    assert (path / "f000001").read_bytes() == content("text", 5, 1, 50_000)
    assert done["blocks"] == -(-50_000 // block)
    assert done["short_block"] == 50_000 % block
    assert done["verified"] is True


def test_the_random_part_repeats_and_no_page_does(probe: Probe, folder: Path) -> None:
    path = make_set(probe, folder, count=1, size=0)
    probe(
        "stream", set="s", operation="write", block_size=MIB, volume=PERIOD + 3 * PAGE, data="random", seed=9
    )
    written = (path / "f000000").read_bytes()
    assert written[: 2 * PAGE] == data(100, 9, 0, 2 * PAGE)
    pages = [written[at : at + PAGE] for at in range(0, len(written), PAGE)]
    assert pages[PERIOD // PAGE][8:] == pages[0][8:]
    assert len(set(pages)) == len(pages)


@pytest.mark.parametrize("percent", [0, 25, 50, 75, 100])
def test_zlib_leaves_the_share_that_was_asked_for(probe: Probe, folder: Path, percent: int) -> None:
    path = make_set(probe, folder, count=1, size=4 * MIB, content="zeros")
    probe("stream", set="s", operation="write", data=f"{percent} % random")
    written = (path / "f000000").read_bytes()
    assert len(zlib.compress(written, 6)) / len(written) == pytest.approx(percent / 100, abs=0.02)
    for at in range(0, len(written), 64 * PAGE):
        page = written[at : at + PAGE]
        assert len(zlib.compress(page, 6)) / PAGE == pytest.approx(percent / 100, abs=0.02)


def test_writing_in_place_keeps_what_is_behind_it(probe: Probe, folder: Path) -> None:
    path = make_set(probe, folder, count=1, size=20_000, content="random") / "f000000"
    inode = path.stat().st_ino
    probe("stream", set="s", operation="write", truncate=False, volume=8192, data="random", seed=3)
    assert path.read_bytes() == data(100, 3, 0, 8192) + content("random", 1, 0, 20_000)[8192:]
    probe("stream", set="s", operation="write", volume=100, data="zeros")
    assert path.read_bytes() == bytes(100)
    assert path.stat().st_ino == inode
    assert probe("stream", set="s", operation="read")["bytes"] == 100  # the registry knows the new size


@pytest.mark.parametrize(
    "kind", ["hardlink", "symlink-absolute", "symlink-relative", "symlink-chain", "regular"]
)
def test_a_stream_goes_through_the_names_of_a_view(probe: Probe, folder: Path, kind: str) -> None:
    make_set(probe, folder, count=2, size=10_000)
    probe("link", set="s", files=[1], view="A", kind=kind)
    done = probe("stream", set="s", view="A", operation="read", block_size=4096)
    assert (done["bytes"], done["start_pages"], done["start_resident"]) == (10_000, 3, 0)
    probe("stream", set="s", view="A", operation="write", data="random", seed=3)
    assert (folder / "s.A/f000001").read_bytes() == data(100, 3, 1, 10_000)
    assert (folder / "s/f000000").read_bytes() == content("text", 1, 0, 10_000)


# Counters.


@pytest.mark.root
def test_bytes_are_those_that_the_device_moved(lab: Lab) -> None:
    make_set(lab.probe, lab.mounted, count=2, size=8 * MIB)
    common = {"set": "s", "files": [1], "devices": [lab.name], "histograms": True}
    lab.probe("syncfs", path=str(lab.mounted))
    lab.make_cold("noatime")
    cold = lab.probe("stream", operation="read", **common)
    assert (cold["start_pages"], cold["start_resident"]) == (2048, 0)
    assert 8 * MIB <= cold["devices"][lab.name]["read_bytes"] < 8 * MIB + 64 * 1024
    assert (cold["bytes"], cold["blocks"], cold["ended"]) == (8 * MIB, 8, "end")
    again = lab.probe("stream", operation="read", evict=False, **common)
    assert again["start_resident"] == 2048  # as published: it starts with a warm cache, and reports that
    assert again["devices"][lab.name]["read_bytes"] == 0
    evicted = lab.probe("stream", operation="read", **common)
    assert evicted["start_resident"] == 0
    assert evicted["devices"][lab.name]["read_bytes"] >= 8 * MIB
    sizes = {"block_size": 65536, "data": "random"}
    direct = lab.probe("stream", operation="write", direct=True, truncate=False, **sizes, **common)
    assert direct["devices"][lab.name]["write_bytes"] >= 8 * MIB
    assert direct["operations"]["write"]["count"] == 128
    late = lab.probe(
        "stream", operation="write", truncate=False, sync_after=str(lab.mounted), **sizes, **common
    )
    assert late["devices_after_sync"][lab.name]["write_bytes"] >= 8 * MIB
    early = lab.probe("stream", operation="write", truncate=False, flush="fsync", **sizes, **common)
    assert early["devices"][lab.name]["write_bytes"] >= 8 * MIB
    assert early["devices"][lab.name]["flush_ios"] >= 1


def test_a_stream_accounts_for_all_of_its_time(probe: Probe, folder: Path) -> None:
    make_set(probe, folder, count=1, size=MIB)
    done = probe("stream", set="s", operation="write", block_size=4096, flush="fdatasync", histograms=True)
    operations = done["operations"]
    assert {name: o["count"] for name, o in operations.items()} == {"write": 256, "fdatasync": 1, "close": 1}
    totals = sum(o["total_ns"] for o in operations.values())
    assert totals == pytest.approx(done["wall_ns"], abs=rounding_ns(len(operations)))
    assert sum(count for _, count in operations["write"]["histogram"]) == 256
    assert done["bytes_per_s"] == pytest.approx(done["bytes"] * 1e9 / done["wall_ns"])
    assert done["usage"]["faults_minor"] == 0


def test_a_stretched_stream_takes_longer_by_its_share_and_tells_so(probe: Probe, folder: Path) -> None:
    make_set(probe, folder, count=1, size=MIB)
    injected = []
    for _ in range(9):
        done = probe("stream", set="s", operation="read", block_size=65536, stretch=1.0)
        operations = done["operations"]
        worked = sum(o["total_ns"] for o in operations.values())
        unstretched = done["wall_ns"] - done["spun"]["wall_ns"]
        assert worked == pytest.approx(unstretched, abs=rounding_ns(len(operations)))
        injected.append(done["injected"])
    # Larger if another process took the CPU during the spin.
    assert min(injected) == pytest.approx(2.0, rel=0.01)


def test_a_time_limit_ends_with_the_block_that_passes_it(probe: Probe, folder: Path) -> None:
    make_set(probe, folder, count=1, size=4 * MIB)
    done = probe("stream", set="s", operation="read", block_size=512, seconds=1e-6)
    assert done["ended"] == "time"
    assert 1 <= done["blocks"] < 8192
    assert done["bytes"] == 512 * done["blocks"]
    whole = probe("stream", set="s", operation="read", block_size=4096, seconds=60)
    assert (whole["bytes"], whole["ended"]) == (4 * MIB, "end")


@pytest.mark.root
def test_what_leads_in_is_read_from_the_device_before_the_counted_part(lab: Lab) -> None:
    lab.unmount()
    counted = Path(f"/sys/block/{lab.name}/stat")
    before = int(counted.read_text().split()[2])
    done = lab.probe("stream", operation="read", device=lab.name, position=0.5, lead_in=MIB, block_size=MIB // 4,
                     volume=4 * MIB, direct=True, devices=[lab.name])  # fmt: skip
    assert done["bytes"] == 4 * MIB
    assert done["devices"][lab.name]["read_bytes"] == 4 * MIB
    assert (int(counted.read_text().split()[2]) - before) * 512 == 5 * MIB
    with pytest.raises(ProbeError, match="multiple of the block size"):
        lab.probe("stream", operation="read", device=lab.name, lead_in=MIB + 512, block_size=MIB, volume=MIB)
    lab.mount()
