"""SSH hosts: workers started through a real sshd, connections tunnelled through it, and trials that outlive
them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from fleet_network import ROWS, plain, rows
from running import write_study

import program
from iotrial.store import Store
from namespaces import eventually
from ssh_hosts import Bench, SshHost

pytestmark = [pytest.mark.root, pytest.mark.long]  # starts and stops hosts with networks of their own
SCHEMAS = Path(__file__).parents[2] / "schemas"
STUDY = ("files/permissions", "--lab=directory", "--no-controls", "--no-account", "--no-stop")
SHORT = (*STUDY, "--time=1s", "--blocks=1")
IMAGE = """\
[study]
name = "small-image"
question = "Does noatime make reading small files faster?"
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
def coordinator(state: Path, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the coordinator's state folder; the coordinator finds the bench through its environment."""
    monkeypatch.setenv("IOTRIAL_SSH_CONFIG", str(bench.config))
    return state


class Run:
    """A coordinator in a process of its own, with its output."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._out = folder / "said"
        with self._out.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "iotrial", *words],
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip

    @property
    def said(self) -> str:
        return self._out.read_text(errors="replace")

    def wait(self, within_s: float = 300) -> int:
        return self.process.wait(within_s)


def held(coordinator: Path, host: str, table: str) -> list[list[object]]:
    """Return the rows of a host's trial in the coordinator's store."""
    query = (
        f"SELECT {ROWS[table]} FROM {table} WHERE trial = (SELECT number FROM trial WHERE "
        "json_extract(options, '$.fleet.host') = ?) ORDER BY condition, block"
    )
    found = rows(coordinator / "trials.db", f"{query}{', slot' if table == 'run' else ''}", host)
    return plain(found)


def own(host: SshHost, table: str) -> list[list[object]]:
    """Return the rows of finished blocks in the host's own store."""
    query = (
        f"SELECT {ROWS[table]} FROM {table} WHERE (condition, block) IN (SELECT condition, block FROM block_end) "
        f"ORDER BY condition, block{', slot' if table == 'run' else ''}"
    )
    (store,) = host.state.glob("fleet/*/trials.db")
    return plain(rows(store, query))


def blocks(coordinator: Path, host: str) -> int:
    return len(held(coordinator, host, "block_end"))


def same(coordinator: Path, host: SshHost) -> bool:
    assert held(coordinator, host.name, "block_end")
    return all(held(coordinator, host.name, table) == own(host, table) for table in ROWS)


def states(host: SshHost) -> list[str]:
    (store,) = host.state.glob("fleet/*/trials.db")
    return [state for (state,) in rows(store, "SELECT state FROM state ORDER BY sequence")]


def left(host: SshHost) -> list[str]:
    """Return the journal entries left on the host."""
    journal = host.state / "journal"
    return sorted(path.name for path in journal.iterdir()) if journal.is_dir() else []


def nothing_runs(host: SshHost) -> Callable[[], bool]:
    return lambda: not host.processes()


def test_one_study_runs_on_two_hosts_that_have_nothing_open_but_ssh(bench: Bench, coordinator: Path) -> None:
    hosts = [bench.host("alpha"), bench.host("beta")]
    done = program.iotrial("run", *SHORT, "--hosts", "alpha,beta", "--json", timeout=300)
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
        assert same(coordinator, host)
        eventually("nothing runs there", nothing_runs(host))
        found = sorted(str(path.relative_to(host.folder)) for path in host.folder.glob("[hv]*/*"))
        caches = {"home-root/.cache", "home-root/.config"}  # Dask's configuration
        assert [one for one in found if one not in caches] == [
            "home-root/.ssh",
            "home/worker",
            "varlib/iotrial",
        ]


def test_a_coordinator_that_is_killed_is_resumed_with_all_that_hosts_measured_meanwhile(
    bench: Bench, coordinator: Path, tmp_path: Path
) -> None:
    host = bench.host("steady")
    run = Run(tmp_path, "run", *STUDY, "--time=40s", "--hosts", "steady")
    eventually("it measures", lambda: blocks(coordinator, "steady"), said=lambda: run.said)
    assert not [words for words in host.processes() if "PRIVATE" in words], "keys are in no command line"
    run.process.kill()
    run.wait()
    had = blocks(coordinator, "steady")
    eventually("its worker ends", lambda: not [w for w in host.processes() if "fleet worker" in w])
    assert [words for words in host.processes() if "keeper" in words], "its trial goes on"
    eventually("it goes on", lambda: len(own(host, "block_end")) > had)
    done = program.iotrial("fleet", "resume", "last", "--json", timeout=300)
    assert done.returncode == 0, done.stderr
    assert states(host) == ["running", "done"]
    assert blocks(coordinator, "steady") > had
    assert same(coordinator, host)


def test_a_host_whose_coordinator_is_killed_for_good_puts_everything_back_and_ends(
    bench: Bench, coordinator: Path, tmp_path: Path
) -> None:
    host = bench.host("alone")
    run = Run(tmp_path, "run", *STUDY, "--time=10min", "--grace=5s", "--hosts", "alone")
    eventually("it measures", lambda: blocks(coordinator, "alone"), said=lambda: run.said)
    run.process.kill()
    run.wait()
    eventually("nothing runs there", nothing_runs(host))
    assert left(host) == []
    assert states(host) == ["running", "interrupted"]


def test_a_link_that_is_cut_and_mended_loses_nothing_and_the_host_measures_on(
    bench: Bench, coordinator: Path, tmp_path: Path
) -> None:
    host = bench.host("far")
    run = Run(tmp_path, "run", *STUDY, "--time=60s", "--hosts", "far")
    eventually("it measures", lambda: blocks(coordinator, "far"), said=lambda: run.said)
    host.link("down")
    eventually("it is missed", lambda: "far: lost" in run.said)
    had = len(own(host, "block_end"))
    eventually("it measures on", lambda: len(own(host, "block_end")) > had)
    host.link("up")
    eventually("it is back", lambda: "far: is back" in run.said)
    assert run.wait() == 0, run.said
    assert states(host) == ["running", "done"]
    assert same(coordinator, host)


def test_a_host_where_everything_is_killed_is_restored_and_goes_on(
    bench: Bench, coordinator: Path, tmp_path: Path
) -> None:
    host = bench.host("struck")
    run = Run(tmp_path, "run", *STUDY, "--time=30s", "--hosts", "struck")
    eventually("it measures", lambda: blocks(coordinator, "struck"), said=lambda: run.said)
    eventually("something is to be put back", lambda: left(host))
    host.kill()
    assert run.wait() == 0, run.said
    assert left(host) == []
    assert states(host) == ["running", "running", "done"]
    assert same(coordinator, host)


def test_a_coordinator_that_is_interrupted_has_hosts_put_everything_back(
    bench: Bench, coordinator: Path, tmp_path: Path
) -> None:
    host = bench.host("asked")
    run = Run(tmp_path, "run", *STUDY, "--time=10min", "--hosts", "asked")
    eventually("it measures", lambda: blocks(coordinator, "asked"), said=lambda: run.said)
    os.kill(run.process.pid, signal.SIGINT)
    assert run.wait() == 130, run.said
    assert "fleet resume" in run.said
    assert left(host) == []
    assert same(coordinator, host)
    eventually("nothing runs there", nothing_runs(host))


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


def test_root_on_a_host_conducts_in_an_image_and_leaves_no_device(
    bench: Bench, coordinator: Path, tmp_path: Path
) -> None:
    host = bench.host("image")
    study = write_study(tmp_path, IMAGE)
    done = program.iotrial(
        "run", study, "--time=60s", "--blocks=2", "--no-stop", "--no-account", "--hosts", "image", "--json",
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with Store.open(coordinator / "trials.db", read_only=True) as store:
        header = store.data("last").trial.header
    assert header.lab["kind"] == "image"
    assert blocks(coordinator, "image") == 2
    listed = subprocess.run(
        ["losetup", "--list", "--noheadings", "--output=BACK-FILE"], capture_output=True, text=True
    )
    assert str(host.folder) not in listed.stdout
    assert left(host) == []


def test_a_user_without_root_measures_in_the_directory_lab(bench: Bench, coordinator: Path) -> None:
    host = bench.host("plain", user="worker")
    tried = ["env", sys.executable, "-c", "import iotrial"]
    if subprocess.run(
        tried, user=61_234, group=61_234, extra_groups=(), cwd="/", capture_output=True
    ).returncode:
        pytest.skip("the Python of these tests is root's alone")
    done = program.iotrial("run", *SHORT, "--hosts", "plain", "--json", timeout=300)
    assert done.returncode == 0, done.stderr
    assert (host.folder / "home/worker/.local/state/iotrial").is_dir()
    assert not list((host.folder / "varlib").iterdir())


def test_what_earlier_builds_carried_is_removed(bench: Bench, coordinator: Path) -> None:
    host = bench.host("kept")
    for name in ("bundle-aa", "bundle-bb", "part-cc-7"):
        (host.folder / "home-root/.cache/iotrial" / name).mkdir(parents=True)
    for expected in (3, 0):
        done = program.iotrial("fleet", "clean", "--hosts", "kept", "--json")
        assert (done.returncode, done.stderr) == (0, "")
        document = json.loads(done.stdout)
        jsonschema.validate(document, json.loads((SCHEMAS / "fleet-clean.schema.json").read_text()))
        assert document["hosts"] == [{"name": "kept", "removed": expected, "problem": None}]
    assert not (host.folder / "home-root/.cache/iotrial").exists()
