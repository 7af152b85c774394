"""QEMU's command line for a guest, and its accelerator: KVM if a boot shows that it works, else TCG.

/dev/kvm can exist and still hang (nested virtualisation, for instance), so only a guest that has answered is proof.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from iotrial.errors import LabError, MissingTool
from iotrial.guest.architecture import GUEST

PROGRAM = GUEST.program
PACKAGE = GUEST.package
#: names of the ports on the virtio bus, which the probe looks up: the protocol's and the heartbeat's
PORT, PULSE = "iotrial", "iotrial.pulse"
#: MAC addresses of the cards at both ends of a network, by which they are found: the client's, the server's
MAC_ADDRESSES = ("52:54:00:69:6f:01", "52:54:00:69:6f:02")


class Accelerator(StrEnum):
    """Hardware virtualisation or emulation of the guest's processors."""

    KVM = "kvm"
    TCG = "tcg"


@dataclass(frozen=True, slots=True)
class CacheMode:
    """What QEMU does with a disk's writes (BlockdevCacheInfo in its QMP reference).

    ``direct``: it bypasses the host's page cache. ``no_flush``: it ignores flushes of the guest. ``writeback``: the guest
    sees a disk with a write cache; otherwise QEMU flushes after each write.
    """

    direct: bool
    no_flush: bool
    writeback: bool


#: the modes of the option cache= of -drive, by name
CACHE_MODES: Mapping[str, CacheMode] = MappingProxyType(
    {
        "none": CacheMode(direct=True, no_flush=False, writeback=True),
        "writeback": CacheMode(direct=False, no_flush=False, writeback=True),
        "writethrough": CacheMode(direct=False, no_flush=False, writeback=False),
        "directsync": CacheMode(direct=True, no_flush=False, writeback=False),
        "unsafe": CacheMode(direct=False, no_flush=True, writeback=True),
    }
)
#: interfaces of disks: the kernel modules that a guest needs for each, besides those that all guests have
INTERFACE_MODULES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "virtio-blk": frozenset(),
        "virtio-scsi": frozenset({"virtio_scsi", "sd_mod"}),
        "nvme": frozenset({"nvme"}),
        "sata": frozenset({"ahci", "sd_mod"}),
        "ide": frozenset({"ata_piix", "sd_mod"}),
    }
)
_SATA_PORTS, _IDE_DISKS = 6, 4


@dataclass(frozen=True, slots=True)
class Attachment:
    """How all disks of a guest are attached: levels of the knobs guest.disk_*, and what holds if a study says nothing."""

    interface: str = "virtio-blk"
    cache: str = "none"
    aio: str = "threads"
    format: str = "raw"

    @property
    def driver(self) -> str:
        """QEMU's driver for the format."""
        return self.format.split()[0]

    @property
    def image_options(self) -> list[str]:
        """Options of the image for qemu-img (-o)."""
        return self.format.split()[1:]


USUAL = Attachment()


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk on a file that is passed to QEMU open, for reading and writing; QEMU sets or clears O_DIRECT.

    ``serial``: at most 20 characters. ``on_device``: the file is a block device.
    """

    descriptor: int
    serial: str
    on_device: bool = False


@dataclass(frozen=True, slots=True)
class Machine:
    """The configuration of a guest: kernel, initramfs, memory, processors, disks and how they are attached, network card."""

    kernel: Path
    initramfs: Path
    memory_mib: int = 512
    processors: int = 1
    disks: tuple[Disk, ...] = ()
    #: model and MAC address of the network card; None: no card
    card: tuple[str, str] | None = None
    attached: Attachment = USUAL


def identity(program: str, machine: Machine, accelerator: Accelerator, sizes: Sequence[int]) -> str:
    """Hash all that a saved memory state depends on: QEMU, its command, kernel, initramfs, the sizes of the disks."""
    disks = tuple(replace(disk, descriptor=number) for number, disk in enumerate(machine.disks))
    words = command(program, replace(machine, disks=disks), accelerator, Descriptors(0, 0, 0))
    for file in (Path(program).resolve(), machine.kernel, machine.initramfs):
        seen = file.stat()
        words += [str(file), str(seen.st_size), str(seen.st_mtime_ns)]
    words += [str(size) for size in sizes]
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]


def find() -> str:
    """Return the path of QEMU. Raises MissingTool naming its package."""
    return _installed(PROGRAM, f"--no-install-recommends {PACKAGE}")


def size_word(size_bytes: int) -> str:
    """Return a size as people give it to qemu-img: 512, 64k, 2M."""
    for power, unit in ((20, "M"), (10, "k")):
        if size_bytes % (1 << power) == 0:
            return f"{size_bytes >> power}{unit}"
    return str(size_bytes)


def find_converter() -> str:
    """Return the path of qemu-img. Raises MissingTool naming its package."""
    return _installed("qemu-img", "qemu-utils")


def _installed(program: str, package: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise MissingTool.program("guest lab", program, package)
    return found


@dataclass(frozen=True, slots=True)
class Descriptors:
    """Descriptors passed to QEMU apart from its disks: kernel console, monitor, heartbeat, and if used the saved state to
    resume from and the guest's end of the network."""

    console: int
    monitor: int
    pulse: int
    state: int | None = None
    wire: int | None = None


