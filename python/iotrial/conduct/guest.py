"""A guest as a trial uses it: kernel and tools fetched, an initramfs made, QEMU started, the probe in it asked.

How it is executed is found out by doing it: a guest is booted by KVM once, and where that does not answer, by TCG from then
on, until this machine is booted anew.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

from iotrial.conduct.resolve import Resolved
from iotrial.errors import ProbeError
from iotrial.lab.guest import qemu
from iotrial.lab.guest.initramfs import Needs, initramfs
from iotrial.lab.guest.link import CARDS
from iotrial.lab.guest.machine import DiskImage, Disks, GuestMachine
from iotrial.lab.guest.packages import Packages
from iotrial.lab.guest.place import serials_of
from iotrial.lab.guest.states import States
from iotrial.lab.knobs.machine import GuestMemory, GuestProcessors, KernelVersion
from iotrial.lab.target import Target
from iotrial.probe.binary import find_binary
from iotrial.probe.client import Probe
from iotrial.probe.launch import Launch
from iotrial.study.model import LinkSpec
from iotrial.study.places import GUEST
from iotrial.units import parse_size

#: the kernel of a guest for which the study wants none
DEFAULT_KERNEL = "6.12"
#: memory of a guest besides that of modelled disks
MEMORY_MIB = 512
#: of so many bytes of memory the kernel takes one to keep account of them (64 of each page of 4 KiB)
_KERNEL_KEEPS = 64
KVM = Path("/dev/kvm")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """What knobs of the stage MACHINE vary of a guest. ``memory_mib``: besides that of modelled disks."""

    kernel: str = DEFAULT_KERNEL
    memory_mib: int = MEMORY_MIB
    processors: int = 1

    @staticmethod
    def of(wishes: Mapping[str, str]) -> MachineSpec:
        """From values of knobs, by name; what none of them wants is as it always is."""
        return MachineSpec(
            wishes.get(KernelVersion.name, DEFAULT_KERNEL),
            parse_size(wishes[GuestMemory.name]) >> 20 if GuestMemory.name in wishes else MEMORY_MIB,
            int(wishes.get(GuestProcessors.name, "1")),
        )


@dataclass(frozen=True, slots=True)
class GuestSpec:
    """What a guest is to be. ``folder`` holds the images of its disks; ``memory_besides_mib`` is for modelled ones;
    ``link``: it has a card of this network."""

    folder: Path
    disks: Sequence[DiskImage] = ()
    needs: Needs = field(default_factory=Needs)
    memory_besides_mib: int = 0
    name: str = "guest"
    link: LinkSpec | None = None


def guest_spec(resolved: Resolved, folder: Path) -> GuestSpec:
    """The guest that a study needs: a disk for each place that is not modelled, and the memory for those that are."""
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
    """The guest at the other end of the server's link: it brings the same, and has no disk."""
    return GuestSpec(server.folder, needs=server.needs, name="client", link=server.link)


class Guest:
    """One guest machine, off at first. Use as a context manager; leaving it gives its disks up. ``store`` is the folder of
    kernels and tools."""

    def __init__(
        self,
        spec: GuestSpec,
        *,
        store: Path,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
        depends: Callable[[], str | None] = lambda: None,
    ) -> None:
        """``depends``: what is to be told of something without which it would wait for ever; None while that is there."""
        self._spec = spec
        self._waiting = waiting
        self._depends = depends
        self._store = store
        self._packages = Packages(store)
        self._states = States(store / "states")
        self._accelerators = Accelerators(store / "accelerator.json")
        self._wanted = MachineSpec()
        self._wire: int | None = None
        #: by what each is, with the release of its kernel
        self._machines: dict[MachineSpec, tuple[GuestMachine, str]] = {}
        self.accelerator: qemu.Accelerator | None = None
        qemu.find()
        self._disks = Disks(spec.disks, spec.folder)

    def want(self, machine: MachineSpec) -> None:
        """What the next ``start`` starts."""
        self._wanted = machine

    @property
    def wanted(self) -> MachineSpec:
        """What the last ``start`` has started."""
        return self._wanted

    @property
    def release(self) -> str:
        """Of its kernel."""
        return self._made()[1]

    @property
    def memory_besides(self) -> int:
        """Bytes of its memory that are there for modelled disks."""
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
            )
            self._machines[wanted] = machine, kernel.release
        return self._machines[wanted]

    def start(self, wire: int | None = None) -> Probe:
        """Boot it, anew where it has died; the probe in it. ``wire``: a descriptor of its end of the network. Raises
        ProbeError where it does not come up by any means."""
        self._wire = wire
        # A trial has one: what is slow to boot once is no reason to emulate the rest.
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
        """What a report should say of the guest: each that there has been."""
        each: dict[str, list[object]] = {
            "kernel": [release for _, release in self._machines.values()],
            "memory_mib": [machine.memory_mib + self._spec.memory_besides_mib for machine in self._machines],
            "processors": [machine.processors for machine in self._machines],
        }
        return {
            "accelerator": None if self.accelerator is None else self.accelerator.value,
            **{name: found[0] if len(set(found)) == 1 else found for name, found in each.items()},
        }

    def notes(self) -> tuple[str, ...]:
        """What a reader must know of numbers from such a guest."""
        if self.accelerator is not qemu.Accelerator.TCG:
            return ()
        return (
            "the guest is emulated (QEMU's TCG): its processor is slow and unlike any real one, so times mean nothing by "
            "themselves; ratios do, and where an effect is one of processor time they are an indication only",
        )

    def _boot(self, accelerator: qemu.Accelerator) -> Probe:
        """Emulated, it goes on from a state where there is one; else it is booted, and a state is kept."""
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
            return Probe(launch=launch, waiting=self._waiting)

    def hung(self) -> str | None:
        """What is to be told of it where it has given no sign of life for long."""
        return self._machine.hung()

    def close(self) -> None:
        """Give its disks up; the probe's process must have ended."""
        for machine, _ in self._machines.values():
            machine.close()
        self._disks.close()

    def __enter__(self) -> Guest:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def own_boot_id() -> str:
    """Of the machine that this process runs on."""
    return BOOT_ID.read_text().strip()


def clock_ahead_ns(target: Target) -> int:
    """By how much the guest's clock is ahead of ours: from the middle of one question to its answer, so within a millisecond
    or two, and only for the order of runs."""
    before = time.monotonic_ns()
    there = int(target.call("time")["monotonic_ns"])
    return there - (before + time.monotonic_ns()) // 2


class Accelerators:
    """What was found of KVM since this machine was booted, in a small file."""

    def __init__(self, file: Path, device: Path = KVM, boot: Path = BOOT_ID) -> None:
        self._file = file
        self._device = device
        self._boot = boot

    def to_try(self) -> tuple[qemu.Accelerator, ...]:
        """In this order. KVM where it can be opened and has not failed since boot."""
        try:
            self._device.open("r+b", buffering=0).close()
        except OSError:
            return (qemu.Accelerator.TCG,)
        if self._known_broken():
            return (qemu.Accelerator.TCG,)
        return (qemu.Accelerator.KVM, qemu.Accelerator.TCG)

    def note_broken(self, accelerator: qemu.Accelerator) -> None:
        """A guest did not come up by this one."""
        with suppress(OSError):  # then it is found out again next time
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(json.dumps({"broken": accelerator.value, "boot": self._boot.read_text()}))

    def _known_broken(self) -> bool:
        try:
            noted = json.loads(self._file.read_text())
            return bool(noted["boot"] == self._boot.read_text())
        except (OSError, ValueError, KeyError, TypeError):
            return False
