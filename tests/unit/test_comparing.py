"""Comparison of trials: where effects differ, where nothing is shown, and what may never be claimed."""

from __future__ import annotations

import json
import math
from io import StringIO
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from compared_trials import COLD, faster, measured_trial, one
from hostile_trial import STEERING, hostile_document
from report_fixtures import effect

from iotrial.design.plan import NEGATIVE_ARM
from iotrial.errors import RequestError
from iotrial.report.analysed import Analysed, Level, analysed
from iotrial.report.comparing import compare
from iotrial.report.comparison import (
    Agreement,
    Comparison,
    agreement_words,
    details,
    gain_of,
    headline,
    verdict_words,
)
from iotrial.report.comparison_blocks import comparison_html, comparison_markdown, comparison_report
from iotrial.report.comparison_json import comparison_json
from iotrial.report.opening import summary_of
from iotrial.report.text import Console, print_blocks
from iotrial.stats.eprocess import interval
from iotrial.stats.model import Verdict
from iotrial.stats.skew import median_bounds
from iotrial.store import Store
from iotrial.study.model import Better, Scale
from values import replace

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "compare.schema.json").read_text())


def text_of(comparison: Comparison, width: int = 80, *, full: bool = False) -> str:
    out = StringIO()
    print_blocks(comparison_report(comparison), Console(file=out, width=width), full=full)
    return out.getvalue()


def said(comparison: Comparison) -> str:
    return " ".join((headline(comparison), *details(comparison)))


def test_intervals_apart_differ_by_the_gap_between_them_at_least() -> None:
    made = compare([one("a", faster(0.55, 0.5, 0.6)), one("b", faster(0.95, 0.9, 1.0))])
    (row,) = made.rows
    assert row.agreement is Agreement.DIFFERS
    (apart,) = row.apart
    assert (apart.low, apart.high) == (0, 1)
    assert apart.least == pytest.approx(1.5)  # 0.9 / 0.6
    assert agreement_words(made, row) == "differs: A below B"
    assert row.verdict is Verdict.FASTER
    assert verdict_words(row) == ""  # in B the size may be below the margin: the two conclusions differ
    assert headline(made) == (
        "The effect differs between the 2 trials: A 45 % [40, 50] less time and B 5 % [0, 10] less time."
    )


def test_of_differences_the_gap_is_in_their_unit() -> None:
    changes = {"scale": Scale.DIFFERENCE, "unit": "bytes", "better": Better.NONE}
    made = compare(
        [one("a", faster(0.0, 0.0, 0.0, **changes)), one("b", faster(4096.0, 2048.0, 8192.0, **changes))]
    )
    assert made.rows[0].apart[0].least == 2048.0
    assert made.rows[0].cells[0].gain is None  # type: ignore[union-attr]


@pytest.mark.parametrize("other", [(0.65, 0.6, 0.7), (0.5, None, 0.55), (2.0, 0.4, None), (0.55, 0.54, 0.56)])
def test_intervals_that_touch_or_overlap_show_nothing_and_nothing_is_called_the_same(
    other: tuple[float, float | None, float | None],
) -> None:
    made = compare([one("a", faster(0.55, 0.5, 0.6)), one("b", faster(*other))])
    assert made.rows[0].agreement is Agreement.NOT_SHOWN
    assert headline(made).startswith("No difference between the 2 trials is shown")
    assert "does not mean that the effects are equal" in said(made)


def test_of_three_trials_each_pair_is_held_against_the_other() -> None:
    values = [faster(0.55, 0.5, 0.6), faster(0.62, 0.58, 0.66), faster(0.75, 0.7, 0.8)]
    made = compare([one(name, value, share=3) for name, value in zip("abc", values, strict=True)])
    assert [(pair.low, pair.high) for pair in made.rows[0].apart] == [(0, 2), (1, 2)]
    assert agreement_words(made, made.rows[0]) == "differs: A, B below C"
    assert made.alpha == pytest.approx(0.05)
    assert "alpha / 3" in said(made)
    assert "95 %" in said(made)


