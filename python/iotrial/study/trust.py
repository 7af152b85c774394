"""What a study does that requires trust: running as root, or running a program that executes arbitrary text.

Otherwise a command runs as the user who called iotrial, with the rights that this user already has. The
workload kind decides what in its arguments, or in a job file, requires trust.
"""

from __future__ import annotations

from iotrial.study import command_trust
from iotrial.study.model import Study
from iotrial.study.work import HasPrograms


def demands(study: Study) -> tuple[str, ...]:
    """Return what in this study requires trust, in words, whether or not the study is trusted; empty if nothing does."""
    found = []
    settings = study.settings
    as_root = any(setting.knob == "process.user" and setting.value == "root" for setting in settings)
    for workload in study.workloads:
        work = workload.work
        name = f'workload "{workload.name}"'
        if workload.neighbour is not None:
            reasons = command_trust.demands([workload.neighbour.step()], settings)
            found += [f"the neighbour of {name} {reason}" for reason in reasons]
        if not isinstance(work, HasPrograms):
            continue
        if as_root or work.as_root():
            found.append(f"{name} runs {work.noun} as root")
        found += [f"{name} {reason}" for reason in work.demands(settings)]
    found += [f"a level {reason}" for reason in command_trust.of_levels(settings)]
    return tuple(dict.fromkeys(found))


def unmet(study: Study) -> tuple[str, ...]:
    """Return what this study requires trust for but does not have."""
    return () if study.trusted else demands(study)
