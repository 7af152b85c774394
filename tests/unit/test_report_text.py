"""The text report: on a terminal, in a pipe, in 80 columns."""

from __future__ import annotations

import io
import re

import pytest
from report_fixtures import CONDITIONS, SEED, all_equivalent, controls, document, effect, factor, study
from rich.console import Console

from iotrial.report.blocks import Column, Group, Report, Row, Table, Words
from iotrial.report.conditions import ConditionText
from iotrial.report.document import Document
from iotrial.report.evidence import EvidenceRow
from iotrial.report.evidence_blocks import evidence_section
from iotrial.report.render import print_report
from iotrial.report.rows import FailedRun
from iotrial.report.text import plain_lines, text_lines
from iotrial.stats.model import Control, Verdict, VoidCount
from iotrial.study.model import Claim, Role, Scale
from values import replace

CLAIM = Claim("a blog", "12 %", "mode", "0444", "0777", 0.89, condition={"cache": "cold", "size": "10 KiB"})


def printed(made: Document, *, width: int = 80, full: bool = False, **how: object) -> str:
    out = io.StringIO()
    print_report(made, Console(file=out, width=width, **how), full=full, html_path="/tmp/report.html")  # type: ignore[arg-type]
    return out.getvalue()


def test_the_verdict_comes_first_and_all_fits_80_columns() -> None:
    text = printed(document(all_equivalent(), of=study(claims=[CLAIM])))
    assert text.startswith("Mode 0444 is as fast as 0777 in all 4 conditions")
    assert max(map(len, text.splitlines())) <= 80


def test_the_table_has_a_line_for_each_effect() -> None:
    lines = [" ".join(line.split()) for line in printed(document(all_equivalent())).splitlines()]
    assert "mode 0444 / 0777 0444 0777 ratio [interval] verdict" in lines
    assert any(line.endswith(" 1.002 [0.985, 1.021] equivalent") for line in lines)


def test_the_column_of_intervals_says_whether_values_are_divided_or_subtracted() -> None:
    timed = effect(Verdict.FASTER, 0.5, 0.4, 0.6, condition=CONDITIONS[0])
    counted = replace(timed, response="calls.read", unit="1", scale=Scale.DIFFERENCE)
    assert " difference [interval] " in printed(document([counted]))
    assert " ratio or difference [interval] " in printed(document([timed, counted]))


def test_claim_controls_and_way_back_are_told() -> None:
    made = document(all_equivalent(), of=study(claims=[CLAIM]))
    short, full = (" ".join(printed(made, full=full).split()) for full in (False, True))
    assert "1 published claim: not confirmed (--full)" in short
    assert "“12 %” (a blog): not confirmed" in full
    assert "Here (cache cold, size 10 KiB): 1.002 [0.985, 1.021]." in full
    for text in (short, full):
        assert "Controls: all 8 passed; the injected slowdown of 6 % was seen everywhere." in text
        assert f"Run again: iotrial run files/permissions --seed {SEED}" in text
        assert text.endswith("Figures and everything else: /tmp/report.html")


def test_nothing_but_text_goes_to_a_pipe() -> None:
    text = printed(document(all_equivalent()))
    assert "\x1b" not in text


def test_no_color_keeps_a_terminal_without_colours() -> None:
    text = printed(document(all_equivalent()), force_terminal=True, no_color=True)
    assert "\x1b[36m" not in text
    assert "equivalent" in text


def test_labels_that_look_like_markup_or_steer_a_terminal_stay_labels() -> None:
    level = "[red]x[/red]\x1b[2J"
    made = document(
        [effect(Verdict.FASTER, 0.5, 0.4, 0.6, level=level, condition=CONDITIONS[0])],
        of=study(question="Which?", treatment=factor("mode", ["0777", level], role=Role.TREATMENT)),
    )
    text = printed(made)
    assert "[red]x[/red]\\x1b[2J" in text
    assert "\x1b" not in text


