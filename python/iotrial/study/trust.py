"""What a study asks for that only a trusted one may have: root, or a shell.

Without either, a command runs as the user who called iotrial, with the rights that this user has anyway.
The list of shells is a courtesy to the reader of a foreign study, no sandbox: a program may always start
another.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from iotrial.study.model import CommandWork, Study

SHELLS = frozenset({"ash", "bash", "busybox", "csh", "dash", "fish", "ksh", "mksh", "sh", "tcsh", "zsh"})
RAISERS = frozenset({"doas", "pkexec", "runuser", "setpriv", "su", "sudo"})
LAUNCHERS = frozenset(
    {"chroot", "env", "find", "nice", "nohup", "nsenter", "parallel", "setsid", "timeout", "unshare", "xargs"}
)


def demands(study: Study) -> tuple[str, ...]:
    """What in this study needs trust, in words, whether or not it is trusted; empty where nothing does."""
    found = []
    for workload in study.workloads:
        if not isinstance(workload.work, CommandWork):
            continue
        if workload.work.run_as == "root":
            found.append(f'workload "{workload.name}" runs its commands as root')
        for step in workload.work.steps:
            words = [PurePosixPath(word).name for word in step.argv]
            programs = words if words[0] in LAUNCHERS else words[:1]
            if "{" in step.argv[0]:
                found.append(
                    f'workload "{workload.name}" takes the program of step "{step.name}" from a level or a file'
                )
            found += [
                f'workload "{workload.name}" starts {"a shell" if name in SHELLS else "a change of user"} ({name})'
                for name in dict.fromkeys(programs)
                if name in SHELLS | RAISERS
            ]
    return tuple(found)


def unmet(study: Study) -> tuple[str, ...]:
    """What this study needs trust for and is not given."""
    return () if study.trusted else demands(study)
