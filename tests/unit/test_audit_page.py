"""A published table as a section of docs/audits.md: shorter than the audit, with the same answer."""

from __future__ import annotations

import re

import pytest

from iotrial.audits.audit import audit
from iotrial.audits.importers import read
from iotrial.audits.importers.contract import ReadOptions, source_of
from iotrial.audits.model import Audit
from iotrial.report.audit import sentences
from iotrial.report.audit.blocks import audit_text
from iotrial.report.audit.page import published_section

HEAD = "#: title = Is it faster?\n#: note = Published: a blog.\n#: note = A hint.\n"


def audited(content: str, name: str = "x.csv") -> Audit:
    return audit(read([source_of((HEAD + content).encode(), name=name)], ReadOptions()))


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


def test_a_section_has_source_answer_limits_and_links_its_table() -> None:
    lines = published_section(audited(single_runs(2)), None, file="audits/x.csv").splitlines()
    assert lines[0] == "## Is it faster?"
    assert lines[2] == "Published: a blog. [x.csv](audits/x.csv)"
    assert lines[4].startswith("**on vs off: time -50 %")
    assert "- A hint." in lines
    assert not any("does not record the order" in line for line in lines)  # said once for all tables


@pytest.mark.parametrize(("conditions", "rows"), [(8, 8), (9, 1)])
def test_many_comparisons_become_one_row_with_a_range(conditions: int, rows: int) -> None:
    section = published_section(audited(single_runs(conditions)), None, file="x.csv")
    table = [line for line in section.splitlines() if line.startswith("| ")]
    assert len(table) - 1 == rows
    assert ("`iotrial audit docs/audits/x.csv`" in section) is (rows == 1)


@pytest.mark.parametrize(("conditions", "rows"), [(6, 6), (7, 1)])
def test_comparisons_with_intervals_become_one_row_sooner(conditions: int, rows: int) -> None:
    lines = [
        f"{size},{group},{time}"
        for size in range(conditions)
        for group, times in (("off", (10, 11, 12)), ("on", (11, 10, 12)))
        for time in times
    ]
    section = published_section(audited("\n".join(["size,setting,time_s", *lines, ""])), None, file="x.csv")
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


def test_labels_of_a_section_make_no_markup() -> None:
    hostile = 'setting,time_s\n"<script>",1\n"[x](http://y)|",2\n'
    section = published_section(audited(hostile), None, file="x.csv")
    assert "<script>" not in section
    assert "[x](" not in section
