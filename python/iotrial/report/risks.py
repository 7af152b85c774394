"""The warning about an effect with a faster level that puts data at risk, for headlines and rows of tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from iotrial.knobs.declaration import Safety
from iotrial.report.notation import joined, named_level, some
from iotrial.report.safety import Risks, risks_of
from iotrial.stats.model import Effect, Verdict
from iotrial.study.model import Study
from iotrial.terminal import escape

_MOST_IN_HEADLINE = 3


def at_risk_where_faster(effect: Effect, risks: Risks) -> str | None:
    """Return the faster (better) one of the two levels compared if it puts data at risk that the other does not."""
    if effect.verdict in (Verdict.FASTER, Verdict.BETTER):
        praised, other = effect.level, effect.reference
    elif effect.verdict in (Verdict.SLOWER, Verdict.WORSE):
        praised, other = effect.reference, effect.level
    else:
        return None
    return praised if _riskier(praised, other, risks.get(effect.factor, {})) else None


def safety_note(effects: Sequence[Effect], study: Study) -> str:
    """Return the warning for a headline that calls a level faster, to follow its text.

    E.g. ". Caution: the faster barrier nobarrier puts data at risk"; "" if no faster level does. Reports say how it does
    so elsewhere.
    """
    return risk_note(effects, risks_of(study))


def risk_note(effects: Sequence[Effect], risks: Risks) -> str:
    """Return ``safety_note`` if the study is not available."""
    found: dict[tuple[str, str], bool] = {}
    for effect in effects:
        if (level := at_risk_where_faster(effect, risks)) is not None:
            sure = not effect.conclusion.probable
            found[effect.factor, level] = found.get((effect.factor, level), False) or sure
    parts = [
        f"the {'' if sure else 'probably '}faster {named_level(escape(factor), escape(level))}"
        for (factor, level), sure in found.items()
    ]
    if not parts:
        return ""
    return f". Caution: {joined(some(parts, _MOST_IN_HEADLINE))} {'puts' if len(parts) == 1 else 'put'} data at risk"


def explained(risks: Risks) -> Iterator[str]:
    """Yield a sentence on each level that puts data at risk, and how."""
    for factor, levels in risks.items():
        for level, how in levels.items():
            yield f"Data at risk under {named_level(escape(factor), escape(level))}: {how}."


def risk_of(effect: Effect, risks: Risks) -> str:
    """Return the mark of a row in a table, e.g. "data at risk (nobarrier)"; "" for none.

    Marked is the faster level if it puts data at risk, or the level compared with the reference if it does and is not
    slower.
    """
    level = at_risk_where_faster(effect, risks)
    if effect.verdict in (Verdict.INCONCLUSIVE, Verdict.EQUIVALENT) and _riskier(
        effect.level, effect.reference, risks.get(effect.factor, {})
    ):
        level = effect.level
    return "" if level is None else f"{Safety.DATA_AT_RISK.value} ({escape(level)})"


def _riskier(level: str, other: str, risks: Mapping[str, str]) -> bool:
    """Return whether a level puts data at risk that the other does not put at risk in the same way."""
    return level in risks and risks[level] != risks.get(other)
