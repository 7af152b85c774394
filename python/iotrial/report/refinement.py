"""From a trial to its follow-up study: what was found for each setting, and the choice in words."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from msgspec import structs

from iotrial.design.refine import FollowUp, Found, folded_over, follow_up, leave_one_out
from iotrial.errors import RequestError, StudyError
from iotrial.report.document import Document
from iotrial.report.notation import counted, named_level
from iotrial.stats.model import QUIET, Effect, Verdict
from iotrial.study.model import Better, Scale
from iotrial.study.reader import read_study
from iotrial.study.rewriting import rewritten
from iotrial.terminal import escape

Way = Literal["follow-up", "fold-over", "ablate"]


def found_in(effects: Sequence[Effect], *, margin: float) -> tuple[Found, ...]:
    """Return what a trial found for every level of its treatment factors, from its primary main effects."""
    by_level: dict[tuple[str, str], list[Effect]] = {}
    for effect in effects:
        if effect.primary and effect.kind == "main" and effect.value is not None and effect.blocks:
            by_level.setdefault((effect.factor, effect.level), []).append(effect)
    return tuple(_found(*key, own, margin=margin) for key, own in by_level.items())


def propose(
    document: Document, way: Way, *, factors: Sequence[str] = (), margin: float | None = None
) -> tuple[FollowUp, str]:
    """Return the follow-up of a trial, and the text of its file. Raises RequestError, UnknownName or StudyError."""
    trial = document.trial
    header = trial.header
    ran = header.study
    if not document.valid:
        raise RequestError(
            f"trial {trial.number} is invalid: its own controls failed, so there is nothing to build on",
            hint="find the cause first (`iotrial report` names likely ones)",
        )
    if not ran.text:
        raise StudyError("the trial holds no text of its study", file=escape(ran.origin or ran.name))
    written = read_study(ran.text, ran.origin, trusted=False)
    ran = structs.replace(ran, margin=header.margin, alpha=header.alpha)
    found = found_in(document.analysis.effects, margin=header.margin)
    if way == "fold-over":
        proposed = folded_over(written, ran)
    elif way == "ablate":
        proposed = leave_one_out(written, ran, found, wanted=factors)
    else:
        mixed = document.design.aliases if document.design is not None else {}
        proposed = follow_up(written, ran, found, wanted=factors, mixed=mixed)
    if margin is not None:
        proposed = replace(proposed, study=structs.replace(proposed.study, margin=margin))
    comment = (
        f"Written by iotrial refine from trial {trial.number} of {ran.name} (seed {header.seed}).",
        *(f"varied: {name}: {why}" for name, why in proposed.chosen),
        *(f"pinned: {names}: {why}" for names, why in _pinned(proposed)),
    )
    return proposed, rewritten(ran.text, proposed.study, origin=ran.origin, comment=comment)


def choice_lines(proposed: FollowUp) -> Iterator[str]:
    """Yield what was chosen and why, for a terminal."""
    yield f"{escape(proposed.study.name)}: {escape(proposed.study.question)}"
    yield ""
    for name, rows in (("varied", proposed.chosen), ("pinned", _pinned(proposed))):
        for number, (what, why) in enumerate(rows):
            text = f"{escape(what)}: {escape(why)}"
            yield textwrap.fill(
                text,
                80,
                initial_indent=f"{name if number == 0 else '':<9}",
                subsequent_indent=" " * 11,
                break_on_hyphens=False,
            )
    design = proposed.study.design
    kind = f"{design.kind.value} design" + (
        f" of resolution {design.resolution}" if design.kind.value == "fractional" else ""
    )
    pairs = len(design.interactions)
    yield (
        f"design   {kind}, {counted(proposed.runs, 'run')} in a block"
        + (f", {counted(pairs, 'interaction')} named" if pairs else "")
    )
    for note in proposed.notes:
        yield textwrap.fill(
            escape(note), 80, initial_indent="note     ", subsequent_indent=" " * 9, break_on_hyphens=False
        )


def _pinned(proposed: FollowUp) -> list[tuple[str, str]]:
    """Return the pinned levels, grouped by reason: ("a off, b on", why)."""
    by_reason: dict[str, list[str]] = {}
    for pin in proposed.pinned:
        by_reason.setdefault(pin.why, []).append(named_level(pin.factor, pin.label))
    return [(", ".join(names), why) for why, names in by_reason.items()]


def _found(factor: str, level: str, effects: Sequence[Effect], *, margin: float) -> Found:
    sizes = [_size(effect) for effect in effects]
    mean = math.fsum(sizes) / len(sizes)
    log = all(effect.scale is Scale.LOG for effect in effects)
    gains = {_gains(effect, size) for effect, size in zip(effects, sizes, strict=True) if size}
    return Found(
        factor,
        level,
        mean,
        active=any(effect.verdict not in QUIET for effect in effects),
        excluded=all(effect.verdict is Verdict.EQUIVALENT for effect in effects),
        beyond=abs(mean) > (math.log1p(margin) if log else 0.0),
        better=gains.pop() if len(gains) == 1 else None,
        sure=any(effect.verdict not in QUIET and not effect.conclusion.probable for effect in effects),
    )


def _size(effect: Effect) -> float:
    """Return the estimate on the contrast's scale."""
    value = effect.value or 0.0
    if effect.scale is Scale.DIFFERENCE:
        return value
    return math.log(value) if value > 0.0 else 0.0


def _gains(effect: Effect, size: float) -> bool | None:
    if effect.better is Better.NONE:
        return None
    return (size < 0.0) is (effect.better is Better.LOWER)
