"""Run one trial of a cell through the real conductor, with a known slowdown in one arm.

Afterwards the same number of runs is made in hyperfine's order.

It does two things that a user cannot, both from outside: the runner requests a stretch of the treated arm too, as it
does for the positive control; and the conductor, when it has finished, makes the runs in hyperfine's order while lab,
probe and files are still those of the trial.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from scipy import stats

from iotrial.design.model import PlannedRun
from iotrial.design.plan import Plan
from iotrial.runner import planning, start
from iotrial.runner.progress import Silent
from iotrial.runner.resolve import resolve
from iotrial.runner.run import Runner
from iotrial.runner.trial import Conductor, Limits
from iotrial.stats.analyse import Spec, analyse, analyse_condition
from iotrial.stats.betting import log_paths
from iotrial.stats.contrast import Responses
from iotrial.stats.model import ObservedBlock
from iotrial.store import Store
from iotrial.store.model import TrialState
from iotrial.study.reader import load
from trials.cells import IDENTICAL_BLOCKS, IDENTICAL_SECONDS, INJECTED_SECONDS, Cell

STUDIES = Path(__file__).resolve().parent / "studies"
FACTOR, PLAIN, TREATED = "label", "plain", "treated"


@dataclass(slots=True)
class Beside:
    """Measurements in hyperfine's order: seconds of the runs, all of one arm and then all of the other."""

    first: list[float] = field(default_factory=list)
    second: list[float] = field(default_factory=list)
    failures: int = 0
    seconds: float = 0.0

    def facts(self, alpha: float) -> dict[str, Any]:
        """Return the facts for the record. ``different``: whether Welch's test rejects at alpha; None with too few runs."""
        p = None
        if min(len(self.first), len(self.second)) >= 2:
            p = float(stats.ttest_ind(self.first, self.second, equal_var=False).pvalue)
        return {
            "runs_each": len(self.first),
            "failures": self.failures,
            "p": None if p is None or math.isnan(p) else p,
            "different": None if p is None or math.isnan(p) else p <= alpha,
            "seconds": round(self.seconds, 3),
        }


