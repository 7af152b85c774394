"""Guest machine knobs: accepted values, read-back, and the machine that they define together."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iotrial.errors import IotrialError, MissingTool
from iotrial.guest import qemu
from iotrial.guest.machine import Disks, GuestMachine
from iotrial.lab import registry
from iotrial.lab.journal import Journal
from iotrial.runner.checked_work import why_not
from iotrial.runner.guest import DEFAULT_KERNEL, MachineSpec
from iotrial.runner.resolve import resolve
from iotrial.study.catalogue import find
from iotrial.study.model import Setting
from iotrial.study.reader import read_study

MEMINFO = "MemTotal:  {} kB\nMemFree: 1 kB\n"


def read(name: str, value: str, files: dict[str, str], besides: int = 0) -> str:
    context: Any = SimpleNamespace(target=SimpleNamespace(read=files.__getitem__), memory_besides=besides)
    return registry.knob(name).read(context, Setting(name, value))


@pytest.mark.parametrize(
    ("name", "value", "parsed"),
    [
        ("kernel.version", "6.12", "6.12"),
        ("kernel.version", "6.12.117", "6.12.117"),
        ("guest.memory", "1024 MiB", "1 GiB"),
        ("guest.processors", "4", "4"),
        ("guest.disk_interface", "nvme", "nvme"),
        ("guest.disk_cache", "directsync", "directsync"),
        ("guest.disk_aio", "io_uring", "io_uring"),
        ("guest.disk_format", "raw", "raw"),
        ("guest.disk_format", "raw preallocation=full", "raw"),
        ("guest.disk_format", "raw preallocation=off", "raw preallocation=off"),
        ("guest.disk_format", "qcow2 preallocation=off  cluster_size=64k", "qcow2"),
        (
            "guest.disk_format",
            "qcow2 preallocation=metadata cluster_size=2M lazy_refcounts=on",
            "qcow2 cluster_size=2M lazy_refcounts=on preallocation=metadata",
        ),
    ],
)
def test_what_is_accepted(name: str, value: str, parsed: str) -> None:
    assert registry.knob(name).parse(Setting(name, value)) == parsed


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kernel.version", "latest"),
        ("kernel.version", "6"),
        ("kernel.version", "6.12/../.."),
        ("kernel.version", "-6.1"),
        ("guest.memory", "64 MiB"),
        ("guest.memory", "1000001 KiB"),
        ("guest.memory", "much"),
        ("guest.processors", "0"),
        ("guest.processors", "65"),
        ("guest.disk_interface", "virtio"),
        ("guest.disk_cache", "writearound"),
        ("guest.disk_aio", "libaio"),
        ("guest.disk_format", "qcow"),
        ("guest.disk_format", ""),
        ("guest.disk_format", "raw preallocation=metadata"),
        ("guest.disk_format", "raw cluster_size=2M"),
        ("guest.disk_format", "qcow2 preallocation=off preallocation=full"),
        ("guest.disk_format", "qcow2 cluster_size=4M"),
        ("guest.disk_format", "qcow2 cluster_size=3k"),
        ("guest.disk_format", "qcow2 backing_file=/etc/passwd"),
        ("guest.disk_format", "qcow2 preallocation=full,backing_file=/etc/passwd"),
    ],
)
def test_what_is_refused(name: str, value: str) -> None:
    with pytest.raises(IotrialError) as caught:
        registry.knob(name).parse(Setting(name, value))
    assert name in caught.value.message


def test_a_kernel_is_read_back_as_finely_as_it_was_asked_for() -> None:
    files = {"/proc/sys/kernel/osrelease": "6.12.117+deb12-cloud-amd64"}
    assert read("kernel.version", "6.12", files) == "6.12"
    assert read("kernel.version", "6.1", files) == "6.12"
    assert read("kernel.version", "6.12.100", files) == "6.12.117"


def test_memory_is_what_the_kernel_leaves_of_it_and_of_that_of_modelled_disks() -> None:
    files = {"/proc/meminfo": MEMINFO.format(470_000)}
    assert read("guest.memory", "512 MiB", files) == "512 MiB"
    assert read("guest.memory", "1 GiB", files) != "1 GiB"
    assert read("guest.memory", "256 MiB", files) != "256 MiB"
    assert read("guest.memory", "256 MiB", files, besides=256 << 20) == "256 MiB"


def test_processors_are_counted_by_their_own_lines() -> None:
    files = {"/proc/stat": "cpu  1 2\ncpu0 1 2\ncpu1 1 2\nintr 5\n"}
    assert read("guest.processors", "2", files) == "2"


SCSI = "../devices/pci0000:00/0000:00:04.0/ata3/host2/target2:0:0/2:0:0:0/block/sda"


@pytest.mark.parametrize(
    ("disk", "driver", "interface"),
    [
        ("vda", None, "virtio-blk"),
        ("nvme0n1", None, "nvme"),
        ("sda", "virtio_scsi", "virtio-scsi"),
        ("sda", "ahci", "sata"),
        ("sda", "ata_piix", "ide"),
        ("sda", "megaraid", "megaraid"),
    ],
)
def test_the_interface_is_that_of_the_driver_that_has_the_disk(
    disk: str, driver: str | None, interface: str
) -> None:
    def call(verb: str, *, path: str) -> dict[str, str]:
        assert (verb, path) == ("readlink", "/sys/block/sda")
        return {"target": SCSI}

    files = {"/sys/class/scsi_host/host2/proc_name": driver}
    context: Any = SimpleNamespace(
        target=SimpleNamespace(read=files.__getitem__, call=call), place=SimpleNamespace(queues=(disk,))
    )
    name = "guest.disk_interface"
    assert registry.knob(name).read(context, Setting(name, "sata")) == interface


def test_every_level_of_a_guests_disk_is_one_that_qemu_is_told() -> None:
    levels = {name: set(registry.knob(name).LEVELS) for name in ("guest.disk_interface", "guest.disk_cache")}
    assert levels["guest.disk_interface"] == set(qemu.INTERFACE_MODULES)
    assert levels["guest.disk_cache"] == set(qemu.CACHE_MODES)
    needed = registry.knob("guest.disk_interface").requires(Setting("guest.disk_interface", "sata"))
    assert needed.modules == {"ahci", "sd_mod"}


def test_disks_beyond_the_ports_of_a_controller_get_another_one() -> None:
    disks = tuple(qemu.Disk(number, f"d{number}") for number in range(10, 18))

    def command(interface: str) -> list[str]:
        machine = qemu.Machine(
            Path("kernel"), Path("initramfs"), disks=disks, attached=qemu.Attachment(interface)
        )
        return qemu.command("qemu", machine, qemu.Accelerator.TCG, qemu.Descriptors(0, 0, 0))

    words = command("sata")
    assert [word for word in words if word.startswith("ich9-ahci")] == [
        "ich9-ahci,id=sata0",
        "ich9-ahci,id=sata1",
    ]
    assert any("bus=sata1.1,drive=disk7,serial=d17" in word for word in words)
    with pytest.raises(IotrialError, match="4 disks"):
        command("ide")


def test_what_no_knob_wants_is_as_it_always_is() -> None:
    assert MachineSpec.of({}) == MachineSpec(DEFAULT_KERNEL, 512, 1)
    assert MachineSpec.of({"guest.memory": "1 GiB"}) == MachineSpec(DEFAULT_KERNEL, 1024, 1)
    assert MachineSpec.of({"kernel.version": "6.1", "guest.processors": "2"}) == MachineSpec("6.1", 512, 2)
    assert MachineSpec.of({"guest.disk_cache": "unsafe"}) == MachineSpec(
        disks=qemu.Attachment(cache="unsafe")
    )
    assert MachineSpec.of({"guest.disk_aio": "native"}) == MachineSpec(disks=qemu.Attachment(aio="native"))
    assert MachineSpec.of({"guest.disk_format": "qcow2"}) == MachineSpec(
        disks=qemu.Attachment(format="qcow2")
    )


CPUS = "/sys/devices/system/cpu"


class Cpus:
    """Processors with governors, and one that is offline and has none."""

    def __init__(self) -> None:
        self.files = {f"{CPUS}/cpu{number}/cpufreq/scaling_governor": "schedutil\n" for number in (0, 1, 10)}

    def call(self, verb: str, **fields: object) -> dict[str, Any]:
        assert (verb, fields) == ("list", {"path": CPUS})
        return {"names": ["cpu0", "cpu1", "cpu10", "cpu2", "cpufreq", "cpuidle", "online"]}

    def exists(self, path: str) -> bool:
        return path in self.files

    def read(self, path: str) -> str:
        return "performance schedutil" if path.endswith("available_governors") else self.files[path].rstrip()

    def read_or_none(self, path: str) -> str | None:
        return self.files.get(path)

    def write(self, path: str, data: str) -> None:
        assert path in self.files
        self.files[path] = f"{data}\n"


def test_a_governor_is_set_on_every_processor_that_has_one_and_undone_one_by_one(tmp_path: Path) -> None:
    cpus, journal = Cpus(), Journal(tmp_path / "journal")
    cpus.files[f"{CPUS}/cpu10/cpufreq/scaling_governor"] = "powersave\n"
    before = dict(cpus.files)
    context: Any = SimpleNamespace(target=cpus, journal=journal, boot_id="b", trial="t")
    knob, setting = registry.knob("cpu.governor"), Setting("cpu.governor", "performance")
    assert knob.levels(context, setting) == ("performance", "schedutil")
    knob.prepare(context, setting, ("performance", "schedutil"))
    knob.write(context, setting, "performance")
    knob.verify(context, setting, "performance")
    assert set(cpus.files.values()) == {"performance\n"}
    for entry in journal.pending():
        knob.undo(cpus, entry)  # type: ignore[arg-type]
    assert {path: text.strip() for path, text in cpus.files.items()} == {
        p: t.strip() for p, t in before.items()
    }


def test_a_machine_without_governors_says_so() -> None:
    cpus = Cpus()
    cpus.files.clear()
    with pytest.raises(IotrialError, match="have no governor"):
        registry.knob("cpu.governor").paths(SimpleNamespace(target=cpus), Setting("cpu.governor", "x"))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("knob", "level", "cut"),
    [("guest.disk_format", "qcow2 preallocation=full", False), ("guest.disk_aio", "native", True)],
)
def test_the_power_of_a_disk_in_qcow2_is_not_cut(
    knob: str, level: str, cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qemu, "find_converter", lambda: "qemu-img")
    other = {"guest.disk_format": "raw", "guest.disk_aio": "threads"}[knob]
    text = f"""[study]
