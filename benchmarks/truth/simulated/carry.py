"""Carry-over: how often its rules disturb valid trials, how soon they find it, and what is published then.

``carry_over`` is about the exact bets alone. ``dependence_table`` is about the least squares that start the wash-in, and
``stages_table`` conducts whole trials through the stages of the wash-in.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
from msgspec import structs

from exact import rate
from iotrial.design.keyed import Stream, new_seed
from iotrial.design.model import ArmKind, WashIn
from iotrial.design.plan import Plan
from iotrial.stats.analyse import look_due
from iotrial.stats.carryover import Unit, at_stake, judge_carry_over, paths, withholds
from iotrial.stats.contrast import Responses, Runs
from iotrial.stats.dependence import SCORE, RunColumns, dependences
from iotrial.stats.eprocess import interval
from iotrial.stats.model import CarryOver, Observation, ObservedBlock, Verdict
from iotrial.stats.run_statistics import mean_run
from iotrial.stats.skew import CAP, contradicts, typical_interval
from iotrial.stats.spec import Spec
from iotrial.stats.verdict import judge
from iotrial.stats.wash_in import is_longest, judged
from iotrial.study.model import (
    Better,
    Budget,
    Factor,
    LabSpec,
    Level,
    Response,
    Role,
    Scale,
    Setting,
    Study,
    Workload,
)
from iotrial.workloads.files import FilesWork
from simulated.noise import NOISES, Floats, Noise, Rng
from simulated.process import largest

BLOCK_SD = 0.05
EFFECT = math.log(1.3)
SLOWED = math.log(1.06)
CARRY = math.log(1.1)
LEVEL = 0.001 / 2  # one level, inside blocks and across them
CONTROLS_FIRST = 24
ARMS = ("A", "B", "copy", "slowed")


def carry_over(rng: Rng, scale: float) -> str:
    """Simulate two arms and their controls as the plan draws them: in the first 24 blocks, then in every second."""
    trials, blocks = max(20, int(1000 * scale)), 100
    out = [
        f"**Carry-over control at .001: {trials} trials of {blocks} blocks of two arms and their controls, block SD 5 %** "
        "[95 % bounds]",
        "",
        "Sound: one arm 30 % slower, no carry-over. Planted: no effect, but the run after one of the arms takes 10 % longer.",
        "",
        "| noise | sound: fires | planted: fires | at block: median, 90 % | planted: arms told apart |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, make in NOISES.items():
        noise = make(rng, trials, blocks * len(ARMS))
        # robust scale of a difference inside a block, for any tails
        noise *= BLOCK_SD / (1.4826 * float(np.median(np.abs(np.diff(noise, axis=1)))))
        seed = new_seed()
        orders = [_orders(seed, trial, blocks) for trial in range(trials)]
        sound = [_fires(_trial(row, order, EFFECT, 0.0)) for row, order in zip(noise, orders, strict=True)]
        units = [_trial(row, order, 0.0, CARRY) for row, order in zip(noise, orders, strict=True)]
        planted = np.array([_fires(one) for one in units])
        fired = np.isfinite(planted)
        told = int((largest(np.array([_contrasts(one) for one in units])) >= math.log(1 / 0.05)).sum())
        when = np.sort(planted)
        soon = f"{when[trials // 2]:.0f}, {when[9 * trials // 10]:.0f}"
        cells = [rate(int(np.isfinite(sound).sum()), trials, 4), rate(int(fired.sum()), trials)]
        out.append(f"| {name} | {' | '.join(cells)} | {soon} | {rate(told, trials)} |")
    return "\n".join(out)


def _orders(seed: str, trial: int, blocks: int) -> list[tuple[str, ...]]:
    """Return the order of each block, by the plan's own generator."""
    found = []
    for block in range(blocks):
        arms = ARMS if block < CONTROLS_FIRST or block % 2 == 0 else ARMS[:2]
        drawn = Stream(seed, "order", f"trial={trial}", block).permutation(len(arms))
        found.append(tuple(arms[i] for i in drawn))
    return found


