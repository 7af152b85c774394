"""The page of all published claims: what the trials of the catalogue say about them (docs/findings.md).

Each question has one row: what was published, what the trial found and where, and what that says of the claims. A claim
that a trial could judge has another row below, with its number. The page of its trial says why a claim could not be judged.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from iotrial.report.claims import HeldClaim, Outcome, on_model
from iotrial.report.markdown import escaped, table_row
from iotrial.report.metrics import words_of
from iotrial.report.notation import counted, joined, named_level
from iotrial.report.phrases import TIME_UNITS, change_numbers
from iotrial.study.model import Claim, Scale, Study
from iotrial.terminal import escape

ANSWERS = {
    Outcome.CONFIRMED: "The trial finds the same, in size or (if no size was published) in direction.",
    Outcome.COMPATIBLE: "The interval contains the published number, or lies on the published side, and contains much else.",
    Outcome.NOT_CONFIRMED: "The trial excludes the published effect.",
    Outcome.SMALLER: "The direction agrees, the number here is smaller.",
    Outcome.LARGER: "The direction agrees, the number here is larger.",
    Outcome.CONTRADICTED: "The trial finds the opposite.",
}
#: part of the longest of several texts that they must share to be written as one
_ALIKE_REASONS = 0.5
_ALIKE_SOURCES = 0.35
#: the most words of a text that is listed with "and"
_SHORT = 4
_WORD = re.compile(r"\S+(?: %\S*)?")
#: studies that try iotrial itself, which is no published question
OF_THE_TOOL = ("block/model", "matrix/devices", "system/power")
#: words that say only that a source was published, as all were
_PUBLISHED = re.compile(r"^(?:A published comparison: |A published |Published )")
_ABOUT = re.compile(r"^(the claim|it) is (?=about )")


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim with the study that judged it. ``where``: on what kind of disk or machine, in words."""

    study: str
    ran: Study
    held: HeldClaim
    where: str = ""


def claims_page(claims: Sequence[Judged], answers: Mapping[str, str], unanswered: str = "") -> str:
    """Return the whole page, ending in a newline. ``answers``: of each study with claims, what its trial found.
    ``unanswered``: a section on what no trial answers, with links from the catalogue's folder.
    """
    claims = [one for one in claims if one.study not in OF_THE_TOOL]
    by_outcome = {outcome: [one for one in claims if one.held.outcome is outcome] for outcome in Outcome}
    trials = len({one.study for one in claims})
    sources = _Sources(claims)
    lines = [
        "# The published questions, answered",
        "",
        f"{counted(len(_once(claims)), 'published claim')} in {counted(trials, 'trial')} of [the catalogue](catalogue.md): "
        f"{_counted(_once(claims))}.",
        "",
        "A row is one trial, on the machine that its page names; further trials are linked. A claim that several judge",
        "counts once, as the first that could. Brackets hold the interval, parentheses the [sources](#sources).",
        "A trial *cannot say* whether a claim is right where it measured something else than was published, or where its",
        "interval is too wide; its page says which. A claim about a kind of disk may be judged on a model of that kind:",
        "*modelled*. [METHOD.md](../METHOD.md) has the rules. `make findings` writes this page.",
    ]
    for family, of_family in groupby(claims, key=lambda one: one.study.partition("/")[0]):
        lines += [
            "",
            f"## {family}",
            "",
            *table_head(("question", "published", "found here", "where", "verdict")),
        ]
        questions: dict[str, list[Judged]] = {}
        for one in of_family:
            questions.setdefault(_name_of(one), []).append(one)
        lines += [_question(group, answers, sources) for group in questions.values()]
    for outcome, text in ANSWERS.items():
        if judged := by_outcome[outcome]:
            lines += ["", f"## {outcome.value.capitalize()}", "", text, ""]
            lines += [*table_head(("published", "found here", "trial"))]
            lines += [_judged(list(group), sources) for _, group in groupby(judged, key=alike)]
    lines += ["", unanswered.replace("](", "](catalogue/")] if unanswered else []
    lines += ["", "## Sources", "", *sources.lines()]
    return "\n".join(lines) + "\n"


def table_head(names: Sequence[str]) -> Iterator[str]:
    """Yield the first two lines of a table."""
    yield table_row(*names)
    yield "|" + "---|" * len(names)


