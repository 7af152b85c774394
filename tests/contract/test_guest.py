"""Booted guests: real QEMU, real kernels. Read-only tests share one guest; tests that kill a guest have their
own."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest
from booted import DISKS, NEEDS, Booted

from iotrial.errors import ProbeError
from iotrial.guest import machine
from iotrial.guest.architecture import GUEST
from iotrial.guest.initramfs import Needs
from iotrial.guest.machine import DiskImage, GuestMachine
from iotrial.guest.place import disk_with_serial
from iotrial.guest.qemu import INTERFACE_MODULES, Accelerator, Attachment
from iotrial.knobs.machine import GuestDiskAio
from iotrial.lab.target import Target
from iotrial.runner.guest import Guest, GuestSpec, MachineSpec


@pytest.fixture
def target(booted: Booted) -> Target:
    return booted.target


def test_it_runs_the_kernel_that_was_asked_for_and_nothing_else(booted: Booted, target: Target) -> None:
    assert target.read("/proc/sys/kernel/osrelease") == booted.guest.release
    own = [pid for pid in target.call("list", path="/proc")["names"] if pid.isdecimal()]
    assert own == ["1"]  # in the probe's namespace: no shell, no daemon


def test_its_disks_have_the_serials_and_sizes_that_were_asked_for(target: Target) -> None:
    found = {}
    for name in target.call("list", path="/sys/block")["names"]:
        if name.startswith("vd"):
            serial = target.read(f"/sys/block/{name}/serial")
            found[serial] = int(target.read(f"/sys/block/{name}/size")) * 512
    assert found == {disk.serial: disk.size_bytes for disk in DISKS}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("interface", "prefix", "cache", "direct", "write_cache"),
    [
        ("virtio-blk", "vd", "writeback", False, "write back"),
        ("virtio-scsi", "sd", "writethrough", False, "write through"),
        ("nvme", "nvme", "unsafe", False, "write back"),
        ("sata", "sd", "directsync", True, "write through"),
        pytest.param(
            *("ide", "sd", "none", True, "write back"),
            marks=pytest.mark.skipif(GUEST.name != "x86_64", reason="QEMU's arm64 machine has no IDE"),
        ),
    ],
)
def test_disks_are_found_by_their_serial_on_every_controller_and_opened_as_the_cache_mode_says(
    guests: Path,
    disk_folder: Path,
    interface: str,
    prefix: str,
    cache: str,
    direct: bool,
    write_cache: str,
) -> None:
    needs = Needs(modules=frozenset().union(*INTERFACE_MODULES.values()))
    disks = [DiskImage("ext4", 32 << 20), DiskImage("a-serial-of-20-chars", 64 << 20)]
    with Guest(GuestSpec(disk_folder, disks, needs), store=guests) as guest:
        guest.want(MachineSpec(disks=Attachment(interface, cache)))
        with guest.start() as probe:
            target = Target(probe)
            for disk in disks:
                name = disk_with_serial(target, disk.serial)
                assert name.startswith(prefix)
                assert int(target.read(f"/sys/block/{name}/size")) * 512 == disk.size_bytes
                assert target.read(f"/sys/block/{name}/queue/write_cache") == write_cache
            assert guest.attachment("cache") == cache
            # our descriptors and QEMU's are of one open file
            flags = {fcntl.fcntl(number, fcntl.F_GETFL) for number in guest._disks.descriptors}
            assert {bool(one & os.O_DIRECT) for one in flags} == {direct}


@pytest.mark.slow
@pytest.mark.parametrize("aio", GuestDiskAio.LEVELS)
def test_how_qemu_reaches_a_disk_is_read_from_what_it_holds_open(
    guests: Path, disk_folder: Path, aio: str
) -> None:
    with Guest(GuestSpec(disk_folder, [DiskImage("one", 32 << 20)]), store=guests) as guest:
        guest.want(MachineSpec(disks=Attachment(aio=aio)))
        with guest.start() as probe:
            assert guest.attachment("aio") == aio
            process = Path("/proc", str(probe.pid))
            links = {str(one.readlink()) for one in (process / "fd").iterdir()}
            assert ("/[aio]" in (process / "maps").read_text()) == (aio == "native")
            assert ("anon_inode:[io_uring]" in links) == (aio == "io_uring")
        fallen_back = GuestMachine(
            kernel=Path(), initramfs=Path(), disks=guest._disks, attached=Attachment(aio=aio)
        )
        assert fallen_back.attachment("aio", os.getpid()) == "threads"  # a process without either


@pytest.mark.slow
def test_what_a_disk_holds_stays_when_its_image_gets_another_format(guests: Path, disk_folder: Path) -> None:
    """qcow2 as QEMU writes it (its magic is QFI\\xfb), with as much of the file in place as its preallocation says."""
    size, texts = 64 << 20, dict[str, str]()
    with Guest(GuestSpec(disk_folder, [DiskImage("one", size)], NEEDS), store=guests) as guest:
        for format in (
            "raw",
            "qcow2",
            "qcow2 preallocation=metadata",
            "qcow2 cluster_size=2M lazy_refcounts=on preallocation=falloc",
            "raw preallocation=off",
            "qcow2 extended_l2=on preallocation=full",
            "qcow2",
            "raw",
        ):
            guest.want(MachineSpec(disks=Attachment(format=format)))
            with guest.start() as probe:
                target = Target(probe)
                assert guest.attachment("format") == format
                [image] = guest._disks.attached_as(format)
                held = os.fstat(image.descriptor)
                whole = format == "raw" or format.endswith(("falloc", "full"))
                assert (held.st_blocks * 512 >= size) == whole
                if format.startswith("qcow2"):
                    with open(f"/proc/self/fd/{image.descriptor}", "rb") as file:  # noqa: PTH123  no path of its own
                        assert file.read(4) == b"QFI\xfb"
                    assert (held.st_size >= size) == (format != "qcow2")
                device = f"/dev/{disk_with_serial(target, 'one')}"
                assert int(target.read(f"/sys/block/{device[5:]}/size")) * 512 == size
                if not texts:
                    assert target.run(["mkfs.ext4", "-E", "nodiscard", device]).exit_status == 0
                target.call("mkdir", path="/run/one", mode="0755")
                target.mount(device, "/run/one", "ext4", [])
                for path, text in texts.items():
                    assert target.read(path) == text
                folder = f"/run/one/{len(texts)}"
                target.call(
                    "fileset", set=format, dir=folder, count=1, size=900_000, seed=len(texts), content="text"
                )
                [name] = target.call("list", path=folder)["names"]
                texts[f"{folder}/{name}"] = target.read(f"{folder}/{name}")
                target.unmount("/run/one")
                # a raw image has all of its blocks from the start, also when it was converted from one that has not
                assert format != "raw" or os.fstat(image.descriptor).st_blocks * 512 >= size
    assert len(texts) == len(set(texts.values())) == 8


@pytest.mark.parametrize(("kind", "disk"), [("ext4", "vde"), ("xfs", "vdf")])
def test_a_file_system_is_made_mounted_and_keeps_what_is_written(
    target: Target, kind: str, disk: str
) -> None:
    done = target.run([f"mkfs.{kind}", f"/dev/{disk}"])
    assert done.exit_status == 0, done.stderr
    target.call("mkdir", path=f"/run/{kind}", mode="0755")
    target.mount(f"/dev/{disk}", f"/run/{kind}", kind, [])
    made = target.call(
        "fileset", set=kind, dir=f"/run/{kind}/files", count=20, size=10_000, seed=1, content="random"
    )
    assert made["bytes"] == 200_000
    target.unmount(f"/run/{kind}")
    target.mount(f"/dev/{disk}", f"/run/{kind}", kind, ["ro"])
    assert target.call("fileset_verify", set=kind)["bytes"] == 200_000
    target.unmount(f"/run/{kind}")


@pytest.mark.long
def test_a_panic_is_told_with_its_reason_and_the_guest_can_be_booted_anew(
    guests: Path, disk_folder: Path
) -> None:
    with Guest(GuestSpec(disk_folder, DISKS[:1]), store=guests) as guest:
        with guest.start() as first, pytest.raises(ProbeError, match="sysrq triggered crash"):
            Target(first).write("/proc/sysrq-trigger", "c")
        with guest.start() as second:
            assert Target(second).read("/proc/sys/kernel/osrelease") == guest.release


def test_a_guest_that_stands_still_is_ended_and_one_like_it_goes_on_from_memory(
    guests: Path, disk_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A paused guest looks like a hung one: its process lives and its CPU does nothing."""
    monkeypatch.setattr(machine, "HUNG_AFTER_S", 3.0)
    with Guest(GuestSpec(disk_folder, DISKS[-2:-1]), store=guests) as guest:
        with guest.start() as first:
            guest._machine._monitor._ask("stop")  # type: ignore[union-attr]
            with pytest.raises(ProbeError, match="no response"):
                Target(first).read("/proc/version")
        if guest.accelerator is not Accelerator.TCG:
            return
        began = time.monotonic()
        with guest.start() as second:
            lasted = time.monotonic() - began
            up = float(Target(second).read("/proc/uptime").split()[0])
        # a freshly booted guest would have uptime close to its start time
        assert lasted < up
