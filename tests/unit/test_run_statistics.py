"""Means and quantiles across runs.

Checked against closed forms, exact enumeration over binomial counts, and a trial with known truth.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from report_fixtures import CONDITIONS, document, effect

from iotrial.design.model import ArmKind
from iotrial.design.plan import Plan
from iotrial.errors import StudyError
from iotrial.report.jsonreport import report_json
from iotrial.stats.analyse import Spec, analyse
from iotrial.stats.contrast import PairedRuns
from iotrial.stats.model import Observation, ObservedBlock, Verdict
from iotrial.stats.run_statistics import blocks_needed, exceeding_bounds, statistic_interval
from iotrial.study.codec import study_from_json, study_to_json
from iotrial.study.model import Better, Response, Scale, Study
from iotrial.study.reader import read_study
from values import check_limits, replace

TIME = Response("w", "wall", "s", Scale.LOG, Better.LOWER, primary=True)
MEAN = replace(TIME, statistic="mean")
ALPHA = 0.05
SLOW_DOWN = 1.06  # injected slowdown: 1 + twice the margin of 3 %

STUDY = """
[study]
name = "tails"
question = "Does the mode change the tail?"
why = "Stalls."
[lab]
kind = "directory"
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0444", "0777"]
[[workload]]
name = "w"
kind = "files"
files = 10
operations = ["open", "read", "close"]
cache = "warm"
"""


def pairs(level: np.ndarray, reference: np.ndarray) -> PairedRuns:
    return PairedRuns(np.log(level)[:, None], np.log(reference)[:, None])


# the mean


def test_a_mean_moves_by_less_than_the_margin_from_the_blocks_on_that_the_plan_names() -> None:
    """All runs are alike. Half of the capital is bet whole, which gains a factor 1 + margin / cap in every block.

    The bound is where that reaches 2 / alpha. The first five blocks only set the typical time.
    """
    margin = 0.05
    blocks = blocks_needed(MEAN, ALPHA, margin)
    assert blocks == pytest.approx(5 + math.log(4 / ALPHA) / math.log1p(margin / 10), abs=1)
    for count, inside in ((blocks + 6, True), (int(0.9 * blocks), False)):
        same = np.ones(count)
        found = statistic_interval(pairs(same, same), MEAN, ALPHA)
        assert found.low is not None
        assert found.high is not None
        assert found.low == pytest.approx(-found.high)
        assert (found.high <= math.log1p(margin)) is inside


def test_a_mean_counts_a_run_as_at_most_the_cap() -> None:
    level, reference = np.ones(200), np.ones(200)
    level[100] = 1e6
    found = statistic_interval(pairs(level, reference), MEAN, ALPHA)
    assert found.estimate == pytest.approx(math.log((194 + 10) / 195))
    assert statistic_interval(
        pairs(level, reference), replace(MEAN, cap=3.0), ALPHA
    ).estimate == pytest.approx(math.log((194 + 3) / 195))


def test_exchanging_the_names_of_the_arms_inverts_the_interval() -> None:
    rng = np.random.default_rng()
    y, x = rng.exponential(size=(2, 300)) + 0.1
    for statistic in ("mean", "p90"):
        response = replace(TIME, statistic=statistic)
        there, back = (statistic_interval(one, response, ALPHA) for one in (pairs(y, x), pairs(x, y)))
        assert there.low is not None
        assert back.high is not None
        assert there.low == pytest.approx(-back.high, abs=1e-6)
        assert there.p_anytime == pytest.approx(back.p_anytime)


def test_stalls_that_typical_runs_do_not_show_are_a_slower_mean() -> None:
    """One run in ten takes ten times as long: by arithmetic the mean is 1.9 times as long."""
    level = np.ones(800)
    level[9::10] = 10.0
    found = statistic_interval(pairs(level, np.ones(800)), MEAN, ALPHA)
    assert found.low is not None
    assert found.high is not None
    assert 0.0 < found.low < math.log(1.9) < found.high
    assert found.p_anytime < 0.01


# quantiles


@pytest.mark.parametrize(("share", "chance"), [(0.5, 0.5), (0.9, 0.1), (0.99, 0.01)])
def test_the_runs_that_may_exceed_a_quantile_miss_at_any_look_in_less_than_alpha_by_enumeration(
    share: float, chance: float
) -> None:
    alive, missed = {0: 1.0}, 0.0
    for n in range(1, 121):
        fewest, most = exceeding_bounds(n, chance, ALPHA)
        after: dict[int, float] = {}
        for count, probability in alive.items():
            after[count] = after.get(count, 0.0) + probability * share
            after[count + 1] = after.get(count + 1, 0.0) + probability * chance
        alive = {count: p for count, p in after.items() if fewest <= count <= most}
        missed += sum(after.values()) - sum(alive.values())
    assert missed <= ALPHA


def test_a_p99_has_no_upper_bound_before_the_blocks_that_the_plan_names() -> None:
    p99 = replace(TIME, statistic="p99")
    blocks = blocks_needed(p99, ALPHA, 0.03)
    rng = np.random.default_rng()
    y, x = np.exp(rng.normal(0, 0.1, size=(2, blocks)))
    assert statistic_interval(pairs(y, x), p99, ALPHA).high is not None
    assert statistic_interval(pairs(y[:-1], x[:-1]), p99, ALPHA).high is None
    # for one look: (1 - .01)^n = .05 / 4 for each end of each arm
    assert math.log(0.0125) / math.log(0.99) <= blocks < 1.3 * math.log(0.0125) / math.log(0.99)


def test_a_doubled_tail_is_a_larger_quantile() -> None:
    rng = np.random.default_rng()
    y, x = np.exp(rng.normal(0, 0.05, size=(2, 1500)))
    y[rng.random(1500) < 0.3] *= 2
    found = statistic_interval(pairs(y, x), replace(TIME, statistic="p90"), ALPHA)
    assert found.low is not None
    assert found.low > math.log(1.5)


# studies and reports


def study(table: str) -> Study:
    return read_study(f'{STUDY}[[response]]\nname = "wall"\n{table}\n', "study.toml", trusted=True)


def test_a_study_asks_for_a_statistic_and_keeps_it_when_stored() -> None:
    found = study('statistic = "mean"\ncap = 5')
    wall = next(r for r in found.responses if r.name == "wall")
    assert (wall.statistic, wall.cap, wall.primary) == ("mean", 5.0, True)
    assert study_from_json(study_to_json(found)).responses == found.responses
    check_limits(found, origin="study.toml")
    with pytest.raises(StudyError):
        check_limits(replace(found, responses=(replace(wall, statistic="p0"),)), origin="study.toml")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('statistic = "p42"', "statistic"),
        ('statistic = "p99"\ncap = 5', "cap"),
        ('statistic = "mean"\ncap = 1', "cap"),
        ('statistic = "mean"\nprimary = false', "not primary"),
        ('statistic = "mean"\nscale = "difference"', "not a time compared by ratio"),
    ],
)
def test_a_statistic_that_cannot_be_had_is_refused_with_its_place(table: str, said: str) -> None:
    with pytest.raises(StudyError, match=said):
        study(table)


def trial(stalled: float) -> tuple[Spec, list[ObservedBlock]]:
    """Return 800 blocks in which a share ``stalled`` of the runs at 0777 takes ten times as long."""
    plan = Plan(study('statistic = "mean"'), "0" * 32)
    rng = np.random.default_rng()
    blocks = []
    for index in range(800):
        runs = []
        for run in plan.block(plan.conditions[0], index).runs:
            time = math.exp(rng.normal(0, 0.05)) * (SLOW_DOWN if run.arm.kind is ArmKind.POSITIVE else 1.0)
            if (
                run.arm.treatment == {"mode": "0777"}
                and run.arm.kind is ArmKind.TREATMENT
                and rng.random() < stalled
            ):
                time *= 10.0
            runs.append(
                Observation(
                    run.arm.name, run.arm.kind, run.arm.treatment, run.slot, float(index), {"wall": time}
                )
            )
        blocks.append(ObservedBlock(plan.conditions[0].key, index, tuple(runs)))
    return Spec.from_plan(plan), blocks


def test_a_trial_of_means_sees_stalls_and_says_mean() -> None:
    spec, blocks = trial(0.2)
    found = next(one for one in analyse(spec, blocks).effects if one.primary)
    assert found.statistic == "mean"
    assert found.low is not None
    assert found.low > 1.0
    assert found.slow_runs is None
    words = document(
        [replace(effect(Verdict.SLOWER, 2.8, 2.1, 3.9, condition=CONDITIONS[0]), statistic="mean")]
    )
    assert words.summary.headline.startswith("Mean wall is ")
    effects = report_json(words)["effects"]
    assert isinstance(effects, list)
    assert effects[0]["statistic"] == "mean"


def test_a_mean_is_not_equivalent_before_the_slow_down_is_seen_in_the_mean() -> None:
    spec, blocks = trial(0.0)
    few = analyse(spec, blocks[:400])
    control = next(one for one in few.controls if one.kind == "positive")
    assert control.passed
    assert not control.told_from_zero
    assert not any(one.verdict is Verdict.EQUIVALENT for one in few.effects if one.primary)
