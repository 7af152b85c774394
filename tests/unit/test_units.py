"""Units: against figures worked out by hand, and as a round trip from printing to parsing."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iotrial import units
from iotrial.units import UnitError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64 B", 64),
        ("0 B", 0),
        ("4 KiB", 4096),
        ("4KiB", 4096),
        ("4 kib", 4096),
        ("1.5 GiB", 1610612736),
        (".5 KiB", 512),
        ("100KB", 100_000),
        ("100 kB", 100_000),
        ("2 GiB", 2147483648),
        ("512 bytes", 512),
        (" 10 MiB ", 10485760),
        ("1 TB", 10**12),
    ],
)
def test_sizes_are_binary_or_decimal_as_their_unit_says(text: str, size: int) -> None:
    assert units.parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5 min", 300.0),
        ("5m", 300.0),
        ("90 s", 90.0),
        ("90s", 90.0),
        ("250 ms", 0.25),
        ("250 µs", 0.00025),
        ("1 h", 3600.0),
        ("1 h 30 min", 5400.0),
        ("1h30m", 5400.0),
        ("2 d", 172800.0),
        ("1.5 min", 90.0),
        ("0.1 s", 0.1),
    ],
)
def test_durations_are_seconds(text: str, seconds: float) -> None:
    assert units.parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("value", "margin"),
    [("3 %", 0.03), ("3%", 0.03), (0.03, 0.03), ("0.03", 0.03), (".5 %", 0.005), (1, 1.0)],
)
def test_margins_are_fractions(value: str | float, margin: float) -> None:
    assert units.parse_margin(value) == margin


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("4 KIBS", '"KiB"'),
        ("4 Ki", '"KiB"'),
        ("4K", '"KiB" (1024 bytes) or "kB" (1000)'),
        ("4 m", '"MiB" (1048576 bytes) or "MB" (1000000)'),
        ("4", "add a unit"),
    ],
)
def test_an_unknown_size_unit_names_the_nearest(text: str, hint: str) -> None:
    with pytest.raises(UnitError) as caught:
        units.parse_size(text)
    assert hint in (caught.value.hint or "")


def test_an_unknown_duration_unit_names_the_nearest() -> None:
    with pytest.raises(UnitError) as caught:
        units.parse_duration("5 mins")
    assert '"min"' in (caught.value.hint or "")
    with pytest.raises(UnitError, match="in quotes"):
        units.parse_duration(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    ["", "KiB", "4 KiB x", "-4 KiB", "1 KiB 2 B", "1.5 B", "9000000 TiB", "4\u0664 B", "1e3 B", "nan B"],
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UnitError):
        units.parse_size(text)


@pytest.mark.parametrize(
    "value", [0, 0.0, -0.1, 3, "3", "0 %", "101 %", "x", float("nan"), float("inf"), True, None, 10**400]
)
def test_what_is_no_margin_is_refused(value: object) -> None:
    with pytest.raises(UnitError):
        units.parse_margin(value)  # type: ignore[arg-type]


def test_a_margin_of_three_asks_whether_per_cent_was_meant() -> None:
    with pytest.raises(UnitError) as caught:
        units.parse_margin(3)
    assert '"3 %"' in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.00123, "1.23 ms"),
        (0, "0 s"),
        (1.5e-9, "1.5 ns"),
        (0.0009999, "1 ms"),
        (0.25, "250 ms"),
        (12.345, "12.3 s"),
        (60, "60 s"),
        (119.99, "2 min"),
        (300, "5 min"),
        (303.4, "5 min 3 s"),
        (3900, "1 h 5 min"),
        (90061, "1 d 1 h"),
        (3599.7, "1 h"),
        (121225, "1 d 10 h"),
        (-0.002, "-2 ms"),
        (1e99, "1e+99 s"),
        (float("inf"), "inf s"),
    ],
)
def test_durations_are_printed_for_people(seconds: float, text: str) -> None:
    assert units.format_duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1500, "1.46 KiB"),
        (1023.9, "1 KiB"),
        (1048576, "1 MiB"),
        (5.5 * 2**40, "5.5 TiB"),
        (-2048, "-2 KiB"),
    ],
)
def test_bytes_are_printed_for_people(count: float, text: str) -> None:
    assert units.format_bytes(count) == text


@pytest.mark.parametrize(
    ("size", "text"), [(4096, "4 KiB"), (1500, "1500 B"), (0, "0 B"), (2**31, "2 GiB"), (1536, "1536 B")]
)
def test_sizes_are_printed_exactly(size: int, text: str) -> None:
    assert units.format_size(size) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0.98412, "0.984"), (1.0, "1.000"), (12.345, "12.3"), (0.01234, "0.0123"), (9.9999, "10"),
     (285_700.0, "285700"), (1.027e99, "1.03e+99"), (1e-99, "1e-99")],
)  # fmt: skip
def test_ratios_show_three_decimals_near_one(ratio: float, text: str) -> None:
    assert units.format_ratio(ratio) == text


@pytest.mark.parametrize(
    ("value", "unit", "to", "found"),
    [
        (1200.0, "ms", "s", 1.2),
        (1.5, "min", "seconds", 90.0),
        (3.0, "\u03bcs", "ns", 3000.0),
        (1.0, "MiB/s", "kB/s", 1048.576),
        (1.0, "Gbit/s", "MB/s", 125.0),
        (1.0, "KB/s", "kB/s", 1.0),
        (2.0, "disks", "disks", 2.0),
        (1.0, "s", "MB/s", None),
        (1.0, "Mb/s", "MB/s", None),  # bits or bytes
        (1.0, "m", "s", None),  # minutes or metres
    ],
)
def test_values_are_converted_inside_one_quantity_only(
    value: float, unit: str, to: str, found: float | None
) -> None:
    assert units.converted(value, unit, to) == found


def test_percentages_carry_a_sign_where_asked() -> None:
    assert units.format_percent(0.0345) == "3.45 %"
    assert units.format_percent(0.0345, signed=True) == "+3.45 %"
    assert units.format_percent(-0.5, signed=True) == "-50 %"
    assert units.format_percent(0.03) == "3 %"
    assert units.format_percent(0.00004, signed=True) == "0 %"
    assert units.format_percent(1.234) == "123 %"


@settings(deadline=None)
@given(st.integers(0, units.MAX_BYTES))
def test_a_printed_size_parses_back(size: int) -> None:
    assert units.parse_size(units.format_size(size)) == size


@settings(deadline=None)
@given(st.floats(1e-9, 1e7))
def test_a_printed_duration_parses_back_to_within_its_rounding(seconds: float) -> None:
    assert units.parse_duration(units.format_duration(seconds)) == pytest.approx(seconds, rel=0.025)


@settings(deadline=None)
@given(st.text())
def test_no_text_breaks_the_parsers_otherwise(text: str) -> None:
    for parse in (units.parse_size, units.parse_duration, units.parse_margin, units.parse_alpha):
        with contextlib.suppress(UnitError):
            assert parse(text) >= 0


@pytest.mark.parametrize(
    ("text", "rate"),
    [("100 Mbit/s", 1e8), ("1 Gbit/s", 1e9), ("2.5 gbit/s", 2.5e9), (" 64 kbit/s ", 64_000.0)],
)
def test_rates_of_a_network_are_bits_a_second(text: str, rate: float) -> None:
    assert units.parse_bit_rate(text) == rate
    assert units.parse_bit_rate(units.format_bit_rate(rate)) == rate


@pytest.mark.parametrize("text", ["100", "100 Mbit", "100 MB/s", "", "1 Gbit/s 5 Mbit/s", "-1 Mbit/s", 100])
def test_what_is_no_rate_of_a_network_is_refused(text: str) -> None:
    with pytest.raises(UnitError):
        units.parse_bit_rate(text)
