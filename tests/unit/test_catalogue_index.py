"""Texts of the catalogue: an answer in the index is shorter than on its page, with the same numbers; an explanation
has the numbers of its trial."""

from __future__ import annotations

from pathlib import Path

import pytest

from generators.finding_page import answer_in_brief, filled
from iotrial.report.opening import packed_document


@pytest.mark.parametrize(
    ("answer", "brief"),
    [
        (
            "Disk a and b vs c in both conditions (cache cold and warm): undecided. Effects from -7 % to +9 % "
            "remain possible.",
            "Disk a and b vs c in both conditions: undecided, within -7 % to +9 %.",
        ),
        (
            "3 comparisons: 2 slower and 1 undecided (effects from -4 % to 2.2 times remain possible). "
            "Largest effect: a takes 31 % more time than b [+25, +37] (workload home).",
            "2 slower and 1 undecided; most: a takes 31 % more time than b [+25, +37] (workload home).",
        ),
        (
            "Mode a and b are as fast as c in all 4 conditions (x and y): differences beyond 3 % are excluded in 12 of 12 "
            "comparisons; widest interval -2.7 % to +2.4 %.",
            "Mode a and b are as fast as c in all 4 conditions: within 3 %, widest interval -2.7 % to +2.4 %.",
        ),
        (
            "Mode a and b are as fast as c in both conditions (x and y): differences beyond 3 % are excluded in 3 of 4 "
            "comparisons; widest interval -2.7 % to +3.4 %.",
            "Mode a and b are as fast as c in both conditions: differences beyond 3 % are excluded in 3 of 4 "
            "comparisons; widest interval -2.7 % to +3.4 %.",
        ),
        (
            "A is slower than b: it takes 11 % more time [+7, +16].",
            "A is slower than b: 11 % more time [+7, +16].",
        ),
        (
            "A vs b: slower in 2 of 3 comparisons (most: +6 % [+1, +9], x 1) and faster in 1 (-8 % [-9, -7], x 2).",
            "A vs b: slower in 2 of 3 comparisons (most: +6 % [+1, +9], x 1) and faster in 1 (-8 % [-9, -7], x 2).",
        ),
        (
            "A vs b: slower in 2 of 5 comparisons (most: +6 % [+1, +9], x 1), faster in 1 (-8 % [-9, -7], x 2), probably "
            "faster in 1 (0.5 times [0.2, 0.9], x 3) and undecided in 1 (effects from -4 % to +5 % remain possible).",
            "A vs b: slower in 2 of 5 comparisons (most: +6 % [+1, +9], x 1), faster in 1, probably faster in 1 and "
            "undecided in 1 (within -4 % to +5 %).",
        ),
    ],
)
def test_an_answer_in_brief_keeps_verdicts_and_the_first_size(answer: str, brief: str) -> None:
    assert answer_in_brief(answer) == brief


@pytest.mark.slow
def test_an_explanation_has_the_numbers_of_its_trial_and_no_others() -> None:
    made = packed_document(Path(__file__).parents[2] / "docs" / "catalogue" / "nas" / "limits.iotrial")
    assert filled("{rate | 1 Gbit/s} and {nas_cpu | 1 Gbit/s | 2 | read}.", made) == (
        "38.9 to 53.6 MiB/s and 90 ms."
    )
    for missing in ("{no_such_metric}", "{rate | 10 Gbit/s}"):
        with pytest.raises(ValueError, match="no run has"):
            filled(missing, made)
