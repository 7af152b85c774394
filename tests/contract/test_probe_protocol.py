"""The probe's protocol, held against independent truth: the kernel's files, os.stat, strace, zlib, and a second
implementation of the content generator in Python. See docs/probe-protocol.md.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import select
import shutil
import signal
import stat
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("IOTRIAL_PROBE", REPOSITORY / "target/release/ioprobe"))
NOBODY = 65534
MIB = 1 << 20

pytestmark = pytest.mark.skipif(not BINARY.exists(), reason=f"no probe at {BINARY}: cargo build --release")


class ProbeError(Exception):
    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.code: str = error["code"]
        self.errno: int | None = error.get("errno")


class Probe:
    """JSON lines over pipes, and nothing else."""

    def __init__(self, *arguments: str, prefix: tuple[str, ...] = (), **popen: Any) -> None:
        self.process = subprocess.Popen(
            [*prefix, str(BINARY), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **popen
        )
        self.last_id = 0

    def line(self, line: bytes) -> dict[str, Any]:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], 60)
        assert ready, f"no answer to {line[:200]!r} within a minute"
        answer = self.process.stdout.readline()
        assert answer, f"the probe ended with {self.process.wait()} on {line[:200]!r}"
        return json.loads(answer)

    def __call__(self, verb: str, **fields: Any) -> dict[str, Any]:
        self.last_id += 1
        answer = self.line(json.dumps({"id": self.last_id, "verb": verb, **fields}).encode())
        assert answer["id"] == self.last_id
        if "error" in answer:
            assert set(answer) == {"id", "error"}
            raise ProbeError(answer["error"])
        assert set(answer) == {"id", "ok"}
        return answer["ok"]

    def close(self) -> int:
        assert self.process.stdin
        assert self.process.stdout
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        status = self.process.wait(timeout=30)
        self.process.stdout.close()
        return status


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder on a disk that other users can walk through (pytest's own cannot)."""
    path = Path(
        tempfile.mkdtemp(prefix="ioprobe-test-", dir=os.environ.get("IOTRIAL_TEST_FOLDER", "/var/tmp"))
    )
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)
    assert not [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if path.name in line]
    assert not attached_over(path.name)


@pytest.fixture
def probe() -> Iterator[Probe]:
    probe = Probe()
    yield probe
    assert probe.close() == 0


@pytest.fixture
def isolated() -> Iterator[Probe]:
    probe = Probe("--isolate")
    yield probe
    assert probe.close() == 0


def attached_over(name: str) -> list[str]:
    """Loop devices whose image lies in a folder of that name."""
    found = []
    for file in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            if name in file.read_text():
                found.append(file.parts[3])
    return found


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def descriptors(probe: Probe) -> list[Path]:
    return list(Path(f"/proc/{probe.process.pid}/fd").iterdir())


