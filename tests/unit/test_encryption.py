"""dm-crypt as a knob: its levels, the table for the kernel, and what an undo entry may name."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from iotrial.errors import LabError, RequestError, TargetError, UnsupportedLevel
from iotrial.knobs.encryption import KEY, table
from iotrial.lab import registry
from iotrial.lab.journal import Entry, Journal
from iotrial.lab.objects.mapping import LabMapping
from iotrial.lab.target import Target
from iotrial.runner.checked_work import why_not
from iotrial.runner.resolve import resolve
from iotrial.study.model import Setting
from iotrial.study.reader import read_study

KNOB = registry.knob("block.encryption")
STUDY = """
[study]
name = "cut"
question = "Is what was synced still there?"
check = true

[lab]
kind = "image"

[[factor]]
name = "encryption"
knob = "block.encryption"
levels = ["none", "aes-xts-plain64"]

[[workload]]
name = "synced"
kind = "files"
operations = ["create", "write-all", "fsync", "close", "unlink"]
"""


@pytest.mark.parametrize(
    ("written", "level"),
    [
        ("none", "none"),
        (" aes-xts-plain64 ", "aes-xts-plain64"),
        ("aes-xts-plain64 sector_size:4096 no_read_workqueue", "aes-xts-plain64 no_read_workqueue sector_size:4096"),
    ],
)  # fmt: skip
def test_a_level_is_a_cipher_with_options_in_any_order(written: str, level: str) -> None:
    assert KNOB.parse(Setting(KNOB.name, written)) == level


@pytest.mark.parametrize(
    "written", ["", "aes", "none no_read_workqueue", "aes-xts-plain64 allow_discards", "aes-xts-plain64 none"]
)
def test_any_other_level_is_refused_with_those_that_there_are(written: str) -> None:
    with pytest.raises(UnsupportedLevel) as caught:
        KNOB.parse(Setting(KNOB.name, written))
    assert "no_write_workqueue" in (caught.value.hint or "")


def test_the_table_is_of_whole_sectors_of_4096_bytes_and_counts_its_options() -> None:
    """dm-crypt.rst: <cipher> <key> <iv_offset> <device path> <offset> [<#opts> <opts>]."""
    assert len(bytes.fromhex(KEY)) == 64
    assert KEY[:64] != KEY[64:]  # XTS needs two keys
    assert table("aes-xts-plain64", "loop3", (1 << 20) + 512) == (
        f"0 2048 crypt aes-xts-plain64 {KEY} 0 /dev/loop3 0"
    )
    assert table("aes-xts-plain64 no_read_workqueue sector_size:4096", "vda", 4096) == (
        f"0 8 crypt aes-xts-plain64 {KEY} 0 /dev/vda 0 2 no_read_workqueue sector_size:4096"
    )


@pytest.mark.parametrize(
    "name", ["", "vg0-root", "iotrial", "iotrial-01234567-../x", "iotrial-xyz-ext4", "cryptroot"]
)
def test_undo_removes_no_mapping_with_another_name_than_a_labs(name: str) -> None:
    entry = Entry(1, "lab.mapping", {"mapping": name}, "absent", ("present",))
    with pytest.raises(LabError, match="not one of a lab"):
        LabMapping().undo(None, entry, None)  # type: ignore[arg-type]


def test_a_kernel_without_the_device_mapper_is_told_before_anything_is_done(tmp_path: Path) -> None:
    class Kernel:
        """A machine whose kernel has no device mapper: no program may be run on it."""

        name = "a machine"

        def call(self, verb: str, **fields: object) -> dict[str, Any]:
            if (verb, fields["path"]) == ("read", "/proc/misc"):
                return {"data": "237 loop-control\n"}
            if (verb, fields["path"]) == ("list", "/sys/block"):
                return {"names": []}
            assert (verb, fields["path"]) == ("stat", "/dev/mapper/control")
            raise TargetError("no such file", errno=errno.ENOENT)

    journal = Journal(tmp_path / "journal")
    with pytest.raises(LabError, match="no device mapper") as caught:
        LabMapping().make(Target(Kernel()), journal, "iotrial-01-ext4", "0 8 error", boot_id="b")
    assert "--lab guest" in (caught.value.hint or "")
    assert journal.pending() == ()


def test_the_power_of_an_encrypted_disk_is_not_cut() -> None:
    plain = STUDY.replace('"block.encryption"', '"mount.option"').replace(
        '"none", "aes-xts-plain64"', '"default", "nobarrier"'
    )
    assert "encrypted" in (why_not(resolve(read_study(STUDY, "s.toml", trusted=True), root=True)) or "")
    assert "encrypted" not in (why_not(resolve(read_study(plain, "s.toml", trusted=True), root=True)) or "")


def test_an_array_is_refused_before_anything_is_done() -> None:
    of_an_array = STUDY.replace('kind = "image"', 'kind = "guest"\ndisks = 3').replace("check = true\n", "")
    with pytest.raises(RequestError, match=r"block\.encryption: an array is not encrypted") as caught:
        resolve(read_study(of_an_array, "s.toml", trusted=True), root=True)
    assert "disks" in (caught.value.hint or "")
