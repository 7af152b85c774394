"""``compare_blocks`` against closed forms, and the input that it and ``audit`` refuse."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import pytest

import iotrial

#: theta and share of the stake of each bet of a comparison without a margin
SHARES = {0.15: 0.19, 0.3: 0.19, 0.6: 0.19, 1.0: 0.19, 1.6: 0.19, 2.5: 0.05}
PAIRS = Path(__file__).parents[2] / "docs" / "audits" / "permissions-raw.csv"


def p_of_signs(signs: list[int]) -> float:
    """Return the p-value of contrasts of equal size with these signs, by METHOD.md: every x / s is 1 or -1."""
    largest = 1.0
    for n in range(1, len(signs) + 1):
        capital = sum(
            share / 2 * math.prod(1 + way * math.tanh(theta) * sign for sign in signs[:n])
            for theta, share in SHARES.items()
            for way in (1, -1)
        )
        largest = max(largest, capital)
    return 1 / largest


@pytest.mark.parametrize("blocks", [1, 2, 5, 8, 13, 30])
def test_p_of_equal_contrasts_is_that_of_the_closed_form(blocks: int) -> None:
    found = iotrial.compare_blocks([2.0] * blocks, [2.1] * blocks)
    assert found.p == pytest.approx(p_of_signs([1] * blocks), rel=1e-9)
    assert found.blocks == blocks


def test_p_of_mixed_signs_is_the_smallest_of_all_looks() -> None:
    signs = [1] * 12 + [-1] * 12
    level = [2.0 * 1.05**sign for sign in signs]
    found = iotrial.compare_blocks([2.0] * 24, level)
    assert found.p == pytest.approx(p_of_signs(signs), rel=1e-9)
    assert found.p == pytest.approx(iotrial.compare_blocks([2.0] * 12, level[:12]).p, rel=1e-9)


def test_a_ratio_that_never_varies_is_found_exactly() -> None:
    found = iotrial.compare_blocks([1.0, 3.0, 0.5] * 7, [1.25, 3.75, 0.625] * 7)
    assert found.ratio == pytest.approx(1.25, rel=1e-6)
    assert found.low == pytest.approx(1.25, rel=1e-4)
    assert found.high == pytest.approx(1.25, rel=1e-4)
    assert found.detected
    assert not found.within(0.2)
    assert found.within(0.26)


def test_a_margin_that_is_given_is_excluded_sooner() -> None:
    """At a scatter of three margins, four of five such comparisons need about 145 blocks, by the aimed bet alone."""
    draw = random.Random(11)
    sooner = 0
    for _ in range(10):
        level = [draw.lognormvariate(0.0, 0.09) for _ in range(150)]
        aimed = iotrial.compare_blocks([1.0] * 150, level, margin=0.03)
        plain = iotrial.compare_blocks([1.0] * 150, level)
        if aimed.within(0.03):
            assert aimed.bounds is not None
            assert 1 / 1.03 <= aimed.bounds[0] <= aimed.bounds[1] <= 1.03
        sooner += aimed.within(0.03) - plain.within(0.03)
    assert sooner >= 3
    for wrong in ({"margin": 0.0}, {"margin": 0.03, "scale": "difference"}):
        with pytest.raises(iotrial.RequestError, match="expected a margin"):
            iotrial.compare_blocks([1.0], [1.0], **wrong)  # type: ignore[arg-type]


def test_units_do_not_matter_and_exchanging_the_two_inverts() -> None:
    draw = random.Random(5)
    a = [draw.lognormvariate(0, 0.1) for _ in range(20)]
    b = [1.3 * draw.lognormvariate(0, 0.1) for _ in range(20)]
    found = iotrial.compare_blocks(a, b)
    in_ms = iotrial.compare_blocks([1000 * one for one in a], [1000 * one for one in b])
    other = iotrial.compare_blocks(b, a)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 1.3 < found.high
    assert in_ms.p == pytest.approx(found.p)
    assert in_ms.ratio == pytest.approx(found.ratio, rel=1e-6)
    assert (other.low, other.high) == pytest.approx((1 / found.high, 1 / found.low), rel=1e-5)


def test_differences_are_in_the_unit_of_the_numbers_and_may_be_zero() -> None:
    found = iotrial.compare_blocks([0, 1, 2] * 6, [10, 11, 12] * 6, scale="difference")
    assert (found.value, found.ratio) == (pytest.approx(10.0), None)
    assert found.detected
    with pytest.raises(iotrial.RequestError, match="expected ratios"):
        found.within(0.03)


def test_few_blocks_bound_nothing_and_say_so() -> None:
    found = iotrial.compare_blocks([1.0] * 3, [1.1, 1.2, 1.15])
    assert (found.low, found.high, found.detected) == (None, None, False)
    assert "too few for an interval" in repr(found)
    nothing = iotrial.compare_blocks([], [])
    assert (nothing.blocks, nothing.p, nothing.value) == (0, 1.0, None)
    assert not nothing.within(0.5)


def test_an_effect_that_changes_is_told() -> None:
    draw = random.Random(3)
    half = [draw.lognormvariate(0, 0.01) for _ in range(60)]
    found = iotrial.compare_blocks([1.0] * 120, [*half, *(3 * one for one in half)])
    assert found.moved or found.leaning
    assert "changed" in found.sentence or "measure again" in found.sentence


@pytest.mark.parametrize(
    ("reference", "level", "said"),
    [
        ([1.0, 2.0], [1.0], "found 2 and 1"),
        ([1.0, float("nan")], [1.0, 1.0], "found nan in block 1"),
        ([1.0, 1.0], [1.0, float("inf")], "level: expected finite numbers above 0, found inf in block 1"),
        ([1.0, 0.0], [1.0, 1.0], "found 0 in block 1"),
        ([-1.0], [1.0], "found -1 in block 0"),
        ([[1.0, 2.0]], [[1.0, 2.0]], r"found shape \(1, 2\)"),
        (["fast"], ["slow"], "expected numbers"),
        ([None], [1.0], "found nan in block 0|expected numbers"),
    ],
)
def test_what_is_no_pair_of_numbers_a_block_is_refused(
    reference: list[float], level: list[float], said: str
) -> None:
    with pytest.raises(iotrial.RequestError, match=said):
        iotrial.compare_blocks(reference, level)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -1.0, float("nan")])
def test_an_alpha_that_is_none_is_refused(alpha: float) -> None:
    with pytest.raises(iotrial.RequestError, match="alpha"):
        iotrial.compare_blocks([1.0], [1.0], alpha=alpha)


def test_arrays_and_columns_of_frames_are_taken() -> None:
    pd = pytest.importorskip("pandas")
    a, b = [1.0, 1.1, 1.2] * 5, [1.2, 1.3, 1.5] * 5
    plain = iotrial.compare_blocks(a, b)
    assert iotrial.compare_blocks(np.array(a), np.array(b)) == plain
    frame = pd.DataFrame({"a": a, "b": b}, index=range(100, 115))
    assert iotrial.compare_blocks(frame["a"], frame["b"]) == plain


def test_audit_gives_the_same_of_a_file_a_frame_and_columns(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    values = {"off": [1.0, 1.1, 1.05, 1.2, 1.0], "on": [2.0, 2.1, 2.2, 1.9, 2.0]}
    rows = [(group, value) for group, numbers in values.items() for value in numbers]
    frame = pd.DataFrame(rows, columns=["group", "wall_s"])
    file = tmp_path / "it.csv"
    frame.to_csv(file, index=False)
    found = [iotrial.audit(file), iotrial.audit(frame), iotrial.audit(values, unit="s")]
    ratio = math.exp(
        sum(map(math.log, values["on"])) / 5 - sum(map(math.log, values["off"])) / 5
    )  # ratio of geometric means
    for one in found:
        assert [c.ratio for c in one.comparisons] == [pytest.approx(ratio)]
        assert one.reference == "off"
        assert one.json()["schema"] == 1
        assert one.summary in str(one)
        assert "<table" in one._repr_html_()
    assert list(found[0].comparisons.frame()["n"]) == [5]


def test_audit_says_that_one_group_was_run_before_the_other_if_the_rows_are_in_order() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {"group": ["a"] * 10 + ["b"] * 10, "wall_s": [1.0 + 0.01 * (i % 3) for i in range(20)]}
    )
    ordered = iotrial.audit(frame, order="rows")
    assert any("was run before the other" in finding for finding in ordered.findings)
    assert not any("was run before the other" in finding for finding in iotrial.audit(frame).findings)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "expected 1 to"),
        ({"a": [float("nan")]}, "found nan"),
        (3, "found int"),
        ("/nonexistent/it.csv", "read /nonexistent/it.csv"),
    ],
)
def test_what_cannot_be_audited_is_refused(data: object, said: str) -> None:
    with pytest.raises(iotrial.RequestError, match=said):
        iotrial.audit(data)  # type: ignore[arg-type]


def test_labels_of_an_audit_do_nothing_in_a_notebook() -> None:
    hostile = "<script>x</script>\x1b[31m"
    found = iotrial.audit({"off": [1.0, 1.2, 1.1], hostile: [1.0, 1.3, 1.1]})
    for written in (found._repr_html_(), found._repr_markdown_(), str(found), repr(found.comparisons)):
        assert "\x1b" not in written
    assert "<script>" not in found._repr_html_()
    assert "<script>" not in found._repr_markdown_()


def test_numbers_that_are_whole_are_taken_for_rounded_ones() -> None:
    coarse = {"off": [1.0, 1.0, 1.0, 2.0, 1.0, 2.0], "on": [2.0] * 6}
    found = iotrial.audit(coarse, unit="s")
    assert found.comparisons[0].standing == "coarse"
    assert "too coarsely" in str(found.comparisons)
    pandas = pytest.importorskip("pandas")
    rows = [{"setting": name, "time_s": x} for name, numbers in coarse.items() for x in numbers]
    assert iotrial.audit(pandas.DataFrame(rows)).comparisons[0].standing == "coarse"