def eventually(condition: Callable[[], bool], seconds: float = 10) -> bool:
    """The kernel takes mounts and loop devices down a moment after the process that held them is gone."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def make_set(probe: Probe, folder: Path, name: str = "s", **fields: Any) -> Path:
    given = {"count": 20, "size": 100, "seed": 1, "content": "text", **fields}
    probe("fileset", set=name, dir=str(folder / name), **given)
    return folder / name


# The content generator, written a second time from its description.

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mixed(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def content(kind: str, seed: int, index: int, size: int) -> bytes:
    if kind == "zeros":
        return bytes(size)
    key = mixed(seed ^ mixed((index + GOLDEN) & MASK))
    words = [mixed((key + (n + 1) * GOLDEN) & MASK) for n in range(size // 8 + 8)]
    if kind == "random":
        return b"".join(word.to_bytes(8, "little") for word in words)[:size]
    digits = "".join(f"{word:016x}"[::-1] for word in words)
    lines = [digits[at : at + 63] + "\n" for at in range(0, size, 64)]
    return "".join(lines).encode()[:size]


# Requests and answers


def test_hello_says_who_and_where_it_is(probe: Probe) -> None:
    hello = probe("hello")
    assert hello["protocol"] == 1
    assert hello["pid"] == probe.process.pid
    assert hello["uid"] == os.getuid()
    assert hello["isolated"] is False
    bits = re.search(r"CapEff:\s*(\w+)", Path(f"/proc/{probe.process.pid}/status").read_text())
    assert bits
    assert hello["privileged"] == bool(int(bits[1], 16) >> 21 & 1)
    limits = Path(f"/proc/{probe.process.pid}/limits").read_text()
    _, soft, hard = re.search(r"(Max open files)\s+(\d+)\s+(\d+)", limits).groups()
    assert hello["nofile"] == int(soft) == int(hard)


def test_bad_requests_are_answered_and_the_probe_goes_on(probe: Probe) -> None:
    for line, said in [
        (b"nonsense", "JSON object"),
        (b"[1, 2]", "JSON object"),
        (b'{"id": 1}', "verb"),
        (b'{"id": 1, "verb": 3}', "verb"),
        (b'{"id": 1, "verb": "fly"}', "fly"),
        (b'{"id": 1, "verb": "read"}', "path"),
        (b'{"id": 1, "verb": "read", "path": "/proc/uptime", "pth": 1}', "pth"),
        (b'{"id": 1, "verb": "read", "path": "a\\u0000b"}', "NUL byte"),
        (b'{"id": 1, "verb": "mkdir", "path": "a\\u0000b"}', "NUL byte"),
        (b'{"id": 1, "verb": "sync", "x": 1}', "x"),
        (b'{"id": 1, "verb": "mkdir", "path": "/x", "mode": "9"}', "mode"),
        (b'{"id": 1, "verb": "files", "set": "s", "operations": ["fly"]}', "operations"),
        (b'{"id": 1, "verb": "files", "set": "none", "operations": ["open"]}', "none"),
        (b'{"id": 1, "verb": "command", "steps": [{"name": "a", "argv": ["x"], "b": 1}]}', "steps"),
        (b'{"id": 1, "verb": "drop_caches", "what": 4}', "what"),
        (b'{"id": 1, "verb": "remove", "path": "/", "recursive": true}', "remove"),
        (b"\xff\xfe", "JSON object"),
    ]:
        error = probe.line(line)["error"]
        assert error["code"] == "bad_request", line
        assert said in error["message"], (line, error)
    assert probe("time")["monotonic_ns"] > 0


def test_an_id_comes_back_as_it_went(probe: Probe) -> None:
    assert probe.line(b'{"id": "a-7", "verb": "time"}')["id"] == "a-7"
    assert probe.line(b'{"id": [1, null], "verb": "fly"}')["id"] == [1, None]
    assert probe.line(b'{"verb": "time"}')["id"] is None


def test_time_is_the_kernels_time(probe: Probe) -> None:
    before, real_before = time.clock_gettime_ns(time.CLOCK_MONOTONIC), time.time_ns()
    found = probe("time")
    assert before <= found["monotonic_ns"] <= time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    assert real_before <= found["realtime_ns"] <= time.time_ns()


def test_unknown_options_are_refused_on_the_command_line() -> None:
    done = subprocess.run([BINARY, "--nonsense"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage:" in done.stderr


# Target verbs


def test_read_write_and_list_are_those_of_the_kernel(probe: Probe, folder: Path) -> None:
    (folder / "b").write_text("old content")
    (folder / "a").write_text("")
    probe("write", path=str(folder / "b"), data="new")
    assert (folder / "b").read_text() == "new content", "one write, no truncation"
    assert probe("read", path=str(folder / "b"))["data"] == "new content"
    assert probe("list", path=str(folder))["names"] == ["a", "b"]
    (folder / "l").symlink_to("nowhere")
    assert probe("readlink", path=str(folder / "l"))["target"] == "nowhere"
    with pytest.raises(ProbeError, match=f"read {folder}/none: No such file or directory") as caught:
        probe("read", path=str(folder / "none"))
    assert (caught.value.code, caught.value.errno) == ("os", 2)
    with pytest.raises(ProbeError):
        probe("write", path=str(folder / "none"), data="x")
    assert not (folder / "none").exists()
    (folder / "big").write_bytes(bytes(MIB + 1))
    with pytest.raises(ProbeError, match="1048576"):
        probe("read", path=str(folder / "big"))


def test_stat_is_os_lstat_and_os_stat(probe: Probe, folder: Path) -> None:
    (folder / "file").write_bytes(b"x" * 5000)
    (folder / "file").chmod(0o4711)
    (folder / "link").symlink_to("file")
    kinds = {
        "file": "file",
        ".": "directory",
        "link": "symlink",
        "/dev/null": "other",
        **{str(device): "block" for device in list(Path("/dev").glob("loop[0-9]"))[:1]},
    }
    for name, kind in kinds.items():
        truth = os.lstat(folder / name)
        found = probe("stat", path=str(folder / name))
        assert found == {
            "kind": kind,
            "mode": f"{stat.S_IMODE(truth.st_mode):04o}",
            "uid": truth.st_uid,
            "gid": truth.st_gid,
            "size": truth.st_size,
            "inode": truth.st_ino,
            "device": [os.major(truth.st_dev), os.minor(truth.st_dev)],
            "rdevice": [os.major(truth.st_rdev), os.minor(truth.st_rdev)],
            "links": truth.st_nlink,
            "atime_ns": truth.st_atime_ns,
            "mtime_ns": truth.st_mtime_ns,
            "ctime_ns": truth.st_ctime_ns,
            "blocks": truth.st_blocks,
        }
    followed = probe("stat", path=str(folder / "link"), follow=True)
    assert followed["inode"] == (folder / "file").stat().st_ino


def test_statfs_is_os_statvfs(probe: Probe, folder: Path) -> None:
    truth, found = os.statvfs(folder), probe("statfs", path=str(folder))
    assert found["total_bytes"] == truth.f_blocks * truth.f_frsize
    assert abs(found["available_bytes"] - truth.f_bavail * truth.f_frsize) < 1 << 32
    words = subprocess.run(
        ["stat", "-f", "-c", "%t", folder], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert int(found["type"], 16) == int(words, 16)


def test_mkdir_makes_the_mode_that_was_asked_for_and_accepts_a_folder(probe: Probe, folder: Path) -> None:
    probe("mkdir", path=str(folder / "d"), mode="1777")
    probe("mkdir", path=str(folder / "d"), mode="0700")
    assert stat.S_IMODE((folder / "d").stat().st_mode) & 0o777 == 0o777
    (folder / "f").write_text("")
    with pytest.raises(ProbeError) as caught:
        probe("mkdir", path=str(folder / "f"), mode="0755")
    assert caught.value.code == "os"


def test_remove_takes_names_and_follows_no_link(probe: Probe, folder: Path) -> None:
    outside, tree = folder / "outside", folder / "tree"
    (outside / "deep").mkdir(parents=True)
    (outside / "kept").write_text("kept")
    (tree / "a/b").mkdir(parents=True)
    (tree / "a/b/f").write_text("")
    (tree / "to-folder").symlink_to(outside)
    (tree / "a/to-file").symlink_to(outside / "kept")
    (folder / "link-to-tree").symlink_to(outside)
    count = sum(len(folders) + len(files) for _, folders, files in os.walk(tree)) + 1
    with pytest.raises(ProbeError):
        probe("remove", path=str(tree), recursive=False)
    assert probe("remove", path=str(tree), recursive=True) == {"removed": count}
    assert probe("remove", path=str(folder / "link-to-tree"), recursive=True) == {"removed": 1}
    assert names(folder) == ["outside"]
    assert names(outside) == ["deep", "kept"]
    assert probe("remove", path=str(tree), recursive=True) == {"removed": 0}
    assert probe("remove", path=str(folder / "x/y/z"), recursive=True) == {"removed": 0}


@pytest.mark.root
def test_remove_never_crosses_a_mount(isolated: Probe, folder: Path) -> None:
    inner = folder / "tree/mounted"
    inner.mkdir(parents=True)
    (folder / "other").mkdir()
    (folder / "other/precious").write_text("")
    isolated("mount", source="none", target=str(inner), type="tmpfs", options=["size=1m"])
    isolated("run", argv=["touch", f"{inner}/precious"])
    with pytest.raises(ProbeError, match="mounted") as caught:
        isolated("remove", path=str(folder / "tree"), recursive=True)
    assert caught.value.errno == 18  # EXDEV
    with pytest.raises(ProbeError):
        isolated("remove", path=str(inner), recursive=True)
    assert isolated("list", path=str(inner))["names"] == ["precious"]
    isolated("unmount", target=str(inner))
    # A bind mount has the same device number.
    isolated("run", argv=["mount", "--bind", str(folder / "other"), str(inner)])
    with pytest.raises(ProbeError):
        isolated("remove", path=str(folder / "tree"), recursive=True)
    assert (folder / "other/precious").exists()
    isolated("unmount", target=str(inner))
    assert isolated("remove", path=str(folder / "tree"), recursive=True) == {"removed": 2}


def test_run_hands_back_what_a_program_said(probe: Probe, folder: Path) -> None:
    done = probe(
        "run",
        argv=["sh", "-c", 'cat; pwd; echo "$ARM" >&2; exit 3'],
        environment={"ARM": "left"},
        cwd=str(folder),
        stdin="from us\n",
    )
    assert (done["exit"], done["signal"], done["timed_out"]) == (3, None, False)
    assert done["stdout"] == f"from us\n{folder}\n"
    assert done["stderr"] == "left\n"
    assert probe("run", argv=["sh", "-c", "kill -SEGV $$"])["signal"] == signal.SIGSEGV
    with pytest.raises(ProbeError, match="no-such-program") as caught:
        probe("run", argv=["no-such-program"])
    assert (caught.value.code, caught.value.errno) == ("os", 2)
    (folder / "plain").write_text("")
    with pytest.raises(ProbeError, match="execute"):
        probe("run", argv=[str(folder / "plain")])


def test_run_keeps_the_output_within_its_limit_and_the_time_too(probe: Probe) -> None:
    done = probe("run", argv=["sh", "-c", "yes | head -c 5000000; echo done >&2"], output_limit=1000)
    assert done["stdout"] == "y\n" * 500
    assert (done["stderr"], done["exit"], done["truncated"]) == ("done\n", 0, True)
    start = time.monotonic()
    done = probe("run", argv=["yes"], timeout_s=0.3, output_limit=10)
    assert (done["timed_out"], done["signal"], done["stdout"]) == (True, signal.SIGKILL, "y\n" * 5)
    assert time.monotonic() - start >= 0.3


def test_a_program_finds_signals_limits_and_descriptors_as_usual(probe: Probe) -> None:
    own = subprocess.run(["sh", "-c", "umask; ulimit -Sn"], capture_output=True, text=True, check=True)
    probe("hello")  # raises the limit of open files for the probe, not for what it starts
    script = "umask; ulimit -Sn; ls /proc/self/fd; grep Sig /proc/self/status"
    lines = probe("run", argv=["sh", "-c", script])["stdout"].splitlines()
    assert lines[:2] == own.stdout.splitlines()
    assert lines[2:6] == ["0", "1", "2", "3"], "3 is the folder that ls itself has open"
    signals = dict(line.split(":\t") for line in lines if line.startswith("Sig"))
    assert int(signals["SigBlk"], 16) == 0
    assert int(signals["SigIgn"], 16) & 1 << (signal.SIGPIPE - 1) == 0


def test_images_on_a_file_system_in_memory_are_refused(probe: Probe) -> None:
    if (
        "tmpfs"
        not in subprocess.run(["stat", "-f", "/dev/shm"], capture_output=True, text=True, check=False).stdout
    ):
        pytest.skip("/dev/shm is no tmpfs here")
    with pytest.raises(ProbeError, match="in memory") as caught:
        probe("image", folder="/dev/shm", size=MIB, fill="allocate")
    assert caught.value.code == "bad_request"


def test_an_image_is_fully_allocated_and_has_no_name(probe: Probe, folder: Path) -> None:
    for fill in ("allocate", "write"):
        image = probe("image", folder=str(folder), size=8 * MIB, fill=fill)["image"]
        assert names(folder) == []
        opened = [descriptor.stat() for descriptor in descriptors(probe)]
        [found] = [status for status in opened if status.st_size == 8 * MIB]
        assert (stat.S_ISREG(found.st_mode), found.st_nlink) == (True, 0)
        assert found.st_blocks * 512 >= 8 * MIB
        probe("image_free", image=image)
    with pytest.raises(ProbeError, match="image 1"):
        probe("image_free", image=1)


# Loop devices and mounts


class Lab:
    """An ext4 on a loop device over an image, mounted where only the probe sees it."""

    def __init__(self, probe: Probe, folder: Path, **attach: Any) -> None:
        image = probe("image", folder=str(folder), size=64 * MIB, fill="write")["image"]
        self.probe = probe
        self.answer = probe("loop_attach", image=image, **{"direct_io": True, **attach})
        self.device: str = self.answer["device"]
        self.name: str = self.answer["name"]
        self.mounted = folder / "lab"
        self.mounted.mkdir()
        # Small blocks and inodes that leave room; nothing left to initialise in the background.
        options = "lazy_itable_init=0,lazy_journal_init=0,nodiscard"
        made = probe("run", argv=["mkfs.ext4", "-q", "-b", "4096", "-N", "16384", "-E", options, self.device])
        assert made["exit"] == 0, made

    def mount(self, *options: str) -> None:
        self.probe("mount", source=self.device, target=str(self.mounted), type="ext4", options=list(options))

    def unmount(self) -> None:
        self.probe("unmount", target=str(self.mounted))

    def make_cold(self, *options: str) -> None:
        self.unmount()
        self.probe("evict_device", device=self.device)
        self.mount(*options)

    def take_down(self) -> None:
        self.unmount()
        self.probe("loop_detach", device=self.device)


@pytest.fixture
def lab(isolated: Probe, folder: Path) -> Iterator[Lab]:
    lab = Lab(isolated, folder)
    lab.mount("noatime")
    yield lab
    lab.take_down()


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
    # libmount would leave noatime standing here.
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
    """The parent here is a Python process of its own, killed while the probe runs a command on the lab."""
    program = f"""
