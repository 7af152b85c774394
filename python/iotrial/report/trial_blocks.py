"""A trial as report blocks: the answer, its size with interval, what supports it, what limits it, then everything else."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from iotrial.report.blocks import (
    DECISIVE,
    EQUIVALENT,
    UNDECIDED,
    Block,
    Cell,
    Claim,
    Code,
    Column,
    Drawn,
    Facts,
    Group,
    Note,
    Panels,
    Report,
    Row,
    Section,
    Table,
    View,
    Words,
    heads,
    table,
)
from iotrial.report.claims import ClaimGroup, HeldClaim, Outcome, grouped, in_brief
from iotrial.report.conditions import EVERYWHERE
from iotrial.report.diagnostics import steady_sentence
from iotrial.report.document import OTHER_CLAIMS, Document
from iotrial.report.durability import durability_notes, durability_section
from iotrial.report.evidence import Typical
from iotrial.report.evidence_blocks import evidence_notes, evidence_section
from iotrial.report.facts import facts_section
from iotrial.report.fidelity import fidelity_sections, fidelity_warnings
from iotrial.report.figure import stem
from iotrial.report.figures import Figures, draw_figures, runs_sections
from iotrial.report.matrices import matrix_section
from iotrial.report.notation import (
    capitalised,
    counted,
    day_and_time,
    elided,
    joined,
    p_value,
    percent,
    quantity,
    some,
)
from iotrial.report.phrases import (
    Kind,
    interval,
    interval_title,
    kind_of,
    reason_of,
    spoken,
    verdict_cell,
)
from iotrial.report.race import race_blocks
from iotrial.report.rows import EffectRow
from iotrial.report.safety import safety_blocks
from iotrial.report.sentences import Tone
from iotrial.report.windows import stop_notes, window_notes, windows_section
from iotrial.report.within import changes_within
from iotrial.stats.model import QUIET, Conclusion, Effect, Verdict
from iotrial.store.model import TrialState
from iotrial.terminal import escape
from iotrial.units import format_duration, format_ratio

INTERACTION_LEDE = (
    "How one setting changes the effect of another. In tables and figures, an interaction is half the "
    "difference between one factor’s effects at the two levels of the other, on the scale of the response, so "
    "that it is comparable with main effects; sentences give the whole difference, which for ratios is the "
    "square of that number."
)
_EXPLORATORY_LEDE = (
    "The trial was not planned for these. The share of false discoveries among those marked yes is kept below {alpha} "
    "(e-BH); use them as hints for the next study."
)
_CONTROLS_LEDE = (
    "An identical copy of the reference must show no difference, and an injected slowdown must be measured at "
    "its true size. Otherwise the trial is invalid."
)
_NO_CONTROLS = (
    "None. It is not verified that this trial detects an effect, or that it finds none where there is none."
)
_LOSSES_LEDE = (
    "A void block is left out completely, by a rule that is the same for all arms and does not depend on the "
    "result. A failed run is never left out: its comparison is at best undecided."
)
_MIXED_LEDE = (
    "For a main effect: the two-factor interactions that it includes, with their weights. For an interaction: "
    "those in the same column, with a minus if the sign is opposite."
)
TONES = {
    Outcome.CONFIRMED: "confirmed",
    Outcome.NOT_CONFIRMED: "contradicted",
    Outcome.CONTRADICTED: "contradicted",
    Outcome.CANNOT_SAY: "open",
}
_LONGEST_COMPARISON = 60
_LONGEST_LEVEL = 16
_STATUS = re.compile(r" ended with status (\d+)")
#: from here on it is the shell that failed: 126 for no program, 127 for none of that name, more for a signal
_FIRST_OF_SHELL = 126
#: with "Run again: " before it, one line of a narrow terminal
_LONGEST_TYPED = 68
_MOST_ON_SCREEN = 3
_MOST_CONDITIONS = 6
#: a longer table of effects is folded on a page, below its chart
_MOST_ROWS_OPEN = 12
#: effects on other responses in the full text; a page and --json have all
_MOST_EXPLORATORY = 6
_MOST_LISTED = 200
#: rows of the table of effects in text, below a table that has all verdicts
_MOST_BESIDE = 20
#: parts of a trial's time that the full text names
_MOST_PARTS = 5
_MOST_ALIASES = 24


def trial_report(document: Document, *, figures: int | None = None, html_path: str | None = None) -> Report:
    """Build the report of a trial.

    ``figures`` is the most conditions to draw, for a page (None: no figures). ``html_path`` is the file of the page,
    which a terminal names at the end.
    """
    trial = document.trial
    header = trial.header
    number = trial.number
    drawn = None if figures is None else draw_figures(document, most_panels=figures)
    tone = document.summary.tone
    badges = [] if tone is Tone.MIXED else [Words(tone.value, tone.value, badge=True)]
    if trial.state not in (TrialState.DONE, TrialState.INVALID):
        badges.append(Words(trial.state.value, trial.state.value, badge=True))
    if not document.with_controls and not header.study.in_windows:
        badges.append(Words("without controls", "mixed", badge=True))
    return Report(
        title=document.title,
        headline=document.summary.headline,
        tone=document.summary.tone.value,
        question=escape(header.study.question),
        badges=tuple(badges),
        top=(
            document.title,
            *((f"trial {number}",) if number else ()),
            f"{day_and_time(header.started)} UTC",
        ),
        footer=f"iotrial {header.version}, trial {header.id}, seed {header.seed}. This file is self-contained: "
        f"it loads nothing.",
        files=stem(escape(header.study.name), *((str(number),) if number else ())),
        rest=f"iotrial report {number or 'FILE'}",
        blocks=tuple(_blocks(document, drawn, html_path)),
    )


def _blocks(document: Document, drawn: Figures | None, html_path: str | None) -> Iterator[Block]:
    yield from stop_notes(document)
    yield from fidelity_warnings(document.fidelities)
    yield from _answer(document, drawn)
    yield from document.summary.supports
    yield from _supports(document)
    yield from document.summary.limits
    yield from safety_blocks(document.safety)
    yield from durability_notes(document.durability)
    yield from _limits(document)
    yield from window_notes(document)
    yield from fidelity_sections(document.fidelities)
    if drawn is not None:
        yield from windows_section(document, Drawn.all_of(drawn.windows))
        yield from runs_sections(drawn)
    yield from durability_section(document.durability, document.data.not_cut)
    yield from evidence_section(document)
    yield from _exploratory(document)
    yield from _claims(document)
    yield from _controls(document)
    yield from _losses(document)
    yield from _plan(document)
    yield from _end(document, html_path)


# -- the answer


def _answer(document: Document, drawn: Figures | None) -> Iterator[Block]:
    yield from facts_section(document.facts)
    maps = () if drawn is None else drawn.matrices
    yield from matrix_section(document.matrices, maps, valid=document.valid)
    if document.analysis.races:
        figures = () if drawn is None else tuple(Drawn.of(one, title=one.title) for one in drawn.races)
        yield from race_blocks(document, figures)
    if document.primary:
        # a table of facts or of a matrix already says this on the first screen
        view = View.LONG if document.facts or document.matrices or document.analysis.races else View.ALL
        pooled = effect_table(document.pooled, valid=document.valid)
        every = effect_table(document.primary, valid=document.valid)
        if view is View.LONG:
            every = replace(every, most=_MOST_BESIDE)
        drawings: list[Block] = []
        if drawn is not None:
            several = len(drawn.forests) > 1
            drawings = [
                Drawn.of(one, title=one.title if several else "", apart=True) for one in drawn.forests
            ]
        more: list[Block] = [every, *drawings]
        if drawings and len(document.primary) > _MOST_ROWS_OPEN:
            more = [*drawings, Section("Effects as a table", (every,), folded=True)]
        if document.pooled:
            title = f"Means over conditions (pooled): a separate family ({len(document.pooled)})"
            if pooled.note in every.note:  # two tables above it
                pooled = replace(pooled, note="", brief=None)
            vary = all(row.effect.conclusion is Conclusion.VARIES for row in document.pooled)
            more.append(Section(title, (pooled,), folded=True, view=View.PAGE if vary else View.LONG))
        more += _reasons(document.primary) if document.valid else ()
        yield Section("Effects", tuple(more), id="effects", lede=_effects_lede(document), view=view)
    yield from _factors(document, drawn)


_SPREAD = "Medians; ±: half the distance between the quartiles."
#: under a table with an equivalent effect
_BOUNDS = "Equivalent: intervals are one-sided bounds."
_TYPICALLY = "Typical runs: the mean run is not shown to be equivalent."


def effect_table(rows: Sequence[EffectRow], *, valid: bool, exploratory: bool = False) -> Table:
    """Build a table with one line per effect.

    If there is one comparison, it is in the heading, and lines go by condition, or by response under a heading for each
    condition. Else they go by comparison under a heading for each condition. A trial in one condition needs none.
    """
    comparisons = {row.comparison for row in rows}
    measured = any(one is not None for row in rows for one in row.typical)
    alone = all(row.place == EVERYWHERE for row in rows)
    several = len({row.effect.response for row in rows}) > 1
    one = len(comparisons) == 1 and (several or not alone)
    single = one and not several
    numbers = interval_title(row.effect.scale for row in rows)
    levels = ["level", "reference"]
    at = View.PAGE if exploratory else View.ALL
    if one:
        effect = rows[0].effect
        levels = [elided(escape(name), _LONGEST_LEVEL) for name in (effect.level, effect.reference)]
    head = elided(comparisons.pop(), _LONGEST_COMPARISON) if one else "comparison"
    # the settings of one factor against the same reference are named by their levels
    of_one_factor = len({(row.effect.factor, row.effect.reference) for row in rows}) == 1
    kind = {row.effect.kind for row in rows}
    by_level = len({row.comparison for row in rows}) > 1 and of_one_factor
    by_level &= kind == {"pooled"} or (measured and kind == {"main"})
    if by_level:
        named = rows[0].effect.factor, rows[0].effect.reference
        head, levels[1] = (elided(escape(name), _LONGEST_LEVEL) for name in named)
        head = head if measured else f"{head} / {levels[1]}"
    # a sentence says "18 to 23 blocks a comparison"
    said = valid and all(row.effect.blocks and not row.effect.failures for row in rows)
    columns = heads(
        Column(head, wide=True),
        *(Column(name, right=True, view=at) for name in levels if measured),
        f">{numbers}",
        Column("discovery" if exploratory else "p (anytime)", right=True, view=View.PAGE),
        Column("blocks", right=True, view=View.PAGE if said else View.LONG),
        "~verdict",
    )
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        # of other responses the heading is all that names one, also where there is only one
        response = spoken(row.effect.response) if several or exploratory else ""
        title = response if alone else f"{row.place}: {response}" if response else row.place
        if one and several:
            title = "" if alone else row.place
        name = escape(row.effect.level) if by_level else row.comparison
        place = row.condition.key
        if kind == {"pooled"} and not one:  # few rows a workload: a heading each would double the table
            title, place = response if several else "", ""
            name = ": ".join((*(label for _, label in row.condition.parts), name))
        if one:
            name = response if several else title
        name = elided(name, _LONGEST_COMPARISON)
        key = () if single else (title, place)
        own = groups.setdefault(key, [])
        own.append(_effect(row, name, measured=measured, valid=valid, exploratory=exploratory))
        for cell in row.cells:
            typical = tuple(map(_typical, cell.typical)) if measured else ()
            shown = cell.effect.low is not None or cell.effect.high is not None
            word = (
                verdict_cell(cell.effect, cell.effect.conclusion.words, risk=row.risk, valid=valid)
                if shown
                else ""
            )
            p = p_value(cell.effect.p_anytime) if shown else ""
            own.append(Row((f"  {elided(cell.name, _LONGEST_COMPARISON)}", *typical, cell.size, p, "", word)))
    made = tuple(Group(tuple(members), key[0] if key else "") for key, members in groups.items())
    bounded = any(row.effect.bounds and row.effect.verdict is Verdict.EQUIVALENT for row in rows)
    typically = any(row.effect.conclusion is Conclusion.EQUIVALENT_TYPICALLY for row in rows)
    spread = not exploratory and any(
        one is not None and one.low is not None for row in rows for one in row.typical
    )
    note = " ".join(([_BOUNDS] * bounded + [_TYPICALLY] * typically) * valid)
    most = _MOST_EXPLORATORY * exploratory
    if kind == {"pooled"}:  # the table above has what the others hide
        hidden = Conclusion.VARIES, Conclusion.UNDECIDED
        most = max(1, sum(row.effect.conclusion not in hidden for row in rows))
    whole = " ".join(filter(None, (_SPREAD * spread, note)))
    return Table(columns, made, note=whole, noun="comparison", most=most, brief=note if spread else None)


def _effect(row: EffectRow, name: str, *, measured: bool, valid: bool, exploratory: bool) -> Row:
    effect = row.effect
    p = {True: "yes", False: "no", None: "–"}[effect.discovery] if exploratory else p_value(effect.p_anytime)
    blocks = (Words(f"{effect.blocks:,}" + (f" (+{effect.failures} failed)" if effect.failures else "")),)
    words = effect.conclusion.words if valid else "without a verdict"
    typical = tuple(map(_typical, row.typical)) if measured else ()
    cells = (name, *typical, interval(effect), p, blocks, _verdict(row, valid=valid))
    return Row(cells, rank_of(effect), words)


def _typical(one: Typical | None) -> Cell:
    """Return e.g. "36.2 ms ± 3 %", on a page with the bytes or operations per second."""
    if one is None:
        return "–"
    text = brief = quantity(one.value, one.unit)
    if one.low is not None and one.high is not None and one.value:
        text += f" ±{(one.high - one.low) / 2 / abs(one.value):.0%}".replace("%", " %")
    if one.rate is None:
        return Words(text, brief=brief)
    return Words(text, brief=brief), Words(quantity(*one.rate), "dim", small=True, view=View.PAGE)


def _reasons(rows: Sequence[EffectRow]) -> Iterator[Note]:
    """Yield why effects are open, each reason once: in the cells of a terminal's table it would take many lines."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if reason := reason_of(row.effect):
            found.setdefault((row.effect.conclusion.words, reason), []).append(row.comparison)
    for (word, reason), names in found.items():
        named = some(list(dict.fromkeys(names)), _MOST_ON_SCREEN)
        yield Note(f"{joined(named)}: {reason}.", capitalised(word), view=View.FULL)


