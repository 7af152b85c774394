"""Loop devices, mounts and isolation, as the kernel shows them; nothing outlives the probe."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from probe_client import (
    MIB,
    Lab,
    Probe,
    ProbeError,
    attached_over,
    descriptors,
    eventually,
    make_set,
    processes_with,
)


@pytest.mark.root
def test_a_loop_device_is_what_sysfs_says_it_is(isolated: Probe, folder: Path) -> None:
    lab = Lab(isolated, folder)
    sysfs = Path("/sys/block") / lab.name
    assert folder.name in (sysfs / "loop/backing_file").read_text()
    assert (sysfs / "loop/autoclear").read_text() == "1\n"
    assert int((sysfs / "loop/dio").read_text()) == lab.answer["direct_io"]
    assert int((sysfs / "size").read_text()) * 512 == 64 * MIB
    shown = subprocess.run(
        ["losetup", "-nO", "BACK-INO", lab.device], capture_output=True, text=True, check=True
    ).stdout
    assert int(shown) == lab.answer["inode"]
    isolated("loop_detach", device=lab.device)
    assert not attached_over(folder.name)
    with pytest.raises(ProbeError, match="detach") as caught:
        isolated("loop_detach", device=lab.device)
    assert caught.value.code == "bad_request"


@pytest.mark.root
def test_direct_io_is_off_where_it_was_not_asked_for(isolated: Probe, folder: Path) -> None:
    lab = Lab(isolated, folder, direct_io=False)
    assert lab.answer["direct_io"] is False
    assert (Path("/sys/block") / lab.name / "loop/dio").read_text() == "0\n"
    isolated("loop_detach", device=lab.device)


@pytest.mark.root
def test_a_mount_is_the_probes_alone_and_has_the_options_given(lab: Lab) -> None:
    def options() -> set[str]:
        table = lab.probe("read", path="/proc/self/mountinfo")["data"]
        [line] = [line for line in table.splitlines() if str(lab.mounted) in line]
        before, after = line.split(" - ")
        return {*before.split()[5].split(","), *after.split()[2].split(",")}

    assert str(lab.mounted) not in Path("/proc/self/mountinfo").read_text()
    assert "noatime" in options()
    # libmount would keep noatime here.
    lab.mount("remount", "relatime")
    assert "relatime" in options()
    assert "noatime" not in options()
    lab.mount("remount", "strictatime", "ro", "commit=30")
    assert {"ro", "commit=30"} <= options()
    assert not {"relatime", "noatime"} & options()
    with pytest.raises(ProbeError, match="Read-only file system"):
        lab.probe("mkdir", path=str(lab.mounted / "x"), mode="0755")
    lab.mount("remount", "rw", "noatime", "nodiratime", "lazytime", "nodev", "noexec", "nosuid", "sync")
    assert {"rw", "noatime", "nodiratime", "lazytime", "nodev", "noexec", "nosuid", "sync"} <= options()
    with pytest.raises(ProbeError, match="wrong=1") as caught:
        lab.mount("remount", "wrong=1")
    assert caught.value.code == "os"


@pytest.mark.root
def test_a_mounted_device_is_not_detached_and_a_busy_one_not_unmounted(lab: Lab) -> None:
    with pytest.raises(ProbeError, match="mounted on") as caught:
        lab.probe("loop_detach", device=lab.device)
    assert caught.value.errno == 16  # EBUSY
    make_set(lab.probe, lab.mounted, count=1)
    command = lab.probe("run", argv=["sh", "-c", f"exec 3<{lab.mounted}/s/f000000; umount {lab.mounted}"])
    assert command["exit"] != 0
    lab.probe("unmount", target=str(lab.mounted))
    lab.mount("noatime")


@pytest.mark.root
def test_the_isolated_probe_is_process_1_and_sees_its_own_processes(isolated: Probe) -> None:
    hello = isolated("hello")
    assert (hello["pid"], hello["isolated"], hello["privileged"]) == (1, True, True)
    seen = {int(name) for name in isolated("list", path="/proc")["names"] if name.isdigit()}
    assert seen == {1}
    assert os.getpid() not in seen


@pytest.mark.root
def test_nothing_is_left_when_the_probe_is_killed(folder: Path) -> None:
    probe = Probe("--isolate")
    lab = Lab(probe, folder)
    lab.mount()
    assert attached_over(folder.name) == [lab.name]
    os.kill(probe.process.pid, signal.SIGKILL)
    assert probe.close() == -signal.SIGKILL
    assert eventually(lambda: not attached_over(folder.name))


@pytest.mark.root
def test_nothing_is_left_when_the_process_that_started_it_is_killed(folder: Path) -> None:
    """The parent is a separate Python process, killed while the probe runs a command on the lab."""
    program = f"""
