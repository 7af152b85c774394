"""A disk that is swapped, detached or written to after the check: the lab is on the disk that was checked, or
there is none."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from fcntl import ioctl
from pathlib import Path

import pytest
from refusing import meanwhile, refused
from stand_in import LAB, MIB, SIZE, StandIn, place_on, run

from iotrial.errors import IotrialError, RequestError
from iotrial.lab.journal import Journal
from iotrial.probe.client import Probe

pytestmark = pytest.mark.root

LOOP_CHANGE_FD = 0x4C06


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
    # the kernel defers the detach until the claim is released
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
        with pytest.raises(IotrialError, match="has changed since it was checked"):
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