def rank_of(effect: Effect) -> int:
    """Return the rank of an effect's row: a table that must be cut loses the highest ranks first."""
    if effect.conclusion is Conclusion.VARIES and effect.kind == "pooled":
        return EQUIVALENT + 1
    if effect.conclusion.equivalent:
        return EQUIVALENT
    return UNDECIDED if effect.conclusion.open else DECISIVE


def _verdict(row: EffectRow, *, valid: bool) -> Cell:
    return verdict_cell(row.effect, row.verdict, risk=row.risk, valid=valid, reasons=View.PAGE)


def _factors(document: Document, drawn: Figures | None) -> Iterator[Section]:
    """Yield what one setting does to the effect of another: figures, decided interactions, and all as a table."""
    blocks: list[Block] = []
    groups = drawn.factorial if drawn is not None else ()
    for group in groups:
        figures = [
            Drawn.of(one, apart=True) for one in (group.half_normal, group.main_effects) if one is not None
        ]
        crossed = tuple(Drawn.of(one, title=one.title) for one in group.interactions)
        title = f"Figures: {group.title}" if len(groups) > 1 else "Figures"
        drawings = (*figures, *((Panels(crossed),) if crossed else ()))
        blocks.append(Section(title, drawings, folded=True, view=View.PAGE))
    rows = document.interactions
    if rows:
        if document.valid:
            blocks += _interactions(rows, document.effects)
        columns = heads(
            "~condition", "~interaction", "response", ">half difference", ">blocks", "~verdict", "~effects"
        )
        made = tuple(
            Row((*_crossed(row), _verdict(row, valid=document.valid), _parts_of(row))) for row in rows
        )
        every = Table(columns, (Group(made),), noun="smaller interaction")
        title = f"Interactions as a table ({len(rows)})"
        blocks.append(Section(title, (every,), folded=True, view=View.PAGE))
    if blocks:
        yield Section("Factors", tuple(blocks), id="factors", lede=INTERACTION_LEDE if rows else "")


