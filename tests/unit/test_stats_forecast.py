"""Pilot scatter and its forecast, against simulated trials that are analysed like real ones."""

from __future__ import annotations

import math
import os
from collections.abc import Callable

import numpy as np
import pytest

from iotrial.stats.analyse import look_due
from iotrial.stats.eprocess import excluded, interval
from iotrial.stats.forecast import Comparison, Line, Rules, blocks_needed, forecast, next_look, resolvable
from iotrial.stats.model import Scatter
from iotrial.stats.scatter import scatter_of
from values import replace

Noise = Callable[[np.random.Generator, int, int], np.ndarray]


def normal(rng: np.random.Generator, blocks: int, arms: int) -> np.ndarray:
    return rng.normal(size=(blocks, arms))


def stalling(rng: np.random.Generator, blocks: int, arms: int) -> np.ndarray:
    """Return noise in which one run in twenty stalls, by ten standard deviations on average."""
    stalls = rng.random((blocks, arms)) < 0.05
    return rng.normal(size=(blocks, arms)) + stalls * rng.exponential(10, size=(blocks, arms))


def heavy(rng: np.random.Generator, blocks: int, arms: int) -> np.ndarray:
    return rng.standard_t(3, size=(blocks, arms))


def fixed(sd: float, *, low: float | None = None, high: float | None = None) -> Scatter:
    return Scatter(sd, low or sd, high or sd, sd, blocks=20)


def rules(*, margin: float = 0.03, budget_s: float = 1e9) -> Rules:
    return Rules(margin, 0.05, 0.05, False, budget_s, 100_000)


@pytest.fixture
def rng() -> np.random.Generator:
    seed = int.from_bytes(os.urandom(4), "big")
    print("seed", seed)
    return np.random.default_rng(seed)