def _counted(claims: Iterable[Judged]) -> str:
    """Return how many claims had each outcome: "1 confirmed, 2 cannot say"."""
    outcomes = Counter(one.held.outcome for one in claims)
    return ", ".join(f"{outcomes[outcome]} {outcome.value}" for outcome in Outcome if outcomes[outcome])


def _once(claims: Sequence[Judged]) -> list[Judged]:
    """Return each claim once: as the first trial and condition that could judge it says."""
    found: dict[tuple[str, str], Judged] = {}
    for one in claims:
        key = one.held.claim.source, one.held.claim.text
        if key not in found or found[key].held.outcome is Outcome.CANNOT_SAY:
            found[key] = one
    return list(found.values())


def _name_of(one: Judged) -> str:
    """Return the name of the study that a trial is of; a further trial of a study has a longer name."""
    return one.ran.name if one.study.startswith(one.ran.name) else one.study


def further_of(study: Study, name: str) -> str:
    """Return what the name of a further trial has more than its study's; "" for the first trial."""
    return name.removeprefix(study.name).strip("-") if name.startswith(study.name) else ""


def _question(group: Sequence[Judged], answers: Mapping[str, str], sources: _Sources) -> str:
    """Return the row of a question: the trial that judged most of its claims, and links to the others."""
    able = Counter(one.study for one in group if one.held.outcome is not Outcome.CANNOT_SAY)
    trials = {one.study: one for one in reversed(group)}
    first = trials[max(trials, key=lambda name: (able[name], -len(name)))]
    shown = next(
        (one for one in group if one.study == first.study and one.held.outcome is not Outcome.CANNOT_SAY),
        first,
    )
    more = len({one.held.claim.text for one in group}) - 1
    published = shown.held.claim.text + (f", and {more} more" if more else "")
    published += f" ({sources.numbers(one.held for one in group)})"
    others = ", ".join(
        f"[{further_of(one.ran, one.study) or 'first'}]({_page(one.study)})"
        for one in reversed(trials.values())
        if one is not first
    )
    row = table_row(published, answers[first.study], first.where, _counted(_once(group)))
    return (
        f"| [{escaped(first.ran.question)}]({_page(first.study)}){f'; also {others}' if others else ''} {row}"
    )


class _Sources:
    """The sources, numbered in the order in which the page names them. Similar sources of one study share a number."""

    def __init__(self, claims: Sequence[Judged]) -> None:
        self._alike: dict[str, list[str]] = {}
        self._numbers: list[list[str]] = []
        for _, group in groupby(claims, key=lambda one: one.study):
            of_study: list[list[str]] = []
            for source in dict.fromkeys(one.held.claim.source for one in group):
                if source not in self._alike:
                    self._alike[source] = _added(source, of_study, _ALIKE_SOURCES)

    def numbers(self, held: Iterable[HeldClaim]) -> str:
        numbers = set()
        for one in held:
            shared = self._alike[one.claim.source]
            if shared not in self._numbers:
                self._numbers.append(shared)
            numbers.add(self._numbers.index(shared) + 1)
        return ", ".join(map(str, sorted(numbers)))

    def lines(self) -> Iterator[str]:
        for number, shared in enumerate(self._numbers, start=1):
            yield f"{number}. {escaped(_named(shared))}"


def sources_of(claims: Iterable[Claim]) -> list[str]:
    """Return the sources of claims in their order, similar ones as one."""
    rows: list[list[str]] = []
    for claim in claims:
        _added(claim.source, rows, _ALIKE_SOURCES)
    return [_named(texts) for texts in rows]


def _named(sources: Sequence[str]) -> str:
    return _PUBLISHED.sub("", merged(sources))


def alike(one: Judged) -> tuple[object, ...]:
    """Return a key that claims share if they can be written in one row."""
    held = one.held
    number = None if held.claim.value is not None else held.here
    return one.study, held.claim.source, held.why, number


def _judged(group: Sequence[Judged], sources: _Sources) -> str:
    first, claims = group[0], [one.held for one in group]
    published = f"{merged([held.claim.text for held in claims])} ({sources.numbers(claims)})"
    here = merged([found(one) for one in group])
    if first.held.claim.value is not None or first.held.outcome is Outcome.NOT_CONFIRMED:
        here += f"; {first.held.why}"
    return f"{table_row(published, here)} [{first.study}]({_page(first.study)}) |"


