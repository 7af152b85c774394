"""The write log of a simulated disk: it is complete, its order is that of completion, and marks are in their place.

The log is read here by a parser of its own, from the kernel's description of dm-log-writes.
"""

from __future__ import annotations

import mmap
import os
import random
import shutil
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from probe_client import MIB, Probe, ProbeError

pytestmark = [
    pytest.mark.root,
    pytest.mark.alone,
]  # attaching changes a loop device's read-ahead for a moment
SIZE = 64 * MIB
FLUSH, DISCARD, MARK = 1, 4, 8
SLOW = {
    "read_us": 0, "write_us": 30_000, "jump_us": 0, "flush_us": 0, "overhead_us": 0, "read_bytes_per_s": 1e9,
    "write_bytes_per_s": 1e9, "depth": 32,
}  # fmt: skip


@dataclass
class Entry:
    offset: int
    length: int
    flags: int
    data: bytes
    text: str


def parsed(log: Path) -> list[Entry]:
    content = log.read_bytes()
    magic, version, count, sector = struct.unpack_from("<QQQI", content)
    assert (magic, version, sector) == (0x6A736677736872, 1, 512)
    found, at = [], sector
    for _ in range(count):
        first, sectors, flags, inline = struct.unpack_from("<QQQQ", content, at)
        text = content[at + 32 : at + 32 + inline].decode()
        at += sector
        length = sectors * sector
        data = b"" if flags & DISCARD else content[at : at + length]
        at += len(data)
        found.append(Entry(first * sector, length, flags, data, text))
    assert at == len(content)
    return found


def replayed(entries: list[Entry], size: int = SIZE) -> bytearray:
    disk = bytearray(size)
    for entry in entries:
        disk[entry.offset : entry.offset + entry.length] = (
            bytes(entry.length) if entry.flags & DISCARD else entry.data
        )
    return disk


class Logged:
    """A disk that logs, with a loop device on it."""

    def __init__(self, probe: Probe, folder: Path, **more: Any) -> None:
        self.log, self.marks = folder / "log", folder / "marks"
        self.probe = probe
        model = {"instant": {}} if "flat" not in more else {}
        image = probe("image_modelled", size=SIZE, log=str(self.log), marks=str(self.marks), **model, **more)
        loop = probe("loop_attach", image=image["image"], direct_io=True)
        self.path, self.name = loop["device"], loop["name"]

    def content(self) -> bytes:
        with open(self.path, "rb") as device:  # noqa: PTH123
            return device.read()

    def marker(self) -> socket.socket:
        found = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        found.connect(str(self.marks))
        return found

    def write(self, offset: int, data: bytes) -> None:
        room = mmap.mmap(-1, len(data))
        room[:] = data
        descriptor = os.open(self.path, os.O_WRONLY | os.O_DIRECT)
        assert os.pwritev(descriptor, [room], offset) == len(data)
        os.close(descriptor)

    def entries(self) -> list[Entry]:
        self.probe("loop_detach", device=self.path)
        return parsed(self.log)


def mark(connection: socket.socket, text: str) -> None:
    connection.send(text.encode())
    assert connection.recv(1) == b"k"


@pytest.fixture
def memory() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="iotrial-cut-", dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("filesystem", ["ext4", "btrfs"])
def test_replaying_the_whole_log_gives_the_disk_byte_by_byte(
    isolated: Probe, memory: Path, filesystem: str
) -> None:
    """With deletions that are discarded: 64 MiB do for ext4, and for btrfs with mixed groups."""
    disk = Logged(isolated, memory)
    mkfs = {"ext4": ["mkfs.ext4", "-q", "-F"], "btrfs": ["mkfs.btrfs", "-q", "-f", "--mixed"]}[filesystem]
    made = isolated("run", argv=[*mkfs, disk.path])
    assert made["exit"] == 0, made
    root = memory / "root"
    root.mkdir()
    isolated("mount", source=disk.path, target=str(root), type=filesystem, options=["discard"])
    script = (
        "cd $0; for i in $(seq 60); do head -c $((i * 3000)) /dev/urandom > f$i; [ $((i % 7)) = 0 ] && sync f$i; done; "
        "rm f?; cp f20 g; mv g f21; fallocate -p -o 4096 -l 8192 f30; sync"
    )
    ran = isolated("run", argv=["sh", "-c", script, str(root)])
    assert ran["exit"] == 0, ran
    isolated("unmount", target=str(root))
    before = disk.content()
    entries = disk.entries()
    assert any(entry.flags & DISCARD for entry in entries)
    assert sum(bool(entry.flags & FLUSH) for entry in entries) > 8
    assert replayed(entries) == before


