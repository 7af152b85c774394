"""The coordinator's loop over the hosts of a cluster: no host that fails, vanishes or lies delays another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fleet_hosts import FLEET, RECORD, FakeCluster, HostStore

from iotrial.cli.fleet.run import status_of
from iotrial.cli.fleet_view import FleetTable, table
from iotrial.errors import IotrialError
from iotrial.fleet.cluster import Lost
from iotrial.fleet.collect import Collector
from iotrial.fleet.conduct import FleetConductor, FleetProgress, Host, Pace, Phase
from iotrial.fleet.host import Result
from iotrial.fleet.order import Record, find_record
from iotrial.report.text import Console
from iotrial.store import Store
from iotrial.store.model import TrialState
from values import replace

QUICK = Pace(tick_s=0.02, look_s=0.0, leave_out_s=0.5, first_s=0.5, stop_s=30)
ALPHA, BETA = "tls://alpha:1", "tls://beta:1"


class Messages:
    """Watcher that records its messages."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def update(self, progress: FleetProgress) -> None:
        pass

    def say(self, text: str) -> None:
        self.lines.append(text)

    def has(self, part: str) -> bool:
        return any(part in line for line in self.lines)


@pytest.fixture
def store(tmp_path: Path, state: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "coordinator.db") as opened:
        yield opened


@pytest.fixture
def finished(tmp_path: Path) -> Callable[..., Result]:
    def made(name: str, state: TrialState = TrialState.DONE, problem: str = "") -> Result:
        host = HostStore(tmp_path / f"{name}.db", name)
        host.measure(3)
        host.state(state)
        return problem, 0, host.packed()

    return made


def conducted(
    store: Store,
    cluster: FakeCluster,
    messages: Messages | None = None,
    stopped: Callable[[], bool] = lambda: False,
    record: Record = RECORD,
) -> dict[str, Host]:
    collector = Collector(store, FLEET, "example")
    progress = FleetConductor(
        cluster,  # type: ignore[arg-type]
        record, collector, messages or Messages(), stopped=stopped, pace=QUICK,
    ).run()  # fmt: skip
    return {host.name: host for host in progress.hosts}


def status(found: dict[str, Host]) -> int:
    return status_of(FleetProgress(FLEET, "example", 1.0, list(found.values())))


def test_all_hosts_are_stored_one_that_joins_late_too_and_all_are_written_down(
    store: Store, finished: Callable[..., Result]
) -> None:
    cluster = FakeCluster({ALPHA: [None]})

    def joins(looks: int) -> None:
        if looks == 3:
            cluster.outcomes[BETA] = [finished("beta")]
        if looks == 6:
            cluster.found[cluster.started[0].key] = finished("alpha")
            cluster.started[0].done()

    cluster.looked = joins
    found = conducted(store, cluster)
    assert [(h.phase, h.blocks) for h in found.values()] == [(Phase.DONE, 3), (Phase.DONE, 3)]
    for host in found.values():
        assert host.trial is not None
        assert len(store.data(host.trial).ends) == host.blocks
    assert [task.order for task in cluster.started] == [RECORD.order_for("alpha"), RECORD.order_for("beta")]
    assert find_record(FLEET).hosts == ("alpha", "beta")
    assert status(found) == 0


def test_a_host_with_several_workers_gets_one_trial(store: Store, finished: Callable[..., Result]) -> None:
    cluster = FakeCluster({ALPHA: [finished("alpha")], "tls://alpha:2": []})
    assert list(conducted(store, cluster)) == ["alpha"]
    assert len(cluster.started) == 1


def test_a_host_whose_worker_has_gone_goes_on_at_its_next_one(
    store: Store, finished: Callable[..., Result]
) -> None:
    cluster = FakeCluster({ALPHA: [None]})

    def moves(looks: int) -> None:
        if looks == 2:
            del cluster.outcomes[ALPHA]
        if looks == 4:
            cluster.outcomes["tls://alpha:2"] = [finished("alpha")]

    cluster.looked = moves
    messages = Messages()
    found = conducted(store, cluster, messages)
    assert found["alpha"].phase is Phase.DONE
    assert messages.has("host alpha: lost: its worker has gone")
    assert messages.has("host alpha: is back")
    assert cluster.cancelled == [cluster.started[0].key], "the first must not run once more"


def test_a_host_that_stays_away_is_left_out_and_the_others_are_not_held_up(
    store: Store, finished: Callable[..., Result]
) -> None:
    cluster = FakeCluster({ALPHA: [None], BETA: [finished("beta")]})

    def goes(looks: int) -> None:
        if looks == 2:
            del cluster.outcomes[ALPHA]

    cluster.looked = goes
    messages = Messages()
    found = conducted(store, cluster, messages)
    assert (found["alpha"].phase, found["beta"].phase) == (Phase.LEFT_OUT, Phase.DONE)
    assert messages.has("host alpha: left out: it has had no worker for 0.5 s")
    assert status(found) == 1


