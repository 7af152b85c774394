"""Charts as a reader sees them: where marks and texts are, by the coordinates in the SVG."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from xml.etree import ElementTree

import numpy as np
import pytest
from report_fixtures import CONDITIONS, all_equivalent, document

from iotrial.report.axes import Axis, fitted_axis, linear_ticks, ratio_axis, share_axis, value_axis
from iotrial.report.chart import (
    FONT,
    NARROW,
    WIDE,
    Chart,
    Curve,
    Entry,
    Points,
    Rule,
    Text,
    distinct,
    fitted,
    key,
    plot,
    sheet,
    standalone,
    text_width,
)
from iotrial.report.figures import draw_figures
from iotrial.report.interval_charts import IntervalGroup, IntervalRow, interval_axis, interval_chart
from iotrial.report.race import Track, race_chart

MARGIN = 0.03


def root(chart: Chart) -> ElementTree.Element:
    return ElementTree.fromstring(chart.inline)


def texts(svg: ElementTree.Element) -> Iterator[tuple[float, float, float, float, str]]:
    """Yield each text as left, right, top, bottom, words."""
    for one in svg.iter("text"):
        words = "".join(one.itertext())
        x, y = float(one.get("x", "nan")), float(one.get("y", "nan"))
        wide = text_width(words, bold=one.get("font-weight") is not None)
        left = {"end": x - wide, "middle": x - wide / 2}.get(one.get("text-anchor", ""), x)
        yield left, left + wide, y - 9, y + 2, words


def numbers(d: str) -> list[float]:
    return [float(n) for n in re.findall(r"-?\d+(?:\.\d+)?", d)]


def drawn(rows: list[IntervalRow], *, narrow: bool = False, title: str = "") -> ElementTree.Element:
    axis = interval_axis(rows, log=True, unit="", margin=MARGIN, title="ratio")
    groups = [IntervalGroup(rows, title)]
    return root(interval_chart("x", groups, axis, margin=MARGIN, description="", narrow=narrow))


def places(svg: ElementTree.Element) -> list[tuple[float, float] | None]:
    """Return the ends of each interval's line, from left to right."""
    found: list[tuple[float, float] | None] = []
    for mark in svg.iter("g"):
        line = next((p for p in mark.iter("path") if p.get("class") == "interval"), None)
        found.append(None if line is None else (numbers(line.get("d", ""))[0], numbers(line.get("d", ""))[2]))
    return found


def ends(svg: ElementTree.Element, at: int = 0) -> list[list[float]]:
    """Return the strokes at the ends of one interval."""
    mark = list(svg.iter("g"))[at]
    path = next(p for p in mark.iter("path") if p.get("class") == "ends")
    return [numbers(piece) for piece in path.get("d", "").split("M")[1:]]


# text


@pytest.mark.parametrize("room", [90.0, 130.0, 200.0])
def test_labels_that_differ_only_in_the_middle_stay_different(room: float) -> None:
    labels = [
        f"read_ahead_kb {size} with the scheduler {name}-deadline"
        for size in (128, 1024, 16384)
        for name in ("mq", "none instead of mq", "bfq after mq")
    ]
    found = distinct(labels, room)
    assert len(set(found)) == len(labels)
    assert max(map(text_width, found)) <= room


def test_labels_in_lines_keep_all_words_if_there_is_room_and_stay_different_if_not() -> None:
    labels = ["read_ahead_kb 1024, scheduler mq-deadline", "read_ahead_kb 128, scheduler mq-deadline"]
    lines = fitted(labels, 180, 3)
    assert [" ".join(one) for one in lines] == labels
    assert all(text_width(line) <= 180 for one in lines for line in one)
    long = ["a" * 3000 + str(n) + "b" * 3000 for n in range(20)]
    cut = fitted(long, 120, 3)
    assert len({"".join(one) for one in cut}) == 20
    assert max(len(one) for one in cut) <= 3


def test_nothing_is_not_shortened() -> None:
    assert distinct(["", ""], 0.0) == ["", ""]
    rows = [IntervalRow("f01: off, on", None, None, None, levels=(0.9, 1.1))]
    words = [words for *_, words in texts(drawn(rows))]
    assert not any("…" in word for word in words)


def test_letters_of_east_asia_are_as_wide_as_high() -> None:
    assert text_width("読み取り") == pytest.approx(4 * FONT)
    assert text_width("") == 0


# axes


