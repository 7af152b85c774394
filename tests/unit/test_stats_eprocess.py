"""The e-process, against a slow scalar implementation, brute force over candidates, and enumeration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from iotrial.stats.betting import Blocks, Side, log_paths, log_process
from iotrial.stats.budget_bet import Budget
from iotrial.stats.chunked import Series
from iotrial.stats.confidence_set import blocks_to_bound
from iotrial.stats.eprocess import Wanted, blocks_to_interval, excluded, interval, intervals
from iotrial.stats.model import Interval

BETS = (0.15, 0.3, 0.6, 1.0, 1.6)
BOLD = 2.5


def shares_of(side: Side, *, aimed: bool) -> list[tuple[float | None, float]]:
    """Return (theta, share of the stake) of each bet by the documented weights; theta None is the aimed bet."""
    if side is Side.BOTH:
        each = 0.95 / (6 if aimed else 5)
        return [*((theta, each) for theta in BETS), (BOLD, 0.05), *([(None, each)] if aimed else [])]
    if aimed:
        return [*((theta, 0.06) for theta in (0.3, 0.6, 1.0, 1.6, BOLD)), (None, 0.7)]
    return [(theta, 0.2) for theta in BETS]


def slow_process(
    contrasts: Sequence[float],
    d: float,
    margin: float = 0.0,
    side: Side = Side.BOTH,
    copies: Sequence[float | None] = (),
) -> list[float]:
    """Return M_1(d) .. M_n(d), computed directly from the definition with the runs of each block."""
    bets = shares_of(side, aimed=margin > 0.0)
    signs = {Side.LARGER: [1.0], Side.SMALLER: [-1.0], Side.BOTH: [1.0, -1.0]}[side]
    by_runs = {(k, sign): 1.0 for k in range(len(bets)) for sign in signs}
    by_coin = dict(by_runs)
    total = 0.0
    out = []
    for b, value in enumerate(contrasts, start=1):
        copy = copies[b - 1] if copies else None
        runs = [value - d, 0.0, *([] if copy is None else [copy])]  # level, reference, copy
        mean = math.fsum(runs) / len(runs)
        total += 2.0 * math.fsum((x - mean) ** 2 for x in runs) / (len(runs) - 1)
        s = math.sqrt(total / b)
        for k, (theta, _) in enumerate(bets):
            scale = 0.0 if s == 0.0 else (min(margin / s, 1.6) if theta is None else theta) / s
            y = [2.0 * scale * (x - mean) for x in runs]
            for sign in signs:
                factor = math.fsum(math.exp(min(sign * (other - y[0]), 700.0)) for other in y) / len(y)
                by_runs[k, sign] /= factor
                by_coin[k, sign] *= 1.0 + math.tanh(sign * y[0])
        out.append(
            math.fsum(
                share
                / len(signs)
                * (
                    by_runs[k, sign]
                    if (theta, share) == (BOLD, 0.05)
                    else min(by_runs[k, sign], by_coin[k, sign])
                )
                for k, (theta, share) in enumerate(bets)
                for sign in signs
            )
        )
    return out


def series(seed: int) -> np.ndarray:
    """Return a series: smooth, heavy-tailed, tied, drifting, of changing scale, or with an effect that moves."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(8, 60))
    first = n // 2
    kinds = [
        lambda: rng.normal(0.3, 1, n),
        lambda: rng.standard_t(1, n),
        lambda: np.round(rng.normal(0, 1, n)),
        lambda: rng.normal(0, 1, n) * np.exp(rng.normal(0, 4, n)),
        lambda: np.concatenate([rng.normal(0, 1e-3, first), rng.normal(0, 1, n - first)]),
        lambda: np.cumsum(rng.normal(0, 1, n)),
        lambda: rng.integers(0, 2, n) * 1.0,
        lambda: np.concatenate([rng.normal(0, 1, first), rng.normal(rng.normal(), 1e-3, n - first)]),
    ]
    values: np.ndarray = kinds[seed % len(kinds)]()
    return values


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("margin", [0.0, 0.3])
@pytest.mark.parametrize("side", list(Side))
def test_the_process_is_the_one_of_the_definition(seed: int, margin: float, side: Side) -> None:
    d = series(seed)
    chunked = Series(Blocks.of(d), aim=margin, side=side)
    for candidate in (0.0, 0.1, float(d[0]), float(np.median(d)), float(d.max()) + 1.0):
        slow = slow_process(d.tolist(), candidate, margin, side)
        log_f, log_m = log_process(d, candidate, aim=margin, side=side)
        assert log_f == pytest.approx(max(0.0, math.log(max(slow))), abs=1e-9)
        assert log_m == pytest.approx(math.log(slow[-1]), abs=1e-9)
        assert chunked.log_last(np.array([candidate]))[0] == pytest.approx(math.log(slow[-1]), abs=1e-9)
        for alpha in (0.05, 0.001):
            left = chunked.survives(np.array([candidate]), math.log(1 / alpha))[0]
            assert left == (max(slow) < 1 / alpha)
            if side is Side.BOTH:
                assert excluded(d, candidate, alpha, margin=margin) == (max(slow) >= 1 / alpha)


