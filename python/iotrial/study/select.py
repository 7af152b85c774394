"""Select which part of a study runs: the levels, conditions and workloads the user chose, otherwise the defaults.

The result is again a study, without everything that does not run, so that plan, analysis and report never
encounter a level, response or claim without runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from iotrial.errors import RequestError, UnknownName, twice
from iotrial.study.model import Budget, Claim, Factor, Role, Study, Workload
from iotrial.study.programs import with_programs
from iotrial.study.schema import match

ALL = "all"
WORKLOAD = "workload"


def select(
    study: Study,
    *,
    sets: Mapping[str, Sequence[str]] | None = None,
    conditions: Mapping[str, Sequence[str]] | None = None,
    references: Mapping[str, str] | None = None,
    full: bool = False,
    margin: float | None = None,
    alpha: float | None = None,
    time_s: float | None = None,
    blocks: int | None = None,
) -> Study:
    """Return the part of the study that will run.

    ``sets`` and ``conditions`` give labels by factor (``["all"]``: every one); ``conditions`` also takes
    ``workload``, and ``sets`` takes paths under ``program`` (``study.programs``). What is not named runs at
    its defaults, or completely with ``full``. The reference of a treatment factor is always kept: that of the study, or a
    level from ``references``. Raises UnknownName for an unknown factor, level or workload, and RequestError if nothing is
    left to compare.
    """
    study, sets = with_programs(study, sets or {})
    study = _referred(study, references or {})
    wanted = _wanted(study, sets, conditions or {})
    factors = [_narrowed(factor, wanted.get(factor.name), full=full) for factor in study.factors]
    workloads = _workloads(study, wanted.get(WORKLOAD), factors, full=full)
    factors = [_covered(factor, workloads, explicit=factor.name in wanted) for factor in factors]
    names = {workload.name for workload in workloads}
    return replace(
        study,
        margin=_within(margin, study.margin, "margin", 1.0),
        alpha=_within(alpha, study.alpha, "alpha", 0.5),
        budget=_budget(study.budget, time_s, blocks),
        factors=tuple(factors),
        workloads=workloads,
        responses=tuple(response for response in study.responses if response.workload in names),
        claims=tuple(claim for claim in study.claims if runs(claim, factors, names)),
    )


def _referred(study: Study, references: Mapping[str, str]) -> Study:
    """Return the study with other references of its treatment factors."""
    own = [factor.name for factor in study.treatment_factors]
    for name in references:
        if name not in own:
            raise UnknownName("factor with a reference", name, own, where=study.name)
    factors = []
    for factor in study.factors:
        if factor.name in references:
            labels = [level.label for level in factor.levels]
            found = _chosen(f'factor "{factor.name}"', "level", [references[factor.name]], labels)
            if len(found) != 1:
                raise RequestError(f'factor "{factor.name}": its reference is one level, not "{ALL}"')
            factors.append(replace(factor, reference=found[0]))
        else:
            factors.append(factor)
    return replace(study, factors=tuple(factors))


def with_levels(study: Study, labels: Mapping[str, Sequence[str]], *, time_s: float) -> Study:
    """Return a selected study with these levels of its treatment factors, in this time; a single level is held."""
    single = [factor for factor in study.treatment_factors if len(labels[factor.name]) == 1]
    rest = {name: own for name, own in labels.items() if len(own) > 1}
    return select(held(study, single), sets=rest, time_s=time_s)


def held(study: Study, factors: Sequence[Factor]) -> Study:
    """Return the study with these treatment factors held at their references."""
    settings = [setting for factor in factors for setting in factor.level(factor.reference).settings]
    return replace(
        study,
        factors=tuple(factor for factor in study.factors if factor not in factors),
        fixed=(*study.fixed, *settings),
    )


def _wanted(
    study: Study, sets: Mapping[str, Sequence[str]], conditions: Mapping[str, Sequence[str]]
) -> dict[str, Sequence[str]]:
    known = [*(factor.name for factor in study.factors), WORKLOAD]
    wanted: dict[str, Sequence[str]] = {}
    for given in (sets, conditions):
        for name, labels in given.items():
            if name not in known:
                raise UnknownName("factor", name, known, where=study.name)
            if name in wanted:
                raise RequestError(f"{study.name}: {twice('factor', name)}")
            if not labels:
                raise RequestError(
                    f'{study.name}: no level of "{name}" is named', hint=f'"{ALL}" means every level'
                )
            wanted[name] = labels
    return wanted


def _chosen(study_name: str, kind: str, wanted: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the selected known labels, in the study's order."""
    if [label.casefold() for label in wanted] == [ALL]:
        return list(known)
    meant = set()
    for text in wanted:
        label = match(text, known)
        if label is None:
            raise UnknownName(kind, text, [*known, ALL], where=study_name)
        meant.add(label)
    return [label for label in known if label in meant]


