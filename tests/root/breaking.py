"""Shared code of the fault tests: a trial as a process, its progress, its probe, its leftovers, and a disk of
the test's own that may fail. All waiting is for the store, the journal or the kernel's own files."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
from running import SCHEMA, stored_runs

import program
from iotrial.probe.binary import find_binary

MIB = 1 << 20
LIMIT_S = 180.0
#: environment variable with the name of the pytest-xdist worker, inherited by all processes that the worker
#: starts
WORKER = "PYTEST_XDIST_WORKER"

#: a quick image lab; the tests fill in the parts in brackets
IMAGE = """
[study]
name = "modes"
question = "Do permission bits matter to reading?"
[lab]
kind = "image"
filesystem = "{filesystem}"
size = "64 MiB"
[budget]
time = "60 s"
blocks = {blocks}
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0444", "0777"]
[[workload]]
name = "read"
kind = "files"
files = 5
size = "{size}"
cache = "cold"
operations = ["open", "read-to-end", "close"]
"""

#: a command in a directory lab; `{work}` is its first step, as a TOML list
FOLDER = """
[study]
name = "words"
question = "Does the word matter?"
[lab]
kind = "{lab}"
size = "64 MiB"
[budget]
time = "60 s"
blocks = {blocks}
[[factor]]
name = "word"
knob = "command.argument"
placeholder = "{{word}}"
levels = ["one", "two"]
[[workload]]
name = "say"
kind = "command"
cache = "as-is"
files = 2
size = "4 KiB"
timeout = "{timeout}"
argv = {work}
"""


def image_study(folder: Path, *, filesystem: str = "ext4", blocks: int = 3, size: str = "64 KiB") -> str:
    return _written(folder, IMAGE.format(filesystem=filesystem, blocks=blocks, size=size))


def command_study(
    folder: Path, work: list[str], *, lab: str = "directory", blocks: int = 3, timeout: str = "20 s"
) -> str:
    text = FOLDER.format(lab=lab, blocks=blocks, timeout=timeout, work=json.dumps(work))
    return _written(folder, text)


def _written(folder: Path, text: str) -> str:
    path = folder / "faulty.toml"
    path.write_text(text)
    return str(path)


def as_in_a_terminal() -> None:
    """Reset the terminal's signals to their default: if the tests run as a background job, these may be
    ignored."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


