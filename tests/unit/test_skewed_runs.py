"""Verdicts on skewed runs: the median where contrasts are skewed, medians and means against a direction, and the mean run.

Expected values come from brute force and from generators with a known truth. The margin is 3 %: ln 1.03 = .02956.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from report_fixtures import document, effect

from iotrial.design.model import ArmKind, Condition
from iotrial.report.opening import spec_of
from iotrial.report.render import markdown_report
from iotrial.stats.analyse import analyse
from iotrial.stats.betting import Blocks, log_rank_path
from iotrial.stats.contrast import PairedRuns, Runs
from iotrial.stats.controls import judge_controls
from iotrial.stats.eprocess import interval
from iotrial.stats.model import Conclusion, Interval, Means, Observation, ObservedBlock, Verdict
from iotrial.stats.run_statistics import mean_run, means
from iotrial.stats.skew import contradicts, is_skewed, median_bounds, typical_interval
from iotrial.stats.spec import Spec
from iotrial.stats.verdict import judge
from iotrial.store.loading import unpacked
from iotrial.store.packed import open_packed, read_packed
from iotrial.study.model import Better, Response, Scale
from values import replace

TIME = Response("w", "wall", "s", Scale.LOG, Better.LOWER, primary=True)
M, ALPHA = math.log(1.03), 0.05


def paired(level: np.ndarray, reference: np.ndarray) -> PairedRuns:
    return PairedRuns(level[:, None], reference[:, None])


def test_bets_on_the_sign_alone_have_the_mean_of_their_start() -> None:
    """Over all 2^n patterns of signs the capital 2 * integral of (2p)^k (2 - 2p)^(n-k) from 1/2 to 1 has the mean 1; the
    bounds are the order statistics at which it reaches 2/alpha. The integral is summed over a fine grid."""
    n, alpha = 10, 0.05
    grid = np.linspace(0.5, 1.0, 20_001)
    capital = [2.0 * np.trapezoid((2 * grid) ** k * (2 - 2 * grid) ** (n - k), grid) for k in range(n + 1)]
    patterns = [sum(signs) for signs in itertools.product((0, 1), repeat=n)]
    assert math.fsum(capital[k] for k in patterns) / 2**n == pytest.approx(1.0, abs=1e-6)
    values = np.arange(n, dtype=float)
    low, high = median_bounds(values[::-1], alpha)
    # a candidate just above value j has n - 1 - j of n values above it
    excluded = [j for j in range(n) if capital[n - j] >= 2.0 / alpha]
    assert low == max(excluded)
    assert high == n - 1 - low


def test_bets_on_ranks_have_the_mean_of_their_start_over_all_orders_of_each_block() -> None:
    """Also with ties, and where a block has no copy."""
    rng = np.random.default_rng()
    x, y = rng.normal(size=2)
    blocks = [rng.normal(size=3).tolist(), [x, x, y], rng.normal(size=2).tolist(), [y, y]]
    capital = [
        math.exp(log_rank_path(Blocks.of(*_against_reference(orders)))[-1])
        for orders in itertools.product(*(list(itertools.permutations(one)) for one in blocks))
    ]
    assert math.fsum(capital) / len(capital) == pytest.approx(1.0)
    assert max(capital) > 2.0


def _against_reference(blocks: tuple[tuple[float, ...], ...]) -> tuple[list[float], list[float]]:
    """Return level less reference and copy less reference (NaN without a copy) of (level, reference, copy)."""
    return [one[0] - one[1] for one in blocks], [
        one[2] - one[1] if len(one) == 3 else math.nan for one in blocks
    ]


@pytest.mark.parametrize("stalling", [0.05, 0.2])
def test_the_slowdown_is_seen_though_runs_of_all_arms_stall(stalling: float) -> None:
    """Symmetric bets alone see 6 % at a run SD of 3.5 % in .4 and .1 of such trials of 80 blocks."""
    rng = np.random.default_rng()
    arms = ("reference", "control:negative", "control:positive")
    factors = {ArmKind.NEGATIVE: 1.0, ArmKind.POSITIVE: 1.06}
    condition = Condition(0, "workload=w", "w", {})
    spec = Spec(
        conditions=(condition,),
        terms=(),
        control_weights={kind: {f"control:{kind}": 1.0, "reference": -1.0} for kind in factors},
        responses=(TIME,),
        alpha=ALPHA,
        margin=0.03,
        controls=True,
        injected=1.06,
        primary_effects=1,
    )
    seen = passed = 0
    for _ in range(20):
        times = np.exp(rng.normal(0.0, 0.035, (80, 3))) * np.where(rng.random((80, 3)) < stalling, 8.0, 1.0)
        times *= [1.0, *factors.values()]
        blocks = [
            ObservedBlock(
                condition.key,
                index,
                tuple(
                    Observation(arm, ArmKind.TREATMENT, {}, slot, 0.0, {"wall": float(row[slot])})
                    for slot, arm in enumerate(arms)
                ),
            )
            for index, row in enumerate(times)
        ]
        negative, positive = judge_controls(spec, condition, Runs(blocks))
        seen += positive.told_from_zero and not negative.told_from_zero
        passed += positive.passed and negative.passed
    assert seen >= 15
    assert passed >= 18


def test_only_contrasts_that_look_skewed_are_judged_by_their_median() -> None:
    rng = np.random.default_rng()
    calm = np.concatenate([x := rng.normal(0.0, 0.05, 30), -x])
    stalled = calm + np.where(np.arange(60) % 12 == 5, math.log(2.0), 0.0)
    assert not is_skewed(calm)
    assert is_skewed(stalled)
    assert not is_skewed(stalled[:10])
    assert not is_skewed(np.full(40, 0.7))
    found = interval(stalled, ALPHA, margin=M)
    judged = typical_interval(found, stalled.tolist(), paired(stalled, calm * 0.0), TIME, ALPHA, M)
    assert judged.skewed
    assert judged.estimate == pytest.approx(float(np.median(stalled)))
    unpaired = typical_interval(found, stalled.tolist(), None, TIME, ALPHA, M)
    steady = typical_interval(interval(calm, ALPHA), calm.tolist(), paired(calm, calm * 0.0), TIME, ALPHA, M)
    assert not unpaired.skewed
    assert not steady.skewed


def test_stalls_of_one_arm_no_longer_make_its_typical_run_slower() -> None:
    """B stalls in a fifth of its runs, the medians differ by .011: 'slower' by more than the margin is wrong."""
    rng = np.random.default_rng()
    wrong = 0
    for _ in range(40):
        y = rng.normal(0.0, 0.035, 150) + math.log(2.0) * (rng.random(150) < 0.2)
        x = rng.normal(0.0, 0.035, 150)
        found = typical_interval(
            interval(y - x, ALPHA, margin=M), (y - x).tolist(), paired(y, x), TIME, ALPHA, M
        )
        wrong += found.low is not None and found.low > M
    assert wrong <= 8  # of 40 at 5 %


def test_medians_or_means_that_differ_the_other_way_withhold_a_direction() -> None:
    """A third of B's runs take a hundredth of the time, the others 10 % longer: 'faster' by D, slower by the medians."""
    level = np.log(np.where(np.arange(60) % 3 == 0, 0.01, 1.1))
    both = paired(level, np.zeros(60))
    faster = Interval(-0.5, -1.0, -0.1, 0.001, 1000.0, 60)
    assert contradicts(both, faster)
    found = judge(faster, TIME, margin=0.03, contradicted=True)
    assert (found.verdict, found.reason) == (Verdict.INCONCLUSIVE, "typical_and_mean_differ")
    assert not contradicts(paired(level - 1.0, np.zeros(60)), faster)
    assert not contradicts(both, replace(faster, low=-1.0, high=0.1))
    # skewed: the ratio of the medians must be inside the interval, and the means must agree
    apart = paired(np.full(60, -0.05), np.zeros(60))
    assert contradicts(apart, replace(faster, skewed=True))
    assert not contradicts(apart, faster)


