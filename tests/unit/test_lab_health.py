"""A disk that was unplugged under its mount is named as that, whatever the failure says that led there."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any, cast

import pytest

from iotrial.errors import LabError, TargetError
from iotrial.lab.health import check
from iotrial.lab.place import Place


class Machine:
    """A machine whose disks are files in a folder. A real disk is unplugged in tests/root/test_unplugged_guest.py."""

    def __init__(self, sys: Path) -> None:
        self.sys = sys

    def exists(self, path: str) -> bool:
        return (self.sys / path.removeprefix("/sys/class/block/")).exists()

    def mount_at(self, path: str) -> None:
        return None

    def call(self, verb: str, **fields: Any) -> None:
        raise TargetError("it is full", errno=errno.ENOSPC)


class OnDisks:
    """A place on the disks ``sda`` and ``cciss/c0d1``."""

    label, root, data = "folder /data", "/data", None

    def __init__(self, machine: Machine) -> None:
        self.target = self.worker = machine
        self.devices = {"data": "sda"}
        self.queues = ("sda", "cciss/c0d1")


@pytest.mark.parametrize(("gone", "name"), [("sda", "sda"), ("cciss!c0d1", "cciss/c0d1")])
def test_a_disk_that_is_gone_is_named(tmp_path: Path, gone: str, name: str) -> None:
    place = cast(Place, OnDisks(Machine(tmp_path)))
    for disk in ("sda", "cciss!c0d1"):
        (tmp_path / disk).touch()
    check(place, "the work failed")
    (tmp_path / gone).unlink()
    with pytest.raises(
        LabError, match=rf"folder /data: the device {name} is gone; noticed at: the work failed"
    ):
        check(place, "the work failed")
