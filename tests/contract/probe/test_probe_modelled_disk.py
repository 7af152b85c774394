"""A simulated disk: its contents, its time accounting against the kernel's counters, and that nothing
outlives it."""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from probe_client import MIB, Probe, ProbeError, eventually, inner, zombie

pytestmark = pytest.mark.root
SIZE = 64 * MIB
TURNING = {
    "turns_per_minute": 15000,
    "seek_track_us": 200,
    "seek_mean_us": 1000,
    "seek_full_us": 2000,
    "outer_bytes_per_s": 200e6,
    "inner_bytes_per_s": 100e6,
    "interface_bytes_per_s": 1e9,
    "overhead_us": 50,
    "ahead_bytes": 0,
    "cache_bytes": 0,
    "depth": 1,
    "order": "arrival",
    "stroke": 1,
}
FLAT = {
    "read_us": 200,
    "write_us": 100,
    "jump_us": 0,
    "flush_us": 100,
    "overhead_us": 20,
    "read_bytes_per_s": 500e6,
    "write_bytes_per_s": 400e6,
    "depth": 8,
}


#: the rotational flag of loop devices before the tests: attaching changes it, and restoring it is the
#: conductor's task
ROTATIONAL: dict[Path, str] = {}


def remember_rotational(name: str) -> None:
    file = Path(f"/sys/block/{name}/queue/rotational")
    with contextlib.suppress(OSError):
        ROTATIONAL.setdefault(file, file.read_text())


@pytest.fixture(scope="module", autouse=True)
def rotational_is_put_back() -> Iterator[None]:
    yield
    for file, text in ROTATIONAL.items():
        if file.exists() and file.read_text() != text:
            file.write_text(text)


class Disk:
    """A simulated disk with a loop device on it."""

    def __init__(self, probe: Probe, **model: Any) -> None:
        image = probe("image_modelled", size=SIZE, **model)
        self.probe = probe
        self.server: int = image["server"]
        free = probe("loop_free")["name"]
        remember_rotational(free)
        loop = probe("loop_attach", image=image["image"], direct_io=True, device=free)
        self.path, self.name = loop["device"], loop["name"]
        assert loop["direct_io"]

    def account(self) -> dict[str, int]:
        return self.probe("disk_account", device=self.name)

    def read(self, offset: int, length: int) -> bytes:
        return direct(self.path, os.O_RDONLY, lambda fd, room: os.preadv(fd, [room], offset), length)

    def write(self, offset: int, data: bytes) -> None:
        direct(self.path, os.O_RDWR, lambda fd, room: os.pwritev(fd, [room], offset), len(data), data)


def direct(
    path: str, flags: int, move: Callable[[int, mmap.mmap], int], length: int, data: bytes = b""
) -> bytes:
    room = mmap.mmap(-1, length)
    room[: len(data)] = data
    fd = os.open(path, flags | os.O_DIRECT)
    try:
        assert move(fd, room) == length
        return bytes(room)
    finally:
        os.close(fd)


@pytest.fixture
def turning(isolated: Probe) -> Iterator[Disk]:
    disk = Disk(isolated, rotating=TURNING)
    yield disk
    isolated("loop_detach", device=disk.path)
    assert eventually(lambda: zombie(disk.server))


def counters(name: str) -> list[int]:
    return [int(word) for word in Path(f"/sys/block/{name}/stat").read_text().split()]


def test_what_is_written_is_read_wherever_it_lies(turning: Disk) -> None:
    blocks = {offset: os.urandom(8192) for offset in (0, 4096 * 3, SIZE - 8192, 5 * MIB)}
    for offset, data in blocks.items():
        turning.write(offset, data)
    for offset, data in blocks.items():
        assert turning.read(offset, 8192) == data
    assert turning.read(20 * MIB, 4096) == bytes(4096)


