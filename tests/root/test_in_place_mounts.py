"""`iotrial try` in place on mounts that do not use the read-ahead of one disk: btrfs on two disks, an overlay, FUSE; in a
guest NFS, SMB and FUSE."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from running import iotrial, stored_runs
from systemd_guest import Guest, build, missing
from test_in_place import attempt

pytestmark = pytest.mark.root

MIB = 1 << 20
SIZE = 48 * MIB
BACKING = Path("/sys/class/bdi")


@contextmanager
def loops(folder: Path, number: int) -> Iterator[list[str]]:
    """Yield loop devices over images in a folder; they go with their last use."""
    made: list[str] = []
    try:
        for one in range(number):
            image = folder / f"disk{one}.img"
            image.write_bytes(b"")
            os.truncate(image, 256 * MIB)
            done = subprocess.run(
                ["losetup", "--find", "--show", str(image)], check=True, capture_output=True, text=True
            )
            made.append(done.stdout.strip())
        yield made
    finally:
        for device in made:
            subprocess.run(["losetup", "--detach", device], check=True)
        for image in folder.glob("disk*.img"):
            image.unlink()


@contextmanager
def mounted(*argv: str, at: Path) -> Iterator[Path]:
    at.mkdir()
    subprocess.run([*argv, str(at)], check=True, stdin=subprocess.DEVNULL, close_fds=True)
    try:
        yield at
    finally:
        subprocess.run(["umount", str(at)], check=True)
        at.rmdir()


def only_new(before: set[Path]) -> Path:
    """Return the backing device that has come since, from the kernel's list."""
    (found,) = set(BACKING.iterdir()) - before
    return found


def test_read_ahead_of_btrfs_on_two_disks_is_that_of_the_mount(state: Path, disk_folder: Path) -> None:
    """The kernel's count of read requests shows that the files are read with the setting; the disks keep theirs."""
    with loops(disk_folder, 2) as disks:
        subprocess.run(["mkfs.btrfs", "-q", "-f", "-d", "raid0", *disks], check=True)
        before = set(BACKING.iterdir())
        with mounted("mount", disks[0], at=disk_folder / "btrfs") as folder:
            own = only_new(before)
            (own / "read_ahead_kb").write_text("764")
            (folder / "big").write_bytes(os.urandom(SIZE))
            queues = [Path("/sys/block") / Path(disk).name / "queue/read_ahead_kb" for disk in disks]
            theirs = [queue.read_text() for queue in queues]
            seen = "; ".join(f"echo disk $(cat {queue})" for queue in queues)
            attempt(
                "block.read_ahead_kb=4,4096", "--in", str(folder), "--cache", "cold", "--yes", "--blocks", "3", "--no-stop",
                "--response", "seen=regex:own ([0-9]+)", "--",
                "sh", "-c", f"cat big | wc -c; echo own $(cat {own}/read_ahead_kb); {seen}",
            )  # fmt: skip
            assert (own / "read_ahead_kb").read_text() == "764\n"
            assert [queue.read_text() for queue in queues] == theirs
    runs = stored_runs(state)
    assert {(run["treatment"]["read_ahead_kb"], run["responses"]["seen"]) for run in runs} == {
        ("4", 4.0),
        ("4096", 4096.0),
    }
    requests = {
        level: [
            run["evidence"]["disks_read_ios"] for run in runs if run["treatment"]["read_ahead_kb"] == level
        ]
        for level in ("4", "4096")
    }
    assert min(requests["4"]) > 4 * max(requests["4096"]), requests


