"""The coordinator's loop over hosts of any transport: no host that fails, hangs or lies delays another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fleet_hosts import FLEET, RECORD, HostStore, Link, Some

from iotrial.cli.fleet_run import status_of
from iotrial.cli.fleet_view import table
from iotrial.errors import IotrialError
from iotrial.fleet.collect import Collector
from iotrial.fleet.conduct import FleetConductor, Hosts, HostStanding, Pace, Phase, Standing
from iotrial.store import Store
from iotrial.store.model import TrialState
from values import replace

QUICK = Pace(ask_s=0.01, join_s=0.01, lost_s=0.01, leave_out_s=0.3, first_s=0.3, stop_s=30)


class Messages:
    """Watcher that records its messages."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def update(self, standing: Standing) -> None:
        pass

    def say(self, text: str) -> None:
        self.lines.append(text)

    def has(self, part: str) -> bool:
        return any(part in line for line in self.lines)


@pytest.fixture
def made(tmp_path: Path) -> Callable[[str], Link]:
    return lambda name: Link(HostStore(tmp_path / f"{name}.db", name))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "coordinator.db") as opened:
        yield opened


def conducted(
    store: Store, hosts: Hosts, messages: Messages | None = None, stopped: Callable[[], bool] = lambda: False
) -> dict[str, HostStanding]:
    collector = Collector(store, FLEET, "example")
    standing = FleetConductor(
        hosts, RECORD, collector, messages or Messages(), stopped=stopped, pace=QUICK
    ).run()
    return {host.name: host for host in standing.hosts}


def finished(link: Link, blocks: int = 3) -> Link:
    link.store.measure(blocks)
    link.store.state(TrialState.DONE)
    return link


def test_all_hosts_are_collected_and_one_that_joins_late_as_well(
    store: Store, made: Callable[[str], Link]
) -> None:
    early, late = made("alpha"), finished(made("beta"), 4)
    hosts = Some([early], [late])
    early.ended = False

    def goes_on() -> None:
        if hosts.looks > 2 and not early.ended:
            finished(early)
            early.ended = True

    early.then = goes_on
    found = conducted(store, hosts)
    assert [(h.phase, h.blocks) for h in found.values()] == [(Phase.DONE, 3), (Phase.DONE, 4)]
    for host in found.values():
        assert host.trial is not None
        assert len(store.data(host.trial).ends) == host.blocks


def test_a_host_that_does_not_answer_is_left_out_and_the_others_are_not_held_up(
    store: Store, made: Callable[[str], Link]
) -> None:
    gone, good = made("alpha"), finished(made("beta"))
    gone.lost = True
    messages = Messages()
    found = conducted(store, Some([gone, good]), messages)
    assert (found["alpha"].phase, found["beta"].phase) == (Phase.LEFT_OUT, Phase.DONE)
    assert messages.has("host alpha: lost")
    assert messages.has("host alpha: left out: it has not answered for 0.3 s")
    assert status_of(Standing(FLEET, "example", 1.0, tuple(found.values()))) == 1


def test_a_host_that_was_left_out_is_taken_up_when_it_comes_back(
    store: Store, made: Callable[[str], Link]
) -> None:
    gone, slow = made("alpha"), made("beta")
    gone.lost, slow.ended = True, False
    messages = Messages()

    def watch() -> None:
        if messages.has("host alpha: left out") and gone.lost:
            finished(gone)
            gone.lost = False
        if messages.has("host alpha: done") and not slow.ended:
            finished(slow)
            slow.ended = True

    slow.then = watch
    found = conducted(store, Some([gone, slow]), messages)
    assert {host.phase for host in found.values()} == {Phase.DONE}
    assert messages.has("host alpha: is back")


def test_a_trial_that_was_cut_off_is_begun_again_and_not_for_ever(
    store: Store, made: Callable[[str], Link]
) -> None:
    link = made("alpha")
    link.store.measure(2)
    link.store.state(TrialState.INTERRUPTED, "ended by SIGTERM")
    found = conducted(store, Some([link]))
    assert found["alpha"].phase is Phase.STOPPED
    assert link.calls.count("begin") == 4


def test_a_host_that_lies_is_named_and_the_others_go_on(store: Store, made: Callable[[str], Link]) -> None:
    liar, good = finished(made("alpha")), finished(made("beta"))
    batch = liar.store.batch()
    assert batch.header is not None
    liar.batch = replace(batch, header=replace(batch.header, seed="1" * 32))
    messages = Messages()
    found = conducted(store, Some([liar, good]), messages)
    assert (found["alpha"].phase, found["beta"].phase) == (Phase.FAILED, Phase.DONE)
    assert "another seed" in found["alpha"].said
    assert len(store.trials()) == 1


def test_a_link_that_breaks_in_a_way_nobody_thought_of_is_its_hosts_trouble(
    store: Store, made: Callable[[str], Link]
) -> None:
    broken, good = made("alpha"), finished(made("beta"))

    def breaks() -> None:
        raise ZeroDivisionError("of a transport")

    broken.then = breaks
    found = conducted(store, Some([broken, good]))
    assert (found["alpha"].phase, found["beta"].phase) == (Phase.FAILED, Phase.DONE)
    assert found["alpha"].said == "ZeroDivisionError: of a transport"


def test_a_host_with_another_version_is_not_begun(store: Store, made: Callable[[str], Link]) -> None:
    old, good = made("alpha"), finished(made("beta"))
    old.version = "0.0.1"
    found = conducted(store, Some([old, good]))
    assert found["alpha"].phase is Phase.FAILED
    assert "has iotrial 0.0.1" in found["alpha"].said
    assert "begin" not in old.calls


def test_a_trial_whose_controls_failed_makes_the_status_3(store: Store, made: Callable[[str], Link]) -> None:
    link = made("alpha")
    link.store.measure(1)
    link.store.state(TrialState.INVALID)
    found = conducted(store, Some([link, finished(made("beta"))]))
    assert found["alpha"].phase is Phase.INVALID
    assert status_of(Standing(FLEET, "example", 1.0, tuple(found.values()))) == 3


def test_stopping_has_every_host_stop_and_keeps_what_it_has(
    store: Store, made: Callable[[str], Link]
) -> None:
    links = [made("alpha"), made("beta")]
    for link in links:
        link.store.measure(2)
        link.ended = False
    began = lambda: all("after" in link.calls for link in links)  # noqa: E731
    found = conducted(store, Some(links), stopped=began)
    assert {host.phase for host in found.values()} == {Phase.STOPPED}
    assert [link.calls.count("stop") for link in links] == [1, 1]
    assert [(trial.state, len(store.data(trial.number).ends)) for trial in store.trials()] == [
        (TrialState.INTERRUPTED, 2),
        (TrialState.INTERRUPTED, 2),
    ]


def test_where_no_host_comes_the_coordinator_says_how_one_is_started(store: Store) -> None:
    with pytest.raises(IotrialError, match="no host has reported") as caught:
        conducted(store, Some([]))
    assert "iotrial fleet worker" in (caught.value.hint or "")


def test_the_table_keeps_to_its_width_and_obeys_no_host() -> None:
    said = "\x1b[2J" + "x" * 300
    hosts = (HostStanding("a" * 63, Phase.FAILED, 7, 3, "id", said, 2), HostStanding("b", Phase.MEASURING))
    lines = table(Standing(FLEET, "example", 61.0, hosts), width=79)
    assert max(map(len, lines)) <= 79
    assert not any("\x1b" in line for line in lines)
    assert "2 hosts, 7 blocks" in lines[0]