import sys, os
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from test_probe_protocol import Lab, Probe, make_set
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


def processes_with(argument: str) -> list[int]:
    """Running processes that have exactly this argument."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if argument.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


# File sets


@pytest.mark.parametrize("kind", ["text", "random", "zeros"])
@pytest.mark.parametrize(("directories", "size"), [(1, 64), (3, 1000), (1, 70_000)])
def test_a_file_set_is_what_it_says(
    probe: Probe, folder: Path, kind: str, directories: int, size: int
) -> None:
    made = probe(
        "fileset",
        set="s",
        dir=str(folder / "deep/s"),
        count=7,
        size=size,
        seed=99,
        content=kind,
        directories=directories,
        mode="0440",
    )
    assert (made["files"], made["bytes"]) == (7, 7 * size)
    crc = 0
    for index in range(7):
        part = f"d{index % directories:03}/" if directories > 1 else ""
        path = folder / "deep/s" / f"{part}f{index:06}"
        truth = content(kind, 99, index, size)
        assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(truth).digest()
        assert stat.S_IMODE(path.stat().st_mode) == 0o440
        crc = zlib.crc32(truth, crc)
    found = probe("fileset_verify", set="s")
    assert found == {"files": 7, "bytes": 7 * size, "checksum": f"crc32:{crc:08x}"}
    assert sum(len(files) for _, _, files in os.walk(folder)) == 7


def test_text_never_holds_a_word_to_search_for(probe: Probe, folder: Path) -> None:
    path = make_set(probe, folder, count=1, size=MIB) / "f000000"
    assert set(path.read_bytes()) <= set(b"0123456789abcdef\n")


def test_verification_names_the_file_that_is_not_what_it_should_be(probe: Probe, folder: Path) -> None:
    path = make_set(probe, folder) / "f000007"
    good = path.read_bytes()
    for bad, said in [
        (good[:50] + b"X" + good[51:], "offset 50"),
        (good + b"x", "wanted 100 bytes, found 101"),
        (good[:-1], "wanted 100 bytes, found 99"),
    ]:
        path.write_bytes(bad)
        with pytest.raises(ProbeError, match=f"f000007.*{said}") as caught:
            probe("fileset_verify", set="s")
        assert caught.value.code == "verify"
    path.write_bytes(good)
    probe("fileset_verify", set="s")
    path.unlink()
    with pytest.raises(ProbeError, match="f000007"):
        probe("fileset_verify", set="s")


def test_a_set_never_replaces_a_file_and_can_be_registered_again(probe: Probe, folder: Path) -> None:
    make_set(probe, folder)
    with pytest.raises(ProbeError, match="f000000") as caught:
        make_set(probe, folder)
    assert caught.value.errno == 17  # EEXIST
    make_set(probe, folder, create=False)
    assert probe("fileset_verify", set="s")["files"] == 20
    make_set(probe, folder, create=False, size=101)
    with pytest.raises(ProbeError, match="wanted 101 bytes, found 100"):
        probe("fileset_verify", set="s")


def test_modes_are_set_on_the_files_selected(probe: Probe, folder: Path) -> None:
    path = make_set(probe, folder)
    assert probe("set_mode", set="s", files=[3, 5, 19], mode="0444") == {"changed": 3}
    truth = Counter(f"{stat.S_IMODE(file.stat().st_mode):04o}" for file in path.iterdir())
    assert probe("get_mode", set="s")["modes"] == truth == {"0444": 3, "0644": 17}
    assert probe("get_mode", set="s", files=[3, 4])["modes"] == {"0444": 1, "0644": 1}
    for files in ([20], [1, 1], [-1]):
        with pytest.raises(ProbeError) as caught:
            probe("set_mode", set="s", files=files, mode="0444")
        assert caught.value.code == "bad_request"


def test_a_new_size_keeps_inode_mode_and_content(probe: Probe, folder: Path) -> None:
    path = make_set(probe, folder)
    inode = (path / "f000002").stat().st_ino
    probe("set_mode", set="s", mode="0444")
    assert probe("set_size", set="s", files=[2], size=5000) == {"changed": 1}
    status = (path / "f000002").stat()
    assert (status.st_size, status.st_ino, stat.S_IMODE(status.st_mode)) == (5000, inode, 0o444)
    assert (path / "f000002").read_bytes() == content("text", 1, 2, 5000)
    assert probe("fileset_verify", set="s")["bytes"] == 19 * 100 + 5000


def kernel_state(path: Path) -> str:
    """relatime's rule: Documentation of mount(8), and fs/inode.c."""
    found = os.lstat(path)
    if time.time_ns() - found.st_atime_ns > 24 * 3600 * 10**9:
        return "day-old"
    fresh = found.st_atime_ns > found.st_mtime_ns and found.st_atime_ns > found.st_ctime_ns
    return "fresh" if fresh else "stale"