def test_a_very_long_label_does_not_break_80_columns() -> None:
    level = "very-long-" * 60
    made = document(
        [effect(Verdict.FASTER, 0.5, 0.4, 0.6, level=level, condition=condition) for condition in CONDITIONS],
        of=study(question="Which?"),
    )
    assert max(map(len, printed(made).splitlines())) <= 80


def test_an_invalid_trial_shows_numbers_but_no_verdict_words() -> None:
    failed = Control("negative", {"cache": "cold"}, "wall", 1.0, 1.05, 1.02, 1.08, False, True, 60)
    text = printed(document(all_equivalent(), valid=False, control=[failed]))
    assert text.startswith("No verdict, the trial is invalid")
    assert sum(line.rstrip().endswith("no verdict") for line in text.splitlines()) == 4
    assert "equivalent" not in text


def test_voids_and_failures_are_listed() -> None:
    effects = [
        effect(Verdict.INCONCLUSIVE, 1.0, 0.9, 1.1, condition=CONDITIONS[0], failures=1, reason="failures")
    ]
    made = document(
        effects,
        void=[VoidCount("cache_not_cold", "0444", 1)],
        runs={"void": {(0, 1): "cache_not_cold"}, "failing": "0444"},
    )
    text = " ".join(printed(made).split())
    assert "1 block was void and left out, whatever the result. Void: cache_not_cold." in text
    assert "Failed 4 runs: md5sum ended with status 1 (4 of 0444)" in text


def test_what_moved_with_the_treatment_is_named() -> None:
    made = document(all_equivalent()[:1], runs={"ratios": {"0444": 3.0}, "blocks": 30})
    assert "Evidence  cpu up with 0444, open time up with 0444" in printed(made)


def test_what_was_counted_is_named_before_whatever_was_timed() -> None:
    made = document(all_equivalent()[:1])
    row = replace(made.evidence[0], treatment="0444", moved="up", is_reference=False)
    named = [("read_p99", "s"), ("device_queue_time_synced", "s")]
    rows = [replace(row, metric=metric, unit=unit) for metric, unit in [*named, ("faults_minor", "1")]]
    text = " ".join(printed(replace(made, evidence=tuple(rows)), width=400).split())
    assert text.index("minor page faults up") < text.index("read p99 up")
    assert text.index("minor page faults up") < text.index("until synced up")
    rows = [replace(row, metric=metric) for metric in ("system_pages_dirtied", "read_p99", "faults_minor")]
    text = " ".join(printed(replace(made, evidence=tuple(rows)), width=400).split())
    assert text.index("read p99 up") < text.index("system-wide: pages dirtied up")


def quick(verdict: Verdict, *numbers: float) -> Document:
    """Return the document of a trial of ``iotrial try`` with one comparison."""
    declared = replace(study(name="try/gzip", title="gzip -{mode} -c data", conditions=()), trusted=True)
    typed = ["iotrial", "try", "-L", "mode", "0777,0444", "--", "gzip", "-{mode}", "-c", "data"]
    control = [replace(one, condition={}) for one in controls()[:2]]
    return document([effect(verdict, *numbers)], of=declared, control=control, options={"argv": typed})


def test_a_question_of_one_line_is_answered_in_twelve_lines() -> None:
    lines = printed(quick(Verdict.SLOWER, 2.9, 1.9, 5.0)).splitlines()
    assert len(lines) - 1 <= 12  # without the line that names the page
    assert max(map(len, lines)) <= 80
    assert any(line.split()[:3] == ["mode", "0444", "/"] for line in lines)
    assert not any(line.startswith("all conditions") for line in lines)
    again = next(line for line in lines if line.startswith("Run again: "))
    assert again == "Run again: iotrial try -L mode 0777,0444 -- gzip '-{mode}' -c data"


def test_the_full_report_of_a_quick_question_has_the_seed() -> None:
    assert f"--seed {SEED} -- gzip" in printed(quick(Verdict.SLOWER, 2.9, 1.9, 5.0), full=True)


