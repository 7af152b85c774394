"""Fleets on a Dask cluster whose parts are killed, cut off or stopped in the middle of a trial: hosts restore
their settings, and nothing that was measured is lost or stored twice."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet_network import Fleet, kill, restored

from namespaces import eventually, network

pytestmark = [pytest.mark.root, pytest.mark.long]  # starts and stops hosts with networks of their own

#: an image with a mount option that varies: there is always something to restore
IMAGE = """\
[study]
name = "small"
question = "Do access times cost a reader anything?"
margin = "5 %"
[lab]
kind = "image"
filesystem = "ext4"
size = "64 MiB"
[[factor]]
name = "atime"
knob = "mount.atime"
levels = ["strictatime", "noatime"]
reference = "strictatime"
[[workload]]
name = "reads"
kind = "files"
files = 20
size = "4 KiB"
operations = ["open", "read", "close"]
cache = "warm"
"""


@pytest.fixture
def two(disk_folder: Path) -> Iterator[Fleet]:
    folder = Path(tempfile.mkdtemp(dir=disk_folder))
    with network(folder, "alpha", "beta") as net:
        fleet = Fleet(net, folder)
        Path(fleet.study).write_text(IMAGE)
        yield fleet


def journal(fleet: Fleet, name: str) -> list[Path]:
    return list((fleet.net.hosts[name].state / "journal").glob("*"))


def test_a_host_whose_workers_are_killed_restores_its_settings_and_goes_on_when_one_is_back(
    two: Fleet,
) -> None:
    alpha, beta = two.net.hosts.values()
    two.workers()
    run = two.run("--time", "25s")
    eventually("both measure", two.measuring, said=lambda: run.said)
    kill(beta, "--multiprocessing-fork")  # its nanny starts another
    kill(alpha, "distributed.cli.dask_worker")  # the nanny, and then its worker
    eventually("its trial ends", lambda: restored(alpha))
    assert two.states(alpha)[-1] == "interrupted"
    eventually("it is missed", lambda: "alpha: lost" in run.said)
    two.worker(alpha)
    eventually("it is back", lambda: "alpha: is back" in run.said)
    assert run.wait(300) == 0, run.said
    for host in (alpha, beta):
        assert two.same(host)
        assert restored(host)
        assert two.states(host) == ["running", "interrupted", "running", "done"]


def test_hosts_whose_scheduler_is_killed_restore_their_settings_and_are_resumed_with_the_next(
    two: Fleet,
) -> None:
    two.workers()
    run = two.run("--time", "25s")
    eventually("both measure", two.measuring, said=lambda: run.said)
    assert journal(two, "alpha")
    kill(two.middle, "distributed.cli.dask_scheduler")
    for host in two.net.hosts.values():
        eventually("its trial ends", lambda host=host: restored(host))
        assert two.states(host) == ["running", "interrupted"]
    assert run.wait() == 1, run.said
    assert "does not answer" in run.said
    assert "fleet resume" in run.said
    two.start_scheduler()
    two.workers()
    again = two.resume()
    assert again.wait(300) == 0, again.said
    for host in two.net.hosts.values():
        assert two.same(host)
        assert two.states(host) == ["running", "interrupted", "running", "done"]


def test_ctrl_c_stops_all_hosts_keeps_what_they_have_and_can_be_resumed(two: Fleet) -> None:
    alpha, beta = two.net.hosts.values()
    two.worker(alpha)
    run = two.run("--time", "25s")
    eventually("the first measures", lambda: two.measuring(alpha), said=lambda: run.said)
    two.worker(beta)
    eventually("the late one measures", lambda: two.measuring(beta), said=lambda: run.said)
    run.signal(signal.SIGINT)
    assert run.wait() == 130, run.said
    assert "fleet resume" in run.said
    for host in (alpha, beta):
        assert two.same(host)
        assert restored(host)
    assert two.states(beta) == ["running", "interrupted"]  # alpha may have been done
    again = two.resume()
    assert again.wait(300) == 0, again.said
    assert two.states(beta) == ["running", "interrupted", "running", "done"]
    for host in (alpha, beta):
        assert two.same(host)
        assert two.states(host)[-1] == "done"


def test_hosts_whose_coordinator_is_killed_restore_their_settings_and_lose_nothing(two: Fleet) -> None:
    two.workers()
    run = two.run("--time", "25s")
    eventually("both measure", two.measuring, said=lambda: run.said)
    run.signal(signal.SIGKILL)
    run.wait()
    for host in two.net.hosts.values():
        eventually("its trial ends", lambda host=host: restored(host))
        assert two.states(host) == ["running", "interrupted"]
    again = two.resume()
    assert again.wait(300) == 0, again.said
    for host in two.net.hosts.values():
        assert two.same(host)
        assert two.states(host) == ["running", "interrupted", "running", "done"]


def test_a_trial_that_is_killed_is_mended_at_once_and_can_be_resumed(two: Fleet) -> None:
    alpha = two.net.hosts["alpha"]
    two.worker(alpha)
    run = two.run("--time", "25s")
    eventually("it measures", lambda: two.measuring(alpha), said=lambda: run.said)
    assert journal(two, "alpha")
    kill(alpha, "iotrial", "run")
    assert run.wait() == 1, run.said
    assert "alpha: stopped: iotrial was killed by signal 9" in run.said
    assert two.same(alpha)
    assert restored(alpha)
    again = two.resume()
    assert again.wait(300) == 0, again.said
    assert two.same(alpha)
    assert restored(alpha)
    assert two.states(alpha) == ["running", "running", "done"]


def test_a_link_that_is_cut_and_mended_costs_nothing(two: Fleet) -> None:
    alpha = two.net.hosts["alpha"]
    two.worker(alpha)
    run = two.run("--time", "25s")
    eventually("it measures", lambda: two.measuring(alpha), said=lambda: run.said)
    two.net.cut("alpha")
    had = len(two.own(alpha, "block_end"))
    eventually("it measures on", lambda: len(two.own(alpha, "block_end")) > had)
    two.net.mend("alpha")
    assert run.wait(300) == 0, run.said
    assert two.same(alpha)
    assert two.states(alpha) == ["running", "done"]