def _trial(noise: Floats, orders: Sequence[tuple[str, ...]], effect: float, carry: float) -> list[Unit]:
    """Return the blocks of one trial: noise in time order, plus the effects of arms and predecessors."""
    own = {"A": 0.0, "B": effect, "copy": 0.0, "slowed": SLOWED}
    found, at, before = [], 0, ""
    for key, order in enumerate(orders):
        values = []
        for arm in order:
            values.append(float(noise[at]) + own[arm] + (carry if before == "B" else 0.0))
            at, before = at + 1, arm
        levels = tuple({"arm": "B" if arm == "B" else "A"} for arm in order)
        control = tuple(arm in ARMS[2:] for arm in order)
        found.append(Unit(key, order, levels, tuple(values), control))
    return found


def _fires(units: Sequence[Unit]) -> float:
    """Return the number of blocks after which one of the two processes reaches its level; infinite if none does."""
    found = math.inf
    for path in paths(units, [("arm", "B")]):
        above = np.flatnonzero(path.log_e >= math.log(1 / LEVEL))
        if above.size:
            found = min(found, path.keys[int(above[0])] + 1.0)
    return found


def _contrasts(units: Sequence[Unit]) -> list[float]:
    return [unit.values[unit.arms.index("B")] - unit.values[unit.arms.index("A")] for unit in units]


# the least squares: sound trials

RUN_SD = 0.035


def _exponential(rng: Rng, trials: int, slots: int) -> Floats:
    return rng.exponential(size=(trials, slots))


def _lognormal(rng: Rng, trials: int, slots: int) -> Floats:
    return np.exp(rng.normal(size=(trials, slots)))


def _two_modes(rng: Rng, trials: int, slots: int) -> Floats:
    return rng.normal(size=(trials, slots)) + 8.0 * (rng.random((trials, slots)) < 0.3)