@pytest.mark.parametrize("state", ["stale", "fresh", "day-old"])
def test_access_times_are_put_into_the_state_that_was_asked_for(
    probe: Probe, folder: Path, state: str
) -> None:
    path = make_set(probe, folder)
    probe("set_atime_state", set="s", files=list(range(12)), state=state)
    assert {kernel_state(path / f"f{n:06}") for n in range(12)} == {state}
    assert probe("get_atime_state", set="s", files=list(range(12)))["states"] == {state: 12}
    times = [file.stat().st_atime_ns for file in path.iterdir()]
    assert probe("atimes", set="s") == {
        "sum_ns": str(sum(times)),
        "newest_ns": max(times),
        "oldest_ns": min(times),
    }


@pytest.mark.root
@pytest.mark.parametrize(("state", "updated"), [("stale", True), ("fresh", False), ("day-old", True)])
def test_the_kernel_treats_the_states_as_relatime_should(lab: Lab, state: str, updated: bool) -> None:
    lab.mount("remount", "relatime")
    make_set(lab.probe, lab.mounted)
    lab.probe("set_atime_state", set="s", state=state)
    before = lab.probe("atimes", set="s")
    lab.probe("files", set="s", operations=["open", "read", "close"])
    after = lab.probe("atimes", set="s")
    assert (before != after) is updated
    # What the verbs do by themselves leaves no trace.
    lab.probe("set_atime_state", set="s", state="stale")
    before = lab.probe("atimes", set="s")
    for verb in ("warm", "evict", "residency", "fileset_verify"):
        lab.probe(verb, set="s")
    assert lab.probe("atimes", set="s") == before


@pytest.mark.parametrize("directories", [1, 4])
@pytest.mark.parametrize(
    "kind", ["regular", "hardlink", "symlink-absolute", "symlink-relative", "symlink-chain"]
)
def test_links_are_what_lstat_and_readlink_say(
    probe: Probe, folder: Path, kind: str, directories: int
) -> None:
    path = make_set(probe, folder, directories=directories)
    before = {file.name: file.stat().st_ino for file in path.rglob("f*")}
    chosen = [1, 2, 7]
    assert probe("link", set="s", files=chosen, view="A", kind=kind) == {"made": 3}
    linked = sorted((folder / "s.A").rglob("f*"))
    assert [name.name for name in linked] == ["f000001", "f000002", "f000007"]
    for name in linked:
        status = os.lstat(name)
        assert name.stat().st_ino == before[name.name], "leads to the file"
        if kind.startswith("symlink"):
            hops, at = [], name
            while at.is_symlink():
                hops.append(str(at.readlink()))
                at = at.parent / hops[-1]
            assert len(hops) == (4 if kind == "symlink-chain" else 1)
            assert {hop.startswith("/") for hop in hops} == {kind == "symlink-absolute"}
        else:
            assert stat.S_ISREG(status.st_mode)
            assert status.st_nlink == (2 if kind == "hardlink" else 1)
    assert probe("get_link", set="s", view="A") == {"kinds": {kind: 3}}
    assert (folder / "s.A.chain").exists() is (kind == "symlink-chain")
    moved = 3 if kind == "regular" else 0
    assert len(list(path.rglob("f*"))) == 20 - moved
    probe("fileset_verify", set="s")
    probe("set_atime_state", set="s", view="A", state="stale")
    hour = 3600 * 10**9
    for name in linked:
        status = os.lstat(name)
        assert status.st_mtime_ns - status.st_atime_ns == hour
    assert probe("unlink", set="s", view="A") == {"removed": 3}
    assert names(folder) == ["s"]
    assert {file.name: file.stat().st_ino for file in path.rglob("f*")} == before
    probe("fileset_verify", set="s")