@pytest.mark.parametrize(
    ("low", "high", "seen", "wanted"),
    [
        (0.031, 0.2, True, Conclusion.SLOWER),
        (0.031, 0.2, False, Conclusion.PROBABLY_SLOWER),
        (math.log(1.06) + 1e-6, 0.2, False, Conclusion.SLOWER),
        (-0.3, -math.log(1.06) - 1e-6, False, Conclusion.FASTER),
        (-0.3, -0.05, False, Conclusion.PROBABLY_FASTER),
    ],
)
def test_until_the_slowdown_was_seen_only_larger_effects_get_a_plain_word(
    low: float, high: float, seen: bool, wanted: Conclusion
) -> None:
    found = judge(Interval((low + high) / 2, low, high, 0.01, 50.0, 30), TIME, margin=0.03, control_seen=seen)
    one = effect(found.verdict, math.exp((low + high) / 2), math.exp(low), math.exp(high))
    assert replace(one, plain_beyond=0.03 if seen else 0.06).conclusion is wanted
    assert found.decided is (wanted in (Conclusion.SLOWER, Conclusion.FASTER))


# means


def test_means_are_equivalent_only_once_unseen_stalls_could_not_matter() -> None:
    """With runs that never differ, the boldest bet, with half of the stake, gains ln(1 + m / cap) a block."""
    needed = 5 + math.ceil((math.log(20.0) + math.log(2.0)) / math.log1p(0.03 / 2.0))
    same = np.zeros(needed + 10)
    assert means(paired(same, same), ALPHA, cap=2.0, margin=0.03).equivalent
    fewer = same[: needed - 60]  # the other bets add a little to the boldest
    assert not means(paired(fewer, fewer), ALPHA, cap=2.0, margin=0.03).equivalent


