"""Fleets over a network of namespaces: keys, links that go down, workers and coordinators that are killed."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet_network import Fleet, journal, rows

from namespaces import Host, eventually, network

pytestmark = [pytest.mark.root, pytest.mark.long]  # starts and stops hosts with networks of their own


@pytest.fixture
def folder(disk_folder: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=disk_folder))


@pytest.fixture
def two(folder: Path) -> Iterator[Fleet]:
    with network(folder, "alpha", "beta") as net:
        yield Fleet(net, folder)


@pytest.fixture
def one(folder: Path) -> Iterator[Fleet]:
    with network(folder, "alpha") as net:
        yield Fleet(net, folder)


def cut_down(host: Host) -> None:
    """Send SIGKILL to all iotrial processes there at once, as in a power failure."""
    for pid in host.processes("-m"):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def test_a_link_that_is_cut_and_mended_costs_nothing(two: Fleet) -> None:
    for host in two.net.hosts.values():
        two.worker(host)
    run = two.run("--time", "60s")
    eventually("both measure", lambda: all(two.blocks(name) for name in two.net.hosts))
    two.net.cut("alpha")
    eventually("it is missed", lambda: "alpha: lost" in run.said)
    had = two.blocks("alpha")
    two.net.mend("alpha")
    eventually("it is back", lambda: "alpha: is back" in run.said)
    eventually("what it measured meanwhile comes", lambda: two.blocks("alpha") > had)
    assert run.wait(300) == 0, run.said
    for host in two.net.hosts.values():
        assert two.same(host)
        changes = rows(
            host.state / "fleet" / two.id / "trials.db", "SELECT state FROM state ORDER BY sequence"
        )
        assert changes == [("running",), ("done",)], "the trial went on while nobody could be told"


def test_a_host_that_is_cut_off_puts_all_back_is_left_out_and_taken_up_again(two: Fleet) -> None:
    for host in two.net.hosts.values():
        two.worker(host)
    run = two.run("--time", "3min", "--grace", "5s")
    alpha = two.net.hosts["alpha"]
    eventually("both measure", lambda: all(two.blocks(name) for name in two.net.hosts))
    two.net.cut("alpha")
    store = lambda: alpha.state / "fleet" / two.id / "trials.db"  # noqa: E731
    newest = "SELECT state FROM state ORDER BY sequence DESC LIMIT 1"
    eventually("it ends by itself", lambda: rows(store(), newest) == [("interrupted",)])
    eventually("nothing is left there", lambda: journal(alpha) == [])
    eventually("it is left out", lambda: "alpha: left out" in run.said)
    had = two.blocks("beta")
    eventually("the other goes on", lambda: two.blocks("beta") > had)
    two.net.mend("alpha")
    eventually("it is taken up again", lambda: rows(store(), newest) == [("running",)])
    run.signal(signal.SIGINT)
    assert run.wait() == 130
    for host in two.net.hosts.values():
        assert two.same(host)
        assert journal(host) == []


def test_a_worker_that_is_killed_and_started_again_goes_on_where_it_was(one: Fleet) -> None:
    alpha = one.net.hosts["alpha"]
    worker = one.worker(alpha)
    run = one.run("--time", "60s")
    eventually("it measures", lambda: one.blocks("alpha"))
    worker.signal(signal.SIGKILL)
    worker.wait()
    eventually("it is missed", lambda: "alpha: lost" in run.said)
    one.worker(alpha)
    assert run.wait(300) == 0, run.said
    assert one.same(alpha)
    changes = rows(alpha.state / "fleet" / one.id / "trials.db", "SELECT state FROM state ORDER BY sequence")
    assert changes == [("running",), ("done",)], "its program outlived it"


def test_a_host_whose_power_goes_restores_itself_and_finishes_its_block(one: Fleet) -> None:
    alpha = one.net.hosts["alpha"]
    one.worker(alpha)
    run = one.run("--time", "30s")
    eventually("it measures", lambda: one.blocks("alpha"))
    eventually("something is to be put back", lambda: journal(alpha))
    cut_down(alpha)
    assert journal(alpha), "nobody was left to put it back"
    one.worker(alpha)
    assert run.wait(300) == 0, run.said
    assert journal(alpha) == []
    assert one.same(alpha)
    changes = rows(alpha.state / "fleet" / one.id / "trials.db", "SELECT state FROM state ORDER BY sequence")
    assert changes == [("running",), ("running",), ("done",)]


def test_a_coordinator_that_is_killed_and_resumed_loses_and_doubles_nothing(two: Fleet) -> None:
    for host in two.net.hosts.values():
        two.worker(host)
    run = two.run("--time", "40s")
    eventually("both measure", lambda: all(two.blocks(name) for name in two.net.hosts))
    run.signal(signal.SIGKILL)
    run.wait()
    had = {name: two.blocks(name) for name in two.net.hosts}
    alpha = two.net.hosts["alpha"]
    eventually("hosts go on without it", lambda: len(two.own(alpha, "block_end")) > had["alpha"])
    listed = two.middle.start("trials")
    listed.wait()
    assert listed.said.count("interrupted") == 2, "nobody follows them now"
    again = two.resume()
    assert again.wait(300) == 0, again.said
    for host in two.net.hosts.values():
        assert two.same(host)
        assert two.blocks(host.name) > had[host.name]
    states = rows(
        two.middle.state / "trials.db", "SELECT state, reason FROM state WHERE trial = 1 ORDER BY sequence"
    )
    assert [state for state, _ in states] == ["running", "running", "done"]


def test_a_host_that_joins_late_is_taken_in_and_one_that_was_stopped_goes_on(two: Fleet) -> None:
    alpha, beta = two.net.hosts.values()
    two.worker(alpha)
    run = two.run("--time", "60s")
    eventually("the first measures", lambda: two.blocks("alpha"))
    two.worker(beta)
    eventually("the late one measures", lambda: two.blocks("beta"))
    run.signal(signal.SIGINT)
    assert run.wait() == 130, run.said
    assert "fleet resume" in run.said
    for host in (alpha, beta):
        assert two.same(host)
        assert journal(host) == []
        assert not host.processes("iotrial.fleet.watchdog")
    had = {name: two.blocks(name) for name in two.net.hosts}
    again = two.resume()
    assert again.wait(300) == 0, again.said
    for host in (alpha, beta):
        assert two.same(host)
        assert two.blocks(host.name) > had[host.name]


def test_a_scheduler_that_is_killed_and_started_again_has_its_hosts_back(one: Fleet) -> None:
    alpha = one.net.hosts["alpha"]
    one.worker(alpha)
    run = one.run("--time", "90s")
    eventually("it measures", lambda: one.blocks("alpha"))
    one.scheduler.signal(signal.SIGKILL)
    one.scheduler.wait()
    eventually("it is missed", lambda: "alpha: lost" in run.said)
    one.middle.start("fleet", "scheduler", "--bind", "10.77.0.1:8786", "--keys", one.keys)
    eventually("it is back", lambda: "alpha: is back" in run.said)
    assert run.wait(300) == 0, run.said
    assert one.same(alpha)
    changes = rows(alpha.state / "fleet" / one.id / "trials.db", "SELECT state FROM state ORDER BY sequence")
    assert changes == [("running",), ("done",)]


def test_a_host_that_hangs_is_lost_and_goes_on_when_it_can(one: Fleet) -> None:
    alpha = one.net.hosts["alpha"]
    worker = one.worker(alpha)
    run = one.run("--time", "60s")
    eventually("it measures", lambda: one.blocks("alpha"))
    worker.signal(signal.SIGSTOP)
    eventually("it is missed", lambda: "alpha: lost" in run.said)
    worker.signal(signal.SIGCONT)
    eventually("it is back", lambda: "alpha: is back" in run.said)
    assert run.wait(300) == 0, run.said
    assert one.same(alpha)
