"""Consistency checks between the parts of a study, read from a file or from a stored object.

Limits on single values are declared with the fields of ``model``. Checked here is what spans fields: names
are distinct, a reference is one of the levels, a response is measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from iotrial.errors import repeated, twice
from iotrial.study.model import (
    DEFAULT_RESOLUTION,
    TYPICAL,
    Claim,
    DesignKind,
    Factor,
    Response,
    Role,
    Scale,
    Setting,
    Study,
    Workload,
)
from iotrial.study.schema import Problem, fold, printable, prose, shown
from iotrial.study.work import nameable

#: name that stands for the workloads in claims and on the command line
WORKLOAD = "workload"
MAX_BYTES = 1 << 20
MAX_LINE = 16384  # tomllib's time is quadratic in the number of parts of a dotted key
MAX_ORIGIN = 4096


def check_study(study: Study) -> None:
    """Raise Problem if no study file could have produced this study.

    Leftovers of narrowing a study (a placeholder without its workload) are accepted.
    """
    _check_text(study)
    _check_distinct("place", [place.name for place in study.places])
    _check_distinct("factor", [factor.name for factor in study.factors])
    _check_distinct("workload", [workload.name for workload in study.workloads])
    for factor in study.factors:
        _check_factor(factor)
    if not study.treatment_factors:
        raise Problem("no factor is a treatment")
    for setting in study.settings:
        _check_distinct("option", [name for name, _ in setting.options])
    check_distinct_knobs(study.factors, study.fixed)
    for workload in study.workloads:
        _check_workload(workload, study)
    _check_responses(study)
    _check_design(study)
    for claim in study.claims:
        _check_claim(claim, study)


def check_distinct_knobs(factors: Sequence[Factor], fixed: Sequence[Setting]) -> None:
    """Check that each knob (with its options) is set by one factor only, or pinned once.

    Raises Problem, with the path in the file.
    """
    owners: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
    for index, factor in enumerate(factors):
        for knob in {
            (setting.knob, setting.options) for level in factor.levels for setting in level.settings
        }:
            if knob in owners:
                raise Problem(twice("knob", knob[0]), "factor", index)
            owners.add(knob)
    for index, setting in enumerate(fixed):
        knob = (setting.knob, setting.options)
        if knob in owners:
            raise Problem(twice("knob", setting.knob), "fixed", index)
        owners.add(knob)


def _check_distinct(what: str, names: Iterable[str]) -> None:
    if (again := repeated(list(names))) is not None:
        raise Problem(twice(what, again))


def _check_text(study: Study) -> None:
    if (
        len(study.origin) > MAX_ORIGIN
        or len(study.text.encode("utf-8", "surrogatepass")) > MAX_BYTES
        or any(len(line) > MAX_LINE for line in study.text.split("\n"))
    ):
        raise Problem("the text is too long")
    for what, check, text in (("origin", printable, study.origin), ("text", prose, study.text)):
        try:
            check(text)
        except ValueError as error:
            raise Problem(f"the {what} {error}") from None


def _check_factor(factor: Factor) -> None:
    what = f"factor {shown(factor.name)}"
    if factor.name == WORKLOAD:
        raise Problem(f'"{WORKLOAD}" cannot be the name of a factor')
    labels = [level.label for level in factor.levels]
    if factor.role is Role.TREATMENT and len(labels) < 2:
        raise Problem(f"{what} needs two levels")
    _check_distinct(f"{what}: level", map(fold, labels))
    _check_distinct(f"{what}: default", factor.default)
    if not {factor.reference, *factor.default} <= set(labels):
        raise Problem(f"{what}: its reference and defaults are not all among its levels")


def _check_workload(workload: Workload, study: Study) -> None:
    what = f"workload {shown(workload.name)}"
    labels = {factor.name: {level.label for level in factor.levels} for factor in study.condition_factors}
    for name, wanted in workload.only.items():
        if name not in labels or not wanted or not set(wanted) <= labels[name]:
            raise Problem(f"{what}: restricted to levels of {shown(name)} that do not exist")


def _check_responses(study: Study) -> None:
    specs = {
        (workload.name, spec.name): spec
        for workload in study.workloads
        for spec in nameable(workload.responses())
    }
    _check_distinct("response", [f"{r.workload}.{r.name}" for r in study.responses])
    for response in study.responses:
        spec = specs.get((response.workload, response.name))
        if spec is None or spec.unit != response.unit or spec.stretchable != response.stretchable:
            raise Problem(
                f"workload {shown(response.workload)} measures no {shown(response.name)} in {shown(response.unit)}"
            )
        if response.statistic != TYPICAL:
            _check_statistic(response, study)
    for workload in study.workloads:
        if not any(r.primary for r in study.responses if r.workload == workload.name):
            raise Problem(f"workload {workload.name}: no response is primary")


def _check_statistic(response: Response, study: Study) -> None:
    timed = response.unit == "s" and response.scale is Scale.LOG
    if not (timed and response.primary and study.design.kind.crossed):
        raise Problem(f"a study file cannot use the {response.statistic} of {shown(response.name)}")


def _check_design(study: Study) -> None:
    design, names = study.design, [factor.name for factor in study.treatment_factors]
    folds = design.kind in (DesignKind.FRACTIONAL, DesignKind.PLACKETT_BURMAN)
    whole = any(factor.whole_plot for factor in study.treatment_factors)
    if (
        (design.resolution != DEFAULT_RESOLUTION and design.kind is not DesignKind.FRACTIONAL)
        or (design.fold_over and not folds)
        or (design.repeats > 1 and not whole)
        or any(factor.whole_plot for factor in study.condition_factors)
        or (design.kind.one_factor and (len(names) != 1 or whole))
    ):
        raise Problem(f"the parts of its {design.kind.value} design do not fit together")
    _check_distinct("interaction", [":".join(pair) for pair in design.interactions])
    for first, second in design.interactions:
        if first not in names or second not in names or names.index(first) >= names.index(second):
            raise Problem(f'interaction "{first}:{second}": unknown factors, or not in their order')


def _check_claim(claim: Claim, study: Study) -> None:
    treatments = {f.name: {level.label for level in f.levels} for f in study.treatment_factors}
    if not {claim.level, claim.reference} <= treatments.get(claim.factor, set()):
        raise Problem("a claim names levels that do not exist")