def test_neither_a_percentage_nor_a_command_to_copy_is_broken() -> None:
    text = "undecided, any effect is smaller than -12.5 % / +5.8 %; `iotrial continue 2 --time 145m` goes on"
    report = Report(title="", headline=text, tone="", blocks=())
    for width in range(62, 90):
        lines = [line.plain for line in text_lines(report, Console(file=io.StringIO(), width=width))]
        assert max(map(len, lines)) <= width
        assert " ".join(lines).strip() == text
        assert not any(line.startswith("%") for line in lines)
        assert any("`iotrial continue 2 --time 145m`" in line for line in lines)


def test_the_status_of_a_program_that_always_fails_is_offered_as_success() -> None:
    made = quick(Verdict.INCONCLUSIVE, 1.0, 0.9, 1.1)
    failed = FailedRun(made.effects[0].condition, 0, "0444", 0.0, "grep ended with status 1")
    other = replace(failed, arm="0777")
    assert "--expect-exit 1" in printed(replace(made, failures=(failed, other)))
    assert "--expect-exit" not in printed(replace(made, failures=(failed,)))
    missing = [replace(one, message="sh ended with status 127: sh: not found") for one in (failed, other)]
    assert "--expect-exit" not in printed(replace(made, failures=tuple(missing)))


def wide(columns: int) -> list[str]:
    heads = (Column("metric"), *(Column(f"setting {n}", right=True) for n in range(columns)))
    cells = tuple(f"{n + 100} milliseconds" for n in range(columns))
    return plain_lines(Report("", "", "", (Table(heads, (Group((Row(("wall", *cells)),)),)),)), width=80)


def test_a_table_of_many_columns_is_printed_in_parts_with_the_first_column_in_each() -> None:
    lines = wide(9)
    heads = [line for line in lines if line.startswith("metric")]
    assert len(heads) > 1
    for n in range(9):
        (head,) = [line for line in heads if f"setting {n}" in line]
        row = lines[lines.index(head) + 2]
        assert row.startswith("wall")
        end = head.index(f"setting {n}") + len(f"setting {n}")
        assert row[:end].endswith(f"{n + 100} milliseconds")
    assert max(map(len, lines)) <= 80


def test_a_table_that_fits_is_in_one_part() -> None:
    assert sum(line.startswith("metric") for line in wide(3)) == 1


def changed(number: int, condition: ConditionText) -> EvidenceRow:
    """Return the row of a metric that rose from 100 at the reference to 100 + ``number``."""
    return EvidenceRow(
        "0444" if number else "0777",
        "faults_minor",
        "1",
        value=100.0 + number,
        low=0.0,
        high=0.0,
        runs=9,
        is_response=False,
        is_reference=not number,
        moved="up" if number else None,
        e_value=float(number),
        condition=condition,
    )


def test_a_change_has_its_old_and_new_value_where_it_is_clearest() -> None:
    made = document(all_equivalent())
    places = [made.effects[0].condition, made.effects[1].condition]
    rows = [
        changed(number, place) for place, more in zip(places, (10, 30), strict=True) for number in (0, more)
    ]
    blocks = tuple(evidence_section(replace(made, evidence=tuple(rows))))
    (line,) = [
        one for one in plain_lines(Report("", "", "", blocks), width=140) if "minor page faults" in one
    ]
    assert re.split(r"  +", line) == [
        "minor page faults", "0444", "cold, 10 KiB and 1 more", "100", "▲ 130 (× 1.30)",
    ]  # fmt: skip


def test_metered_energy_is_never_left_out_for_counters() -> None:
    made = document(all_equivalent())
    place = made.effects[0].condition
    metrics = [*(f"counter_{number}" for number in range(20)), "energy_metered"]
    rows = [replace(changed(moved, place), metric=metric) for metric in metrics for moved in (0, 10)]
    blocks = tuple(evidence_section(replace(made, evidence=tuple(rows))))
    lines = [line for line in plain_lines(Report("", "", "", blocks), width=140) if "▲ 110" in line]
    assert "energy, by the meter" in lines[0]


def test_the_changes_that_are_left_out_are_counted() -> None:
    made = document(all_equivalent())
    place = made.effects[0].condition
    metrics = [f"counter_{number}" for number in range(20)]
    rows = [replace(changed(moved, place), metric=metric) for metric in metrics for moved in (0, 10)]
    blocks = tuple(evidence_section(replace(made, evidence=tuple(rows))))
    lines = plain_lines(Report("", "", "", blocks), width=140)
    assert sum("▲ 110" in line for line in lines) == 8
    assert "and 12 more changes (--json)" in lines


