"""A tree of files that looks like a machine, and a machine on it whose kernel files behave like the kernel's."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from iotrial.errors import LabError
from iotrial.knobs.declaration import Safety
from iotrial.lab.target import MountInfo
from iotrial.study.model import Better, Scale
from iotrial.tune.applied import FOLDER
from iotrial.tune.choice import Choice
from iotrial.tune.machine import DRAFT, FileFacts, Machine

MOUNTINFO = (
    "22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw,errors=remount-ro\n"
    "40 22 8:16 / /data rw,nosuid,relatime shared:2 - ext4 /dev/sdb rw\n"
    "41 22 0:40 / /net rw,relatime shared:3 - nfs4 server:/x rw\n"
)
FSTAB = (
    "# /etc/fstab: static file system information.\n"
    "#\n"
    "UUID=0a1b  /      ext4    errors=remount-ro  0  1\n"
    "LABEL=data\t/data\text4\tdefaults,nosuid\t0\t2   # the database\n"
    "\n"
    "server:/x /net nfs4 ro\n"
)
THP = "sys/kernel/mm/transparent_hugepage/enabled"


def tree(root: Path, *, systemd: bool = True, udev: bool = True, cron: bool = False) -> Path:
    """Make a machine with two disks (sda with partitions, sdb with /data), sysctls, and configuration of its own."""
    files = {
        "proc/self/mountinfo": MOUNTINFO,
        "proc/sys/kernel/random/boot_id": "boot-1",
        "proc/sys/kernel/osrelease": "6.1.0",
        "proc/cmdline": "root=/dev/sda2 quiet",
        "proc/sys/vm/swappiness": "60",
        "proc/sys/vm/dirty_ratio": "20",
        "proc/sys/vm/dirty_bytes": "0",
        "proc/sys/vm/min_free_kbytes": "67584",
        "proc/sys/net/core/rmem_max": "212992",
        "proc/fs/ext4/sdb/options": "rw\nbarrier\ncommit=5\nnodiscard\n",
        THP: "always [madvise] never",
        "etc/fstab": FSTAB,
        "etc/sysctl.conf": "#vm.swappiness=1\n",
        "usr/lib/sysctl.d/50-default.conf": "vm.swappiness = 30\nkernel.sysrq = 16\n",
        "usr/lib/tmpfiles.d/tmp.conf": "q /tmp 1777 root root 10d\n",
    }
    if udev:
        files |= {
            "usr/lib/udev/rules.d/60-block.rules": 'ACTION!="remove", SUBSYSTEM=="block", OPTIONS+="watch"\n',
            "run/udev/data/b8:0": "S:disk/by-id/x\nE:ID_SERIAL=DISK_A\nE:ID_PATH=pci-0000:00:01.0\n",
            "run/udev/data/b8:16": "E:ID_SERIAL=DISK [B]\nE:ID_PATH=pci-0000:00:02.0\n",
        }
    if systemd:
        files |= {"usr/lib/systemd/system/basic.target": "[Unit]\n"}
        (root / "run/systemd/system").mkdir(parents=True)
        (root / "etc/systemd/system").mkdir(parents=True)
    if cron:
        (root / "etc/cron.d").mkdir(parents=True)
        files |= {"run/crond.pid": "12\n"}
    for name, disk, number in (("sda", "pci0/sda", "8:0"), ("sdb", "pci1/sdb", "8:16")):
        files |= {
            f"sys/devices/{disk}/dev": number,
            f"sys/devices/{disk}/queue/scheduler": "none [mq-deadline] bfq",
            f"sys/devices/{disk}/queue/read_ahead_kb": "128",
            f"sys/devices/{disk}/queue/nr_requests": "64",
            f"sys/devices/{disk}/queue/wbt_lat_usec": "75000",
            f"sys/devices/{disk}/queue/rotational": "1",
        }
        for folder in ("sys/block", "sys/class/block", "sys/dev/block"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        (root / "sys/block" / name).symlink_to(f"../devices/{disk}")
        (root / "sys/class/block" / name).symlink_to(f"../../devices/{disk}")
        (root / "sys/dev/block" / number).symlink_to(f"../../devices/{disk}")
    files |= {"sys/devices/pci0/sda/sda2/partition": "2", "sys/devices/pci0/sda/sda2/dev": "8:2"}
    (root / "sys/class/block/sda2").symlink_to("../../devices/pci0/sda/sda2")
    (root / "sys/dev/block/8:2").symlink_to("../../devices/pci0/sda/sda2")
    for folder in ("etc/sysctl.d", "etc/udev/rules.d", "etc/tmpfiles.d", "var/lib"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (root / "etc/fstab").chmod(0o640)
    os.utime(root / "etc/fstab", ns=(10**18, 10**18 + 123_456_789))
    return root


def image(root: Path) -> dict[str, object]:
    """Return everything in the tree but the records: kinds, modes, contents and, of files that were there, their times."""
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if f"/{name}".startswith(FOLDER.rpartition("/")[0]):
            continue
        seen = path.lstat()
        content = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        when = seen.st_mtime_ns if name == "etc/fstab" else None
        found[name] = (stat.S_IFMT(seen.st_mode), stat.S_IMODE(seen.st_mode), content, when)
    return found


class Crash(BaseException):
    """The machine stops here: no handler runs."""


class FakeMachine(Machine):
    """A machine on a tree. ``crash_at``: the number of the primitive at which it stops. ``ran``: the programs it started.

    ``missing``: programs that are not installed; ``full``: folders on a disk without space; ``now_s``: the time since boot.
    """

    def __init__(self, root: Path, crash_at: int | None = None) -> None:
        super().__init__(root)
        self.ticks, self.crash_at = 0, crash_at
        self.ran: list[tuple[str, ...]] = []
        self.refused: set[str] = set()
        self.missing: set[str] = set()
        self.full: set[str] = set()
        self.now_s = 1000.0

    def tick(self) -> None:
        self.ticks += 1
        if self.ticks == self.crash_at:
            raise Crash

    @property
    def uptime_s(self) -> float:
        return self.now_s

    def has_program(self, name: str) -> bool:
        return name not in self.missing

    def replace(self, path: str, content: bytes, *, like: FileFacts) -> None:
        self.tick()
        if any(path.startswith(folder) for folder in self.full):
            raise OSError(errno.ENOSPC, "No space left on device")
        self.at(path).with_name(self.at(path).name + DRAFT).write_bytes(content[: len(content) // 2])
        self.tick()
        super().replace(path, content, like=like)
        self.tick()

    def remove(self, path: str) -> None:
        self.tick()
        super().remove(path)
        self.tick()

    def link(self, path: str, target: str) -> None:
        self.tick()
        super().link(path, target)
        self.tick()

    def make_folder(self, path: str) -> None:
        self.tick()
        super().make_folder(path)
        self.tick()

    def remove_folder(self, path: str) -> None:
        self.tick()
        super().remove_folder(path)
        self.tick()

    def write_live(self, path: str, value: str) -> None:
        self.tick()
        text = self.text(path) or ""
        if path in self.refused:
            return
        if "[" in text:
            words = text.replace("[", "").replace("]", "").split()
            value = " ".join(f"[{word}]" if word == value else word for word in words)
        self._set(path, value)
        self._drag(path, value)
        self.tick()

    def _set(self, path: str, text: str) -> None:
        """Write a kernel file in one step, as the kernel does: a kill never leaves an empty one."""
        draft = self.root.with_name(f"{self.root.name}.draft")
        draft.write_text(text)
        draft.replace(self.at(path))

    def _drag(self, path: str, value: str) -> None:
        """Change what the kernel changes along with a setting."""
        if path.endswith("queue/scheduler"):
            self._set(path.replace("scheduler", "nr_requests"), "256")
        if path.endswith("transparent_hugepage/enabled") and "[never]" in value:
            self._set("/proc/sys/vm/min_free_kbytes", "45056")
        if path.endswith("vm/dirty_bytes"):
            self._set("/proc/sys/vm/dirty_ratio", "0")
        if path.endswith("vm/dirty_ratio"):
            self._set("/proc/sys/vm/dirty_bytes", "0")

    def remount(self, mount: MountInfo, atime: Sequence[str], option: str = "") -> None:
        self.tick()
        lines = (self.text("/proc/self/mountinfo") or "").split("\n")
        for number, line in enumerate(lines):
            words = line.split(" ")
            if len(words) > 5 and words[4] == mount.target and not option:
                plain = [w for w in words[5].split(",") if w not in ("noatime", "relatime", "nodiratime")]
                words[5] = ",".join([*plain, *(w for w in atime if w != "strictatime")])
                lines[number] = " ".join(words)
        self._set("/proc/self/mountinfo", "\n".join(lines) + "\n")
        if option:
            file = self.at("/proc/fs/ext4/sdb/options")
            key = option.partition("=")[0].removeprefix("no")
            kept = [w for w in file.read_text().split() if w.partition("=")[0] not in (key, f"no{key}")]
            at = next(
                i for i, w in enumerate(file.read_text().split()) if w.partition("=")[0] in (key, f"no{key}")
            )
            self._set("/proc/fs/ext4/sdb/options", "\n".join([*kept[:at], option, *kept[at:]]) + "\n")
        self.tick()

    def run(self, *argv: str, timeout_s: float = 60) -> None:
        self.tick()
        if argv[0] in self.missing:
            raise LabError(f"running {' '.join(argv)}: No such file or directory")
        self.ran.append(argv)
        if argv[:2] == ("tuned-adm", "profile"):
            self.at("/etc/tuned/active_profile").write_text(" ".join(argv[2:]) + "\n")
            self.at("/etc/tuned/profile_mode").write_text("manual\n")
        self.tick()


def choice(knob: str, value: str, *, was: str | None = "old", **changes: object) -> Choice:
    """Return a choice with made-up evidence; ``key`` and ``option`` address the knob."""
    options = {name: str(changes.pop(name)) for name in ("key", "option") if name in changes}
    fields: dict[str, object] = {
        "knob": knob, "options": options, "value": value, "was": was, "consequence": "costs nothing", "factor": "f",
        "level": value, "reference": "old", "ratio": 0.9, "low": 0.85, "high": 0.94, "scale": Scale.LOG, "response": "wall",
        "better": Better.LOWER, "effect": "it takes 10 % less time [-15, -6]", "conclusion": "faster", "workload": "w",
        "conditions": ({},), "elsewhere": (), "trial": "0123456789abcdef", "date": "2026-11-20T10:00:00+00:00",
        "safety": Safety.TRADE_OFF,
    }  # fmt: skip
    return Choice(**{**fields, **changes})  # type: ignore[arg-type]


SWAPPINESS = choice("sysctl", "10", key="vm.swappiness")
READ_AHEAD = choice("block.read_ahead_kb", "1024")
SCHEDULER = choice("block.scheduler", "bfq")
NOATIME = choice("mount.atime", "noatime")
COMMIT = choice("mount.option", "commit=30", option="commit")
HUGE_PAGES = choice("memory.huge_pages", "never")
EVERYTHING = (SWAPPINESS, READ_AHEAD, SCHEDULER, NOATIME, COMMIT, HUGE_PAGES)