def test_opposite_verdicts_are_said() -> None:
    slower = effect(Verdict.SLOWER, 1.3, 1.2, 1.4, condition=COLD)
    made = compare([one("a", faster(0.55, 0.5, 0.6)), one("b", slower)])
    assert made.rows[0].opposite
    assert made.rows[0].verdict is None
    assert "The verdicts are opposite in 1 comparison: mode 0444 against 0777" in said(made)


@pytest.mark.parametrize(
    "changes",
    [
        {"verdict": Verdict.INCONCLUSIVE, "reason": "failures"},
        {"verdict": Verdict.INCONCLUSIVE, "reason": "unusable_values"},
        {"verdict": Verdict.INCONCLUSIVE, "reason": "effect_not_constant"},
        {"verdict": Verdict.INCONCLUSIVE, "reason": "no_blocks", "blocks": 0},
        {"low": None, "high": None},
    ],
)
def test_what_is_of_a_part_of_the_runs_or_without_bounds_is_held_against_nothing(
    changes: dict[str, object],
) -> None:
    other = replace(faster(0.95, 0.9, 1.0), **changes)  # type: ignore[arg-type]
    made = compare([one("a", faster(0.55, 0.5, 0.6)), one("b", other)])
    assert made.rows[0].agreement is Agreement.OPEN
    assert not made.rows[0].apart
    assert headline(made).startswith("No verdict")


def test_an_invalid_trial_is_shown_without_verdicts() -> None:
    made = compare([one("a", faster(0.55, 0.5, 0.6)), one("b", faster(0.95, 0.9, 1.0), valid=False)])
    assert made.rows[0].agreement is Agreement.OPEN
    assert "B is invalid" in said(made)
    assert "no verdict" in text_of(made)
    assert comparison_json(made)["comparisons"][0]["trials"]["B"]["verdict"] is None  # type: ignore[index]
    assert "no verdict" in comparison_html(made)


def test_what_one_trial_alone_has_is_listed_as_such() -> None:
    more = faster(0.7, 0.6, 0.8, level="0400")
    made = compare([one("a", faster(0.55, 0.5, 0.6), more), one("b", faster(0.56, 0.5, 0.6))])
    alone = made.rows[1]
    assert (alone.agreement, alone.has, agreement_words(made, alone)) == (Agreement.ALONE, (0,), "only in A")
    assert "1 comparison is in one trial only: 1 in A." in said(made)
    assert "in one trial only" in text_of(made)
    assert "In one trial only" in comparison_html(made)


def test_the_same_labels_of_another_unit_are_another_comparison() -> None:
    made = compare([one("a", faster(0.55, 0.5, 0.6)), one("b", faster(0.95, 0.9, 1.0, unit="bytes"))])
    assert [row.agreement for row in made.rows] == [Agreement.ALONE, Agreement.ALONE]
    assert headline(made).startswith("Nothing can be compared")


def test_what_cannot_be_compared_is_refused() -> None:
    mine, other = one("a", faster(0.55, 0.5, 0.6)), one("b", faster(0.9, 0.8, 1.0))
    for trials in ([], [replace(mine, share=1)]):
        with pytest.raises(RequestError, match="two or more trials"):
            compare(trials)
    with pytest.raises(RequestError, match="named twice"):
        compare([mine, replace(mine, number=3)])
    stranger = replace(other, study="mount/atime", effects=(faster(0.9, 0.8, 1.0, factor="atime"),))
    with pytest.raises(RequestError, match="has no comparison in common with the others") as caught:
        compare([mine, stranger])
    assert "--like" in (caught.value.hint or "")
    with pytest.raises(ValueError, match="alpha / 2"):
        compare([mine, replace(other, share=1)])