@pytest.mark.parametrize("seed", range(48))
@pytest.mark.parametrize("alpha", [0.05, 0.001])
@pytest.mark.parametrize("margin", [0.0, 0.3])
def test_no_candidate_of_a_dense_grid_is_left_outside_the_interval(
    seed: int, alpha: float, margin: float
) -> None:
    d = series(seed)
    found = interval(d, alpha, margin=margin)
    if len(d) < blocks_to_bound(math.log(1 / alpha), aimed=margin > 0):
        assert (found.low, found.high) == (None, None)
        return
    spread = float(np.ptp(d))
    grid = [np.linspace(d.min() - spread, d.max() + spread, 4001), d]
    grid.append(np.linspace(d.min() - 20 * spread, d.max() + 20 * spread, 1001))
    if not found.empty:
        assert found.low is not None
        assert found.high is not None
        width = found.high - found.low
        grid.append(np.linspace(found.low - width, found.high + width, 2001))
    candidates = np.unique(np.concatenate(grid))
    paths = log_paths(d[None, :] - candidates[:, None], aim=margin)
    # a leaning interval (all blocks together contradict the first ones) counts the last block alone
    heights = paths[:, -1] if found.leaning else paths.max(axis=1)
    left = candidates[heights < math.log(1 / alpha)]
    if found.empty:
        assert left.size == 0
        return
    assert found.low is not None
    assert found.high is not None
    tolerance = 2e-5 * (found.high - found.low) + 1e-12
    assert left.min() >= found.low - tolerance
    assert left.max() <= found.high + tolerance
    # neither end is excluded (a hair inside: at the first contrast the process jumps)
    for end in (found.low + tolerance, found.high - tolerance):
        slow = slow_process(d.tolist(), end if found.low < found.high else found.low, margin)
        assert (slow[-1] if found.leaning else max(slow)) < (1 / alpha) * (1 + 1e-6)
    assert found.estimate is not None
    assert found.low <= found.estimate <= found.high


@pytest.mark.parametrize("margin", [0.0, 0.3])
def test_p_rests_on_the_most_evidence_so_far_and_the_e_value_on_the_evidence_now(margin: float) -> None:
    rng = np.random.default_rng(2)
    d = np.concatenate([rng.normal(2, 1, 12), rng.normal(-2, 1, 12)])  # evidence comes and goes
    slow = slow_process(d.tolist(), 0.0, margin)
    assert max(slow) > 10 * slow[-1]
    found = interval(d, 0.05, margin=margin)
    assert found.p_anytime == pytest.approx(1 / max(slow))
    assert found.e_value == pytest.approx(slow[-1])