def _crossed(row: EffectRow) -> tuple[Cell, ...]:
    effect = row.effect
    note: tuple[Words, ...] = () if effect.primary else (Words("not named in the study", "dim"),)
    name = (Words(row.comparison), *note)
    return row.condition.text, name, spoken(effect.response), interval(effect), f"{effect.blocks:,}"


def _parts_of(row: EffectRow) -> str:
    return "; ".join([*(one.text for one in row.at_levels), *([row.aliases] if row.aliases else [])])


def _interactions(rows: Sequence[EffectRow], effects: Sequence[EffectRow]) -> Iterator[Note]:
    """Yield the interactions with an effect, each with the effects that it consists of unless the table has them."""
    split = {(row.condition.key, row.effect.response, row.effect.factor) for row in effects if row.cells}
    loud = [row for row in rows if row.effect.verdict not in QUIET]
    named = sum(row.effect.primary for row in rows)
    note = f"{counted(named, 'interaction')} named" if named else "No interaction named"
    others = f", {len(rows) - named} others as a separate family" if len(rows) > named else ""
    view = View.ALL if loud and not split else View.LONG
    yield Note(f"{note}{others}: {len(loud)} confirmed.", "Interactions", view=view)
    for row in loud:
        # interactions that the study names are described in full above
        text = f"{row.comparison}: {row.verdict}" if row.effect.primary else row.sentence
        factors = row.effect.factor.split(":")
        in_table = any((row.condition.key, row.effect.response, name) in split for name in factors)
        parts = row.aliases if in_table else _parts_of(row)
        yield Note(". ".join(filter(None, (text.rstrip("."), parts))) + ".", view=View.LONG)


