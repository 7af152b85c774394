"""Workload kind ``boot``: an emulated guest is started and boots from an image file in the lab."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta

from iotrial.errors import LARGER_LAB, LabError
from iotrial.guest import qemu
from iotrial.guest.bootable import (
    CONFIGURATION_BYTES,
    CONFIGURATIONS,
    MAKERS,
    MOST_STORED_BYTES,
    SERVICES,
    bootable,
    said,
)
from iotrial.guest.packages import Packages
from iotrial.paths import guests_folder
from iotrial.study.schema import Duration
from iotrial.study.work import (
    CPU_RESPONSES,
    DEVICE_RESPONSES,
    HasOwnData,
    JobContext,
    LabContext,
    Measured,
    ResponseSpec,
    Work,
    minimal_environment,
    printed_by,
    time_response,
)

_KERNEL = "6.12"
_MEMORY_MIB = 256
_MOST_OUTPUT_BYTES = 1 << 18
_MOST_LAST_WORDS = 300
_COPIED_WITHIN_S = 300.0
#: the kernel alone is larger
_LEAST_READ_BYTES = 4 << 20
_RESPONSES = (
    time_response("wall", "from the start of QEMU until the guest's init is ready and resets the machine"),
    time_response(
        "kernel_time",
        "from the start of the guest's kernel until the root file system is mounted, by the guest's clock",
        stretchable=False,
    ),
    time_response(
        "init_time", "from then until init has started everything, by the guest's clock", stretchable=False
    ),
    *CPU_RESPONSES,
    *DEVICE_RESPONSES,
)


class BootWork(HasOwnData, Work, frozen=True, kw_only=True):
    """A guest boots from a file in the lab, with the lab's file system as its root."""

    kind = "boot"
    about = (
        "An emulated guest (QEMU) boots from an image file in the lab, from power-on until its init is ready. "
        f"Init reads {CONFIGURATIONS} files of {CONFIGURATION_BYTES} bytes and starts {len(SERVICES)} programs."
    )
    documented = _RESPONSES
    options = ("root",)
    unstretchable = "what the guest's own clock says"
    verb = "command"
    starts_programs = True

    root: Annotated[Literal["ext4", "xfs", "btrfs"], Meta(description="file system of the guest's root")] = (
        "ext4"
    )
    timeout_s: Annotated[Duration, Meta(gt=0, le=86400, description="then the run fails")] = 120.0

    def responses(self) -> tuple[ResponseSpec, ...]:
        return _RESPONSES

    def described(self) -> str:
        return f"an emulated guest boots from {self.root} in an image file"

    def remark(self) -> str:
        return "The guest that boots is emulated: its processor is slow, so a disk saves a smaller share than on a machine"

    def probe_job(self, context: JobContext) -> dict[str, object]:
        assert context.lab is not None
        kernel, initramfs, root = self._files(context.lab)
        return {
            "steps": [
                {"name": "boot", "argv": qemu.boot_command(kernel, initramfs, root, memory_mib=_MEMORY_MIB)}
            ],
            "environment": {**minimal_environment(), **context.environment},
            "cwd": "/",
            "stdin": "",
            "timeout_s": self.timeout_s,
            "expect_exit": 0,
            "keep_output": _MOST_OUTPUT_BYTES,
        }

    def measured(self, answer: Mapping[str, Any], context: JobContext) -> Measured:
        if answer["failures"]:
            return Measured()
        log = printed_by(answer)
        at_s = said(log)
        if "root" not in at_s or "ready" not in at_s:
            last = " / ".join(log.split("\n"))[-_MOST_LAST_WORDS:].strip()
            return Measured(
                missing=f"the guest's init did not say that it is ready; its log ends with: {last}"
            )
        return Measured({"kernel_time": at_s["root"], "init_time": at_s["ready"] - at_s["root"]})

    def reads_bytes(self, size: int, files: int) -> int:
        return _LEAST_READ_BYTES

    def writes(self) -> bool:
        return False

    def own_bytes(self, settings: Mapping[str, str]) -> int:
        return MOST_STORED_BYTES

    def on_files(self) -> bool:
        return False

    def as_root(self) -> bool:
        return False

    def never_root(self) -> bool:
        return True

    def labs(self) -> frozenset[str]:
        return frozenset({"directory", "image", "device"})

    def needed_programs(self) -> Mapping[str, str]:
        return {qemu.PROGRAM: qemu.PACKAGE, **dict([MAKERS[self.root]])}

    # its files in the lab

    def has_own_data(self) -> bool:
        return True

    def provide(self, lab: LabContext) -> None:
        kernel, initramfs, root = self._files(lab)
        if lab.target.exists(root):
            return
        folder = guests_folder()
        folder.mkdir(parents=True, exist_ok=True)
        made = bootable(self.root, _KERNEL, Packages(folder), folder)
        for own in (lab.own, f"{lab.own}/boot"):
            lab.target.call("mkdir", path=own, mode="0755")
        copies = ((made.kernel, kernel), (made.initramfs, initramfs), (made.root, f"{root}.making"))
        for source, target in copies:
            _do(lab, "cp", "--sparse=always", "--no-preserve=mode", str(source), target)
            _do(lab, "chmod", "0644", target)
        _do(lab, "mv", f"{root}.making", root)
        lab.target.call("syncfs", path=lab.root)

    def held(self, lab: LabContext) -> tuple[str, ...]:
        return self._files(lab)

    def _files(self, lab: LabContext) -> tuple[str, str, str]:
        """Return the paths of kernel, initramfs and root in the lab."""
        kernel, initramfs, root = (f"{lab.own}/boot/{name}" for name in self._names())
        return kernel, initramfs, root

    def _names(self) -> tuple[str, str, str]:
        return "kernel", f"initramfs-{self.root}", f"root-{self.root}"


def _do(lab: LabContext, *argv: str) -> None:
    done = lab.target.run(argv, timeout_s=_COPIED_WITHIN_S)
    if done.exit_status != 0:
        raise LabError(
            f"workload kind boot: {argv[0]} to {argv[-1]}: {done.stderr.strip()}",
            hint=LARGER_LAB,
        )


WORK = BootWork
