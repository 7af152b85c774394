"""SSH hosts that refuse, lack something, or are hostile: the error names the problem, and no trial begins."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest

import program
from ssh_hosts import Bench, SshHost

pytestmark = [pytest.mark.root, pytest.mark.long]  # starts and stops hosts with networks of their own
SHORT = ("files/permissions", "--lab=directory", "--time=1s", "--blocks=1", "--no-controls", "--no-account")


@pytest.fixture
def coordinator(state: Path, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("IOTRIAL_SSH_CONFIG", str(bench.config))
    return state


def refused(coordinator: Path, *hosts: str, status: int = 2) -> dict[str, str]:
    """Return the error of a run that is refused; check that nothing was begun."""
    done = program.iotrial("run", *SHORT, "--hosts", ",".join(hosts), "--json", timeout=300)
    assert (done.returncode, done.stdout) == (status, ""), done.stderr
    assert not (coordinator / "trials.db").exists()
    assert not (coordinator / "fleets").exists()
    error: dict[str, str] = json.loads(done.stderr)["error"]
    for character in error["message"] + (error["hint"] or ""):
        assert unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert len(error["message"]) < 5000
    return error


def replaced(host: SshHost, script: str) -> None:
    """Replace iotrial on the host by another program."""
    host.program.write_text(f"#!/bin/sh\n{script}\n")


def test_no_trial_begins_where_hosts_cannot_take_part_and_each_is_named(
    bench: Bench, coordinator: Path
) -> None:
    bench.host("strange", known=False)
    bench.host("closed", access=False)
    bench.host("good")
    error = refused(coordinator, "strange", "closed", "good")
    assert "2 of 3 hosts cannot take part; no trial was begun" in error["message"]
    assert "its SSH host key is unknown" in error["message"]
    assert "no access" in error["message"]
    assert not bench.known.read_text().count("\n") > 2, "no key was accepted unseen"


def test_a_host_with_another_key_than_the_known_one_is_refused(bench: Bench, coordinator: Path) -> None:
    host = bench.host("changed", known=False)
    other = (bench.folder / "id.pub").read_text().split()
    bench.known.write_text(f"{host.address} {other[0]} {other[1]}\n")
    assert "has changed" in refused(coordinator, "changed")["message"]


def test_a_host_without_iotrial_is_told_how_to_get_it(bench: Bench, coordinator: Path) -> None:
    bench.host("bare").program.unlink()
    error = refused(coordinator, "bare")
    assert "no executable iotrial on its PATH" in error["message"]
    assert "pip install" in error["hint"]


def test_a_host_with_another_version_is_told_both_and_sent_no_keys(bench: Bench, coordinator: Path) -> None:
    host = bench.host("old")
    replaced(host, "echo welcome\necho iotrial-worker 0.0.9\ncat > /run/host/sent")
    error = refused(coordinator, "old")
    assert "has iotrial 0.0.9, and this is" in error["message"]
    assert (host.folder / "sent").read_bytes() == b""


def test_a_host_whose_sshd_forwards_no_ports_is_told_what_to_set(bench: Bench, coordinator: Path) -> None:
    bench.host("walled", sshd="AllowTcpForwarding no")
    error = refused(coordinator, "walled")
    assert "does not allow port forwarding" in error["message"]
    assert "AllowTcpForwarding" in error["hint"]


def test_hosts_that_are_all_away_are_lost(bench: Bench, coordinator: Path) -> None:
    bench.host("gone").close()
    assert "no host can be reached" in refused(coordinator, "gone", status=1)["message"]


@pytest.mark.parametrize(
    ("script", "status", "words"),
    [
        ("head -c 1000000 /dev/urandom; sleep 100", 2, "before the output of iotrial"),
        ("yes | tr -d '\\n'", 2, "before the output of iotrial"),
        ("printf '\\033[2J' >&2; exit 2", 2, "\\x1b[2J"),
        ("echo iotrial-worker $(printf '\\033[2J')", 2, "\\x1b[2J"),
        ("exit 0", 1, "ended with status 0"),
    ],
    ids=["garbage", "a line without end", "words that steer", "a version that steers", "an end"],
)
def test_what_a_hostile_host_says_is_bounded_and_steers_no_terminal(
    bench: Bench, coordinator: Path, script: str, status: int, words: str
) -> None:
    replaced(bench.host("hostile"), script)
    assert words in refused(coordinator, "hostile", status=status)["message"]