def test_shares_have_round_ticks() -> None:
    assert [label for _, label in share_axis(0.42).ticks] == ["0 %", "10 %", "20 %", "30 %", "40 %"]


def test_one_stray_value_does_not_flatten_the_others() -> None:
    values = np.concatenate([np.linspace(100, 110, 60), [100_000.0]])
    axis = fitted_axis(values, "1")
    assert axis.high < 200
    assert axis.share(100) < 0.1
    assert axis.share(110) - axis.share(100) > 0.25


def test_a_value_of_zero_has_no_place_on_a_logarithmic_axis() -> None:
    axis = ratio_axis(0.5, 2.0)
    assert axis.share(1.0) == pytest.approx(0.5)
    assert axis.share(0.0) < -1
    assert axis.share(-3.0) < -1


# lines and points


def test_no_line_and_no_point_leaves_the_plot() -> None:
    x = np.linspace(0, 10, 50)
    y = 5 + 40 * np.sin(x)
    marks = [
        Curve(x, y, "ink"),
        Points(x, y, "ink"),
        Curve(x, y, "ink", fill="ink"),
        Rule(99.0),
        Rule(-99.0, level=True),
    ]
    svg = root(plot("p", Axis(2, 8), Axis(0, 10), marks, description=""))
    for path in svg.iter("path"):
        if path.get("class") in ("line", None):
            found = numbers(path.get("d", ""))
            assert min(found[0::2]) >= 8 - 0.1  # nothing is left of the labels
            assert max(found[0::2]) <= 370 - 14 + 0.1
            assert min(found[1::2]) >= 10 - 0.1
            assert max(found[1::2]) <= 220 - 22 + 0.1
    assert not [p for p in svg.iter("path") if p.get("class") == "rule"]
    beyond = next(p for p in svg.iter("path") if p.get("class") == "beyond")
    assert beyond.get("d", "").count("M") > 10


def test_a_line_is_cut_where_it_crosses_the_edge() -> None:
    svg = root(plot("p", Axis(0, 10), Axis(0, 10), [Curve((0, 10), (5, 15), "ink")], description=""))
    (line,) = [p for p in svg.iter("path") if p.get("class") == "line"]
    x0, y0, x1, y1 = numbers(line.get("d", ""))
    assert (x0, x1) == pytest.approx((8, 8 + (370 - 22) / 2))
    assert (y0, y1) == pytest.approx((10 + 188 / 2, 10))


def test_nothing_that_is_not_a_number_is_drawn() -> None:
    values = np.array([1.0, math.nan, 3.0, math.inf, 4.0, 5.0])
    svg = plot("p", Axis(0, 5), Axis(0, 6), [Curve(np.arange(6.0), values, "ink"), Points(np.arange(6.0), values, "ink")],
               description="").inline  # fmt: skip
    assert "nan" not in svg
    assert "inf" not in svg


# intervals


