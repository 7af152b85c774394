"""The doctor: checks what this machine can measure, and how precisely. It changes nothing.

``examine`` gathers the findings; ``noise`` runs the blind A/A trial.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from iotrial.errors import TargetError
from iotrial.lab import host
from iotrial.lab.filesystem import FILESYSTEMS
from iotrial.lab.image import no_lab
from iotrial.lab.journal import Journal
from iotrial.lab.machine import neighbours, processor
from iotrial.lab.machine.programs import GUEST_PROGRAMS, Program, programs
from iotrial.lab.target import Target
from iotrial.paths import state_folder
from iotrial.runner.doctor import checks
from iotrial.runner.doctor.checks import Finding, Grade
from iotrial.runner.doctor.noise import Noise
from iotrial.study.model import LabSpec

# Finds which labs can be used here, what each of them lacks, and what prevents all of them.


@dataclass(frozen=True, slots=True)
class LabFinding:
    """One kind of lab: ``lacks`` lists what is missing, and is empty if it can be used."""

    kind: str
    lacks: tuple[str, ...]
    serves: str


def labs_found(target: Target, programs: Sequence[Program]) -> tuple[LabFinding, ...]:
    """Return directory, image, device and guest, as this user's probe could use them."""
    hello = target.call("hello")
    root, privileged = hello["uid"] == 0, bool(hello["privileged"])
    found = {program.name for program in programs if program.path is not None}
    common = [] if root else ["root (run it with sudo)"]
    if root and not privileged:
        common.append("permission to mount (CAP_SYS_ADMIN, often missing in containers)")
    image = list(common)
    known = filesystems(target)
    if not any(kind.mkfs[0] in found and name in known for name, kind in FILESYSTEMS.items()):
        image.append("a file system that the kernel supports and a mkfs for it (apt-get install e2fsprogs)")
    disk = list(image) + [
        f"{name} (apt-get install util-linux)" for name in ("blkid", "wipefs") if name not in found
    ]
    if not target.exists("/dev/loop-control"):
        image.append("loop devices (/dev/loop-control; modprobe loop)")
    guest = [f"{name} (apt-get install {p})" for name, p in GUEST_PROGRAMS.items() if name not in found]
    return (
        LabFinding(
            "directory", (), "files and commands in your own folder; file data can be evicted from the cache"
        ),
        LabFinding(
            "image", tuple(image), "also file systems, mounts, queues; names and inodes can be evicted, too"
        ),
        LabFinding("device", tuple(disk), "the same on a spare disk, which you confirm by serial number"),
        LabFinding("guest", tuple(guest), "file systems, mounts, queues and sysctls of a virtual machine"),
    )


def filesystems(target: Target) -> frozenset[str]:
    """Return the file systems that the kernel supports now or has a module for."""
    known = {line.split()[-1] for line in target.read("/proc/filesystems").splitlines() if line.split()}
    release = target.read("/proc/sys/kernel/osrelease")
    try:
        modules = target.read(f"/lib/modules/{release}/modules.dep")
    except TargetError:
        modules = ""
    return frozenset(name for name in FILESYSTEMS if name in known or f"/{name}.ko" in modules)


def privilege_finding(target: Target) -> Finding:
    """Report the user's privileges and what they allow."""
    hello = target.call("hello")
    facts = {"uid": hello["uid"], "privileged": hello["privileged"]}
    if hello["uid"] != 0:
        do = "as root (sudo) also: image and device labs, cold-files, cold-system, sysctl"
        return Finding(
            "privileges", Grade.NOTE, "not root: only the directory lab and cache state cold-data", do, facts
        )
    if not hello["privileged"]:
        do = "run it where mounting is allowed (this looks like a container)"
        return Finding("privileges", Grade.NOTE, "root without permission to mount", do, facts)
    return Finding("privileges", Grade.OK, "root", facts=facts)


def kernel_finding(target: Target) -> Finding:
    """Report the kernel release and the file systems it supports."""
    known = filesystems(target)
    missing = [name for name in FILESYSTEMS if name not in known]
    facts = {"release": target.read("/proc/sys/kernel/osrelease"), "filesystems": sorted(known)}
    text = f"Linux {facts['release']}, with {', '.join(sorted(known)) or 'no file system of a lab'}"
    if missing:
        do = f"without {', '.join(missing)}: not available in image and device labs"
        return Finding("kernel", Grade.NOTE, text, do, facts)
    return Finding("kernel", Grade.OK, text, facts=facts)


