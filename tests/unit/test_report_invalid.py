"""Likely reasons in the reports of an invalid trial."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
from report_fixtures import all_equivalent, controls, document

from iotrial.cli.finish import status_of
from iotrial.report.jsonreport import report_json
from iotrial.report.render import html_report, markdown_report
from iotrial.report.sentences import control_sentence, summarise
from iotrial.stats.model import Control
from iotrial.stats.reasons import Reason
from values import replace

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "report.schema.json").read_text())
ONE = {"cache": "cold", "size": "4 KiB", "workload": "probe"}
FAILED = Control("negative", ONE, "wall", 1.0, 1.05, 1.02, 1.08, False, True, 60)
REASONS = (
    Reason("neighbour", "something wanted the processor", "stop other work", 0.9, ONE, "wall", controls=2),
    Reason("order", "order <b>within</b> the \x1b[31mblock", "draw it", 0.5, {}, ""),
    Reason("cache", "the cache was another", "prepare it", 0.4, ONE, "wall"),
    Reason("memory", "memory was short", "free some", 0.35, ONE, "wall"),
)


def test_the_first_three_are_said_with_what_to_do_and_where() -> None:
    made = document(all_equivalent(), valid=False, control=[FAILED])
    details = summarise(made.trial, made.analysis, REASONS).details
    assert details[0] == (
        "Likely reason: something wanted the processor (cache cold, size 4 KiB; found for 2 failed controls). "
        "What to do: stop other work."
    )
    assert details[1] == "Or: order <b>within</b> the \\x1b[31mblock. What to do: draw it."
    assert details[2].startswith("Or: the cache was another (cache cold, size 4 KiB).")
    assert not any("memory was short" in detail for detail in details)
    assert not any("No recorded" in detail for detail in details)


def test_every_format_holds_them_and_none_is_made_of_them() -> None:
    made = document(all_equivalent(), valid=False, control=[FAILED])
    made = replace(made, reasons=REASONS, summary=summarise(made.trial, made.analysis, REASONS))
    page = html_report(made)
    assert "order &lt;b&gt;within&lt;/b&gt; the \\x1b[31mblock" in page
    assert "Likely reason: something wanted the processor" in markdown_report(made)
    report = report_json(made)
    jsonschema.validate(report, SCHEMA)
    found = report["diagnostics"]["likely_reasons"]  # type: ignore[index]
    assert [reason["code"] for reason in found] == ["neighbour", "order", "cache", "memory"]
    assert found[0]["weight"] == 0.9
    assert report_json(document(all_equivalent()))["diagnostics"]["likely_reasons"] == []  # type: ignore[index]


def test_the_schema_knows_every_reason_there_is() -> None:
    listed = SCHEMA["$defs"]["Reason"]["properties"]["code"]["enum"]
    folder = Path(__file__).parents[2] / "python" / "iotrial" / "stats" / "reasons"
    text = "".join(path.read_text() for path in folder.glob("*.py") if path.name != "case.py")
    assert len(listed) == len(set(listed)) == 18
    assert [code for code in listed if f'"{code}"' not in text] == []


def test_a_copy_without_an_interval_is_not_said_to_be_the_same() -> None:
    bounded, early = controls()[0], replace(controls()[0], low=None, high=None)
    assert control_sentence(bounded, "") == (
        "no difference between the copy and the original is shown: 1.001 [0.985, 1.017]"
    )
    assert control_sentence(early, "").startswith("too few blocks to tell whether the copy differs")


def test_the_exit_status_is_that_of_docs_cli() -> None:
    made = document(all_equivalent())
    stopped = ("p99 is worse by 20 %",)
    assert status_of(made, ()) == 0
    assert status_of(made, ("equivalent", "slower")) == 4
    assert status_of(document(all_equivalent(), valid=False), ("equivalent",)) == 3
    assert status_of(replace(made, data=replace(made.data, guarded=stopped)), ()) == 4
    nothing = [replace(one, low=None, high=None) for one in all_equivalent()]
    assert status_of(document(nothing), ("equivalent",)) == 6
    some = [*nothing[:-1], all_equivalent()[-1]]
    assert status_of(document(some), ()) == 0
