"""Changes of level in reports: in words, as JSON numbers, and within runs."""

from __future__ import annotations

import numpy as np
from report_fixtures import diagnostics

from iotrial.design.model import ArmKind
from iotrial.report.diagnostics import diagnostic_sentences
from iotrial.report.series import Arm
from iotrial.report.within import POINTS, _curve
from iotrial.stats.model import LevelChange
from values import replace

PLAIN = diagnostics()[0]


def test_a_change_is_described_with_its_time_and_its_size() -> None:
    (sentence,) = diagnostic_sentences(replace(PLAIN, changes=(LevelChange(2040.0, 2.0, None),)))
    assert "after 34 min by +100.0%" in sentence
    (sentence,) = diagnostic_sentences(replace(PLAIN, changes=(LevelChange(60.0, None, -1024.0),)))
    assert "by -1.02e+03" in sentence


def test_only_what_a_reader_acts_on_is_described() -> None:
    assert PLAIN.drift_per_hour is not None
    assert not diagnostic_sentences(PLAIN)
    (sentence,) = diagnostic_sentences(replace(PLAIN, bimodality=0.7))
    assert "two clusters" in sentence


def test_within_runs_it_is_the_median_of_the_runs_that_changes() -> None:
    rng = np.random.default_rng(8)
    at_s = np.arange(120) + 0.5
    arm = Arm("a", "a", ArmKind.TREATMENT, 0)
    steps = [{"at_s": at_s, "rate": np.where(at_s < 70, 100.0, 60.0) + rng.standard_normal(120)}] * 3
    curve = _curve(arm, steps, "rate", 2.0, POINTS)
    assert curve is not None
    [(when, before, after)] = curve.changes
    assert when == 70.5
    assert (round(before / 2), round(after / 2)) == (100, 60)
    short = _curve(arm, [{"at_s": at_s[:50], "rate": steps[0]["rate"][:50]}], "rate", 1.0, POINTS)
    assert short is not None
    assert short.changes == ()
