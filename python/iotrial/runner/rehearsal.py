"""A rehearsal: one block of a scaled-down study, to check within seconds whether it can run here at all.

It makes the lab; sets, verifies and restores every level of every treatment; runs a smaller version of every
workload that can run under the chosen condition levels; and removes what it made, all as a trial would. Its
measurements mean nothing, and are neither shown nor stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from msgspec import Meta, structs

from iotrial.design.keyed import SEED_DIGITS
from iotrial.design.model import Block, Condition
from iotrial.design.plan import Plan
from iotrial.documents import Count, Labels
from iotrial.errors import RequestError
from iotrial.runner.own_files import largest_own_file
from iotrial.runner.progress import Watcher
from iotrial.runner.resolve import Resolved
from iotrial.runner.start import Ended, begin
from iotrial.runner.trial import Limits
from iotrial.stats.voids import Void
from iotrial.store import Store
from iotrial.store.model import TrialData
from iotrial.study.model import LabSpec, Setting, Study, Workload
from iotrial.study.reader import CACHE_KNOB
from iotrial.study.select import WORKLOAD, select
from iotrial.study.work import Work
from iotrial.units import UnitError, parse_size
from iotrial.workloads.served import ServedWork

#: Upper limits for a rehearsed work, by field name; sizes are listed separately.
MOST: Mapping[str, float] = {
    "files": 8, "replicates": 1, "operations": 64, "ramp": 8, "time_s": 0.2, "pause_s": 0.05, "burst": 50,
    "rows": 1000, "changed": 100, "delay_s": 0.02, "clients": 2,
}  # fmt: skip
#: The same, for fields where 0 stands for "all".
MOST_OF_ALL: Mapping[str, int] = {"count": 5}
SIZES = ("size_bytes", "file_size_bytes", "volume_bytes")
BLOCKS = ("block_size_bytes", "block_bytes", "record_size_bytes", "buffer_bytes")
LEAST_SIZE = 64 << 10
LEAST_LAB = 64 << 20
LAB_WITH_OPTIONS = 256 << 20
#: The lab is this many times as large as its files.
ROOM = 4
#: A block with more runs is run in part.
MOST_ARMS = 12
A_LONG_TIME_S = 1e6
#: the cache state in which nothing is read from a device
WARM = "warm"


Once = Annotated[int, Meta(ge=1)]


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """Result of one workload: levels of the conditions, number of runs, and counts of problems.

    ``failures`` are what a trial would count as such, ``void`` what it would leave out.
    """

    workload: str
    levels: Labels
    runs: Count
    failures: Mapping[str, Once]
    void: Mapping[str, Once]


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Result of a rehearsal. ``notes``: what the works used outside the lab."""

    workloads: tuple[Rehearsed, ...]
    notes: tuple[str, ...]
    ended: Ended

    @property
    def failures(self) -> int:
        """Number of failed runs."""
        return sum(sum(one.failures.values()) for one in self.workloads)

    @property
    def void(self) -> tuple[Rehearsed, ...]:
        """The workloads of which every run is void, for a reason that more work does not take away."""
        return tuple(
            one
            for one in self.workloads
            if sum(n for rule, n in one.void.items() if rule != Void.COLD_WAS_NOT_COLD) == one.runs > 0
        )


def too_large_to_be_warm(study: Study, memory_bytes: int) -> Iterator[tuple[str, int]]:
    """Yield the workloads that are to find their files in the page cache although these are larger than the memory, with the
    size of the files of one run in bytes."""
    caches = {s.value for s in study.settings if s.knob == CACHE_KNOB}
    for one in study.workloads:
        needed = one.work.files * max(one.work.size_bytes, *study.file_sizes, 0)
        if (one.cache == WARM or WARM in caches) and needed > memory_bytes and not one.work.may_read_warm():
            yield one.name, needed


def available_memory() -> int:
    """Return the bytes that programs and the page cache of this machine can still have."""
    lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))


def cut_down(study: Study) -> Study:
    """Return the study with less work and one level of each condition: those under which most workloads run."""
    varied = {dict(s.options).get("option") for s in study.settings if s.knob == "work.option"}
    # fragmentation is a share of the file size, so sizes must stay
    pieces = any(setting.knob == "file.fragmentation" for setting in study.settings)
    keep_sizes = pieces or bool(varied & {"block", "block_size", "volume", "size"})
    most = {name: most for name, most in MOST.items() if not (pieces and name == "files")}
    smaller = structs.replace(
        study,
        account=False,
        check=False,
        workloads=tuple(
            _smaller(study, workload, most, keep_sizes=keep_sizes) for workload in study.workloads
        ),
    )
    narrowed = _narrowed(smaller)
    return narrowed if keep_sizes else structs.replace(narrowed, lab=_smaller_lab(narrowed))