def test_resume_waits_for_the_hosts_of_the_fleet_and_not_for_those_that_are_done(
    store: Store, finished: Callable[..., Result]
) -> None:
    conducted(store, FakeCluster({ALPHA: [finished("alpha")]}))
    cluster = FakeCluster({ALPHA: [finished("beta")]})

    def comes(looks: int) -> None:
        if looks == 3:
            cluster.outcomes[BETA] = cluster.outcomes[ALPHA]

    cluster.looked = comes
    found = conducted(store, cluster, record=replace(find_record(FLEET), hosts=("alpha", "beta")))
    assert {host.phase for host in found.values()} == {Phase.DONE}
    assert [task.order.host for task in cluster.started] == ["beta"]


def test_a_scheduler_that_does_not_answer_ends_the_run(store: Store) -> None:
    cluster = FakeCluster({ALPHA: [None]})

    def away(looks: int) -> None:
        cluster.away = looks > 2

    cluster.looked = away
    with pytest.raises(Lost, match="does not answer"):
        conducted(store, cluster)


def test_a_trial_that_was_cut_off_is_stopped_and_its_blocks_are_kept(
    store: Store, finished: Callable[..., Result]
) -> None:
    outcome = finished("alpha", TrialState.INTERRUPTED, "it ended with status -9")
    found = conducted(store, FakeCluster({ALPHA: [outcome]}))
    assert (found["alpha"].phase, found["alpha"].said) == (Phase.STOPPED, "it ended with status -9")
    assert found["alpha"].blocks == 3
    assert status(found) == 1


def test_a_host_that_lies_or_fails_is_named_and_the_others_go_on(
    store: Store, finished: Callable[..., Result]
) -> None:
    lies = (0, 0, finished("gamma")[2])
    cluster = FakeCluster(
        {
            ALPHA: [lies],  # type: ignore[list-item]
            BETA: [finished("beta")],
            "tls://delta:1": [("the machine is busy", 2, b"")],
            "tls://epsilon:1": [IotrialError("its task failed: ZeroDivisionError")],
            "tls://old:1": [],
        },
        versions={"old": "0.0.1"},
        unfit={"tls://10.0.0.9:1": "iotrial is not installed there"},
    )
    found = conducted(store, cluster)
    assert {name for name, host in found.items() if host.phase is Phase.FAILED} == set(found) - {"beta"}
    assert "another seed" in found["alpha"].said
    assert (found["delta"].said, found["delta"].left) == ("the machine is busy", 2)
    assert "has iotrial 0.0.1" in found["old"].said
    assert found["10.0.0.9"].said == "iotrial is not installed there"
    assert {task.worker for task in cluster.started}.isdisjoint({"tls://old:1", "tls://10.0.0.9:1"})
    assert len(store.trials()) == 1


def test_a_trial_whose_controls_failed_makes_the_status_3(
    store: Store, finished: Callable[..., Result]
) -> None:
    cluster = FakeCluster({ALPHA: [finished("alpha", TrialState.INVALID)], BETA: [finished("beta")]})
    found = conducted(store, cluster)
    assert found["alpha"].phase is Phase.INVALID
    assert status(found) == 3


def test_stopping_has_every_host_stop_and_keeps_what_it_has(
    store: Store, finished: Callable[..., Result]
) -> None:
    cluster = FakeCluster({ALPHA: [None], BETA: [None]})
    end = cluster.end

    def ends(tasks: list[tuple[str, str]]) -> None:
        end(tasks)
        for task in cluster.started:
            cluster.found[task.key] = finished(task.order.host, TrialState.INTERRUPTED)
            task.done()

    cluster.end = ends  # type: ignore[method-assign, assignment]
    found = conducted(store, cluster, stopped=lambda: len(cluster.started) == 2)
    assert {host.phase for host in found.values()} == {Phase.STOPPED}
    assert sorted(cluster.ended) == sorted(task.key for task in cluster.started)
    assert [(trial.state, len(store.data(trial.number).ends)) for trial in store.trials()] == [
        (TrialState.INTERRUPTED, 3),
        (TrialState.INTERRUPTED, 3),
    ]


def test_where_no_worker_comes_the_coordinator_says_how_one_is_started(store: Store) -> None:
    with pytest.raises(IotrialError, match="no worker has joined") as caught:
        conducted(store, FakeCluster({}))
    assert "dask-ssh" in (caught.value.hint or "")


def test_the_table_keeps_to_its_width_and_height_and_obeys_no_host(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = "\x1b[2J" + "x" * 300
    hosts = [Host("a" * 63, Phase.FAILED, 7, 3, "id", said, 2), Host("b", Phase.MEASURING)]
    lines = table(FleetProgress(FLEET, "example", 61.0, hosts), width=79)
    assert max(map(len, lines)) <= 79
    assert not any("\x1b" in line for line in lines)
    assert "2 hosts, 7 blocks" in lines[0]
    many = [Host(f"h{number}", Phase.MEASURING, 9) for number in range(500)]
    FleetTable(Console(stderr=True, width=80, height=24)).update(FleetProgress(FLEET, "example", 61.0, many))
    drawn = capsys.readouterr().err.splitlines()
    assert len(drawn) <= 23
    assert sum("more" in line for line in drawn) == 1
