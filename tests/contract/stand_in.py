"""Loop devices that stand in for disks, and the serial numbers that a replaced look-up gives them.

A loop device has neither serial number nor WWN, so that the program itself never takes one for a disk. The
look-up is replaced in the test's process alone. It identifies a stand-in by the full path of its backing
file, as a disk is identified by its serial number, whatever number the kernel gives the device. The folder of
these files is new in each run (``disk_folder``), so a loop device that another run left over a file of the
same name is not recognised.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from iotrial.lab import disk_identity, guard
from iotrial.lab.device import DevicePlace
from iotrial.lab.journal import Journal
from iotrial.lab.target import Target
from iotrial.probe.client import Probe

MIB = 1 << 20
LAB = 16 * MIB
SIZE = 48 * MIB
SERIAL = "STANDIN-0001"


class StandIn:
    """A sparse file and its loop device."""

    def __init__(self, folder: Path, name: str, size: int = SIZE, *options: str) -> None:
        self.file = folder / name
        with self.file.open("wb") as file:
            file.truncate(size)
        self.size = size
        self.options = options
        self.path = ""
        self.attach()

    @property
    def name(self) -> str:
        return self.path.removeprefix("/dev/")

    @property
    def named(self) -> str:
        """FILE=SERIAL, the argument of programs with a replaced look-up."""
        return f"{self.file}={SERIAL}"

    def attach(self) -> None:
        done = run("losetup", "--show", "--find", *self.options, str(self.file))
        self.path = done.strip()
        self.drop_partitions()

    def detach(self) -> None:
        if self.path:
            self.drop_partitions()
            run("losetup", "--detach", self.path)
            self.path = ""

    def drop_partitions(self) -> None:
        """Remove partitions left by a test or a killed run: a loop device keeps them when it is detached."""
        for folder in Path(f"/sys/block/{self.name}").glob(f"{self.name}p*"):
            run("delpart", self.path, (folder / "partition").read_text().strip())
            Path(f"/dev/{folder.name}").unlink(missing_ok=True)

    def put(self, offset: int, data: bytes) -> None:
        """Write data through the device, as another program would."""
        with open(self.path, "r+b", buffering=0) as disk:  # noqa: PTH123
            disk.seek(offset)
            disk.write(data)
            os.fsync(disk.fileno())

    def digest(self, apart_from: range = range(0)) -> str:
        """Return the digest of all bytes but those in a range, read past the cache of the loop device."""
        if self.path:
            run("blockdev", "--flushbufs", self.path)
        with self.file.open("rb") as file:
            found = hashlib.sha256(file.read(apart_from.start))
            file.seek(apart_from.stop)
            while data := file.read(MIB):
                found.update(data)
        return found.hexdigest()

    def bytes_at(self, offset: int, length: int) -> bytes:
        if self.path:
            run("blockdev", "--flushbufs", self.path)
        with self.file.open("rb") as file:
            file.seek(offset)
            return file.read(length)

    @property
    def empty(self) -> bool:
        return not self.bytes_at(0, self.size).strip(b"\0")


def run(*argv: str, check: bool = True) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, (argv, done.stderr)
    return done.stdout


def replace_look_up(serials: Mapping[Path | str, str]) -> None:
    """Replace the look-up of serial numbers in this process: it maps the backing file of a loop device to a
    serial number."""
    by_path = {os.path.realpath(file): serial for file, serial in serials.items()}

    def names_of(target: Target, number: str) -> disk_identity.Names:
        behind = target.read_or_none(f"/sys/dev/block/{number}/loop/backing_file") or ""
        name = disk_identity.normal(by_path.get(behind.rstrip("\n"), ""))
        return disk_identity.Names(frozenset() if name is None else frozenset({name}), "stand-in")

    disk_identity.names_of = names_of


@contextmanager
def place_on(
    path: str | None,
    journal: Journal,
    *,
    serial: str = SERIAL,
    discard: bool = False,
    filesystem: str = "ext4",
    size: int = LAB,
    trial: str = "1" * 32,
) -> Iterator[DevicePlace]:
    """Yield a device place that is not open yet, with an isolated probe of its own."""
    with Probe(isolate=True) as probe:
        target = Target(probe)
        folder = str(journal.folder.parent / "mounts")
        target.call("mkdir", path=folder, mode="0755")
        target.mount("iotrial", folder, "tmpfs", ["mode=0755", "size=1m"])
        place = DevicePlace(
            filesystem,
            target,
            journal,
            consent=guard.Consent(path, serial, discard),
            mount_point=f"{folder}/{filesystem}",
            filesystem=filesystem,
            size_bytes=size,
            boot_id="b",
            trial=trial,
        )
        yield place
        place.close()
        target.unmount(folder)