def blocks_to_verdict(y: np.ndarray, margin: float, stretch: float) -> int | None:
    """Return the number of blocks until the verdict "equivalent".

    Columns are reference, level, positive control (in even blocks).
    """
    contrasts, control = y[:, 1] - y[:, 0], y[::2, 2] + stretch - y[::2, 0]
    last = 0
    for blocks in range(8, len(y) + 1):
        if look_due(blocks, last):
            last = blocks
            inside = interval(contrasts[:blocks], 0.05, margin=margin).bounds is not None
            if inside and excluded(control[: (blocks + 1) // 2], 0.0, 0.05, margin=margin):
                return blocks
    return None


@pytest.mark.parametrize("arms", [2, 5])
def test_of_normal_blocks_the_scatter_is_the_sd_of_a_difference(arms: int, rng: np.random.Generator) -> None:
    found = scatter_of(5.0 + 0.1 * normal(rng, 8000, arms))
    assert found is not None
    assert found.sd == pytest.approx(0.1 * math.sqrt(2), rel=0.05)
    assert found.plain_sd == pytest.approx(0.1 * math.sqrt(2), rel=0.05)
    assert found.low < found.sd < found.high


@pytest.mark.slow
def test_the_range_of_a_short_pilot_covers_the_true_scatter_nine_times_in_ten(
    rng: np.random.Generator,
) -> None:
    covered = 0
    for _ in range(200):
        found = scatter_of(normal(rng, 8, 4))
        assert found is not None
        covered += found.low <= math.sqrt(2) <= found.high
    assert covered >= 200 * 0.83  # 0.90 minus three standard errors


def test_rare_stalls_move_the_plain_sd_far_more_than_the_one_that_is_used(rng: np.random.Generator) -> None:
    found = scatter_of(stalling(rng, 3000, 3))
    assert found is not None
    calm = math.sqrt(2)
    assert found.plain_sd > 2.5 * calm
    assert calm < found.sd < 0.75 * found.plain_sd


def test_values_that_are_mostly_equal_have_the_plain_sd() -> None:
    found = scatter_of([[0.0, 0.0]] * 9 + [[0.0, 1.0]])
    assert found is not None
    assert found.sd == pytest.approx(math.sqrt(0.1))


def test_two_blocks_are_too_few_and_single_arms_say_nothing() -> None:
    assert scatter_of([[1.0, 2.0], [1.0, 2.0]]) is None
    assert scatter_of([[1.0]] * 10) is None


@pytest.mark.parametrize(
    ("noise", "low", "high"),
    [
        pytest.param(normal, 0.8, 1.3, id="normal", marks=pytest.mark.long),
        pytest.param(heavy, 0.6, 1.5, id="heavy", marks=pytest.mark.long),
        pytest.param(stalling, 0.5, 1.8, id="stalling", marks=pytest.mark.long),
    ],
)
def test_half_of_the_trials_end_by_about_the_predicted_block(
    noise: Noise, low: float, high: float, rng: np.random.Generator
) -> None:
    """The scatter comes from a long pilot, so that only the method's own error remains."""
    scatter = scatter_of(noise(rng, 2000, 3))
    assert scatter is not None
    margin = 0.55 * scatter.plain_sd
    predicted, _ = blocks_needed(Comparison("wall", scatter), rules(margin=math.expm1(margin)), scatter.sd)
    assert predicted is not None
    stretch = math.log1p(2 * math.expm1(margin))
    needed = [blocks_to_verdict(noise(rng, 300, 3), margin, stretch) or 300 for _ in range(40)]
    ratio = np.array(needed) / predicted
    print("needed / predicted, 10 50 80 90 %:", np.quantile(ratio, [0.1, 0.5, 0.8, 0.9]).round(2))
    assert low <= float(np.quantile(ratio, 0.5)) <= high


def test_a_prediction_ends_at_a_look_of_the_trial() -> None:
    looks, last = set(), 0
    for blocks in range(1, 3000):
        if look_due(blocks, last):
            looks.add(last := blocks)
    for blocks in range(1, last + 1):
        assert next_look(blocks) == min(look for look in looks if look >= blocks)


def test_the_positive_control_holds_up_a_verdict_that_would_come_at_once() -> None:
    """At .05 an interval needs 8 blocks, so a control in every second block is seen after 15 at the earliest."""
    still = Comparison("wall", fixed(1e-6))
    assert blocks_needed(still, rules(), None) == (8, False)
    assert blocks_needed(still, rules(), 1e-6) == (15, True)
    assert blocks_needed(still, replace(rules(), control_every=1), 1e-6) == (8, False)


def test_repeats_within_stretches_each_give_a_contrast() -> None:
    assert blocks_needed(Comparison("wall", fixed(1e-6), per_block=4), rules(), None) == (2, False)


def test_what_cannot_be_resolved_is_never() -> None:
    assert blocks_needed(Comparison("wall", fixed(1.0)), rules(margin=0.001), 1.0) == (None, False)
    assert resolvable(Comparison("wall", fixed(0.1)), 7, rules(), None) is None


def test_means_of_four_arms_scatter_half_as_much() -> None:
    one = resolvable(Comparison("wall", fixed(0.05)), 100, rules(), None)
    four = resolvable(Comparison("wall", fixed(0.1), arms=4), 100, rules(), None)
    assert one == pytest.approx(four)


@pytest.mark.long
@pytest.mark.parametrize("arms", [4, 8])
def test_of_means_of_many_arms_with_stalls_half_are_decided_by_the_predicted_block(
    arms: int, rng: np.random.Generator
) -> None:
    """A mean of several runs is closer to normal than a single run."""
    margin, sd = math.log1p(0.03), 0.03
    scatter = scatter_of(sd * stalling(rng, 2000, 3))
    assert scatter is not None
    predicted, _ = blocks_needed(Comparison("wall", scatter, arms=arms), rules(), None)
    assert predicted is not None
    needed = []
    for _ in range(40):
        y = sd * stalling(rng, 1000, 2 * arms)
        contrasts = y[:, :arms].mean(axis=1) - y[:, arms:].mean(axis=1)
        looks = (n for n in range(8, 1000) if next_look(n) == n)
        needed.append(
            next(n for n in looks if interval(contrasts[:n], 0.05, margin=margin).bounds is not None)
        )
    print("needed / predicted", np.median(needed) / predicted)
    assert 0.4 <= np.median(needed) / predicted <= 1.6


def test_conditions_take_turns_until_each_is_decided() -> None:
    quick, slow = fixed(1e-6), fixed(0.03)
    lines = [Line("quick", (Comparison("wall", quick),), 2.0), Line("slow", (Comparison("wall", slow),), 1.0)]
    found = forecast(lines, rules())
    assert found.predicted[0].blocks.likely == 8
    wanted = found.predicted[1].blocks.likely
    assert wanted is not None
    assert wanted > 8
    # eight rounds of both; then the slow one alone
    assert found.predicted[0].seconds.likely == pytest.approx(8 * 3.0)
    assert found.predicted[1].seconds.likely == pytest.approx(8 * 2.0 + wanted * 1.0)
    assert found.seconds.likely == found.predicted[1].seconds.likely


def test_a_budget_gives_the_undecided_what_the_decided_leave() -> None:
    lines = [
        Line("quick", (Comparison("wall", fixed(1e-6)),), 2.0),
        Line("slow", (Comparison("wall", fixed(1e6)),), 1.0),
    ]
    found = forecast(lines, rules(budget_s=124.0))
    assert [one.budget_blocks for one in found.predicted] == [8, 108]  # 8 rounds of 3 s, then 100 s alone
    assert found.predicted[1].blocks.likely is None
    assert found.seconds.likely is None


def test_a_condition_that_the_pilot_has_not_come_to_leaves_the_seconds_open() -> None:
    lines = [
        Line("seen", (Comparison("wall", fixed(0.01)),), 1.0),
        Line("unseen", (Comparison("wall", None, reason="too few"),), None),
    ]
    found = forecast(lines, rules())
    assert found.seconds.likely is None
    assert all(one.reason for one in found.predicted)
    assert found.predicted[1].reason == "too few"


@pytest.mark.long
@pytest.mark.parametrize(
    ("noise", "pilot"),
    [(normal, 8), (normal, 40), (heavy, 40), (stalling, 60)],
    ids=["normal, 8", "normal, 40", "heavy-tailed, 40", "stalling, 60"],
)
def test_four_trials_of_five_lie_in_the_range_where_nothing_changes_but_luck(
    noise: Noise, pilot: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pilot and trial have the same noise. Changes of the machine between them are measured, not simulated."""
    monkeypatch.setattr("iotrial.stats.forecast.SCATTER_CHANGES", 0.0)
    monkeypatch.setattr("iotrial.stats.forecast.SPEED_CHANGES", 0.0)
    sd = 0.03 if noise is normal else 0.02
    margin, trials, held = math.log1p(0.03), 100, 0
    for _ in range(trials):
        scatter = scatter_of(sd * noise(rng, pilot, 3))
        assert scatter is not None
        blocks = forecast([Line("one", (Comparison("wall", scatter),), 1.0)], rules()).predicted[0].blocks
        assert blocks.low is not None
        assert blocks.high is not None
        y = sd * noise(rng, 2000, 2)
        contrasts = y[:, 1] - y[:, 0]
        looks = (n for n in range(8, 2000) if next_look(n) == n)
        found = next(
            (n for n in looks if interval(contrasts[:n], 0.05, margin=margin).bounds is not None), math.inf
        )
        held += blocks.low <= found <= blocks.high
    print("held", held)
    assert 0.8 * trials - 16 <= held <= 0.8 * trials + 16


def test_a_range_is_wider_where_the_pilot_knows_less() -> None:
    def ends(low: float, high: float) -> tuple[float, float, float]:
        line = Line("one", (Comparison("wall", fixed(0.06, low=low, high=high)),), 1.0)
        blocks = forecast([line], rules()).predicted[0].blocks
        assert blocks.low is not None
        assert blocks.likely is not None
        assert blocks.high is not None
        return blocks.low, blocks.likely, blocks.high

    sure, unsure = ends(0.06, 0.06), ends(0.04, 0.09)
    assert unsure[0] < sure[0] < sure[1] == unsure[1] < sure[2] < unsure[2]


def test_the_first_blocks_take_as_long_as_those_of_the_pilot_and_what_comes_once_comes_on_top() -> None:
    line = Line("one", (Comparison("wall", fixed(1e-6)),), 1.0, first_s=(5.0, 3.0, 2.0))
    (one,) = forecast([line], rules(), once_s=7.0).predicted
    assert one.blocks.likely == 8
    assert one.seconds.likely == pytest.approx(7.0 + 10.0 + 5 * 1.0)
    assert line.seconds(2) == pytest.approx(8.0)


@pytest.mark.long
def test_the_slowest_of_many_comparisons_is_what_a_condition_waits_for(rng: np.random.Generator) -> None:
    effects, margin = 24, 0.6
    alpha = 0.05 / effects
    one = Comparison("wall", fixed(1.0))
    asked = replace(rules(margin=math.expm1(margin)), effect_alpha=alpha)
    alone, _ = blocks_needed(one, asked, None)
    line = Line("c", (replace(one, effects=effects),), 1.0)
    together = forecast([line], asked).seconds.likely
    assert alone is not None
    assert together is not None

    def decided(blocks: int) -> bool:
        return interval(rng.normal(size=blocks), alpha, margin=margin).bounds is not None

    trials = 50
    assert sum(all(decided(int(together)) for _ in range(effects)) for _ in range(trials)) >= 0.25 * trials
    assert sum(all(decided(alone) for _ in range(effects)) for _ in range(trials)) <= 0.1 * trials
