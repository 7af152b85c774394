"""Reading fio's output with several clients, and which of it a study may use."""

from __future__ import annotations

from typing import Any

import pytest

from iotrial.errors import StudyError
from iotrial.study.reader import read_study
from iotrial.study.trust import demands
from iotrial.workloads.fio_result import evenness, missing_of, of_clients


def entry(port: int, write: float, *, error: int = 0, name: str = "job") -> dict[str, Any]:
    ways = {"read": {"bw_bytes": 0}, "write": {"bw_bytes": write}, "trim": {"bw_bytes": 0}}
    return {"jobname": name, "hostname": "127.0.0.1", "port": port, "error": error, **ways}


TWO = {"client_stats": [entry(1, 30.0), entry(2, 10.0), entry(1, 40.0, name="All clients")]}


def test_the_sum_is_fios_own_and_with_one_client_it_is_that_client() -> None:
    assert of_clients(TWO)["all"]["write"]["bw_bytes"] == 40.0
    assert of_clients({"client_stats": [entry(1, 30.0)]})["all"]["write"]["bw_bytes"] == 30.0
    assert of_clients({})["all"] == {}


def test_fairness_is_of_the_clients_and_not_of_their_sum() -> None:
    assert evenness(TWO) == pytest.approx(40**2 / (2 * (30**2 + 10**2)))
    assert evenness({"client_stats": [entry(1, 0.0)]}) is None
    assert evenness({"client_stats": "nonsense"}) is None


def test_a_client_that_gave_nothing_or_failed_is_told() -> None:
    assert missing_of(TWO, 2) is None
    assert missing_of(TWO, 3) == "fio returned results of 2 of 3 clients"
    assert "port 2 ended with error 5" in str(
        missing_of({"client_stats": [entry(1, 1.0), entry(2, 1.0, error=5)]}, 2)
    )
    # two processes of one client are one client
    assert (
        missing_of({"client_stats": [entry(1, 1.0), entry(1, 1.0)]}, 2)
        == "fio returned results of 1 of 2 clients"
    )


STUDY = """
[study]
name = "f"
question = "?"
[[factor]]
name = "mode"
knob = "command.argument"
placeholder = "{bs}"
levels = ["4k", "8k"]
[[workload]]
name = "w"
kind = "fio"
job = "[a]\\nrw=read\\nsize=1m\\nbs={bs}"
"""


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ('clients = 2\npick = ["jobs.a.read.iops"]\n', "is not a number of all clients"),
        ('folder = "/mnt"\npick = ["read.iops"]\n', "needs hosts"),
        ('hosts = ["10.0.0.1"]\nfolder = "mnt"\npick = ["all.read.iops"]\n', "absolute path"),
        ('hosts = ["10.0.0.1"]\npick = ["all.read.iops"]\n', "needs hosts"),
        ('hosts = ["nas"]\nfolder = "/mnt"\npick = ["all.read.iops"]\n', "expected an IP address"),
        (
            'hosts = ["10.0.0.1"]\nfolder = "/mnt"\nclients = 2\npick = ["all.read.iops"]\n',
            "on this machine or on hosts",
        ),
        ('clients = 2\nrun_as = "root"\npick = ["all.read.iops"]\n', "never run as root"),
        ("clients = 300\npick = ['all.read.iops']\n", "clients"),
    ],
)
def test_what_cannot_be_asked_of_clients_is_refused(keys: str, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        read_study(STUDY + keys, "mine.toml", trusted=False)


def test_a_folder_of_other_hosts_needs_trust() -> None:
    study = read_study(
        STUDY + 'hosts = ["10.0.0.1"]\nfolder = "/mnt/nas"\npick = ["all.read.iops"]\n',
        "mine.toml",
        trusted=False,
    )
    assert any("work in /mnt/nas" in text for text in demands(study))
