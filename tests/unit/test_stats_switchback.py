"""Carry-over of switchback trials: exact means over all orders, planted carry-over, and washouts in closed form."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest

from iotrial.design.model import ArmKind
from iotrial.stats.betting import log_paths
from iotrial.stats.carryover import paths
from iotrial.stats.model import Observation, ObservedBlock
from iotrial.stats.switchback import (
    CarryOver,
    Course,
    Floats,
    _units,
    carry_over,
    contrasts,
    course,
    in_words,
    possible_error,
    proposed_washout,
    settled,
    switching,
)
from values import replace


def ordered(signs: Sequence[int]) -> list[str]:
    """Return the levels of the windows: +1 is A before B."""
    return [level for sign in signs for level in (("A", "B") if sign > 0 else ("B", "A"))]


def pairs_of(windows: int) -> list[int]:
    return [place // 2 for place in range(windows)]


def test_the_test_of_no_effect_is_exact_whatever_depends_on_what() -> None:
    """The values are given, only the order is random: the mean over all orders is 1 after every pair."""
    rng = np.random.default_rng()
    values = np.cumsum(rng.standard_cauchy(size=16))  # the windows depend on each other, without any scale
    paths_of_orders = []
    for signs in itertools.product((1, -1), repeat=8):
        found = contrasts(values, ordered(signs), pairs_of(16), "B", "A")
        paths_of_orders.append(np.exp(log_paths(found[None, :], aim=0.3)[0]))
    assert np.mean(paths_of_orders, axis=0) == pytest.approx(np.ones(8), abs=1e-9)


def test_bets_on_the_window_before_are_fair_whatever_the_levels_do() -> None:
    """Without carry-over the mean of the e-process over all orders is 1, also where the levels have different effects."""
    rng = np.random.default_rng()
    pairs = 9
    noise = rng.normal(size=2 * pairs)
    means = []
    for signs in itertools.product((1, -1), repeat=pairs):
        levels = ordered(signs)
        values = noise + np.array([3.0 * (level == "B") for level in levels])
        (path,) = (
            one
            for one in paths(_units(values, levels, pairs_of(2 * pairs), 2), [("level", "B")])
            if one.across
        )
        means.append(math.exp(path.log_e[-1]) if path.log_e.size else 1.0)
    assert np.ptp(means) > 0.0, "no bet was made"
    assert np.mean(means) == pytest.approx(1.0, abs=1e-9)


def windows(
    pairs: int, *, effect: float = 0.0, carry: float = 0.0, slow: float = 0.0, noise: float = 0.05
) -> tuple[Floats, list[str], Floats]:
    """Return values, levels and trends. ``carry``: of the window after B; ``slow``: the effect's growth within a window."""
    rng = np.random.default_rng()
    levels = ordered(rng.choice((1, -1), size=pairs).tolist())
    at_b = np.array([float(level == "B") for level in levels])
    values = noise * rng.normal(size=2 * pairs) + effect * at_b + carry * np.concatenate([[0.0], at_b[:-1]])
    return values, levels, slow * at_b + noise * rng.normal(size=2 * pairs)


def test_planted_carry_over_is_found_and_its_size_estimated() -> None:
    values, levels, _ = windows(300, effect=0.3, carry=0.2)
    found = carry_over(values, levels, pairs_of(600), reference="A")
    assert found is not None
    assert found.after
    assert found.found
    assert (found.level, found.others) == ("B", ("A",))
    assert found.shift == pytest.approx(0.2, abs=0.05)
    words = in_words(found, by_ratio=True)
    assert "windows after B differ from those after A by +" in words
    assert "the washout is too short" in words


def test_an_effect_that_grows_within_the_window_is_found_by_its_trend() -> None:
    values, levels, trends = windows(60, effect=0.3, slow=0.1)
    found = carry_over(values, levels, pairs_of(120), reference="A", trends=trends)
    assert found is not None
    assert found.trending
    (trend,) = found.trends
    assert (trend.level, trend.reference) == ("B", "A")
    assert trend.interval.estimate == pytest.approx(0.1, abs=0.05)


def test_an_effect_alone_is_no_carry_over() -> None:
    """Each of 20 trials is called wrongly with probability 1 % at most: 4 of them once in a million."""
    wrong = 0
    for _ in range(20):
        values, levels, trends = windows(100, effect=1.0)
        found = carry_over(values, levels, pairs_of(200), reference="A", trends=trends)
        assert found is not None
        wrong += found.found
        if not found.found:
            assert in_words(found, by_ratio=False, unit="ms").startswith("no carry-over shown")
    assert wrong < 4


