"""The account of errors over everything that was tried on this machine: questions, evidence, and what may be kept.

It joins the ledger of questions (``store.ledger``), the evidence of the stored trials, and the settings in force
(``applied``). ``stats.account`` has the rule and its proof.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from iotrial.documents import Count, JsonObject
from iotrial.errors import StoreError
from iotrial.report.analysed import Analysed
from iotrial.report.analyses import Analyses
from iotrial.report.notation import counted, named_level, plain
from iotrial.report.opening import summary_of
from iotrial.stats.account import covered, needed
from iotrial.store import Store
from iotrial.store.ledger import Asked, asked, enter
from iotrial.terminal import escape
from iotrial.tune.applied import Record
from iotrial.tune.choice import Chosen, LeftOut, is_called, quoted

#: a level of a trial: its trial's id, its factor, and its label
Kept = tuple[str, str, str]


class Standing(StrEnum):
    """How a question stands in the account."""

    KEPT = "kept"
    BEYOND = "kept beyond the account"
    ENOUGH = "may be kept"
    OPEN = "e-value too small"
    GONE = "its trial is gone"


class Line(JsonObject, frozen=True):
    """One question of the account."""

    place: Annotated[int, Meta(ge=1, description="in the order in which the questions were asked")]
    trial: Annotated[str, Meta(description="its id; empty where the ledger cannot be read")]
    number: Annotated[int | None, Meta(description="of the trial in the store; null: it is gone")]
    study: str
    started: Annotated[str, Meta(description="ISO 8601")]
    factor: str
    level: str
    reference: str
    e_value: Annotated[float, Meta(ge=0, description="evidence that the level is better than the reference")]
    blocks: Annotated[Count, Meta(description="that it is based on")]
    needed: Annotated[
        float, Meta(ge=0, description="the e-value with which it may be kept besides the others")
    ]
    standing: Standing

    @property
    def name(self) -> str:
        """The level in words: "read_ahead_kb 1024"."""
        return escape(named_level(self.factor, self.level)) if self.level else "unknown"

    @property
    def short_of(self) -> str:
        """What is lacking, in words."""
        found, wanted = e_value_in_words(self.e_value), e_value_in_words(self.needed)
        return f"its e-value is {found}, and the account needs {wanted}"

    @property
    def blocks_lacking(self) -> int | None:
        """About how many further blocks it takes if the evidence goes on growing as it did; None if it has not grown."""
        if self.e_value <= math.e or not self.blocks or self.needed <= self.e_value:
            return None
        return math.ceil(self.blocks * (math.log(self.needed) / math.log(self.e_value) - 1.0))


@dataclass(frozen=True, slots=True)
class Account:
    """The account at one moment. ``next_needed``: the e-value that a question which is asked next needs."""

    lines: tuple[Line, ...]
    next_needed: float

    @classmethod
    def of(
        cls, entries: Sequence[Asked], summaries: Mapping[str, Analysed], kept: Collection[Kept]
    ) -> Account:
        """Join the ledger with summaries by trial id. ``kept``: what is in force. A trial without a summary has no
        evidence."""
        found = [(entry, factor, level) for entry in entries for factor, level in entry.levels]
        evidence, blocks, references = [], [], []
        for entry, factor, level in found:
            summary = summaries.get(entry.trial)
            own = () if summary is None else summary.answered
            one = next(
                (one for one in own if (one.question.factor, one.question.level) == (factor, level)), None
            )
            evidence.append(0.0 if one is None else one.e_value)
            blocks.append(0 if one is None else one.blocks)
            references.append("" if one is None else one.question.reference)
        names = [(entry.trial, factor, level) for entry, factor, level in found]
        in_force = {place for place, name in enumerate(names) if name in kept}
        within = covered(evidence, in_force)
        needs = needed(evidence, within)
        lines = []
        for place, (entry, factor, level) in enumerate(found):
            summary = summaries.get(entry.trial)
            if place in in_force:
                standing = Standing.KEPT if place in within else Standing.BEYOND
            elif summary is None:
                standing = Standing.GONE
            else:
                standing = Standing.ENOUGH if evidence[place] >= needs[place] else Standing.OPEN
            lines.append(
                Line(
                    place=place + 1,
                    trial=entry.trial,
                    number=None if summary is None else summary.number,
                    study=entry.study,
                    started=entry.started,
                    factor=factor,
                    level=level,
                    reference=references[place],
                    e_value=evidence[place],
                    blocks=blocks[place],
                    needed=float(needs[place]),
                    standing=standing,
                )
            )
        return cls(tuple(lines), float(needs[-1]))

    def line(self, trial: str, factor: str, level: str) -> Line | None:
        """Return the line of a level; None if its trial was not asked here."""
        return next(
            (one for one in self.lines if (one.trial, one.factor, one.level) == (trial, factor, level)), None
        )

    def standing(self, trial: str) -> Standing | None:
        """Return the best standing of a trial's questions; None if it asked none here."""
        found = {one.standing for one in self.lines if one.trial == trial}
        return next((one for one in Standing if one in found), None)

    def beyond(self, trial: str, levels: Collection[tuple[str, str]]) -> frozenset[tuple[str, str]]:
        """Return which of these levels of a trial may not be kept together besides what is kept: factor and label of
        each."""
        evidence = [one.e_value for one in self.lines]
        within = {one.place - 1 for one in self.lines if one.standing is Standing.KEPT}
        wanted = {
            place
            for place, one in enumerate(self.lines)
            if one.trial == trial and (one.factor, one.level) in levels
        }
        left = sorted(
            wanted - within, key=lambda place: -evidence[place] / max(self.lines[place].needed, 1e-300)
        )
        while left and covered(evidence, within | set(left)) != within | set(left):
            left.pop()
        taken = {(self.lines[place].factor, self.lines[place].level) for place in (*left, *(wanted & within))}
        return frozenset(set(levels) - taken)