def test_another_study_that_shares_comparisons_is_compared_and_named() -> None:
    made = compare([one("a", faster(0.55, 0.5, 0.6)), one("b", faster(0.9, 0.8, 1.0), study="mine")])
    (different,) = made.differences
    assert (different.group, different.name, different.values) == (
        "trial",
        "study",
        ("files/permissions", "mine"),
    )


def test_only_what_differs_and_lasts_is_told_of_machines_labs_and_works() -> None:
    machine = {"kernel": "6.1", "memory bytes": "25276502016", "probe clock hz": "1", "virtual": "yes"}
    other = {"kernel": "6.2", "memory bytes": "25276510208", "probe clock hz": "2"}
    first = one(
        "a", machine=machine, lab={"places device": "loop0", "disk": "sda"}, does={"files": "20", "x": "1"}
    )
    second = one(
        "b", machine=other, lab={"places device": "loop7", "disk": "sdb"}, does={"files": "40"}, margin=0.05
    )
    found = {(one.group, one.name): one.values for one in compare([first, second]).differences}
    assert found == {
        ("trial", "margin"): ("3 %", "5 %"),
        ("machine", "kernel"): ("6.1", "6.2"),
        ("machine", "virtual"): ("yes", None),
        ("lab", "disk"): ("sda", "sdb"),
        ("work", "files"): ("20", "40"),
    }
    assert "The same labels mean different things in these trials: files." in said(compare([first, second]))


@pytest.mark.parametrize(
    ("numbers", "changes", "words"),
    [
        ((0.62, 0.59, 0.65), {}, "38 % [35, 41] less time"),
        ((1.12, 1.10, 1.14), {}, "12 % [10, 14] more time"),
        ((1.12, 1.10, 1.14), {"unit": "bytes/s", "better": Better.HIGHER}, "12 % [10, 14] more"),
        ((0.5, 0.45, 0.55), {"unit": "1"}, "50 % [45, 55] less"),
        ((1.001, 0.991, 1.012), {}, "0.9 % less to 1.2 % more time"),
        ((0.999, 0.97, 1.02), {}, "3 % less to 2 % more time"),
        ((3.5, 3.25, 3.9), {}, "3.5 times [3.2, 3.9] the time"),
        ((0.9, None, 0.95), {}, "10 % [5, …] less time"),
    ],
)
def test_a_gain_is_in_per_cent_of_what_it_is_a_gain_of(
    numbers: tuple[float, float | None, float | None], changes: dict[str, object], words: str
) -> None:
    gain = gain_of(faster(*numbers, **changes))
    assert gain is not None
    assert gain.said == words


def test_an_interaction_has_no_gain() -> None:
    assert gain_of(faster(0.62, 0.59, 0.65, kind="interaction")) is None


def many(count: int) -> list[Analysed]:
    return [
        one(f"t{i}", faster(0.55, 0.5, 0.6), share=count, machine={"kernel": f"6.{i}"}) for i in range(count)
    ]


def test_beyond_twelve_trials_columns_become_rows() -> None:
    few, more = compare(many(12)), compare(many(13))
    assert "| trial | effect | change | verdict |" in comparison_markdown(few)
    assert "<th>L</th>" in comparison_html(few)
    page = comparison_html(more)
    assert "<th>M</th>" not in page
    assert '<td class="q">M</td>' in page
    assert more.columns[12].mark == "M"
    assert compare(many(28)).columns[27].mark == "AB"


def test_json_keeps_to_its_schema_and_has_every_number() -> None:
    made = compare([one("a", faster(0.55, 0.5, 0.6), number=4), one("b", faster(0.95, None, 1.0))])
    found = json.loads(json.dumps(comparison_json(made), allow_nan=False))
    jsonschema.validate(found, SCHEMA)
    row = found["comparisons"][0]
    assert row["trials"]["A"]["ratio"] == 0.55
    assert row["trials"]["A"]["gain"]["low"] == pytest.approx(40)
    assert row["trials"]["B"]["low"] is None
    assert found["trials"][0]["name"] == "trial 4"
    assert found["trials"][0]["analysed_at"] == 0.025
    assert found["levels"][0]["medians"] == {"A": 2e-3, "B": 2e-3}