class ShortPlan(Plan):
    """A plan that runs only part of a large block: as many of its runs as needed for every level to occur."""

    cut_down = True

    def block(self, condition: Condition, index: int, inside: Collection[str] | None = None) -> Block:
        """Return block ``index`` of a condition, or the part of it that is run."""
        block = super().block(condition, index, inside)
        if len(block.runs) <= MOST_ARMS:
            return block
        missing = {pair for run in block.runs for pair in run.arm.treatment.items()}
        kept = []
        while missing:
            best = max(block.runs, key=lambda run: len(missing & set(run.arm.treatment.items())))
            missing -= set(best.arm.treatment.items())
            kept.append(best)
        return replace(block, runs=tuple(sorted(kept, key=lambda run: run.slot)))


def conduct_rehearsal(resolved: Resolved, plan: Plan, watcher: Watcher, *, folder: str) -> Rehearsal:
    """Run one block of each condition. Raises what a trial raises; leaves nothing behind."""
    with Store.in_memory() as store:
        ended = begin(
            resolved,
            plan,
            store,
            Limits(A_LONG_TIME_S, 1, stop_when_decided=False),
            watcher,
            folder=folder,
            seed_chosen=False,
            options={"rehearsal": True, "controls": plan.controls},
        )
        data = store.data(ended.trial.header.id)
    return Rehearsal(tuple(_rehearsed(plan, data)), data.outside, ended)


def _rehearsed(plan: Plan, data: TrialData) -> list[Rehearsed]:
    found = []
    for condition in plan.conditions:
        runs = [run for run in data.runs if run.condition == condition.key]
        void = Counter(str(run.checks["void"]) for run in runs if "void" in run.checks)
        failures = Counter(run.failure for run in runs if run.failure is not None)
        found.append(Rehearsed(condition.workload, condition.levels, len(runs), failures, void))
    return found


def _smaller(study: Study, workload: Workload, most: Mapping[str, float], *, keep_sizes: bool) -> Workload:
    """Return the workload scaled down, or unchanged if the smaller one cannot be planned."""
    less = structs.replace(workload, work=_less(workload.work, most, keep_sizes=keep_sizes))
    others = tuple(less if one.name == workload.name else one for one in study.workloads)
    try:
        Plan(structs.replace(study, workloads=others), "0" * SEED_DIGITS)
    except RequestError:
        return workload
    return less


def _less(work: Work, limits: Mapping[str, float], *, keep_sizes: bool) -> Work:
    has = structs.asdict(work)
    new = {
        name: type(has[name])(min(has[name], most))
        for name, most in limits.items()
        if isinstance(has.get(name), int | float) and has[name] > most
    }
    new |= {name: most for name, most in MOST_OF_ALL.items() if name in has and not 0 < has[name] <= most}
    if "files" in new and "pool" in has:
        # the same files for all arms, or as many as are needed
        new["pool"] = new["files"] if has["pool"] == has["files"] else 0
    if "directories" in has:
        new["directories"] = min(has["directories"], new.get("files", has.get("files", 1)))
    if not keep_sizes:
        unit = max((has[name] for name in BLOCKS if name in has and name != "buffer_bytes"), default=1)
        size = max(LEAST_SIZE, 4 * unit) // unit * unit
        new |= {name: size for name in SIZES if has.get(name, 0) > size}
    return structs.replace(work, **new)


def _smaller_lab(study: Study) -> LabSpec:
    """Return a lab as small as its files allow.

    Keeps the declared size if mkfs options are varied, which were chosen for it, or if programs of the study make a
    site, or what a run needs, of unknown size.
    """
    makes = any(w.work.before() or (isinstance(w.work, ServedWork) and w.work.make) for w in study.workloads)
    if makes or any(setting.knob == "mkfs.option" for setting in study.settings) or study.places:
        return study.lab
    plan = Plan(study, "0" * SEED_DIGITS)
    amounts = [_amount_of(study, condition.levels) for condition in plan.conditions]
    needed = sum(
        plan.pool_size(workload) * max(workload.work.size_bytes, *amounts) + largest_own_file(study)
        for workload in study.workloads
    )
    least = LAB_WITH_OPTIONS if study.lab.mkfs_options else LEAST_LAB
    size = min(study.lab.size_bytes, max(least, ROOM * needed))
    return structs.replace(study.lab, size_bytes=size)


def _narrowed(study: Study) -> Study:
    conditions = Plan(study, "0" * SEED_DIGITS).conditions
    by_levels: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for condition in conditions:
        by_levels.setdefault(tuple(condition.levels.items()), []).append(condition.workload)
    best = min(by_levels, key=lambda levels: (-len(by_levels[levels]), _amount_of(study, dict(levels))))
    wanted = {name: [label] for name, label in best}
    return select(study, conditions={**wanted, WORKLOAD: by_levels[best]})


def _amount_of(study: Study, levels: Mapping[str, str]) -> int:
    """Return the sum of the sizes and work keys that these levels set: a rough measure of how much work they cause."""
    total = 0.0
    for factor in study.condition_factors:
        for level in factor.levels:
            if level.label == levels.get(factor.name):
                total += sum(_number(s.value) for s in level.settings if _is_amount(s))
    return int(total)


def _is_amount(setting: Setting) -> bool:
    return setting.knob.endswith("size") or setting.knob == "work.option"


def _number(text: str) -> float:
    try:
        return parse_size(text)
    except UnitError:
        pass
    try:
        return float(text)
    except ValueError:
        return 0.0
