"""Carry-over: does a run depend on which level ran just before it?

The test is exact by randomisation, valid at any look, and needs no extra runs. "No carry-over" means that the result of a
run would be the same whatever had run before it: each arm has one result in each slot, and the random order only decides
which of them are observed. Nothing else is assumed. Results may differ between arms and slots in any way, scatter more in
one arm, drift, and depend on each other.

**Inside a block.** Reveal the order of a block from its end: the arm in the last slot, then the one before it, and so on.
Once the arms in slots s and later are known, each of the others is equally likely to be in slot s - 1, whatever the runs in
slots s and later have measured: without carry-over their results do not depend on the order before them. Bet on whether the
arm in slot s - 1 has level l. Let p be the share of the remaining arms that have it, and z how slow the run in s is for its
arm, compared with a prediction from earlier blocks and the later slots. Then

    factor = q / p  if the predecessor has level l,  (1 - q) / (1 - p)  if not,      0 < q < 1,

where q is the probability of l if runs after l were slower by d: q = p L / (p L + 1 - p), with L the likelihood ratio of z.
The expected factor is p q / p + (1 - p) (1 - q) / (1 - p) = 1 for any q that depends on z only. So the product over slots
and blocks is a non-negative martingale that starts at 1, and so is its mean over several d. A block of two runs allows no
such bet: once the last arm is known, so is the first.

**Across blocks.** The first run of a block follows the last run of the previous block, whatever its condition. The last arm
of that block is uniform over its arms, and without carry-over the results of the next block do not depend on it. A block
that has been used for such a bet is not itself bet on, so each block of a condition is in at most one pair.

Each of the two e-processes ever reaches 1/alpha with probability at most alpha (Ville's inequality).
docs/method-tables.md has the
simulations; ``tests/unit/test_carryover.py`` computes the exact means over all orders of small blocks.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from iotrial.design.model import ArmKind, Before, Condition, Term, TermKind, WashIn
from iotrial.stats.contrast import Responses, Runs, usable
from iotrial.stats.controls import on_scale
from iotrial.stats.dependence import (
    AFTER_ITSELF,
    AFTER_OTHER,
    Dependence,
    RunColumns,
    arranged,
    dependences,
    score_needed,
)
from iotrial.stats.eprocess import interval
from iotrial.stats.model import CarryOver, Effect, Observation, ObservedBlock, Unaffected, Verdict
from iotrial.stats.spec import CONTROL_LEVEL, Spec
from iotrial.stats.verdict import CARRY_OVER, SWITCH_COST
from iotrial.stats.wash_in import is_longest, judge_switching, upcoming
from iotrial.study.model import Response, Scale
from iotrial.units import format_duration

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.intp]

#: number of earlier blocks for an arm's usual result, and the minimum number of runs of the arm among them
WINDOW = 40
LEAST = 3
_FOLLOW = 0.3  # weight of the newest block in the expected level
_SHIFTS = (-3.0, -1.5, -0.6, 0.6, 1.5, 3.0)  # the alternatives d, in standard deviations of a run
_FREEDOM = 3.0  # degrees of freedom of Student's t: heavy tails, so that a stalled run counts little
_NARROWER = 0.7
_RESERVE = 0.03  # share of each bet held back
_CLIP = 3.0
_MAD = 1.4826  # standard deviation of a normal distribution over its median absolute deviation
_TINY = 1e-12
_TIMES = frozenset({"s", "ms", "us", "µs", "ns", "min", "h"})
#: scores from which a dependence puts a verdict at stake, or in doubt, and the share of the effect that it may explain
_SCORE_AT_STAKE = 4.3
_SCORE_OF_DOUBT = 2.0
_SHARE = 0.2
_LOG_LARGEST = 690.0  # exp(690) is still finite
_SLOT, _STARTED_S = attrgetter("slot"), attrgetter("started_s")


@dataclass(frozen=True, slots=True)
class Judged:
    """The carry-over control of a condition, with all that the least squares found."""

    carry_over: CarryOver
    dependences: Sequence[Dependence]


def judge_carry_over(
    spec: Spec,
    condition: Condition,
    blocks: Sequence[ObservedBlock],
    every: Sequence[ObservedBlock] = (),
    *,
    ran: Ran | None = None,
) -> Judged | None:
    """Judge the carry-over control of one condition, by the level with the most evidence against "no carry-over".

    ``blocks`` are the analysed blocks of the condition, in time order. ``every`` holds the blocks of all conditions, to
    find what ran before each block (default: ``blocks``), and ``ran`` the same as laid out for all conditions. None if there
    is nothing to compare."""
    response = spec.positive_response(condition) or spec.main_response(condition)
    if response is None or not blocks:
        return None
    every = every or blocks
    ran = ran or Ran(spec, every)
    tried = levels_tried(spec.terms)
    units = ran.units(response, blocks)
    found = paths(units, tried)
    if not found:
        return None
    alpha = CONTROL_LEVEL / (len(found) * max(1, len(spec.conditions)))
    # rounded, because the last digits differ between processors: of two that are equal up to rounding, take the first
    most = max(found, key=lambda path: round(path.largest, 9))
    passed = most.largest < math.log(1.0 / alpha)
    after = _followers(ran, condition, most)
    shift, score = _shift(response, blocks, after), 0.0
    fitted = dependences(*_table(units, tried, _references(spec.terms)))
    strongest = _strongest(fitted)
    suspected = strongest is not None and abs(strongest.score) >= score_needed(_questions(spec))
    factor, level = most.factor, most.level
    if strongest is not None:
        score = strongest.score
        if suspected and passed:
            factor, level, shift = strongest.factor, strongest.level, strongest.largest
    mine = [block for block in every if block.condition == condition.key]
    now, following = blocks[-1].wash_in, blocks[-1].wash_in
    drawing = now is not None and now.before is Before.DRAWN
    switching = None
    if any(block.wash_in is not None and block.wash_in.before is Before.DRAWN for block in mine):
        switching = judge_switching(response, mine, _before_stages(spec, response, mine, ran))
    if suspected or not passed or drawing:
        following = upcoming(spec, now, switching)
    carry_over = CarryOver(
        condition={**condition.levels, "workload": condition.workload},
        response=response.name,
        factor=factor,
        level=level,
        others=_others(spec, factor, level),
        between_blocks=most.across,
        value=on_scale(shift, response),
        unit=response.unit,
        scale=response.scale,
        e_value=math.exp(min(most.largest, _LOG_LARGEST)),
        alpha=alpha,
        passed=passed and not (suspected and is_longest(now)),
        blocks=len(set(most.keys)),
        wash_in=now,
        score=score,
        suspected=suspected,
        upcoming=following,
        switching=None if switching is None else switching.in_units(response),
        unaffected=() if passed else tuple(_unaffected(spec, condition, blocks, after)),
    )
    return Judged(carry_over, fitted)


def _before_stages(
    spec: Spec, response: Response, mine: Sequence[ObservedBlock], ran: Ran
) -> list[Dependence]:
    """Fit the runs of a condition before a wash-in, and those with drawn levels."""
    some = [block for block in mine if block.wash_in is None or block.wash_in.before is Before.DRAWN]
    return dependences(*_table(ran.units(response, some), levels_tried(spec.terms), _references(spec.terms)))


def at_stake(spec: Spec, judged: Judged, effects: Iterable[Effect]) -> CarryOver:
    """Return the control, with less evidence needed where a verdict of the condition hangs on it.

    That is a verdict on the response of the control, if what one run does to a later one is at least ``_SHARE`` of the
    effect, or half the margin where the verdict is "equivalent". A cost of switching may bias a comparison by as much, and in
    either direction. From a score of ``_SCORE_AT_STAKE`` on carry-over is then suspected, from ``_SCORE_OF_DOUBT`` on the
    trial goes on. It also goes on while a cost of switching to one of the two levels could explain the verdict."""
    one = judged.carry_over
    if one.held:
        return one
    decided = [
        effect
        for effect in effects
        if effect.response == one.response and effect.verdict is not Verdict.INCONCLUSIVE
    ]
    explicable = tuple(
        (effect.factor, effect.level)
        for effect in decided
        if _switch_could_explain(spec, judged, effect) or _rest_could_explain(spec, judged, effect)
    )
    limits = [
        math.log1p(effect.margin) / 2.0 if effect.verdict is Verdict.EQUIVALENT else _SHARE * _size(effect)
        for effect in decided
    ]
    least = min(limits, default=math.inf)
    most = _strongest([found for found in judged.dependences if abs(found.largest) >= least])
    if most is None or abs(most.score) < score_needed(_questions(spec), _SCORE_AT_STAKE):
        doubt = most is not None and abs(most.score) >= score_needed(_questions(spec), _SCORE_OF_DOUBT)
        return replace(one, doubtful=doubt or bool(explicable), explicable=explicable)
    return replace(
        one,
        factor=most.factor,
        level=most.level,
        others=_others(spec, most.factor, most.level),
        value=math.exp(most.largest) if one.scale is Scale.LOG else most.largest,
        score=most.score,
        suspected=True,
        passed=one.passed and not is_longest(one.wash_in),
        upcoming=upcoming(spec, one.wash_in, None),
    )


def _switch_could_explain(spec: Spec, judged: Judged, effect: Effect) -> bool:
    """Return whether a cost that only one of the two levels has, when it is switched to, could be all of an effect, or, of
    twice the margin, make levels look equivalent.

    It could as long as such a cost is within twice its standard error, or unknown: too few runs of the level came just after
    another run of the level."""
    tried = levels_tried(spec.terms)
    if not spec.after_itself or judged.carry_over.wash_in is not None:
        return False
    found = {(one.factor, one.level, one.pattern): one for one in judged.dependences}
    sign, limit = 0.0, 2.0 * math.log1p(effect.margin)
    if effect.verdict is not Verdict.EQUIVALENT:
        sign = 1.0 if effect.value is not None and effect.value > _neutral(effect) else -1.0
        limit = _size(effect)
    for label, way in ((effect.level, 1.0), (effect.reference, -1.0)):
        if (effect.factor, label) in tried:
            # then its runs after itself are faster
            one, way = found.get((effect.factor, label, AFTER_ITSELF)), -way
        elif (effect.factor, effect.level) in tried:
            # of two levels: then runs of the reference after the other are slower
            one = found.get((effect.factor, effect.level, AFTER_OTHER))
        else:
            continue
        if one is None:
            return True
        cost = one.size * way * sign if sign else abs(one.size)
        error = abs(one.size / one.score)
        if cost + score_needed(_questions(spec), _SCORE_OF_DOUBT) * error >= limit:
            return True
    return False


def _rest_could_explain(spec: Spec, judged: Judged, effect: Effect) -> bool:
    """Return whether 0 is no longer excluded if what a wash-in may have left is taken off the interval of an effect.

    That is what the runs before add to the effect, by any pattern, within twice its standard error."""
    near = effect.low if effect.value is not None and effect.value > _neutral(effect) else effect.high
    if judged.carry_over.wash_in is None or effect.verdict is Verdict.EQUIVALENT or near is None:
        return False
    away = math.log(near) if effect.scale is Scale.LOG else near
    sign = math.copysign(1.0, away)
    needed = score_needed(_questions(spec), _SCORE_OF_DOUBT)
    most = math.inf if not judged.dependences else 0.0
    for one in judged.dependences:
        if one.factor == effect.factor and one.level in (effect.level, effect.reference):
            added = one.size * one.exposure * (1.0 if one.level == effect.level else -1.0)
            most = max(most, added * sign + needed * abs(added / one.score))
    return most >= abs(away)


def _neutral(effect: Effect) -> float:
    return 1.0 if effect.scale is Scale.LOG else 0.0


def withholds(one: CarryOver, effect: Effect) -> str | None:
    """Return why an effect of the condition gets no verdict: because runs seem to depend on those before them, or because a
    cost of switching alone could explain it; None if it may have one.

    A direction stands if the effect is more than 1 / ``_SHARE`` times what one run does to a later one."""
    if not one.held:
        same = effect.response == one.response and (effect.factor, effect.level) in one.explicable
        return (SWITCH_COST if one.wash_in is None else CARRY_OVER) if same else None
    if not one.suspected or one.value is None or effect.scale is not one.scale:
        return CARRY_OVER
    if effect.verdict in (Verdict.EQUIVALENT, Verdict.INCONCLUSIVE):
        return CARRY_OVER
    largest = abs(math.log(one.value)) if one.scale is Scale.LOG and one.value > 0.0 else abs(one.value)
    return CARRY_OVER if largest >= _SHARE * _size(effect) or math.isinf(_size(effect)) else None


def _strongest(found: Sequence[Dependence]) -> Dependence | None:
    """Return the one with the highest score; rounded, because the last digits differ between processors."""
    return max(found, key=lambda one: round(abs(one.score), 6), default=None)


def _questions(spec: Spec) -> int:
    return len(levels_tried(spec.terms)) * len(spec.conditions)


def _size(effect: Effect) -> float:
    """Return the size of an effect on the scale of comparison; infinite if it is unknown."""
    if effect.value is None or (effect.scale is Scale.LOG and effect.value <= 0.0):
        return math.inf
    return abs(math.log(effect.value) if effect.scale is Scale.LOG else effect.value)


def _others(spec: Spec, factor: str, level: str) -> tuple[str, ...]:
    return tuple(label for name, label in _labels(spec.terms) if name == factor and label != level)


def _table(
    units: Sequence[Unit], tried: Sequence[tuple[str, str]], references: Collection[tuple[str, str]]
) -> tuple[RunColumns, dict[tuple[str, str], Floats]]:
    """Return all runs as a table, and with which probability each of its entries has each level.

    That is 0 or 1, but for an unmeasured run of another level before one of the reference: it is drawn among the others."""
    table, runs = arranged(
        [unit.values for unit in units],
        [unit.arms for unit in units],
        [unit.key for unit in units],
        [unit.own for unit in units],
        [(*unit.after_itself, *unit.after_other) for unit in units],
    )
    held = {pair: flags.astype(np.float64) for pair, flags in _with_level(units, tried).items()}
    before = {pair: values.copy() for pair, values in held.items()}
    start = 0
    for unit in units:
        for place in unit.after_other:
            neutral = all(pair in references for pair in unit.levels[place].items())
            others = [
                levels
                for levels, control in zip(unit.levels, unit.control, strict=True)
                if not control and levels != unit.levels[place]
            ]
            for (factor, level), values in before.items():
                if not neutral:
                    values[start + place] = (factor, level) in references
                elif others:
                    values[start + place] = sum(one.get(factor) == level for one in others) / len(others)
        start += len(unit.arms)
    led = np.append(runs[:-1] == runs[1:], False)
    return table, {pair: np.where(led, before[pair][runs], held[pair][runs]) for pair in held}


def _with_level(units: Sequence[Unit], tried: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Flags]:
    """Return by factor and level which runs have it, over all units one after the other."""
    found: dict[tuple[str, str], Flags] = {}
    labels: dict[str, npt.NDArray[np.object_]] = {}
    for factor, level in tried:
        if factor not in labels:
            labels[factor] = np.array(
                [one.get(factor) for unit in units for one in unit.levels], dtype=object
            )
        found[factor, level] = (labels[factor] == level).astype(bool)
    return found


def in_words(one: CarryOver) -> str:
    """Describe the finding, e.g. "runs after fs=xfs take 58 % longer than after fs=ext4: settings influence the run that
    follows"."""
    level = f"{one.factor}={one.level}"
    others = f"{one.factor}={one.others[0]}" if len(one.others) == 1 else "other levels"
    if one.value is None:
        size = f"runs after {level} differ from those after {others}"
    elif one.scale is Scale.DIFFERENCE:
        size = f"{one.response} is {one.value:+.4g} {one.unit} in runs after {level}, compared with {others}"
    else:
        percent = f"{100.0 * abs(one.value - 1.0):.{0 if abs(one.value - 1.0) >= 0.1 else 1}f} %"
        if one.unit.endswith("/s"):
            how = f"are {percent} {'faster' if one.value > 1.0 else 'slower'}"
        elif one.unit in _TIMES:
            how = f"take {percent} {'longer' if one.value > 1.0 else 'less time'}"
        else:
            how = f"have {percent} {'more' if one.value > 1.0 else 'less'} {one.response}"
        size = f"runs after {level} {how} than after {others}"
    if one.passed and not one.suspected:
        evidence = (
            f"e-value {one.e_value:.2g}, fails at {1.0 / one.alpha:,.0f}; least squares: z {one.score:+.1f}"
        )
        return f"no carry-over shown (most evidence: {size}; {evidence})"
    despite = "" if one.wash_in is None else f", despite {_runs_of(one.wash_in)} before each"
    if one.passed:
        return f"{size}{despite}: runs seem to depend on the runs before them (z {one.score:+.1f})"
    return f"{size}{despite}: settings influence the run that follows"