@pytest.mark.parametrize("seed", range(16))
def test_the_estimate_is_the_candidate_with_the_least_evidence_against_it(seed: int) -> None:
    d = series(seed)
    found = interval(d, 0.05)
    assume_finite = found.low is not None and found.high is not None
    if not assume_finite or found.low == found.high:
        return
    assert found.low is not None
    assert found.high is not None
    assert found.estimate is not None
    grid = np.linspace(found.low, found.high, 2001)
    best = Series(Blocks.of(d)).log_last(grid).min()
    assert Series(Blocks.of(d)).log_last(np.array([found.estimate]))[0] <= best + 1e-3


@pytest.mark.parametrize("seed", range(48))
def test_the_bounds_are_where_the_bets_of_one_side_stop_and_stand_only_inside_the_margin(seed: int) -> None:
    d = series(seed) - np.median(series(seed))
    for margin in (0.5, 3.0):
        found = interval(d, 0.05, margin=margin)
        spread = max(float(np.ptp(d)), 2 * margin)
        candidates = np.unique(
            np.concatenate([np.linspace(-3 * spread, 3 * spread, 4001), d, [margin, -margin]])
        )
        x = d[None, :] - candidates[:, None]
        lower = log_paths(x, aim=margin, side=Side.LARGER).max(axis=1) < math.log(20)
        upper = log_paths(x, aim=margin, side=Side.SMALLER).max(axis=1) < math.log(20)
        inside = not (lower & (candidates <= -margin)).any() and not (upper & (candidates >= margin)).any()
        if found.bounds is None:
            assert not inside or found.empty or found.leaning or found.low is None
            continue
        assert inside
        step = 6 * spread / 4000
        assert found.bounds[0] == pytest.approx(candidates[lower].min(), abs=step)
        assert found.bounds[1] == pytest.approx(candidates[upper].max(), abs=step)


def test_where_all_blocks_contradict_the_first_the_interval_is_the_wider_one_of_the_last_block() -> None:
    rng = np.random.default_rng(0)
    d = np.concatenate([rng.normal(0, 1, 40), rng.normal(0.6, 1, 160)])
    found = interval(d, 0.05)
    candidates = np.linspace(-1, 3, 8001)
    paths = log_paths(d[None, :] - candidates[:, None])
    ever, last = (candidates[heights < math.log(20)] for heights in (paths.max(axis=1), paths[:, -1]))
    assert found.leaning
    assert found.low is not None
    assert found.high is not None
    assert (found.low, found.high) == pytest.approx((last.min(), last.max()), abs=1e-3)
    assert np.ptp(last) > np.ptp(ever)


MAGNITUDES = st.lists(
    st.one_of(st.just(0.0), st.floats(1e-6, 1e6), st.sampled_from([1.0, 2.0])), min_size=1, max_size=9
)


@settings(max_examples=40, deadline=None)
@given(MAGNITUDES)
def test_over_all_signs_of_given_magnitudes_the_process_has_mean_one_and_rarely_gets_large(
    magnitudes: list[float],
) -> None:
    signs = np.array(list(itertools.product([-1.0, 1.0], repeat=len(magnitudes))))
    for margin, side in itertools.product((0.0, 0.5), Side):
        m = np.exp(log_paths(signs * np.array(magnitudes), aim=margin, side=side))
        assert m.mean(axis=0) == pytest.approx(np.ones(len(magnitudes)), abs=1e-9)
        for alpha in (0.3, 0.1, 0.05):
            assert (m.max(axis=1) >= 1 / alpha).mean() <= alpha


def all_assignments(runs: np.ndarray) -> list[np.ndarray]:
    """Return every assignment of each block's numbers (rows) to level, reference and copy."""
    each = [[*itertools.permutations(row.tolist())] for row in runs]
    return [np.array(one) for one in itertools.product(*each)]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("side", list(Side))
