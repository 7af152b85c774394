"""What a follow-up study is made of: what was found of each level, what is pinned at which, and the study as it was run.

Everything here is a pure function of the study and of what was found; the studies that come out are such as a file can say.
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
    """What a trial found of one level, over all conditions and primary responses.

    ``estimate`` is the mean effect on the contrast's scale (a logarithm for ratios). ``active``: somewhere the interval
    excludes no effect, and not only an effect that matters. ``excluded``: everywhere an effect that matters is excluded.
    ``sure``: somewhere the whole interval is beyond the margin. ``beyond``: the estimate lies beyond the margin.
    ``better``: whether the level is the better one by its estimate; None where the conditions disagree, or no direction
    is preferred.
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
    """A factor that does not vary any more: the label it is held at, and why."""

    factor: str
    label: str = field(name="level")
    why: str


@dataclass(frozen=True, slots=True)
class FollowUp:
    """``study`` is what the file will say (its text still empty), ``chosen`` the factors with the reason for each."""

    study: Study
    chosen: tuple[tuple[str, str], ...]
    pinned: tuple[Pin, ...]
    notes: tuple[str, ...]
    runs: int


def largest(found: Sequence[Found]) -> dict[str, Found]:
    """By factor the level with the largest effect: an active one before all others."""
    best: dict[str, Found] = {}
    for one in found:
        above = best.get(one.factor)
        if above is None or (one.active, abs(one.estimate)) > (above.active, abs(above.estimate)):
            best[one.factor] = one
    return best


def asked_for(asked: Sequence[str], names: Sequence[str]) -> list[tuple[str, str]]:
    chosen = []
    for text in asked:
        name = match(text, names)
        if name is None:
            raise UnknownName("treatment factor", text, names)
        chosen.append(name)
    return [(name, "asked for") for name in names if name in chosen]


def pin_of(factor: Factor, best: Found | None, found: Sequence[Found], *, dropped: bool) -> Pin:
    """The better level where the estimate lies beyond the margin and has a direction, else the reference."""
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
            else "without one better level everywhere, held at the reference"
        )
    return Pin(factor.name, label, f"no room for it: {why}" if dropped else why)


def as_run(written: Study, ran: Study) -> Study:
    """The study as written, with levels, workloads, margin and alpha that ran as its defaults, and the larger budget.

    Raises StudyError where the text is not that of the trial."""
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
    """How many runs the larger of its blocks holds, controls among them. Raises RequestError where it cannot be planned."""
    plan = Plan(select(study), "0" * SEED_DIGITS)
    return max(len(plan.block(plan.conditions[0], index).runs) for index in (0, 1))


def renamed(study: Study, what: str) -> Study:
    """The study under a name of its own; a title that only repeats the name goes with it."""
    name = named(study.name, what)
    return structs.replace(study, name=name, title=name if study.title == study.name else study.title)


def named(name: str, what: str) -> str:
    """The study's name with a word behind it, as short as a name must be."""
    family, slash, own = name.rpartition("/")
    longest = 64 - len(family) - len(slash) - len(what) - 1
    return f"{family}{slash}{own[: max(1, longest)]}-{what}"


def one_line(text: str) -> str:
    return text if len(text) <= 500 else f"{text[:496]}...?"
