"""Yes, no, partly, or better nothing."""

from __future__ import annotations

import pytest
from report_fixtures import effect

from iotrial.analysis.model import Effect, Verdict
from iotrial.report.answer import answer

FASTER = effect(Verdict.FASTER, 0.5, 0.4, 0.6)
SLOWER = effect(Verdict.SLOWER, 1.5, 1.4, 1.6)
SAME = effect(Verdict.EQUIVALENT, 1.0, 0.99, 1.01)
OPEN = effect(Verdict.INCONCLUSIVE, 1.0, 0.9, 1.1)
MORE = effect(Verdict.HIGHER, 1.5, 1.4, 1.6)


@pytest.mark.parametrize(
    ("question", "effects", "expected"),
    [
        ("Does noatime make reading faster?", [FASTER], "Yes"),
        ("Does noatime make reading faster?", [SAME], "No"),
        ("Does noatime make reading faster?", [SLOWER, SAME], "No"),
        ("Does noatime make reading faster?", [FASTER, SAME], "Partly"),
        ("Is a symbolic link slower?", [SLOWER], "Yes"),
        ("Do permission bits matter?", [SLOWER, FASTER], "Yes"),
        ("Do permission bits make a difference?", [SAME], "No"),
        ("Is mode 0444 faster than 0777?", [FASTER], "Yes"),
    ],
)
def test_a_plain_question_gets_a_plain_answer(question: str, effects: list[Effect], expected: str) -> None:
    assert answer(question, effects) == expected


@pytest.mark.parametrize(
    ("question", "effects"),
    [
        ("Which scheduler is fastest?", [FASTER]),
        ("Is it faster or slower?", [FASTER]),
        ("Is reading not slower?", [SAME]),
        ("Does it make no difference?", [SAME]),
        ("Is mode 0777 faster than 0444?", [FASTER]),
        ("Is it faster than 0777?", [FASTER]),
        ("Does noatime make reading faster?", [FASTER, OPEN]),
        ("Does noatime make reading faster?", [MORE]),
        ("Does noatime make reading faster?", []),
        ("Is what changes also faster?", [FASTER]),
    ],
)
def test_a_question_that_one_word_could_get_wrong_gets_none(question: str, effects: list[Effect]) -> None:
    assert answer(question, effects) is None


def test_only_the_levels_that_a_question_names_count() -> None:
    other = effect(Verdict.SLOWER, 1.5, 1.4, 1.6, level="0555")
    assert answer("Does mode 0444 make reading faster?", [FASTER, other]) == "Yes"
