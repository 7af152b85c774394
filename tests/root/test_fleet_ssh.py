"""Hosts by ssh: a bundle is carried to a real sshd, and a trial is conducted there with nothing of this machine's files."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

import program
from iotrial.errors import IotrialError
from iotrial.fleet.link import Batch, Lost, Position, Stage
from iotrial.fleet.order import Order
from iotrial.fleet.ssh.bundle import Bundle, bundle
from iotrial.fleet.ssh.link import SshLink
from iotrial.fleet.ssh.placing import clean
from iotrial.probe.binary import find_binary
from iotrial.store import Store
from ssh_hosts import Bench, ssh_to

pytestmark = [pytest.mark.root, pytest.mark.long]  # hosts with networks of their own, started and ended
SCHEMAS = Path(__file__).parents[2] / "schemas"
FLEET = "0123456789abcdef" * 2


@pytest.fixture(scope="module")
def carried(disk_folder: Path) -> Bundle:
    return bundle(find_binary(), disk_folder / "bundles")


def order(host: str, *, seconds: float = 2, grace_s: float = 120) -> Order:
    return Order(
        FLEET, host, "ab" * 16, "files/permissions",
        options={"lab": ("directory",), "time": (f"{seconds}s",), "blocks": ("3",)} if seconds < 10 else
        {"lab": ("directory",), "time": (f"{seconds}s",)},
        flags=("no-stop",), grace_s=grace_s,
    )  # fmt: skip


def wait_for(what: Callable[[], object], within_s: float = 120) -> None:
    deadline = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def all_of(link: SshLink, within_s: float = 180) -> list[Batch]:
    """Everything that the host has until its trial has ended."""
    found: list[Batch] = []
    position = Position()
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        batch = link.after(FLEET, position)
        found.append(batch)
        position = batch.after
        if batch.stage is Stage.ENDED and not batch.more:
            return found
        time.sleep(0.2)
    raise AssertionError(found[-1])


@pytest.fixture
def coordinator(state: Path, bench: Bench, carried: Bundle, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The coordinator's state folder; it has the bundle already, and finds the bench by its environment."""
    bundles = state / "fleet" / "bundles"
    bundles.parent.mkdir(parents=True)
    bundles.symlink_to(carried.path.parent)
    monkeypatch.setenv("IOTRIAL_SSH_CONFIG", str(bench.config))
    return state


def started(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "iotrial", *words],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


SHORT = ("files/permissions", "--lab=directory", "--time=1s", "--blocks=1", "--no-controls", "--no-account")


