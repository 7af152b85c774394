"""The quick reader of batches believes nothing that the slow one refuses, and finds what that finds."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fleet_hosts import FLEET, RECORD, HostStore

from iotrial.errors import StoreError
from iotrial.fleet import wire
from iotrial.fleet.collect import Collector
from iotrial.fleet.link import MAX_RECORDS, Batch, Position
from iotrial.fleet.values import Distrusted
from iotrial.store import Store
from iotrial.store.model import TrialState

ALPHA, BETA = RECORD.order_for("alpha"), RECORD.order_for("beta")


@pytest.fixture
def text(tmp_path: Path) -> str:
    host = HostStore(tmp_path / "host.db", "alpha")
    host.measure(3)
    host.note("machine", 'it said "ß\t", 1e-7')
    batch = host.batch()
    first = batch.runs[0]
    full = replace(
        first.run,
        evidence={"small": 1.5e-7, "large": 1e17, "none": 0.0, "below": -2.0},
        histograms={"read": [[1000, 3], [2000, 2**62]]},
        checks={"clock": {"unix_s": 1.5, "deep": [[{}]]}, "bytes": 7, "large": -(2**63)},
    )
    return replace(batch, runs=(replace(first, run=full), *batch.runs[1:])).to_json()


def quick(text: str) -> Batch | None:
    """What the quick reader makes of a text alone."""
    try:
        return None if wire.read(text, most=MAX_RECORDS) is None else Batch.from_json(text)
    except Distrusted:
        return None


def slow(text: str, monkeypatch: pytest.MonkeyPatch) -> Batch | None:
    """What is made of it without the quick reader."""
    with monkeypatch.context() as patch:
        patch.setattr(wire, "read", lambda *_, **__: None)
        try:
            return Batch.from_json(text)
        except Distrusted:
            return None


def test_what_an_agent_writes_is_read_quickly_and_as_the_slow_reader_reads_it(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = quick(text)
    assert found is not None
    assert found == slow(text, monkeypatch)
    assert found.to_json() == text
    # types too: 1 == 1.0 == True, and (1,) is not [1]
    assert repr(found) == repr(slow(text, monkeypatch))


def test_numbers_that_a_store_holds_as_whole_ones_do_not_make_it_slow(text: str) -> None:
    batch = Batch.from_json(text)
    run = replace(batch.runs[1].run, started_s=3, responses={"wall": 2}, evidence={"x": -1})
    written = replace(batch, runs=(batch.runs[0], replace(batch.runs[1], run=run, at_s=7), *batch.runs[2:]))
    found = quick(written.to_json())
    assert found is not None
    assert repr(found.runs[1].run.responses) == "{'wall': 2.0}"


def test_an_agent_writes_no_number_that_is_not_finite(text: str) -> None:
    batch = Batch.from_json(text)
    for change in ({"evidence": {"x": float("nan")}}, {"checks": {"x": [float("inf")]}}):
        run = replace(batch.runs[0].run, **change)
        with pytest.raises(ValueError, match="not finite"):
            replace(batch, runs=(replace(batch.runs[0], run=run), *batch.runs[1:])).to_json()


#: what is put in the place of a value anywhere in a batch
FOREIGN: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 1.0, 0.5, -0.5, 1e18, 1.1e18, -1e18, -1.1e18, 1e300, 10**7 + 1, 10**6 + 1, 10**5 + 1,
    2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 2**70, "", "x", "x" * 513, "x" * 8193, "x" * 16385, "a\u0000b", "é",
    [], [1], [[1, 2]], [[1, 2, 3]], [[1, -1]], [[1, True]], [1.0], [2**63], list(range(257)), {}, {"x": 1}, {"x": 1.0},
    {"x": None}, {"x": "y"}, {"x" * 513: 1.0}, {f"k{n}": 1.0 for n in range(513)}, {f"k{n}": "v" for n in range(65)},
    {"x": [[1, 2]]}, {"x": [{"y": [[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]}]}, {"x": list(range(4096))}, "running", "treatment",
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value inside."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*path, key)
        if isinstance(inner, dict | list) and inner:
            yield from places(inner, (*path, key))


def with_value(value: Any, path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> str:
    """The text of a copy in which ``change`` was done to what holds the last step of the path."""
    copy = json.loads(json.dumps(value))
    holder = copy
    for step in path[:-1]:
        holder = holder[step]
    change(holder, path[-1])
    return wire._encoder.encode(copy).decode()


def test_the_two_readers_agree_on_foreign_values_at_every_place(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = json.loads(text)
    draw = random.Random(1)
    taken = refused = 0
    # one record of each kind; that of a trial both readers hand on to the same one
    first = {kind: fields for kind, fields in reversed(value["records"]) if kind != "trial"}
    value["records"] = [[kind, fields] for kind, fields in first.items()]
    for path in places(value):
        for foreign in draw.sample(FOREIGN, 6):
            changed = with_value(value, path, lambda holder, key, put=foreign: holder.__setitem__(key, put))
            found = quick(changed)
            taken += found is not None
            refused += found is None
            if found is not None:
                assert repr(found) == repr(slow(changed, monkeypatch)), (path, foreign)
    assert taken > 20
    assert refused > 200


def test_no_key_that_is_doubled_unknown_or_left_out_is_believed(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for changed in (
        text.replace('"slot":', '"slot":0,"slot":', 1),
        text.replace('"small":', '"small":1.0,"small":', 1),
        text.replace('"unix_s":', '"unix_s":0.5,"unix_s":', 1),
        text.replace('"more":', '"more":false,"more":', 1),
        text.replace('"slot":', '"other":1,"slot":', 1),
        text.replace('"gap":false', '"gap":false,"x":1', 1),
        text.replace('"left":0', '"left":0,"x":1', 1),
        text.replace('"failure":null,', "", 1),
        text.replace('"void":null,', "", 1),
        text.replace('"bytes":7', '"bytes":NaN', 1),
        text.replace('"bytes":7', '"bytes":1e999', 1),
        text.replace('"small":1.5e-7', '"small":1e999', 1),
        text.replace("ß", "\\ud800", 1),
        text.replace("ß", "\ud800", 1),
        text + "{}",
        text[:-1],
    ):
        assert changed != text
        assert quick(changed) is None
        assert slow(changed, monkeypatch) is None
        with pytest.raises(Distrusted):
            Batch.from_json(changed)


def test_a_batch_written_by_something_else_is_read_all_the_same(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for other in (
        json.dumps(json.loads(text)),
        text + "\n",
        text.replace("1.5e-7", "0.00000015"),
        text.replace("ß", "\\u00df"),
    ):
        assert quick(other) is None
        assert repr(Batch.from_json(other)) == repr(Batch.from_json(text))


# several hosts in one transaction


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
        refused = pytest.raises(Distrusted, match="host alpha: it is in the store already")
        with collector.together() if together else nullcontext(), refused:
            collector.add(ALPHA, again)
        with pytest.raises(Distrusted, match="host alpha: it is in the store already"):
            elsewhere.add(ALPHA, batch)
        assert len(store.data("last").ends) == 2
        assert store.find("last").state is TrialState.RUNNING
