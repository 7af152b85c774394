"""Two guests and the link between them: files that one serves to the other, and knobs of the link and of the
server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from iotrial.errors import KnobError, LabError, UnsupportedLevel
from iotrial.guest.initramfs import Needs
from iotrial.guest.link import WIRE, Link, needs_of
from iotrial.guest.machine import DiskImage
from iotrial.guest.place import GuestPlace
from iotrial.guest.protocols import PROTOCOLS
from iotrial.guest.share import Share
from iotrial.knobs.knob import RunContext, WorkDraft
from iotrial.lab import host, registry
from iotrial.lab.journal import Journal
from iotrial.lab.place import FileSet
from iotrial.lab.target import Target
from iotrial.probe.client import Probe
from iotrial.runner import run
from iotrial.runner.guest import GuestSpec
from iotrial.runner.guests import Guests
from iotrial.study.model import LinkSpec, Setting

FILES, SIZE = 6, 200_000
#: what the client's disk is called, by the protocol that serves it
DISKS = {"iscsi": "/dev/sd", "nvme-tcp": "/dev/nvme"}
RATE = 200e6


@dataclass
class Pair:
    guests: Guests
    server: Probe
    place: GuestPlace
    share: Share

    @property
    def link(self) -> Link:
        return self.share.link

    def turn(self, name: str, value: str, **options: str) -> str:
        """Write the setting, let the place settle, verify, and return what is read back."""
        knob, setting = registry.knob(name), Setting(name, value, tuple(options.items()))
        context = RunContext(
            self.link.server,
            self.place,
            Journal(Path("/nowhere")),
            None,
            WorkDraft(),
            host.boot_id(self.link.server),
        )
        wanted = knob.parse(setting)
        knob.write(context, setting, wanted)
        if knob.stage.name == "MOUNT":
            self.place.settle(always=True, fresh=True)
        knob.verify(context, setting, wanted)
        return knob.read(context, setting)


def opened(store: Path, folder: Path, spec: LinkSpec, needs: Needs) -> Iterator[Pair]:
    disks = [DiskImage("lab", 320 << 20)]
    guests = Guests(GuestSpec(folder, disks, needs, name="server", link=spec), store=store)
    try:
        server = guests.start(lambda _: None)
        try:
            assert guests.link is not None
            target = Target(server)
            target.call("mkdir", path="/run/iotrial", mode="0755")
            share = Share(guests.link)
            place = GuestPlace(
                "lab",
                target,
                Journal(folder / "journal"),
                mount_point="/run/iotrial/lab",
                filesystem="xfs",
                size_bytes=320 << 20,
                share=share,
            )
            place.open()
            yield Pair(guests, server, place, share)
            place.close()
        finally:
            server.close()
    finally:
        guests.hang_up()
        guests.close()


@pytest.fixture(scope="module")
def pair(guests: Path, tmp_path_factory: pytest.TempPathFactory, disk_folder: Path) -> Iterator[Pair]:
    spec = LinkSpec(RATE, 200e-6)
    needs = needs_of(spec) | Needs(
        modules=frozenset({"xfs"}),
        packages=frozenset({"xfsprogs", "coreutils", "curl"}),
        programs=frozenset({"mkfs.xfs", "sha256sum", "curl"}),
    )
    for protocol in PROTOCOLS.values():
        needs |= protocol.needs
    yield from opened(guests, disk_folder, spec, needs)


def test_by_every_protocol_the_client_finds_the_files_that_were_made(pair: Pair) -> None:
    place, client = pair.place, pair.link.client
    place.make_files(FileSet("made", f"{place.root}/made", FILES, SIZE, "random", 1), seed=5)
    for name in (*PROTOCOLS, "nfs4"):
        assert pair.turn("nas.protocol", name) == name
        kind = client.mount_at(place.root)
        assert kind is not None
        mounted = {"nfs3": "nfs", "smb": "cifs", "iscsi": "xfs", "nvme-tcp": "xfs"}
        assert kind.type == mounted.get(name, "nfs4")
        # of a whole disk the client mounts the file system; mounting it twice would destroy it
        assert (pair.link.server.mount_at(place.root) is None) == (name in DISKS)
        assert kind.source.startswith(DISKS.get(name, ""))
        client.call("fileset_verify", set="made")


def test_a_file_is_got_and_put_by_url_with_its_content_and_nobody_answers_ftp_later(pair: Pair) -> None:
    place, server, client = pair.place, pair.link.server, pair.link.client
    place.make_files(FileSet("url", f"{place.root}/url", 1, SIZE, "random", 1), seed=9)
    file = f"{place.root}/url/f000000"

    def run(machine: Target, *argv: str) -> str:
        done = machine.run(argv)
        assert done.exit_status == 0, done.stderr
        return done.stdout

    made = run(client, "sha256sum", file).split()[0]
    curl = ("curl", "--silent", "--show-error", "--ftp-port", "-", "--ftp-method", "nocwd")
    for name in ("nfs4", "ftp"):
        assert pair.turn("nas.protocol", name) == name
        before = int(server.read(f"/sys/class/net/{WIRE}/statistics/tx_bytes"))
        run(client, *curl, "--output", f"/tmp/{name}", f"{pair.share.url}{file}")
        assert int(server.read(f"/sys/class/net/{WIRE}/statistics/tx_bytes")) - before > SIZE
        run(client, *curl, "--upload-file", f"/tmp/{name}", f"{pair.share.url}{place.root}/put-{name}")
        # in the client's own memory, on the server's disk, and through the client's mount
        put = f"{place.root}/put-{name}"
        for machine, path in ((client, f"/tmp/{name}"), (server, put), (client, put)):
            assert run(machine, "sha256sum", path).split()[0] == made
    ftp = pair.share.url
    assert ftp.startswith("ftp://")
    pair.turn("nas.protocol", "nfs4")
    refused = client.run([*curl, "--output", "/dev/null", f"{ftp}{file}"])
    assert refused.exit_status == 7  # could not connect
    assert not server.processes(lambda pid: server.read(f"/proc/{pid}/comm") == "vsftpd")


@pytest.mark.long
def test_what_was_read_cold_came_through_the_link_and_from_the_disk_and_costs_the_server_time(
    pair: Pair,
) -> None:
    place = pair.place
    place.make_files(FileSet("cold", f"{place.root}/cold", FILES, SIZE, "random", 1), seed=6)
    for name in PROTOCOLS:
        pair.turn("nas.protocol", name)
        place.settle(always=False, fresh=True)
        job = {
            "set": "cold", "operations": ["open", "read-to-end", "close"], "user": None, "stretch": 0.0, "devices": [],
            "sync_after": None,
        }  # fmt: skip
        answer = run.measured_with_server(
            place, lambda besides, job=job: pair.link.client.call("files", **job, **besides)
        )
        served = answer["served"]
        assert answer["devices"]["vda"]["read_bytes"] >= FILES * SIZE, name
        assert FILES * SIZE < served["link_from_server_bytes"] < 1.3 * FILES * SIZE, name
        assert served["link_to_server_bytes"] < 0.3 * FILES * SIZE, name
        assert served["link_interrupts"] > 0
        assert 0 < served["nas_cpu"] <= 2 * answer["wall_ns"] / 1e9 + 0.05
        # the link is not faster than its configured rate
        assert answer["wall_ns"] / 1e9 > 0.9 * FILES * SIZE * 8 / RATE, name
        warm = run.measured_with_server(
            place, lambda besides, job=job: pair.link.client.call("files", **job, **besides)
        )
        assert warm["devices"]["vda"]["read_bytes"] == 0, name


@pytest.mark.long
def test_the_rate_that_is_set_is_the_rate_that_is_had(pair: Pair) -> None:
    pair.turn("nas.protocol", "nfs3")
    place = pair.place
    place.make_files(FileSet("rate", f"{place.root}/rate", 1, 1_000_000, "random", 1), seed=7)
    took = {}
    for rate in ("20 Mbit/s", "40 Mbit/s"):
        assert pair.turn("link.rate", rate) == rate
        place.settle(always=False, fresh=True)
        answer = pair.link.client.call(
            "files",
            set="rate",
            operations=["open", "read-to-end", "close"],
            user=None,
            stretch=0.0,
            devices=[],
        )
        took[rate] = answer["wall_ns"] / 1e9
        assert took[rate] > 8e6 / (float(rate.split()[0]) * 1e6)
    pair.turn("link.rate", "200 Mbit/s")
    assert took["20 Mbit/s"] > 1.5 * took["40 Mbit/s"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("nas.export", ("async", "sync")),
        ("nas.threads", ("1", "8")),
        ("nas.transfer", ("32 KiB", "default")),
        ("nas.connections", ("4", "1")),
        ("nas.read_ahead", ("1 MiB", "default")),
        ("nas.attribute_cache", ("60", "600", "0", "default")),
        ("nas.close_to_open", ("off", "on")),
        ("nas.lookup_cache", ("positive", "none", "all")),
        ("link.mtu", ("9000", "1500")),
    ],
)
def test_each_value_is_read_back(pair: Pair, name: str, values: tuple[str, ...]) -> None:
    pair.turn("nas.protocol", "nfs3")
    for value in values:
        assert pair.turn(name, value) == value


@pytest.mark.long
def test_sysctls_of_the_server_are_read_back(pair: Pair) -> None:
    for key, value in (("vm.min_free_kbytes", "9000"), ("net.ipv4.tcp_rmem", "4096 16384 32768")):
        assert pair.turn("guest.sysctl", value, key=key) == value
    knob = registry.knob("guest.sysctl")
    with pytest.raises(UnsupportedLevel, match="3 numbers"):
        knob.parse(Setting("guest.sysctl", "4096", (("key", "net.ipv4.tcp_rmem"),)))


@pytest.mark.long
def test_what_a_card_cannot_do_is_no_level_that_took(pair: Pair) -> None:
    # a virtio card on a link between processes has no offloads and no interrupt coalescing
    for name, value in (("link.offload", "full"), ("link.coalescing", "50")):
        with pytest.raises((KnobError, LabError)):
            pair.turn(name, value)


@pytest.mark.long
def test_an_export_is_as_it_was_wished(pair: Pair) -> None:
    pair.turn("nas.protocol", "nfs4")
    for mode in ("async", "sync"):
        pair.turn("nas.export", mode)
        output = pair.link.server.read("/proc/fs/nfsd/exports")
        assert f",{mode}," in output.replace("(", ",").replace(")", ",")


@pytest.mark.long
def test_a_card_of_hardware_has_offloads_rings_and_coalescing(guests: Path, disk_folder: Path) -> None:
    spec = LinkSpec(RATE, 200e-6, "e1000e")
    needs = (
        needs_of(spec)
        | PROTOCOLS["nfs4"].needs
        | Needs(
            modules=frozenset({"xfs"}), packages=frozenset({"xfsprogs"}), programs=frozenset({"mkfs.xfs"})
        )
    )
    for pair in opened(guests, disk_folder, spec, needs):
        for name, values in {
            "link.offload": ("none", "checksums", "full"), "link.ring": ("1024", "256"), "link.coalescing": ("0", "100", "3"),
            "link.mtu": ("9000", "1500"),
        }.items():  # fmt: skip
            for value in values:
                assert pair.turn(name, value) == value
                assert pair.link.server.read(f"/sys/class/net/{WIRE}/operstate") in ("up", "unknown")
        pair.place.make_files(FileSet("e", f"{pair.place.root}/e", 2, SIZE, "random", 1), seed=8)
        pair.place.settle(always=False, fresh=True)
        pair.link.client.call("fileset_verify", set="e")
