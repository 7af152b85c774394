"""Disk identifiers as the kernel and udev write them: which are compared, and which identify nothing."""

from __future__ import annotations

from typing import Any

import pytest

from iotrial.errors import TargetError
from iotrial.lab import disk_identity
from iotrial.lab.target import Target


class Files:
    """Fake machine that consists of files only."""

    name = "files"

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files

    def call(self, verb: str, **fields: Any) -> dict[str, Any]:
        if verb == "list":
            below = {p.split("/")[3] for p in self.files if p.startswith(f"{fields['path']}/")}
            return {"names": sorted(below)}
        if fields["path"] not in self.files:
            raise TargetError("no such file", errno=2)
        if self.files[fields["path"]] == "refused":
            raise TargetError("the disk does not answer", errno=5)
        return {"data": self.files[fields["path"]]}


def target(**disks: dict[str, str]) -> Target:
    files = {}
    for number, (name, texts) in enumerate(disks.items()):
        files[f"/sys/block/{name}/dev"] = f"8:{number}\n"
        for file, text in texts.items():
            path = f"/run/udev/data/b8:{number}" if file == "udev" else f"/sys/dev/block/8:{number}/{file}"
            files[path] = text
    return Target(Files(files))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("S3Z8NB0K123456\n", "s3z8nb0k123456"),
        ("  WD-WCC4N 0123 ", "wd-wcc4n0123"),
        ("0x50014ee2b1234567", "50014ee2b1234567"),
        ("naa.50014EE2B1234567", "50014ee2b1234567"),
        ("eui.0025385b71b0a1c2", "0025385b71b0a1c2"),
        ("", None),
        ("   \n", None),
        ("abc", None),
        ("00000000", None),
        ("0000-0000", None),
        ("\x00\x00\x00\x00", None),
    ],
)
def test_a_name_is_compared_without_white_space_prefix_and_case(text: str, name: str | None) -> None:
    assert disk_identity.normal(text) == name


def test_every_place_where_a_disk_says_its_name_is_read() -> None:
    machine = target(
        vda={"serial": "virtio-serial-1"},
        nvme0n1={
            "wwid": "eui.0025385b71b0a1c2",
            "device/serial": "S4EVNX0M1    ",
            "device/model": "SSD  970\n",
        },
        sda={
            "device/wwid": "naa.50014ee2b1234567",
            "device/vpd_pg80": "\x00\ufffd\x000" + "WD-WCC4N0123".rjust(48),  # its length, 48, reads as "0"
            "udev": "S:disk/by-id/x\nE:ID_SERIAL_SHORT=WD-WCC4N0123\nE:ID_WWN=0x50014ee2b1234567\nE:ID_BUS=ata\n",
        },
        loop0={},
    )
    assert disk_identity.names_of(machine, "8:0").names == {"virtio-serial-1"}
    assert disk_identity.names_of(machine, "8:1") == disk_identity.Names(
        frozenset({"0025385b71b0a1c2", "s4evnx0m1"}), "SSD 970"
    )
    assert disk_identity.names_of(machine, "8:2").names == {"wd-wcc4n0123", "50014ee2b1234567"}
    assert disk_identity.names_of(machine, "8:3").names == frozenset()
    assert disk_identity.disks_named(machine, "0X50014EE2B1234567") == ("sda",)
    assert disk_identity.disks_named(machine, "nobody") == ()
    assert disk_identity.disks_named(machine, "0000") == ()


def test_all_disks_of_one_name_are_found() -> None:
    machine = target(sda={"serial": "SAME-1"}, sdb={"serial": "same-1 "}, sdc={"serial": "OTHER"})
    assert disk_identity.disks_named(machine, "SAME-1") == ("sda", "sdb")


def test_a_page_that_a_disk_does_not_answer_is_no_name() -> None:
    machine = target(sda={"device/vpd_pg80": "refused", "serial": "S-1234"})
    assert disk_identity.names_of(machine, "8:0").names == {"s-1234"}