class Trial:
    """``iotrial run ...`` (or another verb) as a separate process."""

    def __init__(self, state: Path, *words: str, verb: str = "run", **popen: Any) -> None:
        self.state = state
        self.process = subprocess.Popen(
            [sys.executable, "-m", "iotrial", verb, *words],
            stdout=popen.pop("stdout", subprocess.PIPE),
            stderr=popen.pop("stderr", subprocess.PIPE),
            text=True,
            preexec_fn=popen.pop("preexec_fn", as_in_a_terminal),
            **popen,
        )

    @property
    def runs(self) -> int:
        with contextlib.suppress(sqlite3.Error, OSError):
            return len(stored_runs(self.state))
        return 0

    def until_runs(self, wanted: int) -> None:
        self.until(lambda: self.runs >= wanted, f"{wanted} stored runs")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        assert eventually(lambda: condition() or self.process.poll() is not None), f"never came: {what}"
        if self.process.poll() is not None and not condition():
            out, err = self.process.communicate()
            raise AssertionError(f"ended with {self.process.returncode} before {what}: {out}{err}")

    def end(self) -> tuple[int, str, str]:
        """Wait for its end; return exit status, output and errors."""
        try:
            out, err = self.process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
            raise AssertionError(f"did not end: {out}{err}") from None
        assert "Traceback" not in (err or ""), err
        return self.process.returncode, out or "", err or ""

    def probes(self) -> list[int]:
        """Return the probe's processes, outermost first: guard or outer process, then the one that works."""
        outer = [pid for pid in children(self.process.pid) if command_of(pid)[:1] != []]
        return outer + [inner for pid in outer for inner in children(pid)]

    def worker(self) -> int:
        self.until(lambda: len(self.probes()) >= 2, "a probe at work")
        return self.probes()[1]


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def command_of(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return [w for w in Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0") if w]
    return []


def state_of(pid: int) -> str:
    """Return the process state as in proc_pid_stat(5); empty if the process is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    return ""


def eventually(condition: Callable[[], bool], seconds: float = LIMIT_S) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


def processes_with(word: str) -> list[int]:
    """Return the running processes with an argument that begins with this word."""
    found = []
    for entry in Path("/proc").iterdir():
        pid = int(entry.name) if entry.name.isdigit() else 0
        if pid and state_of(pid) not in ("", "Z") and any(w.startswith(word) for w in command_of(pid)):
            found.append(pid)
    return found


def entries(state: Path) -> list[Path]:
    return sorted((state / "journal").glob("*"))


def traces(state: Path, *folders: Path) -> list[str]:
    """Return leftovers that a finished trial must not leave: journal entries, folders, mounts, loop devices
    over images in these folders or next to the state folder, and probe processes that no other test worker
    has started."""
    inside = tuple(f"{folder}/" for folder in (state.parent, *folders))
    found = [f"journal {path.name}" for path in entries(state)]
    found += [str(p) for p in (*folders, state / "lab") if p.is_dir() for p in p.glob("*iotrial*")]
    if Path("/run/iotrial").exists():
        found.append("/run/iotrial")
    found += [line for line in Path("/proc/self/mounts").read_text().splitlines() if "iotrial/" in line]
    for device in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            text = device.read_text().strip()
            if text.startswith(inside) and text.endswith("(deleted)") and "/#" in text:
                found.append(f"{device.parts[3]} over {text}")
    probes = processes_with(str(find_binary()))
    found += [f"process {pid} ioprobe" for pid in probes if not of_another_worker(pid)]
    return found


def of_another_worker(pid: int) -> bool:
    """Return whether another pytest-xdist worker has started this process, by its environment."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0"):
            name, _, worker = line.partition("=")
            if name == WORKER:
                return worker != os.environ.get(WORKER)
    return False


def nothing_left(state: Path, *folders: Path) -> None:
    """Assert that nothing is left. Waits, since the kernel removes mounts and loop devices a moment after the
    last process that held them."""
    assert eventually(lambda: not traces(state, *folders), 10), traces(state, *folders)


def iotrial(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    done = program.iotrial(*words, env=env, timeout=LIMIT_S)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def report_of(text: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(text)
    jsonschema.validate(report, SCHEMA)
    return report


def last_trial() -> dict[str, Any]:
    trial: dict[str, Any] = json.loads(iotrial("trials", "--json").stdout)["trials"][-1]
    return trial


def resumes_to_the_end(state: Path, finished: list[dict[str, Any]]) -> dict[str, Any]:
    """Complete the trial with ``resume``; check that all runs stored before are unchanged. Return the report."""
    done = iotrial("resume", "--json")
    assert done.returncode in (0, 3, 6), done.stderr
    assert stored_runs(state)[: len(finished)] == finished
    slots = [(r["condition"], r["block"], r["slot"]) for r in stored_runs(state)]
    assert len(set(slots)) == len(slots)
    return report_of(done.stdout)


@contextlib.contextmanager
def own_disk(folder: Path, size: int, *, kind: str = "ext4") -> Iterator[tuple[Path, Path]]:
    """Yield a file system on a sparse image, in place of the user's disk: the image and its mount point."""
    image, mounted = folder / "disk.image", folder / "disk"
    with image.open("wb") as file:
        file.truncate(size)
    mounted.mkdir()
    options = ["-E", "lazy_itable_init=1", "-m", "0"] if kind == "ext4" else []
    subprocess.run([f"mkfs.{kind}", "-q", *options, str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(mounted)], check=True)
    try:
        yield image, mounted
    finally:
        subprocess.run(["umount", str(mounted)], check=True)
        mounted.rmdir()
        image.unlink()


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    assert eventually(lambda: state_of(pid) in ("T", "t", ""))


def send(trial: Trial, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        trial.process.send_signal(number)
