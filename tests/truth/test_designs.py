"""The designs as planned: effects of simulated runs in the plan's own order, by the plan's own contrasts.

All disturbances act at once: drift, a disturbance of every second run, heavy tails, and random error shared by all
runs of a stretch. Bounds as in test_simulated.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from iotrial.design.keyed import new_seed
from iotrial.design.model import ArmKind, Term
from iotrial.design.plan import Plan
from iotrial.stats.contrast import Responses
from iotrial.stats.model import Observation, ObservedBlock
from iotrial.study.model import Better, Response, Scale, Study
from iotrial.study.reader import read_study
from simulated.noise import Rng, drifting, heavy_tailed, periodic
from simulated.process import ALPHA, alarms

TIME = Response("command", "wall", "s", Scale.LOG, Better.LOWER, primary=True)
TRIALS, BLOCKS = 120, 24
INJECTED = math.log(1.06)
AT_MOST = int(stats.binom.isf(1e-6, TRIALS, ALPHA))
#: effect on the log of the response while a factor is at its last level; f0 has none
EFFECTS = {"f1": 0.8, "f2": -0.5, "f3": 0.3, "f4": 1.1, "f5": -0.2, "f6": 0.6}


def study(design: str, factors: int, *, levels: str = '["off", "on"]', whole: str | None = None) -> Study:
    """Return a study with factors f0, f1 ...; changing ``whole`` is costly (a whole-plot factor)."""
    text = '[study]\nname = "simulated"\nquestion = "Which?"\n' + (design and f"[design]\n{design}\n")
    text += '[[workload]]\nname = "command"\nkind = "command"\nargv = ["true"]\n'
    for number in range(factors):
        name = f"f{number}"
        text += f'[[factor]]\nname = "{name}"\nknob = "environment.variable"\nvariable = "{name.upper()}"\n'
        text += f"levels = {levels}\n" + ('plot = "whole"\n' if name == whole else "")
    return read_study(text, "simulated", trusted=True)


DESIGNS = {
    "full, with interactions": study('interactions = ["all"]', 3),
    "fractional": study('kind = "fractional"\nresolution = 4', 5),
    "Plackett-Burman": study('kind = "plackett-burman"', 7),
    "Plackett-Burman in whole plots": study('kind = "plackett-burman"', 6, whole="f1"),
    "three levels": study("", 2, levels='["off", "half", "on"]'),
    "whole plots, the null factor inside": study("repeats = 3", 2, whole="f1"),
    "whole plots, the null factor whole": study("repeats = 3", 2, whole="f0"),
}


def simulated(plan: Plan, rng: Rng) -> Responses:
    """Simulate one trial."""
    blocks = [plan.block(plan.conditions[0], index) for index in range(BLOCKS)]
    slots = sum(len(block.runs) for block in blocks)
    noise = iter((periodic(rng, 1, slots) + drifting(rng, 1, slots) + heavy_tailed(rng, 1, slots))[0])
    last = {factor.name: factor.levels[-1].label for factor in plan.study.treatment_factors}
    found = []
    for block in blocks:
        luck = rng.normal(0, 4, 16)
        runs = []
        for run in block.runs:
            acts = sum(EFFECTS.get(f, 0.0) for f, label in run.arm.treatment.items() if label == last[f])
            shared = 0.0 if run.plot is None else luck[run.plot]
            log_y = next(noise) + acts + INJECTED * run.arm.stretched + shared
            values = {"wall": math.exp(log_y)}
            runs.append(
                Observation(run.arm.name, run.arm.kind, run.arm.treatment, run.slot, float(run.slot), values)
            )
        found.append(ObservedBlock("c", block.index, tuple(runs)))
    return Responses(found, TIME)


def trials_of(
    design: Study, rng: Rng, contrast: Callable[[Plan, Responses], tuple[float, ...]]
) -> np.ndarray:
    rows = []
    for _ in range(TRIALS):
        plan = Plan(design, new_seed())
        rows.append(contrast(plan, simulated(plan, rng)))
    return np.array(rows)


def of_f0(plan: Plan) -> Term:
    """Return the main effect of f0 at its last level."""
    return [term for term in plan.terms if term.factor == "f0"][-1]


@pytest.mark.parametrize("design", list(DESIGNS))
def test_a_factor_without_effect_is_not_found_and_the_controls_are_what_they_are(
    rng: Rng, design: str
) -> None:
    def contrasts(plan: Plan, responses: Responses) -> tuple[tuple[float, ...], ...]:
        null = responses.contrasts(of_f0(plan).weights, whole=of_f0(plan).whole).values
        other = next(term for term in plan.terms if term.factor == "f1" and term.level == "on")
        active = responses.contrasts(other.weights, whole=other.whole).values
        controls = plan.control_weights
        copy = responses.contrasts(
            controls[ArmKind.NEGATIVE], whole=plan.whole_plots and not plan.control_columns
        ).values
        slowed = responses.contrasts(controls[ArmKind.POSITIVE]).values
        return null, active, copy, slowed

    rows = []
    for _ in range(TRIALS):
        plan = Plan(DESIGNS[design], new_seed())
        rows.append(contrasts(plan, simulated(plan, rng)))
    null, active, copy, slowed = (np.array(column) for column in zip(*rows, strict=True))
    assert null.shape[1] >= BLOCKS
    assert alarms(null) <= AT_MOST
    assert alarms(active - EFFECTS["f1"]) <= AT_MOST
    assert alarms(copy) <= AT_MOST
    assert alarms(slowed - INJECTED) <= AT_MOST


def test_interactions_of_factors_that_only_add_up_are_not_found(rng: Rng) -> None:
    design = DESIGNS["full, with interactions"]

    def product(plan: Plan, responses: Responses) -> tuple[float, ...]:
        (term,) = (term for term in plan.terms if term.factor == "f1:f2")
        return responses.contrasts(term.weights).values

    assert alarms(trials_of(design, rng, product)) <= AT_MOST


def test_repeats_in_a_stretch_taken_for_blocks_of_a_whole_plot_factor_do_not_pass_the_same_bound(
    rng: Rng,
) -> None:
    def repeats(plan: Plan, responses: Responses) -> tuple[float, ...]:
        return responses.contrasts(of_f0(plan).weights, whole=False).values

    assert alarms(trials_of(DESIGNS["whole plots, the null factor whole"], rng, repeats)) > AT_MOST
