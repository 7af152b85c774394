"""QEMU's command line for a guest, and how the guest is run: by KVM where a boot shows that it works, else by TCG.

A /dev/kvm can be there and hang (a nested one, for instance), so its presence says nothing; a guest that has answered does.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from iotrial.errors import MissingTool

PROGRAM = "qemu-system-x86_64"
PACKAGE = "qemu-system-x86"
#: names of the ports on the virtio bus: that of the protocol, and that of the signs of life; the probe looks for them
PORT, PULSE = "iotrial", "iotrial.pulse"
#: of the cards at both ends of a wire, by which they are found: the client's, the server's
MAC_ADDRESSES = ("52:54:00:69:6f:01", "52:54:00:69:6f:02")


class Accelerator(StrEnum):
    """What executes the guest's instructions."""

    KVM = "kvm"
    TCG = "tcg"


@dataclass(frozen=True, slots=True)
class Disk:
    """A virtio disk over a file that QEMU is given open, for reading and writing with O_DIRECT. ``serial``: at most 20
    characters."""

    descriptor: int
    serial: str


@dataclass(frozen=True, slots=True)
class Machine:
    """A guest as it is to be: kernel and initramfs, memory, processors, disks."""

    kernel: Path
    initramfs: Path
    memory_mib: int = 512
    processors: int = 1
    disks: tuple[Disk, ...] = ()
    #: the model and the address of a network card, None: it has none
    card: tuple[str, str] | None = None


def identity(program: str, machine: Machine, accelerator: Accelerator, sizes: Sequence[int]) -> str:
    """Names a machine by all that its memory depends on: this QEMU, its command, kernel, initramfs, its disks' sizes."""
    disks = tuple(replace(disk, descriptor=number) for number, disk in enumerate(machine.disks))
    words = command(program, replace(machine, disks=disks), accelerator, Descriptors(0, 0, 0))
    for file in (Path(program).resolve(), machine.kernel, machine.initramfs):
        seen = file.stat()
        words += [str(file), str(seen.st_size), str(seen.st_mtime_ns)]
    words += [str(size) for size in sizes]
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]


def find() -> str:
    """The path of QEMU. Raises MissingTool that names the package."""
    found = shutil.which(PROGRAM)
    if found is None:
        raise MissingTool(
            f"the guest lab needs {PROGRAM}, which is not installed",
            hint=f"apt-get install --no-install-recommends {PACKAGE}",
        )
    return found


@dataclass(frozen=True, slots=True)
class Descriptors:
    """What QEMU is given open besides its disks: where the kernel's words go, its monitor, where signs of life go, a state
    where it is to go on from one, and its end of a network where it has a card."""

    console: int
    monitor: int
    pulse: int
    state: int | None = None
    wire: int | None = None


def command(program: str, machine: Machine, accelerator: Accelerator, given: Descriptors) -> list[str]:
    """The whole command. Standard input and output are the port."""
    words = [
        program,
        "-nodefaults",
        "-no-user-config",
        "-no-reboot",
        "-display", "none",
        "-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny",
        "-machine", f"q35,accel={accelerator},sata=off,smbus=off,i8042=off,hpet=off",
        "-cpu", _PROCESSORS[accelerator],
        "-smp", str(machine.processors),
        "-m", f"{machine.memory_mib}M",
        "-kernel", str(machine.kernel),
        "-initrd", str(machine.initramfs),
        "-append", " ".join((*_PARAMETERS, "--", "--init")),
        "-chardev", "stdio,id=port,signal=off",
        "-device", "virtio-serial-pci,max_ports=3",
        "-device", f"virtserialport,chardev=port,name={PORT}",
        "-chardev", f"socket,id=pulse,fd={given.pulse}",
        "-device", f"virtserialport,chardev=pulse,name={PULSE}",
        "-add-fd", f"fd={given.console},set=1",
        "-chardev", "file,id=console,path=/dev/fdset/1,append=on",
        "-serial", "chardev:console",
        "-chardev", f"socket,id=monitor,fd={given.monitor}",
        "-mon", "chardev=monitor,mode=control",
    ]  # fmt: skip
    if given.state is not None:
        words += ["-incoming", f"fd:{given.state}"]
    for number, disk in enumerate(machine.disks):
        words += _disk(number, disk)
    if machine.card is not None:
        model, address = machine.card
        words += ["-netdev", f"socket,id=wire,fd={given.wire}"]
        words += ["-device", f"{model},netdev=wire,mac={address},romfile="]
    return words


#: emulated, a processor that can do more boots longer: the kernel looks for the fastest way to do everything that it can;
#: without instructions that give random numbers, programs wait for the kernel to have collected some
_PROCESSORS = {Accelerator.KVM: "host", Accelerator.TCG: "qemu64,+rdrand,+rdseed"}

#: no line of the boot is written but what is wrong: a serial line is slow; a panic ends the guest, and with it QEMU
_PARAMETERS: Sequence[str] = (
    "console=ttyS0",
    "quiet",
    "loglevel=4",
    "panic=-1",
    "rdinit=/init",
    "mitigations=off",
    "random.trust_cpu=on",
)


def _disk(number: int, disk: Disk) -> list[str]:
    set_number, node = number + 2, f"disk{number}"
    words = [
        "-add-fd", f"fd={disk.descriptor},set={set_number}",
        "-blockdev",
        f"driver=file,node-name={node}-file,filename=/dev/fdset/{set_number},auto-read-only=off,locking=off,"
        "cache.direct=on,aio=threads,discard=unmap",
        "-blockdev", f"driver=raw,node-name={node}-raw,file={node}-file,discard=unmap",
    ]  # fmt: skip
    return [*words, "-device", f"virtio-blk-pci,drive={node}-raw,serial={disk.serial}"]
