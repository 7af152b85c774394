"""One verdict over hosts: which trials form a fleet, and each comparison per host and combined.

A host's own verdict is the one in its own report. Which hosts count is decided here by state, controls and
failures, with a reason in words for each that does not; the numbers come from ``iotrial.stats.fleet``. A
host contributes the plain mean of its blocks' contrasts, to which its standard error belongs. The estimate of
its own report is not used: it never leaves its interval, and so keeps the luck of the first blocks.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from iotrial.errors import RequestError, UnknownName
from iotrial.fleet.summary import HostTrial, summed_up
from iotrial.report.safety import Risks
from iotrial.stats.fleet.combine import EQUIVALENT, HIGHER, INCONCLUSIVE, LOWER, combine, why_left_out
from iotrial.stats.fleet.model import FleetEffect, HostEffect, Outlier
from iotrial.stats.model import Effect, Span, Verdict
from iotrial.stats.verdict import CARRY_OVER, EFFECT_NOT_CONSTANT, FAILURES, NO_BLOCKS, UNUSABLE, direction_of
from iotrial.store import Store
from iotrial.store.outline import Outline, outlines
from iotrial.store.states import TrialState
from iotrial.study.model import Response, Scale

_ID = re.compile(r"[0-9a-f]{32}")
LONGEST_NAME = 253  # of a host name, as in DNS


def fleets_of(path: Path) -> tuple[tuple[Fleet, ...], tuple[str, ...]]:
    """Return the fleets of the store in this file, the newest last, and warnings about the file."""
    found, warnings = outlines(path)
    return fleets(found), warnings


def report_of(
    path: Path, ref: str | None = None, *, on_progress: Callable[[int, int], None] | None = None
) -> tuple[FleetReport, tuple[str, ...]]:
    """Return the verdict over a fleet (None: the newest), and warnings about the file.

    ``on_progress`` is called with the number of hosts done and the total. Raises RequestError or UnknownName if
    there is no such fleet.
    """
    found, warnings = fleets_of(path)
    fleet = chosen(found, ref)
    count = len(fleet.trials)
    with Store.open(path, read_only=True, checked=False) as store:
        hosts = tuple(
            summed_up(
                store, fleet.trials, None if on_progress is None else lambda done: on_progress(done, count)
            )
        )
    return fleet_report(fleet, hosts), warnings


@dataclass(frozen=True, slots=True)
class Fleet:
    """The trials of one fleet, by number, one per host. ``replaced``: trials superseded by a newer one of the same host."""

    id: str
    trials: tuple[Outline, ...]
    replaced: tuple[Outline, ...] = ()

    @property
    def first(self) -> Outline:
        """The trial with the lowest number."""
        return self.trials[0]

    @property
    def states(self) -> dict[TrialState, int]:
        """The number of hosts in each state, in the order of states."""
        found = [one.state for one in self.trials]
        return {state: found.count(state) for state in TrialState if state in found}


def fleets(trials: Sequence[Outline]) -> tuple[Fleet, ...]:
    """Return all fleets of a store, the one with the newest trial last. If a host has several trials, the newest counts."""
    found: dict[str, list[Outline]] = {}
    for one in trials:
        if one.fleet is not None and one.member is not None and _is_sound(one.fleet, one.member):
            found.setdefault(one.fleet, []).append(one)
    made = [_fleet(name, members) for name, members in found.items()]
    return tuple(sorted(made, key=lambda fleet: max(one.number for one in fleet.trials)))


def chosen(found: Sequence[Fleet], ref: str | None) -> Fleet:
    """Return the fleet with this id or unique prefix; None: the newest. Raises UnknownName or RequestError otherwise."""
    if not found:
        raise RequestError(
            "the store has no fleets yet", hint="`iotrial fleet --help` shows how to start one"
        )
    if ref is None or ref == "last":
        return found[-1]
    fitting = [one for one in found if ref and one.id.startswith(ref)]
    if len(fitting) > 1:
        which = ", ".join(one.id[:12] for one in fitting[:8])
        raise RequestError(f'several fleets begin with "{ref}": {which}', hint="give more digits of the id")
    if not fitting:
        raise UnknownName("fleet", ref, [*(one.id[:12] for one in found[-8:]), "last"])
    return fitting[0]


def _is_sound(fleet: str, member: str) -> bool:
    return _ID.fullmatch(fleet) is not None and 0 < len(member) <= LONGEST_NAME


def _fleet(name: str, members: Sequence[Outline]) -> Fleet:
    newest = {one.member: one for one in sorted(members, key=lambda one: one.number)}
    kept = sorted(newest.values(), key=lambda one: one.number)
    numbers = {one.number for one in kept}
    return Fleet(name, tuple(kept), tuple(one for one in members if one.number not in numbers))


@dataclass(frozen=True, slots=True)
class HostRow:
    """One host's result for one comparison; ``effect`` is None if it has none. ``why``: why it is not averaged."""

    trial: HostTrial
    effect: Effect | None
    part: HostEffect
    why: str | None
    outlier: Outlier | None = None


