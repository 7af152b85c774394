"""`--cache cold` in place finds the files of every way of reading: each run then reads all of them from the device.

The file is in the page cache before the trial, so what is not found is not read again. Expected is its size.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from breaking import last_trial
from running import iotrial, stored_runs

pytestmark = pytest.mark.root

MIB = 1 << 20
SIZE = 16 * MIB
FIO = "fio --name=job --readonly --invalidate=0 --size=16M --rw=read --bs=16k --filename=big --ioengine="
READ = "while b := f.read(MIB): pass"
PYTHON = {
    "sendfile": "s, r = socket.socketpair()\n"
    "t = threading.Thread(target=lambda: [0 for _ in iter(lambda: r.recv(MIB), b'')]); t.start()\n"
    "while os.sendfile(s.fileno(), f.fileno(), None, MIB): pass\ns.close(); t.join()",
    "splice": "r, w = os.pipe(); n = open('/dev/null', 'wb', 0)\n"
    "while m := os.splice(f.fileno(), w, 65536): os.splice(r, n.fileno(), m)",
    "a mapping": "m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); sum(m[::4096])",
    "a thread": f"def work():\n  {READ}\nt = threading.Thread(target=work); t.start(); t.join()",
    "a passed descriptor": "a, b = socket.socketpair()\nif os.fork():\n"
    "  socket.send_fds(a, [b'x'], [f.fileno()]); os.wait()\n"
    f"else:\n  f = open(socket.recv_fds(b, 9, 1)[1][0], 'rb', 0)\n  {READ}\n  os._exit(0)",
}
WAYS = {
    "libaio": f"{FIO}libaio --iodepth=4",
    "libaio past the cache": f"{FIO}libaio --iodepth=4 --direct=1",
    "io_uring": f"{FIO}io_uring --iodepth=4",
    "io_uring with registered files and buffers": f"{FIO}io_uring --iodepth=4 --fixedbufs --registerfiles",
    "io_uring with a polling thread": f"{FIO}io_uring --iodepth=4 --registerfiles --sqthread_poll",
    "fio's mapping": f"{FIO}mmap",
    "fio's splice": f"{FIO}splice",
    "fio's threads": f"{FIO}psync --thread",
    "a copy": "cp --reflink=never big copy; rm copy",
    "a child": "sh -c '(cat big; true) | wc -c'",
    "standard input": "wc -l < big",
    "SQLite by a mapping, opened for writing": "sqlite3 data.db 'pragma mmap_size=100000000; "
    "select sum(instr(b, zeroblob(9))) from t'",
}


@pytest.fixture
def folder(disk_folder: Path) -> Iterator[Path]:
    """Yield a folder on a file system of its own, with one file that is in the page cache."""
    image, folder = disk_folder / "reads.img", disk_folder / "reads"
    image.write_bytes(b"")
    os.truncate(image, 128 * MIB)
    folder.mkdir()
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop,noatime", str(image), str(folder)], check=True)
    (folder / "big").write_bytes(os.urandom(SIZE))
    os.sync()
    yield folder
    subprocess.run(["umount", str(folder)], check=True)
    folder.rmdir()
    image.unlink()


def attempt(folder: Path, *command: str, more: tuple[str, ...] = ()) -> None:
    words = ("--in", str(folder), "--cache", "cold", "--yes", "--blocks", "2", "--no-stop", *more)
    iotrial("try", "block.read_ahead_kb=64,1024", *words, "--", *command, check=None)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.skipif(not shutil.which("fio"), reason="needs fio")
def test_a_cold_run_reads_everything_from_the_device(state: Path, folder: Path, way: str) -> None:
    if "SQLite" in way:
        with closing(sqlite3.connect(folder / "data.db")) as made, made:
            made.execute("create table t (b blob)")
            made.executemany("insert into t values (randomblob(1100000))", [()] * 16)
    attempt(folder, "sh", "-c", f"{WAYS[way]} > /dev/null")
    check_cold(state)


@pytest.mark.parametrize("way", PYTHON)
def test_a_cold_run_of_a_program_reads_everything_from_the_device(
    state: Path, folder: Path, way: str
) -> None:
    script = folder.parent / "read.py"
    head = "import mmap, os, socket, threading\nMIB = 1 << 20\nf = open('big', 'rb', 0)\n"
    script.write_text(head + PYTHON[way])
    attempt(folder, sys.executable, str(script))
    check_cold(state)


def check_cold(state: Path) -> None:
    runs = stored_runs(state)
    assert len(runs) >= 4
    assert [run["failure"] for run in runs] == [None] * len(runs)
    assert all(run["checks"]["bytes_read"] >= SIZE for run in runs), [run["checks"] for run in runs]
    assert all(run["checks"]["bytes_expected"] > SIZE / 11 for run in runs), [run["checks"] for run in runs]
    assert {run["checks"].get("void") for run in runs} == {None}


def test_runs_are_void_while_another_process_keeps_the_data_in_memory(state: Path, folder: Path) -> None:
    with (folder / "big").open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as held:
        assert sum(held[::4096])  # maps every page: the kernel evicts none
        attempt(folder, "sh", "-c", f"{FIO}libaio")
        held.close()
    assert {run["checks"].get("void") for run in stored_runs(state)} == {"cold_data_was_kept"}
    assert "mapped or locked" in " ".join(iotrial("report", "last", check=None).stdout.split())


def notes(folder: Path, *command: str, knob: str = "block.read_ahead_kb=64,1024") -> list[str]:
    words = ("--in", str(folder), "--cache", "cold", "--yes", "--blocks", "4", "--no-stop", "--no-controls")
    done = iotrial("try", knob, *words, "--json", "--", *command)
    assert last_trial()["state"] == "done"
    found: list[str] = json.loads(done.stdout)["diagnostics"]["notes"]
    return found


def test_reading_little_of_the_opened_files_is_said(state: Path, folder: Path) -> None:
    """GNU grep stops at the first match of a file if its output is /dev/null."""
    for number in range(8):
        lines = f"{number} error\n" + "nothing to see here\n" * 100_000
        (folder / f"log{number}").write_text(lines)
    search = "grep -h error log*"
    (said,) = [note for note in notes(folder, "sh", "-c", f"{search} > /dev/null") if "reads" in note]
    assert "opens files of 15.3 MiB" in said
    assert not [note for note in notes(folder, "sh", "-c", f"{search} | cat") if "reads" in note]


def test_levels_that_read_different_amounts_are_said(state: Path, folder: Path) -> None:
    """The command looks at the setting that is varied, and reads twice under one of its levels."""
    number = folder.stat().st_dev
    setting = f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/queue/read_ahead_kb"
    script = f"cat big; test $(cat {setting}) = 64 && cat big; true"
    (said,) = [note for note in notes(folder, "sh", "-c", script) if "may not have done" in note]
    assert "runs with 64 read" in said
    assert not [note for note in notes(folder, "cat", "big") if "may not have done" in note]


def test_work_on_names_is_said_to_stay_warm(state: Path, folder: Path) -> None:
    (folder / "many").mkdir()
    for number in range(500):
        (folder / "many" / f"f{number}").touch()
    (said,) = [note for note in notes(folder, "sh", "-c", "ls -l many; head -c 9 big") if "names" in note]
    assert "cold-system" in said
    assert not [note for note in notes(folder, "cat", "big") if "names" in note]
