"""Intervals sought in several processes are those that one process finds, whatever becomes of the others."""

from __future__ import annotations

import fcntl
import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from iotrial.analysis import ahead, recall
from iotrial.analysis.ahead import find_ahead, in_processes
from iotrial.analysis.betting import Floats
from iotrial.analysis.eprocess import interval
from iotrial.analysis.model import Interval
from iotrial.analysis.recall import as_list, of_list, recalling
from iotrial.lab.lock import MachineLock, is_held
from iotrial.report import kept_intervals, opening
from iotrial.report.jsonreport import report_json
from iotrial.report.opening import document_of, processes_to_spare
from iotrial.store import Store
from iotrial.store.packed import open_packed, read_packed

PACKED = Path(__file__).parents[2] / "docs" / "catalogue" / "application" / "database-restart.iotrial"
ALPHA, MARGIN = 0.01, 0.03


class Kept(dict[bytes, Interval]):
    """A recall in memory."""

    def put(self, key: bytes, found: Interval) -> None:
        self[key] = found


@pytest.fixture(autouse=True)
def little_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "WORTH_HELP", 1)


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How long the series were that this process looked at itself; it does so only once another has found something."""
    lengths: list[int] = []

    def noted(values: Floats, alpha: float, *, margin: float) -> Interval:
        lengths.append(len(values))
        return interval(values, alpha, margin=margin)

    monkeypatch.setattr(ahead, "interval", noted)
    return lengths


def series(count: int, blocks: int = 300) -> list[tuple[Sequence[float], float, float]]:
    draw = random.Random(7)
    return [
        (tuple(draw.gauss(0.01 * place, 0.1) for _ in range(blocks)), ALPHA, MARGIN) for place in range(count)
    ]


def ends(asked: Sequence[tuple[Sequence[float], float, float]]) -> list[Interval]:
    return [interval(values, alpha, margin=margin) for values, alpha, margin in asked]


def test_a_helper_finds_what_this_process_would_find(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, kept = series(4), Kept()
    looked: list[int] = []

    def late(values: Floats, alpha: float, *, margin: float) -> Interval:
        looked.append(len(values))
        until = time.monotonic() + 60
        while (
            len(looked) == 1 and waiting[0]._found == {}
        ):  # the first is not begun before the helper found one
            assert time.monotonic() < until
            time.sleep(0.01)
        return interval(values, alpha, margin=margin)

    waiting: list[ahead._Helper] = []
    real = ahead._Helper.__enter__

    def entered(helper: ahead._Helper) -> ahead._Helper:
        waiting.append(helper)
        return real(helper)

    monkeypatch.setattr(ahead._Helper, "__enter__", entered)
    monkeypatch.setattr(ahead, "interval", late)
    with recalling(kept), in_processes(2):
        find_ahead(asked)
    assert len(waiting) == 1
    assert 1 <= len(looked) < 4
    assert len(kept) == 4
    assert waiting[0]._process.poll() is not None
    monkeypatch.setattr(recall, "WORTH_KEEPING", 10**9)  # what follows is found here
    assert ends(asked) == [
        kept[recall.key_of(ahead.np.asarray(values), alpha, margin)] for values, alpha, margin in asked
    ]


@pytest.mark.parametrize(
    "program",
    [
        "#!/bin/sh\nexit 1\n",
        "#!/bin/sh\necho 'no interval'\nexec cat\n",
        "#!/bin/sh\nwhile true; do echo '[0.5, 1.0, 0.0, 0.5, 1.0, 300, false, false, null, null]'; sleep 1; done\n",
        "#!/bin/sh\nwhile true; do echo '[0.5, 0.0, 1.0, 0.5, 1.0, 299, false, false, null, null]'; sleep 1; done\n",
        None,
    ],
    ids=["dies", "says something else", "ends crossed", "another series", "cannot be started"],
)
def test_a_helper_that_is_of_no_use_costs_nothing_but_time(
    program: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, kept = series(3), Kept()
    wanted = ends(asked)
    fake = tmp_path / "python"
    if program is not None:
        fake.write_text(program)
        fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    with recalling(kept), in_processes(3):
        find_ahead(asked)
        assert ends(asked) == wanted
    assert set(map(repr, kept.values())) == set(map(repr, wanted))


@pytest.mark.parametrize("processes", [1, 2])
def test_alone_or_without_a_place_for_them_none_is_sought(processes: int, own: list[int]) -> None:
    asked, kept = series(3), Kept()
    with recalling(kept if processes == 1 else None), in_processes(processes):
        find_ahead(asked)
    assert own == []
    assert kept == {}


def test_what_is_known_already_or_is_short_is_not_sought(own: list[int]) -> None:
    asked, kept = series(3), Kept()
    with recalling(kept), in_processes(2):
        ends(asked)
        find_ahead([*asked, *series(3, blocks=recall.WORTH_KEEPING - 1)])
    assert own == []
    assert len(kept) == 3


def test_the_report_is_the_same_with_one_process_and_with_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: list[int]
) -> None:
    for module in (ahead, recall, kept_intervals):
        monkeypatch.setattr(module, "WORTH_KEEPING", 1)
    with open_packed(PACKED) as file, Store.open(tmp_path / "trials.db") as store:
        store.unpack(read_packed(file, "it"), source="it")
    said = []
    for processes in (1, 3):
        (tmp_path / "trials.analysed").unlink(missing_ok=True)
        with Store.open(tmp_path / "trials.db", read_only=True) as store:
            said.append(json.dumps(report_json(document_of(store, "last", processes=processes))))
        assert bool(own) is (processes == 3)
    assert said[0] == said[1]


def test_an_interval_comes_back_from_its_list_digit_by_digit() -> None:
    for found in (
        *ends(series(2)),
        Interval(0.1, None, None, 1.0, 1.0, 3),
        Interval(0.1, None, None, 0.0, 1.0, 9, True),
        Interval(0.1, 0.0, 0.2, 0.5, 1.0, 40, leaning=True),
        Interval(0.0, -0.1, 0.1, 0.5, 1.0, 40, bounds=(-0.02, 0.02)),
    ):
        assert of_list(json.loads(json.dumps(as_list(found)))) == found


def test_while_a_trial_is_measuring_a_report_takes_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "lock"
    assert not is_held(lock)
    with MachineLock(lock):
        assert is_held(lock)
    assert not is_held(lock)
    with lock.open() as other:
        fcntl.flock(other, fcntl.LOCK_SH)  # somebody who only looks
        assert not is_held(lock)
    monkeypatch.setattr(opening, "is_held", lambda: True)
    assert processes_to_spare() == 1
