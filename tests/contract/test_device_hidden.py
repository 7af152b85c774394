"""A disk in use is refused even if no path leads to its user and only kernel device numbers show it.

Cases: loop devices over it under names that are gone or are in another mount namespace, stacks of devices
above and below, mappings with a closed descriptor, descriptors in flight, a process whose first thread has
ended.
"""

from __future__ import annotations

import mmap
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from refusing import accepted, mapped_linearly, mounted, refused
from stand_in import SERIAL, StandIn, replace_look_up, run

from iotrial.errors import RequestError
from iotrial.lab import guard
from iotrial.lab.target import Target
from iotrial.probe.client import Probe

pytestmark = pytest.mark.root


@contextmanager
def loop_over(path: str | Path) -> Iterator[str]:
    device = run("losetup", "--show", "--find", str(path)).strip()
    try:
        yield device
    finally:
        run("losetup", "--detach", device)


@contextmanager
def loop_by_a_name_that_goes(disk: StandIn, folder: Path) -> Iterator[str]:
    """Yield a loop device over the disk, attached through a device node that is then removed."""
    node = folder / "node"
    os.mknod(node, stat.S_IFBLK | 0o600, os.stat(disk.path).st_rdev)  # noqa: PTH116
    with loop_over(node) as above:
        node.unlink()
        backing = Path(f"/sys/block/{name(above)}/loop/backing_file").read_text()
        assert "(deleted)" in backing  # no path leads from it to the disk
        yield above


def name(device: str) -> str:
    return device.removeprefix("/dev/")


def test_a_file_system_above_a_loop_device_whose_node_is_gone_is_seen(disk: StandIn, tmp_path: Path) -> None:
    with loop_by_a_name_that_goes(disk, tmp_path) as above:
        run("mkfs.ext4", "-q", above)
        with mounted(above, tmp_path / "m", "--read-only"):  # read-only: keeps all bytes
            message = refused(disk, tmp_path)
            assert f"{name(above)} is attached to it" in message
            assert f"mounted on {tmp_path}/m" in message