def _in_pairs(rng: Rng, trials: int, slots: int) -> Floats:
    """Pairs of runs that share a disturbance, out of step with the blocks."""
    shared = np.repeat(rng.standard_t(3, size=(trials, slots // 2 + 1)), 2, axis=1)[:, 1 : slots + 1]
    return shared + 0.3 * rng.normal(size=(trials, slots))


def _phases(rng: Rng, trials: int, slots: int) -> Floats:
    """Quiet and loud phases of some 30 runs, four times as noisy."""
    loud = np.repeat(rng.random((trials, slots // 30 + 1)) < 0.5, 30, axis=1)[:, :slots]
    return rng.normal(size=(trials, slots)) * np.where(loud, 4.0, 1.0)


def _sawtooth(rng: Rng, trials: int, slots: int) -> Floats:
    """A level that climbs for 5 to 12 runs and falls back, as between two flushes."""
    period = rng.integers(5, 13, size=(trials, 1))
    at = (np.arange(slots) + rng.integers(0, 12, size=(trials, 1))) % period
    return 4.0 * at / period + rng.normal(size=(trials, slots))


#: those with which the rule was set, and those kept for the table
SET_WITH: dict[str, Noise] = {
    **NOISES,
    "exponential": _exponential,
    "lognormal": _lognormal,
    "two modes": _two_modes,
}
HELD_OUT: dict[str, Noise] = {"in pairs": _in_pairs, "loud phases": _phases, "sawtooth": _sawtooth}


def _scaled(noise: Floats) -> Floats:
    """Scale to a run's standard deviation, by a robust scale of neighbouring differences."""
    return noise * RUN_SD * math.sqrt(2.0) / (1.4826 * float(np.median(np.abs(np.diff(noise, axis=1)))))


def dependence_table(rng: Rng, scale: float) -> str:
    """Simulate sound trials, with the least squares at every look that is due."""
    trials, blocks = max(20, int(2000 * scale)), 200
    out = [
        f"**Least squares on the runs before: {trials} sound trials of {blocks} blocks of two arms and their controls, "
        f"looks as in a trial** [95 % bounds]",
        "",
        f"An effect of 10 %. The rule fires at a score of {SCORE:g}.",
        "",
        "| noise | fires | largest score: median, 99 % |",
        "| --- | --- | --- |",
    ]
    for name, make in {**SET_WITH, **HELD_OUT}.items():
        noise = _scaled(make(rng, trials, blocks * len(ARMS)))
        seed = new_seed()
        largest = np.array([_largest(row, _orders(seed, trial, blocks)) for trial, row in enumerate(noise)])
        high = rate(int((largest >= SCORE).sum()), trials, 4)
        out.append(f"| {name} | {high} | {np.median(largest):.1f}, {np.quantile(largest, 0.99):.1f} |")
    return "\n".join(out)


def _largest(noise: Floats, orders: Sequence[tuple[str, ...]]) -> float:
    """Return the largest score at any look of a sound trial in which B is 10 % slower."""
    own = {"A": 0.0, "B": math.log(1.1), "copy": 0.0, "slowed": SLOWED}
    arms = [arm for order in orders for arm in order]
    block = np.repeat(np.arange(len(orders)), [len(order) for order in orders])
    value = noise[: len(arms)] + np.array([own[arm] for arm in arms])
    codes = np.array([ARMS.index(arm) for arm in arms])
    slot = np.concatenate([np.arange(len(order)) for order in orders])
    most, last = 0.0, 0
    for done in range(1, len(orders) + 1):
        if done < 3 or not look_due(done, last):
            continue
        last = done
        which = block < done
        table = RunColumns(
            value[which],
            codes[which],
            block[which],
            block[which],
            slot[which],
            np.ones(which.sum(), dtype=bool),
        )
        found = dependences(table, {("arm", "B"): codes[which] == ARMS.index("B")})
        most = max([most, *(abs(one.score) for one in found)])
    return most


# whole trials, through the stages of the wash-in


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run stands: the runs before it (newest first; true with the level), its own level, whether it is the first of
    its block."""

    before: Sequence[bool]
    own: bool
    first: bool


#: what earlier runs add to the logarithm of a run's time
Mechanism = Callable[[Place], float]
MOST_BLOCKS = 200


def kernel(*sizes: float) -> Mechanism:
    """Return carry-over: a run is longer by each of these shares if the run at that lag had the level."""
    logs = [math.log1p(size) for size in sizes]
    return lambda at: sum(size for size, held in zip(logs, at.before, strict=False) if held)


def decay(size: float, factor: float, lags: int) -> Mechanism:
    """Return carry-over that shrinks by a factor from run to run."""
    return kernel(*(size * factor**lag for lag in range(lags)))


def switch(cost: float, *, to: bool | None = None) -> Mechanism:
    """Return a cost of switching, or only of switching to (or away from) the level."""
    size = math.log1p(cost)
    return lambda at: size * (bool(at.before) and at.before[0] != at.own and to in (None, at.own))


def borders(size: float) -> Mechanism:
    """Return carry-over into the first run of a block alone."""
    return lambda at: math.log1p(size) * (at.first and bool(at.before) and at.before[0])


def drawn(rng: Rng) -> Mechanism:
    """Return carry-over with a size of 5 to 25 % that shrinks by .3 to .9 from run to run."""
    return decay(rng.uniform(0.05, 0.25), rng.uniform(0.3, 0.9), 6)


def written(rng: Rng, share: float = 0.3, cost: float = 0.1) -> Mechanism:
    """Return carry-over by what earlier runs wrote: a random amount, five times as much with the level; a ``share`` of what
    is left to write stays from run to run. The median amount of a run with the level costs ``cost``."""
    left = 0.0

    def more(at: Place) -> float:
        nonlocal left
        amount = rng.lognormal(0.0, 0.5) * (1.0 if at.before[0] else 0.2) if at.before else 0.0
        left = left * share + amount
        return math.log1p(cost * left)

    return more


def any_kernel(rng: Rng) -> Mechanism:
    """Return carry-over of -8 to 16 % from each of up to three of the last six runs."""
    lags = rng.choice(6, size=rng.integers(1, 4), replace=False)
    sizes = np.zeros(6)
    sizes[lags] = rng.uniform(-0.08, 0.16, size=lags.size)
    return kernel(*sizes)


def any_border(rng: Rng) -> Mechanism:
    """Return carry-over of 5 to 30 % into a block's first run alone."""
    return borders(rng.uniform(0.05, 0.3))


def any_amount(rng: Rng) -> Mechanism:
    """Return carry-over by what earlier runs wrote: .2 to .7 of it stays from run to run, and costs 3 to 15 %."""
    return written(rng, share=rng.uniform(0.2, 0.7), cost=rng.uniform(0.03, 0.15))


def any_switch(rng: Rng) -> Mechanism:
    """Return a cost of 4 to 30 % of switching in both directions, or in one."""
    return switch(rng.uniform(0.04, 0.3), to=(None, True, False)[rng.integers(3)])


def always(mechanism: Mechanism) -> Callable[[Rng], Mechanism]:
    """Return a maker of this mechanism, in which nothing is random."""
    return lambda _rng: mechanism


@dataclass(frozen=True, slots=True)
class Case:
    """A mechanism with the effect of the level itself (of runs in the steady state, for a cost of switching)."""

    name: str
    make: Callable[[Rng], Mechanism]
    effect: float = 0.0


REPORTED = (
    Case("after B 20 %, two runs", always(kernel(0.2, 0.2))),
    Case("after B 10 %, two runs", always(kernel(0.1, 0.1))),
    Case("after B 10 %, three runs", always(kernel(0.1, 0.1, 0.1))),
    Case("after B 10 %, halving", always(decay(0.1, 0.5, 10))),
    Case("after B 5 %, one run", always(kernel(0.05))),
    Case("after B 8 %, shrinking by .7 a run", always(decay(0.08, 0.7, 6))),
    Case("a switch costs 8 %", always(switch(0.08))),
    Case("B 15 % faster, a switch costs 20 %", always(switch(0.2)), math.log(0.85)),
)
#: kept for the table, not used to set the rule
OTHERS = (
    Case("after B 12 %, shrinking by .4 a run", always(decay(0.12, 0.4, 6))),
    Case("after B 7 %, shrinking by .6 a run", always(decay(0.07, 0.6, 6))),
    Case("after B 9 %, shrinking by .8 a run", always(decay(0.09, 0.8, 6))),
    Case("after B 5 to 25 %, shrinking by .3 to .9, drawn", drawn),
    Case("after B 10 %, but only the run after next", always(kernel(0.0, 0.1))),
    Case("15 %, only into a block's first run", always(borders(0.15))),
    Case("by bytes written before, 10 %", written),
    Case("a switch costs 12 %", always(switch(0.12))),
    Case("B 20 % faster, a switch costs 15 %", always(switch(0.15)), math.log(0.8)),
    Case("only the switch back costs, 15 %", always(switch(0.15, to=False))),
    Case("only the switch to B costs, 15 %", always(switch(0.15, to=True))),
    Case("only the switch to B costs, 5 %", always(switch(0.05, to=True))),
)
#: with two more levels that do nothing
WITH_FOUR = (
    Case("sound, no effect", always(kernel())),
    Case("sound, B 10 % slower", always(kernel()), math.log(1.1)),
    Case("only the switch to B costs, 5 %", always(switch(0.05, to=True))),
    Case("only the switch to B costs, 15 %", always(switch(0.15, to=True))),
    Case("only the switch back costs, 15 %", always(switch(0.15, to=False))),
)
SOUND = (
    Case("sound, no effect", always(kernel())),
    Case("sound, B 4 % slower", always(kernel()), math.log(1.04)),
    Case("sound, B 10 % slower", always(kernel()), math.log(1.1)),
)


@dataclass(frozen=True, slots=True)
class Published:
    """How a conducted trial ended. ``stages``: each wash-in, None first. ``runs``: with the unmeasured ones."""

    verdict: Verdict | None
    low: float
    high: float
    blocks: int
    runs: int
    stages: tuple[WashIn | None, ...]
    carry_over: CarryOver

    def wrong(self, effect: float) -> bool:
        """Whether a valid trial published a direction or an equivalence that is not true."""
        if self.verdict is None or self.verdict is Verdict.INCONCLUSIVE:
            return False
        if self.verdict is Verdict.EQUIVALENT:
            return abs(effect) > math.log1p(STUDY.margin)
        return (self.verdict is Verdict.SLOWER) is not (effect > 0.0) or effect == 0.0


STUDY = Study(
    name="two",
    title="",
    question="",
    why="",
    margin=0.03,
    alpha=0.05,
    lab=LabSpec(),
    budget=Budget(),
    factors=(
        Factor(
            "arm",
            Role.TREATMENT,
            (Level("A", (Setting("knob", "A"),)), Level("B", (Setting("knob", "B"),))),
            "A",
            ("A", "B"),
        ),
    ),
    fixed=(),
    workloads=(Workload("w", "files", FilesWork(operations=("read",), files=5, pool=5)),),
    claims=(),
    text="",
    origin="",
    responses=(Response("w", "wall", "s", Scale.LOG, Better.LOWER, primary=True),),
)


#: the same with two more levels, which do nothing
FOUR = structs.replace(
    STUDY,
    factors=(
        Factor(
            "arm",
            Role.TREATMENT,
            tuple(Level(label, (Setting("knob", label),)) for label in "ABCD"),
            "A",
            tuple("ABCD"),
        ),
    ),
)


def conduct(
    case: Case, rng: Rng, noise: Iterator[float], *, blocks: int = MOST_BLOCKS, study: Study = STUDY
) -> Published:
    """Conduct one trial as the conductor does, until B is decided. The controls are taken as seen and passed."""
    seed = "".join(f"{byte:02x}" for byte in rng.bytes(16))
    plan = Plan(study, seed, controls_first=CONTROLS_FIRST, after_itself=True)
    spec, condition, mechanism = Spec.from_plan(plan), plan.conditions[0], case.make(rng)
    done: list[ObservedBlock] = []
    stages: list[WashIn | None] = [None]
    past: list[bool] = []
    look, runs, last = None, 0, 0

    def run(label: str, *, first: bool) -> float:
        nonlocal runs
        own = label == "B"
        value = next(noise) + mechanism(Place(past, own, first)) + case.effect * own
        past.insert(0, own)
        del past[12:]
        runs += 1
        return value

    for index in range(blocks):
        wash_in = None if look is None else look[0].upcoming
        if wash_in != stages[-1]:
            stages.append(wash_in)
        observations = []
        block = plan.block(condition, index)
        for planned in block.runs:
            other = False
            after_itself = wash_in is None and planned.slot in block.after_itself
            if after_itself:
                run(planned.arm.treatment["arm"], first=planned.slot == 0)
            if wash_in is not None:
                lead, other = plan.wash_in(wash_in, condition, index, planned)
                for _ in range(wash_in.runs):
                    run(lead.arm.treatment["arm"], first=False)
            value = run(planned.arm.treatment["arm"], first=planned.slot == 0)
            value += SLOWED * (planned.arm.kind is ArmKind.POSITIVE)
            observations.append(
                Observation(
                    planned.arm.name, planned.arm.kind, planned.arm.treatment, planned.slot, float(runs),
                    {"wall": math.exp(value)}, after_other=other,
                    after_itself=after_itself,
                )
            )  # fmt: skip
        done.append(ObservedBlock(condition.key, index, tuple(observations), wash_in=wash_in))
        if look_due(index + 1, last) or index + 1 == blocks:
            last = index + 1
            look = _look(spec, done)
            if look[2]:
                break
    assert look is not None
    carry, (verdict, low, high), _ = look
    return Published(verdict if carry.passed else None, low, high, last, runs, tuple(stages), carry)


def _look(spec: Spec, done: Sequence[ObservedBlock]) -> tuple[CarryOver, tuple[Verdict, float, float], bool]:
    """Return the carry-over control, the verdict with its interval, and whether the trial ends, as ``analyse_condition``
    does (tests/truth/test_simulated_stages.py); only faster."""
    counted = judged(done)
    control = judge_carry_over(spec, spec.conditions[0], counted, done)
    assert control is not None
    carry = control.carry_over
    if carry.held:
        return (
            carry,
            (Verdict.INCONCLUSIVE, -math.inf, math.inf),
            not carry.passed and is_longest(carry.wash_in),
        )
    response, term = spec.responses[0], spec.terms[0]
    alpha, margin = spec.alpha_of(term, response), spec.margin_of(response)
    table = Responses(Runs(counted), response)
    contrasts = table.contrasts(term.weights, copy=spec.copy_of_reference(term, response))
    pairs = table.pairs(term)
    found = interval(contrasts.values, alpha, margin=margin, copies=contrasts.copies)
    found = typical_interval(found, contrasts.values, pairs, response, alpha, margin)
    judgement = judge(
        found,
        response,
        margin=spec.margin,
        contradicted=contradicts(pairs, found),
        means=mean_run(pairs, alpha, cap=CAP, margin=spec.margin),
    )
    effect = SimpleNamespace(
        factor=term.factor,
        level=term.level,
        reference=term.reference,
        response=response.name,
        verdict=judgement.verdict,
        value=None if found.estimate is None else math.exp(found.estimate),
        low=None if found.low is None else math.exp(found.low),
        high=None if found.high is None else math.exp(found.high),
        scale=response.scale,
        margin=spec.margin,
    )
    carry = at_stake(spec, control, [effect])  # type: ignore[list-item]
    low, high = (
        (-math.inf if found.low is None else found.low),
        (math.inf if found.high is None else found.high),
    )
    lost = not carry.passed and is_longest(carry.wash_in)
    ends = judgement.decided and carry.passed and not carry.held and not carry.doubtful
    verdict = Verdict.INCONCLUSIVE if withholds(carry, effect) else judgement.verdict  # type: ignore[arg-type]
    return carry, (verdict, low, high), ends or lost


_HEAD = (
    "| | wash-in begins | published wrong | equivalent | undecided | invalid | last stage | blocks: median, 90 % | "
    "runs: median |",
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
)


def stages_table(rng: Rng, scale: float) -> str:
    """Conduct trials with carry-over, with a cost of switching, and with neither."""
    trials = max(10, int(200 * scale))
    out = [
        f"**Trials of two arms through the stages of the wash-in: {trials} a row, run SD {100 * RUN_SD:g} %, at most "
        f"{MOST_BLOCKS} blocks** [95 % bounds]",
        "",
        "No effect of B unless the row says so. Wrong: a valid trial published a direction or an equivalence that is not "
        "true; a sound trial may do so with probability .05.",
        "",
        *_HEAD,
    ]
    for case in (*SOUND, *REPORTED, *OTHERS):
        found = [(conduct(case, rng, _normal(rng)), case.effect) for _ in range(trials)]
        out.append(_row(case.name, found))
    for case in WITH_FOUR:
        found = [(conduct(case, rng, _normal(rng), study=FOUR), case.effect) for _ in range(trials)]
        out.append(_row(f"four levels: {case.name}", found))
    return "\n".join(out)


#: mechanisms to draw, never used to set a rule
DRAWN = (
    Case("after B 5 to 25 %, shrinking by .3 to .9 a run, six runs", drawn),
    Case("after B -8 to 16 %, from up to three of the last six runs", any_kernel),
    Case("5 to 30 %, only into a block's first run", any_border),
    Case("by bytes written before, 3 to 15 %, .2 to .7 of it stays", any_amount),
    Case("a switch costs 4 to 30 %, to B, back or both", any_switch),
)
SOUND_NOISES = ("normal", "heavy-tailed (t, 3 df)", "autocorrelated (.9)", "lognormal", "sawtooth")


def held_out_table(rng: Rng, scale: float) -> str:
    """Conduct trials with mechanisms drawn from the ``rng``, and sound ones in several noises."""
    trials = max(4, int(50 * scale))
    out = [
        f"**Mechanisms drawn for each trial, judged once and not used to set the rules: {trials} trials a row, run SD "
        f"{100 * RUN_SD:g} %, at most {MOST_BLOCKS} blocks** [95 % bounds]",
        "",
        "Columns as above. Half of the trials have no effect of B, in the others B is 6 % slower; margin 3 %.",
        "",
        *_HEAD,
    ]
    every: dict[str, list[tuple[Published, float]]] = {}
    for levels, study in (("two", STUDY), ("four", FOUR)):
        for case in DRAWN:
            effects = [math.log(1.06) * (trial % 2) for trial in range(trials)]
            found = [
                (conduct(replace(case, effect=effect), rng, _normal(rng), study=study), effect)
                for effect in effects
            ]
            every.setdefault(levels, []).extend(found)
            out.append(_row(f"{levels} levels: {case.name}", found))
    out += [_row(f"{levels} levels: all of these", found) for levels, found in every.items()]
    out.append(_row("all", [one for found in every.values() for one in found]))
    for name in SOUND_NOISES:
        make = {**SET_WITH, **HELD_OUT}[name]
        sound = []
        for trial in range(trials):
            effect = math.log(1.06) * (trial % 2)
            noise = iter(_scaled(make(rng, 1, 12_000))[0].tolist())
            sound.append((conduct(Case(name, always(kernel()), effect), rng, noise), effect))
        every.setdefault("sound", []).extend(sound)
        out.append(_row(f"sound, {name}", sound))
    out.append(_row("sound, all", every["sound"]))
    return "\n".join(out)


def _normal(rng: Rng) -> Iterator[float]:
    while True:
        yield from rng.normal(0.0, RUN_SD, size=500).tolist()


def _row(name: str, judged: Sequence[tuple[Published, float]]) -> str:
    """Return the row of trials, each with the true effect."""
    trials, number = [one for one, _ in judged], len(judged)
    stages = Counter(_stage(one.stages[-1]) for one in trials)
    blocks, runs = ([getattr(one, name) for one in trials] for name in ("blocks", "runs"))
    cells = [
        name,
        rate(sum(len(one.stages) > 1 for one in trials), number),
        rate(sum(one.wrong(effect) for one, effect in judged), number),
        f"{sum(one.verdict is Verdict.EQUIVALENT for one in trials) / number:.2f}",
        f"{sum(one.verdict is Verdict.INCONCLUSIVE for one in trials) / number:.2f}",
        f"{sum(one.verdict is None for one in trials) / number:.2f}",
        ", ".join(f"{name} {count / number:.2f}" for name, count in stages.most_common(3)),
        f"{np.median(blocks):.0f}, {np.quantile(blocks, 0.9):.0f}",
        f"{np.median(runs):.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def _stage(wash_in: WashIn | None) -> str:
    return "none" if wash_in is None else f"{wash_in.runs} {wash_in.before}"
