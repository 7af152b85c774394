"""Three clients with addresses of their own against one server on a link of a declared rate: what the sum, the fairness and
the server's time must be is known from the link.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest
from client_network import CLIENTS, PORT, SERVER, Network, bucket, host, inside, network, shell
from running import iotrial, stored_runs, write_study

from iotrial.probe.binary import find_binary

pytestmark = [pytest.mark.root, pytest.mark.long]  # they hold measured rates against the one that is declared

RATE, VOLUME = "40mbit", 1 << 20
#: of the declared rate, what TCP and Ethernet leave to the payload: 1448 of 1514 bytes
PAYLOAD = 40e6 / 8 * 1448 / 1514
STUDY = f"""
[study]
name = "fetch"
question = "How many clients does the link serve?"
[budget]
time = "60 s"
blocks = 2
[[factor]]
name = "word"
knob = "command.argument"
placeholder = "{{word}}"
levels = ["a", "b"]
[[factor]]
name = "clients"
knob = "work.option"
option = "clients"
role = "condition"
levels = [1, 3]
default = [3]
[[workload]]
name = "fetch"
kind = "clients"
server = "{SERVER}/{PORT}"
volume = "{VOLUME} B"
spread = 0.3
argv = ["bash", "-c", "exec 3<>/dev/tcp/$1 && test $(cat <&3 | wc -c) = {VOLUME}", "{{word}}", "{{server}}"]
"""


def buckets() -> bool:
    """Whether there are namespaces, and a token bucket in this kernel."""
    if any(shutil.which(tool) is None for tool in ("ip", "tc", "unshare", "nsenter")):
        return False
    try:
        with host() as holder:
            shell(*inside(holder, "tc", "qdisc", "add", "dev", "lo", *bucket(RATE)))
    except (OSError, subprocess.SubprocessError):
        return False
    return True


@pytest.fixture(scope="module")
def hosts() -> Iterator[Network]:
    if not buckets():
        pytest.skip("no network namespaces with a token bucket here (unshare, nsenter, ip, tc, sch_tbf)")
    with network(RATE, VOLUME) as made:
        yield made


def conduct(hosts: Network, folder: Path, state: Path, *words: str) -> list[dict[str, dict[str, float]]]:
    """The runs of a small trial, its clients the three hosts."""
    links = [f"--client={name}=" + shlex.join(hosts.inside(name, str(find_binary()))) for name in CLIENTS]
    server = "--server-probe=" + shlex.join(hosts.inside("srv", str(find_binary())))
    study = write_study(folder, STUDY)
    plain = ("--trust", "--lab", "directory", "--on", str(folder), "--no-controls", "--no-stop")
    iotrial("run", study, *plain, *words, *links, server)
    runs = stored_runs(state)
    assert [run["failure"] for run in runs] == [None] * len(runs)
    assert len(runs) >= 2
    return runs


def of(runs: list[dict[str, dict[str, float]]], name: str) -> list[float]:
    return [run["responses"][name] for run in runs]


def test_three_clients_share_the_link_evenly_and_fill_it_and_the_servers_time_is_counted(
    hosts: Network, everybody: Path, state: Path
) -> None:
    before = hosts.server_cpu_s()
    runs = conduct(hosts, everybody, state)
    used = hosts.server_cpu_s() - before
    # a bucket lets no more through than its rate, but for what it holds at first
    held = 1 + (32 << 10) / (3 * VOLUME)
    assert max(of(runs, "rate")) <= PAYLOAD * held * 1.02
    assert median(of(runs, "rate")) >= 0.6 * PAYLOAD
    assert median(of(runs, "fairness")) >= 0.8
    for run in runs:
        assert run["checks"]["clients"]["names"] == list(CLIENTS)  # type: ignore[comparison-overlap]
        assert run["responses"]["client_fastest"] <= run["responses"]["client_slowest"]
    # the server burns 20 ms for each of the clients; its machine's account holds that, and others' time besides
    assert used >= 0.02 * 3 * len(runs) * 0.9
    assert sum(of(runs, "server_cpu")) >= 0.9 * used - 0.02 * len(runs)
    assert min(of(runs, "server_softirq")) >= 0
    assert all(0 < busy <= 100 for busy in of(runs, "server_busy"))


def test_a_client_behind_a_slow_link_shows_as_unfair_and_is_the_slowest(
    hosts: Network, everybody: Path, state: Path
) -> None:
    hosts.slow("c3", "4mbit")
    try:
        runs = conduct(hosts, everybody, state, "--blocks", "1")
    finally:
        hosts.slow("c3", "1gbit")
    # at a tenth of the rate its megabyte alone takes longer than all three take together without it
    assert max(of(runs, "fairness")) < 0.95
    assert min(of(runs, "slowest_to_fastest")) > 1.5
    for run in runs:
        took = dict(zip(run["checks"]["clients"]["names"], run["checks"]["clients"]["took_s"], strict=True))  # type: ignore[call-overload]
        assert max(took, key=lambda name: took[name]) == "c3"
        assert took["c3"] >= (VOLUME - (32 << 10)) / (4e6 / 8)


def test_one_client_takes_as_long_as_the_link_needs_for_its_volume(
    hosts: Network, everybody: Path, state: Path
) -> None:
    runs = conduct(hosts, everybody, state, "--condition", "clients=1", "--blocks", "4")
    alone = (VOLUME - (32 << 10)) / PAYLOAD
    assert min(of(runs, "wall")) >= 0.98 * alone
    assert of(runs, "fairness") == [1.0] * len(runs)