# -- what supports it, and what limits it


def _supports(document: Document) -> Iterator[Note]:
    yield from evidence_notes(document)
    alike: dict[str, list[str]] = {}
    for row in document.diagnostics:
        for sentence in row.sentences:
            alike.setdefault(sentence, []).append(row.condition.text)
    for sentence, conditions in alike.items():
        yield Note(f"{'; '.join(conditions)}: {sentence}.", "Note", view=View.FULL)
    if document.steady:
        yield Note(f"{steady_sentence(document.steady)}.", "Steady state (SNIA, five rounds)", view=View.LONG)
    for within in changes_within(document.data, document.conditions)[:_MOST_ON_SCREEN]:
        yield Note(
            f"within a run of {escape(within.arm)}, {within.what}: after {format_duration(within.at_s)} from "
            f"{quantity(within.before, within.unit)} to {quantity(within.after, within.unit)}",
            "Change",
            view=View.FULL,
        )


def _limits(document: Document) -> Iterator[Note]:
    if document.failures:
        arms: dict[str, Counter[str]] = {}
        for run in document.failures:
            arms.setdefault(run.message, Counter())[run.arm] += 1
        named = [
            f"{elided(message, 60)} ({', '.join(f'{number} of {arm}' for arm, number in found.items())})"
            for message, found in arms.items()
        ]
        text = f"{counted(len(document.failures), 'run')}: {'; '.join(some(named, _MOST_ON_SCREEN))}"
        message, found = next(iter(arms.items()))
        status = _STATUS.search(message) if len(arms) == 1 and len(found) > 1 else None
        if status is not None and int(status[1]) < _FIRST_OF_SHELL and document.trial.header.study.quick:
            text += f". If this status means success: --expect-exit {status[1]}"
        yield Note(text, "Failed", view=View.TEXT)
    for note in document.analysis.notes:
        if note.startswith("controls were off"):  # a sentence above says so
            continue
        # the line above has these counts
        view = View.LONG if document.failures and " failed runs of " in note else View.ALL
        yield Note(escape(note), "Note", view=view)
    for why in document.data.not_accounted:
        yield Note(escape(why), "Note", view=View.FULL)
    for why in document.data.not_cut:
        yield Note(escape(why), "Note", view=View.SHORT)


