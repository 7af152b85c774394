"""fio calling fio servers: the sum is what its job file's rate makes it, and servers are bound, and live, as long as said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from iotrial.conduct.crowd.client import Client
from iotrial.conduct.crowd.fio import _server
from running import failures_of, iotrial, stored_runs, write_study

from iotrial.probe.binary import find_binary

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


def conduct(folder: Path, text: str, *words: str) -> None:
    study = write_study(folder, text)
    plain = ("--trust", "--lab", "directory", "--on", str(folder), "--no-controls", "--no-stop")
    iotrial("run", study, *plain, *words)


@pytest.mark.long
def test_the_sum_of_two_clients_is_twice_the_rate_that_their_job_declares(
    everybody: Path, state: Path
) -> None:
    conduct(everybody, STUDY)
    runs = stored_runs(state)
    assert [run["failure"] for run in runs] == [None, None]
    for run in runs:
        assert run["responses"]["all.write.io_bytes"] == 2 * (1 << 20)
        # fio holds each to its rate, and a machine that hiccups makes it slower, never faster
        assert 0.2 * 2 * RATE <= run["responses"]["all.write.bw_bytes"] <= 1.25 * 2 * RATE
        assert 0.5 <= run["evidence"]["fairness"] <= 1.0 + 1e-9


@pytest.mark.long
def test_clients_at_addresses_of_their_own_work_in_the_folder_that_is_named(
    everybody: Path, state: Path
) -> None:
    text = STUDY.replace("clients = 2", f'clients = 2\nfolder = "{everybody}/home"')
    probe = find_binary()
    conduct(everybody, text, f"--client=a@127.0.0.2={probe}", f"--client=b@127.0.0.3={probe}")
    assert failures_of(state) == []
    # fio puts the address of whoever called before the name; both were called from here
    laid = {path.name: path.stat().st_size for path in (everybody / "home").iterdir()}
    assert set(laid.values()) == {1 << 20}
    assert all(name.endswith("job.0.0") for name in laid)


def listening_on(port: int) -> set[str]:
    """Addresses of IPv4 on which somebody listens at this port, as the kernel has them."""
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        address, at = line.split()[1].split(":")
        if int(at, 16) == port and line.split()[3] == "0A":
            found.add(".".join(str(byte) for byte in reversed(bytes.fromhex(address))))
    return found


@pytest.mark.long
def test_a_server_is_bound_to_the_named_address_alone_and_is_gone_after_the_run(everybody: Path) -> None:
    client = Client("a", (str(find_binary()),), local=False, begun=lambda _: None, address="127.0.0.2")
    client.start()
    try:
        with _server(client, str(everybody / "home"), None) as where:
            port = int(where.rpartition(",")[2])
            assert where == f"ip:127.0.0.2,{port}"
            assert listening_on(port) == {"127.0.0.2"}
        assert listening_on(port) == set()
    finally:
        client.close()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--client=a=true",), "say --client a@ADDRESS=COMMAND"),
        (("--client=a@127.0.0.2=true",), "no folder is named"),
    ],
)
def test_clients_that_fio_cannot_call_are_refused_before_anything_is_done(
    everybody: Path, state: Path, words: tuple[str, ...], says: str
) -> None:
    study = write_study(everybody, STUDY)
    done = iotrial("plan", study, "--trust", "--lab", "directory", "--json", *words, check=2)
    told = json.loads(done.stderr)["error"]
    assert says in f"{told['message']} {told['hint']}"