def test_an_open_end_is_an_arrow_and_a_finite_end_outside_is_two_strokes() -> None:
    inside = [IntervalRow(f"{n}", 0.95, 1.0, 1.05) for n in range(8)]
    open_end = IntervalRow("open", 0.95, 1.0, None)
    far_end = IntervalRow("far", 0.95, 1.0, 1e6, undecided=True)
    svg = drawn([*inside, open_end, far_end])
    caps, arrow, strokes = ends(svg, 0), ends(svg, 8), ends(svg, 9)
    assert [len(piece) // 2 for piece in caps] == [2, 2]
    assert [len(piece) // 2 for piece in arrow] == [2, 3]
    assert [len(piece) // 2 for piece in strokes] == [2, 2, 2]
    right = max(place[1] for place in places(svg) if place)
    tip = arrow[1][2]
    assert tip == pytest.approx(right, abs=0.1)
    assert arrow[1][0] < tip


def test_an_interval_lies_where_its_numbers_are_on_the_axis() -> None:
    svg = drawn([IntervalRow("a", 0.5, 0.8, 1.0), IntervalRow("b", 1.0, 1.5, 2.0)])
    a, b = places(svg)
    assert a is not None
    assert b is not None
    assert a[1] == pytest.approx(b[0], abs=0.1)
    assert b[1] - b[0] == pytest.approx(a[1] - a[0], abs=0.2), "halving and doubling are as far from 1"
    ticks = {
        "".join(t.itertext()): float(t.get("x", "nan")) for t in svg.iter("text") if t.get("class") == "tick"
    }
    assert ticks["1"] == pytest.approx(a[1], abs=0.1)
    dots = [float(circle.get("cx", "nan")) for circle in svg.iter("circle")]
    assert dots[0] == pytest.approx(a[1] + (a[1] - a[0]) * math.log(0.8) / math.log(2), abs=0.2)


def test_one_uncertain_interval_does_not_flatten_the_others() -> None:
    rows = [IntervalRow(f"{n}", 0.97, 0.99 + n / 500, 1.03, undecided=True) for n in range(9)]
    alone = places(drawn(rows))[0]
    beside = places(drawn([*rows, IntervalRow("wild", 0.001, 50.0, 1e5, undecided=True)]))[0]
    assert alone is not None
    assert beside is not None
    assert beside[1] - beside[0] > 0.3 * (alone[1] - alone[0])


def test_one_huge_difference_is_cut_and_its_numbers_are_written() -> None:
    rows = [IntervalRow(f"{n}", 2.0, 3.0 + n, 9.0) for n in range(4)] + [
        IntervalRow("huge", 8e8, 9e8, 1e9, "900 MB")
    ]
    axis = interval_axis(rows, log=False, unit="bytes", margin=MARGIN)
    svg = root(interval_chart("x", [IntervalGroup(rows)], axis, margin=MARGIN, description="", narrow=False))
    first = places(svg)[0]
    assert first is not None
    assert first[1] - first[0] > 10
    assert [len(piece) // 2 for piece in ends(svg, 4)] == [2, 2, 2, 2], "two strokes for each end"
    assert "900 MB" in {words for *_, words in texts(svg)}


def test_a_decided_effect_is_inside_however_large() -> None:
    rows = [IntervalRow(f"{n}", 0.97, 1.0, 1.03) for n in range(9)]
    svg = drawn([*rows, IntervalRow("large", 0.02, 0.03, 0.04, shape="<")])
    low, high = places(svg)[-1] or (0, 0)
    (estimate,) = [p for p in svg.iter("path") if p.get("class") == "estimate"]
    assert low < numbers(estimate.get("d", ""))[0] < high


def test_no_line_runs_through_text_and_no_text_over_another() -> None:
    long = "read_ahead_kb 1024, scheduler mq-deadline, and a condition that is long: workload random, size 16 KiB"
    rows = [
        IntervalRow(f"{long} {n}", 0.9, 1.0, 1.1, "1.000 [0.900, 1.100]", "typical runs equivalent")
        for n in range(4)
    ]
    for narrow in (False, True):
        svg = drawn(rows, narrow=narrow, title=f"What {long} does")
        width = NARROW if narrow else WIDE
        boxes = list(texts(svg))
        assert {words for *_, words in boxes} >= {"1.000 [0.900, 1.100]", "typical runs equivalent"}
        for left, right, top, bottom, words in boxes:
            assert -0.1 <= left <= right <= width + 0.1, words
            for other in boxes:
                if other[4] is not words:
                    apart = right <= other[0] or other[1] <= left or bottom <= other[2] or other[3] <= top
                    assert apart, (words, other[4])
        rules = [numbers(p.get("d", "")) for p in svg.iter("path") if p.get("class") == "rule"]
        assert len(rules) == (4 if narrow else 1)
        for x, y, tall in rules:
            for left, right, top, bottom, words in boxes:
                crossed = left < x < right and top < y + tall and bottom > y
                assert not crossed, words


def test_every_row_has_its_verdict_on_a_phone() -> None:
    rows = [
        IntervalRow(f"row {n}", 0.9, 1.0, 1.1, "1.0", word)
        for n, word in enumerate(("faster", "undecided", "⚠ slower"))
    ]
    words = {words for *_, words in texts(drawn(rows, narrow=True))}
    assert {"faster", "undecided", "⚠ slower"} <= words


def test_an_interval_without_numbers_says_so() -> None:
    assert "no interval yet" in {words for *_, words in texts(drawn([IntervalRow("a", None, None, None)]))}


@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize(
    "values",
    [(None, None, None), (1.0, 1.0, 1.0), (0.0, -1.0, math.inf), (1e-300, 1e300, None), (math.nan, 1.0, 2.0)],
)
def test_wild_numbers_are_drawn_within_the_figure(values: tuple[float | None, ...], *, log: bool) -> None:
    rows = [IntervalRow("a", *values), IntervalRow("b", 0.9, 1.0, 1.1)]  # type: ignore[arg-type]
    axis = interval_axis(rows, log=log, unit="s", margin=MARGIN)
    for narrow in (True, False):
        chart = interval_chart("x", [IntervalGroup(rows)], axis, margin=MARGIN, description="", narrow=narrow)
        assert "nan" not in chart.inline
        assert "inf" not in chart.inline
        for place in places(root(chart)):
            assert place is None or 0 <= place[0] <= place[1] <= chart.width


# whole charts


def test_a_key_names_every_entry_and_stays_within_its_width() -> None:
    entries = [Entry(f"setting number {n} of this machine", f"arm-{n % 8}", "o") for n in range(9)]
    marks, height = key(entries, 0, 0, NARROW)
    svg = root(Chart("k", NARROW, height, (sheet(NARROW, height, marks),), ""))
    assert sum(words.startswith("setting") for *_, words in texts(svg)) == 9
    assert all(right <= NARROW for _, right, *_ in texts(svg))


def test_every_chart_of_a_report_keeps_its_text_inside_and_apart() -> None:
    made = document(all_equivalent(), runs={"conditions": CONDITIONS, "blocks": 40, "histograms": True})
    charts = [
        chart for figure in draw_figures(made).every() for chart in (*figure.parts, figure.narrow) if chart
    ]
    assert len(charts) > 8
    for chart in charts:
        boxes = list(texts(root(chart)))
        assert boxes
        for n, (left, right, top, bottom, words) in enumerate(boxes):
            assert -0.5 <= left <= right <= chart.width + 0.5, (chart.name, words)
            assert -1 <= top <= bottom <= chart.height + 1, (chart.name, words)
            for other in boxes[:n]:
                apart = right <= other[0] or other[1] <= left or bottom <= other[2] or other[3] <= top
                assert apart, (chart.name, words, other[4])


def test_charts_of_runs_call_the_response_wall_time() -> None:
    made = document(all_equivalent(), runs={"conditions": CONDITIONS, "blocks": 12, "histograms": False})
    for figure in draw_figures(made).every():
        if figure.stem.startswith(("runs", "distribution")):
            words = [words for *_, words in texts(root(figure.drawing))]
            assert "time" in words
            assert not any("wall" in word for word in words)


@pytest.mark.parametrize("narrow", [False, True])
def test_a_race_names_every_setting_and_early_blocks_do_not_flatten_it(narrow: bool) -> None:
    blocks = tuple(range(1, 31))
    tracks = [
        Track("none", blocks, tuple(-0.1 + 3.0 * (n == 1) for n in blocks), -0.12, -0.08, False),
        Track("mq-deadline", blocks[:9], tuple(0.05 for _ in blocks[:9]), 0.0, 0.1, True),
    ]
    svg = root(race_chart("r", tracks, narrow=narrow))
    words = {words for *_, words in texts(svg)}
    assert {"none", "mq-deadline (left)"} <= words
    ticks = [float(word) for word in words if re.fullmatch(r"[\d.]+", word)]
    assert not [tick for tick in ticks if 1.5 < tick < 2.9], "20 times in the first block is not on the axis"


def test_a_file_has_title_key_and_light_colours_and_refers_to_nothing() -> None:
    chart = plot("p", value_axis(0, 5, "s", "time"), Axis(0, 1), [Text(1, 0.5, "<b>")], description="d")
    text = standalone(
        "Title & more", "about", [chart, chart], [Entry("an arm", "arm-1", "s", "3 2")]
    ).decode()
    svg = ElementTree.fromstring(text.encode())
    words = "".join(svg.itertext())
    assert "Title & more" in words
    assert "an arm" in words
    assert "var(" not in text
    assert not re.search(r"(href|src)=", text)
    assert float(svg.get("width", "0")) == 2 * 370 + 24
    for word in ("class", "script"):
        assert f"<{word}" not in text


def test_labels_of_a_page_are_text_and_colours_follow_its_style() -> None:
    attack = '"><script>x</script>\u202e\x1b'
    page = plot(
        "p", Axis(0, 1, title=attack), Axis(0, 1), [Text(0, 0, attack, "arm-3")], description=attack
    ).inline
    assert "<script" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert 'fill="var(--arm-3)"' in page
    ElementTree.fromstring(page)


def test_ticks_are_round() -> None:
    assert linear_ticks(0.0, 1.0) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
