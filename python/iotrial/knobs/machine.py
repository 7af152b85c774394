"""Knobs of the machine or guest: kernel, memory, processors, a guest's disks, sysctls, and the place of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from iotrial.knobs.declaration import (
    Consequence,
    Declaration,
    Need,
    Scope,
    Stage,
    at_risk,
    harmless,
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
    consequence = harmless("the size of a machine, without effect on the safety of data")


class GuestProcessors(Declaration):
    """One QEMU thread per processor, emulated or not."""

    name = "guest.processors"
    title = "processors of the guest"
    stage = Stage.MACHINE
    open_levels = "1 to 64"
    consequence = harmless("the size of a machine, without effect on the safety of data")


class GuestDiskInterface(Declaration):
    """The controller that QEMU emulates for all disks of a guest; virtio-blk unless a study says otherwise."""

    name = "guest.disk_interface"
    title = "how the guest's disks are attached: the controller that QEMU emulates"
    stage = Stage.MACHINE
    scope = Scope.DEVICE
    LEVELS = ("virtio-blk", "virtio-scsi", "nvme", "sata", "ide")
    consequence = harmless("it passes the guest's flushes on; the cache mode decides what they do")
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
    consequence = harmless("the guest's flushes reach the host's disk")
    consequences: Mapping[str, Consequence] = {
        "writeback": trade_off(
            "until the guest flushes, its writes may be only in the host's memory: in a power cut it loses more of them"
        ),
        "unsafe": at_risk(
            "the guest's flushes are ignored: synced data are lost, and its file systems damaged, if the host fails"
        ),
    }


class Sysctl(Declaration):
    """One key of the allow-list, named by the option ``key``."""

    name = "sysctl"
    title = "a sysctl of the host, from a short list of harmless ones"
    stage = Stage.HOST
    option = "key"
    open_levels = "whole numbers in the range of the key"
    consequence = trade_off("affects memory and latency of everything on the machine")

    #: key: minimum and maximum
    ALLOWED: ClassVar[dict[str, tuple[int, int]]] = {
        "vm.compaction_proactiveness": (0, 100),
        "vm.dirty_background_bytes": (1 << 20, 1 << 40),
        "vm.dirty_background_ratio": (0, 100),
        "vm.dirty_bytes": (1 << 20, 1 << 40),
        "vm.dirty_expire_centisecs": (100, 360_000),
        "vm.dirty_ratio": (1, 100),
        "vm.dirty_writeback_centisecs": (1, 360_000),  # 0 would stop periodic write-back for everybody
        "vm.dirtytime_expire_seconds": (1, 864_000),
        "vm.extfrag_threshold": (0, 1000),
        "vm.laptop_mode": (0, 300),
        "vm.nr_hugepages": (0, 1024),  # of 2 MiB: at most 2 GiB are taken from everybody else
        "vm.page-cluster": (0, 8),
        "vm.page_lock_unfairness": (0, 100),
        "vm.stat_interval": (1, 3600),
        "vm.swappiness": (0, 200),
        "vm.vfs_cache_pressure": (1, 1000),
        "vm.watermark_boost_factor": (0, 30_000),
        "vm.watermark_scale_factor": (1, 1000),
        "fs.xfs.xfssyncd_centisecs": (100, 720_000),
    }

    #: of Linux itself (kernel/sysctl.c, mm/ and the manuals below), which a distribution may change. A limit of dirty pages
    #: in bytes is 0: the ratio is in force
    DEFAULTS: ClassVar[Mapping[str, str]] = {
        "vm.compaction_proactiveness": "20",
        "vm.dirty_background_bytes": "0",
        "vm.dirty_background_ratio": "10",
        "vm.dirty_bytes": "0",
        "vm.dirty_expire_centisecs": "3000",
        "vm.dirty_ratio": "20",
        "vm.dirty_writeback_centisecs": "500",
        "vm.dirtytime_expire_seconds": "43200",
        "vm.extfrag_threshold": "500",
        "vm.laptop_mode": "0",
        "vm.nr_hugepages": "0",
        "vm.page-cluster": "3",
        "vm.page_lock_unfairness": "5",
        "vm.stat_interval": "1",
        "vm.swappiness": "60",
        "vm.vfs_cache_pressure": "100",
        "vm.watermark_boost_factor": "15000",
        "vm.watermark_scale_factor": "10",
        "fs.xfs.xfssyncd_centisecs": "3000",
    }

    #: limits that come in two units: the kernel shows one of each pair as 0, and clears it when the other is written
    PAIRS: ClassVar[Mapping[str, str]] = {
        "vm.dirty_background_bytes": "vm.dirty_background_ratio",
        "vm.dirty_background_ratio": "vm.dirty_background_bytes",
        "vm.dirty_bytes": "vm.dirty_ratio",
        "vm.dirty_ratio": "vm.dirty_bytes",
    }

    #: values that are worth a try, by key
    CANDIDATES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "vm.dirty_background_ratio": ("1", "10"),
        "vm.dirty_ratio": ("5", "20", "40"),
        "vm.dirty_writeback_centisecs": ("100", "500"),
        "vm.swappiness": ("10", "60"),
        "vm.vfs_cache_pressure": ("50", "100"),
    }

    #: without swap, anonymous memory is not reclaimed; limits of dirty pages act through write-back
    NEEDS: ClassVar[Mapping[str, Need]] = {
        "vm.dirty_background_bytes": Need.WRITE_BACK,
        "vm.dirty_background_ratio": Need.WRITE_BACK,
        "vm.dirty_bytes": Need.WRITE_BACK,
        "vm.dirty_expire_centisecs": Need.WRITES,
        "vm.dirty_ratio": Need.WRITE_BACK,
        "vm.dirty_writeback_centisecs": Need.WRITES,
        "vm.swappiness": Need.SWAP,
    }

    #: keys that hold a time after which the kernel acts, in hundredths of a second
    PERIODS: ClassVar[frozenset[str]] = frozenset(
        {"vm.dirty_expire_centisecs", "vm.dirty_writeback_centisecs", "fs.xfs.xfssyncd_centisecs"}
    )

    #: sources: Documentation/admin-guide/sysctl/vm.rst and admin-guide/xfs.rst
    consequences: Mapping[str, Consequence] = {
        **dict.fromkeys(
            (
                "vm.dirty_background_bytes",
                "vm.dirty_background_ratio",
                "vm.dirty_bytes",
                "vm.dirty_expire_centisecs",
                "vm.dirty_ratio",
                "vm.dirty_writeback_centisecs",
                "vm.laptop_mode",
            ),
            trade_off(
                "the larger the value, the more unsynced data is only in memory and lost in a power cut"
            ),
        ),
        "vm.dirtytime_expire_seconds": trade_off(
            "timestamps of a lazytime mount stay only in memory for that long, and are lost in a power cut"
        ),
        "vm.nr_hugepages": trade_off("memory that is reserved for huge pages is not available to others"),
        "vm.stat_interval": harmless("memory statistics are updated less or more often"),
        "fs.xfs.xfssyncd_centisecs": trade_off(
            "the larger the value, the more unsynced metadata changes are lost in a power cut"
        ),
    }

    def consequence_of(self, setting: Setting) -> Consequence:
        return self.consequences.get(dict(setting.options).get("key", ""), self.consequence)

    def default_of(self, setting: Setting) -> str | None:
        return self.DEFAULTS.get(dict(setting.options).get("key", ""))

    def period_s(self, setting: Setting) -> float | None:
        value = setting.value.strip()
        if dict(setting.options).get("key") not in self.PERIODS or not value.isdecimal() or len(value) > 9:
            return None
        return int(value) / 100.0

    def need_of(self, setting: Setting) -> Need | None:
        return self.NEEDS.get(dict(setting.options).get("key", ""))


class GuestSysctl(Declaration):
    """One key of the allow-list, in the guest that has the disks; named by the option ``key``."""

    name = "guest.sysctl"
    title = "a sysctl of the guest with the disks: free memory reserve, network buffers"
    stage = Stage.HOST
    option = "key"
    open_levels = "whole numbers in the range of the key; three of them for net.ipv4.tcp_rmem and tcp_wmem"
    consequence = harmless("network buffers and options, without effect on the safety of data")

    #: key: how many numbers, and the minimum and maximum of each
    ALLOWED: ClassVar[dict[str, tuple[int, int, int]]] = {
        "net.core.netdev_budget": (1, 16, 4096),
        "net.core.netdev_max_backlog": (1, 16, 1 << 20),
        "net.core.rmem_default": (1, 2304, 1 << 28),
        "net.core.rmem_max": (1, 2304, 1 << 28),
        "net.core.wmem_default": (1, 4608, 1 << 28),
        "net.core.wmem_max": (1, 4608, 1 << 28),
        "net.ipv4.tcp_rmem": (3, 4096, 1 << 28),
        "net.ipv4.tcp_sack": (1, 0, 1),
        "net.ipv4.tcp_timestamps": (1, 0, 2),
        "net.ipv4.tcp_window_scaling": (1, 0, 1),
        "net.ipv4.tcp_wmem": (3, 4096, 1 << 28),
        "vm.min_free_kbytes": (1, 128, 1 << 20),
    }
    consequences: Mapping[str, Consequence] = {
        "vm.min_free_kbytes": trade_off("memory that is kept free is not used as cache"),
    }

    def consequence_of(self, setting: Setting) -> Consequence:
        return self.consequences.get(dict(setting.options).get("key", ""), self.consequence)


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