def wash_in_words(wash_in: WashIn) -> str:
    """Describe the unmeasured runs of a wash-in, e.g. "a neutral run comes before each measured one"."""
    come = "come" if wash_in.runs > 1 else "comes"
    return f"{_runs_of(wash_in)} {come} before each measured one"


def _runs_of(wash_in: WashIn) -> str:
    match wash_in.before:
        case Before.REFERENCE:
            return f"{wash_in.runs} neutral runs" if wash_in.runs > 1 else "a neutral run"
        case Before.SAME:
            return f"{wash_in.runs} runs of the same level" if wash_in.runs > 1 else "a run of the same level"
        case Before.DRAWN:
            return "a run of the same level or of another one, as drawn,"


def cost_in_words(one: CarryOver) -> str | None:
    """Describe what a switch costs, e.g. "a switch costs 17 % (8 ms): ..."; None if that was not found."""
    if one.switching is None:
        return None
    cost = one.switching
    if one.scale is Scale.DIFFERENCE:
        size = f"{cost.size:+.4g} {one.unit}"
    else:
        more = cost.typical * (cost.size - 1.0)
        size = f"{100.0 * abs(cost.size - 1.0):.{0 if abs(cost.size - 1.0) >= 0.1 else 1}f} %"
        seconds = one.unit == "s"
        size += f" ({format_duration(abs(more)) if seconds else f'{abs(more):.3g} {one.unit}'})"
    return (
        f"a switch costs {size}: the first run after another level, compared with one after its own. "
        "The comparison is of runs after their own level"
    )


