"""Ablation: plan a leave-one-out study that finds which settings of a bundle caused its gain.

The bundle is a level that sets several knobs or, in a trial of several factors, all factors at their better level. It is
the reference of the new study. Each other level leaves out one setting, and one level leaves out all of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from msgspec import structs

from iotrial.design.following import (
    FollowUp,
    Found,
    Pin,
    as_run,
    largest,
    named_levels,
    one_line,
    pin_of,
    renamed,
    runs_in_a_block,
    settings_of,
)
from iotrial.errors import RequestError
from iotrial.study.model import Design, Factor, Level, Setting, Study

# "all" is reserved on the command line.
EVERYTHING, NOTHING, WITHOUT = "all together", "none", "without "
FACTOR = "optimisations"
_LABEL = 100


def leave_one_out(
    written: Study, ran: Study, found: Sequence[Found], *, wanted: Sequence[str] = ()
) -> FollowUp:
    """Build the leave-one-out study of a bundle.

    The bundle is a level that sets several knobs or, in a trial of several factors, all factors at their better level.
    ``wanted`` names the factor that has the bundle as a level, or the factors that form the bundle.

    Raises RequestError if there is no bundle, or if the reference does not set a knob that the bundle sets.
    """
    names = [factor.name for factor in ran.treatment_factors]
    chosen = [name for name, _ in named_levels(wanted, names)] if wanted else names
    if len(chosen) > 1:
        return _apart_from_factors(written, ran, found, chosen)
    return _apart_from_level(written, ran, found, ran.factor(chosen[0]))


def _apart_from_factors(
    written: Study, ran: Study, found: Sequence[Found], chosen: Sequence[str]
) -> FollowUp:
    best = largest(found)
    parts: list[tuple[str, Level, Level]] = []
    pins: list[Pin] = []
    for factor in ran.treatment_factors:
        pin = pin_of(factor, best.get(factor.name), found, dropped=False)
        if factor.name in chosen and pin.label != factor.reference:
            parts.append((factor.name, factor.level(pin.label), factor.level(factor.reference)))
        else:
            pins.append(pin)
    if len(parts) < 2:
        raise RequestError(
            f"study {ran.name}: only {len(parts)} of its factors has a level better than its reference by this trial, "
            "so there is no bundle to split",
            hint="--ablate needs two; `iotrial refine` without --ablate proposes what to vary next",
        )
    whole = any(ran.factor(name).whole_plot for name, _, _ in parts)
    return _ablation(
        written,
        ran,
        FACTOR,
        [(name, better.settings, plain.settings) for name, better, plain in parts],
        pins,
        tuple((name, f"{better.label} by the trial, {plain.label} without") for name, better, plain in parts),
        whole_plot=whole,
    )


def _apart_from_level(written: Study, ran: Study, found: Sequence[Found], factor: Factor) -> FollowUp:
    bundles = [
        level for level in factor.levels if level.label != factor.reference and len(level.settings) > 1
    ]
    if not bundles:
        raise RequestError(
            f'study {ran.name}: no level of "{factor.name}" sets more than one knob, so there is nothing to split'
        )
    estimates = {one.level: one for one in found if one.factor == factor.name}
    level = max(bundles, key=lambda level: _gain(estimates.get(level.label)))
    plain = {(s.knob, s.options): s for s in factor.level(factor.reference).settings}
    parts = []
    for setting in level.settings:
        other = plain.get((setting.knob, setting.options))
        if other is None:
            raise RequestError(
                f'study {ran.name}: reference "{factor.reference}" does not set {setting.knob}, level "{level.label}" does',
                hint="name the knob in the reference level, too, and run the study again",
            )
        if other.value != setting.value:
            parts.append((_short(setting, level.settings), (setting,), (other,)))
    if len(parts) < 2:
        raise RequestError(
            f'study {ran.name}: level "{level.label}" differs from "{factor.reference}" in only one knob, '
            "so there is nothing to split"
        )
    same = tuple(s for s in level.settings if plain[s.knob, s.options].value == s.value)
    best = largest(found)
    pins = [
        pin_of(other, best.get(other.name), found, dropped=False)
        for other in ran.treatment_factors
        if other.name != factor.name
    ]
    chosen = tuple(
        (name, f'"{on[0].value}" in the bundle, "{off[0].value}" without') for name, on, off in parts
    )
    return _ablation(
        written, ran, factor.name, parts, pins, chosen, whole_plot=factor.whole_plot, always=same
    )


def _ablation(
    written: Study,
    ran: Study,
    name: str,
    parts: Sequence[tuple[str, tuple[Setting, ...], tuple[Setting, ...]]],
    pins: Sequence[Pin],
    chosen: tuple[tuple[str, str], ...],
    *,
    whole_plot: bool,
    always: tuple[Setting, ...] = (),
) -> FollowUp:
    """Build the study. Each of ``parts`` is a name, the settings with the bundle and the settings without it."""

    def level(label: str, without: set[str]) -> Level:
        sets = [off if part in without else on for part, on, off in parts]
        return Level(label, (*itertools.chain.from_iterable(sets), *always))

    names = [part for part, _, _ in parts]
    levels = (
        level(EVERYTHING, set()),
        level(NOTHING, set(names)),
        *(level(_label(part), {part}) for part in names),
    )
    taken = {
        factor.name
        for factor in written.factors
        if factor.name not in {f.name for f in ran.treatment_factors}
    }
    while name in taken:
        name += "-apart"
    factor = Factor(
        name,
        ran.treatment_factors[0].role,
        levels,
        EVERYTHING,
        tuple(one.label for one in levels),
        whole_plot=whole_plot,
    )
    base = renamed(as_run(written, ran), "ablation")
    study = structs.replace(
        base,
        question=one_line(f"Which of {', '.join(names)} contribute to the gain of all together?"),
        factors=(factor, *base.condition_factors),
        fixed=(*base.fixed, *settings_of(ran, pins)),
        claims=(),
        design=Design(repeats=ran.design.repeats if whole_plot else 1),
    )
    runs = runs_in_a_block(study)
    note = (
        f'"{EVERYTHING}" is the reference: a setting contributes if the bundle does worse without it. Two settings that '
        "do the same thing hide each other here; then only leaving out all of them shows"
    )
    return FollowUp(study, chosen, tuple(pins), (note,), runs)


def _gain(one: Found | None) -> tuple[bool, float]:
    if one is None:
        return False, -math.inf
    return bool(one.better), abs(one.estimate)


def _short(setting: Setting, others: Sequence[Setting]) -> str:
    """Short name of a knob for a label: its first option or the last part of its name; with the knob if ambiguous."""
    name = _own_name(setting)
    same = any(other is not setting and _own_name(other) == name for other in others)
    return f"{setting.knob} {name}" if same else name


def _own_name(setting: Setting) -> str:
    return setting.options[0][1].strip("{}") if setting.options else setting.knob.rpartition(".")[2]


def _label(part: str) -> str:
    """Return "without X" as a valid label."""
    return (WITHOUT + part.replace(",", " ").replace("+", " "))[:_LABEL].strip()