def journal_finding(journal: Journal) -> Finding:
    """Report what an interrupted trial left in the undo journal."""
    pending, damaged = journal.read()
    if damaged:
        text = f"{len(damaged)} of the undo journal cannot be read (first: {damaged[0]})"
        do = "run `iotrial restore`: it undoes the others, and explains what to do about these"
        return Finding("undo journal", Grade.PROBLEM, text, do, {"entries": len(pending)}, fatal=True)
    if pending:
        first = f"{pending[0].knob} on {pending[0].target}"
        text = f"{len(pending)} to undo, left by a trial that was cut off (first: {first})"
        if all(entry.left_alone for entry in pending):
            do = "another program uses it now: `iotrial restore` shows it, `iotrial restore --accept N` dismisses entry N"
            return Finding("undo journal", Grade.NOTE, text, do, {"entries": len(pending)})
        do = "run `iotrial restore`; until then no trial can start"
        return Finding("undo journal", Grade.PROBLEM, text, do, {"entries": len(pending)}, fatal=True)
    return Finding("undo journal", Grade.OK, "nothing to undo", facts={"entries": 0})


def state_finding(target: Target, folder: Path) -> Finding | None:
    """Return a finding if neither the state folder nor its nearest existing parent is writable; else None."""
    nearest = existing(target, folder)
    done = target.run(["test", "-w", str(nearest)])
    if done.exit_status == 0:
        return None
    text = f"{nearest}: not writable, so no undo journal can be kept in {folder}"
    return Finding(
        "state folder", Grade.PROBLEM, text, "set XDG_STATE_HOME to a folder that you own", fatal=True
    )


def existing(target: Target, folder: Path) -> Path:
    """Return the folder, or its nearest existing parent."""
    while not target.exists(str(folder)) and folder != folder.parent:
        folder = folder.parent
    return folder


__all__ = ["Examination", "Finding", "Grade", "examine", "noise_findings"]


@dataclass(frozen=True, slots=True)
class Examination:
    """Everything the doctor found. ``noise`` is None if the A/A trial was skipped."""

    machine: Mapping[str, object]
    findings: tuple[Finding, ...]
    labs: tuple[LabFinding, ...]
    programs: tuple[Program, ...]
    noise: Noise | None = None

    @property
    def fatal(self) -> bool:
        """Whether a finding makes every lab impossible."""
        return any(finding.fatal for finding in self.findings)

    def with_noise(self, noise: Noise | None, more: list[Finding]) -> Examination:
        """Return a copy with the A/A result and its findings."""
        return replace(self, noise=noise, findings=(*self.findings, *more))


def examine(
    target: Target, *, watch_s: float = 1.0, sleep: Callable[[float], None] | None = None
) -> Examination:
    """Examine a machine through its target; watch other processes for ``watch_s`` seconds. Changes nothing."""
    folder = state_folder()
    frequency = processor.frequency(target)
    watched = (
        neighbours.look(target, watch_s) if sleep is None else neighbours.look(target, watch_s, sleep=sleep)
    )
    found = programs(target, no_lab(target))
    state = state_finding(target, folder)
    findings = [
        privilege_finding(target),
        kernel_finding(target),
        *checks.program_findings(found),
        *([state] if state is not None else []),
        _space(
            target,
            "the state folder",
            str(existing(target, folder)),
            checks.lab_bytes(LabSpec().size_bytes),
        ),
        _space(target, "/run", "/run", checks.RUN_BYTES),
        checks.power_finding(processor.power(target)),
        checks.frequency_finding(frequency),
        checks.clock_finding(processor.clock(target)),
        *checks.neighbour_findings(watched),
        journal_finding(Journal(folder / "journal")),
    ]
    return Examination(host.facts(target), tuple(findings), labs_found(target, found), found)


def _space(target: Target, what: str, folder: str, wanted: int) -> Finding:
    try:
        facts = target.call("statfs", path=folder)
    except TargetError:
        facts = None
    return checks.space_finding(what, folder, facts, wanted=wanted)


def noise_findings(noise: Noise) -> list[Finding]:
    """Return the findings of the A/A trial that need action."""
    found = []
    floor = noise.floor
    if noise.stolen is not None:
        # watching for a second may miss a neighbour that comes and goes; two minutes do not
        found.append(checks.stolen_finding("stolen time in the A/A test", noise.stolen, floor.seconds))
    apart = [one.workload for one in floor.workloads if one.told_apart]
    if apart or floor.failed_controls:
        what = "; ".join([*(f"two identical arms differ ({name})" for name in apart), *floor.failed_controls])
        do = (
            f"by chance this happens in at most {100 * floor.alpha:.3g} % of such checks: run it again; if it "
            f"happens again, do not rely on verdicts of this machine"
        )
        found.append(Finding("blind A/A", Grade.PROBLEM, what, do))
    if floor.failures:
        do = "see the kernel's log (dmesg), and the space and health of that disk"
        found.append(Finding("blind A/A", Grade.PROBLEM, f"{floor.failures} runs failed", do))
    if floor.void:
        share = floor.void / max(1, floor.void + floor.blocks)
        found.append(
            Finding(
                "blind A/A",
                Grade.NOTE if share < 0.2 else Grade.PROBLEM,
                f"{floor.void} of {floor.void + floor.blocks} blocks void: the cache was not in the expected state",
                "something else reads or drops the cache, or memory is short",
                {"void": floor.void, "blocks": floor.blocks},
            )
        )
    return found