@dataclass(frozen=True, slots=True)
class FleetComparison:
    """One comparison over all hosts.

    ``mean`` is an effect like a host's: the mean's interval and the verdict from it (None: fewer than two
    hosts are averaged). ``rows`` are in the order of hosts. ``place``: the conditions that distinguish this
    comparison from the others, by name.
    """

    like: Effect
    rows: tuple[HostRow, ...]
    found: FleetEffect
    mean: Effect | None
    place: tuple[tuple[str, str], ...] = ()

    @property
    def averaged(self) -> tuple[HostRow, ...]:
        """The hosts included in the mean."""
        return tuple(row for row in self.rows if row.why is None)

    @property
    def ordered(self) -> tuple[HostRow, ...]:
        """Outlying hosts, those not averaged, then all others by their effect."""
        return tuple(sorted(self.rows, key=_rank))


@dataclass(frozen=True, slots=True)
class FleetReport:
    """The results of one fleet.

    ``shared``: levels of conditions common to all comparisons.
    """

    id: str
    study: str
    question: str
    hosts: tuple[HostTrial, ...]
    comparisons: tuple[FleetComparison, ...]
    alpha: float
    margin: float
    replaced: Annotated[
        tuple[int, ...],
        Meta(
            description="Numbers of trials that do not count, since their host has a newer one in this fleet."
        ),
    ] = ()
    shared: tuple[tuple[str, str], ...] = ()
    #: the levels that put data at risk
    risks: Risks = field(default_factory=dict)

    @property
    def running(self) -> int:
        """Number of hosts that have not ended yet."""
        return sum(one.state is TrialState.RUNNING for one in self.hosts)


def fleet_report(fleet: Fleet, hosts: Sequence[HostTrial]) -> FleetReport:
    """Return the verdict over these hosts' trials.

    Level, margin and question are those of most readable trials; a trial that differs is not averaged, so a
    single host cannot change the criteria for the rest.
    """
    readable = [one for one in hosts if one.problem is None]
    criteria = Counter(_criteria(one) for one in readable)
    common = criteria.most_common(1)[0][0] if criteria else None
    first = next((one for one in readable if _criteria(one) == common), hosts[0])
    hosts = [
        one
        if one.problem is not None or _criteria(one) == common
        else replace(one, invalid=("its question or criteria differ from those of most hosts", *one.invalid))
        for one in hosts
    ]
    keys: dict[tuple[object, ...], Effect] = {}
    found: list[dict[tuple[object, ...], Effect]] = []
    for one in hosts:
        own = {_key(effect): effect for effect in one.effects}
        found.append(own)
        keys = {**own, **keys}
    comparisons = tuple(
        _comparison(like, [(one, own.get(key)) for one, own in zip(hosts, found, strict=True)], first.margin)
        for key, like in keys.items()
    )
    shared = _shared(keys.values())
    return FleetReport(
        id=fleet.id,
        study=first.study,
        question=first.question,
        hosts=tuple(hosts),
        comparisons=_placed(comparisons, dict(shared)),
        alpha=first.alpha,
        margin=first.margin,
        replaced=tuple(one.number for one in fleet.replaced),
        shared=shared,
        risks=first.risks,
    )


def _criteria(one: HostTrial) -> tuple[str, str, float, float]:
    return one.study, one.question, one.alpha, one.margin


def on_scale(value: float | None, like: Effect) -> float | None:
    """Convert from the contrast's scale to what is reported: a ratio, or the difference itself."""
    if value is None or like.scale is Scale.DIFFERENCE:
        return value
    return math.exp(min(value, 690.0))


def plain_mean(effect: Effect) -> float | None:
    """Return the mean of the contrasts, on their own scale: the midpoint of the anytime-valid t interval.

    With too few blocks for a bounded interval, return the estimate.
    """
    if effect.cross_check is not None:
        low, high = (_contrast(end, effect) for end in effect.cross_check)
        if low is not None and high is not None and math.isfinite(low + high):
            return (low + high) / 2
    return _contrast(effect.value, effect)


def why_invalid(one: HostTrial) -> str | None:
    """Return why a host does not count in any comparison; None if it does."""
    if one.problem is not None:
        return f"cannot be read: {one.problem}"
    if one.invalid:
        return f"invalid: {one.invalid[0]}"
    if one.state is TrialState.INVALID:
        return f"invalid: {one.reason}" if one.reason else "invalid"
    if one.state is TrialState.FAILED:
        return f"failed: {one.reason}" if one.reason else "failed"
    return None


def _shared(effects: Iterable[Effect]) -> tuple[tuple[str, str], ...]:
    """Return the levels of conditions that all of them have, ignoring pooled effects."""
    found = [effect.condition for effect in effects if effect.kind != "pooled"]
    first = found[0] if found else {}
    return tuple((n, v) for n, v in first.items() if all(other.get(n) == v for other in found))


