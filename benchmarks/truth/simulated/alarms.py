"""False alarms and coverage with a look after every block, in blocks as the design makes them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from exact import rate
from iotrial.design.keyed import new_seed
from iotrial.design.plan import CONTROLS_FIRST
from simulated import group_sequential, order, others
from simulated.noise import NOISES, Floats, Rng
from simulated.process import MARGIN, alarms, equivalent, first_beyond, largest, misses

ARMS, CONTROLS = 2, 2
EFFECT = 0.3
CONTROL_LEVEL = 0.001


@dataclass(frozen=True, slots=True)
class Arms:
    """The noise that each arm got (trials by blocks), NaN for the controls in blocks without them."""

    plain: Floats
    treated: Floats
    negative: Floats
    positive: Floats

    @property
    def contrasts(self) -> Floats:
        """Return D of two identical arms."""
        return self.treated - self.plain

    @property
    def copies(self) -> Floats:
        """Return the copy of the reference less the reference."""
        return self.negative - self.plain

    def control_contrasts(self) -> tuple[Floats, Floats]:
        """Return the contrasts of the copy, and of the positive control minus the injected slowdown."""
        there = np.isfinite(self.negative[0])
        return tuple((one - self.plain)[:, there] for one in (self.negative, self.positive))  # type: ignore[return-value]


class Design:
    """Blocks of two treatments, with two controls in the first 24 and then in every second one, as a plan has them."""

    def __init__(self, trials: int, blocks: int) -> None:
        self.trials = trials
        at = np.arange(blocks)
        self._controlled = (at < CONTROLS_FIRST) | (at % 2 == 0)
        sizes = np.where(self._controlled, ARMS + CONTROLS, ARMS)
        self.slots = int(sizes.sum())
        self._starts = np.cumsum(sizes) - sizes
        few = int(self._controlled.sum())
        self._with = order.drawn_orders(new_seed(), trials, few, ARMS + CONTROLS)
        self._without = order.drawn_orders(new_seed(), trials, blocks - few, ARMS)

    def arms(self, noise: Floats) -> Arms:
        """Assign noise in time order (trials by ``slots``) to the arms."""
        found = np.full((self.trials, self._controlled.size, ARMS + CONTROLS), np.nan)
        for which, slots in ((self._controlled, self._with), (~self._controlled, self._without)):
            places = self._starts[which][None, :, None] + slots
            taken = np.take_along_axis(noise, places.reshape(self.trials, -1), axis=1)
            found[:, which, : slots.shape[2]] = taken.reshape(slots.shape)
        return Arms(*np.moveaxis(found, 2, 0))


def false_alarms(rng: Rng, scale: float) -> str:
    """Tabulate false alarms of the method, and of other tests on the very same runs."""
    trials, blocks, looks = max(50, int(2000 * scale)), 400, 10
    design = Design(trials, blocks)
    out = [
        f"**False alarms at .05: two identical arms, {trials} trials of {blocks} blocks** [95 % bounds]",
        "",
        "| noise | iotrial, a look after every block | anytime-valid t, every look | group-sequential t, 10 looks | "
        "Welch once | Welch, every look |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, make in NOISES.items():
        arms = design.arms(make(rng, trials, design.slots))
        d = arms.contrasts
        stopped = group_sequential.first_rejection(d, group_sequential.spending(looks))
        cells = [
            rate(alarms(d, copies=arms.copies), trials),
            rate(int(others.anytime_t(d).sum()), trials),
            rate(int(np.isfinite(stopped).sum()), trials),
            rate(int(others.welch_at(arms.plain, arms.treated, blocks).sum()), trials),
            rate(int(np.isfinite(others.welch_every_look(arms.plain, arms.treated)).sum()), trials),
        ]
        out.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(out)


def orders(rng: Rng, scale: float) -> str:
    """Tabulate false alarms of the same test, and of Welch's, with orders that were not randomised."""
    trials, blocks = max(50, int(1000 * scale)), 400
    out = [
        f"**Orders that were not drawn: false alarms at .05, {trials} trials of {blocks} blocks** [95 % bounds]",
        "",
        "| noise | ABABAB, iotrial's test | all of A, then all of B, iotrial's test | all of A, then all of B, Welch once |",
        "| --- | --- | --- | --- |",
    ]
    for name, make in NOISES.items():
        noise = make(rng, trials, 2 * blocks)
        cells = [
            rate(alarms(order.alternating(noise)), trials),
            rate(alarms(order.one_then_the_other(noise)), trials),
            rate(int(others.welch_at(noise[:, :blocks], noise[:, blocks:], blocks).sum()), trials),
        ]
        out.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(out)


