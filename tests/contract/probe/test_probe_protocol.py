"""Requests, answers and target verbs, checked with the kernel's files and os.stat. See
docs/probe-protocol.md."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from probe_client import BINARY, MIB, Probe, ProbeError, descriptors, inner, names


def test_hello_says_who_and_where_it_is(probe: Probe) -> None:
    hello = probe("hello")
    assert hello["protocol"] == 1
    assert hello["pid"] == inner(probe)
    assert hello["session"] == probe.process.pid == os.getsid(inner(probe))
    assert hello["uid"] == os.getuid()
    assert hello["isolated"] is False
    bits = re.search(r"CapEff:\s*(\w+)", Path(f"/proc/{probe.process.pid}/status").read_text())
    assert bits
    assert hello["privileged"] == bool(int(bits[1], 16) >> 21 & 1)
    limits = Path(f"/proc/{probe.process.pid}/limits").read_text()
    _, soft, hard = re.search(r"(Max open files)\s+(\d+)\s+(\d+)", limits).groups()
    assert hello["nofile"] == int(soft) == int(hard)


@pytest.mark.parametrize("arguments", [(), pytest.param(("--isolate",), marks=pytest.mark.root)])
def test_no_job_is_the_first_to_touch_a_page_of_the_probes_code(arguments: tuple[str, ...]) -> None:
    probe = Probe(*arguments)
    probe("hello")
    maps = Path(f"/proc/{inner(probe)}/smaps").read_text()
    mapping = rf"^\S+ r-xp .* {re.escape(str(BINARY.resolve()))}\nSize: +(\d+) kB\n(?:.*\n)*?Rss: +(\d+) kB"
    code = re.findall(mapping, maps, re.MULTILINE)
    assert len(code) == 1
    assert code[0][0] == code[0][1]
    assert probe.close() == 0


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
        (b'{"id": 1, "verb": "command", "steps": []}', "steps"),
        (
            b'{"id": 1, "verb": "fileset", "set": "s", "dir": "/x", "count": 1, "size": 1e30, "seed": 1,'
            b' "content": "text"}',
            "size",
        ),
        (b'{"id": 1, "verb": "drop_caches", "what": 4}', "what"),
        (b'{"id": 1, "verb": "remove", "path": "/", "recursive": true}', "remove"),
        (b"\xff\xfe", "JSON object"),
    ]:
        error = probe.line(line)["error"]
        assert error["code"] == "bad_request", line
        assert said.lower() in error["message"].lower(), (line, error)
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


def born(path: Path) -> int | None:
    """Return the birth time of the inode in ns, as coreutils show it."""
    shown = subprocess.run(["stat", "-c", "%W %w", path], capture_output=True, text=True, check=True).stdout
    seconds, *words = shown.split()
    return None if seconds in ("0", "-") else int(seconds) * 10**9 + int(words[1].partition(".")[2])


def test_the_time_of_a_change_is_put_back_to_the_nanosecond(probe: Probe, folder: Path) -> None:
    (folder / "file").write_text("")
    os.utime(folder / "file", ns=(1_000_000_123, 2_000_000_456))
    (folder / "link").symlink_to("file")
    probe("set_times", path=str(folder / "file"), mtime_ns=5_000_000_789)
    assert (folder / "file").stat().st_mtime_ns == 5_000_000_789
    assert (folder / "file").stat().st_atime_ns == 1_000_000_123
    probe("set_times", path=str(folder / "link"), mtime_ns=-1)
    assert (folder / "link").lstat().st_mtime_ns == -1
    assert (folder / "file").stat().st_mtime_ns == 5_000_000_789
    with pytest.raises(ProbeError, match="No such file") as caught:
        probe("set_times", path=str(folder / "none"), mtime_ns=0)
    assert caught.value.errno == 2


def test_an_exclusive_folder_is_nobody_elses(probe: Probe, folder: Path) -> None:
    (folder / "theirs").mkdir()
    (folder / "link").symlink_to("theirs")
    probe("mkdir", path=str(folder / "theirs"))
    for name in ("theirs", "link"):
        with pytest.raises(ProbeError) as caught:
            probe("mkdir", path=str(folder / name), exclusive=True)
        assert caught.value.errno == 17
    probe("mkdir", path=str(folder / "ours"), exclusive=True)
    assert (folder / "ours").is_dir()


def test_what_a_folder_holds_goes_and_the_folder_stays(probe: Probe, folder: Path) -> None:
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "c").write_text("x")
    (folder / "outside").write_text("x")
    (folder / "a" / "l").symlink_to(folder / "outside")
    Path(os.fsdecode(os.fsencode(folder) + b"/a/\xff\xfe")).mkdir()
    assert probe("remove", path=str(folder / "a"), recursive=True, keep=True)["removed"] == 4
    assert names(folder) == ["a", "outside"]
    assert probe("remove", path=str(folder / "none"), recursive=True, keep=True)["removed"] == 0


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
            "btime_ns": born(folder / name),
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
    probe("hello")  # raises the probe's limit of open files, but not that of programs it starts
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


IN_THE_FOREGROUND = """
import os, signal, sys, time
from pathlib import Path
from iotrial.probe.client import Probe
seen = 0
def note(*_):
    global seen
    seen += 1
signal.signal(signal.SIGINT, note)
presser = os.fork()
if presser == 0:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while os.getppid() != 1:
        os.killpg(0, signal.SIGINT)
        time.sleep(0.001)
    os._exit(0)
for _ in range(60):
    with Probe(binary=Path(sys.argv[1])) as probe:
        assert probe.facts["protocol"] == 1
os.kill(presser, signal.SIGKILL)
print(seen)
"""


def test_a_ctrl_c_is_the_conductors_also_while_the_probe_is_started() -> None:
    """A process that is just being started is still in the foreground group, and has lost its signal handler."""
    argv = [sys.executable, "-c", IN_THE_FOREGROUND, str(BINARY)]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, start_new_session=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 0
