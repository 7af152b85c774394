"""By which names a disk knows itself: serial numbers and world wide names, as the kernel and udev tell them.

A kernel name (sdb) may mean another disk after the next boot; these stay. So they are what a user consents by, and
what the undo journal finds a disk by. They are asked for by device number, never by path.
"""

from __future__ import annotations

from dataclasses import dataclass

from iotrial.errors import TargetError
from iotrial.lab.target import Target

#: below /sys/dev/block/MAJ:MIN: virtio, NVMe, SCSI and ATA, MMC
KERNEL_FILES = ("serial", "wwid", "device/serial", "device/wwid", "device/vpd_pg80")
UDEV_KEYS = ("ID_SERIAL_SHORT", "ID_SERIAL", "ID_WWN", "ID_WWN_WITH_EXTENSION", "ID_SCSI_SERIAL")
MODEL_FILES = ("device/model", "device/name")
#: how the kernel and udev say of which kind a world wide name is
PREFIXES = ("naa.", "eui.", "uuid.", "nvme.", "0x")
SHORTEST = 4


@dataclass(frozen=True, slots=True)
class Names:
    """All names of one disk, normal; ``model`` only in words."""

    names: frozenset[str]
    model: str = ""


def names_of(target: Target, number: str) -> Names:
    """Names of the disk with this device number ("8:16"); none where it has none that could tell it from another."""
    folder = f"/sys/dev/block/{number}"
    found = [_file(target, f"{folder}/{file}") for file in KERNEL_FILES]
    found += _udev(target, number)
    models = [_file(target, f"{folder}/{file}") for file in MODEL_FILES]
    return Names(
        names=frozenset(name for name in map(normal, found) if name is not None),
        model=next((" ".join(model.split()) for model in models if model.strip()), ""),
    )


def normal(text: str) -> str | None:
    """A name as it is compared: without white space, prefix and case. None for what many disks have in common."""
    name = "".join(c for c in text if c.isprintable() and not c.isspace() and c != "\ufffd").lower()
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    if len(name) < SHORTEST or len(set(name.replace("-", ""))) < 2:
        return None
    return name


def number_of(target: Target, device: str) -> str | None:
    """The device number of a disk by its present kernel name."""
    return target.read_or_none(f"/sys/block/{device}/dev")


def disks_named(target: Target, name: str) -> tuple[str, ...]:
    """Kernel names of all disks that go by this name now; more than one where two share it."""
    wanted, found = normal(name), []
    for device in target.call("list", path="/sys/block")["names"]:
        number = number_of(target, device)
        if number is not None and wanted is not None and wanted in names_of(target, number).names:
            found.append(str(device))
    return tuple(found)


def _file(target: Target, path: str) -> str:
    try:
        text = target.read_or_none(path)
    except TargetError:
        return ""  # a disk that does not answer this page has no such name
    if path.endswith("vpd_pg80") and text is not None:
        return text[4:]  # behind the page's header (SPC-5, 7.7.19)
    return text or ""


def _udev(target: Target, number: str) -> list[str]:
    pairs = (line[2:].partition("=") for line in _file(target, f"/run/udev/data/b{number}").splitlines())
    return [value for key, _, value in pairs if key in UDEV_KEYS]
