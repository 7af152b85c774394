"""An array that takes a disk back, timed in the probe."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from iotrial.conduct.works.contract import Asked, Measured, Situation, WorkDriver, to_take_off
from iotrial.errors import LabError
from iotrial.study.model import RebuildWork
from iotrial.units import format_size

_PIECE_BYTES = 1 << 20
#: seconds between md's looks for bits to be cleared, while the array is made ready
_HURRIED = "0.1"
_CLEAN_WITHIN_S, _LOOKS_EVERY_S = 30.0, 0.05


class Rebuild(WorkDriver[RebuildWork]):
    """Workload kind ``rebuild``."""

    verb = "rebuild"
    work = RebuildWork

    def fields(self, work: RebuildWork, asked: Asked) -> dict[str, object]:
        return {
            "array": asked.device,
            "parts": work.parts,
            "announced_at": work.announced_at,
            "load": work.load,
            "timeout_s": work.timeout_s,
        }

    def provide(self, work: RebuildWork, at: Situation) -> None:
        """The array without its last disk; that disk given back to it, and md told to wait."""
        folder, disk = f"/sys/block/{at.device}/md", at.disks[-1]
        if at.target.read_or_none(f"{folder}/degraded") is None:
            raise LabError(
                "workload kind rebuild: this lab has no array that could lack a disk",
                hint="give [lab] some disks, and fix raid.level to raid1, raid5, raid6 or raid10",
            )
        if at.target.read(f"{folder}/degraded") == "0":
            self._await_clean(at, folder)
            _mdadm(at, ["--fail", f"/dev/{disk}"])
            _mdadm(at, ["--remove", f"/dev/{disk}"])
        if work.returns == "same" and work.away_bytes:
            self._write_meanwhile(work, at)
        at.target.write(f"{folder}/sync_action", "frozen")
        if work.returns == "new":
            _run(at, ["mdadm", "--zero-superblock", "--force", f"/dev/{disk}"])
        _mdadm(at, ["--add", f"/dev/{disk}"])

    def _await_clean(self, at: Situation, folder: str) -> None:
        """Until no bit of a write-intent bitmap is set, as in an array that has been idle for a while: md clears one some
        seconds after the last write to its part, and what making the file system has set would be copied too."""
        if at.target.read_or_none(f"{folder}/bitmap/location") in (None, "none", ""):
            return
        at.target.call("syncfs", path=at.root)
        every = at.target.read(f"{folder}/bitmap/time_base")
        at.target.write(f"{folder}/bitmap/time_base", _HURRIED)
        until = time.monotonic() + _CLEAN_WITHIN_S
        while dirty := _dirty_bits(_run(at, ["mdadm", "--examine-bitmap", f"/dev/{at.disks[0]}"])):
            if time.monotonic() > until:
                raise LabError(
                    f"rebuild: {dirty} bits of the bitmap were still set after {_CLEAN_WITHIN_S:g} s"
                )
            time.sleep(_LOOKS_EVERY_S)
        at.target.write(f"{folder}/bitmap/time_base", every)

    def _write_meanwhile(self, work: RebuildWork, at: Situation) -> None:
        pieces = max(1, work.away_bytes // _PIECE_BYTES)
        _run(
            at,
            [
                "dd", "if=/dev/zero", f"of={at.root}/away", f"bs={_PIECE_BYTES}", f"count={pieces}", "oflag=direct",
                "conv=fsync,notrunc",
            ],
        )  # fmt: skip

    def measured(self, work: RebuildWork, answer: Mapping[str, Any], asked: Asked) -> Measured:
        seconds = answer["rebuild_ns"] / 1e9
        size = float(answer["bytes"])
        ends = [*(mark / 1e9 for mark in answer["parts_ns"]), seconds]
        numbers: dict[str, float] = {"rebuild_rate": size / seconds} if size else {}
        took = [end - begin for begin, end in zip((0.0, *ends), ends, strict=False)]
        # else it did not go through all of the disk: what a bitmap spares is passed in no time
        if size and len(took) == work.parts and min(took) > 0:
            rates = [size / work.parts / one for one in took]
            numbers |= {f"rate_part_{number}": rate for number, rate in enumerate(rates, 1)}
            numbers |= {"rate_first": rates[0], "rate_last": rates[-1]}
        if answer["announced_ns"] is not None:
            numbers["announced_share"] = answer["announced_ns"] / 1e9 / seconds
        if work.load != "none":
            wall = answer["wall_ns"] / 1e9 - to_take_off(answer, asked.stretched)[0]
            numbers["load_rate"] = answer["load_operations"] / wall
        return Measured(numbers)

    def reads_bytes(self, work: RebuildWork, size: int, files: int) -> int:
        return 0

    def summary(self, work: RebuildWork) -> str:
        what = (
            "a new disk"
            if work.returns == "new"
            else f"the same disk, {format_size(work.away_bytes)} having been written without it"
        )
        done = {"none": "", "read": "read", "write": "written"}[work.load]
        return f"the array is rebuilt onto {what}" + (
            f", random blocks being {done} meanwhile" if done else ""
        )

    def writes(self, work: RebuildWork) -> bool:
        return False  # what the load writes is what it has read

    def labs(self, work: RebuildWork) -> frozenset[str]:
        return frozenset({"guest"})

    def programs(self, work: RebuildWork) -> Mapping[str, str]:
        return {"mdadm": "mdadm", "dd": "coreutils"}


def _mdadm(at: Situation, words: list[str]) -> None:
    _run(at, ["mdadm", f"/dev/{at.device}", *words])


def _run(at: Situation, argv: list[str]) -> str:
    done = at.target.run(argv, timeout_s=120)
    if done.exit_status != 0:
        raise LabError(f"rebuild: {' '.join(argv)}: {done.stderr.strip()[-400:]}")
    return done.stdout


def _dirty_bits(said: str) -> int:
    found = re.search(r"\(chunks\), ([0-9]+) dirty", said)
    if found is None:
        raise LabError(
            f"rebuild: mdadm --examine-bitmap: wanted a count of dirty bits, found {said[-200:]!r}"
        )
    return int(found[1])


DRIVER = Rebuild()
