"""The device lab on a disk with a real serial number, a virtio disk, which only a guest can spare.

On the test machine itself stand-ins are used, with a replaced look-up of serial numbers; here nothing is
replaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from booted import SPARE, Booted

from iotrial.errors import RequestError
from iotrial.guest.place import disk_with_serial
from iotrial.lab import guard
from iotrial.lab.device import DevicePlace
from iotrial.lab.journal import Journal
from iotrial.lab.place import FileSet

LAB, FOLDER = 64 << 20, "/run/device-lab"


@contextmanager
def place_on(
    booted: Booted, journal: Journal, serial: str, *, discard: bool = False
) -> Iterator[DevicePlace]:
    target = booted.target
    target.call("mkdir", path=FOLDER, mode="0755")
    place = DevicePlace(
        "ext4",
        target,
        journal,
        consent=guard.Consent(f"/dev/{disk_with_serial(target, SPARE)}", serial, discard),
        mount_point=f"{FOLDER}/ext4",
        filesystem="ext4",
        size_bytes=LAB,
        boot_id="b",
        trial="2" * 32,
    )
    try:
        yield place
    finally:
        place.close()


def is_empty(booted: Booted, count: int = LAB) -> bool:
    """Return whether its first ``count`` bytes are all zero, as the probe reads them."""
    device = disk_with_serial(booted.target, SPARE)
    booted.target.call("device_claim", path=f"/dev/{device}")
    try:
        found = booted.target.call("device_scan", device=device, offset=0, length=count)
    finally:
        booted.target.call("device_close", device=device)
    assert found["read_bytes"] == count
    return found["nonzero"] is None


def test_a_disk_that_is_named_by_its_own_serial_number_is_taken_and_given_back_empty(
    booted: Booted, tmp_path: Path
) -> None:
    journal = Journal(tmp_path / "journal")
    assert is_empty(booted)
    with place_on(booted, journal, f" {SPARE.lower()}\n") as place:
        place.open()
        assert place.device == disk_with_serial(booted.target, SPARE)
        place.make_files(FileSet("device-s", f"{place.root}/s", 9, 50_000, "random", 1), seed=3)
        place.to_neutral(always=True, fresh=True)
        booted.target.call("fileset_verify", set="device-s")
    assert journal.pending() == ()
    assert is_empty(booted)


def test_another_serial_number_is_refused_and_nothing_is_written(booted: Booted, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    with place_on(booted, journal, "WD-WX42A00816") as place, pytest.raises(RequestError) as caught:
        place.open()
    assert SPARE not in caught.value.message
    assert journal.pending() == ()
    assert is_empty(booted)


def test_a_disk_with_a_file_system_on_it_is_refused_until_its_contents_are_given_up(
    booted: Booted, tmp_path: Path
) -> None:
    device = disk_with_serial(booted.target, SPARE)
    assert booted.target.run(["mkfs.ext4", "-q", "-F", f"/dev/{device}", "16M"]).exit_status == 0
    journal = Journal(tmp_path / "journal")
    with place_on(booted, journal, SPARE) as place, pytest.raises(RequestError, match="ext4"):
        place.open()
    assert journal.pending() == ()
    assert booted.target.run(["blkid", "-p", f"/dev/{device}"]).exit_status == 0
    # consent to discard bytes is not consent to discard a file system
    with place_on(booted, journal, SPARE, discard=True) as place, pytest.raises(RequestError, match="ext4"):
        place.open()
    assert booted.target.run(["wipefs", "-a", f"/dev/{device}"]).exit_status == 0
    with place_on(booted, journal, SPARE) as place, pytest.raises(RequestError):
        place.open()
    with place_on(booted, journal, SPARE, discard=True) as place:
        place.open()
    assert is_empty(booted)