@pytest.mark.parametrize("margin", [0.0, 0.4])
def test_over_all_assignments_of_the_numbers_to_the_runs_no_bet_gains(
    seed: int, side: Side, margin: float
) -> None:
    """Each block's numbers are fixed and skewed. The bold bet alone must have mean 1 exactly, all together at most 1."""
    rng = np.random.default_rng(seed)
    numbers = rng.exponential(size=(4, 3)) if seed % 2 else rng.standard_cauchy((4, 3))
    some = all_assignments(numbers)
    level, reference, copy = (np.array([one[:, k] for one in some]) for k in range(3))
    copies = copy - reference
    if seed >= 3:  # in one block the copy has no value: only level and reference change places
        copies[:, 2] = math.nan
    m = np.exp(log_paths(level - reference, copies=copies, aim=margin, side=side))
    slow = [
        slow_process(d.tolist(), 0.0, margin, side, [None if math.isnan(e) else e for e in own.tolist()])
        for d, own in zip((level - reference)[::37], copies[::37], strict=True)
    ]
    assert m[::37] == pytest.approx(np.array(slow), rel=1e-9)
    assert m.mean(axis=0).max() <= 1.0 + 1e-9
    assert m.mean(axis=0).min() > 0.5  # and little is left unused
    for alpha in (0.3, 0.1, 0.05):
        assert (m.max(axis=1) >= 1 / alpha).mean() <= alpha


@pytest.mark.parametrize("theta", [0.15, 1.6, BOLD])
def test_the_mean_over_all_assignments_of_a_bet_on_every_run_is_exactly_one(theta: float) -> None:
    """The product of the definition, with a scale that depends on the order of the blocks only."""
    numbers = np.random.default_rng(3).exponential(size=(4, 3))
    scale = np.sqrt(np.cumsum(2.0 * numbers.var(axis=1, ddof=1)) / np.arange(1, 5))
    total = 0.0
    some = all_assignments(numbers)
    for one in some:
        stakes = np.exp(2.0 * theta * one / scale[:, None])
        total += float(np.prod(stakes[:, 0] / stakes.mean(axis=1)))
    assert total / len(some) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("side", [Side.LARGER, Side.SMALLER])
@pytest.mark.parametrize("spread", [1.0, 3.0, 30.0])
def test_a_level_that_scatters_more_but_symmetrically_gains_nothing_from_one_side(
    side: Side, spread: float
) -> None:
    """Given the reference and its copy, the level is as far above their mean as below: all sign patterns, exactly."""
    rng = np.random.default_rng(8)
    distances, copies = spread * rng.exponential(size=9), rng.normal(size=9)
    signs = np.array(list(itertools.product([-1.0, 1.0], repeat=9)))
    m = np.exp(log_paths(signs * distances + copies / 2, copies=copies, aim=0.4, side=side))
    assert m.mean(axis=0).max() <= 1.0 + 1e-9
    assert (m.max(axis=1) >= 20).mean() <= 0.05


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("margin", [0.0, 0.3])
def test_with_copies_no_candidate_of_a_dense_grid_is_left_outside_the_interval(
    seed: int, margin: float
) -> None:
    d = series(seed)
    rng = np.random.default_rng(seed)
    copies = np.where(rng.random(d.size) < 0.7, rng.permutation(d) - np.median(d), math.nan)
    found = interval(d, 0.05, margin=margin, copies=copies)
    data = Blocks.of(d, copies)
    if found.low is None or found.high is None:
        assert found.empty or d.size < 10
        return
    spread = float(np.ptp(data.points))
    width = found.high - found.low
    grid = [
        np.linspace(data.points.min() - 20 * spread, data.points.max() + 20 * spread, 2001),
        np.linspace(found.low - width, found.high + width, 2001),
    ]
    candidates = np.unique(np.concatenate(grid))
    paths = data.against(candidates, aim=margin)
    left = candidates[(paths[:, -1] if found.leaning else paths.max(axis=1)) < math.log(20)]
    tolerance = 2e-5 * width + 1e-12
    assert left.size == 0 or (left.min() >= found.low - tolerance and left.max() <= found.high + tolerance)
    given = [None if math.isnan(one) else one for one in copies.tolist()]
    for end in (found.low + tolerance, found.high - tolerance):
        slow = slow_process(d.tolist(), end if width > 0 else found.low, margin, copies=given)
        assert (slow[-1] if found.leaning else max(slow)) < 20 * (1 + 1e-5)
    slow = slow_process(d.tolist(), 0.0, margin, copies=given)
    assert found.p_anytime == pytest.approx(min(1.0, 1 / max(slow)))
    assert found.e_value == pytest.approx(slow[-1])