def test_medians_are_told_without_a_verdict() -> None:
    made = compare([one("a", faster(0.55, 0.5, 0.6)), one("b", faster(0.95, 0.9, 1.0))])
    assert "Machine by machine (observational: no verdict)" in text_of(made, full=True)
    assert "so there is no verdict" in said(made)
    assert "Machine by machine (observational: no verdict)" in comparison_markdown(made)


def test_a_change_of_medians_has_the_interval_that_follows_from_the_bounds_of_both() -> None:
    def at(median: float, low: float | None, high: float | None) -> tuple[Level, ...]:
        return (Level(COLD, "probe", "0444", "wall", "s", median, 40, low, high),)

    first = one("a", faster(0.55, 0.5, 0.6), levels=at(2.0, 1.6, 2.5))
    half = one("b", faster(0.95, 0.9, 1.0), levels=at(1.0, 0.8, 1.25))
    unbounded = one("c", faster(0.95, 0.9, 1.0), levels=at(1.0, None, 1.25))
    changes = json.loads(json.dumps(comparison_json(compare([first, half])), allow_nan=False))["levels"][0][
        "changes"
    ]
    assert changes["A"] is None
    assert changes["B"]["word"] == "less time"
    # 0.8 / 2.5 and 1.25 / 1.6 of the time
    assert [changes["B"][key] for key in ("percent", "low", "high")] == pytest.approx([50.0, 21.875, 68.0])
    assert changes["B"]["said"] in text_of(compare([first, half]), full=True)
    [row] = compare([first, unbounded]).levels
    assert row.changes[1] is not None
    assert (row.changes[1].low, row.changes[1].high) == (pytest.approx(21.875), None)


def table_of_machines(comparison: Comparison) -> list[list[str]]:
    """Return the cells of the table of machines, as Markdown prints it, without its headings."""
    text = comparison_markdown(comparison).split("Machine by machine", 1)[1]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return rows[1:]


def test_machines_have_a_line_each_with_median_interval_and_change_in_per_cent() -> None:
    def at(median: float, low: float | None, high: float | None) -> tuple[Level, ...]:
        return (Level(COLD, "probe", "0444", "wall", "s", median, 40, low, high),)

    effects = faster(0.55, 0.5, 0.6)
    processor = {
        "processor": "Core i3 3330",
        "processors": "2",
        "memory bytes": str(4 << 30),
        "kernel": "4.5",
    }
    made = compare(
        [
            one("a", effects, share=3, levels=at(659.0, 650.0, 668.0), machine=processor),
            one(
                "b",
                effects,
                share=3,
                levels=at(579.0, 570.0, 588.0),
                machine={**processor, "processor": "Core i3 4330"},
            ),
            one(
                "c",
                effects,
                share=3,
                levels=at(217.0, None, None),
                machine={**processor, "memory bytes": str(8 << 30)},
            ),
        ]
    )
    [title, first, second, third] = table_of_machines(made)
    assert title[0] == "**0444, wall**"
    assert first[:3] == ["A", "2 x Core i3 3330, 4 GiB", "659.0 \\[650.0, 668.0\\] s"]
    assert first[3] == "reference"
    assert second[1] == "2 x Core i3 4330, 4 GiB"
    # 579 / 659, 570 / 668 and 588 / 650
    assert second[3] == "12 % \\[10, 15\\] less time"
    assert third[1] == "2 x Core i3 3330, 8 GiB"
    assert third[3] == "67 % less time \\[no interval yet\\]"
    found = json.loads(json.dumps(comparison_json(made), allow_nan=False))
    jsonschema.validate(found, SCHEMA)
    assert [trial["hardware"] for trial in found["trials"]] == [first[1], second[1], third[1]]
    assert found["levels"][0]["bounds"] == {"A": [650.0, 668.0], "B": [570.0, 588.0], "C": [None, None]}


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ([{}, {}], ["", ""]),
        ([{"kernel": "6.1"}, {"kernel": "6.12"}], ["6.1", "6.12"]),
        (
            [
                {"places modelled": "disk-7200: turns_per_minute 7200, order nearest"},
                {"places modelled": "ssd-sata: read_latency 85 µs"},
            ],
            ["disk-7200", "ssd-sata"],
        ),
        ([{"places modelled": "ssd-sata: jump 0 s"}, {}], ["ssd-sata", ""]),
    ],
)
def test_a_machine_is_named_by_what_sets_it_apart(facts: list[dict[str, str]], words: list[str]) -> None:
    trials = [
        one(name, faster(0.55, 0.5, 0.6), machine={k: v for k, v in fact.items() if k == "kernel"}, lab=fact)
        for name, fact in zip("ab", facts, strict=True)
    ]
    assert [column.machine for column in compare(trials).columns] == words


