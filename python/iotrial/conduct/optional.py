"""Leaves out optional workloads whose program is not installed, with a note."""

from __future__ import annotations

import shutil

from msgspec import structs

from iotrial.conduct.means import TOOL_FOLDERS
from iotrial.study.model import Study


def without_missing(study: Study) -> tuple[Study, list[str]]:
    """Return the study without workloads whose optional program is missing, and a note for each.

    If none would be left, the study stays unchanged, and what is missing is refused later.
    """
    missing = {
        workload.name: (program, package)
        for workload in study.workloads
        for program, package in workload.work.optional_programs().items()
        if shutil.which(program, path=TOOL_FOLDERS) is None
    }
    if not missing or len(missing) == len(study.workloads):
        return study, []
    notes = [
        f"workload {name} is left out: {program} is not installed (apt-get install {package})"
        for name, (program, package) in missing.items()
    ]
    kept = structs.replace(
        study,
        workloads=tuple(w for w in study.workloads if w.name not in missing),
        responses=tuple(r for r in study.responses if r.workload not in missing),
        claims=tuple(
            c
            for c in study.claims
            if c.workload not in missing and c.condition.get("workload") not in missing
        ),
    )
    return kept, notes
