"""False alarms and coverage with a look after every block, in blocks as the design makes them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from exact import rate
from iotrial.design.keyed import new_seed
from simulated import group_sequential, order, others
from simulated.noise import NOISES, Floats, Rng
from simulated.process import alarms, equivalent, first_beyond, largest, misses

ARMS, CONTROLS = 2, 2
EFFECT = 0.3
CONTROL_LEVEL = 0.001


@dataclass(frozen=True, slots=True)
class Arms:
    """The noise that each arm got: the treatments in every block, the controls in every second one (trials by blocks)."""

    plain: Floats
    treated: Floats
    plain_beside_controls: Floats
    negative: Floats
    positive: Floats

    @property
    def contrasts(self) -> Floats:
        """Return D of two identical arms."""
        return self.treated - self.plain

    def control_contrasts(self) -> tuple[Floats, Floats]:
        """Return the contrasts of the copy, and of the positive control minus the injected slowdown."""
        return self.negative - self.plain_beside_controls, self.positive - self.plain_beside_controls


class Design:
    """Blocks of two treatments, with two controls in every second block; orders by the plan's own generator."""

    def __init__(self, trials: int, blocks: int) -> None:
        self.trials, self.pairs = trials, blocks // 2
        self.slots = self.pairs * (2 * ARMS + CONTROLS)
        self._with = order.drawn_orders(new_seed(), trials, self.pairs, ARMS + CONTROLS)
        self._without = order.drawn_orders(new_seed(), trials, self.pairs, ARMS)

    def arms(self, noise: Floats) -> Arms:
        """Assign noise in time order (trials by ``slots``) to the arms."""
        cut = noise.reshape(self.trials, self.pairs, 2 * ARMS + CONTROLS)
        four = np.take_along_axis(cut[:, :, : ARMS + CONTROLS], self._with, axis=2)
        two = np.take_along_axis(cut[:, :, ARMS + CONTROLS :], self._without, axis=2)
        both = np.stack([four[:, :, :ARMS], two], axis=2).reshape(self.trials, 2 * self.pairs, ARMS)
        return Arms(both[:, :, 0], both[:, :, 1], four[:, :, 0], four[:, :, 2], four[:, :, 3])


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
            rate(alarms(d), trials),
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
        missed = misses(d + effect, effect)
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
        d = design.arms(make(rng, trials, design.slots)).contrasts
        cells = []
        for share in (0.3, 1.0):
            margin = share * float(d.std())
            cells.append(rate(int(np.isfinite(equivalent(d + margin, margin)).sum()), trials))
        out.append(f"| {name} | {' | '.join(cells)} |")
    out += [
        "",
        f"**Blocks until equivalent, no effect, normal noise: median of {max(50, int(300 * scale))} trials**",
        "",
        "| block SD at a margin of 3 % | iotrial | two-sided interval inside the margin | without the aimed bet too |",
        "| --- | --- | --- | --- |",
    ]
    limit = math.log1p(0.03)
    for sd, most in ((0.03, 100), (0.05, 300), (0.10, 800), (0.15, 1600), (0.33, 8000)):
        d = rng.normal(0.0, sd, (max(50, int(300 * scale)), most))
        found = [equivalent(d, limit)]
        for aim in (limit, 0.0):
            ends = [first_beyond(d, candidate, aim) for candidate in (limit, -limit)]
            found.append(np.maximum(*ends))
        cells = [f"{np.median(one):.0f}" if np.isfinite(np.median(one)) else f"> {most}" for one in found]
        out.append(f"| {sd:.0%} | {' | '.join(cells)} |")
    return "\n".join(out)
