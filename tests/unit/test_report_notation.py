"""Numbers and labels as a report writes them."""

from __future__ import annotations

import pytest
from report_fixtures import study

from iotrial.report.conditions import Conditions, parse_key
from iotrial.report.notation import (
    about,
    bracketed,
    capitalised,
    counted,
    elided,
    joined,
    named_level,
    percent,
    quantity,
    some,
)
from iotrial.terminal import escape


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (1.001, 0.992, 1.010, "1.001 [0.992, 1.010]"),
        (0.53, 0.50, 0.56, "0.53 [0.50, 0.56]"),
        (1.9, 1.7, 2.1, "1.9 [1.7, 2.1]"),
        (1.10, None, 1.6, "1.10 […, 1.60]"),
        (None, None, None, "? [no interval yet]"),
        (130.0, 100.0, 170.0, "130 [100, 170]"),
    ],
)
def test_an_interval_is_rounded_to_the_digits_that_it_carries(
    value: float | None, low: float | None, high: float | None, text: str
) -> None:
    assert bracketed(value, low, high) == text


def test_an_end_beside_one_is_never_printed_as_one() -> None:
    assert bracketed(0.97, 0.94, 0.9996) == "0.970 [0.940, 0.9996]"


def test_a_ratio_is_never_printed_as_nothing() -> None:
    assert bracketed(0.7, 0.0412, 6.5) == "0.7 [0.04, 6.5]"


@pytest.mark.parametrize(
    ("numbers", "unit", "text"),
    [
        ((542_402.7, 509_952.0, 599_932.0), "bytes", "530 [498, 586] KiB"),
        ((-3 * 2**30, -4 * 2**30, -(2**31)), "bytes", "-3.0 [-4.0, -2.0] GiB"),
        ((-700.0, -800.0, 600.0), "bytes", "-700 [-800, 600] bytes"),
        ((0.0021, 0.0018, 0.0024), "s", "2.1 [1.8, 2.4] ms"),
        ((2100.0, 1800.0, 2400.0), "ns", "2.1 [1.8, 2.4] µs"),
        ((0.0021, None, None), "s", "2.10 [no interval yet] ms"),
        ((3_000_000.0, 2_000_000.0, None), "bytes/s", "2.86 [1.91, …] MiB/s"),
        ((12.0, 10.0, 14.0), "requests", "12.0 [10.0, 14.0] requests"),
        ((12.0, 10.0, 14.0), "1", "12.0 [10.0, 14.0]"),
        ((0.0, 0.0, 0.0), "bytes", "0.0 [0.0, 0.0] bytes"),
    ],
)
def test_a_difference_has_the_unit_that_suits_the_largest_of_its_numbers(
    numbers: tuple[float | None, float | None, float | None], unit: str, text: str
) -> None:
    assert bracketed(*numbers, null=0.0, unit=unit) == text


def test_control_characters_and_marks_of_direction_are_shown_instead_of_obeyed() -> None:
    assert escape("a\x1b[31mb") == "a\\x1b[31mb"
    assert escape("abc\u202edef") == "abc\\u202edef"
    assert escape("line\nbreak") == "line\\x0abreak"
    assert escape("größe 读 é") == "größe 读 é"


def test_a_long_label_loses_its_middle() -> None:
    assert elided("abcdefghij", 5) == "ab…ij"
    assert elided("abcde", 5) == "abcde"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.00021, "s", "210 µs"),
        (1500.0, "ns", "1.5 µs"),
        (40960.0, "bytes", "40 KiB"),
        (40960.0, "bytes/s", "40 KiB/s"),
        (3.0, "1", "3"),
        (12345.0, "1", "12,345"),
        (2.5e6, "1", "2.5e+06"),
        (float("nan"), "s", "–"),
        (None, "s", "–"),
    ],
)
def test_a_quantity_has_the_unit_that_suits_its_size(value: float | None, unit: str, text: str) -> None:
    assert quantity(value, unit) == text


def test_small_words_around_numbers() -> None:
    assert counted(1, "block") == "1 block"
    assert counted(100_000, "run") == "100,000 runs"
    assert joined(["a", "b", "c"]) == "a, b and c"
    assert joined(["a"]) == "a"
    assert some(["a", "b", "c"], 1) == ["a", "2 more"]
    assert some(["a", "b"], 2) == ["a", "b"]
    assert percent(0.03) == "3 %"
    assert percent(0.025) == "2.5 %"
    assert percent(0.0007) == "0.07 %"


def test_a_name_at_the_start_of_a_sentence_stays_as_it_is_written() -> None:
    assert capitalised("level 6 is slower") == "Level 6 is slower"
    assert capitalised("read_ahead_kb 1024 is slower") == "read_ahead_kb 1024 is slower"


def test_a_condition_reads_in_the_order_of_the_study_and_hides_an_only_workload() -> None:
    conditions = Conditions(study())
    assert conditions.of_key("cache=warm,size=10 KiB,workload=probe").text == "cache warm, size 10 KiB"
    assert conditions.of_levels({"size": "4 KiB", "cache": "cold"}, "probe").text == "cache cold, size 4 KiB"
    assert conditions.of_levels({}, "probe").text == "all conditions"


def test_labels_that_hold_separators_come_back_from_a_key() -> None:
    assert parse_key("a=x\\,y\\=z,workload=probe") == {"a": "x,y=z", "workload": "probe"}


@pytest.mark.parametrize(
    ("low_s", "high_s", "text"),
    [
        (34.0, 68.0, "34 to 68 s"),
        (425.0, 850.0, "7 to 14 min"),
        (223.0, 446.0, "3.7 to 7.4 min"),
        (4 * 3600.0, 8 * 3600.0, "4 to 8 h"),
        (63000.0, 126000.0, "18 to 35 h"),
        (2 * 86400.0, 4 * 86400.0, "2 to 4 d"),
        (1.0, 1.2, "1 to 1.2 s"),
    ],
)
def test_a_forecast_is_rounded_to_what_it_can_know(low_s: float, high_s: float, text: str) -> None:
    assert about(low_s, high_s) == text


@pytest.mark.parametrize(
    ("factor", "level", "text"),
    [
        ("mode", "0444", "mode 0444"),
        ("barrier", "nobarrier", "nobarrier"),
        ("data", "data=journal", "data=journal"),
        ("fs", "fs=xfs", "fs=xfs"),
        ("fs", "xfs", "fs xfs"),  # too short a name to be recognised inside another word
        ("Commit", "commit=30", "commit=30"),
    ],
)
def test_a_level_that_contains_its_factor_is_named_once(factor: str, level: str, text: str) -> None:
    assert named_level(factor, level) == text
