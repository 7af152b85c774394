"""Whole trials of kind mkfs: the result is checked with mount and statvfs, and nothing of the previous lab is
left."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import failures_of, iotrial, run_json, stored_runs, write_study

pytestmark = pytest.mark.root
MIB = 1 << 20

MAKE = """
[study]
name = "make"
question = "?"
account = false
[lab]
size = "320 MiB"
[budget]
blocks = 2
[[factor]]
name = "filesystem"
reference = "ext4"
levels = [
  { label = "ext4", set = { "filesystem.type" = "ext4", "mkfs.option" = "default" } },
  { label = "small journal", set = { "filesystem.type" = "ext4", "mkfs.option" = "-J size=4" } },
  { label = "btrfs", set = { "filesystem.type" = "btrfs", "mkfs.option" = "default" } },
]
[[factor]]
name = "size"
knob = "work.option"
option = "volume"
levels = ["128 MiB", "320 MiB"]
role = "condition"
[[workload]]
name = "mkfs"
kind = "mkfs"
"""


@pytest.mark.long
def test_what_is_made_is_of_the_wanted_type_and_size(state: Path, disk_folder: Path) -> None:
    report = run_json(write_study(state.parent, MAKE), "--on", str(disk_folder), "--no-stop")
    assert failures_of(state) == []
    assert report["void"] == [], "type and options were read back"
    for run in stored_runs(state):
        volume = (128 if "128 MiB" in run["condition"] else 320) * MIB
        responses = run["responses"]
        assert 0 <= responses["used_bytes"] <= responses["taken_bytes"] < volume / 4
        assert responses["device_write_bytes"] > 0
        if run["arm"] == "small journal":
            # a journal of 4 MiB, and an inode of 256 bytes for every 4 KiB or 16 KiB of the disk
            assert 4 * MIB + volume // 64 <= responses["taken_bytes"] < 4 * MIB + volume // 12
        if run["arm"] == "btrfs":
            assert responses["used_bytes"] < 16 * MIB


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"320 MiB"]', '"1 GiB"]', "in a lab of 320 MiB"),
        ('"128 MiB"', '"64 MiB"', "expected at least 128 MiB for btrfs"),
        ('"128 MiB"', '"1000000 B"', "a multiple of 4096"),
        ('kind = "mkfs"', 'kind = "mkfs"\ncache = "cold"', "it has no data to cache"),
        (
            'knob = "work.option"\noption = "volume"\nlevels = ["128 MiB", "320 MiB"]',
            'knob = "mount.readonly"\nlevels = ["rw", "ro"]',
            "has no effect while",
        ),
        (
            'kind = "mkfs"',
            'kind = "mkfs"\n[[workload]]\nname = "read"\nkind = "files"\noperations = ["stat"]',
            "no option",
        ),
    ],
)
def test_what_cannot_be_made_is_refused_before_anything_is_changed(
    state: Path, old: str, new: str, message: str
) -> None:
    refused = iotrial("plan", write_study(state.parent, MAKE.replace(old, new, 1)), check=2)
    assert message in refused.stderr
