"""No disk with anything on it becomes a lab: every way to get one through that could be thought of, on stand-ins.

After each refusal every byte is what it was, the journal is empty, and nobody has the disk.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path

import pytest
from signatures import BY_HAND
from stand_in import LAB, MIB, SERIAL, SIZE, StandIn, place_on, replace_look_up, run

from iotrial.errors import IotrialError, RequestError
from iotrial.lab import guard, identity
from iotrial.lab.journal import Journal
from iotrial.lab.target import Target
from iotrial.probe.client import Probe

pytestmark = pytest.mark.root

SERIALS = {"disk.img": SERIAL, "other.img": "STANDIN-0002", "nameless.img": "0000"}
LOOP_CHANGE_FD = 0x4C06


@pytest.fixture(autouse=True)
def look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "names_of", identity.names_of)
    monkeypatch.setattr(guard, "LOOKED_AT_WITHIN_S", 0.2)
    replace_look_up(SERIALS)


@pytest.fixture
def attach(disk_folder: Path) -> Iterator[Callable[..., StandIn]]:
    """Makes stand-ins; they go at the end, and nothing may hold one then."""
    made: list[StandIn] = []

    def attach(name: str = "disk.img", size: int = SIZE, *options: str) -> StandIn:
        made.append(StandIn(disk_folder, name, size, *options))
        return made[-1]

    yield attach
    for disk in made:
        with open(disk.path) as device:  # noqa: PTH123
            os.close(os.open(f"/proc/self/fd/{device.fileno()}", os.O_RDONLY | os.O_EXCL))
        disk.detach()
        disk.file.unlink()


@pytest.fixture
def disk(attach: Callable[..., StandIn]) -> StandIn:
    return attach()


def refused(disk: StandIn, tmp_path: Path, *, path: str | None = None, **words: object) -> str:
    """The message with which the lab is refused; and the disk is as it was, with discarding and without."""
    before = disk.digest()
    journal = Journal(tmp_path / "journal")
    message = ""
    for discard in (False, True) if words.pop("always", True) else (False,):
        with (
            place_on(path or disk.path, journal, discard=discard, **words) as place,  # type: ignore[arg-type]
            pytest.raises(RequestError) as caught,
        ):
            place.open()
        message = caught.value.message
    assert journal.pending() == ()
    assert disk.digest() == before
    return message


def accepted(disk: StandIn, tmp_path: Path, *, path: str | None = None) -> None:
    with place_on(path or disk.path, Journal(tmp_path / "journal")) as place:
        place.open()
        assert place.device == disk.name
    assert disk.empty


@contextmanager
def partition(disk: StandIn) -> Iterator[str]:
    """A partition by the kernel's own call (BLKPG): this needs no table on the disk, and no support for one."""
    run("addpart", disk.path, "1", "2048", "65536")
    path = Path(f"{disk.path}p1")
    made = not path.exists()
    if made:
        major, minor = map(int, Path(f"/sys/class/block/{path.name}/dev").read_text().split(":"))
        os.mknod(path, stat.S_IFBLK | 0o600, os.makedev(major, minor))
    yield str(path)
    run("delpart", disk.path, "1")
    if made:
        path.unlink()


@contextmanager
def mounted(device: str, folder: Path) -> Iterator[None]:
    folder.mkdir(exist_ok=True)
    run("mount", device, str(folder))
    yield
    run("umount", str(folder))


def test_an_empty_disk_that_is_named_twice_becomes_a_lab_and_is_empty_again(
    disk: StandIn, tmp_path: Path
) -> None:
    queue = Path(f"/sys/block/{disk.name}/queue/read_ahead_kb")
    before = queue.read_text()
    journal = Journal(tmp_path / "journal")
    with place_on(disk.path, journal) as place:
        place.open()
        place.target.call(
            "fileset", set="s", dir=f"{place.root}/s", count=9, size=50_000, seed=1, content="text"
        )
        place.to_neutral(always=True, fresh=True)
        place.target.call("fileset_verify", set="s")
        place.format()
        assert disk.bytes_at(LAB, 40).startswith(b"iotrial lab 1\ntrial 1111")
        assert not disk.empty
    assert disk.empty
    assert journal.pending() == ()
    assert queue.read_text() == before