def test_a_loop_device_that_was_attached_in_another_mount_namespace_is_seen(
    disk: StandIn, tmp_path: Path
) -> None:
    number = os.stat(disk.path).st_rdev  # noqa: PTH116
    (tmp_path / "m").mkdir()
    script = (
        f"mount -t tmpfs none {tmp_path}/m && mknod {tmp_path}/m/node b {os.major(number)} {os.minor(number)} && "
        f"losetup --show --find {tmp_path}/m/node && exec sleep 600"
    )
    other = subprocess.Popen(["unshare", "--mount", "sh", "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        above = other.stdout.readline().strip()
        assert f"{name(above)} is attached to it" in refused(disk, tmp_path)
    finally:
        other.kill()
        other.communicate()
        run("losetup", "--detach", above)


@contextmanager
def loop_over_an_image_on(device: str, folder: Path) -> Iterator[str]:
    """Yield a loop device over a file in a file system that is no longer mounted anywhere. Nothing of this
    writes to the device."""
    run("mkfs.ext4", "-q", device)
    with mounted(device, folder):
        (folder / "image").write_bytes(bytes(1 << 20))
    run("mount", "--read-only", device, str(folder))
    above = run("losetup", "--show", "--find", "--read-only", str(folder / "image")).strip()
    run("umount", "--lazy", str(folder))
    try:
        yield above
    finally:
        run("losetup", "--detach", above)


def test_a_loop_device_over_a_file_on_a_loop_device_over_the_disk_is_seen(
    disk: StandIn, tmp_path: Path
) -> None:
    with (
        loop_by_a_name_that_goes(disk, tmp_path) as above,
        loop_over_an_image_on(above, tmp_path / "m") as topmost,
    ):
        message = refused(disk, tmp_path)
    assert f"{name(above)} is attached to it" in message
    assert f"{name(topmost)} is attached to a file on {name(above)}" in message


def test_an_image_on_a_file_system_that_is_mounted_nowhere_any_more_names_its_loop_device(
    disk: StandIn, tmp_path: Path
) -> None:
    with loop_over_an_image_on(disk.path, tmp_path / "m") as above:
        assert f"{name(above)} is attached to a file on it" in refused(disk, tmp_path)


def test_another_loop_device_over_the_same_file_is_seen_though_its_name_is_gone(
    disk: StandIn, tmp_path: Path, disk_folder: Path
) -> None:
    other = disk_folder / "other-name"
    other.hardlink_to(disk.file)
    with loop_over(other) as twin:
        other.unlink()
        run("mkfs.ext4", "-q", twin)
        with mounted(twin, tmp_path / "m", "--read-only"):
            message = refused(disk, tmp_path)
    assert f"{name(twin)} is attached to the same file" in message
    assert f"mounted on {tmp_path}/m" in message


def test_the_disk_below_a_loop_device_is_looked_at_too(disk: StandIn, tmp_path: Path) -> None:
    run("mkfs.ext4", "-q", disk.path)
    with mounted(disk.path, tmp_path / "m"), pytest.raises(RequestError) as caught:
        claim_above(disk)
    assert f"mounted on {tmp_path}/m" in caught.value.message


def test_a_disk_that_is_itself_a_loop_device_over_an_unused_one_is_taken(disk: StandIn) -> None:
    assert claim_above(disk) != disk.name


def claim_above(disk: StandIn) -> str:
    """Claim another loop device over the disk, as if that were the disk."""
    with loop_over(disk.path) as upper, Probe(isolate=True) as probe:
        replace_look_up({disk.path: SERIAL})
        consent = guard.Consent(upper, SERIAL, discard_contents=True)
        return guard.claim(Target(probe), consent, 16 << 20).device


@pytest.mark.skipif(
    "device-mapper" not in Path("/proc/devices").read_text(), reason="this kernel has no device mapper"
)
def test_the_device_mapper_above_a_hidden_loop_device_is_seen(disk: StandIn, tmp_path: Path) -> None:
    with loop_by_a_name_that_goes(disk, tmp_path) as above, mapped_linearly(above):
        assert f"{name(above)} is part of dm-" in refused(disk, tmp_path)


def test_loop_devices_over_other_files_are_nobody_of_the_disk(
    disk: StandIn, attach: Callable[..., StandIn], tmp_path: Path
) -> None:
    other = attach("other.img")
    with loop_over(other.path):
        accepted(disk, tmp_path)


def test_a_mapping_whose_descriptor_is_closed_is_seen(disk: StandIn, tmp_path: Path) -> None:
    descriptor = os.open(disk.path, os.O_RDWR)
    # Python's mmap keeps a duplicate of the descriptor, so the child maps through libc
    held = subprocess.Popen([sys.executable, "-c", MAPS], stdin=descriptor, stdout=subprocess.PIPE, text=True)
    os.close(descriptor)
    try:
        assert held.stdout is not None
        assert held.stdout.readline() == "mapped\n"
        assert not _has_open(held.pid, disk)
        assert f"mapped by process {held.pid}" in refused(disk, tmp_path)
    finally:
        held.kill()
        held.communicate()


MAPS = f"""
import ctypes, os, time
map_ = ctypes.CDLL(None, use_errno=True).mmap
map_.restype, map_.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
found = map_(None, 4096, {mmap.PROT_READ | mmap.PROT_WRITE}, {mmap.MAP_SHARED}, 0, 0)
assert found != ctypes.c_void_p(-1).value
os.close(0)
print("mapped", flush=True)
time.sleep(600)
"""


def test_a_descriptor_in_flight_is_reason_enough(disk: StandIn, tmp_path: Path) -> None:
    sender, receiver = socket.socketpair(socket.AF_UNIX)
    with sender, receiver:
        descriptor = os.open(disk.path, os.O_RDWR)
        socket.send_fds(sender, [b"x"], [descriptor])
        os.close(descriptor)
        assert not _has_open(os.getpid(), disk)
        message = refused(disk, tmp_path)
        assert f"process {os.getpid()}" in message
        assert "in flight" in message
        _, received, _, _ = socket.recv_fds(receiver, 1, 1)
        for one in received:
            os.close(one)
    accepted(disk, tmp_path)


# A ring whose file has no name could be of any disk, so every device that another test offers would be refused meanwhile.
@pytest.mark.parametrize("named", [True, pytest.param(False, marks=pytest.mark.alone)])
def test_a_descriptor_that_is_registered_with_an_io_uring_and_closed_is_seen(
    disk: StandIn, tmp_path: Path, *, named: bool
) -> None:
    node = tmp_path / "node"
    os.mknod(node, stat.S_IFBLK | 0o600, os.stat(disk.path).st_rdev)  # noqa: PTH116
    descriptor = os.open(node, os.O_RDWR)
    held = subprocess.Popen(
        [sys.executable, "-c", REGISTERS], stdin=descriptor, stdout=subprocess.PIPE, text=True
    )
    os.close(descriptor)
    try:
        assert held.stdout is not None
        answer = held.stdout.readline()
        if answer == "refused\n":
            pytest.skip("this kernel has no io_uring for us")
        assert answer == "registered\n"
        assert not _has_open(held.pid, disk)
        if not named:
            node.unlink()
        message = refused(disk, tmp_path)
        assert f"open in an io_uring of process {held.pid}" in message
        assert ("perhaps" in message) is not named
    finally:
        held.kill()
        held.communicate()


REGISTERS = """
import ctypes, os, time
call = ctypes.CDLL(None, use_errno=True).syscall
ring = call(425, 4, ctypes.create_string_buffer(120))  # io_uring_setup(2)
done = ring >= 0 and call(427, ring, 2, (ctypes.c_int * 1)(0), 1) == 0  # io_uring_register(2), IORING_REGISTER_FILES
os.close(0)
print("registered" if done else "refused", flush=True)
time.sleep(600)
"""


def test_a_process_whose_first_thread_has_ended_still_has_it_open(disk: StandIn, tmp_path: Path) -> None:
    descriptor = os.open(disk.path, os.O_RDWR)
    held = subprocess.Popen(
        [sys.executable, "-c", ENDS_ITS_FIRST_THREAD], stdin=descriptor, stdout=subprocess.PIPE, text=True
    )
    os.close(descriptor)
    try:
        assert held.stdout is not None
        assert held.stdout.readline() == "ended\n"
        assert not _has_open(held.pid, disk)  # not shown once the first thread has ended
        assert f"open in process {held.pid}" in refused(disk, tmp_path)
    finally:
        held.kill()
        held.communicate()


ENDS_ITS_FIRST_THREAD = """
import ctypes, os, threading, time
def stay():
    while "zombie" not in open(f"/proc/{os.getpid()}/status").read():
        time.sleep(0.01)
    print("ended", flush=True)
    time.sleep(600)
threading.Thread(target=stay).start()
ctypes.CDLL(None).syscall(60, 0)  # exit(2) of this thread alone
"""


def _has_open(pid: int, disk: StandIn) -> bool:
    wanted = os.stat(disk.path).st_rdev  # noqa: PTH116
    try:
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
    return any(d.exists() and d.stat().st_rdev == wanted for d in descriptors)
