"""The log of writes, drawn states and rebuilt images, against a slow second implementation."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from itertools import pairwise, zip_longest
from pathlib import Path

import pytest

from iotrial.design.keyed import seed_from_user
from iotrial.powercut.log import DISCARD, FLUSH, FUA, MARK, LogError, WriteLog
from iotrial.powercut.rebuild import Rebuilder
from iotrial.powercut.states import DISKS, SHAPES, Cache, CutPoint, arrivals, cut_points

SEED = seed_from_user(1)
SIZE = 64 * 1024
#: an entry: first sector, data (or number of sectors to discard, or text of a mark), flags
Item = tuple[int, bytes | int | str, int]


def log_of(folder: Path, items: list[Item], *, count: int | None = None, times: Sequence[int] = ()) -> Path:
    """Write a log from the kernel's description of the format; with ``times``, as the project's own disk does."""
    content = struct.pack("<QQQI", 0x6A736677736872, 1, len(items) if count is None else count, 512).ljust(
        512, b"\0"
    )
    for (sector, what, flags), time in zip_longest(items, times, fillvalue=0):
        text = what.encode() if isinstance(what, str) else b""
        data = what if isinstance(what, bytes) else b""
        sectors = what if isinstance(what, int) else len(data) // 512
        rest = text or struct.pack("<Q", time)
        content += (struct.pack("<QQQQ", sector, sectors, flags, len(text)) + rest).ljust(512, b"\0") + data
    path = folder / "log"
    path.write_bytes(content)
    return path


def random_items(seed: int, count: int = 120) -> list[Item]:
    choose = random.Random(seed)
    items: list[Item] = []
    for number in range(count):
        kind = choose.randrange(10)
        sector = choose.randrange(SIZE // 512 - 16)
        if kind == 0:
            items.append((0, b"", FLUSH))
        elif kind == 1:
            items.append((0, f"mark {number}", MARK))
        elif kind == 2:
            items.append((sector, choose.randrange(1, 16), DISCARD))
        else:
            data = bytes([number % 255 + 1]) * 512 * choose.randrange(1, 16)
            items.append((sector, data, FUA if kind == 3 else 0))
    return items


def slow_disk(items: list[Item]) -> bytearray:
    disk = bytearray(SIZE)
    for sector, what, _flags in items:
        if isinstance(what, int):
            disk[sector * 512 : (sector + what) * 512] = bytes(what * 512)
        elif isinstance(what, bytes):
            disk[sector * 512 : sector * 512 + len(what)] = what
    return disk


#: two operations: the reader was late, so that their marks are behind the second flush
LATE: list[Item] = [
    (0, "begun", MARK),
    (8, b"a" * 512, 0),
    (0, b"", FLUSH),
    (9, b"b" * 512, 0),
    (0, b"", FLUSH),
    (0, "k 1", MARK),
    (0, "k 2", MARK),
    (10, b"c" * 512, 0),
]
LATE_TIMES = (0, 100, 200, 300, 400, 0, 0, 900)


def test_marks_are_put_where_their_times_are(tmp_path: Path) -> None:
    """What was acknowledged at 250 ns is behind the flush at 200 ns, and before the write at 300 ns."""
    with WriteLog(log_of(tmp_path, LATE, times=LATE_TIMES)) as log:
        log.place([(250, "k 1"), (400, "k 2")], after=1)
        assert [(mark.entry, mark.text) for mark in log.marks] == [(0, "begun"), (3, "k 1"), (6, "k 2")]
        assert log.flushes == [2, 5]
        data = [log.data(entry)[:1] for entry in log.entries()]
        assert data == [b"", b"a", b"", b"", b"b", b"", b"", b"c"]
        assert [entry.mark for entry in log.entries()] == [one in (0, 3, 6) for one in range(8)]
        assert log.within_cache(8, 512) == 5  # entries 5 to 7 wrote 512 bytes
        acknowledged = {p.entry: p.acknowledged_before for p in cut_points(log, SEED, 60, after=1)}
        assert acknowledged[3] == ()
        assert acknowledged[4] == acknowledged[6] == ("k 1",)
        assert acknowledged[7] == acknowledged[8] == ("k 1", "k 2")


def test_marks_stay_in_order_and_behind_what_is_kept(tmp_path: Path) -> None:
    with WriteLog(log_of(tmp_path, LATE, times=LATE_TIMES)) as log:
        log.place([(50, "early"), (1000, "k 1"), (350, "k 2")], after=1)
        assert [(mark.entry, mark.text) for mark in log.marks[1:]] == [(1, "early"), (7, "k 1"), (8, "k 2")]
        assert len(log) == 9


def test_a_log_of_the_kernel_has_no_times(tmp_path: Path) -> None:
    with WriteLog(log_of(tmp_path, LATE)) as log, pytest.raises(LogError, match="no times"):
        log.place([(250, "k 1")], after=1)


def test_entries_flushes_and_marks_are_read(tmp_path: Path) -> None:
    items: list[Item] = [
        (8, b"a" * 1024, 0),
        (0, b"", FLUSH),
        (0, "done", MARK),
        (2, 4, DISCARD),
        (1, b"b" * 512, FUA),
    ]
    with WriteLog(log_of(tmp_path, items)) as log:
        assert len(log) == 5
        found = [(e.offset, e.length, e.flush, e.discard, e.fua) for e in log.entries()]
        assert found == [
            (4096, 1024, False, False, False),
            (0, 0, True, False, False),
            (0, 0, False, False, False),
            (1024, 2048, False, True, False),
            (512, 512, False, False, True),
        ]
        assert log.flushes == [1]
        assert [(mark.entry, mark.text) for mark in log.marks] == [(2, "done")]
        assert [log.data(entry) for entry in log.entries()] == [
            b"a" * 1024,
            b"",
            b"",
            bytes(2048),
            b"b" * 512,
        ]
        assert [log.last_flush(before) for before in range(6)] == [-1, -1, 1, 1, 1, 1]
        assert log.marked("done") == 2
        with pytest.raises(LogError, match="no mark 'other' among 1"):
            log.marked("other")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: b"", "empty"),
        (lambda content: content[:20], "found 20 bytes"),
        (lambda content: b"\1" + content[1:], "magic"),
        (lambda content: content[:-1], "cut short in entry 1"),
        (lambda content: content[: 512 + 100], "cut short in entry 0"),
        (
            lambda content: content[:16] + (1 << 60).to_bytes(8, "little") + content[24:],
            "up to 20000000 entries",
        ),
        (lambda content: content[:24] + (777).to_bytes(4, "little") + content[28:], "found 777 bytes"),
    ],
)
def test_a_file_that_is_no_whole_log_is_refused(
    tmp_path: Path, change: Callable[[bytes], bytes], message: str
) -> None:
    path = log_of(tmp_path, [(0, b"", FLUSH), (8, b"a" * 1024, 0)])
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(LogError, match=message):
        WriteLog(path)


def test_a_mark_longer_than_its_sector_is_refused(tmp_path: Path) -> None:
    path = log_of(tmp_path, [(0, "x", MARK)])
    content = bytearray(path.read_bytes())
    content[512 + 24 : 512 + 32] = (10_000).to_bytes(8, "little")
    path.write_bytes(content)
    with pytest.raises(LogError, match="a mark of 10000 bytes"):
        WriteLog(path)


@pytest.mark.parametrize("seed", range(5))
def test_the_image_as_of_each_flush_is_that_of_a_slow_disk(tmp_path: Path, seed: int) -> None:
    items = random_items(seed)
    image = tmp_path / "image"
    with WriteLog(log_of(tmp_path, items)) as log, Rebuilder(log, image, SIZE) as rebuilder:
        points = list(cut_points(log, SEED, 0))
        assert [point.entry for point in points] == [
            n + 1 for n, item in enumerate(items) if item[2] == FLUSH
        ]
        for point in points:
            rebuilder.build(point)
            assert image.read_bytes() == slow_disk(items[: point.entry])
        rebuilder.advance(len(items))
        assert image.read_bytes() == slow_disk(items)
        rebuilder.advance(3)  # backwards
        assert image.read_bytes() == slow_disk(items[:3])


def versions_of(items: list[Item], point: CutPoint) -> list[set[bytes]]:
    """Return for each sector what it may hold: any version since the last flush, or the one before."""
    flush = max((n for n, item in enumerate(items[: point.entry]) if item[2] & FLUSH), default=-1)
    stable = slow_disk(items[: flush + 1])
    found = [{bytes(stable[at : at + 512])} for at in range(0, SIZE, 512)]
    for sector, what, flags in items[flush + 1 : point.entry]:
        data = bytes(what * 512) if isinstance(what, int) else what
        if isinstance(data, bytes):
            for n in range(len(data) // 512):
                version = data[n * 512 : (n + 1) * 512]
                if flags & FUA:  # nothing older can be there any more
                    found[sector + n] = set()
                found[sector + n].add(version)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_a_drawn_state_has_in_each_sector_a_version_that_the_disk_may_have_kept(
    tmp_path: Path, seed: int
) -> None:
    items = random_items(seed)
    image = tmp_path / "image"
    shapes = set()
    different = set()
    with WriteLog(log_of(tmp_path, items)) as log, Rebuilder(log, image, SIZE) as rebuilder:
        for point in cut_points(log, SEED, 300):
            if point.kind == "flush":
                continue
            rebuilder.build(point)
            content = image.read_bytes()
            for n, allowed in enumerate(versions_of(items, point)):
                assert content[n * 512 : (n + 1) * 512] in allowed, (point, n)
            shapes.add(point.shape)
            different.add(content)
    assert shapes == set(SHAPES)
    assert len(different) > 100


def test_a_drawn_state_needs_nothing_of_the_one_before(tmp_path: Path) -> None:
    items = random_items(9)
    with WriteLog(log_of(tmp_path, items)) as log:
        points = list(cut_points(log, SEED, 60))
        alone = []
        for number, point in enumerate(points):
            image = tmp_path / f"image{number}"
            with Rebuilder(log, image, SIZE) as rebuilder:
                rebuilder.build(point)
            alone.append(image.read_bytes())
            image.unlink()
        image = tmp_path / "image"
        with Rebuilder(log, image, SIZE) as rebuilder:
            for point, wanted in zip(points, alone, strict=True):
                rebuilder.build(point)
                assert image.read_bytes() == wanted


def test_draws_depend_on_seed_and_number_alone(tmp_path: Path) -> None:
    with WriteLog(log_of(tmp_path, random_items(3))) as log:
        few = {p.index: p for p in cut_points(log, SEED, 20) if p.kind == "drawn"}
        many = {p.index: p for p in cut_points(log, SEED, 200) if p.kind == "drawn"}
        assert all(many[index] == point for index, point in few.items())
        other = {p.index: p for p in cut_points(log, seed_from_user(2), 200) if p.kind == "drawn"}
        assert sum(other[index].entry == point.entry for index, point in many.items()) < 20
        assert [p.entry for p in cut_points(log, SEED, 200)] == sorted(
            p.entry for p in cut_points(log, SEED, 200)
        )


def test_acknowledged_is_what_was_marked_before_the_cut_and_after_the_beginning(tmp_path: Path) -> None:
    items: list[Item] = [
        (0, "mkfs", MARK),
        (0, "begun", MARK),
        (0, b"", FLUSH),
        (0, "a", MARK),
        (0, b"", FLUSH),
        (0, "b", MARK),
    ]
    with WriteLog(log_of(tmp_path, items)) as log:
        found = {(p.entry, p.acknowledged_before) for p in cut_points(log, SEED, 200, after=2)}
        assert found == {(3, ()), (4, ("a",)), (5, ("a",)), (6, ("a", "b"))}


def test_a_write_is_torn_between_sectors_of_the_disk(tmp_path: Path) -> None:
    items: list[Item] = [(0, b"a" * 8192, 0)]
    kept = set()
    for sector_bytes in (512, 4096):
        with WriteLog(log_of(tmp_path, items)) as log:
            for point in cut_points(log, SEED, 400, cache=Cache(sector_bytes=sector_bytes)):
                parts = [(part.start, part.stop) for part in arrivals(log, point)]
                assert all(at % sector_bytes == 0 for part in parts for at in part)
                assert all(first[1] <= second[0] for first, second in pairwise(parts))
                kept.add((sector_bytes, sum(stop - start for start, stop in parts)))
    assert {size for unit, size in kept if unit == 512} >= {0, 512, 7680, 8192}
    assert {size for unit, size in kept if unit == 4096} == {0, 4096, 8192}


def test_a_cache_holds_so_much_and_older_writes_are_stable(tmp_path: Path) -> None:
    items: list[Item] = [(n * 2, bytes([n + 1]) * 1024, 0) for n in range(40)]
    with WriteLog(log_of(tmp_path, items)) as log:
        for point in cut_points(log, SEED, 100, cache=Cache(size_bytes=10 * 1024)):
            assert point.stable == max(0, point.entry - 10)
        for point in cut_points(log, SEED, 100, cache=Cache(volatile=False)):
            assert point.stable == point.entry
            assert {part.entry.index for part in arrivals(log, point)} <= {point.entry}


def test_a_log_that_writes_beyond_the_disk_is_refused(tmp_path: Path) -> None:
    path = log_of(tmp_path, [(SIZE // 512 - 1, b"a" * 1024, 0)])
    with (
        WriteLog(path) as log,
        Rebuilder(log, tmp_path / "image", SIZE) as rebuilder,
        pytest.raises(LogError, match="entry 0 ends at byte 66048 of a disk of 65536"),
    ):
        rebuilder.advance(1)


def test_the_disk_may_begin_with_an_image(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.write_bytes(bytes(range(256)) * (SIZE // 256))
    wanted = bytearray(base.read_bytes())
    wanted[512:1024] = b"a" * 512
    with (
        WriteLog(log_of(tmp_path, [(1, b"a" * 512, 0)])) as log,
        Rebuilder(log, tmp_path / "i", SIZE, base=base) as rebuilder,
    ):
        rebuilder.advance(1)
        assert (tmp_path / "i").read_bytes() == wanted
    assert base.read_bytes()[512:1024] != b"a" * 512


# -- disks by name


def states(folder: Path, items: list[Item], disk: str, drawn: int = 300) -> list[tuple[CutPoint, bytes]]:
    """Return drawn points of a log, and the disk after each."""
    found = []
    with WriteLog(log_of(folder, items)) as log, Rebuilder(log, folder / "image", SIZE) as rebuilder:
        for point in cut_points(log, SEED, drawn, cache=DISKS[disk][0]):
            if point.kind == "drawn":
                rebuilder.build(point)
                found.append((point, (folder / "image").read_bytes()))
    return found


#: four writes of eight sectors each, a flush after the second
FOUR: list[Item] = [(8 * n, bytes([n + 1]) * 4096, 0) for n in range(2)] + [(0, b"", FLUSH)]
FOUR += [(8 * n, bytes([n + 1]) * 4096, 0) for n in range(2, 4)]


def arrived(disk: bytes) -> tuple[int, ...]:
    """Return how many sectors of each write are there."""
    return tuple(
        sum(disk[at : at + 512] != bytes(512) for at in range(4096 * n, 4096 * n + 4096, 512))
        for n in range(4)
    )


def test_an_ordered_disk_has_all_before_the_last_that_arrived(tmp_path: Path) -> None:
    found = {arrived(disk) for _, disk in states(tmp_path, FOUR, "ordered")}
    assert all(later == 0 or earlier == 8 for each in found for earlier, later in pairwise(each))
    # it is volatile all the same, and tears the last one
    assert {(8, 8, 0, 0), (8, 8, 8, 8)} <= found
    assert any(0 < each[2] < 8 for each in found)


def test_a_volatile_disk_reorders_and_keeps_what_was_flushed(tmp_path: Path) -> None:
    points = states(tmp_path, FOUR, "volatile")
    assert any(arrived(disk)[2] == 0 and arrived(disk)[3] == 8 for _, disk in points)
    assert all(arrived(disk)[:2] == (8, 8) for point, disk in points if point.entry >= 3)


def test_a_disk_that_lies_loses_what_was_flushed(tmp_path: Path) -> None:
    assert any(arrived(disk)[0] < 8 for point, disk in states(tmp_path, FOUR, "lying") if point.entry >= 3)


def test_a_disk_that_lies_ignores_fua_too(tmp_path: Path) -> None:
    fua: list[Item] = [(0, b"x" * 4096, FUA), (8, b"y" * 4096, 0)]
    for disk, loses in (("volatile", False), ("lying", True)):
        after = [arrived(image)[0] < 8 for point, image in states(tmp_path, fua, disk) if point.entry >= 1]
        assert any(after) is loses, disk


def test_sectors_of_4096_bytes_are_never_torn(tmp_path: Path) -> None:
    assert {count for _, disk in states(tmp_path, FOUR, "4k-sectors") for count in arrived(disk)} == {0, 8}


def test_a_write_through_disk_may_only_tear_the_write_in_progress(tmp_path: Path) -> None:
    for point, disk in states(tmp_path, FOUR, "write-through"):
        whole = [n for n, entry in enumerate((0, 1, 3, 4)) if entry < point.entry]
        assert all(arrived(disk)[n] == 8 for n in whole)
        assert all(arrived(disk)[n] == 0 for n in range(len(whole) + 1, 4))


def test_a_bad_sector_is_zeros_where_something_had_been_written(tmp_path: Path) -> None:
    flushed = [*FOUR, (0, b"", FLUSH), (100, b"z" * 512, 0)]
    missing = [
        32 - sum(arrived(disk)) for point, disk in states(tmp_path, flushed, "bad-sector") if point.entry >= 6
    ]
    assert set(missing) <= {0, 1}  # 0: it is the last write that lost its sector
    assert 1 in missing
