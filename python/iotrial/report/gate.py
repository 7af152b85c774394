"""The answer of a CI job: which benchmarks of head are slower than those of base, at one error level for all of them.

Two procedures find benchmarks that differ, each with half of the job's error level. The trial's own verdicts have intervals
that hold together (Bonferroni), at every look; the trial stops by them. The closed e-BH procedure (``stats.ebh``) on the
e-values at the end finds more where several differ. Both allow any dependence. In a job in which no benchmark differs, one is
found with a probability of at most alpha; of those found, at most the share alpha is expected to be false, since the share of
false ones is at most that of e-BH plus 1 if a verdict is false. The direction is that of the estimate. A benchmark whose
difference is shown to be within the margin is as fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from xml.etree import ElementTree

from iotrial.report.blocks import Note, Report, Row, Words, table
from iotrial.report.document import Document
from iotrial.report.notation import counted, joined, percent
from iotrial.report.phrases import amount, effect_sentence, interval, reason_in_words, size_of, still_possible
from iotrial.report.rows import EffectRow
from iotrial.report.sentences import controls_line
from iotrial.stats.ebh import discoveries
from iotrial.stats.model import Verdict
from iotrial.stats.verdict import BUDGET_SPENT
from iotrial.terminal import escape
from iotrial.workloads.command import CommandWork

_NAMED_IN_HEADLINE = 3


class Answer(StrEnum):
    """The answer for one benchmark."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "as fast"
    OPEN = "no answer"


_TONES = {Answer.SLOWER: "slower", Answer.FASTER: "faster", Answer.SAME: "equivalent", Answer.OPEN: "dim"}


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One benchmark with its effect and its answer."""

    name: str
    row: EffectRow
    answer: Answer

    @property
    def sentence(self) -> str:
        """The answer in a sentence."""
        effect = self.row.effect
        if self.answer is Answer.OPEN:
            why = "" if effect.reason in (None, BUDGET_SPENT) else f" ({reason_in_words(str(effect.reason))})"
            return f"No answer{why}. {still_possible(effect)}."
        if self.answer is Answer.SAME:
            return effect_sentence(effect, margin=effect.margin)
        return f"head is {self.answer} than base: {size_of(effect)}."


@dataclass(frozen=True, slots=True)
class Gate:
    """The answers of a job. An invalid trial has none but ``Answer.OPEN``."""

    document: Document
    benchmarks: tuple[Benchmark, ...]

    @property
    def alpha(self) -> float:
        """The error level of the job: twice that of its study."""
        return 2.0 * self.document.trial.header.study.alpha

    def of(self, answer: Answer) -> tuple[Benchmark, ...]:
        """The benchmarks with this answer."""
        return tuple(one for one in self.benchmarks if one.answer is answer)


def gate_of(document: Document) -> Gate:
    """Judge the benchmarks of a trial of two builds together."""
    rows = [row for row in document.primary if row.effect.kind == "main"]
    study = document.trial.header.study
    found = discoveries([row.effect.e_value or 0.0 for row in rows], study.alpha)
    names = {
        output.name: output.benchmark
        for workload in study.workloads
        if isinstance(workload.work, CommandWork)
        for output in workload.work.outputs
    }
    return Gate(
        document,
        tuple(
            Benchmark(
                names.get(row.effect.response) or "wall time",
                row,
                _answer(row, differs=differs) if document.valid else Answer.OPEN,
            )
            for row, differs in zip(rows, found, strict=True)
        ),
    )


def _answer(row: EffectRow, *, differs: bool) -> Answer:
    effect = row.effect
    if effect.verdict is Verdict.EQUIVALENT:
        return Answer.SAME
    shown = effect.verdict is not Verdict.INCONCLUSIVE or (differs and effect.reason == BUDGET_SPENT)
    if not shown or effect.value is None:
        return Answer.OPEN
    return Answer.SLOWER if effect.value > 1.0 else Answer.FASTER


def headline(gate: Gate) -> str:
    """Return the answer of the job in one sentence."""
    total = counted(len(gate.benchmarks), "benchmark")
    slower, still_open = gate.of(Answer.SLOWER), gate.of(Answer.OPEN)
    if not gate.document.valid:
        return "No answer: the trial is invalid, because a control failed. Run the job again."
    if slower:
        ranked = sorted(slower, key=lambda one: -(one.row.effect.value or 1.0))
        named = [
            f"{escape(one.name)} {percent_more(one.row.effect.value)}" for one in ranked[:_NAMED_IN_HEADLINE]
        ]
        more = len(slower) - len(named)
        return f"head is slower in {len(slower)} of {total}: {joined([*named, *([f'{more} more'] if more else [])])}."
    if len(still_open) == len(gate.benchmarks):
        return f"No answer for any of {total}."
    if still_open:
        return f"No answer for {len(still_open)} of {total}; head is slower in none of the others."
    faster = gate.of(Answer.FASTER)
    also = f"; faster in {len(faster)}" if faster else ""
    return f"head is slower in none of {total}{also}."


def percent_more(ratio: float | None) -> str:
    """Return a ratio as a signed percentage."""
    return "" if ratio is None else f"{(ratio - 1.0) * 100:+.1f} %"


def gate_report(gate: Gate, notes: Sequence[str] = ()) -> Report:
    """Return the job's report: the answer, a table of the benchmarks, and what it rests on. ``notes`` are added."""
    document = gate.document
    tone = "slower" if gate.of(Answer.SLOWER) else "" if gate.of(Answer.OPEN) else "equivalent"
    order = list(Answer)
    rows = [
        Row(
            (
                escape(one.name),
                *(
                    amount(None if side is None else side.value, one.row.effect.unit)
                    for side in one.row.typical[::-1]
                ),
                interval(one.row.effect),
                Words(one.answer.value, _TONES[one.answer], badge=True),
            ),
            rank=order.index(one.answer),
            kind=one.answer.value,
        )
        for one in sorted(gate.benchmarks, key=lambda one: order.index(one.answer))
    ]
    return Report(
        title="head compared with base",
        headline=headline(gate),
        tone=tone,
        blocks=(
            table(
                ("~benchmark", ">base", ">head", ">ratio [interval]", "answer"),
                rows,
                note="Medians of the runs; an interval below 1: head is faster.",
            ),
            *_rests_on(gate),
            *(Note(text) for text in notes),
        ),
        rest=f"iotrial report {document.trial.number}",
    )


