"""fio as client of fio servers: the total matches the rate in its job file, each client has a folder, and
nothing is left."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
from running import failures_of, iotrial, stored_runs, write_study

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed"),
]

RATE = 2 << 20
STUDY = f"""
[study]
name = "called"
question = "How fast are several?"
[budget]
time = "60 s"
blocks = 1
[[factor]]
name = "bs"
knob = "command.argument"
placeholder = "{{bs}}"
levels = ["64k", "128k"]
[[workload]]
name = "write"
kind = "fio"
clients = 2
timeout = "60 s"
job = '''
[global]
size=1m
rw=write
rate={RATE}
bs={{bs}}
[job]
'''
pick = ["all.write.bw_bytes", "all.write.io_bytes"]
"""


def conduct(folder: Path, text: str, lab: str) -> None:
    study = write_study(folder, text)
    iotrial("run", study, "--trust", "--lab", lab, "--on", str(folder), "--no-controls", "--no-stop")


def servers() -> list[str]:
    """Return the command lines of running fio servers."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if line.startswith("fio --server"):
            found.append(line)
    return found


@pytest.mark.parametrize("lab", ["directory", "image"])
def test_the_sum_of_two_clients_is_twice_the_rate_that_their_job_declares(
    everybody: Path, state: Path, lab: str
) -> None:
    conduct(everybody, STUDY, lab)
    runs = stored_runs(state)
    assert [run["failure"] for run in runs] == [None, None]
    for run in runs:
        assert run["responses"]["all.write.io_bytes"] == 2 * (1 << 20)
        # fio limits each client to its rate; a stall of the machine makes it slower, never faster
        assert 0.2 * 2 * RATE <= run["responses"]["all.write.bw_bytes"] <= 1.25 * 2 * RATE
        assert 0.5 <= run["evidence"]["fairness"] <= 1.0 + 1e-9
    assert servers() == []


def test_hosts_work_in_the_folder_that_is_named(everybody: Path, state: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(["fio", f"--server=ip:127.0.0.1,{port}"], stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 10
        while time.monotonic() < until:
            with socket.socket() as asked:
                if asked.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        there = f'hosts = ["127.0.0.1:{port}"]\nfolder = "{everybody}/home"'
        conduct(everybody, STUDY.replace("clients = 2", there), "directory")
    finally:
        server.terminate()
        server.wait(10)
    assert failures_of(state) == []
    laid = [path for path in (everybody / "home").iterdir() if path.name.endswith("job.0.0")]
    assert [path.stat().st_size for path in laid] == [1 << 20]


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ('hosts = ["nas-client"]\nfolder = "/x"', "expected an IP address"),
        ('hosts = ["127.0.0.1"]', "needs hosts"),
        ('folder = "/x"', "needs hosts"),
        ('clients = 2\nhosts = ["127.0.0.1"]\nfolder = "/x"', "either on this machine or on hosts"),
    ],
)
def test_clients_that_fio_cannot_call_are_refused_before_anything_is_done(
    everybody: Path, state: Path, keys: str, says: str
) -> None:
    study = write_study(everybody, STUDY.replace("clients = 2", keys))
    done = iotrial("plan", study, "--trust", "--lab", "directory", "--json", check=2)
    assert says in done.stderr + done.stdout


def test_a_host_that_does_not_answer_is_a_failure_that_names_it(everybody: Path, state: Path) -> None:
    there = f'hosts = ["127.0.0.1:9"]\nfolder = "{everybody}/home"'
    conduct(everybody, STUDY.replace("clients = 2", there), "directory")
    assert failures_of(state)


def test_a_job_that_names_a_folder_works_in_the_lab_instead(everybody: Path, state: Path) -> None:
    """The report says so; nothing is made where the job file points to."""
    there = everybody / "theirs"
    there.mkdir(mode=0o777)
    job = STUDY.replace("clients = 2\n", "").replace(
        "size=1m", f"size=1m\ndirectory={there}\nfilename={there}/data"
    )
    conduct(
        everybody,
        job.replace('["all.write.bw_bytes", "all.write.io_bytes"]', '["jobs.job.write.bw_bytes"]'),
        "directory",
    )
    assert not list(there.iterdir())
    assert not any(run["failure"] for run in stored_runs(state))
    assert f"filename={there}/data: file data of the lab" in " ".join(
        iotrial("report", "last", "--full").stdout.split()
    )