def test_no_line_of_text_is_longer_than_a_terminal() -> None:
    made = compare([one("a" * 200, faster(0.55, 0.5, 0.6)), one("b", faster(0.95, 0.9, 1.0))])
    assert max(map(len, text_of(made).splitlines())) <= 80


@pytest.fixture(scope="module")
def hostile() -> Comparison:
    first = replace(analysed(hostile_document()), share=2)
    other = replace(first, id="other", machine={name: f"{value}!" for name, value in first.machine.items()})
    return compare([first, other], names={"other": "<script>\x1b[31m|@team"})


@pytest.mark.slow
def test_labels_steer_no_terminal_and_make_no_markup(hostile: Comparison) -> None:
    assert hostile.rows
    assert not STEERING & set(text_of(hostile, 200))
    markdown = comparison_markdown(hostile)
    assert not STEERING & set(markdown)
    assert "<script" not in markdown
    page = comparison_html(hostile)
    assert not STEERING & set(page)
    assert "<script" not in page.lower()
    assert "<img" not in page.lower()
    assert "default-src 'none'" in page
    jsonschema.validate(json.loads(json.dumps(comparison_json(hostile))), SCHEMA)


@pytest.mark.slow
def test_every_interval_is_that_of_the_e_process_at_its_part_of_alpha(tmp_path: Path) -> None:
    ratios = {"fast": 0.6, "slow": 0.9, "other": 0.6}
    with Store.open(tmp_path / "trials.db") as store:
        for number, (name, ratio) in enumerate(ratios.items(), start=1):
            measured_trial(store, name, ratio=ratio, seed=number)
        made = compare([summary_of(store, name, share=3) for name in ratios])
        (row,) = [row for row in made.rows if row.like.kind == "main"]
        for name, cell in zip(ratios, row.cells, strict=True):
            blocks: dict[int, dict[str, float]] = {}
            for run in store.data(name).runs:
                blocks.setdefault(run.block, {})[run.arm] = math.log(run.responses["wall"])
            in_order = [block for _, block in sorted(blocks.items())]
            contrasts = [block["b"] - block["a"] for block in in_order]
            copies = [block.get(NEGATIVE_ARM, math.nan) - block["a"] for block in in_order]
            margin = math.log1p(cell.effect.margin) if cell else 0.0
            expected = interval(contrasts, 0.05 / 3, margin=margin, copies=copies)
            assert cell is not None
            ends = expected.low, expected.high
            if cell.effect.skewed:
                ends = median_bounds(np.array(contrasts), 0.05 / 3)
            assert cell.effect.family_alpha == pytest.approx(0.05 / 3)
            assert (cell.effect.low, cell.effect.high) == pytest.approx(np.exp(np.array(ends)))
    assert [(pair.low, pair.high) for pair in row.apart] == [(0, 1), (2, 1)]
