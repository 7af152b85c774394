"""A trial of a hundred thousand runs is reported as well, in one modest file."""

from __future__ import annotations

import pytest
from report_fixtures import CONDITIONS, all_equivalent, document

from iotrial.report.html import html_report

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
    assert "as few as one run in 2 has a mark" in text
    assert "3,000 runs" in text
    assert text.count("<use ") < 4000
