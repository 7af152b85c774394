"""The directory lab reports its file system, whatever the name of the mount point."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from iotrial.lab.folder import DirectoryPlace
from iotrial.lab.journal import Journal
from iotrial.lab.target import Target
from iotrial.probe.client import Probe


@pytest.mark.root
def test_a_mount_point_with_a_blank_in_its_name_is_found(tmp_path: Path) -> None:
    point = tmp_path / "my disk"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "noatime", "none", point], check=True)
    try:
        with Probe(isolate=False) as probe:
            place = DirectoryPlace(
                "lab", Target(probe), Journal(tmp_path / "journal"), folder=f"{point}/lab", bytes_needed=1
            )
            facts = place.facts()
    finally:
        subprocess.run(["umount", point], check=True)
    assert facts["filesystem"] == "tmpfs"
    assert "noatime" in str(facts["mount_options"]).split(",")
