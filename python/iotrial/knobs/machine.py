"""Knobs of the machine or guest: kernel, memory, processors, a guest's disks, and the place of a run."""

from __future__ import annotations

from collections.abc import Mapping

from iotrial.knobs.declaration import (
    HARMLESS,
    Consequence,
    Declaration,
    Need,
    Scope,
    Stage,
    at_risk,
    not_judged,
    trade_off,
)
from iotrial.study.model import Setting
from iotrial.study.places import LAB_DEVICE


class KernelVersion(Declaration):
    """The newest kernel of a series, as packaged by the distribution."""

    name = "kernel.version"
    title = "kernel of the guest"
    stage = Stage.MACHINE
    open_levels = "a kernel series or version in the package sources, such as 6.1 or 6.12"
    consequence = not_judged("iotrial does not know how another kernel affects data in a power cut")


class GuestMemory(Declaration):
    """Memory of the guest, not counting the memory of simulated disks."""

    name = "guest.memory"
    title = "memory of the guest, in addition to that of simulated disks"
    stage = Stage.MACHINE
    open_levels = "128 MiB to 64 GiB, whole MiB"
    consequence = HARMLESS


class GuestProcessors(Declaration):
    """One QEMU thread per processor, emulated or not."""

    name = "guest.processors"
    title = "processors of the guest"
    stage = Stage.MACHINE
    open_levels = "1 to 64"
    consequence = HARMLESS


class GuestDiskInterface(Declaration):
    """The controller that QEMU emulates for all disks of a guest; virtio-blk unless a study says otherwise."""

    name = "guest.disk_interface"
    title = "how the guest's disks are attached: the controller that QEMU emulates"
    stage = Stage.MACHINE
    scope = Scope.DEVICE
    LEVELS = ("virtio-blk", "virtio-scsi", "nvme", "sata", "ide")
    consequence = HARMLESS
    #: source: nvme_do_write in QEMU's hw/nvme/ctrl.c does not look at the flag. With QEMU 7.2.22 a sync of a file on ext4
    #: flushed the host's disk once, on every other interface twice.
    consequences: Mapping[str, Consequence] = {
        "nvme": at_risk(
            "the controller ignores FUA, with which file systems write their log through the cache: what was synced last can "
            "be lost if the host fails, unless the cache mode flushes after each write"
        ),
    }


class GuestDiskCache(Declaration):
    """What QEMU does with writes and flushes of all disks of a guest; none unless a study says otherwise."""

    name = "guest.disk_cache"
    title = "cache mode of the guest's disks on the host (QEMU's names)"
    stage = Stage.MACHINE
    scope = Scope.DEVICE
    LEVELS = ("none", "writeback", "writethrough", "directsync", "unsafe")
    #: sources: QEMU's manual (qemu-system-x86_64(1), -drive cache=) and docs/system/qemu-block-drivers.rst
    consequence = HARMLESS
    consequences: Mapping[str, Consequence] = {
        "writeback": trade_off(
            "until the guest flushes, its writes may be only in the host's memory: in a power cut it loses more of them"
        ),
        "unsafe": at_risk(
            "the guest's flushes are ignored: synced data are lost, and its file systems damaged, if the host fails"
        ),
    }


class GuestDiskAio(Declaration):
    """How QEMU hands requests for all disks of a guest to the host's kernel; threads unless a study says otherwise."""

    name = "guest.disk_aio"
    title = "how QEMU reads and writes a guest's disks: pool of threads, Linux AIO or io_uring (QEMU's names)"
    stage = Stage.MACHINE
    scope = Scope.DEVICE
    LEVELS = ("threads", "native", "io_uring")
    consequence = HARMLESS


class GuestDiskFormat(Declaration):
    """How the image file of each of a guest's disks is laid out; raw and written whole unless a study says otherwise.

    The options are those of qemu-img, which converts the images at each start of the guest.
    """

    name = "guest.disk_format"
    title = "format of the images of a guest's disks: raw or qcow2, with options of qemu-img"
    stage = Stage.MACHINE
    scope = Scope.DEVICE
    open_levels = (
        "raw, raw preallocation=off or =falloc, or qcow2 with some of preallocation=metadata, =falloc or =full, "
        "cluster_size=512 to 2M, lazy_refcounts=on and extended_l2=on"
    )
    consequence = trade_off(
        "the image grows with what the guest writes: if the host's disk is full, the guest's writes fail"
    )
    consequences: Mapping[str, Consequence] = {
        "lazy_refcounts=on": trade_off(
            "after a crash or power cut of the host the image is repaired before it can be used"
        ),
        "preallocation=falloc": HARMLESS,
        "preallocation=full": HARMLESS,
    }

    def consequence_of(self, setting: Setting) -> Consequence:
        words = setting.value.split()
        if words == ["raw"]:
            return HARMLESS
        return next((found for word, found in self.consequences.items() if word in words), self.consequence)


class MemoryHugePages(Declaration):
    """Transparent huge pages. Switching them off completely lowers vm.min_free_kbytes, which is restored too."""

    name = "memory.huge_pages"
    title = (
        "transparent huge pages of this machine: always, madvise (only for programs that request them), never"
    )
    stage = Stage.HOST
    candidates = ("always", "madvise", "never")
    LEVELS = ("always", "madvise", "never")
    consequence = trade_off("huge pages take more memory, and compaction takes time")

    def need_of(self, setting: Setting) -> Need | None:
        return Need.HUGE_PAGES


class MemoryLruGen(Declaration):
    """Multi-Gen LRU (Documentation/admin-guide/mm/multigen_lru.rst): which pages are reclaimed first. Linux 6.1 and later."""

    name = "memory.lru_gen"
    title = "Multi-Gen LRU: which pages are reclaimed first; a mask of its parts, 0x0000 is the older LRU"
    stage = Stage.HOST
    candidates = ("0x0007", "0x0000")
    open_levels = "on, off, or a mask from 0x0000 to 0x0007"
    consequence = trade_off("other pages are reclaimed first, so other works read more")


class CpuGovernor(Declaration):
    """The frequency governor of all processors (Documentation/admin-guide/pm/cpufreq.rst); virtual machines may lack it."""

    name = "cpu.governor"
    listed_by_kernel = True
    title = "CPU frequency governor: performance, powersave, schedutil ..."
    stage = Stage.HOST
    open_levels = "those of this machine (scaling_available_governors)"
    consequence = trade_off("a higher frequency uses more energy, a lower one more time")


class MemoryLimit(Declaration):
    """A control group per level; the work joins its own for the last part of its preparation and the timed part."""

    name = "memory.limit"
    title = "how much memory the work may use, page cache of its files included"
    stage = Stage.WORK
    open_levels = "none, or 16 MiB and more"
    consequence = trade_off("less memory for the work causes more I/O")


class LabDevice(Declaration):
    """Where a run happens. All places exist in all arms; the place of a run is chosen before any other knob is set."""

    name = LAB_DEVICE
    title = "where the run happens: one of the study's [[place]] tables (located by --place NAME=FOLDER)"
    stage = Stage.PLACE
    scope = Scope.DEVICE
    open_levels = "names of the study's [[place]] tables"
    consequence = not_judged("iotrial does not know how safe data are on the disk of this place")
