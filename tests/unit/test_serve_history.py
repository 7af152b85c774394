"""Effects over time: a change of level is found where one was simulated, and too few trials are reported as such."""

from __future__ import annotations

import math
import random
import re
from xml.etree import ElementTree

from report_fixtures import effect

from iotrial.report.interval_charts import IntervalRow, interval_axis
from iotrial.report.progress import WindowLine
from iotrial.stats.change_points import FEWEST
from iotrial.stats.model import Effect, Verdict
from iotrial.store.outline import Outline
from iotrial.store.states import TrialState
from iotrial.study.model import Scale
from iotrial.web.figures import intervals, trials_over_time, windows_over_time
from iotrial.web.history_page import Point, changes_of, key_of
from iotrial.web.trial_list import row_of
from values import replace


def points(values: list[float], *, valid: bool = True, **changes: object) -> list[Point]:
    of = Outline(1, study="example", state=TrialState.DONE, started="2026-03-01T10:00:00+01:00")
    return [
        Point(
            row_of(replace(of, number=n + 1), None),
            replace(effect(Verdict.FASTER, value, value / 1.1, value * 1.1), **changes),  # type: ignore[arg-type]
            valid,
            "",
            0.03,
        )
        for n, value in enumerate(values)
    ]


def noise(n: int, level: float) -> list[float]:
    draw = random.Random(n)
    return [level * math.exp(draw.gauss(0, 0.02)) for _ in range(n)]


def test_a_level_that_changes_is_found_where_it_does() -> None:
    found, said = changes_of(points([*noise(60, 1.0), *noise(61, 2.0)]))
    assert [change.place for change in found] == [60]
    assert said.startswith("the level changes before trial 61 (2026-03-01): from 1")
    assert re.search(r"from (1|0\.99\d|1\.0\d*) to (2|1\.9\d|2\.0\d*) on average", said)


def test_a_place_is_counted_with_the_trials_that_say_nothing() -> None:
    values = points([*noise(60, 1.0), *noise(61, 2.0)])
    values[3:3] = points([1.0] * 5, valid=False)
    values[0:0] = [replace(one, effect=replace(one.effect, value=None)) for one in points([1.0] * 2)]
    found, said = changes_of(values)
    assert [change.place for change in found] == [67]
    assert said.startswith("the level changes before trial 61 ")


def test_a_level_that_stays_is_no_change() -> None:
    found, said = changes_of(points(noise(120, 1.5)))
    assert not found
    assert said == "none was found."


def test_too_few_trials_are_said_to_be_too_few() -> None:
    found, said = changes_of(points([*noise(20, 1.0), *noise(FEWEST - 21, 3.0)]))
    assert not found
    assert said == f"too few trials, {FEWEST - 1} of the {FEWEST} needed for a search."


def test_differences_are_not_taken_for_ratios() -> None:
    values = points([*noise(60, -5.0), *noise(60, 5.0)], scale=Scale.DIFFERENCE, unit="<b>")
    found, said = changes_of(values)
    assert [change.place for change in found] == [60]
    assert re.search(r"from -(5|4\.9\d|5\.0\d*) to (5|4\.9\d|5\.0\d*) <b>", said)


def test_effects_have_the_same_key_only_if_they_compare_the_same() -> None:
    first = effect(Verdict.FASTER, 0.5, 0.4, 0.6)
    assert key_of(first) == key_of(effect(Verdict.SLOWER, 1.5, 1.4, 1.6))
    others: list[Effect] = [
        replace(first, **change)  # type: ignore[arg-type]
        for change in (
            {"level": "x"}, {"reference": "x"}, {"factor": "x"}, {"condition": {"a": "b"}}, {"workload": "x"},
            {"response": "x"}, {"unit": "ms"}, {"kind": "pooled"}, {"scale": Scale.DIFFERENCE},
        )
    ]  # fmt: skip
    assert len({key_of(one) for one in (first, *others)}) == 10
    assert re.fullmatch("[0-9a-f]{12}", key_of(first))


def test_trials_stand_in_their_order_each_with_its_numbers_and_a_link() -> None:
    rows = [
        IntervalRow(f"2026-03-0{n}", 1.0 + n, 1.1 + n, 1.2 + n, f"trial {n}", href=f"trials/{n}")
        for n in range(1, 4)
    ]
    axis = interval_axis(rows, log=True, unit="", margin=0.03)
    for drawn in trials_over_time("x", rows, axis, changes=[1], margin=0.03, what="x"):
        svg = ElementTree.fromstring(str(drawn))
        dots = [(float(dot.get("cx", "nan")), float(dot.get("cy", "nan"))) for dot in svg.iter("circle")]
        assert len(dots) == 3
        assert dots == sorted(dots)
        assert [y for _, y in dots] == sorted((y for _, y in dots), reverse=True), "larger ratios are higher"
        links = [one.get("href") for one in svg.iter("a")]
        assert links == ["trials/1", "trials/2", "trials/3"]
        (change,) = [p for p in svg.iter("path") if p.get("class") == "rule" and p.get("stroke-dasharray")]
        assert dots[0][0] < float(re.findall(r"[\d.]+", change.get("d", ""))[0]) < dots[1][0]


def test_no_label_becomes_markup() -> None:
    attack = "\"><script>alert(1)</script><img src=x onerror=y>'"
    rows = [IntervalRow(attack, 0.5, 1.0, 2.0, attack, attack, href="/trials/1")]
    axis = interval_axis(rows, log=False, unit=attack, margin=0.03, title=attack)
    windows = [WindowLine(attack, float(n), 2.0 + n, attack, False) for n in range(3)]
    for drawn in (
        *trials_over_time("x", rows, axis, changes=[], margin=0.03, what=attack),
        *intervals(rows, margin=0.03, what=attack),
        *windows_over_time(windows, what=attack),
    ):
        tags = {one.tag for one in ElementTree.fromstring(str(drawn)).iter()}
        assert tags <= {"div", "svg", "g", "a", "path", "circle", "rect", "text", "title"}
