"""What a trial says if its time is too short for a verdict: how long it takes, or which levels fit."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence

from iotrial.design.model import ArmKind
from iotrial.design.plan import Plan
from iotrial.stats.analyse import Spec
from iotrial.stats.eprocess import blocks_to_interval
from iotrial.study.model import TYPICAL, DesignKind
from iotrial.units import format_duration

#: labels by treatment factor
Fewer = Mapping[str, Sequence[str]]


def budget_note(
    plan: Plan, spec: Spec, *, round_s: float, rounds: int, spent_s: float, fewer: Fewer | None = None
) -> str | None:
    """Return what to type where this number of ``rounds`` of blocks, of ``round_s`` seconds each, cannot give an interval.

    ``spent_s``: seconds of --time that are not for further rounds. ``fewer``: the levels that will be compared instead. None
    if there are enough, or blocks are no measure.
    """
    least = _least_rounds(spec, share=1.0)
    if rounds >= least or spec.whole_plots or any(one.statistic != TYPICAL for one in spec.responses):
        return None
    time_s = spent_s + (least - 1) * round_s
    step = 10.0 if time_s < 120.0 else 60.0
    longer = format_duration(math.ceil(1.1 * time_s / step) * step).replace(" ", "")
    fit = (
        f"{rounds} block{'s' * (rounds != 1)} of {format_duration(round_s)} fit into the time, and a verdict takes at least "
        f"{least}"
    )
    if fewer is not None:
        return f"{fit}. Fewer levels first: {_typed(plan, fewer)}; all of them need --time {longer}"
    fitting = fewer_levels(plan, spec, rounds)
    if fitting is None:
        instead = ""
    elif plan.study.quick:
        instead = f"--fewer: {_typed(plan, fitting)} first"
    else:
        instead = _chosen(fitting)
    return f"{fit}: give --time {longer}{f', or {instead}' if instead else ''}"


def _least_rounds(spec: Spec, *, share: float) -> int:
    """Return the blocks to the first interval with this share of the primary effects."""
    alpha = spec.alpha / max(1.0, share * spec.primary_effects)
    bet = 0.0 if spec.budget is None else spec.budget.share
    terms = [term for term in spec.terms if term.primary]
    copied = all(spec.copy_of_reference(term, one) for term in terms for one in spec.responses if one.primary)
    return blocks_to_interval(alpha, margin=spec.margin, budget_share=bet, copied=copied)


def fewer_levels(plan: Plan, spec: Spec, rounds: float) -> Fewer | None:
    """Return the most levels of which enough blocks fit into the time of this number of rounds; None if there are none.

    The last level of the last factor goes first, then the last factor: what is typed first is compared first. Labels by
    factor, the reference first; a factor with its reference alone is not varied.
    """
    if plan.study.design.kind is not DesignKind.FULL:
        return None
    varied = plan.study.treatment_factors
    every = {f.name: [f.reference, *(label for label in f.default if label != f.reference)] for f in varied}
    runs = plan.block(plan.conditions[0], 0).runs
    treatments = len({run.arm.name for run in runs if run.arm.kind is ArmKind.TREATMENT})
    left, all_effects = (
        {name: list(labels) for name, labels in every.items()},
        sum(map(len, every.values())) - len(every),
    )
    while (effects := sum(map(len, left.values())) - len(left)) > 1:
        several = [name for name, labels in left.items() if len(labels) > 2]
        last = several[-1] if several else [name for name, labels in left.items() if len(labels) > 1][-1]
        left[last].pop()
        shorter = len(runs) - treatments + math.prod(map(len, left.values()))
        fitting = math.floor(rounds * len(runs) / shorter)
        if fitting >= _least_rounds(spec, share=(effects - 1) / all_effects):
            return {name: tuple(labels) for name, labels in left.items()}
    return None


def _typed(plan: Plan, fewer: Fewer) -> str:
    """Return these levels as the command line takes them, by labels where a level is no single value."""
    words = []
    for factor in plan.study.treatment_factors:
        labels = fewer[factor.name]
        if len(labels) < 2:
            continue
        settings = [factor.level(label).settings for label in labels]
        single = all(len(own) == 1 and "," not in own[0].value for own in settings)
        option = "-L " if single and settings[0][0].knob == "command.argument" else ""
        values = [own[0].value for own in settings] if single else labels
        words.append(f"{option}{factor.name}={','.join(values)}")
    return " ".join(words)


def _chosen(fewer: Fewer) -> str:
    """Return the options of ``iotrial run`` that choose these levels; empty if they would hold a factor at one level."""
    if any(len(labels) < 2 for labels in fewer.values()):
        return ""
    return " ".join("--set " + shlex.quote(f"{name}={','.join(labels)}") for name, labels in fewer.items())
