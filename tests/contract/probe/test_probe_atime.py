"""The script of mount/atime-semantics, checked against another program, a simulated power cut and an edited
disk."""

from __future__ import annotations

import json
import shutil
import textwrap
from pathlib import Path
from typing import Any

import pytest
from probe_client import Lab, make_set

import iotrial

SCRIPT = Path(iotrial.__file__).parent / "catalogue" / "mount" / "atime-semantics.py"
OPTIONS = ("strictatime", "relatime", "noatime", "nodiratime", "lazytime")
#: the calls that Python can make by itself
SAMPLE = (
    "read", "read-nothing", "read-at-end", "read-noatime", "pread", "readv", "mmap", "mapped-read", "sendfile",
    "copy-file-range", "splice", "execve", "open", "open-path", "stat", "access", "listxattr", "link", "rename",
    "truncate-same", "write", "chmod", "fadvise-willneed", "lseek-data", "fsync", "getdents", "stat-inside", "readlink",
    "lstat", "stat-through", "open-through",
)  # fmt: skip

# Makes each call on an object of its own, twice, and checks it with os.stat. It has its own words for the
# states of times.
BY_HAND = r"""
import json, mmap, os, subprocess, sys, time
folder, state = sys.argv[1:3]
def mapped(path):
    fd = os.open(path, os.O_RDONLY)
    return mmap.mmap(fd, 8192, mmap.MAP_SHARED, mmap.PROT_READ)
def opened(path, flags=os.O_RDONLY):
    return os.open(path, flags)
def into_pipe(fd):
    os.splice(fd, os.pipe()[1], 4096)
def at_end(fd):
    os.lseek(fd, 0, os.SEEK_END)
    os.read(fd, 10)
sink = os.memfd_create("sink")
ON_OPEN = {
    "read": lambda fd: os.read(fd, 100), "read-nothing": lambda fd: os.read(fd, 0), "read-at-end": at_end,
    "read-noatime": lambda fd: os.read(fd, 100), "pread": lambda fd: os.pread(fd, 100, 7),
    "readv": lambda fd: os.readv(fd, [bytearray(9)]), "sendfile": lambda fd: os.sendfile(sink, fd, None, 100),
    "copy-file-range": lambda fd: os.copy_file_range(fd, copy, 4096), "splice": into_pipe,
    "fadvise-willneed": lambda fd: os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_WILLNEED),
    "lseek-data": lambda fd: os.lseek(fd, 0, os.SEEK_DATA), "fsync": os.fsync,
    "write": lambda fd: os.write(fd, b"x"), "getdents": os.listdir,
}
FLAGS = {"read-noatime": os.O_RDONLY | os.O_NOATIME, "write": os.O_WRONLY}
BY_NAME = {
    "mmap": mapped, "execve": lambda path: subprocess.run([path], check=True), "open": opened,
    "open-path": lambda path: opened(path, os.O_PATH), "stat": os.stat, "access": lambda path: os.access(path, os.R_OK),
    "listxattr": os.listxattr, "link": lambda path: os.link(path, path + str(time.monotonic_ns())),
    "truncate-same": lambda path: os.truncate(path, 8192), "chmod": lambda path: os.chmod(path, 0o755),
    "stat-inside": lambda path: os.stat(path + "/inside"), "readlink": os.readlink, "lstat": os.lstat,
    "stat-through": os.stat, "open-through": opened,
}
LINKS, FOLDERS = ("readlink", "lstat", "stat-through", "open-through"), ("getdents", "stat-inside")
now = time.time_ns()
hour = 3600 * 10**9
states = {"stale": (-hour, 0), "fresh": (60 * 10**9, -hour), "day-old": (-25 * hour, -26 * hour)}
times = tuple(now + more for more in states[state])
copy = os.open(folder + "/copy", os.O_WRONLY | os.O_CREAT)
os.mkdir(folder + "/objects")
fds, maps = {}, {}
for call in sys.argv[3:]:
    path = f"{folder}/objects/{call}"
    if call in FOLDERS:
        os.mkdir(path)
        open(path + "/inside", "w").close()
    elif call in LINKS:
        open(path + ".target", "w").close()
        os.symlink(path + ".target", path)
    else:
        with open(path, "w") as file:
            file.write("#!/bin/true\n".ljust(8192) if call == "execve" else "x" * 8192)
        os.chmod(path, 0o755)
    if call in ON_OPEN:
        fds[call] = os.open(path, FLAGS.get(call, os.O_RDONLY))
    if call == "mapped-read":
        maps[call] = mapped(path)
    os.utime(path, ns=times, follow_symlinks=False)
os.sync()
time.sleep(0.05)
found = {}
def act(call, path):
    if call in fds:
        ON_OPEN[call](fds[call])
    elif call in maps:
        maps[call][5000]
    elif call == "rename":
        os.rename(path, path + ".new")
        os.rename(path + ".new", path)
    else:
        BY_NAME[call](path)
def one(call):
    path = f"{folder}/objects/{call}"
    before = os.lstat(path).st_atime_ns
    act(call, path)
    return os.lstat(path).st_atime_ns != before
first = {call: one(call) for call in sys.argv[3:]}
time.sleep(0.05)
print(json.dumps({call: [first[call], one(call)] for call in sys.argv[3:]}))
"""