def test_copies_must_be_one_number_a_block() -> None:
    with pytest.raises(ValueError, match="copies"):
        interval([0.0, 1.0], 0.05, copies=[0.0])
    with pytest.raises(ValueError, match="copies"):
        interval([0.0, 1.0], 0.05, copies=[0.0, math.inf])


def test_ten_blocks_of_normal_magnitudes_reach_twenty_in_at_most_five_of_a_hundred_sign_patterns() -> None:
    magnitudes = np.abs(np.random.default_rng(1).normal(size=12))
    signs = np.array(list(itertools.product([-1.0, 1.0], repeat=12)))
    largest = np.exp(log_paths(signs * magnitudes)).max(axis=1)
    assert 0 < (largest >= 20).mean() <= 0.05


SERIES = st.lists(
    st.floats(-100, 100, allow_subnormal=False).map(lambda v: round(v, 3)), min_size=8, max_size=40
)


@settings(max_examples=60, deadline=None)
@given(SERIES)
def test_reversing_all_signs_mirrors_the_interval(values: list[float]) -> None:
    found, mirrored = interval(values, 0.05), interval([-v for v in values], 0.05)
    assert found.empty == mirrored.empty
    assert found.p_anytime == pytest.approx(mirrored.p_anytime)
    assert found.e_value == pytest.approx(mirrored.e_value)
    if not found.empty:
        assert found.low is not None
        assert found.high is not None
        tolerance = 3e-5 * (found.high - found.low) + 1e-9
        assert mirrored.low == pytest.approx(-found.high, abs=tolerance)
        assert mirrored.high == pytest.approx(-found.low, abs=tolerance)


@settings(max_examples=60, deadline=None)
@given(SERIES, st.floats(-1e3, 1e3), st.sampled_from([1e-7, 0.01, 3.0, 1e6]))
def test_shifting_and_scaling_the_contrasts_shifts_and_scales_the_interval(
    values: list[float], shift: float, scale: float
) -> None:
    assume(np.ptp(values) > 0.1)
    found = interval(values, 0.05)
    moved = interval([v * scale + shift * scale for v in values], 0.05)
    assert found.empty == moved.empty
    if not found.empty:
        assert found.low is not None
        assert found.high is not None
        tolerance = (3e-5 * (found.high - found.low) + 1e-8) * scale
        assert moved.low == pytest.approx((found.low + shift) * scale, abs=tolerance)
        assert moved.high == pytest.approx((found.high + shift) * scale, abs=tolerance)


@settings(max_examples=60, deadline=None)
@given(SERIES, st.integers(1, 10))
@example([0.0] * 7 + [1.0, -1.0], 1)  # the last block makes the interval lean
@example([0.0] * 7 + [1.0, 0.0, 1.0], 1)
def test_more_blocks_never_widen_the_interval_unless_they_make_it_lean(
    values: list[float], more: int
) -> None:
    """A leaning interval rests on the last block alone. It may be wider, but keeps all that no look has excluded."""
    assume(len(values) - more >= 8)
    before, after = interval(values[:-more], 0.05), interval(values, 0.05)
    if before.empty:
        assert after.empty
    if before.empty or after.empty:
        return
    assert before.low is not None
    assert before.high is not None
    assert after.low is not None
    assert after.high is not None
    tolerance = 3e-5 * (before.high - before.low) + 1e-9
    if not after.leaning:
        assert after.low >= before.low - tolerance
        assert after.high <= before.high + tolerance
        return
    grid = np.unique(np.concatenate([np.linspace(before.low, before.high, 501), values]))
    paths = log_paths(np.array(values)[None, :] - grid[:, None], aim=0.0)
    never_excluded = grid[paths.max(axis=1) < math.log(1 / 0.05)]
    assert np.all(never_excluded >= after.low - tolerance)
    assert np.all(never_excluded <= after.high + tolerance)


