"""Interim means of a running fleet: computed from sums alone, equal to those of the final report."""

from __future__ import annotations

from pathlib import Path

import pytest
from fleet_stores import FLEET, add_host

from iotrial.cli.fleet_view import Table, so_far, table
from iotrial.fleet.batch import Position, Stage, tail
from iotrial.fleet.conduct import HostStanding, Phase, Standing
from iotrial.fleet.interim import Interim, SoFar
from iotrial.fleet.report.words import mean_words
from iotrial.fleet.verdict import report_of
from iotrial.report.text import Console
from iotrial.store import Store
from values import replace

RATIOS = (0.7, 0.8, 0.9, 1.1)


def test_means_so_far_are_those_of_the_report(tmp_path: Path) -> None:
    path, interim = tmp_path / "trials.db", Interim()
    with Store.open(path) as store:
        for number, ratio in enumerate((*RATIOS, 0.5)):
            blocks = 12 if ratio in RATIOS else 5  # too few to be averaged
            add_host(store, number, ratio=ratio, blocks=blocks)
            interim.take_up(f"h{number}", store.data(number + 1))
    (one,) = report_of(path)[0].comparisons
    assert interim.means() == (SoFar("f b / a", mean_words(one), 4),)


def test_blocks_that_come_in_batches_count_once_as_those_of_the_store_do(tmp_path: Path) -> None:
    batched, taken_up = Interim(), Interim()
    for number, ratio in enumerate(RATIOS):
        path = tmp_path / f"{number}.db"
        with Store.open(path) as store:
            add_host(store, number, ratio=ratio, blocks=12, failing=True)  # block 3 gives no contrast
            taken_up.take_up(f"h{number}", store.data(1))
        first = tail(path, Position(), Stage.GOING)
        batched.add(f"h{number}", replace(first, runs=first.runs, ends=first.ends[:5]), 5)
        assert batched.means() == ()  # five blocks of each
    for number in range(len(RATIOS)):
        path = tmp_path / f"{number}.db"
        batched.add(f"h{number}", tail(path, Position(1, 3, 0), Stage.GOING), 7)  # two of them came before
        batched.add(f"h{number}", tail(path, Position(1, 3, 0), Stage.GOING), 0)
    assert batched.means() == taken_up.means()
    assert [one.hosts for one in batched.means()] == [4]


def _standing(hosts: int, so: tuple[SoFar, ...]) -> Standing:
    found = [HostStanding(f"h{number}", Phase.MEASURING, 9) for number in range(hosts)]
    return Standing(FLEET, "example", 61.4, found, so, 9)


def test_the_live_table_has_the_means_below_the_hosts_within_its_width_and_height(
    capsys: pytest.CaptureFixture[str],
) -> None:
    so = (SoFar("f b / a (" + "x" * 200 + ")", "0.854 [0.740, 0.985]", 1000), SoFar("g", "1.0 [0.5, 2]", 3))
    lines = so_far(_standing(2, so), width=79)
    assert max(map(len, lines)) <= 79
    assert "0.854 [0.740, 0.985]  1,000 hosts" in lines[2]
    assert lines[-1] == "and 9 further comparisons"
    assert so_far(_standing(2, ()), width=79) == []
    assert table(_standing(2, so), width=79)[0] == "example, 61 s: 2 hosts, 18 blocks; 2 measuring"
    Table(Console(stderr=True, width=80, height=24)).update(_standing(500, so))
    drawn = capsys.readouterr().err.splitlines()
    assert len(drawn) <= 23
    assert sum("more" in line for line in drawn) == 1
    assert any("0.854" in line for line in drawn)
    Table(Console(stderr=True, width=80, height=10)).update(_standing(500, so))
    low = capsys.readouterr().err.splitlines()
    assert len(low) <= 9
    assert not any("0.854" in line for line in low)
