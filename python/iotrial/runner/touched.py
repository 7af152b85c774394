"""Checks that a work uses what the knobs of its study change: the lab's files and the lab's device.

The programs of a study may work on any file. The files they use are found once, before the first timed run,
by tracing all of their system calls. How much of a run's I/O went to other devices is found in every run,
from the kernel's counters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from iotrial.errors import RequestError
from iotrial.knobs.declaration import Scope, Stage
from iotrial.knobs.knob import RunContext
from iotrial.lab.in_place import InPlace
from iotrial.lab.place import Place
from iotrial.runner.counters import summed
from iotrial.runner.resolve import KnobSetting
from iotrial.study.model import Role
from iotrial.units import format_bytes

#: A cold run must read at least this share of the data that the traced run read from the lab's files: file
#: systems may compress it.
LEAST_SHARE = 0.1
#: The same of what a cold run of each level was found to read from the device. With more than MOST_COLD levels not all
#: are measured, and one that reads less ahead may read much less: then LEAST_SHARE of it.
LEAST_OF_COLD, MOST_COLD = 0.5, 4
#: Calls that read less of the opened files than this do not tell what a run reads: it maps them, or uses io_uring.
SEEN_SHARE = 0.5
#: A smaller share of the opened files counts as little, a smaller difference between levels as none.
LITTLE_SHARE, LEAST_HELD, UNEVEN_SHARE = 0.25, 1 << 20, 0.1
#: Any program does I/O elsewhere up to LEAST_ELSEWHERE. More is noted if its share is at least NOTED_SHARE.
LEAST_ELSEWHERE = 64 << 10
NOTED_SHARE = 0.5
#: A smaller share of the bytes that a run moved is negligible.
NEGLIGIBLE = 0.01
#: Bytes read to look up a name: one block of a directory or of an inode table.
BLOCK_BYTES = 4096
#: Fewer names are looked up in little time.
MANY_NAMES = 100
#: Fewest runs of a level to compare its bytes with another's.
LEAST_RUNS = 3
MOST_PATHS, MOST_REWRITTEN = 5, 3
NOT_USED = "the work did not use the device under test"


@dataclass(frozen=True, slots=True)
class Touched:
    """Files used by one traced run.

    ``read``: bytes of the lab's files that it read, each byte counted once, without those it had written
    itself, of a selection of ``of_bytes`` bytes. ``held``: the size of those files. ``outside``: the files
    outside the lab with most bytes, system files last. ``sure``: nothing can have been missed. ``rewritten``:
    the files that it read and then changed, in the lab or not.
    """

    sure: bool
    files: int
    bytes: int
    read: int
    held: int
    of_bytes: int
    outside_bytes: int
    outside_read: int
    outside: tuple[str, ...]
    #: in place: the files that it opened, without those of the system
    own: tuple[str, ...] = ()
    #: the fewest bytes that a cold run read from the device, by measurement, and the share that others must read
    cold_read: int | None = None
    cold_share: float = LEAST_OF_COLD
    rewritten: tuple[str, ...] = ()

    @classmethod
    def of(cls, answer: Mapping[str, Any], of_bytes: int) -> Touched | None:
        """Return the files named in the probe's answer; None if the probe did not trace them."""
        found = answer.get("touched")
        if found is None:
            return None
        own = found["inside"].get("data")
        return cls(
            sure=found["complete"] and not found["unseen"],
            files=found["inside"]["files"],
            bytes=found["inside"]["bytes"],
            read=found["inside"]["read"] if own is None else sum(read for _, read in own),
            held=found["inside"]["held"],
            of_bytes=of_bytes,
            outside_bytes=found["outside"]["bytes"],
            outside_read=found["outside"]["read"],
            outside=tuple(str(path) for path, _ in found["outside"]["paths"][:MOST_PATHS]),
            own=tuple(str(path) for path, _ in own or ()),
            rewritten=tuple(map(str, found["rewritten"])),
        )

    def least_read(self, of_bytes: int) -> int:
        """Return the least number of bytes that a cold run on a selection of ``of_bytes`` reads from the device."""
        scale = of_bytes / self.of_bytes if self.of_bytes else 1.0
        return int(max(self.read * scale * LEAST_SHARE, (self.cold_read or 0) * self.cold_share))

    @property
    def most_kept(self) -> int:
        """The most bytes of its files that may stay in memory before a cold run."""
        return int(self.held * LEAST_SHARE)

    @property
    def seen_little(self) -> bool:
        """Whether calls were seen to read too little of the opened files to tell how much a cold run reads."""
        return self.read < SEEN_SHARE * self.held

    def measured_cold(self, bytes_read: Iterable[int], *, every_level: bool) -> Touched:
        """Return the same with what cold runs have read from the device, one of each level that was measured."""
        share = LEAST_OF_COLD if every_level else LEAST_SHARE
        return replace(self, cold_read=min(bytes_read, default=None), cold_share=share)

    @property
    def share_outside(self) -> float:
        """Share of the bytes that it moved outside the lab."""
        moved = self.bytes + self.outside_bytes
        return self.outside_bytes / moved if moved else 0.0

    def is_enough(self, *, cut_down: bool) -> bool:
        """Return whether it used the lab enough for its time to say something about the lab.

        Looking up a name counts as one block. A work that moves no data of the lab is compared with
        everything that it moved elsewhere. A work that does is compared only with what it read elsewhere by
        read calls: a mapping is counted in full, even if a program uses little of it. In a rehearsal
        (``cut_down``) the lab's files are too small for this second comparison.
        """
        if not self.files:
            return False
        if self.bytes and cut_down:
            return True
        own = self.bytes + self.files * BLOCK_BYTES
        elsewhere = self.outside_read if self.bytes else self.outside_bytes
        return elsewhere < LEAST_ELSEWHERE or own >= NEGLIGIBLE * (own + elsewhere)


