"""Pages by treatment: the response time of each, side by side with the reference's, and whether they are the same pages.

A page's time in a run is the mean over its requests. It is compared within blocks: its ratio is the median over the blocks of
its time at the level over that at the reference. That is descriptive; verdicts are of the sum over all pages.

An opcode cache, or whatever else is varied, may change what a page says. A page *differs* where the reference sent the same
body in every run and a level did not; one that is not the same twice at the reference itself can tell nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from msgspec import structs

from iotrial.design.model import ArmKind
from iotrial.legible import shown
from iotrial.report.conditions import Conditions, ConditionText
from iotrial.report.evidence import arm_order, sound_runs
from iotrial.report.notation import counted, elided, joined
from iotrial.store.checks import PAGES
from iotrial.store.model import RunRecord, TrialData
from iotrial.study.model import Study
from iotrial.workloads.pages import PagesWork

MOST_NAMED = 3
_LONGEST_NS = 1 << 50


@dataclass(frozen=True, slots=True)
class PageTime:
    """One page: medians over the runs in seconds, and of the ratio of the blocks."""

    page: str
    reference_s: float
    level_s: float
    ratio: float


@dataclass(frozen=True, slots=True)
class PagesPanel:
    """One level against the reference in one condition; ``pages`` from the one that gains most on."""

    condition: ConditionText
    reference: str
    level: str
    pages: tuple[PageTime, ...]
    blocks: int


@dataclass(frozen=True, slots=True)
class Unlike:
    """Pages of one condition whose bodies are not what they were: at ``level`` others than at the reference, or, without a
    level, at the reference not twice the same."""

    condition: ConditionText
    reference: str
    level: str | None
    pages: tuple[str, ...]
    of: int


@dataclass(frozen=True, slots=True)
class _Run:
    record: RunRecord
    response_ns: Sequence[float | None]
    body: Sequence[str | None]
    varied: frozenset[int]


def pages_of(data: TrialData, conditions: Conditions) -> tuple[PagesPanel, ...]:
    """One panel for each condition whose runs tell of pages, and each treatment but the reference."""
    found = []
    for key, names, by_arm in _conditions(data):
        condition = conditions.of_key(key)
        reference, *levels = by_arm
        for level in levels:
            pages, blocks = _paired(names, by_arm[reference], by_arm[level])
            if pages:
                found.append(PagesPanel(condition, shown(reference), shown(level), pages, blocks))
    return tuple(sorted(found, key=lambda panel: panel.condition.order))


def unlike_of(data: TrialData, conditions: Conditions) -> tuple[Unlike, ...]:
    """Where pages are not the same: what a reader must know before any time of theirs."""
    found = []
    for key, names, by_arm in _conditions(data):
        condition = conditions.of_key(key)
        first, *levels = by_arm
        marks = {arm: _marks(runs, len(names)) for arm, runs in by_arm.items()}
        restless = tuple(shown(names[n]) for n, seen in enumerate(marks[first]) if len(seen) > 1)
        if restless:
            found.append(Unlike(condition, shown(first), None, restless, len(names)))
        for level in levels:
            pairs = zip(marks[first], marks[level], strict=True)
            others = [
                names[n] for n, (own, other) in enumerate(pairs) if len(own) == 1 and other and own != other
            ]
            if others:
                pages = tuple(map(shown, others))
                found.append(Unlike(condition, shown(first), shown(level), pages, len(names)))
    return tuple(found)


def sentences(unlike: Sequence[Unlike]) -> Iterator[str]:
    """What is unlike, a sentence each."""
    several = len({one.condition.key for one in unlike}) > 1
    for one in unlike:
        where = f" ({one.condition.text})" if several else ""
        named = joined(elided(page, 60) for page in one.pages[:MOST_NAMED])
        more = f" and {len(one.pages) - MOST_NAMED} more" if len(one.pages) > MOST_NAMED else ""
        share = f"{len(one.pages):,} of {counted(one.of, 'page')}"
        if one.level is None:
            yield (
                f"{share} were not the same twice at {one.reference}{where} ({named}{more}), so that they cannot be compared "
                "with the other treatments': what is new in them each time can be left out with ignore."
            )
        else:
            yield (
                f"The pages differ: at {one.level} the bodies of {share} are not what they are at {one.reference}{where}: "
                f"{named}{more}."
            )


def _conditions(
    data: TrialData,
) -> Iterator[tuple[str, tuple[str, ...], Mapping[str, Sequence[_Run]]]]:
    """Of each condition whose runs tell of pages: its key, the pages, and the runs by arm, the reference first."""
    study = data.trial.header.study
    works = {w.name: w.work for w in study.workloads if isinstance(w.work, PagesWork)}
    if not works:
        return
    by_key: dict[str, list[RunRecord]] = {}
    for record in sound_runs(data):
        if record.kind == ArmKind.TREATMENT.value:
            by_key.setdefault(record.condition, []).append(record)
    for key, records in by_key.items():
        work = _work(study, key, works)
        if work is None:
            continue
        runs = [run for record in records if (run := _run(record)) is not None]
        sizes = {len(run.response_ns) for run in runs}
        every = work.listed()
        if len(sizes) != 1 or not 0 < (size := sizes.pop()) <= len(every):
            continue  # the number of pages is varied by a treatment: they cannot be paired
        treatments = {run.record.arm: run.record.treatment for run in runs}
        order = arm_order(study, treatments)
        yield key, every[:size], {arm: [run for run in runs if run.record.arm == arm] for arm in order}


def _work(study: Study, key: str, works: Mapping[str, PagesWork]) -> PagesWork | None:

    name = Conditions(study).of_key(key).workload
    work = works.get(name)
    return None if work is None else structs.replace(work, count=0)


def _run(record: RunRecord) -> _Run | None:
    """What a stored run tells of its pages, if it is of the shape that it should be: a packed trial may say anything."""
    told = record.checks.get(PAGES)
    if not isinstance(told, Mapping):
        return None
    times, body, varied = (told.get(name) for name in ("response_ns", "body", "varied"))
    if not (isinstance(times, list) and isinstance(body, list) and isinstance(varied, list)):
        return None
    if len(times) != len(body) or not all(t is None or _is_time(t) for t in times):
        return None
    if not all(mark is None or isinstance(mark, str) for mark in body):
        return None
    return _Run(record, times, body, frozenset(n for n in varied if isinstance(n, int)))


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _LONGEST_NS


def _paired(
    names: Sequence[str], reference: Sequence[_Run], level: Sequence[_Run]
) -> tuple[tuple[PageTime, ...], int]:
    """Each page over the blocks that hold both, sorted by ratio; and how many blocks these are."""
    own = {run.record.block: run.response_ns for run in reference}
    pairs = [(own[run.record.block], run.response_ns) for run in level if run.record.block in own]
    found = []
    for n, page in enumerate(names):
        both = [(a, b) for one, other in pairs if (a := one[n]) is not None and (b := other[n]) is not None]
        if both:
            ratio = math.exp(median(math.log(b / a) for a, b in both))
            found.append(
                PageTime(
                    shown(page), median(a for a, _ in both) / 1e9, median(b for _, b in both) / 1e9, ratio
                )
            )
    return tuple(sorted(found, key=lambda page: page.ratio)), len(pairs)


def _marks(runs: Sequence[_Run], pages: int) -> list[set[str]]:
    """What was seen of each page: one mark where it was always the same."""
    seen: list[set[str]] = [set() for _ in range(pages)]
    for run in runs:
        for n, mark in enumerate(run.body):
            if mark is not None:
                seen[n].add(mark)
            if n in run.varied:
                seen[n].add("")
    return seen