def coverage(rng: Rng, scale: float) -> str:
    """Tabulate misses of a true effect by the reported interval, and failures of both controls."""
    trials, blocks = max(50, int(1000 * scale)), 200
    design = Design(trials, blocks)
    out = [
        f"**The interval at .05 ever misses the true effect; a control fails at .001: {trials} trials of {blocks} blocks** "
        "[95 % bounds]",
        "",
        "| noise | true effect missed | a control fails |",
        "| --- | --- | --- |",
    ]
    for name, make in NOISES.items():
        arms = design.arms(make(rng, trials, design.slots))
        d = arms.contrasts
        effect = EFFECT * float(d.std())
        failed = np.zeros(trials, dtype=bool)
        for control in arms.control_contrasts():
            failed |= largest(control) >= math.log(2 / CONTROL_LEVEL)
        missed = misses(d + effect, effect, copies=arms.copies)
        out.append(f"| {name} | {rate(missed, trials)} | {rate(int(failed.sum()), trials, 4)} |")
    return "\n".join(out)


def assumptions(rng: Rng, scale: float) -> str:
    """Test candidates other than 0, where the residual of D is symmetric, and where it is not."""
    trials, blocks = max(50, int(5000 * scale)), 400
    size = (trials, blocks)
    shapes = {
        "symmetric spikes": rng.normal(size=size) * np.where(rng.random(size) < 0.05, 20, 1),
        "growing scale": rng.normal(size=size) * np.linspace(0.2, 5, blocks),
        "skewed (exponential - 1)": rng.exponential(size=size) - 1,
    }
    out = [
        f"**D itself not normal: trials in which the true mean is ever excluded, {trials} trials of {blocks} blocks** "
        "[95 % bounds]",
        "",
        "| noise of the contrast | at .05 | at .01 | at .001 |",
        "| --- | --- | --- | --- |",
    ]
    for name, d in shapes.items():
        reached = largest(d)
        cells = [rate(int((reached >= math.log(1 / a)).sum()), trials) for a in (0.05, 0.01, 0.001)]
        out.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(out)


def equivalence(rng: Rng, scale: float) -> str:
    """Tabulate trials called equivalent at exactly the margin, and the blocks needed where there is no effect."""
    trials, blocks = max(50, int(1000 * scale)), 400
    design = Design(trials, blocks)
    out = [
        f"**Called equivalent at .05 although the effect is exactly the margin: {trials} trials of {blocks} blocks** "
        "[95 % bounds]",
        "",
        "A look after every block.",
        "",
        "| noise | margin .3 block SDs | margin 1 block SD |",
        "| --- | --- | --- |",
    ]
    for name, make in NOISES.items():
        arms = design.arms(make(rng, trials, design.slots))
        d = arms.contrasts
        cells = []
        for share in (0.3, 1.0):
            margin = share * float(d.std())
            found = equivalent(d + margin, margin, copies=arms.copies)
            cells.append(rate(int(np.isfinite(found).sum()), trials))
        out.append(f"| {name} | {' | '.join(cells)} |")
    out += [
        "",
        f"**Blocks until equivalent, no effect, normal noise: median of {max(50, int(300 * scale))} trials**",
        "",
        "| block SD at a margin of 3 % | with copies | without | two-sided interval inside the margin | "
        "without the aimed bet too |",
        "| --- | --- | --- | --- | --- |",
    ]
    limit = math.log1p(0.03)
    for sd, most in ((0.03, 100), (0.05, 300), (0.10, 800), (0.15, 1600), (0.33, 8000)):
        d, copies = normal_blocks(rng, max(50, int(300 * scale)), most, sd)
        medians = [equivalent(d, limit, copies=copies), equivalent(d, limit)]
        for aim in (limit, 0.0):
            ends = [first_beyond(d, candidate, aim) for candidate in (limit, -limit)]
            medians.append(np.maximum(*ends))
        cells = [f"{np.median(one):.0f}" if np.isfinite(np.median(one)) else f"> {most}" for one in medians]
        out.append(f"| {sd:.0%} | {' | '.join(cells)} |")
    return "\n".join(out)