def levels_tried(terms: Sequence[Term]) -> list[tuple[str, str]]:
    """Return the (factor, level) pairs to bet on: all levels of a factor; of two levels only the one that is not the
    reference, since "slower after one" is "faster after the other"."""
    found = _labels(terms)
    return [
        (term_factor, label)
        for term_factor, label in found
        if sum(factor == term_factor for factor, _ in found) > 2
        or (term_factor, label) not in _references(terms)
    ]


def _labels(terms: Sequence[Term]) -> list[tuple[str, str]]:
    main = [term for term in terms if term.kind is TermKind.MAIN]
    return list(
        dict.fromkeys(
            pair for term in main for pair in ((term.factor, term.reference), (term.factor, term.level))
        )
    )


def _references(terms: Sequence[Term]) -> set[tuple[str, str]]:
    return {(term.factor, term.reference) for term in terms}


class Ran:
    """The blocks of a trial in the order in which they ran, and the randomised units in them, for any of its conditions."""

    def __init__(self, spec: Spec, every: Sequence[ObservedBlock]) -> None:
        self.blocks = _in_time(every)
        whole = {term.factor for term in spec.terms if term.whole}
        self._units = [
            (block, runs, _unit(key, block, runs))
            for key, block in enumerate(self.blocks)
            for runs in _randomised_together(block, whole)
        ]

    def units(self, response: Response, blocks: Sequence[ObservedBlock]) -> list[Unit]:
        """Return the units, in the order in which they ran, with the values of these blocks; void ones have none (NaN)."""
        own = {(block.condition, block.index) for block in blocks}
        return [
            replace(unit, own=True, values=_values(block, runs, response))
            if (block.condition, block.index) in own
            else unit
            for block, runs, unit in self._units
        ]


