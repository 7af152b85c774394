"""Names of block devices that outlive a reboot: what udev rules and records call a disk instead of ``sda``.

The kernel's names follow the order in which disks are found. udev's database has the serial number, the world wide name or
the identity of an array, a mapping or a partition table; a virtual disk without any of them is called by its place on the
bus.
"""

from __future__ import annotations

from iotrial.documents import JsonObject
from iotrial.tune.machine import Machine

#: udev properties from the most to the least telling; 60-persistent-storage.rules and dm's and md's own rules set them
_PROPERTIES = ("DM_UUID", "MD_UUID", "ID_WWN_WITH_EXTENSION", "ID_SERIAL", "ID_WWN", "ID_PATH")
#: attributes in sysfs, for a machine where udev does not know the disk
_ATTRIBUTES = ("loop/backing_file", "serial", "wwid", "device/serial", "device/wwid")


class DeviceName(JsonObject, frozen=True):
    """A block device: its kernel name today, and how udev finds it (``kind`` is ENV, ATTR or KERNEL)."""

    kernel: str
    kind: str
    key: str
    value: str

    @property
    def stable(self) -> bool:
        """Whether the name means the same disk after a reboot."""
        return self.kind != "KERNEL"

    @property
    def pattern(self) -> str:
        """The value as udev's rules and `udevadm trigger` match it."""
        return "".join("?" if c in '*?[]|"\\' or not c.isprintable() else c for c in self.value)

    @property
    def match(self) -> str:
        """The keys of a udev rule that match this device and none of its partitions."""
        key = "KERNEL" if self.kind == "KERNEL" else f"{self.kind}{{{self.key}}}"
        return f'ACTION=="add|change", SUBSYSTEM=="block", ENV{{DEVTYPE}}=="disk", {key}=="{self.pattern}"'

    def __str__(self) -> str:
        return f"{self.kernel} ({self.key} {self.value})" if self.stable else self.kernel


def name_of(machine: Machine, kernel: str) -> DeviceName:
    """Return the best name of a disk."""
    found = properties(machine, kernel)
    for key in _PROPERTIES:
        if found.get(key, "").strip():
            return DeviceName(kernel, "ENV", key, found[key])
    for key in _ATTRIBUTES:
        value = _attribute(machine, kernel, key)
        if value:
            return DeviceName(kernel, "ATTR", key, value)
    return DeviceName(kernel, "KERNEL", "kernel name", kernel)


def device_named(machine: Machine, name: DeviceName) -> str | None:
    """Return the kernel name that the device has now; None if it is not there.

    If several have the name, the one with the kernel name of the record.
    """
    if not name.stable:
        return name.kernel if machine.exists(f"/sys/block/{name.kernel}") else None
    kernels = machine.names("/sys/block")
    for kernel in (name.kernel, *kernels):
        if kernel in kernels and _has(machine, kernel, name):
            return kernel
    return None


def _has(machine: Machine, kernel: str, name: DeviceName) -> bool:
    if name.kind == "ATTR":
        return _attribute(machine, kernel, name.key) == name.value
    found = properties(machine, kernel)
    # before udev has looked at a disk (early at boot), the number of the record's own name is all there is
    return found.get(name.key) == name.value or (not found and kernel == name.kernel)


def properties(machine: Machine, kernel: str) -> dict[str, str]:
    """Return what udev's database says of a disk; nothing if udev does not run."""
    number = machine.text(f"/sys/block/{kernel}/dev")
    lines = (machine.text(f"/run/udev/data/b{number}") or "").split("\n") if number else []
    pairs = (line[2:].partition("=") for line in lines if line.startswith("E:"))
    return {key: value for key, _, value in pairs}


def _attribute(machine: Machine, kernel: str, key: str) -> str:
    return (machine.text(f"/sys/block/{kernel}/{key}") or "").strip()