def test_random_writes_from_many_threads_are_all_in_the_log(isolated: Probe, memory: Path) -> None:
    disk = Logged(isolated, memory)
    choose = random.Random(5)
    plans = [
        [(choose.randrange(SIZE // 4096) * 4096, os.urandom(4096)) for _ in range(100)] for _ in range(4)
    ]
    threads = [
        threading.Thread(target=lambda plan=plan: [disk.write(offset, data) for offset, data in plan])
        for plan in plans
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    before = disk.content()
    entries = disk.entries()
    assert sum(entry.length for entry in entries) == 400 * 4096
    assert replayed(entries) == before


def test_a_write_completed_before_a_flush_is_before_it_in_the_log(isolated: Probe, memory: Path) -> None:
    """Each thread writes its number, flushes, and marks: write, flush and mark must be in this order."""
    disk = Logged(isolated, memory, flat={**SLOW, "write_us": 200})

    def work(thread: int) -> None:
        connection = disk.marker()
        descriptor = os.open(disk.path, os.O_WRONLY)
        for number in range(50):
            disk.write(thread * MIB + number * 4096, f"{thread} {number}".encode().ljust(4096))
            os.fsync(descriptor)
            mark(connection, f"{thread} {number}")
        os.close(descriptor)
        connection.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    written: dict[str, int] = {}
    flushes: list[int] = []
    marked = 0
    for place, entry in enumerate(disk.entries()):
        if entry.flags & FLUSH:
            flushes.append(place)
        elif entry.flags & MARK:
            marked += 1
            assert any(flush > written[entry.text] for flush in flushes), entry.text
        elif entry.length == 4096:
            written[entry.data.decode().strip()] = place
    assert marked == 200


def test_a_flush_that_arrives_before_a_write_completes_is_before_it_in_the_log(
    isolated: Probe, memory: Path
) -> None:
    """A flush covers no write that was still under way: on a real disk it might not be in its cache yet."""
    disk = Logged(isolated, memory, flat=SLOW)
    for number in range(5):
        writer = threading.Thread(target=disk.write, args=(number * 4096, bytes([number + 1]) * 4096))
        writer.start()
        time.sleep(0.01)  # of the 30 ms that the write takes
        isolated("evict_device", device=disk.path)  # flushes
        writer.join()
        isolated("disk_mark", device=disk.name, text=str(number))
    rounds: list[list[str]] = [[]]
    for entry in disk.entries():
        if entry.flags & MARK:
            rounds.append([])
        else:
            rounds[-1].append("flush" if entry.flags & FLUSH else "write")
    assert [kinds.count("write") for kinds in rounds[:5]] == [1] * 5
    # one round may come too late on a busy machine
    assert any(kinds.index("flush") < kinds.index("write") for kinds in rounds[:5] if "flush" in kinds)


def test_marks_have_their_text_and_too_long_ones_end_the_connection(isolated: Probe, memory: Path) -> None:
    disk = Logged(isolated, memory)
    one, other = disk.marker(), disk.marker()
    mark(one, "first")
    mark(other, "ä" * 240)
    isolated("disk_mark", device=disk.name, text="third")
    one.send(b"x" * 481)
    assert one.recv(1) == b""
    mark(other, "last")
    with pytest.raises(ProbeError, match="1 to 480 bytes"):
        isolated("disk_mark", device=disk.name, text="x" * 481)
    one.close()
    other.close()
    texts = [entry.text for entry in disk.entries() if entry.flags & MARK]
    assert texts == ["first", "ä" * 240, "third", "last"]


def test_a_disk_over_an_image_shows_it_and_forgets_what_was_written(isolated: Probe, memory: Path) -> None:
    image = memory / "image"
    image.write_bytes(os.urandom(MIB) + bytes(SIZE - MIB))
    start = image.read_bytes()
    made = isolated("image_modelled", size=SIZE, over=str(image), instant={})
    loop = isolated("loop_attach", image=made["image"], direct_io=True)
    for number in range(3):
        with open(loop["device"], "r+b", buffering=0) as device:  # noqa: PTH123
            assert device.read(MIB) == image.read_bytes()[:MIB]
            device.seek(number * 8192)
            device.write(b"written" * 1000)
        isolated("disk_forget", device=loop["name"])
        with image.open("r+b") as file:  # the next state
            file.seek(4096 * (number + 1))
            file.write(bytes([number]) * 100)
    changed = bytearray(start)
    for number in range(3):
        changed[4096 * (number + 1) : 4096 * (number + 1) + 100] = bytes([number]) * 100
    assert image.read_bytes() == changed
    isolated("loop_detach", device=loop["device"])


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ({"instant": {}, "marks": "/tmp/marks"}, "expected a log"),
        ({"instant": {}, "over": "/nonexistent/image"}, "No such file"),
        ({"instant": {}, "log": "/nonexistent/log"}, "No such file"),
        ({"instant": {}, "flat": SLOW}, "exactly one"),
        ({}, "exactly one"),
    ],
)
def test_what_cannot_be_made_is_refused(isolated: Probe, description: dict[str, Any], message: str) -> None:
    with pytest.raises(ProbeError, match=message):
        isolated("image_modelled", size=SIZE, **description)


def test_an_image_of_another_size_and_an_existing_log_are_refused(isolated: Probe, memory: Path) -> None:
    (memory / "image").write_bytes(bytes(4096))
    with pytest.raises(ProbeError, match="expected 67108864 bytes, found 4096"):
        isolated("image_modelled", size=SIZE, over=str(memory / "image"), instant={})
    (memory / "log").write_text("mine")
    with pytest.raises(ProbeError, match="File exists"):
        isolated("image_modelled", size=SIZE, log=str(memory / "log"), instant={})
    assert (memory / "log").read_text() == "mine"
