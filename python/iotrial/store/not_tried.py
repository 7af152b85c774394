"""Finds settings that no run could feel: runs too short for a period, no swap, no writes, no huge pages.

Such an effect is undecided with that reason, never equivalent, and needs no more blocks; a direction that was shown stays.
Nothing is withheld on what is not known: a run without a wall time, a level without a known period, a machine without a
record of its swap.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median

from iotrial.design.plan import condition_key
from iotrial.knobs.declaration import Declaration, Need, declarations
from iotrial.stats.model import QUIET, Analysis, Effect, untried
from iotrial.store.model import RunRecord, TrialData
from iotrial.study.model import Level, Setting, Study, setting_name
from iotrial.units import format_duration

#: a process that is older can get huge pages without a fault: khugepaged looks every 10 s
_COLLAPSED_AFTER_S = 10.0


def without_not_tried(data: TrialData, analysis: Analysis) -> Analysis:
    """Return the analysis; an effect of a setting that no run could feel has that reason, and is not equivalent."""
    header = data.trial.header
    known: dict[object, str | None] = {}  # effects on other responses compare the same runs

    def judged(effect: Effect) -> Effect:
        if effect.verdict not in QUIET:
            return effect
        compared = _condition(effect), effect.workload, effect.factor, effect.level, effect.reference
        if compared not in known:
            known[compared] = why_not_tried(header.study, data.runs, header.host, effect)
        return untried(effect, known[compared])

    return replace(analysis, effects=tuple(map(judged, analysis.effects)))


def why_not_tried(
    study: Study, runs: Sequence[RunRecord], host: Mapping[str, object], effect: Effect
) -> str | None:
    """Return why no run could feel what the two levels set differently; None if one could, or it is not known."""
    levels = _levels(study, effect) if effect.verdict in QUIET else None
    if levels is None:
        return None
    own = _runs_of(runs, effect)
    starts = any(one.name == effect.workload and one.work.kind == "command" for one in study.workloads)
    reasons = [
        _of_setting(pair, own, host, starts=starts)
        for pair in _pairs(*levels)
        if len({one.value for one in pair}) > 1
    ]
    return reasons[0] if own and reasons and None not in reasons else None


def _levels(study: Study, effect: Effect) -> tuple[Level, Level] | None:
    try:
        factor = study.factor(effect.factor)
        return factor.level(effect.level), factor.level(effect.reference)
    except KeyError:
        return None  # an interaction, or the arm of a race


def _pairs(level: Level, reference: Level) -> Iterator[tuple[Setting, ...]]:
    """Yield the settings of both levels, those of one knob together."""
    found: dict[str, list[Setting]] = {}
    for setting in (*level.settings, *reference.settings):
        found.setdefault(setting_name(setting.knob, dict(setting.options)), []).append(setting)
    yield from map(tuple, found.values())


def _condition(effect: Effect) -> str | None:
    """Return the key of the effect's condition; None for a pooled effect."""
    return None if effect.kind == "pooled" else condition_key(effect.workload, effect.condition)


def _runs_of(runs: Sequence[RunRecord], effect: Effect) -> list[RunRecord]:
    key, workload = _condition(effect), f"workload={effect.workload}"
    conditions = {run.condition for run in runs}
    own = {one for one in conditions if (one == key if key else workload in one.split(","))}
    levels = (effect.level, effect.reference)
    return [
        run
        for run in runs
        if run.condition in own and run.treatment.get(effect.factor) in levels and not run.failure
    ]


def _of_setting(
    pair: Sequence[Setting], runs: Sequence[RunRecord], host: Mapping[str, object], *, starts: bool
) -> str | None:
    knob = declarations().get(pair[0].knob)
    if knob is None:
        return None
    need = knob.need_of(pair[0])
    if need is Need.HUGE_PAGES and not starts:
        return None  # the memory of a server that runs already is not faulted in during a run
    return _of_period(knob, pair, runs) or _of_need(need, runs, host)


def _of_period(knob: Declaration, pair: Sequence[Setting], runs: Sequence[RunRecord]) -> str | None:
    periods = [period for one in pair if (period := knob.period_s(one)) is not None]
    if len(periods) < 2:
        return None
    walls = [wall for run in runs if (wall := _number(run, "wall")) is not None]
    if len(walls) < len(runs) or median(walls) >= min(periods):
        return None
    shortest, longest = format_duration(min(periods)), format_duration(max(periods))
    name = _name(pair[0])
    return (
        f"runs of {format_duration(median(walls))} are shorter than the {shortest} of {name}; "
        f"a run must last at least {longest} to feel both levels"
    )


def _name(setting: Setting) -> str:
    """Return e.g. "vm.dirty_expire_centisecs", "commit"."""
    if setting.knob == "mount.option":
        return dict(setting.options).get("option") or setting.value.partition("=")[0]
    return setting_name(setting.knob, dict(setting.options))


def _of_need(need: Need | None, runs: Sequence[RunRecord], host: Mapping[str, object]) -> str | None:
    match need:
        case Need.SWAP:
            lacking = host.get("swap_bytes") == 0
        case Need.WRITES:
            lacking = all(_none(run, "device_write_bytes", "device_write_bytes_synced") for run in runs)
        case Need.WRITE_BACK:
            lacking = all(_none(run, "device_write_bytes", "system_pages_written_back") for run in runs)
        case Need.HUGE_PAGES:
            lacking = all(
                _number(run, "system_huge_pages_faulted") == 0.0
                and (_number(run, "wall") or math.inf) < _COLLAPSED_AFTER_S
                for run in runs
            )
        case _:
            lacking = False
    return need.value if need is not None and lacking else None


def _none(run: RunRecord, *names: str) -> bool:
    """Return whether all of these counters are known and zero, and the run wrote only to this device."""
    return all(_number(run, name) == 0.0 for name in names) and not _wrote_elsewhere(run)


def _wrote_elsewhere(run: RunRecord) -> bool:
    """Return whether the run used another device and wrote anything, to whichever."""
    return bool(_number(run, "work_elsewhere_bytes")) and _number(run, "work_written_bytes") != 0.0


def _number(run: RunRecord, name: str) -> float | None:
    return run.responses.get(name, run.evidence.get(name))
