"""Stand-ins for disks, known by the look-up of serial numbers of this process alone; nothing may hold one at the end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from stand_in import SERIAL, SIZE, StandIn, replace_look_up

from iotrial.lab import guard, identity

SERIALS = {"disk.img": SERIAL, "other.img": "STANDIN-0002", "nameless.img": "0000"}


@pytest.fixture
def look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "names_of", identity.names_of)
    monkeypatch.setattr(guard, "LOOKED_AT_WITHIN_S", 0.2)
    replace_look_up(SERIALS)


@pytest.fixture
def attach(disk_folder: Path, look_up: None) -> Iterator[Callable[..., StandIn]]:
    """Makes stand-ins; they go at the end, and nothing may hold one then."""
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
