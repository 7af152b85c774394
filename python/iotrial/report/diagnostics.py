"""Diagnostics in words: where a trial was in two states, and whether its device was in steady state.

None of them gates a verdict: the method is valid under all diagnostics. So those that a reader would not act on (drift,
order, autocorrelation, the share of the variance between blocks) are only in the JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from iotrial.design.model import ArmKind
from iotrial.report.conditions import Conditions, ConditionText
from iotrial.report.evidence import sound_runs
from iotrial.report.notation import joined
from iotrial.stats.model import Diagnostic
from iotrial.stats.steady_state import SteadyState, steady_state
from iotrial.stats.verdict import is_rate, is_time
from iotrial.store.model import RunRecord, TrialData
from iotrial.study.model import Study
from iotrial.study.places import LAB_DEVICE
from iotrial.terminal import escape
from iotrial.units import format_duration

_MOST_CHANGES = 6
# Sarle's coefficient is 5/9 for a uniform distribution; more suggests two modes.
_TWO_MODES = 5 / 9


def diagnostic_sentences(diagnostic: Diagnostic) -> tuple[str, ...]:
    """Return the sentences on changes of level and on two modes, as far as there are any."""
    found = (_change(diagnostic), _modes(diagnostic.bimodality))
    return tuple(sentence for sentence in found if sentence is not None)


def _change(diagnostic: Diagnostic) -> str | None:
    """Describe where the level of the blocks changed; None if no change was found."""
    if not diagnostic.changes:
        return None
    times = [
        f"after {format_duration(one.at_s)} by "
        + (f"{one.ratio - 1.0:+.1%}" if one.ratio is not None else f"{one.difference:+.3g}")
        for one in diagnostic.changes[:_MOST_CHANGES]
    ]
    more = len(diagnostic.changes) - len(times)
    tail = f" and {more} more" if more else ""
    return (
        f"the level of the blocks changed {joined(times)}{tail}; it is the same for all arms of a "
        f"block and cancels, but the machine was in different states before and after"
    )


def _modes(value: float | None) -> str | None:
    if value is None or value <= _TWO_MODES:
        return None
    return "values may fall in two clusters; look at the distributions before relying on a single number"


@dataclass(frozen=True, slots=True)
class ArmState:
    """Whether the runs of one arm in one condition were in steady state, by one response."""

    condition: ConditionText
    arm: str
    response: str
    found: SteadyState


def steady_states(data: TrialData, conditions: Conditions) -> tuple[ArmState, ...]:
    """Judge the reference in each condition in which its typical run reads or writes the lab's device, by its first primary
    time or rate. Where devices are compared, the other devices are judged too."""
    study = data.trial.header.study
    if study.in_windows:
        return ()
    timed = [r for r in study.responses if r.primary and (is_time(r) or is_rate(r))]
    fixed = {f.name: f.reference for f in study.treatment_factors if not _of_devices(study, f.name)}
    treatment = ArmKind.TREATMENT.value
    by_arm: dict[tuple[str, str], list[RunRecord]] = {}
    for run in sound_runs(data):
        if run.kind == treatment and fixed.items() <= run.treatment.items():
            by_arm.setdefault((run.condition, run.arm), []).append(run)
    found = []
    for (key, arm), runs in by_arm.items():
        condition = conditions.of_key(key)
        response = next((r for r in timed if r.workload == condition.workload), None)
        if response is None or not median(map(_moved_bytes, runs)):
            continue
        runs.sort(key=lambda run: run.started_s)
        values = [run.responses[response.name] for run in runs if response.name in run.responses]
        state = steady_state(np.array(values, dtype=np.float64))
        if state is not None:
            found.append(ArmState(condition, arm, response.name, state))
    return tuple(sorted(found, key=lambda one: one.condition.order))


def _of_devices(study: Study, factor: str) -> bool:
    return any(
        setting.knob == LAB_DEVICE for level in study.factor(factor).levels for setting in level.settings
    )


def _moved_bytes(run: RunRecord) -> float:
    numbers: Mapping[str, float] = {**run.evidence, **run.responses}
    return numbers.get("device_read_bytes", 0.0) + numbers.get("device_write_bytes", 0.0)


def steady_sentence(states: Sequence[ArmState]) -> str:
    """E.g. "yes, range 4.1 %, slope -1.2 %", "no in 2 of 4, widest in filesystem xfs: range 31.0 %, slope +12.2 %"."""
    if len(states) == 1:
        return f"{'yes' if states[0].found.steady else 'no'}, {_numbers(states[0])}"
    others = [one for one in states if not one.found.steady]
    if not others:
        widest = max(one.found.range for one in states)
        steepest = max(abs(one.found.slope) for one in states)
        return f"yes in all {len(states)}, range ≤ {_share(widest)}, slope ≤ {_share(steepest)}"
    worst = max(others, key=lambda one: one.found.range)
    names = [worst.condition.text] if worst.condition.parts else []
    if len({one.arm for one in states}) > 1:
        names.append(escape(worst.arm))
    return f"no in {len(others)} of {len(states)}, widest in {', '.join(names)}: {_numbers(worst)}"


def _numbers(one: ArmState) -> str:
    sign = "-" if one.found.slope < 0.0 else "+"
    return f"range {_share(one.found.range)}, slope {sign}{_share(abs(one.found.slope))}"


def _share(share: float) -> str:
    return f"{share:.1%}".replace("%", " %")
