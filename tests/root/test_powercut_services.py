"""`iotrial powercut` on real services: planted mistakes are found and named, correct stores lose nothing, nothing escapes."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from iotrial.errors import RequestError
from iotrial.lab.lock import MachineLock
from iotrial.powercut.stores import commands_of
from program import iotrial

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "powercut"))

import store

# attaching changes a loop device's read-ahead for a moment
pytestmark = [pytest.mark.root, pytest.mark.alone, pytest.mark.slow]

STORE = f"{sys.executable} -S -E {store.__file__}"


def powercut(kept: Path, *words: str, service: str, expect: int = 0, limit: str = "40s") -> dict[str, Any]:
    argv = [
        "powercut",
        "--json",
        "--keep",
        str(kept),
        "--seed",
        "5",
        "--time",
        limit,
        *words,
        "--",
        *shlex.split(service),
    ]
    done = iotrial(*argv)
    assert done.returncode == expect, done.stderr
    return json.loads(done.stdout)


def of_store(kept: Path, mistake: str, *words: str, expect: int = 0, count: int = 40) -> dict[str, Any]:
    dump = ("--dump", f"{STORE} dump {{dir}} {mistake}")
    return powercut(kept, *dump, *words, service=f"{STORE} work {{dir}} {mistake} {count}", expect=expect)[
        "settings"
    ][0]


def total(setting: dict[str, Any], what: str) -> int:
    return sum(run[what] for run in setting["runs"])


@pytest.mark.parametrize("correct", ["none", "files"])
def test_a_correct_store_loses_nothing(tmp_path: Path, correct: str) -> None:
    found = of_store(tmp_path, correct, "--points", "40", "--runs", "2", "--fail-if", "lost")
    assert total(found, "acknowledged") == 80
    assert total(found, "harmed") == 0
    assert found["examples"] == []


@pytest.mark.parametrize("mistake", ["log-not-synced", "renamed-before-sync", "folder-not-synced"])
def test_a_planted_mistake_is_found_named_and_seen_again(tmp_path: Path, mistake: str) -> None:
    junit = tmp_path / "junit.xml"
    found = of_store(
        tmp_path / "kept", mistake, "--points", "40", "--runs", "2", "--fail-if", "lost", "--fail-if", "corrupt",
        "--junit", str(junit), expect=4,
    )  # fmt: skip
    [example, *_] = found["examples"]
    assert example["mistakes"][0][0] == store.MISTAKES[mistake]
    folder = Path(example["folder"])
    assert (folder / "files").is_dir()
    assert "seen again" in iotrial("powercut", "--replay", str(folder)).stdout
    suite = ElementTree.parse(junit).getroot()
    assert int(suite.get("failures", "0")) == len(found["examples"])


def test_a_stale_lock_is_named_by_trying_without_it(tmp_path: Path) -> None:
    found = powercut(
        tmp_path, "--client", f"{STORE} ask {{port}} 20", "--dump", f"{STORE} ask {{port}} 0", "--points", "6", "--runs", "1",
        service=f"{STORE} serve {{dir}} stale-lock {{port}}",
    )["settings"][0]  # fmt: skip
    assert total(found, "not_started") > 0
    assert found["examples"][0]["mistakes"][0][0] == "stale lock"


def test_settings_are_compared_and_a_disk_that_is_not_flushed_is_worse(tmp_path: Path) -> None:
    document = powercut(
        tmp_path, "mount.option=barrier,nobarrier", "--dump", f"{STORE} dump {{dir}} none", "--points", "40",
        service=f"{STORE} work {{dir}} none 40", limit="90s",
    )  # fmt: skip
    kept, loses = document["settings"]
    assert (kept["mount_options"], loses["mount_options"]) == ("barrier", "nobarrier")
    assert total(kept, "harmed") == 0
    assert total(loses, "harmed") > 0


def test_sqlite_by_name_loses_at_one_setting_what_it_keeps_at_another(tmp_path: Path) -> None:
    """Its documentation says so: `normal` in WAL mode may lose the last commits, `full` does not."""
    words = ("--store", "sqlite", "-L", "sync", "full,normal", "--points", "24", "--runs", "2")
    found = powercut(tmp_path, *words, service="journal_mode=wal synchronous={sync}", limit="90s")
    full, normal = found["settings"]
    assert found["command"] == "sqlite journal_mode=wal 'synchronous={sync}'"
    assert total(full, "points") == total(normal, "points") == 24
    assert total(full, "harmed") == 0
    assert total(normal, "lost") > 12
    assert total(normal, "corrupt") == total(normal, "not_started") == 0


@pytest.mark.parametrize(
    ("name", "options"),
    [("postgresql", ""), ("mariadb", ""), ("redis", "--appendonly yes --appendfsync always"), ("etcd", "")],
)
def test_a_durable_store_that_is_known_by_name_keeps_what_it_acknowledged(
    tmp_path: Path, name: str, options: str
) -> None:
    try:
        commands_of(name, [])
    except RequestError as error:
        pytest.skip(error.message)
    words = ("--store", name, "--points", "6", "--runs", "1")
    found = powercut(tmp_path, *words, service=options, limit="3m")["settings"][0]
    assert total(found, "points") == 6
    assert total(found, "acknowledged") == 300
    assert total(found, "harmed") == 0


def test_it_waits_for_no_trial_and_disturbs_none(tmp_path: Path) -> None:
    with MachineLock():
        done = iotrial("powercut", "--keep", str(tmp_path), "--dump", "true", "--", "true", "{dir}")
    assert done.returncode != 0
    assert "another iotrial is running on this machine" in done.stderr


def test_a_signal_ends_it_and_leaves_nothing_in_memory(tmp_path: Path) -> None:
    before = set(Path("/dev/shm").glob("iotrial-cut-*"))
    argv = [
        sys.executable,
        "-m",
        "iotrial",
        "powercut",
        "--keep",
        str(tmp_path),
        "--points",
        "5000",
        "--time",
        "2m",
    ]
    argv += ["--dump", f"{STORE} dump {{dir}} none", "--", *shlex.split(f"{STORE} work {{dir}} none 40")]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as running:
        try:
            assert running.stderr is not None
            running.stderr.readline()  # a run has begun
            time.sleep(2)
            assert set(Path("/dev/shm").glob("iotrial-cut-*")) > before
            running.terminate()
            assert running.wait(40) == 128 + signal.SIGTERM
        finally:
            running.kill()
    assert set(Path("/dev/shm").glob("iotrial-cut-*")) == before


# -- hostile and broken ones


HOSTILE = {
    "writes elsewhere": "echo bad > {target} ; echo bad > /tmp/{mark} ; echo bad > /var/tmp/{mark}",
    "remounts the root": "mount -o remount,rw / ; echo bad > {target}",
    "looks for disks": "ls /dev/sd* /dev/vd* /dev/nvme* 2>/dev/null && echo corrupt disks",
    "makes a device": "mknod /tmp/{mark}-disk b 7 0 && echo corrupt device",
    "reaches the network": f"""{sys.executable} -c 'import socket; socket.create_connection(("1.1.1.1", 53), 2)' \\
        && echo corrupt network""",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_nothing_that_a_check_does_leaves_the_laboratory(tmp_path: Path, what: str) -> None:
    mark, target = f"iotrial-hostile-{os.getpid()}", tmp_path / "outside"
    target.write_text("good")
    script = HOSTILE[what].replace("{target}", str(target)).replace("{mark}", mark)
    found = powercut(
        tmp_path / "kept", "--check", f"({script}) 2>/dev/null; exit 0", "--points", "2", "--runs", "1",
        service=f"{STORE} work {{dir}} none 5",
    )["settings"][0]  # fmt: skip
    assert found["problem"] == ""
    assert total(found, "harmed") == 0
    assert target.read_text() == "good"
    assert not [
        path
        for path in (Path("/tmp", mark), Path("/var/tmp", mark), Path(f"/tmp/{mark}-disk"))
        if path.exists()
    ]


def test_a_service_that_takes_too_many_processes_does_not_start_and_all_of_them_end(tmp_path: Path) -> None:
    seconds = str(7_300_000 + os.getpid() % 100_000)
    bomb = f"while :; do sleep {seconds} & done"
    found = powercut(
        tmp_path, "--client", f"{STORE} ask {{port}} 5", "--dump", "sleep 20", "--service", bomb,
        "--points", "1", "--runs", "1",
        service=f"{STORE} serve {{dir}} none {{port}}",
    )["settings"][0]  # fmt: skip
    assert total(found, "not_started") == 1
    assert "processes" in found["examples"][0]["found"][0]
    left = subprocess.run(
        ["pgrep", "-f", f"sleep {seconds}"], capture_output=True, text=True, check=False
    ).stdout
    assert left == ""


def test_a_dump_that_fails_is_corrupt_and_one_that_prints_without_end_is_stopped(tmp_path: Path) -> None:
    found = powercut(
        tmp_path, "--dump", "echo sorry >&2; exit 3", "--points", "2", "--runs", "1", service=f"{STORE} work {{dir}} none 5"
    )["settings"][0]  # fmt: skip
    assert total(found, "corrupt") == 2
    assert "status 3: sorry" in found["examples"][0]["found"][0]


@pytest.mark.parametrize(
    ("service", "problem"),
    [
        ("true {dir}", "acknowledged nothing"),
        ("sh -c 'echo broken >&2; exit 7' {dir}", "status 7: broken"),
        ("sh -c 'echo acknowledged; echo acknowledged iotrial: ended' {dir}", "an item of the client"),
    ],
)
def test_a_client_that_does_not_work_is_no_verdict(tmp_path: Path, service: str, problem: str) -> None:
    found = powercut(tmp_path, "--dump", "true", "--points", "2", service=service, expect=6)["settings"][0]
    assert problem in found["problem"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dump", "true"], "no service given"),
        (["--", "true", "{dir}"], "give --dump or --check"),
        (["--dump", "true", "--", "true"], "no command names {dir}"),
        (["--dump", "true", "--", "./no-such-server", "{dir}"], "no program is called ./no-such-server"),
        (["vm.swappiness=1,60", "--dump", "true", "--", "true", "{dir}"], "a power cut compares"),
        (["mount.option=nodatacow,default", "--dump", "true", "--", "true", "{dir}"], "mount option of ext4"),
        (["--filesystem", "zfs", "--dump", "true", "--", "true", "{dir}"], "file system"),
        (["--size", "1 MiB", "--dump", "true", "--", "true", "{dir}"], "at least 300 MiB"),
        (["--user", "nobody-here", "--dump", "true", "--", "true", "{dir}"], "no such user"),
        (["--files", "/no/such", "--dump", "true", "--", "true", "{dir}"], "no such folder"),
        (["--seed", "x", "--dump", "true", "--", "true", "{dir}"], "whole number"),
        (["--replay", "/no/such"], "not a folder that"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_made(
    tmp_path: Path, words: list[str], message: str
) -> None:
    done = iotrial("powercut", "--keep", str(tmp_path / "kept"), *words)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert not (tmp_path / "kept").exists()