def in_the_lab(settings: Iterable[KnobSetting]) -> tuple[KnobSetting, ...]:
    """Return the settings of factors that act on the lab only: a work outside the lab is not affected by them."""
    return tuple(t for t in settings if t.role is not None and t.knob.scope is not Scope.MACHINE)


def leaves_work(settings: Iterable[KnobSetting]) -> bool:
    """Return whether the treatments change only what is below the work: then it does the same under each level."""
    below = (Stage.HOST, Stage.DEVICE, Stage.MOUNT)
    return all(t.knob.stage in below for t in settings if t.role is Role.TREATMENT)


def sets_device(settings: Iterable[KnobSetting]) -> bool:
    """Return whether a treatment changes the lab's device."""
    return any(t.role is Role.TREATMENT and t.knob.scope is Scope.DEVICE for t in settings)


def needs_lab(settings: Iterable[KnobSetting], state: str) -> bool:
    """Return whether a work has to use the lab's files: because factors change the lab, or because its files are
    made cold.
    """
    return bool(in_the_lab(settings)) or state.startswith("cold")


def _scope(setting: KnobSetting, context: RunContext) -> str:
    """Return what a setting acts on; in place there is no lab."""
    scope = str(setting.knob.scope)
    return scope.replace(" of the lab", "") if isinstance(context.place, InPlace) else scope


def refusal(
    workload: str, touched: Touched, settings: Iterable[KnobSetting], context: RunContext, state: str
) -> RequestError:
    """Return the error for a work that uses little or nothing of the lab."""
    place = context.place
    hint = "refer to the lab's files as {file}, {files} or {dir}, or copy the data into {out}"
    lab = "the lab"
    if isinstance(place, InPlace):
        lab = f"the file system of {place.root}"
        hint = "use --in with a folder on the file system that the command uses"
    turned = {
        f"{setting.knob.name} acts on {_scope(setting, context)}"
        + (f" ({place.device})" if place.device else "")
        for setting in in_the_lab(settings)
    }
    why = "; ".join(sorted(turned)) or f"cache state {state} is that of {Scope.FILES}"
    used = ", ".join(touched.outside) or "no files at all"
    how = f"uses no file of {lab}"
    if touched.files:
        how = (
            f"hardly uses {lab} ({format_bytes(touched.bytes)} and {touched.files} name{'s' * (touched.files > 1)}, "
            f"and {format_bytes(touched.outside_bytes)} of files elsewhere)"
        )
    return RequestError(
        f'workload "{workload}" {how}, but {why}. It used: {used}',
        hint=hint,
    )


def unseen_note(workload: str) -> str:
    """Return the note for a work that may have used files that the trace did not see."""
    return (
        f"{workload}: what it reads was seen only in part (io_uring, libaio, a 32-bit program or too many system "
        f"calls), and hardly any of them are in the lab: it is unknown whether the work uses what the study varies"
    )


def outside_note(workload: str, touched: Touched) -> str | None:
    """Return the note on how much of its I/O was outside the lab; None if that is little."""
    if touched.outside_bytes < LEAST_ELSEWHERE or touched.share_outside < NOTED_SHARE:
        return None
    share = f"{100 * touched.share_outside:.0f} %" if touched.share_outside < 0.995 else "over 99 %"
    paths = ", ".join(touched.outside)
    return (
        f"{workload}: {share} of the bytes that it read and wrote under observation "
        f"({format_bytes(touched.outside_bytes)}) were in files outside the lab, which the study does not affect: {paths}"
    )


def uncounted(place: Place) -> bool:
    """Return whether the kernel does not count what a program reads there: FUSE and SMB (seen on Linux 6.1 and 6.18); NFS
    does, and disks do."""
    return isinstance(place, InPlace) and place.device is None and not place.filesystem.startswith("nfs")


def uncounted_note(workload: str, filesystem: str) -> str:
    """Return the note that cold runs could not be checked."""
    return (
        f"{workload}: its files were evicted from the page cache before cold runs, but the kernel does not count what is "
        f"read from {filesystem}, so this could not be checked; the server may have caches too"
    )