def found(one: Judged) -> str:
    """Return what was found here as a sentence: "mode 0444 takes 5 % less time than 0777 [-8, -2]"."""
    held, claim = one.held, one.held.claim
    if claim.value is not None:
        return held.here
    level = named_level(escape(claim.factor), escape(claim.level))
    reference = escape(claim.reference)
    responses = [response for response in one.ran.responses if response.name == held.response]
    name, _, part = (held.response or "").partition(".")
    what = "time" if name == "wall" else words_of(name)
    if part:
        what += f" ({escape(part)})"
    if {response.scale for response in responses} != {Scale.LOG}:
        text = f"{what} {held.here} for {level} against {reference}"
    elif (change := change_numbers(held.ratio, held.low, held.high)) is not None:
        number, ends = f"{change[0].lstrip('+-')} %", f"[{change[1]}, {change[2]}]"
        less = change[0].startswith("-")
        if all(response.unit in TIME_UNITS for response in responses):
            text = f"{level} takes {number} {'less' if less else 'more'} {what} than {reference} {ends}"
        else:
            text = f"{level} has a {number} {'lower' if less else 'higher'} {what} than {reference} {ends}"
    else:
        size, _, ends = held.here.partition(" ")
        timed = all(response.unit in TIME_UNITS for response in responses)
        than = f"as long as {reference}" if what == "time" else f"the {what} of {reference}"
        text = f"{level} {'takes' if timed else 'has'} {size} times {than} {ends}"
    return text + (held.condition.behind if held.condition is not None else "") + on_model(held)


def reasons(claims: Sequence[HeldClaim]) -> list[str]:
    """Return the reasons of these claims, each once, similar ones as one."""
    rows: list[list[str]] = []
    for held in claims:
        for part in held.why.split("; "):
            _added(_ABOUT.sub("", part), rows, _ALIKE_REASONS)
    return [merged(texts, last="or") for texts in rows]


def _added(text: str, groups: list[list[str]], alike: float) -> list[str]:
    """Add a text to the group of similar texts, or to a new one, and return the group."""
    for group in groups:
        if text in group or _similar([*group, text], alike):
            group.append(text)
            return group
    groups.append([text])
    return groups[-1]


def _similar(texts: Sequence[str], alike: float) -> bool:
    prefix, middles, suffix = _split(texts)
    longest = max(len(prefix) + len(middle) + len(suffix) for middle in middles)
    return len(prefix) + len(suffix) >= alike * longest


def merged(texts: Sequence[str], *, last: str = "and") -> str:
    """Write similar texts as one: "disk a is fast" and "disk b is fast" become "disk a and b is fast"."""
    distinct = list(dict.fromkeys(texts))
    distinct = [
        one for one in distinct if not any(other != one and other.startswith(one) for other in distinct)
    ]
    if len(distinct) == 1:
        return distinct[0]
    prefix, found, suffix = _split(distinct)
    middles = [" ".join(words) for words in found if words]
    comma = "," if any(middle.endswith(",") for middle in middles) else ""
    middles = [middle.removesuffix(",") for middle in middles]
    short = all(
        len(middle.split()) <= _SHORT and ", " not in middle and not middle.startswith("and ")
        for middle in middles
    )
    middle = joined(middles, last=last) if short else "; ".join(middles)
    return " ".join(part for part in (" ".join(prefix), middle + comma, " ".join(suffix)) if part)


def _split(texts: Sequence[str]) -> tuple[list[str], list[list[str]], list[str]]:
    """Split texts into the words that all begin with, those of each in between, and those that all end with."""
    words = [_WORD.findall(text) for text in texts]
    prefix = _common(words)
    rest = [one[len(prefix) :] for one in words]
    suffix = _common([one[::-1] for one in rest])[::-1]
    return prefix, [one[: len(one) - len(suffix)] for one in rest], suffix


def _common(lists: Sequence[Sequence[str]]) -> list[str]:
    """Return the words that all lists begin with."""
    together = itertools.takewhile(lambda words: len(set(words)) == 1, zip(*lists, strict=False))
    return [words[0] for words in together]


def _page(study: str) -> str:
    return f"catalogue/{study}.md"
