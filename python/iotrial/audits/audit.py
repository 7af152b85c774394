"""Audit plain observations: group them into cells, compare with a reference, and find reasons to doubt the comparisons."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from iotrial.audits.claims import check_claim, claimed_ratio
from iotrial.audits.comparing import LEAST_SD, blocks_for, compare, pooled_sd
from iotrial.audits.model import (
    Audit,
    AuditedPair,
    Cell,
    ClaimCheck,
    Condition,
    Dataset,
    Need,
    Reason,
    RepeatedGroup,
    RunOrder,
    Standing,
    TwoModes,
)
from iotrial.audits.modes import beyond_treatment, find_modes
from iotrial.audits.oddities import first_run, outliers, trends, unusable
from iotrial.audits.order import order_fact
from iotrial.audits.repeats import find_repeats
from iotrial.documents import Labels
from iotrial.errors import RequestError, UnknownName

MOST_COMPARISONS = 400
MOST_CHECKS = 200
#: labels that usually mean the baseline, in order of preference; without one, the first group is the reference
USUAL_REFERENCES = (
    "reference", "baseline", "base", "control", "default", "defaults", "before", "off", "none", "without",
    "stock", "plain", "regular", "old",
)  # fmt: skip
RUNS = "runs"
WITHOUT_FIRST = "without the first"
SERIES = "series"

#: what the cells that differ only in their group share: condition, response with unit, series
Key = tuple[Condition, str, str]


def audit(dataset: Dataset, *, alpha: float = 0.05, margin: float = 0.03) -> Audit:
    """Audit these observations. Raises RequestError for an unknown reference or a claim that matches no data."""
    cells = cells_of(dataset)
    groups = tuple(dict.fromkeys(cell.group for cell in cells))
    reference = choose_reference(groups, dataset.reference)
    rows = _rows(cells)
    firsts = {key: one for key, row in rows.items() if (one := first_run(row)) is not None}
    pairs = _pairs(rows, reference)
    left_out = max(0, len(pairs) - MOST_COMPARISONS)
    pairs = pairs[:MOST_COMPARISONS]
    together: dict[str, int] = defaultdict(int)
    for level, _ in pairs:
        together[level.response] += 1
    scatter = _scatter(cells)
    shortened = [(_shortened(level), _shortened(base)) for level, base in pairs if _key(level) in firsts]
    family = max(1, sum(min(len(level.values), len(base.values)) > 1 for level, base in [*pairs, *shortened]))
    comparisons = [
        compare(
            level,
            base,
            alpha=alpha,
            margin=margin,
            family=family,
            together=together[level.response],
            pooled_sd=scatter[level.response],
        )
        for level, base in [*pairs, *shortened]
    ]
    repeats = find_repeats(cells, comparisons, dataset.same)
    steady = [pair for pair in pairs if _key(pair[0]) not in firsts]
    order = [fact for pair in (*steady, *shortened) if (fact := order_fact(*pair)) is not None]
    return Audit(
        dataset=dataset,
        alpha=alpha,
        margin=margin,
        groups=groups,
        reference=reference,
        comparisons=tuple(_weighed(one, order, repeats) for one in comparisons),
        order=tuple(order),
        first_runs=tuple(firsts.values()),
        modes=tuple(_modes(rows, firsts)),
        repeats=tuple(repeats),
        claims=tuple(
            _checks(dataset, cells, groups, reference, comparisons, family, together, scatter, alpha, margin)
        ),
        outliers=tuple(outliers(cells)),
        trends=tuple(trends(cells)),
        unusable=tuple(unusable(cells)),
        left_out=left_out,
    )


def cells_of(dataset: Dataset) -> list[Cell]:
    """Group the observations by group, response, condition and series, each in order of place or run number, if known."""
    found: dict[tuple[str, str, str, Condition, str], list[int]] = defaultdict(list)
    for index, one in enumerate(dataset.observations):
        found[one.group, one.response, one.unit, one.condition, one.series].append(index)
    cells = []
    for (group, response, unit, condition, series), indices in found.items():
        observations = [dataset.observations[i] for i in indices]
        if all(one.place is not None for one in observations):
            observations.sort(key=lambda one: one.place or 0.0)
        elif all(one.run is not None for one in observations):
            observations.sort(key=lambda one: one.run or 0)
        cells.append(Cell(group, response, unit, condition, series, tuple(observations)))
    return cells


def choose_reference(groups: Sequence[str], wanted: str | None) -> str | None:
    """Return the requested reference, else a usual baseline label, else the first group; None for a single group."""
    if wanted is not None:
        if wanted not in groups:
            raise UnknownName("group", wanted, groups[:50], where="reference")
        return wanted
    if len(groups) < 2:
        return None
    by_word = {group.casefold(): group for group in reversed(groups)}
    for word in USUAL_REFERENCES:
        if word in by_word:
            return by_word[word]
    return groups[0]


def _rows(cells: Sequence[Cell]) -> dict[Key, list[Cell]]:
    """Collect the cells that differ only in their group."""
    rows: dict[Key, list[Cell]] = defaultdict(list)
    for cell in cells:
        rows[_key(cell)].append(cell)
    return rows


def _key(cell: Cell) -> Key:
    return cell.condition, f"{cell.response}\0{cell.unit}", cell.series


def _pairs(rows: Mapping[Key, Sequence[Cell]], reference: str | None) -> list[tuple[Cell, Cell]]:
    """Pair each group with the reference, or with the first group if the reference was not measured."""
    pairs = []
    for row in rows.values():
        base = next((cell for cell in row if cell.group == reference), row[0])
        pairs += [(cell, base) for cell in row if cell is not base]
    return pairs


def _scatter(cells: Sequence[Cell]) -> dict[str, float | None]:
    by_response: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        by_response[cell.response].append(cell)
    return {response: pooled_sd(row) for response, row in by_response.items()}


def _shortened(cell: Cell) -> Cell:
    """Return the cell without its odd first run."""
    condition = (*cell.condition, (RUNS, WITHOUT_FIRST))
    return dataclasses.replace(cell, observations=cell.observations[1:], condition=condition)


def _modes(rows: Mapping[Key, Sequence[Cell]], firsts: Collection[Key]) -> list[TwoModes]:
    """Find bimodality over all groups of a row, else in each group separately; odd first runs are left out."""
    found = []
    for key, row in rows.items():
        cells = list(map(_shortened, row)) if key in firsts else row
        pooled = find_modes(cells) if len(cells) > 1 else None
        if pooled is not None and beyond_treatment(pooled):
            found.append(pooled)
            continue
        found += [one for cell in cells if (one := find_modes([cell])) is not None]
    return found


def _weighed(one: AuditedPair, order: Sequence[RunOrder], repeats: Sequence[RepeatedGroup]) -> AuditedPair:
    """Add to a comparison the reasons not to trust its interval: order, autocorrelation, repeats."""
    reasons: list[Reason] = []
    key = (one.group, one.reference, one.response, one.condition, one.series)
    for fact in order:
        if (fact.group, fact.reference, fact.response, fact.condition, fact.series) != key:
            continue
        if fact.arrangement == "separate":
            reasons.append("separate")
        if _matters(fact):
            reasons.append("autocorrelated")
    if one.ratio is not None and any(
        (repeat.response, _unmarked(repeat.condition)) == (one.response, _unmarked(one.condition))
        and repeat.group in (one.group, one.reference)
        and abs(math.log(repeat.ratio)) >= abs(math.log(one.ratio))
        for repeat in repeats
    ):
        reasons.append("repeat")
    standing = one.standing
    if reasons and standing is Standing.APART:
        standing = Standing.CONFOUNDED
    return dataclasses.replace(one, standing=standing, reasons=tuple(dict.fromkeys(reasons)))


def _matters(fact: RunOrder) -> bool:
    """Return whether autocorrelation is significant (one-sided 5 %) and large enough to double a test's false alarms."""
    if fact.autocorrelation is None or fact.false_alarm is None or fact.arrangement == "mixed":
        return False
    return fact.false_alarm > 0.1 and fact.autocorrelation > 1.645 / math.sqrt(fact.values)


