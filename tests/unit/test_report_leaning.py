"""Leaning comparisons, where all blocks together contradict the first ones, are named next to the verdict."""

from __future__ import annotations

from report_fixtures import CONDITIONS, all_equivalent, document, effect

from iotrial.stats.model import Effect, Verdict
from values import replace


def leaning(condition: dict[str, str]) -> Effect:
    return replace(effect(Verdict.FASTER, 0.95, 0.91, 0.99, condition=condition), leaning=True)


def sentences(effects: list[Effect]) -> list[str]:
    return [line for line in document(effects).summary.details if "the first blocks excluded" in line]


def test_such_comparisons_are_named_beside_the_verdict() -> None:
    steady = effect(Verdict.FASTER, 0.95, 0.91, 0.99, condition=CONDITIONS[1])
    (found,) = sentences([leaning(CONDITIONS[0]), steady])
    assert found.startswith("In 1 comparison all blocks together")
    assert ": mode 0444 (cache cold, size 4 KiB). " in found


def test_of_many_some_are_named_and_the_rest_counted() -> None:
    (found,) = sentences([leaning(one) for one in CONDITIONS])
    assert found.startswith("In 4 comparisons ")
    assert " and 1 more. " in found


def test_a_trial_whose_effects_stayed_put_says_nothing_of_it() -> None:
    assert not sentences(list(all_equivalent()))