def test_a_disk_is_found_through_a_link_and_by_any_way_of_writing_its_serial_number(
    disk: StandIn, tmp_path: Path
) -> None:
    link = tmp_path / "by-id"
    link.symlink_to(disk.path)
    with place_on(str(link), Journal(tmp_path / "journal"), serial=" standin-0001\n") as place:
        place.open()
    assert disk.empty


# in use


def test_a_mounted_disk_is_refused_and_where_it_is_mounted_is_said(disk: StandIn, tmp_path: Path) -> None:
    run("mkfs.ext4", "-q", disk.path)
    with mounted(disk.path, tmp_path / "m"):
        assert f"mounted on {tmp_path}/m (seen by process " in refused(disk, tmp_path)


def test_a_disk_mounted_in_another_mount_namespace_is_refused(disk: StandIn, tmp_path: Path) -> None:
    run("mkfs.ext4", "-q", disk.path)
    (tmp_path / "m").mkdir()
    script = f"mount {disk.path} {tmp_path}/m && echo there && exec sleep 600"
    other = subprocess.Popen(["unshare", "--mount", "sh", "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "there\n"
        assert f"mounted on {tmp_path}/m (seen by process {other.pid} (sleep))" in refused(disk, tmp_path)
    finally:
        other.kill()
        other.communicate()


def test_a_disk_with_a_mounted_partition_is_refused(disk: StandIn, tmp_path: Path) -> None:
    with partition(disk) as part:
        run("mkfs.ext4", "-q", part)
        with mounted(part, tmp_path / "m"):
            assert f"mounted on {tmp_path}/m" in refused(disk, tmp_path)


def test_a_disk_with_a_partition_is_refused_though_nothing_is_in_it(disk: StandIn, tmp_path: Path) -> None:
    with partition(disk):
        assert f"has partitions ({disk.name}p1)" in refused(disk, tmp_path)


def test_a_partition_is_refused(disk: StandIn, tmp_path: Path) -> None:
    with partition(disk) as part:
        assert "wanted a whole disk, found the partition" in refused(disk, tmp_path, path=part)


def test_swap_is_refused_and_named(disk: StandIn, tmp_path: Path) -> None:
    run("mkswap", disk.path)
    run("swapon", disk.path)
    try:
        assert f"{disk.path} is swap" in refused(disk, tmp_path)
    finally:
        run("swapoff", disk.path)


def test_a_disk_that_somebody_else_has_claimed_is_refused(disk: StandIn, tmp_path: Path) -> None:
    holder = os.open(disk.path, os.O_RDONLY | os.O_EXCL)
    try:
        assert f"open in process {os.getpid()}" in refused(disk, tmp_path)
    finally:
        os.close(holder)


def test_a_disk_that_a_program_has_open_without_claiming_it_is_refused(disk: StandIn, tmp_path: Path) -> None:
    # the kernel's claim does not see this one: a virtual machine writes to its disk like that
    holder = os.open(disk.path, os.O_RDWR)
    try:
        assert f"in use: open in process {os.getpid()}" in refused(disk, tmp_path)
    finally:
        os.close(holder)


def test_a_disk_under_another_loop_device_is_refused(disk: StandIn, tmp_path: Path) -> None:
    above = run("losetup", "--show", "--find", disk.path).strip()
    try:
        assert f"{above.removeprefix('/dev/')} is attached to it" in refused(disk, tmp_path)
    finally:
        run("losetup", "--detach", above)


def test_a_second_disk_of_a_mounted_btrfs_is_refused(attach: Callable[..., StandIn], tmp_path: Path) -> None:
    # its mount has a number of its own and names the first disk only
    first, second = attach("other.img", 128 * MIB), attach("disk.img", 128 * MIB)
    run("mkfs.btrfs", "-q", "-K", first.path, second.path)
    with mounted(first.path, tmp_path / "m"):
        assert f"{second.name} is part of the mounted btrfs" in refused(second, tmp_path)


@pytest.mark.skipif(
    "device-mapper" not in Path("/proc/devices").read_text(), reason="this kernel has no device mapper"
)
def test_a_disk_below_the_device_mapper_is_refused(disk: StandIn, tmp_path: Path) -> None:
    run("dmsetup", "create", "iotrial-test", "--table", f"0 {SIZE // 512} linear {disk.path} 0")
    try:
        assert "is part of dm-" in refused(disk, tmp_path)
    finally:
        run("dmsetup", "remove", "iotrial-test")


# known contents


@pytest.mark.parametrize("kind", BY_HAND)
def test_what_blkid_knows_is_refused_and_named_also_with_discard_contents(
    kind: str, attach: Callable[..., StandIn], tmp_path: Path
) -> None:
    disk = attach("disk.img", 80 * MIB)
    for offset, data in BY_HAND[kind](disk.size).items():
        disk.put(offset, data)
    name = kind.partition(" ")[0]
    assert f"TYPE={name}\n" in run("blkid", "-p", "-o", "export", disk.path)
    assert f"TYPE={name}" in refused(disk, tmp_path)


@pytest.mark.parametrize(
    ("name", "argv", "size"),
    [
        ("ext4", ("mkfs.ext4", "-q"), SIZE),
        ("xfs", ("mkfs.xfs", "-q"), 320 * MIB),
        ("btrfs", ("mkfs.btrfs", "-q"), 128 * MIB),
        ("swap", ("mkswap",), SIZE),
    ],
)
def test_what_the_real_programs_make_is_refused(
    name: str, argv: tuple[str, ...], size: int, attach: Callable[..., StandIn], tmp_path: Path
) -> None:
    disk = attach("disk.img", size)
    run(*argv, disk.path)
    assert f"TYPE={name}" in refused(disk, tmp_path)


@pytest.mark.parametrize(
    "offset",
    [0, 4 * MIB - 1, LAB // 2 + 7, LAB - 1, LAB, LAB + 4095, SIZE - 4 * MIB, SIZE - 1],
    ids=[
        "first byte",
        "end of the first edge",
        "in the lab",
        "its last byte",
        "mark",
        "its last",
        "last edge",
        "last byte",
    ],
)
def test_a_single_byte_without_any_signature_is_found_where_the_lab_would_be_and_at_both_ends(
    offset: int, disk: StandIn, tmp_path: Path
) -> None:
    disk.put(offset, b"\x01")
    assert f"there is data at byte {offset:,}" in refused(disk, tmp_path, always=False)


def test_data_that_is_still_in_the_cache_is_found(disk: StandIn, tmp_path: Path) -> None:
    with open(disk.path, "r+b") as device:  # noqa: PTH123
        device.seek(5 * MIB)
        device.write(b"x")  # written, and not synced
    assert "there is data at byte 5,242,880" in refused(disk, tmp_path, always=False)


def test_discard_contents_is_for_data_without_signature(disk: StandIn, tmp_path: Path) -> None:
    disk.put(3 * MIB, b"data")
    with place_on(disk.path, Journal(tmp_path / "journal"), discard=True) as place:
        place.open()
    assert disk.empty


# names


def test_another_serial_number_is_refused_and_the_right_one_is_not_given_away(
    disk: StandIn, tmp_path: Path
) -> None:
    message = refused(disk, tmp_path, serial="STANDIN-0009")
    assert "not the serial number or WWN" in message
    assert "0001" not in message


@pytest.mark.parametrize("serial", ["", "   ", "0000", "x"])
def test_a_name_that_names_nothing_is_refused(serial: str, disk: StandIn, tmp_path: Path) -> None:
    refused(disk, tmp_path, serial=serial)


def test_a_disk_without_serial_number_and_wwn_is_refused(
    attach: Callable[..., StandIn], tmp_path: Path
) -> None:
    assert "no serial number and no WWN" in refused(attach("nameless.img"), tmp_path, serial="0000")


def test_a_loop_device_has_no_name_for_the_program_itself(disk: StandIn, tmp_path: Path) -> None:
    words = ["plan", "files/permissions", "--lab", "device", "--device", disk.path, "--erase", SERIAL]
    done = subprocess.run(
        [sys.executable, "-m", "iotrial", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "no serial number and no WWN" in done.stderr


def test_two_disks_of_one_serial_number_are_both_refused(
    attach: Callable[..., StandIn], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_look_up({"disk.img": SERIAL, "other.img": SERIAL})
    first, second = attach("disk.img"), attach("other.img")
    for disk in (first, second):
        assert "both go by that name" in refused(disk, tmp_path)


@pytest.mark.parametrize(
    ("device", "erase"), [("/dev/sdz", None), ("/dev/sdz", ""), (None, "S1"), ("", "S1"), (None, None)]
)
def test_a_disk_has_to_be_named_twice(device: str | None, erase: str | None) -> None:
    with pytest.raises(RequestError) as caught:
        guard.consent(device, erase, discard_contents=True)
    assert "missing" in caught.value.message
    assert "lsblk" in str(caught.value.hint)


def test_no_options_are_no_consent() -> None:
    assert guard.consent(None, None, discard_contents=False) is None


# shape


def test_a_read_only_disk_is_refused(attach: Callable[..., StandIn], tmp_path: Path) -> None:
    assert "read-only" in refused(attach("disk.img", SIZE, "--read-only"), tmp_path)


def test_a_disk_that_has_no_room_for_lab_and_mark_is_refused(
    attach: Callable[..., StandIn], tmp_path: Path
) -> None:
    assert "the lab needs 16,781,312 bytes" in refused(attach("disk.img", LAB + 3584), tmp_path)


def test_a_disk_with_room_for_just_that_is_taken(attach: Callable[..., StandIn], tmp_path: Path) -> None:
    accepted(attach("disk.img", LAB + 4096), tmp_path)


@pytest.mark.parametrize("kind", ["file", "folder", "pipe", "character device", "missing"])
def test_what_is_no_block_device_is_refused_unopened(kind: str, disk: StandIn, tmp_path: Path) -> None:
    path = tmp_path / "x"
    match kind:
        case "file":
            path.write_bytes(b"data")
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)  # opening one would wait for its other end
        case "character device":
            path.symlink_to("/dev/null")
    wanted = "No such file" if kind == "missing" else f"found a {kind}"
    assert wanted in refused(disk, tmp_path, path=str(path))


# something is swapped between check and use


@contextmanager
def meanwhile(monkeypatch: pytest.MonkeyPatch, verb: str, act: Callable[[], object]) -> Iterator[None]:
    """Something happens just after the first call of a verb."""
    plain = Target.call
    done: list[str] = []

    def call(self: Target, asked: str, **fields: object) -> dict[str, object]:
        answer = plain(self, asked, **fields)
        if asked == verb and not done:
            done.append(asked)
            act()
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(Target, "call", call)
        yield
    assert done


@pytest.mark.parametrize("how", ["link", "node"])
def test_a_name_that_is_swapped_after_the_claim_changes_nothing(
    how: str, attach: Callable[..., StandIn], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, other = attach("disk.img"), attach("other.img")
    other.put(MIB, b"somebody's data")
    before, path = other.digest(), tmp_path / "name"

    def name(device: str) -> None:
        path.unlink(missing_ok=True)
        if how == "link":
            path.symlink_to(device)
        else:
            os.mknod(path, stat.S_IFBLK | 0o600, os.stat(device).st_rdev)  # noqa: PTH116

    name(disk.path)
    with (
        meanwhile(monkeypatch, "device_claim", lambda: name(other.path)),
        place_on(str(path), Journal(tmp_path / "journal")) as place,
    ):
        place.open()
        assert place.device == disk.name
        assert disk.bytes_at(LAB, 11) == b"iotrial lab"
    assert other.digest() == before
    assert disk.empty


def test_a_name_that_is_swapped_before_the_claim_is_told_by_the_serial_number(
    attach: Callable[..., StandIn], tmp_path: Path
) -> None:
    disk, other = attach("disk.img"), attach("other.img")
    path = tmp_path / "name"
    path.symlink_to(other.path)
    assert "not the serial number" in refused(other, tmp_path, path=str(path))
    assert disk.empty


def test_a_disk_that_is_detached_after_the_check_stays_the_one_that_was_checked(
    attach: Callable[..., StandIn], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = attach("disk.img")
    # the kernel puts it off until the claim is given up
    with (
        meanwhile(monkeypatch, "device_check", lambda: run("losetup", "--detach", disk.path)),
        place_on(disk.path, Journal(tmp_path / "journal")) as place,
    ):
        place.open()
        assert disk.bytes_at(LAB, 11) == b"iotrial lab"
    disk.path = ""
    assert disk.empty
    disk.attach()


def test_another_file_behind_the_same_device_is_told_by_its_sequence_number(
    attach: Callable[..., StandIn], tmp_path: Path
) -> None:
    disk = attach("disk.img", SIZE, "--read-only")
    other = tmp_path / "replacement"
    with other.open("wb") as file:
        file.truncate(SIZE)
    with Probe(isolate=True) as probe:
        claimed = probe.call("device_claim", path=disk.path)
        probe.call("device_release", device=claimed["device"])
        with open(disk.path, "rb") as device, other.open("rb") as file:  # noqa: PTH123
            ioctl(device, LOOP_CHANGE_FD, file.fileno())
        with pytest.raises(IotrialError, match="found another in its place"):
            probe.call("device_reclaim", device=claimed["device"])


def test_data_that_comes_while_the_disk_is_looked_at_by_one_who_keeps_it_open_is_refused(
    disk: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []

    def write() -> None:
        opened.append(os.open(disk.path, os.O_RDWR))
        os.pwrite(opened[0], b"late", 20 * MIB)
        os.fsync(opened[0])

    journal = Journal(tmp_path / "journal")
    with (
        meanwhile(monkeypatch, "device_scan", write),
        place_on(disk.path, journal) as place,
        pytest.raises(RequestError, match="open in process"),
    ):
        place.open()
    os.close(opened[0])
    assert journal.pending() == ()
    assert disk.bytes_at(20 * MIB, 4) == b"late"
    assert not disk.bytes_at(0, LAB + 4096).strip(b"\0")


def test_while_a_lab_is_on_it_nobody_else_can_claim_or_format_it(disk: StandIn, tmp_path: Path) -> None:
    with place_on(disk.path, Journal(tmp_path / "journal")) as place:
        place.open()
        _cannot_be_taken(disk)
        with (
            place_on(disk.path, Journal(tmp_path / "second")) as second,
            pytest.raises(RequestError, match="in use"),
        ):
            second.open()
        place._unmount()
        _cannot_be_taken(disk)
        (tmp_path / "m").mkdir()
        done = subprocess.run(["mount", disk.path, str(tmp_path / "m")], capture_output=True, check=False)
        assert done.returncode != 0


def _cannot_be_taken(disk: StandIn) -> None:
    with pytest.raises(OSError, match="busy"):
        os.open(disk.path, os.O_RDONLY | os.O_EXCL)
    for argv in (["mkfs.ext4", "-q", "-F", disk.path], ["mkswap", disk.path]):
        assert subprocess.run(argv, capture_output=True, check=False).returncode != 0


def test_the_claim_ends_with_the_probe(disk: StandIn) -> None:
    probe = Probe(isolate=True)
    probe.call("device_claim", path=disk.path)
    probe.kill()

    def free() -> bool:
        try:
            os.close(os.open(disk.path, os.O_RDONLY | os.O_EXCL))
        except OSError:
            return False
        return True

    # the inner process goes a moment after the outer one
    end = time.monotonic() + 10
    while not free() and time.monotonic() < end:
        time.sleep(0.02)
    assert free()
