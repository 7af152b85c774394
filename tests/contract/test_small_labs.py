"""A lab is smaller than a disk, but its ext4 gets the block size of a large one."""

from __future__ import annotations

from pathlib import Path

import pytest

from iotrial.lab.image import ImagePlace
from iotrial.lab.journal import Journal
from iotrial.lab.target import Target

pytestmark = pytest.mark.root


@pytest.mark.parametrize("size_mib", [16, 96, 600])
def test_blocks_of_ext4_are_those_of_a_large_disk(
    target: Target, disk_folder: Path, tmp_path: Path, size_mib: int
) -> None:
    place = ImagePlace(
        "small",
        target,
        Journal(tmp_path / "journal"),
        folder=str(disk_folder),
        mount_point="/run/iotrial/small",
        filesystem="ext4",
        size_bytes=size_mib << 20,
    )
    place.open()
    try:
        assert "Block size:               4096\n" in place.superblock()
    finally:
        place.close()