def _claims(document: Document) -> Iterator[Block]:
    """Yield the claims: on the first screen one line with the outcomes, elsewhere every claim."""
    groups = grouped(document.claims)
    if not groups:
        return
    outcomes = Counter(
        group.outcome.value if group.outcome else "depends on the condition" for group in groups
    )
    counts = ", ".join(f"{number} {outcome}" for outcome, number in outcomes.most_common())
    counts = next(iter(outcomes)) if len(outcomes) == 1 else counts
    others = (
        " (those of the current study file, not the stored one)"
        if OTHER_CLAIMS in document.summary.details
        else ""
    )
    yield Note(f"{counted(len(groups), 'published claim')}: {counts}{others} (--full)", view=View.SHORT)
    open_ones = [group for group in groups if group.outcome is Outcome.CANNOT_SAY]
    blocks: list[Block] = [Note(text, "Claim", view=View.FULL) for text in in_brief(groups)]
    blocks += [_claim(group) for group in groups if group not in open_ones]
    cards = tuple(map(_claim, open_ones))
    if open_ones and len(open_ones) < len(groups):
        title = f"This trial cannot say ({len(open_ones)})"
        blocks.append(Section(title, cards, folded=True, view=View.PAGE))
    else:
        blocks += cards
    alone = len(open_ones) == len(groups)
    title = f"Published claims{f': this trial cannot say ({len(groups)})' if alone else ''}"
    yield Section(title, tuple(blocks), id="claims", folded=alone, view=View.LONG)


