"""Encryption of the lab's device by dm-crypt, below the file system.

The device is mapped with the table that ``cryptsetup open --type plain`` would load (dm-crypt.rst in the kernel's
Documentation/admin-guide/device-mapper), so there is no header. The key is always the same: what the lab writes is no
secret. The mapping is made again for every file system, in every arm alike, and read back from the kernel's table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iotrial.errors import KnobError, UnsupportedLevel
from iotrial.knobs.declaration import HARMLESS, Consequence, Scope, Stage, trade_off
from iotrial.knobs.knob import Knob, Requirement, RunContext
from iotrial.study.model import Setting
from iotrial.study.places import GUEST

if TYPE_CHECKING:
    from iotrial.lab.disk import DiskPlace

PLAIN = "none"
CIPHER = "aes-xts-plain64"
#: 512 bits, as cryptsetup uses for XTS; its two halves differ
KEY = bytes(range(64)).hex()
OPTIONS = (
    "no_read_workqueue",
    "no_write_workqueue",
    "same_cpu_crypt",
    "sector_size:4096",
    "submit_from_crypt_cpus",
)
#: bytes of one sector of the kernel, and of the largest sector of dm-crypt
_SECTOR, _LARGEST = 512, 4096
#: the processor's own AES; without the instructions, as in an emulated guest, the kernel does not take it and uses the other
_MODULES = {"x86_64": "aesni_intel", "aarch64": "aes_ce_blk"}


class BlockEncryption(Knob):
    """dm-crypt between the file system and the lab's device, or nothing."""

    name = "block.encryption"
    title = "encryption of the lab's device: none, or dm-crypt with options"
    stage = Stage.FORMAT
    scope = Scope.DEVICE
    rank = -1  # before the file system
    open_levels = f"{PLAIN}, {CIPHER}, or {CIPHER} with some of {', '.join(OPTIONS)}"
    consequence = trade_off("without the key all data are lost")
    consequences = {PLAIN: HARMLESS}

    def consequence_of(self, setting: Setting) -> Consequence:
        if "sector_size:4096" in setting.value.split():
            return trade_off(
                "without the key all data are lost; on a disk with smaller sectors a power cut may leave one half written"
            )
        return super().consequence_of(setting)

    def parse(self, setting: Setting) -> str:
        words = setting.value.split()
        if words == [PLAIN]:
            return PLAIN
        if words[:1] != [CIPHER] or not set(words[1:]) <= set(OPTIONS):
            raise UnsupportedLevel(
                f'knob {self.name}: "{setting.value}" is not one of its levels', hint=self.open_levels
            )
        return " ".join([CIPHER, *sorted(set(words[1:]))])

    def requires(self, setting: Setting) -> Requirement:
        labs = frozenset({"image", GUEST})
        if setting.value.strip() == PLAIN:
            return Requirement(root=True, labs=labs)
        from iotrial.guest.architecture import GUEST as PROCESSOR

        modules = {"dm_crypt", "xts", "aes_generic", _MODULES[PROCESSOR.name]}
        return Requirement(root=True, labs=labs, tools={"dmsetup": "dmsetup"}, modules=frozenset(modules))

    def read(self, context: RunContext, setting: Setting) -> str:
        place = self._place(context)
        if place.mapping is None:
            return PLAIN
        done = context.target.run(["dmsetup", "table", place.mapping])
        words = done.stdout.split()
        if done.exit_status != 0 or words[2:3] != ["crypt"]:
            raise KnobError(
                self.name, place.label, wrote=CIPHER, found=(done.stdout or done.stderr).strip()[-200:]
            )
        # start, length, "crypt", cipher, key (not shown), offset of the IV, device, offset, number of options, options
        return " ".join([words[3], *sorted(words[9:])])

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        self._place(context).want_encryption(None if value == PLAIN else value)

    def _place(self, context: RunContext) -> DiskPlace:
        from iotrial.lab.disk import disk_place

        return disk_place(self.name, context.place)


def table(value: str, device: str, size_bytes: int) -> str:
    """Return the device mapper's table that encrypts all of a device, which has this size, as a level says."""
    cipher, *options = value.split()
    sectors = size_bytes // _LARGEST * (_LARGEST // _SECTOR)
    words = ["0", sectors, "crypt", cipher, KEY, "0", f"/dev/{device}", "0"]
    return " ".join(map(str, [*words, len(options), *options] if options else words))
