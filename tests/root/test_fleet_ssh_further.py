"""Over a real sshd: clients of a workload, an image lab as root, and a link that is cut while the bundle is on its way."""

from __future__ import annotations

import shlex
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import iotrial, stored_runs, write_study

from iotrial.errors import IotrialError
from iotrial.fleet.link import Batch, Lost, Position, Stage
from iotrial.fleet.order import Order
from iotrial.fleet.ssh.bundle import Bundle, bundle
from iotrial.fleet.ssh.link import SshLink
from iotrial.probe.binary import find_binary
from iotrial.study.model import Study
from namespaces import eventually
from ssh_hosts import Bench, SshHost, ssh_to

pytestmark = [pytest.mark.root, pytest.mark.long]  # hosts with networks of their own, started and ended

FLEET = "0123456789abcdef" * 2
VOLUME = 1 << 20
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


@pytest.fixture(scope="module")
def carried(disk_folder: Path) -> Bundle:
    return bundle(find_binary(), disk_folder / "bundles")


@pytest.fixture
def server() -> Iterator[int]:
    """A port of this machine, at all of its addresses, that sends VOLUME bytes to whoever connects."""
    with socket.create_server(("0.0.0.0", 0), backlog=64) as listening:
        listening.settimeout(0.2)
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                try:
                    client, _ = listening.accept()
                except TimeoutError:
                    continue
                with client:
                    client.settimeout(60)
                    client.sendall(bytes(VOLUME))

        serving = threading.Thread(target=serve)
        serving.start()
        yield listening.getsockname()[1]
        over.set()
        serving.join()


def loops(folder: Path) -> list[str]:
    """Loop devices over files in this folder."""
    listed = subprocess.run(
        ["losetup", "--list", "--noheadings", "--output=BACK-FILE"], capture_output=True, text=True
    )
    return [line for line in listed.stdout.splitlines() if str(folder) in line or "/var/lib/iotrial" in line]


def test_clients_on_two_hosts_by_ssh_fetch_from_one_server(
    bench: Bench, server: int, everybody: Path, state: Path
) -> None:
    links = []
    address = ""
    for name in ("c1", "c2"):
        # each host has a cable of its own to this machine, which answers for all its addresses on each
        host = bench.host(name, extra="ip route add 192.0.2.0/24 dev eth0")
        address = address or _ours(host)
        shutil.copy(find_binary(), host.folder / "home-root" / "ioprobe")
        (host.folder / "home-root" / "ioprobe").chmod(0o755)
        # commands run there as nobody, who may not look into the home of root: the probe alone is to be found there
        links.append(
            f"--client={name}="
            + shlex.join(["ssh", "-F", str(bench.config), "-o", "BatchMode=yes", name, "./ioprobe"])
        )
    study = write_study(
        everybody,
        f"""\
[study]
name = "fetch"
question = "Does a word make fetching slower?"
[budget]
time = "120 s"
blocks = 2
[[factor]]
name = "word"
knob = "command.argument"
placeholder = "{{word}}"
levels = ["a", "b"]
[[workload]]
name = "fetch"
kind = "clients"
clients = 2
server = "{address}/{server}"
volume = "{VOLUME} B"
spread = 1.0
argv = ["bash", "-c", "exec 3<>/dev/tcp/$1 && test $(cat <&3 | wc -c) = {VOLUME}", "{{word}}", "{{server}}"]
""",
    )
    iotrial(
        "run",
        study,
        "--trust",
        "--lab",
        "directory",
        "--on",
        str(everybody),
        "--no-controls",
        "--no-stop",
        *links,
    )
    runs = stored_runs(state)
    assert [run["failure"] for run in runs] == [None] * 4
    for run in runs:
        assert run["checks"]["clients"]["names"] == ["c1", "c2"]
        assert run["responses"]["rate"] == pytest.approx(2 * VOLUME / run["responses"]["wall"])
        assert 0.5 <= run["responses"]["fairness"] <= 1.0
    for host in bench.hosts:
        eventually("nothing of it is left there", lambda host=host: not host.processes())  # type: ignore[misc]


def test_root_on_a_host_by_ssh_conducts_in_an_image_and_leaves_no_device(
    bench: Bench, carried: Bundle
) -> None:
    host = bench.host("image")
    link = SshLink(ssh_to(host, bench), carried)
    link.begin(
        Order(
            FLEET, "image", "cd" * 16, "", text=IMAGE,
            options={"time": ("60s",), "blocks": ("2",)}, flags=("no-stop", "no-account"),
        )
    )  # fmt: skip
    seen = list(_until_it_ends(link))
    assert not seen[-1].problem
    assert seen[-1].left == 0
    assert [end.block for batch in seen for end in batch.ends] == [0, 1]
    headers = [batch.header for batch in seen if batch.header is not None]
    assert headers[0].lab["kind"] == "image"
    assert isinstance(headers[0].study, Study)
    link.close()
    eventually("nothing runs there", lambda: not host.processes())
    eventually("its devices are gone", lambda: not loops(host.folder))
    assert not list((host.state / "journal").iterdir())


def test_a_link_that_is_cut_while_the_bundle_is_carried_leaves_no_half_of_one_and_carries_it_again(
    bench: Bench, carried: Bundle
) -> None:
    host = bench.host("half")
    link = SshLink(ssh_to(host, bench), carried)
    caught: list[BaseException] = []

    def prepare() -> None:
        try:
            link.prepare()
        except IotrialError as error:
            caught.append(error)

    # a cable of 16 Mbit/s: the bundle takes some twenty seconds, and is cut in the middle of them
    slow = [
        "tc",
        "qdisc",
        "add",
        "dev",
        host.interface,
        "root",
        "tbf",
        "rate",
        "16mbit",
        "burst",
        "64kb",
        "latency",
        "1s",
    ]
    if subprocess.run(slow, capture_output=True, check=False).returncode:
        pytest.skip("no token bucket here (tc, sch_tbf)")
    carrying = threading.Thread(target=prepare)
    carrying.start()
    eventually(
        "it is being unpacked",
        lambda: [*host.cache.glob("part-*/python/bin/*"), *host.cache.glob("part-*/lib/*")],
    )
    host.link("down")
    carrying.join(300)
    assert [type(error) for error in caught] == [Lost]
    assert not list(host.cache.glob("bundle-*"))
    subprocess.run(["tc", "qdisc", "del", "dev", host.interface, "root"], check=True, capture_output=True)
    host.link("up")
    eventually("what had come is taken away", lambda: not list(host.cache.glob("part-*")), within_s=600)
    assert link.facts().name == "half"
    assert [path.name for path in host.cache.iterdir()] == [f"bundle-{carried.id}"]
    link.close()


def _ours(host: SshHost) -> str:
    """This machine's end of a host's cable."""
    front, _, last = host.address.rpartition(".")
    return f"{front}.{int(last) - 1}"


def _until_it_ends(link: SshLink) -> Iterator[Batch]:
    position, deadline = Position(), time.monotonic() + 300
    while True:
        batch = link.after(FLEET, position)
        yield batch
        position = batch.after
        if batch.stage is Stage.ENDED and not batch.more:
            return
        assert time.monotonic() < deadline, batch
        time.sleep(0.2)