def test_the_mean_run_is_equivalent_by_its_standard_error_and_not_before_a_stall_in_twenty_would_have_been_met() -> (
    None
):
    """.95 ** 59 is the first power below .05. The ratio of means is 1, and y/mean - x/mean is +-.2 in every block."""
    level, reference = np.log([1.1, 0.9] * 200), np.log([0.9, 1.1] * 200)

    def equivalent(blocks: int, margin: float) -> bool:
        pairs = paired(level[:blocks], reference[:blocks])
        return mean_run(pairs, ALPHA, cap=2.0, margin=margin).equivalent

    assert [equivalent(blocks, 0.1) for blocks in (58, 60)] == [False, True]
    # the standard error is .2 / root (n - 1), and Student's t at .05 of one side 1.6487 with 399 degrees of freedom
    assert equivalent(400, math.expm1(1.65 * 0.2 / math.sqrt(399)))
    assert not equivalent(400, math.expm1(1.64 * 0.2 / math.sqrt(399)))


def test_stalls_of_one_arm_forbid_equivalent_mean_runs() -> None:
    """One run in fourteen takes three times as long: the mean is 14 % larger, the median the same."""
    level, reference = np.zeros(140), np.zeros(140)
    level[::14] = math.log(3.0)
    assert not mean_run(paired(level, reference), ALPHA, cap=2.0, margin=0.05).equivalent
    assert mean_run(paired(reference, reference), ALPHA, cap=2.0, margin=0.05).equivalent


def test_one_run_of_two_hundred_times_the_typical_one_forbids_equivalent_means() -> None:
    same = np.zeros(2000)
    level = same.copy()
    level[::1000] = math.log(200.0)  # the ratio of means is 1.199
    assert means(paired(same, same), ALPHA, cap=10.0, margin=0.03).equivalent
    found = means(paired(level, same), ALPHA, cap=10.0, margin=0.03)
    assert (found.capped_level, found.capped_reference, found.equivalent) == (1, 0, False)
    judged = judge(
        Interval(0.0, -0.02, 0.02, 1.0, 1.0, 2000), replace(TIME, statistic="mean"), margin=0.03, means=found
    )
    assert (judged.verdict, judged.reason) == (Verdict.INCONCLUSIVE, "capped_runs")


def test_equivalent_typical_runs_with_an_open_mean_are_called_that() -> None:
    one = effect(Verdict.EQUIVALENT, 1.0, 0.98, 1.02)
    assert one.conclusion is Conclusion.EQUIVALENT
    open_ = replace(one, means=Means(2.0, 1.0, 0.9, 1.2))
    assert open_.conclusion is Conclusion.EQUIVALENT_TYPICALLY
    assert open_.conclusion.words == "typical runs equivalent"
    assert open_.conclusion.equivalent
    assert (
        replace(one, means=Means(2.0, 1.0, 0.98, 1.02, equivalent=True)).conclusion is Conclusion.EQUIVALENT
    )


