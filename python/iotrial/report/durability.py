"""Which acknowledged writes survived power cuts, in words: for tables, headlines, choices and warnings.

The counts are of points drawn from the writes of a few runs of an arm. Points of one run share its luck, so intervals and
comparisons of arms have the run as their unit. They do not cover another disk or kernel. Nothing lost is no proof, but a
limit. Trials of earlier versions have a single run of each arm: their intervals are for the points of that run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from iotrial.powercut.results import address_of, losses
from iotrial.report.blocks import (
    DECISIVE,
    EQUIVALENT,
    Block,
    Cell,
    Group,
    Note,
    Row,
    Section,
    Table,
    View,
    Words,
    heads,
)
from iotrial.report.conditions import Conditions, ConditionText
from iotrial.report.evidence import arm_order, is_reference
from iotrial.report.notation import counted, joined, some
from iotrial.report.safety import Risks, risks_of
from iotrial.stats.proportion import FEWEST_RUNS, Proportion, over_runs, p_of_more
from iotrial.store.model import PowerCuts, TrialData
from iotrial.study.model import Study
from iotrial.terminal import escape

LEDE = (
    "Each arm did its work again, not timed, on a disk with a volatile write cache that logs every request. The "
    "power was cut at points drawn evenly over the requests and acknowledgements of a run. At each point the disk "
    "was rebuilt as it may have been left: with everything that a flush had made durable, and of the rest a drawn "
    "part, whole or torn. Then the file system was mounted, checked, and searched for everything that had been "
    "acknowledged by then."
)
_INTERVALS = "Brackets: 95 % intervals for the share of such points on this disk and kernel. Nothing lost is not a proof."
#: error level of all statements together that one level does more harm than another
_ALPHA = 0.05

#: the power cuts of one arm under one condition: a record for each run
Runs = Sequence[PowerCuts]
_MOST_ARMS = 4
_MOST_PLACES = 3


@dataclass(frozen=True, slots=True)
class DurabilityRow:
    """The power cuts of one arm under one condition, over all its repetitions."""

    condition: ConditionText
    treatment: Mapping[str, str]
    runs: Runs
    is_reference: bool

    @property
    def cuts(self) -> PowerCuts:
        """The counts of all runs together."""
        return together(self.runs)

    @property
    def arm(self) -> str:
        """The name of the arm."""
        return self.cuts.arm

    @property
    def verdict(self) -> str:
        """E.g. "loses acknowledged writes at 37 of 100 cut points [27.6 %, 47.2 %], needs fsck at 2"."""
        return verdict_of(self.runs)

    @property
    def harmful(self) -> bool:
        """Whether acknowledged writes were missing, or anything was corrupt."""
        return harmful(self.runs)


def harmful(runs: Runs) -> bool:
    """Return whether acknowledged writes were missing at some point, or anything was corrupt."""
    return any(one.lossy or one.corrupt for one in runs)


def verdict_of(runs: Runs, *, repairs: bool = True) -> str:
    """Return what power cuts did, in words, the worst first. ``repairs``: also how often a fsck was needed."""
    cuts, parts = together(runs), []
    if cuts.lossy:
        parts.append(f"loses acknowledged writes at {_share([one.lossy for one in runs], runs)}")
    if cuts.corrupt:
        parts.append(f"is corrupt at {_share([one.corrupt for one in runs], runs)}")
    if not cuts.acknowledged and not parts:
        parts.append(f"had acknowledged nothing by {_points(runs)}")
    elif not parts:
        parts.append(f"loses nothing at {_points(runs)} (95 %: at most {_percent(_most(cuts.points))})")
    if cuts.needs_fsck and repairs:
        before = f", {cuts.unmountable:,} of them before it mounts" if cuts.unmountable else ""
        parts.append(f"needs fsck at {cuts.needs_fsck:,}{before}")
    return ", ".join(parts)


def _with_interval(counts: Sequence[int], runs: Runs) -> Cell:
    """Return a count with the interval of its share, e.g. "128 [57 %, 71 %]"; "0 (≤ 1.5 %)"."""
    if not any(counts):
        return f"0 (≤ {_percent(_most(sum(one.points for one in runs)))})"
    low, high = _interval(counts, runs)
    return Words(f"{sum(counts):,} [{_percent(low)}, {_percent(high)}]", "invalid")


def _share(counts: Sequence[int], runs: Runs) -> str:
    low, high = _interval(counts, runs)
    return f"{sum(counts):,} of {_points(runs)} [{_percent(low)}, {_percent(high)}]"


def _interval(counts: Sequence[int], runs: Runs) -> tuple[float, float]:
    return over_runs([Proportion(count, one.points) for count, one in zip(counts, runs, strict=True)])


def lossy_interval(runs: Runs) -> tuple[float, float]:
    """Return the interval for the share of points at which acknowledged writes are missing."""
    return _interval([one.lossy for one in runs], runs)


def _points(runs: Runs) -> str:
    of_runs = f" of {len(runs)} runs" if len(runs) > 1 else ""
    return f"{counted(sum(one.points for one in runs), 'cut point')}{of_runs}"


def _most(total: int) -> float:
    return Proportion(0, total).interval[1]


def _percent(share: float) -> str:
    """Return a share of 0 to 1 as percent with two significant digits; 0 and 1 only if they are exact."""
    percent = 100.0 * share
    if percent in (0.0, 100.0):
        return f"{percent:.0f} %"
    if percent > 99.0:
        return f"{percent:.2f} %"
    return f"{percent:.2g} %" if percent < 10.0 else f"{percent:.0f} %"


def together(cuts: Runs) -> PowerCuts:
    """Add up the cuts of several runs: the points at which something was found, and the runs' requests.

    ``acknowledged`` is that of the run with the most.
    """
    return replace(
        cuts[0],
        points=sum(one.points for one in cuts),
        lossy=sum(one.lossy for one in cuts),
        corrupt=sum(one.corrupt for one in cuts),
        needs_fsck=sum(one.needs_fsck for one in cuts),
        unmountable=sum(one.unmountable for one in cuts),
        acknowledged=max(one.acknowledged for one in cuts),
        most_lost=max(one.most_lost for one in cuts),
        requests=sum(one.requests for one in cuts),
        flushes=sum(one.flushes for one in cuts),
        examples=tuple(dict.fromkeys(text for one in cuts for text in one.examples))[:_MOST_PLACES],
    )


def durability_rows(data: TrialData, conditions: Conditions) -> tuple[DurabilityRow, ...]:
    """Return a row for each condition and arm, in the study's order, the reference first."""
    study = data.trial.header.study
    arms = {one.arm: one.treatment for one in data.cuts}
    order = {arm: place for place, arm in enumerate(arm_order(study, arms))}
    found: dict[tuple[str, str], list[PowerCuts]] = {}
    for one in data.cuts:
        found.setdefault((one.condition, one.arm), []).append(one)
    rows = [
        DurabilityRow(
            conditions.of_key(key), arms[arm], tuple(members), is_reference(study, members[0].treatment)
        )
        for (key, arm), members in found.items()
    ]
    return tuple(sorted(rows, key=lambda row: (row.condition.order, row.condition.key, order[row.arm])))


