"""The data behind figures: complete, exact, safe in a spreadsheet, and never more than fits on a page."""

from __future__ import annotations

import csv
import io
import re
from functools import cache
from string import ascii_letters, digits

import pytest
from figure_links import saved
from hostile_trial import hostile_document
from report_fixtures import CONDITIONS, all_equivalent, document, effect

from iotrial.report import html
from iotrial.report.chart import Chart
from iotrial.report.document import Document
from iotrial.report.figure import Figure, csv_of, csv_text, named, stem
from iotrial.report.figures import draw_figures
from iotrial.report.html import data_links, fitting
from iotrial.report.render import html_report
from iotrial.stats.model import Verdict


@cache
def made() -> Document:
    return document(
        all_equivalent(),
        runs={
            "blocks": 30,
            "conditions": CONDITIONS[:2],
            "void": {(0, 3): "cache_not_cold"},
            "failing": "0444",
        },
    )


@cache
def page() -> str:
    return html_report(made())


def figure(name: str, *, stem: str = "runs", rows: int = 1) -> Figure:
    drawing = Chart(name, 1, 1, (), "")
    return Figure(stem, "", "", "", ("n",), tuple((n,) for n in range(rows)), (drawing,))


def test_every_figure_of_the_page_has_its_data_on_the_page() -> None:
    figures = list(draw_figures(made()).every())
    assert len(figures) == 1 + 2 + 2 + 4  # effects, runs, distributions, latencies of two operations
    assert page().count("<figcaption>") == len(figures)
    assert page().count(" download=") == len(figures)
    assert len(saved(page())) == len(figures)


def test_effects_are_there_with_all_their_digits() -> None:
    head, *rows = saved(page())["files-permissions-12-effects.csv"]
    assert head == [
        "condition", "comparison", "response", "scale", "unit", "estimate", "low", "high", "p (anytime)", "blocks",
        "failed runs", "verdict",
    ]  # fmt: skip
    assert rows[1] == [
        "cache cold, size 10 KiB", "mode 0444 / 0777", "wall", "ratio", "", "1.002", "0.985", "1.021", "1.0", "120", "0",
        "equivalent",
    ]  # fmt: skip


def test_every_run_that_gave_a_number_is_in_the_data_of_its_condition() -> None:
    head, *rows = saved(page())["files-permissions-12-runs-cache-cold-size-4-KiB.csv"]
    assert head == ["arm", "control", "started [s]", "wall [s]", "void block"]
    key = "cache=cold,size=4 KiB,workload=probe"
    blocks = [block for block in made().data.blocks if block.condition == key]
    wanted = {
        (run.started_s, run.responses["wall"], "yes" if block.void else "no")
        for block in blocks
        for run in block.observations
        if run.failure is None
    }
    assert {(float(row[2]), float(row[3]), row[4]) for row in rows} == wanted
    assert len(rows) == len(wanted)
    assert sum(row[4] == "yes" for row in rows) == len(blocks[3].observations)
    assert {row[0] for row in rows if row[1] == "yes"} == {"copy of the reference", "slowed copy"}


def test_latencies_are_counts_of_the_runs_that_count() -> None:
    head, *rows = saved(page())["files-permissions-12-latency-open-cache-cold-size-4-KiB.csv.gz"]
    assert head == ["arm", "latency [ns]", "operations"]
    void = {(end.condition, end.block) for end in made().data.ends if end.void}
    counted = sum(
        count
        for run in made().data.runs
        if run.condition == "cache=cold,size=4 KiB,workload=probe"
        and run.kind == "treatment"
        and run.failure is None
        and (run.condition, run.block) not in void
        for _, count in run.histograms["open"]
    )
    assert sum(int(row[2]) for row in rows) == counted


def test_a_long_trial_has_all_its_runs_compressed_where_the_picture_has_some() -> None:
    long = document(
        all_equivalent()[:1], runs={"blocks": 1000, "conditions": CONDITIONS[:1], "histograms": False}
    )
    text = html_report(long)
    (rows,) = (rows for name, rows in saved(text).items() if "-runs-" in name and name.endswith(".csv.gz"))
    assert len(rows) == 1 + 3000
    assert "data, CSV (gzip)" in text


