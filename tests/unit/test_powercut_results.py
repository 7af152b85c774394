"""What stored power cuts of a service say of a setting that is to be kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from iotrial.cli.power_cuts import Cutting, document_of
from iotrial.documents import json_text
from iotrial.knobs.declaration import Safety
from iotrial.powercut.campaign import HARMED, KINDS, RunTally, Setup, SetupTally
from iotrial.powercut.results import RESULT, results_folder, shown_to_lose
from iotrial.powercut.service import Service
from iotrial.report.document import Document, build_document
from iotrial.report.durability import harm_seen
from iotrial.report.opening import packed_document
from iotrial.study.model import Setting
from iotrial.tune.choice import _judged

BARRIER, NO_BARRIER = (Setting("mount.option", value, ()) for value in ("barrier", "nobarrier"))
NOATIME = Setting("mount.atime", "noatime", ())


def tally(level: Setting, harmed: tuple[int, ...]) -> SetupTally:
    found = SetupTally(Setup(level.value, Service(client=("true",)), levels=(level,)))
    for count in harmed:
        kinds = {**dict.fromkeys(KINDS, 0), "lost": count, HARMED: count}
        found.runs.append(RunTally(points=50, distinct=50, acknowledged=80, seconds=2.0, by_kind=kinds))
    return found


def store(number: int, *tallies: SetupTally) -> Path:
    folder = results_folder() / str(number)
    folder.mkdir(parents=True)
    (folder / RESULT).write_text(
        json_text(document_of(Cutting(tallies, "volatile", number, "./server {dir}")))
    )
    return folder


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_nothing_is_said_where_nothing_was_cut() -> None:
    assert shown_to_lose(NO_BARRIER) is None


def test_a_setting_that_lost_more_than_the_first_is_named_with_its_counts() -> None:
    store(7, tally(BARRIER, (0, 0, 0, 0)), tally(NO_BARRIER, (20, 30, 25, 25)))
    said = shown_to_lose(NO_BARRIER)
    assert said == "loses what ./server {dir} had acknowledged at 100 of 200 cut points (power cuts 7)"
    assert shown_to_lose(BARRIER) is None
    assert shown_to_lose(Setting("mount.option", "data=journal", ())) is None


@pytest.mark.parametrize("harmed", [(0, 0, 0, 1), (20, 0, 0, 0)])
def test_a_loss_that_the_runs_do_not_show_condemns_no_setting(harmed: tuple[int, ...]) -> None:
    store(1, tally(BARRIER, (0, 0, 0, 0)), tally(NO_BARRIER, harmed))
    assert shown_to_lose(NO_BARRIER) is None


def test_three_runs_are_too_few() -> None:
    store(1, tally(BARRIER, (0, 0, 0)), tally(NO_BARRIER, (40, 40, 40)))
    assert shown_to_lose(NO_BARRIER) is None


def test_the_newest_speaks_and_what_cannot_be_read_is_left_out() -> None:
    store(2, tally(BARRIER, (0, 0, 0, 0)), tally(NO_BARRIER, (10, 10, 10, 10)))
    store(10, tally(BARRIER, (0, 0, 0, 0)), tally(NO_BARRIER, (40, 40, 40, 40)))
    (store(11, tally(BARRIER, (0,))) / RESULT).write_text("{")
    said = shown_to_lose(NO_BARRIER)
    assert said is not None
    assert "power cuts 10" in said


@pytest.fixture
def trial() -> Document:
    """A trial of access times in which noatime is faster."""
    return packed_document(Path(__file__).parents[2] / "docs" / "catalogue" / "mount" / "atime.iotrial")


def store_loss_under_noatime() -> None:
    store(3, tally(Setting("mount.atime", "relatime", ()), (0, 0, 0, 0)), tally(NOATIME, (50, 50, 50, 50)))


def test_apply_takes_such_a_setting_for_one_that_puts_data_at_risk(trial: Document) -> None:
    assert _judged(NOATIME, trial, "atime", "noatime").safety is Safety.HARMLESS
    store_loss_under_noatime()
    judged = _judged(NOATIME, trial, "atime", "noatime")
    assert judged.safety is Safety.DATA_AT_RISK
    assert "in power cuts it loses what ./server {dir} had acknowledged" in judged.sentence


def test_a_report_of_this_machine_warns_where_such_a_setting_is_faster(trial: Document) -> None:
    own = replace(trial.data, trial=replace(trial.data.trial, imported=None))
    assert "Caution" not in build_document(own, trial.analysis).summary.risk
    store_loss_under_noatime()
    loses = "loses what ./server {dir} had acknowledged at 200 of 200 cut points"
    assert loses in build_document(own, trial.analysis).summary.risk
    assert list(harm_seen(own)["atime"]) == ["noatime"]
    assert harm_seen(trial.data) == {}  # of another machine
