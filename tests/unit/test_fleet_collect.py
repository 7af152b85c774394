"""Host data becomes trials in the coordinator's store: all of it, once, and nothing impossible."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from fleet_hosts import FLEET, RECORD, HostStore, header_for

from iotrial.errors import StoreError
from iotrial.fleet.batch import Batch, Position, Stage
from iotrial.fleet.collect import Collector
from iotrial.fleet.order import Distrusted
from iotrial.store import Store
from iotrial.store.model import Event, RunRecord, TrialState
from iotrial.store.packed import PackedState, read_packed
from values import replace

ALPHA, BETA = RECORD.order_for("alpha"), RECORD.order_for("beta")


@pytest.fixture
def host(tmp_path: Path) -> HostStore:
    return HostStore(tmp_path / "host.db", "alpha")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "coordinator.db") as made:
        yield made


@pytest.fixture
def collector(store: Store) -> Collector:
    return Collector(store, FLEET, "example")


def everything(store: Store, ref: str = "last") -> dict[str, Any]:
    data = store.data(ref)
    return {"runs": data.runs, "ends": data.ends, "events": store.events(data.trial.header.id)}


def test_all_that_a_host_measured_arrives_as_it_was(
    host: HostStore, store: Store, collector: Collector
) -> None:
    host.measure(7)
    host.note("machine", "it throttled")
    host.state(TrialState.DONE)
    added = collector.add(ALPHA, host.batch(stage=Stage.ENDED))
    assert (added.number, added.blocks, added.state) == (1, 7, TrialState.DONE)
    with Store.open(host.path, read_only=True) as own:
        assert everything(store) == everything(own)
    trial = store.find("last")
    assert trial.header.options["fleet"] == {"id": FLEET, "host": "alpha"}
    assert trial.header.seed == ALPHA.seed
    assert not trial.header.study.trusted
    assert trial.state is TrialState.DONE


def test_what_comes_twice_is_stored_once(host: HostStore, store: Store, collector: Collector) -> None:
    host.measure(3)
    first = host.batch()
    collector.add(ALPHA, first)
    host.measure(2)
    host.note("machine", "it throttled")
    for batch in (
        first,
        host.batch(),
        host.batch(Position(1, 2, 0)),
        host.batch(collector.position("alpha")),
    ):
        collector.add(ALPHA, batch)
    assert collector.position("alpha") == Position(1, 5, 1)
    with Store.open(host.path, read_only=True) as own:
        assert everything(store) == everything(own)


def test_a_coordinator_that_begins_anew_goes_on_behind_what_its_store_has(
    host: HostStore, tmp_path: Path
) -> None:
    path = tmp_path / "coordinator.db"
    for count in (2, 1, 4):
        host.measure(count)
        with Store.open(path) as store:
            collector = Collector(store, FLEET, "example")
            collector.take_up("alpha")
            collector.note("alpha", "a word of the coordinator's own, which no host has sent")
            assert collector.add(ALPHA, host.batch(collector.position("alpha"))).blocks == count
    host.state(TrialState.INTERRUPTED, "ended by SIGTERM")
    host.state(TrialState.RUNNING)
    host.measure(1)
    host.state(TrialState.DONE)
    with Store.open(path) as store, Store.open(host.path, read_only=True) as own:
        collector = Collector(store, FLEET, "example")
        collector.add(ALPHA, host.batch(collector.position("alpha")))
        assert store.data("last").runs == own.data("last").runs
        assert store.data("last").ends == own.data("last").ends
        assert collector.position("alpha") == Position(4, 8, 0)
        # and all other code can read it as a valid trial: it can be packed and read back
        packed = io.BytesIO()
        store.pack("last", packed)
        packed.seek(0)
        assert sum(isinstance(record, PackedState) for record in read_packed(packed, "it")) == 4 + 2


def test_a_trial_whose_coordinator_died_is_not_said_to_run(
    host: HostStore, store: Store, collector: Collector
) -> None:
    host.measure(1)
    collector.add(ALPHA, host.batch())
    assert store.find("last").state is TrialState.RUNNING
    collector.leave("alpha", "the coordinator was stopped")
    assert store.find("last").state is TrialState.INTERRUPTED
    assert collector.position("alpha") == Position(1, 1, 0)


def test_only_finished_blocks_leave_a_host(host: HostStore) -> None:
    host.measure(2)
    host.begin_block()
    batch = host.batch()
    assert len(batch.ends) == 2
    assert {packed.run.block for packed in batch.runs} == {end.block for end in batch.ends}


def test_a_host_with_much_to_tell_tells_it_in_parts(
    host: HostStore, store: Store, collector: Collector
) -> None:
    host.measure(10)
    host.note(
        "machine", *["x" * 50_000] * 30
    )  # more than the mebibyte of one answer, each shortened to 8,192
    host.note("machine", *["x" * 8_000] * 270)
    parts = 0
    while True:
        batch = host.batch(collector.position("alpha"))
        collector.add(ALPHA, batch)
        parts += 1
        if not batch.more:
            break
    assert parts == 3
    assert collector.position("alpha") == Position(1, 10, 300)


def spoilt(batch: Batch, **changes: Any) -> Batch:
    return replace(batch, **changes)


def with_run(batch: Batch, change: dict[str, Any]) -> Batch:
    first, *rest = batch.runs
    run: RunRecord = replace(first.run, **change)
    return replace(batch, runs=(replace(first, run=run), *rest))


WRONG = {
    "a gap": lambda b: spoilt(b, since=Position(0, 1, 0)),
    "another seed": lambda b: spoilt(b, header=replace(b.header, seed="1" * 32)),
    "another study": lambda b: spoilt(
        b, header=replace(b.header, study=replace(b.header.study, name="other"))
    ),
    "no trial": lambda b: spoilt(b, header=None),
    "no state": lambda b: spoilt(b, states=()),
    "another arm": lambda b: with_run(b, {"arm": b.runs[1].run.arm, "treatment": b.runs[1].run.treatment}),
    "a run too few": lambda b: spoilt(b, runs=b.runs[1:]),
    "a run twice": lambda b: spoilt(b, runs=(b.runs[0], *b.runs)),
    "a block twice": lambda b: spoilt(b, ends=(b.ends[0], *b.ends)),
    "a run without an end": lambda b: spoilt(b, ends=b.ends[1:]),
    "an unknown response": lambda b: with_run(b, {"responses": {"made_up": 1.0}}),
    "a state that cannot follow": lambda b: spoilt(b, states=(PackedState(1.0, TrialState.DONE, None),)),
    "a reason of ours": lambda b: spoilt(b, states=(PackedState(1.0, TrialState.RUNNING, "fleet: x"),)),
    "an event of ours": lambda b: spoilt(b, events=(Event("2024-05-01T12:00:00Z", "fleet", "x"),)),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_no_trial_of_that_plan_can_hold_is_refused_and_nothing_is_kept(
    what: str, host: HostStore, store: Store, collector: Collector
) -> None:
    host.measure(3)
    good = host.batch()
    with pytest.raises(Distrusted, match="host alpha"):
        collector.add(ALPHA, WRONG[what](good))
    assert store.trials() == ()
    assert collector.add(ALPHA, good).blocks == 3, "the host may mend itself"


def test_a_bad_batch_in_the_middle_leaves_all_that_came_before(
    host: HostStore, store: Store, collector: Collector
) -> None:
    host.measure(3)
    collector.add(ALPHA, host.batch())
    before = everything(store)
    host.measure(2)
    good = host.batch(collector.position("alpha"))
    with pytest.raises(Distrusted):
        collector.add(ALPHA, with_run(good, {"arm": "x"}))
    assert everything(store) == before
    assert collector.add(ALPHA, good).blocks == 2


def test_a_host_cannot_pass_for_another(
    tmp_path: Path, host: HostStore, store: Store, collector: Collector
) -> None:
    host.measure(1)
    collector.add(ALPHA, host.batch())
    beta = RECORD.order_for("beta")
    stolen = replace(host.batch(), header=replace(header_for("beta"), id=host.header.id))
    with pytest.raises(Distrusted, match="the trial of another host"):
        collector.add(beta, stolen)
    with pytest.raises(Distrusted, match="another seed"):
        collector.add(beta, host.batch())
    assert len(store.trials()) == 1


def test_a_host_that_sends_a_block_again_is_not_believed_and_the_store_goes_on(
    host: HostStore, store: Store, collector: Collector
) -> None:
    host.measure(3)
    first = host.batch()
    collector.add(ALPHA, first)
    had = everything(store)
    again = replace(first, header=None, states=(), since=Position(1, 3, 0))  # as if they were new
    with pytest.raises(Distrusted, match="host alpha"):
        collector.add(ALPHA, again)
    assert everything(store) == had
    host.measure(2)
    assert collector.add(ALPHA, host.batch(Position(1, 3, 0))).blocks == 2


def test_a_host_that_gives_its_trial_the_id_of_another_in_the_store_is_not_believed(
    host: HostStore, store: Store, collector: Collector
) -> None:
    store.create_trial(replace(host.header, seed="9" * 32))  # measured here
    with pytest.raises(Distrusted, match="host alpha"):
        collector.add(ALPHA, host.batch())
    assert [trial.header.seed for trial in store.trials()] == ["9" * 32]


@pytest.fixture
def hosts(tmp_path: Path) -> tuple[HostStore, HostStore]:
    return HostStore(tmp_path / "alpha.db", "alpha"), HostStore(tmp_path / "beta.db", "beta")


@contextmanager
def collecting(path: Path) -> Iterator[tuple[Store, Collector]]:
    with Store.open(path) as store:
        yield store, Collector(store, FLEET, "example")


def test_a_host_that_is_refused_leaves_what_others_send_in_the_same_transaction(
    hosts: tuple[HostStore, HostStore], tmp_path: Path
) -> None:
    alpha, beta = hosts
    with collecting(tmp_path / "coordinator.db") as (store, collector):
        alpha.measure(2)
        collector.add(ALPHA, alpha.batch())
        alpha.measure(1)
        beta.measure(2)
        good = alpha.batch(collector.position("alpha"))
        bad = replace(good, runs=good.runs[1:])
        with collector.together():
            with pytest.raises(Distrusted):
                collector.add(ALPHA, bad)
            collector.note("alpha", "was refused")
            collector.add(BETA, beta.batch())
            with pytest.raises(Distrusted):
                collector.add(ALPHA, bad)
            assert collector.position("alpha") == Position(1, 2, 0)
            with Store.open(store.path, read_only=True) as other:
                assert len(other.trials()) == 1, "nothing is there before all of it is"
        with Store.open(store.path, read_only=True) as other:
            assert [len(other.data(trial.number).ends) for trial in other.trials()] == [2, 2]
        assert collector.add(ALPHA, good).blocks == 1, "the host may mend itself"


def test_where_the_transaction_of_several_hosts_fails_nothing_of_it_is_kept_nor_counted(
    hosts: tuple[HostStore, HostStore], tmp_path: Path
) -> None:
    alpha, beta = hosts
    with collecting(tmp_path / "coordinator.db") as (store, collector):
        alpha.measure(2)
        collector.add(ALPHA, alpha.batch())
        alpha.measure(1)
        beta.measure(2)

        def failing() -> None:
            with collector.together():
                collector.add(ALPHA, alpha.batch(collector.position("alpha")))
                collector.add(BETA, beta.batch())
                raise StoreError("disk full")

        with pytest.raises(StoreError, match="disk full"):
            failing()
        assert (collector.position("alpha"), collector.position("beta")) == (Position(1, 2, 0), Position())
        assert len(store.trials()) == 1
        for order, host in ((ALPHA, alpha), (BETA, beta)):
            assert collector.add(order, host.batch(collector.position(order.host))).blocks in (1, 2)


@pytest.mark.parametrize("together", [False, True])
def test_a_block_or_a_trial_that_the_store_has_already_is_its_hosts_fault(
    together: bool, hosts: tuple[HostStore, HostStore], tmp_path: Path
) -> None:
    alpha, _ = hosts
    alpha.measure(2)
    batch = alpha.batch()
    again = replace(batch, since=Position(1, 2, 0), header=None, states=())
    with collecting(tmp_path / "coordinator.db") as (store, collector):
        collector.add(ALPHA, batch)
        elsewhere = Collector(store, "e" * 32, "example")
        refused = pytest.raises(Distrusted, match="host alpha: it is already in the store")
        with collector.together() if together else nullcontext(), refused:
            collector.add(ALPHA, again)
        with pytest.raises(Distrusted, match="host alpha: it is already in the store"):
            elsewhere.add(ALPHA, batch)
        assert len(store.data("last").ends) == 2
        assert store.find("last").state is TrialState.RUNNING
