"""The plan in words: design, arms, blocks, seed, and how order and assignment were drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from iotrial.report.designs import Design, design_rows
from iotrial.report.notation import counted, day_and_time, joined, percent
from iotrial.store.event_records import MOST_BLOCKS
from iotrial.store.model import TrialData, TrialHeader
from iotrial.study.model import Factor, Workload
from iotrial.study.work import FileSet
from iotrial.terminal import escape
from iotrial.units import format_duration, format_size

_MOST_LABELS = 12


def plan_rows(data: TrialData, design: Design | None = None) -> tuple[tuple[str, str], ...]:
    """Return (name, words) for everything that was fixed before the first run, and for how far it was carried out."""
    return tuple(_rows(data, design))


def _rows(data: TrialData, design: Design | None) -> Iterator[tuple[str, str]]:
    header = data.trial.header
    study = header.study
    if design is not None and len(study.treatment_factors) > 1:
        yield from design_rows(design)
    for factor in study.treatment_factors:
        yield f"Varied: {escape(factor.name)}", f"{_labels(factor)} (reference: {escape(factor.reference)})"
    for factor in study.condition_factors:
        yield f"Condition: {escape(factor.name)}", _labels(factor)
    for workload in study.workloads:
        yield f"Workload: {escape(workload.name)}", _work(workload, own=study.quick)
    primary = [escape(response.name) for response in study.responses if response.primary]
    if primary:
        yield "Primary response", joined(dict.fromkeys(primary))
    if header.options.get("controls") is False:
        yield "Controls", "none (switched off)"
    elif design is not None and design.controls == "columns":
        slowed = (
            f"one half of the rows slowed by a known factor (1 + 2 × margin = {1 + 2 * header.margin:.3g})"
        )
        yield "Controls", f"two columns of the design: {slowed}, another half identical"
    yield "Files", _assignment(header)
    yield "Seed", f"{header.seed} ({'chosen by the user' if header.seed_chosen else 'random'})"
    yield (
        "Margin and alpha",
        (f"{percent(header.margin)} and {header.alpha:g}, shared equally by all primary comparisons"),
    )
    yield (
        "Budget",
        f"{format_duration(study.budget.time_s)}, {counted(study.budget.blocks, 'block')} per condition",
    )
    for text in continued_in_words(data):
        yield "Continued", text
    yield "Carried out", _carried_out(data)


def times_continued(data: TrialData) -> str:
    """E.g. "twice"; empty if the trial was not continued after its end."""
    times = len(data.continued)
    return {0: "", 1: "once", 2: "twice"}.get(times, f"{times} times")


def continued_in_words(data: TrialData) -> Iterator[str]:
    """Yield, for each time the trial was continued after its end, when and to what limits."""
    for one in data.continued:
        blocks = f" and {counted(one.blocks, 'block')} per condition" if one.blocks < MOST_BLOCKS else ""
        also = ", even if everything was decided" if one.no_stop else ""
        yield f"{day_and_time(one.at)} UTC, up to {format_duration(one.time_s)}{blocks} in all{also}"


def _labels(factor: Factor) -> str:
    labels = [escape(level.label) for level in factor.levels]
    if len(labels) > _MOST_LABELS:
        return ", ".join(labels[:_MOST_LABELS]) + f" and {len(labels) - _MOST_LABELS} more"
    return joined(labels)


def _work(workload: Workload, *, own: bool) -> str:
    work = workload.work
    if work.in_windows:
        return escape(work.described())
    repeat = f", {work.replicates} times" if work.replicates > 1 else ""
    if work.repeats_from("cold") < work.replicates:
        repeat += " (once from a cold cache)"
    state = "" if workload.cache in (None, "as-is") else f"; cache {workload.cache}"
    if not isinstance(work, FileSet) or own:  # its one small file may not be used at all
        return f"{escape(work.described())}{repeat}{state}"
    files = f"{counted(work.files, 'file')} of {format_size(work.size_bytes)} a run"
    return f"{escape(work.described())} on {files}{repeat}{state}"


def _assignment(header: TrialHeader) -> str:
    if header.study.in_windows:
        return "None: the service's own files are used, and stay what they are."
    if header.study.quick:
        return "Those that the command itself chooses, or that were recorded."
    shared = [w for w in header.study.workloads if w.work.pool == w.work.files]
    drawn = "The files of an arm are chosen at random from the seed in every block."
    if not shared:
        return drawn
    every = "Every arm works on the same files."
    if len(shared) == len(header.study.workloads):
        return every
    names = joined(escape(workload.name) for workload in shared)
    return f"{drawn} In {names} every arm works on the same files."


def _carried_out(data: TrialData) -> str:
    complete = Counter(block.condition for block in data.blocks if block.void is None)
    gaps = sum(block.gap for block in data.blocks)
    if not complete:
        return f"no complete block, {counted(len(data.runs), 'run')}"
    least, most = min(complete.values()), max(complete.values())
    span = counted(most, "block") if least == most else f"{least:,} to {most:,} blocks"
    where = f" in each of {len(complete)} conditions" if len(complete) > 1 else ""
    text = f"{span}{where}, {counted(len(data.runs), 'run')} in all, {format_duration(data.trial.duration_s)}"
    return text + (f"; {counted(gaps, 'block')} completed after an interruption" if gaps else "")