def test_a_counter_that_changed_alike_until_the_data_was_synced_is_not_named_twice() -> None:
    made = document(all_equivalent())
    place = made.effects[0].condition
    row = replace(changed(10, place), metric="device_write_ios")
    synced = replace(row, metric="device_write_ios_synced")
    for other, count in ((synced, 1), (replace(synced, moved="down"), 2)):
        blocks = tuple(evidence_section(replace(made, evidence=(changed(0, place), row, other))))
        lines = plain_lines(Report("", "", "", blocks), width=140)
        assert sum("write requests of the device" in line for line in lines) == count


@pytest.mark.parametrize("columns", [2, 4, 8])
def test_each_part_of_a_wide_table_has_its_first_column_and_no_broken_number(columns: int) -> None:
    numbers = [f"{place}110.5 MiB (x)" for place in range(columns)]
    heads = (Column("metric", wide=True), *(Column(f"arm {place}", right=True) for place in range(columns)))
    wide = Table(heads, (Group((Row(("minor page faults", *numbers)),)),))
    lines = plain_lines(Report("", "", "", (wide,)), width=80)
    assert max(map(len, lines)) <= 80
    rows = [line for line in lines if "110.5 MiB" in line]
    assert all(line.startswith("minor page") for line in rows)
    assert [number for line in rows for number in re.findall(r"\d110\.5 MiB \(x\)", line)] == numbers


def test_where_rows_are_too_long_cells_and_the_note_are_brief() -> None:
    cells = (Words("36.2 ms ±3 %", brief="36.2 ms"), Words("36.2 ms ±3 %", brief="36.2 ms"))
    heads = (Column("setting", wide=True), Column("level", right=True), Column("reference", right=True))
    made = Table(heads, (Group((Row(("a" * 20, *cells)),)),), note="±: spread", brief="")
    whole, short = ("\n".join(plain_lines(Report("", "", "", (made,)), width=width)) for width in (48, 47))
    assert whole.count("36.2 ms ±3 %") == 2
    assert "±: spread" in whole
    assert short.count("36.2 ms") == 2
    assert "±" not in short


def test_of_two_columns_of_text_the_one_wraps_that_then_takes_fewer_lines() -> None:
    heads = (Column("setting", wide=True), Column("verdict", wide=True))
    often, seldom = ("core.untrackedCache on", "faster"), ("default", "typical runs equivalent")

    def lines(*rows: tuple[str, str]) -> list[str]:
        made = Table(heads, (Group(tuple(map(Row, rows))),))
        return [line.rstrip() for line in plain_lines(Report("", "", "", (made,)), width=46) if line.strip()]

    assert sum("core.untrackedCache on  faster" in line for line in lines(often, often, often, seldom)) == 3
    many = lines(often, seldom, seldom, seldom)
    assert sum(line.endswith("typical runs equivalent") for line in many) == 3


def test_a_heading_that_is_too_long_is_broken_where_names_are_joined() -> None:
    heads = (Column("metric", wide=True), Column("data=writeback+commit=5", right=True))
    text = "x" * 60
    lines = plain_lines(Report("", "", "", (Table(heads, (Group((Row((text, "1 s")),)),)),)), width=30)
    assert [line.split() for line in lines if "data" in line or "commit" in line] == [
        ["metric", "data=writeback+"],
        ["commit=5"],
    ]


def test_void_blocks_are_counted_by_the_level_whose_check_failed() -> None:
    counts = [VoidCount("warm_was_not_warm", "0777", 2), VoidCount("warm_was_not_warm", "0444", 4)]
    made = document(all_equivalent(), void=counts)
    said = "Void, by the level whose check failed warm_was_not_warm 0444 (4) and 0777 (2)."
    assert said in " ".join(printed(made, full=True).split())
    assert said not in " ".join(printed(made).split())
