"""The doctor: checks what this machine can measure, and how precisely. It changes nothing.

``examine`` gathers the findings; ``noise`` runs the blind A/A trial.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from iotrial.errors import TargetError
from iotrial.lab import host
from iotrial.lab.image import no_lab
from iotrial.lab.journal import Journal
from iotrial.lab.machine import neighbours, processor
from iotrial.lab.machine.programs import Program, programs
from iotrial.lab.target import Target
from iotrial.paths import state_folder
from iotrial.runner.doctor import checks, labs
from iotrial.runner.doctor.finding import Finding, Grade
from iotrial.runner.doctor.noise import Noise
from iotrial.study.model import LabSpec

__all__ = ["Examination", "Finding", "Grade", "examine", "noise_findings"]


@dataclass(frozen=True, slots=True)
class Examination:
    """Everything the doctor found. ``noise`` is None if the A/A trial was skipped."""

    machine: Mapping[str, object]
    findings: tuple[Finding, ...]
    labs: tuple[labs.LabFinding, ...]
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
    state = labs.state_finding(target, folder)
    findings = [
        labs.privilege_finding(target),
        labs.kernel_finding(target),
        *checks.program_findings(found),
        *([state] if state is not None else []),
        _space(
            target,
            "the state folder",
            str(labs.existing(target, folder)),
            checks.lab_bytes(LabSpec().size_bytes),
        ),
        _space(target, "/run", "/run", checks.RUN_BYTES),
        checks.power_finding(processor.power(target), hypervisor=frequency.hypervisor),
        checks.frequency_finding(frequency),
        checks.clock_finding(processor.clock(target)),
        *checks.neighbour_findings(watched),
        labs.journal_finding(Journal(folder / "journal")),
    ]
    return Examination(host.facts(target), tuple(findings), labs.labs(target, found), found)


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
