"""A link between two guests: its declaration in a study, QEMU's arguments, and what its knobs accept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from iotrial.errors import (
    IotrialError,
    LabError,
    RequestError,
    StudyError,
    TargetError,
    UnknownName,
    UnsupportedLevel,
)
from iotrial.guest import qemu
from iotrial.guest.link import Link, described
from iotrial.guest.protocols import DEFAULTS, PROTOCOLS, Protocol, Served, as_soon_as_it_can
from iotrial.guest.share import Share
from iotrial.knobs.knob import FileSelection, RunContext, WorkDraft
from iotrial.lab import health, registry
from iotrial.lab.disk import DiskPlace
from iotrial.lab.place import Place
from iotrial.lab.target import Target
from iotrial.probe.client import Probe
from iotrial.runner.guest import GuestSpec
from iotrial.runner.guests import Guests
from iotrial.runner.outcome import MeasuredRun
from iotrial.runner.places import sites_of
from iotrial.runner.resolve import resolve, served_by
from iotrial.runner.run import measured_with_server
from iotrial.study.model import LinkSpec, Setting, Study
from iotrial.study.reader import read_study
from iotrial.study.work import JobContext, Measured, Work
from iotrial.workloads.random import RandomWork
from study_texts import reading

HEAD = """
[study]
name = "served"
question = "Is it?"
[lab]
kind = "{kind}"
filesystem = "xfs"
{link}
[[factor]]
name = "protocol"
knob = "nas.protocol"
levels = {levels}
"""


def study(
    link: str = "[lab.link]", *, kind: str = "guest", levels: str = '["nfs3", "smb"]', more: str = ""
) -> Study:
    text = HEAD.format(link=link, kind=kind, levels=levels) + more + reading()
    return read_study(text, "x.toml", trusted=False)


def test_a_link_has_the_rate_and_the_latency_that_are_declared() -> None:
    assert study().lab.link == LinkSpec(1e9, 100e-6, "virtio")
    text = '[lab.link]\nrate = "2.5 Gbit/s"\nlatency = "20 ms"\ncard = "e1000e"'
    assert study(text).lab.link == LinkSpec(2.5e9, 0.02, "e1000e")
    assert study("").lab.link is None
    assert described(LinkSpec(100e6, 0.0005)) == "100 Mbit/s each way, 500 µs of latency, virtio cards"


@pytest.mark.parametrize(
    "text",
    ["rate = 1000", 'rate = "100 Mbit"', 'rate = "100 MB/s"', 'rate = "1 bit/s"', 'latency = "2 s"', 'card = "rtl8139"',
     'speed = "1 Gbit/s"'],
)  # fmt: skip
def test_what_is_no_link_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(StudyError) as caught:
        study(f"[lab.link]\n{text}")
    assert "x.toml:9: " in str(caught.value)
    assert text.partition(" ")[0] in str(caught.value)


def test_only_guests_have_a_link() -> None:
    with pytest.raises(RequestError, match="guest"):
        resolve(study(kind="image"), root=True, lab="image")


def test_guests_bring_what_the_protocols_of_the_study_need_and_no_other() -> None:
    needs = served_by(study())
    assert {"ksmbd", "cifs", "nfsd", "sch_netem", "virtio_net"} <= needs.modules
    assert "iscsi_tcp" not in needs.modules
    assert "iscsid" not in needs.programs
    assert {"ip", "tc", "rpc.mountd", "ksmbd.mountd"} <= needs.programs


GET = '[[workload]]\nname = "get"\nkind = "command"\nargv = ["curl", "{url}"]\n'


def test_work_on_a_mount_is_refused_at_a_level_that_has_none() -> None:
    knob, by_ftp = registry.knob("nas.protocol"), Setting("nas.protocol", "ftp")

    def suits(setting: Setting, workload: str) -> None:
        head = HEAD.format(link="[lab.link]", kind="guest", levels='["nfs3", "ftp"]')
        [one] = read_study(head + workload, "x.toml", trusted=False).workloads
        knob.suits(setting, one.work, 4096)

    suits(by_ftp, GET.replace("{url}", "{share}{file}"))
    suits(Setting("nas.protocol", "nfs3"), reading())
    for workload in (reading(), GET.replace("{url}", "file://{file}")):
        with pytest.raises(UnsupportedLevel, match="ftp has no mount"):
            suits(by_ftp, workload)
    with pytest.raises(UnsupportedLevel, match="workload of kind files"):
        resolve(study(levels='["nfs3", "ftp"]'), root=True)


def test_only_a_study_of_ftp_brings_its_server() -> None:
    assert "vsftpd" not in served_by(study()).programs
    assert {"vsftpd", "rpc.nfsd"} <= served_by(study(levels='["nfs3", "ftp"]')).programs


def test_a_card_is_joined_to_the_wire_that_is_given_and_is_part_of_what_a_memory_is_good_for(
    tmp_path: Path,
) -> None:
    files = [tmp_path / name for name in ("kernel", "initramfs", "qemu")]
    for file in files:
        file.write_text("")
    plain = qemu.Machine(files[0], files[1])
    joined = qemu.Machine(files[0], files[1], card=("virtio-net-pci", qemu.MAC_ADDRESSES[1]))
    given = qemu.Descriptors(3, 4, 5, wire=17)
    words = qemu.command("qemu", joined, qemu.Accelerator.TCG, given)
    assert "socket,id=wire,fd=17" in words
    assert f"virtio-net-pci,netdev=wire,mac={qemu.MAC_ADDRESSES[1]},romfile=" in words
    assert not [word for word in qemu.command("qemu", plain, qemu.Accelerator.TCG, given) if "net" in word]
    one, other = (
        qemu.identity(str(files[2]), machine, qemu.Accelerator.TCG, ()) for machine in (plain, joined)
    )
    assert one != other


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("link.rate", "1000 Mbit/s", "1 Gbit/s"), ("link.mtu", "9000", "9000"), ("link.ring", "1024", "1024"),
        ("link.coalescing", "0", "0"), ("link.offload", "none", "none"), ("nas.protocol", "iscsi", "iscsi"),
        ("nas.export", "async", "async"), ("nas.transfer", "64 KiB", "64 KiB"), ("nas.transfer", "default", "default"),
        ("nas.threads", "16", "16"), ("nas.connections", "4", "4"), ("nas.read_ahead", "1024 KiB", "1 MiB"),
        ("nas.protocol", "nvme-tcp", "nvme-tcp"), ("nas.attribute_cache", "060", "60"),
        ("nas.attribute_cache", "default", "default"),
    ],
)  # fmt: skip
def test_a_level_is_taken_in_one_way_of_writing_it(name: str, value: str, wanted: str) -> None:
    assert registry.knob(name).parse(Setting(name, value)) == wanted


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("link.rate", "100"), ("link.rate", "1 kbit/s"), ("link.mtu", "90000"), ("link.ring", "8"), ("link.coalescing", "-1"),
        ("link.offload", "some"), ("nas.protocol", "afp"), ("nas.export", "maybe"), ("nas.transfer", "3 KiB"),
        ("nas.transfer", "64"), ("nas.threads", "0"), ("nas.connections", "17"), ("nas.read_ahead", "5 KiB"),
        ("nas.attribute_cache", "60 s"), ("nas.attribute_cache", "3601"), ("nas.close_to_open", "cto"),
        ("nas.lookup_cache", "pos"),
    ],
)  # fmt: skip
def test_what_is_no_level_is_refused_with_those_that_are(name: str, value: str) -> None:
    with pytest.raises(IotrialError) as caught:
        registry.knob(name).parse(Setting(name, value))
    assert caught.value.hint


def test_sysctls_of_a_guest_are_of_a_list_and_have_as_many_numbers_as_they_should() -> None:
    knob = registry.knob("guest.sysctl")

    def parsed(key: str, value: str) -> str:
        return knob.parse(Setting("guest.sysctl", value, (("key", key),)))

    assert parsed("net.ipv4.tcp_rmem", "4096  87380 6291456") == "4096 87380 6291456"
    for key, value in (
        ("net.ipv4.tcp_rmem", "4096"),
        ("vm.min_free_kbytes", "1 2"),
        ("net.core.rmem_max", "1"),
    ):
        with pytest.raises(IotrialError):
            parsed(key, value)
    with pytest.raises(UnknownName):
        parsed("kernel.panic", "1")


class Machine(Target):
    """Fake target that logs the order of its calls."""

    def __init__(self, log: list[str], name: str, answers: dict[str, Any] | None = None) -> None:
        self.log, self.name, self.answers = log, name, answers or {}

    def call(self, verb: str, **_: object) -> Any:
        self.log.append(f"{self.name} {verb}")
        answer = self.answers.get(verb, {})
        if isinstance(answer, Exception):
            raise answer
        return answer

    def exists(self, _: str) -> bool:
        return True


class Scripted(Protocol):
    """Fake protocol that logs what is done to it."""

    name = "scripted"
    settings = frozenset(DEFAULTS)

    def __init__(self, log: list[str], *, unreachable: bool = False) -> None:
        self.log, self.unreachable = log, unreachable

    def begin(self, _: Target) -> None:
        self.log.append("begin")

    def serve(self, _: Target, what: Served) -> None:
        self.log.append(f"serve {what.wishes['export']}")

    def withdraw(self, *_: object) -> None:
        self.log.append("withdraw")

    def reach(self, *_: object) -> None:
        if self.unreachable:
            raise TargetError("no route to host", errno=113)
        self.log.append("reach")

    def leave(self, *_: object) -> None:
        self.log.append("leave")

    def found(self, about: str, *rest: Any) -> str:
        return str(rest[-1].wishes[about])


def shared(monkeypatch: pytest.MonkeyPatch, log: list[str], *, unreachable: bool = False) -> Share:
    protocol = Scripted(log, unreachable=unreachable)
    monkeypatch.setattr("iotrial.guest.share.PROTOCOLS", {**PROTOCOLS, "nfs4": protocol})
    machines = [cast("Target", Machine([], name)) for name in ("server", "client")]
    return Share(Link(LinkSpec(), *machines))


def test_what_is_served_is_left_before_it_is_withdrawn_and_begun_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[str] = []
    share = shared(monkeypatch, log)
    assert share.found("export") == "nothing"
    share.open("/lab", "vda", "xfs", ())
    share.want("export", "async")
    assert share.due
    share.close()
    share.close()
    share.open("/lab", "vda", "xfs", ())
    assert not share.due
    assert share.found("export") == "async"
    assert log == ["begin", "serve sync", "reach", "leave", "withdraw", "serve async", "reach"]


def test_a_url_is_of_the_protocol_that_is_standing_and_else_of_the_one_that_is_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    share = shared(monkeypatch, [])
    share.open("/lab", "vda", "xfs", ())
    share.want("protocol", "ftp")
    assert f"{share.url}/lab/file" == "file:///lab/file"
    share.close()
    assert f"{share.url}/lab/file" == "ftp://10.73.0.1/lab/file"


def test_what_cannot_be_reached_is_served_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    share = shared(monkeypatch, log, unreachable=True)
    with pytest.raises(LabError, match="no route to host"):
        share.open("/lab", "vda", "xfs", ())
    assert log == ["begin", "serve sync", "withdraw"]
    share.close()
    assert log[-1] == "withdraw"


def test_what_cannot_even_be_served_is_taken_back_and_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    share = shared(monkeypatch, log)

    class Broken(Scripted):
        def serve(self, *_: object) -> None:
            raise LabError("no such protocol")

        def withdraw(self, *_: object) -> None:
            log.append("withdraw")
            raise LabError("nothing to withdraw")

    monkeypatch.setattr("iotrial.guest.share.PROTOCOLS", {**PROTOCOLS, "nfs4": Broken(log)})
    with pytest.raises(LabError, match="no such protocol"):
        share.open("/lab", "vda", "xfs", ())
    assert log == ["begin", "withdraw"]


@pytest.mark.parametrize(
    ("protocol", "about", "value"),
    [
        ("smb", "export", "async"),
        ("smb", "threads", "1"),
        ("iscsi", "transfer", "32 KiB"),
        ("smb", "connections", "4"),
        ("nvme-tcp", "attribute_cache", "60"),
    ],
)
def test_a_setting_that_a_protocol_has_not_is_refused_before_anything_is_served(
    protocol: str, about: str, value: str
) -> None:
    log: list[str] = []
    machines = [cast("Target", Machine(log, name)) for name in ("server", "client")]
    share = Share(Link(LinkSpec(), *machines))
    share.want("protocol", protocol)
    share.want(about, value)
    with pytest.raises(LabError, match=f"{protocol} has no {about}"):
        share.open("/lab", "vda", "xfs", ())
    assert log == []


def test_a_link_serves_one_place() -> None:
    types = '[[factor]]\nname = "type"\nknob = "filesystem.type"\nlevels = ["ext4", "xfs"]\n'
    assert len(sites_of(study(more=types), "guest", {}, None)) == 1
    condition = study(more=f'{types}role = "condition"\n')
    with pytest.raises(RequestError, match="a link serves one place, and this study has 2: ext4, xfs"):
        sites_of(condition, "guest", {}, None)


@dataclass
class Other:
    """Fake probe of another machine, enough for a liveness check."""

    name: str = "the server"
    alive: bool = True

    def epitaph(self) -> str:
        return " (status 0): Kernel panic"


def test_who_works_with_a_server_that_is_gone_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(qemu, "find", lambda: "qemu")
    guests = Guests(GuestSpec(tmp_path, link=LinkSpec()), store=tmp_path)
    depends = guests._second._depends  # type: ignore[union-attr]
    assert depends() is None  # it does not exist yet
    server = Other()
    guests._server = cast("Probe", server)
    monkeypatch.setattr(guests._first, "hung", lambda: None)
    assert depends() is None
    monkeypatch.setattr(guests._first, "hung", lambda: "no sign of life for 60 s")
    assert depends() == "the server, which has its files, hangs: no sign of life for 60 s"
    server.alive = False
    assert depends() == "the server, which has its files, has died (status 0): Kernel panic"


class Client(Machine):
    """Fake client that has a mount."""

    def mount_at(self, _: str) -> object:
        return SimpleNamespace(options=("rw",))


def test_whether_a_lab_still_works_is_asked_where_the_works_are_done() -> None:
    log: list[str] = []
    place = SimpleNamespace(
        target=None, data=None, worker=Client(log, "client"), root="/lab", label="a lab", devices={}, queues=(),
        syncfs=lambda: log.append("syncfs"),
    )  # fmt: skip
    files = cast("FileSelection", SimpleNamespace(set="made", wire="all"))
    health.check(cast("Place", place), "false ended with status 1", files=files)
    assert log == ["client mkdir", "client remove", "syncfs", "client warm"]


def watched(log: list[str], **answers: Any) -> DiskPlace:
    target = Machine(log, "server", answers)
    return cast(
        "DiskPlace", SimpleNamespace(target=target, root="/lab", queues=("vda",), devices={"data": "vda"})
    )


def test_the_server_is_watched_from_before_the_job_to_after_it() -> None:
    log: list[str] = []
    told = {
        "devices": {"vda": {"read_bytes": 7}},
        "around": {
            "lasted_ns": 2_000_000_000,
            "processors": {
                "user_ns": 100_000_000,
                "sys_ns": 300_000_000,
                "interrupt_ns": 50_000_000,
                "count": 2,
            },
        },
        "cards": {"wire": {"rx_bytes": 1, "rx_packets": 2, "tx_bytes": 3, "tx_packets": 4, "interrupts": 5}},
    }
    place = watched(log, watch_stop=told, syncfs={"wall_ns": 250_000_000})

    def job(besides: dict[str, object]) -> dict[str, Any]:
        log.append(f"job {besides['peer']}")
        return {"devices": {}, "devices_after_sync": {}, "wall_ns": 9}

    answer = measured_with_server(place, job)
    # its sync comes at once, before it could write anything back by itself
    assert log == ["server watch_start", "job 10.73.0.1:7400", "server syncfs", "server watch_stop"]
    assert answer["devices"] == {"vda": {"read_bytes": 7}}
    assert answer["wall_ns"] == 9
    assert answer["served"] == {
        "link_to_server_bytes": 1, "link_to_server_packets": 2, "link_from_server_bytes": 3, "link_from_server_packets": 4,
        "link_interrupts": 5, "nas_cpu": pytest.approx(0.4), "nas_interrupts": 0.05, "nas_busy": pytest.approx(10.0),
        "nas_sync": 0.25,
    }  # fmt: skip


def test_after_a_job_that_failed_nothing_goes_on_listening() -> None:
    log: list[str] = []

    def job(besides: dict[str, object]) -> dict[str, Any]:
        raise TargetError("gone", errno=5)

    with pytest.raises(TargetError):
        measured_with_server(watched(log, watch_stop=TargetError("no marks", errno=None)), job)
    assert log == ["server watch_start", "server watch_stop"]


def failing(numbers: list[int]) -> tuple[list[int], Callable[[], None]]:
    """Return a function that fails with each of these errnos in turn, and then succeeds."""
    left = list(numbers)

    def act() -> None:
        if left:
            raise TargetError("not yet", errno=left.pop(0))

    return left, act


def test_what_is_not_ready_yet_is_tried_again_and_what_fails_otherwise_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("iotrial.guest.protocols._LOOKS_EVERY_S", 0.0)
    left, act = failing([6, 6, 6])
    as_soon_as_it_can(act, 6)
    assert left == []
    left, act = failing([6, 5, 6])
    with pytest.raises(TargetError):
        as_soon_as_it_can(act, 6)
    assert left == [6]
    monkeypatch.setattr("iotrial.guest.protocols._WITHIN_S", 0.0)
    left, act = failing([6, 6])
    with pytest.raises(TargetError):
        as_soon_as_it_can(act, 6)
    assert left == [6]


class Idle(Work, frozen=True, kw_only=True):
    """Work that gives no numbers of its own."""

    def measured(self, answer: Mapping[str, Any], context: JobContext) -> Measured:
        return Measured()


@pytest.mark.parametrize("served", [{}, {"nas_sync": 0.25}])
def test_the_time_until_all_is_on_the_servers_disk_is_that_of_the_run_and_of_the_servers_sync(
    served: dict[str, float],
) -> None:
    answer = {
        "wall_ns": 1_600_000_000, "user_ns": 0, "sys_ns": 0, "cpu_ns": 0, "started_ns": 0, "devices": {},
        "spun": {"wall_ns": 100_000_000, "cpu_ns": 0}, "served": served,
        "usage": dict.fromkeys(
            ("blocks_in", "blocks_out", "faults_minor", "faults_major", "switches_voluntary", "switches_involuntary"), 0
        ),
    }  # fmt: skip
    place = SimpleNamespace(devices={}, queues=(), device=None, data=None, own_device=True, facts=dict)
    context = cast(
        "RunContext",
        SimpleNamespace(
            place=place,
            files=FileSelection("made", None, 1, 1),
            extra_places={},
            work=WorkDraft(),
            target=None,
            worker=None,
        ),
    )

    def numbers(declared: set[str], stretched: str = "") -> Mapping[str, float]:
        outcome = MeasuredRun(answer, context, Idle(), JobContext(stretched), "as-is", declared).outcome()
        return {**outcome.responses, **outcome.evidence}

    assert "wall_to_disk" not in numbers({"wall"})
    if not served:
        assert "wall_to_disk" not in numbers({"wall", "wall_to_disk"})
        return
    # an injected slowdown of another response is in neither, one of the run's time in both
    assert numbers({"wall", "wall_to_disk"})["wall_to_disk"] == pytest.approx(1.5 + 0.25)
    assert numbers({"wall", "wall_to_disk"}, "wall")["wall_to_disk"] == pytest.approx(1.6 + 0.25)


class Negotiating(Machine):
    """Fake guest whose card has a carrier only after it was looked at some times; counts looks and commands."""

    def __init__(self, log: list[str], name: str, looks: int) -> None:
        done = {"exit": 0, "signal": None, "timed_out": False, "stdout": "", "stderr": "", "wall_ns": 1}
        super().__init__(log, name, {"run": done})
        self.looks = looks

    def read(self, path: str) -> str:
        assert path == "/sys/class/net/wire/carrier"
        self.looks -= 1
        self.log.append(f"{self.name} looks")
        return "0" if self.looks >= 0 else "1"


def test_after_a_card_was_reset_both_ends_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iotrial.polling.time.sleep", lambda _: None)
    log: list[str] = []
    server, client = (cast("Target", Negotiating(log, name, 2)) for name in ("server", "client"))
    Link(LinkSpec(), server, client).both(["ethtool", "-G", "wire", "rx", "256"])
    assert log == ["client run", "server run", *["client looks"] * 3, *["server looks"] * 3]


def test_a_card_without_a_carrier_is_an_error_that_names_the_guest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iotrial.guest.link._UP_WITHIN_S", 0.1)
    server, client = (cast("Target", Negotiating([], *one)) for one in (("server", 10**6), ("client", 0)))
    with pytest.raises(LabError, match="server: its network card has no carrier after"):
        Link(LinkSpec(), server, client).both(["true"])


class Shaped:
    """Fake guest that keeps the words of ``tc`` and answers as ``tc -raw qdisc show`` prints (iproute2 6.1)."""

    def __init__(self, name: str, shown: str = "") -> None:
        self.name, self.shown = name, shown
        self.ran: list[list[str]] = []

    def run(self, argv: list[str], **_: object) -> SimpleNamespace:
        self.ran.append(argv)
        return SimpleNamespace(output=lambda _: self.shown)


def test_the_rate_and_the_latency_of_a_link_are_set_at_both_ends_in_bits_and_microseconds() -> None:
    ends = Shaped("server"), Shaped("client")
    Link(LinkSpec(2.5e9, 0.02), *(cast("Target", end) for end in ends)).set_rate(100e6)
    for end in ends:
        (words,) = end.ran
        assert words[-4:] == ["rate", "100000000bit", "delay", "20000us"]


@pytest.mark.parametrize(
    ("shown", "rate"),
    [("rate 950bit", 950.0), ("rate 64Kbit", 64e3), ("rate 100Mbit", 100e6), ("rate 2.5Gbit", 2.5e9)],
)
def test_the_rate_that_the_kernel_reports_is_read_with_its_prefix(shown: str, rate: float) -> None:
    text = f"qdisc netem 8001: root refcnt 2 limit 100000 delay 20ms {shown}\n"
    ends = Shaped("server", text), Shaped("client")
    assert Link(LinkSpec(), *(cast("Target", end) for end in ends)).rate() == rate
    with pytest.raises(LabError, match="server: the link has no rate"):
        Link(LinkSpec(), *(cast("Target", Shaped(name)) for name in ("server", "client"))).rate()


def test_the_knob_of_the_protocol_has_a_level_for_each_protocol() -> None:
    assert tuple(PROTOCOLS) == registry.knob("nas.protocol").LEVELS


def test_what_a_server_has_read_once_comes_from_its_page_cache_also_for_direct_reads() -> None:
    """400 draws of 4,096 pages meet some 381 of them; fio's loops read the same bytes again."""
    client, server = object(), object()
    read = {}
    for where, worker in (("on the disk", server), ("through the link", client)):
        context: Any = SimpleNamespace(
            files=SimpleNamespace(bytes_each=16 << 20, count=1),
            place=SimpleNamespace(data=None),
            target=server,
            worker=worker,
        )
        job: Any = None
        run = MeasuredRun({}, context, RandomWork(operations=400, direct=True), job, "cold-files", ())
        read[where] = run._bytes_expected(Measured())
        again = run._bytes_expected(Measured(past_cache_bytes=10**9))
        assert again == (900_000_000 if worker is server else read[where])
        assert run._bytes_expected(Measured(once_bytes=10**9)) == 900_000_000
    assert read["on the disk"] == 400 * 4096
    assert 300 * 4096 < read["through the link"] < 381 * 4096