def by_script(lab: Lab, *words: str) -> dict[str, Any]:
    """Run the script in a folder of its own and return its result; the folder is removed."""
    folder = f"{lab.mounted}/objects"
    lab.probe("mkdir", path=folder, mode="0755")
    program = shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin")
    argv = [program, str(SCRIPT), f"{lab.mounted}/s/f000000", folder, *words]
    done = lab.probe("run", argv=argv, timeout_s=60)
    assert done["exit"] == 0, done
    lab.probe("remove", path=folder, recursive=True)
    found: dict[str, Any] = json.loads(done["stdout"])
    return found


def mount(lab: Lab, option: str) -> None:
    on_top = option in ("nodiratime", "lazytime")
    lab.mount("remount", *(["strictatime", option] if on_top else [option]))


def in_lab(lab: Lab, script: str, *words: str) -> str:
    """Run a Python program that sees the probe's mounts and return its output."""
    program = shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin")
    done = lab.probe("run", argv=[program, "-c", textwrap.dedent(script), *words], timeout_s=60)
    assert done["exit"] == 0, done
    return str(done["stdout"])


#: the script's words as (changed, changed again)
WORDS = {
    "no": [False, False],
    "only later": [False, True],
    "once": [True, False],
    "each time": [True, True],
    "once, lazily": [True, False],
    "each time, lazily": [True, True],
}


def test_a_program_that_makes_the_calls_in_another_way_sees_the_same(lab: Lab) -> None:
    make_set(lab.probe, lab.mounted, count=1)
    for option, state in [
        *((option, "stale") for option in OPTIONS),
        ("relatime", "fresh"),
        ("relatime", "day-old"),
    ]:
        mount(lab, option)
        lab.probe("set_atime_state", set="s", files=None, state=state)
        found = by_script(lab, "1")["calls"]
        folder = f"{lab.mounted}/{option}-{state}"
        lab.probe("mkdir", path=folder, mode="0755")
        by_hand = json.loads(in_lab(lab, BY_HAND, folder, state, *SAMPLE))
        assert {call: WORDS[found[call]] for call in SAMPLE} == by_hand, (option, state)


def test_all_calls_are_done_unless_the_file_system_cannot(lab: Lab) -> None:
    make_set(lab.probe, lab.mounted, count=1)
    mount(lab, "strictatime")
    found = by_script(lab)
    assert len(found["calls"]) == 63
    # ext4 has no reflinks: ioctl_ficlone(2) returns EOPNOTSUPP
    refused = {call: word for call, word in found["calls"].items() if word.startswith("refused")}
    assert refused == dict.fromkeys(("clone", "clone-to"), "refused (EOPNOTSUPP)")
    changed = [call for call, word in found["calls"].items() if word in WORDS and WORDS[word][0]]
    assert found["changed"] == len(changed) == sum(found["changes"].values())


