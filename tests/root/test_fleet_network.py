"""Fleets over a network of namespaces: keys, links that are cut, workers and coordinators that are killed."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from namespaces import Host, Network, Started, eventually, network

pytestmark = [pytest.mark.root, pytest.mark.long]  # hosts with networks of their own, started and ended

ROOT = Path(__file__).parents[2]
STUDY = """\
[study]
name = "small"
question = "Does the mode change how fast a file is read?"
margin = "5 %"
[lab]
kind = "directory"
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0444", "0777"]
reference = "0777"
[[workload]]
name = "reads"
kind = "files"
files = 20
size = "4 KiB"
operations = ["open", "read", "close"]
cache = "warm"
"""
ROWS = {
    "run": "condition, block, slot, arm, kind, treatment, started_s, failure, responses, evidence, histograms, files",
    "block_end": "condition, block, round, controls, void, void_level, gap",
}


class Fleet:
    """A network with keys, a scheduler in its middle, and a small study."""

    def __init__(self, net: Network, folder: Path) -> None:
        self.net = net
        self.middle = net.middle
        self.keys = str(folder / "keys")
        self.study = str(folder / "small.toml")
        Path(self.study).write_text(STUDY)
        make_keys(self.keys)
        self.scheduler = self.middle.start(
            "fleet", "scheduler", "--bind", "10.77.0.1:8786", "--keys", self.keys
        )
        eventually("the scheduler listens", lambda: "tls://10.77.0.1:8786" in self.scheduler.said)

    def worker(self, host: Host, keys: str | None = None) -> Started:
        return host.start("fleet", "worker", "10.77.0.1", "--keys", keys or self.keys, "--name", host.name)

    def run(self, *words: str) -> Started:
        reached = ("--fleet", "tls://10.77.0.1:8786", "--keys", self.keys)
        return self.middle.start("run", self.study, "--no-stop", "--no-account", *words, *reached)

    def resume(self) -> Started:
        return self.middle.start("fleet", "resume", "--json")

    @property
    def id(self) -> str:
        (path,) = (self.middle.state / "fleets").glob("*.json")
        return path.stem

    def held(self, host: str, table: str) -> list[tuple[Any, ...]]:
        """The rows of a host's trial in the coordinator's store."""
        query = (
            f"SELECT {ROWS[table]} FROM {table} WHERE trial = (SELECT number FROM trial WHERE "
            "json_extract(options, '$.fleet.host') = ?) ORDER BY condition, block"
        )
        return rows(self.middle.state / "trials.db", f"{query}{', slot' if table == 'run' else ''}", host)

    def own(self, host: Host, table: str) -> list[tuple[Any, ...]]:
        """The rows of the host's own store, of finished blocks."""
        finished = "(condition, block) IN (SELECT condition, block FROM block_end)"
        query = f"SELECT {ROWS[table]} FROM {table} WHERE {finished} ORDER BY condition, block"
        store = host.state / "fleet" / self.id / "trials.db"
        return rows(store, f"{query}{', slot' if table == 'run' else ''}")

    def blocks(self, host: str) -> int:
        return len(self.held(host, "block_end"))

    def same(self, host: Host) -> bool:
        """Whether the coordinator has, row by row, the finished blocks of the host's own store, and there are some."""
        assert self.held(host.name, "block_end")
        return all(self.held(host.name, table) == self.own(host, table) for table in ROWS)


def rows(store: Path, query: str, *values: object) -> list[tuple[Any, ...]]:
    if not store.exists():
        return []
    connection = sqlite3.connect(f"file:{store}?mode=ro", uri=True, timeout=30)
    try:
        return connection.execute(query, values).fetchall()
    except sqlite3.OperationalError:  # its tables are just being made
        return []
    finally:
        connection.close()


def make_keys(folder: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "iotrial", "fleet", "keys", folder], check=True, capture_output=True
    )


def journal(host: Host) -> list[str]:
    folder = host.state / "journal"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


@pytest.fixture
def folder(disk_folder: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=disk_folder))


@pytest.fixture(scope="module")
def pair(disk_folder: Path) -> Iterator[Fleet]:
    """Two hosts that the tests of the ordinary suite share."""
    folder = Path(tempfile.mkdtemp(dir=disk_folder))
    with network(folder, "alpha", "beta") as net:
        yield Fleet(net, folder)


@pytest.fixture
def two(folder: Path) -> Iterator[Fleet]:
    with network(folder, "alpha", "beta") as net:
        yield Fleet(net, folder)


@pytest.fixture
def one(folder: Path) -> Iterator[Fleet]:
    with network(folder, "alpha") as net:
        yield Fleet(net, folder)


def test_two_hosts_conduct_a_study_and_all_they_measured_is_with_the_coordinator(pair: Fleet) -> None:
    hosts = pair.net.hosts
    workers = [pair.worker(host) for host in hosts.values()]
    run = pair.run("--blocks", "10", "--json")
    assert run.wait() == 0, run.said
    text = run.said
    document = json.loads(text[text.index("{\n") :])
    jsonschema.validate(document, json.loads((ROOT / "schemas" / "fleet.schema.json").read_text()))
    assert [(host["name"], host["state"], host["blocks"]) for host in document["fleet"]["hosts"]] == [
        ("alpha", "done", 10),
        ("beta", "done", 10),
    ]
    assert text.startswith("lab        directory"), "a study from outside is shown before it runs"
    for host in hosts.values():
        assert pair.same(host)
        assert journal(host) == []
    headers = rows(pair.middle.state / "trials.db", "SELECT seed, options, study FROM trial ORDER BY number")
    assert len({seed for seed, _, _ in headers}) == 2, "each host draws a plan of its own"
    assert {json.loads(options)["fleet"]["id"] for _, options, _ in headers} == {pair.id}
    assert all(json.loads(study)["study"]["name"] == "small" for _, _, study in headers)
    # only what was named is bound
    listening = pair.middle.command("ss", "-ltnH").split("\n")
    assert {line.split()[3] for line in listening if line} == {"10.77.0.1:8786"}
    for host in hosts.values():
        bound = {line.split()[3].rpartition(":")[0] for line in host.command("ss", "-ltnH").splitlines()}
        assert bound == {host.address}
    # a fleet's trial cannot be resumed as one of this machine, and one that is over has nothing to resume
    again = pair.middle.start("resume", "last")
    assert again.wait() == 2
    assert "fleet resume" in again.said
    for worker in workers:
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0


def test_who_has_no_key_or_one_of_another_authority_is_not_answered(pair: Fleet) -> None:
    other = str(pair.middle.folder / "other")
    make_keys(other)
    stranger = pair.net.hosts["alpha"]
    asked = stranger.start("run", "files/permissions", "--fleet", "10.77.0.1:8786", "--keys", other)
    worker = pair.worker(stranger, other)
    assert asked.wait() == 1
    assert "no scheduler of this fleet" in asked.said
    eventually("the stranger is told that it is not taken", lambda: "trying again" in worker.said)
    # OpenSSL's own client, as one who is no program of ours: it is cut off in the handshake
    done = subprocess.run(
        stranger.enter("sh", "-c", "sleep 2 | openssl s_client -connect 10.77.0.1:8786 -tls1_3 2>&1"),
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert "certificate required" in done.stdout
    assert not (stranger.state / "fleets").exists()
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0


def cut_down(host: Host) -> None:
    """SIGKILL for everything of iotrial there, at once, as when the machine's power goes."""
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
        assert not host.processes("iotrial.fleet.keeper")
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