def _randomised_together(block: ObservedBlock, whole: Collection[str]) -> list[list[Observation]]:
    parts: list[list[Observation]] = []
    arms: set[str] = set()
    plot = None
    for run in sorted(block.observations, key=_SLOT):
        held = whole and ([run.treatment.get(factor) for factor in whole], run.kind is ArmKind.NEGATIVE)
        if not parts or held != plot or run.arm in arms:
            parts.append([])
            arms.clear()
        plot = held
        arms.add(run.arm)
        parts[-1].append(run)
    return parts


def _unit(key: int, block: ObservedBlock, runs: Sequence[Observation]) -> Unit:
    drawn = block.wash_in is not None and block.wash_in.before is Before.DRAWN
    return Unit(
        key=key,
        arms=tuple([run.arm for run in runs]),
        levels=tuple([run.treatment for run in runs]),
        values=(0.0 if block.void is None else math.nan,) * len(runs),
        control=tuple([run.kind is not ArmKind.TREATMENT for run in runs]),
        own=False,
        after_itself=tuple(
            [place for place, run in enumerate(runs) if run.after_itself or (drawn and not run.after_other)]
        ),
        after_other=tuple([place for place, run in enumerate(runs) if run.after_other]),
    )


def _values(block: ObservedBlock, runs: Sequence[Observation], response: Response) -> tuple[float, ...]:
    values = [usable(run, response) for run in runs]
    return tuple([math.nan if value is None or block.void is not None else value for value in values])


