"""Storing trials and reading them back: acknowledged data is there, and nothing is ever changed."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_examples import header, run

from iotrial.design.model import ArmKind
from iotrial.errors import RequestError, StoreError, UnknownName
from iotrial.store import Store
from iotrial.store.model import BlockEnd, RunRecord, TrialState
from iotrial.store.schema import TABLES
from values import replace

ID = "0123456789abcdef"
KEY = "workload=w"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "trials.db")


def _end(block: int = 0, *, condition: str = KEY, void: str | None = None, gap: bool = False) -> BlockEnd:
    return BlockEnd(
        condition, block, block, controls=True, void=void, void_level="b" if void else None, gap=gap
    )


def test_trials_are_numbered_from_one_and_come_back_as_they_were(store: Store, tmp_path: Path) -> None:
    first = store.create_trial(header("aaaa", blocks=7, pid=None))
    second = store.create_trial(header("bbbb"))
    assert (first.number, second.number) == (1, 2)
    assert first.state is TrialState.RUNNING
    store.close()
    with Store.open(tmp_path / "trials.db") as again:
        trials = again.trials()
    assert [trial.header for trial in trials] == [header("aaaa", blocks=7, pid=None), header("bbbb")]


def test_a_commit_is_on_disk_when_it_returns(store: Store) -> None:
    # sqlite.org/pragma.html#pragma_synchronous: 2 is FULL, which syncs at each commit in WAL mode too
    assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_an_id_is_used_once(store: Store) -> None:
    store.create_trial(header())
    with pytest.raises(StoreError, match="UNIQUE"):
        store.create_trial(header())
    assert len(store.trials()) == 1
    assert store.create_trial(header("another")).number == 2


def test_a_run_comes_back_as_it_was(store: Store) -> None:
    store.create_trial(header())
    failed = replace(run(0, 1), failure='exit 1: "no such file"', responses={}, histograms={}, files=None)
    store.append_run(ID, run())
    store.append_run(ID, failed)
    assert store.runs_of(ID, KEY, 0) == (run(), failed)
    assert store.runs_of(ID, KEY, 1) == ()
    assert store.data("last").runs == (run(), failed)


def test_only_blocks_that_have_ended_are_blocks(store: Store) -> None:
    store.create_trial(header())
    for block, slot in ((0, 1), (0, 0), (1, 0), (1, 1), (2, 0)):
        store.append_run(ID, run(block, slot))
    store.end_block(ID, _end(1, void="cache"))
    store.end_block(ID, _end(0))
    data = store.data(1)
    assert [(block.index, block.void, block.void_level) for block in data.blocks] == [
        (1, "cache", "b"),
        (0, None, None),
    ]
    assert len(data.runs) == 5
    assert data.ends == (_end(1, void="cache"), _end(0))
    # In the order in which they were made, which here differs from the order of slots.
    assert [observation.slot for observation in data.blocks[1].observations] == [1, 0]
    observation = data.blocks[1].observations[1]
    assert (observation.arm, observation.kind, observation.treatment) == ("a", ArmKind.TREATMENT, {"f": "a"})
    assert (observation.responses, observation.started_s, observation.failure) == (
        {"wall": 0.1, "cpu": 1e-9},
        0.0,
        None,
    )


def test_conditions_do_not_mix(store: Store) -> None:
    store.create_trial(header())
    for condition in ("size=1,workload=w", "size=2,workload=w"):
        store.append_run(ID, run(0, 0, condition=condition))
    store.end_block(ID, _end(0, condition="size=2,workload=w"))
    blocks = store.data("last").blocks
    assert [(block.condition, len(block.observations)) for block in blocks] == [("size=2,workload=w", 1)]


def test_a_slot_is_measured_once(store: Store) -> None:
    store.create_trial(header())
    store.append_run(ID, run())
    with pytest.raises(StoreError, match="UNIQUE"):
        store.append_run(ID, replace(run(), responses={"wall": 9.0}))
    assert store.runs_of(ID, KEY, 0) == (run(),)


def test_a_block_that_is_over_takes_no_more_runs_and_ends_once(store: Store) -> None:
    store.create_trial(header())
    store.append_run(ID, run(0, 0))
    store.end_block(ID, _end(0))
    with pytest.raises(StoreError, match="this block is over"):
        store.append_run(ID, run(0, 1))
    with pytest.raises(StoreError, match="UNIQUE"):
        store.end_block(ID, _end(0))
    with pytest.raises(StoreError, match="no runs to end"):
        store.end_block(ID, _end(5))


def test_a_resumed_block_is_marked_as_having_a_gap(store: Store, tmp_path: Path) -> None:
    store.create_trial(header())
    store.append_run(ID, run(0, 0))
    store.close()
    with Store.open(tmp_path / "trials.db") as again:
        again.set_state(ID, TrialState.RUNNING, "resumed")
        again.append_run(ID, run(0, 1))
        again.end_block(ID, _end(0))
        again.append_run(ID, run(1, 0))
        again.end_block(ID, _end(1))
        data = again.data(ID)
    assert [(block.index, block.gap) for block in data.blocks] == [(0, True), (1, False)]
    assert data.ends[0].gap


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_response_that_is_not_a_number_is_refused(store: Store, value: float) -> None:
    store.create_trial(header())
    with pytest.raises(StoreError, match="cannot be stored"):
        store.append_run(ID, replace(run(), responses={"wall": value}))
    assert store.data("last").runs == ()


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("verb", ["UPDATE {} SET rowid = 99", "DELETE FROM {}"])
def test_nothing_stored_can_be_changed_by_any_statement(
    store: Store, tmp_path: Path, table: str, verb: str
) -> None:
    store.create_trial(header())
    store.append_run(ID, run())
    store.end_block(ID, _end())
    store.note(ID, "host", "throttled")
    store.close()
    foreign = sqlite3.connect(tmp_path / "trials.db")
    assert foreign.execute(f"SELECT count(*) FROM {table}").fetchone()[0] == 1
    with pytest.raises(sqlite3.IntegrityError, match="never changed"):
        foreign.execute(verb.format(table))
    foreign.close()


def test_a_trial_is_found_by_number_id_prefix_or_as_the_last(store: Store) -> None:
    for trial_id in ("abc1", "abd2", "77ff", "2222"):
        store.create_trial(header(trial_id))
    assert [store.find(ref).number for ref in (1, "1", "abc1", "abc", "abd", "last", " 3 ", "77")] == [
        1,
        1,
        1,
        1,
        2,
        4,
        3,
        3,
    ]
    assert store.find("2").number == 2  # a number takes precedence over the prefix of an id
    assert store.find("22").number == 4
    with pytest.raises(RequestError, match="several trials begin with"):
        store.find("ab")
    for missing in ("", "9", "0", "zz", "%", "abc12"):
        with pytest.raises(UnknownName):
            store.find(missing)


def test_an_empty_store_says_how_to_fill_it(store: Store) -> None:
    assert store.trials() == ()
    with pytest.raises(UnknownName, match="has no trials yet") as caught:
        store.find("last")
    assert "iotrial run" in (caught.value.hint or "")
    with pytest.raises(UnknownName):
        store.append_run("nobody", run())


def test_states_follow_each_other_and_the_newest_counts(store: Store) -> None:
    store.create_trial(header())
    assert store.find(ID).state is TrialState.RUNNING  # this process conducts it and is alive
    store.set_state(ID, TrialState.INTERRUPTED, "SIGINT")
    store.set_state(ID, TrialState.RUNNING)
    store.set_state(ID, TrialState.INVALID, "the negative control failed")
    trial = store.find(ID)
    assert (trial.state, trial.reason) == (TrialState.INVALID, "the negative control failed")


def test_a_trial_whose_conductor_is_gone_is_interrupted(store: Store) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    store.create_trial(header("gone", pid=child, pid_started="boot/1"))
    trial = store.find("gone")
    assert trial.state is TrialState.INTERRUPTED
    assert "ended without recording a reason" in (trial.reason or "")
    store.set_state("gone", TrialState.RUNNING, "resumed by this process")
    assert store.find("gone").state is TrialState.RUNNING


def test_notes_are_kept_in_order(store: Store) -> None:
    store.create_trial(header())
    store.note(ID, "warning", "the machine throttled")
    store.note(ID, "hint", "a second thing")
    assert [(event.kind, event.text) for event in store.events(ID)] == [
        ("warning", "the machine throttled"),
        ("hint", "a second thing"),
    ]
    assert store.events(ID)[0].at.endswith("Z")


def test_observations_are_plain_json_for_any_other_tool(store: Store, tmp_path: Path) -> None:
    store.create_trial(header())
    store.append_run(ID, run())
    foreign = sqlite3.connect(tmp_path / "trials.db")
    responses, wall = foreign.execute(
        "SELECT responses, json_extract(responses, '$.wall') FROM run"
    ).fetchone()
    assert json.loads(responses) == {"wall": 0.1, "cpu": 1e-9}
    assert wall == 0.1
    foreign.close()


def test_a_reader_sees_whole_runs_while_a_conductor_adds_more(store: Store, tmp_path: Path) -> None:
    store.create_trial(header())
    with Store.open(tmp_path / "trials.db", read_only=True) as reader:
        for block in range(20):
            store.append_run(ID, run(block, 0))
            store.end_block(ID, _end(block))
            assert len(reader.data("last").blocks) == block + 1
        with pytest.raises(StoreError, match="readonly"):
            reader.note(ID, "x", "y")


_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
_number = st.floats(-1e150, 1e150)
_runs = st.builds(
    RunRecord,
    condition=_text,
    block=st.integers(0, 2**62),
    slot=st.integers(0, 1000),
    arm=_text,
    kind=st.sampled_from(["treatment", "negative", "positive"]),
    treatment=st.dictionaries(_text, _text, max_size=3),
    started_s=_number,
    failure=st.none() | _text,
    responses=st.dictionaries(_text, _number, max_size=3),
    evidence=st.dictionaries(_text, _number, max_size=3),
    histograms=st.dictionaries(
        _text, st.lists(st.lists(st.integers(0, 2**62), min_size=2, max_size=2)), max_size=2
    ),
    checks=st.dictionaries(_text, st.none() | st.booleans() | _text | st.integers(), max_size=3),
    files=st.none() | st.lists(st.integers(0, 10**6), max_size=4).map(tuple),
)


@settings(deadline=None)
@given(_runs)
def test_any_run_comes_back_as_it_was(record: RunRecord) -> None:
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "trials.db") as store:
        store.create_trial(header())
        store.append_run(ID, record)
        assert store.runs_of(ID, record.condition, record.block) == (record,)


@pytest.mark.parametrize("value", [1.7e308, -1.7e308, 1e151])
def test_a_run_whose_numbers_have_no_square_is_damaged(value: float, tmp_path: Path) -> None:
    with Store.open(tmp_path / "trials.db") as store:
        store.create_trial(header())
        for number, field in enumerate(("responses", "evidence")):
            store.append_run(ID, replace(run(number, 0), **{field: {"wall": value}}))
            with pytest.raises(StoreError, match="damaged record: a run"):
                store.runs_of(ID, run(number, 0).condition, number)
