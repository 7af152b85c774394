"""A trial of a hundred thousand runs can be reported, in one file of moderate size."""

from __future__ import annotations

import pytest
from report_fixtures import CONDITIONS, all_equivalent, document, effect, factor, study

from iotrial.report.render import html_report
from iotrial.stats.model import Verdict
from iotrial.study.model import Role
from values import replace

RUNS_A_BLOCK = 3  # two treatments, and two controls in every second block


@pytest.mark.long
def test_a_hundred_thousand_runs_give_a_page_below_five_megabytes() -> None:
    blocks = 100_000 // (RUNS_A_BLOCK * len(CONDITIONS)) + 1
    made = document(all_equivalent(), runs={"blocks": blocks, "histograms": False})
    assert len(made.data.runs) >= 100_000
    text = html_report(made)
    assert len(text.encode()) < 5_000_000


def test_three_thousand_runs_are_thinned_in_the_figure_and_whole_in_the_table() -> None:
    made = document(
        all_equivalent()[:1], runs={"blocks": 1000, "conditions": CONDITIONS[:1], "histograms": False}
    )
    text = html_report(made)
    assert "as few as one run in 2 is drawn" in text
    assert "3,000 runs" in text
    assert text.count("<use ") < 4000


@pytest.mark.long
def test_a_trial_with_more_to_say_than_a_page_holds_says_what_it_leaves_out() -> None:
    """Two hundred conditions of eight levels with sixty metrics: tables of about ten thousand rows."""
    labels = [f"{mode:04o}" for mode in range(8)]
    sizes = [f"{size} KiB" for size in range(1, 101)]
    conditions = [{"cache": cache, "size": size} for cache in ("cold", "warm") for size in sizes]
    of = study(
        treatment=factor("mode", labels, role=Role.TREATMENT),
        conditions=(
            factor("cache", ["cold", "warm"], role=Role.CONDITION),
            factor("size", sizes, role=Role.CONDITION),
        ),
    )
    effects = [
        effect(Verdict.SLOWER, 1.2, 1.1, 1.3, level=label, condition=condition)
        for condition in conditions
        for label in labels[1:]
    ]
    made = document(effects, of=of, runs={"conditions": conditions, "blocks": 6})
    rows = [row for row in made.evidence if row.metric == made.evidence[0].metric]
    metrics = [f"metric_{number}" for number in range(60)]
    made = replace(made, evidence=tuple(replace(row, metric=name) for row in rows for name in metrics))
    text = html_report(made)
    assert len(text.encode()) <= 5_000_000
    assert "more rows, left out to keep this page small; <code>iotrial report 12 --json</code>" in text
