"""The stable names of a disk: serial numbers and world wide names, as the kernel and udev report them.

A kernel name (sdb) may mean another disk after the next boot; these names persist. So the user's consent uses them, and
the undo journal finds a disk by them. They are looked up by device number, never by path.
"""

from __future__ import annotations

from dataclasses import dataclass

from iotrial.errors import TargetError
from iotrial.lab.target import Target

#: below /sys/dev/block/MAJ:MIN: virtio, NVMe, SCSI and ATA, MMC
KERNEL_FILES = ("serial", "wwid", "device/serial", "device/wwid", "device/vpd_pg80")
UDEV_KEYS = ("ID_SERIAL_SHORT", "ID_SERIAL", "ID_WWN", "ID_WWN_WITH_EXTENSION", "ID_SCSI_SERIAL")
MODEL_FILES = ("device/model", "device/name")
#: prefixes with which the kernel and udev mark the type of a world wide name
PREFIXES = ("naa.", "eui.", "uuid.", "nvme.", "0x")
SHORTEST = 4


@dataclass(frozen=True, slots=True)
class Names:
    """All names of one disk, normalised; ``model`` is for display only."""

    names: frozenset[str]
    model: str = ""


def names_of(target: Target, number: str) -> Names:
    """Return the names of the disk with this device number ("8:16"); none if it has no identifying name."""
    folder = f"/sys/dev/block/{number}"
    found = [*reported(target, folder), *_udev(target, number)]
    models = [_file(target, f"{folder}/{file}") for file in MODEL_FILES]
    return Names(
        names=frozenset(name for name in map(normal, found) if name is not None),
        model=next((" ".join(model.split()) for model in models if model.strip()), ""),
    )


def reported(target: Target, folder: str) -> list[str]:
    """Return the names that the kernel reports for a disk, from its folder in sysfs, without blanks around them."""
    return [_file(target, f"{folder}/{file}").strip() for file in KERNEL_FILES]


def normal(text: str) -> str | None:
    """Normalise a name for comparison: no white space, no prefix, lower case. None if too generic to identify a disk."""
    name = "".join(c for c in text if c.isprintable() and not c.isspace() and c != "\ufffd").lower()
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    if len(name) < SHORTEST or len(set(name.replace("-", ""))) < 2:
        return None
    return name


def number_of(target: Target, device: str) -> str | None:
    """Return the device number of a disk, from its current kernel name."""
    return target.read_or_none(f"/sys/block/{device}/dev")


def disks_named(target: Target, name: str) -> tuple[str, ...]:
    """Return the current kernel names of all disks with this name; more than one if several share it."""
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
        return ""  # a disk that does not support this page has no such name
    if path.endswith("vpd_pg80") and text is not None:
        return text[4:]  # after the page header (SPC-5, 7.7.19)
    return text or ""


def _udev(target: Target, number: str) -> list[str]:
    pairs = (line[2:].partition("=") for line in _file(target, f"/run/udev/data/b{number}").splitlines())
    return [value for key, _, value in pairs if key in UDEV_KEYS]