def _claim(group: ClaimGroup) -> Claim:
    first, outcome = group.held[0], group.outcome
    here = tuple(_here(held, outcome) for held in group.held[:_MOST_CONDITIONS])
    if len(group.held) > _MOST_CONDITIONS:
        here += ((f"and {len(group.held) - _MOST_CONDITIONS} more conditions", "", None),)
    return Claim(
        text=escape(group.claim.text),
        source=escape(group.claim.source),
        outcome=outcome.value if outcome else "depends on the condition",
        tone=_tone(outcome),
        published=first.published,
        here=here,
        why=f"{capitalised(first.why)}." if outcome else "",
        note=escape(group.claim.note),
    )


def _here(held: HeldClaim, shared: Outcome | None) -> tuple[str, str, Words | None]:
    where = held.condition.text if held.condition is not None and held.condition.parts else ""
    badge = None if shared else Words(held.outcome.value, _tone(held.outcome), badge=True)
    return held.here, where, badge


def _tone(outcome: Outcome | None) -> str:
    return "partly" if outcome is None else TONES.get(outcome, "partly")


# -- everything else


def _exploratory(document: Document) -> Iterator[Section]:
    """Yield the effects on other responses: those that differ, and folded or counted those that do not."""
    if not document.exploratory:
        return
    lede = _EXPLORATORY_LEDE.format(alpha=percent(document.trial.header.alpha))
    loud = [row for row in document.exploratory if row.effect.discovery or row.effect.verdict not in QUIET]
    quiet = [row for row in document.exploratory if row not in loud]
    blocks: list[Block] = []
    if loud:
        blocks.append(effect_table(loud, valid=document.valid, exploratory=True))
    if quiet:
        kinds = Counter(
            row.effect.conclusion.words if document.valid else "without a verdict" for row in quiet
        )
        counts = joined(f"{number:,} {kind}" for kind, number in kinds.most_common())
        blocks.append(Note(f"{counts} (--json)", "Others" if loud else "All", view=View.FULL))
        every = effect_table(quiet, valid=document.valid, exploratory=True)
        blocks.append(
            Section(f"Without a difference shown ({len(quiet)})", (every,), folded=True, view=View.PAGE)
        )
    title = "Other responses (exploratory)"
    yield Section(title, tuple(blocks), id="other", lede=lede, folded=True, view=View.LONG)


def _controls(document: Document) -> Iterator[Section]:
    columns = ("~condition", "control", ">put in", "~found", ">blocks", "")
    rows = []
    for row in document.controls:
        control = row.finding
        state = (
            Words("failed", "failed", badge=True)
            if not control.passed
            else Words(control.standing, "mixed", badge=True)
            if control.standing
            else Words("passed", "confirmed", badge=True)
        )
        kind = "identical copy" if control.kind == "negative" else "slowed copy"
        found = f"{capitalised(row.sentence)}."
        cells = (row.condition.text, kind, format_ratio(control.injected), found, str(control.blocks), state)
        rows.append(Row(cells, rank=int(control.passed)))
    blocks: list[Block] = [table(columns, rows, view=View.PAGE)] if rows else []
    if bad := [row for row in rows if not row.rank]:
        blocks.append(table(columns, bad, view=View.FULL))
    if document.carry_over:
        carried = []
        for one in document.carry_over:
            texts = [f"{capitalised(text)}." for text in one.sentences]
            passed = one.finding.passed
            state = Words("passed" if passed else "failed", "confirmed" if passed else "failed", badge=True)
            if passed and one.finding.held:
                state = Words("suspected", "mixed", badge=True)
            elif passed and not one.finding.blocks:
                state = Words("too few blocks", "mixed", badge=True)
            before = one.finding.wash_in
            wash_in = "none" if before is None else f"{before.runs} x {before.before}"
            carried.append((one.condition.text, " ".join(texts), str(one.finding.blocks), wash_in, state))
        names = ("~condition", "~found", ">blocks", "wash-in", "")
        title = "Carry-over: does a run depend on the one before?"
        blocks.append(table(names, carried, title=title, view=View.PAGE))
    lede = _CONTROLS_LEDE if document.controls else _NO_CONTROLS
    failed = not document.valid
    # sentences below the effects have carry-over, and controls that have not failed
    view = View.LONG if failed or not rows else View.PAGE
    if not rows:
        blocks.append(Note(_NO_CONTROLS, view=View.FULL))
    yield Section("Controls", tuple(blocks), id="controls", lede=lede, folded=True, open=failed, view=view)


