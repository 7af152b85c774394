"""The list of trials matches the trials as read in full, whatever happened to a trial or the clock meanwhile."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from unittest.mock import patch

import pytest
from store_examples import filled, header, planned_runs

from iotrial.store import Store
from iotrial.store import outline as module
from iotrial.store.outline import Outline, outlines
from iotrial.store.states import TrialState


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trials.db"


def as_read(path: Path) -> list[tuple[object, ...]]:
    with Store.open(path, read_only=True) as store:
        return [
            (t.number, t.header.id, t.header.study.name, t.state, t.header.started, t.duration_s, t.imported)
            for t in store.listing()[0]
        ]


def listed(path: Path) -> list[tuple[object, ...]]:
    """Return the list, without falling back to reading trials one by one."""
    with patch.object(module, "_one_by_one", side_effect=AssertionError("read one by one")):
        found, _ = outlines(path)
    return [
        (one.number, one.id, one.study, one.state, one.started, one.duration_s, one.imported) for one in found
    ]


def interrupted_and_resumed(store: Store) -> None:
    of = header("fedcba9876543210")
    store.create_trial(of)
    blocks = list(planned_runs(of, 4))
    for number, (runs, end) in enumerate(blocks):
        if number == 2:
            store.set_state(of.id, TrialState.INTERRUPTED, "Ctrl-C")
            store.set_state(of.id, TrialState.RUNNING)
        for run in runs:
            store.append_run(of.id, run)
        store.end_block(of.id, end)
    store.set_state(of.id, TrialState.DONE)


def test_whole_resumed_and_empty_trials_are_listed_as_they_are_read(path: Path) -> None:
    with Store.open(path) as store:
        filled(store)
        interrupted_and_resumed(store)
        store.create_trial(header("00000000ffffffff"))
        filled(store, header("1111111111111111"))
    with patch.object(time, "time", return_value=time.time()):  # one of them is still running
        found = listed(path)
        assert found == as_read(path)
    assert [one[3] for one in found] == ["done", "done", "running", "done"]


def test_where_the_clock_was_set_back_the_runs_are_asked_for_their_own(path: Path) -> None:
    clock = iter(range(10_000_000_000, 0, -1000))  # each call returns an earlier time
    with Store.open(path) as store, patch.object(time, "time", lambda: float(next(clock))):
        filled(store)
    with patch.object(module, "_one_by_one", wraps=module._one_by_one) as slow:
        (found,), _ = outlines(path)
    assert slow.called
    assert found.duration_s == as_read(path)[0][5]


@pytest.mark.parametrize("damaged", ["'{'", "replace(study, 'example', 'another')"])
def test_a_trial_that_cannot_be_read_is_told_and_the_others_are_listed(path: Path, damaged: str) -> None:
    with Store.open(path) as store:
        filled(store)
        filled(store, header("1111111111111111"))
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER trial_keeps_UPDATE")
    connection.execute(f"UPDATE trial SET study = {damaged} WHERE number = 1")
    connection.commit()
    connection.close()
    lost, sound = outlines(path)[0]
    assert lost.problem is not None
    assert "damaged" in lost.problem
    assert (lost.number, lost.state) == (1, None)
    assert (sound.number, sound.state) == (2, "done")


def test_there_is_nothing_to_list_where_there_is_no_store_and_none_is_made(path: Path) -> None:
    assert outlines(path) == ((), ())
    assert not path.exists()


def test_a_line_knows_the_kernel_and_the_title(path: Path) -> None:
    with Store.open(path) as store:
        filled(store)
    (one,), _ = outlines(path)
    assert isinstance(one, Outline)
    assert (one.kernel, one.title) == ("6.1", "example")  # a study without a title is listed by its name


def test_a_line_knows_the_machine_and_the_lab(path: Path) -> None:
    with Store.open(path) as store:
        filled(store)
    for found, _ in (outlines(path), outlines(path, checked=False)):
        assert (found[0].host, found[0].lab) == ({"kernel": "6.1", "memory_bytes": 2**40}, "directory")