def test_its_account_of_requests_is_the_kernels_and_of_time_never_more(turning: Disk) -> None:
    before, kernel = turning.account(), counters(turning.name)
    for n in range(40):
        turning.read(n * 1_597_440 // 4096 * 4096, 4096 * (1 + n % 3))
    after = turning.account()
    more = {key: after[key] - before[key] for key in after}
    read = [b - a for a, b in zip(kernel, counters(turning.name), strict=True)]
    assert more["reads"] == read[0] == 40
    assert more["read_bytes"] == read[2] * 512
    # One request at a time, so that the kernel's times are per request; it counts whole milliseconds.
    assert read[3] + 40 >= more["response_ns"] / 1e6
    parts = sum(more[part] for part in ("seek_ns", "rotation_ns", "transfer_ns")) + 40 * 50_000
    assert abs(more["response_ns"] - parts) <= 4 * 40  # rounding of each part


def test_reading_in_order_takes_what_the_zones_say(turning: Disk) -> None:
    outer, inner_rate = TURNING["outer_bytes_per_s"], TURNING["inner_bytes_per_s"]
    for start in (0, SIZE - 4 * MIB):
        before = turning.account()["transfer_ns"]
        turning.read(start, 4 * MIB)
        steps = 1000
        shares = [(start + (n + 0.5) * 4 * MIB / steps) / SIZE for n in range(steps)]
        wanted = sum(4 * MIB / steps / math.sqrt(outer**2 - s * (outer**2 - inner_rate**2)) for s in shares)
        assert turning.account()["transfer_ns"] - before == pytest.approx(wanted * 1e9, rel=1e-4)


def test_a_flat_one_keeps_its_latency_and_rate(isolated: Probe) -> None:
    disk = Disk(isolated, flat=FLAT)
    before = disk.account()
    disk.write(MIB, os.urandom(256 * 1024))
    disk.read(MIB, 256 * 1024)
    more = {key: value - before[key] for key, value in disk.account().items()}
    wanted = (20 + 100) * 1000 + 256 * 1024 / 400e6 * 1e9 + (20 + 200) * 1000 + 256 * 1024 / 500e6 * 1e9
    assert more["response_ns"] == pytest.approx(wanted, abs=10)
    isolated("loop_detach", device=disk.path)


def test_a_disk_that_collects_garbage_moves_fewer_pages_for_the_same_writes_after_a_discard(
    isolated: Probe,
) -> None:
    collects = {"block_bytes": MIB // 4, "spare": 0.07, "page_move_us": 10, "erase_us": 100}
    disk = Disk(isolated, flat={**FLAT, "collects": collects})
    draw = random.Random(7)
    places = [draw.randrange(SIZE // 4096) * 4096 for _ in range(12_000)]

    def moved_by(which: list[int]) -> int:
        before = disk.account()["moved_pages"]
        for place in which:
            disk.write(place, b"x" * 4096)
        return disk.account()["moved_pages"] - before

    isolated("disk_pace", device=disk.name, modelled=False)
    for start in range(0, SIZE, MIB):
        disk.write(start, bytes(MIB))
    assert moved_by(places[:10_000]) == 0, "what is not modelled is not counted"
    isolated("disk_pace", device=disk.name, modelled=True)
    used = moved_by(places[10_000:11_000])
    assert used > 1000, "more pages are moved than written: the spare is small"
    isolated("run", argv=["blkdiscard", "--offset", str(SIZE // 2), "--length", str(SIZE // 2), disk.path])
    assert disk.account()["trims"] > 0
    assert moved_by(places[11_000:]) < used / 2
    assert disk.account()["erased_blocks"] > 0
    isolated("loop_detach", device=disk.path)


def slow(**changes: float) -> dict[str, float | str]:
    """Return a model with seeks of 0.1 to 0.2 s and a revolution of 60 ms."""
    return {
        **TURNING, "turns_per_minute": 1000, "seek_track_us": 90e3, "seek_mean_us": 140e3, "seek_full_us": 200e3, **changes
    }  # fmt: skip


def test_with_its_model_put_aside_it_answers_at_once_and_then_as_modelled_again(isolated: Probe) -> None:
    disk = Disk(isolated, rotating=slow())
    places = [0, SIZE - 4096, 8192, SIZE - 12288]  # from one end to the other and back
    blocks = {place: os.urandom(4096) for place in places}
    before = disk.account()
    isolated("disk_pace", device=disk.name, modelled=False)
    took = []
    for _ in range(3):  # repeat: the machine may stall for a moment
        began = time.monotonic()
        for place, data in blocks.items():
            disk.write(place, data)
        assert {place: disk.read(place, 4096) for place in places} == blocks
        took.append(time.monotonic() - began)
    assert disk.account() == before
    isolated("disk_pace", device=disk.name, modelled=True)
    began = time.monotonic()
    assert {place: disk.read(place, 4096) for place in places} == blocks
    modelled = time.monotonic() - began
    more = disk.account()
    assert more["reads"] - before["reads"] == len(places)
    assert more["seeks"] - before["seeks"] == 3  # the head was at the first place
    assert modelled >= (more["response_ns"] - before["response_ns"]) / 1e9 > 3 * 0.14 > min(took)
    isolated("loop_detach", device=disk.path)


def test_what_waits_when_the_model_is_put_aside_is_answered(isolated: Probe) -> None:
    disk = Disk(isolated, rotating=slow(seek_track_us=5e6, seek_mean_us=7e6, seek_full_us=9.9e6))
    reading = threading.Thread(target=disk.read, args=(SIZE - 4096, 4096))
    began = time.monotonic()
    reading.start()
    assert eventually(lambda: disk.account()["reads"] > 0)
    isolated("disk_pace", device=disk.name, modelled=False)
    reading.join(5)
    assert not reading.is_alive()
    assert time.monotonic() - began < 5
    isolated("loop_detach", device=disk.path)


def test_what_its_write_cache_held_is_on_it_when_the_model_is_put_aside(isolated: Probe) -> None:
    disk = Disk(isolated, rotating=slow(cache_bytes=16 * MIB))
    data = os.urandom(MIB)
    disk.write(8 * MIB, data)
    isolated("disk_pace", device=disk.name, modelled=False)
    isolated("disk_pace", device=disk.name, modelled=True)
    before = disk.account()
    fd = os.open(disk.path, os.O_RDWR)
    os.fsync(fd)  # nothing is left to write
    os.close(fd)
    after = disk.account()
    assert after["flushes"] > before["flushes"]
    assert after["operations"] == before["operations"]
    assert disk.read(8 * MIB, MIB) == data
    isolated("loop_detach", device=disk.path)


def test_another_device_has_no_pace(isolated: Probe) -> None:
    with pytest.raises(ProbeError, match="is not on a simulated disk"):
        isolated("disk_pace", device="loop77", modelled=False)


def test_it_is_mounted_nowhere_and_its_server_is_outside(isolated: Probe, turning: Disk) -> None:
    for who in ("self", str(inner(isolated)), str(turning.server)):
        assert " - fuse " not in Path(f"/proc/{who}/mountinfo").read_text()
    for kind in ("mnt", "pid"):
        assert str(Path(f"/proc/{turning.server}/ns/{kind}").readlink()) == str(
            Path(f"/proc/self/ns/{kind}").readlink()
        )
        assert str(Path(f"/proc/{inner(isolated)}/ns/{kind}").readlink()) != str(
            Path(f"/proc/self/ns/{kind}").readlink()
        )
    held = [str(fd.readlink()) for fd in Path(f"/proc/{turning.server}/fd").iterdir()]
    assert held.count("/dev/fuse") == 1
    mine = [str(fd.readlink()) for fd in Path(f"/proc/{inner(isolated)}/fd").iterdir()]
    assert "/dev/fuse" not in mine


def test_it_goes_with_its_loop_device(isolated: Probe) -> None:
    disk = Disk(isolated, flat=FLAT)
    isolated("loop_detach", device=disk.path)
    assert eventually(lambda: zombie(disk.server))


@pytest.mark.parametrize("victim", ["server", "inner", "outer"])
def test_whoever_is_killed_while_it_is_written_to_nothing_waits_and_nothing_is_left(victim: str) -> None:
    probe = Probe("--isolate", stderr=subprocess.DEVNULL)
    disk = Disk(probe, rotating=TURNING)
    probe("run", argv=["mkfs.ext4", "-q", "-E", "nodiscard,lazy_itable_init=0", disk.path])
    probe("mount", source=disk.path, target="/mnt", type="ext4", options=[])
    probe("run", argv=["dd", "if=/dev/zero", "of=/mnt/dirty", "bs=1M", "count=40"])
    answers: list[object] = []

    def write() -> None:
        with contextlib.suppress(AssertionError, BrokenPipeError):
            answers.append(probe("run", argv=["dd", "if=/dev/zero", "of=/mnt/more", "bs=4k", "oflag=direct"]))

    writing = threading.Thread(target=write)
    written = disk_writes(disk)
    writing.start()
    assert eventually(lambda: disk_writes(disk) > written)
    pids = {"server": disk.server, "inner": inner(probe), "outer": probe.process.pid}
    os.kill(pids[victim], signal.SIGKILL)
    writing.join(20)
    assert not writing.is_alive()
    if victim == "server":
        assert answers[0]["exit"] != 0  # type: ignore[index]
        assert "rror" in answers[0]["stderr"]  # type: ignore[index]
        probe("unmount", target="/mnt")
        probe("loop_detach", device=disk.path)
        with pytest.raises(ProbeError):
            probe("disk_account", device=disk.name)
        probe.close()
    probe.process.wait(20)
    assert eventually(lambda: all(gone(pid) for pid in pids.values()))
    assert eventually(lambda: not Path(f"/sys/block/{disk.name}/loop").exists())


def disk_writes(disk: Disk) -> int:
    return counters(disk.name)[4]


def gone(pid: int) -> bool:
    return zombie(pid)


def test_a_stopped_server_makes_whoever_waits_wait_until_it_is_killed(isolated: Probe) -> None:
    disk = Disk(isolated, flat=FLAT)
    os.kill(disk.server, signal.SIGSTOP)
    found: list[int] = []

    def read() -> None:
        try:
            disk.read(0, 4096)
        except OSError as error:
            found.append(error.errno)

    reading = threading.Thread(target=read)
    reading.start()
    time.sleep(0.1)
    assert reading.is_alive()
    os.kill(disk.server, signal.SIGKILL)
    reading.join(10)
    assert found == [5]
    isolated("loop_detach", device=disk.path)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({}, "exactly one of rotating, flat and instant"),
        ({"rotating": TURNING, "flat": FLAT}, "exactly one of rotating, flat and instant"),
        ({"rotating": {**TURNING, "seek_mean_us": 5000}}, "seek times that increase"),
        ({"rotating": {**TURNING, "inner_bytes_per_s": 300e6}}, "inner_bytes_per_s"),
        ({"rotating": {**TURNING, "turns_per_minute": 0}}, "turns_per_minute"),
        ({"rotating": {**TURNING, "stroke": 0}}, "stroke"),
        ({"flat": {**FLAT, "depth": 0}}, "depth"),
        ({"flat": {**FLAT, "read_us": -1}}, "..._us"),
        ({"flat": {**FLAT, "colour": 1}}, "flat.colour: unknown field `colour`, expected one of `read_us`"),
    ],
)
def test_what_is_no_disk_is_refused(isolated: Probe, model: dict[str, Any], message: str) -> None:
    with pytest.raises(ProbeError, match=message.replace(".", r"\.")) as caught:
        isolated("image_modelled", size=SIZE, **model)
    assert caught.value.code == "bad_request"


def test_more_memory_than_there_is_is_the_kernels_error(isolated: Probe) -> None:
    with pytest.raises(ProbeError, match=r"memory|make a simulated disk") as caught:
        isolated("image_modelled", size=1 << 44, flat=FLAT)
    assert caught.value.code == "os"


def test_without_namespaces_there_is_none(probe: Probe) -> None:
    with pytest.raises(ProbeError, match="--isolate") as caught:
        probe("image_modelled", size=SIZE, flat=FLAT)
    assert caught.value.code == "unsupported"
