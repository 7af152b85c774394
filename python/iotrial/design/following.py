"""Building blocks of follow-up studies: findings by level, pinned factors, and the study as it was run.

Everything here is a pure function of the study and the findings. Each resulting study can be written as a study file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import field, structs

from iotrial.design.keyed import SEED_DIGITS
from iotrial.design.plan import Plan
from iotrial.documents import JsonObject
from iotrial.errors import StudyError, UnknownName
from iotrial.study.labels import match
from iotrial.study.model import Budget, Factor, Setting, Study, Workload
from iotrial.study.select import select


@dataclass(frozen=True, slots=True)
class Found:
    """A trial's finding on one level, over all conditions and primary responses.

    ``estimate`` is the mean effect on the contrast's scale (a logarithm for ratios). ``active``: in some condition or
    response the interval excludes "no effect" without excluding every effect that matters. ``excluded``: an effect that
    matters is excluded everywhere. ``sure``: in some condition or response the whole interval is beyond the margin.
    ``beyond``: the estimate is beyond the margin. ``better``: whether the level is better by its estimate; None if the
    conditions disagree or no direction is preferred.
    """

    factor: str
    level: str
    estimate: float
    active: bool
    excluded: bool
    beyond: bool
    better: bool | None
    sure: bool = True


class Pin(JsonObject, frozen=True):
    """A factor that no longer varies: the label at which it is held, and the reason."""

    factor: str
    label: str = field(name="level")
    why: str


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A follow-up study. ``study`` is the content of its file (its text is still empty); ``chosen`` are the factors, each
    with a reason."""

    study: Study
    chosen: tuple[tuple[str, str], ...]
    pinned: tuple[Pin, ...]
    notes: tuple[str, ...]
    runs: int


def largest(found: Sequence[Found]) -> dict[str, Found]:
    """Return the level with the largest effect of each factor; active levels take precedence."""
    best: dict[str, Found] = {}
    for one in found:
        above = best.get(one.factor)
        if above is None or (one.active, abs(one.estimate)) > (above.active, abs(above.estimate)):
            best[one.factor] = one
    return best


def named_levels(wanted: Sequence[str], names: Sequence[str]) -> list[tuple[str, str]]:
    chosen = []
    for text in wanted:
        name = match(text, names)
        if name is None:
            raise UnknownName("treatment factor", text, names)
        chosen.append(name)
    return [(name, "requested") for name in names if name in chosen]


def pin_of(factor: Factor, best: Found | None, found: Sequence[Found], *, dropped: bool) -> Pin:
    """Pin a factor at its better level if the estimate is beyond the margin and has a direction, else at its reference."""
    others = [one for one in found if one.factor == factor.name]
    if best is None:
        return Pin(factor.name, factor.reference, "not measured, held at the reference")
    gains = [one for one in others if one.better and (one.beyond or one.active) and not one.excluded]
    label, why = factor.reference, "undecided, the estimate within the margin: held at the reference"
    if gains:
        top = max(gains, key=lambda one: abs(one.estimate))
        label, why = top.level, "undecided, held at the level that looks better"
        if top.active:
            why = "held at the better level" if top.sure else "held at the level that is probably better"
    elif all(one.excluded for one in others):
        why = "no effect that matters, held at the reference"
    elif best.active and best.better is False:
        which = "is" if best.sure else "is probably"
        why = f"held at the reference, which {which} the better level"
    elif best.beyond or best.active:
        why = (
            "undecided, held at the reference, which looks better"
            if best.better is False
            else "no level is better everywhere, held at the reference"
        )
    return Pin(factor.name, label, f"no room for it: {why}" if dropped else why)


def as_run(written: Study, ran: Study) -> Study:
    """Return the study as written, with the levels, workloads, margin and alpha that ran as its defaults, and the larger
    budget.

    Raises StudyError if the text does not match the trial."""
    there = {factor.name: factor for factor in written.factors}
    factors: list[Factor] = []
    for factor in ran.factors:
        own = there.get(factor.name)
        same = own is not None and own.role is factor.role and own.whole_plot is factor.whole_plot
        if own is None or not same or not set(factor.levels) <= set(own.levels):
            raise _foreign(ran, f'factor "{factor.name}"')
    by_name = {factor.name: factor for factor in ran.factors}
    for factor in written.factors:
        now = by_name.get(factor.name)
        if now is None:
            if factor in written.treatment_factors:
                raise _foreign(ran, f'factor "{factor.name}"')
            factors.append(factor)
            continue
        labels = tuple(level.label for level in now.levels)
        factors.append(
            structs.replace(
                factor,
                default=labels,
                reference=now.reference if factor in written.treatment_factors else factor.reference,
            )
        )
    names = {workload.name for workload in ran.workloads}
    if not names <= {workload.name for workload in written.workloads}:
        raise _foreign(ran, "a workload")
    workloads: tuple[Workload, ...] = tuple(
        structs.replace(w, default=w.name in names) for w in written.workloads
    )
    for workload in ran.workloads:
        if workload.work != written.workload(workload.name).work:
            raise _foreign(ran, f'workload "{workload.name}"')
    if ran.fixed != written.fixed or ran.lab != written.lab:
        raise _foreign(ran, "the lab, or what is pinned")
    return structs.replace(
        written,
        margin=ran.margin,
        alpha=ran.alpha,
        budget=Budget(
            max(written.budget.time_s, ran.budget.time_s), max(written.budget.blocks, ran.budget.blocks)
        ),
        factors=tuple(factors),
        workloads=workloads,
    )


def _foreign(ran: Study, what: str) -> StudyError:
    return StudyError(
        f"the text stored with the trial of {ran.name} differs from what was run ({what})",
        file=ran.origin,
        hint="name the study's own file to `iotrial run` and refine that trial",
    )


def settings_of(ran: Study, pins: Sequence[Pin]) -> tuple[Setting, ...]:
    return tuple(setting for pin in pins for setting in ran.factor(pin.factor).level(pin.label).settings)


def runs_in_a_block(study: Study) -> int:
    """Return the number of runs in the larger of its first two blocks, controls included.

    Raises RequestError if the study cannot be planned.
    """
    plan = Plan(select(study), "0" * SEED_DIGITS)
    return max(len(plan.block(plan.conditions[0], index).runs) for index in (0, 1))


def renamed(study: Study, what: str) -> Study:
    """Return the study under a new name; a title that only repeats the name changes too."""
    name = named(study.name, what)
    return structs.replace(study, name=name, title=name if study.title == study.name else study.title)


def named(name: str, what: str) -> str:
    """Append a word to the study's name, cutting the name to the maximum length (64)."""
    family, slash, own = name.rpartition("/")
    longest = 64 - len(family) - len(slash) - len(what) - 1
    return f"{family}{slash}{own[: max(1, longest)]}-{what}"


def one_line(text: str) -> str:
    return text if len(text) <= 500 else f"{text[:496]}...?"