# -- by level: for choices and warnings


def cuts_by_level(cuts: Iterable[PowerCuts], study: Study) -> Mapping[tuple[str, str], tuple[PowerCuts, ...]]:
    """Return the cuts of each level: of the arms that differ from the reference by this level alone, or by nothing.

    Keys are factor and level. A level without such an arm (as in a race of combinations) has those of every arm with it.
    """
    every = tuple(cuts)
    found: dict[tuple[str, str], tuple[PowerCuts, ...]] = {}
    for factor in study.treatment_factors:
        for level in factor.levels:
            own = tuple(one for one in every if one.treatment.get(factor.name) == level.label)
            alone = tuple(one for one in own if _others_at_reference(one.treatment, factor.name, study))
            if own:
                found[factor.name, level.label] = alone or own
    return found


def _others_at_reference(treatment: Mapping[str, str], factor: str, study: Study) -> bool:
    return all(
        treatment.get(other.name) == other.reference
        for other in study.treatment_factors
        if other.name != factor
    )


def level_verdict(cuts: Iterable[PowerCuts], study: Study, factor: str, level: str) -> str | None:
    """Return what power cuts did to a level, in words: where it is worst. None if its power was not cut."""
    own = cuts_by_level(cuts, study).get((factor, level))
    return None if not own else _of_worst(_by_condition(own).values(), study)


