"""Published tables with repeats: transcribed as printed, and audited as hand calculation and scipy have it."""

from __future__ import annotations

import csv
import math
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from iotrial.audits.audit import RUNS, audit
from iotrial.audits.importers import read
from iotrial.audits.importers.contract import ReadOptions, open_source
from iotrial.audits.model import Audit, ModeCounts, Standing
from iotrial.errors import RequestError

TABLES = Path(__file__).parents[2] / "docs" / "audits"


def published(name: str, **options: object) -> Audit:
    file = TABLES / f"{name}.csv"
    return audit(read([open_source(file, name=file.name, label=None, alone=True)], ReadOptions(**options)))


def rows_of(name: str) -> list[dict[str, str]]:
    lines = (TABLES / f"{name}.csv").read_text().splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def runs_of(row: dict[str, str]) -> list[float]:
    return [float(row[f"run{i}"]) for i in (1, 2, 3)]


def shared_intervals(name: str, group: str, reference: str) -> Iterator[tuple[float, float, float]]:
    """Yield the ratio and scipy's Welch interval on logarithms, the level shared by all comparisons of the table."""
    blocks: dict[tuple[str, ...], dict[str, list[float]]] = defaultdict(dict)
    columns = [one for one in ("machine", "kernel", "ram_gb", "device", "scheduler") if one != group]
    for row in rows_of(name):
        blocks[tuple(row[one] for one in columns)][row[group]] = [math.log(x) for x in runs_of(row)]
    pairs = [
        (values, block[reference])
        for block in blocks.values()
        for label, values in block.items()
        if label != reference
    ]
    for a, b in pairs:
        low, high = stats.ttest_ind(a, b, equal_var=False).confidence_interval(1 - 0.05 / len(pairs))
        yield math.exp(np.mean(a) - np.mean(b)), math.exp(low), math.exp(high)


# the sums that the articles print below their tables, over all schedulers and runs
@pytest.mark.parametrize(
    ("table", "values", "totals"),
    [
        ("gzip", 72, [442.32, 312.32, 823.47, 703.67, 875.96, 746.61]),
        (
            "compile",
            126,
            [
                136.12,
                141.52,
                254.20,
                254.46,
                135.07,
                143.68,
                128.66,
                132.80,
                93.18,
                98.81,
                91.94,
                92.45,
                109.73,
                117.61,
            ],
        ),
        ("scheduler-buffered", 72, [976.52, 674.98, 1196.87, 646.51, 759.89, 670.82, 662.18, 670.25]),
        ("scheduler-atom", 18, [9 * 149.28, 9 * 73.45]),  # printed as means of nine
    ],
)
def test_the_runs_add_up_to_the_printed_totals(table: str, values: int, totals: list[float]) -> None:
    sums: dict[tuple[str, ...], float] = defaultdict(float)
    for row in rows_of(table):
        sums[row["machine"], row["kernel"], row["ram_gb"], row["device"]] += math.fsum(runs_of(row))
    rounding = 9 * 0.005 if table == "scheduler-atom" else 0.005
    assert list(sums.values()) == pytest.approx(totals, abs=rounding + 1e-9)
    assert 3 * len(rows_of(table)) == values


@pytest.mark.parametrize(
    ("table", "group", "reference", "different"),
    [
        ("gzip", "device", "sata-raid1", 10),
        ("gzip", "scheduler", "noop", 0),
        ("compile", "scheduler", "noop", 0),
        ("compile", "device", "sata-raid1", 2),
        ("scheduler-buffered", "scheduler", "noop", 2),
        ("scheduler-atom", "scheduler", "noop", 0),
    ],
)
def test_comparisons_are_those_of_scipy(table: str, group: str, reference: str, different: int) -> None:
    found = published(table, group=group, reference=reference)
    expected = list(shared_intervals(table, group, reference))
    assert [(one.ratio, one.shared.low, one.shared.high) for one in found.comparisons] == [
        pytest.approx(one, rel=1e-6) for one in expected
    ]
    assert sum(low > 1 or high < 1 for _, low, high in expected) == different
    assert sum(one.standing is Standing.APART for one in found.comparisons) == different


def test_an_ssd_read_in_two_modes_and_half_the_schedulers_runs_met_the_slow_one() -> None:
    (ssd,) = (one for one in published("scheduler").modes if one.condition["device"] == "ssd")
    assert ssd.condition == {"machine": "quadcore", "kernel": "2.6.31", "device": "ssd"}
    assert ssd.low == pytest.approx((101.67 * 101.65 * 101.12 * 101.66) ** (1 / 4))
    assert ssd.high == pytest.approx((144.79 * 144.42 * 125.20 * 144.35 * 144.39) ** (1 / 5))
    assert ssd.by_group == {"noop": ModeCounts(1, 2), "cfq": ModeCounts(1, 2), "deadline": ModeCounts(2, 1)}


@pytest.mark.parametrize("table", ["scheduler-buffered", "scheduler-atom", "gzip"])
def test_tables_without_modes_have_none(table: str) -> None:
    # buffered: one mirror has two rates, but each scheduler met one only, so that it may be an effect
    assert published(table).modes == ()