def _in_time(blocks: Sequence[ObservedBlock]) -> list[ObservedBlock]:
    """Return the blocks that have runs, in the order in which they ran."""
    timed = [block for block in blocks if block.observations]
    return sorted(timed, key=lambda block: min(map(_STARTED_S, block.observations)))


def _followers(ran: Ran, condition: Condition, path: Path) -> dict[tuple[str, int], dict[int, bool]]:
    """Return, by block of the condition and slot, whether the preceding run has the level.

    The first run of a trial has no entry."""
    found: dict[tuple[str, int], dict[int, bool]] = {}
    for before_it, block in zip((None, *ran.blocks), ran.blocks, strict=False):
        if block.condition != condition.key:
            continue
        own = found.setdefault((block.condition, block.index), {})
        last = None if before_it is None else max(before_it.observations, key=_SLOT).treatment
        for run in sorted(block.observations, key=_SLOT):
            if last is not None:
                before = run.treatment if run.after_itself else last
                own[run.slot] = before.get(path.factor) == path.level
            last = run.treatment
    return found


def _shift(
    response: Response, blocks: Sequence[ObservedBlock], after: Mapping[tuple[str, int], Mapping[int, bool]]
) -> float | None:
    """Estimate how much slower runs after the level are than runs after others (``shift_after``)."""
    found = []
    for block in blocks:
        if block.void is not None:
            continue
        slots = after[block.condition, block.index]
        own = [(run, usable(run, response)) for run in block.observations if run.slot in slots]
        values = [value for _, value in own if value is not None]
        if len(values) == len(own):
            found.append((values, [run.arm for run, _ in own], [slots[run.slot] for run, _ in own]))
    return shift_after(found)


def shift_after(blocks: Iterable[tuple[Sequence[float], Sequence[str], Sequence[bool]]]) -> float | None:
    """Estimate how much larger values after a level are than after others (least squares with arm and block effects).

    Each block has its values, their arms, and whether the run before had the level. None if no block is usable, or if the
    shift is confounded with the arms' effects.
    """
    known = [block for block in blocks if len(block[0]) >= 2]
    if not known:
        return None
    sizes = np.array([len(values) for values, _, _ in known], dtype=np.intp)
    column = {name: place for place, name in enumerate(sorted({arm for _, arms, _ in known for arm in arms}))}
    runs = np.arange(sizes.sum())
    design: Floats = np.zeros((runs.size, len(column) + 1))
    design[runs, [column[arm] for _, arms, _ in known for arm in arms]] = 1.0
    design[:, -1] = [one for _, _, follows in known for one in follows]
    answer = np.array([one for values, _, _ in known for one in values], dtype=np.float64)
    for _, places in _alike(sizes, np.cumsum(sizes) - sizes):
        design[places] -= design[places].mean(axis=1, keepdims=True)
        answer[places] -= answer[places].mean(axis=1, keepdims=True)
    if np.linalg.matrix_rank(design) == np.linalg.matrix_rank(design[:, :-1]):
        return None  # following the level is confounded with the arm
    solution: Floats = np.asarray(np.linalg.lstsq(design, answer, rcond=None)[0], dtype=np.float64)
    return float(solution[-1])


def _alike(sizes: Counts, starts: Counts) -> Iterator[tuple[Counts, Counts]]:
    """Yield the units of each size: their indices, and the places of their runs (units, size). Each starts at ``starts``."""
    for size in np.unique(sizes):
        rows = np.flatnonzero(sizes == size)
        yield rows, starts[rows, None] + np.arange(size)