def command(program: str, machine: Machine, accelerator: Accelerator, descriptors: Descriptors) -> list[str]:
    """Return the whole command. Its standard input and output are the protocol's port."""
    words = [
        *_bare(program, accelerator, processors=machine.processors, memory_mib=machine.memory_mib),
        "-kernel", str(machine.kernel),
        "-initrd", str(machine.initramfs),
        "-append", " ".join((*_PARAMETERS, "--", "--init")),
        "-chardev", "stdio,id=port,signal=off",
        "-device", "virtio-serial-pci,max_ports=3",
        "-device", f"virtserialport,chardev=port,name={PORT}",
        "-chardev", f"socket,id=pulse,fd={descriptors.pulse}",
        "-device", f"virtserialport,chardev=pulse,name={PULSE}",
        "-add-fd", f"fd={descriptors.console},set=1",
        "-chardev", "file,id=console,path=/dev/fdset/1,append=on",
        "-serial", "chardev:console",
        "-chardev", f"socket,id=monitor,fd={descriptors.monitor}",
        "-mon", "chardev=monitor,mode=control",
    ]  # fmt: skip
    if descriptors.state is not None:
        words += ["-incoming", f"fd:{descriptors.state}"]
    words += _controllers(machine)
    for number, disk in enumerate(machine.disks):
        words += _disk(number, disk, machine.attached)
    if machine.card is not None:
        model, address = machine.card
        words += ["-netdev", f"socket,id=wire,fd={descriptors.wire}"]
        words += ["-device", f"{model},netdev=wire,mac={address},romfile="]
    return words


def boot_command(kernel: str, initramfs: str, root: str, *, memory_mib: int) -> list[str]:
    """Return the command of an emulated guest with the image file ``root`` as its only disk, read through the page cache.

    The guest's kernel log is the command's standard output; a reset ends it.
    """
    file = root.replace(",", ",,")
    return [
        *_bare(PROGRAM, Accelerator.TCG, processors=1, memory_mib=memory_mib),
        "-kernel", kernel,
        "-initrd", initramfs,
        "-append", " ".join(_PARAMETERS),
        "-chardev", "stdio,id=console,signal=off",
        "-serial", "chardev:console",
        "-blockdev", f"driver=file,node-name=file,filename={file},read-only=on,locking=off,aio=threads",
        "-blockdev", "driver=raw,node-name=root,file=file,read-only=on",
        "-device", "virtio-blk-pci,drive=root",
    ]  # fmt: skip


def _bare(program: str, accelerator: Accelerator, *, processors: int, memory_mib: int) -> list[str]:
    """Return the part of the command that all guests share: a machine without devices."""
    return [
        program,
        "-nodefaults",
        "-no-user-config",
        "-no-reboot",
        "-display", "none",
        "-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny",
        "-machine", f"{GUEST.machine},accel={accelerator}",
        "-cpu", _PROCESSORS[accelerator],
        "-smp", str(processors),
        "-m", f"{memory_mib}M",
    ]  # fmt: skip


_PROCESSORS = {Accelerator.KVM: "host", Accelerator.TCG: GUEST.emulated}

#: log only errors while booting, because the serial line is slow; a panic ends the guest, and QEMU with it
_PARAMETERS: Sequence[str] = (
    f"console={GUEST.console}",
    "quiet",
    "loglevel=4",
    "panic=-1",
    "rdinit=/init",
    "mitigations=off",
    "random.trust_cpu=on",
)


def top_node(number: int) -> str:
    """Return the name of the block node that a disk's controller works on."""
    return f"disk{number}"


def file_node(number: int) -> str:
    """Return the name of the block node that has a disk's file open."""
    return f"disk{number}-file"


def _controllers(machine: Machine) -> list[str]:
    """Return the controllers that several disks share; virtio-blk and NVMe have one for each disk."""
    match machine.attached.interface:
        case "virtio-scsi":
            devices = ["virtio-scsi-pci,id=scsi"]
        case "sata":
            count = -(-len(machine.disks) // _SATA_PORTS)
            devices = [f"ich9-ahci,id=sata{number}" for number in range(count)]
        case "ide":
            devices = ["piix3-ide,id=ide"]
        case _:
            devices = []
    return [word for device in devices for word in ("-device", device)]


def _on_controller(number: int, interface: str) -> str:
    """Return the device of a disk, and its place on its controller."""
    match interface:
        case "virtio-scsi":
            return f"scsi-hd,bus=scsi.0,scsi-id={number}"
        case "nvme":
            return "nvme"
        case "sata":
            return f"ide-hd,bus=sata{number // _SATA_PORTS}.{number % _SATA_PORTS}"
        case "ide":
            if number >= _IDE_DISKS:
                raise LabError(f"guest: IDE has {_IDE_DISKS} disks at most")
            return f"ide-hd,bus=ide.{number // 2},unit={number % 2}"
        case _:
            return "virtio-blk-pci"


def _disk(number: int, disk: Disk, attached: Attachment) -> list[str]:
    set_number, cache = number + 2, CACHE_MODES[attached.cache]
    driver = "host_device" if disk.on_device else "file"
    no_flush = "cache.no-flush=on," if cache.no_flush else ""
    words = [
        "-add-fd", f"fd={disk.descriptor},set={set_number}",
        "-blockdev",
        f"driver={driver},node-name={file_node(number)},filename=/dev/fdset/{set_number},auto-read-only=off,locking=off,"
        f"cache.direct={'on' if cache.direct else 'off'},{no_flush}aio={attached.aio},discard=unmap",
        "-blockdev",
        f"driver={attached.driver},node-name={top_node(number)},file={file_node(number)},discard=unmap",
    ]  # fmt: skip
    write_cache = "" if cache.writeback else ",write-cache=off"
    device = f"{_on_controller(number, attached.interface)},drive={top_node(number)},serial={disk.serial}{write_cache}"
    return [*words, "-device", device]
