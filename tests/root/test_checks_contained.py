"""A check after a power cut that leaves something behind: it is killed, the disk is free again, and the next check runs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from breaking import eventually, processes_with
from test_powercut_recovery import image, target

from iotrial.errors import LabError
from iotrial.lab.target import Target
from iotrial.powercut.checking import run_checker
from iotrial.powercut.disk import over_image
from iotrial.powercut.recover import Check, Findings, Recovery

pytestmark = [pytest.mark.root, pytest.mark.alone]  # as test_powercut_recovery.py

__all__ = ["image", "target"]  # fixtures

#: seconds that no other test worker sleeps
SLEEP = str(8_300_000 + os.getpid() % 100_000)
OTHER = str(8_500_000 + os.getpid() % 100_000)
#: by what it does: the script of a checker, in a folder of the recovered file system
LEFT = {
    "a process of its own session": f"setsid sleep {SLEEP} & true",
    "one that holds the output open": f"sleep {SLEEP} & echo",
    "one with its current folder on the disk": f'cd "$1" && (setsid sleep {SLEEP} >/dev/null 2>&1 &)',
    "one with a file open": f'exec 7> "$1/held"; (setsid sleep {SLEEP} >/dev/null 2>&1 &)',
    "one that ignores SIGTERM, forked twice": f"(trap '' TERM HUP INT; (setsid sh -c 'sleep {SLEEP}; true' &) ) & true",
    "one without any open file": f"(exec 0<&- 1>&- 2>&-; setsid sleep {SLEEP}) & true",
    "a mapped file": f'{sys.executable} -c "$MAP" "$1" & sleep 0.3',
    "100 processes": f"i=0; while [ $i -lt 100 ]; do sleep {SLEEP} & i=$((i + 1)); done",
    "a chain of forks": f'{sys.executable} -c "$HOP" {SLEEP} & sleep 0.2',
}
MAP = f"""
import mmap, os, sys, time
file = os.open(sys.argv[1] + "/mapped", os.O_RDWR | os.O_CREAT)
os.ftruncate(file, 4096)
kept = mmap.mmap(file, 4096)
os.close(file)
os.execv("/bin/sh", ["sh", "-c", "sleep {SLEEP}"]) if os.fork() == 0 else time.sleep({SLEEP})
"""
#: 3,000 processes, one after the other: each ends as soon as it has started the next
HOP = """
import os, time
for _ in range(3000):
    if os.fork():
        os._exit(0)
time.sleep(83291)
"""


def checking(script: str) -> Check:
    def check(root: Path, acknowledged: Sequence[str]) -> Findings:
        found = run_checker(
            ["sh", "-c", script, "check", str(root)],
            {},
            acknowledged,
            cwd=str(root),
            environment={**os.environ, "MAP": MAP, "HOP": HOP},
            stdin="",
            user=None,
        )
        return Findings(found.lost, found.corrupt)

    return check


@pytest.mark.parametrize("what", LEFT)
def test_what_a_check_leaves_running_is_killed_and_the_disk_is_free(
    target: Target, image: Path, what: str
) -> None:
    with (
        over_image(target, image) as disk,
        Recovery(disk.path, "ext4", checking(LEFT[what]), fsck_every=1, limit_s=20) as recovery,
    ):
        for _ in range(3):
            outcome = recovery.recover(())
            assert outcome.verdict == "clean", outcome
            assert processes_with(SLEEP) == []


def test_a_check_that_hangs_is_killed_with_all_that_it_has_started(target: Target, image: Path) -> None:
    script = f"trap '' TERM; setsid sleep {SLEEP} & cd \"$1\"; sleep {SLEEP}"
    with (
        over_image(target, image) as disk,
        Recovery(disk.path, "ext4", checking(script), limit_s=1) as recovery,
    ):
        first = recovery.recover(())
        assert "did not end within 1 s" in first.corrupt[0]
        assert processes_with(SLEEP) == []
        assert recovery.recover(()).mounted


def test_who_keeps_the_disk_busy_from_outside_is_named(target: Target, image: Path) -> None:
    """Another program has entered the mount namespace of the check, and stays in the recovered file system."""
    folder, go = image.parent / "at", image.parent / "go"
    folder.mkdir()
    problems: list[str] = []

    def recover() -> None:
        try:
            recovery.recover(())
        except LabError as error:
            problems.append(error.message)

    script = f"sleep {SLEEP} & while ! test -e {go}; do sleep 0.05; done"
    with over_image(target, image) as disk:
        recovery = Recovery(disk.path, "ext4", checking(script), limit_s=30, at=folder)
        thread = threading.Thread(target=recover)
        thread.start()
        assert eventually(lambda: len(processes_with(SLEEP)) == 1)
        (inside,) = processes_with(SLEEP)
        words = ["nsenter", "-t", str(inside), "-m", "sh", "-c", f"cd {folder} && exec sleep {OTHER}"]
        other = subprocess.Popen(words)
        try:
            assert eventually(lambda: processes_with(f"cd {folder}") == [])  # the shell has become sleep
            assert eventually(lambda: processes_with(OTHER) == [other.pid])
            go.touch()
            thread.join()
            assert f"in use by {other.pid} (sleep)" in problems[0]
        finally:
            other.kill()
            other.wait()
        recovery.close()


def test_a_device_that_is_mounted_elsewhere_is_no_damage(target: Target, image: Path) -> None:
    """That a mount is refused as busy says nothing about the file system: who has it is named."""
    folder = image.parent / "elsewhere"
    folder.mkdir()
    with over_image(target, image) as disk:
        subprocess.run(["mount", "-o", "ro,noload", disk.path, str(folder)], check=True)
        try:
            with (
                Recovery(disk.path, "ext4", checking("true"), limit_s=30) as recovery,
                pytest.raises(LabError, match=r"mounted by \d+ \(") as raised,
            ):
                recovery.recover(())
            named = raised.value.message.rpartition("mounted by ")[2].split(" ")[0]
            assert Path(f"/proc/{named}/ns/mnt").readlink() == Path("/proc/self/ns/mnt").readlink()
        finally:
            subprocess.run(["umount", str(folder)], check=True)
