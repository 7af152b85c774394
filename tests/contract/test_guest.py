"""Guests that are booted: real QEMU, real kernels. One guest serves for what only asks; those that die are their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from iotrial.conduct.guest import Guest, GuestSpec
from iotrial.errors import ProbeError
from iotrial.lab.guest.initramfs import Needs
from iotrial.lab.guest.machine import DiskImage
from iotrial.lab.target import Target
from iotrial.probe.client import Probe

pytestmark = pytest.mark.xdist_group("machine")

NEEDS = Needs(
    modules=frozenset({"ext4", "xfs"}),
    packages=frozenset({"e2fsprogs", "xfsprogs"}),
    programs=frozenset({"mkfs.ext4", "mkfs.xfs"}),
)
DISKS = (DiskImage("one", 64 << 20), DiskImage("two", 384 << 20))


@pytest.fixture(scope="module")
def guest(guests: Path, disk_folder: Path) -> Iterator[Guest]:
    with Guest(GuestSpec(disk_folder, DISKS, NEEDS), store=guests) as made:
        yield made


@pytest.fixture(scope="module")
def probe(guest: Guest) -> Iterator[Probe]:
    with guest.start() as started:
        yield started


@pytest.fixture(scope="module")
def target(probe: Probe) -> Target:
    return Target(probe)


def test_it_runs_the_kernel_that_was_asked_for_and_nothing_else(guest: Guest, target: Target) -> None:
    assert target.read("/proc/sys/kernel/osrelease") == guest.release
    own = [pid for pid in target.call("list", path="/proc")["names"] if pid.isdecimal()]
    assert own == ["1"]  # of the probe's namespace: no shell, no daemon


def test_its_disks_have_the_serials_and_sizes_that_were_asked_for(target: Target) -> None:
    found = {}
    for name in target.call("list", path="/sys/block")["names"]:
        if name.startswith("vd"):
            serial = target.read(f"/sys/block/{name}/serial")
            found[serial] = int(target.read(f"/sys/block/{name}/size")) * 512
    assert found == {"one": 64 << 20, "two": 384 << 20}


@pytest.mark.parametrize(("kind", "disk"), [("ext4", "vda"), ("xfs", "vdb")])
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


def test_a_panic_is_told_with_its_reason_and_the_guest_can_be_booted_anew(
    guests: Path, disk_folder: Path
) -> None:
    with Guest(GuestSpec(disk_folder, DISKS[:1]), store=guests) as guest:
        with guest.start() as first, pytest.raises(ProbeError, match="sysrq triggered crash"):
            Target(first).write("/proc/sysrq-trigger", "c")
        with guest.start() as second:
            assert Target(second).read("/proc/sys/kernel/osrelease") == guest.release
