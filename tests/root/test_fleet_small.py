"""A small fleet over a network: two hosts run a study over TLS, and clients without a key are rejected.

The slow cases, with links that go down and processes that are killed, are in test_fleet_network.py.
"""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
from fleet_network import Fleet, journal, make_keys, rows

from namespaces import LIMIT_S, eventually, network

pytestmark = [pytest.mark.root]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def pair(disk_folder: Path) -> Iterator[Fleet]:
    folder = Path(tempfile.mkdtemp(dir=disk_folder))
    with network(folder, "alpha", "beta") as net:
        yield Fleet(net, folder)


@pytest.fixture
def alone(disk_folder: Path) -> Iterator[Fleet]:
    folder = Path(tempfile.mkdtemp(dir=disk_folder))
    with network(folder, "alpha") as net:
        yield Fleet(net, folder)


def test_two_hosts_conduct_a_study_and_all_they_measured_is_with_the_coordinator(pair: Fleet) -> None:
    hosts = pair.net.hosts
    workers = [pair.worker(host) for host in hosts.values()]
    run = pair.run("--blocks", "4", "--json")
    assert run.wait() == 0, run.said
    text = run.said
    document = json.loads(text[text.index("{\n") :])
    jsonschema.validate(document, json.loads((ROOT / "schemas" / "fleet.schema.json").read_text()))
    assert [(host["name"], host["state"], host["blocks"]) for host in document["fleet"]["hosts"]] == [
        ("alpha", "done", 4),
        ("beta", "done", 4),
    ]
    assert text.startswith("lab        directory"), "a study from outside is shown before it runs"
    for host in hosts.values():
        assert pair.same(host)
        assert journal(host) == []
    headers = rows(pair.middle.state / "trials.db", "SELECT seed, options, study FROM trial ORDER BY number")
    assert len({seed for seed, _, _ in headers}) == 2, "each host draws a plan of its own"
    assert {json.loads(options)["fleet"]["id"] for _, options, _ in headers} == {pair.id}
    assert all(json.loads(study)["study"]["name"] == "small" for _, _, study in headers)
    # only the given addresses are bound
    listening = pair.middle.command("ss", "-ltnH").split("\n")
    assert {line.split()[3] for line in listening if line} == {"10.77.0.1:8786"}
    for host in hosts.values():
        bound = {line.split()[3].rpartition(":")[0] for line in host.command("ss", "-ltnH").splitlines()}
        assert bound == {host.address}
    # a fleet's trial cannot be resumed as a local one, and a finished one has nothing to resume
    again = pair.middle.start("resume", "last")
    assert again.wait() == 2
    assert "fleet resume" in again.said
    for worker in workers:
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0


def test_who_has_no_key_or_one_of_another_authority_is_not_answered(alone: Fleet) -> None:
    other = str(alone.middle.folder / "other")
    make_keys(other)
    stranger = alone.net.hosts["alpha"]
    asked = stranger.start("run", "files/permissions", "--fleet", "10.77.0.1:8786", "--keys", other)
    worker = alone.worker(stranger, other)
    assert asked.wait() == 1
    assert "no scheduler of this fleet" in asked.said
    eventually("the stranger learns that it is not taken", lambda: "trying again" in worker.said)
    # OpenSSL's client stands for a foreign program: it is disconnected in the handshake without any data
    with subprocess.Popen(
        stranger.enter("openssl", "s_client", "-connect", "10.77.0.1:8786", "-tls1_3"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as client:  # fmt: skip
        assert client.stdout is not None
        output = client.stdout.read()  # until end of file, with its input open
        client.wait(LIMIT_S)
    assert "certificate required" in output
    assert not (stranger.state / "fleets").exists()
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
