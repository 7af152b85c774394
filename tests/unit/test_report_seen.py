"""Captions that say what a figure shows: against numbers counted by hand, and never more than the verdicts say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from report_fixtures import CONDITIONS, all_equivalent, document, effect

from iotrial.design.model import ArmKind
from iotrial.report.conditions import ConditionText
from iotrial.report.document import Document
from iotrial.report.figures import draw_figures
from iotrial.report.run_sentences import (
    apart,
    distribution_seen,
    latency_seen,
    least_agreement,
    runs_seen,
    widest_gap,
    within_seen,
)
from iotrial.report.series import Arm, ArmSeries, LatencyPanel, Panel
from iotrial.report.within import Curve, WithinPanel
from iotrial.stats.model import Diagnostic, LevelChange, Verdict
from iotrial.study.model import Scale

CONDITION = ConditionText("k", "probe", {}, ())
ARMS = tuple(Arm(name, name, ArmKind.TREATMENT, i) for i, name in enumerate(("0777", "0444", "0666")))


def effects_sentence(made: Document) -> str:
    return next(iter(draw_figures(made).every())).sentence


def series(arm: Arm, values: Sequence[float]) -> ArmSeries:
    at = np.arange(len(values), dtype=np.float64)
    return ArmSeries(arm, at, np.asarray(values, dtype=np.float64), np.zeros(len(values), dtype=np.bool_))


def panel(*values: Sequence[float]) -> Panel:
    return Panel(
        CONDITION, "wall", "s", tuple(series(arm, v) for arm, v in zip(ARMS, values, strict=False)), (), 0
    )


def diagnostic(*changes: float, blocks: int = 120) -> Diagnostic:
    found = tuple(LevelChange(at_s, 1.1, None) for at_s in changes)
    return Diagnostic({}, "wall", blocks, None, None, None, 0.1, None, None, found)


def test_verdicts_are_counted_the_most_frequent_first() -> None:
    mixed = [
        effect(Verdict.FASTER, 0.5, 0.4, 0.6, condition=CONDITIONS[0]),
        effect(Verdict.SLOWER, 1.5, 1.4, 1.6, condition=CONDITIONS[1]),
        effect(Verdict.EQUIVALENT, 1.0, 0.99, 1.01, condition=CONDITIONS[2]),
        effect(Verdict.EQUIVALENT, 1.0, 0.99, 1.01, condition=CONDITIONS[3]),
    ]
    assert effects_sentence(document(mixed)) == "2 equivalent, 1 faster and 1 slower."
    assert effects_sentence(document(all_equivalent())) == "4 equivalent."


def test_an_interval_beside_one_that_is_not_settled_is_no_effect() -> None:
    """Failed runs cap a comparison at inconclusive, so the position of its interval is no verdict."""
    capped = [
        effect(Verdict.INCONCLUSIVE, 0.5, 0.4, None, condition=condition, failures=3, reason="failures")
        for condition in CONDITIONS[:2]
    ]
    assert effects_sentence(document(capped)) == "2 undecided."


def test_one_interval_and_a_difference_are_said_as_they_are() -> None:
    assert effects_sentence(document([effect(Verdict.FASTER, 0.5, 0.4, 0.6, condition=CONDITIONS[0])])) == (
        "Mode 0444 / 0777: 0.50 [0.40, 0.60], faster."
    )
    higher = effect(Verdict.HIGHER, 4.0, 2.0, 8.0, condition=CONDITIONS[0], scale=Scale.DIFFERENCE, unit="1")
    assert effects_sentence(document([higher])).startswith("Mode 0444 / 0777: 4")


def test_an_invalid_trial_says_that_nothing_is_a_verdict() -> None:
    figures = list(draw_figures(document(all_equivalent(), valid=False)).every())
    assert figures[0].sentence == "The trial is invalid: no interval is a verdict."


def test_the_level_changes_as_often_as_the_diagnostics_say() -> None:
    some = panel([1.0, 2.0], [1.0, 2.0])
    assert runs_seen(some, diagnostic(3.0, 9.0)) == "The level of the blocks changes twice."
    assert runs_seen(some, diagnostic(3.0)) == "The level of the blocks changes once."
    assert runs_seen(some, diagnostic()) == "No change of level between blocks was found."
    assert runs_seen(some, diagnostic(3.0, blocks=20)) == "4 runs of 2 arms."
    assert runs_seen(some, None) == "4 runs of 2 arms."


def test_arms_rise_and_fall_together_where_their_medians_do() -> None:
    """A sawtooth of ten segments: correlation 1 if equal in both arms, -1 if inverted in one."""
    saw = [float(10 + n // 4 % 2) for n in range(40)]
    assert least_agreement(panel(saw, saw).series) == pytest.approx(1.0)
    assert least_agreement(panel(saw, [20 - v for v in saw]).series) == pytest.approx(-1.0)
    assert least_agreement(panel(saw, saw, [20 - v for v in saw]).series) == pytest.approx(-1.0)
    assert least_agreement(panel(saw, [5.0] * 40).series) is None, (
        "a level that does not move agrees with nothing"
    )
    assert least_agreement(panel(saw[:20], saw[:20]).series) is None, "two runs are no stretch"
    assert least_agreement(panel(saw).series) is None
    said = runs_seen(panel(saw, saw), diagnostic(3.0, 9.0))
    assert said == (
        "The level of the blocks changes twice, and the arms rise and fall together (their medians over time correlate by "
        "1.00)."
    )
    assert "together" not in runs_seen(panel(saw, [20 - v for v in saw]), diagnostic(3.0))


def test_distributions_are_farthest_apart_where_counting_says_so() -> None:
    """For {1, 2, 3, 4} and {3, 4, 5, 6}: half of the values of the first are at most 2, none of the second."""
    assert widest_gap(np.array([1.0, 2, 3, 4]), np.array([3.0, 4, 5, 6])) == (0.5, 2.0)
    assert distribution_seen(panel([1, 2, 3, 4], [3, 4, 5, 6])) == (
        "Medians of wall: 0777 2.5 s, 0444 4.5 s; largest gap at 2 s, which none of the runs of 0444 and 50 % of the runs "
        "of 0777 do not exceed."
    )
    assert distribution_seen(panel([1, 2], [1, 2])).endswith("; the curves coincide.")
    assert distribution_seen(panel([1, 2])) == "Medians of wall: 0777 1.5 s."


def test_latencies_name_the_middle_and_the_slowest_hundredth() -> None:
    latency, counts = np.array([100.0, 1000.0]), np.array([980.0, 20.0])
    seen = latency_seen(LatencyPanel(CONDITION, "open", ((ARMS[0], latency, counts),)))
    assert seen == "Half of the operations took at most: 0777 100 ns; 99 %: 0777 1 µs."


def test_curves_within_a_run_are_farthest_apart_where_both_last() -> None:
    """The other curve ends after 2 s, so the distance of 9 at 3 s, which only one curve reaches, does not count."""
    first = Curve(ARMS[0], np.arange(4.0), np.array([1.0, 1, 1, 1]), *(np.zeros(4),) * 2, 7)
    other = Curve(ARMS[1], np.arange(4.0)[:3], np.array([1.0, 4, 2]), *(np.zeros(3),) * 2, 7)
    assert apart(first, other) == (3.0, 1.0, 4.0, 1.0)
    seen = within_seen(WithinPanel(CONDITION, "device_busy", "device busy", "%", (first, other)))
    assert (
        seen == "At the middle of the curves: 0777 1 %, 0444 2 %; largest gap after 1 s: 0444 4 %, 0777 1 %."
    )
    assert apart(first, Curve(ARMS[1], np.array([9.0]), np.array([1.0]), np.zeros(1), np.zeros(1), 1))[0] == 0