def _placed(comparisons: Sequence[FleetComparison], shared: Mapping[str, str]) -> tuple[FleetComparison, ...]:
    several = len({one.like.workload for one in comparisons}) > 1
    return tuple(
        replace(
            one,
            place=(
                *([("workload", one.like.workload)] if several else []),
                *((n, v) for n, v in one.like.condition.items() if shared.get(n) != v),
            ),
        )
        for one in comparisons
    )


def _comparison(
    like: Effect, sides: Sequence[tuple[HostTrial, Effect | None]], margin: float
) -> FleetComparison:
    parts = [_part(one, effect) for one, effect in sides]
    limit = math.log1p(margin) if like.scale is Scale.LOG else 0.0
    alpha = min([effect.family_alpha for _, effect in sides if effect is not None], default=0.05)
    found = combine(parts, alpha=alpha, limit=limit)
    named = {one.host: one for one in found.outliers}
    rows = tuple(
        HostRow(one, effect, part, why_left_out(part), named.get(part.host))
        for (one, effect), part in zip(sides, parts, strict=True)
    )
    return FleetComparison(
        like, rows, found, _mean(like, found, [one for _, one in sides if one is not None])
    )


def _part(one: HostTrial, effect: Effect | None) -> HostEffect:
    distrusted, left_out = why_invalid(one), None
    if effect is None:
        return HostEffect(
            one.host, None, None, None, None, 0.0, 0, distrusted or "does not have this comparison"
        )
    if distrusted is None and effect.reason in (FAILURES, UNUSABLE):
        distrusted = "runs failed" if effect.reason == FAILURES else "runs without a usable value"
    if one.state is TrialState.RUNNING:
        left_out = "still running"
    elif effect.reason == NO_BLOCKS or effect.blocks == 0:
        left_out = "no complete block"
    elif effect.reason == EFFECT_NOT_CONSTANT:
        left_out = "its effect changed during the trial"
    elif effect.reason == CARRY_OVER:
        left_out = "its runs seem to depend on the runs before them"
    return HostEffect(
        host=one.host,
        estimate=plain_mean(effect),
        error=None
        if effect.block_sd is None or not effect.blocks
        else effect.block_sd / math.sqrt(effect.blocks),
        low=_contrast(effect.low, effect),
        high=_contrast(effect.high, effect),
        log_e=math.log(effect.e_value) if effect.e_value else -math.inf if effect.e_value == 0.0 else 0.0,
        blocks=effect.blocks,
        distrusted=distrusted,
        left_out=left_out,
        properties=one.properties,
    )


def _contrast(value: float | None, effect: Effect) -> float | None:
    if value is None or effect.scale is Scale.DIFFERENCE:
        return value
    return math.log(value) if value > 0.0 else None


def _mean(like: Effect, found: FleetEffect, parts: Sequence[Effect]) -> Effect | None:
    mean = found.mean
    if mean is None:
        return None
    response = Response(like.workload, like.response, like.unit, like.scale, like.better, primary=True)
    words = {
        EQUIVALENT: Verdict.EQUIVALENT,
        INCONCLUSIVE: Verdict.INCONCLUSIVE,
        LOWER: direction_of(response, rising=False),
        HIGHER: direction_of(response, rising=True),
    }
    return replace(
        like,
        value=on_scale(mean.value, like),
        low=on_scale(mean.low, like),
        high=on_scale(mean.high, like),
        family_alpha=found.alpha,
        verdict=words[found.word],
        detectably=None,
        reason=None,
        blocks=mean.hosts,
        failures=0,
        block_sd=None,
        cross_check=None,
        e_value=None,
        leaning=False,
        agree=None if like.agree is None else all(one.agree is not False for one in parts),
        span=_span(parts),
    )


def _span(parts: Sequence[Effect]) -> Span | None:
    """Return the span of the conditions over all hosts, if their means hide that conditions differ."""
    known = [one.span for one in parts if one.span is not None]
    if not known:
        return None
    least, most = min(known, key=lambda one: one.least), max(known, key=lambda one: one.most)
    return Span(least.least_at, least.least, most.most_at, most.most, max(one.conditions for one in known))


def _key(effect: Effect) -> tuple[object, ...]:
    condition = tuple(sorted(effect.condition.items()))
    what = (effect.workload, effect.response, effect.unit, effect.scale, effect.better)
    return (effect.kind, condition, *what, effect.factor, effect.level, effect.reference)


def _rank(row: HostRow) -> tuple[int, float, str]:
    if row.outlier is not None:
        return 0, -abs(row.outlier.distance), row.trial.host
    if row.why is not None:
        return 1, 0.0, row.trial.host
    assert row.part.estimate is not None
    return 2, row.part.estimate, row.trial.host
