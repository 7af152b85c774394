"""Workload kind ``rebuild``: an md array takes a disk back and resynchronises it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta

from iotrial.errors import LabError
from iotrial.polling import attempts
from iotrial.study.places import GUESTS
from iotrial.study.scales import Better, Scale
from iotrial.study.schema import Duration, Problem, Share, Size
from iotrial.study.work import (
    DEVICE_RESPONSES,
    HasOwnData,
    JobContext,
    LabContext,
    Measured,
    ResponseSpec,
    Work,
    rate_response,
    time_response,
    to_take_off,
)
from iotrial.units import format_size

_PIECE_BYTES = 1 << 20
#: interval in seconds at which md clears bitmap bits, while the array is being prepared
_HURRIED = "0.1"
_CLEAN_WITHIN_S, _LOOKS_EVERY_S = 30.0, 0.05
_RESPONSES = (
    time_response("wall", "from the start of the rebuild until the array is complete"),
    rate_response("rebuild_rate", "bytes/s", "bytes of one disk over that time"),
    rate_response("rate_first", "bytes/s", "over the first of the parts"),
    rate_response("rate_last", "bytes/s", "over the last of them"),
    ResponseSpec(
        "announced_share",
        "1",
        Scale.LOG,
        Better.NONE,
        "time announced by md, as a share of the actual time",
    ),
    rate_response("load_rate", "1/s", "blocks done by the load during the rebuild; absent without one"),
    *DEVICE_RESPONSES,
)


class RebuildWork(HasOwnData, Work, frozen=True, kw_only=True):
    """An array resynchronises a disk. ``load`` runs meanwhile on the lab's one file."""

    kind = "rebuild"
    about = "Rebuild of an array: how long it takes, how fast it is by position, and what md announced."
    documented = _RESPONSES
    options = ("returns", "load")
    verb = "rebuild"

    returns: Annotated[
        Literal["new", "same"],
        Meta(description="a disk that the array has never seen, or the one taken out"),
    ] = "new"
    away_bytes: Annotated[
        Size,
        Meta(
            ge=0,
            le=1 << 40,
            description="bytes written to the file system while the disk is out",
        ),
    ] = 4 << 20
    load: Annotated[
        Literal["none", "read", "write"],
        Meta(
            description=(
                "load during the rebuild: random 4 KiB reads, each followed by rewriting the block with "
                "`write`"
            )
        ),
    ] = "none"
    parts: Annotated[
        int,
        Meta(
            ge=2,
            le=16,
            description=(
                "equal parts with a recorded rate each, the first and last as responses; md reports "
                "progress in sixteenths"
            ),
        ),
    ] = 8
    announced_at: Annotated[
        Share,
        Meta(ge=0, le=1, description="progress at which md's estimate is taken"),
    ] = 0.25
    timeout_s: Annotated[Duration, Meta(gt=0, le=86400, description="then the run fails")] = 600.0
    size_bytes: Annotated[
        Size, Meta(ge=4096, le=1 << 40, description="size of the file that the load works on")
    ] = 8 << 20

    def check(self) -> None:
        if self.size_bytes % 4096:
            raise Problem(f"a file of {self.size_bytes} bytes, expected a multiple of 4096", "size")

    def responses(self) -> tuple[ResponseSpec, ...]:
        return _RESPONSES

    def described(self) -> str:
        what = (
            "a new disk"
            if self.returns == "new"
            else f"the same disk, {format_size(self.away_bytes)} written without it"
        )
        done = {"none": "", "read": "read", "write": "written"}[self.load]
        return f"the array is rebuilt onto {what}" + (
            f", random blocks being {done} meanwhile" if done else ""
        )

    def probe_job(self, context: JobContext) -> dict[str, object]:
        return {
            "array": context.device,
            "parts": self.parts,
            "announced_at": self.announced_at,
            "load": self.load,
            "timeout_s": self.timeout_s,
        }

    def provide(self, lab: LabContext) -> None:
        """Remove the array's last disk, then add it again with md's recovery frozen."""
        folder, disk = f"/sys/block/{lab.device}/md", lab.disks[-1]
        if lab.target.read_or_none(f"{folder}/degraded") is None:
            raise LabError(
                "workload kind rebuild: this lab has no array with redundancy",
                hint="set disks in [lab], and raid.level to raid1, raid5, raid6 or raid10",
            )
        if lab.target.read(f"{folder}/degraded") == "0":
            self._await_clean(lab, folder)
            _mdadm(lab, ["--fail", f"/dev/{disk}"])
            _mdadm(lab, ["--remove", f"/dev/{disk}"])
        if self.returns == "same" and self.away_bytes:
            self._write_meanwhile(lab)
        lab.target.write(f"{folder}/sync_action", "frozen")
        if self.returns == "new":
            _run(lab, ["mdadm", "--zero-superblock", "--force", f"/dev/{disk}"])
        _mdadm(lab, ["--add", f"/dev/{disk}"])

    def _await_clean(self, lab: LabContext, folder: str) -> None:
        """Wait until no bit of a write-intent bitmap is set, as in an array that has been idle for a while.

        md clears a bit some seconds after the last write to its chunk, and the chunks dirtied by making the
        file system would be copied too.
        """
        if lab.target.read_or_none(f"{folder}/bitmap/location") in (None, "none", ""):
            return
        lab.target.call("syncfs", path=lab.root)
        every = lab.target.read(f"{folder}/bitmap/time_base")
        lab.target.write(f"{folder}/bitmap/time_base", _HURRIED)
        for _ in attempts(_CLEAN_WITHIN_S, _LOOKS_EVERY_S):
            dirty = _dirty_bits(_run(lab, ["mdadm", "--examine-bitmap", f"/dev/{lab.disks[0]}"]))
            if not dirty:
                break
        else:
            raise LabError(f"rebuild: {dirty} bits of the bitmap were still set after {_CLEAN_WITHIN_S:g} s")
        lab.target.write(f"{folder}/bitmap/time_base", every)

    def _write_meanwhile(self, lab: LabContext) -> None:
        pieces = max(1, self.away_bytes // _PIECE_BYTES)
        _run(
            lab,
            [
                "dd", "if=/dev/zero", f"of={lab.root}/away", f"bs={_PIECE_BYTES}", f"count={pieces}", "oflag=direct",
                "conv=fsync,notrunc",
            ],
        )  # fmt: skip

    def measured(self, answer: Mapping[str, Any], context: JobContext) -> Measured:
        seconds = answer["rebuild_ns"] / 1e9
        size = float(answer["bytes"])
        ends = [*(mark / 1e9 for mark in answer["parts_ns"]), seconds]
        numbers: dict[str, float] = {"rebuild_rate": size / seconds} if size else {}
        took = [end - begin for begin, end in zip((0.0, *ends), ends, strict=False)]
        # otherwise it skipped part of the disk: what a bitmap spares takes no time
        if size and len(took) == self.parts and min(took) > 0:
            rates = [size / self.parts / one for one in took]
            numbers |= {f"rate_part_{number}": rate for number, rate in enumerate(rates, 1)}
            numbers |= {"rate_first": rates[0], "rate_last": rates[-1]}
        if answer["announced_ns"] is not None:
            numbers["announced_share"] = answer["announced_ns"] / 1e9 / seconds
        if self.load != "none":
            wall = answer["wall_ns"] / 1e9 - to_take_off(answer, context.stretched)[0]
            numbers["load_rate"] = answer["load_operations"] / wall
        return Measured(numbers)

    def reads_bytes(self, size: int, files: int) -> int:
        return 0

    def writes(self) -> bool:
        return False  # the load writes only what it has read

    def labs(self) -> frozenset[str]:
        return GUESTS

    def needed_programs(self) -> Mapping[str, str]:
        return {"mdadm": "mdadm", "dd": "coreutils"}


def _mdadm(lab: LabContext, words: list[str]) -> None:
    _run(lab, ["mdadm", f"/dev/{lab.device}", *words])


def _run(lab: LabContext, argv: list[str]) -> str:
    return lab.target.run(argv).output("rebuild")


def _dirty_bits(output: str) -> int:
    found = re.search(r"\(chunks\), ([0-9]+) dirty", output)
    if found is None:
        raise LabError(
            f"rebuild: mdadm --examine-bitmap: expected a count of dirty bits, found {output[-200:]!r}"
        )
    return int(found[1])


WORK = RebuildWork