def _narrowed(factor: Factor, wanted: Sequence[str] | None, *, full: bool) -> Factor:
    labels = [level.label for level in factor.levels]
    if wanted is not None:
        keep = _chosen(f'factor "{factor.name}"', "level", wanted, labels)
    else:
        keep = labels if full else list(factor.default)
    if factor.role is Role.TREATMENT:
        keep = [label for label in labels if label in keep or label == factor.reference]
        if len(keep) < 2:
            raise RequestError(
                f'factor "{factor.name}" is left with only "{keep[0]}", the reference; a treatment needs two levels',
                hint=f"name one or more of: {', '.join(label for label in labels if label != factor.reference)}",
            )
    return _with_levels(factor, keep)


def _with_levels(factor: Factor, keep: Sequence[str]) -> Factor:
    return replace(
        factor,
        levels=tuple(level for level in factor.levels if level.label in keep),
        reference=factor.reference if factor.reference in keep else keep[0],
        default=tuple(keep),
    )


def _workloads(
    study: Study, wanted: Sequence[str] | None, factors: Sequence[Factor], *, full: bool
) -> tuple[Workload, ...]:
    names = [workload.name for workload in study.workloads]
    if wanted is not None:
        keep = _chosen(study.name, "workload", wanted, names)
    else:
        keep = [workload.name for workload in study.workloads if full or workload.default]
    running = []
    for workload in study.workloads:
        if workload.name not in keep:
            continue
        only = {
            factor.name: tuple(label for label in workload.only[factor.name] if label in factor.default)
            for factor in factors
            if factor.name in workload.only
        }
        if all(only.values()):
            running.append(replace(workload, only=only, default=True))
        elif wanted is not None and [label.casefold() for label in wanted] != [ALL]:
            name = next(name for name, labels in only.items() if not labels)
            raise RequestError(
                f'workload "{workload.name}" runs at other levels of "{name}" only: {", ".join(workload.only[name])}'
            )
    if not running:
        raise RequestError(
            f"{study.name}: no workload runs at these levels", hint=f"workloads: {', '.join(names)}"
        )
    return tuple(running)


def _covered(factor: Factor, workloads: Sequence[Workload], *, explicit: bool) -> Factor:
    """Remove condition levels at which no workload runs; raise an error if the user named such a level."""
    if factor.role is Role.TREATMENT:
        return factor
    served = {
        label
        for workload in workloads
        for label in workload.only.get(factor.name, [level.label for level in factor.levels])
    }
    idle = [level.label for level in factor.levels if level.label not in served]
    if idle and explicit:
        raise RequestError(
            f'no selected workload runs at "{idle[0]}" of "{factor.name}"',
            hint=f"running: {', '.join(workload.name for workload in workloads)}; choose others with "
            f"--condition workload=NAME",
        )
    return _with_levels(factor, [level.label for level in factor.levels if level.label in served])


def runs(claim: Claim, factors: Sequence[Factor], workloads: set[str]) -> bool:
    """Return whether the effect that a claim is about, and the condition it names, are still in the study."""
    return not_run(claim, factors, workloads) is None


def not_run(claim: Claim, factors: Sequence[Factor], workloads: set[str]) -> str | None:
    """Return the first part of a claim that does not run, such as "rate 1 Gbit/s"; None if all of it runs."""
    labels = {factor.name: factor.default for factor in factors} | {WORKLOAD: tuple(sorted(workloads))}
    spoken_of = [(claim.factor, claim.level), (claim.factor, claim.reference), *claim.condition.items()]
    if claim.workload is not None:
        spoken_of.insert(0, (WORKLOAD, claim.workload))
    return next((f"{name} {label}" for name, label in spoken_of if label not in labels.get(name, ())), None)


def _within(value: float | None, default: float, what: str, most: float) -> float:
    if value is None:
        return default
    if not 0 < value <= most:
        raise RequestError(f"{what} must be above 0 and at most {most:g}, found {value:g}")
    return value


def _budget(budget: Budget, time_s: float | None, blocks: int | None) -> Budget:
    if time_s is not None and not (math.isfinite(time_s) and time_s > 0):
        raise RequestError(f"a time budget must be above 0 s, found {time_s:g} s")
    if blocks is not None and blocks < 1:
        raise RequestError(f"a budget needs at least one block, found {blocks}")
    return Budget(
        time_s=budget.time_s if time_s is None else time_s,
        blocks=budget.blocks if blocks is None else blocks,
    )