def test_one_file_read_often_changes_at_most_once_a_tick_of_the_clock(lab: Lab) -> None:
    make_set(lab.probe, lab.mounted, count=1)
    for option, most in (("strictatime", None), ("relatime", 1), ("noatime", 0)):
        mount(lab, option)
        lab.probe("set_atime_state", set="s", files=None, state="stale")
        burst = by_script(lab, "5000")["burst"]
        assert burst["reads"] == 5000
        assert 1 <= burst["ticks"] < 5000
        assert burst["changes"] <= (burst["ticks"] if most is None else most)
        assert (burst["changes"] == 0) == (option == "noatime")


LOST = r"""
import fcntl, json, os, struct, sys
mode, folder = sys.argv[1:3]
a, b = folder + "/s/f000000", folder + "/s/f000040"
before = os.stat(a).st_atime_ns
with open(a) as file:
    file.read()
seen = os.stat(a).st_atime_ns != before
if mode == "fsync of another":
    fd = os.open(b, os.O_WRONLY)
    os.write(fd, b"x")
    os.fsync(fd)
    os.close(fd)
elif mode == "sync":
    os.sync()
root = os.open(folder, os.O_RDONLY)
# EXT4_IOC_SHUTDOWN with NOLOGFLUSH: as if the power were cut
fcntl.ioctl(root, 0x8004587D, struct.pack("I", 2))
print(json.dumps({"before": before, "seen": seen}))
"""


@pytest.mark.parametrize(
    ("option", "mode", "kept"),
    [
        ("strictatime", "fsync of another", True),  # part of the journal's next commit
        ("lazytime", "fsync of another", False),
        ("lazytime", "sync", True),
    ],
)
def test_what_is_changed_lazily_is_lost_with_the_power_and_the_rest_is_not(
    lab: Lab, option: str, mode: str, kept: bool
) -> None:
    # the other file is more than one block of inodes away: ext4 writes lazy times of neighbours with any
    # inode
    make_set(lab.probe, lab.mounted, count=41)
    mount(lab, option)
    lab.probe("set_atime_state", set="s", files=None, state="stale")
    assert by_script(lab, "1")["calls"]["read"].endswith("lazily") is (option == "lazytime")
    lab.probe("syncfs", path=str(lab.mounted))
    report = json.loads(in_lab(lab, LOST, mode, str(lab.mounted)))
    assert report["seen"]
    lab.unmount()
    lab.mount("noatime")
    after = lab.probe("stat", path=str(lab.mounted / "s" / "f000000"))
    assert (after["atime_ns"] != report["before"]) is kept


@pytest.mark.skipif(not shutil.which("debugfs"), reason="needs debugfs of e2fsprogs")
def test_relatime_notes_a_read_a_day_after_the_last_whatever_else_stands_in_the_inode(lab: Lab) -> None:
    make_set(lab.probe, lab.mounted, count=2)
    lab.unmount()
    now = int(lab.probe("time")["realtime_ns"]) // 10**9
    hour = 3600
    commands = []
    for name, hours in (("f000000", 25), ("f000001", 23)):
        # all changes are older than the last read
        for field, back in (("atime", hours), ("mtime", 48), ("ctime", 48)):
            commands += ["-R", f"set_inode_field /s/{name} {field} @{now - back * hour}"]
    for flag, command in zip(commands[::2], commands[1::2], strict=True):
        assert lab.probe("run", argv=["debugfs", "-w", flag, command, lab.device])["exit"] == 0
    lab.probe("evict_device", device=lab.device)
    lab.mount("relatime")
    read = """
        import os, sys
        for path in sys.argv[1:]:
            before = os.stat(path).st_atime
            open(path).read()
            print(os.stat(path).st_atime != before)
    """
    paths = [str(lab.mounted / "s" / name) for name in ("f000000", "f000001")]
    assert in_lab(lab, read, *paths).split() == ["True", "False"]
