"""Effects over time: a change of level is found where one was simulated, and too few trials are reported as such."""

from __future__ import annotations

import math
import random
import re
from xml.etree import ElementTree

import pytest
from report_fixtures import effect

from iotrial.stats.change_points import FEWEST
from iotrial.stats.model import Effect, Verdict
from iotrial.store.outline import Outline
from iotrial.store.states import TrialState
from iotrial.study.model import Scale
from iotrial.web.figures import NARROW, WIDE, Axis, Mark, forest, timeline
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


def test_an_axis_of_ratios_is_the_same_way_up_and_down() -> None:
    axis = Axis.of(
        [Mark(2.0, 1.0, 4.0, "", "", ""), Mark(0.5, 0.25, 1.0, "", "", "")], log=True, unit="", margin=0.03
    )
    assert axis.place(1.0) == pytest.approx(0.5)
    assert axis.place(4.0) - axis.place(2.0) == pytest.approx(axis.place(2.0) - axis.place(1.0))
    assert axis.place(4.0) == pytest.approx(1 - 0.05 / 1.1)  # 5 % of its span is left free on both sides
    assert 0.0 < axis.place(0.25) < axis.place(4.0) < 1.0


@pytest.mark.parametrize(
    "values", [[], [(None, None, None)], [(1.0, 1.0, 1.0)], [(0.0, -1.0, math.inf)], [(1e300, 1e-300, None)]]
)
def test_marks_without_numbers_or_with_wild_ones_are_drawn_within_the_figure(
    values: list[tuple[float | None, float | None, float | None]],
) -> None:
    marks = [Mark(*three, "faster", "a", "b") for three in values]
    for log in (True, False):
        axis = Axis.of(marks, log=log, unit="s", margin=0.03)
        for width in (WIDE, NARROW):
            for drawn in (
                timeline(marks, axis, changes=[1], width=width, label="x"),
                forest([("t", marks)], axis, width=width, label="x"),
            ):
                svg = ElementTree.fromstring(str(drawn))
                for circle in svg.iter("circle"):
                    assert 0 <= float(circle.get("cx", "nan")) <= width
                assert "nan" not in str(drawn)
                assert "inf" not in str(drawn)


def test_an_end_without_bound_is_an_arrow_and_no_end() -> None:
    bounded, open_ = Mark(1.0, 0.9, 1.1, "", "", ""), Mark(1.0, None, 1.1, "", "", "")
    axis = Axis.of([bounded, open_], log=True, unit="", margin=0.0)

    def paths(mark: Mark) -> list[str]:
        svg = ElementTree.fromstring(str(forest([("", [mark])], axis, width=WIDE, label="")))
        (group,) = [g for g in svg.iter("g") if "mark" in str(g.get("class"))]
        return [str(path.get("d")) for path in group.iter("path")]

    assert [d.count("L") for d in paths(bounded)] == [1, 1, 1]
    assert [d.count("L") for d in paths(open_)] == [1, 2, 1]


def test_no_label_becomes_markup() -> None:
    attack = "\"><script>alert(1)</script><img src=x onerror=y>'"
    marks = [Mark(1.0, 0.5, 2.0, attack, attack, attack, href="/trials/1", word=attack)]
    log = Axis.of(marks, log=True, unit=attack, margin=0.03)
    linear = Axis.of(marks, log=False, unit=attack, margin=0.03)
    for drawn in (
        timeline(marks, linear, changes=[], width=WIDE, label=attack),
        forest([(attack, marks)], log, width=WIDE, label=attack),
    ):
        tags = {one.tag for one in ElementTree.fromstring(str(drawn)).iter()}
        assert tags <= {"svg", "g", "a", "path", "circle", "rect", "text", "title"}