def _unaffected(
    spec: Spec,
    condition: Condition,
    blocks: Sequence[ObservedBlock],
    after: Mapping[tuple[str, int], Mapping[int, bool]],
) -> Iterator[Unaffected]:
    """Yield each primary comparison, estimated on the blocks in which none of its runs follows the level.

    The order selects these blocks, so the estimates are exploratory.
    """
    for response in spec.responses_of(condition, primary=True):
        for term in spec.terms:
            if not term.primary:
                continue
            clear = [
                block
                for block in blocks
                if not any(
                    run.arm in term.weights and after[block.condition, block.index].get(run.slot, False)
                    for run in block.observations
                )
            ]
            contrasts = Responses(Runs(clear), response).contrasts(term.weights, whole=term.whole)
            found = interval(contrasts.values, spec.alpha_of(term, response), margin=spec.margin_of(response))
            yield Unaffected(
                factor=term.factor,
                level=term.level,
                reference=term.reference,
                response=response.name,
                value=on_scale(found.estimate, response),
                low=on_scale(found.low, response),
                high=on_scale(found.high, response),
                scale=response.scale,
                blocks=found.blocks,
            )


@dataclass(frozen=True, slots=True)
class Unit:
    """Runs that were randomised together, in run order: a block, or one repeat in a plot of a whole-plot study.

    ``values`` are on the response's scale of comparison (NaN for a run without a value), ``control`` marks runs of control
    arms. ``levels`` are each run's labels by factor. ``own`` is false for blocks of other conditions, of which only the last
    arm matters. ``key`` is the number of the unit's block. ``after_itself``, ``after_other``: the places of the runs that an
    unmeasured run of the same arm, or of another level, precedes; without a wash-in or with drawn levels.
    """

    key: int
    arms: tuple[str, ...]
    levels: tuple[Mapping[str, str], ...]
    values: tuple[float, ...]
    control: tuple[bool, ...]
    own: bool = True
    after_itself: tuple[int, ...] = ()
    after_other: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Path:
    """The e-process against "no run depends on whether ``level`` of ``factor`` ran before it".

    ``log_e`` is ln of its value after each unit that gave a bet; ``keys`` are the blocks of these units. ``across``: between
    blocks, else inside them."""

    factor: str
    level: str
    across: bool
    log_e: Floats
    keys: tuple[int, ...]

    @property
    def largest(self) -> float:
        """ln of the largest value so far (0 if there was no bet)."""
        return max(0.0, float(self.log_e.max())) if self.log_e.size else 0.0


def paths(units: Sequence[Unit], hypotheses: Sequence[tuple[str, str]]) -> tuple[Path, ...]:
    """Compute both e-processes of each hypothesis (factor and level), from all units of a trial in time order."""
    history = _History(units)
    inside, between = _inside(history), _between(history)
    found: list[Path] = []
    for (factor, level), held in _with_level(units, dict.fromkeys(hypotheses)).items():
        found.append(_path_inside(factor, level, held, inside, history))
        found.append(_path_between(factor, level, held, between, history))
    return tuple(found)


class _History:
    """Predictions from earlier units, indexed by the number of own units already known (index 0: none)."""

    def __init__(self, units: Sequence[Unit]) -> None:
        """``units``: all of a trial; only the own ones have rows here."""
        self.units = units
        #: index among all units by row; number of runs of each unit, and place of its first run among all runs
        self.place = np.array([place for place, unit in enumerate(units) if unit.own], dtype=np.intp)
        self.sizes = np.array([len(unit.arms) for unit in units], dtype=np.intp)
        self.starts = np.cumsum(self.sizes) - self.sizes
        own = [unit for unit in units if unit.own]
        column = {name: i for i, name in enumerate(sorted({arm for unit in own for arm in unit.arms}))}
        #: of each run: the column of its arm (0 in other conditions' units), and its value
        self.column = np.array(
            [column[arm] if unit.own else 0 for unit in units for arm in unit.arms], dtype=np.intp
        )
        self.value = np.array([value for unit in units for value in unit.values], dtype=np.float64)
        treated = ~np.array([control for unit in units for control in unit.control], dtype=bool)
        values: Floats = np.full((len(own), len(column)), np.nan)
        self.level: Floats = np.full(len(own), np.nan)
        self.treatments = np.zeros(len(own), dtype=np.intp)
        for rows, here in self.alike():
            values[rows[:, None], self.column[here]] = self.value[here]
            count = self.treatments[rows] = treated[here].sum(axis=1)
            plain = treated[here] | (count == 0)[:, None]
            for number in np.unique(plain.sum(axis=1)):
                which = plain.sum(axis=1) == number
                self.level[rows[which]] = (
                    self.value[here[which]][plain[which]].reshape(-1, number).mean(axis=1)
                )
            self.level[rows[~np.isfinite(self.value[here]).all(axis=1)]] = np.nan
        count = len(own)
        # refine the level by the median over all arms: one stalled run distorts a mean of two
        rough, _, _ = _windowed(values - self.level[:, None])
        better = _median(values - rough[:count])
        complete = np.isfinite(self.level)
        self.level = np.where(complete & np.isfinite(better), better, self.level)
        apart = np.where(complete[:, None], values - self.level[:, None], np.nan)
        self.usual, self.spread, self.common = _windowed(apart)
        self.expected, self.surprise = _followed(self.level)

        # as Python squares: numpy's square may differ in the last bit
        self._within = np.array([common**2 for common in self.common.tolist()])

    def alike(self) -> Iterator[tuple[Counts, Counts]]:
        """Yield the rows of the units of each size, and the places of their runs (rows, size)."""
        return _alike(self.sizes[self.place], self.starts[self.place])

    def keys(self, rows: Counts) -> tuple[int, ...]:
        """Return the block of each row's unit."""
        return tuple([self.units[place].key for place in self.place[rows].tolist()])

    def residuals(self, known: Counts, runs: Counts) -> tuple[Floats, Floats]:
        """Return each run's distance from its arm's usual result in the ``known`` units before, and the arm's spread."""
        column = self.column[runs]
        usual, spread = self.usual[known[:, None], column], self.spread[known[:, None], column]
        return self.value[runs] - usual, spread

    def noise(self, known: Counts, rows: Counts) -> tuple[Floats, Floats]:
        """Return the variance of one run about its block's level, and of that level about its prediction.

        ``known``: how many units are known when the unit of each of the ``rows`` is predicted."""
        within = self._within[known]
        return within, np.maximum(0.0, self.surprise[known] - within / np.maximum(1, self.treatments[rows]))