class StretchedRunner(Runner):
    """Slows the treated arm down by the factor 1 + ``slowdown``; otherwise the conductor's own runner."""

    def __init__(self, *arguments: Any, slowdown: float, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._slowdown = slowdown
        self._treated = False

    def run(self, condition: Any, run: PlannedRun, **named: Any) -> Any:
        self._treated = run.arm.treatment[FACTOR] == TREATED
        return super().run(condition, run, **named)

    def _measure(self, context: Any, workload: Any, stretch: float, *more: Any) -> dict[str, Any]:
        own = self._slowdown if self._treated else 0.0
        return super()._measure(context, workload, own + stretch + own * stretch, *more)


def conductor_of(cell: Cell, beside: Beside | None) -> Callable[..., Conductor]:
    """Return a factory of a cell's conductor, which fills ``beside`` once it has finished."""

    class TruthConductor(Conductor):
        def __init__(self, session: Any, plan: Plan, spec: Spec, *arguments: Any) -> None:
            super().__init__(session, plan, spec, *arguments)
            self._runner = StretchedRunner(session, injected=spec.injected, slowdown=cell.injected)

        def run(self) -> TrialState:
            state = super().run()
            if beside is not None:
                self._all_of_one_then_all_of_the_other(beside)
            return state

        def _all_of_one_then_all_of_the_other(self, found: Beside) -> None:
            """Run each arm as many times as there were blocks, on the same files."""
            began = time.monotonic()
            (line,) = self._lines.values()
            treatments = [
                run for run in self._plan.block(line.condition, 0).runs if run.arm in self._plan.treatments
            ]
            files = treatments[0].files
            response = self._plan.responses(line.condition.workload)[0].name
            for run, times in zip(treatments, (found.first, found.second), strict=True):
                for slot in range(line.complete):
                    with self._signals.interruptible():
                        planned = PlannedRun(slot, run.arm, files)
                        outcome = self._runner.run(line.condition, planned, block=0)
                    if outcome.failure is None and response in outcome.responses:
                        times.append(outcome.responses[response])
                    else:
                        found.failures += 1
                    self._signals.check()
            found.seconds = time.monotonic() - began

    return TruthConductor


def limits_of(cell: Cell) -> Limits:
    """Identical arms run to the end of their blocks or seconds, whatever a look says; others stop at a verdict."""
    if cell.identical:
        return Limits(IDENTICAL_SECONDS, IDENTICAL_BLOCKS, stop_when_decided=False)
    return Limits(INJECTED_SECONDS, 1_000_000)


def conduct(cell: Cell, database: Path) -> tuple[dict[str, Any], int | None]:
    """Run one trial into this store; return the facts for the record, and the signal that interrupted it, if any.

    Raises what the conductor raises.
    """
    began = time.monotonic()
    resolved = resolve(load(STUDIES / f"{cell.workload}.toml"), root=os.geteuid() == 0)
    plan = planning.make_plan(resolved, None, controls=True)
    beside = Beside() if cell.identical else None
    limits = limits_of(cell)
    with Store.open(database) as store, mock.patch.object(start, "Conductor", conductor_of(cell, beside)):
        ended = start.begin(
            resolved,
            plan,
            store,
            limits,
            Silent(),
            folder=planning.default_folder(resolved, None),
            seed_chosen=False,
            options={"time_s": limits.time_s, "blocks": limits.blocks, "injected": cell.injected},
        )
        data = store.data(ended.trial.header.id)
    spec = Spec.from_plan(plan)
    facts = {
        "seed": plan.seed,
        "state": ended.state.value,
        "alpha": spec.alpha,
        "margin": spec.margin,
        **_what_it_says(spec, data.blocks, ended.state),
        **_when_it_was_seen(spec, data.blocks),
        "seconds": round(_end_of_last_block(data.blocks), 3),
        "seconds_in_all": round(time.monotonic() - began, 3),
        "one_then_the_other": None if beside is None else beside.facts(spec.alpha),
        "host": dict(ended.trial.header.host),
        "lab": list(ended.trial.header.lab["places"]),  # type: ignore[call-overload]
    }
    return facts, ended.signal


def _what_it_says(spec: Spec, blocks: tuple[ObservedBlock, ...], state: TrialState) -> dict[str, Any]:
    """Return the primary effect and the controls as the trial reports them; other responses are ignored."""
    (condition,) = spec.conditions
    stands = analyse_condition(spec, condition.key, blocks)
    (effect,) = stands.effects
    return {
        "verdict": effect.verdict.value,
        "detectably": effect.detectably,
        "reason": effect.reason,
        "decided": effect.decided,
        "ratio": effect.value,
        "low": effect.low,
        "high": effect.high,
        "p_anytime": effect.p_anytime,
        "blocks": effect.blocks,
        "block_sd": effect.block_sd,
        "failures": effect.failures,
        "void": sum(block.void is not None for block in blocks),
        "valid": state is not TrialState.INVALID,
        "invalid_reasons": list(analyse(spec, blocks).invalid_reasons) if state is TrialState.INVALID else [],
        "controls": [
            {"kind": c.kind, "ratio": c.ratio, "low": c.low, "high": c.high, "passed": c.passed}
            for c in stands.controls
        ],
    }


def _when_it_was_seen(spec: Spec, blocks: tuple[ObservedBlock, ...]) -> dict[str, Any]:
    """Return after which block, and after how many seconds, 0 was first excluded; None if never."""
    response = next(r for r in spec.responses if r.primary)
    complete = [b for b in blocks if b.void is None]
    (term,) = spec.terms
    contrasts = Responses(complete, response).contrasts(
        term.weights, copy=spec.copy_of_reference(term, response)
    )
    if not contrasts.values or len(contrasts.values) != len(complete):
        return {"seen_after_blocks": None, "seen_after_seconds": None}
    copies = np.array(contrasts.copies) if contrasts.copies else None
    capital = log_paths(np.array([contrasts.values]), copies=copies, aim=spec.margin_of(response))[0]
    out = capital >= math.log(1.0 / spec.alpha_of(term, response))
    if not out.any():
        return {"seen_after_blocks": None, "seen_after_seconds": None}
    first = int(out.argmax())
    return {
        "seen_after_blocks": first + 1,
        "seen_after_seconds": round(_end_of_last_block(complete[: first + 1]), 3),
    }


def _end_of_last_block(blocks: Any) -> float:
    """Return the seconds from the first run to the end of the last run."""
    return max(
        (run.started_s + run.responses.get("wall", 0.0) for b in blocks for run in b.observations),
        default=0.0,
    )
