"""No disk with data on it becomes a lab. These tests try every way we could think of to get one through, on
stand-ins.

After each refusal all bytes are unchanged, the journal is empty, and nothing holds the disk.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from refusing import accepted, refused
from stand_in import LAB, SERIAL, SIZE, StandIn, place_on, replace_look_up

from iotrial.errors import RequestError
from iotrial.lab import guard
from iotrial.lab.journal import Journal

pytestmark = pytest.mark.root


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
    attach: Callable[..., StandIn], tmp_path: Path, disk_folder: Path
) -> None:
    replace_look_up({disk_folder / name: SERIAL for name in ("disk.img", "other.img")})
    first, second = attach("disk.img"), attach("other.img")
    for disk in (first, second):
        assert "both have that name" in refused(disk, tmp_path)


def test_a_loop_device_that_a_dead_run_of_these_tests_has_left_is_no_stand_in(
    disk: StandIn, tmp_path: Path
) -> None:
    folder = tmp_path / "dead run"
    folder.mkdir()
    left = StandIn(folder, disk.file.name)
    left.put(0, b"theirs")
    try:
        accepted(disk, tmp_path)
        left.file.unlink()
        accepted(disk, tmp_path)
    finally:
        left.detach()


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
            os.mkfifo(path)  # open() would block until the other end is opened
        case "character device":
            path.symlink_to("/dev/null")
    wanted = "No such file" if kind == "missing" else f"found a {kind}"
    assert wanted in refused(disk, tmp_path, path=str(path))