name = "format"
title = "T"
question = "Q?"
check = true
[lab]
kind = "guest"
[[factor]]
name = "format"
knob = "{knob}"
levels = ["{other}", "{level}"]
plot = "whole"
[[workload]]
name = "w"
kind = "files"
operations = ["create", "write-all", "fsync", "close", "unlink"]
files = 10
cache = "as-is"
[[response]]
name = "wall"
primary = true
"""
    why = why_not(resolve(read_study(text, "s.toml", trusted=True), root=True))
    assert (why is None) == cut, why


def test_a_format_without_its_program_is_refused_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qemu.shutil, "which", lambda _name: None)
    with pytest.raises(MissingTool, match="qemu-img") as caught:
        resolve(find("system/guest-format"), root=True)
    assert "qemu-utils" in (caught.value.hint or "")


def test_the_format_of_a_disk_is_read_back_from_qemu(tmp_path: Path) -> None:
    def found(wanted: str, *blocks: dict[str, Any]) -> str:
        attached = qemu.Attachment(format=wanted)
        guest = GuestMachine(kernel=Path(), initramfs=Path(), disks=Disks([], tmp_path), attached=attached)
        monitor: Any = SimpleNamespace(listed=lambda _command: [{}, *({"inserted": one} for one in blocks)])
        guest._monitor = monitor
        return guest.attachment("format", 1)

    data = {"lazy-refcounts": False, "extended-l2": True, "compat": "1.1"}
    image = {"cluster-size": 65536, "format-specific": {"type": "qcow2", "data": data}}
    raw, qcow2 = {"drv": "raw", "image": {}}, {"drv": "qcow2", "image": image}
    assert found("raw", raw) == "raw"
    assert found("raw", qcow2) == "qcow2"
    assert found("qcow2", raw, qcow2) == "qcow2 and raw"
    wanted = "qcow2 cluster_size=2M extended_l2=on lazy_refcounts=on preallocation=full"
    assert found(wanted, qcow2) == wanted.replace("2M", "64k").replace("refcounts=on", "refcounts=off")
    assert found("qcow2") == "unknown"
