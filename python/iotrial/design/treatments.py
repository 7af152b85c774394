"""The treatments of a study and the contrasts they can estimate.

A full factorial has every combination of levels; a screening design has its rows. Factors with ``plot = "whole"`` are
always fully crossed with the treatments of the other factors. In a screening design the controls are two extra columns: half
of the rows are slowed down by the injected ratio (positive), and half do not differ from the other half at all (negative).
A control that is a single arm would scatter sqrt(rows / 2) times as much as the effects it vouches for, and would not be
detected. A column is as precise as these effects and needs no extra runs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from iotrial.design import interactions
from iotrial.design.model import Arm, ArmKind, Screen, Term, TermKind
from iotrial.errors import RequestError
from iotrial.study.model import DesignKind, Factor, Study

NEGATIVE_ARM = "control:negative"
POSITIVE_ARM = "control:positive"
MAX_ARMS = 1024  # per block: a larger block would not be short in time


@dataclass(frozen=True, slots=True)
class Treatments:
    """The treatments of a study.

    ``plots`` holds the treatments by combination of the whole-plot factors (one if there are none), all of the same
    length. ``column_controls`` are the control contrasts by kind; with ``control_columns`` they cover all arms.
    ``design_rows`` are the coded rows of a screening design in stored form.
    """

    plots: tuple[tuple[Arm, ...], ...]
    reference: Arm
    terms: tuple[Term, ...]
    control_columns: bool
    column_controls: Mapping[ArmKind, Mapping[str, float]]
    design_rows: Sequence[str]

    @property
    def arms(self) -> tuple[Arm, ...]:
        """All treatment arms, plot by plot."""
        return tuple(itertools.chain.from_iterable(self.plots))


def treatments(study: Study, *, controls: bool, design_rows: Sequence[str] = ()) -> Treatments:
    """Return the treatments of a study. ``design_rows``: rows of a stored screening design; if empty, it is generated.

    Raises RequestError if the design does not fit the factors.
    """
    factors = study.treatment_factors
    whole = [factor for factor in factors if factor.whole_plot]
    sub = [factor for factor in factors if not factor.whole_plot]
    rows, screen = _rows(study, sub, design_rows, controls=controls)
    plots_wanted = math.prod(len(factor.levels) for factor in whole)
    count = plots_wanted * len(rows) * (study.design.repeats if whole else 1)
    if count > MAX_ARMS:
        raise RequestError(
            f"study {study.name}: its treatments make blocks of {count:,} arms, the maximum is {MAX_ARMS:,}",
            hint='choose fewer levels with --set, or a [design] of kind "fractional" or "plackett-burman"',
        )
    combinations = list(itertools.product(*([level.label for level in f.levels] for f in whole)))
    plots = tuple(
        tuple(_arm(factors, whole, sub, combination, row, number, screen) for number, row in enumerate(rows))
        for combination in combinations
    )
    arms = tuple(itertools.chain.from_iterable(plots))
    column_controls = _control_weights(arms, rows, screen) if screen is not None and controls else {}
    terms = _terms(study, whole, sub, arms, rows, screen, list(column_controls.values()))
    found = Treatments(
        plots=plots,
        reference=_reference(factors, arms),
        terms=terms,
        control_columns=screen is not None and controls,
        column_controls=column_controls,
        design_rows=() if screen is None else screen.text,
    )
    for name in {arm.name for arm in arms} & {NEGATIVE_ARM, POSITIVE_ARM}:
        raise RequestError(f'"{name}" is reserved for a control and cannot be a level')
    return found


def _rows(
    study: Study, factors: Sequence[Factor], design_rows: Sequence[str], *, controls: bool
) -> tuple[list[tuple[str, ...]], Screen | None]:
    """Return the labels of each row, and the screening design with the control columns last (None for a full factorial)."""
    labels = [[level.label for level in factor.levels] for factor in factors]
    kind = study.design.kind
    if kind.crossed or not factors:
        count = math.prod(len(some) for some in labels)
        if count > MAX_ARMS:
            raise RequestError(
                f"study {study.name}: its treatments give {count:,} arms, the maximum is {MAX_ARMS:,}",
                hint='choose fewer levels with --set, or a [design] of kind "fractional" or "plackett-burman"',
            )
        return list(itertools.product(*labels)), None
    ends = [_ordered(study, factor) for factor in factors]
    levels, what = [len(some) for some in labels] + [2, 2] * controls, f"study {study.name}"
    # numpy takes as long to import as all else that `show` needs, and only a screening design needs it
    from iotrial.design.matrix import generated, stored

    if design_rows:
        screen = stored(design_rows, kind, levels, what=what)
    else:
        design = study.design
        screen = generated(kind, levels, resolution=design.resolution, fold_over=design.fold_over, what=what)
    return [
        tuple(end[code + 1] for end, code in zip(ends, row, strict=False)) for row in screen.codes
    ], screen


def _ordered(study: Study, factor: Factor) -> tuple[str, str, str]:
    """Return the labels at -1 (the reference), 0 and +1."""
    labels = [level.label for level in factor.levels]
    if len(labels) == 2:
        other = labels[1] if factor.reference == labels[0] else labels[0]
        return factor.reference, "", other
    if len(labels) != 3 or factor.reference == labels[1]:
        raise RequestError(
            f"study {study.name}: factor {factor.name} needs two levels, or three in order with the reference at an end",
            hint="choose levels with --set",
        )
    low, middle, high = labels if factor.reference == labels[0] else reversed(labels)
    return low, middle, high


def _arm(
    factors: Sequence[Factor],
    whole: Sequence[Factor],
    sub: Sequence[Factor],
    combination: tuple[str, ...],
    row: tuple[str, ...],
    number: int,
    screen: Screen | None,
) -> Arm:
    labels = {factor.name: label for factor, label in zip(whole, combination, strict=True)}
    labels |= {factor.name: label for factor, label in zip(sub, row, strict=True)}
    treatment = {factor.name: labels[factor.name] for factor in factors}
    if screen is None:
        name = join(list(treatment.values()))
        return Arm(name, ArmKind.TREATMENT, treatment)
    name = "+".join([*(escaped(label, "+") for label in combination), f"row{number + 1:02d}"])
    codes = screen.codes[number]
    return Arm(name, ArmKind.TREATMENT, treatment, stretched=len(codes) > len(sub) and codes[len(sub)] > 0)


def join(labels: Sequence[str]) -> str:
    """Join labels into one name, escaping each ``+`` in them; a single label is returned unchanged."""
    return labels[0] if len(labels) == 1 else "+".join(escaped(label, "+") for label in labels)


def escaped(text: str, special: str) -> str:
    """Put a backslash before each special character and each backslash."""
    return "".join("\\" + c if c in special or c == "\\" else c for c in text)


def _reference(factors: Sequence[Factor], arms: Sequence[Arm]) -> Arm:
    """Return the arm with every factor at its reference; the first arm if the design has no such arm."""
    wanted = {factor.name: factor.reference for factor in factors}
    return next((arm for arm in arms if arm.treatment == wanted), arms[0])


def _control_weights(
    arms: Sequence[Arm], rows: Sequence[tuple[str, ...]], screen: Screen
) -> dict[ArmKind, dict[str, float]]:
    return {
        kind: _named(arms, _over_plots(screen.weights[column], len(arms) // len(rows)))
        for kind, column in ((ArmKind.POSITIVE, -2), (ArmKind.NEGATIVE, -1))
    }


def _over_plots(weights: Sequence[float], plots: int) -> list[float]:
    """Return weights of the mean over the plots, from those of one."""
    return [weight / plots for weight in weights] * plots


def _terms(
    study: Study,
    whole: Sequence[Factor],
    sub: Sequence[Factor],
    arms: Sequence[Arm],
    rows: Sequence[tuple[str, ...]],
    screen: Screen | None,
    controls: Sequence[Mapping[str, float]],
) -> tuple[Term, ...]:
    if study.design.kind is DesignKind.CONFIRM:
        return confirming_terms(study.treatment_factors[0], arms)
    plots = len(arms) // len(rows)
    found: list[Term] = []
    for factor in study.treatment_factors:
        if screen is not None and not factor.whole_plot:
            low, _, high = _ordered(study, factor)
            weights = _over_plots(screen.weights[list(sub).index(factor)], plots)
            found.append(Term(TermKind.MAIN, factor.name, high, low, _named(arms, weights)))
            continue
        for level in factor.levels:
            if level.label != factor.reference:
                weights = level_weights(arms, factor, level.label)
                found.append(
                    Term(
                        TermKind.MAIN,
                        factor.name,
                        level.label,
                        factor.reference,
                        _named(arms, weights),
                        whole=factor.whole_plot,
                    )
                )
    wholes = {factor.name for factor in whole}
    return (*found, *interactions.terms(study, arms, found, wholes, controls, screening=screen is not None))


def confirming_terms(factor: Factor, arms: Sequence[Arm]) -> tuple[Term, ...]:
    """Return the contrasts of a confirmation: the new settings, the first level but the reference, against the reference;
    and every other level, which lacks one of these settings, against the new settings."""
    new, *without = factor.others
    pairs = [(new, factor.reference), *((label, new) for label in without)]
    names = {arm.treatment[factor.name]: arm.name for arm in arms}
    return tuple(
        Term(TermKind.MAIN, factor.name, level, other, {names[level]: 1.0, names[other]: -1.0})
        for level, other in pairs
    )


def level_weights(arms: Sequence[Arm], factor: Factor, label: str) -> list[float]:
    """Return weights of the mean of the arms at this label minus the mean of those at the reference."""
    labels = [arm.treatment[factor.name] for arm in arms]
    share = {label: 1.0 / labels.count(label), factor.reference: -1.0 / labels.count(factor.reference)}
    return [share.get(one, 0.0) for one in labels]


def _named(arms: Sequence[Arm], weights: Sequence[float]) -> dict[str, float]:
    return {arm.name: weight for arm, weight in zip(arms, weights, strict=True) if weight != 0.0}