def measured_risks(cuts: Sequence[PowerCuts], study: Study) -> Risks:
    """Return the levels that did harm, and are shown to do more of it than their factor's reference, with their verdicts.

    The reference is one too, where it did harm under a condition under which another level did none, and is shown to do more.
    All these comparisons of a trial are wrong with probability at most 5 % if runs of alike arms are alike. A level without
    runs of its reference is one if it did any harm.
    """
    by_level = {key: _by_condition(own) for key, own in cuts_by_level(cuts, study).items()}
    pairs = [
        (factor, label, condition, runs, by_level.get((factor.name, factor.reference), {}).get(condition))
        for factor in study.treatment_factors
        for (name, label), conditions in by_level.items()
        if name == factor.name and label != factor.reference
        for condition, runs in conditions.items()
    ]
    alpha = _ALPHA / max(1, 2 * len(pairs))
    found: dict[str, dict[str, list[Runs]]] = {}
    for factor, label, _, runs, reference in pairs:
        levels = found.setdefault(factor.name, {})
        if harmful(runs) and (reference is None or _shown_to_do_more(runs, reference, alpha)):
            levels.setdefault(label, []).append(runs)
        elif reference is not None and not harmful(runs) and _shown_to_do_more(reference, runs, alpha):
            levels.setdefault(factor.reference, []).append(reference)
    return {
        name: {label: _of_worst(worse, study) for label, worse in levels.items()}
        for name, levels in found.items()
        if levels
    }


def harm_seen(data: TrialData) -> Risks:
    """Return the levels that did harm: in power cuts of this trial; if it was made here, also in those of a service."""
    study = data.trial.header.study
    found = {factor: dict(levels) for factor, levels in measured_risks(data.cuts, study).items()}
    if data.trial.imported is None:
        lost_under = losses()
        for factor in study.treatment_factors:
            for level in factor.levels:
                for lost in filter(None, (lost_under.get(address_of(one)) for one in level.settings)):
                    found.setdefault(factor.name, {}).setdefault(level.label, lost)
    return found


def _of_worst(several: Iterable[Runs], study: Study) -> str:
    """Return the verdict where an arm is worst, with the condition if the study has several."""
    worst = _worst(several)
    return f"{verdict_of(worst)}{Conditions(study).of_key(worst[0].condition).behind}"


def _by_condition(cuts: Iterable[PowerCuts]) -> Mapping[str, Runs]:
    found: dict[str, list[PowerCuts]] = {}
    for one in cuts:
        found.setdefault(one.condition, []).append(one)
    return found


def _shown_to_do_more(runs: Runs, others: Runs, alpha: float) -> bool:
    """Return whether an arm is shown to do harm at a larger share of points than another."""
    harm, other = ([Proportion(_harm(one), one.points) for one in own] for own in (runs, others))
    if min(len(harm), len(other)) >= FEWEST_RUNS:
        return p_of_more(harm, other) <= alpha
    return over_runs(harm)[0] > over_runs(other)[1]


def _harm(one: PowerCuts) -> int:
    return max(one.lossy, one.corrupt)


def _worst(several: Iterable[Runs]) -> Runs:
    def severity(runs: Runs) -> tuple[float, float]:
        every = together(runs)
        return _harm(every) / every.points, every.needs_fsck / every.points

    return max(several, key=severity)


def risks_found(study: Study, measured: Risks) -> Risks:
    """Return the levels that put data at risk, by what their settings mean and by what power cuts showed (``measured``)."""
    found = {factor: dict(levels) for factor, levels in risks_of(study).items()}
    for factor, levels in measured.items():
        for level, verdict in levels.items():
            declared = found.get(factor, {}).get(level)
            found.setdefault(factor, {})[level] = f"{verdict}; {declared}" if declared else verdict
    return found


# -- blocks of a report


