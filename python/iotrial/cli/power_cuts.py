"""What ``iotrial powercut`` says: as stored and JSON, on the terminal, and as JUnit XML."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from iotrial.decoding import decode
from iotrial.documents import json_text
from iotrial.powercut.campaign import HARMED, KINDS, SetupTally
from iotrial.powercut.counterexample import STATE, Kept, found_lines
from iotrial.powercut.recover import Outcome
from iotrial.powercut.results import RESULT, CutRun, Cuts, CutSetting, Example, address_of
from iotrial.powercut.states import DISKS
from iotrial.report.blocks import Block, Column, Facts, Group, Note, Report, Row, Table, View, Words
from iotrial.report.notation import counted
from iotrial.stats.proportion import FEWEST_RUNS, Proportion, over_runs, p_of_more
from iotrial.terminal import escape

#: error level of all statements together that one setting does more harm than the first
_ALPHA = 0.05
_MOST_FOUND, _MOST_TOLD = 3, 6
#: the name of the only setting
ALONE = "as it is"


@dataclass(frozen=True, slots=True)
class Cutting:
    """All that was found. ``disk``: the name of its kind; ``number``: of the folder that keeps counterexamples.
    ``command``: the service."""

    tallies: tuple[SetupTally, ...]
    disk: str
    number: int
    command: str


def document_of(cutting: Cutting) -> Cuts:
    """Return everything as numbers."""
    return Cuts(cutting.disk, cutting.command, tuple(_setting(cutting, tally) for tally in cutting.tallies))


def _setting(cutting: Cutting, tally: SetupTally) -> CutSetting:
    low, high = interval_of(tally, HARMED) if tally.points else (None, None)
    return CutSetting(
        setting=tally.setup.name,
        levels=tuple(map(address_of, tally.setup.levels)),
        filesystem=tally.setup.filesystem,
        mount_options=tally.setup.options,
        runs=tuple(
            CutRun(
                run.points, run.distinct, run.acknowledged, run.seconds, run.by_kind[HARMED],
                *(run.by_kind[kind] for kind in KINDS),
            )
            for run in tally.runs
        ),
        share=tally.count(HARMED) / tally.points if tally.points else None,
        low=low,
        high=high,
        worse=is_worse(cutting, tally),
        problem=tally.problem,
        examples=tuple(
            Example(kind, str(folder), kept.found, kept.writes, kept.mistakes)
            for kind, folder in tally.examples.items()
            for kept in [kept_in(folder)]
        ),
    )  # fmt: skip


def kept_in(folder: Path) -> Kept:
    """Return what a folder of a counterexample tells."""
    return decode((folder / STATE).read_bytes(), Kept)


def interval_of(tally: SetupTally, kind: str) -> tuple[float, float]:
    """Return the interval of the share of points at which this was wrong, with the run as the unit."""
    return over_runs([Proportion(run.by_kind[kind], run.points) for run in tally.runs if run.points])


def is_worse(cutting: Cutting, tally: SetupTally) -> bool:
    """Return whether a setting is shown to do more harm than the first, at 5 % for all of them together."""
    first = cutting.tallies[0]
    if tally is first:
        return False
    own, others = (
        [Proportion(run.by_kind[HARMED], run.points) for run in each.runs if run.points]
        for each in (tally, first)
    )
    if min(len(own), len(others)) < FEWEST_RUNS:
        return False
    return p_of_more(own, others) <= _ALPHA / (len(cutting.tallies) - 1)


def write_result(cutting: Cutting, folder: Path) -> None:
    """Write what was found next to its counterexamples."""
    (folder / RESULT).write_text(json_text(document_of(cutting)))


# -- text


def report_of(cutting: Cutting) -> Report:
    """Return the report for the terminal."""
    blocks: list[Block] = [_table(cutting)]
    for tally in cutting.tallies:
        if tally.problem:
            how = "only in part" if tally.points else "not"
            blocks.append(Note(escape(tally.problem), f"{escape(tally.setup.name)} was examined {how}:"))
    if any(tally.points for tally in cutting.tallies):
        blocks.append(Note(_trust(cutting)))
    for tally in cutting.tallies:
        blocks += [_example(tally, kind, folder) for kind, folder in tally.examples.items()]
    headline, tone = _headline(cutting)
    return Report("Power cuts", headline, tone, tuple(blocks))


def _headline(cutting: Cutting) -> tuple[str, str]:
    harmful = [tally for tally in cutting.tallies if tally.count(HARMED)]
    if not any(tally.points for tally in cutting.tallies):
        return "Nothing was examined.", "invalid"
    if not harmful:
        points = min(tally.points for tally in cutting.tallies if tally.points)
        most = Proportion(0, points).interval[1]
        return (
            f"Nothing acknowledged is lost at {counted(points, 'cut point')} (95 %: at most {most:.1%}).",
            "faster",
        )
    worst = max(harmful, key=lambda tally: tally.count(HARMED) / tally.points)
    what = next(kind for kind in KINDS if worst.count(kind))
    verb = {"lost": "loses what it acknowledged", "corrupt": "is corrupt"}.get(what, what)
    low, high = interval_of(worst, HARMED)
    name = "The service" if len(cutting.tallies) == 1 else escape(worst.setup.name)
    return (
        f"{name} {verb} at {worst.count(HARMED):,} of {counted(worst.points, 'cut point')} [{low:.0%}, {high:.0%}].",
        "invalid",
    )


def _table(cutting: Cutting) -> Table:
    columns = (
        Column("setting"),
        Column("cut points", right=True),
        *(Column(kind, right=True) for kind in KINDS),
        Column("acknowledged/s", right=True),
    )
    rows = []
    for tally in cutting.tallies:
        cells = [Words(f"{tally.count(kind):,}", "invalid" if tally.count(kind) else "") for kind in KINDS]
        name = escape(tally.setup.name)
        setting = (
            (Words(name), Words("more harm than the first", "invalid")) if is_worse(cutting, tally) else name
        )
        rows.append(Row((setting, f"{tally.points:,}", *cells, _rate(tally))))
    return Table(columns, (Group(tuple(rows)),))


def _rate(tally: SetupTally) -> str:
    """Return the median number of acknowledged operations a second, of the runs."""
    rates = sorted(run.acknowledged / run.seconds for run in tally.runs if run.seconds)
    return f"{rates[len(rates) // 2]:,.0f}" if rates else "–"


def _example(tally: SetupTally, kind: str, folder: Path) -> Facts:
    kept = kept_in(folder)
    name = "" if tally.setup.name == ALONE else f" ({escape(tally.setup.name)})"
    lines = [*map(escape, kept.found[:_MOST_FOUND]), *map(escape, kept.writes[:_MOST_TOLD])]
    if len(kept.found) > _MOST_FOUND:
        lines.insert(_MOST_FOUND, f"and {len(kept.found) - _MOST_FOUND:,} others")
    facts = (
        (f"{kind}{name}", "the least that shows it:"),
        *(("", line) for line in lines),
        *((mistake, escape(text)) for mistake, text in kept.mistakes),
        ("again", f"iotrial powercut --replay {escape(str(folder))}"),
    )
    return Facts(facts, View.ALL)


def _trust(cutting: Cutting) -> str:
    runs = max(len(tally.runs) for tally in cutting.tallies)
    distinct = sum(run.distinct for tally in cutting.tallies for run in tally.runs)
    seconds = sum(run.checking_s for tally in cutting.tallies for run in tally.runs)
    speed = f", {distinct / seconds:.1f} states a second" if seconds else ""
    return (
        f"{counted(runs, 'run')} of each setting on a disk with {DISKS[cutting.disk][1]}; {distinct:,} different "
        f"states{speed}. Brackets: 95 %, with the run as the unit. Nothing lost is a limit, not a proof. Acknowledged/s is "
        "with a modelled disk."
    )


def repeated_lines(kept: Kept, outcome: Outcome) -> Iterator[str]:
    """Yield what a repeated state shows."""
    again = KINDS[kept.kind](outcome)
    yield f"{escape(kept.setting)}, {kept.kind}: {'seen again' if again else 'not seen this time'}"
    yield from map(escape, found_lines(outcome) or ("nothing is wrong",))
    yield from map(escape, kept.writes)
    for name, text in kept.mistakes:
        yield f"{name}: {escape(text)}"


def junit_of(cutting: Cutting) -> str:
    """Return the verdicts as JUnit XML: a test for each setting and kind of damage."""
    suite = ElementTree.Element("testsuite", name="iotrial powercut")
    failures = errors = 0
    for tally in cutting.tallies:
        for kind in KINDS:
            case = ElementTree.SubElement(suite, "testcase", classname=tally.setup.name, name=kind)
            if tally.problem or not tally.points:
                errors += 1
                ElementTree.SubElement(case, "error", message=tally.problem or "no point was examined")
            elif tally.count(kind):
                failures += 1
                text = f"{tally.count(kind)} of {tally.points} cut points"
                failure = ElementTree.SubElement(case, "failure", message=text)
                if kind in tally.examples:
                    kept = kept_in(tally.examples[kind])
                    failure.text = "\n".join(
                        (*kept.found, *kept.writes, *(f"{name}: {text}" for name, text in kept.mistakes))
                    )
    suite.set("tests", str(len(cutting.tallies) * len(KINDS)))
    suite.set("failures", str(failures))
    suite.set("errors", str(errors))
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