def rewritten_note(workload: str, touched: Touched, folder: str) -> str | None:
    """Return the note that runs may depend on each other through files that a run reads and changes; None if none do.

    Files below ``folder`` are named from there.
    """
    if not touched.rewritten:
        return None
    paths = map(Path, touched.rewritten[:MOST_REWRITTEN])
    named = ", ".join(
        str(path.relative_to(folder) if path.is_relative_to(folder) else path) for path in paths
    )
    more = " and others" if len(touched.rewritten) > MOST_REWRITTEN else ""
    return (
        f"{workload} reads and changes {named}{more}, so a run may depend on the run before; --prepare with a command "
        f"that restores the files avoids that"
    )


def little_note(workload: str, touched: Touched) -> str | None:
    """Return the note that it read little of the files that it opened; None if it did not, or nothing can tell."""
    read = max(touched.bytes, touched.cold_read or 0)
    if (
        touched.held < LEAST_HELD
        or read >= LITTLE_SHARE * touched.held
        or not (touched.sure or touched.cold_read is not None)
    ):
        return None
    return (
        f"{workload} opens files of {format_bytes(touched.held)} and reads {format_bytes(read)} of them: if it should read "
        f"them whole, check its arguments and where its output goes"
    )


def names_note(workload: str, touched: Touched, state: str) -> str | None:
    """Return the note that much of a cold start is the names and inodes that ``cold-data`` leaves in memory."""
    data = max(touched.read, touched.cold_read or 0)
    if state != "cold-data" or touched.files < MANY_NAMES or touched.files * BLOCK_BYTES < data:
        return None
    return (
        f"{workload} uses {touched.files:,} names and reads {format_bytes(data)} of data: cold-data leaves names and inodes "
        f"in memory, so its runs are faster than from a cold start; cold-system drops them too (as root, with all caches "
        f"of the machine)"
    )


def uneven_note(workload: str, read: Mapping[str, Sequence[float]]) -> str | None:
    """Return the note that levels read different amounts, though none changes the work; None if they do not.

    ``read``: bytes that each level's runs requested by calls, cached or not.
    """
    typical = {level: median(amounts) for level, amounts in read.items() if len(amounts) >= LEAST_RUNS}
    if len(typical) < 2:
        return None
    most, least = max(typical, key=typical.__getitem__), min(typical, key=typical.__getitem__)
    apart = typical[most] - typical[least]
    if apart < max(LEAST_HELD, UNEVEN_SHARE * typical[most]) or min(read[most]) <= max(read[least]):
        return None
    return (
        f"{workload}: runs with {most} read {format_bytes(int(typical[most]))}, with {least} "
        f"{format_bytes(int(typical[least]))}, although the setting changes nothing of the work: they may not have done "
        f"the same"
    )


def elsewhere_bytes(
    evidence: Mapping[str, float], answer: Mapping[str, Any], devices: Iterable[str]
) -> float | None:
    """Return the bytes that the work caused to be read from, or written to, devices other than the lab's.

    None if the kernel or the lab does not report them.
    """
    devices = list(devices)
    during, synced = (summed(answer.get(key), devices) for key in ("devices", "devices_after_sync"))
    if not during or "work_fetched_bytes" not in evidence:
        return None
    read = max(0.0, evidence["work_fetched_bytes"] - during["read_bytes"])
    if not synced:
        return read
    dirtied = evidence.get("work_dirtied_bytes", 0.0) - evidence.get("work_undirtied_bytes", 0.0)
    return read + max(0.0, dirtied - synced["write_bytes"])


def is_unused(answer: Mapping[str, Any], devices: Iterable[str], elsewhere: float | None, state: str) -> bool:
    """Return whether a run hardly used the lab's devices although it was cold or did I/O elsewhere.

    A cold run reads at least the blocks of the lab's directories, so having made requests proves little. With
    cold-system, bytes from elsewhere prove nothing: programs are read from there, since the whole machine was
    cold.
    """
    if elsewhere is None:
        return False
    devices = list(devices)
    found = summed(answer.get("devices_after_sync") or answer.get("devices"), devices)
    requests = sum(found.get(f"{kind}_ios", 0) for kind in ("read", "write", "flush", "discard"))
    if not requests:
        return state.startswith("cold") or elsewhere >= LEAST_ELSEWHERE
    own = found["read_bytes"] + found["write_bytes"]
    return state != "cold-system" and elsewhere >= LEAST_ELSEWHERE and own < NEGLIGIBLE * (own + elsewhere)


def had_request(evidence: Mapping[str, float]) -> bool:
    """Return whether the lab's device, or a disk of its array, had a request during the timed part.

    True also if nothing was counted. A rebuild is requests to the disks and none to the array.
    """
    counts = [
        n for name, n in evidence.items() if name.startswith(("device_", "disks_")) and name.endswith("_ios")
    ]
    return not counts or any(counts)
