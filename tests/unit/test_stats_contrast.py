"""Contrasts: one number per block, checked by hand."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

import pytest

from iotrial.design.model import ArmKind
from iotrial.stats.contrast import Contrasts, Responses, pooled
from iotrial.stats.model import Observation, ObservedBlock
from iotrial.study.model import Better, Response, Scale

TIME = Response("w", "wall", "s", Scale.LOG, Better.LOWER, primary=True)
COUNT = Response("w", "faults", "1", Scale.DIFFERENCE, Better.LOWER, primary=True)
AGAINST = {"777": 1.0, "444": -1.0}


def run(arm: str, value: float | None, *, failure: str | None = None, slot: int = 0) -> Observation:
    responses = {} if value is None else {"wall": value, "faults": value}
    return Observation(arm, ArmKind.TREATMENT, {"mode": arm}, slot, 0.0, responses, failure)


def block(*runs: Observation, void: str | None = None, index: int = 0) -> ObservedBlock:
    return ObservedBlock("c", index, runs, void=void)


def contrasts(
    blocks: Sequence[ObservedBlock],
    weights: Mapping[str, float] = AGAINST,
    response: Response = TIME,
    *,
    whole: bool = False,
) -> Contrasts:
    return Responses(blocks, response).contrasts(weights, whole=whole)


def test_a_log_contrast_is_the_logarithm_of_the_ratio_to_the_reference() -> None:
    found = contrasts([block(run("444", 2.0), run("777", 3.0), run("555", 5.0))])
    assert found.values == pytest.approx([math.log(1.5)])
    assert found.failures == 0


def test_a_copy_of_the_reference_is_taken_where_it_has_a_value_and_never_decides_about_its_block() -> None:
    blocks = [
        block(run("444", 2.0), run("777", 3.0), run("copy", 2.5)),
        block(run("444", 2.0), run("777", 4.0), index=1),
        block(run("444", 2.0), run("777", 5.0), run("copy", 9.0, failure="timeout"), index=2),
        block(run("444", 2.0), run("777", 6.0), run("copy", 0.0), index=3),  # no logarithm
        block(run("444", 2.0), run("777", None, failure="crash"), run("copy", 2.0), index=4),
    ]
    found = Responses(blocks, TIME).contrasts(AGAINST, copy={"copy": 1.0, "444": -1.0})
    assert found.values == pytest.approx([math.log(1.5), math.log(2), math.log(2.5), math.log(3)])
    assert found.copies == pytest.approx([math.log(1.25), math.nan, math.nan, math.nan], nan_ok=True)
    assert found.failures == 1  # of the arms compared
    assert found.unusable == 0
    without = Responses(blocks[1:], TIME).contrasts(AGAINST, copy={"copy": 1.0, "444": -1.0})
    assert without.copies == ()


def test_a_difference_contrast_is_the_plain_difference() -> None:
    found = contrasts([block(run("444", 0.0), run("777", 3.0))], response=COUNT)
    assert found.values == (3.0,)


def test_a_signed_mean_takes_every_arm_with_its_weight() -> None:
    blocks = [block(run("a", 1.0), run("b", 2.0), run("c", 3.0), run("d", 24.0))]
    found = contrasts(blocks, {"a": -0.5, "b": 0.5, "c": -0.5, "d": 0.5})
    assert found.values == pytest.approx([(math.log(2) + math.log(8)) / 2])


def test_an_arm_that_only_some_blocks_hold_gives_contrasts_in_those() -> None:
    blocks = [
        block(run("444", 2.0), run("777", 9.0), run("control:positive", 2.5)),
        block(run("444", 2.0), run("777", 9.0), index=1),
    ]
    positive = contrasts(blocks, {"control:positive": 1.0, "444": -1.0})
    assert positive.values == pytest.approx([math.log(1.25)])
    assert positive.blocks == (0,)
    assert contrasts(blocks).values == pytest.approx([math.log(4.5)] * 2)


def test_a_void_block_gives_no_contrast_and_its_failures_count_all_the_same() -> None:
    blocks = [
        block(run("444", 2.0), run("777", 3.0), void="cache_state"),
        block(run("444", 2.0), run("777", None, failure="timeout"), void="cache_state"),
        block(run("444", 2.0), run("777", 4.0)),
    ]
    found = contrasts(blocks)
    assert found.values == pytest.approx([math.log(2)])
    assert (found.failures, found.unusable) == (1, 0)


@pytest.mark.parametrize("value", [None, 0.0, -1.0, math.nan, math.inf])
def test_a_value_without_a_logarithm_gives_no_contrast_and_is_counted_apart(value: float | None) -> None:
    found = contrasts([block(run("444", 2.0), run("777", value)), block(run("444", 2.0), run("777", 4.0))])
    assert found.values == pytest.approx([math.log(2)])
    assert (found.failures, found.unusable) == (0, 1)


def test_a_failure_of_another_level_costs_nothing() -> None:
    blocks = [block(run("444", 2.0), run("777", 4.0), run("555", None, failure="exit 1"))]
    found = contrasts(blocks)
    assert found.values == pytest.approx([math.log(2)])
    assert found.failures == 0
    other = contrasts(blocks, {"555": 1.0, "444": -1.0})
    assert (other.values, other.failures) == ((), 1)


def test_a_block_without_one_of_the_two_levels_gives_nothing() -> None:
    found = contrasts([block(run("444", 2.0))])
    assert (found.values, found.failures) == ((), 0)


def test_repeats_of_an_arm_are_paired_in_the_order_of_time_within_stretches() -> None:
    runs = [
        run("777", 4.0, slot=3),
        run("444", 2.0, slot=0),
        run("444", 5.0, slot=2),
        run("777", 6.0, slot=1),
    ]
    found = contrasts([block(*runs, index=7)])
    assert found.values == pytest.approx([math.log(3.0), math.log(0.8)])
    assert found.blocks == (7, 7)


def test_repeats_make_one_number_where_the_effect_is_one_of_whole_plots() -> None:
    runs = [run("444", 2.0), run("777", 6.0, slot=1), run("444", 5.0, slot=2), run("777", 4.0, slot=3)]
    found = contrasts([block(*runs)], whole=True)
    assert found.values == pytest.approx([(math.log(3.0) + math.log(0.8)) / 2])
    assert found.blocks == (0,)


def test_a_failed_repeat_takes_its_whole_block_with_it() -> None:
    runs = [
        run("444", 2.0),
        run("777", 6.0, slot=1),
        run("444", None, failure="timeout", slot=2),
        run("777", 4.0, slot=3),
    ]
    found = contrasts([block(*runs)])
    assert (found.values, found.failures, found.unusable) == ((), 1, 0)


def test_pooled_contrasts_are_means_over_the_rounds_that_every_condition_completed() -> None:
    first = Contrasts((1.0, 2.0, 4.0), 1, 0, (0, 1, 3))
    second = Contrasts((3.0, 10.0, 8.0), 0, 2, (0, 2, 3))
    found = pooled([first, second])
    assert found.values == (2.0, 6.0)
    assert (found.failures, found.unusable) == (1, 2)
    assert pooled([Contrasts((1.0, 3.0), 0, 0, (0, 0)), Contrasts((5.0, 9.0), 0, 0, (0, 0))]).values == (
        3.0,
        6.0,
    )
    assert pooled([]).values == ()


def slowly(blocks: Sequence[ObservedBlock], weights: Mapping[str, float], *, whole: bool) -> Contrasts:
    """Compute the same contrasts block by block, following the module's docstring."""
    values: list[float] = []
    places: list[int] = []
    failures = unusable = 0
    for one in blocks:
        runs = {
            arm: [run for run in sorted(one.observations, key=lambda run: run.slot) if run.arm == arm]
            for arm in weights
        }
        failed = sum(run.failure is not None for of_arm in runs.values() for run in of_arm)
        failures += failed
        if one.void is not None:
            continue
        times = {arm: [_time(run) for run in of_arm] for arm, of_arm in runs.items()}
        missing = sum(of_arm.count(None) for of_arm in times.values())
        if missing:
            unusable += missing - failed
            continue
        repeats = {len(of_arm) for of_arm in times.values()}
        if len(repeats) != 1 or repeats == {0}:
            continue
        sums = []
        for at in range(repeats.pop()):
            parts = [weight * math.log(times[arm][at] or 0.0) for arm, weight in weights.items()]
            total = math.fsum(parts)
            sums.append(total if abs(total) > 1e-12 * math.fsum(map(abs, parts)) else 0.0)
        numbers = [math.fsum(sums) / len(sums)] if whole else sums
        values += numbers
        places += [one.index] * len(numbers)
    return Contrasts(tuple(values), failures, unusable, tuple(places))