def _losses(document: Document) -> Iterator[Block]:
    lost = len(document.void) + len(document.failures)
    view = View.LONG if document.failures else View.PAGE
    blocks: list[Block] = []
    if document.analysis.void:
        rows = [
            (escape(one.rule), escape(one.level or "–"), f"{one.count}") for one in document.analysis.void
        ]
        blocks.append(table(("~rule", "~level with the failed check", ">blocks"), rows))
        if not document.failures:
            by_rule: dict[str, list[str]] = {}
            for one in sorted(document.analysis.void, key=lambda one: -one.count):
                by_rule.setdefault(one.rule, []).append(f"{escape(one.level or '–')} ({one.count})")
            found = "; ".join(f"{escape(rule)} {joined(levels)}" for rule, levels in by_rule.items())
            yield Note(f"{found}.", "Void, by the level whose check failed", view=View.FULL)
    if document.void:
        every = [
            (one.condition.text, f"{one.block}", one.rule, one.level, _seconds(one.at_s))
            for one in document.void[:_MOST_LISTED]
        ]
        void = table(("~condition", ">block", "~rule", "~level", ">at"), every)
        blocks.append(
            Section(f"Every void block ({len(document.void)})", (void,), folded=True, view=View.PAGE)
        )
    if document.failures:
        runs = [
            (run.condition.text, f"{run.block}", run.arm, _seconds(run.at_s), run.message)
            for run in document.failures[:_MOST_LISTED]
        ]
        failed = table(("~condition", ">block", "~arm", ">at", "~failure"), runs)
        title = f"Every failed run ({len(document.failures)})"
        blocks.append(Section(title, (failed,), folded=True, open=True, view=View.LONG))
    lede = _LOSSES_LEDE if lost else "None: every run counts."
    blocks = blocks or [Note("No block is void and no run failed.", view=View.PAGE)]
    yield Section(
        f"Void blocks and failed runs ({lost})" if lost else "Void blocks and failed runs",
        tuple(blocks),
        id="losses",
        lede=lede,
        folded=not lost,
        view=view,
    )


def _seconds(at_s: float | None) -> str:
    return "–" if at_s is None else format_duration(at_s)


def _time_spent(document: Document) -> Iterator[Block]:
    """Yield the table of where the time went; nothing for a trial that did not record it."""
    spent_s = document.data.time_spent
    total_s = sum(spent_s.values())
    if not total_s:
        return
    rows = [
        (escape(part), f"{seconds:,.1f}", percent(seconds / total_s)) for part, seconds in spent_s.items()
    ]
    rows.append(("all", f"{total_s:,.1f}", percent(1.0)))
    title = "Where the time went"
    largest = sorted(spent_s.items(), key=lambda part: -part[1])[:_MOST_PARTS]
    line = ", ".join(f"{escape(part)} {percent(seconds / total_s)}" for part, seconds in largest)
    yield Note(f"{title}: {line}.", view=View.FULL)
    yield Section(
        title,
        (table(("part", ">seconds", ">share"), rows),),
        id="time",
        folded=True,
        view=View.PAGE,
    )


def _plan(document: Document) -> Iterator[Block]:
    header, design = document.trial.header, document.design
    more: list[Block] = []
    if design is not None and len(design.factors) > 1:
        slowed = design.controls == "columns"
        columns = ["treatment", *map(escape, design.factors), *(["stretched"] if slowed else [])]
        rows = [
            (escape(row.arm), *map(escape, row.levels), *(["yes" if row.stretched else ""] if slowed else []))
            for row in design.rows
        ]
        title = f"The treatments, row by row ({len(rows)})"
        more.append(Section(title, (table(columns, rows[:_MOST_LISTED]),), folded=True, view=View.PAGE))
        mixed = [(escape(name), _biased(biased, ", ")) for name, biased in design.aliases.items()]
        same = list(design.mixed_interactions.items())[:_MOST_LISTED]
        mixed += [(escape(name), f"= {_biased(others, ' = ')}") for name, others in same]
        if mixed:
            title = "What is mixed with what"
            more.append(Section(title, (Facts(tuple(mixed)),), lede=_MIXED_LEDE, folded=True, view=View.PAGE))
    yield Section("The plan", (Facts(document.plan), *more), id="plan", folded=True, view=View.LONG)
    yield from _time_spent(document)
    machine = ", ".join(f"{name} {fact}" for name, fact in document.machine)
    yield Note(machine, "The machine", view=View.FULL)
    yield Section("The machine", (Facts(document.machine),), id="machine", folded=True, view=View.PAGE)
    yield Section("The lab", (Facts(document.lab),), id="lab", folded=True, view=View.PAGE)
    again: list[Block] = [Code(document.rerun)]
    if header.study.why:
        again.append(Note(f"Why this study: {escape(header.study.why)}", view=View.PAGE))
    if header.study.text:
        again.append(
            Section("The study file as run", (Code(header.study.text),), folded=True, view=View.PAGE)
        )
    lede = "The same seed gives the same plan: the same order of runs and assignment of files."
    yield Section("Run it again", tuple(again), id="again", lede=lede, folded=True, view=View.PAGE)
    yield Section("What the words mean", (Facts(GLOSSARY),), id="words", folded=True, view=View.PAGE)


