"""A small fleet on a Dask cluster with TLS: two hosts run a study, and clients without a key are rejected.

What goes wrong in the middle of a trial is in test_fleet_network.py.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
from fleet_network import Fleet, make_keys, restored, rows

from namespaces import network

pytestmark = [pytest.mark.root]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def pair(disk_folder: Path) -> Iterator[Fleet]:
    folder = Path(tempfile.mkdtemp(dir=disk_folder))
    with network(folder, "alpha", "beta") as net:
        yield Fleet(net, folder)


def test_two_hosts_run_a_study_and_all_they_measured_is_with_the_coordinator(pair: Fleet) -> None:
    hosts = pair.net.hosts
    pair.workers()
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
    assert "uses no TLS" not in text
    for host in hosts.values():
        assert pair.same(host)
        assert restored(host)
    headers = rows(pair.middle.state / "trials.db", "SELECT seed, options, study FROM trial ORDER BY number")
    assert len({seed for seed, _, _ in headers}) == 2, "each host draws a plan of its own"
    assert {json.loads(options)["fleet"]["id"] for _, options, _ in headers} == {pair.id}
    assert all(json.loads(study)["study"]["name"] == "small" for _, _, study in headers)
    # a fleet's trial cannot be resumed as a local one, and a finished fleet has nothing to resume
    again = pair.middle.start("resume", "last")
    assert again.wait() == 2
    assert "fleet resume" in again.said
    done = pair.resume()
    assert done.wait() == 0, done.said
    assert pair.states(hosts["alpha"]) == ["running", "done"]


def test_who_has_no_key_or_one_of_another_authority_is_not_answered(pair: Fleet) -> None:
    stranger = pair.net.hosts["alpha"]
    asked = pair.run(host=stranger, keys=make_keys(stranger.folder / "other"))
    assert asked.wait() == 1
    assert "no Dask scheduler answers at tls://10.77.0.1:8786" in asked.said
    without = stranger.start("fleet", "run", pair.study, "--scheduler", "tls://10.77.0.1:8786")
    assert without.wait() == 2
    assert "tls" in without.said.lower()
    assert not (stranger.state / "fleets").exists()
    assert not (stranger.state / "trials.db").exists()
