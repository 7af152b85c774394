"""Programs by path, given on the command line: several become a factor, one is pinned. A study file cannot set them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from iotrial.errors import RequestError
from iotrial.study.model import Design, Factor, Level, Role, Setting, Study

#: name as in --set, and of the resulting factor
PROGRAM = "program"
PROGRAM_KNOB = "program.path"


def with_programs(
    study: Study, sets: Mapping[str, Sequence[str]]
) -> tuple[Study, Mapping[str, Sequence[str]]]:
    """Return the study with the programs listed under ``program`` in ``sets``, and the rest of ``sets``.

    One path is pinned. Several become a treatment, with the first as reference; treatments not named in
    ``sets`` then stay at their reference, so that only the programs are compared. Raises RequestError if no
    workload takes programs.
    """
    if PROGRAM not in sets or any(factor.name == PROGRAM for factor in study.factors):
        return study, sets
    paths = list(dict.fromkeys(sets[PROGRAM]))
    rest = {name: labels for name, labels in sets.items() if name != PROGRAM}
    takes = [workload for workload in study.workloads if workload.work.takes_program()]
    if not takes:
        raise RequestError(
            f"{study.name}: --set {PROGRAM}=...: no workload of the study takes programs by path",
            hint="workloads of kind database do, and commands with a server (serve)",
        )
    settings = [Setting(PROGRAM_KNOB, path) for path in paths]
    if len(paths) == 1:
        return replace(study, workloads=tuple(takes), fixed=(*study.fixed, *settings)), rest
    levels = tuple(Level(path, (setting,)) for path, setting in zip(paths, settings, strict=True))
    factor = Factor(PROGRAM, Role.TREATMENT, levels, paths[0], tuple(paths))
    pinned = [f for f in study.treatment_factors if f.name not in rest]
    kept = [f for f in study.factors if f not in pinned]
    names = {f.name for f in kept}
    return (
        replace(
            study,
            factors=(factor, *kept),
            fixed=(*study.fixed, *(s for f in pinned for s in f.level(f.reference).settings)),
            workloads=tuple(takes),
            claims=tuple(claim for claim in study.claims if claim.factor in names),
            design=Design() if pinned else study.design,
        ),
        rest,
    )
