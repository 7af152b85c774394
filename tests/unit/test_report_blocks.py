"""Report blocks: which a view shows, which columns a table drops first, and that the first screen has every alarm."""

from __future__ import annotations

import io

import pytest
from report_fixtures import CONDITIONS, all_equivalent, document, effect, factor, study
from rich.console import Console

from iotrial.report.blocks import (
    EQUIVALENT,
    UNDECIDED,
    Facts,
    Group,
    Note,
    Report,
    Row,
    Section,
    Table,
    View,
    heads,
    shown_in,
    table,
)
from iotrial.report.html import html
from iotrial.report.markdown import markdown
from iotrial.report.render import print_report
from iotrial.report.text import MOST_ROWS, SCREEN_LINES, text_lines
from iotrial.report.trial_blocks import effect_table
from iotrial.stats.model import Control, Verdict, VoidCount
from iotrial.study.model import Role
from values import replace

MIXED = Table(
    heads("name", ">n"),
    (
        Group((Row(("a", "1"), EQUIVALENT, "equivalent"), Row(("b", "2"), kind="slower")), "one"),
        Group((Row(("c", "3"), UNDECIDED, "undecided"), Row(("d", "4"), EQUIVALENT, "equivalent")), "two"),
    ),
    noun="comparison",
)


def names(groups: tuple[Group, ...]) -> list[str]:
    return [str(row.cells[0]) for group in groups for row in group.rows]


@pytest.mark.parametrize(
    ("most", "kept", "left"),
    [
        (4, ["a", "b", "c", "d"], ""),
        (2, ["b", "c"], "2 more comparisons, all equivalent"),
        (1, ["b"], "3 more comparisons: 2 equivalent and 1 undecided"),
        (0, ["b"], "3 more comparisons: 2 equivalent and 1 undecided"),
    ],
)
def test_a_table_that_is_cut_loses_what_is_equivalent_first_and_counts_it(
    most: int, kept: list[str], left: str
) -> None:
    groups, words = MIXED.cut(most)
    assert names(groups) == kept
    assert words == left


def test_groups_with_the_same_rows_share_them_in_text() -> None:
    row, other = Row(("a", "1")), Row(("b", "2"))
    groups = (Group((row,), "one"), Group((other,), "two"), Group((row,), "three"))
    console = Console(file=io.StringIO(), width=80, color_system=None)
    report = Report("t", "h", "mixed", (Table(MIXED.columns, groups),))
    lines = [line.plain.split() for line in text_lines(report, console, full=True)]
    assert lines[-4:] == [["one;", "three"], ["a", "1"], ["two"], ["b", "2"]]


def test_groups_that_are_whole_are_kept_or_left_out_as_one() -> None:
    groups, words = Table(MIXED.columns, MIXED.groups, noun="comparison", whole=True).cut(3)
    assert names(groups) == ["a", "b"]
    assert words == "1 more comparison, undecided"


def test_a_section_is_shown_where_something_in_it_is() -> None:
    inner = Note("x", view=View.FULL)
    blocks = (Section("s", (inner,)), Facts((("a", "b"),)))
    assert shown_in(blocks, View.SHORT) == ()
    assert shown_in(blocks, View.FULL) == blocks


def test_tables_share_the_lines_of_a_screen_that_notes_leave() -> None:
    notes = tuple(Note(f"note {n}") for n in range(20))
    many = [(f"row {n}", str(n)) for n in range(100)]
    blocks = (*notes, table(("name", ">n"), many), table(("name", ">n"), many))
    report = Report("t", "h", "", blocks)
    console = Console(file=io.StringIO(), width=80)
    lines = [line.plain for line in text_lines(report, console)]
    assert len(lines) <= SCREEN_LINES
    assert {f"note {n}" for n in range(20)} <= set(lines)
    assert any(line.startswith("and ") and line.endswith("(--full)") for line in lines)
    full = [line.plain for line in text_lines(report, console, full=True)]
    assert sum(line.startswith("row ") for line in full) == 2 * MOST_ROWS
    assert full.count("and 40 more rows (--json)") == 2


def test_renderers_take_any_blocks() -> None:
    report = Report(
        "A <title>", "head|line", "", (MIXED, Note("text", "Label", "alarm"), Facts((("k", "v"),)))
    )
    assert r"**head\|line**" in markdown(report)
    assert "- ⚠ **Label**: text" in markdown(report)
    assert "<h1>head|line</h1>" in html(lambda _: report)


def short(**made: object) -> str:
    out = io.StringIO()
    print_report(document(**made), Console(file=out, width=100))  # type: ignore[arg-type]
    assert len(out.getvalue().splitlines()) <= SCREEN_LINES
    return " ".join(out.getvalue().split())


def test_the_first_screen_shows_every_alarm_however_long_the_table() -> None:
    levels = [f"level-{n:03}" for n in range(120)]
    of = study(treatment=factor("mode", levels, role=Role.TREATMENT))
    many = [
        effect(Verdict.EQUIVALENT, 1.0, 0.99, 1.01, level=level, reference=levels[0], condition=CONDITIONS[0])
        for level in levels[1:]
    ]
    text = short(
        effects=many,
        of=of,
        void=[VoidCount("cache_not_cold", levels[1], 1)],
        runs={
            "blocks": 6,
            "conditions": CONDITIONS[:1],
            "failing": levels[0],
            "void": {(0, 3): "cache_not_cold"},
        },
    )
    assert "more comparisons, all equivalent (--full)" in text
    assert "void and left out" in text
    assert "md5sum ended with status 1" in text
    failed = Control("negative", {"cache": "cold"}, "wall", 1.0, 1.05, 1.02, 1.08, False, True, 60)
    text = short(effects=all_equivalent(), valid=False, control=[failed])
    assert text.startswith(
        "No verdict, the trial is invalid: an identical copy of the reference differs from the original"
    )
    assert "What to do" in text or "No recorded cause explains this" in text


def test_another_response_is_named_above_its_effects_also_where_there_is_one() -> None:
    (row,) = document([effect(Verdict.FASTER, 0.6, 0.59, 0.61)]).effects
    other = replace(row, effect=replace(row.effect, response="cpu", primary=False))
    (group,) = effect_table([other], valid=True, exploratory=True).groups
    assert group.title.endswith("cpu")
    (group,) = effect_table([row], valid=True).groups
    assert "cpu" not in group.title
