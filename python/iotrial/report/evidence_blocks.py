"""Evidence as report blocks: what else changed with the treatment, in a sentence and as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

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
    plain,
    table,
)
from iotrial.report.document import Document
from iotrial.report.evidence import COUNT, KINDS, SHARES, EvidenceRow
from iotrial.report.findings import arms_are_rows
from iotrial.report.metrics import is_system_wide, words_of
from iotrial.report.notation import capitalised, counted, elided, percent, quantity
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
#: most conditions with a list of requests
_MOST_CONDITIONS = 3
#: with fewer requests, their times are not shown
_FEW = 10
#: singular and plural
_KINDS = {
    "read": ("read", "reads"),
    "write": ("write", "writes"),
    "flush": ("flush", "flushes"),
    "discard": ("discard", "discards"),
    "other": ("other", "others"),
}
_LONGEST_ARM = 24
#: widths below which a terminal shows a table of medians in parts: of names of metrics, and of values at least and at most
_LEAST_METRIC = 25
_LEAST_VALUE, _MOST_VALUE = len("strictatime"), len("▲ 12.5 MiB (× 4.96)")


def evidence_notes(document: Document) -> Iterator[Note]:
    """Yield what else changed, and the requests to the device, in words."""
    if document.evidence and (changes := _changes(document)):
        yield Note(_in_words(document, changes, _MOST_ON_SCREEN), "Evidence", view=View.TEXT)
    for words in _requests(document):
        yield Note(words, "Requests", view=View.FULL)


def _changes(document: Document) -> Counter[tuple[str, str, str]]:
    """Count what changed with the treatment, without the primary responses: metric, direction and arm."""
    primary = {row.effect.response for row in document.primary}
    return Counter(
        (row.metric, row.moved, row.treatment)
        for row in document.evidence
        if row.moved and row.metric not in primary
    )


def _in_words(document: Document, changes: Counter[tuple[str, str, str]], most: int) -> str:
    timed = {row.metric for row in document.evidence if row.unit in TIME_UNITS}
    # counters reveal more about the mechanism than other timings, and system-wide metrics reveal less
    ordered = sorted(changes, key=lambda key: (is_system_wide(key[0]), key[0] in timed, -changes[key]))
    texts = [f"{words_of(metric)} {way} with {escape(arm)}" for metric, way, arm in ordered]
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return f"{', '.join(texts[:most])}{more}"


def _requests(document: Document) -> Iterator[str]:
    """Yield the requests to the device in accounted repetitions, a line per condition, if there are few conditions."""
    conditions: dict[str, dict[str, dict[str, EvidenceRow]]] = {}
    for row in document.evidence:
        if row.metric.partition(".")[0] in (COUNT, *SHARES):
            by_treatment = conditions.setdefault(row.condition.text, {})
            by_treatment.setdefault(row.treatment, {})[row.metric] = row
    if len(conditions) > _MOST_CONDITIONS:
        return
    for condition, by_treatment in conditions.items():
        texts = [f"{escape(arm)} {_requested(rows)}" for arm, rows in by_treatment.items()]
        where = f"{condition}: " if len(conditions) > 1 else ""
        checks = ", with the checks after the work" if with_checks(document.data.requests) else ""
        yield f"{where}{'; '.join(texts)}. Traced separately, not in the timed runs{checks}"


def _requested(rows: Mapping[str, EvidenceRow]) -> str:
    """Return e.g. "400 reads (half within 60 µs, 99 % within 90 µs), 1 flush"."""
    texts = []
    for kind in KINDS:
        count = rows.get(f"{COUNT}.{kind}")
        if count is None or not count.value:
            continue
        times = [
            f"{share} within {quantity(row.value, 's')}"
            for name, share in (("accounted_request_p50", "half"), ("accounted_request_p99", "99 %"))
            if (row := rows.get(f"{name}.{kind}")) is not None
        ]
        words = f"{count.value:,.10g} {_KINDS[kind][count.value != 1]}"
        texts.append(f"{words} ({', '.join(times)})" if times and count.value >= _FEW else words)
    return ", ".join(texts) or "none"


def evidence_section(document: Document) -> Iterator[Section]:
    """Yield the table of what changed, with all other medians folded; by level if treatments are too many for columns."""
    if not document.evidence:
        return
    by_level = arms_are_rows(document.trial.header.study)
    notes = tuple(Note(f"{capitalised(escape(why))}.", view=View.PAGE) for why in document.data.not_accounted)
    lede = (_LEVEL_LEDE if by_level else _MEDIANS_LEDE).format(alpha=percent(document.trial.header.alpha))
    if not by_level and (document.data.calls or document.data.requests):
        lede += _ACCOUNTED
    every = {(row.condition.key, row.metric) for row in document.evidence}
    moved = {(row.condition.key, row.metric) for row in document.evidence if row.moved}
    changed = [row for row in document.evidence if (row.condition.key, row.metric) in moved]
    found = _changed_levels(document.evidence) if by_level else _medians(changed)
    blocks: list[Block] = [found if moved else Note("No change was shown."), *notes]
    if same := len(every) - len(moved):
        blocks.append(
            Note(f"{counted(same, 'value')} without a change shown (--json has all)", view=View.FULL)
        )
        if not by_level:
            others = [row for row in document.evidence if (row.condition.key, row.metric) not in moved]
            title = f"Without a change shown ({same})"
            blocks.append(Section(title, (_medians(others),), folded=True, view=View.PAGE))
    yield Section("Evidence: what else changed", tuple(blocks), id="evidence", lede=lede, view=View.LONG)


def _medians(evidence: Sequence[EvidenceRow]) -> Table:
    """Build a table by condition with one row per metric and one column per treatment. What changed is marked.

    If a terminal is too narrow for all treatments, each part of the table has the reference again.
    """
    arms = {row.treatment: row.is_reference for row in evidence}
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
    columns = [Column("metric", wide=True, least=_LEAST_METRIC)]
    for place, (arm, is_reference) in enumerate(arms.items(), start=1):
        longest = max(len(plain(row.cells[place], View.TEXT)) for group in groups for row in group.rows)
        least = min(max(longest, _LEAST_VALUE), _MOST_VALUE)
        columns.append(Column(elided(escape(arm), _LONGEST_ARM), right=True, least=least, kept=is_reference))
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
    return Words(f"{'▲' if way == 'up' else '▼'} {amount(row.value, row.unit, relative_to=reference)}", way)


def _changed_levels(evidence: Sequence[EvidenceRow]) -> Table:
    """Build a table of only what changed: metric, setting, and the values at the reference and at the level."""
    references: dict[tuple[str, str, str], EvidenceRow] = {}
    rows: list[tuple[Cell, ...]] = []
    for row in evidence:
        key = (row.condition.key, row.metric, row.group)
        if row.is_reference:
            references[key] = row
        elif row.moved is not None and (reference := references.get(key)) is not None:
            at_level = _marked(row, row.moved, reference.value)
            before = amount(reference.value, reference.unit)
            rows.append((row.condition.text, words_of(row.metric), escape(row.treatment), before, at_level))
    return table(("~condition", "~metric", "~setting", ">at the reference", ">at the level"), rows)