def in_force(records: Collection[Record]) -> frozenset[Kept]:
    """Return the levels that are in force by these records of ``iotrial apply``."""
    return frozenset(
        (one.trial, entry.choice.factor, entry.choice.level)
        for one in records
        if one.in_force
        for entry in one.entries
    )


def account_of(store: Store, kept: Collection[Kept]) -> Account:
    """Return the account of a store, with the evidence of all its trials; those without a stored analysis are analysed.

    Raises StoreError if the ledger or a trial cannot be read.
    """
    with suppress(StoreError):  # so that trials of earlier versions are looked through once
        enter(store)
    entries = asked(store)
    numbers = {name: number for number, name in store.measured_here().items()}
    summaries = {}
    with Analyses(store.path) as stored:
        for entry in entries:
            number = numbers.get(entry.trial)
            if number is not None and entry.levels:
                found = stored.newest_summary(entry.trial, store.mark(number))
                summaries[entry.trial] = found if found is not None else summary_of(store, number)
    return Account.of(entries, summaries, kept)


def within_account(
    account: Account, trial: str, what: Chosen, only: Collection[str]
) -> tuple[Chosen, list[str]]:
    """Leave out the choices that the account does not cover, unless they are named; return a warning for each that is
    named.

    ``trial``: the id of the trial that the choices are from.
    """
    beyond = account.beyond(trial, {(one.factor, one.level) for one in what.choices})
    kept, left, warnings = [], list(what.left_out), []
    for choice in what.choices:
        if (choice.factor, choice.level) not in beyond:
            kept.append(choice)
            continue
        line = account.line(trial, choice.factor, choice.level)
        reason = _why_not(line)
        if any(is_called(choice, name) for name in only):
            kept.append(choice)
            warnings.append(f"{escape(choice.name)} is beyond the account of errors: {reason}")
            continue
        more = _more(line)
        left.append(
            LeftOut(
                choice.factor,
                choice.level,
                f"better, but beyond the account of errors: {reason}; {more}or name it: --only {quoted(choice.name)}",
            )
        )
    return Chosen(tuple(kept), tuple(left)), warnings


def _why_not(line: Line | None) -> str:
    if line is None:
        return "its trial asked nothing on this machine"
    if line.e_value >= line.needed:
        return "it may be kept alone, but not together with the others of this trial"
    return line.short_of


def _more(line: Line | None) -> str:
    if line is None or line.number is None:
        return "measure it here, "
    lacking = line.blocks_lacking
    blocks = "" if lacking is None else f" --blocks {lacking}"
    after = "" if lacking is None else f" (about {counted(lacking, 'block')} more)"
    return f"`iotrial continue {line.number} --no-stop{blocks}` adds to it{after}, "


def e_value_in_words(value: float) -> str:
    """Format an e-value with two significant digits, which is as much as it is worth."""
    text = f"{value:.2g}"
    return text if value < 10.0 else plain(float(text))