def _rests_on(gate: Gate) -> Iterator[Note]:
    document = gate.document
    study = document.trial.header.study
    blocks = max((one.row.effect.blocks for one in gate.benchmarks), default=0)
    yield Note(
        f"{counted(blocks, 'block')} in random order; the margin is {percent(study.margin)}. If no benchmark differed, the "
        f"chance that this job finds one slower or faster is at most {percent(gate.alpha)}."
    )
    if line := controls_line(document.analysis.controls, study):
        yield Note(f"{line}.", label="Controls")


def junit(gate: Gate) -> bytes:
    """Return the job as JUnit XML: a test case for each benchmark, failed if slower, skipped if there is no answer."""
    slower, still_open = gate.of(Answer.SLOWER), gate.of(Answer.OPEN)
    counts = {
        "tests": str(len(gate.benchmarks)),
        "failures": str(len(slower)),
        "errors": "0",
        "skipped": str(len(still_open)),
    }
    suites = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "iotrial ci", **counts})
    for one in gate.benchmarks:
        case = ElementTree.SubElement(
            suite, "testcase", {"classname": "iotrial.ci", "name": escape(one.name), "time": "0"}
        )
        if one.answer is Answer.SLOWER:
            failure = ElementTree.SubElement(case, "failure", {"type": "slower", "message": one.sentence})
            failure.text = one.sentence
        elif one.answer is Answer.OPEN:
            ElementTree.SubElement(case, "skipped", {"message": one.sentence})
        else:
            ElementTree.SubElement(case, "system-out").text = one.sentence
    ElementTree.indent(suites)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(suites, encoding="unicode")}\n'.encode()
