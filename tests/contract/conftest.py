"""Loop devices as stand-ins for disks, checked to be unused at the end; and a target in its own namespaces.

The stand-ins are known only to this process, which replaces the look-up of serial numbers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from booted import DISKS, NEEDS, Booted
from stand_in import SERIAL, SIZE, StandIn, replace_look_up

from iotrial.lab import disk_identity, guard
from iotrial.lab.lock import MachineLock
from iotrial.lab.target import Target
from iotrial.probe.client import Probe
from iotrial.runner.guest import Guest, GuestSpec


@pytest.fixture(scope="session")
def booted(guests: Path, disk_folder: Path) -> Iterator[Booted]:
    with Guest(GuestSpec(disk_folder, DISKS, NEEDS), store=guests) as guest, guest.start() as probe:
        yield Booted(guest, Target(probe))


SERIALS = {"disk.img": SERIAL, "other.img": "STANDIN-0002", "nameless.img": "0000"}


@pytest.fixture
def look_up(disk_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_identity, "names_of", disk_identity.names_of)
    monkeypatch.setattr(guard, "LOOKED_AT_WITHIN_S", 0.2)
    replace_look_up({disk_folder / name: serial for name, serial in SERIALS.items()})


@pytest.fixture
def attach(disk_folder: Path, look_up: None) -> Iterator[Callable[..., StandIn]]:
    """Yield a factory of stand-ins. At the end they are removed, after a check that nothing holds them."""
    made: list[StandIn] = []

    def attach(name: str = "disk.img", size: int = SIZE, *options: str) -> StandIn:
        made.append(StandIn(disk_folder, name, size, *options))
        return made[-1]

    yield attach
    for disk in made:
        with open(disk.path) as device:  # noqa: PTH123
            os.close(os.open(f"/proc/self/fd/{device.fileno()}", os.O_RDONLY | os.O_EXCL))
        disk.detach()
        disk.file.unlink()


@pytest.fixture
def disk(attach: Callable[..., StandIn]) -> StandIn:
    return attach()


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    """Yield a target with a tmpfs for mounts, as trials have it."""
    # lock: a trial that runs at the same time has its mounts in the same folder
    with MachineLock(), Probe(isolate=True) as probe:
        target = Target(probe)
        target.call("mkdir", path="/run/iotrial", mode="0755")
        target.mount("iotrial", "/run/iotrial", "tmpfs", ["mode=0755", "size=1m"])
        yield target
        target.unmount("/run/iotrial")
        target.call("remove", path="/run/iotrial", recursive=True)
