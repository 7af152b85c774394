"""A published table as a page of docs/catalogue/audits: shorter than the audit, with the same answer."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from iotrial.audits.audit import audit
from iotrial.audits.importers import read
from iotrial.audits.importers.contract import ReadOptions, source_of
from iotrial.audits.model import Audit
from iotrial.report.audit import sentences
from iotrial.report.audit.blocks import audit_text

AUDITS = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "audits"))
HEAD = "#: title = Is it faster?\n#: note = Published: a blog.\n#: note = A hint.\n"


def audited(content: str, name: str = "x.csv") -> Audit:
    return audit(read([source_of((HEAD + content).encode(), name=name)], ReadOptions()))


def page(content: str) -> str:
    text: str = AUDITS["page"](audited(content), "Is it faster?", "Published: a blog.", ["A hint."], "x.csv")
    return text


def single_runs(conditions: int) -> str:
    rows = [f"{size},{group},{time}" for size in range(conditions) for group, time in (("off", 2), ("on", 1))]
    return "\n".join(["size,setting,time_s", *rows, ""])


def test_single_runs_have_a_range_in_percent_and_no_interval() -> None:
    found = audited("size,setting,time_s\n1,off,2\n1,on,1\n2,off,4\n2,on,3\n")
    assert sentences.summary(found).startswith(
        "on vs off: time -50 % to -25 % in 2 comparisons. One value per group"
    )
    assert "Welch" not in audit_text(found, None)


def test_the_answer_has_the_interval_in_percent() -> None:
    values = "\n".join(
        f"{g},{t}" for g, t in [("off", 1.0), ("off", 1.01)] * 3 + [("on", 0.5), ("on", 0.505)] * 3
    )
    found = audited(f"setting,time_s\n{values}\n")
    (answer,) = re.findall(
        r"on vs off: (.*) % less time \[(.*) %, (.*) %\], different", sentences.summary(found)
    )
    size, low, high = map(float, answer)
    assert size == 50.0
    # six values each with an SD of 0.0054 in the logarithm: 2.228 * 0.0054 * sqrt(2 / 6) on either side
    assert low == pytest.approx(-50.35, abs=0.06)
    assert high == pytest.approx(-49.65, abs=0.06)


def test_a_page_has_question_answer_reasons_limits_and_source_in_this_order() -> None:
    lines = page(single_runs(2)).splitlines()
    assert lines[0] == "# Is it faster?"
    assert lines[2].startswith("**on vs off: time -50 %")
    order = ["## Why", "- A hint.", "## Limits", "## Source", "- Published: a blog."]
    assert [line for line in lines if line in order] == order
    assert any("does not record the order" in line for line in lines)
    assert "Repeat this audit: `iotrial audit docs/audits/x.csv`" in lines
    assert "[The table](../../audits/x.csv)" in lines[-1]


def test_a_table_without_numbers_has_a_page_without_a_command() -> None:
    text = AUDITS["page"](None, "Which settings?", "Published: a list.", ["A hint."], "x.csv")
    assert "**No numbers: nothing to audit.**" in text
    assert "iotrial audit" not in text
    assert AUDITS["clause"](None) == "no numbers"


def test_the_clause_of_the_index_counts_what_the_comparisons_show() -> None:
    assert AUDITS["clause"](audited(single_runs(2))) == "no repeats, so no interval possible"
    rows = [f"{size},off,{time}" for size in (1, 2) for time in (10, 11, 12)]
    rows += [f"1,on,{time}" for time in (10, 11, 12)] + [f"2,on,{time}" for time in (110, 111, 112)]
    found = audited("\n".join(["size,setting,time_s", *rows, ""]))
    assert sorted(AUDITS["clause"](found).split(", ")) == ["1 different", "1 undecided"]


@pytest.mark.parametrize(("conditions", "rows"), [(8, 8), (9, 1)])
def test_many_comparisons_become_one_row_with_a_range(conditions: int, rows: int) -> None:
    table = [line for line in page(single_runs(conditions)).splitlines() if line.startswith("| ")]
    assert len(table) - 1 == rows


@pytest.mark.parametrize(("conditions", "rows"), [(6, 6), (7, 1)])
def test_comparisons_with_intervals_become_one_row_sooner(conditions: int, rows: int) -> None:
    lines = [
        f"{size},{group},{time}"
        for size in range(conditions)
        for group, times in (("off", (10, 11, 12)), ("on", (11, 10, 12)))
        for time in times
    ]
    section = page("\n".join(["size,setting,time_s", *lines, ""]))
    assert len([line for line in section.splitlines() if line.startswith("| ")]) - 1 == rows


def test_claims_with_one_outcome_are_one_sentence() -> None:
    claims = "#: claim = on 50 % of off where size=0\n#: claim = on 50 % of off where size=1\n"
    (sentence,) = sentences.claims_in_brief(audited(claims + single_runs(2)))
    assert sentence == '"on 50 % of off" recomputes; as worded: 50.00 % and 50.00 %.'
    several = "#: claim = on 50 % of off where size=0\n#: claim = on 50 % less than off where size=1\n"
    (sentence,) = sentences.claims_in_brief(audited(several + single_runs(2)))
    assert '"on 50 % of off" and "on 50 % less than off" recompute;' in sentence


def test_what_all_rows_have_in_common_stands_below_the_table() -> None:
    content = "layout,size,setting,time_s\nmd,1,off,2\nmd,1,on,1\nmd,2,off,2\nmd,2,on,1\n"
    above, found, _ = audit_text(audited(content), None).partition("Everywhere: layout md.")
    assert found
    assert "layout" not in above


def test_labels_of_a_page_make_no_markup() -> None:
    hostile = 'setting,time_s\n"<script>",1\n"[x](http://y)|",2\n'
    section = page(hostile)
    assert "<script>" not in section
    assert "[x](http" not in section