def test_the_two_rates_of_the_buffered_mirror_are_those_between_which_it_alternates() -> None:
    mirror = {
        row["scheduler"]: runs_of(row)
        for row in rows_of("scheduler-buffered")
        if (row["machine"], row["device"]) == ("dualcore", "sata-raid1")
    }
    alternating = [
        x
        for row in rows_of("scheduler")
        if (row["machine"], row["kernel"], row["device"]) == ("dualcore", "2.6.31", "sata-raid1")
        for x in runs_of(row)
    ]
    slow, fast = [x for x in alternating if x < 71], [x for x in alternating if x > 71]
    assert np.mean(mirror["noop"]) == pytest.approx(np.mean(slow), rel=0.005)
    assert np.mean(mirror["cfq"] + mirror["deadline"]) == pytest.approx(np.mean(fast), rel=0.005)


def test_compilations_have_one_row_in_two_modes_and_one_row_copied() -> None:
    (modes,) = published("compile").modes
    assert modes.condition["kernel"] == "2.6.31"
    assert modes.by_group == {"noop": ModeCounts(0, 3), "cfq": ModeCounts(1, 2), "deadline": ModeCounts(1, 2)}
    rows = {(row["kernel"], row["device"], row["scheduler"]): runs_of(row) for row in rows_of("compile")}
    last = [rows["2.6.33-rc5", "sata-raid1", scheduler] for scheduler in ("noop", "deadline")]
    assert last == [[10.22, 10.28, 10.30]] * 2


def test_printed_totals_of_compilations_differ_by_more_than_the_text_says() -> None:
    blocks: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for row in rows_of("compile"):
        blocks[row["machine"], row["kernel"], row["device"]].append(math.fsum(runs_of(row)))
    spread = [max(totals) / min(totals) - 1 for totals in blocks.values()]
    assert (sum(one > 0.01 for one in spread), len(spread)) == (10, 14)
    assert max(spread) == pytest.approx(49.07 / 47.01 - 1)


# percent saved as printed: ssd, opt, opt57
MYSQL = {
    "A": (0.00, 0.00, 0.00),
    "B": (38.51, 80.91, 82.85),
    "C": (61.38, 74.48, 74.48),
    "D": (52.69, 80.65, 86.02),
    "E": (5.70, -0.67, 5.54),
    "F": (21.57, 57.97, 65.86),
    "G": (74.12, 89.40, 94.88),
    "H": (88.86, 92.47, 92.70),
}


def test_seconds_computed_back_from_printed_percentages_give_them_and_the_totals() -> None:
    rows = {row["test"]: row for row in rows_of("mysql")}
    assert rows.keys() == MYSQL.keys()
    for test, printed in MYSQL.items():
        ref = float(rows[test]["ref"])
        saved = [100 * (1 - float(rows[test][one]) / ref) for one in ("ssd", "opt", "opt57")]
        assert saved == pytest.approx(printed, abs=0.0051)
        assert (
            100 * 0.01 / ref > 2 * 0.005
        )  # a hundredth of a second more or less would print another percentage
    sums = {
        one: math.fsum(float(row[one]) for row in rows.values()) for one in ("ref", "ssd", "opt", "opt57")
    }
    assert sums["ref"] == pytest.approx(93.45)
    saved = [100 * (1 - sums[one] / sums["ref"]) for one in ("ssd", "opt", "opt57")]
    assert saved == pytest.approx([48.26, 69.06, 73.93], abs=0.0051)
    assert {one.standing for one in published("mysql").comparisons} == {Standing.SINGLE}


def test_a_database_step_measured_twice_is_an_accidental_comparison_of_equals() -> None:
    fetch = {
        one.group: one.ratio
        for one in published("database").repeats
        if one.condition.get("test") == "fetch 2495/2482 rows over the network"
    }
    assert fetch == {"hdd": pytest.approx(9.66 / 4.76), "ssd": pytest.approx(2.22 / 0.32)}


def test_the_printed_savings_of_the_opcode_cache_recompute() -> None:
    exact = [one for one in published("opcache").claims if "less" in one.claim.text]
    assert [one.recomputes for one in exact] == [True, True]
    # 8.533037 and 8.730259 s saved, as printed
    expected = [100 * 8.533037 / 16.216021, 100 * 8.730259 / 17.812893]
    assert [one.found for one in exact] == pytest.approx(expected)


def test_the_counts_on_the_page_are_those_of_the_tables() -> None:
    comparisons = []
    for table in TABLES.glob("*.csv"):
        try:
            comparisons += published(table.stem).comparisons
        except RequestError:
            assert table.stem == "nas-knobs"
    every = [one for one in comparisons if RUNS not in one.condition]
    repeated = [one for one in every if min(one.n, one.n_reference) > 1]
    excluding = [
        one for one in comparisons if one.shared.bounded and not one.shared.low < 1 < one.shared.high
    ]
    text = (TABLES.parent / "auditing.md").read_text()
    (printed,) = re.findall(r"Of (\d+) comparisons (\d+) repeat.*? At the shared level (\d+) exclude 1", text)
    assert tuple(map(int, printed)) == (len(every), len(repeated), len(excluding))