def _windowed(apart: Floats) -> tuple[Floats, Floats, Floats]:
    """Return each arm's median and spread over the window before each row, and the spread common to all (rows + 1)."""
    count, arms = apart.shape
    padded = np.vstack([np.full((WINDOW, arms), np.nan), apart])
    windows = np.lib.stride_tricks.sliding_window_view(padded, WINDOW, axis=0)  # rows + 1, arms, window
    there = np.isfinite(windows).sum(axis=2)
    usual = _median(windows)
    usual[there < LEAST] = np.nan
    away = np.abs(windows - usual[:, :, None])
    # absolute deviations from a median of few numbers are biased low
    few = 1.0 + 2.0 / np.maximum(1, there)
    alone = _MAD * few * _median(away)
    together = _MAD * np.nanmax(np.where(there > 0, few, 1.0), axis=1) * _median(away.reshape(count + 1, -1))
    pooled = np.sqrt((LEAST * together[:, None] ** 2 + there * np.nan_to_num(alone) ** 2) / (LEAST + there))
    return usual, pooled, np.nan_to_num(together)


def _median(values: Floats) -> Floats:
    """Return the median over the last axis, ignoring NaN; NaN if all are NaN."""
    ordered = np.sort(values, axis=-1)
    count = np.isfinite(values).sum(axis=-1)
    low = np.take_along_axis(ordered, np.maximum(0, (count - 1) // 2)[..., None], axis=-1)[..., 0]
    high = np.take_along_axis(ordered, np.maximum(0, count // 2)[..., None], axis=-1)[..., 0]
    return np.where(count > 0, (low + high) / 2.0, np.nan)


def _followed(level: Floats) -> tuple[Floats, Floats]:
    """Return the level predicted after each number of units, and a robust mean square of the prediction errors so far."""
    expected = np.full(level.size + 1, np.nan)
    missed: list[float] = []
    seen = [0]  # number of errors after each number of units
    at = math.nan
    for row, now in enumerate(level.tolist()):
        if math.isfinite(now):
            if math.isfinite(at):
                missed.append(abs(now - at))
                at += _FOLLOW * (now - at)
            else:
                at = now
        expected[row + 1] = at
        seen.append(len(missed))
    windows = np.lib.stride_tricks.sliding_window_view(np.append(np.full(WINDOW, np.nan), missed), WINDOW)
    squares = np.array([(_MAD * middle) ** 2 for middle in np.nan_to_num(_median(windows)).tolist()])
    return expected, squares[seen]


@dataclass(frozen=True, slots=True)
class _Bets:
    """Units of one size that give bets of one kind: their rows, the places of their runs, and their ``z``.

    Inside blocks, ``z`` is by unit and slot, from the second slot on (NaN if nothing is known of the arm). Between blocks it
    is by unit, of the first run, and only units with a bet are included."""

    rows: Counts
    runs: Counts
    z: Floats


def _inside(history: _History) -> list[_Bets]:
    found = []
    for rows, runs in history.alike():
        which = np.isfinite(history.level[rows])
        if runs.shape[1] >= 3 and which.any():
            found.append(_Bets(rows[which], runs[which], _uncovered(history, rows[which], runs[which])))
    return found


def _uncovered(history: _History, rows: Counts, runs: Counts) -> Floats:
    """Return z of each run from the second slot on, predicted from earlier units and the later slots of the same unit."""
    left, spread = history.residuals(rows, runs)
    known = np.isfinite(left)
    many = _later(known.astype(float))
    total = _later(np.where(known, left, 0.0))
    within, between = history.noise(rows, rows)
    past = history.expected[rows]
    return _standardised(left, spread, past[:, None], total, many, within[:, None], between[:, None])[:, 1:]


def _later(values: Floats) -> Floats:
    """Return for each slot the sum over the slots after it."""
    return np.cumsum(values[:, ::-1], axis=1)[:, ::-1] - values


def _standardised(
    left: Floats, spread: Floats, past: Floats, total: Floats, many: Floats, within: Floats, between: Floats
) -> Floats:
    """Standardise a run's distance from its prediction by earlier units and ``many`` runs of its unit (sum ``total``)."""
    count = np.maximum(many, 1.0)
    share = np.where(many > 0, between / np.maximum(between + within / count, _TINY**2), 0.0)
    limit = _CLIP * np.sqrt(between + within / count)
    expected = past + share * np.clip(total / count - past, -limit, limit)
    variance = spread**2 + (1.0 - share) ** 2 * between + share**2 * within / count
    z: Floats = (left - expected) / np.sqrt(np.maximum(variance, _TINY**2))
    return z


def _path_inside(
    factor: str, level: str, has_level: Flags, inside: Sequence[_Bets], history: _History
) -> Path:
    gains: list[Floats] = [np.zeros((0, len(_SHIFTS)))]
    rows: list[Counts] = [np.zeros(0, dtype=np.intp)]
    for part in inside:
        held = has_level[part.runs]
        # p: share among the arms in slots before s
        share = np.cumsum(held, axis=1)[:, :-1] / np.arange(1, held.shape[1])
        factors = _log_factors(part.z, share, held[:, :-1], held.mean(axis=1, keepdims=True)).sum(axis=1)
        coin = np.any((share > 0.0) & (share < 1.0) & np.isfinite(part.z), axis=1)
        gains.append(factors[coin])
        rows.append(part.rows[coin])
    order = np.argsort(np.concatenate(rows))
    keys = history.keys(np.concatenate(rows)[order])
    return Path(factor, level, False, _log_mixture(np.concatenate(gains)[order]), keys)


def _log_factors(z: Floats, share: Floats, hit: Flags, usual: Floats) -> Floats:
    """Return ln of the factor of each bet for each shift (last axis); 0 where there is nothing to bet on."""
    shifts = np.array(_SHIFTS)
    off = z[..., None] / _NARROWER
    # an arm's usual result includes its share of runs that followed the level
    after, others = (1.0 - usual[..., None]) * shifts, -usual[..., None] * shifts
    ratio = (
        (np.log1p((off - others) ** 2 / _FREEDOM) - np.log1p((off - after) ** 2 / _FREEDOM))
        * (_FREEDOM + 1.0)
        / 2.0
    )
    fair = (share > 0.0) & (share < 1.0) & np.isfinite(z)
    p = np.where(fair, share, 0.5)[..., None]
    weight = p * np.exp(np.where(fair[..., None], ratio, 0.0))
    q = (1.0 - _RESERVE) * weight / (weight + 1.0 - p) + _RESERVE * p
    factor = np.where(hit[..., None], q / p, (1.0 - q) / (1.0 - p))
    return np.where(fair[..., None], np.log(factor), 0.0)


def _between(history: _History) -> tuple[Counts, Floats]:
    """Return the rows of the units with a first run that gives a bet on the run before it, and its z."""
    units, z = history.units, np.full(history.place.size, np.nan)
    for rows, runs in history.alike():
        before = [units[place - 1] for place in history.place[rows].tolist()]
        known = np.maximum(0, rows - np.array([unit.own for unit in before], dtype=np.intp))
        left, spread = history.residuals(known, runs)
        rest = np.isfinite(left[:, 1:])
        z[rows] = np.where(
            np.isfinite(history.level[rows]),
            _standardised(
                left[:, 0],
                spread[:, 0],
                history.expected[known],
                np.where(rest, left[:, 1:], 0.0).sum(axis=1),
                rest.sum(axis=1).astype(float),
                *history.noise(known, rows),
            ),
            np.nan,
        )
    used = -1  # the last unit with results that were used in a bet
    found = []
    for row in np.flatnonzero(np.isfinite(z)).tolist():
        place = int(history.place[row])
        previous = units[place - 1]
        if place == 0 or len(previous.arms) < 2 or (previous.own and used == place - 1):
            continue
        if all(map(math.isfinite, previous.values)):  # usability may depend on which arm came last
            used = place
            found.append(row)
    return np.array(found, dtype=np.intp), z[found]


def _path_between(
    factor: str, level: str, has_level: Flags, between: tuple[Counts, Floats], history: _History
) -> Path:
    rows, z = between
    place = history.place[rows]
    held = np.cumsum(np.append(0, has_level))
    start = history.starts[place]
    share = (held[start] - held[history.starts[place - 1]]) / history.sizes[place - 1]
    fair = (share > 0.0) & (share < 1.0)
    gains = _log_factors(z[fair], share[fair], has_level[start[fair] - 1], share[fair])
    return Path(factor, level, True, _log_mixture(gains), history.keys(rows[fair]))


def _log_mixture(gains: Floats) -> Floats:
    """Return ln of the mean over shifts of the product of factors, after each unit (``gains``: their ln by unit, shift)."""
    logs = np.cumsum(gains, axis=0)
    top = logs.max(axis=1)
    found: Floats = top + np.log(np.exp(logs - top[:, None]).mean(axis=1))
    return found