def won_far_away(blocks: int, *, runs: int, aimed: bool) -> float:
    """Return the capital of the bets on one side, in half of the stake, against a candidate far from all contrasts.

    There only the side matters: every run of the level is at distance 1 from the others of its block.
    """
    scale = math.sqrt({2: 1.0, 3: 2 / 3}[runs])  # twice the variance within a block is its square
    capital = 0.0
    for theta, share in shares_of(Side.BOTH, aimed=aimed):
        if theta is None:
            continue
        by_runs = runs / (1.0 + (runs - 1.0) * math.exp(-2.0 * theta / scale))
        by_coin = 1.0 + math.tanh(2.0 * theta / scale * (1.0 - 1.0 / runs))
        capital += share / 2 * (by_runs if theta == BOLD else min(by_runs, by_coin)) ** blocks
    return capital


@pytest.mark.parametrize("runs", [2, 3])
@pytest.mark.parametrize("alpha", [0.05, 0.0125, 0.05 / 16, 0.001])
@pytest.mark.parametrize("share", [0.0, 0.35])
@pytest.mark.parametrize("margin", [0.0, 0.03])
def test_the_first_interval_needs_as_many_blocks_as_one_side_of_all_bets_can_win_in(
    runs: int, alpha: float, share: float, margin: float
) -> None:
    needed = 1 / (alpha * (1.0 - share))
    blocks = next(n for n in range(1, 60) if won_far_away(n, runs=runs, aimed=margin > 0.0) >= needed)
    copied = runs == 3
    assert blocks_to_interval(alpha, margin=margin, budget_share=share, copied=copied) == blocks
    assert blocks_to_bound(-math.log(alpha * (1 - share)), aimed=margin > 0, copied=copied) == blocks
    rng = np.random.default_rng(5)
    values, copies = rng.normal(size=blocks), rng.normal(size=blocks) if copied else np.empty(0)
    for count in (blocks, blocks - 1):
        budget = Budget(share, np.arange(40.0, 40.0 - count, -1.0)) if share else None
        found = interval(values[:count], alpha, margin=margin, budget=budget, copies=copies[:count])
        assert (found.low is None, found.high is None) == (count < blocks, count < blocks)
        assert not found.empty


def test_sixteen_comparisons_with_copies_can_say_something_after_nine_blocks() -> None:
    assert blocks_to_interval(0.05 / 16, margin=0.03, budget_share=0.35, copied=True) == 9


def test_no_block_gives_no_interval() -> None:
    found = interval([], 0.05)
    assert (found.estimate, found.low, found.high, found.p_anytime, found.blocks) == (
        None,
        None,
        None,
        1.0,
        0,
    )


def test_contrasts_that_are_all_equal_leave_one_point() -> None:
    found = interval([0.25] * 10, 0.05)
    assert (found.low, found.estimate, found.high) == (0.25, 0.25, 0.25)
    assert found.p_anytime == pytest.approx(1 / slow_process([0.25] * 10, 0.0)[-1])
    nothing = interval([0.0] * 10, 0.05)
    assert (nothing.low, nothing.estimate, nothing.high) == (0.0, 0.0, 0.0)
    assert nothing.p_anytime == pytest.approx(1.0)


