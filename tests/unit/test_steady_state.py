"""The SNIA's rule of steady state: against the closed form and numpy's fit, in words, and without any effect on a verdict."""

from __future__ import annotations

import io

import numpy as np
import pytest
from report_fixtures import all_equivalent, document, study
from rich.console import Console

from iotrial.report.conditions import ConditionText
from iotrial.report.diagnostics import ArmState, steady_sentence
from iotrial.report.document import Document
from iotrial.report.jsonreport import report_json
from iotrial.report.render import print_report
from iotrial.stats import steady_state as rule
from iotrial.stats.steady_state import FEWEST, SteadyState, steady_state
from iotrial.study.model import Factor, Level, Role, Setting
from iotrial.study.places import LAB_DEVICE


def rounds(*values: float, each: int = 2) -> np.ndarray:
    return np.repeat(np.array(values), each)


def judged(values: np.ndarray) -> SteadyState:
    found = steady_state(values)
    assert found is not None
    return found


def test_range_and_slope_are_shares_of_the_average() -> None:
    """Rounds of 90, 100, 110, 100, 100: the line rises by 2 a round, 8 over the window."""
    found = judged(rounds(90, 100, 110, 100, 100))
    assert (found.runs, found.range, found.slope) == (10, pytest.approx(0.2), pytest.approx(0.08))


def test_the_slope_is_that_of_a_least_squares_fit() -> None:
    values = np.random.default_rng(1).uniform(1, 2, 50)
    means = values.reshape(5, 10).mean(axis=1)
    line = np.polyval(np.polyfit(range(5), means, 1), [0, 4])
    assert judged(values).slope == pytest.approx((line[1] - line[0]) / means.mean())
    assert judged(1e300 * values).slope == pytest.approx(judged(values).slope)


@pytest.mark.parametrize(
    ("values", "steady"),
    [
        (rounds(100, 100, 100, 100, 100), True),
        (rounds(100, 120, 100, 100, 100), True),  # 20 of 104
        (rounds(100, 122, 100, 100, 100, each=9), False),  # 22 of 104.4
        (rounds(96, 98, 100, 102, 104), True),
        (rounds(94, 97, 100, 103, 106), False),  # a range of 12 %, but it rises all the time
        (rounds(106, 103, 100, 97, 94), False),
    ],
)
def test_both_limits_count(values: np.ndarray, *, steady: bool) -> None:
    assert judged(values).steady is steady


def test_what_scatters_within_a_round_is_averaged() -> None:
    assert judged(np.tile([60.0, 140.0], 10)).steady


@pytest.mark.parametrize("values", [np.ones(FEWEST - 1), np.append(np.ones(20), 0.0), np.full(20, np.inf)])
def test_too_few_runs_and_impossible_values_are_not_judged(values: np.ndarray) -> None:
    assert steady_state(values) is None


def screen(made: Document, *, full: bool) -> str:
    out = io.StringIO()
    print_report(made, Console(file=out, width=100), full=full)
    return out.getvalue()


def test_only_work_that_reaches_the_device_is_judged_by_its_reference() -> None:
    """In the fixture two of four conditions read 40 KiB a run."""
    made = document(all_equivalent(), runs={"blocks": 20})
    assert [(one.condition.levels["cache"], one.arm, one.response) for one in made.steady] == [
        ("cold", "0777", "wall"),
        ("cold", "0777", "wall"),
    ]
    assert [one["runs"] for one in report_json(made)["diagnostics"]["steady_state"]] == [20, 20]
    said = "Steady state (SNIA, five rounds)"
    assert said in screen(made, full=True)
    assert said not in screen(made, full=False)
    assert document(all_equivalent(), runs={"blocks": 8}).steady == ()


def test_of_devices_compared_each_is_judged() -> None:
    levels = tuple(Level(name, (Setting(LAB_DEVICE, name),)) for name in ("disk", "ssd"))
    of = study(treatment=Factor("device", Role.TREATMENT, levels, "disk", ("disk", "ssd")))
    made = document([], of=of, runs={"blocks": 20})
    assert sorted(one.arm for one in made.steady) == ["disk", "disk", "ssd", "ssd"]


def test_no_verdict_depends_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for limit in (0.0, 9.0):
        monkeypatch.setattr(rule, "MOST_RANGE", limit)
        monkeypatch.setattr(rule, "MOST_SLOPE", limit)
        made = document(all_equivalent(), runs={"blocks": 20})
        numbers = report_json(made)
        said = [one["steady"] for one in numbers["diagnostics"].pop("steady_state")]
        found.append((numbers, screen(made, full=False), said))
    (strict, first, no), (lax, other, yes) = found
    assert (no, yes) == ([False, False], [True, True])
    assert (strict, first) == (lax, other)


def state(steady: bool, spread: float, slope: float, *, filesystem: str = "", arm: str = "on") -> ArmState:
    parts = (("filesystem", filesystem),) if filesystem else ()
    condition = ConditionText(filesystem, "write", dict(parts), parts)
    return ArmState(condition, arm, "wall", SteadyState(steady, 20, spread, slope))


def test_the_words_name_what_is_widest() -> None:
    assert steady_sentence([state(True, 0.041, -0.012)]) == "yes, range 4.1 %, slope -1.2 %"
    four = [state(True, 0.1, 0.01, filesystem="ext4"), state(True, 0.04, -0.05, filesystem="xfs")]
    assert steady_sentence(four) == "yes in all 2, range ≤ 10.0 %, slope ≤ 5.0 %"
    four += [state(False, 0.31, 0.122, filesystem="btrfs"), state(False, 0.25, 0.2, filesystem="f2fs")]
    assert steady_sentence(four) == "no in 2 of 4, widest in filesystem btrfs: range 31.0 %, slope +12.2 %"
    devices = [state(True, 0.1, 0.0, arm="disk"), state(False, 0.3, 0.0, arm="ssd")]
    assert steady_sentence(devices) == "no in 1 of 2, widest in ssd: range 30.0 %, slope +0.0 %"
