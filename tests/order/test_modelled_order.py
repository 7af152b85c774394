"""A simulated disk drops its delays exactly while a file system is made on it, even if that fails."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from recording import Recording

from iotrial.errors import LabError, TargetError
from iotrial.knobs.knob import RunContext, WorkDraft
from iotrial.lab.image import ImagePlace
from iotrial.lab.journal import Journal
from iotrial.lab.target import Target
from iotrial.runner.signals import Stopped
from iotrial.runner.work_server import Serving
from iotrial.study.disks import DiskSpec, parse_disk
from iotrial.study.work import HasOwnData, LabContext

MODELLED = {"device": "loop9", "modelled": True}
AT_ONCE = {"device": "loop9", "modelled": False}


class Modelled(Recording):
    fails = False

    def _image_modelled(self, **_: Any) -> dict[str, Any]:
        return {"image": 1, "inode": 1}

    def _read(self, path: str) -> dict[str, Any]:
        if path == "/proc/meminfo":
            return {"data": "MemTotal: 99999999 kB\nMemAvailable: 99999999 kB\n"}
        return super()._read(path)

    def _run(self, **fields: Any) -> dict[str, Any]:
        return {**super()._run(**fields), "exit": int(self.fails)}


def place_of(probe: Recording, folder: Path, disk: DiskSpec | None) -> ImagePlace:
    return ImagePlace(
        "lab",
        Target(probe),  # type: ignore[arg-type]
        Journal(folder / "journal"),
        folder="/tmp",
        disk=disk,
        mount_point="/run/iotrial/ext4",
        filesystem="ext4",
        size_bytes=64 << 20,
    )


def steps(probe: Recording) -> list[Any]:
    """Return the paces set, interleaved with what is made, mounted and unmounted."""
    return [
        fields if verb == "disk_pace" else verb
        for verb, fields in probe.calls
        if verb in ("disk_pace", "run", "mount", "unmount", "age")
    ]


def test_mkfs_and_use_for_years_are_at_once_and_nothing_else_is(tmp_path: Path) -> None:
    probe = Modelled(isolate=True)
    place = place_of(probe, tmp_path, parse_disk("disk-7200"))
    place.open()
    assert steps(probe) == [AT_ONCE, "run", MODELLED, "mount"]
    probe.calls.clear()
    place.want_age(50)
    place.format()
    assert steps(probe) == [AT_ONCE, "unmount", "run", "mount", "age", "unmount", MODELLED, "mount"]
    probe.calls.clear()
    place.settle(always=True, fresh=True)
    assert steps(probe) == ["unmount", "mount"]


def test_where_mkfs_fails_the_model_is_back(tmp_path: Path) -> None:
    probe = Modelled(isolate=True)
    place = place_of(probe, tmp_path, parse_disk("disk-7200"))
    place.open()
    probe.calls.clear()
    probe.fails = True
    with pytest.raises(LabError, match="making ext4"):
        place.format()
    assert steps(probe) == [AT_ONCE, "unmount", "run", MODELLED]


def test_what_failed_first_is_told(tmp_path: Path) -> None:
    class Dying(Modelled):
        def _disk_pace(self, modelled: bool, **_: Any) -> None:
            if modelled and self.fails:
                raise TargetError("query a simulated disk: its process has exited")

    probe = Dying(isolate=True)
    place = place_of(probe, tmp_path, parse_disk("disk-7200"))
    place.open()
    probe.fails = True
    with pytest.raises(LabError, match="making ext4"):
        place.format()


def test_a_signal_waits_for_nothing(tmp_path: Path) -> None:
    class Busy(Modelled):
        def _run(self, **fields: Any) -> dict[str, Any]:
            if self.fails:
                raise Stopped(signal.SIGINT)
            return super()._run(**fields)

    probe = Busy(isolate=True)
    place = place_of(probe, tmp_path, parse_disk("disk-7200"))
    place.open()
    probe.calls.clear()
    probe.fails = True
    with pytest.raises(Stopped):
        place.format()
    assert steps(probe) == [AT_ONCE, "unmount", "run"]


class Filled(HasOwnData):
    """A work that writes its data when it is provided for."""

    def __init__(self, probe: Recording, *, own: bool) -> None:
        self.probe, self.own = probe, own

    def has_own_data(self) -> bool:
        return self.own

    def provide(self, lab: LabContext) -> None:
        self.probe.calls.append(("run", {}))


@pytest.mark.parametrize(
    ("own", "expected"), [(True, [AT_ONCE, "run", "syncfs", MODELLED]), (False, ["run"])]
)
def test_data_of_a_work_is_made_at_once_and_is_on_the_disk_before_the_model_is_back(
    tmp_path: Path, own: bool, expected: list[Any]
) -> None:
    probe = Modelled(isolate=True)
    place = place_of(probe, tmp_path, parse_disk("disk-7200"))
    place.open()
    probe.calls.clear()
    context = RunContext(place.target, place, Journal(tmp_path / "journal"), None, WorkDraft())
    Serving(root=False).provide(context, Filled(probe, own=own), None)  # type: ignore[arg-type]
    done = [fields if verb == "disk_pace" else verb for verb, fields in probe.calls]
    assert done == expected


def test_a_timed_mkfs_finds_the_disk_at_rest_in_every_arm(tmp_path: Path) -> None:
    probe = Modelled(isolate=True)
    place = place_of(probe, tmp_path, parse_disk("disk-7200"))
    place.open()
    probe.calls.clear()
    place.clear_for_mkfs(0)
    assert steps(probe) == [AT_ONCE, "unmount", MODELLED]


def test_a_disk_that_is_there_has_no_pace(tmp_path: Path) -> None:
    probe = Modelled(isolate=True)
    place_of(probe, tmp_path, None).open()
    assert steps(probe) == ["run", "mount"]