def _biased(names: Sequence[str], between: str) -> str:
    more = f" and {len(names) - _MOST_ALIASES} more" if len(names) > _MOST_ALIASES else ""
    return between.join(map(escape, names[:_MOST_ALIASES])) + more


def _end(document: Document, html_path: str | None) -> Iterator[Block]:
    trial = document.trial
    named = f"Trial {trial.number}" if trial.number else "A packed trial"  # which is in no store
    quick = trial.header.study.quick
    lasted = format_duration(trial.duration_s)
    text = f"{named}, {document.title}, {lasted}."
    rest = f"`iotrial report {trial.number} --full`" if trial.number else "--full"
    # a question of one line is still on the screen, and so is its command
    brief = f"{named}, {lasted}." if quick else text
    yield Note(f"{brief} {rest} shows the rest.", tone="dim", view=View.SHORT)
    yield Note(text, tone="dim", view=View.FULL)
    if not quick:
        yield Code(document.rerun, "Run again", view=View.TEXT)
    else:
        if len(document.typed) <= _LONGEST_TYPED:
            yield Code(document.typed, "Run again", view=View.SHORT)
        yield Code(document.rerun, "Run again", view=View.FULL)
    if html_path is not None:
        yield Code(html_path, "Figures and everything else", view=View.TEXT)


def _effects_lede(document: Document) -> str:
    text = (
        "A ratio is the response at the level divided by the response at the reference"
        f"{below_one(document.analysis.effects)}. Intervals are valid at any time, so looking early is allowed; "
        f"the margin is {percent(document.trial.header.margin)}."
    )
    return text if document.valid else f"The trial is invalid: these are not verdicts. {text}"


def below_one(effects: Sequence[Effect]) -> str:
    """Return what a ratio below 1 means: ": below 1 is less time" for times, "a lower rate" for rates; "" for differences."""
    kinds = {kind_of(effect) for effect in effects if effect.primary}
    words = {Kind.TIME: "less time", Kind.RATE: "a lower rate", Kind.AMOUNT: "a lower value"}
    found = [words[kind] for kind in words if kind in kinds]
    return f": below 1 is {joined(found, last='or')}" if found else ""


GLOSSARY: tuple[tuple[str, str], ...] = (
    ("faster, slower", "The whole interval lies beyond the margin."),
    (
        "probably faster, slower",
        "The interval excludes “no effect”, but the effect may be smaller than the margin.",
    ),
    ("better, worse, higher, lower", "The same, for responses that are neither times nor rates."),
    (
        "equivalent",
        "Every difference beyond the margin is excluded; this is stronger than “no difference found”. Each side "
        "is tested separately, so the interval, which is valid for both sides together, may end slightly beyond the margin.",
    ),
    (
        "detectably faster or slower",
        "Equivalent, but not equal: there is a difference, smaller than the chosen margin.",
    ),
    ("not tried", "No run could feel the setting: the reason follows."),
    ("undecided", "None of these. The interval still shows which effects are excluded."),
    ("invalid", "The trial's own controls failed, so it gives no verdict."),
    ("margin", "The smallest relative effect that the user cares about, fixed before the trial."),
    (
        "interval",
        "Contains the effect with the stated error rate, however often you look, whenever you stop, and for all "
        "primary comparisons together. It relies on the random order of the runs, not on normal distributions.",
    ),
    (
        "block",
        "A short period in which every arm runs once, in random order; comparisons are made within blocks.",
    ),
    (
        "interaction",
        "How one setting changes the effect of another. “Faster together” means faster than the product of the "
        "two separate effects.",
    ),
    ("pooled", "The mean of an effect over all conditions of a workload."),
    ("arm", "One member of a block: a treatment, or a control."),
    (
        "data at risk",
        "With this setting, synced data may be lost or corrupted by a power cut, a crash or a disk failure. "
        "“Trade-off”: it costs latency, memory, or unsynced data. “Not judged”: unknown.",
    ),
    (
        "void",
        "A block left out completely, by a rule that is the same for all arms and does not depend on the result.",
    ),
)