def normal_blocks(rng: Rng, trials: int, blocks: int, sd: float) -> tuple[Floats, Floats]:
    """Return contrasts of SD ``sd`` without an effect, and copies less references in the blocks that a plan gives one."""
    level, reference, copy = rng.normal(0.0, sd / math.sqrt(2.0), (3, trials, blocks))
    at = np.arange(blocks)
    copied = (at < CONTROLS_FIRST) | (at % 2 == 0)
    return level - reference, np.where(copied, copy - reference, math.nan)


def unequal(rng: Rng, scale: float) -> str:
    """Tabulate errors where the level scatters more, or less, than the reference, about the same centre."""
    trials, blocks = max(50, int(2000 * scale)), 200
    design = Design(trials, blocks)
    out = [
        f"**The level scatters otherwise than the reference, same centre, at .05: {trials} trials of {blocks} blocks** "
        "[95 % bounds]",
        "",
        "A look after every block. Equivalent: although the effect is exactly the margin, .3 block SDs.",
        "",
        "| noise | SD of the level / of the reference | 0 excluded | equivalent | the same two, bets without copies |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name in ("normal", "heavy-tailed (t, 3 df)"):
        for ratio in (0.5, 2.0, 4.0):
            arms = design.arms(NOISES[name](rng, trials, design.slots))
            d = ratio * arms.treated - arms.plain
            margin = MARGIN * float(d.std())
            cells = []
            for copies in (arms.copies, None):
                called = equivalent(d + margin, margin, copies=copies)
                cells += [
                    rate(alarms(d, copies=copies), trials),
                    rate(int(np.isfinite(called).sum()), trials),
                ]
            out.append(f"| {name} | {ratio:g} | {cells[0]} | {cells[1]} | {cells[2]}; {cells[3]} |")
    return "\n".join(out)


def detection(rng: Rng, scale: float) -> str:
    """Tabulate the blocks until 0 is excluded, with and without the copies."""
    trials = max(50, int(600 * scale))
    out = [
        f"**Blocks until an effect is seen (0 excluded), normal noise: median of {trials} trials**",
        "",
        "One of 16 comparisons has alpha .05/16; *beyond* is the block from which its interval lies beyond a margin of 3 %.",
        "",
        "| effect | block SD | alone: with copies / without | one of 16: with copies / without | one of 16, beyond |",
        "| --- | --- | --- | --- | --- |",
    ]
    limit = math.log1p(0.03)
    for effect, sd, blocks in ((0.05, 0.10, 400), (0.10, 0.10, 150), (0.10, 0.05, 60), (1.0, 0.10, 40)):
        d, copies = normal_blocks(rng, trials, blocks, sd)
        d = d + math.log1p(effect)
        cells = []
        for alpha in (0.05, 0.05 / 16):
            both = (first_beyond(d, 0.0, limit, alpha, copies=one) for one in (copies, None))
            cells.append(" / ".join(f"{np.median(one):.0f}" for one in both))
        both = (first_beyond(d, limit, limit, 0.05 / 16, copies=one) for one in (copies, None))
        cells.append(" / ".join(f"{np.median(one):.0f}" for one in both))
        out.append(f"| {effect:.0%} | {sd:.0%} | {' | '.join(cells)} |")
    return "\n".join(out)
