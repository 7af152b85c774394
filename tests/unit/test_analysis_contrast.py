"""Contrasts: one number a block, by hand."""

from __future__ import annotations

import math

import pytest

from iotrial.analysis.contrast import control_contrasts, level_contrasts
from iotrial.analysis.model import Observation, ObservedBlock
from iotrial.design.model import ArmKind
from iotrial.study.model import Better, Response, Scale

TIME = Response("w", "wall", "s", Scale.LOG, Better.LOWER, primary=True)
COUNT = Response("w", "faults", "1", Scale.DIFFERENCE, Better.LOWER, primary=True)


def run(
    value: float | None, *, kind: ArmKind = ArmKind.TREATMENT, failure: str | None = None, **treatment: str
) -> Observation:
    responses = {} if value is None else {"wall": value, "faults": value}
    return Observation("+".join(treatment.values()), kind, treatment, 0, 0.0, responses, failure)


def block(*runs: Observation, void: str | None = None) -> ObservedBlock:
    return ObservedBlock("c", 0, runs, void=void)


def test_a_log_contrast_is_the_logarithm_of_the_ratio_to_the_reference() -> None:
    blocks = [block(run(2.0, mode="444"), run(3.0, mode="777"), run(5.0, mode="555"))]
    found = level_contrasts(blocks, TIME, factor="mode", level="777", reference="444")
    assert found.values == pytest.approx([math.log(1.5)])
    assert found.failures == 0


def test_a_difference_contrast_is_the_plain_difference() -> None:
    blocks = [block(run(0.0, mode="444"), run(3.0, mode="777"))]
    found = level_contrasts(blocks, COUNT, factor="mode", level="777", reference="444")
    assert found.values == (3.0,)


def test_with_two_factors_the_effect_of_one_is_its_mean_over_the_levels_of_the_other() -> None:
    blocks = [
        block(
            run(1.0, mode="444", link="none"),
            run(2.0, mode="777", link="none"),
            run(3.0, mode="444", link="hard"),
            run(24.0, mode="777", link="hard"),
        )
    ]
    mode = level_contrasts(blocks, TIME, factor="mode", level="777", reference="444")
    assert mode.values == pytest.approx([(math.log(2) + math.log(8)) / 2])
    link = level_contrasts(blocks, TIME, factor="link", level="hard", reference="none")
    assert link.values == pytest.approx([(math.log(3) + math.log(12)) / 2])


def test_controls_are_compared_with_the_references_own_arm_where_they_take_part() -> None:
    blocks = [
        block(
            run(2.0, mode="444"),
            run(9.0, mode="777"),
            run(2.2, kind=ArmKind.NEGATIVE, mode="444"),
            run(2.5, kind=ArmKind.POSITIVE, mode="444"),
        ),
        block(run(2.0, mode="444"), run(9.0, mode="777")),
    ]
    negative = control_contrasts(blocks, TIME, kind=ArmKind.NEGATIVE, reference={"mode": "444"})
    positive = control_contrasts(blocks, TIME, kind=ArmKind.POSITIVE, reference={"mode": "444"})
    assert negative.values == pytest.approx([math.log(1.1)])
    assert positive.values == pytest.approx([math.log(1.25)])
    level = level_contrasts(blocks, TIME, factor="mode", level="777", reference="444")
    assert level.values == pytest.approx([math.log(4.5)] * 2)


def test_a_void_block_gives_no_contrast_and_its_failures_count_all_the_same() -> None:
    blocks = [
        block(run(2.0, mode="444"), run(3.0, mode="777"), void="cache_state"),
        block(run(2.0, mode="444"), run(None, failure="timeout", mode="777"), void="cache_state"),
        block(run(2.0, mode="444"), run(4.0, mode="777")),
    ]
    found = level_contrasts(blocks, TIME, factor="mode", level="777", reference="444")
    assert found.values == pytest.approx([math.log(2)])
    assert (found.failures, found.unusable) == (1, 0)


@pytest.mark.parametrize("value", [None, 0.0, -1.0, math.nan, math.inf])
def test_a_value_without_a_logarithm_gives_no_contrast_and_is_counted_apart(value: float | None) -> None:
    blocks = [
        block(run(2.0, mode="444"), run(value, mode="777")),
        block(run(2.0, mode="444"), run(4.0, mode="777")),
    ]
    found = level_contrasts(blocks, TIME, factor="mode", level="777", reference="444")
    assert found.values == pytest.approx([math.log(2)])
    assert (found.failures, found.unusable) == (0, 1)


def test_a_failure_of_another_level_costs_nothing() -> None:
    blocks = [block(run(2.0, mode="444"), run(4.0, mode="777"), run(None, failure="exit 1", mode="555"))]
    found = level_contrasts(blocks, TIME, factor="mode", level="777", reference="444")
    assert found.values == pytest.approx([math.log(2)])
    assert found.failures == 0
    other = level_contrasts(blocks, TIME, factor="mode", level="555", reference="444")
    assert (other.values, other.failures) == ((), 1)


def test_a_block_without_one_of_the_two_levels_gives_nothing() -> None:
    found = level_contrasts([block(run(2.0, mode="444"))], TIME, factor="mode", level="777", reference="444")
    assert (found.values, found.failures) == ((), 0)