def _unmarked(condition: Labels) -> Labels:
    """Return the condition without the entries that the audit has added."""
    return {name: level for name, level in condition.items() if name not in (RUNS, SERIES)}


def _checks(
    dataset: Dataset,
    cells: Sequence[Cell],
    groups: Sequence[str],
    reference: str | None,
    comparisons: Sequence[AuditedPair],
    family: int,
    together: Mapping[str, int],
    scatter: Mapping[str, float | None],
    alpha: float,
    margin: float,
) -> list[ClaimCheck]:
    """Check every claim against every pair of cells that it may refer to."""
    found: list[ClaimCheck] = []
    by_group: dict[str, list[Cell]] = defaultdict(list)
    by_key: dict[tuple[str, Key], list[Cell]] = defaultdict(list)
    for cell in cells:
        by_group[cell.group].append(cell)
        by_key[cell.group, _key(cell)].append(cell)
    for claim in dataset.claims:
        base = claim.reference or reference
        if claim.group not in groups:
            raise UnknownName("group", claim.group, groups[:50], where=f'claim "{claim.text}"')
        if base is None or base not in groups:
            raise UnknownName("group", base or "", groups[:50], where=f'claim "{claim.text}"')
        matching = [
            (level, other)
            for level in by_group[claim.group]
            if claim.response in (None, level.response) and set(claim.condition) <= set(level.condition)
            for other in by_key[base, _key(level)]
        ]
        if not matching:
            raise RequestError(
                f'claim "{claim.text}": no values of {claim.group} and {base} under one condition',
                hint="write response and condition as in the table: ... in RESPONSE where column=value",
            )
        for level, other in matching[: MOST_CHECKS - len(found)]:
            comparison = _comparison_of(comparisons, level, other) or compare(
                level,
                other,
                alpha=alpha,
                margin=margin,
                family=family,
                together=max(1, together.get(level.response, 1)),
                pooled_sd=scatter[level.response],
            )
            checked = check_claim(claim, level, other, comparison)
            found.append(_with_needs(checked, level.unit, comparisons, alpha))
    return found


def _comparison_of(comparisons: Sequence[AuditedPair], level: Cell, other: Cell) -> AuditedPair | None:
    """Return the comparison of the same two cells, without odd first runs if there are any."""
    condition = dict(level.condition)
    found = [
        one
        for one in comparisons
        if (one.group, one.reference, one.response, one.series)
        == (level.group, other.group, level.response, level.series)
        and one.condition in (condition, {**condition, RUNS: WITHOUT_FIRST})
    ]
    return found[-1] if found else None


def _with_needs(check: ClaimCheck, unit: str, comparisons: Sequence[AuditedPair], alpha: float) -> ClaimCheck:
    """Add the number of blocks that the claimed effect would have needed."""
    ratio = claimed_ratio(check.claim, unit)
    comparison = check.comparison
    if ratio is None or comparison is None:
        return check
    together = sum(one.response == comparison.response and RUNS not in one.condition for one in comparisons)
    size = abs(math.log(ratio))
    needs = tuple(
        Need(
            need.block_sd,
            need.estimated,
            blocks_for(max(need.block_sd, LEAST_SD), size, alpha, max(together, 1)),
            need.margin_blocks,
        )
        for need in comparison.needs
    )
    return dataclasses.replace(check, claimed_ratio=ratio, needs=needs)