def test_options_of_a_btrfs_in_use_are_set_and_put_back(state: Path, disk_folder: Path) -> None:
    def shown(at: Path) -> set[str]:
        lines = [line.split(" ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        return set(next(words[-1] for words in lines if words[4] == str(at)).split(","))

    with loops(disk_folder, 2) as disks:
        subprocess.run(["mkfs.btrfs", "-q", "-f", *disks], check=True)
        with mounted("mount", "-o", "commit=17,noatime", disks[0], at=disk_folder / "btrfs") as folder:
            (folder / "big").write_bytes(os.urandom(MIB))
            before = shown(folder)
            assert "commit=17" in before
            script = f"cat big | wc -c; grep ' {folder} ' /proc/self/mountinfo | tr ',' '\\n'"
            attempt(
                "mount.option=default,commit=40", "--in", str(folder), "--yes", "--blocks", "3", "--no-stop",
                "--response", "seen=regex:commit=([0-9]+)", "--", "sh", "-c", script,
            )  # fmt: skip
            assert shown(folder) == before
            found = {(run["treatment"]["option"], run["responses"]["seen"]) for run in stored_runs(state)}
            assert found == {("default", 17.0), ("commit=40", 40.0)}
            subprocess.run(["mount", "-o", "remount,compress=no", str(folder)], check=True)
            before = shown(folder)
            report = attempt(
                "mount.option=default,compress=zstd", "--in", str(folder), "--yes", "--blocks", "3", "--no-stop",
                "--response", "seen=regex:([0-9]+) of 2", "--",
                "sh", "-c",
                f"cat big | wc -c; echo $((1 + $(grep ' {folder} ' /proc/self/mountinfo | grep -c compress=zstd))) of 2",
            )  # fmt: skip
            assert shown(folder) == before
            assert report["effects"]


def test_an_overlay_is_resolved_to_the_disk_of_its_layers(state: Path, disk_folder: Path) -> None:
    with loops(disk_folder, 1) as (disk,):
        subprocess.run(["mkfs.ext4", "-q", disk], check=True)
        queue = Path("/sys/block") / Path(disk).name / "queue"
        with mounted("mount", disk, at=disk_folder / "layers") as layers:
            for name in ("lower", "upper", "work"):
                (layers / name).mkdir()
            (layers / "lower" / "big").write_bytes(os.urandom(SIZE))
            (queue / "read_ahead_kb").write_text("764")
            options = f"lowerdir={layers}/lower,upperdir={layers}/upper,workdir={layers}/work"
            with mounted(
                "mount", "-t", "overlay", "none", "-o", options, at=disk_folder / "merged"
            ) as folder:
                attempt(
                    "block.read_ahead_kb=4,4096", "block.scheduler=none,mq-deadline", "--in", str(folder),
                    "--cache", "cold", "--yes", "--blocks", "2", "--no-stop",
                    "--response", "seen=regex:own ([0-9]+)", "--",
                    "sh", "-c", f"cat big | wc -c; echo own $(cat {queue}/read_ahead_kb)",
                )  # fmt: skip
            assert (queue / "read_ahead_kb").read_text() == "764\n"
    runs = stored_runs(state)
    assert {run["responses"]["seen"] for run in runs} == {4.0, 4096.0}
    assert all(run["checks"]["bytes_read"] >= SIZE * 0.9 for run in runs)


@pytest.mark.skipif(shutil.which("bindfs") is None, reason="bindfs is not installed")
def test_read_ahead_of_a_fuse_mount_is_its_own(state: Path, disk_folder: Path) -> None:
    source = disk_folder / "source"
    source.mkdir(exist_ok=True)
    (source / "big").write_bytes(os.urandom(SIZE))
    before = set(BACKING.iterdir())
    with mounted("bindfs", str(source), at=disk_folder / "fuse") as folder:
        own = only_new(before)
        (own / "read_ahead_kb").write_text("96")
        script = f"cat big | wc -c; echo own $(cat {own}/read_ahead_kb)"
        attempt(
            "bdi.read_ahead_kb=4,1024", "--in", str(folder), "--cache", "cold", "--yes", "--blocks", "3", "--no-stop",
            "--response", "seen=regex:own ([0-9]+)", "--", "sh", "-c", script,
        )  # fmt: skip
        assert (own / "read_ahead_kb").read_text() == "96\n"
        refused = iotrial(
            "try", "block.scheduler=none,mq-deadline", "--in", str(folder), "--yes", "--", "cat", "big", check=None
        )  # fmt: skip
        assert refused.returncode == 2
        assert "act on this mount itself" in refused.stderr
    assert {run["responses"]["seen"] for run in stored_runs(state)} == {4.0, 1024.0}
    assert all(run["void"] is None for run in stored_runs(state) if "void" in run)
    shutil.rmtree(source)


#: what serves a folder over the loopback interface, and mounts it at /mnt/there
SERVERS = {
    "nfs": "systemctl start nfs-server; exportfs -o rw,no_root_squash,insecure,fsid=1 127.0.0.1:/srv/data && "
    "mount -t nfs -o vers=4.2 127.0.0.1:/srv/data /mnt/there",
    "cifs": "printf '[data]\\npath=/srv/data\\nread only=no\\nguest ok=yes\\nforce user=root\\n"
    "[global]\\nmap to guest=bad user\\n' > /etc/samba/smb.conf; systemctl restart smbd; sleep 2; "
    "mount -t cifs -o guest,vers=3.1.1 //127.0.0.1/data /mnt/there",
    "fuse": "bindfs /srv/data /mnt/there",
}


@pytest.mark.long
@pytest.mark.alone(reason="a machine of its own, slow on a busy one")
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_network_mounts_of_real_servers(tmp_path: Path) -> None:
    made, folder = tmp_path / "made", tmp_path / "guest"
    made.mkdir()
    folder.mkdir()
    build(made, "nfs-kernel-server", "samba", "cifs-utils", "bindfs")
    guest = Guest(made, folder)
    try:
        guest.boot()
        guest.settle()
        guest.run("mkdir -p /mnt/there; head -c 24M /dev/urandom > /srv/data/big")
        for kind, serve in SERVERS.items():
            before = set(guest.run("ls /sys/class/bdi").split())
            guest.run(serve)
            (name,) = set(guest.run("ls /sys/class/bdi").split()) - before
            own = f"/sys/class/bdi/{name}/read_ahead_kb"
            today = guest.read(own)
            text = guest.run(
                # numpy's sorting by AVX crashes in emulated guests
                "NPY_DISABLE_CPU_FEATURES='X86_V3 X86_V4' iotrial try bdi.read_ahead_kb=16,1024 "
                "--in /mnt/there --cache cold --yes --blocks 3 --no-stop --json "
                f"--response 'seen=regex:own ([0-9]+)' -- sh -c 'cat big | wc -c; echo own $(cat {own})' 2>/dev/null",
                status=None, within_s=600,
            )  # fmt: skip
            (effect,) = [one for one in json.loads(text)["effects"] if one["response"] == "seen"]
            assert effect["ratio"] == pytest.approx(64), kind
            assert guest.read(own) == today
            guest.run("umount /mnt/there")
    finally:
        guest.close()
