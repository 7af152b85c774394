"""The follow-up of a screening study: a sharper design for the settings that seem to matter, or a fold-over of the same one.

A screen shows which of many settings matter, but not whether they interact. Its follow-up runs the active settings, on
fresh data, in a design that separates all two-factor interactions, and pins the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import structs

from iotrial.design.following import (
    FollowUp,
    Found,
    as_run,
    largest,
    named_levels,
    one_line,
    pin_of,
    renamed,
    runs_in_a_block,
    settings_of,
)
from iotrial.design.lenth import lenth_pse
from iotrial.errors import RequestError
from iotrial.study.model import Design, DesignKind, Study

MOST_RUNS = 64  # maximum in a block of a follow-up: a block must stay short in time
_CONTROLS = 2  # control arms, in addition to the treatments
_FEWEST, _WITH_ROOM = 2, 4


def follow_up(
    written: Study,
    ran: Study,
    found: Sequence[Found],
    *,
    wanted: Sequence[str] = (),
    mixed: Mapping[str, Sequence[str]] | None = None,
) -> FollowUp:
    """Build the follow-up of a screen. ``written`` is the study as in its file, ``ran`` as it was run. ``wanted`` names the
    factors to vary, instead of those that the trial suggests. ``mixed`` are the interactions that bias a factor's effect.

    Raises RequestError if there is nothing to follow up, UnknownName for an unknown factor.
    """
    names = [factor.name for factor in ran.treatment_factors]
    if len(names) < 2:
        raise RequestError(
            f"study {ran.name} varies one factor only, so there is nothing to choose from",
            hint="--ablate splits a level that sets several knobs; run the study again for narrower intervals",
        )
    best = largest(found)
    chosen = named_levels(wanted, names) if wanted else _chosen(names, best)
    dropped: list[str] = []
    while True:
        study = _varied(written, ran, [name for name, _ in chosen])
        sized = _smallest(study)
        if sized is not None:
            break
        if wanted or len(chosen) <= 1:
            raise RequestError(
                f"study {ran.name}: no design that tells the interactions of {', '.join(n for n, _ in chosen)} "
                f"apart fits into {MOST_RUNS} runs per block",
                hint="name fewer factors with --factors, or choose two levels of each",
            )
        dropped.append(chosen.pop()[0])
    study, runs = sized
    kept = {name for name, _ in chosen}
    pins = [
        pin_of(ran.factor(name), best.get(name), found, dropped=name in dropped)
        for name in names
        if name not in kept
    ]
    study = structs.replace(study, fixed=(*study.fixed, *settings_of(ran, pins)))
    return FollowUp(study, tuple(chosen), tuple(pins), tuple(_notes(found, kept, mixed or {})), runs)


def folded_over(written: Study, ran: Study) -> FollowUp:
    """Add the mirror image of every row to a screen, which frees main effects from two-factor interactions."""
    design = ran.design
    if design.kind not in (DesignKind.FRACTIONAL, DesignKind.PLACKETT_BURMAN) or design.fold_over:
        what = "is folded over already" if design.fold_over else f"is {design.kind.value}"
        raise RequestError(
            f"study {ran.name}: its design {what}; only fractional and Plackett-Burman designs can be folded over"
        )
    study = structs.replace(
        renamed(as_run(written, ran), "folded"), design=structs.replace(design, fold_over=True)
    )
    runs = runs_in_a_block(study)
    chosen = tuple((factor.name, "as before") for factor in ran.treatment_factors)
    note = "every row has its mirror image, so no two-factor interaction can be mistaken for a main effect"
    return FollowUp(study, chosen, (), (note,), runs)


def _chosen(names: Sequence[str], best: Mapping[str, Found]) -> list[tuple[str, str]]:
    """Choose the active factors, largest first; then, up to four, undecided ones beyond the margin; at least two."""
    order = sorted((best[name] for name in names if name in best), key=lambda one: -abs(one.estimate))
    if not order:
        raise RequestError(
            "the trial has no effect to start from",
            hint="run it until it has complete blocks, or name factors with --factors",
        )
    chosen = [(one.factor, 'its interval excludes "no effect"') for one in order if one.active]
    rest = [one for one in order if not one.active]
    if not chosen:
        guide = 2.5 * lenth_pse([one.estimate for one in order])
        chosen = [
            (
                one.factor,
                'its interval does not exclude "no effect", but it stands out on the half-normal plot',
            )
            for one in rest
            if abs(one.estimate) > guide
        ]
    for one in rest:
        if one.factor in dict(chosen):
            continue
        if len(chosen) < _WITH_ROOM and one.beyond and not one.excluded:
            chosen.append((one.factor, "undecided, its estimate lies beyond the margin"))
        elif len(chosen) < _FEWEST:
            chosen.append((one.factor, "the largest of the rest, because two factors are needed"))
    return chosen


def _varied(written: Study, ran: Study, chosen: Sequence[str]) -> Study:
    """Return the study with only these treatment factors."""
    base = renamed(as_run(written, ran), "follow-up")
    gone = {factor.name for factor in ran.treatment_factors} - set(chosen)
    question = (
        f"Which of {', '.join(chosen)} change the result, and which interact?"
        if len(chosen) > 1
        else f"Which level of {chosen[0]} is best?"
    )
    return structs.replace(
        base,
        question=one_line(question),
        factors=tuple(factor for factor in base.factors if factor.name not in gone),
        claims=tuple(claim for claim in base.claims if claim.factor not in gone),
    )


def _smallest(study: Study) -> tuple[Study, int] | None:
    """Return the study in the design with the fewest runs that separates all two-factor interactions, and that number.

    None if every such design is too large.
    """
    names = [factor.name for factor in study.treatment_factors]
    pairs = tuple((a, b) for i, a in enumerate(names) for b in names[i + 1 :])
    whole = any(factor.whole_plot for factor in study.treatment_factors)
    repeats = study.design.repeats if whole else 1
    fitting = []
    for design in (
        Design(DesignKind.FULL, interactions=pairs, repeats=repeats),
        Design(DesignKind.FRACTIONAL, resolution=5, interactions=pairs, repeats=repeats),
    ):
        tried = structs.replace(study, design=design)
        try:
            runs = runs_in_a_block(tried)
        except RequestError:
            continue
        if runs <= MOST_RUNS + _CONTROLS:
            fitting.append((runs, tried))
    if not fitting:
        return None
    runs, best = min(fitting, key=lambda one: one[0])
    return best, runs


def _notes(found: Sequence[Found], kept: set[str], mixed: Mapping[str, Sequence[str]]) -> list[str]:
    notes = []
    ambiguous = [one.factor for one in found if one.active and mixed.get(one.factor) and one.factor in kept]
    if ambiguous:
        notes.append(
            f"in the first trial the effect of {', '.join(dict.fromkeys(ambiguous))} is mixed with "
            f"interactions; here it is "
            "not. Interactions with fixed factors cannot be seen: --fold-over repeats the same screen with its "
            "mirror image"
        )
    return notes