def test_one_study_on_two_hosts_by_ssh_with_nothing_of_this_machines_files_and_nothing_left_but_what_is_said(
    bench: Bench, coordinator: Path
) -> None:
    hosts = [bench.host("alpha"), bench.host("beta")]
    done = program.iotrial("run", *SHORT, "--hosts", "alpha,beta", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    jsonschema.validate(document, json.loads((SCHEMAS / "fleet.schema.json").read_text()))
    assert [(one["name"], one["state"]) for one in document["fleet"]["hosts"]] == [
        ("alpha", "done"),
        ("beta", "done"),
    ]
    assert all(one["blocks"] > 0 and one["not_put_back"] == 0 for one in document["fleet"]["hosts"])
    with Store.open(coordinator / "trials.db") as store:
        for one in document["fleet"]["hosts"]:
            header = store.data(one["trial"]["id"]).trial.header
            assert header.options["fleet"] == {"id": document["fleet"]["id"], "host": one["name"]}
    for host in hosts:
        wait_for(lambda host=host: not host.processes())  # type: ignore[misc]
        assert host.cache.stat().st_mode & 0o777 == 0o700
        assert len(list(host.cache.iterdir())) == 1
        left = sorted(str(path.relative_to(host.folder)) for path in host.folder.glob("[hv]*/*"))
        assert left == ["home-root/.cache", "home-root/.ssh", "home/worker", "varlib/iotrial"]
    cleaned = program.iotrial("fleet", "clean", "--hosts", "alpha,beta", "--json")
    assert (cleaned.returncode, cleaned.stderr) == (0, "")
    jsonschema.validate(
        json.loads(cleaned.stdout), json.loads((SCHEMAS / "fleet-clean.schema.json").read_text())
    )
    assert [one["removed"] for one in json.loads(cleaned.stdout)["hosts"]] == [1, 1]
    assert not any(host.cache.exists() for host in hosts)


def test_no_trial_begins_where_one_of_the_hosts_cannot_take_part(bench: Bench, coordinator: Path) -> None:
    bench.host("strange", known=False)
    bench.host("closed", access=False)
    done = program.iotrial("run", *SHORT, "--hosts", "strange,closed", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    error = json.loads(done.stderr)["error"]
    assert "2 of 2 hosts cannot take part; no trial was begun" in error["message"]
    assert "not known here" in error["message"]
    assert "no access" in error["message"]
    assert not (coordinator / "trials.db").exists()
    assert not (coordinator / "fleets").exists()


def test_a_host_that_cannot_be_reached_holds_up_no_other_and_is_left_out_in_the_end(
    bench: Bench, coordinator: Path
) -> None:
    bench.host("there")
    bench.host("away").close()
    done = program.iotrial("run", *SHORT, "--hosts", "there,away", "--grace=5s", "--json", timeout=300)
    assert done.returncode == 1, done.stderr
    there, away = sorted(
        json.loads(done.stdout)["fleet"]["hosts"], key=lambda one: str(one["name"]), reverse=True
    )
    assert (there["state"], away["state"]) == ("done", "left out")
    assert there["blocks"] > away["blocks"] == 0
    assert "cannot be reached" in away["said"]


def test_a_host_without_room_says_so_and_nothing_half_is_left(bench: Bench, carried: Bundle) -> None:
    small = "mkdir /root/.cache && mount -t tmpfs -o size=20m none /root/.cache"
    host = bench.host("small", extra=small)
    with pytest.raises(IotrialError, match="No space left on device"):
        SshLink(ssh_to(host, bench), carried).facts()
    assert clean(ssh_to(host, bench)) == 0


def test_a_coordinator_that_is_killed_goes_on_with_all_that_the_hosts_measured_meanwhile(
    bench: Bench, coordinator: Path
) -> None:
    host = bench.host("steady")
    words = (
        "files/permissions",
        "--lab=directory",
        "--time=30s",
        "--no-stop",
        "--no-controls",
        "--no-account",
    )
    killed = started("run", *words, "--hosts", "steady", "--json")

    def blocks() -> int:
        if not (coordinator / "trials.db").exists():
            return 0
        with Store.open(coordinator / "trials.db", read_only=True) as store:
            found = store.trials()
            return len(store.data(found[0].header.id).ends) if found else 0

    wait_for(blocks)
    killed.kill()
    killed.communicate()
    assert [words for words in host.processes() if "keeper" in words]
    # what is in use is not taken away
    refused = program.iotrial("fleet", "clean", "--hosts", "steady")
    assert refused.returncode == 1
    assert "a trial goes on there" in refused.stderr
    had = blocks()
    done = program.iotrial("fleet", "resume", "last", "--json")
    assert done.returncode == 0, done.stderr
    (one,) = json.loads(done.stdout)["fleet"]["hosts"]
    assert one["state"] == "done"
    assert one["blocks"] >= had > 0
    # as many as the host's own store has, in the same order
    (own,) = host.state.glob("fleet/*/trials.db")
    with (
        Store.open(own, read_only=True) as theirs,
        Store.open(coordinator / "trials.db", read_only=True) as ours,
    ):
        measured = [(end.condition, end.block) for end in theirs.data(one["trial"]["id"]).ends]
        gathered = [(end.condition, end.block) for end in ours.data(one["trial"]["id"]).ends]
    assert gathered == measured


def test_a_trial_is_conducted_by_what_was_carried_and_leaves_only_the_bundle_and_the_state_folder(
    bench: Bench, carried: Bundle
) -> None:
    host = bench.host("alpha")
    said: list[str] = []
    link = SshLink(ssh_to(host, bench), carried, said.append)
    assert link.facts().root
    assert link.facts().name == "alpha"
    link.begin(order("alpha"))
    batches = all_of(link)
    assert not batches[-1].problem
    assert batches[-1].left == 0
    ends = [end for batch in batches for end in batch.ends]
    runs = [packed for batch in batches for packed in batch.runs]
    assert len({(end.condition, end.block) for end in ends}) == len(ends) > 0
    assert len(runs) >= 2 * len(ends)
    link.close()
    wait_for(lambda: not [words for words in host.processes() if "resident" in words])
    assert oct(host.cache.stat().st_mode & 0o777) == "0o700"
    assert [path.name for path in host.cache.iterdir()] == [f"bundle-{carried.id}"]
    left = sorted(str(path.relative_to(host.folder)) for path in host.folder.glob("[hv]*/*"))
    assert left == ["home-root/.cache", "home-root/.ssh", "home/worker", "varlib/iotrial"]
    assert len(said) == 1


def test_a_bundle_is_used_again_carried_anew_when_it_has_changed_and_taken_away(
    bench: Bench, carried: Bundle
) -> None:
    host = bench.host("kept")
    said: list[str] = []
    for _ in range(2):
        link = SshLink(ssh_to(host, bench), carried, said.append)
        link.facts()
        link.close()
    assert len(said) == 1
    (host.cache / f"bundle-{carried.id}" / "packages/click/core.pyc").write_bytes(b"changed")
    mended = SshLink(ssh_to(host, bench), carried, said.append)
    assert mended.facts().root
    mended.close()
    assert len(said) == 2
    wait_for(lambda: not host.processes())
    assert clean(ssh_to(host, bench)) == 1
    assert not host.cache.exists()


def test_a_link_that_is_cut_and_mended_loses_nothing_and_the_host_goes_on_meanwhile(
    bench: Bench, carried: Bundle
) -> None:
    host = bench.host("far")
    link = SshLink(ssh_to(host, bench), carried)
    link.begin(order("far", seconds=45))
    seen: list[tuple[str, int]] = []
    position = Position()

    def ask() -> Batch:
        nonlocal position
        batch = link.after(FLEET, position)
        position = batch.after
        seen.extend((end.condition, end.block) for end in batch.ends)
        return batch

    def lost() -> bool:
        try:
            ask()
        except Lost:
            return True
        return False

    wait_for(lambda: ask().ends)
    host.link("down")
    wait_for(lost)
    had = len(seen)
    time.sleep(2)
    host.link("up")

    def back() -> bool:
        try:
            return bool(ask().ends)
        except Lost:
            return False

    wait_for(back)
    assert len(seen) > had
    link.stop(FLEET)
    wait_for(lambda: ask().stage is Stage.ENDED)
    while ask().more:
        pass
    assert len(seen) == len(set(seen))
    link.close()


def test_a_host_that_nobody_asks_ends_by_itself_after_its_time_of_grace(
    bench: Bench, carried: Bundle
) -> None:
    host = bench.host("alone")
    link = SshLink(ssh_to(host, bench), carried)
    link.begin(order("alone", seconds=600, grace_s=3))
    link.close()
    wait_for(lambda: not host.processes())
    again = SshLink(ssh_to(host, bench), carried)
    batch = again.after(FLEET, Position())
    assert batch.stage is Stage.ENDED
    assert batch.left == 0
    again.close()


def test_a_user_without_root_conducts_in_the_directory_lab(bench: Bench, carried: Bundle) -> None:
    host = bench.host("plain", user="worker")
    link = SshLink(ssh_to(host, bench, "worker"), carried)
    assert not link.facts().root
    link.begin(order("plain"))
    batches = all_of(link)
    assert not batches[-1].problem
    assert any(batch.ends for batch in batches)
    link.close()
    assert (host.folder / "home/worker/.local/state/iotrial").is_dir()
    assert not list((host.folder / "varlib").iterdir())
