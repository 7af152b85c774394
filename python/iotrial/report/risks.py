"""The warning about an effect with a faster level that puts data at risk, for headlines and rows of tables.

``risks`` are the levels that do so, by what their settings mean and by what power cuts showed; ``measured`` those of them
that were seen to do harm, with the verdict (``report.durability``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from iotrial.knobs.declaration import Safety
from iotrial.report.notation import joined, named_level, some
from iotrial.report.safety import NO_RISKS, Risks
from iotrial.stats.model import QUIET, Effect, Verdict
from iotrial.terminal import escape

_MOST_IN_HEADLINE = 3
#: the mark of a level that was seen to lose or corrupt data when the power was cut
LOSES_DATA = "loses data"


def at_risk_where_faster(effect: Effect, risks: Risks) -> str | None:
    """Return the faster (better) one of the two levels compared if it puts data at risk that the other does not."""
    if effect.verdict in (Verdict.FASTER, Verdict.BETTER):
        praised, other = effect.level, effect.reference
    elif effect.verdict in (Verdict.SLOWER, Verdict.WORSE):
        praised, other = effect.reference, effect.level
    else:
        return None
    return praised if _riskier(praised, other, risks.get(effect.factor, {})) else None


def risk_note(effects: Sequence[Effect], risks: Risks, measured: Risks = NO_RISKS) -> str:
    """Return the warning for a headline that calls a level faster, to follow its text.

    E.g. ". Caution: the faster barrier nobarrier puts data at risk"; "" if no faster level does. Reports say how it does
    so elsewhere.
    """
    found: dict[tuple[str, str], bool] = {}
    for effect in effects:
        if (level := at_risk_where_faster(effect, risks)) is not None:
            sure = not effect.conclusion.probable
            found[effect.factor, level] = found.get((effect.factor, level), False) or sure
    named = {
        key: f"the {'' if sure else 'probably '}faster {named_level(escape(key[0]), escape(key[1]))}"
        for key, sure in found.items()
    }
    seen = [
        f"{name} {measured[factor][level]}"
        for (factor, level), name in named.items()
        if level in measured.get(factor, {})
    ]
    parts = [name for (factor, level), name in named.items() if level not in measured.get(factor, {})]
    verb = "puts" if len(parts) == 1 else "put"
    declared = [f"{joined(some(parts, _MOST_IN_HEADLINE))} {verb} data at risk"] if parts else []
    return f". Caution: {'; '.join([*some(seen, _MOST_IN_HEADLINE), *declared])}" if named else ""


def explained(risks: Risks) -> Iterator[str]:
    """Yield a sentence on each level that puts data at risk, and how."""
    for factor, levels in risks.items():
        for level, how in levels.items():
            yield f"Data at risk under {named_level(escape(factor), escape(level))}: {how}."


def risk_of(effect: Effect, risks: Risks, measured: Risks = NO_RISKS) -> str:
    """Return the mark of a row in a table, e.g. "loses data"; of the reference "data at risk (nobarrier)"; "" for none.

    Marked is the faster level if it puts data at risk, or the level compared with the reference if it does and is not
    slower.
    """
    level = at_risk_where_faster(effect, risks)
    if effect.verdict in QUIET and _riskier(effect.level, effect.reference, risks.get(effect.factor, {})):
        level = effect.level
    if level is None:
        return ""
    lost = level in measured.get(effect.factor, {})
    mark = LOSES_DATA if lost else Safety.DATA_AT_RISK.value
    return mark if level == effect.level else f"{mark} ({escape(level)})"


def _riskier(level: str, other: str, risks: Mapping[str, str]) -> bool:
    """Return whether a level puts data at risk that the other does not put at risk in the same way."""
    return level in risks and risks[level] != risks.get(other)
