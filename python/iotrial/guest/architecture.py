"""The processor of guests, and what depends on it: that of this machine, so that the probe runs in them."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Architecture:
    """A processor as uname, Debian and QEMU name it."""

    #: as in uname -m
    name: str
    #: as in Debian's package names
    debian: str
    #: the package of QEMU for it
    package: str
    #: QEMU's machine without devices
    machine: str
    #: the processor that QEMU emulates: a minimal one, because with more features the boot takes longer
    emulated: str
    #: the kernel's name of QEMU's first serial line
    console: str

    @property
    def program(self) -> str:
        """QEMU for guests with this processor."""
        return f"qemu-system-{self.name}"


_KNOWN = (
    Architecture(
        name="x86_64",
        debian="amd64",
        package="qemu-system-x86",
        machine="q35,sata=off,smbus=off,i8042=off,hpet=off",
        # the kernel benchmarks every implementation that it could use; without random number instructions, programs wait for
        # its entropy pool
        emulated="qemu64,+rdrand,+rdseed",
        console="ttyS0",
    ),
    Architecture(
        name="aarch64",
        debian="arm64",
        package="qemu-system-arm",
        machine="virt",
        emulated="cortex-a72",  # QEMU passes a seed for the entropy pool in the device tree
        console="ttyAMA0",
    ),
)


def named(name: str) -> Architecture:
    """Return the architecture with this name, as in uname -m; that of x86-64 if guests cannot have it."""
    return next((one for one in _KNOWN if one.name == name), _KNOWN[0])


HERE = named(platform.machine())
#: another than this machine's needs a probe for it in $IOTRIAL_PROBE, and is always emulated
GUEST = named(os.environ.get("IOTRIAL_GUEST_ARCHITECTURE", HERE.name))
