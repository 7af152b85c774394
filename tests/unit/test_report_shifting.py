"""An estimate at an end of its interval: later blocks speak for what earlier ones have excluded."""

from __future__ import annotations

import pytest
from report_fixtures import CONDITIONS, all_equivalent, document, effect

from iotrial.analysis.model import Verdict
from iotrial.report.shifting import at_an_end


@pytest.mark.parametrize(
    ("value", "low", "high", "shifted"),
    [
        (1.1034, 1.1021, 1.1034, True),
        (0.910, 0.910, 0.994, True),
        (0.95, 0.91, 0.99, False),
        (18.0, 18.0, 18.0, False),
        (1.5, None, 1.5, False),
        (None, 0.9, 1.1, False),
    ],
)
def test_only_an_interval_with_two_ends_and_a_width_can_have_its_estimate_at_one(
    value: float | None, low: float | None, high: float | None, shifted: bool
) -> None:
    assert at_an_end(value, low, high) is shifted


def test_such_comparisons_are_named_beside_the_verdict() -> None:
    shifted = effect(Verdict.FASTER, 0.99, 0.91, 0.99, condition=CONDITIONS[0])
    steady = effect(Verdict.FASTER, 0.95, 0.91, 0.99, condition=CONDITIONS[1])
    (told,) = (line for line in document([shifted, steady]).summary.details if "later blocks" in line)
    assert told.startswith(
        "In 1 comparison later blocks say more, or less, than earlier ones have left open: "
    )
    assert ": mode 0444 (cache cold, size 4 KiB). " in told


def test_of_many_some_are_named_and_the_rest_counted() -> None:
    many = [effect(Verdict.FASTER, 0.99, 0.91, 0.99, condition=one) for one in CONDITIONS]
    (told,) = (line for line in document(many).summary.details if "later blocks" in line)
    assert told.startswith("In 4 comparisons ")
    assert " and 1 more. " in told


def test_a_trial_whose_effects_stayed_put_says_nothing_of_it() -> None:
    assert not [line for line in document(all_equivalent()).summary.details if "later blocks" in line]
