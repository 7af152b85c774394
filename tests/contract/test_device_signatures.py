"""A disk with anything on it does not become a lab: known signatures, and a single byte that matches no
signature."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from refusing import refused
from signatures import BY_HAND
from stand_in import LAB, MIB, SIZE, StandIn, place_on, run

from iotrial.lab.journal import Journal

pytestmark = pytest.mark.root


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
        device.write(b"x")  # written but not synced
    assert "there is data at byte 5,242,880" in refused(disk, tmp_path, always=False)


def test_discard_contents_is_for_data_without_signature(disk: StandIn, tmp_path: Path) -> None:
    disk.put(3 * MIB, b"data")
    with place_on(disk.path, Journal(tmp_path / "journal"), discard=True) as place:
        place.open()
    assert disk.empty
