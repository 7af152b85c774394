"""Packed trials of hosts become trials in the coordinator's store: all of it, once, and nothing impossible."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fleet_hosts import FLEET, RECORD, HostStore, header_for

from iotrial.fleet.collect import Collector, Distrusted
from iotrial.store import Store
from iotrial.store.model import BlockEnd, Event, TrialHeader, TrialState
from iotrial.store.packed import PackedRecord, PackedRun, PackedState, read_packed, write_packed
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
    added = collector.add(ALPHA, host.packed())
    assert (added.number, added.blocks, added.state) == (1, 7, TrialState.DONE)
    with Store.open(host.path, read_only=True) as own:
        assert everything(store) == everything(own)
    trial = store.find("last")
    assert trial.header.options["fleet"] == {"id": FLEET, "host": "alpha"}
    assert trial.header.seed == ALPHA.seed
    assert not trial.header.study.trusted
    assert trial.state is TrialState.DONE


def test_a_trial_that_comes_again_after_it_went_on_is_stored_once(host: HostStore, tmp_path: Path) -> None:
    path = tmp_path / "coordinator.db"
    for blocks in (2, 1, 4):
        host.measure(blocks)
        host.note("machine", f"{blocks} more")
        host.state(TrialState.INTERRUPTED, "ended by SIGTERM")
        for _ in range(2):  # a new coordinator each time
            with Store.open(path) as store, Store.open(host.path, read_only=True) as own:
                collector = Collector(store, FLEET, "example")
                assert collector.add(ALPHA, host.packed()).state is TrialState.INTERRUPTED
                assert everything(store) == everything(own)
                assert store.find("last").state is TrialState.INTERRUPTED
                assert len(store.trials()) == 1
        host.state(TrialState.RUNNING)
    host.state(TrialState.DONE)
    with Store.open(path) as store:
        assert Collector(store, FLEET, "example").add(ALPHA, host.packed()).state is TrialState.DONE
        # and all other code can read it as a valid trial: it can be packed and read back
        file = io.BytesIO()
        store.pack("last", file)
        file.seek(0)
        assert sum(isinstance(record, PackedState) for record in read_packed(file, "it")) == 7 + 1


def test_a_trial_whose_process_was_killed_is_interrupted(
    host: HostStore, store: Store, collector: Collector
) -> None:
    host.measure(1)
    host.begin_block()
    killed = changed(host, drop_last_state=True)
    assert collector.add(ALPHA, killed).blocks == 1
    assert store.find("last").state is TrialState.INTERRUPTED
    assert {run.block for run in store.data("last").runs} == {0}, "only finished blocks are stored"


def changed(
    host: HostStore,
    change: Callable[[list[PackedRecord]], list[PackedRecord]] = list,
    *,
    drop_last_state: bool = False,
) -> bytes:
    """Return the host's packed trial with its records changed."""
    if drop_last_state:
        host.state(TrialState.INTERRUPTED)
    found = [one for one in read_packed(io.BytesIO(host.packed()), "it") if not hasattr(one, "sha256")]
    if drop_last_state:
        last = max(place for place, one in enumerate(found) if isinstance(one, PackedState))
        del found[last]
    file = io.BytesIO()
    write_packed(file, change(found), imported=True)  # type: ignore[arg-type]
    return file.getvalue()


def first(kind: type, **changes: Any) -> Callable[[list[Any]], list[Any]]:
    def change(found: list[Any]) -> list[Any]:
        place = next(place for place, one in enumerate(found) if isinstance(one, kind))
        return [*found[:place], replace(found[place], **changes), *found[place + 1 :]]

    return change


def without(kind: type) -> Callable[[list[Any]], list[Any]]:
    def change(found: list[Any]) -> list[Any]:
        place = next(place for place, one in enumerate(found) if isinstance(one, kind))
        return found[:place] + found[place + 1 :]

    return change


def run_changed(found: list[Any]) -> list[Any]:
    place = next(place for place, one in enumerate(found) if isinstance(one, PackedRun))
    run = replace(found[place].run, arm="x")
    return [*found[:place], replace(found[place], run=run), *found[place + 1 :]]


WRONG: dict[str, Callable[[list[Any]], list[Any]]] = {
    "another seed": first(TrialHeader, seed="1" * 32),
    "another study": lambda found: first(TrialHeader, study=replace(found[0].study, name="other"))(found),
    "another arm": run_changed,
    "a run too few": without(PackedRun),
    "a run twice": lambda found: [
        one for run in found for one in ([run, run] if isinstance(run, PackedRun) else [run])
    ],
    "a block twice": lambda found: [
        one for end in found for one in ([end, end] if isinstance(end, BlockEnd) else [end])
    ],
    "no state": lambda found: [one for one in found if not isinstance(one, PackedState)],
    "a reason of ours": first(PackedState, reason="fleet: x"),
    "an event of ours": lambda found: [*found, Event("2024-05-01T12:00:00Z", "fleet", "x")],
}


@pytest.mark.parametrize("what", WRONG)
def test_what_no_trial_of_that_plan_can_hold_is_refused_and_nothing_is_kept(
    what: str, host: HostStore, store: Store, collector: Collector
) -> None:
    host.measure(3)
    host.state(TrialState.DONE)
    with pytest.raises(Distrusted, match="host alpha"):
        collector.add(ALPHA, changed(host, WRONG[what]))
    assert store.trials() == ()
    assert collector.add(ALPHA, host.packed()).blocks == 3, "the host may mend itself"


@pytest.mark.parametrize("packed", [b"", b"x" * 1000, b"\x1f\x8b" + b"\0" * 100])
def test_what_is_no_packed_trial_is_refused(packed: bytes, store: Store, collector: Collector) -> None:
    with pytest.raises(Distrusted, match="host alpha"):
        collector.add(ALPHA, packed)
    assert store.trials() == ()


def test_a_host_that_has_less_or_another_trial_than_before_is_refused(
    host: HostStore, store: Store, collector: Collector, tmp_path: Path
) -> None:
    host.measure(2)
    host.state(TrialState.INTERRUPTED)
    early = host.packed()
    host.state(TrialState.RUNNING)
    host.measure(1)
    host.state(TrialState.DONE)
    collector.add(ALPHA, host.packed())
    before = everything(store)
    with pytest.raises(Distrusted, match="sent less than before"):
        collector.add(ALPHA, early)
    other = HostStore(tmp_path / "other.db", "alpha")
    other.measure(3)
    for state in (TrialState.INTERRUPTED, TrialState.RUNNING, TrialState.DONE):
        other.state(state)
    with pytest.raises(Distrusted, match="another trial than before"):
        collector.add(ALPHA, changed(other, first(TrialHeader, id="e" * 32)))
    assert everything(store) == before


def test_a_host_cannot_pass_for_another(host: HostStore, store: Store, collector: Collector) -> None:
    host.measure(1)
    host.state(TrialState.DONE)
    collector.add(ALPHA, host.packed())
    with pytest.raises(Distrusted, match="another seed"):
        collector.add(BETA, host.packed())
    stolen = changed(
        host, lambda found: [replace(header_for("beta"), id=host.header.id), found[1], found[-1]][:2]
    )  # type: ignore[list-item]
    with pytest.raises(Distrusted, match="host beta: it is already in the store"):
        collector.add(BETA, stolen)
    assert len(store.trials()) == 1