def test_skewed_equivalent_runs_go_on_while_the_mean_looks_different() -> None:
    inside = Interval(0.0, -0.02, 0.02, 1.0, 1.0, 60, skewed=True)
    assert not judge(inside, TIME, margin=0.03, means=Means(2.0, 1.05, 0.98, 1.2)).decided
    assert judge(inside, TIME, margin=0.03, means=Means(2.0, 1.2, 1.1, 1.3)).decided
    assert judge(inside, TIME, margin=0.03, means=Means(2.0, 1.01, 0.9, 1.2)).decided
    assert judge(replace(inside, skewed=False), TIME, margin=0.03, means=Means(2.0, 1.05, 0.98, 1.2)).decided


def test_the_report_gives_the_mean_where_it_differs_and_the_runs_that_were_capped() -> None:
    one = effect(Verdict.EQUIVALENT, 1.0, 0.98, 1.02, skewed=True, means=Means(2.0, 1.2, 1.1, 1.3, 12, 0))
    text = markdown_report(document([one]))
    assert "1.20 \\[1.10, 1.30\\]" in text
    assert "in typical runs" in text
    mean = effect(Verdict.FASTER, 0.9, 0.8, 0.95, statistic="mean", means=Means(10.0, 0.9, 0.8, 0.95, 3, 1))
    assert "at most 10 times the typical one. Runs that took longer: 3 with" in markdown_report(
        document([mean])
    )


@pytest.mark.parametrize(("length", "times"), [(8, 2.0), (12, 3.0)])
def test_stalls_in_a_row_are_named_as_the_cause_of_blocks_that_contradict_each_other(
    length: int, times: float
) -> None:
    """Two such stretches among 120 blocks. Drawing in the outlying contrasts names a third to a half of them."""
    rng = np.random.default_rng()
    contradictions = named = 0
    for _ in range(40):
        x, y = rng.normal(0.0, 0.035, (2, 120))
        for start in rng.choice(np.arange(10, 100, length + 3), 2, replace=False):
            y[start : start + length] += math.log(times)
        found = interval(y - x, ALPHA, margin=M)
        if found.empty or found.leaning:
            contradictions += 1
            named += typical_interval(found, (y - x).tolist(), paired(y, x), TIME, ALPHA, M).skewed
    assert contradictions >= 5
    assert named >= 0.6 * contradictions


@pytest.mark.parametrize(("start", "blocks"), [(20, 48), (20, 96), (60, 96), (100, 120)])
def test_an_effect_that_begins_and_stays_is_not_taken_for_stalls(start: int, blocks: int) -> None:
    rng = np.random.default_rng()
    named = 0
    for _ in range(25):
        x, y = rng.normal(0.0, 0.035, (2, blocks))
        y[start:] += math.log(1.8)
        found = interval(y - x, ALPHA, margin=M)
        if found.empty or found.leaning:
            named += typical_interval(found, (y - x).tolist(), paired(y, x), TIME, ALPHA, M).skewed
    assert named <= 1


# packed trials


def _analysed(path: Path):  # type: ignore[no-untyped-def]
    with open_packed(path) as file:
        data = unpacked(read_packed(file, path.name), source=path.name)
    return analyse(spec_of(data.trial.header), data.blocks, unused=data.unused, remarks=data.remarks)


def test_no_plain_word_comes_of_the_recorded_raid_with_runs_of_two_speeds() -> None:
    """raid5 without a disk, its stripe cache not emptied before a run: a third of the runs come from there. The medians are
    .390 s whole and .432 s degraded."""
    recorded = Path(__file__).with_name("recorded") / "raid-of-two-speeds.iotrial"
    found = [one for one in _analysed(recorded).effects if one.primary]
    (slow, two_speeds) = found
    assert two_speeds.conclusion is Conclusion.UNDECIDED
    # sequential reads, of one speed: plainly slower only if all of the interval is beyond the 10 % that were not seen
    assert slow.conclusion is (Conclusion.SLOWER if (slow.low or 0.0) > 1.1 else Conclusion.PROBABLY_SLOWER)