import sys, os
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from probe_client import Lab, Probe, make_set
probe = Probe("--isolate")
lab = Lab(probe, Path({str(folder)!r}))
lab.mount()
print(lab.name, probe.process.pid, flush=True)
probe("command", steps=[{{"name": "sleep", "argv": ["sleep", "4321.{os.getpid()}"]}}], cwd=str(lab.mounted))
"""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    parent = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert parent.stdout
    name, outer = parent.stdout.readline().split()
    assert attached_over(folder.name) == [name]
    assert eventually(lambda: bool(processes_with(f"4321.{os.getpid()}")))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert eventually(lambda: not attached_over(folder.name))
    assert eventually(lambda: not processes_with(f"4321.{os.getpid()}"))
    assert eventually(lambda: not Path(f"/proc/{outer}").exists())


@pytest.mark.root
def test_a_loop_device_that_the_kernel_had_to_add_is_taken_away_again(isolated: Probe, folder: Path) -> None:
    def devices() -> set[str]:
        return {path.name for path in Path("/sys/block").glob("loop*")}

    before = devices()
    attached: list[str] = []
    while len(attached) <= len(before):
        image = isolated("image", folder=str(folder), size=MIB, fill="allocate")["image"]
        attached.append(isolated("loop_attach", image=image, direct_io=False)["device"])
    added = devices() - before
    assert added
    for device in reversed(attached):
        isolated("loop_detach", device=device)
    assert not added & devices()


@pytest.mark.root
def test_a_renewed_image_is_zeros_that_are_allocated_and_unwritten_whatever_was_on_it(lab: Lab) -> None:
    (lab.mounted / "file").write_bytes(os.urandom(4 * MIB))
    lab.unmount()
    folder = str(lab.mounted.parent)
    image = next(fd for fd in descriptors(lab.probe) if str(fd.readlink()).startswith(f"{folder}/#"))
    assert set(_extents(image)) == {"", "unwritten"}  # mkfs zeroes some of it and writes some
    # as mkfs.xfs does; the block size would persist, since the probe holds the device open
    subprocess.run(["blockdev", "--setbsz", "512", lab.device], check=True)
    assert _block_size(lab) == 512
    lab.probe("image_renew", device=lab.device)
    assert _block_size(lab) == 4096
    assert Path(lab.device).read_bytes() == bytes(64 * MIB)
    assert set(_extents(image)) == {"unwritten"}
    assert image.stat().st_blocks * 512 >= 64 * MIB
    assert lab.probe("run", argv=["mkfs.ext4", "-q", lab.device])["exit"] == 0
    lab.mount()


def _block_size(lab: Lab) -> int:
    return int(subprocess.run(["blockdev", "--getbsz", lab.device], capture_output=True, check=True).stdout)


def _extents(image: Path) -> list[str]:
    """Return "unwritten" or "" for each extent of a file, from e2fsprogs' filefrag; check that they cover the
    file."""
    done = subprocess.run(
        ["filefrag", "-v", "-b1024", str(image)], capture_output=True, text=True, check=True
    )
    rows = [line.split(":") for line in done.stdout.splitlines() if re.match(r" +\d+: ", line)]
    assert sum(int(row[3]) for row in rows) == 64 * 1024
    return ["unwritten" if "unwritten" in row[-1] else "" for row in rows]
