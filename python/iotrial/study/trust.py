"""What a study asks for that only a trusted one may have: root, or a program that runs whatever text it is given.

Without either, a command runs as the user who called iotrial, with the rights that this user has anyway. What in its
arguments, or in a job file, needs trust is for the kind of the work to say.
"""

from __future__ import annotations

from iotrial.study import command_trust
from iotrial.study.model import Study
from iotrial.study.work import HasPrograms


def demands(study: Study) -> tuple[str, ...]:
    """What in this study needs trust, in words, whether or not it is trusted; empty where nothing does."""
    found = []
    settings = study.settings
    as_root = any(setting.knob == "process.user" and setting.value == "root" for setting in settings)
    for workload in study.workloads:
        work = workload.work
        if not isinstance(work, HasPrograms):
            continue
        name = f'workload "{workload.name}"'
        if as_root or work.as_root():
            found.append(f"{name} runs {work.said} as root")
        found += [f"{name} {reason}" for reason in work.demands(settings)]
    found += [f"a level {reason}" for reason in command_trust.of_levels(settings)]
    return tuple(dict.fromkeys(found))


def unmet(study: Study) -> tuple[str, ...]:
    """What this study needs trust for and is not given."""
    return () if study.trusted else demands(study)
