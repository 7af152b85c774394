"""Evidence as report blocks: what else changed with the treatment, in a sentence and as a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from iotrial.report.blocks import (
    Block,
    Cell,
    Column,
    Group,
    Note,
    Row,
    Section,
    Table,
    View,
    Words,
    table,
)
from iotrial.report.document import Document
from iotrial.report.evidence import COUNT, KINDS, EvidenceRow
from iotrial.report.findings import arms_are_rows
from iotrial.report.metrics import SYNCED, is_system_wide, words_of
from iotrial.report.notation import capitalised, counted, elided, joined, percent
from iotrial.report.phrases import TIME_UNITS, amount
from iotrial.store.model import with_checks
from iotrial.terminal import escape

_MEDIANS_LEDE = (
    "Medians over valid runs; ▲ and ▼ mark what changed with the setting, by more than the margin. At most {alpha} of "
    "the marks are expected to be false (e-BH): this is exploratory, not a verdict. System-wide counters include other "
    "activity on the machine."
)
_ACCOUNTED = " Rows called accounted come from a few repetitions that were traced and not timed."
_LEVEL_LEDE = (
    "Means, over the rows at each level, of each row’s median; only changes beyond the margin are listed. At most {alpha} of "
    "them are expected to be false (e-BH): this is exploratory, not a verdict. System-wide counters include other "
    "activity on the machine."
)
_MOST_ON_SCREEN = 3
_ENERGY = "energy"
#: changes in the table; the rest is folded on a page
_MOST_CHANGES = 8
#: most conditions with a list of requests
_MOST_CONDITIONS = 3
#: most arms whose requests are listed
_MOST_ARMS = 4
#: singular and plural
_KINDS = {
    "read": ("read", "reads"),
    "write": ("write", "writes"),
    "flush": ("flush", "flushes"),
    "discard": ("discard", "discards"),
    "other": ("other", "others"),
}
_LONGEST_ARM = 24


def evidence_notes(document: Document) -> Iterator[Note]:
    """Yield what else changed, and the requests to the device, in words."""
    if changes := _changes(document):
        texts = [
            f"{words_of(metric)} {way} with {escape(treatment)}"
            for metric, way, treatment, _ in list(changes)[:_MOST_ON_SCREEN]
        ]
        more = f" and {len(changes) - _MOST_ON_SCREEN} more" if len(changes) > _MOST_ON_SCREEN else ""
        yield Note(f"{', '.join(texts)}{more}", "Evidence", view=View.SHORT)
    for words in _requests(document):
        yield Note(words, "Requests, traced separately", view=View.FULL)


def _changes(document: Document) -> dict[tuple[str, str, str, str], list[EvidenceRow]]:
    """Return what changed with the treatment, without the primary responses: its rows, one for each condition.

    A counter that goes on until the data is synced is left out if it changed like the one that ends with the run.

    Keys are metric, direction, treatment and group. Energy is first, since it is a cost of its own. Then counters: they say
    more about the mechanism than other timings, and system-wide metrics say less; what changed in more conditions is first.
    """
    primary = {row.effect.response for row in document.primary}
    found: dict[tuple[str, str, str, str], list[EvidenceRow]] = {}
    for row in document.evidence:
        if row.moved and not row.is_reference and row.metric not in primary:
            found.setdefault((row.metric, row.moved, row.treatment, row.group), []).append(row)
    timed = {row.metric for row in document.evidence if row.unit in TIME_UNITS}
    for metric, way, treatment, group in list(found):
        if metric.endswith(SYNCED) and (metric.removesuffix(SYNCED), way, treatment, group) in found:
            del found[metric, way, treatment, group]

    def rank(key: tuple[str, str, str, str]) -> tuple[bool, bool, bool, int]:
        metric = key[0]
        return not metric.startswith(_ENERGY), is_system_wide(metric), metric in timed, -len(found[key])

    return {key: found[key] for key in sorted(found, key=rank)}


def _requests(document: Document) -> Iterator[str]:
    """Yield the requests to the device in accounted repetitions, a line per condition, if there are few conditions."""
    conditions: dict[str, dict[str, dict[str, EvidenceRow]]] = {}
    for row in document.evidence:
        if row.metric.partition(".")[0] == COUNT:
            by_treatment = conditions.setdefault(row.condition.text, {})
            by_treatment.setdefault(row.treatment, {})[row.metric] = row
    if len(conditions) > _MOST_CONDITIONS:
        return
    for condition, by_treatment in conditions.items():
        arms: dict[str, list[str]] = {}
        for arm, rows in by_treatment.items():
            arms.setdefault(_requested(rows), []).append(escape(arm))
        texts = [f"{joined(names)} {requested}" for requested, names in arms.items()]
        if (more := len(texts) - _MOST_ARMS) > 0:
            texts[_MOST_ARMS:] = [f"{counted(more, 'more arm')} (--json)"]
        where = f"{condition}: " if len(conditions) > 1 else ""
        checks = ", all with the checks after the work" if with_checks(document.data.requests) else ""
        yield f"{where}{'; '.join(texts)}{checks}"


def _requested(rows: Mapping[str, EvidenceRow]) -> str:
    """Return e.g. "400 reads, 1 flush"."""
    texts = []
    for kind in KINDS:
        count = rows.get(f"{COUNT}.{kind}")
        if count is None or not count.value:
            continue
        texts.append(f"{count.value:,.10g} {_KINDS[kind][count.value != 1]}")
    return ", ".join(texts) or "none"


def evidence_section(document: Document) -> Iterator[Section]:
    """Yield the table of what changed, with everything else folded."""
    if not document.evidence:
        return
    by_level = arms_are_rows(document.trial.header.study)
    lede = (_LEVEL_LEDE if by_level else _MEDIANS_LEDE).format(alpha=percent(document.trial.header.alpha))
    if not by_level and (document.data.calls or document.data.requests):
        lede += _ACCOUNTED
    changes = list(_changes(document).values())
    blocks: list[Block] = [_changed(document, changes, most=_MOST_CHANGES)] if changes else []
    if not changes:
        blocks.append(Note("No change was shown."))
    blocks += [Note(f"{capitalised(escape(why))}.", view=View.PAGE) for why in document.data.not_accounted]
    if not by_level:
        title = f"All medians ({len({(row.condition.key, row.metric) for row in document.evidence})})"
        blocks.append(Section(title, (_medians(document.evidence),), folded=True, view=View.PAGE))
    elif len(changes) > _MOST_CHANGES:
        title = f"All changes ({len(changes)})"
        blocks.append(Section(title, (_changed(document, changes),), folded=True, view=View.PAGE))
    yield Section("Evidence: what else changed", tuple(blocks), id="evidence", lede=lede, view=View.LONG)


def _medians(evidence: Sequence[EvidenceRow]) -> Table:
    """Build a table by condition with one row per metric and one column per treatment. What changed is marked."""
    arms = list(dict.fromkeys(row.treatment for row in evidence))
    by_condition: dict[str, dict[str, dict[str, EvidenceRow]]] = {}
    for row in evidence:
        by_condition.setdefault(row.condition.text, {}).setdefault(row.metric, {})[row.treatment] = row
    groups = []
    for condition, metrics in by_condition.items():
        rows = []
        for metric, by_arm in metrics.items():
            rank = int(not any(row.moved for row in by_arm.values()))
            rows.append(Row((words_of(metric), *(_median(by_arm, arm) for arm in arms)), rank))
        groups.append(Group(tuple(rows), condition))
    columns = [Column("metric", wide=True)]
    columns += [Column(elided(escape(arm), _LONGEST_ARM), right=True) for arm in arms]
    return Table(tuple(columns), tuple(groups))


def _median(by_arm: Mapping[str, EvidenceRow], arm: str) -> Cell:
    row = by_arm.get(arm)
    if row is None:
        return "–"
    if row.moved is None or row.is_reference:
        return amount(row.value, row.unit)
    reference = next((one.value for one in by_arm.values() if one.is_reference), None)
    return _marked(row, row.moved, reference)


def _marked(row: EvidenceRow, way: str, reference: float | None) -> Words:
    mark = "▲" if way == "up" else "▼"
    text = f"{mark} {amount(row.value, row.unit, relative_to=reference)}"
    return Words(text, way, brief=f"{mark} {amount(row.value, row.unit)}")


def _changed(document: Document, changes: Iterable[Sequence[EvidenceRow]], most: int | None = None) -> Table:
    """Build a table of changes: the values at the reference and at the setting, where the change is clearest.

    Settings with the same values share a row. What a row has in common with the one above it is not repeated.
    """
    before = {
        (row.condition.key, row.metric, row.group): row for row in document.evidence if row.is_reference
    }
    several = len({row.condition.key for row in document.evidence}) > 1
    names = {tuple(name for name, _ in row.condition.parts) for row in document.evidence}
    named = ", ".join(names.pop()) if len(names) == 1 else ""
    alike: dict[tuple[Cell, ...], list[str]] = {}
    for found in changes:
        row = max(found, key=lambda one: one.e_value)
        reference = before.get((row.condition.key, row.metric, row.group))
        old, known = (
            ("–", None) if reference is None else (amount(reference.value, reference.unit), reference.value)
        )
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        where = ", ".join(label for _, label in row.condition.parts) if named else row.condition.text
        place = (f"{where}{more}",) * several
        new = _marked(row, row.moved or "", known)
        alike.setdefault((words_of(row.metric), *place, old, new), []).append(escape(row.treatment))
    rows: list[tuple[Cell, ...]] = []
    above: tuple[Cell, ...] = ()
    for (*head, before_it, after_it), settings in list(alike.items())[:most]:
        metric, *places = (
            "" if above[: n + 1] == tuple(head[: n + 1]) else one for n, one in enumerate(head)
        )
        rows.append((metric, joined(settings), *places, before_it, after_it))
        above = tuple(head)
    left = sum(map(len, list(alike.values())[len(rows) :]))
    columns = (
        "~metric",
        "~setting",
        *(f"~{named or 'condition'}",) * several,
        ">at the reference",
        ">at the setting",
    )
    note = f"and {counted(left, 'more change')} (--json)" if left else ""
    return replace(table(columns, rows, note=note), brief=note)