def _time(run: Observation) -> float | None:
    value = run.responses.get("wall", math.nan)
    return value if run.failure is None and math.isfinite(value) and value > 0 else None


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("whole", [False, True])
def test_blocks_laid_out_at_once_give_what_they_give_one_by_one(seed: int, whole: bool) -> None:
    draw = random.Random(seed)
    odd = [0.0, -1.0, math.nan, math.inf, None]
    blocks = []
    for index in range(draw.randint(0, 30)):
        slots = list(range(20))
        draw.shuffle(slots)
        runs = [
            run(
                arm,
                draw.choice(odd) if draw.random() < 0.04 else draw.lognormvariate(0, 1),
                failure="it failed" if draw.random() < 0.03 else None,
                slot=slots.pop(),
            )
            for arm in "abcd"
            for _ in range(draw.choice([0, 1, 2]) if draw.random() < 0.1 else 1 + seed % 3)
        ]
        blocks.append(block(*runs, void="warm" if draw.random() < 0.1 else None, index=2 * index))
    for weights in (
        {"a": 1.0, "b": -1.0},
        {"a": 1.0, "b": -1 / 3, "c": -1 / 3, "d": -1 / 3},
        {"a": 0.5, "c": 0.5, "nobody": -1.0},
        {"d": 1.0},
    ):
        assert contrasts(blocks, weights, whole=whole) == slowly(blocks, weights, whole=whole)
