"""A guest (virtual machine) for a trial: fetches kernel and tools, builds an initramfs, starts QEMU and the probe in it.

The accelerator is found by trying: the guest is booted with KVM once. If that does not answer, TCG is used
until this machine reboots.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

from iotrial.errors import ProbeError
from iotrial.guest import architecture, qemu
from iotrial.guest.initramfs import Needs, initramfs
from iotrial.guest.link import CARDS
from iotrial.guest.machine import DiskImage, Disks, GuestMachine
from iotrial.guest.packages import Packages
from iotrial.guest.place import serials_of
from iotrial.guest.snapshots import States
from iotrial.knobs.declaration import Stage
from iotrial.lab.knobs.machine import (
    GuestDiskAio,
    GuestDiskCache,
    GuestDiskFormat,
    GuestDiskInterface,
    GuestMemory,
    GuestProcessors,
    KernelVersion,
)
from iotrial.lab.target import Target
from iotrial.probe.binary import Launch, find_binary
from iotrial.probe.client import Probe
from iotrial.runner.resolve import KnobSetting, Resolved
from iotrial.study.model import LinkSpec
from iotrial.study.places import GUEST
from iotrial.units import parse_size

#: Kernel of a guest if the study names none.
DEFAULT_KERNEL = "6.12"
#: Memory of a guest without that of simulated disks.
MEMORY_MIB = 512
#: The kernel uses one byte in this many to manage memory: struct page, 64 bytes for each page of 4 KiB.
_KERNEL_KEEPS = 64
KVM = Path("/dev/kvm")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


#: knobs of a guest's disks, by field of ``qemu.Attachment``
_OF_DISKS = {
    "interface": GuestDiskInterface.name,
    "cache": GuestDiskCache.name,
    "aio": GuestDiskAio.name,
    "format": GuestDiskFormat.name,
}


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """Properties of a guest that knobs of the stage MACHINE vary. ``memory_mib`` excludes simulated disks."""

    kernel: str = DEFAULT_KERNEL
    memory_mib: int = MEMORY_MIB
    processors: int = 1
    disks: qemu.Attachment = qemu.USUAL

    @staticmethod
    def of(wishes: Mapping[str, str]) -> MachineSpec:
        """Return the machine for these knob values by name, with defaults for the others."""
        return MachineSpec(
            wishes.get(KernelVersion.name, DEFAULT_KERNEL),
            parse_size(wishes[GuestMemory.name]) >> 20 if GuestMemory.name in wishes else MEMORY_MIB,
            int(wishes.get(GuestProcessors.name, "1")),
            qemu.Attachment(**{name: wishes[knob] for name, knob in _OF_DISKS.items() if knob in wishes}),
        )

    @staticmethod
    def wanted_by(settings: Iterable[KnobSetting]) -> MachineSpec | None:
        """Return the machine for the settings of a run; None if none of them is a property of the machine."""
        wishes = {one.knob.name: one.value for one in settings if one.knob.stage is Stage.MACHINE}
        return MachineSpec.of(wishes) if wishes else None


@dataclass(frozen=True, slots=True)
class GuestSpec:
    """Configuration of a guest.

    ``folder`` holds the images of its disks; ``memory_besides_mib`` is memory for simulated disks; ``link``:
    the network that it has a card for.
    """

    folder: Path
    disks: Sequence[DiskImage] = ()
    needs: Needs = field(default_factory=Needs)
    memory_besides_mib: int = 0
    name: str = "guest"
    link: LinkSpec | None = None


def guest_spec(resolved: Resolved, folder: Path) -> GuestSpec:
    """Return the guest that a study needs: a disk for each place that is not simulated, memory for those that are."""
    assert resolved.needs is not None
    disks = [
        DiskImage(serial, site.size_bytes)
        for site in resolved.sites
        if site.kind == GUEST and site.disk is None
        for filesystem in site.filesystems
        for serial in serials_of(site.place(filesystem), site.disks)
    ]
    modelled = sum(
        site.size_bytes * site.disks * max(len(site.filesystems), 1) for site in resolved.sites if site.disk
    )
    link = resolved.study.lab.link
    name = "guest" if link is None else "server"
    memory = modelled + modelled // _KERNEL_KEEPS
    return GuestSpec(folder, disks, resolved.needs, memory >> 20, name, link)


def client_spec(server: GuestSpec) -> GuestSpec:
    """Return the guest at the other end of the server's link: same packages and modules, no disk."""
    return GuestSpec(server.folder, needs=server.needs, name="client", link=server.link)