def durability_notes(rows: Sequence[DurabilityRow]) -> Iterator[Note]:
    """Yield what a reader must know at once: who lost what where it was worst, and who lost nothing at how many points."""
    arms: dict[str, list[DurabilityRow]] = {}
    for row in rows:
        arms.setdefault(row.arm, []).append(row)
    bad = {arm: [row for row in own if row.harmful] for arm, own in arms.items()}
    texts = [_harm_of(harmed, len(arms[arm])) for arm, harmed in bad.items() if harmed]
    for text in some(texts, _MOST_ARMS):
        yield Note(f"{text}.", "Power cut", "alarm", view=View.SHORT)
    good = [row for row in rows if not row.harmful]
    if good:
        counts = {arm: len(own) - len(bad[arm]) for arm, own in arms.items()}
        names = [
            escape(arm) if count == len(arms[arm]) else _with_conditions(arm, count, len(arms[arm]))
            for arm, count in counts.items()
            if count
        ]
        least = min(good, key=lambda row: row.cuts.points)
        each = " each" if len(good) > 1 else ""
        repair = sum(row.cuts.needs_fsck for row in good)
        after = f"; needs fsck at {repair:,}" if repair else ""
        of_runs = "these runs'" if len(least.runs) > 1 else "this run's"
        yield Note(
            f"{joined(some(names, _MOST_ARMS))}: nothing acknowledged was lost at {_points(least.runs)}{each} "
            f"(95 %: at most {_percent(_most(least.cuts.points))} of {of_runs} points){after}.",
            "Power cut",
            view=View.TEXT,
        )


def _harm_of(harmed: Sequence[DurabilityRow], conditions: int) -> str:
    worst = _worst([row.runs for row in harmed])
    (row,) = [row for row in harmed if row.runs is worst]
    verdict = verdict_of(worst, repairs=False)
    if conditions == 1:
        return f"{escape(row.arm)} {verdict}"
    return f"{_with_conditions(row.arm, len(harmed), conditions)} does harm, most with {row.condition.text}: it {verdict}"


def _with_conditions(arm: str, count: int, conditions: int) -> str:
    """Return an arm's name, and in how many of its conditions."""
    share = f"{count} of {conditions}"
    if count == conditions:
        share = "both" if count == 2 else f"all {count}"
    return f"{escape(arm)} (in {share} conditions)"


def _named(row: DurabilityRow, rows: Sequence[DurabilityRow]) -> str:
    name = escape(row.arm)
    several = len({one.condition.key for one in rows}) > 1
    return f"{name}{row.condition.behind}" if several else name


def durability_section(rows: Sequence[DurabilityRow], not_cut: Sequence[str]) -> Iterator[Block]:
    """Yield the table of all arms; on the page also examples of what was found."""
    if not rows and not not_cut:
        return
    # what is the same in all rows is said once
    common = len({(row.cuts.acknowledged, row.cuts.points) for row in rows}) == 1
    columns = heads(
        "~arm", *([] if common else [">acknowledged", ">cut points"]), ">lossy", ">corrupt", ">needs fsck"
    )
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.condition.text, []).append(_row(row, common=common))
    made = tuple(Group(tuple(members), title) for title, members in groups.items())
    notes: list[Block] = [Note(f"{escape(why)}.", view=View.LONG) for why in not_cut]
    examples = [
        Note(f"{_named(row, rows)}: {escape('; '.join(row.cuts.examples))}.", "Found", view=View.PAGE)
        for row in rows
        if row.cuts.examples
    ]
    each = (
        f"{rows[0].cuts.acknowledged:,} acknowledged, {rows[0].cuts.points:,} cut points each. "
        if common
        else ""
    )
    every = Table(columns, made, note=each + _INTERVALS)
    table: list[Block] = [every] if rows else []
    if harmed := [group for group in map(_harmed, made) if group.rows]:
        # a note says how many points the others survived
        table = [replace(every, view=View.PAGE), replace(every, groups=tuple(harmed), view=View.FULL)]
    yield Section(
        "After a power cut",
        (*table, *examples, *notes),
        id="durability",
        lede=LEDE if rows else "",
        view=View.LONG,
    )


def _harmed(group: Group) -> Group:
    return replace(group, rows=tuple(row for row in group.rows if row.rank == DECISIVE))


def _row(row: DurabilityRow, *, common: bool) -> Row:
    cuts = row.cuts
    cells: tuple[Cell, ...] = (
        escape(row.arm),
        *(() if common else (f"{cuts.acknowledged:,}", f"{cuts.points:,}")),
        _with_interval([one.lossy for one in row.runs], row.runs),
        _with_interval([one.corrupt for one in row.runs], row.runs),
        Words(f"{cuts.needs_fsck:,}", "mixed") if cuts.needs_fsck else "0",
    )
    return Row(cells, DECISIVE if row.harmful else EQUIVALENT)