def test_a_view_may_hold_several_kinds_and_lose_some_names(probe: Probe, folder: Path) -> None:
    make_set(probe, folder)
    probe("link", set="s", files=[0, 1], view="v", kind="hardlink")
    probe("link", set="s", files=[2], view="v", kind="symlink-chain", chain=7)
    assert probe("get_link", set="s", view="v")["kinds"] == {"hardlink": 2, "symlink-chain": 1}
    assert len(names(folder / "s.v.chain")) == 6
    with pytest.raises(ProbeError) as caught:
        probe("link", set="s", files=[0], view="v", kind="symlink-absolute")
    assert caught.value.errno == 17  # EEXIST
    assert probe("unlink", set="s", view="v", files=[1, 2]) == {"removed": 2}
    assert names(folder / "s.v") == ["f000000"]
    assert probe("unlink", set="s", view="v") == {"removed": 1}
    with pytest.raises(ProbeError, match="view v"):
        probe("get_link", set="s", view="v")
    with pytest.raises(ProbeError, match="view"):
        probe("link", set="s", view="../out", kind="hardlink")


def test_evicted_pages_are_gone_and_warm_ones_there(probe: Probe, folder: Path) -> None:
    make_set(probe, folder, size=10_000)
    assert probe("evict", set="s") == {"evicted": 20}
    assert probe("residency", set="s") == {"pages": 60, "resident": 0, "dirty": 0}
    assert probe("warm", set="s", files=[0, 1], names=True) == {"bytes": 20_000}
    assert probe("residency", set="s")["resident"] == 6
    assert probe("residency", set="s", files=[2])["resident"] == 0
    if shutil.which("fincore"):
        shown = subprocess.run(
            ["fincore", "-nbo", "PAGES", folder / "s/f000001", folder / "s/f000002"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert [int(pages) for pages in shown.stdout.split()] == [3, 0]


# The files job


READING = ["open", "read", "read", "close"]


def test_a_files_job_counts_what_it_did(probe: Probe, folder: Path) -> None:
    make_set(probe, folder, size=100)
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    done = probe("files", set="s", operations=READING, buffer=64, replicates=3, histograms=True)
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    assert done["verified"] is True
    assert (done["bytes_read"], done["bytes_written"], done["entries"]) == (3 * 20 * 100, 0, 0)
    assert before <= done["started_ns"] <= done["started_ns"] + done["wall_ns"] <= after
    assert done["devices"] == {}
    assert done["devices_after_sync"] is None
    assert done["stretched_ns"] == 0
    operations = done["operations"]
    assert {name: o["count"] for name, o in operations.items()} == {"open": 60, "read": 120, "close": 60}
    # One clock reading an operation: what they took is all the time there was (each rounded to a nanosecond).
    assert abs(sum(o["total_ns"] for o in operations.values()) - done["wall_ns"]) <= 240
    for o in operations.values():
        assert sum(count for _, count in o["histogram"]) == o["count"]
        assert o["min_ns"] <= o["p50_ns"] <= o["p90_ns"] <= o["p99_ns"] <= o["p999_ns"] <= o["max_ns"]
        assert o["min_ns"] * o["count"] <= o["total_ns"] <= o["max_ns"] * o["count"]
    assert done["usage"]["faults_minor"] == 0
    assert probe("files", set="s", operations=READING)["operations"]["read"]["histogram"] == []


@pytest.mark.parametrize("order", ["by-file", "by-operation"])
def test_writing_jobs_leave_what_was_worked_out(probe: Probe, folder: Path, order: str) -> None:
    path = make_set(probe, folder)
    done = probe(
        "files", set="s", operations=["open-write", "write-byte", "write-byte", "fsync", "close"], order=order
    )
    assert done["bytes_written"] == 40
    probe("fileset_verify", set="s")  # the bytes written are those that were there
    done = probe(
        "files", set="s", files=[4], operations=["open-truncate", "write-byte", "close"], order=order
    )
    assert (path / "f000004").read_bytes() == content("text", 1, 4, 1)
    probe("fileset_verify", set="s")
    operations = ["getdents", "stat", "unlink", "create", "write-byte", "close", "lstat", "getdents"]
    done = probe("files", set="s", operations=operations, order=order, replicates=2)
    assert done["entries"] == 2 * 2 * 20
    assert {file.stat().st_size for file in path.iterdir()} == {1}
    probe("fileset_verify", set="s")
    probe("files", set="s", files=[0, 1], operations=["unlink"], order=order)
    assert len(names(path)) == 18
    assert probe("fileset_verify", set="s")["files"] == 18
    with pytest.raises(ProbeError, match="a file that exists") as caught:
        probe("files", set="s", operations=READING)
    assert caught.value.code == "bad_request"


def test_create_works_on_a_set_that_is_not_there_yet(probe: Probe, folder: Path) -> None:
    path = make_set(probe, folder, empty=True, mode="0600", directories=2)
    assert names(path) == ["d000", "d001"]
    probe("files", set="s", operations=["create", "write-byte", "close"])
    files = list(path.rglob("f*"))
    assert len(files) == 20
    assert {(f.stat().st_size, stat.S_IMODE(f.stat().st_mode)) for f in files} == {(1, 0o600)}


@pytest.mark.parametrize(
    "kind", ["hardlink", "symlink-absolute", "symlink-relative", "symlink-chain", "regular"]
)
def test_a_job_through_a_view_uses_its_names(probe: Probe, folder: Path, kind: str) -> None:
    make_set(probe, folder)
    probe("link", set="s", files=[3, 4, 5], view="A", kind=kind)
    operations = ["getdents", "lstat", "stat", "open", "read-to-end", "close"]
    if kind.startswith("symlink"):
        operations.append("readlink")
    done = probe("files", set="s", view="A", operations=operations)
    assert (done["bytes_read"], done["entries"]) == (300, 3)
    assert done["operations"]["lstat"]["count"] == 3
    assert done["operations"]["getdents"]["count"] == 1
    probe("files", set="s", view="A", files=[3], operations=["unlink"])
    assert names(folder / "s.A") == ["f000004", "f000005"]
    kept = "s.A" if kind == "regular" else "s"
    assert (folder / "s/f000003").exists() is (kind != "regular")
    assert (folder / kept / "f000004").exists()
    with pytest.raises(ProbeError, match="view A"):
        probe("files", set="s", view="A", files=[0], operations=["stat"])
    probe("unlink", set="s", view="A")
    assert names(folder) == ["s"]


def test_an_order_of_operations_that_cannot_work_is_refused_before_anything_is_done(
    probe: Probe, folder: Path
) -> None:
    path = make_set(probe, folder)
    for operations in (["read"], ["unlink", "open"], ["unlink", "create", "read"], ["readlink"], []):
        with pytest.raises(ProbeError) as caught:
            probe("files", set="s", operations=operations)
        assert caught.value.code == "bad_request"
    assert len(names(path)) == 20


def test_an_outcome_that_is_not_what_it_should_be_is_an_error(probe: Probe, folder: Path) -> None:
    path = make_set(probe, folder)
    (path / "f000003").write_text("shorter")
    with pytest.raises(ProbeError, match="wanted 2000 bytes read, found 1907") as caught:
        probe("files", set="s", operations=["open", "read-to-end", "close"])
    assert caught.value.code == "verify"
    (path / "stranger").write_text("")
    with pytest.raises(ProbeError, match="wanted 20 entries listed, found 21"):
        probe("files", set="s", operations=["getdents"])
    (path / "f000005").unlink()
    with pytest.raises(ProbeError, match=f"open {path}/f000005: No such file") as caught:
        probe("files", set="s", operations=READING)
    assert caught.value.code == "os"
    probe("files", set="s", files=[0, 1], operations=READING)
    assert len(descriptors(probe)) <= 6, "a broken job leaves no file open"


def traced(folder: Path, calls: str, order: str, operations: list[str]) -> list[str]:
    """The system calls between the two getrusage that enclose the timed part."""
    log = folder / "strace.log"
    prefix = ("strace", "-f", "-o", str(log), "-e", f"trace={calls}")
    probe = Probe(prefix=prefix)
    make_set(probe, folder, count=50, name=f"traced-{order}")
    probe("files", set=f"traced-{order}", operations=operations, order=order, replicates=2)
    assert probe.close() == 0
    lines = [re.sub(r"^\d+\s+", "", line) for line in log.read_text().splitlines()]
    marks = [n for n, line in enumerate(lines) if line.startswith("getrusage(")]
    assert len(marks) == 2
    return lines[marks[0] + 1 : marks[1]]


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
@pytest.mark.parametrize("order", ["by-file", "by-operation"])
def test_the_timed_part_makes_the_works_own_system_calls_and_no_other(folder: Path, order: str) -> None:
    lines = traced(folder, "all", order, ["getdents", "stat", *READING])
    calls = Counter(line.split("(")[0] for line in lines)
    listing = Counter(line.split("(")[0] for line in lines if "O_DIRECTORY" in line or "getdents" in line)
    assert listing["openat"] == 2
    assert listing["getdents64"] == 4, "the names, and the end, of one folder, twice"
    calls -= listing
    calls["close"] -= 2
    stats = {name: calls.pop(name) for name in list(calls) if "stat" in name}
    assert sum(stats.values()) == 100
    assert calls == {"openat": 100, "read": 200, "close": 100}
    opened = [re.search(r'"(.*?)"', line)[1] for line in lines if line.startswith("openat") and "f0" in line]
    assert opened == [str(folder / f"traced-{order}" / f"f{n:06}") for n in range(50)] * 2
    if order == "by-operation":
        first = [line.split("(")[0] for line in lines if "f0" in line or line.startswith(("read", "close"))]
        assert first[first.index("openat") : first.index("openat") + 51] == ["openat"] * 50 + ["read"]


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_the_clock_is_read_without_a_system_call(folder: Path) -> None:
    assert traced(folder, "clock_gettime,gettimeofday,time,getrusage", "by-file", READING) == []


@pytest.mark.root
def test_cold_files_come_from_the_device_and_warm_ones_do_not(lab: Lab) -> None:
    size, count = 10_000, 100
    make_set(lab.probe, lab.mounted, size=size, count=count, content="random")
    lab.probe("syncfs", path=str(lab.mounted))

    def read_bytes(**fields: Any) -> int:
        counters = Path("/sys/block") / lab.name / "stat"
        before = int(counters.read_text().split()[2])
        done = lab.probe(
            "files", set="s", operations=["open", "read-to-end", "close"], devices=[lab.name], **fields
        )
        after = int(counters.read_text().split()[2])
        found = done["devices"][lab.name]["read_bytes"]
        assert found == (after - before) * 512
        return found

    assert read_bytes() == 0, "just written"
    lab.probe("evict", set="s")
    assert read_bytes() >= count * size
    assert read_bytes() == 0
    lab.make_cold("noatime")
    assert (
        lab.probe("files", set="s", operations=["stat"], devices=[lab.name])["devices"][lab.name]["read_ios"]
        > 0
    )
    assert read_bytes() >= count * size
    lab.make_cold("noatime")
    lab.probe("warm", set="s", names=True)
    assert read_bytes() == 0


@pytest.mark.root
def test_written_bytes_are_seen_after_the_sync(lab: Lab) -> None:
    make_set(lab.probe, lab.mounted, count=200, size=4096)
    lab.probe("syncfs", path=str(lab.mounted))
    done = lab.probe(
        "files",
        set="s",
        operations=["open-write", "write-byte", "close"],
        devices=[lab.name],
        sync_after=str(lab.mounted),
    )
    during, after = done["devices"][lab.name], done["devices_after_sync"][lab.name]
    assert after["write_bytes"] >= 200 * 4096
    assert after["write_bytes"] >= during["write_bytes"]
    assert after["flush_ios"] >= 1
    with pytest.raises(ProbeError, match="loop999"):
        lab.probe("files", set="s", operations=["stat"], devices=["loop999"])
    with pytest.raises(ProbeError, match="devices"):
        lab.probe("files", set="s", operations=["stat"], devices=["../loop0"])


@pytest.mark.root
def test_a_job_as_another_user_meets_that_users_rights_and_root_comes_back(
    isolated: Probe, folder: Path
) -> None:
    make_set(isolated, folder, mode="0600")
    make_set(isolated, folder, "own", mode="0600", owner={"uid": NOBODY, "gid": NOBODY})
    nobody = {"uid": NOBODY, "gid": NOBODY}
    with pytest.raises(ProbeError, match="Permission denied") as caught:
        isolated("files", set="s", operations=READING, user=nobody)
    assert (caught.value.code, caught.value.errno) == ("os", 13)
    isolated("files", set="s", operations=READING)
    isolated("files", set="own", operations=READING, user=nobody)
    isolated("files", set="own", operations=["unlink", "create", "write-byte", "close"], user=nobody)
    assert {(f.stat().st_uid, f.stat().st_gid) for f in (folder / "own").iterdir()} == {(NOBODY, NOBODY)}
    status = isolated("read", path="/proc/self/status")["data"]
    assert re.search(r"Uid:\t0\t0\t0\t0", status)
    assert re.search(r"Gid:\t0\t0\t0\t0", status)
    assert (re.search(r"Groups:\t(.*)", status)[1].split()) == [
        str(group) for group in sorted(os.getgroups())
    ]
    assert isolated("hello")["privileged"] is True


@pytest.mark.root
def test_the_probe_still_dies_with_its_parent_after_acting_as_another_user(folder: Path) -> None:
    """The kernel forgets the parent-death signal at each change of user."""
    program = f"""
import sys, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from test_probe_protocol import Probe, make_set
probe = Probe()
make_set(probe, Path({str(folder)!r}))
probe("files", set="s", operations=["stat"], user={{"uid": 65534, "gid": 65534}})
kept = probe.process.stdin.fileno()
print(probe.process.pid, flush=True)
time.sleep(1000)
"""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    parent = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert parent.stdout
    pid = int(parent.stdout.readline())
    # Hold the writing end of its standard input open here, so that it is not the end of input that ends it.
    held = os.open(f"/proc/{pid}/fd/0", os.O_WRONLY)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    gone = eventually(lambda: not Path(f"/proc/{pid}").exists() or zombie(pid))
    os.close(held)
    assert gone


def zombie(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    return True


# The positive control


def ratio(total_ns: int, stretched_ns: int) -> float:
    return total_ns / (total_ns - stretched_ns)


@pytest.mark.parametrize("stretch", [0.06, 0.5])
def test_the_stretch_is_proportional_to_the_work(probe: Probe, folder: Path, stretch: float) -> None:
    make_set(probe, folder, count=500)
    assert probe("files", set="s", operations=READING)["stretched_ns"] == 0
    ratios = []
    for _ in range(5):
        start = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        done = probe("files", set="s", operations=READING, replicates=10, stretch=stretch)
        around = time.clock_gettime_ns(time.CLOCK_MONOTONIC) - start
        assert around >= done["wall_ns"]
        worked = done["wall_ns"] - done["stretched_ns"]
        assert sum(o["total_ns"] for o in done["operations"].values()) == pytest.approx(worked, rel=1e-4)
        ratios.append(ratio(done["wall_ns"], done["stretched_ns"]))
    # Never less than was asked for; more where another process took the processor from the spin.
    assert min(ratios) >= 1 + stretch - 1e-6
    assert statistics.median(ratios) == pytest.approx(1 + stretch, rel=0.02)


def test_the_stretch_of_one_operation_is_in_its_total_and_in_the_wall(probe: Probe, folder: Path) -> None:
    make_set(probe, folder, count=500)
    ratios = []
    for _ in range(5):
        done = probe("files", set="s", operations=READING, replicates=10, stretch=0.06, stretch_of="read")
        ratios.append(ratio(done["operations"]["read"]["total_ns"], done["stretched_ns"]))
        totals = sum(o["total_ns"] for o in done["operations"].values())
        assert totals == pytest.approx(done["wall_ns"], rel=1e-4)
    assert min(ratios) >= 1.06 - 1e-6
    assert statistics.median(ratios) == pytest.approx(1.06, rel=0.02)
    with pytest.raises(ProbeError, match="stretch_of"):
        probe("files", set="s", operations=READING, stretch=0.06, stretch_of="fsync")
    for wrong in (-1, 1e9):
        with pytest.raises(ProbeError, match="stretch"):
            probe("files", set="s", operations=READING, stretch=wrong)


def test_the_stretch_of_commands_is_real_time_of_each(probe: Probe) -> None:
    steps = [{"name": "sleep", "argv": ["sleep", "0.1"]}]
    start = time.monotonic()
    done = probe("command", steps=steps, stretch=0.5, replicates=3)
    around = (time.monotonic() - start) * 1e9
    assert done["wall_ns"] / (done["wall_ns"] - done["stretched_ns"]) == pytest.approx(1.5, rel=0.02)
    assert around >= done["wall_ns"] >= 0.45e9
    # The spin is CPU time, which sleeping is not.
    assert done["user_ns"] > 0.1 * done["stretched_ns"]
    assert done["steps"][0]["wall_ns"] == done["wall_ns"]


# The command job


def test_commands_run_once_for_each_file_or_once_for_all(probe: Probe, folder: Path) -> None:
    path = make_set(probe, folder)
    script = f'echo "$@" >> {folder}/log'
    done = probe(
        "command",
        set="s",
        files=[2, 0],
        steps=[
            {"name": "each", "argv": ["sh", "-c", script, "x", "one={file}"]},
            {"name": "all", "argv": ["sh", "-c", script, "x", "{files}"]},
            {"name": "dir", "argv": ["sh", "-c", f"echo {{dir}}; pwd >> {folder}/log"]},
        ],
        cwd="{dir}",
        replicates=2,
    )
    once = f"one={path}/f000002\none={path}/f000000\n{path}/f000002 {path}/f000000\n{path}\n"
    assert (folder / "log").read_text() == once * 2
    assert [(step["name"], step["processes"]) for step in done["steps"]] == [
        ("each", 4),
        ("all", 2),
        ("dir", 2),
    ]
    assert done["processes"] == 8
    assert (done["failures"], done["verified"], done["stragglers"]) == ([], True, 0)
    for key in ("wall_ns", "user_ns", "sys_ns"):
        assert done[key] == sum(step[key] for step in done["steps"])
    with pytest.raises(ProbeError) as caught:
        probe("command", steps=[{"name": "x", "argv": ["true", "{file}"]}])
    assert caught.value.code == "bad_request"


def test_a_command_through_a_view_gets_the_names_of_the_view(probe: Probe, folder: Path) -> None:
    make_set(probe, folder)
    probe("link", set="s", files=[1], view="A", kind="symlink-relative")
    steps = [
        {"name": "a", "argv": ["sh", "-c", f"readlink {{file}} > {folder}/log; echo {{dir}} >> {folder}/log"]}
    ]
    probe("command", set="s", view="A", steps=steps)
    assert (folder / "log").read_text() == f"../s/f000001\n{folder}/s.A\n"


def test_failures_say_which_step_how_and_in_which_words(probe: Probe) -> None:
    steps = [
        {"name": "fine", "argv": ["sh", "-c", "echo not this >&2"]},
        {"name": "bad", "argv": ["sh", "-c", "echo this >&2; exit 4"]},
        {"name": "after", "argv": ["true"]},
    ]
    done = probe("command", steps=steps)
    assert done["verified"] is False
    assert done["failures"] == [
        {"step": "bad", "argv0": "sh", "exit": 4, "signal": None, "timed_out": False, "stderr": "this\n"}
    ]
    assert [step["processes"] for step in done["steps"]] == [1, 1, 0], "the first failure ends the job"
    assert probe("command", steps=steps[1:2], expect_exit=4)["verified"] is True
    [failure] = probe("command", steps=[{"name": "k", "argv": ["sh", "-c", "kill -9 $$"]}])["failures"]
    assert (failure["exit"], failure["signal"], failure["timed_out"]) == (None, 9, False)
    [failure] = probe(
        "command", steps=[{"name": "k", "argv": ["sh", "-c", "head -c 9999 /dev/zero >&2; false"]}]
    )["failures"]
    assert len(failure["stderr"]) == 4096


def test_a_command_gets_its_input_and_environment_each_time(probe: Probe, folder: Path) -> None:
    steps = [{"name": "a", "argv": ["sh", "-c", f'read line; echo "$line $ARM" >> {folder}/log']}]
    probe("command", steps=steps, stdin="hello\n", environment={"ARM": "B"}, replicates=3)
    assert (folder / "log").read_text() == "hello B\n" * 3


@pytest.mark.parametrize("arguments", [(), pytest.param(("--isolate",), marks=pytest.mark.root)])
def test_a_time_limit_ends_the_whole_group(arguments: tuple[str, ...]) -> None:
    probe = Probe(*arguments)
    mark = f"9876.{os.getpid()}"
    script = f"sleep {mark} & sleep {mark} & wait"
    start = time.monotonic()
    done = probe(
        "command", steps=[{"name": "slow", "argv": ["sh", "-c", script]}], timeout_s=0.3, replicates=5
    )
    assert time.monotonic() - start >= 0.3
    [failure] = done["failures"]
    assert (failure["timed_out"], failure["signal"], done["processes"]) == (True, signal.SIGKILL, 1)
    assert done["wall_ns"] >= 0.3e9
    assert processes_with(mark) == []
    # The limit is each command's own, and gone afterwards.
    done = probe("command", steps=[{"name": "q", "argv": ["sleep", "0.2"]}], timeout_s=0.35, replicates=3)
    assert done["verified"] is True
    assert probe.close() == 0


@pytest.mark.parametrize("arguments", [(), pytest.param(("--isolate",), marks=pytest.mark.root)])
def test_what_a_command_leaves_behind_is_ended(arguments: tuple[str, ...]) -> None:
    probe = Probe(*arguments)
    mark = f"8765.{os.getpid()}"
    script = (
        f"sleep {mark} & setsid sleep {mark} & (setsid sh -c 'sleep {mark} & sleep {mark}' &) ; sleep 0.2"
    )
    done = probe("command", steps=[{"name": "forks", "argv": ["sh", "-c", script]}])
    assert (done["verified"], done["stragglers"]) == (True, 5)
    assert processes_with(mark) == []
    assert probe("command", steps=[{"name": "t", "argv": ["true"]}])["stragglers"] == 0
    probe("run", argv=["sh", "-c", script])
    assert processes_with(mark) == []
    assert probe.close() == 0


@pytest.mark.root
def test_a_command_as_another_user_is_that_user_alone(isolated: Probe, folder: Path) -> None:
    nobody = {"uid": NOBODY, "gid": NOBODY}
    folder.chmod(0o777)
    steps = [
        {
            "name": "id",
            "argv": ["sh", "-c", f"id -u > {folder}/id; id -g >> {folder}/id; id -G >> {folder}/id"],
        }
    ]
    assert isolated("command", steps=steps, user=nobody)["verified"] is True
    assert (folder / "id").read_text().split() == [str(NOBODY)] * 3
    script = "grep -E '^(Uid|CapEff|CapPrm)' /proc/self/status"
    said = isolated("run", argv=["sh", "-c", script], user=nobody)["stdout"]
    assert f"Uid:\t{NOBODY}\t{NOBODY}\t{NOBODY}\t{NOBODY}" in said
    assert len(re.findall(r"Cap...:\t0{16}\n", said)) == 2
    assert isolated("run", argv=["id", "-u"])["stdout"] == "0\n"


def test_usage_is_that_of_the_command_and_the_descendants_it_waited_for(probe: Probe) -> None:
    spin = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
    done = probe("command", steps=[{"name": "s", "argv": ["sh", "-c", f"sh -c '{spin}'; :"]}])
    assert done["user_ns"] + done["sys_ns"] > 10e6
    assert done["usage"]["faults_minor"] > 50
    hungry = "import sys; x = bytearray(80_000_000)"
    done = probe("command", steps=[{"name": "m", "argv": [sys.executable, "-c", hungry]}])
    assert done["max_rss_bytes"] > 80_000_000 > done["max_rss_floor_bytes"]


# Without root


def test_everything_but_mounts_works_without_root(folder: Path) -> None:
    """As nobody where the tests run as root, and anyhow without namespaces."""
    options: dict[str, Any] = {}
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
        options = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    probe = Probe(**options)
    hello = probe("hello")
    assert (hello["isolated"], hello["privileged"]) == (False, False)
    path = make_set(probe, folder, size=5000, directories=2)
    probe("set_mode", set="s", mode="0444")
    for state in ("stale", "fresh"):
        probe("set_atime_state", set="s", state=state)
    probe("evict", set="s")
    assert probe("residency", set="s")["resident"] == 0
    assert probe("files", set="s", operations=["getdents", *READING])["bytes_read"] == 20 * 5000
    probe("set_size", set="s", size=100)
    probe("link", set="s", view="A", kind="symlink-chain")
    assert probe("command", set="s", view="A", steps=[{"name": "c", "argv": ["cat", "{files}"]}])["verified"]
    probe("unlink", set="s", view="A")
    probe("fileset_verify", set="s")
    probe("image_free", image=probe("image", folder=str(folder), size=MIB, fill="allocate")["image"])
    image = probe("image", folder=str(folder), size=MIB, fill="write")["image"]
    with pytest.raises(ProbeError, match="wanted root") as caught:
        probe("loop_attach", image=image, direct_io=True)
    assert caught.value.code == "unsupported"
    with pytest.raises(ProbeError, match="not permitted"):
        probe("mount", source="none", target=str(path), type="tmpfs", options=[])
    for verb in ("files", "command"):
        own = {"operations": ["stat"]} if verb == "files" else {"steps": [{"name": "t", "argv": ["true"]}]}
        with pytest.raises(ProbeError, match="root") as caught:
            probe(verb, set="s", user={"uid": 1, "gid": 1}, **own)
        assert caught.value.code == "unsupported"
    assert probe("remove", path=str(path), recursive=True)["removed"] == 23
    assert probe.close() == 0
    refused = Probe("--isolate", stderr=subprocess.PIPE, **options)
    assert refused.process.stderr
    words = refused.process.stderr.read().decode()
    refused.process.stderr.close()
    assert refused.close() == 1
    assert "root" in words