def test_what_does_not_fit_is_named_with_the_command_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = len(html_report(made())) - sum(len(part) for part in page().split('"') if part[:5] == "data:")
    limit = bare + 40_000
    monkeypatch.setattr(html, "WITH_DATA", limit)
    text = html_report(made())
    assert len(text.encode()) <= limit
    there = saved(text)
    assert "files-permissions-12-effects.csv" in there, "the smallest come first"
    assert 0 < len(there) < 9
    said = text.count("<code>iotrial report 12 --figures FOLDER</code> writes them")
    assert said == 9 - len(there)


def test_links_take_the_room_that_there_is_and_the_smallest_first() -> None:
    figures = [figure("large", rows=3000, stem="large"), figure("small", stem="small")]
    every = fitting(data_links(figures, prefix=""), 1_000_000)
    assert all(link.href for link in every.values())
    room = len(every["large"].href)
    some = fitting(data_links(figures, prefix=""), room)
    assert some["small"].href == every["small"].href
    assert some["large"].href == ""
    assert (some["large"].name, some["large"].rows) == ("large.csv", 3000)
    assert not any(link.href for link in fitting(data_links(figures, prefix=""), 0).values())


@pytest.mark.parametrize(
    ("label", "wanted"),
    [
        ("=1+1", "'=1+1"), ("+1", "'+1"), ("-1", "'-1"), ("@SUM(A1)", "'@SUM(A1)"), ("\tx", "'\tx"), ("\rx", "'\rx"),
        (" =1", "' =1"), ("＝1", "'＝1"), ("a=1", "a=1"), ("0444", "0444"), ("'", "'"), ("", ""), ("–", "–"),
        ('say "no"', 'say "no"'), ("two\nlines", "two\nlines"), ("a,b;c", "a,b;c"),
    ],
)  # fmt: skip
def test_a_text_is_no_formula_and_comes_back_as_it_was(label: str, wanted: str) -> None:
    text = csv_text((label,), [(label, "behind")])
    assert list(csv.reader(io.StringIO(text, newline=""))) == [[wanted], [wanted, "behind"]]


def test_numbers_keep_their_digits_and_signs() -> None:
    text = csv_text(("a", "b", "c", "d", "e"), [(0.1 + 0.2, -1.5, 1 << 60, None, float("nan"))])
    assert text == "a,b,c,d,e\r\n0.30000000000000004,-1.5,1152921504606846976,,\r\n"


def test_hostile_labels_are_no_formulas_and_no_names_of_files() -> None:
    figures = list(draw_figures(hostile_document()).every())
    assert figures
    for name, found in named(figures):
        assert set(name) <= set(ascii_letters + digits + "._-"), name
        assert not name.startswith((".", "-"))
        for row in csv.reader(io.StringIO(csv_of(found), newline="")):
            for cell in row:
                assert cell[:1] not in ("=", "+", "@", "\t", "\r")
                assert cell[:1] != "-" or re.fullmatch(r"-[\d.e-]+", cell), cell


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        (("cache cold, size 4 KiB",), "runs-cache-cold-size-4-KiB"),
        (("../../etc/passwd",), "runs-..-..-etc-passwd"),
        (("\x1b[31m日本",), "runs-31m"),
        (("..",), "runs"),
        (("a" * 500,), "runs-" + "a" * 75),
    ],
)
def test_a_stem_is_a_plain_name_whatever_the_condition(texts: tuple[str, ...], wanted: str) -> None:
    assert stem("runs", *texts) == wanted


def test_no_two_figures_have_a_name_in_common_even_where_case_does_not_count() -> None:
    figures = [figure(str(n), stem=text) for n, text in enumerate(["a", "A", "a-2", "a", "b"])]
    assert [name for name, _ in named(figures)] == ["a", "A-2", "a-2-2", "a-3", "b"]


def test_an_invalid_trial_has_no_verdict_in_its_data() -> None:
    made = document([effect(Verdict.FASTER, 0.5, 0.4, 0.6, condition=CONDITIONS[0])], valid=False)
    (figure, *_) = draw_figures(made).every()
    assert figure.rows[0][-1] == "no verdict"
    assert "no interval is a verdict" in figure.sentence