def test_contrasts_that_are_equal_at_first_leave_that_point_though_no_grid_would_hit_it() -> None:
    found = interval([1 / 3] * 12 + [0.5, 0.2, 0.4, 0.3], 0.05)
    assert found.low == found.high == pytest.approx(1 / 3, abs=1e-12)


def test_an_effect_that_moves_leaves_nothing() -> None:
    rng = np.random.default_rng(5)
    found = interval(np.concatenate([rng.normal(0, 1, 40), rng.normal(20, 1, 40)]), 0.05)
    assert found.empty
    assert (found.low, found.high) == (None, None)
    assert found.estimate is not None


def test_one_huge_outlier_does_not_hide_where_the_rest_is() -> None:
    rng = np.random.default_rng(6)
    values = rng.normal(0.1, 0.01, 60)
    values[30] = 1e6
    found = interval(values, 0.05)
    assert found.low is not None
    assert found.high is not None
    assert 0.05 < found.low < 0.1 < found.high < 0.15


@pytest.mark.long
def test_a_hundred_thousand_blocks_overflow_nothing() -> None:
    values = np.random.default_rng(7).normal(1.0, 1.0, 100_000)
    with np.errstate(all="raise", under="ignore"):
        log_f, log_m = log_process(values, 0.0)
        found = interval(values, 0.05)
    assert math.isfinite(log_f)
    assert log_m > 1000
    assert math.isfinite(found.e_value)
    assert found.p_anytime == 0.0
    assert found.low is not None
    assert found.low < 1.0


def test_values_that_are_not_finite_and_levels_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        interval([0.0, math.nan], 0.05)
    with pytest.raises(ValueError, match="between 0 and 1"):
        interval([0.0], 1.0)


def test_a_sliver_that_is_left_beside_the_first_contrast_belongs_to_the_interval() -> None:
    # nothing is left between -1.36 and -1.15; right of D_1 = -1.38, where the process jumps, something is
    values = [-1.38, -1.46, 0.31, -0.02, -0.59, -0.85, 1.43, 0.1, -0.7, 1.92, 1.04, -1.54, 1.38, 0.34, 1.7]
    values += [1.83, 0.19, -0.23, 2.26, 0.87] + [-1.76] * 20
    assert max(slow_process(values, -1.37)) < 100
    assert max(slow_process(values, -1.25)) > 100
    found = interval(values, 0.01)
    assert found.low == pytest.approx(-1.38, abs=1e-6)


def test_intervals_that_are_sought_together_are_those_sought_alone() -> None:
    """Series of equal and different lengths, including long ones, with and without a margin and a budget."""
    rng = np.random.default_rng(11)
    values = [*map(series, range(16)), *(rng.normal(0.05, 0.1, n) for n in (40, 40, 40, 40, 1100))]
    wanted = [
        Wanted(one, alpha, margin, Budget(0.35, np.arange(one.size, 0.0, -1.0)) if budgeted else None)
        for one in values
        for alpha, margin, budgeted in ((0.05, 0.0, False), (0.01, 0.3, False), (0.05, 0.3, one.size < 99))
    ]
    together = intervals(wanted)
    for one, found in zip(wanted, together, strict=True):
        alone = interval(one.contrasts, one.alpha, margin=one.margin, budget=one.budget)
        assert numbers_of(found) == pytest.approx(numbers_of(alone), rel=1e-12, abs=1e-15, nan_ok=True)


def numbers_of(found: Interval) -> list[float]:
    """Return all fields of an interval as numbers, NaN where unbounded."""
    ends = found.bounds or (None, None)
    every = (found.estimate, found.low, found.high, *ends, found.p_anytime, found.e_value)
    flags = (found.blocks, found.empty, found.leaning)
    return [math.nan if one is None else float(one) for one in (*every, *flags)]


def test_no_candidate_gives_no_path() -> None:
    assert log_paths(np.empty((0, 21)), aim=0.03).shape == (0, 21)