def test_void_windows_and_an_unfinished_pair_are_left_out() -> None:
    values, levels, trends = windows(200, carry=0.3)
    values[[40, 41, 100]] = math.nan
    whole = carry_over(values, levels, pairs_of(400), trends=trends)
    cut = carry_over(values[:-1], levels[:-1], pairs_of(400)[:-1], trends=trends[:-1])
    assert whole is not None
    assert cut is not None
    assert whole.after
    assert whole.bets >= cut.bets > 60
    assert contrasts(values, levels, pairs_of(400), "B", "A").size == 198


def test_with_three_levels_any_of_them_may_be_the_one() -> None:
    rng = np.random.default_rng()
    levels = [level for _ in range(150) for level in rng.permutation(["A", "B", "C"]).tolist()]
    after_c = np.array([0.0, *(0.3 * (level == "C") for level in levels[:-1])])
    found = carry_over(
        0.05 * rng.normal(size=450) + after_c, levels, [place // 3 for place in range(450)], reference="A"
    )
    assert found is not None
    assert found.after
    assert found.level == "C"
    assert found.shift == pytest.approx(0.3, abs=0.05)


def test_the_error_level_is_shared_by_all_that_is_tried() -> None:
    values, levels, trends = windows(20)
    alone = carry_over(values, levels, pairs_of(40), alpha=0.01)
    both = carry_over(values, levels, pairs_of(40), trends=trends, alpha=0.01)
    assert alone is not None
    assert both is not None
    assert (alone.alpha, both.alpha) == (0.01, 0.005)
    three = [level for _ in range(13) for level in "ABC"] + ["A"]
    # each of three levels inside blocks and between them, and two trends
    of_three = carry_over(values, three, [place // 3 for place in range(40)], trends=trends, alpha=0.01)
    assert of_three is not None
    assert of_three.alpha == pytest.approx(0.01 / 8)


def test_nothing_can_be_said_of_one_level_or_without_a_pair() -> None:
    assert carry_over([1.0, 2.0], ["A", "A"], [0, 0]) is None
    assert carry_over([1.0], ["A"], [0]) is None
    assert carry_over([], [], []) is None
    with pytest.raises(ValueError, match="one value, one level"):
        carry_over([1.0], ["A", "B"], [0, 0])
    few = carry_over([1.0, 2.0], ["A", "B"], [0, 0])
    assert isinstance(few, CarryOver)
    assert not few.found
    assert few.shift is None


def pilot(
    shape: Sequence[float], step_s: float, *, switches: int = 12, noise: float = 0.0
) -> tuple[list[list[tuple[float, float]]], list[int]]:
    """Return series after switches in turn to either level: the transient has the opposite sign after every second one."""
    rng = np.random.default_rng()
    series, directions = [], []
    for number in range(switches):
        sign = 1.0 if number % 2 else -1.0
        level = rng.normal()
        series.append(
            [
                ((place + 0.5) * step_s, level + sign * one + noise * rng.normal())
                for place, one in enumerate(shape)
            ]
        )
        directions.append(number % 2)
    return series, directions


@pytest.mark.parametrize(
    ("tau", "amplitude", "tolerance"), [(5.0, 0.3, 0.01), (10.0, 0.1, 0.005), (3.0, 1.0, 0.002)]
)
def test_the_washout_of_an_exponential_is_that_of_the_formula(
    tau: float, amplitude: float, tolerance: float
) -> None:
    """The mean of a exp(-t / tau) from w to w + L is a tau / L (1 - exp(-L / tau)) exp(-w / tau)."""
    counted = 30.0
    shape = [amplitude * math.exp(-(place + 0.5) / tau) for place in range(90)]
    series, directions = pilot(shape, 1.0, noise=1e-4)
    wanted = tau * math.log(amplitude * tau / counted * (1 - math.exp(-counted / tau)) / tolerance)
    found = proposed_washout(series, directions, counted_s=counted, tolerance=tolerance)
    assert found == pytest.approx(wanted, abs=0.15 * wanted + 2.0)


def test_a_disturbance_that_ends_suddenly_is_washed_out_to_its_end() -> None:
    shape = [0.2 if place < 25 else 0.0 for place in range(90)]
    series, directions = pilot(shape, 1.0, noise=0.01)
    found = proposed_washout(series, directions, counted_s=30.0, tolerance=0.005)
    assert 22.0 <= found <= 40.0


def test_without_a_transient_no_washout_is_proposed() -> None:
    """Wrong in a few of a hundred pilots; three in a row would be a fault."""
    found = []
    for _ in range(3):
        series, directions = pilot([0.0] * 90, 1.0, noise=0.05)
        found.append(proposed_washout(series, directions, counted_s=30.0, tolerance=0.01))
    assert min(found) == 0.0


def test_a_pilot_that_does_not_settle_says_so() -> None:
    shape = [0.5 * math.exp(-place / 200.0) for place in range(90)]
    series, directions = pilot(shape, 1.0, noise=0.001)
    assert proposed_washout(series, directions, counted_s=30.0, tolerance=0.005) == math.inf


def test_the_proposal_is_blind_to_which_level_is_which() -> None:
    """Turning all signs around, or exchanging the marks of the directions, exchanges the levels and changes nothing."""
    shape = [0.3 * math.exp(-place / 8.0) for place in range(60)]
    series, directions = pilot(shape, 1.0, noise=0.02)
    first = proposed_washout(series, directions, counted_s=20.0, tolerance=0.01)
    turned = [[(at, -value) for at, value in one] for one in series]
    assert proposed_washout(turned, directions, counted_s=20.0, tolerance=0.01) == pytest.approx(first)
    marks = ["x" if one else "y" for one in directions]
    assert proposed_washout(series, marks, counted_s=20.0, tolerance=0.01) == pytest.approx(first)


def test_what_a_pilot_may_overlook_shrinks_with_its_noise_and_holds_the_planted_error() -> None:
    counted, tau, amplitude = 30.0, 8.0, 0.05
    shape = [amplitude * math.exp(-(place + 0.5) / tau) for place in range(90)]
    planted = amplitude * tau / counted * (1 - math.exp(-counted / tau))
    possible = []
    for noise in (0.4, 0.001):
        series, directions = pilot(shape, 1.0, noise=noise)
        possible.append(possible_error(series, directions, washout_s=0.0, counted_s=counted))
    assert possible[0] > 5 * possible[1]
    assert possible[1] == pytest.approx(planted, rel=0.2)
    washed = possible_error(series, directions, washout_s=60.0, counted_s=counted)
    assert washed < 0.1 * planted


def test_few_switches_are_refused() -> None:
    series, directions = pilot([0.0] * 30, 1.0, switches=6)
    with pytest.raises(ValueError, match="4 switches of each direction"):
        proposed_washout(series, directions, counted_s=10.0, tolerance=0.01)
    with pytest.raises(ValueError, match="one direction for each"):
        proposed_washout(series, [1], counted_s=10.0, tolerance=0.01)
    assert proposed_washout(series, counted_s=10.0, tolerance=0.01) == 0.0


@pytest.mark.parametrize("samples", [1, 2, 5])
def test_a_pilot_with_a_few_samples_is_too_short(samples: int) -> None:
    series, directions = pilot([0.0] * samples, 2.0)
    assert proposed_washout(series, directions, counted_s=10.0, tolerance=0.01) == math.inf
    assert possible_error(series, directions, washout_s=0.0, counted_s=10.0) == math.inf


def test_samples_at_odd_times_and_gaps_do_no_harm() -> None:
    rng = np.random.default_rng()
    series: list[list[tuple[float, float]]] = []
    for number in range(12):
        times = np.sort(rng.uniform(0, 90, size=70))
        values = (1 if number % 2 else -1) * 0.3 * np.exp(-times / 10) + 0.001 * rng.normal(size=70)
        values[rng.random(70) < 0.1] = math.nan
        series.append(list(zip(times.tolist(), values.tolist(), strict=True)))
    wanted = 10 * math.log(0.3 * 10 / 30 * (1 - math.exp(-3)) / 0.005)
    found = proposed_washout(series, [number % 2 for number in range(12)], counted_s=30.0, tolerance=0.005)
    assert found == pytest.approx(wanted, rel=0.25)


# -- what switching costs


def led(levels: Sequence[str], coins: Sequence[str]) -> list[str | None]:
    """Return the lead-ins of windows: one before the first window of each pair."""
    return [coins[place // 2] if place % 2 == 0 else None for place in range(len(levels))]


def test_a_cost_of_switching_is_first_less_second_window_by_whether_the_first_begins_with_a_change() -> None:
    """Differences of pairs -1, -2, 4: less the means -1 and -1.5 of those before, twice, + for a change and - for none."""
    levels = ["A", "B", "A", "B", "B", "A"]
    values = np.array([1.0, 2.0, 1.0, 3.0, 9.0, 5.0])
    assert switching(values, levels, pairs_of(6), led(levels, "AAA")).tolist() == [2.0, 11.0]
    assert switching(values, levels, pairs_of(6), led(levels, "ABA")).tolist() == [-2.0, 11.0]


def test_without_lead_ins_only_every_second_pair_tells_what_switching_costs() -> None:
    levels = ordered([1] * 9)
    values = np.arange(18.0) ** 2
    alone: list[str | None] = ["A"] + [None] * 17
    assert (
        switching(values, levels, pairs_of(18), alone).size == 4
    )  # pairs 3, 5, 7, 9; the first gives a mean only


def test_the_diagnosis_of_switching_is_exact_whatever_the_levels_do() -> None:
    """The mean of the e-process over all lead-ins is 1, for fixed orders and values with an effect of the level."""
    rng = np.random.default_rng()
    levels = ordered(rng.choice([1, -1], 8).tolist())
    values = rng.standard_cauchy(16) + np.array([3.0 * (level == "B") for level in levels])
    found = [
        np.exp(log_paths(switching(values, levels, pairs_of(16), led(levels, coins))[None, :])[0])
        for coins in itertools.product("AB", repeat=8)
    ]
    assert np.mean(found, axis=0) == pytest.approx(np.ones(7), abs=1e-9)


def test_the_diagnosis_of_switching_is_exact_without_lead_ins_too() -> None:
    """The mean over all orders is 1, where values depend on the level of their own window alone."""
    rng = np.random.default_rng()
    noise = rng.normal(size=18)
    alone: list[str | None] = ["A"] + [None] * 17
    found = []
    for signs in itertools.product((1, -1), repeat=9):
        levels = ordered(signs)
        values = noise + np.array([3.0 * (level == "B") for level in levels])
        found.append(np.exp(log_paths(switching(values, levels, pairs_of(18), alone)[None, :])[0]))
    assert np.mean(found, axis=0) == pytest.approx(np.ones(4), abs=1e-9)


def test_a_planted_cost_of_switching_is_found_with_its_size() -> None:
    rng = np.random.default_rng()
    orders = rng.choice([1, -1], 300).tolist()
    levels, coins = ordered(orders), rng.choice(["A", "B"], 300).tolist()
    before = [coins[place // 2] if place % 2 == 0 else levels[place - 1] for place in range(600)]
    changed = np.array([own != other for own, other in zip(levels, before, strict=True)])
    values = 0.2 * changed + rng.normal(0, 0.1, 600)
    found = carry_over(values, levels, pairs_of(600), reference="A", lead_ins=led(levels, coins))
    assert found is not None
    assert found.costly
    assert found.switching is not None
    assert found.switching.estimate == pytest.approx(0.2, abs=0.06)
    assert not found.found
    assert "switching has a cost" in in_words(found, by_ratio=True)


# -- effects that build up


def test_the_course_of_an_effect_goes_on_by_half_of_what_it_has_gained_since_the_washout() -> None:
    def window(arm: str, value: float, parts: tuple[float | None, float, float]) -> Observation:
        return Observation(arm, ArmKind.TREATMENT, {}, 0, 0.0, {"p99": value}, parts={"p99": parts})

    weights = {"B": 1.0, "A": -1.0}
    today, level = window("A", 10.0, (8.0, 9.0, 11.0)), window("B", 12.0, (8.5, 10.0, 14.0))
    block = ObservedBlock("c", 0, (today, level))
    bare = replace(block, observations=(today, replace(level, parts=None)))
    found = course([block, bare, replace(block, void="late")], weights, "p99", by_ratio=False)
    # later half 12 + 1 in place of 12 against 10 + 1 in place of 10: 3, and half of 3 less .5
    assert (found.drift.tolist(), found.later.tolist()) == ([2.0], [3.0 + (3.0 - 0.5) / 2.0])
    found = course([block], weights, "p99", by_ratio=True)
    drift, rise = math.log(14 / 10 / (11 / 9)), math.log(14 / 8.5 / (11 / 8))
    assert found.drift[0] == pytest.approx(drift)
    assert found.later[0] == pytest.approx(math.log(12 / 10) + drift / 2 + rise / 2)
    without = replace(block, observations=(today, window("B", 12.0, (None, 10.0, 14.0))))
    assert course([without], weights, "p99", by_ratio=False).later.tolist() == [2.0 + 2.0]


def test_an_effect_is_settled_only_if_it_is_within_the_margin_where_it_is_heading() -> None:
    """Over 200 blocks a mean of 3 % with a drift of 2 % heads for 5 %; one of 1 % without a drift stays there."""
    rng = np.random.default_rng()
    margin = math.log(1.05)

    def run(mean: float, drift: float, blocks: int) -> bool:
        drifts = drift + rng.normal(0, 0.02, blocks)
        return settled(Course(drifts, mean + drifts + rng.normal(0, 0.01, blocks)), alpha=0.05, margin=margin)

    assert run(0.01, 0.0, 200)
    assert not run(0.03, 0.02, 200)
    assert not run(0.01, 0.02, 200)  # the drift is shown
    assert not run(0.0, 0.0, 6)  # too few to say
    assert settled(Course(np.zeros(0), np.zeros(0)), alpha=0.05, margin=margin)