class Guest:
    """One guest machine, off at first. A context manager; leaving it releases its disks.

    ``store`` is the folder of kernels and tools.
    """

    def __init__(
        self,
        spec: GuestSpec,
        *,
        store: Path,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
        depends: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Set the guest up. ``depends`` returns a message if something it would wait for forever is lost; else None."""
        self._spec = spec
        self._waiting = waiting
        self._depends = depends
        self._store = store
        self._packages = Packages(store)
        self._states = States(store / "states")
        self._accelerators = Accelerators(store / "accelerator.json")
        self._wanted = MachineSpec()
        self._wire: int | None = None
        #: QEMU's process
        self._process: int | None = None
        #: By machine, with the release of its kernel.
        self._machines: dict[MachineSpec, tuple[GuestMachine, str]] = {}
        self.accelerator: qemu.Accelerator | None = None
        qemu.find()
        self._disks = Disks(spec.disks, spec.folder)

    def want(self, machine: MachineSpec) -> None:
        """Set the machine that the next ``start`` boots."""
        self._wanted = machine

    @property
    def wanted(self) -> MachineSpec:
        """The machine that the last ``start`` booted."""
        return self._wanted

    @property
    def release(self) -> str:
        """Its kernel's release."""
        return self._made()[1]

    @property
    def memory_besides(self) -> int:
        """Bytes of its memory reserved for simulated disks."""
        return self._spec.memory_besides_mib << 20

    @property
    def _machine(self) -> GuestMachine:
        return self._made()[0]

    def _made(self) -> tuple[GuestMachine, str]:
        wanted = self._wanted
        if wanted not in self._machines:
            card = None if self._spec.link is None else CARDS[self._spec.link.card]
            kernel = self._packages.kernel(wanted.kernel, whole=card is not None and card.whole_kernel)
            archive = initramfs(kernel, self._spec.needs, find_binary(), self._packages, self._store)
            machine = GuestMachine(
                kernel=kernel.image,
                initramfs=archive,
                disks=self._disks,
                memory_mib=wanted.memory_mib + self._spec.memory_besides_mib,
                processors=wanted.processors,
                card=None if card is None else (card.device, qemu.MAC_ADDRESSES[self._spec.name == "server"]),
                attached=wanted.disks,
            )
            self._machines[wanted] = machine, kernel.release
        return self._machines[wanted]

    def attachment(self, about: str) -> str:
        """Return a field of ``qemu.Attachment`` as QEMU shows it. It must have been started. Raises LabError."""
        assert self._process is not None
        return self._machine.attachment(about, self._process)

    def start(self, wire: int | None = None) -> Probe:
        """Boot the guest, or reboot it if it has died, and return its probe.

        ``wire``: file descriptor of its end of the network. Raises ProbeError if it does not boot with any
        accelerator.
        """
        self._wire = wire
        # The whole trial uses one accelerator: one slow boot is no reason to emulate the rest of it.
        if self.accelerator is not None:
            return self._boot(self.accelerator)
        failed: list[qemu.Accelerator] = []
        for accelerator in self._accelerators.to_try():
            try:
                probe = self._boot(accelerator)
            except ProbeError:
                if accelerator is qemu.Accelerator.TCG:
                    raise  # the guest itself does not boot
                failed.append(accelerator)
            else:
                self.accelerator = accelerator
                for one in failed:
                    self._accelerators.note_broken(one)
                return probe
        raise AssertionError("TCG is always tried")

    def facts(self) -> Mapping[str, object]:
        """Return facts of the guest for reports, covering every machine it has been."""
        each: dict[str, list[object]] = {
            "kernel": [release for _, release in self._machines.values()],
            "memory_mib": [machine.memory_mib + self._spec.memory_besides_mib for machine in self._machines],
            "processors": [machine.processors for machine in self._machines],
        }
        usual = qemu.USUAL
        for name in _OF_DISKS:
            found = [getattr(machine.disks, name) for machine in self._machines]
            if any(one != getattr(usual, name) for one in found):
                each[f"disk_{name}"] = found
        return {
            "accelerator": None if self.accelerator is None else self.accelerator.value,
            **{name: found[0] if len(set(found)) == 1 else found for name, found in each.items()},
        }

    def notes(self) -> tuple[str, ...]:
        """Return the caveats for numbers measured in such a guest."""
        if self.accelerator is not qemu.Accelerator.TCG:
            return ()
        return (
            "the guest is emulated (QEMU's TCG): its processor is slow and unlike a real one, so absolute times "
            "are meaningless; ratios are valid, but only indicative for effects of processor time",
        )

    def _boot(self, accelerator: qemu.Accelerator) -> Probe:
        """Boot, with the disks in the wanted format. An emulated guest resumes from a saved state if there is one; else its
        state is saved once it has booted."""
        self._disks.convert(self._wanted.disks.format)
        if accelerator is not qemu.Accelerator.TCG:
            return self._begin(accelerator)
        key = self._machine.identity(accelerator)
        state = self._states.open(key)
        if state is not None:
            try:
                return self._begin(accelerator, state)
            except ProbeError:
                self._states.forget(key)
            finally:
                os.close(state)
        probe = self._begin(accelerator)
        self._states.keep(key, self._machine.save)
        return probe

    def _begin(self, accelerator: qemu.Accelerator, state: int | None = None) -> Probe:
        with self._machine.command(accelerator, state=state, wire=self._wire) as (argv, passed):
            launch = Launch(
                argv,
                name=f"the {self._spec.name} (Linux {self.release}, {accelerator.name})",
                contained=True,
                elsewhere=True,
                passed=passed,
                begins_within_s=self._machine.boots_within_s(accelerator),
                last_words=self._machine.last_words,
                hung=lambda: self.hung() or self._depends(),
            )
            probe = Probe(launch=launch, waiting=self._waiting)
        self._process = probe.pid
        return probe

    def hung(self) -> str | None:
        """Return a message if the guest has shown no sign of life for long; else None."""
        return self._machine.hung()

    def close(self) -> None:
        """Release its disks; the probe's process must have ended."""
        for machine, _ in self._machines.values():
            machine.close()
        self._disks.close()

    def __enter__(self) -> Guest:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def own_boot_id() -> str:
    """Return the boot ID of the machine that this process runs on."""
    return BOOT_ID.read_text().strip()


def clock_ahead_ns(target: Target) -> int:
    """Return by how many nanoseconds the guest's clock is ahead of ours.

    Compares the guest's answer with the middle of the round trip, so it is accurate to a millisecond or two:
    enough only to order runs.
    """
    before = time.monotonic_ns()
    there = int(target.call("time")["monotonic_ns"])
    return there - (before + time.monotonic_ns()) // 2


class Accelerators:
    """Remembers, in a small file, whether KVM has failed since this machine booted."""

    def __init__(self, file: Path, device: Path = KVM, boot: Path = BOOT_ID) -> None:
        self._file = file
        self._device = device
        self._boot = boot

    def to_try(self) -> tuple[qemu.Accelerator, ...]:
        """Return the accelerators to try, in order. KVM only if it can be opened and has not failed since boot."""
        if architecture.GUEST is not architecture.HERE:
            return (qemu.Accelerator.TCG,)
        try:
            self._device.open("r+b", buffering=0).close()
        except OSError:
            return (qemu.Accelerator.TCG,)
        if self._known_broken():
            return (qemu.Accelerator.TCG,)
        return (qemu.Accelerator.KVM, qemu.Accelerator.TCG)

    def note_broken(self, accelerator: qemu.Accelerator) -> None:
        """Record that a guest did not boot with this accelerator."""
        with suppress(OSError):  # then the next trial finds it out again
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(json.dumps({"broken": accelerator.value, "boot": self._boot.read_text()}))

    def _known_broken(self) -> bool:
        try:
            noted = json.loads(self._file.read_text())
            return bool(noted["boot"] == self._boot.read_text())
        except (OSError, ValueError, KeyError, TypeError):
            return False
