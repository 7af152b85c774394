"""The Markdown report for a pull request."""

from __future__ import annotations

import re

from report_fixtures import CONDITIONS, SEED, all_equivalent, document, effect, factor, study

from iotrial.report.markdown import escaped
from iotrial.report.render import markdown_report
from iotrial.stats.model import Verdict
from iotrial.study.model import Claim, Role

CLAIM = Claim("a blog", "12 %", "mode", "0444", "0777", 0.89, condition={"cache": "cold", "size": "10 KiB"})


def test_title_verdict_question_table_and_claim_come_in_this_order() -> None:
    text = markdown_report(document(all_equivalent(), of=study(claims=[CLAIM])))
    lines = text.splitlines()
    assert lines[0] == "### Permission bits"
    assert lines[2].startswith("**Mode 0444 is as fast as 0777 in all 4 conditions")
    assert lines[4] == "> Does mode 0444 make reading a small file faster?"
    head = lines.index(r"| mode 0444 / 0777 | 0444 | 0777 | ratio \[interval\] | verdict |")
    row = next(i for i, line in enumerate(lines) if line.startswith("| cache cold, size 10 KiB | "))
    assert lines[row].endswith(r" | 1.002 \[0.985, 1.021\] | equivalent |")
    claim = next(
        i for i, line in enumerate(lines) if line.startswith("- **Claim**: “12 %” (a blog): not confirmed")
    )
    assert head < row < claim
    assert lines[-1] == f"Run again: `iotrial run files/permissions --seed {SEED}`"


def test_a_label_cannot_make_markup_tables_links_or_mentions() -> None:
    assert escaped("a|b") == r"a\|b"
    assert escaped("[x](http://y)") == r"\[x\](http<!-- -->://y)"
    assert escaped("![](https://y/z.png)") == r"!\[\](https<!-- -->://y/z.png)"
    assert escaped("www.y.example, GH-12") == "www<!-- -->.y.example, GH<!-- -->-12"
    assert [escaped(text) for text in ("- x", "1. x", "1.5 x", "=x")] == [r"\- x", r"1\. x", "1.5 x", r"\=x"]
    assert escaped("<script>") == "&lt;script&gt;"
    assert escaped("@team") == "@<!-- -->team"
    assert escaped("`*_~") == r"\`\*\_\~"
    assert escaped("two\nlines") == r"two\\x0alines"


def test_every_table_row_has_as_many_cells_as_its_head() -> None:
    level = "a|b<c>\n@d"
    of = study(question="Which?", treatment=factor("mode", ["0777", level], role=Role.TREATMENT))
    made = document([effect(Verdict.FASTER, 0.5, 0.4, 0.6, level=level, condition=CONDITIONS[0])], of=of)
    tables = re.findall(r"(?:^\|.*\n)+", markdown_report(made), flags=re.MULTILINE)
    assert tables
    for table in tables:
        assert len({row.replace(r"\|", "").count("|") for row in table.splitlines()}) == 1, table
    assert "<c>" not in "".join(tables)


def test_folded_parts_are_closed_again() -> None:
    text = markdown_report(document(all_equivalent()))
    assert text.count("<details>") == text.count("</details>") > 2


def test_the_whole_is_short_enough_for_a_comment_and_says_what_it_leaves_out() -> None:
    levels = [f"a-level-with-a-name-{i:03}" * 3 for i in range(120)]
    of = study(treatment=factor("mode", levels, role=Role.TREATMENT))
    effects = [
        effect(
            Verdict.FASTER,
            0.5,
            0.4,
            0.6,
            level=level,
            reference=levels[0],
            condition=CONDITIONS[0],
            primary=False,
            response="user",
        )
        for level in levels[1:]
    ]
    text = markdown_report(document(effects, of=of, runs={"blocks": 1}))
    assert len(text) < 65_536
    assert "more lines, in the JSON and HTML reports" in text
    assert text.count("<details>") == text.count("</details>")
